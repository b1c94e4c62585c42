/* What a keeper and a runtime say to each other over a SOCK_SEQPACKET socket, one byte a message. For the folder and for what starts
 * a keeper. */
#ifndef SY_RUNTIME_KEEPER_KEEPER_WIRE_H
#define SY_RUNTIME_KEEPER_KEEPER_WIRE_H

#include <stdbool.h>

#define SY_KEEPER_HERE \
    'H' /* keeper: with the image's and the book's descriptors; the runtime has the image now */
#define SY_KEEPER_BUSY 'B' /* keeper: another runtime has it */
#define SY_KEEPER_DROP 'D' /* runtime: end now */

/* Whether this process's user is at the other end. Both sides ask: an image that somebody else can write is nobody's to serve from. */
bool sy_keeper_is_own_user(int fd);

/* Descriptors of a keeper's process. */
#define SY_KEEPER_OWNER_FD    3
#define SY_KEEPER_LISTENER_FD 4
#define SY_KEEPER_IMAGE_FD    5
#define SY_KEEPER_BOOK_FD     6

#endif

/* Host images that outlive their runtime, so that the next one need not read its models from storage again.
 *
 *   runtime ──spawns──> keeper            holds the image's and the book's descriptors, and nothing else
 *      ╳ killed           │ sees its end of the socket close
 *   next runtime ──connects─> keeper      hands both over, and belongs to that runtime from then on
 *
 * KE1: a keeper hands its image to one runtime at a time, of its own user, and to the next only after the one before closed its socket: the kernel does
 *      so after it took away that process's memory, so nobody writes any more.
 * KE2: a keeper ends after `seconds` without a runtime, when it is told to, or by any signal. It holds one image of image_bytes.
 * KE3: a runtime that stops in order drops the image, unless keeps_on_stop.
 * KE4: what is taken over is checked: seals, sizes, the book's version; and each group by its hashes before it is used (image_book.h).
 *
 * Under a service manager that stores descriptors (systemd, FileDescriptorStoreMax=2) no keeper is started: the manager keeps both by the same
 * rules, but for as long as its own configuration says. */
#ifndef SY_RUNTIME_KEEPER_KEEPER_H
#define SY_RUNTIME_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/keeper/image_book.h"

struct sy_keeper;

struct sy_keeper_config {
    const char *
        socket_path; /* where a keeper is found again: a name that only this user may bind and connect to */
    const char *program; /* NULL: /proc/self/exe; run as `PROGRAM keep ...` */
    uint64_t image_bytes;
    int seconds; /* 1 or more: how long an image waits for the next runtime */
    bool keeps_on_stop;
};

/* Takes over the image that is kept, or makes one and has it kept. Blocks for at most a second, while an old keeper ends. EBUSY: another runtime has the
 * image at this path; EDENIED: another user has the path; EARG: the path; EIO, ENOMEM_HOST. The log says what was found, and why it was not used. */
int sy_keeper_open(const struct sy_keeper_config *config, struct sy_keeper **out);
/* Hands the image on or drops it (KE3), and frees. NULL is fine. */
void sy_keeper_close(struct sy_keeper *keeper);
/* Borrowed; good until close. */
int sy_keeper_image_fd(const struct sy_keeper *keeper);
struct sy_image_book *sy_keeper_book(struct sy_keeper *keeper);

/* The keeper's process: owns these descriptors; runs until it ends by KE2; does not return. */
_Noreturn void sy_keeper_run(int owner, int listener, int image, int book, int seconds);

#endif

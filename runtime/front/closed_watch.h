/* Reports the end of connections that the server has stopped reading.
 *
 * libevent's EV_CLOSED does not suffice: a reset comes as EPOLLERR, which libevent turns into EV_READ and EV_WRITE. No event waits for these then, so no callback
 * runs, and the loop spins. One thread, the event loop's. */
#ifndef SY_FRONT_CLOSED_WATCH_H
#define SY_FRONT_CLOSED_WATCH_H

#include <stdbool.h>

struct event_base;
struct sy_closed_watch;

/* `closed` is called from the loop, once for each add. is_gone: the connection is closed in both directions. Else the peer only sends no more; over TCP a
 * peer that closes looks the same until something is sent to it, which it answers with a reset. */
int sy_closed_watch_create(struct event_base *base, void (*closed)(void *connection, bool is_gone),
                           struct sy_closed_watch **out);
void sy_closed_watch_destroy(struct sy_closed_watch *watch);
/* Watches the connection until its peer sends no more or resets it, or it is removed. EIO, ENOMEM_HOST: it is not watched. */
int sy_closed_watch_add(struct sy_closed_watch *watch, int fd, void *connection);
/* Watches a connection whose peer sends no more, until it is closed in both directions. */
int sy_closed_watch_add_ended(struct sy_closed_watch *watch, int fd, void *connection);
/* Before the descriptor is closed. Harmless for one that is not there. */
void sy_closed_watch_remove(struct sy_closed_watch *watch, int fd);

#endif

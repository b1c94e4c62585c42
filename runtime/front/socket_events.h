/* The events of one connection's socket, as HTTP and RPC use them. While the socket is not read, `closed` still reports the end of the peer's
 * stream. One thread, the event loop's. */
#ifndef SY_FRONT_SOCKET_EVENTS_H
#define SY_FRONT_SOCKET_EVENTS_H

#include <event2/event.h>
#include <stdbool.h>

struct sy_socket_events {
    struct event *read, *write, *closed;
    struct event *again; /* (optional) continues in the loop's next turn; the connection makes it */
    bool reading, writing;
};

struct sy_socket_callbacks {
    event_callback_fn readable, writable, closed;
};

/* Starts reading. After a failure too the events are to be freed. */
int sy_socket_events_init(struct sy_socket_events *events, struct event_base *base, int fd,
                          const struct sy_socket_callbacks *callbacks, void *ctx);
/* No callback comes any more; before the descriptor is closed. */
void sy_socket_events_stop(struct sy_socket_events *events);
void sy_socket_events_finish(struct sy_socket_events *events);
/* Exactly one of `read` and `closed` is pending. */
void sy_socket_read(struct sy_socket_events *events, bool wanted);
void sy_socket_write(struct sy_socket_events *events, bool wanted);

#endif

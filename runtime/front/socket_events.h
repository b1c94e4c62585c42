/* The events of one connection's socket, for every protocol. While the socket is not read, the server's watch still reports its end
 * (closed_watch.h). One thread, the event loop's. */
#ifndef SY_FRONT_SOCKET_EVENTS_H
#define SY_FRONT_SOCKET_EVENTS_H

#include <event2/event.h>
#include <stdbool.h>

struct sy_closed_watch;

struct sy_socket_events {
    struct event *read, *write;
    struct event *again; /* NULL: not made yet */
    const struct sy_socket_callbacks *callbacks;
    bool reading, writing, watched;
    struct sy_closed_watch *watch;
    int fd;
    void *connection;
};

struct sy_socket_callbacks {
    event_callback_fn readable, writable;
    event_callback_fn again; /* of sy_socket_call_soon */
};

/* Starts reading. The events are to be finished after a failure as well. callbacks: static; watch: the server's, or NULL for a socket that is always
 * read; connection: what the callbacks and the watch get. */
int sy_socket_events_init(struct sy_socket_events *events, struct event_base *base, int fd,
                          const struct sy_socket_callbacks *callbacks,
                          struct sy_closed_watch *watch, void *connection);
/* No callback comes after it. Call before closing the descriptor. */
void sy_socket_events_stop(struct sy_socket_events *events);
void sy_socket_events_finish(struct sy_socket_events *events);
/* Reads the socket, or else only watches for its end. */
void sy_socket_read(struct sy_socket_events *events, bool wanted);
void sy_socket_write(struct sy_socket_events *events, bool wanted);
/* Calls `again` in the loop's next turn: bytes that TLS has decrypted, or that are held, make no event of the socket. False: no memory. */
bool sy_socket_call_soon(struct sy_socket_events *events);
/* The peer sends no more: nothing is read, and the watch reports when the connection is gone. */
void sy_socket_read_ended(struct sy_socket_events *events);
/* Stops watching for the end of a socket that is not read. */
void sy_socket_unwatch(struct sy_socket_events *events);

#endif

/* What every front end's server is made of, whatever its protocol: listening sockets, the limit of connections, the timer that looks for stalled clients,
 * and the references that keep its memory until the last request on it is over.
 *
 * It is the first member of the protocol's own server. Invariant: refs = 1 for the owner, 1 for each connection, 1 for each request that may outlive its
 * connection. One thread, the event loop's. */
#ifndef SY_FRONT_FRONT_SERVER_H
#define SY_FRONT_FRONT_SERVER_H

#include <stdbool.h>

#include "runtime/front/least_rate.h"

#define SY_FRONT_LISTENERS 2 /* a Unix socket and a TCP port */

/* FE1: of one server in one turn of the loop. To accept a connection over gRPC takes 13 us of CPU time, to close one whose client is still there up to 50. */
#define SY_FRONT_ACCEPTS 16
#define SY_FRONT_LOOKS   256
#define SY_FRONT_CLOSES  16
#define SY_FRONT_ENDS    4096 /* sockets that wait to be closed */

struct event;
struct event_base;
struct sy_front_server;

struct sy_front_server_ops {
    const char *name; /* component of its log lines */
    /* SY_OK: the socket belongs to the new connection. Else it is refused, then closed by the caller. is_unix: it came over a Unix socket. */
    int (*accept)(struct sy_front_server *server, int fd, bool is_unix);
    /* (optional) Tells a client that is not accepted why: the thread's error text. SY_EBUSY: too many connections are open. */
    void (*refuse)(struct sy_front_server *server, int fd, int status);
    /* The newest connection, and the one behind a connection; NULL: none. */
    void *(*first)(struct sy_front_server *server);
    void *(*next)(void *connection);
    /* Once a period for each connection, which it may close. counts false: the timer itself came late, which must not count against clients (least_rate.h). */
    void (*look)(void *connection, sy_ns now, bool counts);
    /* The last reference is gone. */
    void (*free)(struct sy_front_server *server);
};

struct sy_front_server {
    const struct sy_front_server_ops *ops;
    struct event_base *loop;
    struct event *listeners[SY_FRONT_LISTENERS];
    int n_listeners;
    int port; /* port of the TCP listener; 0: none */
    struct event *tick;
    struct event *go_on; /* the round of looks has connections left */
    void *look_at;       /* the connection that is looked at next; NULL: the round is over */
    sy_ns look_ns;       /* when the round began */
    bool look_counts;
    struct event *ender;
    int n_closed;            /* sockets, in this turn of the loop */
    int first_end, n_ends;   /* of the ring */
    int ends[SY_FRONT_ENDS]; /* sockets whose connections are gone */
    struct sy_stall_looks looks;
    int n_connections, max_connections;
    bool is_full;         /* the last client was refused */
    sy_ns accept_said_ns; /* sy_net_accept_failed */
    int refs;
};

/* With one reference, the owner's. */
void sy_front_server_init(struct sy_front_server *server, const struct sy_front_server_ops *ops,
                          struct event_base *loop);
/* Calls ops->look on each connection every period, on SY_FRONT_LOOKS of them in one turn of the loop, or until SY_FRONT_CLOSES are closed. ENOMEM_HOST. */
int sy_front_server_start_looks(struct sy_front_server *server, sy_ns period_ns);
/* Accepts from a bound socket, which it takes over; SY_FRONT_ACCEPTS clients in one turn of the loop, none while open connections and sockets that wait to be
 * closed are max_connections. EBUSY: the address is taken; EIO, ENOMEM_HOST. */
int sy_front_server_listen(struct sy_front_server *server, int fd);
/* Binds "host:port" as sy_tcp_bind does, and accepts from it. */
int sy_front_server_listen_tcp(struct sy_front_server *server, const char *address);
/* Accepts no more. Connections stay. */
void sy_front_server_stop_listening(struct sy_front_server *server);
/* Closes a connection's socket, which has no event any more: now, or behind SY_FRONT_CLOSES others in a later turn of the loop. Of clients that end
 * together each costs their turn 3 us then, not 10. */
void sy_front_server_close(struct sy_front_server *server, int fd);
/* Accepts no more, looks no more. */
void sy_front_server_stop(struct sy_front_server *server);

/* A connection was accepted: counts it, and takes its reference. */
static inline void sy_front_server_connected(struct sy_front_server *server)
{
    server->n_connections++;
    server->refs++;
}
/* A connection is closed: `next` is the one behind it. Its reference stays until sy_front_server_release. */
static inline void sy_front_server_disconnected(struct sy_front_server *server,
                                                const void *connection, void *next)
{
    server->n_connections--;
    if (server->look_at == connection)
        server->look_at = next;
}
void sy_front_server_release(struct sy_front_server *server);

#endif

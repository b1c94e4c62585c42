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

struct event;
struct event_base;
struct evconnlistener;
struct sy_front_server;

struct sy_front_server_ops {
    const char *name; /* component of its log lines */
    /* SY_OK: the socket belongs to the new connection. Else it is refused, then closed by the caller. is_unix: it came over a Unix socket. */
    int (*accept)(struct sy_front_server *server, int fd, bool is_unix);
    /* (optional) Tells a client that is not accepted why: the thread's error text. SY_EBUSY: too many connections are open. */
    void (*refuse)(struct sy_front_server *server, int fd, int status);
    /* Once a period. counts false: the timer itself came late, which must not count against clients (least_rate.h). */
    void (*look)(struct sy_front_server *server, sy_ns now, bool counts);
    /* The last reference is gone. */
    void (*free)(struct sy_front_server *server);
};

struct sy_front_server {
    const struct sy_front_server_ops *ops;
    struct event_base *loop;
    struct evconnlistener *listeners[SY_FRONT_LISTENERS];
    int n_listeners;
    int port; /* port of the TCP listener; 0: none */
    struct event *tick;
    struct sy_stall_looks looks;
    int n_connections, max_connections;
    bool is_full;         /* the last client was refused */
    sy_ns accept_said_ns; /* sy_net_accept_failed */
    int refs;
};

/* With one reference, the owner's. */
void sy_front_server_init(struct sy_front_server *server, const struct sy_front_server_ops *ops,
                          struct event_base *loop);
/* Calls ops->look every period. ENOMEM_HOST. */
int sy_front_server_start_looks(struct sy_front_server *server, sy_ns period_ns);
/* Accepts from a bound socket, which it takes over. EBUSY: the address is taken; EIO. */
int sy_front_server_listen(struct sy_front_server *server, int fd);
/* Binds "host:port" as sy_tcp_bind does, and accepts from it. */
int sy_front_server_listen_tcp(struct sy_front_server *server, const char *address);
/* Accepts no more. Connections stay. */
void sy_front_server_stop_listening(struct sy_front_server *server);
/* Accepts no more, looks no more. */
void sy_front_server_stop(struct sy_front_server *server);

/* A connection was accepted: counts it, and takes its reference. */
static inline void sy_front_server_connected(struct sy_front_server *server)
{
    server->n_connections++;
    server->refs++;
}
void sy_front_server_release(struct sy_front_server *server);

#endif

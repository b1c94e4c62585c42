#include "runtime/front/front_server.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/tcp_listen.h"
#include "runtime/net/tls.h"

#define BACKLOG 1024

void sy_front_server_init(struct sy_front_server *server, const struct sy_front_server_ops *ops,
                          struct event_base *loop)
{
    *server = (struct sy_front_server){.ops = ops, .loop = loop, .refs = 1};
}

void sy_front_server_release(struct sy_front_server *server)
{
    if (--server->refs == 0)
        server->ops->free(server);
}

/* ---- accepting --------------------------------------------------------------------------------------------- */

static void refuse(struct sy_front_server *server, int fd, int status)
{
    if (!server->is_full) /* logged once, not for each of a flood */
        sy_log_warn(server->ops->name, "event=refused why=\"%s\"", sy_error_text());
    server->is_full = true;
    if (server->ops->refuse)
        server->ops->refuse(server, fd, status);
    close(fd);
}

static int take_client(struct sy_front_server *server, int fd, bool is_unix)
{
    if (server->n_connections >= server->max_connections)
        return sy_error_set(SY_EBUSY, "%d connections are open already; try again later",
                            server->n_connections);
    if (!is_unix)
        sy_net_set_tcp(fd);
    return server->ops->accept(server, fd, is_unix);
}

static void welcome(struct sy_front_server *server, int fd, bool is_unix)
{
    int status = take_client(server, fd, is_unix);

    if (status < 0)
        refuse(server, fd, status);
    else
        server->is_full = false;
}

/* Out of descriptors, mostly: a level-triggered listener would spin, so it rests until the next tick. */
static void rest(struct sy_front_server *server, int fd)
{
    sy_net_accept_failed(server->ops->name, &server->accept_said_ns);
    for (int i = 0; i < server->n_listeners; i++)
        if (event_get_fd(server->listeners[i]) == fd)
            event_del(server->listeners[i]);
}

/* Sockets that wait to be closed hold descriptors, which the limit of connections leaves to others. The next turns close them. */
static bool waits_for_closes(const struct sy_front_server *server)
{
    return server->n_ends > 0 && server->n_connections + server->n_ends >= server->max_connections;
}

/* FE1: clients that connect faster than they are accepted would hold the loop for as long as they come. */
static void on_acceptable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_front_server *server = ctx;

    (void)what;
    for (int i = 0; i < SY_FRONT_ACCEPTS && !waits_for_closes(server); i++) {
        struct sockaddr_storage address = {0};
        socklen_t n = sizeof address;
        int client = accept4(fd, (struct sockaddr *)&address, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (client >= 0) {
            welcome(server, client, address.ss_family == AF_UNIX);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            if (errno != EAGAIN)
                rest(server, fd);
            return;
        }
    }
}

int sy_front_server_listen(struct sy_front_server *server, int fd)
{
    struct event *listener;

    sy_assert_internal(server->n_listeners < SY_FRONT_LISTENERS);
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    if (listen(fd, BACKLOG)) {
        int why = errno;

        close(fd);
        return sy_error_set(why == EADDRINUSE ? SY_EBUSY : SY_EIO, "cannot listen: %s",
                            strerror(why));
    }
    listener = event_new(server->loop, fd, EV_READ | EV_PERSIST, on_acceptable, server);
    if (!listener || event_add(listener, NULL)) {
        if (listener)
            event_free(listener);
        close(fd);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a listening socket");
    }
    server->listeners[server->n_listeners++] = listener;
    return SY_OK;
}

int sy_front_server_listen_tcp(struct sy_front_server *server, const char *address)
{
    int fd;

    SY_TRY(sy_tcp_bind(address, &fd, &server->port));
    return sy_front_server_listen(server, fd);
}

void sy_front_server_stop_listening(struct sy_front_server *server)
{
    while (server->n_listeners > 0) {
        struct event *listener = server->listeners[--server->n_listeners];
        int fd = event_get_fd(listener);

        event_free(listener);
        close(fd);
    }
}

/* ---- closing ----------------------------------------------------------------------------------------------- */

static const struct timeval at_once = {0, 0};

static void close_now(struct sy_front_server *server, int fd)
{
    if (server->n_closed++ == 0)
        event_add(server->ender, &at_once);
    close(fd);
}

static void close_first(struct sy_front_server *server)
{
    int fd = server->ends[server->first_end];

    server->first_end = (server->first_end + 1) % SY_FRONT_ENDS;
    server->n_ends--;
    close_now(server, fd);
}

static void on_end_of_turn(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_front_server *server = ctx;

    (void)fd, (void)what;
    server->n_closed = 0;
    while (server->n_ends > 0 && server->n_closed < SY_FRONT_CLOSES)
        close_first(server);
}

void sy_front_server_close(struct sy_front_server *server, int fd)
{
    if (!server->ender) { /* the server has stopped */
        close(fd);
    } else if (server->n_closed < SY_FRONT_CLOSES || server->n_ends == SY_FRONT_ENDS) {
        close_now(server, fd);
    } else {
        server->ends[(server->first_end + server->n_ends) % SY_FRONT_ENDS] = fd;
        server->n_ends++;
    }
}

/* ---- looking ----------------------------------------------------------------------------------------------- */

/* FE1: connections that fell silent together are closed together. */
static void look_on(struct sy_front_server *server)
{
    int least = server->n_connections - SY_FRONT_CLOSES;

    for (int i = 0; i < SY_FRONT_LOOKS && server->look_at && server->n_connections > least; i++) {
        void *connection = server->look_at;

        server->look_at = server->ops->next(connection);
        server->ops->look(connection, server->look_ns, server->look_counts);
    }
    if (server->look_at)
        event_add(server->go_on, &at_once);
}

static void on_go_on(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    look_on(ctx);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_front_server *server = ctx;
    sy_ns now = sy_clock_now();
    bool counts = sy_stall_look_is_timely(&server->looks, now);

    (void)fd, (void)what;
    for (int i = 0; i < server->n_listeners; i++)
        event_add(server->listeners[i], NULL);
    if (server->look_at) /* the round before is not over */
        return;
    server->look_at = server->ops->first(server);
    server->look_ns = now;
    server->look_counts = counts;
    look_on(server);
}

int sy_front_server_start_looks(struct sy_front_server *server, sy_ns period_ns)
{
    struct timeval interval = {(time_t)(period_ns / SY_NS_PER_S),
                               (suseconds_t)(period_ns % SY_NS_PER_S / SY_NS_PER_US)};

    server->looks = (struct sy_stall_looks){sy_clock_now(), period_ns, false};
    server->tick = event_new(server->loop, -1, EV_PERSIST, on_tick, server);
    server->go_on = event_new(server->loop, -1, 0, on_go_on, server);
    server->ender = event_new(server->loop, -1, 0, on_end_of_turn, server);
    if (!server->tick || !server->go_on || !server->ender || event_add(server->tick, &interval))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a timer");
    return SY_OK;
}

void sy_front_server_stop(struct sy_front_server *server)
{
    sy_front_server_stop_listening(server);
    while (server->n_ends > 0)
        close_first(server);
    if (server->ender)
        event_free(server->ender);
    if (server->tick)
        event_free(server->tick);
    if (server->go_on)
        event_free(server->go_on);
    server->tick = server->go_on = server->ender = NULL;
}

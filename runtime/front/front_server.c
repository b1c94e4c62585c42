#include "runtime/front/front_server.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/tcp_listen.h"
#include "runtime/net/tls.h"

#define LISTENER_FLAGS (LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC)
#define BACKLOG        1024

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

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int n_bytes, void *ctx)
{
    struct sy_front_server *server = ctx;
    int status = take_client(server, fd, address->sa_family == AF_UNIX);

    (void)listener, (void)n_bytes;
    if (status < 0)
        refuse(server, fd, status);
    else
        server->is_full = false;
}

/* Out of descriptors, mostly: a level-triggered listener would spin, so it rests until the next tick. */
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
    struct sy_front_server *server = ctx;

    sy_net_accept_failed(server->ops->name, &server->accept_said_ns);
    evconnlistener_disable(listener);
}

int sy_front_server_listen(struct sy_front_server *server, int fd)
{
    struct evconnlistener *listener;

    sy_assert_internal(server->n_listeners < SY_FRONT_LISTENERS);
    evutil_make_socket_nonblocking(fd);
    listener = evconnlistener_new(server->loop, on_accept, server, LISTENER_FLAGS, BACKLOG, fd);
    if (!listener) {
        int why = errno;

        close(fd);
        return sy_error_set(why == EADDRINUSE ? SY_EBUSY : SY_EIO, "cannot listen: %s",
                            strerror(why));
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
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
    while (server->n_listeners > 0)
        evconnlistener_free(server->listeners[--server->n_listeners]);
}

/* ---- looking ----------------------------------------------------------------------------------------------- */

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_front_server *server = ctx;
    sy_ns now = sy_clock_now();

    (void)fd, (void)what;
    for (int i = 0; i < server->n_listeners; i++)
        evconnlistener_enable(server->listeners[i]);
    server->ops->look(server, now, sy_stall_look_is_timely(&server->looks, now));
}

int sy_front_server_start_looks(struct sy_front_server *server, sy_ns period_ns)
{
    struct timeval interval = {(time_t)(period_ns / SY_NS_PER_S),
                               (suseconds_t)(period_ns % SY_NS_PER_S / SY_NS_PER_US)};

    server->looks = (struct sy_stall_looks){sy_clock_now(), period_ns, false};
    server->tick = event_new(server->loop, -1, EV_PERSIST, on_tick, server);
    if (!server->tick || event_add(server->tick, &interval))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a timer");
    return SY_OK;
}

void sy_front_server_stop(struct sy_front_server *server)
{
    sy_front_server_stop_listening(server);
    if (server->tick)
        event_free(server->tick);
    server->tick = NULL;
}

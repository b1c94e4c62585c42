#include "runtime/front/http/http_server.h"

#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/tcp_listen.h"

#define LISTENER_FLAGS (LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC)
#define BACKLOG        1024
#define TICK_NS        (SY_NS_PER_S / 4)

static void refuse_client(struct sy_http_server *server, int fd, int code)
{
    if (!server->full) /* said once, not for each of a flood */
        sy_log_warn("http", "event=refused why=\"%s\"", sy_error_text());
    server->full = true;
    sy_http_refuse(fd, code, sy_error_text());
    close(fd);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int n_bytes, void *ctx)
{
    struct sy_http_server *server = ctx;

    (void)listener, (void)address, (void)n_bytes;
    if (server->n_connections >= server->limits.max_connections) {
        sy_error_set(SY_EBUSY, "%d connections are open already; try again later",
                     server->n_connections);
        refuse_client(server, fd, 503);
        server->front->refused.n[SY_REFUSED_LIMIT]++;
        return;
    }
    sy_net_set_tcp(fd);
    if (sy_http_connection_create(server, fd) < 0)
        refuse_client(server, fd, 503);
    else
        server->full = false;
}

/* Out of fds, mostly: a level-triggered listener would spin, so it rests until the next tick. */
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
    struct sy_http_server *server = ctx;

    sy_net_accept_failed("http", &server->accept_said_ns);
    evconnlistener_disable(listener);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_http_server *server = ctx;
    struct sy_http_connection *connection = server->connections, *next;
    sy_ns now = sy_clock_now();

    (void)fd, (void)what;
    evconnlistener_enable(server->listener);
    if (!sy_stall_look_counts(&server->looks, now))
        return;
    for (; connection; connection = next) {
        next = connection->next;
        sy_http_connection_look(connection, now);
    }
}

static void set_defaults(struct sy_http_limits *limits)
{
#define OR(field, value)             \
    do {                             \
        if (!limits->field)          \
            limits->field = (value); \
    } while (0)
    OR(header_bytes, 32u << 10);
    OR(body_bytes, 1ull << 30);
    OR(small_bytes, 64ull << 20);
    OR(buffered_bytes, 2ull << 30);
    OR(json_depth, 64);
    OR(max_connections, 4096);
    OR(idle_ns, 75 * SY_NS_PER_S);
    OR(header_ns, 10 * SY_NS_PER_S);
    OR(stall_ns, 30 * SY_NS_PER_S);
#undef OR
}

void sy_http_server_set_limits(struct sy_http_server *server, const struct sy_http_limits *limits)
{
    server->limits = *limits;
    set_defaults(&server->limits);
}

static int listen_on(struct sy_http_server *server, const char *address)
{
    int fd;

    SY_TRY(sy_tcp_bind(address, &fd, &server->port));
    evutil_make_socket_nonblocking(fd);
    server->listener =
        evconnlistener_new(server->front->base, on_accept, server, LISTENER_FLAGS, BACKLOG, fd);
    if (!server->listener) {
        close(fd);
        return sy_error_set(errno == EADDRINUSE ? SY_EBUSY : SY_EIO, "cannot listen on %s: %s",
                            address, strerror(errno));
    }
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    return SY_OK;
}

static int start_tick(struct sy_http_server *server)
{
    struct timeval interval = {0, TICK_NS / SY_NS_PER_US};

    server->looks = (struct sy_stall_looks){sy_clock_now(), TICK_NS, false};
    server->tick = event_new(server->front->base, -1, EV_PERSIST, on_tick, server);
    if (!server->tick || event_add(server->tick, &interval))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a timer");
    return SY_OK;
}

int sy_http_server_create(const struct sy_http_config *config, struct sy_front *front,
                          struct sy_http_server **out)
{
    struct sy_http_server *server = calloc(1, sizeof(*server));
    int status;

    SY_TRY_ALLOC(server, "no memory for the HTTP server");
    server->front = front;
    server->limits = config->limits;
    server->refs = 1;
    set_defaults(&server->limits);
    server->read_buffer = malloc(SY_HTTP_READ_BYTES);
    if (!server->read_buffer) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the HTTP server");
        goto fail;
    }
    SY_TRY_GOTO(listen_on(server, config->address), fail);
    SY_TRY_GOTO(start_tick(server), fail);
    SY_TRY_GOTO(sy_closed_watch_create(front->base, sy_http_connection_gone, &server->closed_watch),
                fail);
    *out = server;
    return SY_OK;
fail:
    sy_http_server_destroy(server);
    return status;
}

void sy_http_server_destroy(struct sy_http_server *server)
{
    if (!server)
        return;
    if (server->listener)
        evconnlistener_free(server->listener);
    if (server->tick)
        event_free(server->tick);
    server->listener = NULL;
    server->tick = NULL;
    while (server->connections)
        sy_http_connection_close(server->connections);
    sy_closed_watch_destroy(server->closed_watch);
    sy_http_server_release(server);
}

static int add_route(struct sy_http_server *server, struct sy_http_route_entry entry)
{
    if (server->n_routes == SY_HTTP_MAX_ROUTES)
        return sy_error_set(SY_ENOMEM_HOST, "more than %d HTTP routes", SY_HTTP_MAX_ROUTES);
    server->routes[server->n_routes++] = entry;
    return SY_OK;
}

int sy_http_server_add_routes(struct sy_http_server *server, const struct sy_http_route *routes,
                              int n, void *ctx)
{
    for (int i = 0; i < n; i++)
        SY_TRY(add_route(server, (struct sy_http_route_entry){.route = &routes[i], .ctx = ctx}));
    return SY_OK;
}

int sy_http_server_add_streamed(struct sy_http_server *server, const struct sy_http_route *routes,
                                int n, sy_http_begin begin)
{
    for (int i = 0; i < n; i++)
        SY_TRY(
            add_route(server, (struct sy_http_route_entry){.route = &routes[i], .begin = begin}));
    return SY_OK;
}

int sy_http_server_port(const struct sy_http_server *server)
{
    return server->port;
}

int sy_http_server_connections(const struct sy_http_server *server)
{
    return server->n_connections;
}

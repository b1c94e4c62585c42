#include "runtime/front/http/http_server.h"

#include <stdlib.h>

#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

#define TICK_NS (SY_NS_PER_S / 4)

static int accept_client(struct sy_front_server *base, int fd, bool is_unix)
{
    (void)is_unix;
    return sy_http_connection_create((struct sy_http_server *)base, fd);
}

static void refuse_client(struct sy_front_server *base, int fd, int status)
{
    struct sy_http_server *server = (struct sy_http_server *)base;

    server->front->refused.n[SY_REFUSED_LIMIT] += status == SY_EBUSY;
    sy_http_refuse(fd, 503, sy_error_text());
}

static void *first(struct sy_front_server *base)
{
    return LIST_FIRST(&((struct sy_http_server *)base)->connections);
}

static void *next(void *connection)
{
    return LIST_NEXT((struct sy_http_connection *)connection, link);
}

static void look(void *connection, sy_ns now, bool counts)
{
    if (counts)
        sy_http_connection_look(connection, now);
}

static void free_server(struct sy_front_server *base)
{
    struct sy_http_server *server = (struct sy_http_server *)base;

    free(server->read_buffer);
    free(server);
}

static const struct sy_front_server_ops ops = {
    .name = "http",
    .accept = accept_client,
    .refuse = refuse_client,
    .first = first,
    .next = next,
    .look = look,
    .free = free_server,
};

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
    server->base.max_connections = server->limits.max_connections;
}

int sy_http_server_create(const struct sy_http_config *config, struct sy_front *front,
                          struct sy_http_server **out)
{
    struct sy_http_server *server = calloc(1, sizeof(*server));
    int status;

    SY_TRY_ALLOC(server, "no memory for the HTTP server");
    sy_front_server_init(&server->base, &ops, front->base);
    server->front = front;
    sy_http_server_set_limits(server, &config->limits);
    server->read_buffer = malloc(SY_HTTP_READ_BYTES);
    if (!server->read_buffer) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the HTTP server");
        goto fail;
    }
    SY_TRY_GOTO(sy_front_server_listen_tcp(&server->base, config->address), fail);
    SY_TRY_GOTO(sy_front_server_start_looks(&server->base, TICK_NS), fail);
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
    sy_front_server_stop(&server->base);
    while (!LIST_EMPTY(&server->connections))
        sy_http_connection_close(LIST_FIRST(&server->connections));
    sy_closed_watch_destroy(server->closed_watch);
    sy_front_server_release(&server->base);
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
    return server->base.port;
}

int sy_http_server_connections(const struct sy_http_server *server)
{
    return server->base.n_connections;
}

uint64_t sy_http_server_unsent(const struct sy_http_server *server)
{
    const struct sy_http_connection *connection = server ? LIST_FIRST(&server->connections) : NULL;
    uint64_t bytes = 0;

    for (; connection; connection = LIST_NEXT(connection, link))
        bytes += connection->unsent_bytes;
    return bytes;
}

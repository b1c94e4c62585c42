#include "runtime/front/grpc/grpc_server.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/closed_watch.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_out.h"

static int accept_client(struct sy_front_server *base, int fd, bool is_unix)
{
    (void)is_unix;
    return sy_grpc_connection_create((struct sy_grpc_server *)base, fd);
}

static void *first(struct sy_front_server *base)
{
    return LIST_FIRST(&((struct sy_grpc_server *)base)->connections);
}

static void *next(void *connection)
{
    return LIST_NEXT((struct sy_grpc_connection *)connection, link);
}

static void look(void *ctx, sy_ns now, bool counts)
{
    struct sy_grpc_connection *connection = ctx;

    connection->n_pings = 0;
    if (counts)
        sy_grpc_connection_tick(connection, now);
}

static void free_server(struct sy_front_server *base)
{
    free(base);
}

static const struct sy_front_server_ops ops = {
    .name = "grpc",
    .accept = accept_client,
    .first = first,
    .next = next,
    .look = look,
    .free = free_server,
};

static void on_flush(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    sy_grpc_connection_flush_all(ctx);
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static void set_defaults(struct sy_grpc_limits *limits)
{
#define DEFAULT(field, value)      \
    do {                           \
        if (limits->field == 0)    \
            limits->field = value; \
    } while (0)
    DEFAULT(message_bytes, 1ull << 30);
    DEFAULT(small_bytes, 4ull << 20);
    DEFAULT(buffered_bytes, 2ull << 30);
    DEFAULT(unsent_bytes, 512ull << 20);
    DEFAULT(header_bytes, 16ull << 10);
    DEFAULT(max_connections, 4096);
    DEFAULT(max_streams, 256);
    DEFAULT(max_outstanding, 64);
    DEFAULT(pings_per_s, 1000);
    DEFAULT(idle_ns, 1800 * SY_NS_PER_S);
    DEFAULT(header_ns, 10 * SY_NS_PER_S);
    DEFAULT(stall_ns, 30 * SY_NS_PER_S);
#undef DEFAULT
    limits->message_bytes = SY_MIN(limits->message_bytes, (uint64_t)UINT32_MAX); /* gRPC's own */
}

static int start_events(struct sy_grpc_server *server)
{
    sy_ns quiet_ns = SY_MIN(server->limits.stall_ns, server->limits.header_ns);

    server->flush_event = event_new(server->front->base, -1, 0, on_flush, server);
    SY_TRY_ALLOC(server->flush_event, "no memory for the gRPC server");
    return sy_front_server_start_looks(&server->base, SY_MIN(quiet_ns / 2, SY_NS_PER_S));
}

void sy_grpc_server_set_limits(struct sy_grpc_server *server, const struct sy_grpc_limits *limits)
{
    server->limits = *limits;
    set_defaults(&server->limits);
    server->base.max_connections = server->limits.max_connections;
}

int sy_grpc_server_create(const struct sy_grpc_config *config, struct sy_front *front,
                          struct sy_grpc_server **out)
{
    struct sy_grpc_server *server = calloc(1, sizeof *server);
    int status;

    SY_TRY_ALLOC(server, "no memory for the gRPC server");
    sy_front_server_init(&server->base, &ops, front->base);
    server->front = front;
    server->dirty_end = &server->dirty;
    sy_grpc_server_set_limits(server, &config->limits);
    server->budget.most_bytes = server->limits.buffered_bytes;
    server->received = malloc(SY_GRPC_READ_BYTES);
    if (!server->received) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the gRPC server");
        goto fail;
    }
    SY_TRY_GOTO(sy_grpc_session_set_up(server), fail);
    SY_TRY_GOTO(start_events(server), fail);
    SY_TRY_GOTO(sy_closed_watch_create(front->base, sy_grpc_connection_gone, &server->closed_watch),
                fail);
    SY_TRY_GOTO(sy_front_server_listen_tcp(&server->base, config->address), fail);
    *out = server;
    return SY_OK;
fail:
    sy_grpc_server_destroy(server);
    return status;
}

void sy_grpc_server_drain(struct sy_grpc_server *server)
{
    struct sy_grpc_connection *connection;
    struct sy_grpc_stream *stream;

    if (!server || server->is_draining)
        return;
    server->is_draining = true;
    sy_front_server_stop_listening(&server->base);
    LIST_FOREACH (connection, &server->connections, link) {
        LIST_FOREACH (stream, &connection->streams, link)
            sy_grpc_health_tick(stream);
        sy_grpc_connection_leave(connection, NGHTTP2_NO_ERROR);
    }
}

void sy_grpc_server_destroy(struct sy_grpc_server *server)
{
    if (!server)
        return;
    sy_grpc_server_drain(server);
    if (server->flush_event)
        sy_grpc_connection_flush_all(server); /* as much of GOAWAY as the sockets take */
    while (!LIST_EMPTY(&server->connections))
        sy_grpc_connection_close(LIST_FIRST(&server->connections));
    sy_front_server_stop(&server->base);
    if (server->flush_event)
        event_free(server->flush_event);
    sy_closed_watch_destroy(server->closed_watch);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->options);
    sy_grpc_out_destroy(server->spare_out);
    free(server->received);
    sy_front_server_release(&server->base);
}

int sy_grpc_server_port(const struct sy_grpc_server *server)
{
    return server->base.port;
}

int sy_grpc_server_connections(const struct sy_grpc_server *server)
{
    return server->base.n_connections;
}

uint64_t sy_grpc_server_unsent(const struct sy_grpc_server *server)
{
    const struct sy_grpc_connection *connection = server ? LIST_FIRST(&server->connections) : NULL;
    uint64_t bytes = 0;

    for (; connection; connection = LIST_NEXT(connection, link))
        bytes +=
            connection->unsent_bytes + (connection->out && !sy_grpc_out_is_empty(connection->out));
    return bytes;
}

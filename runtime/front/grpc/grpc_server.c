#include "runtime/front/grpc/grpc_server.h"

#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_out.h"
#include "runtime/front/tcp_listen.h"

#define BACKLOG 512

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int n_bytes, void *ctx)
{
    struct sy_grpc_server *server = ctx;

    (void)listener, (void)address, (void)n_bytes;
    if (server->n_connections >= server->limits.max_connections) {
        if (!server->is_full) /* said once, not for each of a flood */
            sy_log_warn("grpc", "event=refused why=\"%d connections are open already\"",
                        server->n_connections);
        server->is_full = true;
        close(fd);
        return;
    }
    server->is_full = false;
    sy_net_set_tcp(fd);
    if (sy_grpc_connection_create(server, fd) < 0) {
        sy_log_warn("grpc", "event=refused why=\"%s\"", sy_error_text());
        close(fd);
    }
}

/* Out of fds, mostly: a level-triggered listener would spin, so it rests until the next tick. */
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
    struct sy_grpc_server *server = ctx;

    sy_net_accept_failed("grpc", &server->accept_said_ns);
    evconnlistener_disable(listener);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_grpc_server *server = ctx;
    struct sy_grpc_connection *connection = server->connections, *next;
    sy_ns now = sy_clock_now();

    (void)fd, (void)what;
    if (server->listener)
        evconnlistener_enable(server->listener);
    bool counts = sy_stall_look_counts(&server->looks, now);
    for (; connection; connection = next) {
        next = connection->next;
        connection->n_pings = 0;
        if (counts)
            sy_grpc_connection_tick(connection, now);
    }
}

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
    sy_ns period =
        SY_MIN(SY_MIN(server->limits.stall_ns, server->limits.header_ns) / 2, SY_NS_PER_S);
    struct timeval interval = {(time_t)(period / SY_NS_PER_S),
                               (suseconds_t)(period % SY_NS_PER_S / SY_NS_PER_US)};

    server->looks = (struct sy_stall_looks){sy_clock_now(), period, false};
    server->tick = event_new(server->front->base, -1, EV_PERSIST, on_tick, server);
    server->flush_event = event_new(server->front->base, -1, 0, on_flush, server);
    if (!server->tick || !server->flush_event || event_add(server->tick, &interval))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the gRPC server");
    return SY_OK;
}

void sy_grpc_server_set_limits(struct sy_grpc_server *server, const struct sy_grpc_limits *limits)
{
    server->limits = *limits;
    set_defaults(&server->limits);
}

static int start_listening(struct sy_grpc_server *server, const char *address)
{
    int fd;

    SY_TRY(sy_tcp_bind(address, &fd, &server->port));
    evutil_make_socket_nonblocking(fd);
    server->listener =
        evconnlistener_new(server->front->base, on_accept, server,
                           LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);
    if (!server->listener) {
        close(fd);
        return sy_error_set(SY_EIO, "cannot listen on %s: %s", address, strerror(errno));
    }
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    return SY_OK;
}

int sy_grpc_server_create(const struct sy_grpc_config *config, struct sy_front *front,
                          struct sy_grpc_server **out)
{
    struct sy_grpc_server *server = calloc(1, sizeof *server);
    int status;

    SY_TRY_ALLOC(server, "no memory for the gRPC server");
    server->front = front;
    server->limits = config->limits;
    server->refs = 1;
    set_defaults(&server->limits);
    server->budget.most_bytes = server->limits.buffered_bytes;
    server->received = malloc(SY_GRPC_READ_BYTES);
    if (!server->received) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the gRPC server");
        goto fail;
    }
    SY_TRY_GOTO(sy_grpc_session_set_up(server), fail);
    SY_TRY_GOTO(start_events(server), fail);
    SY_TRY_GOTO(start_listening(server, config->address), fail);
    *out = server;
    return SY_OK;
fail:
    sy_grpc_server_destroy(server);
    return status;
}

void sy_grpc_server_drain(struct sy_grpc_server *server)
{
    struct sy_grpc_connection *connection = server ? server->connections : NULL;

    if (!server || server->is_draining)
        return;
    server->is_draining = true;
    if (server->listener)
        evconnlistener_free(server->listener);
    server->listener = NULL;
    for (; connection; connection = connection->next) {
        for (struct sy_grpc_stream *stream = connection->streams; stream; stream = stream->next)
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
        sy_grpc_connection_flush_all(server); /* what the sockets take of GOAWAY */
    while (server->connections)
        sy_grpc_connection_close(server->connections);
    if (server->tick)
        event_free(server->tick);
    if (server->flush_event)
        event_free(server->flush_event);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->options);
    sy_grpc_out_destroy(server->spare_out);
    free(server->received);
    sy_grpc_server_release(server);
}

int sy_grpc_server_port(const struct sy_grpc_server *server)
{
    return server->port;
}

int sy_grpc_server_connections(const struct sy_grpc_server *server)
{
    return server->n_connections;
}

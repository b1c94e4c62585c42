/* One connection: bytes between its socket and nghttp2.
 *
 * What a read made ready is sent before the next connection is read; the rest at the end of the turn, in the order in which it became ready: see
 * sy_grpc_connection_mark. One send where the answer fits, at most MOST_ROUNDS, and none behind
 * SY_GRPC_OUT_BYTES. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_out.h"

#define MOST_ROUNDS 4           /* sends of one connection in one turn of the loop */
#define MOST_QUEUED (20u << 10) /* nghttp2 hands out no more than 16 KiB and a head at a time */
#define PREFACE     24
#define HEAD_TYPE   3 /* byte of a frame's head */

/* ---- sending --------------------------------------------------------------------------------------------------- */

static bool take_out(struct sy_grpc_connection *connection)
{
    struct sy_grpc_server *server = connection->server;

    if (connection->out)
        return true;
    sy_pace_restart(&connection->written);
    connection->out = server->spare_out ? server->spare_out : sy_grpc_out_create();
    server->spare_out = NULL;
    return connection->out != NULL;
}

static void put_out(struct sy_grpc_connection *connection)
{
    struct sy_grpc_server *server = connection->server;

    if (server->spare_out || !sy_grpc_out_is_empty(connection->out))
        sy_grpc_out_destroy(connection->out);
    else
        server->spare_out = connection->out;
    connection->out = NULL;
}

/* Frames from nghttp2, until it has none or there is no room. False: no memory, or its state is broken. */
static bool fill(struct sy_grpc_connection *connection)
{
    const uint8_t *data;
    ssize_t n = 1;

    connection->in_library = true;
    while (n > 0 && sy_grpc_out_has_room(connection->out, MOST_QUEUED)) {
        n = nghttp2_session_mem_send(connection->session, &data);
        if (n > 0)
            sy_grpc_out_copy(connection->out, data, (size_t)n);
    }
    connection->in_library = false;
    return n >= 0;
}

/* False: the connection must be closed. */
static bool flush(struct sy_grpc_connection *connection)
{
    if (!sy_tls_is_ready(connection->tls)) /* the client's bytes come first */
        return true;
    long sent = 0;
    for (int round = 0; round < MOST_ROUNDS && sent < SY_GRPC_OUT_BYTES; round++) {
        long n;

        if (!take_out(connection) || !fill(connection))
            return false;
        if (sy_grpc_out_is_empty(connection->out)) {
            put_out(connection);
            sy_socket_write(&connection->events, false);
            return (!connection->ended || !LIST_EMPTY(&connection->streams)) &&
                   (nghttp2_session_want_read(connection->session) ||
                    nghttp2_session_want_write(connection->session));
        }
        n = sy_grpc_out_write(connection->out, connection->fd, connection->tls);
        if (n < 0)
            return false;
        sent += n;
        if (n > 0)
            sy_pace_add_bytes(&connection->written, (uint64_t)n,
                              connection->server->front->least_bytes_per_s,
                              connection->server->limits.stall_ns);
        if (n == 0 || !sy_grpc_out_is_empty(connection->out))
            break;
    }
    sy_socket_write(&connection->events, true);
    return true;
}

/* Answers have gone: streams whose requests waited for that go on. */
static void go_on(struct sy_grpc_connection *connection)
{
    struct sy_grpc_stream *stream;

    connection->is_read = false;
    LIST_FOREACH (stream, &connection->streams, link)
        sy_grpc_incoming_check_hold(stream);
}

static void unlink_dirty(struct sy_grpc_connection *connection)
{
    struct sy_grpc_server *server = connection->server;

    if (!connection->is_dirty)
        return;
    *connection->previous_dirty = connection->next_dirty;
    if (connection->next_dirty)
        connection->next_dirty->previous_dirty = connection->previous_dirty;
    else
        server->dirty_end = connection->previous_dirty;
    connection->is_dirty = false;
}

/* Sends what is ready; the connection may be closed by it. */
static void settle(struct sy_grpc_connection *connection)
{
    if (connection->closes || !flush(connection))
        sy_grpc_connection_close(connection);
    else if (connection->is_read)
        go_on(connection);
}

void sy_grpc_connection_flush_all(struct sy_grpc_server *server)
{
    while (server->dirty) {
        struct sy_grpc_connection *connection = server->dirty;

        unlink_dirty(connection);
        settle(connection);
    }
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    sy_grpc_connection_mark(ctx);
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* The next bytes of a frame's head: how many. A frame of length 0 is over with its head. */
static size_t take_head(struct sy_grpc_frame *frame, const uint8_t *bytes, size_t n)
{
    size_t taken = SY_MIN(n, sizeof frame->head - frame->n_head);

    memcpy(frame->head + frame->n_head, bytes, taken);
    frame->n_head += (uint32_t)taken;
    if (frame->n_head < sizeof frame->head)
        return taken;
    frame->left = (uint32_t)frame->head[0] << 16 | (uint32_t)frame->head[1] << 8 | frame->head[2];
    if (frame->left == 0)
        frame->n_head = 0;
    return taken;
}

static void follow_frames(struct sy_grpc_frame *frame, const uint8_t *bytes, size_t n)
{
    bool begins = false;

    for (size_t at = 0; at < n;) {
        size_t taken = SY_MIN(n - at, frame->left);

        if (frame->left == 0) {
            begins = begins || frame->n_head == 0;
            at += take_head(frame, bytes + at, n - at);
            continue;
        }
        at += taken;
        frame->left -= (uint32_t)taken;
        if (frame->left == 0)
            frame->n_head = 0;
    }
    if (begins)
        frame->begun_ns = sy_clock_now();
}

/* GR7: no more bytes come. Calls end as if their client had said so itself; those that have not begun are nothing. A socket that was closed answers the window update
 * with a reset; a client that still reads has nothing to answer, which it could not send. */
static void on_end(struct sy_grpc_connection *connection)
{
    struct sy_grpc_stream *stream = LIST_FIRST(&connection->streams), *next;

    connection->ended = true;
    connection->frame = (struct sy_grpc_frame){0};
    sy_socket_read_ended(&connection->events);
    for (; stream; stream = next) {
        next = LIST_NEXT(stream, link);
        if (!stream->has_headers)
            sy_grpc_stream_destroy(stream);
        else if (!stream->incoming.ended)
            sy_grpc_incoming_end(stream);
    }
    sy_grpc_connection_submitted(
        connection, nghttp2_submit_window_update(connection->session, NGHTTP2_FLAG_NONE, 0, 1));
    sy_grpc_connection_mark(connection);
}

void sy_grpc_connection_gone(void *ctx, bool is_gone)
{
    if (is_gone)
        sy_grpc_connection_close(ctx);
}

/* A stream is over before the socket has taken its answer. */
static bool is_waited_for(const struct sy_grpc_connection *connection)
{
    return (!LIST_EMPTY(&connection->streams) || connection->out) &&
           sy_tls_is_ready(connection->tls);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_grpc_connection *connection = ctx;
    uint8_t *received = connection->server->received;
    bool was_ready = sy_tls_is_ready(connection->tls);
    ssize_t n = sy_net_read(connection->fd, connection->tls, received, SY_GRPC_READ_BYTES), taken;

    (void)fd, (void)what;
    if (connection->ended) /* `again`, of the same turn */
        return;
    if (!was_ready && sy_tls_is_ready(connection->tls)) /* sends what waited for the handshake */
        sy_grpc_connection_mark(connection);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (n == 0 && is_waited_for(connection))
            on_end(connection);
        else
            sy_grpc_connection_close(connection);
        return;
    }
    follow_frames(&connection->frame, received, (size_t)n);
    connection->in_library = true;
    taken = nghttp2_session_mem_recv(connection->session, received, (size_t)n);
    connection->in_library = false;
    if (taken < 0) { /* no HTTP/2, or a flood */
        sy_log_debug("grpc", "event=bad_connection why=\"%s\"", nghttp2_strerror((int)taken));
        connection->closes = true;
    }
    if (sy_tls_pending(connection->tls) && !sy_socket_call_soon(&connection->events))
        connection->closes = true;
    unlink_dirty(connection);
    settle(connection); /* at once: an answer does not wait for the other connections' reads */
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void link_connection(struct sy_grpc_connection *connection)
{
    struct sy_grpc_server *server = connection->server;

    LIST_INSERT_HEAD(&server->connections, connection, link);
    sy_front_server_connected(&server->base);
}

static void connection_free(struct sy_grpc_connection *connection)
{
    sy_socket_events_finish(&connection->events);
    sy_tls_stream_destroy(connection->tls);
    nghttp2_session_del(connection->session);
    sy_grpc_out_destroy(connection->out);
    free(connection);
}

int sy_grpc_connection_create(struct sy_grpc_server *server, int fd)
{
    static const struct sy_socket_callbacks callbacks = {on_readable, on_writable, on_readable};
    struct sy_grpc_connection *connection = calloc(1, sizeof *connection);
    int status;

    SY_TRY_ALLOC(connection, "no memory for a gRPC connection");
    connection->server = server;
    connection->fd = fd;
    connection->opened_ns = connection->active_ns = sy_clock_now();
    connection->frame.left = PREFACE;
    sy_pace_restart(&connection->written);
    if (server->front->tls)
        SY_TRY_GOTO(sy_tls_stream_create(server->front->tls, fd, "h2", &connection->tls), fail);
    SY_TRY_GOTO(sy_grpc_session_create(connection), fail);
    SY_TRY_GOTO(sy_socket_events_init(&connection->events, server->front->base, fd, &callbacks,
                                      server->closed_watch, connection),
                fail);
    link_connection(connection);
    sy_grpc_connection_mark(connection);
    return SY_OK;
fail:
    connection_free(connection);
    return status;
}

void sy_grpc_connection_close(struct sy_grpc_connection *connection)
{
    struct sy_grpc_server *server = connection->server;
    int fd = connection->fd;

    if (connection->in_library) {
        connection->closes = true;
        sy_grpc_connection_mark(connection);
        return;
    }
    while (!LIST_EMPTY(&connection->streams))
        sy_grpc_stream_destroy(LIST_FIRST(&connection->streams));
    unlink_dirty(connection);
    sy_front_server_disconnected(&server->base, connection, LIST_NEXT(connection, link));
    LIST_REMOVE(connection, link);
    sy_socket_events_stop(&connection->events);
    connection_free(connection); /* its events before its descriptor */
    sy_front_server_close(&server->base, fd);
    sy_front_server_release(&server->base);
}

void sy_grpc_connection_leave(struct sy_grpc_connection *connection, uint32_t code)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(connection->session);

    if (connection->is_leaving)
        return;
    connection->is_leaving = true;
    sy_grpc_connection_submitted(
        connection,
        nghttp2_submit_goaway(connection->session, NGHTTP2_FLAG_NONE, last, code, NULL, 0));
    sy_grpc_connection_mark(connection);
}

/* Data has its stream's pace. */
static bool is_within_frame(const struct sy_grpc_frame *frame)
{
    return frame->n_head > 0 &&
           !(frame->n_head == sizeof frame->head && frame->head[HEAD_TYPE] == NGHTTP2_DATA);
}

/* The client is silent: before its preface, or within a frame or a call's headers, which hold up the connection. Only the newest call may lack some. */
static bool is_silent(const struct sy_grpc_connection *connection, sy_ns now)
{
    const struct sy_grpc_stream *newest = LIST_FIRST(&connection->streams);
    sy_ns limit_ns = connection->server->limits.header_ns;

    if (!connection->has_spoken)
        return now > connection->opened_ns + limit_ns;
    if (is_within_frame(&connection->frame) && now > connection->frame.begun_ns + limit_ns)
        return true;
    return newest && !newest->has_headers && now > newest->created_ns + limit_ns;
}

void sy_grpc_connection_tick(struct sy_grpc_connection *connection, sy_ns now)
{
    const struct sy_grpc_limits *limits = &connection->server->limits;
    struct sy_grpc_stream *stream = LIST_FIRST(&connection->streams), *next;

    if (is_silent(connection, now)) {
        sy_grpc_connection_close(connection);
        return;
    }
    if (connection->out && now > connection->written.at_ns + limits->stall_ns) {
        sy_log_info("grpc", "event=stalled unsent_bytes=%llu",
                    (unsigned long long)connection->unsent_bytes);
        sy_grpc_connection_close(connection);
        return;
    }
    if (!stream && now > connection->active_ns + limits->idle_ns) {
        if (connection->is_leaving) /* and the client has not gone since the last tick */
            sy_grpc_connection_close(connection);
        else
            sy_grpc_connection_leave(connection, NGHTTP2_NO_ERROR);
        return;
    }
    for (; stream; stream = next) {
        next = LIST_NEXT(stream, link);
        sy_grpc_stream_tick(stream, now);
    }
}

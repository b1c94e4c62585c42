/* nghttp2's callbacks: frames become streams, headers, messages. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_out.h"

#define STREAM_WINDOW     (8 << 20)
#define CONNECTION_WINDOW (16 << 20)
/* Fewer frames for large tensors; what one connection has read in one turn of the loop is bounded by SY_GRPC_READ_BYTES too. */
#define FRAME_BYTES (1u << 20)
/* Frames that are sent: a few pieces of memory each (grpc_out.c). */
#define MOST_SENT_FRAME (32u << 10)

static struct sy_grpc_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct sy_grpc_stream *stream;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    stream = sy_grpc_stream_create(ctx, frame->hd.stream_id);
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    return 0;
}

/* A request's trailers are ignored: they must not change what its headers set. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *ctx)
{
    struct sy_grpc_stream *stream = stream_of(session, frame->hd.stream_id);

    (void)flags, (void)ctx;
    if (stream && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        sy_grpc_stream_header(stream, (const char *)name, name_bytes, (const char *)value,
                              value_bytes);
    return 0;
}

/* Frames that cost work and carry nothing; a client that sends them in masses is cut off. */
static void count_ping(struct sy_grpc_connection *connection)
{
    if (++connection->n_pings == connection->server->limits.pings_per_s) {
        sy_log_warn("grpc", "event=flooded pings=%d", connection->n_pings);
        nghttp2_session_terminate_session(connection->session, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct sy_grpc_connection *connection = ctx;
    struct sy_grpc_stream *stream = stream_of(session, frame->hd.stream_id);

    connection->has_spoken = true;
    if (frame->hd.type == NGHTTP2_PING || frame->hd.type == NGHTTP2_SETTINGS ||
        frame->hd.type == NGHTTP2_RST_STREAM)
        count_ping(connection);
    if (!stream || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        sy_grpc_stream_begin(stream);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        sy_grpc_incoming_end(stream);
    return 0;
}

/* GR2: the connection's window opens at once, the stream's when its bytes were used. */
static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *ctx)
{
    struct sy_grpc_stream *stream = stream_of(session, id);

    (void)flags, (void)ctx;
    nghttp2_session_consume_connection(session, n);
    if (stream)
        sy_grpc_incoming_data(stream, (struct sy_grpc_bytes){data, n});
    else
        nghttp2_session_consume_stream(session, id, n);
    return 0;
}

/* The call has ended while the client still sends: RST_STREAM tells it to stop. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct sy_grpc_stream *stream;

    (void)ctx;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    stream = stream_of(session, frame->hd.stream_id);
    if (stream && nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        sy_grpc_connection_submitted(ctx, nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE,
                                                                    frame->hd.stream_id,
                                                                    NGHTTP2_NO_ERROR));
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct sy_grpc_stream *stream = stream_of(session, id);

    (void)code, (void)ctx;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    if (stream)
        sy_grpc_stream_destroy(stream);
    return 0;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                        size_t n, nghttp2_data_source *source, void *ctx)
{
    struct sy_grpc_connection *connection = ctx;
    struct sy_grpc_stream *stream = stream_of(session, frame->hd.stream_id);

    (void)source;
    if (!stream || !sy_grpc_out_has_room(connection->out, n))
        return NGHTTP2_ERR_WOULDBLOCK;
    sy_grpc_out_copy(connection->out, head, 9);
    sy_grpc_reply_take(stream, n, sy_grpc_out_piece, connection->out);
    return 0;
}

static ssize_t most_to_send(nghttp2_session *session, uint8_t type, int32_t id,
                            int32_t session_window, int32_t stream_window, uint32_t most_frame,
                            void *ctx)
{
    int32_t window = SY_MIN(session_window, stream_window);

    (void)session, (void)type, (void)id, (void)ctx;
    return SY_MIN((ssize_t)window, (ssize_t)SY_MIN(most_frame, MOST_SENT_FRAME));
}

static void set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, most_to_send);
}

int sy_grpc_session_set_up(struct sy_grpc_server *server)
{
    if (nghttp2_session_callbacks_new(&server->callbacks) || nghttp2_option_new(&server->options))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the gRPC server");
    set_callbacks(server->callbacks);
    nghttp2_option_set_no_auto_window_update(server->options, 1);
    nghttp2_option_set_no_closed_streams(server->options, 1);
    nghttp2_option_set_stream_reset_rate_limit(server->options,
                                               (uint64_t)server->limits.pings_per_s,
                                               (uint64_t)server->limits.pings_per_s);
    return SY_OK;
}

int sy_grpc_session_create(struct sy_grpc_connection *connection)
{
    const struct sy_grpc_limits *limits = &connection->server->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)limits->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
         (uint32_t)SY_MIN(limits->header_bytes, (uint64_t)UINT32_MAX)},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };

    if (nghttp2_session_server_new2(&connection->session, connection->server->callbacks, connection,
                                    connection->server->options) ||
        nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings,
                                SY_ARRAY_LEN(settings)) ||
        nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                              CONNECTION_WINDOW))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a gRPC connection");
    return SY_OK;
}

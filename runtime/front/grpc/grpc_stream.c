/* One call: its headers, its deadline, its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/front/grpc/grpc_internal.h"

/* ---- life ------------------------------------------------------------------------------------------------------ */

struct sy_grpc_stream *sy_grpc_stream_create(struct sy_grpc_connection *connection, int32_t id)
{
    struct sy_grpc_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->connection = connection;
    stream->id = id;
    stream->incoming.bytes.budget = &connection->server->budget;
    stream->end = &stream->replies;
    stream->infers_end = &stream->infers;
    stream->health = -1;
    stream->accepted = 1u << SY_GRPC_IDENTITY;
    stream->created_ns = connection->active_ns = sy_clock_now();
    sy_pace_restart(&stream->pace);
    LIST_INSERT_HEAD(&connection->streams, stream, link);
    return stream;
}

/* Cancels all work of the call. */
static void drop_work(struct sy_grpc_stream *stream)
{
    sy_grpc_infer_drop_all(stream);
    sy_grpc_inflate_drop(stream);
    sy_grpc_deferred_drop(stream);
    sy_grpc_incoming_finish(stream);
    if (stream->deadline_event)
        event_free(stream->deadline_event);
    stream->deadline_event = NULL;
}

void sy_grpc_stream_destroy(struct sy_grpc_stream *stream)
{
    struct sy_grpc_connection *connection = stream->connection;

    drop_work(stream);
    while (stream->replies) {
        struct sy_grpc_reply *reply = stream->replies;

        stream->replies = reply->next;
        sy_grpc_reply_unref(reply);
    }
    connection->unsent_bytes -= stream->unsent_bytes;
    connection->active_ns = sy_clock_now();
    LIST_REMOVE(stream, link);
    if (nghttp2_session_get_stream_user_data(connection->session, stream->id) == stream)
        nghttp2_session_set_stream_user_data(connection->session, stream->id, NULL);
    free(stream->traceparent);
    free(stream->tracestate);
    free(stream->authorization);
    free(stream->message);
    free(stream);
}

static void reset(struct sy_grpc_stream *stream, uint32_t code)
{
    if (stream->is_reset)
        return;
    stream->is_reset = stream->is_done = true;
    drop_work(stream);
    sy_grpc_connection_submitted(stream->connection,
                                 nghttp2_submit_rst_stream(stream->connection->session,
                                                           NGHTTP2_FLAG_NONE, stream->id, code));
    sy_grpc_connection_mark(stream->connection);
}

/* ---- headers --------------------------------------------------------------------------------------------------- */

static void refuse(struct sy_grpc_stream *stream, enum sy_grpc_code code, const char *why)
{
    if (stream->refused != SY_GRPC_OK)
        return;
    stream->refused = code;
    stream->why = why;
}

static void take_method(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    stream->is_post = n == 4 && memcmp(value, "POST", 4) == 0;
}

static void take_path(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    stream->method = sy_grpc_method_find(value, n);
    if (!stream->method)
        refuse(stream, SY_GRPC_UNIMPLEMENTED, "there is no such method");
}

/* application/grpc, or +proto; parameters behind a semicolon are fine. */
static void take_content_type(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    static const char plain[] = "application/grpc", proto[] = "application/grpc+proto";
    size_t end = 0;

    while (end < n && value[end] != ';' && value[end] != ' ')
        end++;
    stream->is_grpc = (end == sizeof plain - 1 && memcmp(value, plain, end) == 0) ||
                      (end == sizeof proto - 1 && memcmp(value, proto, end) == 0);
}

/* The time begins with the header: what passes before the message is there counts too. */
static void take_timeout(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    sy_ns timeout;

    if (sy_grpc_parse_timeout(value, n, &timeout))
        stream->deadline_ns = sy_clock_now() + timeout;
    else
        refuse(stream, SY_GRPC_INVALID_ARGUMENT,
               "grpc-timeout is not up to 8 digits and one of H M S m u n");
}

static void take_encoding(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    stream->encoding = sy_grpc_encoding_of(value, n);
    if (stream->encoding == SY_GRPC_N_ENCODINGS)
        refuse(stream, SY_GRPC_UNIMPLEMENTED,
               "grpc-encoding: identity, gzip and deflate are possible");
}

static void take_accepted(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    stream->accepted = sy_grpc_accepted_encodings(value, n);
}

static void take_tenant(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    struct sy_grpc_bytes bytes = {(const uint8_t *)value, n};

    if (!sy_grpc_bytes_copy(bytes, stream->tenant, sizeof stream->tenant))
        refuse(stream, SY_GRPC_INVALID_ARGUMENT, "switchyard-tenant: at most 63 bytes");
}

static void take_text(char **to, const char *value, size_t n)
{
    free(*to); /* the last one counts */
    *to = sy_text_copy(value, n);
}

static void take_traceparent(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    take_text(&stream->traceparent, value, n);
}

static void take_authorization(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    take_text(&stream->authorization, value, n);
}

static void take_tracestate(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    take_text(&stream->tracestate, value, n);
}

static void take_error_mode(struct sy_grpc_stream *stream, const char *value, size_t n)
{
    stream->wants_status = n == 4 && memcmp(value, "true", 4) == 0;
}

static const struct header {
    const char *name;
    size_t n;
    void (*take)(struct sy_grpc_stream *stream, const char *value, size_t n);
} headers[] = {
#define HEADER(name, take)            \
    {                                 \
        name, sizeof(name) - 1, take, \
    }
    HEADER(":method", take_method),
    HEADER(":path", take_path),
    HEADER("content-type", take_content_type),
    HEADER("grpc-timeout", take_timeout),
    HEADER("grpc-encoding", take_encoding),
    HEADER("grpc-accept-encoding", take_accepted),
    HEADER("switchyard-tenant", take_tenant),
    HEADER("triton_grpc_error", take_error_mode),
    HEADER("traceparent", take_traceparent),
    HEADER("tracestate", take_tracestate),
    HEADER("authorization", take_authorization),
};

#define HEADER_OVERHEAD 32 /* as HTTP/2 counts SETTINGS_MAX_HEADER_LIST_SIZE */

void sy_grpc_stream_header(struct sy_grpc_stream *stream, const char *name, size_t name_bytes,
                           const char *value, size_t value_bytes)
{
    stream->header_bytes += name_bytes + value_bytes + HEADER_OVERHEAD;
    if (stream->header_bytes > stream->connection->server->limits.header_bytes) {
        refuse(stream, SY_GRPC_RESOURCE_EXHAUSTED, NULL);
        return;
    }
    for (size_t i = 0; i < SY_ARRAY_LEN(headers); i++)
        if (headers[i].n == name_bytes && memcmp(headers[i].name, name, name_bytes) == 0) {
            headers[i].take(stream, value, value_bytes);
            return;
        }
}

static void finish_refused(struct sy_grpc_stream *stream)
{
    char large[160];

    snprintf(large, sizeof large,
             "the headers have more than %llu bytes (HTTP/2 counts %d more for each); "
             "the server's --grpc-header-bytes is the limit",
             (unsigned long long)stream->connection->server->limits.header_bytes, HEADER_OVERHEAD);
    sy_grpc_stream_finish(stream, stream->refused, stream->why ? stream->why : large);
}

/* ---- deadlines ------------------------------------------------------------------------------------------------- */

static void on_deadline(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_grpc_stream *stream = ctx;

    (void)fd, (void)what;
    if (stream->is_done)
        return;
    drop_work(stream);
    sy_grpc_stream_finish(stream, SY_GRPC_DEADLINE_EXCEEDED,
                          "the deadline of the call has passed (grpc-timeout)");
}

static void start_deadline(struct sy_grpc_stream *stream)
{
    sy_ns now = sy_clock_now(), left = stream->deadline_ns > now ? stream->deadline_ns - now : 0;
    struct timeval timeout = {(time_t)(left / SY_NS_PER_S),
                              (suseconds_t)(left % SY_NS_PER_S / SY_NS_PER_US)};

    if (left > 365 * 24 * 3600 * SY_NS_PER_S) /* which says no more than that there is none */
        return;
    stream->deadline_event =
        event_new(stream->connection->server->front->base, -1, 0, on_deadline, stream);
    if (!stream->deadline_event || event_add(stream->deadline_event, &timeout))
        sy_grpc_stream_finish(stream, SY_GRPC_RESOURCE_EXHAUSTED, "no memory for a deadline");
}

/* ---- the call -------------------------------------------------------------------------------------------------- */

/* A request that is not gRPC is answered in plain HTTP. */
static void answer_http(struct sy_grpc_stream *stream)
{
    static const char wrong_method[] = "405", wrong_type[] = "415";
    const char *code = stream->is_post ? wrong_type : wrong_method;
    nghttp2_nv status = {(uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t)code, 7, 3,
                         NGHTTP2_NV_FLAG_NONE};

    stream->is_done = stream->has_begun = true;
    sy_grpc_connection_submitted(
        stream->connection,
        nghttp2_submit_response(stream->connection->session, stream->id, &status, 1, NULL));
    sy_grpc_connection_mark(stream->connection);
}

void sy_grpc_stream_begin(struct sy_grpc_stream *stream)
{
    enum sy_grpc_code code = SY_GRPC_OK;
    const char *why;

    stream->has_headers = true;
    if (stream->is_post && stream->is_grpc && stream->refused == SY_GRPC_OK)
        code = sy_grpc_stream_allow(stream, &why);
    if (code != SY_GRPC_OK)
        sy_grpc_stream_finish(stream, code, why);
    else if (!stream->is_post || !stream->is_grpc)
        answer_http(stream);
    else if (stream->refused != SY_GRPC_OK)
        finish_refused(stream);
    else if (stream->deadline_ns)
        start_deadline(stream);
}

static bool waits_for_client(const struct sy_grpc_stream *stream)
{
    const struct sy_grpc_incoming *incoming = &stream->incoming;

    if (incoming->holds || incoming->ended || stream->is_done)
        return false;
    return incoming->direct > 0 || incoming->bytes.n > 0 ||
           (!stream->method->is_stream && incoming->n_messages == 0);
}

/* A3: a stream may be silent for hours, also before its first message; it has a grant once its headers have come. What it asked for already is
 * answered; its next message would be refused anyway. */
static bool is_to_be_looked_up(const struct sy_grpc_stream *stream)
{
    return stream->method && (stream->method->is_stream || stream->is_watching) &&
           stream->method->right != SY_RIGHT_ANYBODY && stream->refused == SY_GRPC_OK &&
           stream->grant.rights && stream->n_infers == 0 && !stream->is_done;
}

void sy_grpc_stream_tick(struct sy_grpc_stream *stream, sy_ns now)
{
    if (!stream->has_headers) /* the connection's time for them runs */
        return;
    if (is_to_be_looked_up(stream) && !sy_grpc_incoming_is_allowed(stream))
        return;
    if (stream->is_watching)
        sy_grpc_health_tick(stream);
    if (now < stream->pace.at_ns + stream->connection->server->limits.stall_ns)
        return;
    if (stream->unsent_bytes > 0) {
        reset(stream, NGHTTP2_CANCEL);
    } else if (waits_for_client(stream)) {
        drop_work(stream);
        sy_grpc_stream_finish(stream, SY_GRPC_DEADLINE_EXCEEDED,
                              "the rest of a message did not come");
    }
}

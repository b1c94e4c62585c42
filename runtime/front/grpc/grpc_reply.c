/* Answers: messages in the order they were given, then the status. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_json.h"

#define MESSAGE_ROOM    2048       /* of grpc-message, encoded */
#define COMPRESS_FROM   256        /* bytes; below, a compressed message is none the smaller */
#define COMPRESS_BUFFER (16 << 10) /* bytes of a message per piece: 0.3 ms */

/* ---- replies ---------------------------------------------------------------------------------------------------- */

struct sy_grpc_reply *sy_grpc_reply_create(int n_segments)
{
    struct sy_grpc_reply *reply =
        calloc(1, sizeof *reply + (size_t)n_segments * sizeof *reply->segments);

    if (reply) {
        reply->refs = 1;
        reply->n_segments = n_segments;
    }
    return reply;
}

void sy_grpc_reply_unref(struct sy_grpc_reply *reply)
{
    if (--reply->refs > 0)
        return;
    if (reply->release)
        reply->release(reply->ctx);
    sy_grpc_buffer_free(&reply->head);
    free(reply);
}

static uint64_t reply_bytes(const struct sy_grpc_reply *reply)
{
    uint64_t n = 0;

    for (int i = 0; i < reply->n_segments; i++)
        n += reply->segments[i].n;
    return n;
}

void sy_grpc_reply_take(struct sy_grpc_stream *stream, size_t n,
                        void (*piece)(void *ctx, const uint8_t *data, size_t n,
                                      struct sy_grpc_reply *reply),
                        void *ctx)
{
    stream->unsent_bytes -= n;
    stream->connection->unsent_bytes -= n;
    stream->connection->is_read |= stream->infers_hold;
    sy_pace_add_bytes(&stream->pace, n, stream->connection->server->front->least_bytes_per_s,
                      stream->connection->server->limits.stall_ns);
    while (n > 0) {
        struct sy_grpc_reply *reply = stream->replies;
        struct sy_grpc_bytes *segment = &reply->segments[reply->at];
        size_t part = SY_MIN(n, segment->n);

        if (part > 0)
            piece(ctx, segment->data, part, reply);
        segment->data += part;
        segment->n -= part;
        n -= part;
        while (reply->at < reply->n_segments && reply->segments[reply->at].n == 0)
            reply->at++;
        if (reply->at == reply->n_segments) {
            stream->replies = reply->next;
            if (!stream->replies)
                stream->end = &stream->replies;
            sy_grpc_reply_unref(reply);
        }
    }
}

/* ---- headers and trailers ------------------------------------------------------------------------------------------ */

static nghttp2_nv pair(const char *name, const char *value, size_t n)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), n,
                        NGHTTP2_NV_FLAG_NONE};
}

static const nghttp2_nv *add_head(nghttp2_nv *to)
{
    static const char type[] = "application/grpc";

    to[0] = pair(":status", "200", 3);
    to[1] = pair("content-type", type, sizeof type - 1);
    return to + 2;
}

/* How many of the two. */
static size_t add_status(const struct sy_grpc_stream *stream, nghttp2_nv *to, char *code,
                         char *message)
{
    size_t n = (size_t)snprintf(code, 12, "%d", stream->code);

    to[0] = pair("grpc-status", code, n);
    if (!stream->message)
        return 1;
    n = sy_grpc_encode_message(stream->message, message, MESSAGE_ROOM);
    to[1] = pair("grpc-message", message, n);
    return 2;
}

static void submit_trailers(nghttp2_session *session, struct sy_grpc_stream *stream)
{
    char code[12], message[MESSAGE_ROOM];
    nghttp2_nv pairs[2];
    size_t n = add_status(stream, pairs, code, message);

    sy_grpc_connection_submitted(stream->connection,
                                 nghttp2_submit_trailer(session, stream->id, pairs, n));
}

static ssize_t read_reply(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                          uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct sy_grpc_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    size_t n = stream ? (size_t)SY_MIN((uint64_t)room, stream->unsent_bytes) : 0;

    (void)to, (void)source, (void)ctx;
    if (!stream || (n == 0 && !stream->is_done))
        return NGHTTP2_ERR_DEFERRED;
    if (n > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == stream->unsent_bytes && stream->is_done) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(session, stream);
    }
    return (ssize_t)n;
}

bool sy_grpc_stream_compresses(const struct sy_grpc_stream *stream)
{
    return stream->encoding != SY_GRPC_IDENTITY && (stream->accepted >> stream->encoding & 1);
}

/* The response's headers, and what follows as it comes. */
static void begin(struct sy_grpc_stream *stream)
{
    nghttp2_data_provider provider = {.read_callback = read_reply};
    const char *encoding = sy_grpc_encoding_names[stream->encoding];
    nghttp2_nv pairs[3];
    size_t n = (size_t)(add_head(pairs) - pairs);

    if (sy_grpc_stream_compresses(stream))
        pairs[n++] = pair("grpc-encoding", encoding, strlen(encoding));
    stream->has_begun = true;
    sy_grpc_connection_submitted(
        stream->connection,
        nghttp2_submit_response(stream->connection->session, stream->id, pairs, n, &provider));
}

/* An answer without a message is one block of headers. */
static void submit_status(struct sy_grpc_stream *stream)
{
    char code[12], message[MESSAGE_ROOM];
    nghttp2_nv pairs[5];
    size_t n = (size_t)(add_head(pairs) - pairs);

    if (stream->code == SY_GRPC_UNIMPLEMENTED && stream->encoding == SY_GRPC_N_ENCODINGS)
        pairs[n++] = pair("grpc-accept-encoding", "identity,gzip,deflate", 21);
    n += add_status(stream, pairs + n, code, message);
    stream->has_begun = true;
    sy_grpc_connection_submitted(
        stream->connection,
        nghttp2_submit_response(stream->connection->session, stream->id, pairs, n, NULL));
}

/* ---- what methods call ----------------------------------------------------------------------------------------------- */

static void refuse_large(struct sy_grpc_stream *stream, uint64_t n)
{
    char why[120];

    snprintf(why, sizeof why,
             "an answer of %" PRIu64 " bytes; at most %" PRIu64 " are sent (--grpc-unsent-bytes)",
             n, stream->connection->server->limits.unsent_bytes);
    sy_grpc_stream_finish(stream, SY_GRPC_RESOURCE_EXHAUSTED, why);
}

void sy_grpc_stream_send(struct sy_grpc_stream *stream, struct sy_grpc_reply *reply)
{
    struct sy_grpc_connection *connection = stream->connection;
    uint64_t n = reply_bytes(reply);

    if (n > connection->server->limits.unsent_bytes)
        refuse_large(stream, n);
    if (stream->is_done) {
        sy_grpc_reply_unref(reply);
        return;
    }
    while (reply->at < reply->n_segments && reply->segments[reply->at].n == 0)
        reply->at++;
    *stream->end = reply;
    stream->end = &reply->next;
    if (stream->unsent_bytes == 0)
        sy_pace_restart(&stream->pace);
    stream->unsent_bytes += n;
    connection->unsent_bytes += n;
    if (!stream->has_begun)
        begin(stream);
    else
        sy_grpc_connection_submitted(connection,
                                     nghttp2_session_resume_data(connection->session, stream->id));
    if (connection->unsent_bytes > connection->server->limits.unsent_bytes) {
        sy_log_info("grpc", "event=unread unsent_bytes=%llu",
                    (unsigned long long)connection->unsent_bytes);
        connection->closes = true;
    }
    sy_grpc_connection_mark(connection);
}

void sy_grpc_stream_finish(struct sy_grpc_stream *stream, enum sy_grpc_code code,
                           const char *message)
{
    if (stream->is_done)
        return;
    stream->is_done = true;
    stream->code = code;
    stream->message = message && *message ? strdup(message) : NULL;
    if (!stream->has_begun)
        submit_status(stream);
    else
        sy_grpc_connection_submitted(
            stream->connection,
            nghttp2_session_resume_data(stream->connection->session, stream->id));
    sy_grpc_connection_mark(stream->connection);
}

void sy_grpc_stream_fail(struct sy_grpc_stream *stream, int status)
{
    sy_grpc_stream_finish(stream, sy_grpc_code_of(status), sy_error_text());
}

void sy_grpc_write_prefix(uint8_t *to, bool is_compressed, uint64_t n)
{
    to[0] = is_compressed;
    for (int i = 0; i < 4; i++)
        to[1 + i] = (uint8_t)(n >> (24 - 8 * i));
}

/* In place of the message, if that is worth it. */
static void compress(struct sy_grpc_stream *stream, struct sy_grpc_buffer *message)
{
    struct sy_grpc_bytes piece = {message->data + SY_GRPC_PREFIX, message->n - SY_GRPC_PREFIX};
    struct sy_grpc_buffer small = {0};

    if (piece.n < COMPRESS_FROM || piece.n > COMPRESS_BUFFER || !sy_grpc_stream_compresses(stream))
        return;
    if (sy_grpc_buffer_extend(&small, SY_GRPC_PREFIX) &&
        sy_grpc_deflate(&piece, 1, stream->encoding, &small) == SY_OK && small.n < message->n) {
        sy_grpc_write_prefix(small.data, true, small.n - SY_GRPC_PREFIX);
        sy_grpc_buffer_free(message);
        *message = small;
        return;
    }
    sy_grpc_buffer_free(&small);
}

void sy_grpc_stream_send_buffer(struct sy_grpc_stream *stream, struct sy_grpc_buffer *message)
{
    struct sy_grpc_reply *reply = message->is_broken ? NULL : sy_grpc_reply_create(1);

    if (!reply) {
        sy_grpc_buffer_free(message);
        sy_grpc_stream_finish(stream, SY_GRPC_RESOURCE_EXHAUSTED, "no memory for an answer");
        return;
    }
    sy_grpc_write_prefix(message->data, false, message->n - SY_GRPC_PREFIX);
    compress(stream, message);
    reply->head = *message;
    reply->segments[0] = (struct sy_grpc_bytes){message->data, message->n};
    *message = (struct sy_grpc_buffer){0};
    sy_grpc_stream_send(stream, reply);
}

void sy_grpc_stream_answer(struct sy_grpc_stream *stream, int status, json_t *answer)
{
    struct sy_grpc_buffer message = {0};

    if (status == SY_OK && sy_grpc_buffer_extend(&message, SY_GRPC_PREFIX) && answer)
        status = sy_grpc_json_write(stream->method->response, answer, &message);
    json_decref(answer);
    if (status < 0) {
        sy_grpc_buffer_free(&message);
        sy_grpc_stream_fail(stream, status);
        return;
    }
    sy_grpc_stream_send_buffer(stream, &message);
    if (!stream->method->is_stream)
        sy_grpc_stream_finish(stream, SY_GRPC_OK, NULL);
}

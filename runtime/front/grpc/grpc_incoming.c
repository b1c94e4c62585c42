/* Messages out of a stream's bytes: a byte of flags, 4 bytes of length, the message; and so on.
 *
 *   no hold:  bytes are taken as they come; half a message is collected, and the stream's window opens for the rest of it
 *   hold:     bytes are kept, and the window stays as it is: a client can send no more than that ahead */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"

#define DIRECT_FROM \
    (64u << 10) /* bytes of a message; below, one copy more costs less than what direct needs */

static void open_window(struct sy_grpc_stream *stream, size_t n)
{
    if (n == 0)
        return;
    nghttp2_session_consume_stream(stream->connection->session, stream->id, n);
    sy_grpc_connection_mark(stream->connection);
}

/* ---- one message ------------------------------------------------------------------------------------------------ */

static uint32_t message_length(struct sy_grpc_bytes bytes)
{
    return (uint32_t)bytes.data[1] << 24 | (uint32_t)bytes.data[2] << 16 |
           (uint32_t)bytes.data[3] << 8 | bytes.data[4];
}

/* False: the call has failed. */
static bool check_prefix(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    uint64_t most = sy_grpc_most_bytes(stream);
    uint32_t length = message_length(bytes);
    char why[120];

    if (bytes.data[0] > 1) {
        sy_grpc_stream_finish(stream, SY_GRPC_INTERNAL, "a message with unknown flags");
    } else if (bytes.data[0] == 1 && stream->encoding == SY_GRPC_IDENTITY) {
        sy_grpc_stream_finish(stream, SY_GRPC_INTERNAL,
                              "a compressed message in a call without grpc-encoding");
    } else if (stream->incoming.n_messages > 0 && !stream->method->is_stream) {
        sy_grpc_stream_finish(stream, SY_GRPC_UNIMPLEMENTED,
                              "a second message in a call that takes one");
    } else if (length > most) {
        snprintf(why, sizeof why,
                 "a message of %" PRIu32 " bytes; this call takes at most %" PRIu64, length, most);
        sy_grpc_stream_finish(stream, SY_GRPC_RESOURCE_EXHAUSTED, why);
    }
    return !stream->is_done;
}

static void deliver(struct sy_grpc_stream *stream, bool is_compressed, struct sy_grpc_bytes message)
{
    stream->incoming.n_messages++;
    stream->incoming.no_direct = false;
    stream->incoming.scanned = 0;
    if (is_compressed)
        sy_grpc_inflate_message(stream, message, sy_grpc_incoming_go_on);
    else
        stream->method->on_message(stream, message);
}

static bool can_go_direct(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    uint32_t length = message_length(bytes);

    return stream->method->try_direct && bytes.data[0] == 0 && length >= DIRECT_FROM &&
           !stream->incoming.no_direct &&
           stream->method->try_direct(
               stream,
               (struct sy_grpc_bytes){bytes.data + SY_GRPC_PREFIX, bytes.n - SY_GRPC_PREFIX},
               length);
}

static size_t take_direct(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;
    size_t part = (size_t)SY_MIN((uint64_t)bytes.n, incoming->direct);

    incoming->direct -= part;
    if (part > 0)
        stream->method->direct(stream, (struct sy_grpc_bytes){bytes.data, part},
                               incoming->direct == 0);
    return part;
}

/* Consumes one message, or a part of one that goes to the slab; 0: the front message is incomplete. */
static size_t take_front(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;
    uint32_t length;

    if (incoming->direct > 0)
        return take_direct(stream, bytes);
    if (bytes.n < SY_GRPC_PREFIX || !check_prefix(stream, bytes) ||
        (incoming->n_messages > 0 && !sy_grpc_incoming_is_allowed(stream)))
        return 0;
    length = message_length(bytes);
    if (bytes.n - SY_GRPC_PREFIX < length) {
        if (!can_go_direct(stream, bytes))
            return 0;
        incoming->n_messages++;
        incoming->scanned = 0;
        incoming->direct = length;
        return SY_GRPC_PREFIX;
    }
    deliver(stream, bytes.data[0] == 1,
            (struct sy_grpc_bytes){bytes.data + SY_GRPC_PREFIX, length});
    return SY_GRPC_PREFIX + (size_t)length;
}

/* Returns how many bytes were consumed. */
static size_t take_messages(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    size_t used = 0, step = 1;

    while (step > 0 && used < bytes.n && !stream->incoming.holds && !stream->is_done) {
        step = take_front(stream, (struct sy_grpc_bytes){bytes.data + used, bytes.n - used});
        used += step;
    }
    return used;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* Bytes that the message at the start of `bytes` still lacks; SIZE_MAX: it is whole. */
static size_t missing(struct sy_grpc_bytes bytes)
{
    size_t whole =
        bytes.n < SY_GRPC_PREFIX ? SY_GRPC_PREFIX : SY_GRPC_PREFIX + (size_t)message_length(bytes);

    return whole > bytes.n ? whole - bytes.n : SIZE_MAX;
}

static void take_collected(struct sy_grpc_stream *stream)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;
    uint8_t *data = incoming->bytes.data;

    incoming->source = &incoming->bytes;
    size_t used = take_messages(stream, sy_grpc_block_bytes(&incoming->bytes));
    incoming->source = NULL;
    if (incoming->bytes.data == data) /* else it was kept by a method, or dropped */
        sy_grpc_block_drop(&incoming->bytes, used);
}

/* False: over a limit, and the call has failed. */
static bool collect(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;
    struct sy_grpc_bytes has = sy_grpc_block_bytes(&incoming->bytes);
    struct sy_grpc_bytes begins = has.n > 0 ? has : bytes;
    size_t expected = begins.n >= SY_GRPC_PREFIX && !incoming->holds
                          ? SY_GRPC_PREFIX + (size_t)message_length(begins)
                          : 0;
    int status = sy_grpc_block_append(&incoming->bytes, bytes.data, bytes.n, expected);

    if (status < 0)
        sy_grpc_stream_fail(stream, status);
    return status == SY_OK;
}

/* A message is collected up to its end and no further, so that it can be kept without a copy. */
static size_t take_some(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;
    size_t n = bytes.n;

    if (incoming->bytes.n == 0) {
        n = take_messages(stream, bytes);
        if (n > 0 || stream->is_done)
            return n;
        n = bytes.n;
    } else {
        n = SY_MIN(n, missing(sy_grpc_block_bytes(&incoming->bytes)));
    }
    if (collect(stream, (struct sy_grpc_bytes){bytes.data, n}))
        take_collected(stream);
    return n;
}

void sy_grpc_incoming_data(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;

    if (incoming->bytes.n == 0 && incoming->direct == 0)
        sy_pace_restart(&stream->pace); /* a message begins */
    sy_pace_add_bytes(&stream->pace, bytes.n, stream->connection->server->front->least_bytes_per_s,
                      stream->connection->server->limits.stall_ns);
    while (bytes.n > 0 && !incoming->holds && !stream->is_done) {
        size_t n = take_some(stream, bytes);

        open_window(stream, n);
        bytes.data += n;
        bytes.n -= n;
    }
    if (bytes.n == 0)
        return;
    if (stream->is_done) {
        open_window(stream, bytes.n);
    } else if (collect(stream, bytes)) {
        incoming->n_unread += bytes.n;
    }
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void check_end(struct sy_grpc_stream *stream)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;

    if (!incoming->ended || incoming->holds || incoming->is_over || stream->is_done)
        return;
    incoming->is_over = true;
    if (incoming->bytes.n > 0 || incoming->direct > 0)
        sy_grpc_stream_finish(stream, SY_GRPC_INTERNAL, "the call ends within a message");
    else if (incoming->n_messages == 0 && !stream->method->is_stream)
        sy_grpc_stream_finish(stream, SY_GRPC_INTERNAL, "a call without a message");
    else if (stream->method->on_end)
        stream->method->on_end(stream);
}

void sy_grpc_incoming_end(struct sy_grpc_stream *stream)
{
    stream->incoming.ended = true;
    check_end(stream);
}

void sy_grpc_incoming_go_on(struct sy_grpc_stream *stream)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;

    if (--incoming->holds > 0 || stream->is_done)
        return;
    sy_pace_restart(&stream->pace);
    take_collected(stream);
    if (!incoming->holds) {
        open_window(stream, incoming->n_unread);
        incoming->n_unread = 0;
    }
    check_end(stream);
}

void sy_grpc_incoming_check_hold(struct sy_grpc_stream *stream)
{
    bool is_full = stream->method && stream->method->is_stream &&
                   (stream->n_infers >= stream->connection->server->limits.max_outstanding ||
                    (stream->takes_no_more && stream->n_infers > 0) ||
                    (stream->unsent_bytes >= SY_GRPC_UNSENT_MOST && !stream->is_done));

    if (is_full == stream->infers_hold)
        return;
    stream->infers_hold = is_full;
    if (is_full)
        sy_grpc_incoming_hold(stream);
    else
        sy_grpc_incoming_go_on(stream);
}

bool sy_grpc_incoming_is_allowed(struct sy_grpc_stream *stream)
{
    enum sy_grpc_code code = sy_grpc_stream_look_up(stream);

    if (code == SY_GRPC_OK)
        return true;
    stream->takes_no_more = true;
    if (stream->n_infers == 0)
        sy_grpc_stream_finish(stream, code, sy_error_text());
    else
        sy_grpc_incoming_check_hold(stream);
    return false;
}

void sy_grpc_incoming_finish(struct sy_grpc_stream *stream)
{
    sy_grpc_block_free(&stream->incoming.bytes);
    stream->incoming.direct = 0;
}

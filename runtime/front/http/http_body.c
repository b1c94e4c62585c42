/* A request's body on its way to its sink: inflated where it is compressed, counted, bounded. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/request/json_limits.h"
#include "runtime/front/request/offload.h"

#define INFLATE_BYTES (64u << 10) /* a piece given to the sink */
#define GZIP_OR_ZLIB  (15 + 32)
#define FIRST_BODY    4096u

/* ---- collected bodies ---- */

static int make_room(struct sy_http_call *call, uint64_t n)
{
    struct sy_http_server *server = call->server;
    uint64_t needs = call->body_used + n, size = SY_MAX(2 * call->body_size, (uint64_t)FIRST_BODY);

    if (needs > server->limits.small_bytes)
        return sy_error_set(SY_ETOOBIG, "the body has more than %llu bytes",
                            (unsigned long long)server->limits.small_bytes);
    if (needs <= call->body_size)
        return SY_OK;
    size = SY_MAX(size, needs);
    if (server->buffered_bytes + size - call->body_size > server->limits.buffered_bytes)
        return sy_error_set(
            SY_EBUSY, "%llu bytes of unfinished requests are buffered already; try again later",
            (unsigned long long)server->buffered_bytes);
    unsigned char *body = realloc(call->body, size);
    SY_TRY_ALLOC(body, "no memory for a body of %llu bytes", (unsigned long long)needs);
    server->buffered_bytes += size - call->body_size;
    call->body = body;
    call->body_size = size;
    return SY_OK;
}

static int collect(void *ctx, const unsigned char *bytes, uint64_t n)
{
    struct sy_http_call *call = ctx;

    SY_TRY(make_room(call, n));
    memcpy(call->body + call->body_used, bytes, n);
    call->body_used += n;
    return SY_OK;
}

/* ---- beginning ---- */

static int find_encoding(struct sy_http_call *call, const char **why)
{
    const char *encoding = sy_http_call_header(call, "content-encoding");

    if (!encoding || strcasecmp(encoding, "identity") == 0)
        return 0;
    *why = "Content-Encoding: identity, gzip and deflate are understood";
    if (strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "deflate") != 0)
        return 415;
    *why = "no memory to inflate the body";
    if (inflateInit2(&call->inflate, GZIP_OR_ZLIB) != Z_OK)
        return 503;
    call->has_inflate = true;
    return 0;
}

int sy_http_body_begin(struct sy_http_call *call, const char **why)
{
    int code = find_encoding(call, why);

    if (code)
        return code;
    *why = "the body is larger than this server takes";
    if (call->announced_bytes > call->server->limits.body_bytes)
        return 413;
    if (call->entry->begin)
        return call->entry->begin(call, why);
    call->sink = (struct sy_http_sink){.take = collect, .ctx = call};
    return call->announced_bytes > call->server->limits.small_bytes ? 413 : 0;
}

/* ---- bytes ---- */

static int give(struct sy_http_call *call, const unsigned char *bytes, uint64_t n)
{
    if (call->discards || n == 0)
        return SY_OK; /* the sink may have answered while it took the piece before */
    call->taken_bytes += n;
    if (call->has_inflate && call->connection)
        call->connection->inflated_bytes += n;
    if (call->taken_bytes > call->server->limits.body_bytes)
        return sy_error_set(SY_ETOOBIG, "the body has more than %llu bytes",
                            (unsigned long long)call->server->limits.body_bytes);
    return call->sink.take(call->sink.ctx, bytes, n);
}

/* "deflate" is zlib's format by the specification, and raw deflate by some clients. */
static bool retry_raw(struct sy_http_call *call, const unsigned char *bytes, uint64_t n)
{
    if (call->inflate.total_out > 0 || call->inflate.total_in > 2 ||
        inflateReset2(&call->inflate, -15) != Z_OK)
        return false;
    call->inflate.next_in = (Bytef *)(uintptr_t)bytes;
    call->inflate.avail_in = (uInt)n;
    return true;
}

static int inflate_bytes(struct sy_http_call *call, const unsigned char *bytes, uint64_t n)
{
    unsigned char out[INFLATE_BYTES];
    z_stream *z = &call->inflate;
    bool retried = false;

    if (call->inflate_ended)
        return sy_error_set(SY_ECORRUPT, "bytes behind the end of the compressed body");
    z->next_in = (Bytef *)(uintptr_t)bytes;
    z->avail_in = (uInt)n;
    do {
        z->next_out = out;
        z->avail_out = sizeof(out);
        int result = inflate(z, Z_NO_FLUSH);
        if (result == Z_DATA_ERROR && !retried && retry_raw(call, bytes, n)) {
            retried = true;
            continue;
        }
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return sy_error_set(SY_ECORRUPT, "the compressed body is damaged: %s",
                                z->msg ? z->msg : "no valid stream");
        SY_TRY(give(call, out, sizeof(out) - z->avail_out));
        call->inflate_ended = result == Z_STREAM_END;
    } while (!call->inflate_ended && (z->avail_in > 0 || z->avail_out == 0));
    return z->avail_in > 0
               ? sy_error_set(SY_ECORRUPT, "bytes behind the end of the compressed body")
               : SY_OK;
}

/* A body of unknown length may have no end. */
static void discard(struct sy_http_call *call, uint64_t n)
{
    call->discarded_bytes += n;
    if (call->discarded_bytes > SY_HTTP_DISCARD_MOST && call->connection)
        call->connection->closing = true;
}

int sy_http_body_take(struct sy_http_call *call, const unsigned char *bytes, uint64_t n)
{
    if (call->discards)
        discard(call, n);
    if (call->discards || n == 0)
        return SY_OK;
    return call->has_inflate ? inflate_bytes(call, bytes, n) : give(call, bytes, n);
}

int sy_http_body_end(struct sy_http_call *call)
{
    if (call->has_inflate && !call->inflate_ended && !call->discards)
        return sy_error_set(SY_ECORRUPT, "the compressed body ends in the middle");
    return SY_OK;
}

/* ---- the end ---- */

static void handle(struct sy_http_call *call)
{
    call->entry->route->handle(call->entry->ctx, call);
}

static void parse_beside(void *ctx)
{
    struct sy_http_call *call = ctx;

    call->parse_status = sy_json_parse_limited((const char *)call->body, call->body_used,
                                               call->server->limits.json_depth, &call->parsed);
    if (call->parse_status < 0)
        call->parse_why = strdup(sy_error_text());
}

static void parsed_beside(void *ctx)
{
    struct sy_http_call *call = ctx;

    if (call->parsed || call->parse_why)
        handle(call);
    else
        sy_http_reply_error(call, SY_EBUSY, "the server stops, or has no memory");
}

void sy_http_body_handle(struct sy_http_call *call)
{
    struct sy_offload *offload = call->server->front->offload;

    if (call->body_used > SY_HTTP_SMALL_JSON && offload) {
        call->parse_status = SY_EBUSY; /* as long as the thread has not run */
        int status = sy_offload_run(offload, parse_beside, parsed_beside, call);
        if (status < 0)
            sy_http_reply_error(call, status, NULL);
    } else {
        handle(call);
    }
}

#include "runtime/front/http/http_package.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_infer_internal.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/request/offload.h"

#define MOST_SENDING 16
/* 8 ms at 1 Gbit/s: far longer than a thread needs to read the next */
#define BLOCK_BYTES (1u << 20)

/* ---- ranges ------------------------------------------------------------------------------------------ */

/* Digits only, no sign; false: none. What does not fit is behind every file's end. */
static bool take_number(const char **text, uint64_t *out)
{
    const char *at = *text;
    *out = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        *out = *out < UINT64_MAX / 10 - 1 ? *out * 10 + (uint64_t)(*at - '0') : UINT64_MAX - 1;
    bool any = at > *text;
    *text = at;
    return any;
}

int sy_http_range_parse(const char *text, uint64_t size, uint64_t *first, uint64_t *end)
{
    uint64_t from, last = UINT64_MAX - 1;
    *first = 0;
    *end = size;
    if (!text || strncasecmp(text, "bytes=", 6) != 0)
        return 0;
    text += 6;
    bool has_first = take_number(&text, &from);
    if (*text++ != '-')
        return 0;
    bool has_last = take_number(&text, &last);
    if (*text || (!has_first && !has_last) || (has_first && has_last && last < from))
        return 0;
    if (!has_first) { /* the last so many */
        *first = last < size ? size - last : 0;
        return last == 0 ? -1 : size > 0;
    }
    if (from >= size)
        return -1;
    *first = from;
    *end = has_last ? SY_MIN(size, last + 1) : size;
    return 1;
}

/* ---- sending ----------------------------------------------------------------------------------------- */

struct sending;

struct block {
    struct sending *sending;
    char *data;
    bool is_busy; /* being read, or on its way out */
};

struct sending {
    struct sy_http_server *server;
    struct sy_core_model_ref *ref;
    struct sy_http_stream *stream; /* NULL: all was given, or the client is gone */
    uint64_t at, end;              /* to be read: of the file */
    struct block blocks[2];
    struct block *reading; /* NULL: no thread reads */
    size_t n;              /* bytes of it */
    int error;             /* errno of that read */
};

static void read_next(struct sending *s);

static void free_if_over(struct sending *s)
{
    struct sy_front *front = s->server->front;
    if (s->stream || s->reading || s->blocks[0].is_busy || s->blocks[1].is_busy)
        return;
    front->handlers->model_release(front->core, s->ref);
    s->server->n_packages--;
    free(s->blocks[0].data);
    free(s->blocks[1].data);
    free(s);
}

static void on_closed(void *sending)
{
    struct sending *s = sending;
    s->stream = NULL;
    free_if_over(s);
}

static void on_sent(void *sent)
{
    struct block *b = sent;
    b->is_busy = false;
    if (b->sending->stream)
        read_next(b->sending);
    else
        free_if_over(b->sending);
}

/* On a thread: the file stays open as long as the model is held. */
static void read_block(void *sending)
{
    struct sending *s = sending;
    size_t had = 0;
    s->error = 0;
    while (had < s->n && !s->error) {
        ssize_t got =
            pread(s->ref->package->fd, s->reading->data + had, s->n - had, (off_t)(s->at + had));
        if (got > 0)
            had += (size_t)got;
        else if (got == 0)
            s->error = ENODATA;
        else if (errno != EINTR)
            s->error = errno;
    }
}

static void on_read(void *sending)
{
    struct sending *s = sending;
    struct block *b = s->reading;
    s->reading = NULL;
    b->is_busy = s->stream && !s->error;
    if (!s->stream) {
        free_if_over(s);
        return;
    }
    if (s->error) {
        sy_log_warn("http", "event=package_not_read model=%s at=%" PRIu64 " why=\"%s\"",
                    s->ref->name, s->at, strerror(s->error));
        sy_http_stream_fail(s->stream);
        return;
    }
    struct sy_http_stream *stream = s->stream;
    size_t n = s->n;
    s->at += n;
    bool is_last = s->at == s->end;
    if (is_last)
        s->stream = NULL; /* freed with the last piece */
    else
        read_next(s);
    sy_http_stream_give(stream, b->data, n, on_sent, b);
    if (is_last)
        sy_http_stream_end(stream);
}

/* Into a block that is free, unless one is being read already. */
static void read_next(struct sending *s)
{
    struct sy_offload *offload = s->server->front->offload;
    struct block *b = !s->blocks[0].is_busy ? &s->blocks[0] : &s->blocks[1];
    if (s->reading || b->is_busy || s->at == s->end)
        return;
    s->reading = b;
    b->is_busy = true;
    s->n = (size_t)SY_MIN(s->end - s->at, BLOCK_BYTES);
    s->error = ECANCELED; /* where the threads end before one reads it */
    if (offload && sy_offload_run(offload, read_block, on_read, s) == SY_OK)
        return;
    s->reading = NULL;
    b->is_busy = false;
    sy_http_stream_fail(s->stream); /* the client goes on where it stood, here or elsewhere */
}

/* ---- the call ---------------------------------------------------------------------------------------- */

static struct sending *make_sending(struct sy_http_call *call, struct sy_core_model_ref *ref)
{
    struct sending *s = calloc(1, sizeof *s);
    for (int i = 0; s && i < 2; i++)
        s->blocks[i] = (struct block){.sending = s, .data = malloc(BLOCK_BYTES)};
    if (!s || !s->blocks[0].data || !s->blocks[1].data) {
        if (s) {
            free(s->blocks[0].data);
            free(s->blocks[1].data);
        }
        free(s);
        return NULL;
    }
    s->server = call->server;
    s->ref = ref;
    return s;
}

/* True: it is answered by a stream, which has the reference. */
static bool send_range(struct sy_http_call *call, struct sy_core_model_ref *ref, int code,
                       uint64_t first, uint64_t end)
{
    struct sending *s = make_sending(call, ref);
    if (!s) {
        sy_http_reply_error(call, SY_ENOMEM_HOST, "no memory to send a package");
        return false;
    }
    s->at = first;
    s->end = end;
    s->server->n_packages++;
    s->stream = sy_http_stream_begin_sized(call, code, "application/octet-stream", end - first,
                                           on_closed, s);
    if (s->stream)
        read_next(s);
    else
        free_if_over(s);
    return true;
}

static int check(const struct sy_http_call *call, const struct sy_core_model_ref *ref,
                 uint64_t *size)
{
    struct stat file;
    if (sy_arrival_bytes(ref->package->arrival) != UINT64_MAX)
        return sy_error_set(SY_EBUSY, "the package of '%s' is still on its way here", ref->name);
    if (ref->package->fd < 0 || fstat(ref->package->fd, &file) < 0)
        return sy_error_set(SY_EIO, "the package of '%s' is not open here", ref->name);
    if (call->server->n_packages >= MOST_SENDING)
        return sy_error_set(SY_EBUSY, "%d packages are being sent; at most %d",
                            call->server->n_packages, MOST_SENDING);
    *size = (uint64_t)file.st_size;
    return SY_OK;
}

/* True: the reference is the answer's. */
static bool answer(struct sy_http_call *call, struct sy_core_model_ref *ref)
{
    char etag[40], text[80];
    const char *condition = sy_http_call_header(call, "if-range"),
               *known = sy_http_call_header(call, "if-none-match");
    uint64_t size, first, end;
    int status = check(call, ref, &size);
    if (status < 0) {
        sy_http_reply_error(call, status, NULL);
        return false;
    }
    snprintf(etag, sizeof etag, "\"%016" PRIx64 "-%" PRIx64 "\"", ref->package->content_hash, size);
    sy_http_call_add_header(call, "ETag", etag);
    sy_http_call_add_header(call, "Accept-Ranges", "bytes");
    if (known && strcmp(known, etag) == 0) {
        sy_http_reply(call, 304, NULL, NULL, 0);
        return false;
    }
    const char *range =
        condition && strcmp(condition, etag) != 0 ? NULL : sy_http_call_header(call, "range");
    int part = sy_http_range_parse(range, size, &first, &end);
    snprintf(text, sizeof text,
             part < 0 ? "bytes */%" PRIu64 : "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
             part < 0 ? size : first, end - 1, size);
    if (part)
        sy_http_call_add_header(call, "Content-Range", text);
    if (part < 0) {
        sy_http_reply_refuse(call, 416, "the range begins behind the package's end");
        return false;
    }
    return send_range(call, ref, part ? 206 : 200, first, end);
}

void sy_http_package_handle(void *ctx, struct sy_http_call *call)
{
    struct sy_front *front = ctx;
    struct sy_core_model_ref *ref;
    int64_t version;
    int status = sy_http_read_version(sy_http_call_segment(call, 1), &version);
    if (status == SY_OK)
        status = front->handlers->model_acquire(front->core, sy_http_call_segment(call, 0), version,
                                                &ref);
    if (status < 0)
        sy_http_reply_error(call, status, NULL);
    else if (!answer(call, ref))
        front->handlers->model_release(front->core, ref);
}

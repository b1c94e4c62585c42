/* Answers: header lines, text, and tensors from where they lie. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

int sy_http_status_code(int status)
{
    switch (status) {
    case SY_OK:
        return 200;
    case SY_ENOTFOUND:
        return 404;
    case SY_ETOOBIG:
        return 413;
    case SY_EBUSY:
    case SY_EPEER:
    case SY_ENODEVICE:
        return 503;
    case SY_EDENIED:
        return 403;
    case SY_EDEADLINE:
        return 504;
    case SY_EUNSUPPORTED:
        return 501;
    case SY_ECANCELED:
        return 499;
    case SY_EDEVICE:
    case SY_EBUG:
    case SY_EIO:
    case SY_ENOMEM_HOST:
        return 500;
    default:
        return 400;
    }
}

static const char *reason_of(int code)
{
    return code == 499 ? "Client Closed Request" : http_status_str((enum http_status)code);
}

/* ---- header lines ------------------------------------------------------------------------------------- */

/* The Date header, formatted once a second. */
static const char *date_now(void)
{
    static char text[40];
    static time_t of;
    struct timespec now;
    struct tm parts;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != of) {
        of = now.tv_sec;
        gmtime_r(&of, &parts);
        strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    }
    return text;
}

static void add_line(struct sy_text *head, const char *name, const char *value)
{
    sy_text_add_string(head, name);
    sy_text_add_string(head, value);
    sy_text_add(head, "\r\n", 2);
}

static void add_status(struct sy_text *head, int code)
{
    sy_text_add_string(head, SY_HTTP_BEGIN);
    sy_text_add_int(head, code);
    add_line(head, " ", reason_of(code));
}

/* Status line and header lines, and room for `more` bytes behind them; NULL: no memory. *used: without those. length UINT64_MAX: no Content-Length. */
static char *make_head(const struct sy_http_call *call, int code, const char *type, uint64_t length,
                       uint64_t more, size_t *used)
{
    const char *extra = call->extra_headers ? call->extra_headers : "";
    struct sy_text head = {0};

    /* All of it, at once: nothing below takes memory. */
    if (call->lacks_header ||
        !sy_text_reserve(&head, strlen(extra) + (type ? strlen(type) : 0) + 320 + more))
        return NULL;
    add_status(&head, code);
    add_line(&head, "Date: ", date_now());
    if (type)
        add_line(&head, "Content-Type: ", type);
    if (length != UINT64_MAX) {
        sy_text_add_string(&head, "Content-Length: ");
        sy_text_add_int(&head, (long long)length);
        sy_text_add(&head, "\r\n", 2);
    }
    if (!call->keeps_alive)
        add_line(&head, "Connection: ", "close");
    else if (call->http_minor == 0)
        add_line(&head, "Connection: ", "keep-alive");
    add_line(&head, extra, "");
    *used = head.used;
    return head.at;
}

/* Sends and ends the call: what is left of its body is read, or the connection ends. reply NULL: no memory. */
static void end_call(struct sy_http_call *call, struct sy_http_reply *reply)
{
    struct sy_http_connection *connection = call->connection;

    call->replied = call->discards = true;
    if (!connection) {
        if (reply)
            sy_http_reply_free(reply);
        sy_http_call_free(call);
        return;
    }
    connection->refs++;
    sy_http_reply_send(connection, reply);
    connection->closing |= !call->keeps_alive;
    if (call->is_whole) {
        connection->call = NULL;
        sy_http_call_free(call);
    }
    connection->go_on(connection);
    sy_http_connection_release(connection);
}

/* ---- replies -------------------------------------------------------------------------------------------- */

void sy_http_reply(struct sy_http_call *call, int code, const char *type, const void *body,
                   size_t bytes)
{
    size_t used = 0, with_body = call->is_head ? 0 : bytes;

    if (!call->is_whole && call->announced_bytes > SY_HTTP_DISCARD_MOST)
        call->keeps_alive = false;
    char *head = make_head(call, code, type, bytes, with_body, &used);
    if (head && with_body)
        memcpy(head + used, body, with_body);
    end_call(call, sy_http_reply_create(call->server, head, used + with_body, 0));
}

static void reply_text(struct sy_http_call *call, int code, const char *type, const char *text)
{
    sy_http_reply(call, code, type, text, strlen(text));
}

void sy_http_reply_json(struct sy_http_call *call, int code, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    if (text)
        reply_text(call, code, "application/json", text);
    else
        reply_text(call, 500, "application/json", "{\"error\":\"no memory for the answer\"}");
    free(text);
}

/* Text of outside in JSON: what is no UTF-8 is shown as '?'. */
static json_t *error_json(const char *message)
{
    json_t *text = json_string(message);
    char plain[512];

    if (!text) {
        snprintf(plain, sizeof(plain), "%s", message);
        for (char *c = plain; *c; c++)
            if (*c & 0x80)
                *c = '?';
        text = json_string(plain);
    }
    return json_pack("{s:o}", "error", text);
}

void sy_http_reply_refuse(struct sy_http_call *call, int code, const char *why)
{
    char copy[600];

    snprintf(copy, sizeof(copy), "%s", why); /* it may be the error text, which others overwrite */
    call->server->front->refused.n[SY_REFUSED_LIMIT] += code == 408 || code == 413 || code == 431;
    sy_http_sink_drop(call);
    sy_http_reply_json(call, code, error_json(copy));
}

void sy_http_reply_error(struct sy_http_call *call, int status, const char *message)
{
    if (!message || !*message)
        message = *sy_error_text() ? sy_error_text() : sy_status_text(status);
    sy_http_reply_refuse(call, sy_http_status_code(status), message);
}

#define SHORT_TEXT \
    (16u << 10) /* is copied behind the header lines: one allocation and one piece less */

/* Header lines, text and tensors; NULL: no memory. */
static struct sy_http_reply *tensors_reply(const struct sy_http_call *call, const char *type,
                                           struct sy_text *text,
                                           const struct sy_http_segment *tensors,
                                           const uint64_t *cuts, int n_tensors)
{
    uint64_t length = text->used, from = 0;
    size_t used = 0, copied = text->used <= SHORT_TEXT ? text->used : 0;

    for (int i = 0; i < n_tensors; i++)
        length += tensors[i].bytes;
    char *head = make_head(call, 200, type, length, copied, &used);
    if (!head)
        return NULL;
    memcpy(head + used, text->at, copied);
    const char *at = copied ? head + used : text->at;
    struct sy_http_reply *reply = sy_http_reply_create(call->server, head, used, 2 * n_tensors + 1);
    if (!reply)
        return NULL;
    for (int i = 0; i <= n_tensors; i++) {
        uint64_t to = i < n_tensors ? cuts[i] : text->used;

        sy_http_reply_add(reply, at + from, to - from);
        from = to;
        if (i < n_tensors)
            sy_http_reply_add(reply, tensors[i].data, tensors[i].bytes);
    }
    if (!copied) {
        reply->text = *text;
        *text = (struct sy_text){0};
    }
    return reply;
}

void sy_http_reply_tensors(struct sy_http_call *call, const char *type, struct sy_text *text,
                           const struct sy_http_segment *tensors, const uint64_t *cuts,
                           int n_tensors, void (*release)(void *ctx), void *ctx)
{
    struct sy_http_reply *reply = NULL;

    if (call->connection)
        reply = tensors_reply(call, type, text, tensors, cuts, n_tensors);
    sy_text_finish(text);
    if (reply) {
        reply->release = release;
        reply->ctx = ctx;
    } else {
        release(ctx);
    }
    end_call(call, reply);
}

void sy_http_refuse(int fd, int code, const char *why)
{
    char text[1024], body[640];
    json_t *json = error_json(why);
    size_t n = json ? json_dumpb(json, body, sizeof(body), JSON_COMPACT) : 0;

    json_decref(json);
    n = SY_MIN(n, sizeof(body));
    int used = snprintf(text, sizeof(text),
                        "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: "
                        "%zu\r\nConnection: close\r\n\r\n%.*s",
                        code, reason_of(code), n, (int)n, body);
    (void)!send(fd, text, (size_t)used, MSG_NOSIGNAL | MSG_DONTWAIT); /* it is closed anyway */
}

/* ---- streams -------------------------------------------------------------------------------------------- */

#define STREAM_UNSENT_MOST (256u << 10)

/* `text` is the reply's. */
static void stream_send(struct sy_http_connection *connection, char *text, uint64_t bytes)
{
    sy_http_reply_send(connection, sy_http_reply_create(connection->server, text, bytes, 0));
}

/* A write that the socket does not take whole is gone on with before anything else: over TLS, another one in its place would end the connection. */
void sy_http_reply_continue(struct sy_http_connection *connection)
{
    static const char text[] = SY_HTTP_BEGIN "100 Continue\r\n\r\n";

    if (!connection->first_reply)
        stream_send(connection, strdup(text), sizeof text - 1);
}

void sy_http_reply_begin(struct sy_http_connection *connection)
{
    static const char text[] = SY_HTTP_BEGIN;

    if (connection->first_reply)
        return;
    stream_send(connection, strdup(text), sizeof text - 1);
    connection->begun_bytes = sizeof text - 1;
}

struct sy_http_stream *sy_http_stream_begin(struct sy_http_call *call, const char *type,
                                            void (*closed)(void *ctx), void *ctx)
{
    if (call->is_head) {
        sy_http_reply(call, 200, type, NULL, 0);
        return NULL;
    }
    if (call->http_minor > 0)
        sy_http_call_add_header(call, "Transfer-Encoding", "chunked");
    else
        call->keeps_alive = false;
    sy_http_call_add_header(call, "Cache-Control", "no-store");
    return sy_http_stream_begin_sized(call, 200, type, UINT64_MAX, closed, ctx);
}

struct sy_http_stream *sy_http_stream_begin_sized(struct sy_http_call *call, int code,
                                                  const char *type, uint64_t length,
                                                  void (*closed)(void *ctx), void *ctx)
{
    struct sy_http_connection *connection = call->connection;
    struct sy_http_stream *stream;
    size_t used = 0;

    if (call->is_head) {
        sy_http_reply(call, code, type, NULL, length);
        return NULL;
    }
    stream = connection ? calloc(1, sizeof(*stream)) : NULL;
    if (!stream) {
        sy_http_reply_error(call, SY_ENOMEM_HOST, "no memory for a stream");
        return NULL;
    }
    *stream = (struct sy_http_stream){.connection = connection,
                                      .is_chunked = length == UINT64_MAX && call->http_minor > 0,
                                      .keeps_alive = call->keeps_alive,
                                      .closed = closed,
                                      .ctx = ctx};
    char *head = make_head(call, code, type, length, 0, &used);
    connection->call = NULL;
    connection->stream = stream;
    sy_http_call_free(call);
    stream_send(connection, head, used);
    return stream;
}

bool sy_http_stream_write(struct sy_http_stream *stream, const void *data, size_t bytes)
{
    struct sy_http_connection *connection = stream->connection;
    char *text;
    int n = 0;

    if (connection->broken ||
        (connection->unsent_bytes > 0 && connection->unsent_bytes + bytes > STREAM_UNSENT_MOST))
        return false;
    text = malloc(bytes + 24);
    if (!text)
        return false;
    if (stream->is_chunked)
        n = sprintf(text, "%zx\r\n", bytes);
    memcpy(text + n, data, bytes);
    n += (int)bytes;
    if (stream->is_chunked)
        n += sprintf(text + n, "\r\n");
    stream_send(connection, text, (uint64_t)n);
    return true;
}

void sy_http_stream_give(struct sy_http_stream *stream, const void *data, size_t bytes,
                         void (*release)(void *ctx), void *ctx)
{
    struct sy_http_connection *connection = stream->connection;
    struct sy_http_reply *reply = sy_http_reply_create(connection->server, malloc(1), 0, 1);

    if (reply) {
        sy_http_reply_add(reply, data, bytes);
        reply->release = release;
        reply->ctx = ctx;
    } else {
        release(ctx);
    }
    sy_http_reply_send(connection, reply);
}

void sy_http_stream_fail(struct sy_http_stream *stream)
{
    stream->connection->broken = true; /* its next look closes it, within the tick */
}

void sy_http_stream_end(struct sy_http_stream *stream)
{
    struct sy_http_connection *connection = stream->connection;

    connection->refs++;
    connection->stream = NULL;
    if (stream->is_chunked)
        stream_send(connection, strdup("0\r\n\r\n"), 5);
    connection->closing |= !stream->keeps_alive;
    free(stream);
    connection->go_on(connection);
    sy_http_connection_release(connection);
}

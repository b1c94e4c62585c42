/* Callbacks of the HTTP parser: they make a call, route it, feed it its body, and hand it to its handler.
 *
 * HT3: nothing here closes the connection: a call lives until the parser has returned (http_connection.c, settle). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

/* Answers; what is left of the body is read and thrown away, if there is little of it. */
static void refuse(struct sy_http_connection *connection, int code, const char *why)
{
    struct sy_http_call *call = connection->call;

    if (call && !call->replied)
        sy_http_reply_refuse(call, code, why);
}

/* ---- header lines ---------------------------------------------------------------------------------------- */

static int on_begin(http_parser *parser)
{
    struct sy_http_connection *connection = parser->data;

    connection->call = sy_http_call_create(connection);
    if (!connection->call)
        return 1;
    connection->begun_ns = sy_clock_now();
    return 0;
}

/* A failing callback stops the parser; parse() sees that by the reply, which exists already. */
static int fail_header(struct sy_http_connection *connection, int status)
{
    if (status == SY_OK)
        return 0;
    connection->call->keeps_alive = false;
    refuse(connection, status == SY_ETOOBIG ? 431 : 503, sy_error_text());
    return 1;
}

static int on_url(http_parser *parser, const char *at, size_t n)
{
    struct sy_http_connection *connection = parser->data;

    return fail_header(connection, sy_http_call_add_url(connection->call, at, n));
}

static int on_field(http_parser *parser, const char *at, size_t n)
{
    struct sy_http_connection *connection = parser->data;

    if (!connection->begun_ns)
        return 0; /* trailers behind a chunked body say nothing here */
    return fail_header(connection, sy_http_call_add_field(connection->call, at, n, false));
}

static int on_value(http_parser *parser, const char *at, size_t n)
{
    struct sy_http_connection *connection = parser->data;

    if (!connection->begun_ns)
        return 0;
    return fail_header(connection, sy_http_call_add_field(connection->call, at, n, true));
}

static int check_version(struct sy_http_call *call, const http_parser *parser, const char **why)
{
    *why = "HTTP/1.1 and HTTP/1.0 are spoken here";
    if (parser->http_major == 1)
        return 0;
    call->keeps_alive = false;
    return 505;
}

/* RFC 9112, 3.2: one Host in HTTP/1.1, and never two. */
static int check_host(struct sy_http_call *call, const char **why)
{
    int n = 0;

    for (int i = 0; i < call->n_fields; i++)
        n += strcmp(call->text + call->fields[i].name, "host") == 0;
    *why = n == 0 ? "a request of HTTP/1.1 has a Host header line; this one has none"
                  : "a request has one Host header line; this one has several";
    if (n == 1 || (n == 0 && call->http_minor == 0))
        return 0;
    call->keeps_alive = false; /* a proxy in between might take two requests for one */
    return 400;
}

/* RFC 9112, 6.1: a body in a coding that is not understood is not taken for one without. */
static int check_coding(struct sy_http_call *call, const char **why)
{
    *why = "Transfer-Encoding: only chunked is understood";
    for (int i = 0; i < call->n_fields; i++)
        if (strcmp(call->text + call->fields[i].name, "transfer-encoding") == 0 &&
            strcasecmp(call->text + call->fields[i].value, "chunked") != 0) {
            call->keeps_alive = false;
            return 400;
        }
    return 0;
}

static int check_expectation(struct sy_http_call *call, const char **why)
{
    const char *expect = sy_http_call_header(call, "expect");

    *why = "Expect: only 100-continue is understood";
    if (!expect)
        return 0;
    if (strcasecmp(expect, "100-continue") != 0)
        return 417;
    call->expects_continue = call->has_body && call->http_minor > 0;
    return 0;
}

static void read_framing(struct sy_http_call *call, const http_parser *parser)
{
    bool chunked = parser->flags & F_CHUNKED;

    call->method = parser->method;
    call->http_minor = parser->http_major == 1 ? parser->http_minor : 0;
    call->is_head = parser->method == HTTP_HEAD;
    call->keeps_alive = http_should_keep_alive(parser);
    call->announced_bytes =
        chunked || parser->content_length == UINT64_MAX ? 0 : parser->content_length;
    call->has_body = chunked || call->announced_bytes > 0;
}

static int on_headers(http_parser *parser)
{
    struct sy_http_connection *connection = parser->data;
    struct sy_http_call *call = connection->call;
    const char *why = "";

    connection->begun_ns = 0;
    sy_pace_restart(&connection->pace); /* the body's time begins */
    parser->upgrade = 0; /* a client that offers another protocol is answered in this one */
    read_framing(call, parser);
    int code = check_version(call, parser, &why);
    if (!code)
        code = check_host(call, &why);
    if (!code)
        code = sy_http_call_route(call, &why);
    if (!code)
        code = check_coding(call, &why);
    if (!code)
        code = check_expectation(call, &why);
    if (!code)
        code = sy_http_body_begin(call, &why);
    if (code && sy_http_call_header(call, "expect"))
        call->keeps_alive = false; /* the client may or may not send the body */
    if (code)
        refuse(connection, code, why);
    else if (call->expects_continue)
        sy_http_reply_continue(connection);
    return 0;
}

/* ---- bodies ------------------------------------------------------------------------------------------------ */

static int on_body(http_parser *parser, const char *at, size_t n)
{
    struct sy_http_connection *connection = parser->data;
    struct sy_http_call *call = connection->call;
    int status = sy_http_body_take(call, (const unsigned char *)at, n);

    if (status < 0)
        refuse(connection, sy_http_status_code(status), sy_error_text());
    if (!call->discards && call->sink.waits && call->sink.waits(call->sink.ctx))
        http_parser_pause(parser, 1);
    return 0;
}

/* Pauses the parser until the call is answered. */
static int on_whole(http_parser *parser)
{
    struct sy_http_connection *connection = parser->data;
    struct sy_http_call *call = connection->call;
    int status = sy_http_body_end(call);

    http_parser_pause(parser, 1);
    call->is_whole = true;
    if (call->replied) { /* while its body came */
        connection->call = NULL;
        sy_http_call_free(call);
    } else if (status < 0) {
        refuse(connection, sy_http_status_code(status), sy_error_text());
    } else if (call->sink.end) {
        call->sink.end(call->sink.ctx);
    } else {
        sy_http_body_handle(call);
    }
    return 0;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers,
    .on_body = on_body,
    .on_message_complete = on_whole,
};

/* ---- running it -------------------------------------------------------------------------------------------- */

bool sy_http_takes_bytes(const struct sy_http_connection *connection)
{
    const struct sy_http_call *call = connection->call;

    if (connection->fd < 0 || connection->broken || connection->closing || connection->stream ||
        connection->inflated_bytes >= SY_HTTP_INFLATED_TURN ||
        connection->unsent_bytes > SY_HTTP_UNSENT_MOST)
        return false;
    if (!call || connection->begun_ns)
        return true;
    if (call->is_whole)
        return false;
    return call->discards || !call->sink.waits || !call->sink.waits(call->sink.ctx);
}

/* Not HTTP, or refused within its header lines: the following bytes cannot be framed. */
static void end_after_error(struct sy_http_connection *connection, enum http_errno error)
{
    struct sy_http_call *call = connection->call;

    if (!call)
        call = connection->call = sy_http_call_create(connection);
    connection->closing = true;
    connection->begun_ns = 0;
    if (!call)
        return;
    call->keeps_alive = false;
    refuse(connection, error == HPE_HEADER_OVERFLOW ? 431 : 400, http_errno_description(error));
    connection->call = NULL;
    sy_http_call_free(call);
}

uint32_t sy_http_parse(struct sy_http_connection *connection, const unsigned char *bytes,
                       uint32_t n)
{
    uint32_t at = 0;

    while (at < n && sy_http_takes_bytes(connection)) {
        bool inflates = connection->call && connection->call->has_inflate;
        uint32_t piece = inflates ? SY_MIN(n - at, SY_HTTP_INFLATE_BYTES) : n - at;

        http_parser_pause(&connection->parser, 0);
        at += (uint32_t)http_parser_execute(&connection->parser, &settings,
                                            (const char *)bytes + at, piece);
        enum http_errno error = HTTP_PARSER_ERRNO(&connection->parser);
        if (error != HPE_OK && error != HPE_PAUSED) {
            end_after_error(connection, error);
            return n;
        }
    }
    return connection->closing || connection->broken ? n : at;
}

void sy_http_parse_end(struct sy_http_connection *connection)
{
    struct sy_http_call *call = connection->call;

    if (!call || call->replied || call->is_whole || !sy_http_takes_bytes(connection))
        return;
    call->keeps_alive = false;
    refuse(connection, 400, "the connection ended before the request did");
}

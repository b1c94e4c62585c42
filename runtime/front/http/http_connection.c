/* One connection: bytes in, calls out.
 *
 *   IDLE ──first byte──> HEADER ──last header line──> BODY ──whole──> ANSWERED? ──reply queued──> IDLE, or CLOSING
 *     └──────────── idle_ns, header_ns, stall_ns without progress: 408 or closed ───────────┘        └─ sent ─> lingers ─> closed
 *
 * The parser is run on what one recv brought. While a call's sink waits, or its answer is not there, what came is held, and the socket is read no more
 * once that is full; its end is still seen (EV_CLOSED). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

#define DIRECT_BYTES (16u << 10) /* from so many bytes on a tensor is received where it will lie */
#define LINGER_NS    (2 * SY_NS_PER_S)

static const http_parser_settings settings;

static void on_readable(evutil_socket_t fd, short what, void *ctx);
static void on_writable(evutil_socket_t fd, short what, void *ctx);
static void on_closed(evutil_socket_t fd, short what, void *ctx);

/* ---- life ------------------------------------------------------------------------------------------------ */

static void connection_free(struct sy_http_connection *connection)
{
    struct event *events[] = {connection->read_event, connection->write_event,
                              connection->closed_event, connection->again_event};

    for (size_t i = 0; i < SY_ARRAY_LEN(events); i++)
        if (events[i])
            event_free(events[i]);
    free(connection->held);
    free(connection);
}

void sy_http_connection_release(struct sy_http_connection *connection)
{
    struct sy_http_server *server = connection->server;

    if (--connection->refs > 0)
        return;
    connection_free(connection);
    sy_http_server_release(server);
}

static int make_events(struct sy_http_connection *connection)
{
    struct event_base *base = connection->server->front->base;
    int fd = connection->fd;

    connection->read_event = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, connection);
    connection->write_event = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, connection);
    connection->closed_event = event_new(base, fd, EV_CLOSED, on_closed, connection);
    if (connection->read_event && connection->write_event && connection->closed_event &&
        event_add(connection->read_event, NULL) == 0)
        return SY_OK;
    return sy_error_set(SY_ENOMEM_HOST, "no memory for a connection's events");
}

int sy_http_connection_create(struct sy_http_server *server, int fd)
{
    struct sy_http_connection *connection = calloc(1, sizeof(*connection));

    if (!connection)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a connection");
    connection->server = server;
    connection->fd = fd;
    connection->refs = 1;
    connection->progress_ns = sy_clock_now();
    connection->reading = true;
    http_parser_init(&connection->parser, HTTP_REQUEST);
    connection->parser.data = connection;
    if (make_events(connection) < 0) {
        connection_free(connection);
        return SY_ENOMEM_HOST;
    }
    connection->next = server->connections;
    if (connection->next)
        connection->next->previous = connection;
    server->connections = connection;
    server->n_connections++;
    server->refs++;
    return SY_OK;
}

static void unlink_connection(struct sy_http_connection *connection)
{
    struct sy_http_server *server = connection->server;

    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    connection->next = connection->previous = NULL;
    server->n_connections--;
}

/* A handler has the call until it replies; one whose message has not ended is nobody's yet. */
static void lose_call(struct sy_http_connection *connection)
{
    struct sy_http_call *call = connection->call;
    void (*gone)(void *ctx) = call ? call->gone : NULL;

    connection->call = NULL;
    if (!call)
        return;
    call->connection = NULL;
    if (call->infer)
        sy_http_infer_drop(call);
    else if (!call->is_whole || call->replied)
        sy_http_call_free(call);
    else if (gone)
        gone(call->gone_ctx);
}

static void lose_stream(struct sy_http_connection *connection)
{
    struct sy_http_stream *stream = connection->stream;

    connection->stream = NULL;
    if (!stream)
        return;
    stream->closed(stream->ctx);
    free(stream);
}

void sy_http_connection_close(struct sy_http_connection *connection)
{
    if (connection->fd < 0)
        return;
    event_del(connection->read_event);
    event_del(connection->write_event);
    event_del(connection->closed_event);
    if (connection->again_event)
        event_del(connection->again_event);
    close(connection->fd);
    connection->fd = -1;
    unlink_connection(connection);
    sy_http_reply_drop_all(connection);
    lose_stream(connection);
    lose_call(connection);
    sy_http_connection_release(connection);
}

static void want_read(struct sy_http_connection *connection, bool wanted)
{
    if (wanted == connection->reading || connection->fd < 0)
        return;
    connection->reading = wanted;
    connection->progress_ns = sy_clock_now(); /* a pause of ours is no stall of theirs */
    if (wanted) {
        event_del(connection->closed_event);
        event_add(connection->read_event, NULL);
    } else {
        event_del(connection->read_event);
        event_add(connection->closed_event, NULL);
    }
}

/* ---- limits of time -------------------------------------------------------------------------------------- */

/* Header lines and bodies are answered 408, as far as the client reads; the rest is closed. */
void sy_http_connection_look(struct sy_http_connection *connection, sy_ns now)
{
    const struct sy_http_limits *limits = &connection->server->limits;
    struct sy_http_call *call = connection->call;
    sy_ns quiet_ns = now > connection->progress_ns ? now - connection->progress_ns : 0;
    bool in_header = connection->begun_ns && now > connection->begun_ns + limits->header_ns;
    bool in_body = call && !call->is_whole && connection->reading && quiet_ns > limits->stall_ns &&
                   !connection->begun_ns;

    if (connection->lingers) {
        if (quiet_ns > LINGER_NS)
            sy_http_connection_close(connection);
    } else if ((in_header || in_body) && call && !call->replied) {
        sy_http_reply_refuse(
            call, 408, in_header ? "the header lines came too slowly" : "the body came too slowly");
    } else if (in_header || (connection->first_reply && quiet_ns > limits->stall_ns) ||
               (!call && !connection->stream && !connection->first_reply &&
                quiet_ns > limits->idle_ns)) {
        sy_http_connection_close(connection);
    }
}

/* ---- the parser's calls ------------------------------------------------------------------------------------ */

/* Answers; what is left of the body is read and thrown away, if there is little of it. */
static void refuse(struct sy_http_connection *connection, int code, const char *why)
{
    struct sy_http_call *call = connection->call;

    if (call && !call->replied)
        sy_http_reply_refuse(call, code, why);
}

static int on_begin(http_parser *parser)
{
    struct sy_http_connection *connection = parser->data;

    connection->call = sy_http_call_create(connection);
    if (!connection->call)
        return 1;
    connection->begun_ns = sy_clock_now();
    return 0;
}

/* Where a callback fails the parser stops; that the answer is there already says so to parse(). */
static int fail_header(struct sy_http_connection *connection, int status)
{
    if (status == SY_OK)
        return 0;
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

static void say_continue(struct sy_http_connection *connection)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

    /* Behind other bytes it would have to wait; a client goes on by itself after a while then. */
    if (!connection->first_reply)
        (void)!send(connection->fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int on_headers(http_parser *parser)
{
    struct sy_http_connection *connection = parser->data;
    struct sy_http_call *call = connection->call;
    const char *why = "";

    connection->begun_ns = 0;
    connection->progress_ns = sy_clock_now();
    parser->upgrade = 0; /* a client that offers another protocol is answered in this one */
    call->method = parser->method;
    call->http_minor = parser->http_major == 1 ? parser->http_minor : 0;
    call->is_head = parser->method == HTTP_HEAD;
    call->keeps_alive = http_should_keep_alive(parser);
    bool chunked = parser->flags & F_CHUNKED;
    call->announced_bytes =
        chunked || parser->content_length == UINT64_MAX ? 0 : parser->content_length;
    call->has_body = chunked || call->announced_bytes > 0;
    int code = sy_http_call_route(call, &why);
    if (!code)
        code = check_expectation(call, &why);
    if (!code)
        code = sy_http_body_begin(call, &why);
    if (code)
        refuse(connection, code, why);
    else if (call->expects_continue)
        say_continue(connection);
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t n)
{
    struct sy_http_connection *connection = parser->data;
    struct sy_http_call *call = connection->call;
    int status = sy_http_body_take(call, (const unsigned char *)at, n);

    if (status < 0)
        refuse(connection, sy_http_status_code(status), sy_error_text());
    if (connection->fd >= 0 && connection->call == call && call->sink.waits && !call->discards &&
        call->sink.waits(call->sink.ctx))
        http_parser_pause(parser, 1);
    return 0;
}

/* The parser stands still until the call is answered: on_message_complete pauses it. */
static int on_whole(http_parser *parser)
{
    struct sy_http_connection *connection = parser->data;
    struct sy_http_call *call = connection->call;
    int status = sy_http_body_end(call);

    http_parser_pause(parser, 1);
    call->is_whole = true;
    if (status < 0)
        refuse(connection, sy_http_status_code(status), sy_error_text());
    if (call->replied) { /* while its body came */
        connection->call = NULL;
        sy_http_call_free(call);
    } else if (call->infer) {
        sy_http_infer_end(call);
    } else {
        call->entry->route->handle(call->entry->ctx, call);
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

/* ---- bytes -------------------------------------------------------------------------------------------------- */

/* Whether the parser may go on: nothing is being answered, the sink takes bytes, and others had their turn. */
static bool takes_bytes(const struct sy_http_connection *connection)
{
    const struct sy_http_call *call = connection->call;

    if (connection->fd < 0 || connection->closing || connection->stream ||
        connection->inflated_bytes >= SY_HTTP_INFLATED_TURN)
        return false;
    if (!call || connection->begun_ns)
        return true;
    if (call->is_whole)
        return false;
    return call->discards || !call->sink.waits || !call->sink.waits(call->sink.ctx);
}

/* A request that is none, or one that was refused within its header lines: the bytes behind it mean nothing. */
static void end_after_error(struct sy_http_connection *connection, enum http_errno error)
{
    struct sy_http_call *call = connection->call;
    bool was_answered = call && call->replied;

    connection->held_used = connection->held_at = 0;
    if (!call || (!was_answered && connection->fd < 0)) {
        sy_http_connection_close(connection);
        return;
    }
    call->keeps_alive = false;
    if (!was_answered)
        refuse(connection, error == HPE_HEADER_OVERFLOW ? 431 : 400, http_errno_description(error));
    if (connection->fd >= 0)
        connection->closing = true;
    connection->call = NULL;
    sy_http_call_free(call);
}

/* Parses as far as it may; how many bytes. */
static uint32_t parse(struct sy_http_connection *connection, const unsigned char *bytes, uint32_t n)
{
    uint32_t at = 0;

    while (at < n && takes_bytes(connection)) {
        bool inflates = connection->call && connection->call->has_inflate;
        uint32_t piece = inflates ? SY_MIN(n - at, SY_HTTP_INFLATE_BYTES) : n - at;

        http_parser_pause(&connection->parser, 0);
        at += (uint32_t)http_parser_execute(&connection->parser, &settings,
                                            (const char *)bytes + at, piece);
        enum http_errno error = HTTP_PARSER_ERRNO(&connection->parser);
        if (connection->fd < 0)
            return n;
        if (error == HPE_PAUSED)
            continue;
        if (error != HPE_OK) {
            end_after_error(connection, error);
            return n;
        }
    }
    return at;
}

static bool hold(struct sy_http_connection *connection, const unsigned char *bytes, uint32_t n)
{
    if (!connection->held)
        connection->held = malloc(SY_HTTP_HELD_BYTES);
    if (!connection->held)
        return false;
    memcpy(connection->held + connection->held_used, bytes, n);
    connection->held_used += n;
    return true;
}

static void parse_held(struct sy_http_connection *connection)
{
    connection->held_at += parse(connection, connection->held + connection->held_at,
                                 connection->held_used - connection->held_at);
    if (connection->held_at < connection->held_used)
        return;
    free(connection->held);
    connection->held = NULL;
    connection->held_at = connection->held_used = 0;
}

/* Where the bytes of a tensor may be received to: only in a body of known length, uncompressed. */
static uint64_t direct_room(struct sy_http_connection *connection, unsigned char **to)
{
    struct sy_http_call *call = connection->call;
    uint64_t left = connection->parser.content_length;

    if (!call || !call->sink.room || call->discards || call->is_whole || connection->begun_ns ||
        call->has_inflate || call->announced_bytes == 0 || connection->held_used > 0 ||
        left == UINT64_MAX || left < DIRECT_BYTES)
        return 0;
    uint64_t room = SY_MIN(call->sink.room(call->sink.ctx, to), left);
    return room >= DIRECT_BYTES ? SY_MIN(room, (uint64_t)SY_HTTP_TURN_BYTES) : 0;
}

static ssize_t receive(struct sy_http_connection *connection, unsigned char **at, uint64_t *room)
{
    *room = direct_room(connection, at);
    if (*room == 0) {
        *at = connection->server->read_buffer;
        *room = takes_bytes(connection) ? SY_HTTP_READ_BYTES
                                        : SY_HTTP_HELD_BYTES - connection->held_used;
    }
    return recv(connection->fd, *at, *room, MSG_DONTWAIT);
}

/* False: nothing more now, or the end. */
static bool read_some(struct sy_http_connection *connection)
{
    unsigned char *at;
    uint64_t room;
    ssize_t n = receive(connection, &at, &room);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        sy_http_connection_close(connection);
        return false;
    }
    connection->progress_ns = sy_clock_now();
    if (connection->closing || connection->lingers)
        return (uint64_t)n == room;
    uint32_t parsed = connection->held_used > 0 ? 0 : parse(connection, at, (uint32_t)n);
    if (connection->fd < 0)
        return false;
    if (parsed < (uint32_t)n && !hold(connection, at + parsed, (uint32_t)n - parsed)) {
        sy_http_connection_close(connection);
        return false;
    }
    return (uint64_t)n == room;
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_http_connection *connection = ctx;

    (void)fd, (void)what;
    connection->inflated_bytes = 0;
    sy_http_connection_go_on(connection);
}

/* What was inflated in this turn is enough: the rest in the next one. */
static void go_on_later(struct sy_http_connection *connection)
{
    struct timeval at_once = {0, 0};

    if (!connection->again_event)
        connection->again_event =
            event_new(connection->server->front->base, -1, 0, on_again, connection);
    if (!connection->again_event || event_add(connection->again_event, &at_once))
        sy_http_connection_close(connection);
}

/* A request may end within what was held, and be answered at once: begins again until nothing moves. */
static void settle(struct sy_http_connection *connection)
{
    uint32_t left;

    do {
        left = connection->held_used - connection->held_at;
        if (left > 0 && takes_bytes(connection))
            parse_held(connection);
    } while (connection->fd >= 0 && connection->held_used - connection->held_at < left);
    if (connection->fd < 0)
        return;
    if (connection->held_at > 0) {
        memmove(connection->held, connection->held + connection->held_at,
                connection->held_used - connection->held_at);
        connection->held_used -= connection->held_at;
        connection->held_at = 0;
    }
    if (connection->inflated_bytes >= SY_HTTP_INFLATED_TURN) {
        go_on_later(connection);
        if (connection->fd < 0)
            return;
    }
    want_read(connection, connection->lingers || takes_bytes(connection) ||
                              connection->held_used < SY_HTTP_HELD_BYTES);
    if (connection->closing && !connection->first_reply && !connection->lingers) {
        shutdown(connection->fd, SHUT_WR); /* so that the client reads the answer before a reset */
        connection->lingers = true;
        want_read(connection, true);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_http_connection *connection = ctx;

    (void)fd, (void)what;
    connection->refs++;
    connection->in_parser = true;
    connection->inflated_bytes = 0;
    /* Bounded, so that one client that sends without end does not hold the loop. */
    for (unsigned i = 0; i < SY_HTTP_TURN_BYTES / SY_HTTP_READ_BYTES && connection->fd >= 0 &&
                         connection->reading &&
                         (connection->lingers || takes_bytes(connection) ||
                          connection->held_used < SY_HTTP_HELD_BYTES);
         i++)
        if (!read_some(connection))
            break;
    if (connection->fd >= 0)
        settle(connection);
    connection->in_parser = false;
    sy_http_connection_release(connection);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_http_connection *connection = ctx;

    (void)fd, (void)what;
    connection->refs++;
    if (!sy_http_reply_flush(connection))
        sy_http_connection_close(connection);
    else
        sy_http_connection_go_on(connection);
    sy_http_connection_release(connection);
}

static void on_closed(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    sy_http_connection_close(ctx);
}

void sy_http_connection_go_on(struct sy_http_connection *connection)
{
    if (connection->in_parser || connection->fd < 0)
        return; /* whoever reads looks again */
    connection->refs++;
    connection->in_parser = true;
    settle(connection);
    connection->in_parser = false;
    sy_http_connection_release(connection);
}

/* One connection: bytes in, calls out.
 *
 *   IDLE ──first byte──> HEADER ──last header line──> BODY ──whole──> ANSWERED? ──reply queued──> IDLE, or CLOSING
 *     └──────────── idle_ns, header_ns, stall_ns without progress: 408 or closed ───────────┘        └─ sent ─> lingers ─> closed
 *
 * The parser is run on what one recv brought. While a call's sink waits, or its answer is not there, what came is held, and the socket is read no more
 * once that is full; its end is still seen (closed_watch.h). */
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

static void on_readable(evutil_socket_t fd, short what, void *ctx);
static void on_writable(evutil_socket_t fd, short what, void *ctx);
static void on_again(evutil_socket_t fd, short what, void *ctx);
static void go_on(struct sy_http_connection *connection);

/* ---- life ------------------------------------------------------------------------------------------------ */

static const struct sy_socket_callbacks callbacks = {on_readable, on_writable, on_again};

int sy_http_connection_create(struct sy_http_server *server, int fd)
{
    struct sy_http_connection *connection = calloc(1, sizeof(*connection));

    SY_TRY_ALLOC(connection, "no memory for a connection");
    connection->server = server;
    connection->fd = fd;
    connection->refs = 1;
    connection->go_on = go_on;
    sy_pace_restart(&connection->pace);
    connection->opened_ns = sy_clock_now();
    http_parser_init(&connection->parser, HTTP_REQUEST);
    connection->parser.data = connection;
    if ((server->front->tls &&
         sy_tls_stream_create(server->front->tls, fd, "http/1.1", &connection->tls) < 0) ||
        sy_socket_events_init(&connection->events, server->front->base, fd, &callbacks,
                              server->closed_watch, connection) < 0) {
        sy_tls_stream_destroy(connection->tls);
        sy_http_connection_free(connection);
        return SY_ENOMEM_HOST;
    }
    LIST_INSERT_HEAD(&server->connections, connection, link);
    sy_front_server_connected(&server->base);
    return SY_OK;
}

static void want_read(struct sy_http_connection *connection, bool wanted)
{
    if (wanted == connection->events.reading || connection->ended)
        return;
    sy_pace_restart(&connection->pace); /* the server paused, not the client */
    sy_socket_read(&connection->events, wanted);
}

/* ---- limits of time -------------------------------------------------------------------------------------- */

/* Header lines and bodies are answered 408, as far as the client reads; the rest is closed. */
void sy_http_connection_look(struct sy_http_connection *connection, sy_ns now)
{
    const struct sy_http_limits *limits = &connection->server->limits;
    struct sy_http_call *call = connection->call;
    sy_ns quiet_ns = now > connection->pace.at_ns ? now - connection->pace.at_ns : 0;
    bool in_header = connection->begun_ns && now > connection->begun_ns + limits->header_ns;
    bool in_body = call && !call->is_whole && !connection->begun_ns &&
                   sy_http_takes_bytes(connection) && quiet_ns > limits->stall_ns;

    bool in_handshake =
        !sy_tls_is_ready(connection->tls) && now > connection->opened_ns + limits->header_ns;

    if (in_handshake || connection->broken || (connection->lingers && quiet_ns > LINGER_NS)) {
        sy_http_connection_close(connection);
    } else if (connection->lingers) {
        return;
    } else if ((in_header || in_body) && !call->replied) {
        call->keeps_alive = false;
        sy_http_reply_refuse(
            call, 408, in_header ? "the header lines came too slowly" : "the body came too slowly");
    } else if (in_header || in_body || (connection->first_reply && quiet_ns > limits->stall_ns) ||
               (!call && !connection->stream && !connection->first_reply &&
                quiet_ns > limits->idle_ns)) {
        sy_http_connection_close(connection);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------ */

/* False: no memory, or no room. */
static bool hold(struct sy_http_connection *connection, const unsigned char *bytes, uint32_t n)
{
    if (n > SY_HTTP_HELD_BYTES - connection->held_used)
        return false;
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
    connection->held_at += sy_http_parse(connection, connection->held + connection->held_at,
                                         connection->held_used - connection->held_at);
    if (connection->held_at < connection->held_used)
        return;
    free(connection->held);
    connection->held = NULL;
    connection->held_at = connection->held_used = 0;
}

/* Room to receive a tensor's bytes into directly: only for an uncompressed body of known length. */
static uint64_t direct_room(struct sy_http_connection *connection, unsigned char **to)
{
    struct sy_http_call *call = connection->call;
    uint64_t left = connection->parser.content_length;

    if (!call || !call->sink.room || call->discards || call->is_whole || connection->begun_ns ||
        call->has_inflate || call->announced_bytes == 0 || connection->held_used > 0 ||
        left == UINT64_MAX || left < DIRECT_BYTES || !sy_http_takes_bytes(connection))
        return 0;
    uint64_t room = SY_MIN(call->sink.room(call->sink.ctx, to), left);
    return room >= DIRECT_BYTES ? SY_MIN(room, (uint64_t)SY_HTTP_TURN_BYTES) : 0;
}

/* Held bytes come first: new ones are appended to them. */
static ssize_t receive(struct sy_http_connection *connection, unsigned char **at, uint64_t *room)
{
    *room = direct_room(connection, at);
    if (*room == 0) {
        *at = connection->server->read_buffer;
        *room = connection->held_used == 0 ? SY_HTTP_READ_BYTES
                                           : SY_HTTP_HELD_BYTES - connection->held_used;
    }
    return sy_net_read(connection->fd, connection->tls, *at, *room);
}

/* An answer that is waited for, or a body that waits for its place. */
static bool is_waited_for(const struct sy_http_connection *connection)
{
    const struct sy_http_call *call = connection->call;

    return call && !call->replied &&
           (call->is_whole ||
            (connection->held_used > 0 && call->sink.waits && call->sink.waits(call->sink.ctx)));
}

/* The client is told nothing more, whether it has gone or only sends no more. */
static bool is_idle(const struct sy_http_connection *connection)
{
    return !connection->tls && !connection->call && !connection->stream &&
           !connection->first_reply && connection->held_used == 0;
}

/* The client sends no more. */
static void on_end(struct sy_http_connection *connection)
{
    if (is_idle(connection)) { /* thousands may go at once: without the calls of a slower end */
        sy_http_connection_close(connection);
        return;
    }
    sy_socket_read_ended(&connection->events);
    connection->ended = true;
}

/* HT4: a socket that was closed answers what it is sent with a reset. */
static void probe(struct sy_http_connection *connection)
{
    if (connection->probed)
        return;
    connection->probed = true;
    if (connection->call->http_minor > 0)
        sy_http_reply_continue(connection);
    else
        sy_http_reply_begin(connection);
}

/* HT4: what the client waits for, and what is held, is answered; a request that is not whole is refused. */
static void settle_end(struct sy_http_connection *connection)
{
    if (connection->closing)
        return;
    if (is_waited_for(connection)) {
        probe(connection);
    } else if (connection->held_used == 0 && !connection->stream) {
        sy_http_parse_end(connection);
        connection->closing = true;
    }
}

/* How many bytes; 0: nothing more now, or the end. */
static uint64_t read_some(struct sy_http_connection *connection)
{
    unsigned char *at;
    uint64_t room;
    ssize_t n = receive(connection, &at, &room);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        sy_http_connection_close(connection);
    else if (n == 0)
        on_end(connection);
    if (n <= 0)
        return 0;
    uint64_t more = (uint64_t)n == room ? room : 0;
    if (connection->closing || connection->broken)
        return more; /* thrown away, for so long as it may linger */
    sy_pace_add_bytes(&connection->pace, (uint64_t)n, connection->server->front->least_bytes_per_s,
                      connection->server->limits.stall_ns);
    uint32_t parsed = connection->held_used > 0 ? 0 : sy_http_parse(connection, at, (uint32_t)n);
    if (parsed < (uint32_t)n && !hold(connection, at + parsed, (uint32_t)n - parsed)) {
        sy_http_connection_close(connection);
        return 0;
    }
    return more;
}

static bool may_read(const struct sy_http_connection *connection)
{
    return connection->fd >= 0 && connection->events.reading &&
           connection->held_used < SY_HTTP_HELD_BYTES;
}

static void on_again(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_http_connection *connection = ctx;

    (void)fd, (void)what;
    connection->inflated_bytes = 0;
    if (sy_tls_pending(connection->tls) && may_read(connection))
        on_readable(connection->fd, EV_READ, connection);
    else
        go_on(connection);
}

/* This turn's inflate budget is spent, or decrypted bytes were not taken: continues in the next turn of the loop. */
static void go_on_later(struct sy_http_connection *connection)
{
    if (!sy_socket_call_soon(&connection->events))
        sy_http_connection_close(connection);
}

/* Several pipelined requests may be held: parses until no more bytes are consumed. */
static void parse_all_held(struct sy_http_connection *connection)
{
    uint32_t left;

    do {
        left = connection->held_used - connection->held_at;
        if (left > 0 && sy_http_takes_bytes(connection))
            parse_held(connection);
    } while (connection->held_used - connection->held_at < left);
    if (connection->held_at == 0)
        return;
    memmove(connection->held, connection->held + connection->held_at,
            connection->held_used - connection->held_at);
    connection->held_used -= connection->held_at;
    connection->held_at = 0;
}

/* All replies are sent: waits for the client to close, since closing with unread input resets the connection and may lose the reply. False: closed. */
static bool linger(struct sy_http_connection *connection)
{
    if (connection->ended) {
        sy_http_connection_close(connection);
        return false;
    }
    if (!connection->lingers)
        sy_pace_restart(&connection->pace);
    if (!connection->lingers) {
        sy_tls_end(connection->tls);
        shutdown(connection->fd, SHUT_WR);
    }
    connection->lingers = true;
    connection->held_used = 0;
    return true;
}

/* Outside the parser, after any event: parses held bytes, re-arms the events, or closes. */
static void settle(struct sy_http_connection *connection)
{
    parse_all_held(connection);
    if (connection->broken)
        sy_http_connection_close(connection);
    else if (connection->ended)
        settle_end(connection);
    if (connection->fd < 0)
        return;
    if (connection->inflated_bytes >= SY_HTTP_INFLATED_TURN) {
        go_on_later(connection);
        if (connection->fd < 0)
            return;
    }
    if (connection->closing && !connection->first_reply && !linger(connection))
        return;
    want_read(connection, connection->closing || connection->held_used < SY_HTTP_HELD_BYTES);
    if (sy_tls_pending(connection->tls) && may_read(connection))
        go_on_later(connection);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_http_connection *connection = ctx;

    (void)fd, (void)what;
    connection->refs++;
    connection->in_parser = true;
    /* Bounded: a client that sends without pause must not monopolize the loop. */
    for (uint64_t all = 0, n = 1; n > 0 && all < SY_HTTP_TURN_BYTES && may_read(connection);
         all += n)
        n = read_some(connection);
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
    connection->broken |= !sy_http_reply_flush(connection);
    go_on(connection);
    sy_http_connection_release(connection);
}

/* While nothing is read. What is left to be read comes before the end: only what is waited for ends now. */
void sy_http_connection_gone(void *ctx, bool is_gone)
{
    struct sy_http_connection *connection = ctx;

    if (is_gone && (connection->ended || is_waited_for(connection))) {
        sy_http_connection_close(connection);
    } else if (!is_gone && is_waited_for(connection)) {
        sy_socket_read_ended(&connection->events);
        probe(connection);
    }
}

static void go_on(struct sy_http_connection *connection)
{
    if (connection->in_parser || connection->fd < 0)
        return; /* the caller that is reading calls settle() itself */
    connection->refs++;
    connection->in_parser = true;
    if (connection->call && !connection->call->is_whole)
        sy_pace_restart(&connection->pace); /* a pause of ours is no stall of theirs */
    settle(connection);
    connection->in_parser = false;
    sy_http_connection_release(connection);
}

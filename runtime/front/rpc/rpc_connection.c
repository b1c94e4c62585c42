/* One connection: bytes in, whole messages out to the methods.
 *
 *   READING --64 outstanding--> PAUSED --answered--> READING --garbage, end of stream--> CLOSING --sent--> CLOSED
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_internal.h"

#define FIRST_CAPACITY (16u * 1024u)
#define KEPT_CAPACITY \
    (1024u * 1024u)           /* a buffer that grew beyond it is given back when it is empty */
#define TURN_BYTES (1u << 20) /* in one turn of the loop: a quarter of a millisecond */

static void on_readable(evutil_socket_t fd, short what, void *ctx);
static void on_writable(evutil_socket_t fd, short what, void *ctx);

static void start_scan(struct sy_rpc_connection *connection)
{
    uint64_t most = connection->server->limits.message_bytes;

    if (!connection->grant.rights) /* no token was shown yet */
        most = SY_MIN(most, (uint64_t)SY_RPC_STRANGER_BYTES);
    sy_msgpack_scan_init(&connection->scan, most, SY_RPC_MAX_ELEMENTS);
}

/* The model that its first message asks for is loaded now, or never will be. */
static void on_model_ready(void *ctx)
{
    struct sy_rpc_connection *connection = ctx;

    connection->waits = false;
    sy_rpc_connection_resume(connection);
}

static int make_events(struct sy_rpc_connection *connection)
{
    static const struct sy_socket_callbacks callbacks = {on_readable, on_writable, on_readable};

    return sy_socket_events_init(&connection->events, connection->server->front->base,
                                 connection->fd, &callbacks, connection->server->closed_watch,
                                 connection);
}

/* The peer's grant, and the transport of its bytes. */
static int meet(struct sy_rpc_connection *connection)
{
    struct sy_front *front = connection->server->front;

    if (connection->is_local)
        return sy_access_peer(front->access, connection->fd, &connection->grant);
    sy_access_anonymous(front->access, &connection->grant);
    if (!front->tls)
        return SY_OK;
    return sy_tls_stream_create(front->tls, connection->fd, NULL, &connection->tls);
}

int sy_rpc_connection_create(struct sy_rpc_server *server, int fd, bool is_local)
{
    struct sy_rpc_connection *connection = calloc(1, sizeof(*connection));
    int status;

    SY_TRY_ALLOC(connection, "no memory for a connection");
    connection->server = server;
    connection->fd = fd;
    connection->is_local = is_local;
    connection->refs = 1;
    connection->wait = (struct sy_repository_wait){.ready = on_model_ready, .ctx = connection};
    sy_pace_restart(&connection->pace);
    connection->opened_ns = sy_clock_now();
    status = meet(connection);
    if (status == SY_OK)
        status = make_events(connection);
    if (status < 0) {
        sy_tls_stream_destroy(connection->tls);
        sy_rpc_connection_free(connection);
        return status;
    }
    start_scan(connection);
    LIST_INSERT_HEAD(&server->connections, connection, link);
    sy_front_server_connected(&server->base);
    return SY_OK;
}

bool sy_rpc_connection_stalled(const struct sy_rpc_connection *connection, sy_ns now)
{
    bool expects = connection->first_reply || (connection->events.reading && connection->used > 0);
    bool is_stranger = !sy_tls_is_ready(connection->tls) || !connection->grant.rights;

    if (is_stranger && now > connection->opened_ns + SY_RPC_STRANGER_NS)
        return true;
    return expects && now > connection->pace.at_ns + connection->server->limits.stall_ns;
}

/* Bytes that lie decrypted in the TLS stream make no event of the socket: they are taken in the loop's next turn. */
static void read_on(struct sy_rpc_connection *connection)
{
    if (connection->fd >= 0 && connection->events.reading && sy_tls_pending(connection->tls) &&
        !sy_socket_call_soon(&connection->events))
        sy_rpc_connection_close(connection);
}

static void want_read(struct sy_rpc_connection *connection, bool wanted)
{
    if (wanted == connection->events.reading || connection->fd < 0)
        return;
    sy_pace_restart(&connection->pace); /* a pause of ours is no stall of theirs */
    sy_socket_read(&connection->events, wanted);
    if (wanted)
        read_on(connection);
}

/* F2: says what was wrong, reads no more, and closes when the answers are out. */
static void end_after_error(struct sy_rpc_connection *connection, int status)
{
    want_read(connection, false);
    sy_socket_unwatch(&connection->events); /* a client that half-closed may still read the error */
    connection->closing = true;
    connection->used = 0;
    sy_rpc_long_drop(connection);
    connection->n_outstanding++;
    sy_rpc_answer_error(connection, true, 0, status, sy_error_text());
}

static int dispatch_bytes(struct sy_rpc_connection *connection, const unsigned char *bytes,
                          uint64_t n_bytes)
{
    msgpack_unpacked unpacked;
    size_t offset = 0;
    int status;

    msgpack_unpacked_init(&unpacked);
    if (msgpack_unpack_next(&unpacked, (const char *)bytes, n_bytes, &offset) ==
        MSGPACK_UNPACK_SUCCESS)
        status = connection->server->dispatch(connection, &unpacked.data);
    else
        status = sy_error_set(SY_EPROTO, "a message of %llu bytes is not msgpack",
                              (unsigned long long)n_bytes);
    msgpack_unpacked_destroy(&unpacked);
    return status;
}

/* Whole messages at the front of the buffer, as many as may be outstanding. Returns the bytes they took. */
static uint64_t process_messages(struct sy_rpc_connection *connection)
{
    uint64_t at = 0;

    while (connection->fd >= 0 && !connection->closing && !connection->waits &&
           at < connection->used && connection->longs.left == 0 &&
           connection->n_outstanding < connection->server->limits.max_outstanding) {
        int status =
            sy_msgpack_scan(&connection->scan, connection->buffer + at, connection->used - at);

        if (status == 1) {
            uint64_t n = connection->scan.at;

            start_scan(connection);
            status = dispatch_bytes(connection, connection->buffer + at, n);
            if (status == SY_REPOSITORY_LOADS) {
                connection->waits = true;
                break;
            }
            sy_rpc_long_drop(connection);
            start_scan(connection); /* a token may have raised what it may send */
            at += n;
            if (status == SY_OK)
                continue;
        }
        if (status < 0 && connection->fd >= 0)
            end_after_error(connection, status);
        break;
    }
    return at;
}

static void give_back_buffer(struct sy_rpc_connection *connection)
{
    if (connection->used > 0 || connection->capacity <= KEPT_CAPACITY)
        return;
    free(connection->buffer);
    connection->server->buffered_bytes -= connection->capacity;
    connection->buffer = NULL;
    connection->capacity = 0;
}

static void process(struct sy_rpc_connection *connection)
{
    uint64_t taken;

    if (connection->processing)
        return;
    connection->processing = true;
    connection->refs++;
    taken = process_messages(connection);
    connection->processing = false;
    if (connection->fd >= 0) {
        connection->used = connection->used > taken ? connection->used - taken : 0;
        if (taken > 0 && connection->used > 0)
            memmove(connection->buffer, connection->buffer + taken, connection->used);
        if (connection->used > 0 && !connection->closing && !connection->waits &&
            connection->longs.left == 0)
            sy_rpc_long_begin(connection);
        give_back_buffer(connection);
        want_read(connection,
                  !connection->closing && !connection->waits &&
                      connection->n_outstanding < connection->server->limits.max_outstanding);
        if (connection->closing && connection->n_outstanding == 0 && !connection->first_reply)
            sy_rpc_connection_close(connection);
    }
    sy_rpc_connection_release(connection);
}

/* Room for more of the message that has begun: doubled as bytes arrive, never by what is claimed (F1). */
static int make_room(struct sy_rpc_connection *connection)
{
    struct sy_rpc_server *server = connection->server;
    uint64_t capacity = SY_MAX(connection->capacity * 2, (uint64_t)FIRST_CAPACITY);
    unsigned char *buffer;

    if (connection->used < connection->capacity)
        return SY_OK;
    if (connection->scan.at >
        connection->used) /* a long tensor: no more than its end, and a little of the next */
        capacity = SY_MIN(capacity, connection->scan.at + FIRST_CAPACITY);
    if (server->buffered_bytes + capacity - connection->capacity > server->limits.buffered_bytes)
        return sy_error_set(
            SY_EBUSY, "%llu bytes of unfinished requests are buffered already; try again later",
            (unsigned long long)server->buffered_bytes);
    buffer = realloc(connection->buffer, capacity);
    SY_TRY_ALLOC(buffer, "no memory for a message of %llu bytes", (unsigned long long)capacity);
    server->buffered_bytes += capacity - connection->capacity;
    connection->buffer = buffer;
    connection->capacity = capacity;
    return SY_OK;
}

/* The client's side sees an alert, or nothing that it could read: the reason stands in the log. Not for each of a flood. */
static void say_tls_failed(struct sy_rpc_connection *connection)
{
    struct sy_rpc_server *server = connection->server;
    sy_ns now = sy_clock_now();

    if (now < server->said_ns + SY_NS_PER_S)
        return;
    server->said_ns = now;
    sy_log_info("rpc", "event=tls_failed why=\"%s\"", sy_tls_why(connection->tls));
}

/* Bytes that came. Whole messages are taken. */
static void note_read(struct sy_rpc_connection *connection, uint64_t n)
{
    uint64_t before = connection->used;

    sy_pace_add_bytes(&connection->pace, n, connection->server->front->least_bytes_per_s,
                      connection->server->limits.stall_ns);
    process(connection);
    if (connection->used < before)
        sy_pace_restart(&connection->pace); /* whole messages were taken */
}

/* An error, or the end of the stream. False: so it is, or there is nothing more now. */
static bool check_read(struct sy_rpc_connection *connection, ssize_t n)
{
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < 0 && connection->tls)
        say_tls_failed(connection);
    if (n <= 0)
        sy_rpc_connection_close(connection);
    return n > 0;
}

/* A long tensor's bytes, to where the request will have them. */
static bool read_long(struct sy_rpc_connection *connection, void *to, uint64_t room,
                      uint64_t *left_of_turn)
{
    ssize_t n;

    room = SY_MIN(room, *left_of_turn);
    n = sy_net_read(connection->fd, connection->tls, to, room);
    if (!check_read(connection, n))
        return false;
    sy_rpc_long_filled(connection, (uint64_t)n);
    *left_of_turn -= SY_MIN((uint64_t)n, *left_of_turn);
    note_read(connection, (uint64_t)n);
    return connection->fd >= 0 && connection->events.reading && *left_of_turn > 0;
}

/* False: nothing more now, or the end, or the turn is over. */
static bool read_some(struct sy_rpc_connection *connection, uint64_t *left_of_turn)
{
    uint64_t room;
    ssize_t n;
    void *to = sy_rpc_long_next(connection, &room);

    if (to)
        return read_long(connection, to, room, left_of_turn);
    int status = make_room(connection);

    if (status < 0) {
        end_after_error(connection, status);
        process(connection);
        return false;
    }
    room = SY_MIN(connection->capacity - connection->used, *left_of_turn);
    n = sy_net_read(connection->fd, connection->tls, connection->buffer + connection->used, room);
    if (!check_read(connection, n))
        return false;
    if (connection->used == 0 && !connection->first_reply)
        sy_pace_restart(&connection->pace); /* a message begins: the silence before was no stall */
    connection->used += (uint64_t)n;
    *left_of_turn -= SY_MIN((uint64_t)n, *left_of_turn);
    note_read(connection, (uint64_t)n);
    return connection->fd >= 0 && connection->events.reading && *left_of_turn > 0 &&
           ((uint64_t)n == room || connection->longs.left > 0);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_rpc_connection *connection = ctx;
    uint64_t left_of_turn = TURN_BYTES;

    (void)fd, (void)what;
    connection->refs++;
    /* Bounded, so that one client that sends without end does not hold the loop. */
    for (int i = 0; i < 64 && connection->fd >= 0 && connection->events.reading; i++)
        if (!read_some(connection, &left_of_turn))
            break;
    sy_rpc_long_after_turn(connection, TURN_BYTES - left_of_turn);
    read_on(connection);
    sy_rpc_connection_release(connection);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_rpc_connection *connection = ctx;

    (void)fd, (void)what;
    connection->refs++;
    if (!sy_rpc_reply_flush(connection))
        sy_rpc_connection_close(connection);
    else
        process(connection); /* F3: what was held back may go on now */
    sy_rpc_connection_release(connection);
}

/* F3: not read, but gone, or about to be: this protocol's clients do not half-close. */
void sy_rpc_connection_gone(void *connection, bool is_gone)
{
    (void)is_gone;
    sy_rpc_connection_close(connection);
}

/* Called when an answer came from the core, outside of reading: what was held back may go on. */
void sy_rpc_connection_resume(struct sy_rpc_connection *connection)
{
    if (connection->fd >= 0 && (connection->closing || !connection->events.reading))
        process(connection);
}

/* gRPC unary calls over HTTP/2 without TLS: the same message again and again, one call a connection at a time.
 *
 *   grpc_load 127.0.0.1 8001 --body FILE [--path /inference.GRPCInferenceService/ModelInfer] [--rate 15000]
 *
 * FILE is the message with its five bytes in front. A call is right if its grpc-status is 0. */
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "bench/serve/load_core.h"
#include "runtime/base/assert.h"

#define WINDOW_BYTES (16 << 20)
#define OUT_BYTES    (64u << 10)
#define MOST_FRAME   ((16u << 10) + 9) /* nghttp2 hands out one frame at a time */

struct call {
    char *body, *path;
    size_t n;
};

struct exchange {
    nghttp2_session *session;
    size_t body_sent;
    bool right;
    size_t n_out, n_written;
    uint8_t out[OUT_BYTES];
};

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct load_connection *connection = user;
    const struct call *call = load_context(connection);
    struct exchange *exchange = connection->state;
    size_t n = SY_MIN(room, call->n - exchange->body_sent);
    (void)session, (void)stream, (void)source;
    memcpy(to, call->body + exchange->body_sent, n);
    exchange->body_sent += n;
    if (exchange->body_sent == call->n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
    struct load_connection *connection = user;
    struct exchange *exchange = connection->state;
    (void)session, (void)frame, (void)flags;
    if (n_name == 11 && memcmp(name, "grpc-status", 11) == 0) {
        exchange->right = n_value == 1 && value[0] == '0';
        if (!exchange->right)
            load_fail(connection, "grpc-status %.*s", (int)n_value, (const char *)value);
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    struct load_connection *connection = user;
    struct exchange *exchange = connection->state;
    (void)session, (void)stream;
    if (error || !exchange->right)
        load_fail(connection, "a stream closed with error %u, without grpc-status 0", error);
    load_answered(connection, true); /* the error has been counted */
    return 0;
}

static nghttp2_session *new_session(struct load_connection *connection)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_session *session = NULL;
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES}};
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    if (nghttp2_session_client_new(&session, callbacks, connection) == 0) {
        nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, 1);
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW_BYTES);
    }
    nghttp2_session_callbacks_del(callbacks);
    return session;
}

static int open_exchange(struct load_connection *connection)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    connection->state = exchange;
    if (exchange)
        exchange->session = new_session(connection);
    return exchange && exchange->session ? 0 : load_fail(connection, "no memory");
}

#define HEADER(name, value)                                                                      \
    {                                                                                            \
        (uint8_t *)(name), (uint8_t *)(value), strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE \
    }

static int start(struct load_connection *connection)
{
    const struct call *call = load_context(connection);
    struct exchange *exchange = connection->state;
    nghttp2_nv headers[] = {HEADER(":method", "POST"),
                            HEADER(":scheme", "http"),
                            HEADER(":path", call->path),
                            HEADER(":authority", "localhost"),
                            HEADER("content-type", "application/grpc"),
                            HEADER("te", "trailers")};
    nghttp2_data_provider body = {.read_callback = read_body};
    exchange->body_sent = 0;
    exchange->right = false;
    int32_t stream = nghttp2_submit_request(exchange->session, NULL, headers, SY_ARRAY_LEN(headers),
                                            &body, NULL);
    return stream < 0 ? load_fail(connection, "submit: %s", nghttp2_strerror(stream)) : 0;
}

/* A call's frames leave in one write, as from gRPC's clients: a write for each frame would wake the server twice a call. */
static int fill(struct load_connection *connection)
{
    struct exchange *exchange = connection->state;
    const uint8_t *frame;
    ssize_t n = 1;
    exchange->n_out = exchange->n_written = 0;
    while (n > 0 && OUT_BYTES - exchange->n_out >= MOST_FRAME) {
        n = nghttp2_session_mem_send(exchange->session, &frame);
        if (n > 0)
            memcpy(exchange->out + exchange->n_out, frame, (size_t)n);
        if (n > 0)
            exchange->n_out += (size_t)n;
    }
    return n < 0 ? load_fail(connection, "send: %s", nghttp2_strerror((int)n)) : 0;
}

static int flush(struct load_connection *connection)
{
    struct exchange *exchange = connection->state;
    for (;;) {
        if (exchange->n_written == exchange->n_out && fill(connection) < 0)
            return -1;
        if (exchange->n_out == 0)
            return 0;
        ssize_t n = write(connection->fd, exchange->out + exchange->n_written,
                          exchange->n_out - exchange->n_written);
        if (n < 0 && errno == EAGAIN) {
            connection->wants_write = true;
            return 0;
        }
        if (n < 0)
            return load_fail(connection, "write: %s", strerror(errno));
        exchange->n_written += (size_t)n;
    }
}

static int receive(struct load_connection *connection)
{
    static uint8_t piece[256u << 10];
    struct exchange *exchange = connection->state;
    ssize_t got;
    while ((got = read(connection->fd, piece, sizeof piece)) > 0) {
        ssize_t n = nghttp2_session_mem_recv(exchange->session, piece, (size_t)got);
        if (n < 0)
            return load_fail(connection, "receive: %s", nghttp2_strerror((int)n));
        if ((size_t)got < sizeof piece)
            return 0;
    }
    if (got == 0)
        return load_fail(connection, "the server closed the connection");
    return errno == EAGAIN ? 0 : load_fail(connection, "read: %s", strerror(errno));
}

static void close_exchange(struct load_connection *connection)
{
    struct exchange *exchange = connection->state;
    if (exchange)
        nghttp2_session_del(exchange->session);
    free(exchange);
    connection->state = NULL;
}

static bool set_option(void *context, const char *name, const char *value)
{
    struct call *call = context;
    if (strcmp(name, "--body") == 0)
        call->body = load_file(value, &call->n);
    else if (strcmp(name, "--path") == 0)
        call->path = (char *)(uintptr_t)value;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    static const struct load_protocol protocol = {open_exchange, start, flush, receive,
                                                  close_exchange};
    struct call call = {.path = (char *)(uintptr_t) "/inference.GRPCInferenceService/ModelInfer"};
    struct load_options options = {.context = &call};
    load_parse(argc, argv, &options, set_option);
    if (!call.body) {
        fprintf(stderr, "grpc_load: --body FILE says what is sent\n");
        return 2;
    }
    int result = load_run(&options, &protocol);
    free(call.body);
    return result;
}

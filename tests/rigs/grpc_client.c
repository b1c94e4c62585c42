#include "tests/rigs/grpc_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"

#define LIMIT_NS (120 * SY_NS_PER_S) /* then it hangs, however slow the machine is */

/* ---- nghttp2 ------------------------------------------------------------------------------------------------------ */

static struct grpc_call *call_of(struct grpc_client *client, int32_t id)
{
    for (int i = 0; i < client->n_calls; i++)
        if (client->calls[i].id == id)
            return &client->calls[i];
    return NULL;
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t n, int flags,
                       void *ctx)
{
    struct grpc_client *client = ctx;
    ssize_t sent = send(client->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)session, (void)flags;
    return sent >= 0 ? sent : NGHTTP2_ERR_WOULDBLOCK;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *ctx)
{
    struct grpc_call *call = call_of(ctx, frame->hd.stream_id);
    char text[2048];

    (void)session, (void)flags, (void)name_bytes;
    snprintf(text, sizeof text, "%.*s", (int)value_bytes, value);
    if (!call)
        return 0;
    if (strcmp((const char *)name, ":status") == 0)
        call->http = atoi(text);
    if (strcmp((const char *)name, "grpc-status") == 0)
        call->status = atoi(text);
    if (strcmp((const char *)name, "grpc-message") == 0)
        strcpy(call->message, text);
    if (strcmp((const char *)name, "grpc-encoding") == 0)
        snprintf(call->encoding, sizeof call->encoding, "%.15s", text);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *ctx)
{
    struct grpc_call *call = call_of(ctx, id);

    (void)session, (void)flags;
    if (call)
        memcpy(sy_grpc_buffer_extend(&call->got, n), data, n);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct grpc_call *call = call_of(ctx, id);

    (void)session;
    if (call) {
        call->is_over = true;
        call->reset = code;
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpc_client *client = ctx;

    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        client->goaway = frame->goaway.error_code + 1;
    return 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct grpc_call *call = call_of(ctx, id);
    size_t n = call->to_send.n - call->sent;

    (void)source;
    n = n < room ? n : room;
    if (n > 0)
        memcpy(to, call->to_send.data + call->sent, n);
    call->sent += n;
    if (call->sent == call->to_send.n && call->half_closes)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (*flags && call->trailer.name) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, &call->trailer, 1);
    }
    return n > 0 || call->half_closes ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

/* ---- the connection --------------------------------------------------------------------------------------------------- */

void grpc_client_write(struct grpc_client *client)
{
    nghttp2_session_send(client->session);
}

void grpc_client_open(struct grpc_client *client, int port, int window)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)window};
    nghttp2_session_callbacks *callbacks;
    int one = 1;

    memset(client, 0, sizeof *client);
    client->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client->fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    assert_int_equal(nghttp2_session_client_new(&client->session, callbacks, client), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(client->session, 0, &entry, window >= 0);
    grpc_client_write(client);
}

void grpc_client_close(struct grpc_client *client)
{
    close(client->fd);
    nghttp2_session_del(client->session);
    for (int i = 0; i < client->n_calls; i++) {
        sy_grpc_buffer_free(&client->calls[i].to_send);
        sy_grpc_buffer_free(&client->calls[i].got);
    }
}

/* One read, or so many milliseconds without one. */
static void step(struct grpc_client *client, int ms)
{
    struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
    static _Thread_local uint8_t bytes[1 << 16];
    ssize_t n;

    grpc_client_write(client);
    if (poll(&poll_fd, 1, ms) <= 0)
        return;
    n = recv(client->fd, bytes, sizeof bytes, 0);
    client->is_closed = n <= 0;
    if (n > 0)
        nghttp2_session_mem_recv(client->session, bytes, (size_t)n);
    grpc_client_write(client);
}

void grpc_client_run(struct grpc_client *client, int ms)
{
    sy_ns end = sy_clock_now() + (sy_ns)ms * SY_NS_PER_MS;

    while (sy_clock_now() < end && !client->is_closed)
        step(client, 5);
}

void grpc_client_settle(struct grpc_client *client)
{
    sy_ns end = sy_clock_now() + LIMIT_NS;

    while (nghttp2_session_get_remote_settings(
               client->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) >= 1u << 30) {
        assert_true(sy_clock_now() < end);
        grpc_client_run(client, 1);
    }
}

void grpc_client_wait(struct grpc_client *client, struct grpc_call *call)
{
    sy_ns end = sy_clock_now() + LIMIT_NS;

    while (!call->is_over && !client->is_closed) {
        assert_true(sy_clock_now() < end);
        step(client, 100);
    }
}

void grpc_client_wait_messages(struct grpc_client *client, struct grpc_call *call, int n)
{
    sy_ns end = sy_clock_now() + LIMIT_NS;

    while (!grpc_client_answer(call, n - 1).data && !call->is_over && !client->is_closed) {
        assert_true(sy_clock_now() < end);
        step(client, 100);
    }
}

/* ---- calls ---------------------------------------------------------------------------------------------------------------- */

static void set_header(nghttp2_nv *pairs, size_t *n, const char *name, const char *value)
{
    size_t i = 0;

    while (i < *n && strcmp((const char *)pairs[i].name, name) != 0)
        i++;
    pairs[i] = (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                            strlen(value), NGHTTP2_NV_FLAG_NONE};
    *n += i == *n;
}

struct grpc_call *grpc_client_call(struct grpc_client *client, const char *path, ...)
{
    struct grpc_call *call = &client->calls[client->n_calls++];
    nghttp2_data_provider provider = {.read_callback = on_read};
    nghttp2_nv pairs[20];
    size_t n = 0;
    const char *name;
    va_list list;

    assert_true(client->n_calls <= GRPC_CLIENT_CALLS);
    set_header(pairs, &n, ":method", "POST");
    set_header(pairs, &n, ":scheme", "http");
    set_header(pairs, &n, ":path", path);
    set_header(pairs, &n, ":authority", "localhost");
    set_header(pairs, &n, "content-type", "application/grpc");
    set_header(pairs, &n, "te", "trailers");
    va_start(list, path);
    while ((name = va_arg(list, const char *)))
        set_header(pairs, &n, name, va_arg(list, const char *));
    va_end(list);
    call->status = -1;
    call->id = nghttp2_submit_request(client->session, NULL, pairs, n, &provider, NULL);
    assert_true(call->id > 0);
    grpc_client_write(client);
    return call;
}

void grpc_client_send(struct grpc_client *client, struct grpc_call *call, const void *bytes,
                      size_t n)
{
    if (n > 0)
        memcpy(sy_grpc_buffer_extend(&call->to_send, n), bytes, n);
    nghttp2_session_resume_data(client->session, call->id);
    grpc_client_write(client);
}

void grpc_client_message(struct grpc_client *client, struct grpc_call *call, const void *bytes,
                         size_t n)
{
    uint8_t prefix[5] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};

    memcpy(sy_grpc_buffer_extend(&call->to_send, 5), prefix, 5);
    grpc_client_send(client, call, bytes, n);
}

void grpc_client_half_close(struct grpc_client *client, struct grpc_call *call)
{
    call->half_closes = true;
    grpc_client_send(client, call, NULL, 0);
}

void grpc_client_trailer(struct grpc_client *client, struct grpc_call *call, const char *name,
                         const char *value)
{
    size_t n = 0;

    set_header(&call->trailer, &n, name, value);
    grpc_client_half_close(client, call);
}

void grpc_client_reset(struct grpc_client *client, struct grpc_call *call)
{
    nghttp2_submit_rst_stream(client->session, 0, call->id, NGHTTP2_CANCEL);
    grpc_client_write(client);
}

struct sy_grpc_bytes grpc_client_answer(const struct grpc_call *call, int i)
{
    size_t at = 0;

    while (at + 5 <= call->got.n) {
        const uint8_t *p = call->got.data + at;
        size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];

        if (at + 5 + n > call->got.n)
            break;
        if (i-- == 0)
            return (struct sy_grpc_bytes){p + 5, n};
        at += 5 + n;
    }
    return (struct sy_grpc_bytes){NULL, 0};
}

void grpc_client_put_request(struct sy_grpc_buffer *to, const char *model, int64_t rows,
                             int64_t columns, const float *x)
{
    size_t input;

    sy_grpc_put_text(to, 1, model);
    input = sy_grpc_put_begin(to, 5);
    sy_grpc_put_text(to, 1, "x");
    sy_grpc_put_text(to, 2, "FP32");
    sy_grpc_put_number(to, 3, (uint64_t)rows);
    sy_grpc_put_number(to, 3, (uint64_t)columns);
    sy_grpc_put_end(to, input);
    sy_grpc_put_bytes(to, 7, x, (size_t)(rows * columns) * sizeof *x);
}

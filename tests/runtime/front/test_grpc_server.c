/* The gRPC server against a fake core: what a stock client never does, and what must then still hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "grpc_service.pb-c.h"
#include "runtime/base/clock.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_status.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"
#include "tests/rigs/grpc_client.h"
#include "tests/runtime/front/skip_clock.h"

#define LIMIT_NS (120 * SY_NS_PER_S)

static float numbers[1 << 18];

static void open_client(struct grpc_client *client)
{
    grpc_client_open(client, fake_core_grpc_port, -1);
}

static void check_doubled(struct sy_grpc_bytes answer, int64_t rows)
{
    Inference__ModelInferResponse *got =
        inference__model_infer_response__unpack(NULL, answer.n, answer.data);
    const float *y;

    assert_non_null(got);
    assert_int_equal(got->n_outputs, 1);
    assert_string_equal(got->outputs[0]->name, "y");
    assert_int_equal(got->outputs[0]->shape[0], rows);
    assert_int_equal(got->n_raw_output_contents, 1);
    assert_int_equal(got->raw_output_contents[0].len, rows * 16);
    y = (const float *)got->raw_output_contents[0].data;
    for (int64_t i = 0; i < rows * 4; i++)
        assert_true(y[i] == 2 * numbers[i]);
    inference__model_infer_response__free_unpacked(got, NULL);
}

/* Another client of the same server is served. */
static void check_works(void)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    open_client(&client);
    grpc_client_put_request(&request, "double", 3, 4, numbers);
    call = grpc_client_call(&client, INFER, NULL);
    grpc_client_message(&client, call, request.data, request.n);
    grpc_client_half_close(&client, call);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_OK);
    check_doubled(grpc_client_answer(call, 0), 3);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

static void wait_held(int n)
{
    sy_ns end = sy_clock_now() + LIMIT_NS;

    while (fake_core_n_held != n) {
        assert_true(sy_clock_now() < end);
        usleep(1000);
    }
}

/* The client goes on until so many are held, then a little longer: no more come. */
static void run_until_held(struct grpc_client *client, int n)
{
    while (fake_core_n_held != n)
        grpc_client_run(client, 1);
    grpc_client_run(client, 50);
    assert_int_equal(fake_core_n_held, n);
}

/* What clients left has ended. */
static void wait_no_connection(void)
{
    while (fake_core_grpc_connections() > 0)
        usleep(1000);
}

/* One call with this message (NULL: none), half-closed; its status. */
static int status_of(const char *path, const void *message, size_t n, const char *header,
                     const char *value)
{
    struct grpc_client client;
    struct grpc_call *call;
    int status;

    open_client(&client);
    call = grpc_client_call(&client, path, header, value, NULL);
    if (message)
        grpc_client_message(&client, call, message, n);
    grpc_client_half_close(&client, call);
    grpc_client_wait(&client, call);
    status = call->status >= 0 ? call->status : -call->http;
    grpc_client_close(&client);
    return status;
}

/* ---- messages --------------------------------------------------------------------------------------------------------- */

/* The prefix, the head, the tensor: each cut anywhere. */
static void test_message_in_pieces(void **state)
{
    static const int64_t rows[] = {1, 0, 2000, 5000};

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t piece = 1; piece < 100000; piece = piece * 7 + 3) {
            uint8_t prefix[5] = {0};
            struct sy_grpc_buffer request = {0};
            struct grpc_client client;
            struct grpc_call *call;

            if (rows[r] > 1 && piece < 1000)
                continue;
            open_client(&client);
            sy_grpc_buffer_extend(&request, 5);
            grpc_client_put_request(&request, "double", rows[r], 4, numbers);
            for (int i = 0; i < 4; i++)
                prefix[1 + i] = (uint8_t)((request.n - 5) >> (24 - 8 * i));
            memcpy(request.data, prefix, 5);
            call = grpc_client_call(&client, INFER, NULL);
            for (size_t at = 0; at < request.n; at += piece) {
                size_t n = request.n - at < piece ? request.n - at : piece;

                grpc_client_send(&client, call, request.data + at, n);
                grpc_client_run(&client, at < 40 ? 1 : 0);
            }
            grpc_client_half_close(&client, call);
            grpc_client_wait(&client, call);
            assert_int_equal(call->status, SY_GRPC_OK);
            check_doubled(grpc_client_answer(call, 0), rows[r]);
            sy_grpc_buffer_free(&request);
            grpc_client_close(&client);
        }
}

static void test_large_headers_are_told_the_limit(void **state)
{
    struct grpc_client client;
    struct grpc_call *call;
    char large[17000];

    (void)state;
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    open_client(&client);
    call = grpc_client_call(&client, INFER, "x-large", large, NULL);
    grpc_client_half_close(&client, call);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(call->message, "16384 bytes"));
    assert_non_null(strstr(call->message, "--grpc-header-bytes"));
    grpc_client_close(&client);
}

static void test_wrong_calls(void **state)
{
    char large[20000];

    (void)state;
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    assert_int_equal(status_of(INFER, NULL, 0, NULL, NULL), SY_GRPC_INTERNAL);
    assert_int_equal(status_of("/a.B/C", "", 0, NULL, NULL), SY_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of(INFER, "", 0, "content-type", "text/plain"), -415);
    assert_int_equal(status_of(INFER, "", 0, "content-type", "application/grpc+json"), -415);
    assert_int_equal(status_of(INFER, "", 0, ":method", "PUT"), -405);
    assert_int_equal(status_of(INFER, "", 0, "grpc-timeout", "5"), SY_GRPC_INVALID_ARGUMENT);
    assert_int_equal(status_of(INFER, "", 0, "grpc-encoding", "br"), SY_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of(INFER, "", 0, "x-large", large), SY_GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(status_of(INFER, "", 0, NULL, NULL), SY_GRPC_NOT_FOUND);
    assert_int_equal(status_of(INFER, "\x0f", 1, NULL, NULL), SY_GRPC_INVALID_ARGUMENT);
    check_works();
}

static struct grpc_call *send_bytes(struct grpc_client *client, const char *path, const void *bytes,
                                    size_t n, const char *encoding)
{
    struct grpc_call *call =
        grpc_client_call(client, path, encoding ? "grpc-encoding" : NULL, encoding, NULL);

    grpc_client_send(client, call, bytes, n);
    grpc_client_half_close(client, call);
    grpc_client_wait(client, call);
    return call;
}

static void test_wrong_frames(void **state)
{
    struct grpc_client client;

    (void)state;
    open_client(&client);
#define STATUS(path, bytes, encoding) \
    send_bytes(&client, path, bytes, sizeof(bytes) - 1, encoding)->status
    assert_int_equal(STATUS(INFER, "\0\0\0\0\5ab", NULL), SY_GRPC_INTERNAL); /* it ends within */
    assert_int_equal(STATUS(STREAM_INFER, "\0\0", NULL), SY_GRPC_INTERNAL);
    assert_int_equal(STATUS(INFER, "\2\0\0\0\0", NULL), SY_GRPC_INTERNAL); /* unknown flags */
    assert_int_equal(STATUS(INFER, "\1\0\0\0\1x", NULL), SY_GRPC_INTERNAL);
    assert_int_equal(STATUS(INFER, "\1\0\0\0\1x", "gzip"), SY_GRPC_INVALID_ARGUMENT);
    assert_int_equal(STATUS(INFER, "\0\xff\xff\xff\xff", NULL), SY_GRPC_RESOURCE_EXHAUSTED);
    grpc_client_close(&client);
    check_works();
}

static void test_two_messages_in_a_unary_call(void **state)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    open_client(&client);
    call = grpc_client_call(&client, INFER, NULL);
    grpc_client_put_request(&request, "held", 1, 4, numbers);
    grpc_client_message(&client, call, request.data, request.n);
    grpc_client_message(&client, call, request.data, request.n);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_UNIMPLEMENTED);
    wait_held(0);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

static void test_fields_behind_tensors(void **state)
{
    struct sy_grpc_buffer request = {0};

    (void)state;
    grpc_client_put_request(&request, "double", 5000, 4, numbers);
    sy_grpc_put_text(&request, 3, "id");
    assert_int_equal(status_of(INFER, request.data, request.n, NULL, NULL),
                     SY_GRPC_INVALID_ARGUMENT);
    sy_grpc_buffer_free(&request);
    grpc_client_put_request(&request, "double", 50, 4, numbers);
    sy_grpc_put_text(&request, 3, "id");
    assert_int_equal(status_of(INFER, request.data, request.n, NULL, NULL), SY_GRPC_OK);
    sy_grpc_buffer_free(&request);
}

/* They change nothing of what the headers said, and are no error. */
static void test_trailers(void **state)
{
    static const char *const pairs[][2] = {
        {"grpc-encoding", "none-such"}, {"grpc-timeout", "1n"}, {"triton_grpc_error", "true"}};
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    open_client(&client);
    grpc_client_put_request(&request, "double", 3, 4, numbers);
    for (size_t i = 0; i < 2 * sizeof pairs / sizeof *pairs; i++) {
        call = grpc_client_call(&client, i % 2 ? STREAM_INFER : INFER, NULL);
        memcpy(sy_grpc_buffer_extend(&call->to_send, 4), "\0\0\0", 4);
        *(uint8_t *)sy_grpc_buffer_extend(&call->to_send, 1) = (uint8_t)request.n;
        memcpy(sy_grpc_buffer_extend(&call->to_send, request.n), request.data, request.n);
        grpc_client_trailer(&client, call, pairs[i / 2][0], pairs[i / 2][1]);
        grpc_client_wait(&client, call);
        assert_int_equal(call->status, SY_GRPC_OK);
        assert_non_null(grpc_client_answer(call, 0).data);
    }
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

static void test_compressed(void **state)
{
    struct sy_grpc_buffer request = {0}, packed = {0};
    struct grpc_client client;

    (void)state;
    open_client(&client);
    for (int64_t rows = 1; rows < 60000; rows = rows * 9 + 1) {
        struct sy_grpc_bytes piece;
        struct grpc_call *call;

        grpc_client_put_request(&request, "double", rows, 4, numbers);
        piece = (struct sy_grpc_bytes){request.data, request.n};
        sy_grpc_buffer_extend(&packed, 5);
        assert_int_equal(sy_grpc_deflate(&piece, 1, SY_GRPC_GZIP, &packed), 0);
        packed.data[0] = 1;
        for (int i = 0; i < 4; i++)
            packed.data[1 + i] = (uint8_t)((packed.n - 5) >> (24 - 8 * i));
        call = send_bytes(&client, INFER, packed.data, packed.n, "gzip");
        assert_int_equal(call->status, SY_GRPC_OK);
        check_doubled(grpc_client_answer(call, 0), rows); /* gzip is not among what it accepts */
        sy_grpc_buffer_free(&request);
        sy_grpc_buffer_free(&packed);
    }
    grpc_client_close(&client);
}

/* ---- ends ----------------------------------------------------------------------------------------------------------------- */

static void start_held(struct grpc_client *client, struct grpc_call *call, const char *model,
                       int64_t columns)
{
    struct sy_grpc_buffer request = {0};

    grpc_client_put_request(&request, model, 1, columns, numbers);
    grpc_client_message(client, call, request.data, request.n);
    sy_grpc_buffer_free(&request);
}

static void test_deadline_cancels(void **state)
{
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    open_client(&client);
    for (int i = 0; i < 2; i++) {
        bool was_held = false;

        for (int ms = 200; !was_held;
             ms *= 2) { /* on a busy machine it may be over before it runs */
            char timeout[20];

            snprintf(timeout, sizeof timeout, "%dm", ms);
            call =
                grpc_client_call(&client, i ? STREAM_INFER : INFER, "grpc-timeout", timeout, NULL);
            start_held(&client, call, "held", 4);
            while (!call->is_over) {
                grpc_client_run(&client, 1);
                was_held |= fake_core_n_held == 1;
            }
            assert_int_equal(call->status, SY_GRPC_DEADLINE_EXCEEDED);
            wait_held(0);
        }
    }
    assert_int_equal(status_of(INFER, "", 0, "grpc-timeout", "99999999H"), SY_GRPC_NOT_FOUND);
    grpc_client_close(&client);
}

static void test_reset_and_close_cancel(void **state)
{
    struct grpc_client client;
    struct grpc_call *calls[8];

    (void)state;
    open_client(&client);
    for (int i = 0; i < 8; i++) {
        calls[i] = grpc_client_call(&client, i % 2 ? STREAM_INFER : INFER, NULL);
        start_held(&client, calls[i], "held", 4);
    }
    wait_held(8);
    for (int i = 0; i < 4; i++)
        grpc_client_reset(&client, calls[i]);
    wait_held(4);
    grpc_client_close(&client);
    wait_held(0);
    check_works();
}

static void test_most_streams_and_outstanding(void **state)
{
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    open_client(&client);
    grpc_client_settle(&client);
    call = grpc_client_call(&client, STREAM_INFER, NULL);
    for (int i = 0; i < 10; i++)
        start_held(&client, call, "held", 4);
    run_until_held(&client, 4); /* the others are not read */
    for (int i = 0; i < 20; i++) {
        struct grpc_call *other = grpc_client_call(&client, INFER, NULL);

        start_held(&client, other, "held", 4);
    }
    run_until_held(&client, 4 + 15); /* 16 streams; nghttp2 keeps the rest to itself */
    grpc_client_reset(&client, call);
    run_until_held(&client, 16);
    check_works();
    grpc_client_close(&client);
    wait_held(0);
}

/* Answers wait for those before them, and none gets lost. */
static void test_stream_order(void **state)
{
    static const char *const models[] = {"double", "none", "double", "EPEER", "cut", "double"};
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    open_client(&client);
    call = grpc_client_call(&client, STREAM_INFER, NULL);
    for (int i = 0; i < 6; i++) {
        char id[2] = {(char)('a' + i), 0};

        request.n = 0;
        sy_grpc_put_text(&request, 3, id);
        grpc_client_put_request(&request, models[i], 1, 4, numbers);
        grpc_client_message(&client, call, request.data, request.n);
    }
    grpc_client_half_close(&client, call);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_OK);
    for (int i = 0; i < 6; i++) {
        struct sy_grpc_bytes answer = grpc_client_answer(call, i);
        Inference__ModelStreamInferResponse *got =
            inference__model_stream_infer_response__unpack(NULL, answer.n, answer.data);

        assert_non_null(got);
        assert_int_equal(*got->infer_response->id, 'a' + i);
        assert_int_equal(*got->error_message != '\0', i == 1 || i == 3);
        inference__model_stream_infer_response__free_unpacked(got, NULL);
    }
    assert_null(grpc_client_answer(call, 6).data);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

/* ---- clients that do not go on ------------------------------------------------------------------------------------------- */

/* Time passes until the call is over. */
static void wait_until(struct grpc_client *client, struct grpc_call *call, sy_ns skipped)
{
    while (!call->is_over && !client->is_closed) {
        skip_clock(skipped);
        poll(&(struct pollfd){.fd = client->fd, .events = POLLIN}, 1, 200);
        grpc_client_run(client, 1);
    }
}

/* Its window is closed: the answer waits, others work, then it is reset. */
static void test_client_that_does_not_read(void **state)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    grpc_client_open(&client, fake_core_grpc_port, 0);
    grpc_client_put_request(&request, "double", 20000, 4, numbers);
    call = grpc_client_call(&client, INFER, NULL);
    grpc_client_message(&client, call, request.data, request.n);
    grpc_client_half_close(&client, call);
    grpc_client_run(&client, 100);
    check_works();
    wait_until(&client, call, FAKE_CORE_STALL_NS);
    assert_int_equal(call->status, -1);
    assert_int_equal(call->reset, NGHTTP2_CANCEL);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

/* A stream's client that does not read: its answers would fill the slab, so its next requests wait. None is lost once it reads. */
static void test_unread_answers_hold_the_stream(void **state)
{
    enum { N = 120, ROWS = 40000 }; /* 640 kB each: more than the slab together */
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    grpc_client_open(&client, fake_core_grpc_port, 0);
    grpc_client_put_request(&request, "double", ROWS, 4, numbers);
    call = grpc_client_call(&client, STREAM_INFER, NULL);
    for (int i = 0; i < N; i++)
        grpc_client_message(&client, call, request.data, request.n);
    grpc_client_half_close(&client, call);
    grpc_client_run(&client, 300);
    assert_true(call->sent < call->to_send.n / 4);
    assert_int_equal(status_of(INFER, request.data, request.n, NULL, NULL), SY_GRPC_OK);
    nghttp2_session_set_local_window_size(client.session, 0, call->id, 1 << 30);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_OK);
    assert_non_null(grpc_client_answer(call, N - 1).data);
    assert_null(grpc_client_answer(call, N).data);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

/* And one whose socket is full: the connection goes. */
static void test_client_that_stops(void **state)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    int small = 64 << 10;

    (void)state;
    grpc_client_open(&client, fake_core_grpc_port, 1 << 30);
    setsockopt(client.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    nghttp2_session_set_local_window_size(client.session, 0, 0, 1 << 30);
    grpc_client_settle(&client);
    while (nghttp2_session_get_remote_window_size(client.session) < 12 << 20)
        grpc_client_run(&client, 1);
    grpc_client_put_request(&request, "double", 60000, 4, numbers);
    for (int i = 0; i < 12; i++) { /* 11 MB of answers */
        struct grpc_call *call = grpc_client_call(&client, INFER, NULL);

        grpc_client_message(&client, call, request.data, request.n);
        grpc_client_half_close(&client, call);
        while (call->sent < call->to_send.n) {
            grpc_client_write(&client);
            usleep(1000);
        }
    }
    check_works();
    while (fake_core_grpc_connections() > 0) { /* what it read now would be progress */
        skip_clock(FAKE_CORE_STALL_NS);
        usleep(200000);
    }
    while (!client.is_closed)
        grpc_client_run(&client, 100);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

static void test_floods(void **state)
{
    struct grpc_client client;

    (void)state;
    open_client(&client);
    for (int i = 0; i < 1000; i++)
        nghttp2_submit_ping(client.session, 0, NULL);
    grpc_client_run(&client, 10000);
    assert_true(client.is_closed);
    assert_int_equal(client.goaway, NGHTTP2_ENHANCE_YOUR_CALM + 1);
    grpc_client_close(&client);
    check_works();
}

static void test_silent_connections(void **state)
{
    struct grpc_client clients[FAKE_CORE_MOST_CLIENTS];
    char byte;

    (void)state;
    wait_no_connection();
    for (int i = 0; i < FAKE_CORE_MOST_CLIENTS; i++)
        open_client(&clients[i]);
    for (int i = 0; i < FAKE_CORE_MOST_CLIENTS; i++)
        grpc_client_run(&clients[i], 1);
    struct grpc_client one_more;
    open_client(&one_more);
    assert_true(recv(one_more.fd, &byte, 1, 0) <= 0);
    grpc_client_close(&one_more);
    for (int i = 0; i < FAKE_CORE_MOST_CLIENTS; i++)
        grpc_client_close(&clients[i]);
    wait_no_connection();
    check_works();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_in_pieces),
        cmocka_unit_test(test_large_headers_are_told_the_limit),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_wrong_frames),
        cmocka_unit_test(test_two_messages_in_a_unary_call),
        cmocka_unit_test(test_fields_behind_tensors),
        cmocka_unit_test(test_trailers),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_deadline_cancels),
        cmocka_unit_test(test_reset_and_close_cancel),
        cmocka_unit_test(test_most_streams_and_outstanding),
        cmocka_unit_test(test_stream_order),
        cmocka_unit_test(test_client_that_does_not_read),
        cmocka_unit_test(test_unread_answers_hold_the_stream),
        cmocka_unit_test(test_client_that_stops),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_silent_connections),
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (float)i / 7;
    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}

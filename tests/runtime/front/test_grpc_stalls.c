/* The gRPC server and clients that send half of something: the connection or the call ends after its time, and not because the loop stood still. Clients that send no more (GR7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/front/grpc/grpc_status.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"
#include "tests/rigs/grpc_client.h"
#include "tests/runtime/front/skip_clock.h"

static const float numbers[20000];

static void open_client(struct grpc_client *client)
{
    grpc_client_open(client, fake_core_grpc_port, -1);
}

/* Another client of the same server is served. */
static void check_works(void)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;

    open_client(&client);
    struct grpc_call *call = grpc_client_call(&client, INFER, NULL);
    grpc_client_put_request(&request, "double", 3, 4, numbers);
    grpc_client_message(&client, call, request.data, request.n);
    grpc_client_half_close(&client, call);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_OK);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

static void check_health(struct grpc_client *client)
{
    struct grpc_call *call = grpc_client_call(client, "/grpc.health.v1.Health/Check", NULL);
    grpc_client_message(client, call, "", 0);
    grpc_client_half_close(client, call);
    grpc_client_wait(client, call);
    assert_int_equal(call->status, SY_GRPC_OK);
}

/* Time passes until the call is over. */
static void wait_until(struct grpc_client *client, struct grpc_call *call, sy_ns skipped)
{
    while (!call->is_over && !client->is_closed) {
        skip_clock(skipped);
        poll(&(struct pollfd){.fd = client->fd, .events = POLLIN}, 1, 200);
        grpc_client_run(client, 1);
    }
}

static void look(void *ctx)
{
    (void)ctx;
    fake_core_look();
}

/* Nothing comes for longer than a frame may take, but for far less time than a connection may idle. */
static void stay_silent(void)
{
    skip_clock(2 * FAKE_CORE_STALL_NS);
    for (int i = 0; i < 3; i++)
        fake_core_call(look, NULL);
}

static void send_bytes(const struct grpc_client *client, const uint8_t *bytes, size_t n)
{
    assert_int_equal(send(client->fd, bytes, n, MSG_NOSIGNAL), n);
    fake_core_call(NULL, NULL);
}

/* A frame is announced, by all of its head or some of it, and does not come. Headers with a priority or a padding begin behind these. */
static void test_half_a_frame(void **state)
{
    static const struct {
        size_t n;
        uint8_t bytes[9];
    } cases[] = {
        {9, {0, 0, 99, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 0, 0, 0, 1}},
        {9, {0, 0, 99, NGHTTP2_HEADERS, NGHTTP2_FLAG_PRIORITY, 0, 0, 0, 1}},
        {9, {0, 0, 99, NGHTTP2_HEADERS, NGHTTP2_FLAG_PADDED, 0, 0, 0, 1}},
        {9, {0, 0, 8, NGHTTP2_PING, 0, 0, 0, 0, 0}},
        {9, {0, 1, 0, 0xbb, 0, 0, 0, 0, 0}},
        {4, {0, 0, 99, NGHTTP2_HEADERS}},
        {1, {0}},
    };
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct grpc_client client;
        open_client(&client);
        grpc_client_settle(&client);
        send_bytes(&client, cases[i].bytes, cases[i].n);
        for (int k = 0; k < 5 && fake_core_grpc_connections() > 0; k++) { /* slow loopback */
            stay_silent();
            usleep(20000);
        }
        assert_int_equal(fake_core_grpc_connections(), 0);
        check_works();
        grpc_client_close(&client);
        while (fake_core_grpc_connections() > 0)
            usleep(1000);
    }
}

/* Whole frames, at once and byte by byte, of a kind that nobody knows, which nghttp2 skips: the connection may be silent behind them. */
static void test_whole_frames(void **state)
{
    static const uint8_t bytes[] = {0, 0, 2, 0xbb, 0, 0,      0, 0, 0,    7, 7, /**/ 0, 0, 0, 0xbb,
                                    0, 0, 0, 0,    0, /**/ 0, 0, 1, 0xbb, 0, 0, 0,      0, 0, 7};
    struct grpc_client client;
    (void)state;
    open_client(&client);
    grpc_client_settle(&client);
    send_bytes(&client, bytes, sizeof bytes);
    stay_silent();
    for (size_t i = 0; i < sizeof bytes; i++)
        send_bytes(&client, bytes + i, 1);
    stay_silent();
    check_health(&client);
    grpc_client_close(&client);
}

/* The rest of a message comes while the loop stands still, and its look for stalled clients before it reads. */
struct halves {
    struct grpc_client *client;
    struct grpc_call *call;
    struct sy_grpc_bytes rest;
};

static void stand_still(void *ctx)
{
    struct halves *halves = ctx;
    skip_clock(2 * FAKE_CORE_STALL_NS);
    grpc_client_send(halves->client, halves->call, halves->rest.data, halves->rest.n);
    grpc_client_half_close(halves->client, halves->call);
    fake_core_look();
}

static void test_loop_stands_still(void **state)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    (void)state;
    open_client(&client);
    grpc_client_settle(&client);
    grpc_client_put_request(&request, "double", 3, 4, numbers);
    const uint8_t prefix[5] = {0, 0, 0, 0, (uint8_t)request.n};
    struct grpc_call *call = grpc_client_call(&client, INFER, NULL);
    grpc_client_send(&client, call, prefix, sizeof prefix);
    struct halves halves = {&client, call, {request.data, request.n}};
    fake_core_call(stand_still, &halves);
    grpc_client_wait(&client, call);
    assert_int_equal(call->status, SY_GRPC_OK);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
}

enum { PINGS = 150 }; /* of 200 a second */

static void ping(struct grpc_client *client)
{
    for (int i = 0; i < PINGS; i++)
        assert_int_equal(nghttp2_submit_ping(client->session, NGHTTP2_FLAG_NONE, NULL), 0);
    grpc_client_write(client);
}

static void stand_still_and_ping(void *ctx)
{
    skip_clock(2 * FAKE_CORE_STALL_NS);
    fake_core_look();
    ping(ctx);
}

/* Pings of before and behind a time in which the loop stood still are not those of one second. */
static void test_pings_over_a_stand_still(void **state)
{
    struct grpc_client client;
    (void)state;
    open_client(&client);
    grpc_client_settle(&client);
    for (int i = 0; i < 2; i++) /* the look behind a late one would count */
        fake_core_call(look, NULL);
    ping(&client);
    check_health(&client); /* by then they are counted */
    fake_core_call(stand_still_and_ping, &client);
    check_health(&client);
    assert_int_equal(client.goaway, 0);
    grpc_client_close(&client);
}

static void test_half_a_message(void **state)
{
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    struct grpc_call *call;

    (void)state;
    memcpy(sy_grpc_buffer_extend(&request, 5), "\0\0\x01\x38\xa0", 5); /* 80032 bytes */
    grpc_client_put_request(&request, "double", 5000, 4, numbers);
    for (int i = 0; i < 4; i++) {
        open_client(&client);
        call = grpc_client_call(&client, i % 2 ? STREAM_INFER : INFER, NULL);
        grpc_client_send(&client, call, request.data,
                         i < 2 ? 70000 : 20); /* within the tensor, within the head */
        wait_until(&client, call, FAKE_CORE_STALL_NS);
        assert_int_equal(call->status, SY_GRPC_DEADLINE_EXCEEDED);
        grpc_client_close(&client);
    }
    sy_grpc_buffer_free(&request);
    check_works();
}

/* ---- order ---------------------------------------------------------------------------------------------------------------- */

enum {
    CLIENTS = 2,
    TRIES = 5
}; /* two timers that are due at the same time are called in their order; of more, the heap may choose */

struct crowd {
    struct grpc_client clients[CLIENTS];
    struct grpc_call *calls[CLIENTS];
    int n_sent, epoll;
};

static void send_call(struct crowd *crowd, const char *path, const void *message, size_t n)
{
    struct grpc_client *client = &crowd->clients[crowd->n_sent];
    struct grpc_call *call = grpc_client_call(client, path, NULL);

    grpc_client_message(client, call, message, n);
    grpc_client_half_close(client, call);
    grpc_client_write(client);
    crowd->calls[crowd->n_sent++] = call;
}

static void send_checks(void *ctx)
{
    for (int i = 0; i < CLIENTS; i++)
        send_call(ctx, "/grpc.health.v1.Health/Check", "", 0);
}

static void send_infer(void *ctx)
{
    struct sy_grpc_buffer request = {0};

    grpc_client_put_request(&request, "double", 3, 4, numbers);
    send_call(ctx, INFER, request.data, request.n);
    sy_grpc_buffer_free(&request);
}

/* All calls lie there before the loop reads the first. */
static void send_at_once(struct crowd *crowd)
{
    fake_core_call(send_checks, crowd);
}

static void wait_in_loop(void *ctx)
{
    (void)ctx;
    usleep(20000);
}

static void open_crowd(struct crowd *crowd)
{
    crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < CLIENTS; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = (uint32_t)i};

        open_client(&crowd->clients[i]);
        check_health(&crowd->clients[i]); /* behind it the server has nothing more to say */
        assert_int_equal(epoll_ctl(crowd->epoll, EPOLL_CTL_ADD, crowd->clients[i].fd, &event), 0);
    }
}

/* The results, a millisecond later, are due at once when the loop goes on. */
static void send_before_results(struct crowd *crowd)
{
    for (int i = 0; i < CLIENTS; i++)
        fake_core_call(send_infer, crowd);
    fake_core_call(wait_in_loop, NULL);
}

/* Whether the answers came in the calls' order. */
static bool is_in_order(struct crowd *crowd, void (*send_all)(struct crowd *crowd))
{
    struct epoll_event events[CLIENTS];
    bool in_order;
    int n;

    crowd->n_sent = 0;
    send_all(crowd);
    fake_core_call(NULL, NULL);
    n = epoll_wait(crowd->epoll, events, CLIENTS, 10000);
    in_order = n == CLIENTS;
    for (int i = 0; i < n; i++)
        in_order = in_order && events[i].data.u32 == (uint32_t)i;
    for (int i = 0; i < CLIENTS; i++) {
        grpc_client_wait(&crowd->clients[i], crowd->calls[i]);
        assert_int_equal(crowd->calls[i]->status, SY_GRPC_OK);
    }
    while (epoll_wait(crowd->epoll, events, CLIENTS, 0) > 0)
        ;
    return in_order;
}

/* Calls that came first are answered first. The kernel may deliver two of them in another order when the machine is busy: once is enough. */
static void test_order_of_answers(void **state)
{
    (void)state;
    void (*const ways[])(struct crowd *) = {send_at_once, send_before_results};

    for (size_t way = 0; way < SY_ARRAY_LEN(ways); way++) {
        struct crowd crowd = {0};
        bool in_order = false;

        open_crowd(&crowd);
        for (int i = 0; i < TRIES && !in_order; i++)
            in_order = is_in_order(&crowd, ways[way]);
        assert_true(in_order);
        for (int i = 0; i < CLIENTS; i++)
            grpc_client_close(&crowd.clients[i]);
        close(crowd.epoll);
    }
}

/* ---- clients that send no more ----------------------------------------------------------------------------------------- */

static void wait_held(int n)
{
    for (int i = 0; i < 120000 && fake_core_n_held != n; i++)
        usleep(1000);
    assert_int_equal(fake_core_n_held, n);
}

static void wait_no_connection(void)
{
    while (fake_core_grpc_connections() > 0)
        usleep(1000);
}

/* Takes what comes. Nothing of it wants an answer, which could not be sent: its side is shut. */
static void take_answers(struct grpc_client *client)
{
    static uint8_t bytes[1 << 16];
    const uint8_t *answer;
    ssize_t n = recv(client->fd, bytes, sizeof bytes, 0);

    client->is_closed = n <= 0;
    if (n > 0)
        nghttp2_session_mem_recv(client->session, bytes, (size_t)n);
    assert_int_equal(nghttp2_session_mem_send(client->session, &answer), 0);
}

static struct grpc_call *send_held(struct grpc_client *client, const char *path,
                                   const struct sy_grpc_buffer *request, bool both_ways)
{
    check_health(client); /* behind it the server's settings are acknowledged */
    struct grpc_call *call = grpc_client_call(client, path, NULL);
    grpc_client_message(client, call, request->data, request->n);
    if (!both_ways)
        grpc_client_half_close(client, call);
    while (fake_core_n_held != 1 && !call->is_over)
        grpc_client_run(client, 1);
    assert_false(call->is_over);
    return call;
}

static struct grpc_call *call_held(struct grpc_client *client, const char *path, bool both_ways)
{
    struct sy_grpc_buffer request = {0};

    open_client(client);
    grpc_client_put_request(&request, "held", 3, 4, numbers);
    struct grpc_call *call = send_held(client, path, &request, both_ways);
    sy_grpc_buffer_free(&request);
    return call;
}

/* GR7: also of a call that its client could have gone on with. */
static void test_half_closed_connection_is_answered(void **state)
{
    static const char *const paths[] = {INFER, STREAM_INFER};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct grpc_client client;
        struct grpc_call *call = call_held(&client, paths[i], i == 1);

        shutdown(client.fd, SHUT_WR);
        fake_core_keeps_held(1);
        fake_core_call(fake_core_answer_held, NULL);
        while (!client.is_closed && !(call->is_over && call->status >= 0))
            take_answers(&client);
        assert_int_equal(call->status, SY_GRPC_OK);
        assert_non_null(grpc_client_answer(call, 0).data);
        grpc_client_close(&client);
        wait_no_connection();
    }
    check_works();
}

/* The server's end of a client's connection takes few bytes: it is in this process. */
static void take_room_of_server(const struct grpc_client *client)
{
    struct sockaddr_in own, peer;
    socklen_t n = sizeof own;
    int room = 1 << 16, found = 0;

    assert_int_equal(getsockname(client->fd, (struct sockaddr *)&own, &n), 0);
    for (int fd = 0; fd < 1024; fd++) {
        n = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &n) == 0 && peer.sin_family == AF_INET &&
            peer.sin_port == own.sin_port)
            found += setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0;
    }
    assert_int_equal(found, 1);
}

/* At the server the call is over before the socket has taken its answer. */
static void test_half_closed_connection_gets_the_rest(void **state)
{
    enum { COLUMNS = 4096, ROWS = 64, WINDOW = 1 << 30 };
    static const float x[ROWS * COLUMNS];
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;
    int room = 1 << 16;

    (void)state;
    grpc_client_open(&client, fake_core_grpc_port, WINDOW);
    setsockopt(client.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    nghttp2_session_set_local_window_size(client.session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    grpc_client_put_request(&request, "wide", ROWS, COLUMNS, x);
    struct grpc_call *call = send_held(&client, INFER, &request, false);
    take_room_of_server(&client);
    fake_core_call(fake_core_answer_held, NULL);
    for (int k = 0; k < 5; k++, usleep(5000))
        fake_core_call(NULL, NULL);
    shutdown(client.fd, SHUT_WR);
    for (int k = 0; k < 5; k++, usleep(5000))
        fake_core_call(NULL, NULL);
    for (; !client.is_closed && !call->is_over; usleep(200))
        take_answers(&client);
    assert_int_equal(call->status, SY_GRPC_OK);
    assert_true(grpc_client_answer(call, 0).n > sizeof x);
    sy_grpc_buffer_free(&request);
    grpc_client_close(&client);
    wait_no_connection();
    check_works();
}

/* Of a message that is not whole it is told so; its other calls are answered. */
static void test_half_closed_within_a_message(void **state)
{
    static const uint8_t begun[] = {0, 0, 0, 0, 99, 1, 2, 3};
    struct grpc_client client;

    (void)state;
    struct grpc_call *call = call_held(&client, INFER, false),
                     *cut = grpc_client_call(&client, INFER, NULL);
    grpc_client_send(&client, cut, begun, sizeof begun);
    shutdown(client.fd, SHUT_WR);
    while (!client.is_closed && !cut->is_over)
        take_answers(&client);
    assert_int_equal(cut->status, SY_GRPC_INTERNAL);
    assert_int_equal(fake_core_n_held, 1);
    fake_core_call(fake_core_answer_held, NULL);
    while (!client.is_closed && !call->is_over)
        take_answers(&client);
    assert_int_equal(call->status, SY_GRPC_OK);
    grpc_client_close(&client);
    wait_no_connection();
}

static void test_closed_connection_cancels(void **state)
{
    struct grpc_client client;

    (void)state;
    call_held(&client, INFER, false);
    grpc_client_close(&client);
    wait_held(0);
    wait_no_connection();
    call_held(&client, INFER, false);
    shutdown(client.fd, SHUT_WR); /* and only later is it gone */
    fake_core_call(NULL, NULL);
    assert_int_equal(fake_core_n_held, 1);
    grpc_client_close(&client);
    wait_held(0);
    wait_no_connection();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_a_frame),
        cmocka_unit_test(test_whole_frames),
        cmocka_unit_test(test_half_a_message),
        cmocka_unit_test(test_loop_stands_still),
        cmocka_unit_test(test_pings_over_a_stand_still),
        cmocka_unit_test(test_order_of_answers),
        cmocka_unit_test(test_half_closed_connection_is_answered),
        cmocka_unit_test(test_half_closed_connection_gets_the_rest),
        cmocka_unit_test(test_half_closed_within_a_message),
        cmocka_unit_test(test_closed_connection_cancels),
    };
    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}

/* The RPC server against a fake core that answers from the loop: good calls, bad requests, hostile bytes, lost clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "runtime/front/rpc/rpc_server.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"
#include "tests/runtime/front/skip_clock.h"

static sy_client *client_at(const char *address)
{
    sy_client *client;

    assert_int_equal(sy_client_connect(address, 10000, &client), SY_OK);
    return client;
}

static void good_infer(sy_client *client, int64_t batch)
{
    static _Thread_local float x[4 * 2000];
    sy_client_tensor input = {"x", "FP32", 2, {batch, 4}, x, (size_t)batch * 16};
    sy_client_result *result;

    for (int i = 0; i < 4 * batch; i++)
        x[i] = (float)(i + batch);
    assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_OK);
    assert_int_equal(result->n_outputs, 1);
    assert_string_equal(result->outputs[0].name, "y");
    assert_int_equal(result->outputs[0].shape[0], batch);
    for (int i = 0; i < 4 * batch; i++)
        assert_true(((const float *)result->outputs[0].data)[i] == 2 * x[i]);
    assert_int_equal(result->total_ns, batch > 0 ? 8000 : 0);
    sy_client_result_free(result);
}

static void test_good_calls(void **state)
{
    const char *const addresses[] = {fake_core_path, fake_core_tcp};

    (void)state;
    for (int a = 0; a < 2; a++) {
        sy_client *client = client_at(addresses[a]);
        struct stat info;

        good_infer(client, 0); /* legal, and no run */
        good_infer(client, 2000);
        char *text;

        for (int64_t batch = 1; batch <= 64; batch *= 4)
            good_infer(client, batch);
        assert_int_equal(sy_client_call(client, "ping", NULL, &text), SY_OK);
        assert_string_equal(text, "\"pong\"");
        free(text);
        assert_int_equal(sy_client_call(client, "models", "{}", &text), SY_OK);
        assert_non_null(strstr(text, "\"shape\":[-1,4]"));
        free(text);
        sy_client_close(client);
        assert_int_equal(stat(fake_core_path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
}

/* Rows that the run says, none too; a number of rows that there is no room for is an error, and the connection goes on. */
static void test_sizes_of_the_run(void **state)
{
    (void)state;
    sy_client *client = client_at(fake_core_path);
    sy_client_result *result;
    for (int rows = 0; rows < 6; rows++) {
        float x[12] = {(float)rows, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
        sy_client_tensor input = {"x", "FP32", 2, {3, 4}, x, sizeof x};
        int status = sy_client_infer(client, "cut", &input, 1, &result);
        if (rows > 3) {
            assert_int_equal(status, SY_ECORRUPT);
            assert_non_null(strstr(sy_client_error(client), "dimension"));
            continue;
        }
        assert_int_equal(status, SY_OK);
        assert_int_equal(result->outputs[0].shape[0], rows);
        assert_int_equal(result->outputs[0].bytes, (size_t)rows * 16);
        for (int i = 0; i < 4 * rows; i++)
            assert_true(((const float *)result->outputs[0].data)[i] == 2 * x[i]);
        sy_client_result_free(result);
    }
    sy_client_close(client);
}

static void refused(sy_client *client, const char *model, sy_client_tensor *inputs, int n,
                    int status, const char *words)
{
    sy_client_result *result;

    assert_int_equal(sy_client_infer(client, model, inputs, n, &result), status);
    assert_null(result);
    if (!strstr(sy_client_error(client), words))
        fail_msg("\"%s\" is not in \"%s\"", words, sy_client_error(client));
}

static void test_bad_requests(void **state)
{
    sy_client *client = client_at(fake_core_path);
    float x[80] = {0};
    const sy_client_tensor good = {"x", "FP32", 2, {2, 4}, x, 32};
    sy_client_tensor bad[2] = {good, good};
    char *text;

    (void)state;
    refused(client, "nobody", bad, 1, SY_ENOTFOUND, "nobody");
    refused(client, "double", bad, 0, SY_EARG, "\"x\" is missing");
    refused(client, "double", bad, 2, SY_EARG, "given twice");
    bad[0].name = "z";
    refused(client, "double", bad, 1, SY_EARG, "no input \"z\"; it has x");
    bad[0] = good, bad[0].dtype = "INT64";
    refused(client, "double", bad, 1, SY_EARG, "datatype INT64; the model takes FP32");
    bad[0] = good, bad[0].rank = 1;
    refused(client, "double", bad, 1, SY_EARG, "1 dimensions; the model takes [N, 4]");
    bad[0] = good, bad[0].shape[1] = 5;
    refused(client, "double", bad, 1, SY_EARG, "dimension 1 is 5");
    bad[0] = good, bad[0].bytes = 28;
    refused(client, "double", bad, 1, SY_EARG, "28 bytes of data; its shape and dtype need 32");
    bad[0] = good, bad[0].shape[0] = 0;
    refused(client, "double", bad, 1, SY_EARG, "32 bytes of data; its shape and dtype need 0");
    bad[0].shape[0] = 1ll << 61;
    refused(client, "double", bad, 1, SY_EARG, "more bytes than can be counted");
    assert_int_equal(sy_client_call(client, "infer",
                                    "{\"model\":\"double\",\"inputs\":[],\"dead_line\":1}", &text),
                     SY_EARG);
    assert_non_null(strstr(sy_client_error(client), "\"dead_line\""));
    assert_int_equal(sy_client_call(client, "sing", NULL, &text), SY_ENOTFOUND);
    assert_non_null(strstr(sy_client_error(client), "sing"));
    assert_non_null(strstr(sy_client_error(client), "there are infer, ping, "));
    assert_non_null(strstr(sy_client_error(client), ", session_end, ")); /* all of the table */
    assert_non_null(strstr(sy_client_error(client), ", slices, "));
    assert_string_equal(strrchr(sy_client_error(client), ','), ", drain");
    assert_int_equal(sy_client_call(client, "train", "{}", &text), SY_EARG);
    good_infer(client, 3); /* the same connection still works */
    sy_client_close(client);
}

/* The server's own EPEER and EDEADLINE (workers died, too late by prediction) are answers: the connection goes on. */
static void test_errors_of_the_server_leave_the_connection(void **state)
{
    sy_client *client = client_at(fake_core_path);
    float x[4] = {0};
    sy_client_tensor input = {"x", "FP32", 2, {1, 4}, x, 16};

    (void)state;
    refused(client, "EPEER", &input, 1, SY_EPEER, "ended: EPEER");
    good_infer(client, 1);
    refused(client, "EDEADLINE", &input, 1, SY_EDEADLINE, "ended: EDEADLINE");
    good_infer(client, 1);
    sy_client_close(client);
}

/* What is sent ends the connection, after an error answer; nobody else notices. */
static void hostile(const char *bytes, size_t n, const char *words)
{
    sy_client *other = client_at(fake_core_path);
    char answer[600];
    ssize_t got, all = 0;
    int fd = fake_core_connect();

    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
    while ((got = recv(fd, answer + all, sizeof(answer) - (size_t)all - 1, 0)) > 0)
        all += got;
    assert_true(got == 0 || errno == ECONNRESET);
    assert_true(all >= 0 && memmem(answer, (size_t)all, words, strlen(words)) != NULL);
    close(fd);
    good_infer(other, 1);
    sy_client_close(other);
}

static void test_hostile_bytes(void **state)
{
    (void)state;
    hostile("GET / HTTP/1.1\r\n\r\n", 18, "EPROTO");
    hostile("\xc1", 1, "0xc1");
    hostile("\x94\x00\x01\xa5infer\x91\xc6\xff\xff\xff\xff", 15, "ETOOBIG");
    hostile("\xdd\xff\xff\xff\xff", 5, "elements");
    hostile("\x94\x07\x01\xa4ping\x90", 9, "EPROTO");
    char nested[40];
    memset(nested, 0x91, sizeof nested);
    hostile(nested, sizeof nested, "deeper");
}

static void test_half_message(void **state)
{
    char byte;
    int fd = fake_core_connect();

    (void)state;
    assert_int_equal(send(fd, "\x94\x00\x01\xa4pi", 6, 0), 6);
    skip_clock_until_readable(fd, FAKE_CORE_STALL_NS);
    assert_int_equal(recv(fd, &byte, 1, 0), 0); /* closed after the stall time */
    close(fd);
}

/* The rest of a message comes while the loop stands still, and its look for stalled clients before it reads. */
static void stand_still(void *fd)
{
    skip_clock(2 * FAKE_CORE_STALL_NS);
    assert_int_equal(send(*(int *)fd, "ng\x90", 3, MSG_NOSIGNAL), 3);
    fake_core_look();
}

static void test_loop_stands_still(void **state)
{
    char answer[9];
    int fd = fake_core_connect();

    (void)state;
    assert_int_equal(send(fd, "\x94\x00\x07\xa4ping\x90", 9, 0),
                     9); /* then it is accepted, and read at once */
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_int_equal(send(fd, "\x94\x00\x07\xa4pi", 6, 0), 6);
    fake_core_call(stand_still, &fd);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_memory_equal(answer, "\x94\x01\x07\xc0\xa4pong", 9);
    close(fd);
}

/* A silence between messages is no stall of the next one, which comes in two halves with a look for stalled clients between them. */
static void test_half_message_after_a_silence(void **state)
{
    char answer[9];
    int fd = fake_core_connect();

    (void)state;
    fake_core_call(NULL, NULL);
    skip_clock(2 * FAKE_CORE_STALL_NS);
    assert_int_equal(send(fd, "\x94\x00\x07\xa4pi", 6, 0), 6);
    usleep(1300000); /* the server looks once a second */
    assert_int_equal(send(fd, "ng\x90", 3, MSG_NOSIGNAL), 3);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_memory_equal(answer, "\x94\x01\x07\xc0\xa4pong", 9);
    close(fd);
}

static void test_pipelined(void **state)
{
    static char many[9 * 500], answers[9 * 500];
    size_t all = 0;
    int fd = fake_core_connect();

    (void)state;
    for (int i = 0; i < 500; i++)
        memcpy(many + 9 * i, "\x94\x00\x07\xa4ping\x90", 9);
    assert_int_equal(send(fd, many, sizeof(many), 0), sizeof(many));
    while (all < sizeof(answers)) {
        ssize_t n = recv(fd, answers + all, sizeof(answers) - all, 0);

        assert_true(n > 0);
        all += (size_t)n;
    }
    for (int i = 0; i < 500; i++)
        assert_memory_equal(answers + 9 * i, "\x94\x01\x07\xc0\xa4pong", 9);
    close(fd);
}

/* 200 requests for 64 places, more than are ever outstanding; each answered. Then again, and the client goes at once. */
static void test_many_outstanding_and_lost_client(void **state)
{
    static const char head[] = "\x94\x00\x05\xa5infer\x91\x82\xa5model\xa6"
                               "double\xa6inputs\x91\x84\xa4name\xa1x\xa5"
                               "dtype\xa4"
                               "FP32\xa5shape\x92\x01\x04\xa4"
                               "data\xc4\x10"
                               "0123456789abcdef";
    size_t n = sizeof(head) - 1;

    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        int fd = fake_core_connect(), answered = 0;

        for (int i = 0; i < 200; i++)
            assert_int_equal(send(fd, head, n, 0), n);
        while (!lost && answered < 200) {
            char answer[4096];
            ssize_t got = recv(fd, answer, sizeof(answer), 0);

            assert_true(got > 0);
            for (ssize_t i = 0; i + 4 < got; i++)
                answered += memcmp(answer + i, "\x94\x01\x05\xc0", 4) == 0;
            if (got < 4 ||
                answered > 190) /* an answer may be cut by the read: near the end, look no closer */
                break;
        }
        close(fd);
    }
}

/* With all the requests outstanding that it may have, it is not read; that its client is gone is seen all the same: closed, and reset, as a socket is that
 * has not read all when it closes. */
static void lose_while_not_read(bool is_reset)
{
    static const char head[] = "\x94\x00\x05\xa5infer\x91\x82\xa5model\xa4"
                               "held\xa6inputs\x91\x84\xa4name\xa1x\xa5"
                               "dtype\xa4"
                               "FP32\xa5shape\x92\x01\x04\xa4"
                               "data\xc4\x10"
                               "0123456789abcdef";
    size_t n = sizeof(head) - 1;
    char byte;
    int fd = fake_core_connect();

    if (is_reset) {
        assert_int_equal(send(fd, "\x94\x00\x07\xa4ping\x90", 9, 0), 9);
        assert_int_equal(recv(fd, &byte, 1, MSG_PEEK), 1);
    }
    for (int i = 0; i < 70; i++)
        assert_int_equal(send(fd, head, n, 0), n);
    while (fake_core_n_held < 64)
        usleep(10000);
    assert_int_equal(fake_core_n_held, 64);
    close(fd);
    while (fake_core_n_held > 0)
        usleep(10000);
    assert_int_equal(fake_core_n_held, 0);
}

static void test_lost_while_not_read(void **state)
{
    (void)state;
    lose_while_not_read(false);
    lose_while_not_read(true);
}

/* Requests of 512 KiB in and out that stay: those of class 9 leave an eighth of the slab of 64 MiB, where one of class 0 has room. */
static void test_a_full_slab_keeps_room_for_urgent_ones(void **state)
{
    static const char head[] = "\x94\x00\x05\xa5infer\x91\x83\xa5model\xa4"
                               "wide\xa5"
                               "class\x09\xa6inputs\x91\x84\xa4name\xa1x\xa5"
                               "dtype\xa4"
                               "FP32\xa5shape\x92\x20\xcd\x10\x00\xa4"
                               "data\xc6\x00\x08\x00\x00";
    static char data[1 << 19];
    char answer[512];
    size_t got = 0;
    sy_client *client;
    sy_client_result *result;
    sy_client_tensor input = {"x", "FP32", 2, {1024, 4}, data, 1 << 14};
    sy_client_options options = {.urgency_class = 9};
    int fd = fake_core_connect(); /* may have 64 requests under way */

    (void)state;
    for (int i = 0; i < 60; i++) {
        assert_int_equal(send(fd, head, sizeof(head) - 1, 0), sizeof(head) - 1);
        assert_int_equal(send(fd, data, sizeof data, 0), sizeof data);
    }
    while (got < sizeof answer - 1) { /* only a refusal is answered */
        ssize_t more = recv(fd, answer + got, sizeof answer - 1 - got, 0);
        assert_true(more > 0);
        got += (size_t)more;
        answer[got] = 0;
        if (memmem(answer, got, "--slab-bytes", 12))
            break;
    }
    assert_non_null(memmem(answer, got, "kept for classes before 9", 25));
    assert_int_equal(fake_core_n_held, 56);
    client = client_at(fake_core_path);
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result),
                     SY_EBUSY);
    options.urgency_class = 0;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_OK);
    sy_client_result_free(result);
    sy_client_close(client);
    close(fd);
    while (fake_core_n_held > 0)
        usleep(10000);
    assert_int_equal(fake_core_n_held, 0);
}

static void *client_thread(void *ctx)
{
    sy_client *client = client_at(fake_core_path);

    for (int i = 0; i < 50; i++)
        good_infer(client, 1 + i % 64);
    sy_client_close(client);
    return ctx;
}

static void test_many_clients(void **state)
{
    pthread_t threads[16];

    (void)state;
    for (int i = 0; i < 16; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client_thread, NULL), 0);
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
}

static void test_too_many_clients(void **state)
{
    const char *const addresses[] = {fake_core_path, fake_core_tcp};
    sy_client *in_time = client_at(fake_core_path);
    int others[FAKE_CORE_MOST_CLIENTS - 1];

    (void)state;
    good_infer(in_time, 1);
    for (int i = 0; i < FAKE_CORE_MOST_CLIENTS - 1; i++)
        others[i] = fake_core_connect();
    good_infer(in_time, 1);
    for (int i = 0; i < 20; i++) {
        sy_client *late = client_at(addresses[i % 2]);
        char *text;
        assert_int_equal(sy_client_call(late, "ping", NULL, &text), SY_EBUSY);
        assert_non_null(strstr(sy_client_error(late), "32 connections"));
        sy_client_close(late);
    }
    good_infer(in_time, 1);
    for (int i = 0; i < FAKE_CORE_MOST_CLIENTS - 1; i++)
        close(others[i]);
    good_infer(in_time, 1); /* by then the server has seen that they are gone */
    sy_client_close(in_time);
}

static void test_second_server_is_refused(void **state)
{
    struct sy_rpc_config config = {.socket_path = fake_core_path};
    struct event_base *second = event_base_new();
    const struct sy_core_handlers never_asked = {0};
    struct sy_front asks_nobody = {.base = second, .handlers = &never_asked};
    struct sy_rpc_server *out;
    sy_client *client = client_at(fake_core_path);

    (void)state;
    assert_int_equal(sy_rpc_server_create(&config, &asks_nobody, &out), SY_EBUSY);
    event_base_free(second);
    good_infer(client, 1);
    sy_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_calls),
        cmocka_unit_test(test_sizes_of_the_run),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_errors_of_the_server_leave_the_connection),
        cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_half_message),
        cmocka_unit_test(test_loop_stands_still),
        cmocka_unit_test(test_half_message_after_a_silence),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_many_outstanding_and_lost_client),
        cmocka_unit_test(test_lost_while_not_read),
        cmocka_unit_test(test_a_full_slab_keeps_room_for_urgent_ones),
        cmocka_unit_test(test_many_clients),
        cmocka_unit_test(test_too_many_clients),
        cmocka_unit_test(test_second_server_is_refused),
    };

    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}

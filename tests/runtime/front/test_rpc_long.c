/* Long tensors of messages: straight from the socket to the slab and into the client's result, in whatever pieces they come, and what hostile clients make of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"

#define ROWS  20000 /* of 16 bytes: 320 000 */
#define BYTES (ROWS * 16u)

static float *numbers(int rows, float first)
{
    float *x = malloc((size_t)rows * 16);

    assert_non_null(x);
    for (int i = 0; i < 4 * rows; i++)
        x[i] = first + (float)i;
    return x;
}

static void send_all(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);

        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

/* An input's map up to its data; rows as a uint16. */
static size_t put_input(char *to, const char *name)
{
    static const char head[] = "\x84\xa4name\xa1?\xa5"
                               "dtype\xa4"
                               "FP32\xa5shape\x92\xcd??\x04\xa4"
                               "data";
    uint16_t rows = htons(ROWS);

    memcpy(to, head, sizeof head - 1);
    *(char *)memchr(to, '?', sizeof head) = *name;
    memcpy(memchr(to, '?', sizeof head), &rows, 2);
    return sizeof head - 1;
}

/* A request's beginning; n: of its inputs. */
static size_t put_request(char *to, char id, const char *model, char n)
{
    return (size_t)sprintf(to, "%c%c%c%cinfer%c%c%cmodel%c%s%cinputs%c", 0x94, 0, id, 0xa5, 0x91,
                           0x82, 0xa5, (int)(0xa0 + strlen(model)), model, 0xa6, 0x90 + n);
}

/* A whole message: `double` of x. */
static size_t make_double(char *to, char id, const float *x)
{
    uint32_t bytes = htonl(BYTES);
    size_t n = put_request(to, id, "double", 1);

    n += put_input(to + n, "x");
    to[n++] = (char)0xc6;
    memcpy(to + n, &bytes, 4);
    memcpy(to + n + 4, x, BYTES);
    return n + 4 + BYTES;
}

static void receive(int fd, char *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(fd, to + at, n - at, 0);

        assert_true(got > 0);
        at += (size_t)got;
    }
}

/* An error of this connection, which stays open. */
static void expect_error(int fd, const char *words)
{
    char answer[600];
    ssize_t n = recv(fd, answer, sizeof answer, 0);

    assert_true(n > 0);
    if (!memmem(answer, (size_t)n, words, strlen(words)))
        fail_msg("no \"%s\" in %.*s", words, (int)n, answer);
}

static void bits_are_equal(void **state)
{
    const char *addresses[] = {fake_core_path, fake_core_tcp};

    (void)state;
    for (int round = 0; round < 8; round++) {
        int rows = round % 4 < 2
                       ? ROWS
                       : 16384 + round; /* a block that is used again, and one that is not */
        float *x = numbers(rows, (float)round);
        sy_client_tensor input = {"x", "FP32", 2, {rows, 4}, x, (size_t)rows * 16};
        sy_client_result *result;
        sy_client *client;

        assert_int_equal(sy_client_connect(addresses[round % 2], 10000, &client), SY_OK);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_OK);
            assert_int_equal(result->outputs[0].bytes, (size_t)rows * 16);
            assert_int_equal((uintptr_t)result->outputs[0].data % 64, 0);
            for (int i = 0; i < 4 * rows; i++)
                assert_true(((const float *)result->outputs[0].data)[i] == 2 * x[i]);
            sy_client_result_free(result);
        }
        sy_client_close(client);
        free(x);
    }
}

/* Two messages, cut anywhere. */
static void in_any_pieces(void **state)
{
    float *x = numbers(ROWS, 1);
    char *bytes = malloc(2 * (BYTES + 200)), *answer = malloc(BYTES);
    size_t n = make_double(bytes, 1, x);
    static const size_t cuts[] = {1, 60, 75, 4096, 17000, 250000, 319999, 320100};

    (void)state;
    n += make_double(bytes + n, 2, x);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        int fd = fake_core_connect();

        send_all(fd, bytes, cuts[i]);
        usleep(2000);
        send_all(fd, bytes + cuts[i], n - cuts[i]);
        for (int of = 0; of < 2; of++) { /* both answers end with the tensor */
            size_t skip = 0;

            for (; skip < 4 || memcmp(answer + skip - 4, "data", 4) != 0; skip++)
                receive(fd, answer + skip, 1);
            receive(fd, answer, 5);
            assert_int_equal((unsigned char)answer[0], 0xc6);
            receive(fd, answer, BYTES);
            for (int k = 0; k < 4 * ROWS; k++)
                assert_true(((float *)answer)[k] == 2 * x[k]);
        }
        close(fd);
    }
    free(x);
    free(bytes);
    free(answer);
}

/* L2: the reference is ours, but anybody can write one. */
static void references_of_clients(void **state)
{
    static const char reference[] = {(char)0xc7, 2, 0x53, 0, 0};
    uint32_t length = htonl(BYTES);
    float *x = numbers(ROWS, 1);
    char bytes[400];
    int fd = fake_core_connect();
    size_t n;

    (void)state;
    n = put_request(bytes, 1, "double", 1);
    n += put_input(bytes + n, "x");
    send_all(fd, bytes, n);
    send_all(fd, reference, sizeof reference);
    expect_error(fd, "missing or no bin");

    n = put_request(bytes, 2, "sum", 2);
    n += put_input(bytes + n, "a");
    bytes[n++] = (char)0xc6;
    memcpy(bytes + n, &length, 4);
    send_all(fd, bytes, n + 4);
    send_all(fd, x, BYTES);
    n = put_input(bytes, "b");
    send_all(fd, bytes, n);
    send_all(fd, reference, sizeof reference);
    expect_error(fd, "share their data");
    close(fd);
    free(x);
}

/* What was announced and did not come leaves nothing behind: the core is closed with an empty slab, and there is room for as many again. */
static void clients_that_go(void **state)
{
    float *x = numbers(ROWS, 1);
    char *bytes = malloc(BYTES + 200), *pong;
    sy_client *client;

    assert_int_equal(sy_client_connect(fake_core_path, 10000, &client), SY_OK);
    make_double(bytes, 1, x);
    for (int i = 0; i < 300; i++) { /* 92 MiB in all, of a slab of 64 */
        int fd = fake_core_connect();

        send_all(fd, bytes, 20000);
        close(fd);
        assert_int_equal(sy_client_call(client, "ping", NULL, &pong), SY_OK); /* it is seen */
        free(pong);
    }
    sy_client_close(client);
    bits_are_equal(state);
    free(x);
    free(bytes);
}

/* L1: whoever announces tensors on many connections and does not send them holds a quarter of the slab (64 MiB), and no more; others are served. */
static void many_that_announce(void **state)
{
    enum { N = 30 }; /* of 960 KiB each */
    float *x = numbers(ROWS, 1);
    char *bytes = malloc(BYTES + 200), *pong;
    int fds[N];
    sy_client *client;

    assert_int_equal(sy_client_connect(fake_core_path, 10000, &client), SY_OK);
    char *length = memmem(bytes, make_double(bytes, 1, x), "\xc6", 1);
    assert_non_null(length);
    memcpy(length + 1, (unsigned char[]){0, 15, 0, 0}, 4); /* 960 KiB */
    for (int i = 0; i < N; i++) {
        fds[i] = fake_core_connect();
        send_all(fds[i], bytes, 20000);
        assert_int_equal(sy_client_call(client, "ping", NULL, &pong), SY_OK); /* it is seen */
        free(pong);
    }
    assert_in_range(fake_core_slab_bytes(), 8u << 20, 18u << 20);
    bits_are_equal(state);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    sy_client_close(client);
    free(bytes);
    free(x);
}

/* Sent to a method that takes no tensor, under a wrong shape, or of another length: said, and the connection stays. */
static void long_ones_that_are_wrong(void **state)
{
    float *x = numbers(ROWS + 1, 1);
    sy_client_tensor input = {"x", "FP32", 2, {ROWS, 4}, x, BYTES + 16};
    sy_client_result *result;
    sy_client *client;

    (void)state;
    assert_int_equal(sy_client_connect(fake_core_path, 10000, &client), SY_OK);
    assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_EARG);
    assert_non_null(strstr(sy_client_error(client), "320016 bytes of data"));
    assert_int_equal(sy_client_infer(client, "no_such_model", &input, 1, &result), SY_ENOTFOUND);
    input.bytes = BYTES;
    assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_OK);
    sy_client_result_free(result);
    sy_client_close(client);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_equal),           cmocka_unit_test(in_any_pieces),
        cmocka_unit_test(references_of_clients),    cmocka_unit_test(clients_that_go),
        cmocka_unit_test(long_ones_that_are_wrong), cmocka_unit_test(many_that_announce),
    };

    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}

/* The HTTP server as such, on a fake core: what a request may look like, what it may not, and in which order answers come. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_http.h"
#include "tests/rigs/seed.h"

#define LIVE "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"
#define ROW \
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}"

static void expect_text(int code, const char *request)
{
    http_expect_of(fake_http_port, code, request, strlen(request));
}

/* ---- good requests -------------------------------------------------------------------------------------- */

static void test_keep_alive(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    for (int i = 0; i < 50; i++) {
        http_say(fd, LIVE);
        http_expect(fd, 200);
        http_double(fd, 1 + i);
    }
    close(fd);
}

/* Sends while the test reads. */
struct sender {
    pthread_t thread;
    const char *text;
    size_t bytes;
    int fd;
    bool half_closes; /* at the end */
};

static void *send_all(void *ctx)
{
    struct sender *sender = ctx;

    http_send(sender->fd, sender->text, sender->bytes);
    if (sender->half_closes)
        shutdown(sender->fd, SHUT_WR);
    return NULL;
}

static void send_beside(struct sender *sender)
{
    assert_int_equal(pthread_create(&sender->thread, NULL, send_all, sender), 0);
}

static void test_pipelining(void **state)
{
    int fd = http_connect(fake_http_port);
    char *text = NULL, body[200];
    size_t n = 0;
    FILE *all = open_memstream(&text, &n);
    struct sender sender = {.fd = fd};

    (void)state;
    for (int i = 0; i < 2000; i++) { /* more than is held while one is answered */
        int length = snprintf(
            body, sizeof body,
            "{\"id\":\"%d\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,"
            "4],\"data\":[%d,2,3,4]}]}",
            i, i);
        if (i % 3 == 0)
            fprintf(all, "GET /v2/none/%d HTTP/1.1\r\nHost: h\r\n\r\n", i);
        else
            fprintf(
                all,
                "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s",
                length, body);
    }
    fclose(all);
    sender.text = text;
    sender.bytes = n;
    send_beside(&sender); /* it is sent while we read */
    for (int i = 0; i < 2000; i++) {
        struct http_answer answer;

        assert_true(http_read(fd, false, &answer));
        assert_int_equal(answer.code, i % 3 == 0 ? 404 : 200);
        snprintf(body, sizeof body, "{\"id\":\"%d\",", i);
        if (i % 3 != 0)
            assert_memory_equal(answer.body, body, strlen(body));
        http_forget(&answer);
    }
    pthread_join(sender.thread, NULL);
    free(text);
    close(fd);
}

static void send_slowly(int fd, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        http_send(fd, text + i, 1);
        if (i % 16 == 0)
            usleep(100);
    }
}

static void test_byte_by_byte(void **state)
{
    int fd = http_connect(fake_http_port);
    static const char text[] =
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n" ROW LIVE;

    (void)state;
    assert_int_equal(sizeof ROW - 1, 74);
    send_slowly(fd, text, sizeof text - 1);
    http_expect(fd, 200);
    http_expect(fd, 200);
    close(fd);
}

/* The server's end of a client's connection: both are in this process. */
static int other_end(int fd)
{
    struct sockaddr_in mine, peer;
    socklen_t n = sizeof mine;

    assert_int_equal(getsockname(fd, (struct sockaddr *)&mine, &n), 0);
    for (int other = 3; other < 1024; other++) {
        n = sizeof peer;
        if (getpeername(other, (struct sockaddr *)&peer, &n) == 0 && peer.sin_family == AF_INET &&
            peer.sin_port == mine.sin_port)
            return other;
    }
    fail_msg("no socket of this process has the client's port");
    return -1;
}

/* A socket that is full when "100 Continue" is due takes it later, and it is neither lost nor mixed with what follows. */
static void test_continue_waits_for_room(void **state)
{
    static char junk[64 << 10];
    int fd = http_connect(fake_http_port), inside, unread;
    char interim[26] = "";
    size_t filled = 0;
    ssize_t n;

    (void)state;
    http_say(fd, LIVE);
    http_expect(fd, 200);
    inside = other_end(fd);
    memset(junk, 'x', sizeof junk);
    for (int tries = 0; tries < 20; tries++, usleep(5000)) /* until its buffer grows no more */
        for (; (n = send(inside, junk, sizeof junk, MSG_DONTWAIT)) > 0; tries = 0)
            filled += (size_t)n;
    http_say(fd, "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                 "Content-Length: 74\r\n\r\n");
    while (ioctl(inside, FIONREAD, &unread) == 0 && unread > 0)
        usleep(1000);
    usleep(50000);
    for (; filled > 0; filled -= (size_t)n)
        assert_true((n = recv(fd, junk, SY_MIN(filled, sizeof junk), 0)) > 0);
    assert_int_equal(recv(fd, interim, 25, MSG_WAITALL), 25);
    assert_string_equal(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    http_say(fd, ROW);
    http_expect(fd, 200);
    close(fd);
}

static void test_continue(void **state)
{
    int fd = http_connect(fake_http_port);
    char interim[64];

    (void)state;
    http_say(fd, "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n"
                 "Content-Length: 74\r\n\r\n");
    assert_int_equal(recv(fd, interim, 25, MSG_WAITALL), 25);
    assert_memory_equal(interim, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    http_say(fd, ROW);
    http_expect(fd, 200);
    /* What is refused is refused before the body. */
    http_say(
        fd,
        "POST /v2/none HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 74\r\n\r\n");
    http_expect(fd, 404);
    assert_true(http_is_closed(fd));
    close(fd);
    expect_text(505, "GET /v2 HTTP/9.9\r\n\r\n");
    expect_text(505, "GET /v2\r\n\r\n");
    expect_text(417, "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nExpect: "
                     "gold\r\nContent-Length: 74\r\n\r\n");
}

/* What is sent in another coding is not read as if it had none. */
static void test_other_codings(void **state)
{
    static const char *const codings[] = {"gzip, chunked", "chunked, chunked", "xchunked, chunked"};

    (void)state;
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        int fd = http_connect(fake_http_port);

        http_say(fd,
                 "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                 "%s\r\n\r\n4a\r\n" ROW "\r\n0\r\n\r\n",
                 codings[i]);
        assert_non_null(strstr(http_expect(fd, 400), "Transfer-Encoding"));
        assert_true(http_is_closed(fd));
        close(fd);
    }
    expect_text(200,
                "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked"
                "\r\n\r\n4a\r\n" ROW "\r\n0\r\n\r\n");
}

static void test_chunks(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    for (int i = 0; i < 3; i++) {
        http_say(fd, "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n");
        for (size_t at = 0, n; at < sizeof ROW - 1; at += n) {
            n = SY_MIN((size_t)1 + 13 * (size_t)i, sizeof ROW - 1 - at);
            http_say(fd, "%zx;name=value;other=\"a\"\r\n%.*s\r\n", n, (int)n, ROW + at);
        }
        http_say(fd, "0\r\nX-Trailer: 1\r\nContent-Encoding: gzip\r\n\r\n");
        http_expect(fd, 200);
    }
    http_say(fd, LIVE);
    http_expect(fd, 200);
    close(fd);
}

static void test_head(void **state)
{
    int fd = http_connect(fake_http_port);
    struct http_answer answer;

    (void)state;
    http_say(fd, "HEAD /v2 HTTP/1.1\r\nHost: h\r\n\r\nHEAD /v2/none HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(http_read(fd, true, &answer));
    assert_int_equal(answer.code, 200);
    assert_true(atoi(http_header(&answer, "content-length")) > 50);
    assert_true(http_read(fd, true, &answer));
    assert_int_equal(answer.code, 404);
    http_say(fd, LIVE);
    http_expect(fd, 200);
    close(fd);
}

static void test_routes(void **state)
{
    static const struct {
        int code;
        const char *line, *allow;
    } cases[] = {
        {200, "GET /v2", NULL},
        {200, "GET /v2/", NULL},
        {200, "GET http://example.org/v2?x=%20y&z", NULL},
        {404, "GET /", NULL},
        {404, "GET http://example.org", NULL},
        {404, "GET /V2", NULL},
        {404, "GET //v2", NULL},
        {404, "GET /v2/models//ready", NULL},
        {405, "POST /v2", "GET, HEAD"},
        {405, "DELETE /v2/models/double", "GET, HEAD"},
        {405, "GET /v2/models/double/infer", "POST"},
        {405, "PUT /v2/models/double/infer", "POST"},
        {404, "OPTIONS *", NULL},
        {400, "CONNECT example.org:80", NULL},
        {400, "GET /v2?a=%zz", NULL},
        {400, "GET /v2/models/%00x", NULL},
        {404, "GET /v2/models/no%2fmodel", NULL},
        {200, "GET /v2/models/%64ouble/ready", NULL},
        {200, "GET /v2/models/double/versions/1/ready", NULL},
        {404, "GET /v2/models/double/versions/2/ready", NULL},
        {400, "GET /v2/models/double/versions/x/ready", NULL},
        {400, "GET /v2/models/double/versions/-1/ready", NULL},
    };
    struct http_answer answer;

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        int fd = http_connect(fake_http_port);

        http_say(fd,
                 "%s HTTP/1.1\r\nHost: h\r\nUpgrade: h2c, websocket\r\nConnection: Upgrade\r\n\r\n",
                 cases[i].line);
        assert_true(http_read(fd, false, &answer));
        if (answer.code != cases[i].code)
            fail_msg("%s: %s", cases[i].line, answer.head);
        if (cases[i].allow) {
            assert_string_equal(http_header(&answer, "allow"), cases[i].allow);
            assert_non_null(strstr(answer.body, "does not have the method"));
            assert_non_null(strstr(answer.body, cases[i].allow));
        }
        http_forget(&answer);
        close(fd);
    }
}

/* What clients of another protocol see: the path that they asked for, and where the paths that there are stand. */
static void test_unknown_path(void **state)
{
    int fd = http_connect(fake_http_port);
    const char *error;

    (void)state;
    http_say(fd, "GET /v1/chat/completions HTTP/1.1\r\nHost: h\r\n\r\n");
    error = http_expect(fd, 404);
    assert_non_null(strstr(error, "there is no path /v1/chat/completions"));
    assert_non_null(strstr(error, "/v2/openapi.json"));
    close(fd);
}

static void test_http_1_0(void **state)
{
    int fd = http_connect(fake_http_port);
    struct http_answer answer;

    (void)state;
    http_say(fd, "GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(http_read(fd, false, &answer));
    assert_string_equal(http_header(&answer, "connection"), "keep-alive");
    http_forget(&answer);
    http_say(fd, "GET /v2 HTTP/1.0\r\n\r\n" LIVE);
    assert_true(http_read(fd, false, &answer));
    assert_string_equal(http_header(&answer, "connection"), "close");
    http_forget(&answer);
    assert_true(http_is_closed(fd));
    close(fd);
}

static void test_close(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    http_say(
        fd,
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: "
        "74\r\n\r\n" ROW LIVE LIVE);
    http_expect(fd, 200);
    assert_true(http_is_closed(fd));
    close(fd);
}

/* ---- bad requests ---------------------------------------------------------------------------------------- */

/* In HTTP/1.1 a request names its host, once; in 1.0 it need not. */
static void test_host(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {{"GET /v2 HTTP/1.1\r\n\r\n", 400},
                 {"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
                 {"GET /v2 HTTP/1.0\r\n\r\n", 200},
                 {"GET /v2 HTTP/1.1\r\nHost:\r\n\r\n", 200}};

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        int fd = http_connect(fake_http_port);

        http_send(fd, cases[i].text, strlen(cases[i].text));
        http_expect(fd, cases[i].code);
        close(fd);
    }
}

static void test_garbage(void **state)
{
    static const char *const texts[] = {
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET\r\n\r\n",
        "get /v2 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /v2 HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        "GET /v2\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length : 5\r\n\r\n{\"a\":",
        "GET /v2 HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: "
        "6\r\n\r\n",
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length: "
        "5\r\nTransfer-Encoding: "
        "chunked\r\n\r\n",
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
        "chunked\r\n\r\nxyz\r\n",
        "GET /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "\r\n\r\n {}"};

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(texts); i++) {
        int fd = http_connect(fake_http_port);

        http_send(fd, texts[i], strlen(texts[i]));
        http_say(fd, "%s", "more that means nothing\r\n\r\n");
        http_expect(fd, 400);
        assert_true(http_is_closed(fd));
        close(fd);
    }
}

static void test_random_bytes(void **state)
{
    static const char good[] =
        "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n" ROW LIVE
            LIVE;
    uint64_t chance = seed_of_run(99);
    char text[sizeof good];

    (void)state;
    for (int i = 0; i < 300; i++) {
        int fd = http_connect(fake_http_port);

        memcpy(text, good, sizeof good);
        for (uint64_t n = 1 + seed_below(&chance, 5); n > 0; n--)
            text[seed_below(&chance, sizeof good - 1)] = (char)seed_next(&chance);
        http_send(fd, text, 1 + seed_below(&chance, sizeof good - 1));
        if (i % 2)
            shutdown(fd, SHUT_WR);
        close(fd);
    }
    expect_text(200, LIVE);
}

static void test_refused_body_is_read(void **state)
{
    int fd = http_connect(fake_http_port);
    static char zeros[300000];

    (void)state;
    http_post(fd, "/v2/none", "", zeros, sizeof zeros);
    http_expect(fd, 404);
    http_post(fd, "/v2/models/double/infer", "", zeros, sizeof zeros);
    http_expect(fd, 400);
    http_say(fd, LIVE);
    http_expect(fd, 200);
    close(fd);
}

static void test_half_close(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    http_say(fd, "POST /v2/models/double/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n{");
    shutdown(fd, SHUT_WR);
    assert_non_null(strstr(http_expect(fd, 400), "ended"));
    assert_true(http_is_closed(fd));
    close(fd);
    fd = http_connect(fake_http_port);
    http_say(fd, LIVE "GET /v2");
    shutdown(fd, SHUT_WR);
    http_expect(fd, 200);
    http_expect(fd, 400);
    assert_true(http_is_closed(fd));
    close(fd);
}

/* Answers that nobody reads yet are sent all the same when the client has said that it sends no more. */
static void test_half_close_behind_answers(void **state)
{
    static const char request[] = "GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n";
    int fd = http_connect(fake_http_port), n = 10000;
    char *text = malloc(sizeof request * (size_t)n);
    struct sender sender = {
        .fd = fd, .text = text, .bytes = (sizeof request - 1) * (size_t)n, .half_closes = true};

    (void)state;
    for (int i = 0; i < n; i++)
        memcpy(text + (size_t)i * (sizeof request - 1), request, sizeof request);
    send_beside(&sender);
    usleep(200000);
    for (int i = 0; i < n; i++)
        http_expect(fd, 200);
    pthread_join(sender.thread, NULL);
    free(text);
    assert_true(http_is_closed(fd));
    close(fd);
}

/* ---- what the server says of itself ------------------------------------------------------------------------ */

static void test_information(void **state)
{
    int fd = http_connect(fake_http_port);
    struct http_answer answer;

    (void)state;
    http_say(fd, "GET /v2/models/double HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(http_read(fd, false, &answer));
    assert_int_equal(answer.code, 200);
    assert_string_equal(http_header(&answer, "content-type"), "application/json");
    assert_non_null(http_header(&answer, "date"));
    assert_non_null(strstr(answer.body, "\"shape\":[-1,4]"));
    http_forget(&answer);
    http_say(fd, "GET /v2/models/double/config HTTP/1.1\r\nHost: h\r\n\r\n");
    http_expect(fd, 200);
    http_double(fd, 3);
    http_say(fd, "GET /v2/models/double/stats HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(http_read(fd, false, &answer));
    assert_non_null(strstr(answer.body, "\"inference_count\":"));
    http_forget(&answer);
    http_say(fd, "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
    assert_true(http_read(fd, false, &answer));
    assert_non_null(strstr(answer.body, "\"READY\""));
    http_forget(&answer);
    http_say(fd, "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n[]");
    http_expect(fd, 400);
    http_say(fd, "POST /v2/repository/models/double/load HTTP/1.1\r\nHost: h\r\n\r\n");
    http_expect(fd, 501);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_continue_waits_for_room),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_unknown_path),
        cmocka_unit_test(test_http_1_0),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_refused_body_is_read),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_other_codings),
        cmocka_unit_test(test_half_close_behind_answers),
        cmocka_unit_test(test_information),
    };

    return cmocka_run_group_tests(tests, fake_http_start, fake_http_finish);
}

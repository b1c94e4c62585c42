/* The HTTP server's limits, each with its answer: sizes, nesting, connections, time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_http.h"
#include "tests/runtime/front/skip_clock.h"

#define DOUBLE "/v2/models/double/infer"
#define TIGHT_LEAST_BYTES \
    (2 * FAKE_LEAST_RATE * TIGHT_NS / SY_NS_PER_S) /* more than must come in this time */
#define ROW \
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}"
#define LIVE "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"

static int tight(void)
{
    return http_connect(fake_http_tight_port);
}

static void expect_closed(int fd, int code)
{
    http_expect(fd, code);
    assert_true(http_is_closed(fd));
    close(fd);
}

/* ---- sizes -------------------------------------------------------------------------------------------------- */

static void test_header(void **state)
{
    static char long_text[100000];
    int fd = tight();

    (void)state;
    memset(long_text, 'a', sizeof long_text - 1);
    http_say(fd, "GET /v2?%.*s HTTP/1.1\r\nHost: h\r\n\r\n", TIGHT_HEADER_BYTES - 100, long_text);
    http_expect(fd, 200);
    http_say(fd, "GET /v2 HTTP/1.1\r\nHost: h\r\nA: %.*s\r\n\r\n", TIGHT_HEADER_BYTES - 100,
             long_text);
    http_expect(fd, 200);
    http_say(fd, "GET /v2 HTTP/1.1\r\nHost: h\r\nA: %.*s\r\n\r\n", TIGHT_HEADER_BYTES, long_text);
    assert_non_null(strstr(http_expect(fd, 431), "--http-header-bytes"));
    assert_true(http_is_closed(fd));
    close(fd);
    fd = tight();
    http_say(fd, "GET /%s", long_text);
    expect_closed(fd, 431);
    fd = tight();
    http_say(fd, "GET /v2 HTTP/1.1\r\nHost: h\r\n%s: 1", long_text);
    expect_closed(fd, 431);
    fd = http_connect(fake_http_port);
    for (int i = 0; i < 110; i++)
        http_say(fd, i ? "A%d: 1\r\n" : "GET /v2 HTTP/1.1\r\nHost: h\r\nB%d: 1\r\n", i);
    expect_closed(fd, 431);
    fd = http_connect(fake_http_port);
    http_say(fd, "GET /v2?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q&r HTTP/1.1\r\nHost: h\r\n\r\n");
    http_expect(fd, 400);
    close(fd);
}

static void test_body(void **state)
{
    static char zeros[TIGHT_BODY_BYTES + 1];
    int fd = tight();

    (void)state;
    http_post(fd, DOUBLE, "", zeros, sizeof zeros);
    http_expect(fd, 413);
    http_post(fd, "/v2/repository/index", "", zeros, TIGHT_SMALL_BYTES + 1);
    http_expect(fd, 413);
    http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n");
    expect_closed(fd, 413);
    fd = tight(); /* what nobody announced */
    http_say(fd,
             "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: 0\r\n"
             "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
             sizeof zeros);
    http_send(fd, zeros, sizeof zeros);
    http_say(fd, "\r\n0\r\n\r\n");
    assert_non_null(
        strstr(http_expect(fd, 503), "buffered")); /* buffered, since its length is unknown */
    http_say(
        fd,
        "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n",
        TIGHT_SMALL_BYTES + 1);
    http_send(fd, zeros, TIGHT_SMALL_BYTES + 1);
    http_say(fd, "\r\n0\r\n\r\n" LIVE);
    http_expect(fd, 413);
    http_expect(fd, 200);
    close(fd);
}

/* Unfinished bodies of several clients share what may be buffered. */
static void test_buffered(void **state)
{
    static char spaces[TIGHT_BUFFERED];
    int first = tight(), second = tight();

    (void)state;
    memset(spaces, ' ', sizeof spaces);
    http_say(first, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: %u\r\n\r\n",
             TIGHT_BUFFERED - 1000);
    http_send(first, spaces, TIGHT_BUFFERED - 1100 - sizeof ROW);
    for (int i = 0; i < 64; i++) /* it is read in pieces */
        fake_core_call(NULL, NULL);
    http_post(second, DOUBLE, "", spaces, 3000);
    assert_non_null(strstr(http_expect(second, 503), "buffered"));
    http_post(second, DOUBLE, "", ROW, sizeof ROW - 1);
    http_expect(second, 200);
    http_send(first, spaces, 101);
    http_send(first, ROW, sizeof ROW - 1);
    http_expect(first, 200);
    http_post(second, DOUBLE, "", spaces, 3000);
    http_expect(second, 400); /* there is room again: it is refused as no JSON */
    close(first);
    close(second);
}

static void test_bomb(void **state)
{
    enum { PLAIN = 64 << 20 };
    char *zeros = calloc(1, PLAIN), *packed = malloc(PLAIN / 256);
    z_stream z = {.next_in = (Bytef *)zeros, .avail_in = PLAIN, .next_out = (Bytef *)packed};

    (void)state;
    z.avail_out = PLAIN / 256;
    assert_int_equal(deflateInit(&z, 9), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    int fd = tight();
    for (int i = 0; i < 2; i++) {
        http_post(fd, i ? "/v2/repository/index" : DOUBLE, "Content-Encoding: deflate\r\n", packed,
                  z.total_out);
        http_expect(fd, i ? 413 : 503);
    }
    http_post(fd, DOUBLE, "Inference-Header-Content-Length: 0\r\nContent-Encoding: deflate\r\n",
              packed, z.total_out);
    http_expect(fd, 503);
    http_say(fd, LIVE);
    http_expect(fd, 200);
    free(zeros);
    free(packed);
    close(fd);
}

static void test_json_depth(void **state)
{
    int fd = tight();
    static const char deep[] = "{\"a\":[[[[[[[[1]]]]]]]]}",
                      at_limit[] = "{\"parameters\":{\"a\":[[[[[\"]]\"]]]]]}}";
    static const char deep_data[] = "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":["
                                    "1,4],\"data\":[[[[[[1,2,3,4]]]]]]}]}";

    (void)state;
    http_post(fd, "/v2/repository/index", "", at_limit, sizeof at_limit - 1);
    http_expect(fd, 200);
    http_post(fd, "/v2/repository/index", "", deep, sizeof deep - 1);
    assert_non_null(strstr(http_expect(fd, 400), "nested deeper than 8"));
    http_post(fd, DOUBLE, "", deep, sizeof deep - 1);
    assert_non_null(strstr(http_expect(fd, 400), "nested deeper than 8"));
    http_post(fd, DOUBLE, "", deep_data, sizeof deep_data - 1);
    assert_non_null(strstr(http_expect(fd, 400), "nested deeper than 8"));
    close(fd);
}

/* Longer than the loop parses itself: a thread does, also of what is no tensor. */
static void test_long_json(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *all = open_memstream(&text, &n);
    int fd = http_connect(fake_http_port);

    (void)state;
    fprintf(all, "{\"ready\":true,\"a\":\"%0*d\"}", 200000, 0);
    fclose(all);
    http_post(fd, "/v2/repository/index", "", text, n);
    http_expect(fd, 200);
    text[n - 1] = ' ';
    http_post(fd, "/v2/repository/index", "", text, n);
    http_expect(fd, 400);
    for (int i = 0; i < 20; i++) { /* gone while it is parsed */
        int other = http_connect(fake_http_port);

        http_post(other, "/v2/repository/index", "", text, n);
        close(other);
    }
    memset(text, '[', n);
    for (size_t i = 0; i < n; i++)
        text[i] = i == 0 ? '[' : i % 2 ? '1' : ',';
    text[n - 1] = ']';
    http_post(fd, "/v2/repository/index", "", text, n);
    assert_non_null(strstr(http_expect(fd, 400), "values"));
    free(text);
    close(fd);
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static void test_connections(void **state)
{
    int fds[TIGHT_CONNECTIONS + 1];

    (void)state;
    while (fake_http_tight_connections() > 0) /* of the tests before */
        usleep(1000);
    for (int i = 0; i < TIGHT_CONNECTIONS; i++) {
        fds[i] = tight();
        http_say(fds[i], LIVE);
        http_expect(fds[i], 200);
    }
    fds[TIGHT_CONNECTIONS] = tight();
    expect_closed(fds[TIGHT_CONNECTIONS], 503);
    close(fds[0]);
    fake_core_call(NULL, NULL);
    fds[0] = tight();
    http_say(fds[0], LIVE);
    http_expect(fds[0], 200);
    for (int i = 0; i < TIGHT_CONNECTIONS; i++)
        close(fds[i]);
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

/* The server has read what was sent, and looks for slow clients in the time that passes then. */
static void pass(sy_ns time)
{
    fake_core_call(NULL, NULL);
    skip_clock(time);
    usleep(300000);
}

static void test_slow_header(void **state)
{
    int fd = tight();
    static const char text[] = "GET /v2 HTTP/1.1\r\nHost: h\r\nX: ";

    (void)state;
    http_send(fd, text, sizeof text - 1);
    for (int i = 0; i < 2; i++) { /* a byte now and then does not help */
        pass(TIGHT_NS * 2 / 5);
        http_send(fd, "a", 1);
    }
    pass(TIGHT_NS * 2 / 5); /* 1.2 of the limit since the first, 0.4 since the last */
    expect_closed(fd, 408);
}

static void test_slow_body(void **state)
{
    static char spaces[TIGHT_LEAST_BYTES];
    int fd = tight();

    (void)state;
    http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n{");
    skip_clock_until_readable(fd, TIGHT_NS);
    assert_non_null(strstr(http_expect(fd, 408), "body"));
    assert_true(http_is_closed(fd));
    close(fd);
    fd = tight(); /* also one that is refused already */
    http_say(fd, "POST /v2/none HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n{");
    http_expect(fd, 404);
    skip_clock_until_readable(fd, TIGHT_NS);
    assert_true(http_is_closed(fd));
    close(fd);
    fd = tight(); /* bytes that come are progress */
    memset(spaces, ' ', sizeof spaces);
    http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
             4 * sizeof spaces + sizeof ROW - 1);
    for (int i = 0; i < 4; i++) {
        http_send(fd, spaces, sizeof spaces);
        pass(TIGHT_NS / 2);
    }
    http_send(fd, ROW, sizeof ROW - 1);
    http_expect(fd, 200);
    close(fd);
}

/* The rest of a body comes while the loop stands still, and its look for stalled clients before it reads. */
static void stand_still(void *fd)
{
    skip_clock(2 * TIGHT_NS);
    http_send(*(int *)fd, ROW + 1, sizeof ROW - 2);
    fake_http_tight_look();
}

static void test_loop_stands_still(void **state)
{
    int fd = tight();

    (void)state;
    http_say(fd, LIVE); /* then it is accepted, and read at once */
    http_expect(fd, 200);
    http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%c",
             sizeof ROW - 1, *ROW);
    fake_core_call(stand_still, &fd);
    http_expect(fd, 200);
    close(fd);
}

/* Bytes that come more slowly than FAKE_LEAST_RATE are none. */
static void test_creeping_body(void **state)
{
    int fd = tight();

    (void)state;
    http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n");
    for (int i = 0; i < 2; i++) {
        pass(TIGHT_NS * 2 / 5);
        http_send(fd, ROW + i, 1);
    }
    pass(TIGHT_NS * 2 / 5);
    assert_non_null(strstr(http_expect(fd, 408), "body"));
    close(fd);
}

static void test_idle(void **state)
{
    int fd = tight();

    (void)state;
    http_say(fd, LIVE);
    http_expect(fd, 200);
    skip_clock_until_readable(fd, TIGHT_NS);
    assert_true(http_is_closed(fd));
    close(fd);
    fd = tight();
    skip_clock_until_readable(fd, TIGHT_NS);
    assert_true(http_is_closed(fd));
    close(fd);
}

/* What the core takes its time for is nobody's stall. */
static void test_long_run(void **state)
{
    int fd = tight();

    (void)state;
    http_say(fd, "POST /v2/models/held/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 74\r\n\r\n" ROW
                 "GET /v2");
    while (fake_core_n_held < 1)
        usleep(1000);
    pass(4 * TIGHT_NS);
    assert_int_equal(fake_core_n_held, 1);
    close(fd);
    while (fake_core_n_held > 0)
        usleep(1000);
}

/* A client that reads nothing holds its answers, then is closed; others are served. */
static void test_no_reader(void **state)
{
    int fd = tight(), other = tight(), small = 4096;
    static const char request[] = "GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n";
    char buffer[65536];
    ssize_t got, sent = 0, all = 0;

    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int stuck = 0; stuck < 100;) {
        ssize_t part = send(fd, request, sizeof request - 1, MSG_DONTWAIT | MSG_NOSIGNAL);

        sent += part > 0 ? part : 0;
        stuck = part > 0 ? 0 : stuck + 1;
        if (part <= 0)
            usleep(10000);
        if (part > 0 && sent % 1000 == 0) {
            http_say(other, LIVE);
            http_expect(other, 200);
        }
    }
    close(other);
    while (fake_http_tight_connections() > 0) {
        skip_clock(TIGHT_NS);
        usleep(100000);
    }
    while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
        all += got;
    assert_true(all < sent); /* it was closed before all was answered */
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),        cmocka_unit_test(test_body),
        cmocka_unit_test(test_buffered),      cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_json_depth),    cmocka_unit_test(test_long_json),
        cmocka_unit_test(test_connections),   cmocka_unit_test(test_slow_header),
        cmocka_unit_test(test_slow_body),     cmocka_unit_test(test_loop_stands_still),
        cmocka_unit_test(test_creeping_body), cmocka_unit_test(test_idle),
        cmocka_unit_test(test_long_run),      cmocka_unit_test(test_no_reader),
    };

    return cmocka_run_group_tests(tests, fake_http_start, fake_http_finish);
}

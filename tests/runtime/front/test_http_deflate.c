/* Compressed bodies and answers over HTTP, whole, cut and damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/fakes/fake_http.h"

#define DOUBLE "/v2/models/double/infer"
#define ROW \
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}"

static size_t pack(const void *bytes, size_t n, int window, char *to, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes,
                  .avail_in = (uInt)n,
                  .next_out = (Bytef *)to,
                  .avail_out = (uInt)room};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void unpack_answer(void)
{
    z_stream z = {.next_in = (Bytef *)http_last.body, .avail_in = (uInt)http_last.bytes};
    char *to = malloc(4 << 20);

    z.next_out = (Bytef *)to;
    z.avail_out = 4 << 20;
    assert_int_equal(inflateInit2(&z, 15 + 32), Z_OK);
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    inflateEnd(&z);
    free(http_last.body);
    http_last.body = to;
    http_last.bytes = z.total_out;
    to[z.total_out] = '\0';
}

#define GZIP 31
#define ZLIB 15
#define RAW  (-15)

static void test_compressed_bodies(void **state)
{
    static const int windows[] = {GZIP, ZLIB, RAW};
    static char packed[1 << 20];
    int fd = http_connect(fake_http_port);
    char *text;
    size_t n;

    (void)state;
    for (int rows = 1; rows < 20000; rows *= 10)
        for (int i = 0; i < 3; i++) {
            http_double_text(rows, false, &text, &n);
            n = pack(text, n, windows[i], packed, sizeof packed);
            http_ask(fd, 200, DOUBLE,
                     i == 0 ? "Content-Encoding: gzip\r\n" : "Content-Encoding: deflate\r\n",
                     packed, n);
            assert_non_null(strstr(http_last.body, "\"data\":[0.0,2.0,4.0,"));
            free(text);
        }
    http_ask(fd, 415, DOUBLE, "Content-Encoding: br\r\n", packed, 10);
    close(fd);
}

/* JSON of 20 KB, whose parsing a thread does, and zeros behind it that take a few bytes: they come while it is parsed. */
static void test_compressed_binary(void **state)
{
    enum { ZEROS = 2 << 20 };
    static char packed[1 << 20];
    int fd = http_connect(fake_http_port), rows = ZEROS / 16;
    char *text = malloc(ZEROS + (32 << 10)), header[120];
    int n = sprintf(
        text,
        "{\"id\":\"%020000d\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[%d,4],"
        "\"parameters\":{\"binary_data_size\":%d}}],\"parameters\":{\"binary_data_output\":true}}",
        0, rows, ZEROS);

    (void)state;
    memset(text + n, 0, ZEROS);
    size_t bytes = pack(text, (size_t)n + ZEROS, GZIP, packed, sizeof packed);
    snprintf(header, sizeof header,
             "Content-Encoding: gzip\r\nInference-Header-Content-Length: %d\r\n", n);
    for (int i = 0; i < 3; i++) {
        http_ask(fd, 200, DOUBLE, header, packed, bytes);
        assert_true(http_last.bytes > ZEROS);
    }
    free(text);
    close(fd);
}

static void test_damaged_streams(void **state)
{
    char packed[400];
    size_t n = pack(ROW, sizeof ROW - 1, GZIP, packed, sizeof packed);
    int fd = http_connect(fake_http_port);

    (void)state;
    for (size_t cut = 1; cut < n; cut += 7)
        http_ask(fd, 400, DOUBLE, "Content-Encoding: gzip\r\n", packed, cut);
    packed[n] = 'x';
    http_ask(fd, 400, DOUBLE, "Content-Encoding: gzip\r\n", packed, n + 1);
    packed[n - 6] ^= 1;
    http_ask(fd, 400, DOUBLE, "Content-Encoding: gzip\r\n", packed, n);
    http_ask(fd, 400, DOUBLE, "Content-Encoding: deflate\r\n", ROW, sizeof ROW - 1);
    http_ask(fd, 400, "/v2/repository/index", "Content-Encoding: gzip\r\n", packed, n);
    http_ask_text(fd, 200, DOUBLE, ROW);
    close(fd);
}

static void test_compressed_answers(void **state)
{
    static const char *const accepted[] = {"gzip", "deflate", "gzip;q=0.1, deflate", "br, gzip",
                                           "identity, deflate;q=0"};
    static const char *const codings[] = {"gzip", "deflate", "deflate", "gzip", ""};
    int fd = http_connect(fake_http_port);
    char *text, header[80];
    size_t n;

    (void)state;
    for (int rows = 1; rows < 20000; rows *= 7)
        for (size_t i = 0; i < SY_ARRAY_LEN(accepted); i++) {
            http_double_text(rows, false, &text, &n);
            snprintf(header, sizeof header, "Accept-Encoding: %s\r\n", accepted[i]);
            http_ask(fd, 200, DOUBLE, header, text, n);
            if (rows > 100)
                assert_string_equal(http_value("content-encoding"), codings[i]);
            if (*http_value("content-encoding"))
                unpack_answer();
            assert_non_null(strstr(http_last.body, "\"data\":[0.0,2.0,4.0,"));
            free(text);
        }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compressed_bodies),
        cmocka_unit_test(test_compressed_binary),
        cmocka_unit_test(test_damaged_streams),
        cmocka_unit_test(test_compressed_answers),
    };

    return cmocka_run_group_tests(tests, fake_http_start, fake_http_finish);
}

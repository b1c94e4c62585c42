/* Inference over HTTP on a fake core: JSON and binary tensors, compression, shared memory, classes, clients that go in each phase. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_http.h"

#define DOUBLE "/v2/models/double/infer"
#define X      "\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4]"
#define ROW    "{\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}"

/* JSON, then tensors: n is the length of all of it. */
struct binary {
    char bytes[4096];
    size_t json, n;
    char header[80];
};

static void make_binary(struct binary *to, const char *json, const float *values, int n_values)
{
    to->json = strlen(json);
    to->n = to->json + (size_t)n_values * 4;
    memcpy(to->bytes, json, to->json);
    memcpy(to->bytes + to->json, values, (size_t)n_values * 4);
    snprintf(to->header, sizeof to->header, "Inference-Header-Content-Length: %zu\r\n", to->json);
}

/* The floats behind the answer's JSON. */
static void expect_floats(const float *wanted, int n)
{
    size_t json = strtoull(http_value("inference-header-content-length"), NULL, 10);

    assert_string_equal(http_value("content-type"), "application/octet-stream");
    assert_int_equal(http_last.bytes, json + (size_t)n * 4);
    assert_memory_equal(http_last.body + json, wanted, (size_t)n * 4);
}

/* ---- tensors ----------------------------------------------------------------------------------------------- */

static void test_json(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    http_ask_text(
        fd, 200, DOUBLE,
        "{\"id\":\"a\\\"b\\u00e9\",\"parameters\":{\"mine\":1,\"priority\":2,\"timeout\":"
        "1000000},\"inputs\":[{" X
        ",\"parameters\":{},\"data\":[[1,2.5],[-3e0,4]]}],\"outputs\":[{\"name\":\"y\"}]}");
    assert_string_equal(
        http_last.body,
        "{\"id\":\"a\\\"b\xc3\xa9\",\"model_name\":\"double\",\"model_version\":\"1\",\"outputs\":["
        "{"
        "\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[2.0,5.0,-6.0,8.0]}]}");
    http_ask_text(
        fd, 200, "/v2/models/double/versions/1/infer",
        "{\"inputs\":[{\"shape\":[0,4],\"data\":[],\"datatype\":\"FP32\",\"name\":\"x\"}]}");
    assert_non_null(strstr(http_last.body, "\"shape\":[0,4],\"data\":[]"));
    close(fd);
}

static void test_binary(void **state)
{
    static const float values[] = {1, 2, 3, 4, 10, 20, 30, 40}, sums[] = {11, 22, 33, 44};
    struct binary request;
    int fd = http_connect(fake_http_port);

    (void)state;
    make_binary(&request,
                "{\"inputs\":[{\"name\":\"b\",\"datatype\":\"FP32\",\"shape\":[1,4],\"parameters\":"
                "{\"binary_data_"
                "size\":16}},{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1,4],\"parameters\":{"
                "\"binary_data_size\":"
                "16}}],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}}]}",
                values, 8);
    for (int i = 0; i < 3; i++) {
        http_ask(fd, 200, "/v2/models/sum/infer", request.header, request.bytes, request.n);
        expect_floats(sums, 4);
    }
    make_binary(&request,
                "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{\"name\":\"a\","
                "\"datatype\":\"FP32\","
                "\"shape\":[1,4],\"data\":[10,20,30,40]},{\"name\":\"b\",\"datatype\":\"FP32\","
                "\"shape\":[1,4],"
                "\"parameters\":{\"binary_data_size\":16}}]}",
                values, 4);
    http_ask(fd, 200, "/v2/models/sum/infer", request.header, request.bytes, request.n);
    expect_floats(sums, 4);
    make_binary(&request,
                "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[0,4],\"parameters\":"
                "{\"binary_data_"
                "size\":0}}],\"parameters\":{\"binary_data_output\":true}}",
                values, 0);
    http_ask(fd, 200, DOUBLE, request.header, request.bytes, request.n);
    expect_floats(sums, 0);
    close(fd);
}

static void test_raw(void **state)
{
    static const float values[] = {1, 2, 3, 4, 5, 6, 7, 8},
                       doubled[] = {2, 4, 6, 8, 10, 12, 14, 16};
    int fd = http_connect(fake_http_port);

    (void)state;
    http_ask(fd, 200, DOUBLE, "Inference-Header-Content-Length: 0\r\n", values, 32);
    expect_floats(doubled, 8);
    http_ask(fd, 200, DOUBLE, "Inference-Header-Content-Length: 0\r\n", values, 0);
    expect_floats(doubled, 0);
    http_ask(fd, 400, DOUBLE, "Inference-Header-Content-Length: 0\r\n", values, 31);
    http_ask(fd, 400, "/v2/models/sum/infer", "Inference-Header-Content-Length: 0\r\n", values, 32);
    http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: 0\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n10\r\n");
    http_send(fd, values, 16);
    http_say(fd, "\r\n10\r\n");
    http_send(fd, values + 4, 16);
    http_say(fd, "\r\n0\r\n\r\n");
    http_forget(&http_last);
    assert_true(http_read(fd, false, &http_last));
    assert_int_equal(http_last.code, 200);
    expect_floats(doubled, 8);
    close(fd);
}

/* So many that they are received where they lie, and sent from there. */
static void test_large_binary(void **state)
{
    int fd = http_connect(fake_http_port), rows = 100000;
    size_t n, bytes = (size_t)rows * 16;
    char *text, header[80];
    float *values = malloc(bytes);

    (void)state;
    for (int i = 0; i < 4 * rows; i++)
        values[i] = (float)i;
    http_double_text(rows, true, &text, &n);
    text = realloc(text, n + bytes);
    memcpy(text + n, values, bytes);
    snprintf(header, sizeof header, "Inference-Header-Content-Length: %zu\r\n", n);
    for (int i = 0; i < 3; i++) {
        http_ask(fd, 200, DOUBLE, header, text, n + bytes);
        assert_non_null(strstr(http_last.body, "\"data\":[0.0,2.0,4.0,"));
    }
    for (int i = 0; i < 4 * rows; i++)
        values[i] *= 2;
    http_ask(fd, 200, DOUBLE, "Inference-Header-Content-Length: 0\r\n", text + n, bytes);
    expect_floats(values, 4 * rows);
    free(values);
    free(text);
    close(fd);
}

static void test_large_json(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    for (int rows = 1; rows < 40000; rows *= 3)
        http_double(fd, rows);
    close(fd);
}

/* ---- what is refused ---------------------------------------------------------------------------------------- */

static const struct refusal {
    int code;
    const char *model, *body, *says;
} refusals[] = {
    {404, "none", ROW, "none"},
    {504, "EDEADLINE", ROW, "EDEADLINE"},
    {503, "EPEER", ROW, "EPEER"},
    {400, "double", "", "failed to parse the request JSON: the body is empty"},
    {400, "double", "{", "failed to parse"},
    {400, "double", "[]", "not an object"},
    {400, "double", "{}", "\"inputs\""},
    {400, "double", "{\"inputs\":{}}", "\"inputs\""},
    {400, "double", "{\"inputs\":[1]}", "not an object"},
    {400, "double", "{\"inputs\":[]}", "has 1 input\"}"},
    {400, "double", "{\"inputs\":[{\"data\":[]}]}", "\"name\""},
    {400, "double", "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"data\":[1,2,3,4]}]}",
     "\"datatype\""},
    {400, "double", "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"data\":[1,2,3,4]}]}",
     "\"shape\""},
    {400, "double", "{\"inputs\":[{" X "}]}", "has no data; it takes one of"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":1}]}", "fewer elements"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[]}]}", "fewer elements"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[\"x\"]}]}",
     "element 0 of \"data\" is a string, no number of FP32"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[[\"one long string\"]]}]}",
     "element 0 of \"data\" is a string"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":\"abc\"}]}", "is a string"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[{}]}]}", "is an object"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":null}]}", "is null"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[1,2,3,true]}]}",
     "element 3 of \"data\" is true"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[1,2,3]}]}", "elements"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[1,2,3,4,5]}]}", "more than"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[1,2,3,\"4\"]}]}", "element 3"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[1,2,3,4]},{" X ",\"data\":[1,2,3,4]}]}",
     "twice"},
    {400, "double",
     "{\"inputs\":[{" X ",\"data\":[1,2,3,4],\"parameters\":{\"binary_data_size\":16}}]}",
     "has its data twice"},
    {400, "double", "{\"inputs\":[{" X ",\"parameters\":{\"binary_data_size\":16}}]}",
     "the header line Inference-Header-Content-Length"},
    {400, "double",
     "{\"inputs\":[{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1]}]}",
     "no input \"z\""},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT32\",\"shape\":[1,4],\"data\":[1]}]}",
     "INT32"},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"BYTES\",\"shape\":[1,4],\"data\":[\"a\"]}]}",
     "BYTES"},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[4],\"data\":[1]}]}",
     "dimensions"},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,4],\"data\":[1]}]}", "-1"},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,5],\"data\":[1]}]}", "5"},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[4611686018427387904,4],"
     "\"data\":[1]}]}",
     ""},
    {400, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1e2,4],\"data\":[1]}]}",
     "whole"},
    {413, "double",
     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[50000000,4],\"parameters\":"
     "{\"binary_data_"
     "size\":800000000}}]}",
     "slab"},
    {400, "double", "{\"inputs\":[{" X ",\"parameters\":{\"binary_data_size\":16}}]}",
     "ends 16 bytes before"},
    {400, "double", "{\"inputs\":[{" X ",\"parameters\":{\"binary_data_size\":12}}]}", "need 16"},
    {400, "double", "{\"inputs\":[{" X ",\"parameters\":{\"binary_data_size\":-1}}]}",
     "whole number"},
    {400, "double", "{\"inputs\":[{" X ",\"parameters\":{\"shared_memory_region\":\"r\"}}]}",
     "byte_size"},
    {400, "double",
     "{\"inputs\":[{" X
     ",\"parameters\":{\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":16}}]}",
     "Unable to find shared memory region"},
    {400, "double", "{\"id\":1,\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}", "\"id\""},
    {400, "double", "{\"outputs\":{},\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}", "\"outputs\""},
    {400, "double", "{\"outputs\":[{\"name\":\"z\"}],\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}",
     "no output \"z\""},
    {400, "double",
     "{\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}],\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}",
     "twice"},
    {400, "double", "{\"parameters\":1,\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}", "\"parameters\""},
    {400, "double", "{\"parameters\":{\"priority\":-1},\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}",
     "priority"},
    {400, "double",
     "{\"parameters\":{\"sequence_id\":1.5},\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}",
     "whole number"},
    {400, "double", "{\"parameters\":{\"sequence_id\":-1},\"inputs\":[{" X ",\"data\":[1,2,3,4]}]}",
     "from 0 on"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[3e38,2,3,4]}]}", "NaN or infinity"},
    {400, "double", "{\"inputs\":[{" X ",\"data\":[1,2,3,4]}],\"inputs\":[]}", "duplicate"},
};

static void test_refusals(void **state)
{
    int fd = http_connect(fake_http_port);
    char path[64];

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(refusals); i++) {
        snprintf(path, sizeof path, "/v2/models/%s/infer", refusals[i].model);
        http_ask_text(fd, refusals[i].code, path, refusals[i].body);
        if (!strstr(http_last.body, "{\"error\":") ||
            (!strstr(http_last.body, refusals[i].says) && !strchr(refusals[i].says, '"')))
            fail_msg("%s: %s", refusals[i].body, http_last.body);
    }
    http_ask_text(fd, 200, DOUBLE, ROW);
    http_ask(fd, 400, DOUBLE, "Inference-Header-Content-Length: 75\r\n", ROW, sizeof ROW - 1);
    http_ask(fd, 400, DOUBLE, "Inference-Header-Content-Length: -1\r\n", ROW, sizeof ROW - 1);
    http_ask(fd, 400, DOUBLE, "Inference-Header-Content-Length: 74\r\n", ROW "more",
             sizeof ROW + 3);
    assert_non_null(strstr(http_last.body, "4 bytes longer"));
    http_ask_text(fd, 200, DOUBLE, ROW);
    close(fd);
}

/* Refused on a thread while more of the body comes than is held: the rest is thrown away, and the connection goes on. */
static void test_refused_beside(void **state)
{
    int fd = http_connect(fake_http_port), rows = 3000;
    char *text, header[80], *body = calloc(1, 900000);
    size_t n;

    (void)state;
    http_double_text(rows, false, &text, &n);
    text[n - 5] = 'x'; /* within the numbers */
    memcpy(body, text, n);
    snprintf(header, sizeof header, "Inference-Header-Content-Length: %zu\r\n", n);
    for (int i = 0; i < 5; i++)
        http_ask(fd, 400, DOUBLE, header, body, 900000);
    free(text);
    free(body);
    http_ask_text(fd, 200, DOUBLE, ROW);
    close(fd);
}

/* ---- shared memory ---------------------------------------------------------------------------------------------- */

static void test_shared_memory(void **state)
{
    char key[64], body[600];
    int fd = http_connect(fake_http_port);

    (void)state;
    snprintf(key, sizeof key, "/test_http_%d", (int)getpid());
    int memory = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_int_equal(ftruncate(memory, 8192), 0);
    float *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    snprintf(body, sizeof body, "{\"key\":\"%s\",\"offset\":0,\"byte_size\":8192}", key);
    http_ask_text(fd, 200, "/v2/systemsharedmemory/region/r/register", body);
    http_ask_text(fd, 400, "/v2/systemsharedmemory/region/r/register", body);
    for (int i = 0; i < 4; i++) { /* at multiples of 64, where they lie; at others, copied */
        int from = i % 2 ? 100 : 128, to = i / 2 ? 4100 : 4096;

        for (int v = 0; v < 8; v++)
            at[from / 4 + v] = (float)(v + i);
        snprintf(body, sizeof body,
                 "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2,4],"
                 "\"parameters\":{\"shared_memory_"
                 "region\":\"r\",\"shared_memory_offset\":%d,\"shared_memory_byte_size\":32}}],"
                 "\"outputs\":[{\"name\":"
                 "\"y\",\"parameters\":{\"shared_memory_region\":\"r\",\"shared_memory_offset\":%d,"
                 "\"shared_memory_byte_size\":32}}]}",
                 from, to);
        http_ask_text(fd, 200, DOUBLE, body);
        assert_non_null(
            strstr(http_last.body, "\"shape\":[2,4]}]")); /* neither data nor parameters */
        for (int v = 0; v < 8; v++)
            assert_true(at[to / 4 + v] == 2 * (float)(v + i));
    }
    http_say(fd, "GET /v2/systemsharedmemory/region/r/status HTTP/1.1\r\nHost: h\r\n\r\n");
    http_expect(fd, 200);
    http_say(fd, "GET /v2/systemsharedmemory/region/s/status HTTP/1.1\r\nHost: h\r\n\r\n");
    http_expect(fd, 404);
    http_ask_text(fd, 200, "/v2/systemsharedmemory/unregister", "");
    http_ask_text(fd, 400, DOUBLE, body);
    munmap(at, 8192);
    close(memory);
    shm_unlink(key);
    close(fd);
}

/* ---- classes ------------------------------------------------------------------------------------------------------ */

static void test_classes(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    http_ask_text(fd, 200, DOUBLE,
                  "{\"inputs\":[{" X
                  ",\"data\":[1,4,2,3]}],\"outputs\":[{\"name\":\"y\",\"parameters\":{"
                  "\"classification\":2}}]}");
    assert_non_null(
        strstr(http_last.body,
               "\"datatype\":\"BYTES\",\"shape\":[1,2],\"data\":[\"8.000000:1\",\"6.000000:3\"]"));
    http_ask_text(fd, 200, DOUBLE,
                  "{\"inputs\":[{" X
                  ",\"data\":[1,4,2,3]}],\"outputs\":[{\"name\":\"y\",\"parameters\":{"
                  "\"classification\":1,\"binary_data\":true}}]}");
    assert_string_equal(http_value("content-type"), "application/octet-stream");
    assert_memory_equal(http_last.body + http_last.bytes - 14,
                        "\x0a\0\0\0"
                        "8.000000:1",
                        14);
    close(fd);
}

/* ---- clients that go --------------------------------------------------------------------------------------------- */

static void wait_for_held(int n)
{
    for (int i = 0; i < 2000 && fake_core_n_held != n; i++)
        usleep(1000);
    assert_int_equal(fake_core_n_held, n);
}

/* A connection whose request is held. */
static int ask_held(const char *version)
{
    int fd = http_connect(fake_http_port);

    http_say(fd, "POST /v2/models/held/infer HTTP/%s\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
             version, sizeof ROW - 1, ROW);
    wait_for_held(1);
    return fd;
}

static void test_gone_while_running(void **state)
{
    int fds[8];

    (void)state;
    for (int i = 0; i < 8; i++) {
        fds[i] = http_connect(fake_http_port);
        http_post(fds[i], "/v2/models/held/infer", "", ROW, sizeof ROW - 1);
    }
    wait_for_held(8);
    for (int i = 0; i < 8; i++) {
        close(fds[i]);
        wait_for_held(7 - i);
    }
}

/* HT4: of HTTP/1.0 too, which knows no "100 Continue". */
static void test_gone_over_1_0(void **state)
{
    int fd = ask_held("1.0");

    (void)state;
    close(fd);
    wait_for_held(0);
}

/* HT4: the beginning of its answer comes at once, and only once. */
static void test_half_closed_over_1_0_begins(void **state)
{
    int fd = http_connect(fake_http_port);
    char begin[9];

    (void)state;
    http_say(fd,
             "POST /v2/models/held/infer HTTP/1.0\r\nConnection: keep-alive\r\n"
             "Content-Length: %zu\r\n\r\n%sGET /v2/none HTTP/1.0\r\n\r\n",
             sizeof ROW - 1, ROW);
    wait_for_held(1);
    shutdown(fd, SHUT_WR);
    assert_int_equal(recv(fd, begin, sizeof begin, MSG_PEEK | MSG_WAITALL), sizeof begin);
    assert_memory_equal(begin, "HTTP/1.1 ", sizeof begin);
    fake_core_keeps_held(1);
    fake_core_call(fake_core_answer_held, NULL);
    http_expect(fd, 200);
    http_expect(fd, 404);
    assert_true(http_is_closed(fd));
    close(fd);
}

/* HT4: a client that only sends no more is answered. */
static void test_half_closed_while_running(void **state)
{
    static const char *const versions[] = {"1.1", "1.0"};

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(versions); i++) {
        int fd = ask_held(versions[i]);

        shutdown(fd, SHUT_WR);
        fake_core_keeps_held(1);
        fake_core_call(fake_core_answer_held, NULL);
        http_expect(fd, 200);
        assert_true(http_is_closed(fd));
        close(fd);
    }
}

/* The same behind more pipelined bytes than are held: its end is seen while it is not read. */
static void test_half_closed_behind_more(void **state)
{
    static const char live[] = "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n";
    int fd = ask_held("1.1"), n = 4000;

    (void)state;
    for (int i = 0; i < n; i++)
        http_send(fd, live, sizeof live - 1);
    shutdown(fd, SHUT_WR);
    fake_core_keeps_held(1);
    fake_core_call(fake_core_answer_held, NULL);
    for (int i = 0; i < n + 1; i++)
        http_expect(fd, 200);
    assert_true(http_is_closed(fd));
    close(fd);
}

static void test_half_closed_then_reset(void **state)
{
    static const struct linger reset = {1, 0};
    int fd = ask_held("1.0");

    (void)state;
    shutdown(fd, SHUT_WR);
    fake_core_call(NULL, NULL);
    assert_int_equal(fake_core_n_held, 1);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    wait_for_held(0);
}

/* More is pipelined behind a request than is held, so the connection is not read; then it is reset. */
static void test_reset_while_not_read(void **state)
{
    static const struct linger reset = {1, 0};
    static char more[256 << 10];
    int fd = http_connect(fake_http_port);

    (void)state;
    http_post(fd, "/v2/models/held/infer", "", ROW, sizeof ROW - 1);
    wait_for_held(1);
    while (send(fd, more, sizeof more, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    fake_core_call(NULL, NULL);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    wait_for_held(0);
}

/* Bodies cut at every place, with the thread at work or not. */
static void test_gone_in_each_phase(void **state)
{
    char *text, header[80];
    size_t n, json;

    (void)state;
    for (int binary = 0; binary < 2; binary++) {
        http_double_text(20000, binary, &text, &n);
        json = n;
        if (binary) {
            n += 320000;
            text = realloc(text, n);
            memset(text + json, 0, n - json);
        }
        snprintf(header, sizeof header, "Inference-Header-Content-Length: %zu\r\n", json);
        for (size_t cut = 1; cut <= n; cut += 1 + n / 40) {
            int fd = http_connect(fake_http_port);

            http_say(fd, "POST " DOUBLE " HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n%s\r\n", n,
                     header);
            http_send(fd, text, cut);
            usleep(cut % 7 * 300);
            close(fd);
        }
        for (int i = 0; i < 60; i++) { /* whole: it goes while it is parsed, runs, is answered */
            int fd = http_connect(fake_http_port);

            http_post(fd, DOUBLE, header, text, n);
            usleep((useconds_t)i * 200);
            close(fd);
        }
        free(text);
    }
    int fd = http_connect(fake_http_port);
    http_double(fd, 10);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_large_binary),
        cmocka_unit_test(test_large_json),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_beside),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_gone_while_running),
        cmocka_unit_test(test_gone_over_1_0),
        cmocka_unit_test(test_half_closed_over_1_0_begins),
        cmocka_unit_test(test_half_closed_while_running),
        cmocka_unit_test(test_half_closed_behind_more),
        cmocka_unit_test(test_half_closed_then_reset),
        cmocka_unit_test(test_reset_while_not_read),
        cmocka_unit_test(test_gone_in_each_phase),
    };

    return cmocka_run_group_tests(tests, fake_http_start, fake_http_finish);
}

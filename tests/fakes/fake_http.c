#include "tests/fakes/fake_http.h"

#include <setjmp.h>
#include <stdarg.h>

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/base/text_builder.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/http/http_protocol.h"
#include "runtime/front/request/front_stats.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/shared_regions.h"
#include "tests/fakes/fake_core.h"

int fake_http_port, fake_http_tight_port;
static struct sy_front *front;
static struct sy_http_server *servers[2];

static void start_server(int i, const struct sy_http_config *config, int *port)
{
    assert_int_equal(sy_http_server_create(config, front, &servers[i]), SY_OK);
    assert_int_equal(sy_http_protocol_add(servers[i], front), SY_OK);
    *port = sy_http_server_port(servers[i]);
}

int fake_http_start(void **state)
{
    const struct sy_http_config usual = {.address = "127.0.0.1:0"},
                                tight = {.address = "127.0.0.1:0",
                                         .limits = {.header_bytes = TIGHT_HEADER_BYTES,
                                                    .body_bytes = TIGHT_BODY_BYTES,
                                                    .buffered_bytes = TIGHT_BUFFERED,
                                                    .small_bytes = TIGHT_SMALL_BYTES,
                                                    .json_depth = TIGHT_JSON_DEPTH,
                                                    .max_connections = TIGHT_CONNECTIONS,
                                                    .idle_ns = 2 * TIGHT_NS,
                                                    .header_ns = TIGHT_NS,
                                                    .stall_ns = TIGHT_NS}};

    (void)state;
    front = fake_core_open();
    front->least_bytes_per_s = FAKE_LEAST_RATE;
    assert_int_equal(sy_front_stats_create(&front->stats), SY_OK);
    assert_int_equal(sy_offload_create(front->base, 1, 64, &front->offload), SY_OK);
    assert_int_equal(sy_shared_regions_create(front, &front->regions), SY_OK);
    start_server(0, &usual, &fake_http_port);
    start_server(1, &tight, &fake_http_tight_port);
    fake_core_run();
    return 0;
}

static void count_connections(void *ctx)
{
    int *n = ctx;

    for (int i = 0; i < 2; i++)
        n[i] = sy_http_server_connections(servers[i]);
}

int fake_http_tight_connections(void)
{
    int n[2];

    fake_core_call(count_connections, n);
    return n[1];
}

void fake_http_tight_look(void)
{
    servers[1]->base.looks.was_late = false; /* however busy the machine was until now */
    event_active(servers[1]->base.tick, EV_TIMEOUT, 0);
}

/* Clients that have just closed are seen. */
static void wait_no_connection(void)
{
    int n[2] = {1, 1};

    for (int i = 0; i < 6000 && n[0] + n[1] > 0; i++) {
        fake_core_call(count_connections, n);
        usleep(10000);
    }
}

int fake_http_finish(void **state)
{
    (void)state;
    wait_no_connection();
    fake_core_stop();
    sy_offload_destroy(front->offload);
    front->offload = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sy_http_server_connections(servers[i]), 0);
        assert_int_equal(servers[i]->buffered_bytes, 0);
        assert_int_equal(servers[i]->base.refs, 1);
        sy_http_server_destroy(servers[i]);
    }
    http_forget(&http_last);
    sy_shared_regions_destroy(front->regions);
    sy_front_stats_destroy(front->stats);
    fake_core_close();
    return 0;
}

/* ---- a client ------------------------------------------------------------------------------------------- */

int http_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {60, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return fd;
}

/* A server that has refused may close while we send: then the answer says why. */
void http_send(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        at += (size_t)sent;
    }
}

void http_say(int fd, const char *format, ...)
{
    char *text;
    va_list list;

    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    assert_true(n >= 0);
    http_send(fd, text, (size_t)n);
    free(text);
}

/* How many bytes of what waits are header lines; 0: the end of them is not there. */
static size_t head_length(const char *bytes, size_t n)
{
    const char *end = memmem(bytes, n, "\r\n\r\n", 4);

    return end ? (size_t)(end - bytes) + 4 : 0;
}

/* Takes what has come of the header lines and leaves the body; never waits with bytes untaken, which would keep the window shut. */
static bool read_head(int fd, struct http_answer *out)
{
    size_t n = 0, length = 0;

    while (length == 0) {
        size_t room = sizeof(out->head) - 1 - n;
        ssize_t part = recv(fd, out->head + n, room, MSG_PEEK);

        if (part <= 0 && n == 0)
            return false;
        if (part <= 0)
            fail_msg("an answer ends within its header lines: \"%.*s\"", (int)n, out->head);
        length = head_length(out->head, n + (size_t)part);
        assert_true(length > 0 || (size_t)part < room);
        size_t mine = length > 0 ? length - n : (size_t)part;
        if (recv(fd, out->head + n, mine, MSG_WAITALL) != (ssize_t)mine)
            return false;
        n += mine;
    }
    out->head[length] = '\0';
    return true;
}

const char *http_header(const struct http_answer *answer, const char *name)
{
    static char value[512];
    size_t n = strlen(name);

    for (const char *line = strstr(answer->head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 4, "\r"), line + n + 4);
            return value;
        }
    return NULL;
}

static void read_bytes(int fd, struct http_answer *out, size_t n)
{
    out->body = realloc(out->body, out->bytes + n + 1);
    for (size_t at = 0; at < n;) {
        ssize_t part = recv(fd, out->body + out->bytes + at, n - at, 0);

        if (part <= 0)
            fail_msg("an answer ends after %zu of %zu bytes", at, n);
        at += (size_t)part;
    }
    out->bytes += n;
    out->body[out->bytes] = '\0';
}

bool http_read(int fd, bool is_head, struct http_answer *out)
{
    *out = (struct http_answer){0};
    do {
        if (!read_head(fd, out))
            return false;
        if (sscanf(out->head, "HTTP/1.1 %d ", &out->code) != 1)
            fail_msg("no answer: \"%s\"", out->head);
    } while (out->code == 100);
    const char *length = http_header(out, "content-length");
    assert_non_null(length);
    if (!is_head)
        read_bytes(fd, out, strtoull(length, NULL, 10));
    return true;
}

void http_forget(struct http_answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

bool http_is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

const char *http_expect(int fd, int code)
{
    static char why[1024];
    struct http_answer answer;

    if (!http_read(fd, false, &answer))
        fail_msg("closed without an answer; %d was expected", code);
    if (answer.code != code)
        fail_msg("%d was expected: %s%s", code, answer.head, answer.body);
    json_t *body = json_loadb(answer.body, answer.bytes, 0, NULL);
    const char *error = json_string_value(json_object_get(body, "error"));
    if (code >= 400)
        assert_non_null(error);
    snprintf(why, sizeof why, "%s", error ? error : "");
    json_decref(body);
    http_forget(&answer);
    return why;
}

const char *http_expect_of(int port, int code, const char *request, size_t n)
{
    int fd = http_connect(port);

    http_send(fd, request, n);
    const char *why = http_expect(fd, code);
    close(fd);
    return why;
}

void http_post(int fd, const char *path, const char *headers, const void *body, size_t n)
{
    http_say(fd, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n%s\r\n", path, n, headers);
    http_send(fd, body, n);
}

struct http_answer http_last;

void http_ask(int fd, int code, const char *path, const char *headers, const void *body, size_t n)
{
    http_forget(&http_last);
    http_post(fd, path, headers, body, n);
    assert_true(http_read(fd, false, &http_last));
    if (http_last.code != code)
        fail_msg("%d was expected: %s%.*s", code, http_last.head, (int)http_last.bytes,
                 http_last.body);
}

void http_ask_text(int fd, int code, const char *path, const char *body)
{
    http_ask(fd, code, path, "", body, strlen(body));
}

const char *http_value(const char *header)
{
    const char *value = http_header(&http_last, header);

    return value ? value : "";
}

/* ---- requests ---------------------------------------------------------------------------------------------- */

void http_double_text(int rows, bool binary, char **text, size_t *n)
{
    struct sy_text out = {0};
    char head[300];

    snprintf(head, sizeof head,
             "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[%d,4],", rows);
    sy_text_add_string(&out, head);
    if (binary) {
        snprintf(head, sizeof head, "\"parameters\":{\"binary_data_size\":%d}}]}", 16 * rows);
        sy_text_add_string(&out, head);
    } else {
        sy_text_add_string(&out, "\"data\":[");
        for (int i = 0; i < 4 * rows; i++) {
            if (i > 0)
                sy_text_add(&out, ",", 1);
            sy_text_add_int(&out, i);
        }
        sy_text_add_string(&out, "]}]}");
    }
    sy_text_add(&out, "", 1);
    *text = out.at;
    *n = out.used - 1;
}

static void check_doubled(const struct http_answer *answer, int rows)
{
    json_t *body = json_loadb(answer->body, answer->bytes, 0, NULL);
    const json_t *output = json_array_get(json_object_get(body, "outputs"), 0),
                 *data = json_object_get(output, "data");

    if (answer->code != 200)
        fail_msg("%s%s", answer->head, answer->body);
    assert_string_equal(json_string_value(json_object_get(output, "name")), "y");
    assert_int_equal(json_array_size(data), 4 * rows);
    for (int i = 0; i < 4 * rows; i++)
        assert_true(json_number_value(json_array_get(data, (size_t)i)) == 2.0 * i);
    json_decref(body);
}

void http_double(int fd, int rows)
{
    struct http_answer answer;
    char *text;
    size_t n;

    http_double_text(rows, false, &text, &n);
    http_post(fd, "/v2/models/double/infer", "", text, n);
    free(text);
    assert_true(http_read(fd, false, &answer));
    check_doubled(&answer, rows);
    http_forget(&answer);
}

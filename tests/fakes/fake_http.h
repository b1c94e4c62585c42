/* Two HTTP servers on the fake core (fake_core.h), and a client that sends bytes as they are given.
 *
 * The second server has limits so tight that tests reach them at once. */
#ifndef SY_TESTS_FAKES_FAKE_HTTP_H
#define SY_TESTS_FAKES_FAKE_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"

struct sy_front;

extern int fake_http_port, fake_http_tight_port;
#define TIGHT_HEADER_BYTES 2048
#define TIGHT_BODY_BYTES   (256u << 10)
#define TIGHT_BUFFERED     (128u << 10)
#define TIGHT_SMALL_BYTES  (32u << 10)
#define TIGHT_JSON_DEPTH   8
#define TIGHT_CONNECTIONS  8
#define TIGHT_NS           (60 * SY_NS_PER_S) /* each limit of time; tests skip it (skip_clock.h) */
#define FAKE_LEAST_RATE    20                 /* bytes a second of bodies and answers */

/* cmocka's setup and teardown: afterwards no connection, byte, tensor or model is held. */
int fake_http_start(void **state);
int fake_http_finish(void **state);
int fake_http_tight_connections(void);
/* Inside of fake_core_call: the tight server looks for stalled clients next, before it reads anything. */
void fake_http_tight_look(void);

/* ---- a client ---- */
int http_connect(int port); /* reads wait 60 s */
void http_send(int fd, const void *bytes, size_t n);
void http_say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct http_answer {
    int code;
    char head[4096]; /* status line and header lines */
    char *body;      /* chunks joined; with a 0 behind it */
    size_t bytes;
};
/* Waits for one answer; is_head: it has no body. False: the connection ended before one began. The body is freed by http_forget. */
bool http_read(int fd, bool is_head, struct http_answer *out);
void http_forget(struct http_answer *answer);
/* A header line's value, or NULL; valid until the next call. */
const char *http_header(const struct http_answer *answer, const char *name);
bool http_is_closed(int fd); /* nothing comes any more but the end; waits for it */

/* Sends nothing, waits for an answer of this code; returns its "error" text, or "" (valid until the next call). */
const char *http_expect(int fd, int code);
/* Of one request on a connection of its own. */
const char *http_expect_of(int port, int code, const char *request, size_t n);

/* "POST ... infer" with Content-Length. headers: lines, or "". */
void http_post(int fd, const char *path, const char *headers, const void *body, size_t n);
/* A POST whose answer must have this code; the answer is http_last until the next. */
extern struct http_answer http_last;
void http_ask(int fd, int code, const char *path, const char *headers, const void *body, size_t n);
void http_ask_text(int fd, int code, const char *path, const char *body);
const char *http_value(const char *header); /* of http_last; "" if it has none */
/* A request to "double" with this many rows, JSON in and out; checks the numbers. */
void http_double(int fd, int rows);
void http_double_text(int rows, bool binary, char **text, size_t *n);

#endif

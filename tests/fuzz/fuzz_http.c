/* The HTTP server's side of a connection: bytes arrive in pieces on a socket pair, a fake core answers from the event loop. Whatever came, what is answered
 * is HTTP, and nothing stays behind when the client is gone.
 *
 * input = [flags] bytes of the stream. Flags: 1..7: length of the pieces (0: all at once); 8: the client goes without reading; 16: the core refuses;
 * 32: long JSON goes to a thread; 64: in the end an hour passes. */
#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/http/http_protocol.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_front.h"

enum { FLAG_GOES = 8, FLAG_REFUSES = 16, FLAG_THREAD = 32, FLAG_LATE = 64 };

static struct sy_http_server *server;
static unsigned flags;

static void set_up(void)
{
    const struct sy_http_config config = {.address = "127.0.0.1:0",
                                          .limits = {.body_bytes = 1 << 20,
                                                     .small_bytes = 1 << 18,
                                                     .buffered_bytes = 1 << 20,
                                                     .json_depth = 16}};

    if (server)
        return;
    fuzz_front_open();
    FUZZ_CHECK(sy_http_server_create(&config, &fuzz_front.front, &server) == SY_OK);
    FUZZ_CHECK(sy_http_protocol_add(server, &fuzz_front.front) == SY_OK);
}

/* At exit, for the leak checker. */
__attribute__((destructor)) static void tear_down(void)
{
    if (!server)
        return;
    fuzz_front_stop_threads();
    sy_http_server_destroy(server);
    fuzz_front_close();
}

/* ---- the client ----------------------------------------------------------------------------------------------------- */

/* One answer after the other: a status line, a length; the last may belong to a HEAD, and have no body. */
static void check_answers(void)
{
    for (size_t at = 0; at < fuzz_answers.n;) {
        const char *answers = (const char *)fuzz_answers.bytes, *head = answers + at,
                   *end = memmem(head, fuzz_answers.n - at, "\r\n\r\n", 4),
                   *length = memmem(head, fuzz_answers.n - at, "\r\nContent-Length: ", 18);

        FUZZ_CHECK(end && memcmp(head, "HTTP/1.1 ", 9) == 0);
        at = (size_t)(end + 4 - answers);
        if (memcmp(head + 9, "100 ", 4) == 0)
            continue;
        FUZZ_CHECK(length && length < end);
        size_t bytes = strtoull(length + 18, NULL, 10);
        if (at + bytes > fuzz_answers.n || memcmp(answers + at, "HTTP/1.1 ", 9) == 0)
            continue; /* a HEAD's */
        at += bytes;
    }
}

/* As the server's timer does. */
static void pass_an_hour(void)
{
    struct sy_http_connection *next;

    for (struct sy_http_connection *c = LIST_FIRST(&server->connections); c; c = next) {
        next = LIST_NEXT(c, link);
        sy_http_connection_look(c, sy_clock_now() + 3600 * SY_NS_PER_S);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    struct fuzz_sending sending;

    if (size < 2)
        return 0;
    set_up();
    flags = data[0];
    sending = (struct fuzz_sending){flags & 7, flags & FLAG_GOES, flags & FLAG_THREAD, NULL};
    fuzz_front.refuses = flags & FLAG_REFUSES;
    fuzz_front.front.offload = flags & FLAG_THREAD ? fuzz_front.offload : NULL;
    fuzz_answers.n = 0;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    FUZZ_CHECK(sy_http_connection_create(server, fds[0]) == SY_OK);
    fuzz_front_send(fds[1], data + 1, size - 1, &sending);
    if (!(flags & FLAG_GOES)) {
        fuzz_front_settle(fds[1], flags & FLAG_THREAD);
        for (int i = 0; i < 2 && flags & FLAG_LATE;
             i++) { /* what lingers is closed the second time */
            pass_an_hour();
            fuzz_front_settle(fds[1], flags & FLAG_THREAD);
        }
        shutdown(fds[1], SHUT_WR);
        fuzz_front_settle(fds[1], flags & FLAG_THREAD);
        if (fuzz_answers.n < sizeof fuzz_answers.bytes)
            check_answers();
    }
    close(fds[1]);
    fuzz_front_settle(-1, flags & FLAG_THREAD);
    fuzz_front_wait_for_threads(&server->base);
    FUZZ_CHECK(sy_http_server_connections(server) == 0);
    FUZZ_CHECK(server->buffered_bytes == 0 && server->base.refs == 1 && fuzz_front.n_refs == 0);
    FUZZ_CHECK(sy_slab_used_bytes(fuzz_front.slab) == 0);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------------ */

#define POST "POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: "
#define K    "{\"name\":\"k\",\"datatype\":\"UINT8\",\"shape\":[3],\"data\":[1,2,3]}"
#define INFER                                                                                      \
    POST "129\r\n\r\n{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":" \
         "[1,2]}," K "]}"
#define LIVE "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"

#define X "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1,2]}," K
/* Requests with a body: headers, then the body, whose length is counted. */
static const struct {
    const char *headers, *body;
} posts[] = {
    {"Accept-Encoding: gzip\r\n",
     "{\"id\":\"i\",\"inputs\":[" X
     "],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}}]}"},
    {"",
     "{\"inputs\":[" X "],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":1}}]}"},
    {"", "{\"inputs\":[" X "],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":1,"
         "\"binary_data\":true}}]}"},
    {"", "{\"inputs\":[" X "],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"shared_memory_"
         "region\":\"r\",\"shared_memory_byte_size\":8}}]}"},
    {"", "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"parameters\":{"
         "\"shared_memory_region\":\"r\","
         "\"shared_memory_byte_size\":8,\"shared_memory_offset\":0}}," K "]}"},
    {"", "{\"inputs\":[" X "],\"parameters\":{\"binary_data_output\":true,\"tenant\":\"t\","
         "\"timeout\":9,\"priority\":1}}"},
    {"", "{\"inputs\":[" X "],\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}]}"},
    {"", "{\"inputs\":[" X "],\"outputs\":7,\"id\":7}"},
    {"", "{\"inputs\":[7]}"},
    {"", "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2,1,1,1,1,1,1,1]},{"
         "\"name\":\"x\",\"shape\":[\"a\"]}]}"},
    {"Inference-Header-Content-Length: 0\r\n", "01234567"},
    {"Inference-Header-Content-Length: 999\r\n", "{}"},
    {"Content-Encoding: identity\r\nAccept-Encoding: deflate;q=0.5, gzip;q=0\r\n",
     "{\"inputs\":[" X "]}"},
    {"Content-Encoding: br\r\n", "{}"},
    {"Expect: 200-maybe\r\n", "{}"},
    {"Content-Encoding: deflate\r\n", "\x78\x9c\xab\xae\x05"},
};

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        LIVE LIVE "GET /v2/models/m/versions/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        INFER INFER LIVE,
        POST "160\r\nInference-Header-Content-Length: "
             "152\r\n\r\n{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],"
             "\"parameters\":{\"binary_data_size\":8}}," K "]}01234567" LIVE,
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
        "chunked\r\n\r\n5;a=b\r\n{\"inp\r\n0\r\nX: y\r\n\r\n" LIVE,
        POST "5\r\nExpect: 100-continue\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00z",
        "HEAD /v2?a=%41&b HTTP/1.1\r\nHost: h\r\n\r\nDELETE /v2 HTTP/1.1\r\nHost: h\r\n\r\nGET "
        "http://h/v2/models/m/stats HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /v2/systemsharedmemory/region/r/register HTTP/1.1\r\nHost: h\r\nContent-Length: "
        "38\r\n\r\n{\"key\":\"/a\",\"offset\":0,\"byte_size\":64}",
        "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nContent-Length: "
        "14\r\n\r\n{\"ready\":true}POST "
        "/v2/repository/models/m/unload HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /v2/cudasharedmemory/status HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: "
        "close\r\n\r\n",
    };
    static const uint8_t flag_sets[] = {0, 1, 2, FLAG_GOES, FLAG_REFUSES, FLAG_THREAD};
    int n_seeds = (int)(sizeof seeds / sizeof *seeds), n_flags = (int)sizeof flag_sets;

    if (i >= n_seeds * n_flags && i < n_seeds * n_flags + (int)(sizeof posts / sizeof *posts)) {
        i -= n_seeds * n_flags;
        to[0] = 0;
        return 1 + (size_t)snprintf((char *)to + 1, room - 1, POST "%zu\r\n%s\r\n%s" LIVE,
                                    strlen(posts[i].body), posts[i].headers, posts[i].body);
    }
    if (i >= n_seeds * n_flags || room < 1)
        return 0;
    to[0] = flag_sets[i % n_flags];
    return 1 + fuzz_give(seeds[i / n_flags], strlen(seeds[i / n_flags]), to + 1, room - 1);
}

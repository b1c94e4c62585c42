/* The HTTP server's side of a connection: bytes arrive in pieces on a socket pair, a fake core answers from the event loop. Whatever came, what is answered
 * is HTTP, and nothing stays behind when the client is gone.
 *
 * input = [flags] bytes of the stream. Flags: 1..7: length of the pieces (0: all at once); 8: the client goes without reading; 16: the core refuses;
 * 32: long JSON goes to a thread; 64: in the end an hour passes. */
#include <event2/event.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "allocator/slab.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/http/http_protocol.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/shared_regions.h"
#include "tests/fuzz/fuzz.h"

enum { FLAG_GOES = 8, FLAG_REFUSES = 16, FLAG_THREAD = 32, FLAG_LATE = 64 };

static struct sy_slab *slab;
static struct sy_front front;
static struct sy_http_server *server;
static struct sy_offload *offload;
static unsigned flags;
static int n_pending, n_refs; /* answers that the core owes; models that are held */

/* ---- the fake core: models with two inputs and with one ------------------------------------------------------------ */

static int indices[3] = {0, 1, 2};
static struct sy_tensor tensors[3] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {2, 0}}}},
    {.name = "k", .dtype = SY_DTYPE_U8, .shape = {1, {{3, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {2, 0}}}},
};
static struct sy_graph graph = {.n_tensors = 3,
                                .tensors = tensors,
                                .n_inputs = 2,
                                .inputs = indices,
                                .n_outputs = 1,
                                .outputs = &indices[2]};
static struct sy_package package = {.name = "m", .graph = &graph, .usual = &graph};
static struct sy_core_model_ref model = {.package = &package, .name = "m", .version = 1};

static struct sy_graph single = {.n_tensors = 3,
                                 .tensors = tensors,
                                 .n_inputs = 1,
                                 .inputs = indices,
                                 .n_outputs = 1,
                                 .outputs = &indices[2]};
static struct sy_package single_package = {.name = "o", .graph = &single, .usual = &single};
static struct sy_core_model_ref single_model = {
    .package = &single_package, .name = "o", .version = 1};

struct pending {
    sy_core_infer_done done;
    void *ctx;
    uint64_t output;
    int64_t batch;
};

static void answer(evutil_socket_t fd, short what, void *ctx)
{
    struct pending *p = ctx;
    struct sy_request_report report = {.id = 1, .arrived_ns = 1, .finished_ns = 5, .attempts = 1};

    (void)fd, (void)what;
    n_pending--;
    memset(sy_slab_pointer(slab, p->output), 'y', (size_t)p->batch * 8);
    p->done(p->ctx, flags & FLAG_REFUSES ? SY_EBUSY : SY_OK, "busy", &report);
    free(p);
}

static struct sy_slab *fake_slab(void *core)
{
    (void)core;
    return slab;
}

static int fake_acquire(void *core, const char *name, int64_t version,
                        struct sy_core_model_ref **out)
{
    (void)core;
    if ((strcmp(name, "m") != 0 && strcmp(name, "o") != 0) || version > 1)
        return sy_error_set(SY_ENOTFOUND, "no model \"%s\"", name);
    *out = *name == 'm' ? &model : &single_model;
    n_refs++;
    return SY_OK;
}

static void fake_release(void *core, struct sy_core_model_ref *ref)
{
    (void)core;
    n_refs -= ref != NULL;
}

static int fake_infer(void *core, const struct sy_core_model_ref *ref, int64_t batch,
                      const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id)
{
    struct pending *p = malloc(sizeof *p);

    (void)core, (void)ref, (void)inputs, (void)options;
    FUZZ_CHECK(p);
    *p = (struct pending){.done = done, .ctx = ctx, .output = outputs[0], .batch = batch};
    *out_id = 1;
    n_pending++;
    FUZZ_CHECK(event_base_once(front.base, -1, EV_TIMEOUT, answer, p, &(struct timeval){0, 0}) ==
               0);
    return SY_OK;
}

static void fake_cancel(void *core, uint64_t id)
{
    (void)core, (void)id; /* runs on, as a request that has started does */
}

static int fake_status(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:[{s:s, s:i}]}", "models", "name", "m", "version", 1);
    return SY_OK;
}

static int fake_remove(void *core, const char *name, int64_t version)
{
    (void)core, (void)version;
    return sy_error_set(SY_ENOTFOUND, "no model \"%s\"", name);
}

static const struct sy_core_handlers fakes = {.slab = fake_slab,
                                              .model_acquire = fake_acquire,
                                              .model_release = fake_release,
                                              .model_remove = fake_remove,
                                              .infer = fake_infer,
                                              .infer_cancel = fake_cancel,
                                              .status = fake_status};

static void set_up(void)
{
    const struct sy_http_config config = {.address = "127.0.0.1:0",
                                          .limits = {.body_bytes = 1 << 20,
                                                     .small_bytes = 1 << 18,
                                                     .buffered_bytes = 1 << 20,
                                                     .json_depth = 16}};

    if (server)
        return;
    front = (struct sy_front){.base = event_base_new(), .handlers = &fakes, .is_ready = true};
    FUZZ_CHECK(front.base && sy_slab_create(16 << 20, &slab) == SY_OK);
    FUZZ_CHECK(sy_offload_create(front.base, 1, 16, &offload) == SY_OK);
    FUZZ_CHECK(sy_shared_regions_create(&front, &front.regions) == SY_OK);
    FUZZ_CHECK(sy_http_server_create(&config, &front, &server) == SY_OK);
    FUZZ_CHECK(sy_http_protocol_add(server, &front) == SY_OK);
}

/* At exit, for the leak checker. */
__attribute__((destructor)) static void tear_down(void)
{
    if (!server)
        return;
    sy_offload_destroy(offload);
    front.offload = NULL;
    sy_http_server_destroy(server);
    sy_shared_regions_destroy(front.regions);
    sy_slab_destroy(slab);
    event_base_free(front.base);
}

/* ---- the client ----------------------------------------------------------------------------------------------------- */

static char answers[4 << 20];
static size_t answers_bytes;

static void read_answers(int fd)
{
    ssize_t n;

    while (answers_bytes < sizeof answers &&
           (n = recv(fd, answers + answers_bytes, sizeof answers - answers_bytes, MSG_DONTWAIT)) >
               0)
        answers_bytes += (size_t)n;
}

/* Runs the loop until neither the server, nor a thread, nor the core has anything to do. */
static void settle(int fd)
{
    for (int idle = 0; idle < 2;) {
        int before = n_pending;
        size_t had = answers_bytes;

        event_base_loop(front.base, EVLOOP_NONBLOCK);
        if (flags & FLAG_THREAD)
            sched_yield();
        if (fd >= 0)
            read_answers(fd);
        idle = n_pending == 0 && before == 0 && answers_bytes == had ? idle + 1 : 0;
    }
}

/* One answer after the other: a status line, a length; the last may belong to a HEAD, and have no body. */
static void check_answers(void)
{
    for (size_t at = 0; at < answers_bytes;) {
        const char *head = answers + at, *end = memmem(head, answers_bytes - at, "\r\n\r\n", 4),
                   *length = memmem(head, answers_bytes - at, "\r\nContent-Length: ", 18);

        FUZZ_CHECK(end && memcmp(head, "HTTP/1.1 ", 9) == 0);
        at = (size_t)(end + 4 - answers);
        if (memcmp(head + 9, "100 ", 4) == 0)
            continue;
        FUZZ_CHECK(length && length < end);
        size_t bytes = strtoull(length + 18, NULL, 10);
        if (at + bytes > answers_bytes || memcmp(answers + at, "HTTP/1.1 ", 9) == 0)
            continue; /* a HEAD's */
        at += bytes;
    }
}

/* As the server's timer does. */
static void pass_an_hour(void)
{
    struct sy_http_connection *next;

    for (struct sy_http_connection *c = server->connections; c; c = next) {
        next = c->next;
        sy_http_connection_look(c, sy_clock_now() + 3600 * SY_NS_PER_S);
    }
}

static void send_in_pieces(int fd, const uint8_t *data, size_t size)
{
    size_t piece = flags & 7 ? (size_t)1 << (flags & 7) : size;

    for (size_t at = 0; at < size;) {
        size_t n = size - at < piece ? size - at : piece;
        ssize_t sent = send(fd, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent <= 0) /* the server has closed, or reads no more */
            break;
        at += (size_t)sent;
        if (flags & FLAG_GOES)
            event_base_loop(front.base, EVLOOP_NONBLOCK);
        else
            settle(fd);
        piece *= 2; /* small pieces first: a long input must not take a thousand rounds */
    }
}

/* A thread may still have a request whose client is gone. */
static void wait_for_threads(void)
{
    for (int i = 0; i < 10000 && (server->refs > 1 || n_pending > 0); i++) {
        event_base_loop(front.base, EVLOOP_NONBLOCK);
        usleep(i < 10 ? 0 : 100);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];

    if (size < 2)
        return 0;
    set_up();
    flags = data[0];
    front.offload = flags & FLAG_THREAD ? offload : NULL;
    answers_bytes = 0;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    FUZZ_CHECK(sy_http_connection_create(server, fds[0]) == SY_OK);
    send_in_pieces(fds[1], data + 1, size - 1);
    if (!(flags & FLAG_GOES)) {
        settle(fds[1]);
        for (int i = 0; i < 2 && flags & FLAG_LATE;
             i++) { /* what lingers is closed the second time */
            pass_an_hour();
            settle(fds[1]);
        }
        shutdown(fds[1], SHUT_WR);
        settle(fds[1]);
        if (answers_bytes < sizeof answers)
            check_answers();
    }
    close(fds[1]);
    settle(-1);
    wait_for_threads();
    FUZZ_CHECK(sy_http_server_connections(server) == 0);
    FUZZ_CHECK(server->buffered_bytes == 0 && server->refs == 1 && n_refs == 0);
    FUZZ_CHECK(sy_slab_used_bytes(slab) == 0);
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

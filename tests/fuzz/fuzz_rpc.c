/* The RPC server's side of a connection: bytes arrive in pieces on a socket pair, a fake core answers from the event loop. Whatever
 * came, what is answered is msgpack-RPC, and nothing stays behind when the client is gone.
 *
 * input = [flags] bytes of the stream. Flags: 1..7: length of the pieces (0: all at once); 8: the client goes without reading; 16: the
 * core answers at once instead of from the loop; 32: the core refuses; 64: two requests at a time, 8 KiB of unfinished ones; 128: as over TCP. */
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "allocator/slab.h"
#include "loader/graph/graph_bind.h"
#include "loader/graph/size_expr.h"
#include "runtime/base/assert.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "tests/fuzz/fuzz.h"

enum { FLAG_GOES = 8, FLAG_AT_ONCE = 16, FLAG_REFUSES = 32, FLAG_TWO = 64, FLAG_REMOTE = 128 };

static struct event_base *base;
static struct sy_slab *slab;
static struct sy_rpc_server *server;
static unsigned flags;
static int n_pending; /* answers that the core owes */

/* ---- the fake core: a model with two inputs, one with an open size and one without a batch, and one output ---------------------------------- */

static int indices[3] = {0, 1, 2};
static struct sy_tensor tensors[3] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {2, 0}}}},
    {.name = "k", .dtype = SY_DTYPE_U8, .shape = {1, {{3, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 2}, {2, 0}}}},
};
static struct sy_graph graph = {.n_tensors = 3,
                                .tensors = tensors,
                                .n_inputs = 2,
                                .inputs = indices,
                                .n_outputs = 1,
                                .outputs = &indices[2]};
static struct sy_symbol length = {.name = "L", .usual = 2};
static struct sy_package package = {.name = "m", .graph = &graph};

/* x is [N, L] from now on. */
static void open_length(void)
{
    struct sy_sizes sizes = {{2}};
    graph.n_symbols = 1;
    graph.symbols = &length;
    FUZZ_CHECK(sy_size_symbol("L", &tensors[0].shape.dims[1]) == SY_OK);
    FUZZ_CHECK(sy_graph_bind(&graph, &sizes, &package.usual) == SY_OK);
}

struct pending {
    sy_core_infer_done infer_done;
    sy_core_done done;
    void (*drained)(void *ctx);
    void *ctx;
    uint64_t output;
    int64_t batch;
    bool is_shared; /* the output is no slab memory */
};

static void answer(evutil_socket_t fd, short what, void *ctx)
{
    struct pending *p = ctx;
    struct sy_request_report report = {.id = 1, .arrived_ns = 1, .finished_ns = 5, .attempts = 1};
    (void)fd, (void)what;
    n_pending--;
    int status = flags & FLAG_REFUSES ? SY_EBUSY : SY_OK;
    if (p->infer_done) {
        if (!p->is_shared)
            memset(sy_slab_pointer(slab, p->output), 'y', (size_t)p->batch * 16);
        p->infer_done(p->ctx, status, "busy", &report);
    } else if (p->done) {
        p->done(p->ctx, status, "busy");
    } else {
        p->drained(p->ctx);
    }
    free(p);
}

static int owe(struct pending with)
{
    struct pending *p = malloc(sizeof *p);
    FUZZ_CHECK(p);
    *p = with;
    n_pending++;
    FUZZ_CHECK(event_base_once(base, -1, EV_TIMEOUT, answer, p, &(struct timeval){0, 0}) == 0);
    return SY_OK;
}

static struct sy_slab *fake_slab(void *core)
{
    (void)core;
    return slab;
}

static struct sy_core_model_ref model = {.package = &package, .name = "m", .version = 1};
static int n_model_refs;

static int fake_acquire(void *core, const char *name, int64_t version,
                        struct sy_core_model_ref **out)
{
    (void)core;
    if (strcmp(name, "m") != 0 || version > 1)
        return sy_error_set(SY_ENOTFOUND, "no model \"%s\"", name);
    n_model_refs++;
    *out = &model;
    return SY_OK;
}

static void fake_release(void *core, struct sy_core_model_ref *ref)
{
    (void)core;
    n_model_refs -= ref != NULL;
}

static uint64_t region_bytes[64]; /* of region i + 1; 0: none */
static int n_regions;

static int fake_region_add(void *core, int fd, uint64_t offset, uint64_t bytes, bool is_sealed,
                           uint64_t *out)
{
    (void)core;
    FUZZ_CHECK(fcntl(fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    FUZZ_CHECK(offset == 0 && bytes > 0 && is_sealed);
    for (uint64_t i = 0; i < SY_ARRAY_LEN(region_bytes); i++)
        if (region_bytes[i] == 0) {
            region_bytes[i] = bytes;
            n_regions++;
            *out = i + 1;
            return SY_OK;
        }
    return sy_error_set(SY_EBUSY, "no more regions");
}

static void fake_region_drop(void *core, uint64_t region)
{
    (void)core;
    FUZZ_CHECK(region_bytes[region - 1] > 0);
    region_bytes[region - 1] = 0;
    n_regions--;
}

/* True: in a region, and wholly. False: in the slab. */
static bool check_place(uint64_t at, uint64_t bytes)
{
    uint64_t region = at >> SY_CORE_REGION_SHIFT, offset = at - sy_core_tensor_at(region, 0);
    if (region == 0)
        return false;
    FUZZ_CHECK(region <= SY_ARRAY_LEN(region_bytes) && offset % 64 == 0);
    FUZZ_CHECK(offset < region_bytes[region - 1] && bytes <= region_bytes[region - 1] - offset);
    return true;
}

static int fake_infer(void *core, const struct sy_core_model_ref *ref, int64_t batch,
                      const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id)
{
    static uint64_t id;
    (void)core;
    FUZZ_CHECK(ref == &model && batch > 0);
    check_place(inputs[0], (uint64_t)batch * (uint64_t)options->sizes->of[0] * 4);
    check_place(inputs[1], 3);
    if (flags & FLAG_AT_ONCE && flags & FLAG_REFUSES)
        return sy_error_set(SY_EBUSY, "the queue is full");
    *out_id = ++id;
    return owe((struct pending){.infer_done = done,
                                .ctx = ctx,
                                .output = outputs[0],
                                .batch = batch,
                                .is_shared = check_place(outputs[0], (uint64_t)batch * 16)});
}

static void fake_cancel(void *core, uint64_t id)
{
    (void)core, (void)id; /* runs on, as a request that has started does */
}

static int fake_later(sy_core_done done, void *ctx)
{
    if (!(flags & FLAG_AT_ONCE))
        return owe((struct pending){.done = done, .ctx = ctx});
    return sy_error_set(SY_EARG, "refused at once");
}

static int fake_model_add(void *core, const char *path, const struct sy_core_model_options *options,
                          sy_core_done done, void *ctx)
{
    (void)core, (void)path, (void)options;
    return fake_later(done, ctx);
}

static int fake_model_remove(void *core, const char *name, int64_t version)
{
    struct sy_core_model_ref *found;
    SY_TRY(fake_acquire(core, name, version, &found));
    fake_release(core, found);
    return SY_OK;
}

static int fake_model_evict(void *core, const char *name, bool image_too)
{
    (void)image_too;
    return fake_model_remove(core, name, 0);
}

static int fake_job_submit(void *core, const char *text, sy_core_done done, void *ctx,
                           uint64_t *out_job)
{
    (void)core, (void)text;
    *out_job = 3;
    return fake_later(done, ctx);
}

static int fake_job_stop(void *core, uint64_t job, bool evaluate, sy_core_done done, void *ctx)
{
    (void)core, (void)job, (void)evaluate;
    return fake_later(done, ctx);
}

static int fake_status(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:[{s:s},{s:s}]}", "models", "name", "m", "name", "loading");
    return SY_OK;
}

static void fake_trace_enable(void *core, bool enable)
{
    (void)core, (void)enable;
}

static int fake_trace_dump(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("[{s:f}]", "ts", 0.5);
    return SY_OK;
}

static int fake_drain(void *core, sy_ns grace_ns, void (*done)(void *ctx), void *ctx)
{
    (void)core, (void)grace_ns;
    owe((struct pending){.drained = done, .ctx = ctx});
    return SY_OK;
}

/* What changes nothing here. */
static int fake_job_suspend(void *core, uint64_t job, bool suspended)
{
    (void)core, (void)suspended;
    return job < 3 ? SY_OK : sy_error_set(SY_ENOTFOUND, "no job %llu", (unsigned long long)job);
}

static int fake_job_park(void *core, uint64_t job, sy_core_done done, void *ctx)
{
    (void)core, (void)job;
    return fake_later(done, ctx);
}

static int fake_job_tenant(void *core, uint64_t job, const char **out)
{
    (void)job;
    *out = "t";
    return fake_job_suspend(core, job, true);
}

static int fake_job_parked(void *core, uint64_t job, struct sy_core_parked *out)
{
    (void)core, (void)out;
    return sy_error_set(SY_EBUSY, "job %llu is not parked", (unsigned long long)job);
}

static int fake_job_receive(void *core, const struct sy_core_parked *parked, uint64_t *out_job)
{
    (void)core, (void)parked;
    *out_job = 1;
    return SY_OK;
}

static int fake_job_set_priority(void *core, uint64_t job, int priority)
{
    (void)priority;
    return fake_job_suspend(core, job, true);
}

static int fake_set(void *core, json_t *params)
{
    (void)core;
    return json_object_size(params) ? SY_OK : sy_error_set(SY_EARG, "nothing to set");
}

static int fake_status_part(void *core, const struct sy_core_status_part *part, json_t **out)
{
    (void)part;
    return fake_status(core, out);
}

static const struct sy_core_handlers fakes = {.slab = fake_slab,
                                              .model_acquire = fake_acquire,
                                              .model_release = fake_release,
                                              .region_add = fake_region_add,
                                              .region_drop = fake_region_drop,
                                              .infer = fake_infer,
                                              .infer_cancel = fake_cancel,
                                              .model_add = fake_model_add,
                                              .model_remove = fake_model_remove,
                                              .model_evict = fake_model_evict,
                                              .job_submit = fake_job_submit,
                                              .job_stop = fake_job_stop,
                                              .job_suspend = fake_job_suspend,
                                              .job_park = fake_job_park,
                                              .job_tenant = fake_job_tenant,
                                              .job_parked = fake_job_parked,
                                              .job_receive = fake_job_receive,
                                              .job_set_priority = fake_job_set_priority,
                                              .policy_set = fake_set,
                                              .tenant_set = fake_set,
                                              .slices_set = fake_set,
                                              .status = fake_status,
                                              .status_part = fake_status_part,
                                              .trace_enable = fake_trace_enable,
                                              .trace_dump = fake_trace_dump,
                                              .drain = fake_drain};
static struct sy_front front = {.handlers = &fakes};

static void set_up(void)
{
    const struct sy_rpc_config config = {.limits = {.message_bytes = 1 << 20,
                                                    .buffered_bytes = 4 << 20,
                                                    .unsent_bytes = 1 << 20,
                                                    .region_bytes = 1 << 20,
                                                    .max_regions = 8}};
    if (server)
        return;
    base = event_base_new();
    FUZZ_CHECK(base && sy_slab_create(16 << 20, &slab) == SY_OK);
    open_length();
    front.base = base;
    FUZZ_CHECK(sy_rpc_server_create(&config, &front, &server) == SY_OK);
}

/* At exit, for the leak checker. */
__attribute__((destructor)) static void tear_down(void)
{
    if (!server)
        return;
    sy_rpc_server_destroy(server);
    sy_slab_destroy(slab);
    sy_graph_free(package.usual);
    event_base_free(base);
}

/* ---- the client ----------------------------------------------------------------------------------------------------- */

static uint8_t answers[1 << 20];
static size_t answers_bytes;

static void read_answers(int fd)
{
    ssize_t n;
    while (answers_bytes < sizeof answers &&
           (n = recv(fd, answers + answers_bytes, sizeof answers - answers_bytes, MSG_DONTWAIT)) >
               0)
        answers_bytes += (size_t)n;
}

/* Runs the loop until neither the server nor the core has anything to do. */
static void settle(int fd)
{
    for (int idle = 0; idle < 2;) {
        int before = n_pending;
        size_t had = answers_bytes;
        event_base_loop(base, EVLOOP_NONBLOCK);
        if (fd >= 0)
            read_answers(fd);
        idle = n_pending == 0 && before == 0 && answers_bytes == had ? idle + 1 : 0;
    }
}

/* [1, id, error, result]: nothing but UTF-8 in an error, which a strict client decodes as JSON. */
static void check_answer(const uint8_t *bytes, size_t n)
{
    msgpack_unpacked unpacked;
    size_t at = 0;
    json_t *error = NULL;
    msgpack_unpacked_init(&unpacked);
    FUZZ_CHECK(msgpack_unpack_next(&unpacked, (const char *)bytes, n, &at) ==
               MSGPACK_UNPACK_SUCCESS);
    const msgpack_object *fields = unpacked.data.via.array.ptr;
    FUZZ_CHECK(unpacked.data.type == MSGPACK_OBJECT_ARRAY && unpacked.data.via.array.size == 4);
    FUZZ_CHECK(sy_json_from_msgpack(&fields[2], &error) == SY_OK);
    FUZZ_CHECK(json_is_null(error) || json_string_length(json_object_get(error, "message")) > 0);
    json_decref(error);
    msgpack_unpacked_destroy(&unpacked);
}

/* Whole values, one after the other. */
static void check_answers(void)
{
    for (size_t at = 0; at < answers_bytes;) {
        struct sy_msgpack_scan scan;
        sy_msgpack_scan_init(&scan, sizeof answers, SY_RPC_MAX_ELEMENTS);
        FUZZ_CHECK(sy_msgpack_scan(&scan, answers + at, answers_bytes - at) == 1);
        FUZZ_CHECK(answers[at] == 0x94 && answers[at + 1] == 1);
        check_answer(answers + at, scan.at);
        at += scan.at;
    }
}

/* What the server's timer asks: not for closing, but a clock that is far ahead finds each client that owes something. */
static void look(void)
{
    for (struct sy_rpc_connection *c = server->connections; c; c = c->next)
        (void)sy_rpc_connection_stalled(c, sy_clock_now() + 3600 * SY_NS_PER_S);
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
            event_base_loop(base, EVLOOP_NONBLOCK);
        else
            settle(fd);
        look();
        piece *= 2; /* small pieces first: a long input must not take a thousand rounds */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    if (size < 2)
        return 0;
    set_up();
    flags = data[0];
    answers_bytes = 0;
    server->limits.max_outstanding = flags & FLAG_TWO ? 2 : 64;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    FUZZ_CHECK(sy_rpc_connection_create(server, fds[0], !(flags & FLAG_REMOTE)) == SY_OK);
    server->limits.buffered_bytes = flags & FLAG_TWO ? 8 << 10 : 4 << 20;
    send_in_pieces(fds[1], data + 1, size - 1);
    if (!(flags & FLAG_GOES)) {
        settle(fds[1]);
        shutdown(fds[1], SHUT_WR);
        settle(fds[1]);
        if (answers_bytes < sizeof answers)
            check_answers();
    }
    close(fds[1]);
    settle(-1);
    FUZZ_CHECK(sy_rpc_server_connections(server) == 0);
    FUZZ_CHECK(server->buffered_bytes == 0 && server->base.refs == 1);
    FUZZ_CHECK(sy_slab_used_bytes(slab) == 0);
    FUZZ_CHECK(n_regions == 0 && server->region_bytes == 0 && n_model_refs == 0);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------------ */

#define INFER                                                   \
    "\x94\x00\x05\xa5infer\x91\x82\xa5model\xa1m\xa6inputs\x92" \
    "\x84\xa4name\xa1x\xa5"                                     \
    "dtype\xa4"                                                 \
    "FP32\xa5shape\x92\x01\x02\xa4"                             \
    "data\xc4\x08"                                              \
    "01234567\x84\xa4name\xa1k\xa5"                             \
    "dtype\xa5UINT8\xa5shape\x91\x03\xa4"                       \
    "data\xc4\x03"                                              \
    "abc"
#define REGION                                  \
    "\x94\x00\x01\xadregion_create\x91\x81\xa5" \
    "bytes\xcd\x10\x00"
#define SHARED                                                  \
    "\x94\x00\x05\xa5infer\x91\x83\xa5model\xa1m\xa6inputs\x92" \
    "\x86\xa4name\xa1x\xa5"                                     \
    "dtype\xa4"                                                 \
    "FP32\xa5shape\x92\x01\x02\xa6region\x01\xa6"               \
    "offset\x00\xa5"                                            \
    "bytes\x08\x84\xa4name\xa1k\xa5"                            \
    "dtype\xa5UINT8\xa5shape\x91\x03\xa4"                       \
    "data\xc4\x03"                                              \
    "abc\xa7outputs\x91\x84\xa4name\xa1y\xa6region\x01\xa6"     \
    "offset\x40\xa5"                                            \
    "bytes\x10"
#define DROP   "\x94\x00\x06\xabregion_drop\x91\x81\xa6region\x01"
#define NOTIFY "\x93\x02\xa4ping\x90"
#define SEED(text)            \
    {                         \
        text, sizeof text - 1 \
    }

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const struct {
        const char *bytes;
        size_t n;
    } seeds[] = {
        SEED("\x94\x00\x01\xa4ping\x90"),
        SEED("\x94\x00\x01\xa6status\x91\x80\x94\x00\x02\xa6models\x90"),
        SEED(INFER),
        SEED(INFER INFER INFER NOTIFY INFER INFER),
        SEED(REGION SHARED DROP),
        SEED(REGION REGION SHARED INFER SHARED DROP SHARED),
        SEED("\x94\x00\x01\xaamodel_load\x91\x82\xa4path\xa4/a/b\xa4name\xa1n"),
        SEED("\x94\x00\x01\xacmodel_unload\x91\x81\xa5model\xa1m"),
        SEED("\x94\x00\x01\xa5"
             "evict\x91\x82\xa5model\xa1m\xa5image\xc3"),
        SEED("\x94\x00\x01\xa5train\x91\x81\xa4text\xa2{}"),
        SEED("\x94\x00\xcd\x01\x00\xaatrain_stop\x91\x82\xa3job\x03\xa8"
             "evaluate\xc2"),
        SEED("\x94\x00\x01\xa5trace\x91\x81\xa6"
             "enable\xc3\x94\x00\x02\xa5trace\x90"),
        SEED("\x94\x00\x01\xa5"
             "drain\x90" NOTIFY),
        SEED("\x94\x00\x01\xa3\xff\xfe\x80\x90"), /* no UTF-8 */
        SEED("\x93\x02\xa5"
             "drain\x90\x94\x00\x01\xa5other\x91\x83\xa1"
             "a\xcb\x3f\xe0\0\0\0\0\0\0\xa1"
             "b\x92\xc0\xd0\x80\xa1"
             "c\xd9\x03xyz"),
    };
    static const uint8_t flag_sets[] = {
        0, 1, 2 | FLAG_TWO, FLAG_GOES, FLAG_AT_ONCE, FLAG_REFUSES, FLAG_REMOTE};
    int n_seeds = (int)(sizeof seeds / sizeof *seeds), n_flags = (int)sizeof flag_sets;
    if (i >= n_seeds * n_flags || room < 1)
        return 0;
    to[0] = flag_sets[i % n_flags];
    return 1 + fuzz_give(seeds[i / n_flags].bytes, seeds[i / n_flags].n, to + 1, room - 1);
}

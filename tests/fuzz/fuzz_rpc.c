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

#include "loader/graph/graph_bind.h"
#include "loader/graph/size_expr.h"
#include "runtime/base/assert.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_front.h"

enum { FLAG_GOES = 8, FLAG_AT_ONCE = 16, FLAG_REFUSES = 32, FLAG_TWO = 64, FLAG_REMOTE = 128 };

static struct sy_rpc_server *server;
static unsigned flags;

/* ---- the model: two inputs, one with an open size and one without a batch, and one output -------------------------------------------------------- */

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
static struct sy_core_model_ref model = {.package = &package, .name = "m", .version = 1};

/* x is [N, L] from now on. */
static void open_length(void)
{
    struct sy_sizes sizes = {{2}};
    graph.n_symbols = 1;
    graph.symbols = &length;
    FUZZ_CHECK(sy_size_symbol("L", &tensors[0].shape.dims[1]) == SY_OK);
    FUZZ_CHECK(sy_graph_bind(&graph, &sizes, &package.usual) == SY_OK);
}

/* ---- the fake core ------------------------------------------------------------------------------------------------ */

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

static int check_infer(int64_t batch, const struct sy_sizes *sizes, const uint64_t *inputs,
                       const uint64_t *outputs, bool *in_slab)
{
    FUZZ_CHECK(batch > 0);
    check_place(inputs[0], (uint64_t)batch * (uint64_t)sizes->of[0] * 4);
    check_place(inputs[1], 3);
    *in_slab = !check_place(outputs[0], (uint64_t)batch * 16);
    return flags & FLAG_AT_ONCE && flags & FLAG_REFUSES
               ? sy_error_set(SY_EBUSY, "the queue is full")
               : SY_OK;
}

static int fake_later(sy_core_done done, void *ctx)
{
    if (!(flags & FLAG_AT_ONCE))
        return fuzz_front_owe((struct fuzz_owed){.done = done, .ctx = ctx});
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
    SY_TRY(fuzz_front.handlers.model_acquire(core, name, version, &found));
    fuzz_front.handlers.model_release(core, found);
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
    return fuzz_front_owe((struct fuzz_owed){.drained = done, .ctx = ctx});
}

/* What changes nothing here. */
static int fake_job_suspend(void *core, uint64_t job, bool suspended)
{
    (void)core, (void)suspended;
    return job < 3 ? SY_OK : sy_error_set(SY_ENOTFOUND, "no job %llu", (unsigned long long)job);
}

static int fake_job_resume_paused(void *core, uint64_t job)
{
    return fake_job_suspend(core, job, false);
}

static int fake_job_folder(void *core, uint64_t job, char **out)
{
    *out = NULL;
    SY_TRY(fake_job_suspend(core, job, false));
    *out = strdup("/nowhere/moved/x-000000");
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a path");
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

static const struct sy_core_handlers fakes = {.region_add = fake_region_add,
                                              .region_drop = fake_region_drop,
                                              .model_add = fake_model_add,
                                              .model_remove = fake_model_remove,
                                              .model_evict = fake_model_evict,
                                              .job_submit = fake_job_submit,
                                              .job_stop = fake_job_stop,
                                              .job_suspend = fake_job_suspend,
                                              .job_resume_paused = fake_job_resume_paused,
                                              .job_folder = fake_job_folder,
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

static void set_up(void)
{
    const struct sy_rpc_config config = {.limits = {.message_bytes = 1 << 20,
                                                    .buffered_bytes = 4 << 20,
                                                    .unsent_bytes = 1 << 20,
                                                    .region_bytes = 1 << 20,
                                                    .max_regions = 8}};
    if (server)
        return;
    open_length();
    fuzz_front.m = &model;
    fuzz_front.handlers = fakes;
    fuzz_front.check = check_infer;
    fuzz_front_open();
    FUZZ_CHECK(sy_rpc_server_create(&config, &fuzz_front.front, &server) == SY_OK);
}

/* At exit, for the leak checker. */
__attribute__((destructor)) static void tear_down(void)
{
    if (!server)
        return;
    fuzz_front_stop_threads();
    sy_rpc_server_destroy(server);
    fuzz_front_close();
    sy_graph_free(package.usual);
}

/* ---- the client ----------------------------------------------------------------------------------------------------- */

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
    for (size_t at = 0; at < fuzz_answers.n;) {
        struct sy_msgpack_scan scan;
        sy_msgpack_scan_init(&scan, sizeof fuzz_answers.bytes, SY_RPC_MAX_ELEMENTS);
        FUZZ_CHECK(sy_msgpack_scan(&scan, fuzz_answers.bytes + at, fuzz_answers.n - at) == 1);
        FUZZ_CHECK(fuzz_answers.bytes[at] == 0x94 && fuzz_answers.bytes[at + 1] == 1);
        check_answer(fuzz_answers.bytes + at, scan.at);
        at += scan.at;
    }
}

/* What the server's timer asks: not for closing, but a clock that is far ahead finds each client that owes something. */
static void look_for_stalled(void)
{
    struct sy_rpc_connection *c;
    LIST_FOREACH (c, &server->connections, link)
        (void)sy_rpc_connection_stalled(c, sy_clock_now() + 3600 * SY_NS_PER_S);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    struct fuzz_sending sending;
    if (size < 2)
        return 0;
    set_up();
    flags = data[0];
    sending = (struct fuzz_sending){flags & 7, flags & FLAG_GOES, false, look_for_stalled};
    fuzz_front.refuses = flags & FLAG_REFUSES;
    fuzz_answers.n = 0;
    server->limits.max_outstanding = flags & FLAG_TWO ? 2 : 64;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    FUZZ_CHECK(sy_rpc_connection_create(server, fds[0], !(flags & FLAG_REMOTE)) == SY_OK);
    server->limits.buffered_bytes = flags & FLAG_TWO ? 8 << 10 : 4 << 20;
    fuzz_front_send(fds[1], data + 1, size - 1, &sending);
    if (!(flags & FLAG_GOES)) {
        fuzz_front_settle(fds[1], false);
        shutdown(fds[1], SHUT_WR);
        fuzz_front_settle(fds[1], false);
        if (fuzz_answers.n < sizeof fuzz_answers.bytes)
            check_answers();
    }
    close(fds[1]);
    fuzz_front_settle(-1, false);
    FUZZ_CHECK(sy_rpc_server_connections(server) == 0);
    FUZZ_CHECK(server->buffered_bytes == 0 && server->base.refs == 1);
    FUZZ_CHECK(sy_slab_used_bytes(fuzz_front.slab) == 0);
    FUZZ_CHECK(n_regions == 0 && server->region_bytes == 0 && fuzz_front.n_refs == 0);
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

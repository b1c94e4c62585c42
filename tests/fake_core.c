#include "tests/fake_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/shared_memory.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_server.h"
#include "runtime/front/offload.h"
#include "runtime/front/rpc/rpc_server.h"

/* ---- the core ------------------------------------------------------------------------------------------------ */

static struct sy_slab *slab;
static int tensor_index[2] = {0, 1};
static struct sy_tensor tensors[2] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
};
#define ONE_IN_ONE_OUT(of)                                                                      \
    .n_tensors = 2, .tensors = (of), .n_inputs = 1, .inputs = &tensor_index[0], .n_outputs = 1, \
    .outputs = &tensor_index[1]
static struct sy_graph graph = {ONE_IN_ONE_OUT(tensors)};
static struct sy_package package = {.name = "double", .graph = &graph, .usual = &graph};
static struct sy_node cut_node = {.op = SY_OP_AT_RUN, .n_outputs = 1, .outputs = &tensor_index[1]};
static struct sy_graph cut_graph = {ONE_IN_ONE_OUT(tensors), .n_nodes = 1, .nodes = &cut_node};
static struct sy_package cut_package = {.name = "cut", .graph = &cut_graph, .usual = &cut_graph};
static struct sy_tensor wide_tensors[2] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4096, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4096, 0}}}},
};
static struct sy_graph wide_graph = {ONE_IN_ONE_OUT(wide_tensors)};
static struct sy_package wide_package = {
    .name = "wide", .graph = &wide_graph, .usual = &wide_graph};
static struct event_base *base;
static _Atomic int n_running;
_Atomic int fake_core_n_held;
char fake_core_path[100], fake_core_tcp[40];

struct job {
    uint64_t id;
    struct job *next; /* of those that are held */
    bool is_cut;
    uint64_t input, output;
    int64_t batch, row; /* row: numbers a row */
    sy_core_infer_done done;
    void *ctx;
};

static struct sy_slab *fake_slab(void *core)
{
    (void)core;
    return slab;
}

/* ---- regions ------------------------------------------------------------------------------------------------- */

static struct region {
    struct sy_shared_memory memory;
    int refs;                      /* the front end's, each running job's tensors' */
} regions[FAKE_CORE_MOST_REGIONS]; /* region i + 1 */
_Atomic int fake_core_n_regions;

static int fake_region_add(void *core, int fd, uint64_t offset, uint64_t bytes, bool is_sealed,
                           uint64_t *out)
{
    (void)core, (void)offset, (void)is_sealed;
    for (int i = 0; i < FAKE_CORE_MOST_REGIONS; i++) {
        if (regions[i].refs > 0)
            continue;
        SY_TRY(sy_shared_memory_map(&regions[i].memory, dup(fd), bytes, true));
        regions[i].refs = 1;
        fake_core_n_regions++;
        *out = (uint64_t)i + 1;
        return SY_OK;
    }
    return sy_error_set(SY_EBUSY, "%d regions", FAKE_CORE_MOST_REGIONS);
}

static void region_release(uint64_t id)
{
    if (id == 0 || --regions[id - 1].refs > 0)
        return;
    sy_shared_memory_finish(&regions[id - 1].memory);
    fake_core_n_regions--;
}

static void fake_region_drop(void *core, uint64_t id)
{
    (void)core;
    region_release(id);
}

static uint64_t region_of(uint64_t at)
{
    return at >> SY_CORE_REGION_SHIFT;
}

static void hold_tensor(uint64_t at)
{
    if (region_of(at) > 0)
        regions[region_of(at) - 1].refs++;
}

static void *tensor(uint64_t at)
{
    uint64_t id = region_of(at);

    return id == 0
               ? sy_slab_pointer(slab, at)
               : (char *)regions[id - 1].memory.base + (at & ((1ull << SY_CORE_REGION_SHIFT) - 1));
}

#define MODEL(of, called)                               \
    {                                                   \
        .package = (of), .name = (called), .version = 1 \
    }
static struct sy_core_model_ref models[] = {
    MODEL(&package, "double"),    MODEL(&package, "held"),    MODEL(&package, "EPEER"),
    MODEL(&package, "EDEADLINE"), MODEL(&cut_package, "cut"), MODEL(&wide_package, "wide"),
};
static int n_model_refs; /* all are given back */

static int fake_acquire(void *core, const char *name, int64_t version,
                        struct sy_core_model_ref **out)
{
    (void)core;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0 && (version == 0 || version == 1)) {
            *out = &models[i];
            n_model_refs++;
            return SY_OK;
        }
    return sy_error_set(SY_ENOTFOUND, "no model \"%s\"; there is double", name);
}

static void fake_release(void *core, struct sy_core_model_ref *ref)
{
    (void)core;
    n_model_refs -= ref != NULL;
}

static void fake_finish(evutil_socket_t fd, short what, void *ctx)
{
    struct job *job = ctx;
    struct sy_request_report report = {
        .id = 1, .arrived_ns = 1000, .started_ns = 2000, .finished_ns = 9000, .attempts = 1};
    const float *x = tensor(job->input);
    float *y = tensor(job->output);

    (void)fd, (void)what;
    for (int64_t i = 0; i < job->row * job->batch; i++)
        y[i] = 2 * x[i];
    if (job->is_cut)
        memcpy(y + 4 * job->batch, ((const int64_t[]){2, (int64_t)x[0], 4}), 24);
    n_running--;
    region_release(region_of(job->input));
    region_release(region_of(job->output));
    job->done(job->ctx, SY_OK, NULL, &report);
    free(job);
}

static struct job *held; /* that only canceling ends; the server's thread's */

static int fake_infer(void *core, const struct sy_core_model_ref *ref, int64_t batch,
                      const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id)
{
    const char *model = ref->name;
    (void)options;
    struct timeval delay = {0, 1000};
    struct job *job = malloc(sizeof(*job));
    static uint64_t id;

    (void)core;
    bool holds = strcmp(model, "held") == 0 || strcmp(model, "wide") == 0;
    if (strcmp(model, "double") != 0 && strcmp(model, "cut") != 0 &&
        !holds) { /* it is an error's name */
        free(job);
        return sy_error_set(model[1] == 'P' ? SY_EPEER : SY_EDEADLINE, "ended: %s", model);
    }
    *job = (struct job){++id,
                        holds ? held : NULL,
                        *model == 'c',
                        inputs[0],
                        outputs[0],
                        batch,
                        ref->package->graph->tensors[0].shape.dims[1].fixed,
                        done,
                        ctx};
    hold_tensor(inputs[0]);
    hold_tensor(outputs[0]);
    *out_id = id;
    n_running++;
    fake_core_n_held += holds;
    if (holds) {
        held = job;
        return SY_OK;
    }
    return event_base_once(base, -1, EV_TIMEOUT, fake_finish, job, &delay);
}

static void fake_cancel(void *core, uint64_t id)
{
    struct timeval at_once = {0, 0};

    (void)core; /* the others run on, as a request that has started does */
    for (struct job **at = &held; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct job *job = *at;

            *at = job->next;
            fake_core_n_held--;
            event_base_once(base, -1, EV_TIMEOUT, fake_finish, job, &at_once);
            return;
        }
}

static int fake_status(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:[{s:s}]}", "models", "name", "double");
    return SY_OK;
}

static const struct sy_core_handlers fakes = {.slab = fake_slab,
                                              .model_acquire = fake_acquire,
                                              .model_release = fake_release,
                                              .infer = fake_infer,
                                              .infer_cancel = fake_cancel,
                                              .region_add = fake_region_add,
                                              .region_drop = fake_region_drop,
                                              .status = fake_status};
static struct sy_front front;

/* ---- the server's thread ------------------------------------------------------------------------------------- */

static pthread_t loop;
static int stop_pipe[2];
static struct sy_rpc_server *server;
static struct sy_grpc_server *grpc_server;
int fake_core_grpc_port;

static void on_stop(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what, (void)ctx;
    event_base_loopbreak(base);
}

static void *run_loop(void *ctx)
{
    struct event *stop = event_new(base, stop_pipe[0], EV_READ, on_stop, NULL);

    event_add(stop, NULL);
    event_base_dispatch(base);
    while (n_running > 0)
        event_base_loop(base, EVLOOP_ONCE);
    event_free(stop);
    return ctx;
}

static void start_grpc(void)
{
    struct sy_grpc_config config = {.address = ":0",
                                    .limits = {.message_bytes = 4 << 20,
                                               .buffered_bytes = 8 << 20,
                                               .max_connections = FAKE_CORE_MOST_CLIENTS,
                                               .max_streams = 16,
                                               .max_outstanding = 4,
                                               .pings_per_s = 200,
                                               .header_ns = SY_NS_PER_S,
                                               .stall_ns = SY_NS_PER_S}};

    front.is_ready = true;
    assert_int_equal(sy_offload_create(base, 1, 16, &front.offload), SY_OK);
    assert_int_equal(sy_grpc_server_create(&config, &front, &grpc_server), SY_OK);
    fake_core_grpc_port = sy_grpc_server_port(grpc_server);
}

int fake_core_start(void **state)
{
    struct sy_rpc_config config = {.socket_path = fake_core_path,
                                   .tcp_address = ":0",
                                   .limits = {.stall_ns = 2 * SY_NS_PER_S,
                                              .message_bytes = 1 << 20,
                                              .max_connections = FAKE_CORE_MOST_CLIENTS,
                                              .region_bytes = 8 << 20,
                                              .all_region_bytes = 20 << 20,
                                              .max_regions = 4}};

    (void)state;
    snprintf(fake_core_path, sizeof(fake_core_path), "/tmp/test_rpc_%d.sock", (int)getpid());
    assert_int_equal(pipe(stop_pipe), 0);
    assert_int_equal(sy_slab_create(64 << 20, &slab), SY_OK);
    base = event_base_new();
    front = (struct sy_front){.base = base, .handlers = &fakes};
    assert_int_equal(sy_rpc_server_create(&config, &front, &server), SY_OK);
    snprintf(fake_core_tcp, sizeof(fake_core_tcp), "tcp:127.0.0.1:%d", sy_rpc_server_port(server));
    start_grpc();
    return pthread_create(&loop, NULL, run_loop, NULL);
}

int fake_core_finish(void **state)
{
    (void)state;
    assert_int_equal(write(stop_pipe[1], "x", 1), 1);
    pthread_join(loop, NULL);
    sy_rpc_server_destroy(server);
    sy_offload_destroy(front.offload);
    sy_grpc_server_destroy(grpc_server);
    while (n_running > 0) /* what their clients had canceled */
        event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(n_model_refs, 0);
    assert_int_equal(fake_core_n_regions, 0);
    assert_int_equal(sy_slab_used_bytes(slab), 0); /* nothing is lost, whatever the clients did */
    assert_int_not_equal(access(fake_core_path, F_OK), 0);
    event_base_free(base);
    sy_slab_destroy(slab);
    return 0;
}

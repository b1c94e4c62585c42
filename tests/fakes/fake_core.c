#include "tests/fakes/fake_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/shared_memory.h"
#include "allocator/slab.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front.h"

/* ---- the core ------------------------------------------------------------------------------------------------ */

static struct sy_slab *slab;
static int tensor_index[3] = {0, 1, 2};
static struct sy_tensor tensors[2] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
};
#define ONE_IN_ONE_OUT(of)                                                                      \
    .n_tensors = 2, .tensors = (of), .n_inputs = 1, .inputs = &tensor_index[0], .n_outputs = 1, \
    .outputs = &tensor_index[1]
static struct sy_graph graph = {ONE_IN_ONE_OUT(tensors)};
static struct sy_package package = {.name = "double", .graph = &graph, .usual = &graph};
static struct sy_node cut_node = {.op = SY_OP_DYNAMIC, .n_outputs = 1, .outputs = &tensor_index[1]};
static struct sy_graph cut_graph = {ONE_IN_ONE_OUT(tensors), .n_nodes = 1, .nodes = &cut_node};
static struct sy_package cut_package = {.name = "cut", .graph = &cut_graph, .usual = &cut_graph};
static struct sy_tensor wide_tensors[2] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4096, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4096, 0}}}},
};
static struct sy_graph wide_graph = {ONE_IN_ONE_OUT(wide_tensors)};
static struct sy_package wide_package = {
    .name = "wide", .graph = &wide_graph, .usual = &wide_graph};
static struct sy_tensor sum_tensors[3] = {
    {.name = "a", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
    {.name = "b", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {2, {{0, 1}, {4, 0}}}},
};
static struct sy_graph sum_graph = {.n_tensors = 3,
                                    .tensors = sum_tensors,
                                    .n_inputs = 2,
                                    .inputs = &tensor_index[0],
                                    .n_outputs = 1,
                                    .outputs = &tensor_index[2]};
static struct sy_package sum_package = {.name = "sum", .graph = &sum_graph, .usual = &sum_graph};
static struct event_base *base;
static _Atomic int n_running;
_Atomic int fake_core_n_held;

struct job {
    uint64_t id;
    struct job *next; /* of those that are held */
    bool is_cut;
    uint64_t input, second, output; /* second: UINT64_MAX if there is none */
    int64_t batch, row;             /* row: numbers a row */
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
    MODEL(&sum_package, "sum"),
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
    const float *x = tensor(job->input),
                *other = job->second == UINT64_MAX ? x : tensor(job->second);
    float *y = tensor(job->output);

    (void)fd, (void)what;
    for (int64_t i = 0; i < job->row * job->batch; i++)
        y[i] = x[i] + other[i];
    if (job->is_cut)
        memcpy(y + 4 * job->batch, ((const int64_t[]){2, (int64_t)x[0], 4}), 24);
    n_running--;
    region_release(region_of(job->input));
    if (job->second != UINT64_MAX)
        region_release(region_of(job->second));
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
    if (*model == 'E') { /* it is an error's name */
        free(job);
        return sy_error_set(model[1] == 'P' ? SY_EPEER : SY_EDEADLINE, "ended: %s", model);
    }
    *job = (struct job){.id = ++id,
                        .next = holds ? held : NULL,
                        .is_cut = *model == 'c',
                        .input = inputs[0],
                        .second = *model == 's' ? inputs[1] : UINT64_MAX,
                        .output = outputs[0],
                        .batch = batch,
                        .row = ref->package->graph->tensors[0].shape.dims[1].fixed,
                        .done = done,
                        .ctx = ctx};
    hold_tensor(inputs[0]);
    if (job->second != UINT64_MAX)
        hold_tensor(inputs[1]);
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

void fake_core_answer_held(void *unused)
{
    (void)unused;
    while (held)
        fake_cancel(NULL,
                    held->id); /* the fake's canceled requests have their answer all the same */
}

static int fake_status(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:[{s:s, s:i}]}", "models", "name", "double", "version", 1);
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
static int call_pipe[2];

struct call {
    void (*function)(void *ctx);
    void *ctx;
    bool ends;
    sem_t *done;
};

static void on_call(evutil_socket_t fd, short what, void *ctx)
{
    struct call call;

    (void)what, (void)ctx;
    if (read(fd, &call, sizeof call) != sizeof call)
        return;
    if (call.function)
        call.function(call.ctx);
    if (call.ends)
        event_base_loopbreak(base);
    else
        sem_post(call.done);
}

static void call_and_wait(void (*function)(void *ctx), void *ctx)
{
    sem_t done;
    const struct call call = {function, ctx, .done = &done};

    assert_int_equal(sem_init(&done, 0, 0), 0);
    assert_int_equal(write(call_pipe[1], &call, sizeof call), sizeof call);
    while (sem_wait(&done))
        assert_int_equal(errno, EINTR);
    sem_destroy(&done);
}

/* What was ready before the first call is handled in the same turn of the loop or an earlier one: before the second. */
void fake_core_call(void (*function)(void *ctx), void *ctx)
{
    call_and_wait(NULL, NULL);
    call_and_wait(function, ctx);
}

void fake_core_keeps_held(int n)
{
    for (int i = 0; i < 20; i++) {
        fake_core_call(NULL, NULL);
        usleep(5000);
    }
    assert_int_equal(fake_core_n_held, n);
}

static void *run_loop(void *ctx)
{
    struct event *calls = event_new(base, call_pipe[0], EV_READ | EV_PERSIST, on_call, NULL);

    event_add(calls, NULL);
    event_base_dispatch(base);
    while (n_running > 0)
        event_base_loop(base, EVLOOP_ONCE);
    event_free(calls);
    return ctx;
}

struct sy_front *fake_core_open(void)
{
    assert_int_equal(pipe(call_pipe), 0);
    assert_int_equal(sy_slab_create(64 << 20, &slab), SY_OK);
    base = event_base_new();
    front = (struct sy_front){.base = base, .handlers = &fakes, .is_ready = true};
    return &front;
}

void fake_core_run(void)
{
    assert_int_equal(pthread_create(&loop, NULL, run_loop, NULL), 0);
}

void fake_core_stop(void)
{
    const struct call end = {.ends = true};

    assert_int_equal(write(call_pipe[1], &end, sizeof end), sizeof end);
    pthread_join(loop, NULL);
    close(call_pipe[0]);
    close(call_pipe[1]);
}

uint64_t fake_core_slab_bytes(void)
{
    return sy_slab_used_bytes(slab);
}

void fake_core_close(void)
{
    while (n_running > 0) /* what was canceled when its server went */
        event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(n_model_refs, 0);
    assert_int_equal(fake_core_n_regions, 0);
    assert_int_equal(sy_slab_used_bytes(slab), 0); /* nothing is lost, whatever the clients did */
    event_base_free(base);
    sy_slab_destroy(slab);
}

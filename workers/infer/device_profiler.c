#include "workers/infer/device_profiler.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"

#define N_RUNS 5
#define WINDOW 64 /* events, and layers queued at once: far below what a stream holds */

struct rig {
    const struct sy_package *package;
    const struct sy_engine_ops *engine;
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *compute;
    struct sy_event *events[WINDOW + 1];
    bool attached;
    struct sy_program *programs[SY_PROFILE_BATCHES];
    unsigned char **layer_params;
    void **tensors[2]; /* inputs, outputs: of the larger batch, zero */
};

/* ---- memory ------------------------------------------------------------------------------------------- */

static void *at(const struct rig *r, uint64_t offset)
{
    sy_device_address address = sy_pool_address(r->pool, offset);
    void *host = sy_device_host_pointer(r->device, address);
    return r->engine->attach || !host ? (void *)(uintptr_t)address.value : host;
}

/* Zeroed: valid indices for a lookup, and no kernel's time depends on the values. */
static int take_tensors(const struct sy_graph *graph, const int *list, int n, int64_t batch,
                        void ***out)
{
    *out = calloc((size_t)n + 1, sizeof **out);
    for (int i = 0; *out && i < n; i++) {
        const struct sy_tensor *tensor = &graph->tensors[list[i]];
        (*out)[i] = calloc(sy_graph_tensor_room(graph, list[i], batch) + 1, 1);
        if (!(*out)[i])
            return sy_error_set(SY_ENOMEM_HOST, "no memory for tensor %s", tensor->name);
    }
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for %d tensors", n);
}

static void drop_tensors(void **tensors, int n)
{
    for (int i = 0; tensors && i < n; i++)
        free(tensors[i]);
    free(tensors);
}

static int64_t largest_batch(const struct sy_profile *profile)
{
    int64_t most = 1;
    for (int i = 0; i < SY_PROFILE_BATCHES; i++)
        most = SY_MAX(most, profile->batch[i]);
    return most;
}

static int make_programs(struct rig *r, const struct sy_profile *profile, uint64_t *workspace)
{
    const struct sy_package *package = r->package;
    *workspace = 0;
    for (int i = 0; i < SY_PROFILE_BATCHES; i++) {
        SY_TRY(r->engine->program_create(package->usual, package->layers, package->n_layers,
                                         profile->batch[i], &r->programs[i]));
        *workspace = SY_MAX(*workspace, r->engine->program_workspace_bytes(r->programs[i]));
    }
    return SY_OK;
}

static int take_memory(struct rig *r, const struct sy_profile *profile, const void *weights,
                       uint64_t workspace)
{
    const struct sy_package *package = r->package;
    const struct sy_graph *graph = package->usual;
    uint64_t start = SY_ALIGN_UP(package->weights_bytes, (uint64_t)SY_LAYER_ALIGN);
    int64_t batch = largest_batch(profile);
    SY_TRY(sy_pool_create(r->device, start + SY_ALIGN_UP(workspace + 1, (uint64_t)SY_LAYER_ALIGN),
                          &r->pool));
    SY_TRY(take_tensors(graph, graph->inputs, graph->n_inputs, batch, &r->tensors[0]));
    SY_TRY(take_tensors(graph, graph->outputs, graph->n_outputs, batch, &r->tensors[1]));
    r->layer_params = calloc((size_t)package->n_layers + 1, sizeof *r->layer_params);
    SY_TRY_ALLOC(r->layer_params, "no memory for %d layers", package->n_layers);
    for (int i = 0; i < package->n_layers; i++)
        r->layer_params[i] = at(r, package->layers[i].offset_bytes);
    if (package->weights_bytes)
        SY_TRY(
            sy_copy_h2d(r->compute, sy_pool_address(r->pool, 0), weights, package->weights_bytes));
    return sy_stream_synchronize(r->compute);
}

/* ---- times -------------------------------------------------------------------------------------------- */

/* Layers [first, end), at most WINDOW: queued as a whole, so that the device, not the host, sets the pace. */
static int time_window(struct rig *r, struct sy_program *program, const struct sy_binding *binding,
                       int first, int end, uint64_t *ns)
{
    SY_TRY(sy_event_record(r->events[0], r->compute));
    for (int l = first; l < end; l++) {
        SY_TRY(r->engine->program_run(program, binding, l, 1));
        SY_TRY(sy_event_record(r->events[l - first + 1], r->compute));
    }
    SY_TRY(sy_stream_synchronize(r->compute));
    for (int l = first; l < end; l++) {
        sy_ns from = sy_event_time(r->events[l - first]),
              to = sy_event_time(r->events[l - first + 1]);
        ns[l] = to > from ? to - from : 1;
    }
    return SY_OK;
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int time_program(struct rig *r, struct sy_program *program, uint64_t workspace_offset,
                        uint64_t *layer_ns)
{
    int n = r->package->n_layers, status = SY_OK;
    struct sy_binding binding = {.layer_params = r->layer_params,
                                 .workspace = at(r, workspace_offset),
                                 .inputs = (const void *const *)r->tensors[0],
                                 .outputs = r->tensors[1]};
    uint64_t *times = calloc((size_t)n * N_RUNS, sizeof *times);
    SY_TRY_ALLOC(times, "no memory for a profile");
    for (int run = -2; status == SY_OK && run < N_RUNS; run++) /* -2, -1: warming, capturing */
        for (int first = 0; status == SY_OK && first < n; first += WINDOW)
            status = time_window(r, program, &binding, first, SY_MIN(first + WINDOW, n),
                                 times + (size_t)SY_MAX(run, 0) * (size_t)n);
    for (int l = 0; status == SY_OK && l < n; l++) {
        uint64_t of_layer[N_RUNS];
        for (int run = 0; run < N_RUNS; run++)
            of_layer[run] = times[(size_t)run * (size_t)n + (size_t)l];
        qsort(of_layer, N_RUNS, sizeof *of_layer, compare_ns);
        layer_ns[l] = of_layer[N_RUNS / 2];
    }
    free(times);
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static int open_rig(struct rig *r, const char *device)
{
    struct sy_device_spec spec;
    SY_TRY(sy_device_spec_parse(device, &spec));
    SY_TRY(sy_device_open(&spec, &r->device));
    SY_TRY(sy_stream_create(r->device, SY_STREAM_COMPUTE, &r->compute));
    for (int i = 0; i <= WINDOW; i++)
        SY_TRY(sy_event_create(r->device, &r->events[i]));
    SY_TRY(r->engine->attach(r->device, r->compute));
    r->attached = true;
    return SY_OK;
}

static void close_rig(struct rig *r)
{
    const struct sy_graph *graph = r->package->usual;
    for (int i = 0; i < SY_PROFILE_BATCHES; i++)
        if (r->programs[i])
            r->engine->program_destroy(r->programs[i]);
    if (r->attached && r->engine->detach)
        r->engine->detach();
    for (int i = 0; i <= WINDOW; i++)
        if (r->events[i])
            sy_event_destroy(r->events[i]);
    sy_stream_destroy(r->compute);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    drop_tensors(r->tensors[0], graph->n_inputs);
    drop_tensors(r->tensors[1], graph->n_outputs);
    free(r->layer_params);
}

static int measure(struct rig *r, const char *device, const void *weights, struct sy_profile *out)
{
    uint64_t workspace, start = SY_ALIGN_UP(r->package->weights_bytes, (uint64_t)SY_LAYER_ALIGN);
    SY_TRY(open_rig(r, device));
    if (r->engine->tune)
        r->engine->tune(true);
    int status = make_programs(r, out, &workspace);
    if (r->engine->tune)
        r->engine->tune(false);
    SY_TRY(status);
    SY_TRY(take_memory(r, out, weights, workspace));
    for (int i = 0; i < SY_PROFILE_BATCHES; i++)
        SY_TRY(time_program(r, r->programs[i], start, out->layer_ns[i]));
    return r->engine->choices ? r->engine->choices(&out->choices) : SY_OK;
}

int sy_profile_on_device(const struct sy_package *package, const struct sy_engine_ops *engine,
                         const char *device, const void *weights, struct sy_profile *out)
{
    struct rig rig = {.package = package, .engine = engine};
    int status = measure(&rig, device, weights, out);
    close_rig(&rig);
    return status;
}

#include "workers/infer/infer_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "loader/storage/direct_read.h"
#include "runtime/base/assert.h"

#define WAIT_SLICE_NS (100 * SY_NS_PER_MS)

/* First layer of group g + 1, or n_layers. */
static int group_end(const struct sy_infer_run *run, int group)
{
    return group + 1 < run->n_groups ? run->group_layers[group + 1] : run->package->n_layers;
}

void sy_infer_group_range(const struct sy_package *package, const int *group_layers, int n_groups,
                          int group, uint64_t *offset_bytes, uint64_t *bytes)
{
    int first = group_layers[group];
    int end = group + 1 < n_groups ? group_layers[group + 1] : package->n_layers;
    *offset_bytes = *bytes = 0;
    for (int i = first; i < end; i++) {
        const struct sy_layer *layer = &package->layers[i];
        if (layer->bytes == 0)
            continue;
        if (*bytes == 0)
            *offset_bytes = layer->offset_bytes;
        *bytes = layer->offset_bytes + layer->bytes - *offset_bytes;
    }
}

/* The device's view of an offset: the host's pointer where the engine computes on the host, else the address itself. */
static unsigned char *view(const struct sy_infer_run *run, uint64_t offset)
{
    sy_device_address address = sy_pool_address(run->pool, offset);
    unsigned char *host = sy_device_host_pointer(run->device, address);
    return run->engine->attach || !host ? (unsigned char *)(uintptr_t)address.value : host;
}

/* Addresses of each layer's parameters for this placement of the groups. */
static void locate_layers(const struct sy_infer_run *run, unsigned char **params)
{
    for (int g = 0; g < run->n_groups; g++) {
        uint64_t start = 0, bytes = 0;
        sy_infer_group_range(run->package, run->group_layers, run->n_groups, g, &start, &bytes);
        const struct sy_transfer_group *group = sy_transfer_group(run->transfer, g);
        /* Only read: the binding's type is that of all parameters. */
        unsigned char *base = group->direct ? (unsigned char *)(uintptr_t)group->image
                                            : view(run, group->pool_offset);
        for (int i = run->group_layers[g]; i < group_end(run, g); i++) {
            const struct sy_layer *layer = &run->package->layers[i];
            params[i] = layer->bytes ? base + (layer->offset_bytes - start) : NULL;
        }
    }
}

/* Rows that a batch reads of a table in the host image cross the link when they are read. */
static void read_directly(const struct sy_infer_run *run, int g, struct sy_infer_times *times)
{
    uint64_t bytes =
        sy_layer_read_bytes(run->graph, &run->package->layers[run->group_layers[g]], run->batch);
    sy_device_host_read(run->device, bytes);
    times->read_bytes += bytes;
}

int sy_infer_interrupted(void)
{
    return sy_error_set(SY_ECANCELED, "interrupted for a more urgent request");
}

/* An engine that computes in this thread can stop between any two layers; one that enqueues, between groups, which it may have captured as a whole. Both can
 * stop between iterations of a Loop (on_turn). */
static int run_layers(const struct sy_infer_run *run, const struct sy_binding *binding, int first,
                      int end, struct sy_infer_times *times)
{
    int step = run->engine->attach ? end - first : 1;
    for (int i = first; i < end; i += step) {
        int status = run->is_interrupted(run->ctx)
                         ? sy_infer_interrupted()
                         : run->engine->program_run(run->program, binding, i, step);
        if (status == SY_ECANCELED)
            times->next_layer = run->engine->attach ? 0 : i;
        SY_TRY(status);
    }
    return SY_OK;
}

static int run_group(const struct sy_infer_run *run, const struct sy_binding *binding, int g,
                     struct sy_infer_times *times)
{
    sy_ns asked = sy_clock_now();
    SY_TRY(sy_transfer_wait(run->transfer, g, run->compute, run->beat, run->ctx));
    sy_ns start = sy_clock_now();
    times->wait_ns += start - asked;
    int first = SY_MAX(run->group_layers[g], run->first_layer);
    if (first == run->first_layer)
        times->first_layer_ns = start;
    if (sy_transfer_group(run->transfer, g)->direct)
        read_directly(run, g, times);
    SY_TRY(run_layers(run, binding, first, group_end(run, g), times));
    SY_TRY(sy_transfer_computed(run->transfer, g, run->compute));
    if (times->compute_spans) {
        times->compute_spans[2 * g] = start;
        times->compute_spans[2 * g + 1] = sy_clock_now();
    }
    run->group_done(run->ctx, g);
    run->beat(run->ctx);
    return SY_OK;
}

static int wait_done(const struct sy_infer_run *run)
{
    int status = SY_EDEADLINE;
    if (!run->done)
        return sy_stream_synchronize(run->compute);
    SY_TRY(sy_event_record(run->done, run->compute));
    while (status == SY_EDEADLINE) {
        status = sy_event_synchronize(run->done, WAIT_SLICE_NS);
        run->beat(run->ctx);
    }
    return status;
}

/* The host only enqueued: when the layers ran is what the device's events say. */
static void correct_times(const struct sy_infer_run *run, struct sy_infer_times *times)
{
    sy_ns before = times->first_layer_ns, waited = 0;
    for (int g = 0; g < run->n_groups; g++) {
        sy_ns arrived, computed;
        sy_transfer_computed_span(run->transfer, g, &arrived, &computed);
        if (computed == 0)
            return;
        sy_ns start = SY_MAX(before, arrived);
        start = SY_MIN(start, computed);
        waited += start > before ? start - before : 0;
        if (g == 0)
            times->first_layer_ns = start;
        if (times->compute_spans) {
            times->compute_spans[2 * g] = start;
            times->compute_spans[2 * g + 1] = computed;
        }
        before = computed;
    }
    times->wait_ns = waited;
}

/* Everything is enqueued, or as much as could be: the end of it. */
static int finish(const struct sy_infer_run *run, int status, struct sy_infer_times *times)
{
    if (!run->engine->attach)
        return status;
    if (status < 0) { /* its text is the one to keep */
        char why[512];
        snprintf(why, sizeof why, "%s", sy_error_text());
        (void)sy_stream_synchronize(run->compute);
        return sy_error_set(status, "%s", why);
    }
    SY_TRY(wait_done(run));
    correct_times(run, times);
    return run->engine->program_finish ? run->engine->program_finish(run->program) : SY_OK;
}

int sy_infer_run(const struct sy_infer_run *run, struct sy_infer_times *times)
{
    int first = 0;
    assert(run->n_groups >= 1 && run->group_layers[0] == 0);
    while (run->first_layer >= group_end(run, first))
        first++;
    unsigned char **params = calloc((size_t)run->package->n_layers, sizeof *params);
    SY_TRY_ALLOC(params, "no memory for %d layers", run->package->n_layers);
    locate_layers(run, params);
    struct sy_binding binding = {
        .layer_params = params,
        .workspace = view(run, run->workspace_offset),
        .inputs = run->inputs,
        .outputs = run->outputs,
    };
    int status = SY_OK;
    times->wait_ns = times->read_bytes = 0;
    times->next_layer = 0;
    for (int g = first; g < run->n_groups && status == SY_OK; g++)
        status = run_group(run, &binding, g, times);
    status = finish(run, status, times);
    times->end_ns = sy_clock_now();
    free(params);
    return status;
}

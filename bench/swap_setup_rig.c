/* Setup of the swap rig: device, model, victim, and the measurements that all modes are compared with. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/shared_memory.h"
#include "bench/swap_child.h"
#include "bench/swap_rig_internal.h"
#include "loader/storage/direct_read.h"
#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/device/link_cost.h"
#include "runtime/device/link_memory.h"
#include "workers/engine/engines.h"

#define PROFILE_RUNS 5
#define SIGMA_NS     5000.0 /* storage: the computing thread notices one arrival */
#define PROBE_BYTES  (16ull << 20)
/* one more read range: its first chunk is queued behind the others */
#define STORAGE_ALPHA_NS 5000.0

/* Called once: set_threads pins this thread, and later queries would return only its own cores, without the link's. Destroying the rig unpins the thread for
 * the next model. */
static int choose_cores(struct swap_rig *r)
{
    if (sched_getaffinity(0, sizeof r->allowed, &r->allowed) < 0)
        return sy_error_set(SY_EIO, "sched_getaffinity: %s", strerror(errno));
    r->link_core = -1;
    for (int c = 0; c < CPU_SETSIZE && r->n_cores < (int)SY_ARRAY_LEN(r->cores); c++)
        if (CPU_ISSET(c, &r->allowed))
            r->cores[r->n_cores++] = c;
    if (sy_device_get_properties(r->device)->reserved_cores && r->n_cores > 1)
        r->link_core = r->cores[--r->n_cores];
    return SY_OK;
}

static int use_cores(struct swap_rig *r)
{
    if (r->n_cores == 0)
        SY_TRY(choose_cores(r));
    if (r->link_core >= 0)
        SY_TRY(sy_device_set_link_core(r->device, r->link_core));
    return r->engine->set_threads(r->cores, r->n_cores);
}

/* Attaches the engine to its device, and registers the memory that the device copies from and to. */
static int attach_engine(struct swap_rig *r)
{
    if (!r->engine->attach)
        return SY_OK;
    SY_TRY(sy_event_create(r->device, &r->run_done));
    SY_TRY(r->engine->attach(r->device, r->compute));
    r->attached = true;
    if (r->engine->use_choices && r->package->profile.choices)
        SY_TRY(r->engine->use_choices(r->package->profile.choices));
    return sy_device_host_register(r->device, r->slab.base, r->slab.bytes);
}

static int open_device(struct swap_rig *r, const char *text)
{
    struct sy_device_spec spec;
    snprintf(r->device_text, sizeof r->device_text, "%s", text);
    SY_TRY(sy_device_spec_parse(text, &spec));
    SY_TRY(sy_device_open(&spec, &r->device));
    SY_TRY(use_cores(r));
    SY_TRY(sy_stream_create(r->device, SY_STREAM_COMPUTE, &r->compute));
    SY_TRY(attach_engine(r));
    if (!r->program)
        SY_TRY(swap_rig_create_program(r));
    r->workspace_offset = SY_ALIGN_UP(r->package->weights_bytes, SY_LAYER_ALIGN);
    uint64_t bytes = r->workspace_offset + r->engine->program_workspace_bytes(r->program);
    SY_TRY(sy_pool_create(r->device, SY_ALIGN_UP(bytes, SY_LAYER_ALIGN), &r->pool));
    return sy_transfer_create(r->device, r->pool, r->link_core, &r->transfer);
}

static void close_device(struct swap_rig *r)
{
    sy_transfer_destroy(r->transfer);
    if (r->attached) { /* its programs live on the device */
        r->engine->program_destroy(r->program);
        r->program = NULL;
        if (r->managed)
            r->system->drop(r->device, r->managed);
        r->engine->detach();
        r->attached = false;
    }
    if (r->run_done)
        sy_event_destroy(r->run_done);
    sy_stream_destroy(r->compute);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    r->managed = NULL;
    r->run_done = NULL;
    r->transfer = NULL;
    r->compute = NULL;
    r->pool = NULL;
    r->device = NULL;
}

static int read_weights(struct swap_rig *r, void *to)
{
    struct sy_storage_reader *reader = NULL;
    struct sy_storage_result result;
    struct sy_storage_range range = {r->package->weights_offset, r->package->weights_bytes, to};
    SY_TRY(sy_storage_reader_create(0, 0, &reader));
    int status = sy_storage_read(reader, r->package->path, &range, 1, NULL, &result);
    sy_storage_reader_destroy(reader);
    SY_TRY(status);
    return sy_package_verify(r->package, 0, r->package->n_layers, to);
}

/* Copies the weights into the pool with the device's own transfer, so that `ready` can run. */
static int fill_pool(struct swap_rig *r)
{
    if (sy_device_get_properties(r->device)->unified)
        return read_weights(r, sy_device_host_pointer(r->device, sy_pool_address(r->pool, 0)));
    struct swap_result ignored;
    struct swap_cut *cut = calloc(1, sizeof *cut);
    SY_TRY_ALLOC(cut, "no memory for the groups");
    cut->n_groups = 1;
    int status = swap_rig_swap_in(r, SWAP_WHOLE, cut, r->pool, r->transfer, &ignored);
    free(cut);
    return status;
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Median compute time of each layer, measured with the same threads, batch and kind of run as the modes. */
static int profile_layers(struct swap_rig *r)
{
    int n = r->package->n_layers;
    uint64_t *samples = calloc((size_t)n * PROFILE_RUNS, sizeof *samples);
    struct swap_cut *cut = calloc(1, sizeof *cut);
    r->layers = calloc((size_t)n, sizeof *r->layers);
    r->read_bytes = calloc((size_t)n, sizeof *r->read_bytes);
    int status = samples && cut && r->layers && r->read_bytes
                     ? SY_OK
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for %d layers", n);
    for (int i = 0; status == SY_OK && i < n; i++)
        cut->first[i] = i;
    if (n > SY_RUN_MAX_GROUPS)
        status = sy_error_set(SY_EUNSUPPORTED, "%d layers: at most %d can be timed", n,
                              SY_RUN_MAX_GROUPS);
    for (int run = 0; status == SY_OK && run < PROFILE_RUNS; run++) {
        sy_ns *spans = calloc((size_t)n * 2, sizeof *spans);
        cut->n_groups = n;
        status = spans ? swap_rig_time_layers(r, cut, spans) : SY_ENOMEM_HOST;
        for (int i = 0; status == SY_OK && i < n; i++)
            samples[i * PROFILE_RUNS + run] = spans[2 * i + 1] - spans[2 * i];
        free(spans);
    }
    for (int i = 0; status == SY_OK && i < n; i++) {
        qsort(&samples[i * PROFILE_RUNS], PROFILE_RUNS, sizeof *samples, compare_ns);
        r->layers[i] =
            (struct sy_plan_layer){.bytes = r->package->layers[i].bytes,
                                   .compute_ns = samples[i * PROFILE_RUNS + PROFILE_RUNS / 2]};
        if (sy_device_get_properties(r->device)->host_reads)
            r->read_bytes[i] =
                sy_layer_read_bytes(r->package->usual, &r->package->layers[i], r->batch);
    }
    free(samples);
    free(cut);
    return status;
}

static int measure_ready(struct swap_rig *r)
{
    uint64_t ns[PROFILE_RUNS];
    for (int i = 0; i < PROFILE_RUNS; i++) {
        struct swap_result result;
        SY_TRY(swap_rig_run(r, SWAP_READY, &result));
        ns[i] = result.total_ns;
    }
    qsort(ns, PROFILE_RUNS, sizeof *ns, compare_ns);
    sy_ns median = ns[PROFILE_RUNS / 2];
    r->ready_ms = (double)median / 1e6;
    for (int i = 0; i < r->package->usual->n_outputs; i++)
        memcpy(r->reference[i], r->outputs[i], r->output_bytes[i]);
    return SY_OK;
}

/* Sets the link rate so that transfer / compute = ratio, as on the paper's machine. */
static int set_link_ratio(struct swap_rig *r, double ratio)
{
    char text[128];
    double gbps = (double)r->package->weights_bytes / (ratio * r->ready_ms * 1e6);
    close_device(r);
    snprintf(text, sizeof text, "emulated,link-gbps=%.6f", gbps);
    SY_TRY(open_device(r, text));
    return fill_pool(r);
}

static int measure_link(struct swap_rig *r)
{
    struct sy_link_measurement link;
    uint64_t bytes = SY_MIN(PROBE_BYTES, sy_pool_size(r->pool));
    void *from;
    SY_TRY(sy_link_host_take(r->device, bytes, &from));
    int status = sy_link_measure(r->device, r->pool, 0, bytes, from, 0, &link);
    sy_link_host_drop(r->device, from);
    SY_TRY(status);
    r->cost =
        (struct sy_link_cost){link.alpha_ns, link.h2d_gbps, link.sigma_ns, link.lost_ns_per_byte};
    return fill_pool(r);
}

static int set_cost(struct swap_rig *r)
{
    if (sy_device_get_properties(r->device)->unified) {
        sy_ns took = 0;
        SY_TRY(swap_rig_read(r, &took));
        r->cost = (struct sy_link_cost){
            STORAGE_ALPHA_NS, (double)r->package->weights_bytes / (double)took, SIGMA_NS, 0};
    } else {
        SY_TRY(measure_link(r));
    }
    struct sy_direct_plan plan;
    struct sy_link_cost alone = r->cost;
    alone.lost_ns_per_byte = 0; /* a lower bound: excludes time that swaps may lose */
    SY_TRY(sy_direct_plan_make(r->layers, r->read_bytes, r->package->n_layers, &alone,
                               SY_MAX_GROUPS, 0, &plan));
    r->bound_ms = (double)plan.bound_ns / 1e6;
    free(plan.groups);
    return SY_OK;
}

static int open_all(struct swap_rig *r, const char *package, const char *device)
{
    struct sy_device_spec spec;
    SY_TRY(sy_package_open(package, &r->package));
    SY_TRY(sy_device_spec_parse(device, &spec));
    SY_TRY(sy_engine_for_device(spec.kind, &r->engine));
    SY_TRY(sy_package_check_engine(r->package, r->engine));
    SY_TRY(swap_rig_make_tensors(r));
    SY_TRY(open_device(r, device));
    if (sy_device_get_properties(r->device)->unified)
        return SY_OK;
    SY_TRY(sy_shared_memory_create(&r->image, "image", r->package->weights_bytes));
    SY_TRY(read_weights(r, r->image.base));
    if (!r->engine->attach)
        return SY_OK;
    SY_TRY(sy_device_host_register(r->device, r->image.base, r->image.bytes));
    return sy_device_host_register_wait(r->device, 60 * SY_NS_PER_S);
}

static int set_up(struct swap_rig *r, const char *package, const char *device, double ratio,
                  const char *job_model)
{
    SY_TRY(open_all(r, package, device));
    SY_TRY(swap_victim_create(&r->victim, r->program_path, job_model,
                              r->engine->attach ? device : NULL, r->cores, r->n_cores));
    SY_TRY(swap_victim_hold(&r->victim));
    SY_TRY(fill_pool(r));
    SY_TRY(measure_ready(r));
    if (ratio > 0 && sy_device_get_properties(r->device)->emulated)
        SY_TRY(set_link_ratio(r, ratio));
    SY_TRY(profile_layers(r));
    return set_cost(r);
}

static struct swap_rig *new_rig(const char *program, int64_t batch)
{
    struct swap_rig *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->program_path = program;
    r->batch = batch;
    r->image.fd = r->slab.fd = r->victim.memory.fd = -1;
    return r;
}

int swap_rig_create_cold(const char *program, const char *package, const char *device,
                         int64_t batch, struct swap_rig **out)
{
    struct swap_rig *r = new_rig(program, batch);
    SY_TRY_ALLOC(r, "no memory for the bench");
    int status = open_all(r, package, device);
    if (status < 0) {
        swap_rig_destroy(r);
        return status;
    }
    *out = r;
    return SY_OK;
}

int swap_rig_run_cold(struct swap_rig *r, sy_ns *first_layer_ns, sy_ns *end_ns)
{
    struct swap_cut whole = {.n_groups = 1};
    struct swap_result result;
    sy_ns start = sy_clock_now();
    SY_TRY(swap_rig_swap_in(r, SWAP_WHOLE, &whole, r->pool, r->transfer, &result));
    *first_layer_ns = start + result.first_layer_ns;
    *end_ns = start + result.total_ns;
    return SY_OK;
}

int swap_rig_create(const char *program, const char *package, const char *device, double ratio,
                    int64_t batch, const char *job_model, struct swap_rig **out)
{
    struct swap_rig *r = new_rig(program, batch);
    SY_TRY_ALLOC(r, "no memory for the bench");
    int status = set_up(r, package, device, ratio, job_model);
    if (status < 0) {
        swap_rig_destroy(r);
        return status;
    }
    *out = r;
    return SY_OK;
}

void swap_rig_destroy(struct swap_rig *r)
{
    if (!r)
        return;
    swap_victim_destroy(&r->victim);
    close_device(r);
    if (r->program)
        r->engine->program_destroy(r->program);
    for (int i = 0; i < 16; i++) {
        if (!r->slab.base) {
            free(r->inputs[i]);
            free(r->outputs[i]);
        }
        free(r->reference[i]);
    }
    sy_shared_memory_finish(&r->slab);
    sy_package_close(r->package);
    sy_shared_memory_finish(&r->image);
    free(r->layers);
    free(r->read_bytes);
    if (r->n_cores > 0 && sched_setaffinity(0, sizeof r->allowed, &r->allowed) < 0)
        sy_log_warn("bench", "event=affinity_failed what=%s", strerror(errno));
    free(r);
}

double swap_rig_bound_ms(const struct swap_rig *r)
{
    return r->bound_ms;
}

double swap_rig_ready_ms(const struct swap_rig *r)
{
    return r->ready_ms;
}

double swap_rig_rate_gbps(const struct swap_rig *r)
{
    return r->cost.bytes_per_ns;
}

double swap_rig_ratio(const struct swap_rig *r, double ready_ms)
{
    return (double)r->package->weights_bytes / r->cost.bytes_per_ns / (ready_ms * 1e6);
}

const char *swap_rig_device_name(const struct swap_rig *r)
{
    return sy_device_get_properties(r->device)->name;
}

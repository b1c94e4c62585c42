#include "runtime/core/core_batch.h"
#include "runtime/core/core_image.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"

#define GIB           (1ull << 30)
#define MIB           (1ull << 20)
#define MOST_DEFAULT  (8 * GIB)
#define DRAIN_TICK_US 20000

#define USUAL_MAX_BATCH 8

/* quantile of observed durations that deadlines are checked against */
#define PROMISE_QUANTILE 0.99

#define USUAL_SIGMA_NS     5000.0 /* one wake-up of a waiting thread */
#define STORAGE_ALPHA_NS   5000.0 /* submitting and completing one read of a deep queue */
#define USUAL_STORAGE_GBPS 1.5    /* used where a package has no measurement */

/* ---- configuration ---------------------------------------------------------------------------- */

static uint64_t half_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t half = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : GIB;
    return SY_MIN(half, MOST_DEFAULT);
}

static int choose_cores(struct sy_core *core, const char *text)
{
    cpu_set_t set;
    core->link_core = -1;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return sy_error_set(SY_EIO, "sched_getaffinity: %s", strerror(errno));
    if (text)
        SY_TRY(sy_slice_parse_cores(text, core->cores, SY_CORE_MAX_CORES, &core->n_cores));
    for (size_t i = 0; text && i < core->n_cores; i++)
        if (!CPU_ISSET(core->cores[i], &set))
            return sy_error_set(SY_EARG, "cores '%s': this process may not use core %llu", text,
                                (unsigned long long)core->cores[i]);
    for (int c = 0; !text && c < CPU_SETSIZE && core->n_cores < SY_CORE_MAX_CORES; c++)
        if (CPU_ISSET(c, &set))
            core->cores[core->n_cores++] = (uint64_t)c;
    if (sy_device_get_properties(core->device)->reserved_cores == 0)
        return SY_OK;
    /* The link's thread gets a core that does not compute: one outside the given list if there is one, else the last in it. */
    for (int c = 0; text && c < CPU_SETSIZE && core->link_core < 0; c++) {
        bool computes = !CPU_ISSET(c, &set);
        for (size_t i = 0; i < core->n_cores; i++)
            computes |= core->cores[i] == (uint64_t)c;
        core->link_core = computes ? -1 : c;
    }
    if (core->link_core < 0 && core->n_cores > 1)
        core->link_core = (int64_t)core->cores[--core->n_cores];
    if (core->link_core < 0)
        sy_log_warn(
            "core",
            "event=no_link_core why=\"one core only: the link and the computation share it\"");
    return SY_OK;
}

static int take_config(struct sy_core *core, const struct sy_core_config *config)
{
    static const int64_t one[] = {1};
    const int64_t *warm = config->warm_batches ? config->warm_batches : one;
    int n_warm = config->warm_batches ? config->n_warm_batches : 1;
    core->n_workers = config->n_workers ? config->n_workers : 4;
    core->max_queue = config->max_queue ? config->max_queue : 1024;
    core->poll_us = config->poll_us;
    core->whole_models = config->whole_models;
    if (core->n_workers < 2 || core->n_workers > SY_CORE_MAX_WORKERS)
        return sy_error_set(SY_EARG,
                            "%d workers: 2 to %d are possible, one trains while others stand by",
                            core->n_workers, SY_CORE_MAX_WORKERS);
    if (n_warm < 1 || n_warm > SY_CORE_WARM)
        return sy_error_set(SY_EARG, "%d warm batch sizes: 1 to %d are possible", n_warm,
                            SY_CORE_WARM);
    for (int i = 0; i < n_warm; i++) {
        if (warm[i] < 1)
            return sy_error_set(SY_EARG, "warm batch %lld: 1 or more", (long long)warm[i]);
        core->warm_batches[core->n_warm++] = (uint64_t)warm[i];
    }
    const char *grouping = config->grouping ? config->grouping : "planned";
    if (strcmp(grouping, "planned") && strcmp(grouping, "per_layer") && strcmp(grouping, "whole"))
        return sy_error_set(SY_EARG, "grouping '%s': planned, per_layer or whole", grouping);
    core->grouping = strdup(grouping);
    return core->grouping ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the configuration");
}

/* The link that plans are made for. On a unified device it is storage, whose rate is recorded in each package. */
static void choose_link(struct sy_core *core, const struct sy_link_cost *measured)
{
    core->link = (struct sy_link_cost){.alpha_ns = (double)core->spec.link_alpha_ns,
                                       .bytes_per_ns = core->spec.link_gbps,
                                       .sigma_ns = USUAL_SIGMA_NS};
    if (core->unified)
        core->link = (struct sy_link_cost){STORAGE_ALPHA_NS, USUAL_STORAGE_GBPS, USUAL_SIGMA_NS, 0};
    else if (measured)
        core->link = *measured;
}

/* ---- start ------------------------------------------------------------------------------------ */

static int open_device(struct sy_core *core, const struct sy_core_config *config)
{
    SY_TRY(sy_device_spec_parse(config->device ? config->device : "host", &core->spec));
    SY_TRY(sy_device_open(&core->spec, &core->device));
    core->unified = sy_device_get_properties(core->device)->unified;
    choose_link(core, config->link);
    SY_TRY(choose_cores(core, config->cores));
    sy_core_units_start(core);
    sy_core_slices_start(core);
    sy_core_cache_start(core, config->resctrl);
    sy_core_corun_start(core);
    return SY_OK;
}

/* A device's own memory goes to the pool, except what libraries take in each worker; of host memory, half. */
uint64_t sy_core_usual_pool_bytes(const struct sy_device_properties *device)
{
    if (device->unified || device->emulated)
        return half_of_memory();
    return SY_ALIGN_UP(device->memory_bytes / 4 * 3, 2 * MIB);
}

uint64_t sy_core_usual_image_bytes(void)
{
    return half_of_memory();
}

static int take_memory(struct sy_core *core, const struct sy_core_config *config)
{
    uint64_t pool_bytes = config->pool_bytes
                              ? config->pool_bytes
                              : sy_core_usual_pool_bytes(sy_device_get_properties(core->device));
    uint64_t image_bytes = config->image_bytes ? config->image_bytes : sy_core_usual_image_bytes();
    SY_TRY(sy_pool_create(core->device, pool_bytes, &core->pool));
    SY_TRY(sy_pool_export(core->pool, &core->pool_fd));
    if (core->unified)
        core->pool_base = sy_device_host_pointer(core->device, sy_pool_address(core->pool, 0));
    else if (config->image_book)
        SY_TRY(sy_core_image_take(core, config->image_fd, image_bytes, config->image_book));
    else
        SY_TRY(sy_shared_memory_create(&core->image, "switchyard-image", image_bytes));
    SY_TRY(
        sy_shared_memory_create(&core->arrivals_memory, "switchyard-arrivals", SY_ARRIVALS_BYTES));
    core->arrivals = core->arrivals_memory.base;
    core->board = (struct sy_link_board *)&core->arrivals[SY_ARRIVAL_WORDS];
    return sy_slab_create(config->slab_bytes ? config->slab_bytes : 256 * MIB, &core->slab);
}

/* V5: one start per core that this process may use; two on a single core, since serving beside a job takes two workers. */
static int most_starting(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? SY_MAX(CPU_COUNT(&set), 2) : 2;
}

static int start_parts(struct sy_core *core, const struct sy_core_config *config)
{
    struct sy_sched_config sched = {.pool_bytes = sy_pool_size(core->pool),
                                    .image_bytes = core->image.bytes,
                                    .n_workers = core->n_workers,
                                    .max_queue = core->max_queue,
                                    .fetch_heads = config->fetch_heads && !config->whole_models,
                                    .restarts = strcmp(core->spec.kind, "cuda") == 0,
                                    .whole_models = config->whole_models};
    struct sy_supervisor_config supervisor = {
        .program = config->worker_program,
        .n_workers = core->n_workers,
        .most_starting = most_starting(),
        .hang_timeout_ns = config->hang_timeout_ns ? config->hang_timeout_ns : 10 * SY_NS_PER_S,
        .ops = {.message = sy_core_message, .lost = sy_core_worker_lost, .ctx = core}};
    SY_TRY(sy_sched_create(&sched, &core->sched));
    SY_TRY(sy_predictor_create((int)SY_MAX_MODELS * SY_CORE_SIZE_CLASSES, PROMISE_QUANTILE,
                               &core->predictor));
    SY_TRY(sy_predictor_create((int)SY_MAX_MODELS, PROMISE_QUANTILE, &core->preparing));
    SY_TRY(sy_core_batches_create(core, config->max_delay_ns,
                                  config->max_batch ? config->max_batch : USUAL_MAX_BATCH,
                                  &core->batches));
    SY_TRY(sy_core_regions_create(core));
    SY_TRY(sy_trace_create(&core->trace));
    SY_TRY(sy_job_store_open(config->state_folder, &core->store));
    SY_TRY(sy_storage_thread_create(core->base, sy_core_read_done, core, &core->storage));
    SY_TRY(sy_supervisor_create(core->base, &supervisor, &core->supervisor));
    sy_core_resume_rules(core); /* first: quotas apply to the resumed jobs */
    return sy_core_resume_jobs(core);
}

static void on_pump(int fd, short what, void *core)
{
    (void)fd;
    (void)what;
    sy_core_tick(core);
    sy_core_pump(core);
}

static void on_drain_tick(int fd, short what, void *core);

int sy_core_create(struct event_base *base, const struct sy_core_config *config,
                   struct sy_core **out)
{
    struct sy_core *core = calloc(1, sizeof *core);
    SY_TRY_ALLOC(core, "no memory for the core");
    core->base = base;
    core->pool_fd = -1;
    sy_account_start(&core->account, sy_clock_now());
    core->tenants[core->n_tenants++] = (struct sy_core_tenant){.name = "default", .weight = 1};
    core->pump_event = event_new(base, -1, 0, on_pump, core);
    core->wake_event = event_new(base, -1, 0, on_pump, core);
    core->drain_event = event_new(base, -1, EV_PERSIST, on_drain_tick, core);
    int status = SY_OK;
    if (!core->pump_event || !core->wake_event || !core->drain_event)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the core's events");
    if (status == SY_OK)
        status = take_config(core, config);
    if (status == SY_OK)
        status = open_device(core, config);
    if (status == SY_OK)
        status = take_memory(core, config);
    if (status == SY_OK)
        status = sy_core_fill_create(core);
    if (status == SY_OK)
        status = start_parts(core, config);
    if (status < 0) {
        sy_core_destroy(core);
        return status;
    }
    sy_log_info(
        "core", "event=started device=\"%s\" pool_bytes=%llu image_bytes=%llu workers=%d cores=%zu",
        sy_device_get_properties(core->device)->name, (unsigned long long)sy_pool_size(core->pool),
        (unsigned long long)core->image.bytes, core->n_workers, core->n_cores);
    *out = core;
    return SY_OK;
}

void sy_core_destroy(struct sy_core *core)
{
    if (!core)
        return;
    core->stopping = true;
    sy_supervisor_destroy(core->supervisor); /* first: workers use the memory below */
    sy_core_cache_finish(core);
    sy_storage_thread_destroy(core->storage);
    if (core->batches)
        sy_core_batch_flush(core->batches, -1);
    while (core->requests)
        sy_core_end_request(core, core->requests, SY_ECANCELED, "the runtime has stopped");
    sy_core_batches_destroy(core->batches);
    sy_core_regions_destroy(core);
    sy_core_free_jobs(core);
    sy_sched_destroy(core->sched);
    sy_core_free_models(core);
    sy_job_store_close(core->store);
    sy_predictor_destroy(core->predictor);
    sy_predictor_destroy(core->preparing);
    sy_trace_destroy(core->trace);
    sy_slab_destroy(core->slab);
    sy_shared_memory_finish(&core->arrivals_memory);
    sy_shared_memory_finish(&core->image);
    if (core->pool_fd >= 0)
        close(core->pool_fd);
    sy_pool_destroy(core->pool);
    sy_device_close(core->device);
    sy_core_fill_destroy(core);
    if (core->pump_event)
        event_free(core->pump_event);
    if (core->wake_event)
        event_free(core->wake_event);
    if (core->drain_event)
        event_free(core->drain_event);
    for (struct sy_core_drainer *d; (d = core->drainers); free(d))
        core->drainers = d->next;
    free(core->grouping);
    free(core);
}

struct sy_slab *sy_core_slab(struct sy_core *core)
{
    return core->slab;
}

/* ---- drain ------------------------------------------------------------------------------------ */

static void stop_workers(struct sy_core *core, sy_ns now)
{
    core->stopping = true;
    sy_supervisor_stop(core->supervisor,
                       core->drain_deadline > now ? core->drain_deadline - now : 0);
}

static void on_drain_tick(int fd, short what, void *ctx)
{
    struct sy_core *core = ctx;
    sy_ns now = sy_clock_now();
    (void)fd;
    (void)what;
    if (!core->stopping && (!core->requests || now >= core->drain_deadline))
        stop_workers(core, now);
    /* One second more than the workers' own limit, so that they can stop by themselves. */
    bool late = now >= core->drain_deadline + SY_NS_PER_S;
    for (int w = 0; late && w < core->n_workers; w++)
        sy_supervisor_kill(core->supervisor, w, "it did not stop within the grace time");
    if (!core->stopping || sy_supervisor_n_alive(core->supervisor) > 0)
        return;
    while (core->requests)
        sy_core_end_request(core, core->requests, SY_EBUSY,
                            "the runtime stopped before this request was done");
    sy_core_models_answer_left(core);
    sy_core_jobs_answer_left(core);
    event_del(core->drain_event);
    for (struct sy_core_drainer *d; (d = core->drainers); free(d)) {
        core->drainers = d->next;
        d->done(d->ctx);
    }
}

int sy_core_drain(struct sy_core *core, sy_ns grace_ns, void (*done)(void *ctx), void *ctx)
{
    struct timeval tick = {.tv_usec = DRAIN_TICK_US};
    struct sy_core_drainer *d = malloc(sizeof *d);
    sy_ns deadline = sy_clock_now() + grace_ns;
    SY_TRY_ALLOC(d, "no memory to drain");
    *d = (struct sy_core_drainer){done, ctx, core->drainers};
    core->drainers = d;
    core->drain_deadline = core->draining ? SY_MIN(core->drain_deadline, deadline) : deadline;
    if (!event_pending(core->drain_event, EV_TIMEOUT,
                       NULL)) /* repeated calls do not postpone the tick */
        event_add(core->drain_event, &tick);
    if (core->draining)
        return SY_OK;
    sy_core_batch_flush(core->batches, -1);
    sy_core_hold_jobs(core, true);
    core->draining = true;
    sy_log_info("core", "event=draining requests=%d grace_ms=%llu", core->n_requests,
                (unsigned long long)(grace_ns / SY_NS_PER_MS));
    return SY_OK;
}

/* ---- requests --------------------------------------------------------------------------------- */

static bool lies_in_slab(const struct sy_graph *graph, const uint64_t *inputs,
                         const uint64_t *outputs)
{
    return !sy_core_regions_any(inputs, graph->n_inputs) &&
           !sy_core_regions_any(outputs, graph->n_outputs);
}

static int take_request(struct sy_core *core, struct sy_core_model *m, int64_t batch,
                        const uint64_t *inputs, const uint64_t *outputs,
                        const struct sy_core_infer_options *options, sy_core_infer_done done,
                        void *ctx, uint64_t *out_id)
{
    static const struct sy_core_infer_options usual = {.class_ = SY_CORE_USUAL_CLASS};
    struct sy_core_sizes *sizes;
    uint64_t id;
    if (core->draining)
        return sy_error_set(SY_EBUSY, "draining: the runtime stops and takes no new requests");
    int index = (int)(m - core->models);
    if (m->state == SY_MODEL_UNAVAILABLE)
        return sy_error_set(m->status, "model '%s' is not available until it is loaded again: %s",
                            m->name, m->error);
    options = options ? options : &usual;
    SY_TRY(sy_core_regions_check(core, inputs, m->package->graph->n_inputs));
    SY_TRY(sy_core_regions_check(core, outputs, m->package->graph->n_outputs));
    SY_TRY(sy_core_sizes_take(core, m, options->sizes, &sizes));
    struct sy_core_work work = {.model = index,
                                .batch = batch,
                                .sizes = sizes,
                                .inputs = inputs,
                                .outputs = outputs,
                                .n_parts = 1};
    enum sy_batch_way way = sy_core_batch_way(core->batches, index, batch, sizes, options);
    if (way == SY_BATCH_ROWS && !lies_in_slab(m->package->graph, inputs, outputs))
        way = SY_BATCH_ALONE; /* B2 */
    int status = way == SY_BATCH_ALONE
                     ? sy_core_infer_alone(core, &work, options, done, ctx, &id)
                     : sy_core_batch_add(core->batches, way, index, batch, sizes, inputs, outputs,
                                         options, done, ctx, &id);
    sy_core_sizes_release(m, sizes);
    if (status == SY_OK && out_id)
        *out_id = id;
    return status;
}

/* A request was rejected with this status. */
static void note_refusal(struct sy_core *core, const struct sy_core_model *m, int status)
{
    enum sy_refusal reason = core->draining                     ? SY_REFUSED_DRAINING
                             : m->state == SY_MODEL_UNAVAILABLE ? SY_REFUSED_UNAVAILABLE
                             : status == SY_EDEADLINE           ? SY_REFUSED_LATE
                             : status == SY_EBUSY               ? SY_REFUSED_QUEUE_FULL
                             : status == SY_ENOMEM_HOST || status == SY_ENOMEM_DEVICE
                                 ? SY_REFUSED_NO_ROOM
                                 : SY_REFUSED_OTHER;

    core->counts.refused.n[reason]++;
}

int sy_core_infer(struct sy_core *core, const struct sy_core_model_ref *model, int64_t batch,
                  const uint64_t *inputs, const uint64_t *outputs,
                  const struct sy_core_infer_options *options, sy_core_infer_done done, void *ctx,
                  uint64_t *out_id)
{
    struct sy_core_model *m = (struct sy_core_model *)(uintptr_t)model;
    int status = take_request(core, m, batch, inputs, outputs, options, done, ctx, out_id);
    if (status < 0)
        note_refusal(core, m, status);
    return status;
}

void sy_core_infer_cancel(struct sy_core *core, uint64_t id)
{
    if (!sy_core_batch_cancel(core->batches, id))
        sy_sched_cancel(core->sched, id);
    sy_core_pump_soon(core);
}

void sy_core_trace_enable(struct sy_core *core, bool enable)
{
    sy_trace_enable(core->trace, enable);
}

int sy_core_trace_dump(struct sy_core *core, json_t **out)
{
    return sy_trace_dump(core->trace, out);
}

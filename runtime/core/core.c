#include "runtime/core/core_batch.h"
#include "runtime/core/core_image.h"
#include "runtime/core/core_internal.h"

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
#define MOST_CLASS    9

#define USUAL_MAX_BATCH 8

#define PROMISE_QUANTILE 0.99 /* of what was observed: what a deadline is held against */

#define USUAL_SIGMA_NS     5000.0 /* one wake-up of a waiting thread */
#define STORAGE_ALPHA_NS   5000.0 /* submitting and reaping one read of a deep queue */
#define USUAL_STORAGE_GBPS 1.5    /* where a package does not say */

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
    /* The link's core is one that does not compute: outside the given list if there is one, else its last. */
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

/* What plans are made for. On a unified device storage stands in the link's place: its rate is in each package. */
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
    sy_core_corun_start(core);
    return SY_OK;
}

/* Memory of its own is there for the pool, but for what libraries take in each worker; of the host's, half. */
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
    sy_core_resume_rules(core); /* first: quotas hold for the jobs too */
    return sy_core_resume_jobs(core);
}

void sy_core_tick(struct sy_core *core)
{
    core->tick_ns = sy_clock_now();
    sy_sched_set_time(core->sched, core->tick_ns);
    if (!core->pumping && sy_sched_has_next(core->sched))
        sy_core_pump_soon(core); /* also where the call that came fails, and pumps nothing */
}

static void on_pump(int fd, short what, void *core)
{
    (void)fd;
    (void)what;
    sy_core_tick(core);
    sy_core_pump(core);
}

void sy_core_pump_soon(struct sy_core *core)
{
    event_active(core->pump_event, EV_TIMEOUT, 0);
}

static void on_drain_tick(int fd, short what, void *core);

int sy_core_create(struct event_base *base, const struct sy_core_config *config,
                   struct sy_core **out)
{
    struct sy_core *core = calloc(1, sizeof *core);
    if (!core)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the core");
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
    sy_supervisor_destroy(core->supervisor); /* first: nobody else may use the memory below */
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
    /* A second more than the workers were given: they stop by themselves first. */
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
    if (!d)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to drain");
    *d = (struct sy_core_drainer){done, ctx, core->drainers};
    core->drainers = d;
    core->drain_deadline = core->draining ? SY_MIN(core->drain_deadline, deadline) : deadline;
    if (!event_pending(core->drain_event, EV_TIMEOUT, NULL)) /* calls do not put the tick off */
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

struct sy_core_request *sy_core_find_run(struct sy_core *core, uint64_t run)
{
    struct sy_core_request *r = core->requests;
    while (r && r->run != run)
        r = r->next;
    return r;
}

struct sy_core_request *sy_core_find_request(struct sy_core *core, uint64_t id)
{
    struct sy_core_request *r = core->requests;
    while (r && r->id != id)
        r = r->next;
    return r;
}

static void free_request(struct sy_core *core, struct sy_core_request *r)
{
    if (r->holds_regions) {
        sy_core_regions_release(core, r->inputs, r->n_inputs);
        sy_core_regions_release(core, r->outputs, r->n_outputs);
    }
    sy_core_sizes_give(&core->models[r->model], r->sizes);
    sy_core_model_let_go(core, r->model);
    free(r->inputs);
    free(r->outputs);
    free(r);
}

static uint64_t *copy_addresses(const uint64_t *from, int n)
{
    uint64_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (copy)
        memcpy(copy, from, (size_t)n * sizeof *copy);
    return copy;
}

static int make_request(struct sy_core *core, const struct sy_core_work *work,
                        struct sy_core_request **out)
{
    const struct sy_graph *graph = core->models[work->model].package->graph;
    if (graph->n_inputs > SY_MAX_ENDS || graph->n_outputs > SY_MAX_ENDS)
        return sy_error_set(SY_EUNSUPPORTED, "model %s has more than %d inputs or outputs",
                            core->models[work->model].name, SY_MAX_ENDS);
    struct sy_core_request *r = calloc(1, sizeof *r);
    if (!r)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    r->model = work->model;
    sy_core_model_hold(core, work->model);
    r->batch = work->batch;
    r->sizes = sy_core_sizes_again(work->sizes);
    r->n_parts = work->n_parts;
    r->n_inputs = work->n_parts * graph->n_inputs;
    r->n_outputs = work->n_parts * graph->n_outputs;
    r->inputs = copy_addresses(work->inputs, r->n_inputs);
    r->outputs = copy_addresses(work->outputs, r->n_outputs);
    if (!r->inputs || !r->outputs) {
        free_request(core, r);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    }
    sy_core_regions_hold(core, r->inputs, r->n_inputs);
    sy_core_regions_hold(core, r->outputs, r->n_outputs);
    r->holds_regions = true;
    *out = r;
    return SY_OK;
}

static int take_options(struct sy_core *core, struct sy_core_request *r,
                        const struct sy_core_infer_options *options)
{
    if (options->class_ < 0 || options->class_ > MOST_CLASS)
        return sy_error_set(SY_EARG, "class %d: 0, the most urgent, to %d", options->class_,
                            MOST_CLASS);
    r->class_ = options->class_;
    r->deadline_ns = options->deadline_ns ? r->report.arrived_ns + options->deadline_ns : 0;
    r->guess = sy_core_predict(core, r);
    return options->tenant ? sy_core_tenant_find(core, options->tenant, &r->tenant) : SY_OK;
}

int sy_core_infer_alone(struct sy_core *core, const struct sy_core_work *work,
                        const struct sy_core_infer_options *options, sy_core_infer_done done,
                        void *ctx, uint64_t *out_id)
{
    struct sy_core_request *r = NULL;
    int index = work->model;
    SY_TRY(make_request(core, work, &r));
    r->id = r->report.id = work->id ? work->id : ++core->last_request;
    r->done = done;
    r->ctx = ctx;
    r->report.arrived_ns = sy_clock_now();
    r->report.worker = -1;
    int status = take_options(core, r, options);
    if (status < 0) {
        free_request(core, r);
        return status;
    }
    r->next = core->requests;
    core->requests = r;
    core->n_requests++;
    sy_core_tick(core);
    struct sy_sched_request wants = {.id = r->id,
                                     .model = index,
                                     .batch = r->batch,
                                     .sizes = r->sizes ? r->sizes->id : 0,
                                     .class_ = r->class_,
                                     .deadline_ns = r->deadline_ns,
                                     .duration = sy_core_whole_duration(core, r)};
    struct sy_prediction prediction;
    status = sy_sched_request(core->sched, &wants, &prediction);
    if (status < 0) {
        if (status == SY_EDEADLINE) {
            sy_ns now = sy_clock_now();
            sy_core_doubt(core, index, r->guess, r->deadline_ns > now ? r->deadline_ns - now : 0);
            status = sy_core_say_preparing(core, r, status);
        }
        core->n_refused_late += status == SY_EDEADLINE;
        core->requests = r->next;
        core->n_requests--;
        free_request(core, r);
        return status;
    }
    r->report.predicted_ns =
        prediction.finish_ns - SY_MIN(r->report.arrived_ns, prediction.finish_ns);
    core->models[index].n_requests++;
    sy_core_heads_note(core, &core->models[index]);
    if (out_id)
        *out_id = r->id;
    sy_core_pump_soon(core);
    return SY_OK;
}

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
    sy_core_sizes_give(m, sizes);
    if (status == SY_OK && out_id)
        *out_id = id;
    return status;
}

int sy_core_infer(struct sy_core *core, const struct sy_core_model_ref *model, int64_t batch,
                  const uint64_t *inputs, const uint64_t *outputs,
                  const struct sy_core_infer_options *options, sy_core_infer_done done, void *ctx,
                  uint64_t *out_id)
{
    struct sy_core_model *m = (struct sy_core_model *)(uintptr_t)model;
    int status = take_request(core, m, batch, inputs, outputs, options, done, ctx, out_id);
    if (status < 0)
        sy_core_note_refusal(core, m, status);
    return status;
}

void sy_core_infer_cancel(struct sy_core *core, uint64_t id)
{
    if (!sy_core_batch_cancel(core->batches, id))
        sy_sched_cancel(core->sched, id);
    sy_core_pump_soon(core);
}

/* What it took on the device, without its time in the queue: what the next one of this model is expected to take. */
static void learn(struct sy_core *core, const struct sy_core_request *r)
{
    struct sy_core_slice *slice = &core->slices[r->slice];
    sy_ns begun = SY_MAX(r->report.started_ns, slice->last_finish_ns);
    slice->last_finish_ns = r->report.finished_ns;
    core->n_late += r->deadline_ns && r->report.finished_ns > r->deadline_ns;
    if (r->report.attempts == 1 && r->report.finished_ns > begun)
        sy_core_learn(core, r->model, r->guess, r->report.finished_ns - begun);
}

void sy_core_end_request(struct sy_core *core, struct sy_core_request *r, int status,
                         const char *error)
{
    struct sy_core_request **at = &core->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    core->n_requests--;
    struct sy_core_model *m = &core->models[r->model];
    r->report.finished_ns = sy_clock_now();
    if (status == SY_OK)
        learn(core, r);
    core->n_done += status == SY_OK;
    core->n_failed += status < 0;
    core->n_swaps += status == SY_OK && r->report.swapped;
    core->moved_bytes += r->report.moved_bytes;
    m->n_failed += status < 0;
    m->n_swaps += status == SY_OK && r->report.swapped;
    if (!sy_core_batch_is_run(r->done))
        sy_core_note_end(core, r->model, status, &r->report);
    r->done(r->ctx, status, status < 0 ? error : NULL, &r->report);
    free_request(core, r);
    sy_core_poll_next(core);
}

void sy_core_trace_enable(struct sy_core *core, bool enable)
{
    sy_trace_enable(core->trace, enable);
}

int sy_core_trace_dump(struct sy_core *core, json_t **out)
{
    return sy_trace_dump(core->trace, out);
}

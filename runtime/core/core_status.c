/* Status as JSON. Keys: STATUS.md. */
#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_arrival.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *device_json(const struct sy_core *core)
{
    const struct sy_device_properties *p = sy_device_get_properties(core->device);
    return json_pack("{s:s, s:s, s:b, s:b, s:f}", "kind", core->spec.kind, "name", p->name,
                     "unified", (int)p->unified, "emulated", (int)p->emulated, "link_gbps",
                     p->link_gbps);
}

static void add_block(void *blocks, uint64_t offset, uint64_t bytes, bool used)
{
    json_array_append_new(blocks, json_pack("{s:o, s:o, s:b}", "offset", count(offset), "bytes",
                                            count(bytes), "used", (int)used));
}

/* The pool's map at lower resolution: adjacent blocks that are used, or free but small, are merged. */
struct coarse_map {
    json_t *blocks;
    uint64_t gap_bytes, offset, bytes; /* the current merged block */
};

static void end_stretch(struct coarse_map *map)
{
    if (map->bytes)
        add_block(map->blocks, map->offset, map->bytes, true);
    map->bytes = 0;
}

static void add_coarse(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct coarse_map *map = ctx;
    if (used || (map->bytes && bytes <= map->gap_bytes)) {
        map->offset = map->bytes ? map->offset : offset;
        map->bytes += bytes;
        return;
    }
    end_stretch(map);
    add_block(map->blocks, offset, bytes, false);
}

/* gap_bytes 0: every block individually. */
static json_t *pool_json(const struct sy_pool *pool, uint64_t gap_bytes)
{
    if (!pool)
        return json_null();
    json_t *blocks = json_array();
    struct coarse_map map = {.blocks = blocks, .gap_bytes = gap_bytes};
    if (gap_bytes > 0)
        sy_pool_walk(pool, add_coarse, &map);
    else
        sy_pool_walk(pool, add_block, blocks);
    end_stretch(&map);
    return json_pack("{s:o, s:o, s:o, s:o}", "bytes", count(sy_pool_capacity_bytes(pool)),
                     "free_bytes", count(sy_pool_free_bytes(pool)), "largest_free_bytes",
                     count(sy_pool_largest_free_bytes(pool)), "blocks", blocks);
}

/* State names as in "loading_models": in lower case. */
static json_t *state_json(enum sy_worker_state state)
{
    char text[32] = "";
    const char *name = sy_worker_state_name(state);
    for (size_t i = 0; name[i] && i < sizeof text - 1; i++)
        text[i] = (char)tolower((unsigned char)name[i]);
    return json_string(text);
}

static json_t *workers_json(struct sy_core *core)
{
    json_t *list = json_array();
    for (int w = 0; w < core->n_workers; w++) {
        uint64_t job = 0, request = 0;
        for (const struct sy_core_job *j = core->jobs; j; j = j->next)
            if (j->worker == w)
                job = j->id;
        for (const struct sy_core_request *r = core->requests; r; r = r->next)
            if (r->run && r->report.worker == w)
                request = r->id;
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:o, s:o, s:o, s:i}", "worker", w, "pid",
                                        (int)sy_supervisor_pid(core->supervisor, w), "state",
                                        state_json(sy_supervisor_state(core->supervisor, w)), "job",
                                        count(job), "request", count(request), "deaths",
                                        sy_supervisor_n_deaths(core->supervisor, w)));
    }
    return list;
}

static void add_place(void *places, uint64_t offset, uint64_t bytes, bool is_head)
{
    json_array_append_new(places, json_pack("{s:o, s:o, s:b}", "offset", count(offset), "bytes",
                                            count(bytes), "head", (int)is_head));
}

/* The model's extents in the pool. */
static json_t *places_json(const struct sy_core *core, int model)
{
    json_t *places = json_array();
    sy_residency_walk(sy_sched_residency(core->sched), model, add_place, places);
    return places;
}

static json_t *model_json(struct sy_core *core, int i)
{
    static const char *const states[] = {"loading", "ready", "unavailable"};
    const struct sy_core_model *m = &core->models[i];
    const struct sy_residency *r = sy_sched_residency(core->sched);
    const struct sy_model_heads *h = &m->heads;
    unsigned long long arrived;
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:i, s:i, s:o, s:o, s:o, s:o}", "name", m->name, "path", m->path,
        "state", states[m->state], "error", m->error, "weights_bytes",
        count(m->package->weights_bytes), "groups", m->n_groups, "resident_groups",
        sy_residency_n_resident(r, i), "resident_bytes", count(sy_residency_resident_bytes(r, i)),
        "requests", count(m->n_requests), "failed", count(m->n_failed), "swaps", count(m->n_swaps));
    json_t *more = json_pack(
        "{s:o, s:o, s:i, s:o, s:i, s:f, s:o, s:o, s:o}", "places", places_json(core, i),
        "pool_bytes", count(h->pool_bytes), "free_prefix_groups", h->free_prefix,
        "free_prefix_bytes", count(h->bytes ? h->bytes[h->free_prefix] : 0), "head_groups",
        sy_residency_n_head(r, i), "requests_per_s", sy_core_heads_rate(m, sy_clock_now()),
        "predicted_swap_ns", count(sy_core_heads_predict(core, i)), "link_bytes",
        count(m->link_bytes), "device_ns", count(m->account.used_ns));
    json_object_set_new(json, "place", json_integer(i));
    json_object_set_new(json, "version", json_integer(m->ref.version));
    json_object_set_new(
        json, "slice", json_string(sy_core_slice_name(core, sy_sched_model_slice(core->sched, i))));
    json_object_set_new(json, "tenant",
                        m->tenant < 0 ? json_null() : json_string(core->tenants[m->tenant].name));
    json_object_update(json, more);
    json_decref(more);
    if (sy_core_arrival_progress(core, i, &arrived))
        json_object_set_new(json, "arrived_bytes", count(arrived));
    return json;
}

static_assert(SY_CORE_MODEL_PLACES == SY_MAX_MODELS, "places of the model table");

static json_t *models_json(struct sy_core *core, const struct sy_core_status_part *part)
{
    json_t *list = json_array();
    int n = 0;
    for (int i = SY_MAX(part->first_model, 0); i < (int)SY_MAX_MODELS && n < part->n_models; i++)
        if (core->models[i].used && !core->models[i].leaving) {
            json_array_append_new(list, model_json(core, i));
            n++;
        }
    return list;
}

/* Remaining device time in seconds: as the policy has measured, else by the mean over all steps; < 0: not known. */
static double left_of(const struct sy_core_job *j, const struct sy_sched_job_view *view)
{
    if (view->left_ns != UINT64_MAX)
        return (double)view->left_ns / 1e9;
    if (j->step <= j->first_step || j->total_steps < j->step)
        return -1;
    return (double)j->account.used_ns / 1e9 / (double)(j->step - j->first_step) *
           (double)(j->total_steps - j->step);
}

static bool guaranteed_trains(const struct sy_core *core)
{
    const struct sy_core_job *j = core->jobs;
    while (j && (j->opportunistic || j->suspended || j->state != SY_JOB_TRAINING))
        j = j->next;
    return j != NULL;
}

/* Why a job has not started, or is never scheduled. */
static json_t *waits_for(const struct sy_core *core, const struct sy_core_job *j,
                         const struct sy_sched_job_view *view)
{
    if (j->state == SY_JOB_QUEUED && core->draining)
        return json_string(
            "nothing any more: the server is stopping (what it keeps goes on at its next start)");
    if (j->state == SY_JOB_QUEUED && core->jobs_held)
        return json_string("the models that the server starts with: they are being loaded");
    if (j->state == SY_JOB_QUEUED && j->suspended)
        return json_string("'switchyard jobs resume': it is paused, and has no worker");
    if (j->state == SY_JOB_QUEUED)
        return json_sprintf("a worker: each job has one of the %d, the last is left to requests "
                            "(serve --workers)",
                            core->n_workers);
    if (j->state == SY_JOB_PREPARING && view->persistent_bytes > 0 && !view->admitted)
        return json_sprintf("memory: %llu bytes that last and %llu for an iteration, in the pool "
                            "of %llu, beside the "
                            "other jobs and the %llu that models need at least",
                            (unsigned long long)view->persistent_bytes,
                            (unsigned long long)view->ephemeral_bytes,
                            (unsigned long long)sy_pool_capacity_bytes(sy_sched_pool(core->sched)),
                            (unsigned long long)sy_sched_least_room(core->sched));
    if (j->state == SY_JOB_TRAINING && j->opportunistic && !j->suspended && !view->has_turn &&
        guaranteed_trains(core))
        return json_string("the guaranteed jobs: of class 'opportunistic', it has what time and "
                           "memory they leave");
    return json_null();
}

static json_t *job_json(struct sy_core *core, struct sy_core_job *j)
{
    sy_core_job_refresh(core, j);
    double elapsed_s = j->started_ns ? (double)(sy_clock_now() - j->started_ns) / 1e9 : 0;
    double rate = j->state == SY_JOB_TRAINING && elapsed_s > 0
                      ? (double)(j->step - j->first_step) / elapsed_s
                      : 0;
    json_t *json = json_pack(
        "{s:o, s:s, s:s, s:i, s:o, s:o, s:o, s:f, s:f, s:o, s:o}", "job", count(j->id), "name",
        j->name, "state", sy_core_job_state_name(core, j), "worker", j->worker, "step",
        count(j->step), "total_steps", count(j->total_steps), "snapshot_step",
        count(j->snapshot_step), "loss", j->loss == j->loss ? j->loss : 0.0, "steps_per_s", rate,
        "busy_ns", count(j->busy_ns), "longest_layer_ns", count(j->longest_layer_ns));
    json_object_set_new(json, "longest_layer", json_string(j->longest_what));
    json_object_set_new(json, "accuracy", j->accuracy >= 0 ? json_real(j->accuracy) : json_null());
    json_object_set_new(json, "accuracy_step", count(j->accuracy_step));
    json_object_set_new(json, "error", json_string(j->error));
    json_object_set_new(json, "kept", json_boolean(j->kept));
    json_object_set_new(json, "parked", json_boolean(j->parked));
    json_object_set_new(json, "suspended", json_boolean(j->suspended));
    json_object_set_new(json, "persistent_bytes", count(j->persistent_bytes));
    json_object_set_new(json, "ephemeral_bytes", count(j->ephemeral_bytes));
    json_object_set_new(json, "tenant", json_string(core->tenants[j->tenant].name));
    json_object_set_new(json, "priority", json_integer(j->priority));
    json_object_set_new(json, "class",
                        json_string(j->opportunistic ? "opportunistic" : "guaranteed"));
    json_object_set_new(json, "device_ns", count(j->account.used_ns));
    /* Ended jobs have the same keys. */
    struct sy_sched_job_view view = {.lane = -1};
    bool is_there = sy_sched_job_view(core->sched, j->id, &view);
    json_object_set_new(json, "waits_for", is_there ? waits_for(core, j, &view) : json_null());
    json_object_set_new(json, "beside", sy_core_fill_json(core, j));
    json_object_set_new(json, "lane", json_integer(view.lane));
    json_object_set_new(json, "slice",
                        is_there ? json_string(sy_core_slice_name(core, view.slice)) : json_null());
    json_object_set_new(json, "threads", json_integer(j->team));
    json_object_set_new(json, "admitted", json_boolean(view.admitted));
    json_object_set_new(json, "persistent_offset", count(view.persistent_offset));
    double left_s = is_there ? left_of(j, &view) : -1;
    json_object_set_new(json, "left_s", left_s >= 0 ? json_real(left_s) : json_null());
    return json;
}

static json_t *jobs_json(struct sy_core *core, const struct sy_core_status_part *part)
{
    json_t *list = json_array();
    int n = 0;
    for (struct sy_core_job *j = core->jobs; j && n < part->n_jobs; j = j->next)
        if (j->id > part->after_job) {
            json_array_append_new(list, job_json(core, j));
            n++;
        }
    return list;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static json_t *waits_json(const struct sy_core *core)
{
    static uint64_t sorted[SY_CORE_WAITS];
    size_t n = (size_t)SY_MIN(core->n_waits, (uint64_t)SY_CORE_WAITS);
    memcpy(sorted, core->waits, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return json_pack("{s:o, s:o, s:o, s:o}", "n", count(core->n_waits), "p50",
                     count(n ? sorted[n / 2] : 0), "p99", count(n ? sorted[(n * 99) / 100] : 0),
                     "max", count(n ? sorted[n - 1] : 0));
}

bool sy_core_account_is_valid(const struct sy_core *core)
{
    sy_ns sum = core->gone_ns;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        sum += core->models[i].used ? core->models[i].account.used_ns : 0;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        sum += j->account.used_ns;
    return sum == core->account.charged_ns && sy_account_is_valid(&core->account);
}

static json_t *account_json(struct sy_core *core)
{
    sy_account_pass(&core->account, sy_clock_now());
    sy_assert_expensive(sy_core_account_is_valid(core));
    return json_pack("{s:o, s:o, s:o, s:o}", "elapsed_ns",
                     count(core->account.now_ns - core->account.begun_ns), "idle_ns",
                     count(core->account.idle_ns), "charged_ns", count(core->account.charged_ns),
                     "gone_ns", count(core->gone_ns));
}

/* The lanes' extents in the pool. */
static json_t *lanes_json(const struct sy_core *core)
{
    const struct sy_lanes *lanes = sy_sched_lanes(core->sched);
    json_t *list = json_array();
    for (int i = 0; i < SY_CORE_MAX_WORKERS; i++) {
        uint64_t offset, bytes;
        int n_jobs;
        if (sy_lanes_bounds(lanes, i, &offset, &bytes, &n_jobs) && n_jobs > 0)
            json_array_append_new(list,
                                  json_pack("{s:i, s:o, s:o, s:i}", "lane", i, "offset",
                                            count(offset), "bytes", count(bytes), "jobs", n_jobs));
    }
    return list;
}

static json_t *counters_json(const struct sy_core *core)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "link_bytes", count(core->link_bytes), "gathered",
        count(sy_core_batch_n_sent(core->batches)), "spills", count(core->n_spills),
        "spilled_bytes", count(core->spilled_bytes), "late", count(core->n_late), "refused_late",
        count(core->n_refused_late), "interrupts", count(core->n_interrupts), "continued",
        count(core->n_continued), "requests", count(core->n_done + core->n_failed), "failed",
        count(core->n_failed), "swaps", count(core->n_swaps), "evictions",
        count(sy_sched_n_evicted(core->sched)), "preemptions", count(core->n_preemptions),
        "moved_bytes", count(core->moved_bytes), "storage_bytes", count(core->storage_bytes),
        "image_kept_bytes", count(core->image_kept_bytes));
}

int sy_core_status(struct sy_core *core, json_t **out)
{
    struct sy_core_status_part all = {.n_models = SY_CORE_MODEL_PLACES, .n_jobs = INT_MAX};
    SY_TRY(sy_core_status_part(core, &all, out));
    json_object_set_new(*out, "pairs", sy_core_corun_json(core)); /* not shown on the page */
    return SY_OK;
}

int sy_core_status_part(struct sy_core *core, const struct sy_core_status_part *part, json_t **out)
{
    uint64_t gap_bytes = part->gap_bytes;
    json_t *slab = json_pack("{s:o, s:o}", "bytes", count(sy_slab_size(core->slab)), "used_bytes",
                             count(sy_slab_used_bytes(core->slab)));
    json_t *queue = json_pack("{s:i, s:i}", "waiting", sy_sched_n_waiting(core->sched), "started",
                              sy_sched_n_started(core->sched));
    json_t *account = account_json(core); /* first: it updates all device_ns to now */
    *out = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}",
                     "device", device_json(core), "account", account, "rules",
                     sy_core_rules_json(core), "lanes", lanes_json(core), "pool",
                     pool_json(sy_sched_pool(core->sched), gap_bytes), "image",
                     pool_json(sy_sched_image(core->sched), gap_bytes), "slab", slab, "workers",
                     workers_json(core), "models", models_json(core, part), "queue", queue, "jobs",
                     jobs_json(core, part), "counters", counters_json(core), "preempt_wait_ns",
                     waits_json(core), "draining", (int)core->draining);
    if (*out) {
        json_object_set_new(*out, "slices", sy_core_slices_json(core));
        json_object_set_new(*out, "slices_limit", sy_core_units_limit(core));
        json_object_set_new(*out, "slices_cache", sy_core_cache_json(core));
    }
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the status");
}

#include "runtime/core/core_metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

static bool is_listed(const struct sy_core_model *m)
{
    return m->used && !m->leaving;
}

static struct sy_core_room room_of(const struct sy_pool *pool)
{
    if (!pool)
        return (struct sy_core_room){0};
    return (struct sy_core_room){.bytes = sy_pool_capacity_bytes(pool),
                                 .free_bytes = sy_pool_free_bytes(pool),
                                 .largest_free_bytes = sy_pool_largest_free_bytes(pool)};
}

static void count_device(struct sy_core *core, struct sy_core_metrics *m)
{
    const struct sy_device_properties *device = sy_device_get_properties(core->device);

    snprintf(m->device_kind, sizeof m->device_kind, "%s", core->spec.kind);
    snprintf(m->device_name, sizeof m->device_name, "%s", device->name);
    snprintf(m->device_uuid, sizeof m->device_uuid, "%s", device->uuid);
    m->pool = room_of(sy_sched_pool(core->sched));
    m->image = room_of(sy_sched_image(core->sched));
    m->slab.bytes = sy_slab_size(core->slab);
    m->slab.free_bytes = m->slab.bytes - sy_slab_used_bytes(core->slab);
}

static void count_slices(const struct sy_core *core, struct sy_core_metrics *m)
{
    m->n_slices = core->n_slices;
    for (int i = 0; i < core->n_slices; i++) {
        const struct sy_core_slice *c = &core->slices[i];
        snprintf(m->slices[i].name, sizeof m->slices[i].name, "%s", c->name);
        m->slices[i].n_cores = (int)c->n_cores;
        m->slices[i].used_ns = c->used_ns;
    }
}

static void count_events(const struct sy_core *core, struct sy_core_metrics *m)
{
    m->is_draining = core->draining;
    count_slices(core, m);
    m->n_waiting = sy_sched_n_waiting(core->sched) + sy_core_batch_n_gathered(core->batches);
    m->n_started = sy_sched_n_started(core->sched);
    m->n_swaps = core->n_swaps;
    m->n_late = core->n_late;
    m->n_gathered = sy_core_batch_n_sent(core->batches);
    m->n_interrupts = core->n_interrupts;
    m->n_continued = core->n_continued;
    m->n_evicted = sy_sched_n_evicted(core->sched);
    m->n_preemptions = core->n_preemptions;
    m->n_spills = core->n_spills;
    m->spilled_bytes = core->spilled_bytes;
    m->link_bytes = core->link_bytes;
    m->storage_bytes = core->storage_bytes;
    m->phases = core->counts.phases;
    m->preempt_wait = core->counts.preempt_wait;
    m->refused = core->counts.refused;
    memcpy(m->failed, core->counts.failed, sizeof m->failed);
}

/* Device time charged to models: all charged time minus that of jobs. */
static void count_account(struct sy_core *core, struct sy_core_metrics *m)
{
    sy_account_pass(&core->account, sy_clock_now());
    m->idle_ns = core->account.idle_ns;
    m->training_ns = core->counts.gone_jobs_ns;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        m->training_ns += j->account.used_ns;
    m->inference_ns = core->account.charged_ns - m->training_ns;
}

static void count_worker(const struct sy_core *core, int worker, struct sy_core_worker_metrics *out)
{
    out->state = sy_supervisor_state(core->supervisor, worker);
    out->n_deaths = sy_supervisor_n_deaths(core->supervisor, worker);
}

/* Counts waiting requests by model. */
static void count_pending(const struct sy_core *core, int pending[SY_MAX_MODELS])
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        pending[i] = 0;
    for (const struct sy_core_request *r = core->requests; r; r = r->next)
        pending[r->model] += r->run == 0;
    sy_core_batch_count_gathered(core->batches, pending);
}

static void count_model(const struct sy_core *core, int model, struct sy_core_model_metrics *out)
{
    const struct sy_core_model *m = &core->models[model];

    snprintf(out->name, sizeof out->name, "%s", m->name);
    out->version = m->ref.version;
    out->is_ready = m->state == SY_MODEL_READY;
    out->weights_bytes = m->package->weights_bytes;
    out->resident_bytes = sy_residency_resident_bytes(sy_sched_residency(core->sched), model);
    out->link_bytes = m->link_bytes;
    out->n_swaps = m->n_swaps;
    out->device_ns = m->account.used_ns;
    out->phases = m->phases;
}

static void count_models(const struct sy_core *core, struct sy_core_metrics *m)
{
    int pending[SY_MAX_MODELS];

    count_pending(core, pending);
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (is_listed(&core->models[i])) {
            m->models[m->n_models].n_pending = pending[i];
            count_model(core, i, &m->models[m->n_models++]);
        }
}

static void count_job(struct sy_core *core, struct sy_core_job *j, struct sy_core_job_metrics *out)
{
    sy_ns since = j->started_ns ? sy_clock_now() - j->started_ns : 0;

    sy_core_job_refresh(core, j);
    out->id = j->id;
    snprintf(out->name, sizeof out->name, "%s", j->name ? j->name : "");
    snprintf(out->tenant, sizeof out->tenant, "%s", core->tenants[j->tenant].name);
    out->state = sy_core_job_state_name(core, j);
    out->step = j->step;
    out->total_steps = j->total_steps;
    out->bytes = j->persistent_bytes;
    out->loss = j->step > 0 ? j->loss : (double)NAN;
    out->accuracy = j->accuracy >= 0 ? j->accuracy : (double)NAN;
    out->device_ns = j->account.used_ns;
    if (j->state == SY_JOB_TRAINING && since > 0)
        out->steps_per_s = (double)(j->step - j->first_step) * 1e9 / (double)since;
}

static struct sy_core_metrics *allocate(const struct sy_core *core)
{
    int n_models = 0, n_jobs = 0;

    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        n_models += is_listed(&core->models[i]);
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        n_jobs++;
    struct sy_core_metrics *m = calloc(1, sizeof *m + (size_t)n_models * sizeof *m->models +
                                              (size_t)n_jobs * sizeof *m->jobs +
                                              (size_t)core->n_workers * sizeof *m->workers);
    if (!m)
        return NULL;
    m->models = (struct sy_core_model_metrics *)(m + 1);
    m->jobs = (struct sy_core_job_metrics *)(m->models + n_models);
    m->workers = (struct sy_core_worker_metrics *)(m->jobs + n_jobs);
    m->n_workers = core->n_workers;
    return m;
}

int sy_core_metrics(struct sy_core *core, struct sy_core_metrics **out)
{
    struct sy_core_metrics *m = allocate(core);

    SY_TRY_ALLOC(m, "no memory for the metrics");
    count_device(core, m);
    count_events(core, m);
    for (int w = 0; w < core->n_workers; w++)
        count_worker(core, w, &m->workers[w]);
    count_models(core, m);
    count_account(core, m);
    for (struct sy_core_job *j = core->jobs; j; j = j->next)
        count_job(core, j, &m->jobs[m->n_jobs++]);
    *out = m;
    return SY_OK;
}

/* The table of training jobs, updated from the workers' control pages and the state folder. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

struct sy_core_job *sy_core_find_job(struct sy_core *core, uint64_t id)
{
    struct sy_core_job *j = core->jobs;
    while (j && j->id != id)
        j = j->next;
    return j;
}

int sy_core_job_tenant(struct sy_core *core, uint64_t id, const char **out)
{
    const struct sy_core_job *j = sy_core_find_job(core, id);
    if (!j)
        return sy_error_set(SY_ENOTFOUND, "there is no job %llu", (unsigned long long)id);
    *out = core->tenants[j->tenant].name;
    return SY_OK;
}

void sy_core_job_close_spill(struct sy_core_job *j)
{
    if (j->spill_file >= 0)
        close(j->spill_file);
    j->spill_file = -1;
}

void sy_core_job_free(struct sy_core_job *j)
{
    sy_core_job_close_spill(j);
    free(j->text);
    free(j->name);
    free(j);
}

void sy_core_free_jobs(struct sy_core *core)
{
    while (core->jobs) {
        struct sy_core_job *j = core->jobs;
        core->jobs = j->next;
        sy_core_job_free(j);
    }
}

bool sy_core_job_is_over(const struct sy_core_job *j)
{
    return j->state == SY_JOB_ENDED || j->state == SY_JOB_FAILED;
}

void sy_core_jobs_forget_old(struct sy_core *core)
{
    int n = 0;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        n += sy_core_job_is_over(j) && !j->kept;
    for (struct sy_core_job **at = &core->jobs; *at && n > SY_CORE_ENDED_JOBS;) {
        struct sy_core_job *j = *at;
        if (!sy_core_job_is_over(j) || j->kept) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        core->gone_ns += j->account.used_ns;
        core->counts.gone_jobs_ns += j->account.used_ns;
        sy_core_job_free(j);
        n--;
    }
}

void sy_core_job_longest(struct sy_core_job *j, const struct sy_control_page *page)
{
    char what[SY_LONGEST_BYTES];
    uint64_t ns;
    if (!sy_page_longest(page, &ns, what) || ns <= j->longest_layer_ns)
        return;
    j->longest_layer_ns = ns;
    memcpy(j->longest_what, what, sizeof what);
}

void sy_core_job_refresh(struct sy_core *core, struct sy_core_job *j)
{
    if (j->worker < 0 || j->state != SY_JOB_TRAINING)
        return;
    struct sy_control_page *page = sy_supervisor_page(core->supervisor, j->worker);
    if (atomic_load_explicit(&page->job, memory_order_acquire) != j->id)
        return;
    uint64_t bits = atomic_load_explicit(&page->train_loss_bits, memory_order_relaxed);
    memcpy(&j->loss, &bits, sizeof j->loss);
    uint64_t evaluated = atomic_load_explicit(&page->train_accuracy_step, memory_order_acquire);
    if (evaluated) {
        bits = atomic_load_explicit(&page->train_accuracy_bits, memory_order_relaxed);
        memcpy(&j->accuracy, &bits, sizeof j->accuracy);
        j->accuracy_step = evaluated;
    }
    j->step = atomic_load_explicit(&page->train_step, memory_order_relaxed);
    uint64_t total = atomic_load_explicit(&page->train_total_steps, memory_order_relaxed);
    if (total && total != j->total_steps) {
        j->total_steps = total;
        sy_sched_job_set_total(core->sched, j->id, total);
    }
    j->busy_ns = atomic_load_explicit(&page->train_busy_ns, memory_order_relaxed);
    sy_core_job_longest(j, page);
    j->snapshot_step =
        SY_MAX(j->snapshot_step, atomic_load_explicit(&page->snapshot_step, memory_order_relaxed));
}

int sy_core_job_keep_settings(struct sy_core *core, const struct sy_core_job *j, bool suspended,
                              const int *priority, const char *slice)
{
    json_t *set = json_pack("{s:b}", "suspended", (int)suspended);
    if (set && priority)
        json_object_set_new(set, "priority", json_integer(*priority));
    if (set && slice)
        json_object_set_new(set, "slice", json_string(slice));
    if (set && j->park_wanted)
        json_object_update_new(set, json_pack("{s:b, s:I, s:I}", "parked", 1, "step",
                                              (json_int_t)j->step, "total_steps",
                                              (json_int_t)j->total_steps));
    int status = set ? sy_job_store_put(core->store, j->id, j->text, set)
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    json_decref(set);
    return status;
}

int sy_core_job_keep(struct sy_core *core, const struct sy_core_job *j)
{
    return sy_core_job_keep_settings(core, j, (j->suspended || j->pauses_first) && !j->park_wanted,
                                     j->priority_set ? &j->priority : NULL,
                                     j->slice_set ? j->slice : NULL);
}

/* Reason why a job does not compute while it starts, or is suspended without a worker. */
static const char *idle_state_name(const struct sy_core *core, const struct sy_core_job *j)
{
    struct sy_sched_job_view at = {0};
    (void)sy_sched_job_view(core->sched, j->id, &at);
    return j->suspended ? "suspended" : at.spilled ? "spilled" : at.has_turn ? "paused" : "waiting";
}

const char *sy_core_job_state_name(const struct sy_core *core, const struct sy_core_job *j)
{
    static const char *const states[] = {"queued",   "preparing", "starting",
                                         "training", "ended",     "failed"};
    bool held = (j->state == SY_JOB_TRAINING && j->since_ns == 0) ||
                (j->state == SY_JOB_QUEUED && j->suspended);
    if (j->parked && j->state == SY_JOB_ENDED)
        return "suspended";
    return held ? idle_state_name(core, j) : states[j->state];
}

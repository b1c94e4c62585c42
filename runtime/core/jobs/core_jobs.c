/* Client operations on training jobs, from submission to their end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

void sy_core_job_compute_begin(struct sy_core *core, struct sy_core_job *j, sy_ns at)
{
    if (j->since_ns == 0)
        j->since_ns = at;
    sy_account_begin(&core->account, &j->account, at);
    sy_core_fill_watch(core);
}

static void note_slice(struct sy_core *core, const struct sy_core_job *j, sy_ns at)
{
    struct sy_sched_job_view view;
    if (j->since_ns && at > j->since_ns && sy_sched_job_view(core->sched, j->id, &view))
        core->slices[view.slice].used_ns += at - j->since_ns;
}

void sy_core_job_compute_end(struct sy_core *core, struct sy_core_job *j, sy_ns at)
{
    if (j->since_ns)
        sy_trace_span(core->trace, SY_TRACE_TRAINING, j->name, j->since_ns, at, 0);
    note_slice(core, j, at);
    sy_core_fill_compute_end(core, j, at);
    j->since_ns = 0;
    sy_account_end(&core->account, &j->account, at);
}

/* ---- submit, stop, end ------------------------------------------------------------------------ */

void sy_core_answer_start(struct sy_core_job *j, int status, const char *error)
{
    sy_core_done done = j->done;
    j->done = NULL;
    if (done)
        done(j->done_ctx, status, status < 0 ? error : NULL);
}

#define FEWEST_WORKERS 2 /* one trains, one is reserved for requests */

/* A file that cannot be removed is also logged: the client that ended the job may have gone. */
static int remove_file(struct sy_core *core, uint64_t job)
{
    int status = sy_job_store_remove(core->store, job);
    if (status < 0)
        sy_log_error("jobs", "event=not_removed job=%llu why=\"%s\"", (unsigned long long)job,
                     sy_error_text());
    return status;
}

/* Answers a stop: with how the job ended, or that it will be resumed. */
static void answer_stop(struct sy_core_job *j, int removed, const char *why)
{
    if (j->stop_done && j->status == SY_OK && removed < 0)
        j->stop_done(j->stop_ctx, removed, why);
    else if (j->stop_done && j->status == SY_OK && j->park_wanted && !j->parked)
        j->stop_done(j->stop_ctx, SY_EBUSY, "the job took its last step, and has ended");
    else if (j->stop_done)
        j->stop_done(j->stop_ctx, j->status, j->status < 0 ? j->error : NULL);
    j->stop_done = NULL;
}

/* A job that ends because the runtime stops, or because its workers are lost, is not over: its file stays, and the next start resumes it. The same holds for a
 * job of an earlier start that cannot begin in this one (a smaller pool, missing data, workers that die of it): it keeps its snapshots until it is canceled. */
void sy_core_end_job(struct sy_core *core, struct sy_core_job *j, int status, const char *error)
{
    bool hopeless = sy_core_n_workers_left(core) < FEWEST_WORKERS && status == SY_EPEER;
    bool suspended =
        (core->stopping || hopeless) && !j->stop_wanted && (status < 0 || j->step < j->total_steps);
    bool not_begun = j->resumed && status < 0 && !j->stop_wanted && !j->is_script;
    bool canceled = status == SY_ECANCELED && j->stop_wanted;
    bool parked = j->park_wanted && (status < 0 || j->step < j->total_steps);
    if (sy_core_job_is_over(j))
        return;
    sy_core_job_compute_end(core, j, sy_clock_now());
    sy_core_job_close_spill(j);
    j->state = status < 0 && !canceled ? SY_JOB_FAILED : SY_JOB_ENDED;
    j->worker = -1;
    j->status = canceled ? SY_OK : status;
    if (j->status < 0)
        snprintf(j->error, sizeof j->error, "%s", error);
    j->parked = parked;
    j->kept = suspended || not_begun || parked;
    int removed = parked    ? sy_core_job_keep(core, j) /* with its step */
                  : j->kept ? SY_OK
                            : remove_file(core, j->id);
    char why[512] = "";
    if (removed < 0)
        snprintf(why, sizeof why, "%s", sy_error_text());
    sy_log_info("jobs", "event=%s job=%llu name=%s step=%llu why=\"%s\"",
                j->kept ? "suspended" : "ended", (unsigned long long)j->id, j->name,
                (unsigned long long)j->step, status < 0 ? error : "");
    sy_core_answer_start(j, status < 0 ? status : SY_OK, error);
    answer_stop(j, removed, why);
    sy_core_jobs_forget_old(core);
}

static struct sy_core_job *waiting_job(struct sy_core *core)
{
    struct sy_core_job *j = core->jobs;
    while (j && j->state != SY_JOB_QUEUED)
        j = j->next;
    return j;
}

void sy_core_end_hopeless_jobs(struct sy_core *core)
{
    struct sy_core_job *j;
    if (core->stopping || sy_core_n_workers_left(core) >= FEWEST_WORKERS)
        return;
    while ((j = waiting_job(core))) {
        (void)sy_sched_job_stop(core->sched, j->id); /* it is on no worker: removed at once */
        sy_core_end_job(
            core, j, SY_EPEER,
            "training needs two workers, and fewer are left; see the log for why they died");
    }
}

/* Reads the keys of a job file that the runtime needs; the worker reads the rest. */
static int read_text(struct sy_core *core, struct sy_core_job *j)
{
    json_t *json = json_loads(j->text, 0, NULL);
    const char *name = json_string_value(json_object_get(json, "name"));
    const char *tenant = json_string_value(json_object_get(json, "tenant"));
    const char *class_ = json_string_value(json_object_get(json, "class"));
    json_int_t priority = json_integer_value(json_object_get(json, "priority"));
    int status = SY_OK;
    j->name = strdup(name ? name : "training");
    j->priority = (int)SY_MIN(SY_MAX(priority, -1000), 1000);
    const char *slice = json_string_value(json_object_get(json, "slice"));
    j->has_snapshots = json_object_get(json_object_get(json, "snapshot"), "folder") != NULL;
    snprintf(j->slice, sizeof j->slice, "%s", slice ? slice : "");
    j->opportunistic = class_ && strcmp(class_, "opportunistic") == 0;
    j->is_script = json_is_object(json_object_get(json, "script"));
    if (!j->name)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    else if (j->name[sy_printable_length(
                 j->name)]) /* names are shown on terminals and in the log */
        status = sy_error_set(SY_EARG, "job: a name has no control characters");
    else if (tenant)
        status = sy_core_tenant_find(core, tenant, &j->tenant);
    json_decref(json);
    return status;
}

int sy_core_job_enqueue(struct sy_core *core, const struct sy_core_job *j)
{
    const struct sy_sched_job wants = {.id = j->id,
                                       .tenant = j->tenant,
                                       .priority = j->priority,
                                       .slice = sy_core_slice_of_job(core, j),
                                       .moves = j->has_snapshots,
                                       .opportunistic = j->opportunistic};
    SY_TRY(sy_sched_job_submit(core->sched, &wants));
    sy_core_corun_forget_job(core, j);
    sy_core_pump_soon(core);
    return SY_OK;
}

int sy_core_job_add(struct sy_core *core, uint64_t id, const char *text, bool enqueue,
                    struct sy_core_job **out)
{
    struct sy_core_job **at = &core->jobs, *j = calloc(1, sizeof *j);
    SY_TRY_ALLOC(j, "no memory for a job");
    *j = (struct sy_core_job){
        .id = id, .text = strdup(text), .worker = -1, .accuracy = -1, .spill_file = -1};
    int status = j->text ? read_text(core, j) : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    if (status == SY_OK && enqueue)
        status = sy_core_job_enqueue(core, j);
    if (status < 0) {
        sy_core_job_free(j);
        return status;
    }
    j->account.tenant_ns = &core->tenants[j->tenant].used_ns;
    while (*at)
        at = &(*at)->next;
    *at = j;
    core->last_job = SY_MAX(core->last_job, id);
    *out = j;
    return SY_OK;
}

int sy_core_job_submit(struct sy_core *core, const char *text, sy_core_done done, void *ctx,
                       uint64_t *out_job)
{
    struct sy_core_job *j;
    uint64_t id = core->last_job + 1;
    sy_core_tick(core);
    if (core->draining)
        return sy_error_set(SY_EBUSY, "draining: the runtime stops and takes no jobs");
    if (sy_core_n_workers_left(core) < FEWEST_WORKERS)
        return sy_error_set(SY_EPEER, "training needs two workers, and fewer are left; see the log "
                                      "for why they died");
    if (strlen(text) > SY_MESSAGE_MAX_BYTES / 2)
        return sy_error_set(SY_ETOOBIG, "a job of %zu bytes; at most %u", strlen(text),
                            SY_MESSAGE_MAX_BYTES / 2);
    SY_TRY(sy_job_store_put(core->store, id, text, NULL));
    int status = sy_core_job_add(core, id, text, true, &j);
    if (status < 0) {
        char why[512];
        snprintf(why, sizeof why, "%s", sy_error_text());
        (void)remove_file(core, id);
        return sy_error_set(status, "%s", why);
    }
    j->done = done;
    j->done_ctx = ctx;
    if (out_job)
        *out_job = id;
    return SY_OK;
}

void sy_core_hold_jobs(struct sy_core *core, bool hold)
{
    if (core->draining)
        return; /* the hold is permanent while draining */
    sy_core_tick(core);
    core->jobs_held = hold;
    sy_sched_hold_jobs(core->sched, hold);
    sy_core_pump_soon(core);
}

int sy_core_job_find_live(struct sy_core *core, uint64_t id, struct sy_core_job **out)
{
    struct sy_core_job *j = sy_core_find_job(core, id);
    sy_core_tick(core);
    if (!j)
        return sy_error_set(SY_ENOTFOUND, "there is no job %llu", (unsigned long long)id);
    if (sy_core_job_is_over(j) || j->stop_wanted)
        return sy_error_set(SY_EBUSY, "job %llu %s", (unsigned long long)id,
                            j->parked                ? "is suspended: resume it first"
                            : sy_core_job_is_over(j) ? "has ended already"
                                                     : "is being stopped already");
    *out = j;
    return SY_OK;
}

int sy_core_job_set_priority(struct sy_core *core, uint64_t id, int priority)
{
    struct sy_core_job *j;
    SY_TRY(sy_core_job_find_live(core, id, &j));
    SY_TRY(sy_core_job_keep_settings(core, j, j->suspended, &priority,
                                     j->slice_set ? j->slice : NULL));
    SY_TRY(sy_sched_job_set_priority(core->sched, id, priority));
    j->priority = priority;
    j->priority_set = true;
    sy_core_pump_soon(core);
    return SY_OK;
}

int sy_core_job_move(struct sy_core *core, uint64_t id, const char *slice)
{
    struct sy_core_job *j;
    SY_TRY(sy_core_slice_check(core, slice));
    SY_TRY(sy_core_job_find_live(core, id, &j));
    SY_TRY(sy_core_job_keep_settings(core, j, j->suspended, j->priority_set ? &j->priority : NULL,
                                     slice));
    snprintf(j->slice, sizeof j->slice, "%s", slice);
    j->slice_set = true;
    return sy_sched_job_set_slice(core->sched, id, sy_core_slice_of_job(core, j));
}

/* Removes a kept job, so that the next start does not resume it. */
static int drop_kept(struct sy_core *core, struct sy_core_job *j)
{
    SY_TRY(remove_file(core, j->id));
    j->kept = j->parked = false;
    sy_log_info("jobs", "event=dropped job=%llu name=%s", (unsigned long long)j->id, j->name);
    return SY_OK;
}

int sy_core_job_stop(struct sy_core *core, uint64_t id, bool evaluate, sy_core_done done, void *ctx)
{
    struct sy_core_job *j = sy_core_find_job(core, id);
    if (j && j->kept) {
        SY_TRY(drop_kept(core, j));
        done(ctx, SY_OK, NULL);
        return SY_OK;
    }
    SY_TRY(sy_core_job_find_live(core, id, &j));
    j->stop_wanted = true;
    j->evaluate = evaluate;
    j->stop_done = done;
    j->stop_ctx = ctx;
    if (sy_sched_job_stop(core->sched, id) < 0)
        sy_core_end_job(core, j, SY_ECANCELED, "stopped while it was on no worker");
    sy_core_pump_soon(core);
    return SY_OK;
}

void sy_core_job_lost(struct sy_core *core, int worker, bool *intact, bool *progressed)
{
    const struct sy_control_page *page = sy_supervisor_page(core->supervisor, worker);
    for (struct sy_core_job *j = core->jobs; j; j = j->next) {
        if (j->worker != worker || sy_core_job_is_over(j))
            continue;
        sy_core_job_refresh(core, j);
        *intact =
            atomic_load_explicit(&page->job, memory_order_acquire) == j->id &&
            atomic_load_explicit(&page->train_phase, memory_order_acquire) == SY_PHASE_GRADIENT;
        *progressed = j->step > j->first_step;
        sy_core_job_compute_end(core, j, sy_clock_now());
        j->state = SY_JOB_QUEUED;
        j->worker = -1;
        sy_log_info("jobs", "event=worker_lost job=%llu step=%llu state=%s",
                    (unsigned long long)j->id, (unsigned long long)j->step,
                    *intact ? "intact in memory" : "from the last snapshot");
    }
}

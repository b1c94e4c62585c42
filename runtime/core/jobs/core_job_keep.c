/* State of jobs that outlives the runtime: their settings, and parked jobs.
 *
 *   TRAINING, QUEUED --job_park--> stop_wanted + park_wanted --last snapshot--> ENDED, kept, parked --job_suspend(false)--> QUEUED
 *
 * The state folder says "parked" from before the job is stopped until it may run again: after a crash in between, a start does not run a job that was moved
 * away. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

#define FEWEST_WORKERS 2 /* one trains, one is reserved for requests */

/* Applies the stored settings that were made at run time. */
static void take_settings(struct sy_core *core, struct sy_core_job *j, const json_t *set)
{
    const json_t *priority = json_object_get(set, "priority");
    int value = (int)SY_MIN(SY_MAX(json_integer_value(priority), -1000), 1000);
    if (priority && (j->parked || sy_sched_job_set_priority(core->sched, j->id, value) == SY_OK)) {
        j->priority = value;
        j->priority_set = true;
    }
    const char *slice = json_string_value(json_object_get(set, "slice"));
    if (slice) {
        snprintf(j->slice, sizeof j->slice, "%s", slice);
        j->slice_set = true;
        if (!j->parked)
            (void)sy_sched_job_set_slice(core->sched, j->id, sy_core_slice_of_job(core, j));
    }
    if (!j->parked && json_is_true(json_object_get(set, "suspended")) &&
        sy_sched_job_suspend(core->sched, j->id, true) == SY_OK)
        j->suspended = true;
}

static void restore_parked(struct sy_core_job *j, json_int_t step, json_int_t total_steps)
{
    j->state = SY_JOB_ENDED;
    j->kept = j->parked = j->park_wanted = true;
    j->step = (uint64_t)SY_MAX(step, 0);
    j->snapshot_step = j->step;
    j->total_steps = (uint64_t)SY_MAX(total_steps, 0);
}

/* A file that holds no valid job (edited or damaged) does not keep the server from starting, and stays in place. */
static int resume_job(void *ctx, uint64_t id, const char *text, const json_t *set)
{
    struct sy_core *core = ctx;
    struct sy_core_job *j;
    bool parked = json_is_true(json_object_get(set, "parked"));
    int status = sy_core_job_add(core, id, text, !parked, &j);
    if (status < 0 && status != SY_ENOMEM_HOST) {
        sy_log_error("jobs", "event=not_resumed job=%llu why=\"%s\"", (unsigned long long)id,
                     sy_error_text());
        return SY_OK;
    }
    SY_TRY(status);
    if (parked)
        restore_parked(j, json_integer_value(json_object_get(set, "step")),
                       json_integer_value(json_object_get(set, "total_steps")));
    j->resumed = !parked;
    take_settings(core, j, set);
    sy_log_info("jobs",
                parked ? "event=is_suspended job=%llu name=%s" : "event=resumed job=%llu name=%s",
                (unsigned long long)id, j->name);
    return SY_OK;
}

int sy_core_resume_jobs(struct sy_core *core)
{
    uint64_t last;
    SY_TRY(sy_job_store_load(core->store, resume_job, core, &last));
    core->last_job = SY_MAX(core->last_job, last); /* no new job reuses the id of such a file */
    return SY_OK;
}

/* ---- parked ------------------------------------------------------------------------------------- */

static int check_parks(const struct sy_core_job *j)
{
    if (j->is_script)
        return sy_error_set(SY_EUNSUPPORTED,
                            "job %llu is a script: its own checkpoints go on elsewhere",
                            (unsigned long long)j->id);
    if (!j->has_snapshots)
        return sy_error_set(SY_EUNSUPPORTED,
                            "job %llu writes no snapshots to go on from (\"snapshot\" in its job "
                            "file); 'switchyard jobs pause' holds it in memory",
                            (unsigned long long)j->id);
    return SY_OK;
}

int sy_core_job_park(struct sy_core *core, uint64_t id, sy_core_done done, void *ctx)
{
    struct sy_core_job *j = sy_core_find_job(core, id);
    if (j && j->parked) {
        done(ctx, SY_OK, NULL);
        return SY_OK;
    }
    if (j)
        SY_TRY(check_parks(j));
    if (j && !j->stop_wanted &&
        (j->kept || (j->state != SY_JOB_ENDED && j->state != SY_JOB_FAILED))) {
        j->park_wanted = true;
        int status = sy_core_job_keep(core, j);
        if (status < 0) {
            j->park_wanted = false;
            return status;
        }
    }
    if (j && j->kept) { /* it could not start, and is on no worker */
        j->state = SY_JOB_ENDED;
        j->parked = true;
        done(ctx, SY_OK, NULL);
        return SY_OK;
    }
    return sy_core_job_stop(core, id, false, done, ctx);
}

/* Queues the job again; it resumes from its snapshot. EBUSY, EPEER, EIO: it stays parked. */
static int unpark(struct sy_core *core, struct sy_core_job *j, bool pauses_first)
{
    bool parked = j->parked;
    sy_core_tick(core);
    if (core->draining)
        return sy_error_set(SY_EBUSY, "draining: the runtime stops and lets no job go on");
    if (sy_core_n_workers_left(core) < FEWEST_WORKERS)
        return sy_error_set(SY_EPEER, "training needs two workers, and fewer are left");
    j->parked = j->park_wanted = j->suspended = false;
    j->pauses_first = pauses_first;
    int status = sy_core_job_keep(core, j);
    if (status == SY_OK)
        status = sy_core_job_enqueue(core, j);
    if (status < 0) {
        char why[512];
        snprintf(why, sizeof why, "%s", sy_error_text());
        j->parked = j->park_wanted = parked;
        SY_CLEANUP(sy_core_job_keep(core, j));
        return sy_error_set(status, "%s", why);
    }
    j->kept = j->stop_wanted = j->evaluate = false;
    j->resumed = true;
    j->state = SY_JOB_QUEUED;
    j->status = SY_OK;
    j->error[0] = '\0';
    sy_log_info("jobs", "event=goes_on job=%llu name=%s", (unsigned long long)j->id, j->name);
    return SY_OK;
}

int sy_core_job_parked(struct sy_core *core, uint64_t id, struct sy_core_parked *out)
{
    const struct sy_core_job *j = sy_core_find_job(core, id);
    if (!j)
        return sy_error_set(SY_ENOTFOUND, "there is no job %llu", (unsigned long long)id);
    if (!j->parked)
        return sy_error_set(SY_EBUSY,
                            "job %llu is %s: 'switchyard jobs suspend %llu' makes a state that "
                            "can be exported",
                            (unsigned long long)id, sy_core_job_state_name(core, j),
                            (unsigned long long)id);
    *out = (struct sy_core_parked){.text = j->text,
                                   .tenant = core->tenants[j->tenant].name,
                                   .step = j->step,
                                   .total_steps = j->total_steps,
                                   .priority = j->priority,
                                   .priority_set = j->priority_set};
    return SY_OK;
}

static int n_kept(const struct sy_core *core)
{
    int n = 0;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        n += j->kept || (j->state != SY_JOB_ENDED && j->state != SY_JOB_FAILED);
    return n;
}

static json_t *settings_of(const struct sy_core_parked *p)
{
    json_t *set = json_pack("{s:b, s:I, s:I}", "parked", 1, "step", (json_int_t)p->step,
                            "total_steps", (json_int_t)p->total_steps);
    if (set && p->priority_set)
        json_object_set_new(set, "priority", json_integer(p->priority));
    return set;
}

int sy_core_job_receive(struct sy_core *core, const struct sy_core_parked *parked,
                        uint64_t *out_job)
{
    uint64_t id = core->last_job + 1;
    if (core->draining)
        return sy_error_set(SY_EBUSY, "draining: the runtime stops and takes no jobs");
    if (n_kept(core) >= SY_SCHED_MAX_JOBS)
        return sy_error_set(SY_EBUSY, "%d jobs run, wait or are suspended; cancel one",
                            n_kept(core));
    if (strlen(parked->text) > SY_MESSAGE_MAX_BYTES / 2)
        return sy_error_set(SY_ETOOBIG, "a job of %zu bytes; at most %u", strlen(parked->text),
                            SY_MESSAGE_MAX_BYTES / 2);
    json_t *set = settings_of(parked);
    int status = set ? sy_job_store_put(core->store, id, parked->text, set)
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    if (status == SY_OK)
        status = resume_job(core, id, parked->text, set);
    json_decref(set);
    if (status == SY_OK && !sy_core_find_job(core, id))
        status = sy_error_set(SY_EARG, "the job's text is refused; the server's log says why");
    if (status < 0)
        SY_CLEANUP(sy_job_store_remove(core->store, id));
    *out_job = id;
    return status;
}

void sy_core_jobs_answer_left(struct sy_core *core)
{
    const char *why = "the runtime stopped before this was done; jobs of a --state folder go on "
                      "with the next start";
    for (struct sy_core_job *j = core->jobs; j; j = j->next) {
        sy_core_done stopped = j->stop_done;
        j->stop_done = NULL;
        sy_core_answer_start(j, SY_EBUSY, why);
        if (stopped)
            stopped(j->stop_ctx, SY_EBUSY, why);
    }
}

int sy_core_job_suspend(struct sy_core *core, uint64_t id, bool suspended)
{
    struct sy_core_job *j = sy_core_find_job(core, id);
    if (!suspended && j && j->kept)
        return unpark(core, j, false);
    SY_TRY(sy_core_job_find_live(core, id, &j));
    j->pauses_first = false; /* what is said now counts */
    SY_TRY(sy_core_job_keep_settings(core, j, suspended, j->priority_set ? &j->priority : NULL,
                                     j->slice_set ? j->slice : NULL));
    SY_TRY(sy_sched_job_suspend(core->sched, id, suspended));
    j->suspended = suspended;
    sy_core_pump_soon(core);
    return SY_OK;
}

int sy_core_job_resume_paused(struct sy_core *core, uint64_t id)
{
    struct sy_core_parked parked;
    SY_TRY(sy_core_job_parked(core, id, &parked));
    return unpark(core, sy_core_find_job(core, id), true);
}

int sy_core_job_folder(struct sy_core *core, uint64_t id, char **out)
{
    const struct sy_core_job *j = sy_core_find_job(core, id);
    if (j && (!sy_core_job_is_over(j) || j->kept))
        return sy_error_set(SY_EBUSY, "job %llu is not over", (unsigned long long)id);
    json_t *json = j ? json_loads(j->text, 0, NULL) : NULL;
    const char *folder =
        json_string_value(json_object_get(json_object_get(json, "snapshot"), "folder"));
    int status = folder ? SY_OK
                        : sy_error_set(SY_ENOTFOUND, "there is no job %llu with snapshots",
                                       (unsigned long long)id);
    *out = folder ? strdup(folder) : NULL;
    if (folder && !*out)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for a path");
    json_decref(json);
    return status;
}

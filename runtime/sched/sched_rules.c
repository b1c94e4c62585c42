/* Administrative changes while the scheduler runs: jobs, slices, shares. Each ends with a scheduling step. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

static int check_model(const struct sy_sched *s, int model)
{
    if (model < 0 || model >= SY_SCHED_MAX_MODELS || !s->models[model].used)
        return sy_error_set(SY_ENOTFOUND, "there is no model %d", model);
    return SY_OK;
}

static int check_slice(const struct sy_sched *s, int slice)
{
    if (slice < 0 || slice >= s->n_slices)
        return sy_error_set(SY_EARG, "there is no slice %d: 0 to %d", slice, s->n_slices - 1);
    return SY_OK;
}

static int no_job(uint64_t id)
{
    return sy_error_set(SY_ENOTFOUND, "there is no job %llu that runs or waits",
                        (unsigned long long)id);
}

int sy_sched_job_suspend(struct sy_sched *s, uint64_t id, bool suspended)
{
    struct job *j = sy_sched_job_by_id(s, id);
    if (!j)
        return no_job(id);
    if (j->stop_wanted)
        return sy_error_set(SY_EBUSY, "job %llu is being stopped", (unsigned long long)id);
    j->suspended = suspended;
    sy_sched_sync_blocked(s, j);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_set_priority(struct sy_sched *s, uint64_t id, int priority)
{
    struct job *j = sy_sched_job_by_id(s, id);
    if (!j)
        return no_job(id);
    j->priority = priority;
    if (j->in_policy)
        SY_TRY(sy_policy_set_priority(s->slices[j->slice].policy, id, priority));
    if (j->in_lanes && !j->admitted)
        SY_TRY(sy_lanes_set_rank(s->lanes, id, sy_sched_job_rank(j)));
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_set_policy(struct sy_sched *s, enum sy_policy_kind kind, int n_parallel,
                        sy_ns max_wait_ns)
{
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        SY_TRY(sy_policy_set(c->policy, kind, n_parallel, max_wait_ns));
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_set_tenant(struct sy_sched *s, int tenant, unsigned weight, unsigned hard_permille,
                        uint64_t memory_limit_bytes)
{
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        SY_TRY(sy_policy_set_tenant(c->policy, tenant, weight, hard_permille));
    SY_TRY(sy_quota_set(&s->quotas, tenant, memory_limit_bytes));
    s->any_hard |= hard_permille > 0;
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_submit(struct sy_sched *s, const struct sy_sched_job *job)
{
    if (job->tenant < 0 || job->tenant >= SY_POLICY_MAX_TENANTS)
        return sy_error_set(SY_EARG, "tenant %d: 0 to %d", job->tenant, SY_POLICY_MAX_TENANTS - 1);
    if (sy_sched_job_by_id(s, job->id))
        return sy_error_set(SY_EARG, "job %llu exists already", (unsigned long long)job->id);
    struct job **at = &s->jobs, *j;
    int n = 0;
    for (; *at; at = &(*at)->next)
        n++;
    if (n >= SY_SCHED_MAX_JOBS)
        return sy_error_set(SY_EBUSY, "%d jobs run or wait already; cancel one, or try again later",
                            n);
    j = calloc(1, sizeof *j);
    SY_TRY_ALLOC(j, "no memory for a job");
    j->id = job->id;
    j->tenant = job->tenant;
    j->priority = job->priority;
    j->opportunistic = job->opportunistic;
    j->moves = job->moves;
    j->slice = j->wanted_slice = sy_sched_open_slice(s, job->slice);
    j->worker = j->lent = -1;
    *at = j;
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_hold_jobs(struct sy_sched *s, bool hold)
{
    s->jobs_held = hold;
    sy_sched_step(s);
}

int sy_sched_job_stop(struct sy_sched *s, uint64_t id)
{
    struct job *j = sy_sched_job_by_id(s, id);
    if (!j || j->state == JOB_QUEUED) {
        if (j)
            sy_sched_remove_job(s, j);
        sy_sched_step(s);
        return sy_error_set(SY_EBUSY, "job %llu is on no worker", (unsigned long long)id);
    }
    if (!j->stop_wanted)
        sy_sched_act_job(s, SY_DO_JOB_STOP, j);
    j->stop_wanted = true;
    j->suspended = false; /* its last turn is for its snapshot */
    sy_sched_sync_blocked(s, j);
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_hold_opportunistic(struct sy_sched *s, bool hold)
{
    if (s->fill_held == hold)
        return;
    s->fill_held = hold;
    sy_sched_step(s);
}

/* A job of the tenant may have been waiting for this quota. */
void sy_sched_release(struct sy_sched *s, int tenant, uint64_t bytes)
{
    sy_quota_release(&s->quotas, tenant, bytes);
    s->admission_stuck = false;
    sy_sched_step(s);
}

int sy_sched_set_train_share(struct sy_sched *s, unsigned permille)
{
    if (permille > 1000)
        return sy_error_set(SY_EARG, "training's share %u: 0 to 1000 per mille", permille);
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        c->share = (struct train_share){.permille = permille};
        sy_sched_share_predict(c, 0);
    }
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_set_exclusive(struct sy_sched *s, int model, int other, bool apart)
{
    SY_TRY(check_model(s, model));
    SY_TRY(check_model(s, other));
    sy_sched_set_bit(s->models[model].apart, other, apart && model != other);
    sy_sched_set_bit(s->models[other].apart, model, apart && model != other);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_set_exclusive(struct sy_sched *s, uint64_t id, int model, bool apart)
{
    struct job *j = sy_sched_job_by_id(s, id);
    SY_TRY(check_model(s, model));
    if (!j)
        return no_job(id);
    sy_sched_set_bit(j->apart, model, apart);
    sy_sched_sync_blocked(s, j);
    sy_sched_step(s);
    return SY_OK;
}

static int make_missing(struct sy_sched *s, int n)
{
    while (s->n_made < n) {
        struct slice *c = &s->slices[s->n_made];
        int status = sy_sched_make_slice(s, c);
        if (status < 0) {
            sy_policy_destroy(c->policy);
            sy_admission_destroy(c->admission);
            *c = (struct slice){.team = c->team};
            return status;
        }
        sy_policy_copy_rules(c->policy, s->slices[0].policy);
        c->share.permille = s->slices[0].share.permille;
        s->n_made++;
    }
    return SY_OK;
}

int sy_sched_set_slices(struct sy_sched *s, int n)
{
    if (n < 1 || n > SY_SCHED_MAX_SLICES)
        return sy_error_set(SY_EARG, "%d slices: 1 to %d", n, SY_SCHED_MAX_SLICES);
    SY_TRY(make_missing(s, n));
    s->n_slices = n;
    for (int m = 0; m < SY_SCHED_MAX_MODELS; m++)
        s->models[m].slice = sy_sched_open_slice(s, s->models[m].slice);
    for (struct job *j = s->jobs; j; j = j->next)
        j->wanted_slice = sy_sched_open_slice(s, j->wanted_slice);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_set_slice(struct sy_sched *s, uint64_t id, int slice)
{
    struct job *j = sy_sched_job_by_id(s, id);
    SY_TRY(check_slice(s, slice));
    if (!j)
        return no_job(id);
    j->wanted_slice = slice;
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_slice_resized(struct sy_sched *s, int slice, int team)
{
    assert(slice >= 0 && slice < SY_SCHED_MAX_SLICES);
    s->slices[slice].team = team;
    for (struct job *j = s->jobs; j; j = j->next)
        j->resized |= j->slice == slice;
    sy_sched_step(s);
}

int sy_sched_model_set_slice(struct sy_sched *s, int model, int slice)
{
    SY_TRY(check_model(s, model));
    SY_TRY(check_slice(s, slice));
    s->models[model].slice = slice;
    return SY_OK;
}

/* What operators change of training jobs while they run: pauses, priorities, the policy, tenants' quotas. */
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

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

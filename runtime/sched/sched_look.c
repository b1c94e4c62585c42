/* What others may see of the scheduler, and the invariant walker. */
#include <stddef.h>

#include "runtime/sched/sched_internal.h"

int sy_sched_n_waiting(const struct sy_sched *s)
{
    return s->n_waiting;
}

int sy_sched_n_started(const struct sy_sched *s)
{
    return (s->active != NULL) + (s->next != NULL);
}

sy_ns sy_sched_busy_ns(const struct sy_sched *s)
{
    return sy_admission_drained_ns(s->admission, s->now) - s->now;
}

int sy_sched_computing(const struct sy_sched *s)
{
    return s->active && s->active->run_sent && !s->active->worker_through ? s->active->worker : -1;
}

const struct sy_pool *sy_sched_pool(const struct sy_sched *s)
{
    return s->pool;
}

const struct sy_pool *sy_sched_image(const struct sy_sched *s)
{
    return s->image;
}

const struct sy_residency *sy_sched_residency(const struct sy_sched *s)
{
    return s->pool_residency;
}

uint64_t sy_sched_n_evicted(const struct sy_sched *s)
{
    return sy_residency_n_evicted(s->pool_residency);
}

static bool queue_is_valid(const struct sy_sched *s)
{
    int n = 0;
    for (const struct request *r = s->waiting; r; r = r->next) {
        if (r->ended || r->pool_pinned || r->image_pinned || r->run_sent ||
            (r->kept_bytes > 0 &&
             (r->next_layer == 0 || (s->lane_bytes > 0 && r->kept_offset == s->lane_offset))))
            return false;
        n++;
    }
    return n == s->n_waiting && sy_admission_is_valid(s->admission) &&
           sy_admission_n_waiting(s->admission) == n + (s->next != NULL) &&
           sy_admission_is_busy(s->admission) == (s->active != NULL);
}

bool sy_sched_is_valid(const struct sy_sched *s)
{
    const struct request *next =
        s->next; /* through: its worker died, or gave it up, and has other work by now */
    if (next && (next->run_sent ||
                 (s->active && !next->worker_through && next->worker == s->active->worker)))
        return false;
    if (sy_sched_computing(s) >= 0 && !sy_sched_training_still(s))
        return false;
    if (s->active && !s->active->pool_pinned)
        return false;
    return queue_is_valid(s) && sy_sched_jobs_are_valid(s) &&
           sy_residency_is_valid(s->pool_residency) &&
           (!s->image_residency || sy_residency_is_valid(s->image_residency));
}

bool sy_sched_job_view(const struct sy_sched *s, uint64_t id, struct sy_sched_job_view *out)
{
    const struct job *j = sy_sched_job_by_id(s, id);
    if (!j)
        return false;
    *out = (struct sy_sched_job_view){.worker = j->worker,
                                      .lane = j->in_lanes ? sy_lanes_lane_of(s->lanes, id) : -1,
                                      .tenant = j->tenant,
                                      .priority = j->priority,
                                      .admitted = j->admitted,
                                      .has_turn = j->has_turn,
                                      .suspended = j->suspended,
                                      .opportunistic = j->opportunistic,
                                      .spilled = j->in_spill || j->state == JOB_SPILLING,
                                      .persistent_offset = j->persistent_offset,
                                      .persistent_bytes = j->persistent_bytes,
                                      .ephemeral_bytes = j->ephemeral_bytes,
                                      .used_ns = sy_policy_job_ns(s->policy, id),
                                      .left_ns = j->in_policy ? sy_policy_left_ns(s->policy, id)
                                                              : UINT64_MAX};
    return true;
}

const struct sy_policy *sy_sched_policy(const struct sy_sched *s)
{
    return s->policy;
}

const struct sy_lanes *sy_sched_lanes(const struct sy_sched *s)
{
    return s->lanes;
}

const struct sy_quotas *sy_sched_quotas(const struct sy_sched *s)
{
    return &s->quotas;
}

bool sy_sched_jobs_are_valid(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next) {
        if (j->has_turn && (!j->admitted || (j->state != JOB_RUNNING && j->state != JOB_STARTING)))
            return false;
        if (j->state >= JOB_STARTING && j->state != JOB_SPILLED && !j->admitted)
            return false;
        if ((j->keeps || j->still || j->preempted) && !j->has_turn)
            return false;
        if (j->admitted && !j->in_lanes)
            return false;
        if (j->in_spill && (j->in_memory || j->state == JOB_RUNNING || j->state == JOB_SPILLING))
            return false;
        if (!j->in_spill && (j->state == JOB_SPILLED || j->state == JOB_RETURNING))
            return false;
    }
    return sy_lanes_is_valid(s->lanes);
}

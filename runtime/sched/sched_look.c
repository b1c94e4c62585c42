/* Read access to the scheduler's state, and the invariant walker. */
#include <stddef.h>

#include "runtime/sched/sched_internal.h"

int sy_sched_n_waiting(const struct sy_sched *s)
{
    return s->n_waiting;
}

sy_ns sy_sched_busy_ns(const struct sy_sched *s, int slice)
{
    const struct slice *c = &s->slices[sy_sched_open_slice(s, slice)];
    return sy_admission_drained_ns(c->admission, s->now) - s->now;
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

bool sy_sched_computes(const struct sy_sched *s, int worker)
{
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if (sy_sched_computing_in(c) == worker)
            return true;
    return false;
}

static bool keeps_another_place(const struct sy_sched *s, const struct request *r)
{
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if (c->lane_bytes > 0 && r->kept_offset == c->lane_offset)
            return false;
    return r->next_layer > 0;
}

static bool queue_of_is_valid(const struct sy_sched *s, const struct slice *c)
{
    int n = 0;
    for (const struct request *r = s->waiting; r; r = r->next)
        n += sy_sched_slice_of(s, r) == c;
    return sy_admission_is_valid(c->admission) &&
           sy_admission_n_waiting(c->admission) == n + (c->next != NULL) &&
           sy_admission_is_busy(c->admission) == (c->active != NULL);
}

static bool queue_is_valid(const struct sy_sched *s)
{
    int n = 0;
    bool valid = true;
    for (const struct request *r = s->waiting; r; r = r->next) {
        if (r->ended || r->pool_pinned || r->image_pinned || r->run_sent ||
            (r->kept_bytes > 0 && !keeps_another_place(s, r)))
            return false;
        n++;
    }
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        valid &= queue_of_is_valid(s, c);
    return valid && n == s->n_waiting;
}

/* S12 is not checked: two tasks may be separated while both compute, and continue until they end. */
static bool slice_is_valid(const struct sy_sched *s, const struct slice *c)
{
    const struct request *next =
        c->next; /* finished: its worker died or dropped it, and has other work by now */
    if (next && (next->run_sent ||
                 (c->active && !next->worker_through && next->worker == c->active->worker)))
        return false;
    if (sy_sched_computing_in(c) >= 0 && sy_sched_trains_in(s, c))
        return false;
    for (const struct slice *o = s->slices; o < c; o++)
        if (sy_sched_computing_in(c) >= 0 && sy_sched_computing_in(c) == sy_sched_computing_in(o))
            return false;
    return !c->active || c->active->pool_pinned;
}

bool sy_sched_is_valid(const struct sy_sched *s)
{
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if (!slice_is_valid(s, c))
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
    *out = (struct sy_sched_job_view){
        .worker = j->worker,
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
        .slice = j->slice,
        .team = j->team,
        .used_ns = sy_policy_job_ns(s->slices[j->slice].policy, id),
        .left_ns = j->in_policy ? sy_policy_left_ns(s->slices[j->slice].policy, id) : UINT64_MAX};
    return true;
}

const struct sy_policy *sy_sched_policy(const struct sy_sched *s)
{
    return s->slices[0].policy;
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

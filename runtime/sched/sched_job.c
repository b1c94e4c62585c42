/* Training jobs: each needs a worker, memory from the lanes, and turns from the policy; all jobs of a slice are paused while a request computes there. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

bool sy_sched_training_runs(const struct sy_sched *s)
{
    return !sy_sched_training_still(s);
}

/* The largest gap between jobs' persistent parts; *end: where the last part ends. At most 64 jobs: a scan beats a tree. */
static uint64_t largest_gap(const struct sy_sched *s, uint64_t *end)
{
    uint64_t largest = 0, from = 0;
    for (;;) {
        const struct job *next = NULL;
        for (const struct job *j = s->jobs; j; j = j->next)
            if (j->admitted && j->persistent_bytes > 0 && j->persistent_offset >= from &&
                (!next || j->persistent_offset < next->persistent_offset))
                next = j;
        if (!next)
            break;
        largest = SY_MAX(largest, next->persistent_offset - from);
        from = next->persistent_offset + SY_ALIGN_UP(next->persistent_bytes, SY_POOL_ALIGN);
    }
    *end = from;
    return largest;
}

/* Bytes of a gap that count as free for waiting jobs: the smallest of their sizes, if all of them fit and best fit places them there. */
static uint64_t gap_credit(const struct sy_sched *s)
{
    uint64_t end, gap = largest_gap(s, &end), least = UINT64_MAX, most = 0;
    uint64_t used = end + sy_lanes_ephemeral_bytes(s->lanes),
             pool = sy_pool_capacity_bytes(s->pool), top = pool > used ? pool - used : 0;
    for (const struct job *j = s->jobs; j; j = j->next) {
        uint64_t bytes = SY_ALIGN_UP(j->persistent_bytes, SY_POOL_ALIGN);
        if (!j->in_lanes || j->admitted)
            continue;
        least = SY_MIN(least, bytes);
        most = SY_MAX(most, bytes);
    }
    return least > most || most > gap || (top <= gap && top >= least) ? 0 : least;
}

/* Persistent parts of jobs lie at the pool's low end; what is free between them may be of no use to a model, so it
 * counts as taken, but for a job that fits there. */
static void set_capacity(struct sy_sched *s)
{
    uint64_t capacity = sy_pool_capacity_bytes(s->pool), least = sy_sched_least_room(s),
             used = least, end = 0, persistent = 0;
    for (const struct job *j = s->jobs; j; j = j->next) {
        uint64_t bytes = SY_ALIGN_UP(j->persistent_bytes, SY_POOL_ALIGN);
        if (!j->admitted)
            continue;
        end = SY_MAX(end, j->persistent_offset + bytes);
        persistent += bytes;
    }
    used += end > persistent ? end - persistent - SY_MIN(end - persistent, gap_credit(s)) : 0;
    sy_lanes_set_capacity(s->lanes, capacity > used ? capacity - used : 0);
    sy_lanes_set_most(s->lanes,
                      capacity > least ? capacity - least : 0); /* gaps are usable by jobs only */
}

static void take_changes(struct sy_sched *s)
{
    struct sy_lanes_change change;
    struct sy_lane_piece pieces[SY_LANES_MAX_PIECES];
    while (sy_lanes_next(s->lanes, &change)) {
        struct job *j = sy_sched_job_by_id(s, change.job);
        assert(j);
        if (change.admitted) {
            j->admitted = true;
            j->persistent_offset =
                sy_lanes_pieces(s->lanes, j->id, pieces) > 0 ? pieces[0].offset : 0;
            set_capacity(s); /* the part of a gap that the job had is free for no one else */
        }
        if (j->in_policy)
            (void)sy_policy_set_lane(s->slices[j->slice].policy, j->id, change.lane);
    }
}

/* Makes contiguous room for a job that fits by the sum of free bytes: evicts idle models' groups; once nothing has started, also frees the workspace lane (the
 * next request allocates it again). Frees more than `wanted`, because a job needs two ranges. */
static bool make_more_room(struct sy_sched *s, uint64_t wanted)
{
    uint64_t largest = sy_pool_largest_free_bytes(s->pool);
    if (sy_residency_make_room(s->pool_residency, SY_MAX(wanted, largest + 1)) == SY_OK)
        return true;
    return sy_sched_n_started(s) == 0 && sy_sched_give_workspaces(s);
}

/* With all models evicted, persistent parts are placed as low as possible: so the largest group and a workspace keep room in one piece
 * beside jobs and lanes. */
void sy_sched_let_in(struct sy_sched *s)
{
    uint64_t wanted;
    set_capacity(s);
    s->admitting = !s->admission_stuck && sy_lanes_could_admit(s->lanes);
    if (!s->admitting) {
        if (!s->admission_stuck)
            take_changes(s); /* moved lanes */
        return;
    }
    if (sy_sched_n_started(s) > 0 || s->fetch)
        return;
    sy_sched_drop_idle_models(s);
    (void)sy_sched_give_workspaces(s);
    take_changes(s);
    while ((wanted = sy_lanes_wanted_bytes(s->lanes)) > 0 && make_more_room(s, wanted)) {
        sy_lanes_retry(s->lanes);
        take_changes(s);
    }
    set_capacity(s);
    s->admission_stuck = sy_lanes_could_admit(s->lanes) && !sy_lanes_draining(s->lanes);
    s->admitting = !s->admission_stuck && sy_lanes_could_admit(s->lanes);
}

void sy_sched_refuse_job(struct sy_sched *s, struct job *j, int status, const char *why)
{
    struct sy_sched_action *a = sy_sched_act_job(s, SY_DO_JOB_REFUSE, j);
    a->status = status;
    snprintf(a->why, sizeof a->why, "%s", why);
}

/* The worker drops the job and confirms with JOB_ENDED. */
static void refuse_prepared(struct sy_sched *s, struct job *j, int status)
{
    char why[256];
    uint64_t pool = sy_pool_capacity_bytes(s->pool), models = sy_sched_least_room(s);
    snprintf(why, sizeof why, "%s", sy_error_text()); /* over quota, or too many jobs */
    if (j->persistent_bytes + j->ephemeral_bytes > pool - SY_MIN(pool, models))
        snprintf(why, sizeof why,
                 "the job needs %llu bytes that last and %llu for an iteration, the loaded models "
                 "at least %llu, the pool has %llu; make the pool larger (--pool-bytes) or the "
                 "batch smaller",
                 (unsigned long long)j->persistent_bytes, (unsigned long long)j->ephemeral_bytes,
                 (unsigned long long)models, (unsigned long long)pool);
    sy_sched_refuse_job(s, j, status, why);
    sy_sched_act_job(s, SY_DO_JOB_STOP, j);
    j->stop_wanted = true;
}

void sy_sched_join_lanes(struct sy_sched *s, struct job *j)
{
    struct sy_lane_job wants = {.id = j->id,
                                .tenant = j->tenant,
                                .persistent_bytes = j->persistent_bytes,
                                .ephemeral_bytes = j->ephemeral_bytes,
                                .rank = sy_sched_job_rank(j),
                                .max_pieces = 1,
                                .again = j->in_spill};
    s->admission_stuck = false;
    set_capacity(s);
    int status = sy_lanes_join(s->lanes, &wants);
    if (status < 0)
        refuse_prepared(s, j, status);
    else
        j->in_lanes = true;
}

void sy_sched_note_progress(struct sy_sched *s, struct job *j, uint64_t iterations_done)
{
    j->iterations_done = iterations_done;
    uint64_t left = j->total_iterations > iterations_done ? j->total_iterations - iterations_done
                    : j->total_iterations                 ? 1
                                                          : 0;
    (void)sy_policy_set_left(s->slices[j->slice].policy, j->id, left);
}

void sy_sched_job_set_total(struct sy_sched *s, uint64_t id, uint64_t total_iterations)
{
    struct job *j = sy_sched_job_by_id(s, id);
    if (!j)
        return;
    j->total_iterations = total_iterations;
    if (j->in_policy)
        sy_sched_note_progress(s, j, j->iterations_done);
}

int sy_sched_join_policy(struct sy_sched *s, struct job *j)
{
    struct sy_policy_job wants = {.id = j->id,
                                  .lane = sy_lanes_lane_of(s->lanes, j->id),
                                  .tenant = j->tenant,
                                  .priority = j->priority};
    struct sy_policy *policy = s->slices[j->slice].policy;
    if (j->in_policy)
        return sy_policy_set_lane(policy, j->id, wants.lane);
    SY_TRY(sy_policy_join(policy, &wants, s->now));
    j->in_policy = true;
    return SY_OK;
}

void sy_sched_remove_job(struct sy_sched *s, struct job *j)
{
    struct job **at = &s->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    if (j->in_policy)
        (void)sy_policy_leave(s->slices[j->slice].policy, j->id);
    if (j->in_lanes)
        (void)sy_lanes_leave(s->lanes, j->id);
    s->admission_stuck = false;
    free(j);
}

void sy_sched_free_jobs(struct sy_sched *s)
{
    while (s->jobs)
        sy_sched_remove_job(s, s->jobs);
}

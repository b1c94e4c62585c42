/* Admitted jobs: workers that prepare them, and turns to compute, by policy and waiting jobs. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

static bool slice_is_still(const struct sy_sched *s, int slice)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j->slice == slice && !sy_sched_stands_still(j))
            return false;
    return true;
}

static void start_job(struct sy_sched *s, struct job *j)
{
    uint64_t offset;
    if (sy_lanes_begin(s->lanes, j->id, &offset) < 0)
        return; /* a job of this lane is within an iteration, or the lanes are being compacted */
    struct sy_sched_action *a = sy_sched_act_job(s, SY_DO_JOB_START, j);
    a->persistent_offset = j->persistent_offset;
    a->ephemeral_offset = offset;
    a->in_memory = j->in_memory;
    a->spilled = j->in_spill;
    j->state = JOB_STARTING;
    j->has_turn = true;
    j->preempted = j->still = false;
}

static struct job *next_to_start(const struct sy_sched *s, int slice)
{
    struct job *j = s->jobs;
    while (j && (j->slice != slice || j->state != JOB_PREPARED || !j->admitted || j->stop_wanted))
        j = j->next;
    return j;
}

/* No other job is ready, so the job need not ask after each iteration. */
static bool may_keep(const struct sy_sched *s, const struct job *job)
{
    const struct slice *c = &s->slices[job->slice];
    return sy_policy_n_ready(c->policy) == 1 && !sy_sched_lane_is_wanted(s, job) &&
           sy_lanes_n_waiting(s->lanes) == 0 && !sy_lanes_draining(s->lanes) && !s->compacting &&
           !s->any_hard && !c->share.permille && !next_to_start(s, job->slice) &&
           !sy_sched_worker_is_wanted(s);
}

static void end_keeping(struct sy_sched *s)
{
    for (struct job *j = s->jobs; j; j = j->next) {
        if (!j->keeps || (may_keep(s, j) && !sy_sched_is_blocked(s, j) &&
                          sy_sched_slice_wanted(j) == j->slice && !j->resized))
            continue;
        j->keeps = false;
        sy_sched_act_job(s, SY_DO_JOB_YIELD, j);
    }
}

static void give_turns(struct sy_sched *s, struct slice *c)
{
    uint64_t id, offset;
    while (sy_policy_next(c->policy, s->now, &id, &c->policy_wake_ns)) {
        struct job *j = sy_sched_job_by_id(s, id);
        if (sy_lanes_begin(s->lanes, id, &offset) < 0) {
            (void)sy_policy_undo(c->policy, id);
            s->first_slice = (int)(c - s->slices); /* the slice that is asked first next time */
            return; /* the boundary that the lanes wait for calls this again */
        }
        j->has_turn = true;
        j->keeps = may_keep(s, j);
        j->resized = false;
        struct sy_sched_action *a = sy_sched_act_job(s, SY_DO_JOB_TURN, j);
        a->ephemeral_offset = offset;
        a->keeps = j->keeps;
    }
}

/* A worker for a job, -1: none. While other workers start, the only one that takes requests stays with them, since a start takes as long as many requests.
 * Workers that still load models are preferred: requests use those last. */
static int worker_for_job(const struct sy_sched *s)
{
    int n = 0, loads = -1;
    for (int w = s->config.n_workers - 1; w >= 0; w--) {
        n += s->workers[w] == WORKER_IDLE || s->workers[w] == WORKER_REQUEST;
        loads = s->workers[w] == WORKER_IDLE && s->n_loading[w] > 0 ? w : loads;
    }
    if (n < 2)
        return -1;
    return loads >= 0 ? loads : sy_sched_idle_worker(s);
}

static void prepare_jobs(struct sy_sched *s)
{
    struct job *j;
    int worker;
    while (!s->jobs_held && (j = sy_sched_next_for_worker(s)) && !sy_sched_jobs_hold_workers(s) &&
           (worker = worker_for_job(s)) >= 0) {
        j->worker = worker;
        s->workers[worker] = WORKER_JOB;
        j->state = JOB_PREPARING;
        j->slice = j->wanted_slice;
        if (!j->was_prepared || (j->moves && !j->in_memory && !j->in_spill))
            j->team = s->slices[j->slice].team;
        j->was_prepared = true;
        sy_sched_act_job(s, SY_DO_JOB_PREPARE, j);
    }
}

/* Makes contiguous room for a request when jobs' free memory suffices in total but is fragmented: once no iteration is in progress, the lanes are empty and
 * can move. Idle models are evicted and stream in again. */
static void compact(struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j->has_turn)
            return;
    if (sy_sched_n_started(s) > 0 || s->fetch)
        return;
    s->compacting = false;
    sy_sched_drop_idle_models(s);
    (void)sy_sched_give_workspaces(s);
    (void)sy_lanes_compact(s->lanes); /* if that fails, the request is rejected with the sizes */
}

static void step_slice(struct sy_sched *s, int slice)
{
    struct slice *c = &s->slices[slice];
    struct job *starter = next_to_start(s, slice);
    if (starter && sy_sched_computing_in(c) < 0 && !sy_sched_is_held_elsewhere(s, starter) &&
        slice_is_still(s, slice))
        start_job(s, starter); /* S1: its start counts as computing */
    if (!starter && !c->active)
        give_turns(s, c);
}

void sy_sched_step_jobs(struct sy_sched *s)
{
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        c->policy_wake_ns = 0;
    sy_sched_step_lending(s);
    sy_sched_move_jobs(s);
    prepare_jobs(s);
    sy_sched_step_leaving(s); /* last: the jobs that lack a worker are known then */
    sy_sched_spilled_join_lanes(s);
    sy_sched_let_in(s);
    sy_sched_step_spills(s);
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j->opportunistic || s->n_made > 1)
            sy_sched_sync_blocked(s, j);
    end_keeping(s);
    if (s->compacting)
        compact(s);
    if (s->compacting)
        return;
    for (int i = 0; i < s->n_made; i++)
        step_slice(s, (s->first_slice + i) % s->n_made);
    assert(sy_lanes_counts(s->lanes).copied_bytes == 0);
}

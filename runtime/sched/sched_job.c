/* Training jobs: a worker each, memory from the lanes, turns from the policy; all stand still while a request computes. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

#define MAX_MAKE_ROOM 64 /* blocks that give way to one job, at one boundary */

struct job *sy_sched_job_by_id(const struct sy_sched *s, uint64_t id)
{
    struct job *j = s->jobs;
    while (j && j->id != id)
        j = j->next;
    return j;
}

static bool stands_still(const struct job *j)
{
    return !j->has_turn || (j->preempted && j->still);
}

bool sy_sched_training_still(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!stands_still(j))
            return false;
    return true;
}

bool sy_sched_training_runs(const struct sy_sched *s)
{
    return !sy_sched_training_still(s);
}

bool sy_sched_training_is_ready(const struct sy_sched *s, const struct slice *c)
{
    return sy_policy_can_use(c->policy, s->now);
}

struct sy_sched_action *sy_sched_act_job(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct job *j)
{
    struct sy_sched_action *a = sy_sched_act(s, kind);
    a->worker = j->worker;
    a->job = j->id;
    a->slice = j->slice;
    a->team = j->team;
    return a;
}

/* A start is not interrupted: it ends by itself, and has no turn then. */
static bool hold_job(struct sy_sched *s, struct job *j, bool hold)
{
    if (j->state != JOB_RUNNING || j->preempted == hold || (hold && !j->has_turn))
        return false;
    j->preempted = hold;
    j->still = false;
    sy_sched_act_job(s, hold ? SY_DO_PREEMPT : SY_DO_RESUME, j);
    return hold;
}

bool sy_sched_hold_training(struct sy_sched *s)
{
    bool any = false;
    for (struct job *j = s->jobs; j; j = j->next)
        any |= hold_job(s, j, sy_sched_job_is_held(s, j));
    return any;
}

/* Before it is in its slot. */
bool sy_sched_hold_training_for(struct sy_sched *s, const struct request *r)
{
    bool any = false;
    for (struct job *j = s->jobs; j; j = j->next)
        if (sy_sched_holds(r, j))
            any |= hold_job(s, j, true);
    return any;
}

bool sy_sched_training_still_for(const struct sy_sched *s, const struct slice *c)
{
    for (const struct job *j = s->jobs; c->active && j; j = j->next)
        if (sy_sched_holds(c->active, j) && !stands_still(j))
            return false;
    return true;
}

static bool slice_is_still(const struct sy_sched *s, int slice)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j->slice == slice && !stands_still(j))
            return false;
    return true;
}

/* ---- memory ----------------------------------------------------------------------------------- */

uint64_t sy_sched_job_bytes(const struct sy_sched *s)
{
    return sy_lanes_persistent_bytes(s->lanes) + sy_lanes_ephemeral_bytes(s->lanes);
}

/* The largest hole between what lasts of jobs; *end: where the last of it ends. At most 64 jobs: a scan beats a tree. */
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

/* What a hole is worth to those that wait: the least of what they want, if all of them fit and best fit puts them there. */
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

/* What lasts of jobs lies at the pool's low end; what is free between them may be of no use to a model, so it
 * counts as taken, but for a job that fits there. */
static void set_capacity(struct sy_sched *s)
{
    uint64_t capacity = sy_pool_capacity_bytes(s->pool), least = sy_sched_least_room(s),
             used = least, end = 0, lasting = 0;
    for (const struct job *j = s->jobs; j; j = j->next) {
        uint64_t bytes = SY_ALIGN_UP(j->persistent_bytes, SY_POOL_ALIGN);
        if (!j->admitted)
            continue;
        end = SY_MAX(end, j->persistent_offset + bytes);
        lasting += bytes;
    }
    used += end > lasting ? end - lasting - SY_MIN(end - lasting, gap_credit(s)) : 0;
    sy_lanes_set_capacity(s->lanes, capacity > used ? capacity - used : 0);
    sy_lanes_set_most(s->lanes, capacity > least ? capacity - least : 0); /* gaps go with jobs */
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
            set_capacity(s); /* what it had of a hole is no other's */
        }
        if (j->in_policy)
            (void)sy_policy_set_lane(s->slices[j->slice].policy, j->id, change.lane);
    }
}

/* More room in one piece, for a job that the sums allow: idle models' groups go; once nothing has started, the workspace lane too (it
 * comes back with the next request). Not just as much as it wants: what it wants are two pieces. */
static bool make_more_room(struct sy_sched *s, uint64_t wanted)
{
    uint64_t largest = sy_pool_largest_free_bytes(s->pool);
    if (sy_residency_make_room(s->pool_residency, SY_MAX(wanted, largest + 1)) == SY_OK)
        return true;
    return sy_sched_n_started(s) == 0 && sy_sched_give_workspaces(s);
}

/* With all models out of the way, what lasts comes to lie as low as it can: so the largest group and a workspace keep room in one piece
 * beside jobs and lanes. */
void sy_sched_let_in(struct sy_sched *s)
{
    uint64_t wanted;
    set_capacity(s);
    s->admitting = !s->admission_stuck && sy_lanes_could_admit(s->lanes);
    if (!s->admitting) {
        if (!s->admission_stuck)
            take_changes(s); /* lanes that move */
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

/* The worker forgets it and says so by JOB_ENDED. */
static void refuse_prepared(struct sy_sched *s, struct job *j, int status)
{
    char why[256];
    uint64_t pool = sy_pool_capacity_bytes(s->pool), models = sy_sched_least_room(s);
    snprintf(why, sizeof why, "%s", sy_error_text()); /* a quota, or too many jobs */
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

/* Guaranteed ones first. */
uint64_t sy_sched_job_rank(const struct job *j)
{
    return (uint64_t)((int64_t)j->priority - INT32_MIN) + (j->opportunistic ? 1ull << 40 : 0);
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

/* ---- turns ------------------------------------------------------------------------------------ */

/* One that has not begun takes its turn by itself. */
static bool guaranteed_runs_in(const struct sy_sched *s, int slice)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!j->opportunistic && j->slice == slice && j->state == JOB_RUNNING && !j->suspended &&
            !j->stop_wanted)
            return true;
    return false;
}

static bool is_blocked(const struct sy_sched *s, const struct job *j)
{
    return j->suspended || j->state != JOB_RUNNING || sy_sched_is_held_elsewhere(s, j) ||
           (j->opportunistic && !j->stop_wanted && guaranteed_runs_in(s, j->slice)) ||
           sy_sched_fill_holds(s, j);
}

void sy_sched_sync_blocked(struct sy_sched *s, const struct job *j)
{
    if (j->in_policy)
        (void)sy_policy_block(s->slices[j->slice].policy, j->id, is_blocked(s, j), s->now);
}

static void end_turn(struct sy_sched *s, struct job *j)
{
    if (!j->has_turn)
        return;
    int status = sy_lanes_end(s->lanes, j->id);
    assert(status == SY_OK);
    j->has_turn = j->keeps = false;
}

static void start_job(struct sy_sched *s, struct job *j)
{
    uint64_t offset;
    if (sy_lanes_begin(s->lanes, j->id, &offset) < 0)
        return; /* a job of its lane stands in the middle of an iteration, or the lanes are being put together anew */
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

/* Nobody else wants the device's training time: no need to ask after each iteration. */
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
        if (!j->keeps || (may_keep(s, j) && !is_blocked(s, j) &&
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
            s->first_slice = (int)(c - s->slices); /* next time it is asked first */
            return; /* at the boundary that the lanes wait for, there is another call */
        }
        j->has_turn = true;
        j->keeps = may_keep(s, j);
        j->resized = false;
        struct sy_sched_action *a = sy_sched_act_job(s, SY_DO_JOB_TURN, j);
        a->ephemeral_offset = offset;
        a->keeps = j->keeps;
    }
}

static void prepare_jobs(struct sy_sched *s)
{
    struct job *j;
    int worker;
    while (!s->jobs_held && (j = sy_sched_next_for_worker(s)) && !sy_sched_jobs_hold_workers(s) &&
           (worker = sy_sched_idle_worker(s)) >= 0) {
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

/* Memory of jobs that is free in total, but not in one piece, for a request: once no iteration is under way, lanes are empty and move.
 * Models that are idle go, and stream again. */
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
    (void)sy_lanes_compact(s->lanes); /* if not, the request is refused with the sizes */
}

static void step_slice(struct sy_sched *s, int slice)
{
    struct slice *c = &s->slices[slice];
    struct job *starter = next_to_start(s, slice);
    if (starter && sy_sched_computing_in(c) < 0 && !sy_sched_is_held_elsewhere(s, starter) &&
        slice_is_still(s, slice))
        start_job(s, starter); /* S1: it computes until it has started */
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
    sy_sched_step_leaving(s); /* behind it: who lacks a worker is known then */
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

/* ---- events ----------------------------------------------------------------------------------- */

int sy_sched_job_submit(struct sy_sched *s, const struct sy_sched_job *job)
{
    if (job->tenant < 0 || job->tenant >= SY_POLICY_MAX_TENANTS)
        return sy_error_set(SY_EARG, "tenant %d: 0 to %d", job->tenant, SY_POLICY_MAX_TENANTS - 1);
    if (sy_sched_job_by_id(s, job->id))
        return sy_error_set(SY_EARG, "job %llu is there already", (unsigned long long)job->id);
    struct job **at = &s->jobs, *j;
    int n = 0;
    for (; *at; at = &(*at)->next)
        n++;
    if (n >= SY_SCHED_MAX_JOBS)
        return sy_error_set(SY_EBUSY, "%d jobs run or wait already; cancel one, or try again later",
                            n);
    j = calloc(1, sizeof *j);
    if (!j)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
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

int sy_sched_find_job(struct sy_sched *s, int worker, uint64_t id, struct job **out)
{
    struct job *j = sy_sched_job_by_id(s, id);
    if (!j || j->worker != worker || j->state == JOB_QUEUED)
        return sy_error_set(SY_EPROTO, "worker %d speaks of job %llu, which it does not have",
                            worker, (unsigned long long)id);
    *out = j;
    return SY_OK;
}

int sy_sched_job_prepared(struct sy_sched *s, int worker, uint64_t id, uint64_t persistent_bytes,
                          uint64_t ephemeral_bytes, uint64_t total_iterations)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_PREPARING || persistent_bytes == 0 || ephemeral_bytes == 0 ||
        ((j->in_lanes || j->in_spill) &&
         (persistent_bytes > j->persistent_bytes || ephemeral_bytes > j->ephemeral_bytes)))
        return sy_error_set(SY_EPROTO,
                            "job %llu: JOB_PREPARED out of turn, or of other sizes than before",
                            (unsigned long long)id);
    j->state = JOB_PREPARED;
    j->total_iterations = total_iterations;
    if (!j->in_lanes) {
        j->persistent_bytes = persistent_bytes;
        j->ephemeral_bytes = ephemeral_bytes;
        if (!j->in_spill)
            sy_sched_join_lanes(s, j);
    }
    sy_sched_step(s);
    return SY_OK;
}

static void note_progress(struct sy_sched *s, struct job *j, uint64_t iterations_done)
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
        note_progress(s, j, j->iterations_done);
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

int sy_sched_job_started(struct sy_sched *s, int worker, uint64_t id, uint64_t iterations_done)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_STARTING)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_STARTED out of turn", (unsigned long long)id);
    end_turn(s, j);
    j->state = JOB_RUNNING;
    j->in_spill = false;
    SY_TRY(sy_sched_join_policy(s, j));
    note_progress(s, j, iterations_done);
    sy_sched_sync_blocked(s, j);
    if (j->stop_wanted)
        sy_sched_act_job(s, SY_DO_JOB_STOP, j);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_turn_over(struct sy_sched *s, int worker, uint64_t id, uint64_t iterations_done,
                           sy_ns busy_ns)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_RUNNING || !j->has_turn || iterations_done < j->iterations_done)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_TURN_OVER out of turn",
                            (unsigned long long)id);
    if (j->preempted)
        sy_sched_act_job(
            s, SY_DO_RESUME,
            j); /* it ended before it saw the epoch: its next turn shall not find it odd */
    j->preempted = j->still = false;
    end_turn(s, j);
    SY_TRY(sy_policy_done_many(s->slices[j->slice].policy, id, iterations_done - j->iterations_done,
                               busy_ns, s->now));
    note_progress(s, j, iterations_done);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_paused(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_RUNNING || !j->has_turn)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_PAUSED out of turn", (unsigned long long)id);
    j->still = j->preempted;
    sy_sched_step(s);
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

int sy_sched_job_ended(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->preempted)
        sy_sched_act_job(s, SY_DO_RESUME,
                         j); /* the worker's next job shall not find an odd epoch */
    s->workers[worker] = WORKER_IDLE;
    sy_sched_remove_job(s, j);
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_job_lost(struct sy_sched *s, int worker, bool state_intact, bool progressed,
                       const char *why)
{
    struct job *j = s->jobs;
    while (j && (j->state == JOB_QUEUED || j->worker != worker))
        j = j->next;
    if (!j)
        return;
    if (j->state >= JOB_STARTING) /* before, nobody has touched it since it was as it is */
        j->in_memory =
            j->admitted && state_intact && !j->in_spill &&
            (j->state == JOB_RUNNING || j->state == JOB_STARTING || j->state == JOB_SPILLING);
    /* Else its worker died of something else. */
    bool at_work = j->has_turn || j->state == JOB_PREPARING || j->state == JOB_SPILLING ||
                   j->state == JOB_RETURNING;
    if (j->has_turn && j->state == JOB_RUNNING)
        (void)sy_policy_undo(s->slices[j->slice].policy, j->id);
    end_turn(s, j);
    j->state = JOB_QUEUED;
    j->worker = -1;
    j->for_team = j->preempted = j->still = false;
    sy_sched_sync_blocked(s, j);
    j->deaths = (progressed ? 0 : j->deaths) + at_work;
    if (j->deaths < SY_SCHED_MOST_DEATHS && !j->stop_wanted)
        return; /* S6 */
    sy_sched_refuse_job(s, j, SY_EPEER, why);
    sy_sched_remove_job(s, j);
}

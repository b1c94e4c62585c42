/* Opportunistic jobs give way to guaranteed ones with their workers too: each job has one, and all may be taken.
 *
 *   RUNNING ──turn over, SPILL→ SPILLING ──spilled→ SPILLED ──LEAVE→ LEAVING ──left→ QUEUED (waits for no memory) ──PREPARE, START spilled→ RUNNING
 *
 * Only a worker moves memory: what lay in the pool without one could not be had back while guaranteed jobs have them all. So whoever has computed in
 * some is spilled first, and one that lost its worker in the middle of it is given the next. What cannot be spilled (no host memory for it) stays:
 *
 *   RUNNING ──turn over, LEAVE→ LEAVING ──left→ QUEUED (its memory stays where it lies) ──PREPARE, START in_memory→ RUNNING
 *
 * One that is spilled can do nothing, so its worker is anybody's who needs one to give memory, too. Nobody leaves twice for the same job, and whoever
 * has no guaranteed job in front of it is given the next worker: so all come back. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

bool sy_sched_jobs_hold_workers(const struct sy_sched *s)
{
    int n = 0;
    for (int w = 0; w < s->config.n_workers; w++)
        n += s->workers[w] != WORKER_GONE && s->workers[w] != WORKER_JOB;
    return n < 2;
}

static bool lacks_worker(const struct sy_sched *s, const struct job *j)
{
    if (j->state != JOB_QUEUED)
        return false;
    return j->opportunistic ? sy_sched_may_be_spilled(j) && sy_sched_guaranteed_waits_for_memory(s)
                            : !j->suspended;
}

/* Guaranteed jobs that have their memory, then jobs that can give some, else guaranteed ones first. */
static int worker_rank(const struct job *j)
{
    if (j->opportunistic)
        return sy_sched_may_be_spilled(j) ? 1 : 3;
    return j->admitted ? 0 : 2;
}

/* Of these the ones with memory, then the most urgent, then the first to arrive. */
static bool has_worker_before(const struct job *a, const struct job *b)
{
    int rank_a = worker_rank(a), rank_b = worker_rank(b);
    if (rank_a != rank_b)
        return rank_a < rank_b;
    if (a->admitted != b->admitted)
        return a->admitted;
    return sy_sched_job_rank(a) < sy_sched_job_rank(b);
}

/* One that is suspended needs none, but to give memory. */
struct job *sy_sched_next_for_worker(const struct sy_sched *s)
{
    struct job *best = NULL;
    for (struct job *j = s->jobs; j; j = j->next)
        if (j->state == JOB_QUEUED && (!j->suspended || lacks_worker(s, j)) &&
            (!best || has_worker_before(j, best)))
            best = j;
    return best;
}

/* What lies in the pool has to be brought to life before it can be spilled. */
static bool may_leave(const struct job *j)
{
    bool comes_back = j->state == JOB_PREPARED && j->in_memory && sy_sched_may_be_spilled(j);
    return j->opportunistic && !j->stop_wanted && !comes_back &&
           (j->state == JOB_PREPARED || j->state == JOB_RUNNING || j->state == JOB_SPILLED);
}

/* How many workers guaranteed jobs lack, and those that are to give them memory. */
static int n_lacking(const struct sy_sched *s)
{
    int n = 0;
    if (!sy_sched_jobs_hold_workers(s))
        return 0;
    for (const struct job *j = s->jobs; j; j = j->next) {
        n += lacks_worker(s, j);
        n -= j->state == JOB_LEAVING || (j->stop_wanted && j->state != JOB_QUEUED);
    }
    return n;
}

bool sy_sched_worker_is_wanted(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (may_leave(j))
            return n_lacking(s) > 0;
    return false;
}

/* What it costs that a job lets its worker go: nothing, the room that it was given to return to, or a trip to host memory. */
enum leave_cost { COSTS_NOTHING, COSTS_ROOM, COSTS_TRIP };

static enum leave_cost leave_cost(const struct job *j)
{
    if (!j->admitted)
        return COSTS_NOTHING;
    return j->state == JOB_SPILLED ? COSTS_ROOM : COSTS_TRIP;
}

static bool leaves_before(const struct job *a, const struct job *b)
{
    enum leave_cost cost_a = leave_cost(a), cost_b = leave_cost(b);
    return cost_a != cost_b ? cost_a < cost_b : sy_sched_job_rank(a) >= sy_sched_job_rank(b);
}

/* Whose leaving costs least, then the least urgent, then the one that came last. */
static struct job *victim(const struct sy_sched *s)
{
    struct job *found = NULL;
    for (struct job *j = s->jobs; j; j = j->next)
        if (may_leave(j) && !j->has_turn && (!found || leaves_before(j, found)))
            found = j;
    return found;
}

static void leave(struct sy_sched *s, struct job *j)
{
    (void)sy_sched_act_job(s, SY_DO_JOB_LEAVE, j);
    j->in_memory |= j->state == JOB_RUNNING;
    j->state = JOB_LEAVING;
    sy_sched_sync_blocked(s, j);
}

void sy_sched_leave_for_team(struct sy_sched *s, struct job *j)
{
    leave(s, j);
    j->for_team = true;
}

/* While one is on its way out, or back, those with memory in the pool wait: it may be the one that goes. A spilled job does not wait (S10), also
 * where it has room to return to: it could return only after that trip. */
void sy_sched_step_leaving(struct sy_sched *s)
{
    struct job *j;
    while (n_lacking(s) > 0 && (j = victim(s))) {
        if (leave_cost(j) == COSTS_TRIP && sy_sched_trip_is_under_way(s))
            return;
        if (j->state == JOB_RUNNING && sy_sched_may_be_spilled(j))
            sy_sched_spill(s, j);
        else
            leave(s, j);
    }
}

/* What lies in memory is laid out for the team that it had. Without a snapshot it goes on from there, and is not asked again: what failed would fail once more. */
static void end_team(struct job *j, bool has_snapshot)
{
    if (!j->for_team)
        return;
    j->for_team = false;
    j->in_memory = !has_snapshot;
    j->moves = j->moves && has_snapshot;
}

int sy_sched_job_left(struct sy_sched *s, int worker, uint64_t id, bool has_snapshot)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_LEAVING)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_LEFT out of turn", (unsigned long long)id);
    end_team(j, has_snapshot);
    s->workers[worker] = WORKER_IDLE;
    j->state = JOB_QUEUED;
    j->worker = -1;
    if (j->in_lanes && !j->in_memory) { /* nothing of it is there: it asks again */
        (void)sy_lanes_leave(s->lanes, id);
        s->admission_stuck = false;
        j->in_lanes = j->admitted = false;
    }
    if (j->stop_wanted) {
        sy_sched_refuse_job(s, j, SY_ECANCELED, "stopped while it left its worker");
        sy_sched_remove_job(s, j);
    }
    sy_sched_step(s);
    return SY_OK;
}

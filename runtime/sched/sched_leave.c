/* Opportunistic jobs release their workers to guaranteed jobs: each job has a worker, and all workers may be in use.
 *
 *   RUNNING ──turn over, SPILL→ SPILLING ──spilled→ SPILLED ──LEAVE→ LEAVING ──left→ QUEUED (waits for no memory) ──PREPARE, START spilled→ RUNNING
 *
 * Only a worker moves memory: state in the pool without a worker could not be moved while guaranteed jobs hold all workers. So a job that has state in
 * the pool is spilled first, and one that lost its worker while being spilled gets the next worker. State that cannot be spilled (no host memory) stays:
 *
 *   RUNNING ──turn over, LEAVE→ LEAVING ──left→ QUEUED (its memory stays where it lies) ──PREPARE, START in_memory→ RUNNING
 *
 * A spilled job cannot compute, so its worker may also go to a job that needs one in order to be spilled. No job leaves twice for the same guaranteed job,
 * and a job that no guaranteed job precedes gets the next worker: so all jobs come back. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

/* The cost of a job's release of its worker: nothing, the memory reserved for its return, or a spill to host memory. */
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

/* The job with the least cost, then the least urgent, then the latest. */
static struct job *victim(const struct sy_sched *s)
{
    struct job *found = NULL;
    for (struct job *j = s->jobs; j; j = j->next)
        if (sy_sched_may_leave(j) && !j->has_turn && (!found || leaves_before(j, found)))
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

/* While a spill or restore is in progress, jobs with memory in the pool wait: one of them may be the job that is moving. A spilled job does not wait (S10),
 * even if it has room to return to: it could return only after that move. */
void sy_sched_step_leaving(struct sy_sched *s)
{
    struct job *j;
    while (sy_sched_n_lacking(s) > 0 && (j = victim(s))) {
        if (leave_cost(j) == COSTS_TRIP && sy_sched_trip_is_under_way(s))
            return;
        if (j->state == JOB_RUNNING && sy_sched_may_be_spilled(j))
            sy_sched_spill(s, j);
        else
            leave(s, j);
    }
}

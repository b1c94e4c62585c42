/* Opportunistic jobs give way to guaranteed ones with their workers too: each job has one, and all may be taken.
 *
 *   RUNNING ──turn over, LEAVE→ LEAVING ──left→ QUEUED (its memory stays where it lies) ──PREPARE, START in_memory→ RUNNING
 *
 * What is spilled lives in its worker, so it stays there. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

/* While a guaranteed one waits for memory, who has some is spilled instead, for which it needs its worker. */
static bool may_leave(const struct sy_sched *s, const struct job *j)
{
    bool has_memory = j->admitted && sy_sched_guaranteed_waits_for_memory(s);
    return j->opportunistic && !j->stop_wanted && !has_memory &&
           (j->state == JOB_PREPARED || j->state == JOB_RUNNING);
}

/* How many workers guaranteed jobs lack. */
static int n_lacking(const struct sy_sched *s)
{
    int n = 0;
    if (!sy_sched_jobs_hold_workers(s))
        return 0;
    for (const struct job *j = s->jobs; j; j = j->next) {
        n += !j->opportunistic && j->state == JOB_QUEUED && !j->suspended;
        n -= j->state == JOB_LEAVING || (j->stop_wanted && j->state != JOB_QUEUED);
    }
    return n;
}

bool sy_sched_worker_is_wanted(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (may_leave(s, j))
            return n_lacking(s) > 0;
    return false;
}

/* Who has computed nothing yet, else the least urgent, else the one that came last. */
static struct job *victim(const struct sy_sched *s)
{
    struct job *found = NULL;
    for (struct job *j = s->jobs; j; j = j->next) {
        if (!may_leave(s, j) || j->has_turn)
            continue;
        if (!found || j->admitted < found->admitted ||
            (j->admitted == found->admitted && sy_sched_job_rank(j) >= sy_sched_job_rank(found)))
            found = j;
    }
    return found;
}

void sy_sched_step_leaving(struct sy_sched *s)
{
    struct job *j;
    while (n_lacking(s) > 0 && (j = victim(s))) {
        (void)sy_sched_act_job(s, SY_DO_JOB_LEAVE, j);
        j->in_memory |= j->state == JOB_RUNNING;
        j->state = JOB_LEAVING;
        sy_sched_sync_blocked(s, j);
    }
}

int sy_sched_job_left(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_LEAVING)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_LEFT out of turn", (unsigned long long)id);
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

/* Guaranteed jobs preempt opportunistic ones: of turns, and of memory, which is spilled to the host and restored (AntMan).
 *
 *   RUNNING ──SPILL→ SPILLING ──spilled→ SPILLED (waits in the lanes' queue, behind guaranteed ones) ──RETURN→ RETURNING ──returned→ RUNNING
 *
 * It joins that queue once no guaranteed job waits for memory: if one waits because free memory is fragmented, the job would be restored only to be
 * spilled again.
 *
 * One spill or restore at a time, since they share the link. Spilled state outlives the worker: a job that loses or releases it (sched_leave.c) is
 * prepared on another and starts from host memory:
 *
 *   SPILLED, RETURNING ──lost, left→ QUEUED ──PREPARE→ PREPARED (waits in the lanes' queue) ──START spilled→ STARTING ──started→ RUNNING */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

/* The least urgent job; of equals the latest. */
static struct job *victim(const struct sy_sched *s)
{
    struct job *found = NULL;
    for (struct job *j = s->jobs; j; j = j->next)
        if (sy_sched_may_be_spilled(j) && j->state == JOB_RUNNING && !j->has_turn &&
            (!found || sy_sched_job_rank(j) >= sy_sched_job_rank(found)))
            found = j;
    return found;
}

static void act(struct sy_sched *s, enum sy_sched_kind kind, struct job *j, enum job_state next)
{
    struct sy_sched_action *a = sy_sched_act(s, kind);
    a->worker = j->worker;
    a->job = j->id;
    a->persistent_offset = j->persistent_offset;
    j->state = next;
    sy_sched_sync_blocked(s, j);
}

void sy_sched_spill(struct sy_sched *s, struct job *j)
{
    act(s, SY_DO_JOB_SPILL, j, JOB_SPILLING);
}

/* Its memory is unchanged. Most reasons pass (a signal that it got just then, a full disk), and a guaranteed job waits: it is asked again after a second.
 * Each further failure in a row doubles that, since an attempt stops the job and may write gigabytes before it fails. */
void sy_sched_spill_failed(struct sy_sched *s, struct job *j)
{
    j->spill_pause_ns = SY_MIN(SY_MAX(2 * j->spill_pause_ns, SY_SCHED_SPILL_AGAIN_NS),
                               SY_SCHED_SPILL_AGAIN_MOST_NS);
    j->spill_again_ns = s->now + j->spill_pause_ns;
    j->cannot_spill = true;
}

bool sy_sched_spills_pass(struct sy_sched *s)
{
    bool passed = false;
    for (struct job *j = s->jobs; j; j = j->next) {
        bool now = j->cannot_spill && s->now >= j->spill_again_ns;
        j->cannot_spill &= !now;
        passed |= now;
    }
    return passed;
}

sy_ns sy_sched_spills_wake_at(const struct sy_sched *s)
{
    sy_ns soonest = 0;
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j->cannot_spill && (!soonest || j->spill_again_ns < soonest))
            soonest = j->spill_again_ns;
    return soonest;
}

void sy_sched_spilled_join_lanes(struct sy_sched *s)
{
    if (sy_sched_guaranteed_waits_for_memory(s))
        return;
    for (struct job *j = s->jobs; j; j = j->next)
        if (j->in_spill && !j->in_lanes && !j->stop_wanted &&
            (j->state == JOB_SPILLED || j->state == JOB_PREPARED))
            sy_sched_join_lanes(s, j);
}

static struct job *next_back(const struct sy_sched *s)
{
    struct job *j = s->jobs;
    while (j && (j->state != JOB_SPILLED || !j->admitted))
        j = j->next;
    return j;
}

void sy_sched_step_spills(struct sy_sched *s)
{
    struct job *j;
    if (sy_sched_trip_is_under_way(s))
        return;
    if (sy_sched_guaranteed_waits_for_memory(s) && (j = victim(s)))
        sy_sched_spill(s, j);
    else if ((j = next_back(s)))
        act(s, SY_DO_JOB_RETURN, j, JOB_RETURNING);
}

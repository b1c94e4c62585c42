/* Opportunistic jobs compute in unused slices (S13).
 *
 *   home slice free ──> there
 *   home slice used ──> the first slice of as many compute units that nobody uses, from the next boundary on ──its owner comes──> home, or the next one
 *
 * The owner of a slice need not wait: a request holds the job within a layer, as it holds every job of its slice (S2), and a job gets its turn at the next boundary, which
 * the lent one then does not hold back (sy_sched_fill_holds). */
#include "runtime/sched/sched_internal.h"

static bool computes_there(const struct job *j)
{
    return !j->suspended && (j->state == JOB_RUNNING || j->state == JOB_STARTING ||
                             (j->state == JOB_PREPARED && j->admitted));
}

/* By requests, or by another job. */
static bool is_used(const struct sy_sched *s, int slice, const struct job *but)
{
    if (sy_sched_slice_is_busy(s, slice))
        return true;
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j != but && j->slice == slice && computes_there(j))
            return true;
    return false;
}

static bool is_promised(const struct sy_sched *s, int slice, const struct job *but)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j != but && j->lent == slice)
            return true;
    return false;
}

/* -1: it belongs where it belongs. */
static int slice_for(const struct sy_sched *s, const struct job *j)
{
    int home = j->wanted_slice;
    if (!j->opportunistic || j->stop_wanted || j->suspended || j->state != JOB_RUNNING ||
        s->n_slices == 1 || s->n_made > s->n_slices || j->team != s->slices[home].team ||
        !is_used(s, home, j))
        return -1;
    if (j->lent >= 0 && j->lent < s->n_slices && s->slices[j->lent].team == j->team &&
        !is_used(s, j->lent, j))
        return j->lent;
    for (int i = 0; i < s->n_slices; i++)
        if (i != home && s->slices[i].team == j->team && !is_used(s, i, j) && !is_promised(s, i, j))
            return i;
    return -1;
}

void sy_sched_step_lending(struct sy_sched *s)
{
    for (struct job *j = s->jobs; j; j = j->next)
        j->lent = slice_for(s, j);
}

int sy_sched_slice_wanted(const struct job *j)
{
    return j->lent >= 0 ? j->lent : j->wanted_slice;
}

bool sy_sched_guaranteed_wants_in(const struct sy_sched *s, int slice)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!j->opportunistic && j->slice == slice && computes_there(j) && !j->stop_wanted)
            return true;
    return false;
}

/* Others go on at the boundary that it would not come to: of its lane, of its worker, or those that wait for memory. */
static bool is_in_the_way(const struct sy_sched *s, const struct job *j)
{
    return j->has_turn &&
           (s->compacting || sy_lanes_draining(s->lanes) || sy_lanes_n_waiting(s->lanes) > 0 ||
            sy_sched_lane_is_wanted(s, j) || sy_sched_worker_is_wanted(s));
}

bool sy_sched_fill_holds(const struct sy_sched *s, const struct job *j)
{
    return s->fill_held && j->opportunistic && !j->stop_wanted && s->n_made > 1 &&
           !sy_sched_guaranteed_wants_in(s, j->slice) && !is_in_the_way(s, j);
}

void sy_sched_hold_opportunistic(struct sy_sched *s, bool hold)
{
    if (s->fill_held == hold)
        return;
    s->fill_held = hold;
    sy_sched_step(s);
}

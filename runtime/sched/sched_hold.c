/* Pausing training: for requests of its slice, for models that it must not compute beside (S12), for the owner of a lent slice (S13).
 *
 * Opportunistic jobs compute in unused slices:
 *
 *   home slice free ──> there
 *   home slice used ──> the first unused slice of as many compute units, from the next boundary on ──its owner comes──> home, or the next unused one
 *
 * The owner of a slice hardly waits: a request pauses the job within a layer, as it pauses every job of its slice (S2); a job gets its turn at the next
 * iteration boundary (fill_holds). */
#include "runtime/base/assert.h"
#include "runtime/sched/sched_internal.h"

bool sy_sched_stands_still(const struct job *j)
{
    return !j->has_turn || (j->preempted && j->still);
}

bool sy_sched_training_still(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!sy_sched_stands_still(j))
            return false;
    return true;
}

/* A job that is starting is not interrupted: the start ends by itself, and the job has no turn then. */
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

/* Called before `r` enters its slot. */
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
        if (sy_sched_holds(c->active, j) && !sy_sched_stands_still(j))
            return false;
    return true;
}

/* A job that has not begun takes its turn by itself. */
static bool guaranteed_runs_in(const struct sy_sched *s, int slice)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!j->opportunistic && j->slice == slice && j->state == JOB_RUNNING && !j->suspended &&
            !j->stop_wanted)
            return true;
    return false;
}

bool sy_sched_is_blocked(const struct sy_sched *s, const struct job *j)
{
    return j->suspended || j->state != JOB_RUNNING || sy_sched_is_held_elsewhere(s, j) ||
           (j->opportunistic && !j->stop_wanted && guaranteed_runs_in(s, j->slice)) ||
           sy_sched_fill_holds(s, j);
}

void sy_sched_sync_blocked(struct sy_sched *s, const struct job *j)
{
    if (j->in_policy)
        (void)sy_policy_block(s->slices[j->slice].policy, j->id, sy_sched_is_blocked(s, j), s->now);
}

static bool computes_there(const struct job *j)
{
    return !j->suspended && (j->state == JOB_RUNNING || j->state == JOB_STARTING ||
                             (j->state == JOB_PREPARED && j->admitted));
}

/* Used by requests, or by another job than `but`. */
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

/* -1: its home slice. */
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

static bool guaranteed_wants_in(const struct sy_sched *s, int slice)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!j->opportunistic && j->slice == slice && computes_there(j) && !j->stop_wanted)
            return true;
    return false;
}

/* Others wait for a boundary of this job: jobs of its lane or worker, or jobs that wait for memory. */
static bool is_in_the_way(const struct sy_sched *s, const struct job *j)
{
    return j->has_turn &&
           (s->compacting || sy_lanes_draining(s->lanes) || sy_lanes_n_waiting(s->lanes) > 0 ||
            sy_sched_lane_is_wanted(s, j) || sy_sched_worker_is_wanted(s));
}

bool sy_sched_fill_holds(const struct sy_sched *s, const struct job *j)
{
    return s->fill_held && j->opportunistic && !j->stop_wanted && s->n_made > 1 &&
           !guaranteed_wants_in(s, j->slice) && !is_in_the_way(s, j);
}

bool sy_sched_holds(const struct request *r, const struct job *j)
{
    return r->slice == j->slice || sy_sched_has_bit(j->apart, r->model);
}

bool sy_sched_job_is_held(const struct sy_sched *s, const struct job *j)
{
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if (c->active && sy_sched_holds(c->active, j))
            return true;
    return sy_sched_fill_holds(s, j);
}

bool sy_sched_is_held_elsewhere(const struct sy_sched *s, const struct job *j)
{
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if (c->active && c->active->slice != j->slice &&
            sy_sched_has_bit(j->apart, c->active->model))
            return true;
    return false;
}

/* The id may be reused for another model. */
void sy_sched_forget_exclusive(struct sy_sched *s, int model)
{
    for (int m = 0; m < SY_SCHED_MAX_MODELS; m++)
        sy_sched_set_bit(s->models[m].apart, model, false);
    for (struct job *j = s->jobs; j; j = j->next) {
        sy_sched_set_bit(j->apart, model, false);
        sy_sched_sync_blocked(s, j);
    }
}

/* Slices of the device's compute (S11), and tasks that must not compute side by side (S12). */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

/* time within which a request stops between layers: a long layer's time */
#define INTERRUPT_NS (20 * SY_NS_PER_MS)

int sy_sched_n_slices(const struct sy_sched *s)
{
    return s->n_slices;
}

/* ---- what takes turns (S12) ---- */

static bool is_at_work(const struct request *r, int model)
{
    return r && r->model == model;
}

/* By class, then by arrival: a total order, so no two heads wait for each other. */
static bool head_is_before(const struct slice *a, const struct slice *b)
{
    struct sy_admission_request x, y;
    if (!sy_admission_peek(a->admission, &x) || !sy_admission_peek(b->admission, &y))
        return false;
    return x.class_ != y.class_ ? x.class_ < y.class_ : x.id < y.id;
}

/* `o` computes nothing because its head waits until `r` has ended (or until nothing else starts), and that head comes first. While a worker still prepares it,
 * it could not start, so others may. */
static bool is_waited_for(const struct sy_sched *s, const struct slice *o, const struct slice *c,
                          const struct request *r)
{
    const struct request *head = o->active || o->share.first ? NULL : sy_sched_head(s, o);
    return head && !head->preparing &&
           (head->wants_room || sy_sched_are_exclusive(s, r->model, head->model)) &&
           head_is_before(o, c);
}

/* A request waits for: its model, pinned by another slice; a model that must not compute beside it; the head of another slice that would otherwise starve; a
 * job to be admitted, which needs a moment in which nothing has started. The last two do not hold back prefetched requests: no more are prefetched
 * meanwhile, so the moment comes. */
bool sy_sched_must_wait(const struct sy_sched *s, const struct slice *c, const struct request *r)
{
    if (s->n_made == 1)
        return false;
    if (s->admitting && r != c->next && sy_sched_others_started(s, c))
        return true;
    for (const struct slice *o = s->slices; o < s->slices + s->n_made; o++) {
        if (o == c)
            continue;
        if (is_at_work(o->active, r->model) || is_at_work(o->next, r->model) ||
            (o->active && sy_sched_are_exclusive(s, r->model, o->active->model)) ||
            (r != c->next && is_waited_for(s, o, c, r)))
            return true;
    }
    return false;
}

/* ---- slices that come and go ---- */

static bool is_left(const struct sy_sched *s, int slice)
{
    bool any = sy_sched_slice_is_busy(s, slice);
    for (const struct job *j = s->jobs; j && !any; j = j->next)
        any = j->slice == slice;
    return !any;
}

void sy_sched_drop_slices(struct sy_sched *s)
{
    while (s->n_made > s->n_slices && is_left(s, s->n_made - 1)) {
        struct slice *c = &s->slices[--s->n_made];
        sy_sched_give_workspace_lane(s, c);
        sy_policy_destroy(c->policy);
        sy_admission_destroy(c->admission);
        *c = (struct slice){.team = c->team};
    }
}

int sy_sched_model_slice(const struct sy_sched *s, int model)
{
    return s->models[model].slice;
}

static void move_job(struct sy_sched *s, struct job *j)
{
    int slice = sy_sched_slice_wanted(j);
    struct sy_policy *from = s->slices[j->slice].policy, *to = s->slices[slice].policy;
    if (j->in_policy && sy_policy_move(from, to, j->id, s->now) < 0)
        assert(!"a policy has room for as many jobs as there are");
    j->slice = slice;
    sy_sched_sync_blocked(s, j);
}

void sy_sched_move_jobs(struct sy_sched *s)
{
    for (struct job *j = s->jobs; j; j = j->next)
        if (j->slice != sy_sched_slice_wanted(j) && !j->has_turn)
            move_job(s, j);
    for (struct job *j = s->jobs; j; j = j->next)
        if (j->state == JOB_RUNNING && !j->has_turn && !j->stop_wanted && j->moves &&
            j->team != s->slices[j->slice].team)
            sy_sched_leave_for_team(s, j);
}

int sy_sched_make_slice(struct sy_sched *s, struct slice *c)
{
    struct sy_policy_config policy = {.kind = SY_POLICY_FAIR, .max_jobs = SY_SCHED_MAX_JOBS};
    struct sy_admission_config requests = {.max_requests = s->config.max_queue,
                                           .preempt_ns = INTERRUPT_NS,
                                           .may_break_lower = true,
                                           .restarts = true,
                                           .reserves = true};
    SY_TRY(sy_policy_create(&policy, &c->policy));
    return sy_admission_create(&requests, &c->admission);
}

/* Slices of the device's compute (S11), and what does not compute side by side (S12). */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

static bool has_bit(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void set_bit(uint64_t *bits, int i, bool on)
{
    uint64_t bit = 1ull << (i % 64);
    bits[i / 64] = on ? bits[i / 64] | bit : bits[i / 64] & ~bit;
}

int sy_sched_open_slice(const struct sy_sched *s, int wanted)
{
    return wanted >= 0 && wanted < s->n_slices ? wanted : 0;
}

struct slice *sy_sched_slice_of(const struct sy_sched *s, const struct request *r)
{
    return (struct slice *)&s->slices[r->slice];
}

int sy_sched_n_slices(const struct sy_sched *s)
{
    return s->n_slices;
}

int sy_sched_team_of(const struct sy_sched *s, int model)
{
    return s->slices[sy_sched_open_slice(s, s->models[model].slice)].team;
}

uint64_t sy_sched_lane_bytes(const struct sy_sched *s)
{
    uint64_t sum = 0;
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        sum += c->lane_bytes;
    return sum;
}

bool sy_sched_others_started(const struct sy_sched *s, const struct slice *c)
{
    for (const struct slice *o = s->slices; o < s->slices + s->n_made; o++)
        if (o != c && (o->active || o->next))
            return true;
    return false;
}

bool sy_sched_slice_is_busy(const struct sy_sched *s, int slice)
{
    const struct slice *c = &s->slices[slice];
    bool busy = c->active || c->next;
    for (const struct request *r = s->waiting; r && !busy; r = r->next)
        busy = r->slice == slice;
    return busy;
}

/* ---- what takes turns (S12) ---- */

bool sy_sched_are_apart(const struct sy_sched *s, int model, int other)
{
    return has_bit(s->models[model].apart, other);
}

static bool is_at_work(const struct request *r, int model)
{
    return r && r->model == model;
}

/* By class, then by arrival: of two heads exactly one is before the other, so no two wait for each other. */
static bool head_is_before(const struct slice *a, const struct slice *b)
{
    struct sy_admission_request x, y;
    if (!sy_admission_peek(a->admission, &x) || !sy_admission_peek(b->admission, &y))
        return false;
    return x.class_ != y.class_ ? x.class_ < y.class_ : x.id < y.id;
}

/* `o` computes nothing, because its head waits for a moment without `r` (or without anything else that starts), and that head was first. While a worker prepares it, it
 * could not start: others do. */
static bool is_waited_for(const struct sy_sched *s, const struct slice *o, const struct slice *c,
                          const struct request *r)
{
    const struct request *head = o->active || o->share.first ? NULL : sy_sched_head(s, o);
    return head && !head->preparing &&
           (head->wants_room || sy_sched_are_apart(s, r->model, head->model)) &&
           head_is_before(o, c);
}

/* One pin a model; what computes apart; a head of another slice that would otherwise never find its moment; and a job that waits to be let in, which needs a
 * moment in which nothing has started. What is prefetched already is let through by the last two: nothing is prefetched meanwhile, so that moment comes. */
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
            (o->active && sy_sched_are_apart(s, r->model, o->active->model)) ||
            (r != c->next && is_waited_for(s, o, c, r)))
            return true;
    }
    return false;
}

bool sy_sched_holds(const struct request *r, const struct job *j)
{
    return r->slice == j->slice || has_bit(j->apart, r->model);
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
        if (c->active && c->active->slice != j->slice && has_bit(j->apart, c->active->model))
            return true;
    return false;
}

static int check_model(const struct sy_sched *s, int model)
{
    if (model < 0 || model >= SY_SCHED_MAX_MODELS || !s->models[model].used)
        return sy_error_set(SY_ENOTFOUND, "there is no model %d", model);
    return SY_OK;
}

int sy_sched_set_apart(struct sy_sched *s, int model, int other, bool apart)
{
    SY_TRY(check_model(s, model));
    SY_TRY(check_model(s, other));
    set_bit(s->models[model].apart, other, apart && model != other);
    set_bit(s->models[other].apart, model, apart && model != other);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_set_apart(struct sy_sched *s, uint64_t id, int model, bool apart)
{
    struct job *j = sy_sched_job_by_id(s, id);
    SY_TRY(check_model(s, model));
    if (!j)
        return sy_error_set(SY_ENOTFOUND, "there is no job %llu that runs or waits",
                            (unsigned long long)id);
    set_bit(j->apart, model, apart);
    sy_sched_sync_blocked(s, j);
    sy_sched_step(s);
    return SY_OK;
}

/* Its id may be another model's from now on. */
void sy_sched_forget_apart(struct sy_sched *s, int model)
{
    for (int m = 0; m < SY_SCHED_MAX_MODELS; m++)
        set_bit(s->models[m].apart, model, false);
    for (struct job *j = s->jobs; j; j = j->next) {
        set_bit(j->apart, model, false);
        sy_sched_sync_blocked(s, j);
    }
}

/* ---- slices that come and go ---- */

static int make_missing(struct sy_sched *s, int n)
{
    while (s->n_made < n) {
        struct slice *c = &s->slices[s->n_made];
        int status = sy_sched_make_slice(s, c);
        if (status < 0) {
            sy_policy_destroy(c->policy);
            sy_admission_destroy(c->admission);
            *c = (struct slice){.team = c->team};
            return status;
        }
        sy_policy_copy_rules(c->policy, s->slices[0].policy);
        c->share.permille = s->slices[0].share.permille;
        s->n_made++;
    }
    return SY_OK;
}

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

int sy_sched_set_slices(struct sy_sched *s, int n)
{
    if (n < 1 || n > SY_SCHED_MAX_SLICES)
        return sy_error_set(SY_EARG, "%d slices: 1 to %d", n, SY_SCHED_MAX_SLICES);
    SY_TRY(make_missing(s, n));
    s->n_slices = n;
    for (int m = 0; m < SY_SCHED_MAX_MODELS; m++)
        s->models[m].slice = sy_sched_open_slice(s, s->models[m].slice);
    for (struct job *j = s->jobs; j; j = j->next)
        j->wanted_slice = sy_sched_open_slice(s, j->wanted_slice);
    sy_sched_step(s);
    return SY_OK;
}

static int check_slice(const struct sy_sched *s, int slice)
{
    if (slice < 0 || slice >= s->n_slices)
        return sy_error_set(SY_EARG, "there is no slice %d: 0 to %d", slice, s->n_slices - 1);
    return SY_OK;
}

int sy_sched_model_set_slice(struct sy_sched *s, int model, int slice)
{
    SY_TRY(check_model(s, model));
    SY_TRY(check_slice(s, slice));
    s->models[model].slice = slice;
    return SY_OK;
}

int sy_sched_model_slice(const struct sy_sched *s, int model)
{
    return s->models[model].slice;
}

int sy_sched_job_set_slice(struct sy_sched *s, uint64_t id, int slice)
{
    struct job *j = sy_sched_job_by_id(s, id);
    SY_TRY(check_slice(s, slice));
    if (!j)
        return sy_error_set(SY_ENOTFOUND, "there is no job %llu that runs or waits",
                            (unsigned long long)id);
    j->wanted_slice = slice;
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_slice_resized(struct sy_sched *s, int slice, int team)
{
    assert(slice >= 0 && slice < SY_SCHED_MAX_SLICES);
    s->slices[slice].team = team;
    for (struct job *j = s->jobs; j; j = j->next)
        j->resized |= j->slice == slice;
    sy_sched_step(s);
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

bool sy_sched_lane_is_wanted(const struct sy_sched *s, const struct job *job)
{
    int lane = s->n_made > 1 ? sy_lanes_lane_of(s->lanes, job->id) : -1;
    for (const struct job *j = s->jobs; lane >= 0 && j; j = j->next)
        if (j->slice != job->slice && j->in_lanes && j->state == JOB_RUNNING && !j->suspended &&
            sy_lanes_lane_of(s->lanes, j->id) == lane)
            return true;
    return false;
}

bool sy_sched_trains_in(const struct sy_sched *s, const struct slice *c)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (&s->slices[j->slice] == c && j->has_turn && !(j->preempted && j->still))
            return true;
    return false;
}

/* The scheduling step after every event: starts what can start, requests first, then jobs and their memory. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

void sy_sched_interrupt(struct sy_sched *s, struct request *r)
{
    r->interrupted = true;
    struct sy_sched_action *a = sy_sched_act(s, SY_DO_INTERRUPT);
    a->worker = r->worker;
    a->run = r->run;
}

static void ask_to_prepare(struct sy_sched *s, struct request *r, int worker)
{
    struct sy_sched_action *a = sy_sched_act(s, SY_DO_PREPARE);
    a->worker = worker;
    a->model = r->model;
    a->batch = r->batch;
    a->sizes = r->sizes;
    a->slice = r->slice;
    a->team = r->team;
    s->n_preparing[worker]++;
    if (!r->preparing)
        r->worker = worker; /* so that the PREPARE is repeated if this worker dies */
    r->preparing = true;
}

/* True when the workspace of the queue's head is known and an idle worker is ready for it. Otherwise sends PREPARE: for a batch size to every worker that has
 * time, since it will recur; for sizes, which may not recur, to one. */
static bool is_prepared(struct sy_sched *s, struct request *r)
{
    bool ready;
    r->team = sy_sched_slice_of(s, r)->team;
    struct workspace *known = sy_sched_find_workspace(s, r->model, r->batch, r->sizes, r->team);
    int first = sy_sched_worker_for(s, r, &ready);
    if (known && (ready || first < 0)) {
        known->used = ++s->last_use;
        r->workspace_bytes = known->bytes;
        if (r->preparing)
            r->worker = -1; /* do not wait for the worker that was asked */
        r->preparing = false;
        return true;
    }
    if (r->preparing)
        return false;
    for (int w = 0; first >= 0 && w < s->config.n_workers; w++)
        if (s->workers[w] == WORKER_IDLE && (w == first || (r->sizes == 0 && !known)))
            ask_to_prepare(s, r, w);
    return false;
}

static void begin(struct sy_sched *s, struct slice *c)
{
    struct sy_admission_request started;
    enum sy_admission_action action = sy_admission_next(c->admission, s->now, &started);
    assert(action == SY_ADMISSION_START && started.id == c->active->id);
}

/* A prefetched request frees its memory for a more urgent one, and waits again once its worker and its reads have finished. */
static void give_up_prefetch(struct sy_sched *s, struct slice *c)
{
    struct request *r = c->next;
    if (r && !r->restarting && !r->worker_through)
        sy_sched_give_up_run(s, r);
}

/* Puts the queue's head into the active slot; requests that cannot start end here. */
static void start_head(struct sy_sched *s, struct slice *c)
{
    struct request *r;
    while (!c->active && (r = sy_sched_head(s, c)) && !sy_sched_must_wait(s, c, r)) {
        if (r == c->next) {
            c->active = r;
            c->next = NULL;
            begin(s, c);
            return;
        }
        if (s->fetch && s->fetch->model == r->model)
            return; /* the fetch ends at a chunk: sy_sched_step_fetch */
        if (c->next && c->next->model == r->model) {
            give_up_prefetch(s, c); /* one pin per model */
            return;
        }
        if (!is_prepared(s, r))
            return;
        if (sy_sched_check_room(s, r) < 0) {
            sy_sched_drop_waiting(s, r, SY_ENOMEM_DEVICE, sy_error_text());
            continue;
        }
        int status = sy_sched_idle_worker(s) >= 0 ? sy_sched_start(s, r, false) : SY_EBUSY;
        if (status == SY_OK) {
            r->wants_room = false;
            sy_sched_unlink(s, r);
            c->active = r;
            begin(s, c);
            return;
        }
        if (c->next)
            give_up_prefetch(s, c);
        bool others = sy_sched_others_started(s, c);
        r->wants_room |= others && sy_sched_idle_worker(s) >= 0; /* it does not wait for a worker */
        if (status == SY_EBUSY || c->next || s->fetch || others)
            return;
        if (status == SY_ENOMEM_DEVICE && !r->compacted && sy_sched_job_bytes(s) > 0) {
            r->compacted = s->compacting = true;
            return;
        }
        sy_sched_drop_waiting(s, r, status, sy_error_text());
    }
}

/* While a request computes, the next one's model is loaded as far as there is room. */
static void prefetch(struct sy_sched *s, struct slice *c)
{
    struct request *r = sy_sched_head(s, c);
    if (!r || s->admitting || s->compacting || sy_sched_must_wait(s, c, r))
        return;
    if (r->model == c->active->model || (s->fetch && s->fetch->model == r->model)) {
        /* The model will be resident; a second pin would only be in the way. A PREPARE can be sent already. */
        if (!sy_sched_find_workspace(s, r->model, r->batch, r->sizes, c->team))
            (void)is_prepared(s, r);
        return;
    }
    if (!is_prepared(s, r) || sy_sched_idle_worker(s) < 0 || sy_sched_start(s, r, true) < 0)
        return;
    sy_sched_unlink(s, r);
    c->next = r;
}

/* S8. */
static void interrupt_for_more_urgent(struct sy_sched *s, struct slice *c)
{
    struct sy_admission_request running;
    const struct request *head = sy_sched_head(s, c);
    if (!c->active || !c->active->run_sent || c->active->worker_through || c->active->canceled ||
        !head || head->canceled)
        return;
    if (!c->active->interrupted)
        sy_admission_set_restarts(c->admission,
                                  c->active->lost_layer || !sy_sched_would_keep(s, head));
    if (sy_admission_next(c->admission, s->now, &running) != SY_ADMISSION_PREEMPT)
        return;
    sy_sched_interrupt(s, c->active);
}

static void start_requests_of(struct sy_sched *s, struct slice *c)
{
    if (!c->active && !c->share.first && !s->compacting)
        start_head(s, c);
    interrupt_for_more_urgent(s, c);
    if (c->active && c->active->run_sent && !c->active->worker_through && !c->next)
        prefetch(s, c);
}

/* A head that starts or ends here may be what an earlier slice's head waits for (S12). */
static void start_requests(struct sy_sched *s)
{
    int n;
    do {
        n = s->n_waiting;
        for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
            start_requests_of(s, c);
    } while (s->n_made > 1 && s->n_waiting < n);
}

/* S1. False: not possible now. */
static bool run_active(struct sy_sched *s, struct slice *c)
{
    struct request *r = c->active;
    if (!r || r->run_sent || r->worker_through || !sy_sched_training_still_for(s, c))
        return false;
    if (r->restarting || sy_sched_complete(s, r) < 0)
        return false;
    struct sy_sched_action *a = sy_sched_act_run(s, SY_DO_RUN, r);
    a->slice = r->slice;
    a->team = r->team;
    a->workspace_offset = c->lane_offset;
    a->workspace_bytes = c->lane_bytes;
    a->first_layer = r->first_layer = r->next_layer;
    r->next_layer = 0;
    r->run_sent = true;
    c->recent[c->n_runs++ % SY_SCHED_RECENT_RUNS] = r->workspace_bytes;
    return true;
}

static bool run_requests(struct sy_sched *s)
{
    bool any = false;
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        any |= run_active(s, c);
    return any;
}

void sy_sched_step(struct sy_sched *s)
{
    sy_sched_share_follow(s);
    sy_sched_end_hopeless(s);
    if (s->admitting)
        sy_sched_let_in(s); /* between two runs */
    start_requests(s);
    (void)sy_sched_hold_training(s);
    sy_sched_step_jobs(
        s); /* between two runs, so that a flood of requests cannot keep a job from starting */
    (void)run_requests(s);
    start_requests(s);   /* the request that computes now leaves room for a prefetch */
    if (s->compacting) { /* compaction has just begun: jobs that keep their turn are told to yield, as no other event would follow */
        sy_sched_step_jobs(s);
        start_requests(s);
    }
    /* Requests that started since then, behind a head without room or after lanes were moved, run now: if all their groups are resident and no job has a turn,
     * no event follows. */
    (void)sy_sched_hold_training(s);
    if (run_requests(s))
        start_requests(s);
    sy_sched_step_fetch(s);
    sy_sched_drop_slices(s);
    sy_assert_expensive(sy_sched_is_valid(s));
}

#include "runtime/sched/sched_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_OVERTAKES 8
#define INTERRUPT_NS \
    (20 * SY_NS_PER_MS) /* within which a request stops between layers: a long layer's time */

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

static int make_queues(struct sy_sched *s)
{
    struct sy_lanes_config lanes = {.capacity_bytes = s->config.pool_bytes,
                                    .max_jobs = SY_SCHED_MAX_WORKERS,
                                    .max_overtakes = MAX_OVERTAKES,
                                    .regroup = true};
    SY_TRY(sy_sched_make_slice(s, &s->slices[0]));
    s->n_slices = s->n_made = 1;
    return sy_lanes_new(s->pool, &s->quotas, &lanes, &s->lanes);
}

int sy_sched_create(const struct sy_sched_config *config, struct sy_sched **out)
{
    int status = SY_OK;
    if (config->n_workers < 2 || config->n_workers > SY_SCHED_MAX_WORKERS || config->max_queue < 1)
        return sy_error_set(SY_EARG,
                            "%d workers, queue of %d: 2 to %d workers and a queue of 1 or more",
                            config->n_workers, config->max_queue, SY_SCHED_MAX_WORKERS);
    struct sy_sched *s = calloc(1, sizeof *s);
    if (!s)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the scheduler");
    s->config = *config;
    /* One event ends at most the whole queue, and does a few things to each worker besides. */
    s->max_actions = SY_SCHED_MAX_SLICES * config->max_queue + 8 * config->n_workers + 64;
    s->actions = calloc((size_t)s->max_actions, sizeof *s->actions);
    if (!s->actions) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for %d actions", s->max_actions);
        goto destroy;
    }
    SY_TRY_GOTO(sy_pool_new(config->pool_bytes, &s->pool), destroy);
    SY_TRY_GOTO(sy_residency_new(s->pool, &s->pool_residency), destroy);
    sy_residency_whole_models(s->pool_residency, config->whole_models);
    if (config->image_bytes) {
        SY_TRY_GOTO(sy_pool_new(config->image_bytes, &s->image), destroy);
        SY_TRY_GOTO(sy_residency_new(s->image, &s->image_residency), destroy);
    }
    SY_TRY_GOTO(make_queues(s), destroy);
    *out = s;
    return SY_OK;

destroy:
    sy_sched_destroy(s);
    return status;
}

void sy_sched_free_request(struct request *r)
{
    if (!r)
        return;
    free(r->places);
    free(r->image_places);
    free(r->pool_arrived);
    free(r->image_arrived);
    free(r);
}

void sy_sched_destroy(struct sy_sched *s)
{
    if (!s)
        return;
    while (s->waiting) {
        struct request *r = s->waiting;
        s->waiting = r->next;
        sy_sched_free_request(r);
    }
    for (struct slice *c = s->slices; c < s->slices + SY_SCHED_MAX_SLICES; c++) {
        sy_sched_free_request(c->active);
        sy_sched_free_request(c->next);
    }
    sy_sched_free_request(s->fetch);
    sy_sched_free_jobs(s);
    for (struct slice *c = s->slices; c < s->slices + SY_SCHED_MAX_SLICES; c++) {
        sy_policy_destroy(c->policy);
        sy_admission_destroy(c->admission);
    }
    sy_lanes_free(s->lanes);
    for (int i = 0; i < SY_SCHED_MAX_MODELS; i++)
        free(s->models[i].group_bytes);
    sy_residency_free(s->image_residency);
    sy_residency_free(s->pool_residency);
    sy_pool_free(s->image);
    sy_pool_free(s->pool);
    free(s->actions);
    free(s);
}

/* ---- actions ---------------------------------------------------------------------------------- */

struct sy_sched_action *sy_sched_act(struct sy_sched *s, enum sy_sched_kind kind)
{
    assert(s->n_actions < s->max_actions);
    struct sy_sched_action *a = &s->actions[(s->first_action + s->n_actions++) % s->max_actions];
    *a = (struct sy_sched_action){.kind = kind, .worker = -1, .model = -1};
    return a;
}

bool sy_sched_next(struct sy_sched *s, struct sy_sched_action *out)
{
    if (s->n_actions == 0)
        return false;
    *out = s->actions[s->first_action];
    s->first_action = (s->first_action + 1) % s->max_actions;
    s->n_actions--;
    return true;
}

bool sy_sched_has_next(const struct sy_sched *s)
{
    return s->n_actions > 0;
}

void sy_sched_end(struct sy_sched *s, struct request *r, int status, const char *why)
{
    assert(!r->ended);
    r->ended = true;
    s->models[r->model].n_requests--;
    struct sy_sched_action *a = sy_sched_act(s, SY_DO_END);
    a->request = r->id;
    a->run = r->run;
    a->model = r->model;
    a->worker = r->worker;
    a->status = status;
    snprintf(a->why, sizeof a->why, "%s", why ? why : "");
}

/* ---- the queue -------------------------------------------------------------------------------- */

void sy_sched_push(struct sy_sched *s, struct request *r)
{
    r->next = s->waiting;
    s->waiting = r;
    s->n_waiting++;
}

static void unlink_request(struct sy_sched *s, struct request *r)
{
    struct request **at = &s->waiting;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->next = NULL;
    s->n_waiting--;
}

void sy_sched_drop_waiting(struct sy_sched *s, struct request *r, int status, const char *why)
{
    (void)sy_admission_cancel(sy_sched_slice_of(s, r)->admission, r->id);
    unlink_request(s, r);
    sy_sched_end(s, r, status, why);
    sy_sched_forget_workspace(s, r);
    sy_sched_free_request(r);
}

struct request *sy_sched_head(const struct sy_sched *s, const struct slice *c)
{
    struct sy_admission_request head;
    if (!sy_admission_peek(c->admission, &head))
        return NULL;
    if (c->next && c->next->id == head.id)
        return c->next;
    struct request *r = s->waiting;
    while (r && r->id != head.id)
        r = r->next;
    return r;
}

int sy_sched_make_request(const struct sy_sched *s, const struct sy_sched_request *wants,
                          struct request **out)
{
    size_t n = (size_t)s->models[wants->model].n_groups;
    struct request *r = calloc(1, sizeof *r);
    if (r) {
        *r = (struct request){.id = wants->id,
                              .model = wants->model,
                              .batch = wants->batch,
                              .sizes = wants->sizes,
                              .duration = wants->duration,
                              .slice = sy_sched_open_slice(s, s->models[wants->model].slice),
                              .worker = -1};
        r->places = calloc(n, sizeof *r->places);
        r->image_places = calloc(n, sizeof *r->image_places);
        r->pool_arrived = calloc(n, sizeof(bool));
        r->image_arrived = calloc(n, sizeof(bool));
    }
    if (!r || !r->places || !r->image_places || !r->pool_arrived || !r->image_arrived) {
        sy_sched_free_request(r);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request of %zu groups", n);
    }
    *out = r;
    return SY_OK;
}

int sy_sched_request(struct sy_sched *s, const struct sy_sched_request *wants,
                     struct sy_prediction *prediction)
{
    struct sy_prediction own;
    struct request *r;
    struct sy_admission_request ask = {.id = wants->id,
                                       .class_ = wants->class_,
                                       .deadline_ns = wants->deadline_ns,
                                       .duration = wants->duration};
    if (wants->model < 0 || wants->model >= SY_SCHED_MAX_MODELS || !s->models[wants->model].used)
        return sy_error_set(SY_ENOTFOUND, "there is no model %d", wants->model);
    if (wants->batch < 1)
        return sy_error_set(SY_EARG, "batch %lld: 1 or more", (long long)wants->batch);
    SY_TRY(sy_sched_make_request(s, wants, &r));
    int status = sy_admission_ask(sy_sched_slice_of(s, r)->admission, &ask, s->now,
                                  prediction ? prediction : &own);
    if (status < 0) {
        sy_sched_free_request(r);
        return status;
    }
    s->models[wants->model].n_requests++;
    sy_sched_push(s, r);
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_expect(struct sy_sched *s, uint64_t request, struct sy_duration left)
{
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if (c->active && c->active->id == request && !c->active->worker_through)
            sy_admission_expect(c->admission, left, s->now);
}

static void cancel_waiting(struct sy_sched *s, uint64_t id)
{
    for (struct request *r = s->waiting; r; r = r->next) {
        if (r->id == id) {
            sy_sched_drop_waiting(s, r, SY_ECANCELED, "canceled while it waited");
            return;
        }
    }
}

static void interrupt(struct sy_sched *s, struct request *r)
{
    r->interrupted = true;
    struct sy_sched_action *a = sy_sched_act(s, SY_DO_INTERRUPT);
    a->worker = r->worker;
    a->run = r->run;
}

static void cancel_started(struct sy_sched *s, struct request *r)
{
    if (r->worker_through || r->canceled)
        return;
    r->canceled = true;
    if (r->run_sent && !r->interrupted)
        interrupt(s, r);
    else if (!r->run_sent && !r->restarting)
        sy_sched_give_up_run(s, r);
}

void sy_sched_cancel(struct sy_sched *s, uint64_t id)
{
    struct request *started = NULL;
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        if (c->active && c->active->id == id)
            started = c->active;
        if (c->next && c->next->id == id)
            started = c->next;
    }
    if (started)
        cancel_started(s, started);
    else
        cancel_waiting(s, id);
    sy_sched_step(s);
}

/* ---- what can be done now --------------------------------------------------------------------- */

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
        r->worker = worker; /* asked again if this one dies */
    r->preparing = true;
}

/* True when the workspace of the queue's head is known and an idle worker is ready for it. Else it is asked for: a batch size of every
 * worker that has time, since it will come again; sizes, which may not, of one. */
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
            r->worker = -1; /* the one that was asked is not waited for */
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

/* What was prefetched makes room for one that is more urgent; it waits again when its worker and its reads are through. */
static void give_up_prefetch(struct sy_sched *s, struct slice *c)
{
    struct request *r = c->next;
    if (r && !r->restarting && !r->worker_through)
        sy_sched_give_up_run(s, r);
}

/* Puts the queue's head into the active slot; those that cannot be started end here. */
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
            return; /* it ends at a chunk: sy_sched_step_fetch */
        if (c->next && c->next->model == r->model) {
            give_up_prefetch(s, c); /* one pin a model */
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
            unlink_request(s, r);
            c->active = r;
            begin(s, c);
            return;
        }
        if (c->next)
            give_up_prefetch(s, c);
        bool others = sy_sched_others_started(s, c);
        r->wants_room |=
            others && sy_sched_idle_worker(s) >= 0; /* it was no worker that it lacks */
        if (status == SY_EBUSY || c->next || s->fetch || others)
            return;
        if (status == SY_ENOMEM_DEVICE && !r->compacted && sy_sched_job_bytes(s) > 0) {
            r->compacted = s->compacting = true;
            return;
        }
        sy_sched_drop_waiting(s, r, status, sy_error_text());
    }
}

/* While one computes, the next one's model is loaded as far as there is room. */
static void prefetch(struct sy_sched *s, struct slice *c)
{
    struct request *r = sy_sched_head(s, c);
    if (!r || s->admitting || s->compacting || sy_sched_must_wait(s, c, r))
        return;
    if (r->model == c->active->model || (s->fetch && s->fetch->model == r->model)) {
        /* It will be resident; a second pin would only get in the way. But what is not known can be asked for. */
        if (!sy_sched_find_workspace(s, r->model, r->batch, r->sizes, c->team))
            (void)is_prepared(s, r);
        return;
    }
    if (!is_prepared(s, r) || sy_sched_idle_worker(s) < 0 || sy_sched_start(s, r, true) < 0)
        return;
    unlink_request(s, r);
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
    interrupt(s, c->active);
}

static void start_requests_of(struct sy_sched *s, struct slice *c)
{
    if (!c->active && !c->share.first && !s->compacting)
        start_head(s, c);
    interrupt_for_more_urgent(s, c);
    if (c->active && c->active->run_sent && !c->active->worker_through && !c->next)
        prefetch(s, c);
}

/* A head that starts, or ends here, may be the one that a slice before it waits for (S12). */
static void start_requests(struct sy_sched *s)
{
    int n;
    do {
        n = s->n_waiting;
        for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
            start_requests_of(s, c);
    } while (s->n_made > 1 && s->n_waiting < n);
}

/* S1. False: not now. */
static bool run_active(struct sy_sched *s, struct slice *c)
{
    struct request *r = c->active;
    if (!r || r->run_sent || r->worker_through || !sy_sched_training_still_for(s, c))
        return false;
    if (r->restarting || sy_sched_complete(s, r) < 0)
        return false;
    struct sy_sched_action *a = sy_sched_act(s, SY_DO_RUN);
    a->worker = r->worker;
    a->request = r->id;
    a->run = r->run;
    a->model = r->model;
    a->batch = r->batch;
    a->sizes = r->sizes;
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

void sy_sched_set_time(struct sy_sched *s, sy_ns now)
{
    bool step = false, first[SY_SCHED_MAX_SLICES];
    if (now <= s->now)
        return;
    for (int i = 0; i < s->n_made; i++) {
        first[i] = s->slices[i].share.first;
        sy_sched_share_pass(s, &s->slices[i], s->now, now);
    }
    s->now = now;
    sy_sched_share_follow(s);
    for (int i = 0; i < s->n_made; i++) {
        const struct slice *c = &s->slices[i];
        step |= first[i] != c->share.first || (c->policy_wake_ns && now >= c->policy_wake_ns);
    }
    if (step)
        sy_sched_step(s);
}

sy_ns sy_sched_wake_at(const struct sy_sched *s)
{
    sy_ns soonest = 0;
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        const sy_ns at[2] = {sy_sched_share_wake_at(s, c), c->policy_wake_ns};
        for (int i = 0; i < 2; i++)
            if (at[i])
                soonest = soonest ? SY_MIN(soonest, at[i]) : at[i];
    }
    return soonest;
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
        s); /* between two runs, so that a flood of requests does not keep a job from starting */
    (void)run_requests(s);
    start_requests(s); /* one that computes now leaves room for a prefetch */
    if (s->compacting) { /* since just now: who keeps a turn is told, or nothing would happen any more */
        sy_sched_step_jobs(s);
        start_requests(s);
    }
    /* What started since, behind a head that had no room or once lanes were moved, runs now: if all of it is resident and no job has a turn, no event follows. */
    (void)sy_sched_hold_training(s);
    if (run_requests(s))
        start_requests(s);
    sy_sched_step_fetch(s);
    sy_sched_drop_slices(s);
    sy_assert_expensive(sy_sched_is_valid(s));
}

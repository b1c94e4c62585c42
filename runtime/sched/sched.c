#include "runtime/sched/sched_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_OVERTAKES 8

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
    SY_TRY_ALLOC(s, "no memory for the scheduler");
    s->config = *config;
    /* One event ends at most the whole queue, and causes a few actions for each worker. */
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

static void cancel_started(struct sy_sched *s, struct request *r)
{
    if (r->worker_through || r->canceled)
        return;
    r->canceled = true;
    if (r->run_sent && !r->interrupted)
        sy_sched_interrupt(s, r);
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
    step |= sy_sched_spills_pass(s);
    if (step)
        sy_sched_step(s);
}

sy_ns sy_sched_wake_at(const struct sy_sched *s)
{
    sy_ns soonest = sy_sched_spills_wake_at(s);
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        const sy_ns at[2] = {sy_sched_share_wake_at(s, c), c->policy_wake_ns};
        for (int i = 0; i < 2; i++)
            if (at[i])
                soonest = soonest ? SY_MIN(soonest, at[i]) : at[i];
    }
    return soonest;
}

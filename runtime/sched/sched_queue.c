/* The two queues: waiting requests, and actions for the caller to carry out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

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

void sy_sched_push(struct sy_sched *s, struct request *r)
{
    r->next = s->waiting;
    s->waiting = r;
    s->n_waiting++;
}

void sy_sched_unlink(struct sy_sched *s, struct request *r)
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
    sy_sched_unlink(s, r);
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

/* S4: without a worker that could take requests, they must not wait for ever. */
void sy_sched_end_hopeless(struct sy_sched *s)
{
    int n = 0;
    for (int w = 0; w < s->config.n_workers; w++)
        n += s->workers[w] != WORKER_GONE && s->workers[w] != WORKER_JOB;
    while (n == 0 && s->waiting)
        sy_sched_drop_waiting(s, s->waiting, SY_EPEER,
                              "no worker is left that could run it; see the log for why they died");
}

struct sy_sched_action *sy_sched_act_run(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct request *r)
{
    struct sy_sched_action *a = sy_sched_act(s, kind);
    a->worker = r->worker;
    a->request = r->id;
    a->run = r->run;
    a->model = r->model;
    a->batch = r->batch;
    a->sizes = r->sizes;
    return a;
}

struct sy_sched_action *sy_sched_act_job(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct job *j)
{
    struct sy_sched_action *a = sy_sched_act(s, kind);
    a->worker = j->worker;
    a->job = j->id;
    a->slice = j->slice;
    a->team = j->team;
    return a;
}

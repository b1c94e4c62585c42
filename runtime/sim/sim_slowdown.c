/* Slices of one device compute side by side, and slow each other down (M9); what is too slow beside each other takes turns (S12). */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/interference.h"
#include "runtime/sim/sim_internal.h"

#define NO_TASK (-1) /* no pair names it: it slows no task down, and no task slows it */

struct slowdowns {
    struct sy_interference slow;
    const char *names[SY_INTERFERENCE_TASKS];
    int n_tasks;
    int *model_task, *job_task;
    bool *promises; /* by model: requests of class 0, or with a deadline */
};

/* ---- opening ---- */

static int find_task(const struct slowdowns *b, const char *name)
{
    for (int i = 0; i < b->n_tasks; i++)
        if (strcmp(b->names[i], name) == 0)
            return i;
    return NO_TASK;
}

static int take_name(struct slowdowns *b, const char *name)
{
    int task = find_task(b, name);
    if (task != NO_TASK)
        return task;
    if (b->n_tasks == SY_INTERFERENCE_TASKS)
        return sy_error_set(SY_EARG, "the pairs name more than %d models and jobs",
                            SY_INTERFERENCE_TASKS);
    b->names[b->n_tasks] = name;
    return b->n_tasks++;
}

static int take_pairs(struct sim *s)
{
    struct slowdowns *b = s->slowdowns;
    sy_interference_start(&b->slow);
    for (int i = 0; i < s->in->n_pairs; i++) {
        const struct sy_sim_pair *p = &s->in->pairs[i];
        int task = take_name(b, p->task), beside = take_name(b, p->beside);
        if (task < 0 || beside < 0)
            return SY_EARG;
        if (!(p->slowdown >= 0.1 && p->slowdown <= 100))
            return sy_error_set(SY_EARG, "%s beside %s: a slow-down of %g; 0.1 to 100", p->task,
                                p->beside, p->slowdown);
        sy_interference_observe(&b->slow, task, beside, p->slowdown);
    }
    return SY_OK;
}

/* A pair that names no task is an error of the file. */
static int check_names(const struct sim *s)
{
    const struct slowdowns *b = s->slowdowns;
    bool known[SY_INTERFERENCE_TASKS] = {false};
    for (int m = 0; m < s->in->n_models; m++)
        if (b->model_task[m] != NO_TASK)
            known[b->model_task[m]] = true;
    for (int j = 0; j < s->in->n_jobs; j++)
        if (b->job_task[j] != NO_TASK)
            known[b->job_task[j]] = true;
    for (int i = 0; i < b->n_tasks; i++)
        if (!known[i])
            return sy_error_set(SY_EARG, "the pairs name %s, which is no model and no job here",
                                b->names[i]);
    return SY_OK;
}

static int check_slice(const struct sim *s, const char *what, const char *name, int slice)
{
    if (slice >= 0 && slice < s->config->n_slices)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s %s: slice %d of %d", what, name, slice, s->config->n_slices);
}

static int take_models(struct sim *s)
{
    struct slowdowns *b = s->slowdowns;
    for (int m = 0; m < s->in->n_models; m++) {
        SY_TRY(check_slice(s, "model", s->in->models[m].name, s->in->models[m].slice));
        b->model_task[m] = find_task(b, s->in->models[m].name);
    }
    for (uint64_t i = 0; i < s->in->n_requests; i++) {
        const struct sy_sim_request *r = &s->in->requests[i];
        b->promises[r->model] |= r->class_ == 0 || r->deadline_ns > 0;
    }
    for (int j = 0; j < s->in->n_jobs; j++) {
        SY_TRY(check_slice(s, "job", s->in->jobs[j].name, s->in->jobs[j].slice));
        b->job_task[j] = find_task(b, s->in->jobs[j].name);
    }
    return check_names(s);
}

/* All slices of a device have the same number of it. */
static int check_kinds(const struct sim *s)
{
    int n = s->config->n_slices;
    if (n > SY_SLICE_PLAN_MAX || s->n_kinds % n != 0)
        return sy_error_set(SY_EARG, "%d kinds of devices, which are cut into %d slices: 1 to %d",
                            s->n_kinds, n, SY_SLICE_PLAN_MAX);
    for (int k = 0; k < s->n_kinds; k++)
        if (s->kinds[k].is->n_devices != s->kinds[k - k % n].is->n_devices)
            return sy_error_set(SY_EARG, "device %s: %d slices of %d devices", s->kinds[k].is->name,
                                s->kinds[k].is->n_devices, s->kinds[k - k % n].is->n_devices);
    return SY_OK;
}

static int check_faults(const struct sim *s)
{
    for (int i = 0; i < s->in->n_faults; i++)
        if (s->in->faults[i].kind == SY_SIM_LINK_SLOWS)
            return sy_error_set(SY_EARG, "link_slows at %.9g s: not of devices in slices",
                                (double)s->in->faults[i].at_ns / 1e9);
    return SY_OK;
}

int sy_sim_slowdown_open(struct sim *s)
{
    if (s->config->n_slices <= 1)
        return SY_OK;
    size_t n_models = (size_t)s->in->n_models + 1, n_jobs = (size_t)s->in->n_jobs + 1;
    struct slowdowns *b = s->slowdowns = calloc(1, sizeof *b);
    if (b) {
        b->model_task = calloc(n_models, sizeof *b->model_task);
        b->job_task = calloc(n_jobs, sizeof *b->job_task);
        b->promises = calloc(n_models, sizeof *b->promises);
    }
    if (!b || !b->model_task || !b->job_task || !b->promises)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for pairs of %d models and %d jobs",
                            s->in->n_models, s->in->n_jobs);
    SY_TRY(check_kinds(s));
    SY_TRY(check_faults(s));
    SY_TRY(take_pairs(s));
    return take_models(s);
}

void sy_sim_slowdown_close(struct sim *s)
{
    if (s->slowdowns) {
        free(s->slowdowns->model_task);
        free(s->slowdowns->job_task);
        free(s->slowdowns->promises);
    }
    free(s->slowdowns);
}

/* ---- tasks beside one another ---- */

int sy_sim_slice_at(const struct sim *s, int device, int nth)
{
    int kind = s->kind_of[device], first = kind - kind % s->config->n_slices;
    return s->kinds[first + nth].first + device - s->kinds[kind].first;
}

static double slow_down(const struct sim *s, int task, int beside)
{
    return task == NO_TASK || beside == NO_TASK
               ? 1
               : sy_interference_predict(&s->slowdowns->slow, task, beside);
}

static int model_of(const struct sim *s, uint64_t request)
{
    return s->in->requests[request].model;
}

/* `model` promises something that `other`, a task, would break. */
static bool breaks(const struct sim *s, int model, int other)
{
    const struct slowdowns *b = s->slowdowns;
    return b->promises[model] && b->model_task[model] != NO_TASK && other != NO_TASK &&
           sy_interference_breaks(&b->slow, b->model_task[model], other, s->config->bound);
}

static bool take_turns(const struct sim *s, int a, int b)
{
    return breaks(s, a, s->slowdowns->model_task[b]) || breaks(s, b, s->slowdowns->model_task[a]);
}

/* A total order, so no two heads wait for each other. */
static bool is_before(const struct sim *s, uint64_t a, uint64_t b)
{
    const struct sy_sim_request *x = &s->in->requests[a], *y = &s->in->requests[b];
    return x->class_ != y->class_ ? x->class_ < y->class_ : a < b;
}

bool sy_sim_must_wait(const struct sim *s, int device, uint64_t request)
{
    struct sy_admission_request head;
    int model = model_of(s, request);
    for (int i = 0; i < s->config->n_slices; i++) {
        int at = sy_sim_slice_at(s, device, i);
        const struct device *o = &s->devices[at];
        if (at == device)
            continue;
        if (o->serving && take_turns(s, model, model_of(s, o->serves)))
            return true;
        if (!o->serving && s->loads[at] > 0 && sy_admission_peek(sy_sim_queue(s, at), &head) &&
            take_turns(s, model, model_of(s, head.id)) && is_before(s, head.id, request))
            return true;
    }
    return false;
}

bool sy_sim_job_is_held(const struct sim *s, int device, int job)
{
    for (int i = 0; i < s->config->n_slices; i++) {
        int at = sy_sim_slice_at(s, device, i);
        const struct device *o = &s->devices[at];
        if (at != device && o->serving &&
            breaks(s, model_of(s, o->serves), s->slowdowns->job_task[job]))
            return true;
    }
    return false;
}

/* Time that the slice adds to a task. Iterations that run there at once share its time. */
static double added_by(const struct sim *s, int task, int slice)
{
    const struct device *o = &s->devices[slice];
    double sum = 0;
    int n = 0;
    if (o->serving)
        return slow_down(s, task, s->slowdowns->model_task[model_of(s, o->serves)]) - 1;
    for (int i = 0; i < o->n_running; i++) {
        if (sy_sim_job_is_held(s, slice, o->running[i].job))
            continue;
        sum += slow_down(s, task, s->slowdowns->job_task[o->running[i].job]) - 1;
        n++;
    }
    return n ? sum / n : 0;
}

/* Several neighbours: what each of them adds. */
static double slow_down_of(const struct sim *s, int device, int task)
{
    double slow = 1;
    for (int i = 0; i < s->config->n_slices; i++) {
        int at = sy_sim_slice_at(s, device, i);
        slow += at == device ? 0 : added_by(s, task, at);
    }
    return slow;
}

double sy_sim_job_slow_down(const struct sim *s, int device, int job)
{
    return slow_down_of(s, device, s->slowdowns->job_task[job]);
}

double sy_sim_request_slow_down(const struct sim *s, int device)
{
    return slow_down_of(s, device,
                        s->slowdowns->model_task[model_of(s, s->devices[device].serves)]);
}

/* Steps after backward: sums over the phases of an iteration, the gradient's norm, and the optimizers. */
#include <math.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"
#include "workers/engine/schedule.h"
#include "workers/engine/train_rules.h"

#define UPDATE_ELEMENTS \
    (4u << 20)      /* a step of an optimizer: four streams of 16 MiB pass in 50 us */
#define PART_NS 50u /* elements a nanosecond, of four streams */

static uint64_t phases_of(const struct sy_trainer *t)
{
    return SY_MAX(t->options.accumulate, 1);
}

static uint64_t n_parts(uint64_t bytes)
{
    return (bytes / sizeof(float) + UPDATE_ELEMENTS - 1) / UPDATE_ELEMENTS;
}

/* ---- totals and norm ---------------------------------------------------------------------------------- */

static int run_total(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    uint64_t bytes = step->first * sizeof(float);
    unsigned char *from = t->persistent + t->trained_bytes + bytes,
                  *to = t->persistent + t->total_offset + bytes;
    struct sy_math_update sum = {.kind = SY_UPDATE_SUM, .n = step->n};
    if (t->draw % phases_of(t) == 0)
        return t->ops->copy(t->math, from, to, (uint64_t)step->n * sizeof(float));
    return t->ops->update(t->math, &sum, to, from, NULL, NULL, NULL);
}

/* The pending change of a running statistic: decayed from phase to phase as the statistic itself would be. */
static int run_follow(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const struct sy_cutr_param *p = &t->params[step->param];
    void *to = sy_cutr_pointer(t, p->total);
    struct sy_math_update gain = {.kind = SY_UPDATE_STATISTIC,
                                  .n = step->n,
                                  .rule = {.momentum = p->keep, .rest1 = 1.0f - p->keep}};
    if (t->draw % phases_of(t) == 0)
        SY_TRY(t->ops->fill(t->math, to, step->n, 0));
    return t->ops->update(t->math, &gain, to, sy_cutr_pointer(t, p->batch_statistic), NULL, NULL,
                          NULL);
}

/* The norm of the gradients' mean over the phases, after the last is summed. args: norm */
static int run_norm(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    struct sy_cutr_news *news = (struct sy_cutr_news *)(void *)(t->host + t->host_loss);
    void *norm = sy_cutr_pointer(t, step->args[0]);
    if (t->draw % phases_of(t) != phases_of(t) - 1)
        return SY_OK;
    SY_TRY(t->ops->train->square_sum(t->math, step->n,
                                     t->persistent + t->total_offset + step->first * sizeof(float),
                                     step->first > 0, norm, sy_cutr_scratch(t)));
    if ((step->first + (uint64_t)step->n) * sizeof(float) < t->trained_bytes)
        return SY_OK;
    return t->ops->to_host(t->math, norm, &news->norm_square[t->n_norms++ % 2], sizeof(double));
}

bool sy_cutr_is_norm(const struct sy_cutr_step *step)
{
    return step->run == run_norm;
}

static int add_part(struct sy_trainer *t, const char *name, sy_cutr_run run, const int *args,
                    int n_args, uint64_t first, uint64_t n)
{
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, name, run, args, n_args, &step));
    step->first = first;
    step->n = (int64_t)n;
    step->cost_ns += n / PART_NS;
    return SY_OK;
}

/* The gradients are one stretch, however they will lie in it. */
static int add_parts(struct sy_trainer *t, const char *name, sy_cutr_run run, const int *args,
                     int n_args)
{
    uint64_t elements = 0;
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].kind == SY_CUTR_TRAINED)
            elements += t->buffers[t->values[t->params[p].gradient].buffer].bytes / sizeof(float);
    for (uint64_t first = 0; first < elements; first += UPDATE_ELEMENTS)
        SY_TRY(add_part(t, name, run, args, n_args, first,
                        SY_MIN(elements - first, (uint64_t)UPDATE_ELEMENTS)));
    return SY_OK;
}

int sy_cutr_add_totals(struct sy_trainer *t)
{
    for (int p = 0; p < t->n_params && phases_of(t) > 1; p++) {
        if (t->params[p].kind != SY_CUTR_STATISTIC)
            continue;
        SY_TRY(add_part(t, "statistics", run_follow, &t->params[p].batch_statistic, 1, 0,
                        (uint64_t)sy_cutr_count(&t->values[t->params[p].total])));
        t->steps[t->n_steps - 1].param = p;
    }
    if (phases_of(t) > 1)
        SY_TRY(add_parts(t, "phases", run_total, NULL, 0));
    SY_TRY(sy_cutr_value_typed(t, SY_DTYPE_F64, 1, (int64_t[]){1}, false, false, &t->norm));
    return add_parts(t, "norm", run_norm, &t->norm, 1);
}

int sy_cutr_check_norm(const struct sy_trainer *t, uint64_t n_ended)
{
    const struct sy_cutr_news *news = (const void *)(t->host + t->host_loss);
    double square = n_ended ? news->norm_square[(n_ended - 1) % 2] : 0.0;
    if (isfinite(square))
        return SY_OK;
    return sy_train_fail_not_finite("the norm of the gradient", sqrt(square),
                                    t->options.learning_rate);
}

/* ---- optimizers --------------------------------------------------------------------------------------- */

static void describe_optimizer(const struct sy_trainer *t, bool decays, uint64_t iteration,
                               struct sy_math_update *u)
{
    const struct sy_train_options *o = &t->options;
    *u = (struct sy_math_update){.kind = o->optimizer != SY_OPTIMIZER_SGD ? SY_UPDATE_ADAM
                                         : o->momentum == 0.0             ? SY_UPDATE_SGD
                                         : o->is_nesterov                 ? SY_UPDATE_NESTEROV
                                                                          : SY_UPDATE_MOMENTUM,
                                 .mean = 1.0 / (double)phases_of(t),
                                 .limit = o->clip_norm};
    sy_train_rule(o, decays, iteration, &u->rule);
}

/* The range of an update step: part of one of the two stretches, or a statistic. */
struct update {
    uint64_t first, n; /* elements from the front of the weights */
    bool decays;
    int param; /* -1: a stretch */
};

static uint64_t n_flat(const struct sy_trainer *t)
{
    return n_parts(t->decayed_bytes) + n_parts(t->trained_bytes - t->decayed_bytes);
}

static struct update update_at(const struct sy_trainer *t, int step)
{
    uint64_t at = (uint64_t)step, n_decayed = n_parts(t->decayed_bytes);
    bool decays = at < n_decayed;
    uint64_t end = (decays ? t->decayed_bytes : t->trained_bytes) / sizeof(float);
    if (at < n_flat(t)) {
        uint64_t first =
            decays ? at * UPDATE_ELEMENTS
                   : t->decayed_bytes / sizeof(float) + (at - n_decayed) * UPDATE_ELEMENTS;
        return (struct update){first, SY_MIN(end - first, (uint64_t)UPDATE_ELEMENTS), decays, -1};
    }
    at -= n_flat(t);
    int p = 0;
    while (t->params[p].kind != SY_CUTR_STATISTIC || at-- > 0)
        p++;
    return (struct update){0, (uint64_t)sy_cutr_count(&t->values[t->params[p].value]), false, p};
}

int sy_cutr_n_updates(const struct sy_trainer *t)
{
    int n = (int)n_flat(t);
    for (int p = 0; p < t->n_params; p++)
        n += t->params[p].kind == SY_CUTR_STATISTIC;
    return n;
}

/* Weights, gradients and slots lie in one order, each as one stretch. */
static int run_flat(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    uint64_t bytes = step->first * sizeof(float);
    unsigned char *w = t->persistent + bytes, *g = w + t->total_offset, *m = w + t->slot_offset,
                  *v = m + t->trained_bytes;
    enum {
        NONE,
        ONE,
        TWO
    } slots = step->update.kind == SY_UPDATE_SGD    ? NONE
              : step->update.kind == SY_UPDATE_ADAM ? TWO
                                                    : ONE;
    return t->ops->update(t->math, &step->update, w, g, slots == NONE ? NULL : m,
                          slots == TWO ? v : NULL, sy_cutr_pointer(t, t->norm));
}

static int run_statistic(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const struct sy_cutr_param *p = &t->params[step->param];
    return t->ops->update(t->math, &step->update, sy_cutr_pointer(t, p->value),
                          sy_cutr_pointer(t, p->total), NULL, NULL, NULL);
}

int sy_cutr_run_update(struct sy_trainer *t, int number, uint64_t iteration)
{
    struct update u = update_at(t, number);
    struct sy_cutr_step step = {.first = u.first, .param = u.param};
    if (u.param < 0) {
        describe_optimizer(t, u.decays, iteration, &step.update);
    } else {
        const struct sy_cutr_param *p = &t->params[u.param];
        bool is_gain = phases_of(t) > 1; /* what is to be added, over all phases */
        step.update = (struct sy_math_update){
            .kind = SY_UPDATE_STATISTIC,
            .rule.momentum = is_gain ? (float)pow((double)p->keep, (double)phases_of(t)) : p->keep,
            .rule.rest1 = is_gain ? 1.0f : 1.0f - p->keep};
    }
    step.update.n = (int64_t)u.n;
    return sy_cutr_bounded(t, 2000 + u.n / PART_NS, u.param < 0 ? run_flat : run_statistic, &step);
}

/* Activations made again for backward: workers/engine/recompute_plan.h says which, and when. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/recompute_plan.h"
#include "workers/host/train/train_internal.h"

struct remaking {
    struct sy_trainer *t;
    struct sy_recompute plan;
    int *copy; /* buffer: a value in its recomputed copy, 0: none yet */
    int *view; /* value: its recomputed copy, 0: none yet */
};

/* ---- describing steps ------------------------------------------------------------------------------- */

static int n_named(const struct sy_tr_step *s)
{
    return s->kind == SY_TR_PRIMITIVE ? s->n_args : s->n_values;
}

static int named(const struct sy_tr_step *s, int i)
{
    return s->kind == SY_TR_PRIMITIVE ? s->args[i].value : s->value[i];
}

static bool is_written(const struct sy_tr_step *s, int i)
{
    if (s->kind != SY_TR_PRIMITIVE)
        return i < s->n_results;
    switch (s->args[i].arg) {
    case DNNL_ARG_DST: /* of a reorder: TO */
    case DNNL_ARG_WORKSPACE:
    case DNNL_ARG_SCRATCHPAD:
    case DNNL_ARG_MEAN:
    case DNNL_ARG_VARIANCE:
        return true;
    default:
        return false;
    }
}

static int describe_step(struct sy_recompute *plan, const struct sy_trainer *t,
                         const struct sy_tr_step *step)
{
    sy_recompute_add_step(plan, step->when & SY_TR_TRAIN);
    for (int i = 0; i < n_named(step); i++) {
        int value = named(step, i);
        const struct sy_tr_buffer *b = value < 0 ? NULL : &t->buffers[t->values[value].buffer];
        if (b && !b->persistent && !b->fixed)
            SY_TRY(sy_recompute_add_use(plan, t->values[value].buffer, is_written(step, i)));
    }
    return SY_OK;
}

static int describe(struct sy_recompute *plan, const struct sy_trainer *t)
{
    for (int s = 0; s < t->n_steps; s++)
        SY_TRY(describe_step(plan, t, &t->steps[s]));
    for (int b = 0; b < t->n_buffers; b++)
        plan->buffers[b].bytes = t->buffers[b].bytes;
    for (int i = 0; i < t->n_params; i++) /* the update reads the batch's statistics */
        if (t->params[i].batch_statistic >= 0)
            plan->buffers[t->values[t->params[i].batch_statistic].buffer].is_pinned = true;
    return SY_OK;
}

static int count_forward(const struct sy_trainer *t)
{
    int n = 0;
    while (n < t->n_steps && t->steps[n].kind != SY_TR_LOSS)
        n++;
    return n;
}

/* ---- making again ------------------------------------------------------------------------------------- */

/* The value in the second buffer. */
static int second(struct remaking *r, int value, int *out)
{
    struct sy_trainer *t = r->t;
    int b = t->values[value].buffer;
    *out = value;
    if (b >= r->plan.n_buffers || !r->plan.buffers[b].is_forgotten)
        return SY_OK;
    if (r->view[value]) { /* values that are added later are not forgotten ones */
        *out = r->view[value];
        return SY_OK;
    }
    dnnl_memory_desc_t md = t->values[value].md;
    if (r->copy[b]) {
        SY_TRY(sy_tr_value_view(t, r->copy[b], &md, out));
    } else {
        uint64_t bytes = t->buffers[b].bytes;
        SY_TRY(sy_tr_value_new(t, &md, false, out));
        t->buffers[t->values[*out].buffer].bytes = bytes; /* another view may be larger */
        r->copy[b] = *out;
    }
    r->view[value] = *out;
    return SY_OK;
}

static int rename_all(struct remaking *r, struct sy_tr_step *s)
{
    for (int i = 0; i < n_named(s); i++) {
        int *value = s->kind == SY_TR_PRIMITIVE ? &s->args[i].value : &s->value[i];
        if (*value >= 0)
            SY_TRY(second(r, *value, value));
    }
    return SY_OK;
}

/* Primitives and data are shared: a step that runs again owns neither. */
static int rewrite(struct remaking *r)
{
    struct sy_trainer *t = r->t;
    const struct sy_recompute *plan = &r->plan;
    struct sy_tr_step *steps;
    int status = SY_OK;
    SY_TRY(sy_tr_alloc((size_t)plan->n_turns * sizeof *steps, &steps));
    for (int i = 0; i < plan->n_turns; i++) {
        const struct sy_recompute_turn *turn = &plan->turns[i];
        steps[i] = t->steps[turn->step];
        if (turn->is_again) {
            steps[i].when = SY_TR_TRAIN;
            steps[i].is_copy = true;
        }
        if (turn->is_again || turn->step >= plan->n_forward)
            SY_TRY_GOTO(rename_all(r, &steps[i]), fail);
    }
    free(t->steps);
    t->steps = steps;
    t->n_steps = plan->n_turns;
    return SY_OK;
fail:
    free(steps);
    return status;
}

int sy_tr_recompute(struct sy_trainer *t)
{
    struct remaking r = {.t = t};
    int status;
    SY_TRY_GOTO(sy_recompute_init(&r.plan, count_forward(t), t->n_steps, t->n_buffers), done);
    SY_TRY_GOTO(sy_tr_alloc(((size_t)t->n_buffers + 1) * sizeof(int), &r.copy), done);
    SY_TRY_GOTO(sy_tr_alloc(((size_t)t->n_values + 1) * sizeof(int), &r.view), done);
    SY_TRY_GOTO(describe(&r.plan, t), done);
    SY_TRY_GOTO(sy_recompute_plan(&r.plan), done);
    SY_TRY_GOTO(rewrite(&r), done);
done:
    free(r.copy);
    free(r.view);
    sy_recompute_finish(&r.plan);
    return status;
}

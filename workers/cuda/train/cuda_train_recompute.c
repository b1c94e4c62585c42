/* Activations made again for backward, as the host's trainer does it: workers/engine/recompute_plan.h says which, and when. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"
#include "workers/engine/recompute_plan.h"

struct remaking {
    struct sy_trainer *t;
    struct sy_recompute plan;
    int *copy; /* buffer: a value in its recomputed copy; -1: none yet */
    int *view; /* value: its recomputed copy; -1: none yet */
};

/* ---- describing steps ------------------------------------------------------------------------------- */

static int describe_step(struct sy_recompute *plan, const struct sy_trainer *t,
                         const struct sy_cutr_step *step)
{
    bool trains = step->when & SY_CUTR_TRAIN;
    sy_recompute_add_step(plan, trains);
    for (int i = 0; i < step->n_args; i++) {
        int b = step->args[i] < 0 ? -1 : t->values[step->args[i]].buffer;
        if (b < 0 || t->buffers[b].persistent)
            continue;
        plan->buffers[b].is_pinned |= trains && step->is_fetch;
        SY_TRY(sy_recompute_add_use(plan, b, i >= step->n_args - step->n_results));
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

/* ---- making again ------------------------------------------------------------------------------------- */

/* The value in the second buffer. */
static int second(struct remaking *r, int value, int *out)
{
    struct sy_trainer *t = r->t;
    struct sy_cutr_value v = t->values[value];
    *out = value;
    if (v.buffer < 0 || v.buffer >= r->plan.n_buffers || !r->plan.buffers[v.buffer].is_forgotten)
        return SY_OK;
    *out = r->view[value];
    if (*out >= 0)
        return SY_OK;
    int *copy = &r->copy[v.buffer];
    int64_t bytes = (int64_t)t->buffers[v.buffer].bytes;
    if (*copy < 0)
        SY_TRY(sy_cutr_value_typed(t, SY_DTYPE_U8, 1, &bytes, false, false, copy));
    SY_TRY(sy_cutr_view_typed(t, *copy, v.dtype, v.rank, v.dims, v.last, v.delta_bytes, out));
    r->view[value] = *out;
    return SY_OK;
}

static int rename_all(struct remaking *r, struct sy_cutr_step *step)
{
    for (int i = 0; i < step->n_args; i++)
        if (step->args[i] >= 0)
            SY_TRY(second(r, step->args[i], &step->args[i]));
    return SY_OK;
}

static int rewrite(struct remaking *r)
{
    struct sy_trainer *t = r->t;
    const struct sy_recompute *plan = &r->plan;
    int status = SY_OK;
    struct sy_cutr_step *steps = malloc(((size_t)plan->n_turns + 1) * sizeof *steps);
    SY_TRY_ALLOC(steps, "no memory for steps that run again");
    for (int i = 0; i < plan->n_turns; i++) {
        const struct sy_recompute_turn *turn = &plan->turns[i];
        steps[i] = t->steps[turn->step];
        if (turn->is_again)
            steps[i].when = SY_CUTR_TRAIN;
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

int sy_cutr_recompute(struct sy_trainer *t)
{
    struct remaking r = {.t = t};
    int status;
    size_t n = (size_t)(t->n_buffers + t->n_values) + 1;
    SY_TRY_GOTO(sy_recompute_init(&r.plan, t->loss_step, t->n_steps, t->n_buffers), done);
    r.plan.keeps_together = true;
    r.copy = malloc(n * sizeof *r.copy);
    if (!r.copy) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory to plan recomputation");
        goto done;
    }
    memset(r.copy, 0xff, n * sizeof *r.copy); /* -1 */
    r.view = r.copy + t->n_buffers;
    SY_TRY_GOTO(describe(&r.plan, t), done);
    SY_TRY_GOTO(sy_recompute_plan(&r.plan), done);
    SY_TRY_GOTO(rewrite(&r), done);
done:
    free(r.copy);
    sy_recompute_finish(&r.plan);
    return status;
}

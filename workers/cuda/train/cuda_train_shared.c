/* The tensors that ranks average: gradients, or their sums over phases, and the batches' statistics. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

static bool names(const struct sy_trainer *t, const struct sy_cutr_step *step, int buffer)
{
    for (int i = 0; i < step->n_args; i++)
        if (step->args[i] >= 0 && t->values[step->args[i]].buffer == buffer)
            return true;
    return false;
}

/* Reads count too: who reads a gradient before it is shared is to read this rank's. Sums over phases, whose steps do not name them, are there with the last of
 * those steps. */
static int ready_step(const struct sy_trainer *t, const struct sy_cutr_param *p)
{
    int step = t->shared_by - 1, buffer = t->values[p->total].buffer;
    if (t->options.accumulate > 1)
        return step;
    while (step > 0 && !names(t, &t->steps[t->train_steps[step]], buffer))
        step--;
    return step;
}

int sy_cutr_plan_shared(struct sy_trainer *t)
{
    while (t->shared_by < t->n_train && !sy_cutr_is_norm(&t->steps[t->train_steps[t->shared_by]]))
        t->shared_by++;
    for (int p = 0; p < t->n_params; p++) {
        if (t->params[p].kind == SY_CUTR_FIXED)
            continue;
        struct sy_cutr_shared *shared = sy_append(&t->shared, &t->n_shared, sizeof *shared);
        if (!shared)
            return SY_ENOMEM_HOST;
        *shared = (struct sy_cutr_shared){p, ready_step(t, &t->params[p])};
    }
    return SY_OK;
}

int sy_cutr_n_shared_parts(const struct sy_trainer *t)
{
    return t->n_shared;
}

void sy_cutr_shared_part(const struct sy_trainer *t, int index, struct sy_shared_part *out)
{
    const struct sy_cutr_param *p = &t->params[t->shared[index].param];
    *out = (struct sy_shared_part){.values = sy_cutr_pointer(t, p->total),
                                   .n = (uint64_t)sy_cutr_count(&t->values[p->total]),
                                   .is_gradient = p->kind == SY_CUTR_TRAINED,
                                   .ready_step = t->shared[index].ready_step};
}

int sy_cutr_shared_by_step(const struct sy_trainer *t)
{
    return t->shared_by;
}

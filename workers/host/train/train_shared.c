/* Gradients shared by ranks, and the step from which each is complete. */
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

/* Reads count too: a reader of the gradient before it is shared must get this rank's. */
static bool names(const struct sy_trainer *t, const struct sy_tr_step *step, int buffer)
{
    bool found = false;
    for (int i = 0; i < step->n_values; i++)
        found |= step->value[i] >= 0 && t->values[step->value[i]].buffer == buffer;
    for (int i = 0; i < step->n_args; i++)
        found |= step->args[i].value >= 0 && t->values[step->args[i].value].buffer == buffer;
    return found;
}

static int last_step(const struct sy_trainer *t, int buffer)
{
    int step = t->shared_by - 1;
    while (step > 0 && !names(t, &t->steps[t->train_steps[step].step], buffer))
        step--;
    return step;
}

int sy_tr_plan_shared(struct sy_trainer *t)
{
    while (t->shared_by < t->n_train &&
           !sy_tr_is_norm(&t->steps[t->train_steps[t->shared_by].step]))
        t->shared_by++;
    for (int p = 0; p < t->n_params; p++) {
        const struct sy_tr_param *param = &t->params[p];
        if (param->alias_of >= 0 || param->total < 0 ||
            (param->gradient < 0 && param->batch_statistic < 0))
            continue;
        struct sy_tr_shared *shared = sy_append(&t->shared, &t->n_shared, sizeof *shared);
        if (!shared)
            return SY_ENOMEM_HOST;
        *shared = (struct sy_tr_shared){.value = param->total,
                                        .ready_step = last_step(t, t->values[param->total].buffer),
                                        .is_gradient = param->gradient >= 0};
    }
    return SY_OK;
}

int sy_tr_n_shared_parts(const struct sy_trainer *t)
{
    return t->n_shared;
}

void sy_tr_shared_part(const struct sy_trainer *t, int index, struct sy_shared_part *out)
{
    const struct sy_tr_value *value = &t->values[t->shared[index].value];
    *out = (struct sy_shared_part){.values = value->data,
                                   .n = dnnl_memory_desc_get_size(&value->md) /
                                        sizeof(float), /* padding is zero: G2 */
                                   .is_gradient = t->shared[index].is_gradient,
                                   .ready_step = t->shared[index].ready_step};
}

int sy_tr_shared_by_step(const struct sy_trainer *t)
{
    return t->shared_by;
}

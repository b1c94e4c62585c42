/* Parameters of a training plan, and what is added to their gradients. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

int sy_tr_refuse(const struct sy_node *node, const char *why)
{
    return sy_error_set(SY_EUNSUPPORTED, "node '%s' (%s): cannot be trained: %s",
                        node->name ? node->name : "", sy_op_name(node->op), why);
}

static int n_slots_of(const struct sy_train_options *options)
{
    if (options->optimizer != SY_OPTIMIZER_SGD)
        return 2;
    return options->momentum != 0.0 ? 1 : 0;
}

static int add_param(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                     const dnnl_memory_desc_t *layout, bool trained)
{
    struct sy_tr_param param = {
        .tensor = tensor, .plain = *plain, .gradient = -1, .alias_of = -1, .batch_statistic = -1};
    dnnl_memory_desc_t master = *layout; /* float32, whatever its first user computes in */
    master.data_type = dnnl_f32;
    layout = &master;
    SY_TRY(sy_tr_value_new(t, layout, true, &param.value));
    if (trained) {
        SY_TRY(sy_tr_value_new(t, layout, true, &param.gradient));
        param.n_slots = n_slots_of(&t->options);
        for (int i = 0; i < param.n_slots; i++)
            SY_TRY(sy_tr_value_new(t, layout, true, &param.slots[i]));
    }
    struct sy_tr_param *added = sy_append(&t->params, &t->n_params, sizeof *added);
    if (!added)
        return SY_ENOMEM_HOST;
    *added = param;
    t->tensors[tensor].param = t->n_params - 1;
    return SY_OK;
}

int sy_tr_param_find(const struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain)
{
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].tensor == tensor && dnnl_memory_desc_equal(&t->params[p].plain, plain))
            return p;
    return -1;
}

/* Another view of a parameter, such as the transposed table at a language model's end. Its gradient joins the parameter's. */
static int add_alias(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                     const dnnl_memory_desc_t *layout)
{
    int of = t->tensors[tensor].param;
    struct sy_tr_param param = {
        .tensor = tensor, .plain = *plain, .gradient = -1, .alias_of = of, .batch_statistic = -1};
    dnnl_memory_desc_t own = t->params[of].plain;
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, t->params[of].value, &own, &param.value));
    SY_TRY(sy_tr_value_view(t, param.value, plain, &param.value));
    dnnl_memory_desc_t master = *layout;
    master.data_type = dnnl_f32;
    if (t->params[of].gradient >= 0)
        SY_TRY(sy_tr_value_new(t, &master, false, &param.gradient));
    struct sy_tr_param *added = sy_append(&t->params, &t->n_params, sizeof *added);
    if (!added)
        return SY_ENOMEM_HOST;
    *added = param;
    return SY_OK;
}

int sy_tr_param_join(struct sy_trainer *t, int alias)
{
    struct sy_tr_param p = t->params[alias];
    dnnl_memory_desc_t own = t->params[p.alias_of].plain;
    int value;
    if (p.gradient < 0 || p.n_contributions == 0)
        return SY_OK;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, p.gradient, &p.plain, &value));
    SY_TRY(sy_tr_value_view(t, value, &own, &value));
    return sy_tr_param_commit(t, p.alias_of, value);
}

int sy_tr_param_use(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                    const dnnl_memory_desc_t *layout, bool trained, int *param, int *value)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    trained = trained && t->tensors[tensor].needs_gradient;
    if (!x->data || x->dtype != SY_DTYPE_F32)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': a parameter must be a float32 constant of the model",
                            x->name);
    if (x->data_bytes != (size_t)sy_tr_elements(plain) * sizeof(float))
        return sy_error_set(SY_EARG,
                            "tensor '%s': %zu bytes of data where its node wants %lld elements",
                            x->name, x->data_bytes, (long long)sy_tr_elements(plain));
    if (t->tensors[tensor].param < 0)
        SY_TRY(add_param(t, tensor, plain, layout, trained));
    if ((*param = sy_tr_param_find(t, tensor, plain)) < 0) {
        SY_TRY(add_alias(t, tensor, plain, layout));
        *param = t->n_params - 1;
    }
    if (trained != (t->params[*param].gradient >= 0))
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': shared by nodes that read it in different ways", x->name);
    return sy_tr_as(t, SY_TR_FORWARD, t->params[*param].value, layout, value);
}

int sy_tr_param_gradient(struct sy_trainer *t, int param, const dnnl_memory_desc_t *md, int *value)
{
    struct sy_tr_param *p = &t->params[param];
    if (p->n_contributions == 0 && dnnl_memory_desc_equal(md, &t->values[p->gradient].md)) {
        *value = p->gradient;
        return SY_OK;
    }
    return sy_tr_value_new(t, md, false, value);
}

static int copy_to_gradient(struct sy_trainer *t, int from, int to)
{
    dnnl_primitive_desc_t pd;
    SY_TRY(sy_tr_check(dnnl_reorder_primitive_desc_create(&pd, &t->values[from].md, t->engine,
                                                          &t->values[to].md, t->engine, t->attr),
                       "reorder", "gradient"));
    struct sy_tr_arg args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    int status = sy_tr_add_primitive(t, SY_TR_TRAIN, "gradient", pd, args, 2);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

int sy_tr_param_commit(struct sy_trainer *t, int param, int value)
{
    int gradient = t->params[param].gradient;
    if (t->params[param].n_contributions++ == 0)
        return value == gradient ? SY_OK : copy_to_gradient(t, value, gradient);
    int same;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, value, &t->values[gradient].md, &same));
    return sy_tr_add_kernel(t, SY_TR_TRAIN, SY_TR_SUM, "gradient", gradient, gradient, same);
}

/* Never in place: the earlier contribution may be another tensor's gradient too (both inputs of a residual add). */
int sy_tr_gradient_add(struct sy_trainer *t, int tensor, int value)
{
    int before = t->tensors[tensor].gradient, same, sum;
    if (before < 0) {
        t->tensors[tensor].gradient = value;
        return SY_OK;
    }
    dnnl_memory_desc_t md = t->values[before].md;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, value, &md, &same));
    SY_TRY(sy_tr_value_new(t, &md, false, &sum));
    SY_TRY(sy_tr_add_kernel(t, SY_TR_TRAIN, SY_TR_SUM, "gradient", sum, before, same));
    t->tensors[tensor].gradient = sum;
    return SY_OK;
}

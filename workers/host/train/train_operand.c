/* Tensors as row-major memory, for the operators that are own loops. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

int sy_tr_alloc(size_t bytes, void *out)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    *(void **)out = memory;
    return memory ? SY_OK
                  : sy_error_set(SY_ENOMEM_HOST, "training plan: no room for %zu bytes", bytes);
}

int sy_tr_shape(const struct sy_trainer *t, int tensor, int64_t *dims)
{
    const struct sy_shape *shape = &t->graph->tensors[tensor].shape;
    for (int i = 0; i < shape->rank; i++)
        dims[i] = sy_dim_at(shape->dims[i], t->options.batch);
    return shape->rank;
}

int64_t sy_tr_count(const struct sy_trainer *t, int tensor)
{
    return sy_shape_elements(&t->graph->tensors[tensor].shape, t->options.batch);
}

bool sy_tr_needs(const struct sy_trainer *t, int tensor)
{
    return tensor >= 0 && t->tensors[tensor].needs_gradient;
}

dnnl_memory_desc_t sy_tr_raw_md(const struct sy_trainer *t, int tensor)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    dnnl_memory_desc_t md;
    dnnl_dims_t dims, n = {sy_tr_count(t, tensor)};
    if (x->dtype == SY_DTYPE_F32)
        return sy_tr_plain(sy_tr_shape(t, tensor, dims), dims);
    memset(&md, 0, sizeof md);
    n[0] *= (int64_t)sy_dtype_bytes(x->dtype);
    dnnl_memory_desc_init_by_strides(&md, 1, n, dnnl_u8, NULL);
    return md;
}

/* A constant that is not trained stays where the graph has it. */
static int fixed_value(struct sy_trainer *t, int tensor, int *value)
{
    dnnl_memory_desc_t md = sy_tr_raw_md(t, tensor);
    SY_TRY(sy_tr_value_new(t, &md, false, value));
    t->buffers[t->values[*value].buffer].fixed = t->graph->tensors[tensor].data;
    t->tensors[tensor].value = *value;
    return SY_OK;
}

int sy_tr_operand(struct sy_trainer *t, unsigned when, int tensor, int *value)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    dnnl_memory_desc_t md = sy_tr_raw_md(t, tensor);
    int param;
    if (x->data && sy_tr_needs(t, tensor))
        return sy_tr_param_use(t, tensor, &md, &md, true, &param, value);
    if (x->data && t->tensors[tensor].value < 0)
        SY_TRY(fixed_value(t, tensor, &t->tensors[tensor].value));
    *value = t->tensors[tensor].value;
    return x->dtype == SY_DTYPE_F32 ? sy_tr_as(t, when, *value, &md, value) : SY_OK;
}

int sy_tr_result(struct sy_trainer *t, int tensor, int *value)
{
    dnnl_memory_desc_t md = sy_tr_raw_md(t, tensor);
    if (sy_tr_count(t, tensor) < 1)
        return sy_error_set(SY_EUNSUPPORTED, "tensor '%s': it has no elements",
                            t->graph->tensors[tensor].name);
    SY_TRY(sy_tr_value_new(t, &md, false, value));
    t->tensors[tensor].value = *value;
    return SY_OK;
}

int sy_tr_diff_begin(struct sy_trainer *t, int tensor, int *value)
{
    dnnl_memory_desc_t md = sy_tr_raw_md(t, tensor);
    int param = sy_tr_param_find(t, tensor, &md);
    if (param >= 0)
        return sy_tr_param_gradient(t, param, &md, value);
    return sy_tr_value_new(t, &md, false, value);
}

int sy_tr_diff_end(struct sy_trainer *t, int tensor, int value)
{
    dnnl_memory_desc_t md = sy_tr_raw_md(t, tensor);
    int param = sy_tr_param_find(t, tensor, &md);
    if (param >= 0)
        return sy_tr_param_commit(t, param, value);
    return sy_tr_gradient_add(t, tensor, value);
}

int sy_tr_diff_of(struct sy_trainer *t, int tensor, int *value)
{
    dnnl_memory_desc_t md = sy_tr_raw_md(t, tensor);
    return sy_tr_as(t, SY_TR_TRAIN, t->tensors[tensor].gradient, &md, value);
}

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

int sy_tr_check(dnnl_status_t status, const char *what, const char *name)
{
    if (status == dnnl_success)
        return SY_OK;
    int code = status == dnnl_out_of_memory   ? SY_ENOMEM_HOST
               : status == dnnl_unimplemented ? SY_EUNSUPPORTED
                                              : SY_EDEVICE;
    return sy_error_set(code, "node '%s': oneDNN %s failed with status %d", name, what,
                        (int)status);
}

dnnl_memory_desc_t sy_tr_plain(int rank, const int64_t *dims)
{
    dnnl_memory_desc_t md;
    memset(&md, 0, sizeof md);
    dnnl_dims_t all = {1}; /* a number is a list of one */
    assert(rank >= 0 && rank <= SY_MAX_RANK);
    for (int i = 0; i < rank; i++)
        all[i] = dims[i];
    dnnl_memory_desc_init_by_strides(&md, rank ? rank : 1, all, dnnl_f32, NULL);
    return md;
}

dnnl_memory_desc_t sy_tr_any(int rank, const int64_t *dims)
{
    dnnl_memory_desc_t md;
    memset(&md, 0, sizeof md);
    dnnl_memory_desc_init_by_tag(&md, rank, dims, dnnl_f32, dnnl_format_tag_any);
    return md;
}

dnnl_memory_desc_t sy_tr_any_product(const struct sy_trainer *t, int rank, const int64_t *dims)
{
    dnnl_memory_desc_t md = sy_tr_any(rank, dims);
    if (t->options.precision == SY_TRAIN_BF16)
        dnnl_memory_desc_init_by_tag(&md, rank, dims, dnnl_bf16, dnnl_format_tag_any);
    return md;
}

int sy_tr_dims(const struct sy_trainer *t, int tensor, int64_t *dims)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    int rank = x->shape.rank;
    if (x->dtype != SY_DTYPE_F32)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': training wants float32, this has type %d", x->name,
                            (int)x->dtype);
    for (int i = 0; i < rank; i++) {
        dims[i] = sy_dim_at(x->shape.dims[i], t->options.batch);
        if (dims[i] < 1)
            return sy_error_set(SY_EUNSUPPORTED, "tensor '%s': dimension %d is %lld", x->name, i,
                                (long long)dims[i]);
    }
    return rank;
}

int64_t sy_tr_elements(const dnnl_memory_desc_t *md)
{
    int64_t n = 1;
    for (int i = 0; i < md->ndims; i++)
        n *= md->dims[i];
    return n;
}

static int add_value(struct sy_trainer *t, const dnnl_memory_desc_t *md, int buffer)
{
    dnnl_memory_desc_t copy = *md; /* md may point into the array that grows */
    struct sy_tr_value *value = sy_append(&t->values, &t->n_values, sizeof *value);
    if (!value)
        return SY_ENOMEM_HOST;
    value->md = copy;
    value->buffer = buffer;
    value->next_layout = -1;
    return t->n_values - 1;
}

int sy_tr_value_new(struct sy_trainer *t, const dnnl_memory_desc_t *md, bool persistent, int *out)
{
    struct sy_tr_buffer *buffer = sy_append(&t->buffers, &t->n_buffers, sizeof *buffer);
    if (!buffer)
        return SY_ENOMEM_HOST;
    buffer->bytes = SY_ALIGN_UP(dnnl_memory_desc_get_size(md), SY_TR_ALIGN);
    buffer->persistent = persistent;
    buffer->first = buffer->last = -1;
    SY_TRY(*out = add_value(t, md, t->n_buffers - 1));
    return SY_OK;
}

int sy_tr_value_view(struct sy_trainer *t, int value, const dnnl_memory_desc_t *md, int *out)
{
    SY_TRY(*out = add_value(t, md, t->values[value].buffer));
    return SY_OK;
}

static int add_reorder(struct sy_trainer *t, unsigned when, int from, int to)
{
    dnnl_primitive_desc_t pd;
    SY_TRY(sy_tr_check(dnnl_reorder_primitive_desc_create(&pd, &t->values[from].md, t->engine,
                                                          &t->values[to].md, t->engine, t->attr),
                       "reorder", "layout change"));
    struct sy_tr_arg args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    int status = sy_tr_add_primitive(t, when, "layout change", pd, args, 2);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

int sy_tr_as(struct sy_trainer *t, unsigned when, int value, const dnnl_memory_desc_t *md, int *out)
{
    dnnl_memory_desc_t wanted = *md; /* md may point into t->values, which grows */
    int last = value;
    for (int v = value; v >= 0; v = t->values[v].next_layout) {
        if (dnnl_memory_desc_equal(&t->values[v].md, &wanted)) {
            *out = v;
            return SY_OK;
        }
        last = v;
    }
    int reordered;
    SY_TRY(sy_tr_value_new(t, &wanted, false, &reordered));
    SY_TRY(add_reorder(t, when, value, reordered));
    t->values[last].next_layout = reordered;
    *out = reordered;
    return SY_OK;
}

int sy_tr_as_plain(struct sy_trainer *t, unsigned when, int value, int *out)
{
    dnnl_memory_desc_t plain = sy_tr_plain(t->values[value].md.ndims, t->values[value].md.dims);
    return sy_tr_as(t, when, value, &plain, out);
}

static struct sy_tr_step *add_step(struct sy_trainer *t, unsigned when, enum sy_tr_step_kind kind,
                                   const char *name)
{
    struct sy_tr_step *step = sy_append(&t->steps, &t->n_steps, sizeof *step);
    if (!step)
        return NULL;
    step->kind = kind;
    step->when = when;
    step->name = name;
    step->node = t->node;
    step->is_backward = t->is_backward;
    return step;
}

int sy_tr_add_primitive(struct sy_trainer *t, unsigned when, const char *name,
                        dnnl_primitive_desc_t pd, const struct sy_tr_arg *args, int n_args)
{
    assert(n_args < SY_TR_MAX_ARGS);
    struct sy_tr_arg scratch = {DNNL_ARG_SCRATCHPAD, -1};
    const dnnl_memory_desc_t *md = sy_tr_query(pd, dnnl_query_scratchpad_md);
    if (md && dnnl_memory_desc_get_size(md) > 0)
        SY_TRY(sy_tr_value_new(t, md, false, &scratch.value));
    struct sy_tr_step *step = add_step(t, when, SY_TR_PRIMITIVE, name);
    if (!step)
        return SY_ENOMEM_HOST;
    for (int i = 0; i < n_args; i++)
        if (args[i].value >= 0)
            step->args[step->n_args++] = args[i];
    if (scratch.value >= 0)
        step->args[step->n_args++] = scratch;
    return sy_tr_check(dnnl_primitive_create(&step->primitive, pd), "primitive creation", name);
}

int sy_tr_add_kernel(struct sy_trainer *t, unsigned when, enum sy_tr_step_kind kind,
                     const char *name, int to, int a, int b)
{
    struct sy_tr_step *step = add_step(t, when, kind, name);
    if (!step)
        return SY_ENOMEM_HOST;
    step->n_results = 1;
    step->n_values = 3;
    step->value[0] = to;
    step->value[1] = a;
    step->value[2] = b;
    return SY_OK;
}

int sy_tr_add_call(struct sy_trainer *t, unsigned when, sy_tr_fn *fn, int n_results, int n_values,
                   const int *values, void *data)
{
    assert(n_values <= SY_TR_MAX_VALUES);
    const char *name = t->node >= 0 ? t->graph->nodes[t->node].name : "loss";
    struct sy_tr_step *step = add_step(t, when, SY_TR_CALL, name);
    if (!step) {
        free(data);
        return SY_ENOMEM_HOST;
    }
    step->fn = fn;
    step->data = data;
    step->n_results = n_results;
    step->n_values = n_values;
    memcpy(step->value, values, (size_t)n_values * sizeof *values);
    return SY_OK;
}

void *sy_tr_at(const struct sy_trainer *t, const struct sy_tr_step *step, int i)
{
    return i < step->n_values && step->value[i] >= 0 ? t->values[step->value[i]].data : NULL;
}

/* A program's values: where bytes are, through which layout they are seen, their last reader. */

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"

const struct sy_node *sy_program_node(const struct sy_program *p)
{
    return &p->graph->nodes[p->layers[p->layer].node];
}

const struct sy_tensor *sy_program_input_tensor(const struct sy_program *p, int input)
{
    return &p->graph->tensors[sy_program_node(p)->inputs[input]];
}

void sy_program_dims(const struct sy_program *p, int tensor, int64_t *dims)
{
    sy_tensor_dims(p->graph, tensor, p->batch, dims);
}

int sy_program_new_value(struct sy_program *p, enum sy_dtype dtype, int rank, const int64_t *dims,
                         int *out)
{
    int n = p->n_values;
    struct sy_value *v = sy_append(&p->values, &p->n_values, sizeof *v);
    if (!v)
        return SY_ENOMEM_HOST;
    *v = (struct sy_value){.dtype = dtype,
                           .rank = rank,
                           .root = n,
                           .first = p->layer,
                           .last = p->layer,
                           .bytes = sy_dtype_bytes(dtype)};
    for (int i = 0; i < rank; i++) {
        v->dims[i] = dims[i];
        v->bytes *= (uint64_t)dims[i];
    }
    if (sy_dnnl_type(dtype) != dnnl_data_type_undef)
        sy_dnnl_plain_md_of(&v->md, sy_dnnl_type(dtype), rank, dims);
    *out = n;
    return SY_OK;
}

int sy_program_new_of(struct sy_program *p, int tensor, int *out)
{
    int64_t dims[SY_MAX_RANK];
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    sy_program_dims(p, tensor, dims);
    return sy_program_new_value(p, t->dtype, t->shape.rank, dims, out);
}

int sy_program_new_laid_out(struct sy_program *p, int tensor, const dnnl_memory_desc_t *md,
                            int *out)
{
    SY_TRY(sy_program_new_of(p, tensor, out));
    p->values[*out].md = *md;
    p->values[*out].bytes = dnnl_memory_desc_get_size(md);
    return SY_OK;
}

int sy_program_new_alias(struct sy_program *p, int value, int tensor, const dnnl_memory_desc_t *md,
                         int *out)
{
    SY_TRY(sy_program_new_of(p, tensor, out));
    struct sy_value *v = &p->values[*out], *of = &p->values[value];
    int root = of->root;
    v->place = of->place;
    v->index = of->index;
    v->constant = of->constant;
    v->offset = of->offset;
    v->root = root;
    if (md) {
        v->md = *md;
        v->bytes = dnnl_memory_desc_get_size(md);
    }
    p->values[root].last = p->layer;
    return SY_OK;
}

void sy_program_touch(struct sy_program *p, int value)
{
    struct sy_value *root = &p->values[p->values[value].root];
    root->last = SY_MAX(root->last, p->layer);
}

bool sy_program_is_plain(const struct sy_value *v)
{
    dnnl_memory_desc_t plain;
    if (sy_dnnl_type(v->dtype) == dnnl_data_type_undef)
        return true;
    sy_dnnl_plain_md_of(&plain, sy_dnnl_type(v->dtype), v->rank, v->dims);
    return dnnl_memory_desc_equal(&plain, &v->md);
}

void sy_program_set_output(struct sy_program *p, int output, int value)
{
    p->native[sy_program_node(p)->outputs[output]] = value;
}

/* Whether a tensor that is still to be read (or read by another input of this node) has these bytes. */
static bool is_needed(const struct sy_program *p, int tensor, int root, int but_input)
{
    bool here = (p->native[tensor] >= 0 && p->values[p->native[tensor]].root == root) ||
                (p->plain[tensor] >= 0 && p->values[p->plain[tensor]].root == root) ||
                (p->narrow[tensor] >= 0 && p->values[p->narrow[tensor]].root == root) ||
                (p->parts[tensor].value >= 0 && p->values[p->parts[tensor].value].root == root);
    return here &&
           sy_tensor_is_needed(sy_program_node(p), tensor, but_input, p->last_use, p->layer);
}

bool sy_program_is_last_use(const struct sy_program *p, int input, int value)
{
    const struct sy_value *v = &p->values[value];
    if (v->place != SY_IN_WORKSPACE)
        return false;
    for (int t = 0; t < p->graph->n_tensors; t++)
        if (is_needed(p, t, v->root, input))
            return false;
    return true;
}

void *sy_program_pointer(const struct sy_program *p, int value)
{
    const struct sy_value *v = &p->values[value];
    switch (v->place) {
    case SY_IN_WORKSPACE:
        return (char *)p->binding->workspace + v->offset;
    case SY_IN_INPUT:
        return (void *)p->binding->inputs[v->index];
    case SY_IN_OUTPUT:
        return p->binding->outputs[v->index];
    case SY_IN_PARAMS:
        return p->binding->layer_params[v->index] + v->offset;
    case SY_IN_CONSTANT:
        return (void *)v->constant;
    }
    return NULL;
}

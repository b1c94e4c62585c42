/* A program's values: where bytes are, through which layout they are seen, who names them last. */
#include <stdlib.h>
#include <string.h>

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

static const struct sy_param *find_param(const struct sy_program *p, int input)
{
    return sy_layer_param(&p->layers[p->layer], input);
}

bool sy_program_is_param(const struct sy_program *p, int input)
{
    return find_param(p, input) != NULL;
}

int sy_program_stored_param(struct sy_program *p, int input, int *out)
{
    const struct sy_param *param = find_param(p, input);
    const struct sy_node *node = sy_program_node(p);
    if (!param)
        return sy_error_set(SY_ECORRUPT, "node %s: input %d is not among its parameters",
                            node->name, input);
    SY_TRY(sy_program_new_of(p, node->inputs[input], out));
    struct sy_value *v = &p->values[*out];
    v->place = SY_IN_PARAMS;
    v->index = p->layer;
    v->offset = param->offset_bytes;
    if (param->layout_bytes == sizeof v->md)
        memcpy(&v->md, param->layout, sizeof v->md);
    else if (param->layout_bytes != 0)
        return sy_error_set(SY_ECORRUPT, "node %s: layout of input %d has %zu bytes", node->name,
                            input, param->layout_bytes);
    uint64_t needed = param->layout_bytes ? dnnl_memory_desc_get_size(&v->md) : v->bytes;
    uint64_t end = p->layers[p->layer].bytes;
    if (param->bytes < needed || param->offset_bytes > end ||
        param->bytes > end - param->offset_bytes)
        return sy_error_set(SY_ECORRUPT,
                            "node %s: input %d: %llu bytes at %llu of a layer of %llu, %llu needed",
                            node->name, input, (unsigned long long)param->bytes,
                            (unsigned long long)param->offset_bytes, (unsigned long long)end,
                            (unsigned long long)needed);
    v->bytes = param->bytes;
    return SY_OK;
}

int sy_program_param(struct sy_program *p, int input, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t md;
    int stored;
    SY_TRY(sy_program_stored_param(p, input, &stored));
    *out = stored;
    /* Of a table few rows are read: they are widened when they have been gathered. */
    if (!sy_value_is_narrow(&p->values[stored]) || sy_dnnl_has_bf16() ||
        (node->op == SY_OP_GATHER && input == 0))
        return SY_OK;
    if (!sy_dnnl_widened_md(&p->values[stored].md, &md))
        return sy_error_set(SY_ECORRUPT, "node %s: input %d: a layout of bf16 that has no wide one",
                            node->name, input);
    SY_TRY(sy_program_new_laid_out(p, node->inputs[input], &md, out));
    return sy_program_add_widen(p, stored, *out);
}

int sy_program_constant(struct sy_program *p, int tensor, int *out)
{
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    SY_TRY(sy_program_new_of(p, tensor, out));
    p->values[*out].place = SY_IN_CONSTANT;
    p->values[*out].constant = t->data;
    if (t->dtype != SY_DTYPE_STRING)
        return SY_OK;
    int block = *out;
    SY_TRY(sy_program_take_strings(p, block, tensor, out));
    p->native[tensor] = *out;
    return SY_OK;
}

bool sy_program_is_plain(const struct sy_value *v)
{
    dnnl_memory_desc_t plain;
    if (sy_dnnl_type(v->dtype) == dnnl_data_type_undef)
        return true;
    sy_dnnl_plain_md_of(&plain, sy_dnnl_type(v->dtype), v->rank, v->dims);
    return dnnl_memory_desc_equal(&plain, &v->md);
}

int sy_program_input_native(struct sy_program *p, int input, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    int tensor = node->inputs[input];
    if (find_param(p, input))
        return sy_program_param(p, input, out);
    if (p->graph->tensors[tensor].data && p->native[tensor] < 0)
        return sy_program_constant(p, tensor, out);
    if (p->native[tensor] < 0)
        return sy_error_set(SY_ECORRUPT, "node %s: input %s is not computed before it", node->name,
                            p->graph->tensors[tensor].name);
    if (p->values[p->native[tensor]].pending)
        SY_TRY(sy_program_fetch(p, tensor));
    *out = p->native[tensor];
    sy_program_touch(p, *out);
    return SY_OK;
}

int sy_program_input_plain(struct sy_program *p, int input, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    if (tensor >= 0 && p->plain[tensor] >= 0) {
        *out = p->plain[tensor];
        sy_program_touch(p, *out);
        return SY_OK;
    }
    SY_TRY(sy_program_input_native(p, input, &from));
    if (sy_program_is_plain(&p->values[from])) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(sy_program_new_of(p, tensor, out));
    SY_TRY(sy_program_add_reorder(p, from, *out));
    if (!sy_program_is_param(p, input))
        p->plain[tensor] = *out;
    return SY_OK;
}

int sy_program_input_as(struct sy_program *p, int input, const dnnl_memory_desc_t *md, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    SY_TRY(sy_program_input_native(p, input, &from));
    if (dnnl_memory_desc_equal(md, &p->values[from].md)) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(sy_program_new_laid_out(p, tensor, md, out));
    return sy_program_add_reorder(p, from, *out);
}

void sy_program_set_output(struct sy_program *p, int output, int value)
{
    p->native[sy_program_node(p)->outputs[output]] = value;
}

int sy_program_output_plain(struct sy_program *p, int output, int *out)
{
    SY_TRY(sy_program_new_of(p, sy_program_node(p)->outputs[output], out));
    sy_program_set_output(p, output, *out);
    return SY_OK;
}

int sy_program_output_or_room(struct sy_program *p, int output, bool needed, int rank,
                              const int64_t *dims, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    *out = -1;
    if (output < node->n_outputs && node->outputs[output] >= 0)
        return sy_program_output_plain(p, output, out);
    return needed ? sy_program_new_value(p, SY_DTYPE_F32, rank, dims, out) : SY_OK;
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

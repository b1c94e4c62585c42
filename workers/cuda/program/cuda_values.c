/* A program's values: where their bytes are, and in which order they lie. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

const struct sy_node *sy_cuda_node(const struct sy_program *p)
{
    return &p->graph->nodes[p->layers[p->layer].node];
}

const struct sy_tensor *sy_cuda_input_tensor(const struct sy_program *p, int input)
{
    return &p->graph->tensors[sy_cuda_node(p)->inputs[input]];
}

void sy_cuda_dims(const struct sy_program *p, int tensor, int64_t *dims)
{
    sy_tensor_dims(p->graph, tensor, p->batch, dims);
}

int sy_cuda_new_value(struct sy_program *p, enum sy_dtype dtype, int rank, const int64_t *dims,
                      bool channels_last, int *out)
{
    if (dtype == SY_DTYPE_STRING)
        return sy_unsupported(sy_cuda_node(p), "strings, which are computed on the host alone");
    int n = p->n_values;
    struct sy_cuda_value *v = sy_append(&p->values, &p->n_values, sizeof *v);
    if (!v)
        return SY_ENOMEM_HOST;
    *v = (struct sy_cuda_value){.dtype = dtype,
                                .rank = rank,
                                .channels_last = channels_last && rank >= 3,
                                .root = n,
                                .first = p->layer,
                                .last = p->layer,
                                .bytes = sy_dtype_bytes(dtype)};
    for (int i = 0; i < rank; i++) {
        v->dims[i] = dims[i];
        v->bytes *= (uint64_t)dims[i];
    }
    *out = n;
    return SY_OK;
}

int sy_cuda_new_as(struct sy_program *p, int tensor, enum sy_dtype dtype, bool channels_last,
                   int *out)
{
    int64_t dims[SY_MAX_RANK];
    sy_cuda_dims(p, tensor, dims);
    SY_TRY(sy_cuda_new_value(p, dtype, p->graph->tensors[tensor].shape.rank, dims, channels_last,
                             out));
    if (sy_graph_is_dynamic(p->graph, tensor)) /* what the run says lies behind it */
        p->values[*out].bytes = sy_graph_tensor_room(p->graph, tensor, p->batch);
    return SY_OK;
}

int sy_cuda_new_of(struct sy_program *p, int tensor, bool channels_last, int *out)
{
    return sy_cuda_new_as(p, tensor, p->graph->tensors[tensor].dtype, channels_last, out);
}

int sy_cuda_new_alias(struct sy_program *p, int value, int tensor, bool channels_last, int *out)
{
    enum sy_dtype dtype = p->graph->tensors[tensor].dtype;
    if (dtype == SY_DTYPE_F32 && sy_math_is_narrow(p->values[value].dtype))
        dtype = p->values[value].dtype;
    SY_TRY(sy_cuda_new_as(p, tensor, dtype, channels_last, out));
    struct sy_cuda_value *v = &p->values[*out], *of = &p->values[value];
    if (v->bytes > of->bytes)
        return sy_error_set(SY_ECORRUPT, "node %s: %llu bytes seen as %llu", sy_cuda_node(p)->name,
                            (unsigned long long)of->bytes, (unsigned long long)v->bytes);
    sy_cuda_share_bytes(p, *out, value);
    return SY_OK;
}

void sy_cuda_share_bytes(struct sy_program *p, int value, int of)
{
    struct sy_cuda_value *v = &p->values[value];
    const struct sy_cuda_value *from = &p->values[of];
    v->place = from->place;
    v->layer = from->layer;
    v->offset = from->offset;
    v->root = from->root;
    sy_cuda_touch(p, from->root);
}

void sy_cuda_touch(struct sy_program *p, int value)
{
    struct sy_cuda_value *root = &p->values[p->values[value].root];
    root->last = SY_MAX(root->last, p->layer);
}

void sy_cuda_dense_strides(int rank, const int64_t *dims, bool channels_last, int64_t *strides)
{
    int64_t stride = 1;
    if (channels_last) {
        strides[1] = 1;
        stride = dims[1];
    }
    for (int i = rank - 1; i >= 0; i--) {
        if (channels_last && i == 1)
            continue;
        strides[i] = stride;
        stride *= dims[i];
    }
}

void sy_cuda_strides(const struct sy_cuda_value *v, int64_t *strides)
{
    sy_cuda_dense_strides(v->rank, v->dims, v->channels_last, strides);
}

int64_t sy_cuda_count(const struct sy_cuda_value *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

void *sy_cuda_pointer(const struct sy_program *p, int value)
{
    if (value < 0)
        return NULL;
    const struct sy_cuda_value *v = &p->values[value];
    if (v->place == SY_CUDA_CAPTURED) /* nobody writes to it: sy_cuda_is_last_use */
        return (void *)(uintptr_t)p->binding->inputs[v->layer];
    return v->place == SY_CUDA_PARAMS ? p->binding->layer_params[v->layer] + v->offset
                                      : (unsigned char *)p->binding->workspace + v->offset;
}

/* Normalisation, softmax and reductions. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

static int64_t product(const int64_t *dims, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++)
        n *= dims[i];
    return n;
}

static int axis_of(const struct sy_node *node, int rank, int *axis)
{
    *axis = (int)sy_node_int(node, "axis", -1);
    *axis += *axis < 0 ? rank : 0;
    if (*axis < 0 || *axis >= rank)
        return sy_unsupported(node, "an axis that the input does not have");
    return SY_OK;
}

/* ---- layer norm ------------------------------------------------------------------------------------------ */

/* args: x, skip (or -1), scale, bias (or -1), out, sum (or -1) */
static int run_layer_norm(struct sy_program *p, const struct sy_cuda_step *step)
{
    void *at[6];
    for (int i = 0; i < 6; i++)
        at[i] = sy_cuda_pointer(p, step->args[i]);
    return p->ops->layer_norm(p->math, &step->layer_norm, at[0], at[1], at[2], at[3], at[4], at[5]);
}

static int check_sizes(struct sy_program *p, const int *values, int64_t columns)
{
    const struct sy_cuda_value *v = p->values;
    for (int i = 2; i < 4; i++)
        if (values[i] >= 0 && v[values[i]].bytes != (uint64_t)columns * sizeof(float))
            return sy_unsupported(sy_cuda_node(p),
                                  "a scale or bias of another size than what is normalised");
    return SY_OK;
}

static int build_layer_norm(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    bool skips = node->op == SY_OP_SKIP_LAYER_NORM;
    int values[6] = {-1, -1, -1, -1, -1, -1}, at = 0, axis;
    struct sy_cuda_step *step;
    SY_TRY(sy_cuda_input_plain(p, at++, &values[0]));
    if (skips)
        SY_TRY(sy_cuda_input_plain(p, at++, &values[1]));
    SY_TRY(sy_cuda_input_plain(p, at++, &values[2]));
    if (at < node->n_inputs && node->inputs[at] >= 0)
        SY_TRY(sy_cuda_input_plain(p, at, &values[3]));
    const struct sy_cuda_value x = p->values[values[0]];
    if (x.dtype != SY_DTYPE_F32 || (skips && p->values[values[1]].bytes != x.bytes))
        return sy_unsupported(node, "only float32, and sums of equal shapes");
    SY_TRY(axis_of(node, x.rank, &axis));
    int64_t columns = product(x.dims, axis, x.rank);
    SY_TRY(check_sizes(p, values, columns));
    enum sy_dtype type = sy_cuda_wanted(p, 0);
    SY_TRY(sy_cuda_output_as(p, 0, type, false, &values[4]));
    if (skips && node->n_outputs > 1 && node->outputs[node->n_outputs - 1] >= 0)
        SY_TRY(sy_cuda_output(p, node->n_outputs - 1, false, &values[5]));
    SY_TRY(sy_cuda_add_step(p, run_layer_norm, values, 6, &step));
    step->layer_norm = (struct sy_math_layer_norm){.rows = product(x.dims, 0, axis),
                                                   .columns = columns,
                                                   .epsilon = sy_node_float(node, "epsilon", 1e-5f),
                                                   .out_type = type};
    return SY_OK;
}

/* ---- batch norm ------------------------------------------------------------------------------------------ */

/* The channel's numbers seen as [C, 1, 1, ...]. */
static int per_channel(struct sy_program *p, int value, int rank, int64_t channels, int *out)
{
    int64_t dims[SY_MAX_RANK] = {channels};
    for (int i = 1; i < rank - 1; i++)
        dims[i] = 1;
    SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, rank - 1, dims, false, out));
    sy_cuda_share_bytes(p, *out, value);
    return SY_OK;
}

static int build_batch_norm(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_chain chain = {.n_inputs = 5};
    int values[5], out;
    SY_TRY(sy_cuda_input(p, 0, &values[0]));
    const struct sy_cuda_value x = p->values[values[0]];
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || x.rank < 2)
        return sy_unsupported(node, "only float32 of two dimensions and more");
    if (sy_node_int(node, "training_mode", 0) != 0)
        return sy_unsupported(node, "the batch's own mean and variance (training_mode)");
    for (int i = 1; i < 5; i++) {
        int value;
        SY_TRY(sy_cuda_input_plain(p, i, &value));
        if (p->values[value].bytes != (uint64_t)x.dims[1] * sizeof(float))
            return sy_unsupported(node, "a parameter that has not one float per channel");
        SY_TRY(per_channel(p, value, x.rank, x.dims[1], &values[i]));
    }
    SY_TRY(sy_cuda_output_as(p, 0, sy_cuda_wanted(p, 0), x.channels_last, &out));
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_SUB, 3, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_MUL_RSQRT, 4, sy_node_float(node, "epsilon", 1e-5f), 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_MUL, 1, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_ADD, 2, 0, 0);
    return sy_cuda_add_chain(p, &chain, values, out);
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

static int run_softmax(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->softmax(p->math, &step->softmax, sy_cuda_pointer(p, step->args[0]),
                           sy_cuda_pointer(p, step->args[1]));
}

static int build_softmax(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_cuda_step *step;
    int values[2], axis;
    SY_TRY(sy_cuda_input_plain(p, 0, &values[0]));
    const struct sy_cuda_value x = p->values[values[0]];
    if (x.dtype != SY_DTYPE_F32)
        return sy_unsupported(node, "only float32");
    SY_TRY(axis_of(node, x.rank, &axis));
    SY_TRY(sy_cuda_output_over(p, 0, values[0], sy_cuda_wanted(p, 0), &values[1]));
    SY_TRY(sy_cuda_add_step(p, run_softmax, values, 2, &step));
    step->softmax = (struct sy_math_softmax){.outer = product(x.dims, 0, axis),
                                             .extent = x.dims[axis],
                                             .inner = product(x.dims, axis + 1, x.rank),
                                             .logarithm = node->op == SY_OP_LOG_SOFTMAX,
                                             .out_type = p->values[values[1]].dtype};
    return SY_OK;
}

/* ---- reductions ------------------------------------------------------------------------------------------ */

static int run_reduce(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->reduce(p->math, &step->reduce, sy_cuda_pointer(p, step->args[0]),
                          sy_cuda_pointer(p, step->args[1]));
}

static int build_reduce(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    struct sy_cuda_step *step;
    int values[2];
    SY_TRY(sy_cuda_input_wide(p, 0, &values[0]));
    if (p->values[values[0]].dtype != SY_DTYPE_F32)
        return sy_unsupported(node, "only float32");
    if (node->n_inputs > 1)
        return sy_unsupported(node, "axes that are known at run only");
    SY_TRY(sy_cuda_output(p, 0, false, &values[1]));
    SY_TRY(sy_cuda_add_step(p, run_reduce, values, 2, &step));
    const struct sy_cuda_value *x = &p->values[values[0]];
    struct sy_math_reduce *r = &step->reduce;
    r->mean = node->op == SY_OP_REDUCE_MEAN;
    r->rank = x->rank;
    memcpy(r->dims, x->dims, sizeof r->dims);
    sy_cuda_strides(x, r->strides);
    for (int i = 0; axes && i < axes->n; i++)
        if (axes->ints[i] >= 0 && axes->ints[i] < x->rank)
            r->reduced[axes->ints[i]] = true;
    return SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_norm[] = {
    {.build = build_layer_norm, SY_OPS(SY_OP_LAYER_NORM, SY_OP_SKIP_LAYER_NORM)},
    {.build = build_batch_norm, SY_OPS(SY_OP_BATCH_NORM)},
    {.build = build_softmax, SY_OPS(SY_OP_SOFTMAX, SY_OP_LOG_SOFTMAX)},
    {.build = build_reduce, SY_OPS(SY_OP_REDUCE_MEAN, SY_OP_REDUCE_SUM)},
    {0}};

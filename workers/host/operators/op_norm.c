/* Normalisation, softmax and reductions. */
#include <math.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/channel_layout.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/reduce_rows.h"
#include "workers/host/rows/row_kernels.h"
#include "workers/host/rows/softmax_rows.h"

static int64_t product(const int64_t *dims, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++)
        n *= dims[i];
    return n;
}

/* ---- layer norm ------------------------------------------------------------------------------------------ */

/* args: x, y (or x), scale, bias (or -1), out, sum (or -1), out as bf16 (or -1) */
static int run_layer_norm(struct sy_program *p, struct sy_step *step)
{
    const struct sy_step_arg *a = step->args;
    struct sy_layer_norm n = {
        .rows = step->numbers[0],
        .columns = step->numbers[1],
        .epsilon = step->floats[0],
        .root = step->numbers[2],
        .x = sy_program_pointer(p, a[0].value),
        .skip = a[1].value >= 0 ? sy_program_pointer(p, a[1].value) : NULL,
        .scale = sy_program_pointer(p, a[2].value),
        .bias = a[3].value >= 0 ? sy_program_pointer(p, a[3].value) : NULL,
        .out = sy_program_pointer(p, a[4].value),
        .sum = a[5].value >= 0 ? sy_program_pointer(p, a[5].value) : NULL,
        .narrow = a[6].value >= 0 ? sy_program_pointer(p, a[6].value) : NULL,
    };
    sy_row_layer_norm(&n);
    return SY_OK;
}

/* Scale and bias have one number for each that is normalised together. */
static bool is_whole_scale(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t x[SY_MAX_RANK], dims[SY_MAX_RANK];
    int rank = sy_program_input_tensor(p, 0)->shape.rank, axis = (int)sy_node_int(node, "axis", -1);
    sy_program_dims(p, node->inputs[0], x);
    axis = axis < 0 ? axis + rank : axis;
    for (int i = 1; i < 3; i++) {
        if (i >= node->n_inputs || node->inputs[i] < 0)
            continue;
        sy_program_dims(p, node->inputs[i], dims);
        if (product(dims, 0, sy_program_input_tensor(p, i)->shape.rank) != product(x, axis, rank))
            return false;
    }
    return node->n_inputs > 1 && axis >= 0;
}

static int build_layer_norm(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    bool skips = node->op == SY_OP_SKIP_LAYER_NORM;
    int values[7] = {-1, -1, -1, -1, -1, -1, -1}, at = 0;
    if (!skips && (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || node->n_outputs > 1 ||
                   !is_whole_scale(p)))
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_plain(p, at++, &values[0]));
    if (skips)
        SY_TRY(sy_program_input_plain(p, at++, &values[1]));
    SY_TRY(sy_program_input_plain(p, at++, &values[2]));
    if (at < node->n_inputs && node->inputs[at] >= 0)
        SY_TRY(sy_program_input_plain(p, at, &values[3]));
    const struct sy_value x = p->values[values[0]];
    if (x.dtype != SY_DTYPE_F32 || (skips && p->values[values[1]].bytes != x.bytes))
        return sy_unsupported(node, "only float32, and sums of equal shapes");
    int axis = (int)sy_node_int(node, "axis", -1);
    axis = axis < 0 ? axis + x.rank : axis;
    int64_t columns = product(x.dims, axis, x.rank);
    if (p->values[values[2]].bytes != (uint64_t)columns * sizeof(float) ||
        (values[3] >= 0 && p->values[values[3]].bytes != (uint64_t)columns * sizeof(float)))
        return sy_unsupported(node, "a scale or bias of another size than what is normalised");
    SY_TRY(sy_program_output_plain(p, 0, &values[4]));
    if (skips && node->n_outputs > 1 && node->outputs[node->n_outputs - 1] >= 0)
        SY_TRY(sy_program_output_plain(p, node->n_outputs - 1, &values[5]));
    if (sy_program_wanted(p, 0) & SY_WANT_NARROW) {
        SY_TRY(sy_program_new_narrow(p, node->outputs[0], &values[6]));
        p->narrow[node->outputs[0]] = values[6];
    }
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_layer_norm, values, 7, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){sy_node_float(node, "epsilon", 1e-5f)}, 1));
    return sy_step_set_numbers(
        step, (int64_t[]){product(x.dims, 0, axis), columns, node->op == SY_OP_RMS_NORM}, 3);
}

/* ---- batch norm ------------------------------------------------------------------------------------------ */

static int run_batch_norm(struct sy_program *p, struct sy_step *step)
{
    const float *in[5];
    for (int i = 0; i < 5; i++)
        in[i] = sy_program_pointer(p, step->args[i].value);
    sy_row_batch_norm(step->numbers[0], step->numbers[1], step->numbers[2], step->floats[0], in,
                      sy_program_pointer(p, step->args[5].value));
    return SY_OK;
}

static int build_batch_norm(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int values[6];
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 ||
        sy_node_int(node, "training_mode", 0) != 0)
        return sy_program_add_kernel(p);
    for (int i = 0; i < 5; i++)
        SY_TRY(sy_program_input_plain(p, i, &values[i]));
    const struct sy_value x = p->values[values[0]];
    if (x.dtype != SY_DTYPE_F32 || x.rank < 2)
        return sy_unsupported(node, "only float32 of two dimensions and more");
    for (int i = 1; i < 5; i++)
        if (p->values[values[i]].bytes != (uint64_t)x.dims[1] * sizeof(float))
            return sy_unsupported(node, "a parameter that has not one float per channel");
    SY_TRY(sy_program_output_plain(p, 0, &values[5]));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_batch_norm, values, 6, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){sy_node_float(node, "epsilon", 1e-5f)}, 1));
    return sy_step_set_numbers(step, (int64_t[]){x.dims[0], x.dims[1], product(x.dims, 2, x.rank)},
                               3);
}

/* ---- instance and group norm ----------------------------------------------------------------------------- */

static int run_group_norm(struct sy_program *p, struct sy_step *step)
{
    const int64_t *numbers = step->numbers;
    sy_row_group_norm(&(struct sy_group_norm){
        .images = numbers[0],
        .channels = numbers[1],
        .groups = numbers[2],
        .spatial = numbers[3],
        .per_group = numbers[4],
        .channels_last = numbers[5],
        .epsilon = step->floats[0],
        .x = sy_program_pointer(p, step->args[0].value),
        .scale = sy_program_pointer(p, step->args[1].value),
        .bias = sy_program_pointer(p, step->args[2].value),
        .out = sy_program_pointer(p, step->args[3].value),
    });
    return SY_OK;
}

/* Other forms are left to the kernel, which rejects them by name. */
static bool is_group_norm_of_floats(const struct sy_program *p, int64_t groups)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t x[SY_MAX_RANK], of[SY_MAX_RANK];
    if (node->n_inputs != 3 || groups < 1 || sy_program_input_tensor(p, 0)->shape.rank < 3)
        return false;
    sy_program_dims(p, node->inputs[0], x);
    for (int i = 0; i < 3; i++)
        if (node->inputs[i] < 0 || sy_program_input_tensor(p, i)->dtype != SY_DTYPE_F32)
            return false;
    for (int i = 1; i < 3; i++) {
        sy_program_dims(p, node->inputs[i], of);
        if (sy_program_input_tensor(p, i)->shape.rank != 1 ||
            (of[0] != x[1] && (of[0] != groups || node->op != SY_OP_GROUP_NORM)))
            return false;
    }
    return x[1] % groups == 0;
}

/* One group is all numbers of an image, in whatever order; bringing it into rows and back took as long as the norm. */
static bool takes_channels_last(const struct sy_program *p, const int *values, int64_t channels,
                                int64_t groups)
{
    const struct sy_value *x = &p->values[values[0]];
    return groups == 1 && p->values[values[1]].dims[0] == channels && !sy_value_is_narrow(x) &&
           sy_channel_layout_of(x) == SY_CHANNELS_LAST;
}

static int build_group_norm(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t dims[SY_MAX_RANK], groups;
    int values[4];
    sy_program_dims(p, node->inputs[0], dims);
    groups = node->op == SY_OP_GROUP_NORM ? sy_node_int(node, "num_groups", 0) : dims[1];
    if (!is_group_norm_of_floats(p, groups))
        return sy_program_add_kernel(p);
    for (int i = 1; i < 3; i++)
        SY_TRY(sy_program_input_plain(p, i, &values[i]));
    SY_TRY(sy_program_input_native(p, 0, &values[0]));
    bool last = takes_channels_last(p, values, dims[1], groups);
    if (last) {
        dnnl_memory_desc_t md = p->values[values[0]].md;
        SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &md, &values[3]));
        sy_program_set_output(p, 0, values[3]);
    } else {
        SY_TRY(sy_program_input_plain(p, 0, &values[0]));
        SY_TRY(sy_program_output_plain(p, 0, &values[3]));
    }
    const struct sy_value *x = &p->values[values[0]], *scale = &p->values[values[1]];
    if (scale->bytes != p->values[values[2]].bytes)
        return sy_unsupported(node, "a scale and a bias of different sizes");
    int64_t numbers[] = {
        dims[0], dims[1], groups, product(dims, 2, x->rank), scale->dims[0] != dims[1], last};
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_group_norm, values, 4, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){sy_node_float(node, "epsilon", 1e-5f)}, 1));
    return sy_step_set_numbers(step, numbers, SY_ARRAY_LEN(numbers));
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

static int run_softmax(struct sy_program *p, struct sy_step *step)
{
    const int64_t *numbers = step->numbers;
    sy_softmax_rows(numbers[0] != 0, &(struct sy_reduce_shape){numbers[1], numbers[2], numbers[3]},
                    sy_program_pointer(p, step->args[0].value),
                    sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

static int build_softmax(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int src, dst;
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || sy_node_int(node, "flat", 0))
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_plain(p, 0, &src));
    int axis = (int)sy_node_int(node, "axis", -1), rank = p->values[src].rank;
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank || product(p->values[src].dims, 0, rank) == 0)
        return sy_program_add_kernel(p);
    dnnl_memory_desc_t md = p->values[src].md;
    /* An output is written right there: over the input it would be copied (P8). */
    if (sy_program_is_last_use(p, 0, src) && !sy_graph_is_output(p->graph, node->outputs[0]))
        SY_TRY(sy_program_new_alias(p, src, node->outputs[0], &md, &dst));
    else
        SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &md, &dst));
    sy_program_set_output(p, 0, dst);
    const int64_t *dims = p->values[src].dims;
    int64_t numbers[] = {node->op == SY_OP_LOG_SOFTMAX, product(dims, 0, axis), dims[axis],
                         product(dims, axis + 1, rank)};
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_softmax, (int[]){src, dst}, 2, &step));
    return sy_step_set_numbers(step, numbers, SY_ARRAY_LEN(numbers));
}

/* ---- reductions ------------------------------------------------------------------------------------------ */

/* The dimensions of output 0; its rank, -1 if it is left out. */
static int output_dims(const struct sy_program *p, int64_t *dims)
{
    const struct sy_node *node = sy_program_node(p);
    if (node->n_outputs < 1 || node->outputs[0] < 0)
        return -1;
    sy_program_dims(p, node->outputs[0], dims);
    return p->graph->tensors[node->outputs[0]].shape.rank;
}

/* Without the dimensions of 1: those that are reduced lie together, and nothing is empty. */
static bool collapses(const struct sy_reduction *r, struct sy_reduce_shape *out)
{
    int64_t extents[3] = {1, 1, 1};
    int at = 0;
    for (int64_t d = 0; d < r->rank; d++) {
        if (r->dims[d] == 0 || (r->dims[d] > 1 && r->reduced[d] && at == 2))
            return false;
        if (r->dims[d] == 1)
            continue;
        at = r->reduced[d] ? 1 : at ? 2 : 0;
        extents[at] *= r->dims[d];
    }
    *out = (struct sy_reduce_shape){extents[0], extents[1], extents[2]};
    return true;
}

static int run_reduce_rows(struct sy_program *p, struct sy_step *step)
{
    const int64_t *numbers = step->numbers;
    sy_reduce_rows(
        (enum sy_op)numbers[0], &(struct sy_reduce_shape){numbers[1], numbers[2], numbers[3]},
        sy_program_pointer(p, step->args[0].value), sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

static int run_reduce_any(struct sy_program *p, struct sy_step *step)
{
    sy_reduce_any((enum sy_op)step->numbers[0], (const struct sy_reduction *)&step->numbers[1],
                  sy_program_pointer(p, step->args[0].value),
                  sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

/* A step from input 0 to output 0. */
static int add_row_step(struct sy_program *p, sy_step_run run, const int64_t *numbers, int n)
{
    int src, dst;
    SY_TRY(sy_program_input_plain(p, 0, &src));
    SY_TRY(sy_program_output_plain(p, 0, &dst));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run, (int[]){src, dst}, 2, &step));
    return sy_step_set_numbers(step, numbers, n);
}

static int build_reduce(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    struct sy_reduction r = {.rank = 0};
    struct sy_reduce_shape s;
    int64_t out[SY_MAX_RANK], results = 1;
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || node->n_inputs > 1)
        return sy_program_add_kernel(p);
    r.rank = sy_program_input_tensor(p, 0)->shape.rank;
    sy_program_dims(p, node->inputs[0], r.dims);
    for (int i = 0; axes && i < axes->n; i++)
        if (axes->ints[i] >= 0 && axes->ints[i] < r.rank)
            r.reduced[axes->ints[i]] = 1;
    for (int64_t d = 0; d < r.rank; d++)
        results *= r.reduced[d] ? 1 : r.dims[d];
    int rank = output_dims(p, out);
    if (rank >= 0 && collapses(&r, &s) && sy_reduce_rows_has(node->op) &&
        product(out, 0, rank) == s.outer * s.inner)
        return add_row_step(p, run_reduce_rows, (int64_t[]){node->op, s.outer, s.reduced, s.inner},
                            4);
    if (!sy_reduce_any_has(node->op) || rank < 0 || product(out, 0, rank) != results)
        return sy_program_add_kernel(p);
    _Static_assert(sizeof r % sizeof(int64_t) == 0, "stored as numbers");
    int64_t numbers[1 + sizeof r / sizeof(int64_t)] = {node->op};
    memcpy(&numbers[1], &r, sizeof r);
    return add_row_step(p, run_reduce_any, numbers, SY_ARRAY_LEN(numbers));
}

static int run_arg_rows(struct sy_program *p, struct sy_step *step)
{
    const int64_t *numbers = step->numbers;
    sy_arg_rows(numbers[0] != 0, numbers[1] != 0,
                &(struct sy_reduce_shape){numbers[2], numbers[3], numbers[4]},
                sy_program_pointer(p, step->args[0].value),
                sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

/* Other forms are left to the kernel, which rejects them by name. */
static int build_arg(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t x[SY_MAX_RANK], y[SY_MAX_RANK];
    int rank = sy_program_input_tensor(p, 0)->shape.rank, axis = (int)sy_node_int(node, "axis", -1);
    axis = axis < 0 ? axis + rank : axis;
    sy_program_dims(p, node->inputs[0], x);
    int y_rank = output_dims(p, y);
    if (y_rank < 0 || sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || axis < 0 ||
        axis >= rank || p->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_I64 ||
        product(x, 0, rank) == 0 || x[axis] > INT32_MAX ||
        product(y, 0, y_rank) * x[axis] != product(x, 0, rank))
        return sy_program_add_kernel(p);
    int64_t numbers[] = {node->op == SY_OP_ARG_MIN, sy_node_int(node, "select_last_index", 0),
                         product(x, 0, axis), x[axis], product(x, axis + 1, rank)};
    return add_row_step(p, run_arg_rows, numbers, SY_ARRAY_LEN(numbers));
}

const struct sy_host_op sy_host_ops_norm[] = {
    {.build = build_layer_norm, SY_OPS(SY_OP_LAYER_NORM, SY_OP_SKIP_LAYER_NORM, SY_OP_RMS_NORM)},
    {.build = build_batch_norm, SY_OPS(SY_OP_BATCH_NORM)},
    {.build = build_group_norm, SY_OPS(SY_OP_INSTANCE_NORM, SY_OP_GROUP_NORM)},
    {.build = build_softmax, SY_OPS(SY_OP_SOFTMAX, SY_OP_LOG_SOFTMAX)},
    {.build = build_reduce,
     SY_OPS(SY_OP_REDUCE_MEAN, SY_OP_REDUCE_SUM, SY_OP_REDUCE_MAX, SY_OP_REDUCE_MIN,
            SY_OP_REDUCE_PROD, SY_OP_REDUCE_L1, SY_OP_REDUCE_L2, SY_OP_REDUCE_LOG_SUM,
            SY_OP_REDUCE_SUM_SQUARE, SY_OP_REDUCE_LOG_SUM_EXP)},
    {.build = build_arg, SY_OPS(SY_OP_ARG_MAX, SY_OP_ARG_MIN)},
    {0}};

/* Operators by what training brought along (device_math_train.h): curves, comparisons, reductions, normalisations over groups, Tile,
 * blocks. All take and give float32, row-major but for curves. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

static int need_float(struct sy_program *p, int n)
{
    for (int i = 0; i < n; i++)
        if (i >= sy_cuda_node(p)->n_inputs || sy_cuda_node(p)->inputs[i] < 0 ||
            sy_cuda_input_tensor(p, i)->dtype != SY_DTYPE_F32)
            return sy_unsupported(sy_cuda_node(p), "only float32");
    return SY_OK;
}

/* ---- curves, comparisons ------------------------------------------------------------------------------ */

static int run_curve(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->train->curve(p->math, &step->curve, sy_cuda_pointer(p, step->args[0]),
                                sy_cuda_pointer(p, step->args[1]));
}

static int build_curve(struct sy_program *p)
{
    struct sy_cuda_step *step;
    int values[2];
    SY_TRY(need_float(p, 1));
    SY_TRY(sy_cuda_input_wide(p, 0, &values[0]));
    SY_TRY(sy_cuda_output_over(p, 0, values[0], SY_DTYPE_F32, &values[1]));
    SY_TRY(sy_cuda_add_step(p, run_curve, values, 2, &step));
    sy_curve_read(sy_cuda_node(p), &step->curve.of);
    step->curve.n = sy_cuda_count(&p->values[values[1]]);
    return SY_OK;
}

/* args: a, b, y */
static int run_pair(struct sy_program *p, const struct sy_cuda_step *step)
{
    bool compares = p->values[step->args[2]].dtype == SY_DTYPE_BOOL;
    return (compares ? p->ops->train->compare : p->ops->train->pair)(
        p->math, &step->pair, sy_cuda_pointer(p, step->args[0]), sy_cuda_pointer(p, step->args[1]),
        sy_cuda_pointer(p, step->args[2]));
}

static int build_pair(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_pair pair = {.op = node->op};
    struct sy_cuda_step *step;
    int64_t out[SY_MAX_RANK];
    int values[3];
    SY_TRY(need_float(p, 2));
    SY_TRY(sy_cuda_input_plain(p, 0, &values[0]));
    SY_TRY(sy_cuda_input_plain(p, 1, &values[1]));
    SY_TRY(sy_cuda_output(p, 0, false, &values[2]));
    const struct sy_cuda_value *y = &p->values[values[2]];
    pair.rank = y->rank;
    memcpy(pair.dims, y->dims, sizeof pair.dims);
    sy_cuda_strides(y, out);
    SY_TRY(sy_cuda_broadcast(p, values[0], values[2], pair.a_strides));
    SY_TRY(sy_cuda_broadcast(p, values[1], values[2], pair.b_strides));
    pair.rank = sy_cuda_collapse(pair.rank, pair.dims,
                                 (int64_t *[]){out, pair.a_strides, pair.b_strides}, 3);
    SY_TRY(sy_cuda_add_step(p, run_pair, values, 3, &step));
    step->pair = pair;
    return SY_OK;
}

/* ---- reductions --------------------------------------------------------------------------------------- */

static int run_reduction(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->train->reduction(p->math, &step->reduction, sy_cuda_pointer(p, step->args[0]),
                                    sy_cuda_pointer(p, step->args[1]));
}

static int build_fold(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    struct sy_train_reduction f = {.op = node->op, .n_out = 1, .n_each = 1};
    struct sy_cuda_step *step;
    bool reduced[SY_MAX_RANK] = {false};
    int64_t stride = 1;
    int values[2];
    SY_TRY(need_float(p, 1));
    if (node->n_inputs > 1)
        return sy_unsupported(node, "axes that are known at run only");
    SY_TRY(sy_cuda_input_plain(p, 0, &values[0]));
    SY_TRY(sy_cuda_output(p, 0, false, &values[1]));
    const struct sy_cuda_value *x = &p->values[values[0]];
    for (int i = 0; i < x->rank; i++)
        reduced[i] = !axes;
    for (int i = 0; axes && i < axes->n; i++)
        if (axes->ints[i] >= -x->rank && axes->ints[i] < x->rank)
            reduced[axes->ints[i] + (axes->ints[i] < 0 ? x->rank : 0)] = true;
    for (int i = x->rank - 1; i >= 0; i--) {
        int *n = reduced[i] ? &f.n_reduced : &f.n_kept;
        (reduced[i] ? f.reduced : f.kept)[*n] = x->dims[i];
        (reduced[i] ? f.reduced_strides : f.kept_strides)[(*n)++] = stride;
        *(reduced[i] ? &f.n_each : &f.n_out) *= x->dims[i];
        stride *= x->dims[i];
    }
    if (f.n_out != sy_cuda_count(&p->values[values[1]]) || f.n_each < 1)
        return sy_unsupported(node, "a result of another size, or of nothing");
    SY_TRY(sy_cuda_add_step(p, run_reduction, values, 2, &step));
    step->reduction = f;
    return SY_OK;
}

/* ---- normalisations over groups ------------------------------------------------------------------------
 *
 * Seen as [batch, groups, members, plane]: each (batch, group) by its own mean and deviation, each channel (group, member) by its scale. */

/* args: x, mean, rate */
static int run_moments(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->train->row_moments(p->math, &step->rows, sy_cuda_pointer(p, step->args[0]),
                                      sy_cuda_pointer(p, step->args[1]),
                                      sy_cuda_pointer(p, step->args[2]));
}

int sy_cuda_seen_as(struct sy_program *p, int value, const int64_t *dims, int rank, int *out)
{
    SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, rank, dims, false, out));
    if (p->values[*out].bytes != p->values[value].bytes)
        return sy_unsupported(sy_cuda_node(p), "a scale or bias that does not fit the "
                                               "channels");
    sy_cuda_share_bytes(p, *out, value);
    return SY_OK;
}

static int read_groups(struct sy_program *p, int64_t *dims)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t x[SY_MAX_RANK];
    int rank = sy_cuda_input_tensor(p, 0)->shape.rank;
    sy_cuda_dims(p, node->inputs[0], x);
    for (int i = 0; i < 4; i++)
        dims[i] = 1;
    if (node->op == SY_OP_RMS_NORM) {
        int64_t axis = sy_node_int(node, "axis", -1);
        axis += axis < 0 ? rank : 0;
        if (axis < 0 || axis >= rank)
            return sy_unsupported(node, "an axis that the input does not have");
        for (int i = 0; i < rank; i++)
            dims[i < axis ? 0 : 2] *= x[i];
        return SY_OK;
    }
    if (rank < 2)
        return sy_unsupported(node, "an input without channels");
    dims[0] = x[0];
    dims[1] = node->op == SY_OP_GROUP_NORM ? sy_node_int(node, "num_groups", 1) : x[1];
    if (dims[1] < 1 || x[1] % dims[1])
        return sy_unsupported(node, "channels that the groups do not divide");
    dims[2] = x[1] / dims[1];
    for (int i = 2; i < rank; i++)
        dims[3] *= x[i];
    return SY_OK;
}

/* A number for each channel, or for each group. */
static int channel_value(struct sy_program *p, int input, const int64_t *dims, int *out)
{
    int64_t channel[3] = {dims[1], dims[2], 1};
    int value;
    SY_TRY(sy_cuda_input_plain(p, input, &value));
    if (sy_cuda_count(&p->values[value]) == dims[1])
        channel[1] = 1;
    return sy_cuda_seen_as(p, value, channel, 3, out);
}

static int build_groups(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_chain chain = {.n_inputs = 4};
    struct sy_cuda_step *step;
    int64_t dims[4];
    int values[5], x, y, out;
    SY_TRY(need_float(p, 2));
    SY_TRY(read_groups(p, dims));
    const int64_t rows[4] = {dims[0], dims[1], 1, 1};
    SY_TRY(sy_cuda_input_plain(p, 0, &x));
    SY_TRY(sy_cuda_output(p, 0, false, &y));
    SY_TRY(sy_cuda_seen_as(p, x, dims, 4, &values[0]));
    SY_TRY(sy_cuda_seen_as(p, y, dims, 4, &out));
    SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, 4, rows, false, &values[1]));
    SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, 4, rows, false, &values[2]));
    SY_TRY(channel_value(p, 1, dims, &values[3]));
    SY_TRY(sy_cuda_add_step(p, run_moments, values, 3, &step));
    step->rows = (struct sy_math_rows){.rows = dims[0] * dims[1],
                                       .columns = dims[2] * dims[3],
                                       .epsilon = sy_node_float(node, "epsilon", 1e-5f),
                                       .is_rms = node->op == SY_OP_RMS_NORM};
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_SUB, 1, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_MUL, 2, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_MUL, 3, 0, 0);
    if (sy_node_input(node, 2) >= 0) {
        SY_TRY(channel_value(p, 2, dims, &values[4]));
        sy_cuda_chain_add(&chain, SY_CHAIN_ADD, 4, 0, 0);
        chain.n_inputs = 5;
    }
    return sy_cuda_add_chain(p, &chain, values, out);
}

/* ---- Tile, DepthToSpace, SpaceToDepth ----------------------------------------------------------------- */

static int build_tile(struct sy_program *p)
{
    struct sy_math_move move = {0};
    int64_t stride = 1, x_strides[SY_MAX_RANK], y_strides[SY_MAX_RANK];
    int src, dst;
    if (sy_cuda_node(p)->n_inputs > 1)
        return sy_unsupported(sy_cuda_node(p), "repeats that are known at run only");
    SY_TRY(sy_cuda_input_rows(p, 0, &src));
    SY_TRY(sy_cuda_output_as(p, 0, p->values[src].dtype, false, &dst));
    const struct sy_cuda_value *x = &p->values[src], *y = &p->values[dst];
    move.element_bytes = (int64_t)sy_dtype_bytes(x->dtype);
    sy_cuda_strides(x, x_strides);
    for (int i = y->rank - 1; i >= 0; i--) {
        y_strides[i] = stride;
        stride *= y->dims[i];
    }
    for (int i = 0; i < x->rank; i++) {
        bool repeated = y->dims[i] != x->dims[i];
        if (move.rank + 1 + repeated > SY_MAX_RANK || x->dims[i] < 1 || y->dims[i] % x->dims[i])
            return sy_unsupported(sy_cuda_node(p), "so many repeated dimensions");
        if (repeated) {
            move.dims[move.rank] = y->dims[i] / x->dims[i];
            move.to_strides[move.rank++] = y_strides[i] * x->dims[i];
        }
        move.dims[move.rank] = x->dims[i];
        move.from_strides[move.rank] = x_strides[i];
        move.to_strides[move.rank++] = y_strides[i];
    }
    return sy_cuda_add_move(p, &move, src, dst);
}

/* Depth [N, (b, b, C) or (C, b, b), H, W] and space [N, C, (H, b), (W, b)], both seen as [N, C, H, b, W, b]. */
static int build_blocks(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *mode = sy_node_attr(node, "mode");
    bool to_space = node->op == SY_OP_DEPTH_TO_SPACE;
    int64_t b = sy_node_int(node, "blocksize", 1);
    int src, dst;
    SY_TRY(sy_cuda_input_rows(p, 0, &src));
    SY_TRY(sy_cuda_output_as(p, 0, p->values[src].dtype, false, &dst));
    const struct sy_cuda_value *depth = &p->values[to_space ? src : dst];
    if (depth->rank != 4 || b < 1 || depth->dims[1] % (b * b))
        return sy_unsupported(node, "other than four dimensions and whole blocks");
    int64_t channels = depth->dims[1] / (b * b), h = depth->dims[2], w = depth->dims[3];
    bool channel_first = to_space && mode && mode->s && strcmp(mode->s, "CRD") == 0;
    int64_t channel = channel_first ? b * b * h * w : h * w,
            step = channel_first ? h * w : channels * h * w;
    const int64_t deep[6] = {channels * b * b * h * w, channel, w, b * step, 1, step},
                  wide[6] = {channels * b * b * h * w, b * b * h * w, b * b * w, b * w, b, 1};
    struct sy_math_move move = {.element_bytes = (int64_t)sy_dtype_bytes(depth->dtype),
                                .rank = 6,
                                .dims = {depth->dims[0], channels, h, b, w, b}};
    memcpy(to_space ? move.from_strides : move.to_strides, deep, sizeof deep);
    memcpy(to_space ? move.to_strides : move.from_strides, wide, sizeof wide);
    return sy_cuda_add_move(p, &move, src, dst);
}

const struct sy_cuda_op sy_cuda_ops_more[] = {
    {.build = build_curve,
     SY_OPS(SY_OP_CELU, SY_OP_SELU, SY_OP_SOFTPLUS, SY_OP_SOFTSIGN, SY_OP_MISH, SY_OP_SHRINK,
            SY_OP_THRESHOLDED_RELU, SY_OP_SIN, SY_OP_COS, SY_OP_TAN, SY_OP_ASIN, SY_OP_ACOS,
            SY_OP_ATAN, SY_OP_SINH, SY_OP_COSH, SY_OP_ASINH, SY_OP_ACOSH, SY_OP_ATANH)},
    {.build = build_pair,
     SY_OPS(SY_OP_PRELU, SY_OP_GREATER, SY_OP_GREATER_OR_EQUAL, SY_OP_LESS, SY_OP_LESS_OR_EQUAL)},
    {.build = build_fold,
     SY_OPS(SY_OP_REDUCE_MAX, SY_OP_REDUCE_MIN, SY_OP_REDUCE_PROD, SY_OP_REDUCE_L1, SY_OP_REDUCE_L2,
            SY_OP_REDUCE_LOG_SUM, SY_OP_REDUCE_LOG_SUM_EXP, SY_OP_REDUCE_SUM_SQUARE)},
    {.build = build_groups, SY_OPS(SY_OP_RMS_NORM, SY_OP_INSTANCE_NORM, SY_OP_GROUP_NORM)},
    {.build = build_tile, SY_OPS(SY_OP_TILE)},
    {.build = build_blocks, SY_OPS(SY_OP_DEPTH_TO_SPACE, SY_OP_SPACE_TO_DEPTH)},
    {0}};

/* Operators that move elements: Transpose, Slice, Split, Concat, Expand, Pad, Tile, blocks, Gather. Their gradients move the other way. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

static int64_t axis_of(const struct sy_node *node, int rank)
{
    int64_t axis = sy_node_int(node, "axis", 0);
    return axis < 0 ? axis + rank : axis;
}

/* ---- strided moves ------------------------------------------------------------------------------------ */

static int describe_slice(const struct sy_node *node, int rank, const int64_t *strides,
                          struct sy_math_move *m)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes"), *starts = sy_node_attr(node, "starts"),
                         *steps = sy_node_attr(node, "steps");
    memcpy(m->from_strides, strides, (size_t)rank * sizeof *strides);
    if (!axes || !starts || starts->n < axes->n)
        return sy_cutr_refuse(node, "its bounds are not known");
    for (int i = 0; i < axes->n; i++) {
        int64_t axis = axes->ints[i] + (axes->ints[i] < 0 ? rank : 0);
        m->from_offset += starts->ints[i] * strides[axis];
        m->from_strides[axis] = strides[axis] * (steps && i < steps->n ? steps->ints[i] : 1);
    }
    return SY_OK;
}

/* The input lies inside the output (cuda_train_generic.c has the others). */
static int describe_pad(const struct sy_node *node, int rank, const int64_t *from,
                        const int64_t *from_strides, struct sy_math_move *m)
{
    const struct sy_attr *pads = sy_node_ints(node, "pads", 2 * rank);
    if (!pads)
        return sy_cutr_refuse(node, "pads that are not known");
    memcpy(m->from_strides, from_strides, (size_t)rank * sizeof *from_strides);
    memcpy(m->dims, from, (size_t)rank * sizeof *from);
    for (int i = 0; i < rank; i++)
        m->to_offset += pads->ints[i] * m->to_strides[i];
    return SY_OK;
}

/* Depth [N, (b, b, C) or (C, b, b), H, W] and space [N, C, (H, b), (W, b)], both seen as [N, C, H, b, W, b]. */
static int describe_blocks(const struct sy_node *node, int rank, const int64_t *from,
                           struct sy_math_move *m)
{
    const struct sy_attr *mode = sy_node_attr(node, "mode");
    bool to_space = node->op == SY_OP_DEPTH_TO_SPACE;
    int64_t b = sy_node_int(node, "blocksize", 1);
    if (rank != 4 || b < 1)
        return sy_cutr_refuse(node, "other than four dimensions and whole blocks");
    int64_t channels = to_space ? from[1] / (b * b) : from[1], h = to_space ? from[2] : from[2] / b,
            w = to_space ? from[3] : from[3] / b, plane = h * w;
    bool channel_first = to_space && mode && mode->s && strcmp(mode->s, "CRD") == 0;
    int64_t channel = channel_first ? b * b * plane : plane,
            step = channel_first ? plane : channels * plane;
    const int64_t dims[6] = {from[0], channels, h, b, w, b},
                  depth[6] = {channels * b * b * plane, channel, w, b * step, 1, step};
    m->rank = 6;
    memcpy(m->dims, dims, sizeof dims);
    sy_row_major_strides(6, dims, to_space ? m->to_strides : m->from_strides);
    memcpy(to_space ? m->from_strides : m->to_strides, depth, sizeof depth);
    return SY_OK;
}

/* Offset of part `which` along the axis. */
static int64_t part_offset(const struct sy_trainer *t, const int *tensors, int which, int64_t axis)
{
    int64_t dims[SY_MAX_RANK], at = 0;
    for (int i = 0; i < which; i++)
        if (tensors[i] >= 0 && sy_cutr_dims(t, tensors[i], dims) > axis)
            at += dims[axis];
    return at;
}

/* Copies from input number `in` to output number `out`. */
static int describe(const struct sy_trainer *t, const struct sy_node *node, int in, int out,
                    struct sy_math_move *m)
{
    int64_t from[SY_MAX_RANK], strides[SY_MAX_RANK];
    int from_rank = sy_cutr_dims(t, node->inputs[in], from);
    SY_TRY(from_rank);
    *m = (struct sy_math_move){.rank = sy_cutr_dims(t, node->outputs[out], m->dims)};
    int rank = sy_cutr_dims(t, node->outputs[out], m->dims);
    SY_TRY(rank);
    int64_t axis = axis_of(node, rank);
    sy_row_major_strides(from_rank, from, strides);
    sy_row_major_strides(rank, m->dims, m->to_strides);
    switch (node->op) {
    case SY_OP_TRANSPOSE: {
        const struct sy_attr *perm = sy_node_ints(node, "perm", rank);
        for (int i = 0; i < rank; i++)
            m->from_strides[i] = strides[perm ? perm->ints[i] : rank - 1 - i];
        return SY_OK;
    }
    case SY_OP_SLICE:
        return describe_slice(node, rank, strides, m);
    case SY_OP_PAD:
        return describe_pad(node, rank, from, strides, m);
    case SY_OP_DEPTH_TO_SPACE:
    case SY_OP_SPACE_TO_DEPTH:
        return describe_blocks(node, from_rank, from, m);
    case SY_OP_EXPAND:
        for (int i = 0; i < from_rank; i++)
            m->from_strides[rank - from_rank + i] = from[i] == 1 ? 0 : strides[i];
        return SY_OK;
    case SY_OP_SPLIT:
        memcpy(m->from_strides, strides, sizeof strides);
        m->from_offset = part_offset(t, node->outputs, out, axis) * strides[axis];
        return SY_OK;
    default: /* Concat */
        memcpy(m->from_strides, strides, sizeof strides);
        memcpy(m->dims, from, sizeof from);
        m->to_offset = part_offset(t, node->inputs, in, axis) * m->to_strides[axis];
        return SY_OK;
    }
}

/* Reverses a move: swaps source and destination. */
static void turn(struct sy_math_move *m)
{
    struct sy_math_move there = *m;
    memcpy(m->from_strides, there.to_strides, sizeof there.to_strides);
    memcpy(m->to_strides, there.from_strides, sizeof there.from_strides);
    m->from_offset = there.to_offset;
    m->to_offset = there.from_offset;
}

/* The type of moved elements: bfloat16 if all inputs are. A pad's value is float32. */
static enum sy_dtype moved_type(const struct sy_trainer *t, const struct sy_node *node)
{
    int n_in = node->op == SY_OP_CONCAT ? node->n_inputs : 1;
    enum sy_dtype type = t->graph->tensors[node->inputs[0]].dtype;
    for (int i = 0; i < n_in && type == SY_DTYPE_F32; i++) {
        int value = t->tensors[node->inputs[i]].value;
        if (node->op == SY_OP_PAD || value < 0 || t->values[value].dtype != SY_DTYPE_BF16)
            return SY_DTYPE_F32;
    }
    return type == SY_DTYPE_F32 ? SY_DTYPE_BF16 : type;
}

int sy_cutr_move_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    enum sy_dtype type = moved_type(t, node);
    struct sy_math_move move;
    int x, y;
    for (int o = 0; o < node->n_outputs; o++) {
        if (node->outputs[o] < 0)
            continue;
        SY_TRY(sy_cutr_result_typed(t, node->outputs[o], false, type, &y));
        if (node->op == SY_OP_PAD)
            SY_TRY(sy_cutr_fill(t, SY_CUTR_FORWARD, node->name, y,
                                sy_node_float(node, "value", 0.0f)));
        int n_in = node->op == SY_OP_CONCAT ? node->n_inputs : 1;
        for (int i = 0; i < n_in; i++) {
            if (sy_cutr_elements(t, node->inputs[i]) < 1)
                continue;
            SY_TRY(describe(t, node, i, o, &move));
            SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[i], SY_CUTR_PLAIN, type,
                                         &x));
            SY_TRY(sy_cutr_move(t, SY_CUTR_FORWARD, node->name, &move, x, y));
        }
    }
    return SY_OK;
}

/* bfloat16 if the gradients of all outputs are. */
static enum sy_dtype gradient_type(const struct sy_trainer *t, const struct sy_node *node)
{
    for (int o = 0; o < node->n_outputs; o++) {
        int value = node->outputs[o] < 0 ? -1 : t->tensors[node->outputs[o]].gradient;
        if (value >= 0 && t->values[value].dtype != SY_DTYPE_BF16)
            return SY_DTYPE_F32;
    }
    return SY_DTYPE_BF16;
}

/* One input from one or several outputs; what none of them gives is zero. */
static int gather_parts(struct sy_trainer *t, const struct sy_node *node)
{
    struct sy_math_move move;
    int dx, dy;
    bool complete = node->op != SY_OP_SLICE && node->op != SY_OP_SPLIT;
    enum sy_dtype type = gradient_type(t, node);
    SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], false, type, &dx));
    if (!complete)
        SY_TRY(sy_cutr_fill(t, SY_CUTR_TRAIN, node->name, dx, 0));
    for (int o = 0; o < node->n_outputs; o++) {
        if (node->outputs[o] < 0 || t->tensors[node->outputs[o]].gradient < 0)
            continue;
        SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, t->tensors[node->outputs[o]].gradient, false,
                                type, &dy));
        SY_TRY(describe(t, node, 0, o, &move));
        turn(&move);
        SY_TRY(sy_cutr_move(t, SY_CUTR_TRAIN, node->name, &move, dy, dx));
    }
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

static int concat_backward(struct sy_trainer *t, const struct sy_node *node)
{
    struct sy_math_move move;
    int dx, dy;
    SY_TRY(sy_cutr_diff_of(t, node->outputs[0], &dy));
    for (int i = 0; i < node->n_inputs; i++) {
        if (!sy_cutr_needs(t, node->inputs[i]) || sy_cutr_elements(t, node->inputs[i]) < 1)
            continue;
        SY_TRY(describe(t, node, i, 0, &move));
        turn(&move);
        SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[i], false, t->values[dy].dtype, &dx));
        SY_TRY(sy_cutr_move(t, SY_CUTR_TRAIN, node->name, &move, dy, dx));
        SY_TRY(sy_cutr_diff_end(t, node->inputs[i], dx));
    }
    return SY_OK;
}

int sy_cutr_move_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int64_t dims[SY_MAX_RANK];
    int dy;
    (void)gradient;
    if (node->op == SY_OP_CONCAT)
        return concat_backward(t, node);
    if (node->op != SY_OP_EXPAND)
        return gather_parts(t, node);
    int rank = sy_cutr_dims(t, node->outputs[0], dims);
    SY_TRY(rank);
    SY_TRY(sy_cutr_diff_of(t, node->outputs[0], &dy));
    return sy_cutr_diff_reduction(t, node->name, node->inputs[0], rank, dims, dy);
}

/* ---- Tile ------------------------------------------------------------------------------------------------ */

/* The result as [repeats, extent] for each dimension that is repeated, [extent] for the others. */
static int describe_tile(const struct sy_trainer *t, const struct sy_node *node,
                         struct sy_math_move *m, bool *repeats)
{
    int64_t x[SY_MAX_RANK], y[SY_MAX_RANK], strides[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->inputs[0], x);
    SY_TRY(rank);
    SY_TRY(sy_cutr_dims(t, node->outputs[0], y));
    sy_row_major_strides(rank, x, strides);
    *m = (struct sy_math_move){0};
    for (int i = 0; i < rank; i++) {
        bool repeated = y[i] != x[i];
        if (m->rank + 1 + repeated > SY_MAX_RANK)
            return sy_cutr_refuse(node, "so many repeated dimensions");
        repeats[m->rank] = repeated;
        if (repeated)
            m->dims[m->rank++] = y[i] / x[i];
        repeats[m->rank] = false;
        m->from_strides[m->rank] = strides[i];
        m->dims[m->rank++] = x[i];
    }
    sy_row_major_strides(m->rank, m->dims, m->to_strides);
    return SY_OK;
}

int sy_cutr_tile_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_move move;
    bool repeats[SY_MAX_RANK + 1];
    int x, y;
    SY_TRY(describe_tile(t, node, &move, repeats));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &x));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    return sy_cutr_move(t, SY_CUTR_FORWARD, node->name, &move, x, y);
}

int sy_cutr_tile_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_move move;
    bool repeats[SY_MAX_RANK + 1];
    int dx, dy;
    SY_TRY(describe_tile(t, node, &move, repeats));
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(sy_cutr_sum(t, SY_CUTR_TRAIN, node->name, move.rank, move.dims, repeats, dy, dx));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

/* ---- Gather: embeddings ------------------------------------------------------------------------------- */

static void describe_gather(const struct sy_trainer *t, const struct sy_node *node,
                            struct sy_math_gather *g)
{
    int64_t dims[SY_MAX_RANK], inner = 1;
    const struct sy_tensor *x = &t->graph->tensors[node->inputs[0]];
    int rank = sy_cutr_dims(t, node->inputs[0], dims);
    int64_t axis = axis_of(node, rank);
    *g = (struct sy_math_gather){
        .outer = 1, .extent = dims[axis], .step = node - t->graph->nodes + 1};
    for (int i = 0; i < axis; i++)
        g->outer *= dims[i];
    for (int i = (int)axis + 1; i < rank; i++)
        inner *= dims[i];
    g->n_indices = sy_cutr_elements(t, node->inputs[1]);
    g->inner_bytes = inner * (int64_t)sy_dtype_bytes(x->dtype);
    g->wide = t->graph->tensors[node->inputs[1]].dtype == SY_DTYPE_I64;
}

int64_t sy_cutr_gather_extent(const struct sy_trainer *t, const struct sy_node *node)
{
    struct sy_math_gather g;
    describe_gather(t, node, &g);
    return g.extent;
}

/* args: table, indices, to */
static int run_gather(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    struct sy_cutr_news *news = (struct sy_cutr_news *)(void *)(t->host + t->host_loss);
    return t->ops->gather(t->math, &step->gather, sy_cutr_pointer(t, step->args[0]),
                          sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]),
                          &news->fault);
}

/* args: dy, indices, to */
static int run_scatter(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->scatter(t->math, &step->gather, sy_cutr_pointer(t, step->args[0]),
                                  sy_cutr_pointer(t, step->args[1]),
                                  sy_cutr_pointer(t, step->args[2]));
}

int sy_cutr_gather_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    enum sy_dtype dtype = t->graph->tensors[node->inputs[1]].dtype;
    struct sy_cutr_step *step;
    int table, indices, y;
    if (dtype != SY_DTYPE_I64 && dtype != SY_DTYPE_I32)
        return sy_cutr_refuse(node, "indices that are not int64 or int32");
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &table));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[1], SY_CUTR_PLAIN, &indices));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_gather, (int[]){table, indices, y},
                            3, &step));
    step->cost_ns = step->cost_ns / 2 + sy_cutr_value_bytes(t, y) / 1000; /* not all of the table */
    describe_gather(t, node, &step->gather);
    return SY_OK;
}

int sy_cutr_gather_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    int indices, dx, dy;
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_PLAIN, &indices));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_scatter, (int[]){dy, indices, dx}, 3,
                            &step));
    describe_gather(t, node, &step->gather);
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

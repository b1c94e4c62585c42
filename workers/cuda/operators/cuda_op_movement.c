/* Operators that move elements without changing them, and those that move nothing. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

/* ---- the same bytes with another shape ------------------------------------------------------------------- */

static int run_copy(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->copy(p->math, sy_cuda_pointer(p, step->args[0]),
                        sy_cuda_pointer(p, step->args[1]), p->values[step->args[1]].bytes);
}

static int copy_view(struct sy_program *p, int src)
{
    int out;
    struct sy_cuda_step *step;
    SY_TRY(sy_cuda_output_as(p, 0, p->values[src].dtype, false, &out));
    if (p->values[out].bytes != p->values[src].bytes)
        return sy_unsupported(sy_cuda_node(p), "a view of another size");
    return sy_cuda_add_step(p, run_copy, (int[]){src, out}, 2, &step);
}

/* A parameter is copied: later layers must not read it where it lies (P4). */
static int build_view(struct sy_program *p)
{
    int src, out;
    SY_TRY(sy_cuda_input_rows(p, 0, &src));
    if (sy_cuda_is_param(p, 0))
        return copy_view(p, src);
    SY_TRY(sy_cuda_new_alias(p, src, sy_cuda_node(p)->outputs[0], false, &out));
    sy_cuda_set_output(p, 0, out);
    return SY_OK;
}

/* Identity keeps the layout too. */
static int build_identity(struct sy_program *p)
{
    int src, out;
    SY_TRY(sy_cuda_input(p, 0, &src));
    if (sy_cuda_is_param(p, 0))
        return copy_view(p, src);
    SY_TRY(
        sy_cuda_new_alias(p, src, sy_cuda_node(p)->outputs[0], p->values[src].channels_last, &out));
    sy_cuda_set_output(p, 0, out);
    return SY_OK;
}

/* ---- strided moves ---------------------------------------------------------------------------------------- */

/* A move of the elements of `shape` between two values, from and to their first elements. */
static void start_move(const struct sy_program *p, int shape, int from, int to,
                       struct sy_math_move *move)
{
    const struct sy_cuda_value *v = &p->values[shape];
    *move =
        (struct sy_math_move){.element_bytes = (int64_t)sy_dtype_bytes(v->dtype), .rank = v->rank};
    memcpy(move->dims, v->dims, sizeof move->dims);
    sy_cuda_strides(&p->values[from], move->from_strides);
    sy_cuda_strides(&p->values[to], move->to_strides);
}

static int build_transpose(struct sy_program *p)
{
    const struct sy_attr *perm = sy_node_attr(sy_cuda_node(p), "perm");
    struct sy_math_move move;
    int64_t strides[SY_MAX_RANK];
    int src, dst;
    SY_TRY(sy_cuda_input(p, 0, &src));
    SY_TRY(sy_cuda_output_as(p, 0, p->values[src].dtype, false, &dst));
    int rank = p->values[src].rank;
    start_move(p, dst, src, dst, &move);
    sy_cuda_strides(&p->values[src], strides);
    for (int i = 0; i < rank; i++)
        move.from_strides[i] = strides[perm && i < perm->n ? perm->ints[i] : rank - 1 - i];
    return sy_cuda_add_move(p, &move, src, dst);
}

static int build_slice(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *starts = sy_node_attr(node, "starts"),
                         *steps = sy_node_attr(node, "steps");
    struct sy_math_move move;
    int src, dst;
    SY_TRY(sy_cuda_input(p, 0, &src));
    SY_TRY(sy_cuda_output_as(p, 0, p->values[src].dtype, p->values[src].channels_last, &dst));
    if (!starts || !steps || starts->n != p->values[src].rank || steps->n != starts->n)
        return sy_error_set(
            SY_ECORRUPT, "node %s: slice without starts and steps for all dimensions", node->name);
    start_move(p, dst, src, dst, &move);
    for (int i = 0; i < starts->n; i++) {
        move.from_offset += starts->ints[i] * move.from_strides[i];
        move.from_strides[i] *= steps->ints[i];
    }
    return sy_cuda_add_move(p, &move, src, dst);
}

static int axis_of(const struct sy_node *node, int rank, int *axis)
{
    *axis = (int)sy_node_int(node, "axis", 0);
    *axis += *axis < 0 ? rank : 0;
    if (*axis < 0 || *axis >= rank)
        return sy_unsupported(node, "an axis that the input does not have");
    return SY_OK;
}

static int build_split(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t at = 0;
    int src, axis;
    SY_TRY(sy_cuda_input(p, 0, &src));
    SY_TRY(axis_of(node, p->values[src].rank, &axis));
    for (int i = 0; i < node->n_outputs; i++) {
        struct sy_math_move move;
        int dst;
        if (node->outputs[i] < 0)
            return sy_unsupported(node, "an output that is left out");
        SY_TRY(sy_cuda_output_as(p, i, p->values[src].dtype, p->values[src].channels_last, &dst));
        start_move(p, dst, src, dst, &move);
        move.from_offset = at * move.from_strides[axis];
        at += p->values[dst].dims[axis];
        SY_TRY(sy_cuda_add_move(p, &move, src, dst));
    }
    return SY_OK;
}

static int run_fill(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->fill(p->math, sy_cuda_pointer(p, step->args[0]), step->fill.n, step->fill.value);
}

static int build_pad(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *pads = sy_node_attr(node, "pads"), *mode = sy_node_attr(node, "mode");
    struct sy_math_move move;
    struct sy_cuda_step *step;
    int src, dst;
    if (mode && mode->s && strcmp(mode->s, "constant") != 0)
        return sy_unsupported(node, "padding other than with a constant");
    SY_TRY(sy_cuda_input_wide(p, 0, &src));
    SY_TRY(sy_cuda_output(p, 0, p->values[src].channels_last, &dst));
    if (p->values[src].dtype != SY_DTYPE_F32 || !pads || pads->n != 2 * p->values[src].rank)
        return sy_unsupported(node, "only float32");
    for (int i = 0; i < pads->n; i++)
        if (pads->ints[i] < 0)
            return sy_unsupported(node, "negative pads");
    SY_TRY(sy_cuda_add_step(p, run_fill, &dst, 1, &step));
    step->fill.n = sy_cuda_count(&p->values[dst]);
    step->fill.value = sy_node_float(node, "value", 0);
    start_move(p, src, src, dst, &move);
    for (int i = 0; i < p->values[src].rank; i++)
        move.to_offset += pads->ints[i] * move.to_strides[i];
    return sy_cuda_add_move(p, &move, src, dst);
}

/* ---- concat ----------------------------------------------------------------------------------------------- */

/* Channels last if most of the inputs' bytes are. */
static bool wants_last(const struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    uint64_t last = 0, all = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        int value = node->inputs[i] < 0 ? -1 : p->native[node->inputs[i]];
        if (value < 0)
            continue;
        all += p->values[value].bytes;
        last += p->values[value].channels_last ? p->values[value].bytes : 0;
    }
    return 2 * last > all;
}

static int build_concat(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t at = 0;
    int dst, axis;
    enum sy_dtype type = sy_cuda_wanted(p, 0);
    SY_TRY(sy_cuda_output_as(p, 0, type, wants_last(p), &dst));
    SY_TRY(axis_of(node, p->values[dst].rank, &axis));
    for (int i = 0; i < node->n_inputs; i++) {
        struct sy_math_move move;
        int src;
        SY_TRY(sy_cuda_input(p, i, &src));
        SY_TRY(sy_cuda_input_as(p, i, p->values[src].channels_last, sy_math_is_narrow(type), &src));
        if (p->values[src].dtype != p->values[dst].dtype ||
            p->values[src].rank != p->values[dst].rank)
            return sy_unsupported(node, "inputs of different element types or ranks");
        start_move(p, src, src, dst, &move);
        move.to_offset = at * move.to_strides[axis];
        at += p->values[src].dims[axis];
        if (at > p->values[dst].dims[axis])
            return sy_unsupported(node, "inputs that are longer than the output");
        SY_TRY(sy_cuda_add_move(p, &move, src, dst));
    }
    return SY_OK;
}

/* ---- gather ----------------------------------------------------------------------------------------------- */

static int run_gather(struct sy_program *p, const struct sy_cuda_step *step)
{
    struct sy_math_gather gather = step->gather;
    gather.step = step - p->steps + 1;
    return p->ops->gather(p->math, &gather, sy_cuda_pointer(p, step->args[0]),
                          sy_cuda_pointer(p, step->args[1]), sy_cuda_pointer(p, step->args[2]),
                          p->fault);
}

static int build_gather(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_cuda_step *step;
    int values[3], axis;
    SY_TRY(sy_cuda_input_rows(p, 0, &values[0]));
    SY_TRY(sy_cuda_input_plain(p, 1, &values[1]));
    SY_TRY(sy_cuda_output_as(p, 0, p->values[values[0]].dtype, false, &values[2]));
    const struct sy_cuda_value x = p->values[values[0]], i = p->values[values[1]];
    if (i.dtype != SY_DTYPE_I64 && i.dtype != SY_DTYPE_I32)
        return sy_unsupported(node, "indices that are not int32 or int64");
    SY_TRY(axis_of(node, x.rank, &axis));
    SY_TRY(sy_cuda_add_step(p, run_gather, values, 3, &step));
    struct sy_math_gather *g = &step->gather;
    *g = (struct sy_math_gather){.outer = 1,
                                 .inner_bytes = (int64_t)sy_dtype_bytes(x.dtype),
                                 .extent = x.dims[axis],
                                 .n_indices = sy_cuda_count(&i),
                                 .wide = i.dtype == SY_DTYPE_I64};
    for (int d = 0; d < axis; d++)
        g->outer *= x.dims[d];
    for (int d = axis + 1; d < x.rank; d++)
        g->inner_bytes *= x.dims[d];
    return SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_movement[] = {
    {.build = build_view, SY_OPS(SY_OP_RESHAPE, SY_OP_FLATTEN, SY_OP_SQUEEZE, SY_OP_UNSQUEEZE)},
    {.build = build_identity, SY_OPS(SY_OP_IDENTITY, SY_OP_DROPOUT)},
    {.build = build_transpose, SY_OPS(SY_OP_TRANSPOSE)},
    {.build = build_slice, SY_OPS(SY_OP_SLICE)},
    {.build = build_split, SY_OPS(SY_OP_SPLIT)},
    {.build = build_pad, SY_OPS(SY_OP_PAD)},
    {.build = build_concat, SY_OPS(SY_OP_CONCAT)},
    {.build = build_gather, SY_OPS(SY_OP_GATHER)},
    {0}};

/* Operators that move elements without changing them, and those that move nothing. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/channels_last.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/movement.h"

enum {
    SMALL_CONCAT = 16384,
    SHORT_PART = 32
}; /* elements: of all, that follow each other in a part */

/* ---- the same bytes with another shape ------------------------------------------------------------------- */

static int run_view_copy(struct sy_program *p, struct sy_step *step)
{
    memcpy(sy_program_pointer(p, step->args[1].value), sy_program_pointer(p, step->args[0].value),
           p->values[step->args[1].value].bytes);
    return SY_OK;
}

static int copy_view(struct sy_program *p, int src)
{
    int out;
    SY_TRY(sy_program_output_plain(p, 0, &out));
    if (p->values[out].bytes != p->values[src].bytes)
        return sy_unsupported(sy_program_node(p), "a view of another size");
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_view_copy, (int[]){src, out}, 2, &step));
    return SY_OK;
}

/* The layout of a value with a blocked or permuted layout after dimensions of 1 are added or removed; the bytes stay. */
static bool reshaped_md(const struct sy_program *p, int src, int tensor, dnnl_memory_desc_t *md)
{
    const struct sy_value *v = &p->values[src];
    dnnl_dims_t dims;
    int rank = p->graph->tensors[tensor].shape.rank, i = 0, k = 0;
    if (v->dtype != SY_DTYPE_F32 || v->rank < 3 || rank < 3 || sy_program_is_plain(v))
        return false;
    sy_program_dims(p, tensor, dims);
    while (i < v->rank || k < rank) {
        if (i < v->rank && k < rank && v->dims[i] == dims[k])
            i++, k++;
        else if (i < v->rank && v->dims[i] == 1)
            i++;
        else if (k < rank && dims[k] == 1)
            k++;
        else
            return false;
    }
    return dnnl_memory_desc_reshape(md, &v->md, rank, dims) == dnnl_success;
}

/* A parameter is copied, since later layers must not read it in place (P4). */
static int build_view(struct sy_program *p)
{
    int src, out;
    int tensor = sy_program_node(p)->outputs[0];
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t rows;
    bool built;
    SY_TRY(sy_channels_last_reshape(p, &built));
    if (built)
        return SY_OK;
    if (sy_program_is_param(p, 0)) {
        SY_TRY(sy_program_input_plain(p, 0, &src));
        return copy_view(p, src);
    }
    SY_TRY(sy_program_input_native(p, 0, &src));
    if (reshaped_md(p, src, tensor, &rows)) {
        SY_TRY(sy_program_new_alias(p, src, tensor, &rows, &out));
        sy_program_set_output(p, 0, out);
        return SY_OK;
    }
    SY_TRY(sy_program_input_rows(p, 0, &src));
    bool narrow = sy_value_is_narrow(&p->values[src]);
    sy_program_dims(p, tensor, dims);
    if (narrow)
        sy_dnnl_plain_md_of(&rows, dnnl_bf16, p->graph->tensors[tensor].shape.rank, dims);
    SY_TRY(sy_program_new_alias(p, src, tensor, narrow ? &rows : NULL, &out));
    sy_program_set_output(p, 0, out);
    return SY_OK;
}

/* Identity keeps the layout too. */
static int build_identity(struct sy_program *p)
{
    int src, out;
    if (sy_program_node(p)->op == SY_OP_DROPOUT && sy_program_node(p)->n_outputs > 1)
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_native(p, 0, &src));
    if (sy_program_is_param(p, 0))
        return build_view(p);
    dnnl_memory_desc_t md = p->values[src].md;
    SY_TRY(sy_program_new_alias(p, src, sy_program_node(p)->outputs[0], &md, &out));
    sy_program_set_output(p, 0, out);
    return SY_OK;
}

/* ---- strided moves ---------------------------------------------------------------------------------------- */

static void plain_strides(const struct sy_value *v, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= v->dims[i];
    }
}

/* A move of the elements of `shape` between two plain values. */
static void start_move(const struct sy_value *shape, const struct sy_value *from,
                       const struct sy_value *to, struct sy_strided_move *move)
{
    *move = (struct sy_strided_move){.element_bytes = (int64_t)sy_value_element_bytes(shape),
                                     .rank = shape->rank};
    memcpy(move->dims, shape->dims, sizeof move->dims);
    plain_strides(from, move->from_strides);
    plain_strides(to, move->to_strides);
}

static int build_transpose(struct sy_program *p)
{
    const struct sy_attr *perm = sy_node_attr(sy_program_node(p), "perm");
    struct sy_strided_move move;
    int64_t strides[SY_MAX_RANK];
    int src, dst;
    bool built;
    SY_TRY(sy_channels_last_transpose(p, &built));
    if (built)
        return SY_OK;
    SY_TRY(sy_program_input_rows(p, 0, &src));
    SY_TRY(sy_program_output_rows(p, 0, src, &dst));
    int rank = p->values[src].rank;
    start_move(&p->values[dst], &p->values[src], &p->values[dst], &move);
    plain_strides(&p->values[src], strides);
    for (int i = 0; i < rank; i++)
        move.from_strides[i] = strides[perm && i < perm->n ? perm->ints[i] : rank - 1 - i];
    return sy_program_add_move(p, &move, src, dst);
}

/* Whether the slice takes all of each dimension but the channels, and these one after the other: channels [*first, ...). */
static bool is_channel_slice(const struct sy_program *p, int64_t *first)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *starts = sy_node_attr(node, "starts"),
                         *steps = sy_node_attr(node, "steps");
    const struct sy_shape *x = &sy_program_input_tensor(p, 0)->shape,
                          *y = &p->graph->tensors[node->outputs[0]].shape;
    if (!starts || !steps || starts->n != x->rank || steps->n != x->rank || x->rank < 3 ||
        !sy_dim_is_number(y->dims[1]))
        return false;
    for (int i = 0; i < x->rank; i++) {
        bool is_whole = starts->ints[i] == 0 &&
                        sy_dim_at(x->dims[i], p->batch) == sy_dim_at(y->dims[i], p->batch);
        if (steps->ints[i] != 1 || (i != 1 && !is_whole))
            return false;
    }
    *first = starts->ints[1];
    return true;
}

/* As split_channels: exporters write a chunk of a tensor with open sizes as slices. */
static int slice_channels(struct sy_program *p, bool *built)
{
    const struct sy_tensor *x = sy_program_input_tensor(p, 0);
    int64_t first;
    int src;
    *built = false;
    if (x->dtype != SY_DTYPE_F32 || sy_program_is_param(p, 0) || !is_channel_slice(p, &first))
        return SY_OK;
    int64_t kept = p->graph->tensors[sy_program_node(p)->outputs[0]].shape.dims[1].fixed;
    SY_TRY(sy_program_input_native(p, 0, &src));
    *built = first ? sy_program_shows_parts(p, src, (int64_t[]){first, kept}, 2)
                   : sy_program_shows_parts(p, src, &kept, 1);
    return *built ? sy_program_show_part(p, 0, src, first) : SY_OK;
}

static int build_slice(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *starts = sy_node_attr(node, "starts"),
                         *steps = sy_node_attr(node, "steps");
    struct sy_strided_move move;
    int src, dst;
    bool shown;
    SY_TRY(slice_channels(p, &shown));
    if (shown)
        return SY_OK;
    SY_TRY(sy_program_input_rows(p, 0, &src));
    SY_TRY(sy_program_output_rows(p, 0, src, &dst));
    if (!starts || !steps || starts->n != p->values[src].rank || steps->n != starts->n)
        return sy_error_set(
            SY_ECORRUPT, "node %s: slice without starts and steps for all dimensions", node->name);
    start_move(&p->values[dst], &p->values[src], &p->values[dst], &move);
    for (int i = 0; i < starts->n; i++) {
        move.from_offset += starts->ints[i] * move.from_strides[i];
        move.from_strides[i] *= steps->ints[i];
    }
    return sy_program_add_move(p, &move, src, dst);
}

/* For channels that are not row-major: a part is copied only when a reader needs it separately. */
static int split_channels(struct sy_program *p, bool *built)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t channels[SY_STEP_MAX_NUMBERS], first = 0;
    const struct sy_tensor *x = sy_program_input_tensor(p, 0);
    int64_t axis = sy_node_int(node, "axis", 0);
    int src;
    *built = false;
    if ((axis < 0 ? axis + x->shape.rank : axis) != 1 || x->dtype != SY_DTYPE_F32 ||
        sy_program_is_param(p, 0) || node->n_outputs > SY_STEP_MAX_NUMBERS)
        return SY_OK;
    for (int i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] < 0)
            return SY_OK;
        channels[i] = p->graph->tensors[node->outputs[i]].shape.dims[1].fixed;
    }
    SY_TRY(sy_program_input_native(p, 0, &src));
    *built = sy_program_shows_parts(p, src, channels, node->n_outputs);
    for (int i = 0; *built && i < node->n_outputs; i++) {
        SY_TRY(sy_program_show_part(p, i, src, first));
        first += channels[i];
    }
    return SY_OK;
}

static int build_split(struct sy_program *p)
{
    bool shown;
    SY_TRY(split_channels(p, &shown));
    if (shown)
        return SY_OK;
    const struct sy_node *node = sy_program_node(p);
    int64_t at = 0;
    int src;
    SY_TRY(sy_program_input_rows(p, 0, &src));
    int axis = (int)sy_node_int(node, "axis", 0);
    axis = axis < 0 ? axis + p->values[src].rank : axis;
    for (int i = 0; i < node->n_outputs; i++) {
        struct sy_strided_move move;
        int dst;
        if (node->outputs[i] < 0)
            return sy_unsupported(node, "an output that is left out");
        SY_TRY(sy_program_output_rows(p, i, src, &dst));
        start_move(&p->values[dst], &p->values[src], &p->values[dst], &move);
        move.from_offset = at * move.from_strides[axis];
        at += p->values[dst].dims[axis];
        SY_TRY(sy_program_add_move(p, &move, src, dst));
    }
    return SY_OK;
}

static int build_pad(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *pads = sy_node_attr(node, "pads"), *mode = sy_node_attr(node, "mode");
    struct sy_strided_move move;
    int src, dst;
    bool negative = false;
    for (int i = 0; pads && i < pads->n; i++)
        negative = negative || pads->ints[i] < 0;
    if ((mode && mode->s && strcmp(mode->s, "constant") != 0) || negative ||
        sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32)
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_plain(p, 0, &src));
    SY_TRY(sy_program_output_plain(p, 0, &dst));
    const struct sy_value x = p->values[src];
    if (x.dtype != SY_DTYPE_F32 || !pads || pads->n != 2 * x.rank)
        return sy_unsupported(node, "only float32");
    start_move(&x, &x, &p->values[dst], &move);
    for (int i = 0; i < x.rank; i++)
        move.to_offset += pads->ints[i] * move.to_strides[i];
    move.fill_elements = (int64_t)(p->values[dst].bytes / sizeof(float));
    move.fill = (double)sy_node_float(node, "value", 0);
    return sy_program_add_move(p, &move, src, dst);
}

/* ---- concat ----------------------------------------------------------------------------------------------- */

static bool all_float(const struct sy_program *p, const struct sy_node *node)
{
    return sy_dnnl_type(p->graph->tensors[node->outputs[0]].dtype) != dnnl_data_type_undef &&
           node->n_inputs + 2 <= SY_STEP_MAX_ARGS &&
           p->graph->tensors[node->outputs[0]].shape.rank >= 1;
}

/* One primitive takes inputs of one type. */
static bool all_narrow(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < node->n_inputs; i++) {
        int value = p->native[node->inputs[i]];
        if (sy_program_is_param(p, i) || value < 0 || !sy_value_is_narrow(&p->values[value]))
            return false;
    }
    return true;
}

/* Accepts the inputs in any layout. */
static int concat_primitive(struct sy_program *p, int axis)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t mds[SY_STEP_MAX_ARGS];
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    int args[SY_STEP_MAX_ARGS][2], n = node->n_inputs, dst;
    bool narrow = all_narrow(p);
    for (int i = 0; i < n; i++) {
        SY_TRY(sy_program_input_native(p, i, &args[i][1]));
        if (sy_program_is_param(p, i) || (!narrow && sy_value_is_narrow(&p->values[args[i][1]])))
            SY_TRY(sy_program_input_plain(p, i, &args[i][1]));
        args[i][0] = DNNL_ARG_MULTIPLE_SRC + i;
        mds[i] = p->values[args[i][1]].md;
    }
    SY_DNNL(dnnl_primitive_attr_create(&attr), node->name);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t status =
        dnnl_concat_primitive_desc_create(&pd, NULL, n, axis, mds, attr, p->engine);
    dnnl_primitive_attr_destroy(attr);
    SY_DNNL(status, node->name);
    dnnl_memory_desc_t dst_md = *sy_dnnl_md(pd, dnnl_query_dst_md);
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &dst_md, &dst));
    sy_program_set_output(p, 0, dst);
    args[n][0] = DNNL_ARG_DST;
    args[n][1] = dst;
    return sy_program_add_primitive(p, pd, (const int(*)[2])args, n + 1);
}

static int concat_moves(struct sy_program *p, int axis)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t at = 0;
    int dst;
    SY_TRY(sy_program_output_plain(p, 0, &dst));
    for (int i = 0; i < node->n_inputs; i++) {
        struct sy_strided_move move;
        int src;
        SY_TRY(sy_program_input_plain(p, i, &src));
        start_move(&p->values[src], &p->values[src], &p->values[dst], &move);
        move.to_offset = at * move.to_strides[axis];
        at += p->values[src].dims[axis];
        SY_TRY(sy_program_add_move(p, &move, src, dst));
    }
    return SY_OK;
}

/* Whether all parts are so short that rows of copies are faster than the primitive: of 1, 4 and 16 floats it took 20, 2.2 and 2.3 times as long. */
static bool has_short_parts(const struct sy_program *p, int axis)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < node->n_inputs; i++) {
        const struct sy_shape *shape = &p->graph->tensors[node->inputs[i]].shape;
        int64_t together = 1;
        for (int d = axis; d < shape->rank && together <= SHORT_PART; d++)
            together *= sy_dim_at(shape->dims[d], p->batch);
        if (together > SHORT_PART)
            return false;
    }
    return true;
}

static bool is_plain(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < node->n_inputs; i++) {
        int value = p->native[node->inputs[i]];
        if (!sy_program_is_param(p, i) && value >= 0 &&
            (!sy_program_is_plain(&p->values[value]) || sy_value_is_narrow(&p->values[value])))
            return false;
    }
    return true;
}

/* Whether all is row-major, and so little that the primitive's own cost is more than the copies': 27 rows of 16 floats took it 16 us, the copies take 1. */
static bool wants_moves(const struct sy_program *p, int axis)
{
    const struct sy_shape *shape = &p->graph->tensors[sy_program_node(p)->outputs[0]].shape;
    bool is_small = sy_shape_elements(shape, p->batch) <= SMALL_CONCAT;
    return (is_small || has_short_parts(p, axis)) && is_plain(p);
}

static int build_concat(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int axis = (int)sy_node_int(node, "axis", 0),
        rank = p->graph->tensors[node->outputs[0]].shape.rank;
    axis = axis < 0 ? axis + rank : axis;
    bool built;
    SY_TRY(sy_program_add_part(p, &built));
    if (built)
        return SY_OK;
    return all_float(p, node) && !wants_moves(p, axis) ? concat_primitive(p, axis)
                                                       : concat_moves(p, axis);
}

/* ---- gather ----------------------------------------------------------------------------------------------- */

static int run_gather(struct sy_program *p, struct sy_step *step)
{
    struct sy_gather g = *(const struct sy_gather *)step->numbers;
    g.from = sy_program_pointer(p, step->args[0].value);
    g.indices = sy_program_pointer(p, step->args[1].value);
    g.to = sy_program_pointer(p, step->args[2].value);
    int64_t bad = 0;
    if (!sy_move_gather(&g, &bad))
        return sy_error_set(SY_EARG, "node %s: index %lld is not in [-%lld, %lld)", step->name,
                            (long long)bad, (long long)g.extent, (long long)g.extent);
    return SY_OK;
}

static int add_gather(struct sy_program *p, int src, int indices, int dst)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_value x = p->values[src], i = p->values[indices];
    if (i.dtype != SY_DTYPE_I64 && i.dtype != SY_DTYPE_I32)
        return sy_unsupported(node, "indices that are not int32 or int64");
    int axis = (int)sy_node_int(node, "axis", 0);
    axis = axis < 0 ? axis + x.rank : axis;
    struct sy_gather g = {.outer = 1,
                          .inner_bytes = (int64_t)sy_value_element_bytes(&x),
                          .extent = x.dims[axis],
                          .n_indices = 1,
                          .wide = i.dtype == SY_DTYPE_I64};
    for (int d = 0; d < axis; d++)
        g.outer *= x.dims[d];
    for (int d = axis + 1; d < x.rank; d++)
        g.inner_bytes *= x.dims[d];
    for (int d = 0; d < i.rank; d++)
        g.n_indices *= i.dims[d];
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_gather, (int[]){src, indices, dst}, 3, &step));
    _Static_assert(sizeof g % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)&g, (int)(sizeof g / sizeof(int64_t)));
}

static int build_gather(struct sy_program *p)
{
    int src, indices, dst, wide;
    SY_TRY(sy_program_input_rows(p, 0, &src));
    SY_TRY(sy_program_input_plain(p, 1, &indices));
    if (!sy_value_is_narrow(&p->values[src]) || sy_dnnl_has_bf16()) {
        SY_TRY(sy_program_output_rows(p, 0, src, &dst));
        return add_gather(p, src, indices, dst);
    }
    /* Rows of a table that only is stored so: nothing behind computes with bf16. */
    SY_TRY(sy_program_new_narrow(p, sy_program_node(p)->outputs[0], &dst));
    SY_TRY(add_gather(p, src, indices, dst));
    SY_TRY(sy_program_output_plain(p, 0, &wide));
    return sy_program_add_widen(p, dst, wide);
}

/* ---- numbers that depend on the batch size alone --------------------------------------------------------- */

static int run_numbers(struct sy_program *p, struct sy_step *step)
{
    const struct sy_value *v = &p->values[step->args[0].value];
    unsigned char *to = sy_program_pointer(p, step->args[0].value);
    size_t each = sy_dtype_bytes(v->dtype), n = v->bytes / each;
    for (size_t i = 0; i < n; i++) /* little-endian: the low bytes come first */
        memcpy(to + i * each, &step->numbers[i], each);
    return SY_OK;
}

static int build_numbers(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *fixed = sy_node_attr(node, "fixed"),
                         *per_batch = sy_node_attr(node, "per_batch");
    int out;
    SY_TRY(sy_program_output_plain(p, 0, &out));
    const struct sy_value *v = &p->values[out];
    if (v->dtype == SY_DTYPE_F32 || v->dtype == SY_DTYPE_F64 || v->dtype == SY_DTYPE_F16 ||
        v->dtype == SY_DTYPE_BF16 || !fixed || !per_batch || fixed->kind != SY_ATTR_INTS ||
        per_batch->kind != SY_ATTR_INTS || fixed->n != per_batch->n ||
        (uint64_t)fixed->n * sy_dtype_bytes(v->dtype) != v->bytes)
        return sy_unsupported(node, "numbers of another count than its result");
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_numbers, (int[]){out}, 1, &step));
    step->numbers = calloc((size_t)fixed->n + 1, sizeof *step->numbers);
    SY_TRY_ALLOC(step->numbers, "no memory for %d numbers", fixed->n);
    for (int i = 0; i < fixed->n; i++)
        step->numbers[i] = sy_dim_at((struct sy_dim){fixed->ints[i], per_batch->ints[i]}, p->batch);
    return SY_OK;
}

const struct sy_host_op sy_host_ops_movement[] = {
    {.build = build_view, SY_OPS(SY_OP_RESHAPE, SY_OP_FLATTEN, SY_OP_SQUEEZE, SY_OP_UNSQUEEZE)},
    {.build = build_identity, SY_OPS(SY_OP_IDENTITY, SY_OP_DROPOUT)},
    {.build = build_transpose, SY_OPS(SY_OP_TRANSPOSE)},
    {.build = build_slice, SY_OPS(SY_OP_SLICE)},
    {.build = build_split, SY_OPS(SY_OP_SPLIT)},
    {.build = build_pad, SY_OPS(SY_OP_PAD)},
    {.build = build_concat, SY_OPS(SY_OP_CONCAT)},
    {.build = build_gather, SY_OPS(SY_OP_GATHER)},
    {.build = build_numbers, SY_OPS(SY_OP_NUMBERS)},
    {0}};

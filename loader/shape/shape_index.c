/* Shape rules: operators that search, count, and read or write by index. */
#include <stdlib.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ArgMax, ArgMin. */
int sy_rule_arg(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis, rank = 0;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 0), x->shape.rank, &axis));
    struct sy_shape shape = {.rank = 0};
    for (int i = 0; i < x->shape.rank; i++) {
        if (i != axis)
            shape.dims[rank++] = x->shape.dims[i];
        else if (sy_node_int(node, "keepdims", 1) != 0)
            shape.dims[rank++] = (struct sy_dim){1, 0};
    }
    shape.rank = rank;
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, SY_DTYPE_I64, &shape);
    return SY_OK;
}

int sy_rule_cum_sum(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *axis;
    SY_TRY(sy_infer_need(in, node, 1, &axis));
    if (node->n_inputs != 2 || !sy_dtype_is_integer(axis->dtype) ||
        sy_shape_elements(&axis->shape, 1) != 1)
        return sy_infer_fail(node, SY_ECORRUPT, "its axis is not one integer");
    if (axis->data) {
        const struct sy_tensor *x;
        int known;
        SY_TRY(sy_infer_need(in, node, 0, &x));
        SY_TRY(
            sy_infer_axis(node, sy_load_integer(axis->dtype, axis->data), x->shape.rank, &known));
    }
    return sy_infer_same(in, node);
}

/* K: an attribute up to opset 9, an input from 10 on; here always an attribute, or an input that is known at run only. */
int sy_rule_top_k(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis, n = 0;
    int64_t k = sy_node_int(node, "k", -1);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", -1), x->shape.rank, &axis));
    struct sy_shape shape = x->shape;
    if (!sy_infer_is_known(in, node, 1)) {
        SY_TRY(sy_infer_declared(in, node, 0, &shape));
    } else {
        struct sy_dim *given = NULL, size = x->shape.dims[axis], count = {k, 0};
        if (node->n_inputs > 1)
            SY_TRY(sy_infer_dims(in, node, 1, "k", &n, &given));
        if (n == 1)
            count = given[0];
        free(given);
        if (!sy_dim_is_number(count) && !sy_dim_is_expr(count))
            return sy_infer_defer(in, node, "'k' depends on the batch size");
        bool open = sy_dim_is_expr(count) || sy_dim_is_expr(size);
        if (open ? !sy_infer_at_most(in, node, count, size)
                 : count.fixed < 0 || (size.per_batch == 0 && count.fixed > size.fixed))
            return sy_infer_fail(node, SY_ECORRUPT, "K is %lld", (long long)count.fixed);
        shape.dims[axis] = count;
        sy_infer_keep_inputs(node, 1);
    }
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, x->dtype, &shape);
    sy_infer_set(in, node, 1, SY_DTYPE_I64, &shape);
    return SY_OK;
}

static int declared_outputs(struct sy_infer *in, struct sy_node *node, enum sy_dtype first)
{
    for (int i = 0; i < node->n_outputs; i++) {
        struct sy_shape shape;
        if (node->outputs[i] < 0)
            continue;
        SY_TRY(sy_infer_declared(in, node, i, &shape));
        sy_infer_set(in, node, i, i == 0 ? first : SY_DTYPE_I64, &shape);
    }
    return SY_OK;
}

/* The most elements that there can be: all of them. */
static int bound_list(struct sy_infer *in, struct sy_node *node, enum sy_dtype dtype,
                      const struct sy_shape *from, int rows)
{
    struct sy_dim all;
    if (sy_shape_product(from, 0, from->rank, &all) < 0)
        return sy_infer_defer(in, node, "a size that is not linear in the batch size");
    struct sy_shape shape = {.rank = 1, .dims = {all}};
    if (rows >= 0)
        shape = (struct sy_shape){.rank = 2, .dims = {{rows, 0}, all}};
    sy_infer_set(in, node, 0, dtype, &shape);
    for (int i = 1; i < node->n_outputs; i++)
        sy_infer_set(in, node, i, SY_DTYPE_I64, &shape);
    return SY_OK;
}

int sy_rule_unique(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (in->is_bound && !sy_node_attr(node, "axis"))
        return bound_list(in, node, x->dtype, &x->shape, -1);
    return declared_outputs(in, node, x->dtype);
}

int sy_rule_non_zero(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int64_t n;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (in->is_bound)
        return bound_list(in, node, SY_DTYPE_I64, &x->shape, x->shape.rank);
    if (!in->for_training && sy_fold_count_set(x, &n) == SY_OK) {
        struct sy_shape shape = {.rank = 2, .dims = {{x->shape.rank, 0}, {n, 0}}};
        sy_infer_set(in, node, 0, SY_DTYPE_I64, &shape);
        return SY_OK;
    }
    return declared_outputs(in, node, SY_DTYPE_I64);
}

int sy_rule_compress(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *condition;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &condition));
    if (in->is_bound && !sy_node_attr(node, "axis"))
        return bound_list(in, node, x->dtype, &x->shape, -1);
    if (in->is_bound)
        return sy_infer_same(in, node);
    return declared_outputs(in, node, x->dtype);
}

/* Indices are no more than the data but along the axis: a condition where a size is open; the engine looks at numbers. */
static bool are_within(struct sy_infer *in, const struct sy_node *node, const struct sy_shape *x,
                       const struct sy_shape *indices, int axis)
{
    bool within = true;
    for (int d = 0; d < x->rank && within && in->facts; d++)
        if (d != axis && (sy_dim_is_expr(x->dims[d]) || sy_dim_is_expr(indices->dims[d])))
            within = sy_infer_at_most(in, node, indices->dims[d], x->dims[d]);
    return within;
}

int sy_rule_gather_elements(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *indices;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &indices));
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.rank != indices->shape.rank)
        return sy_infer_fail(node, SY_ECORRUPT, "indices of %d dimensions for data of %d",
                             indices->shape.rank, x->shape.rank);
    if (!are_within(in, node, &x->shape, &indices->shape, axis))
        return sy_infer_fail(node, SY_ECORRUPT, "more indices than there is data beside axis %d",
                             axis);
    SY_TRY(sy_node_set_int(node, "axis", axis));
    struct sy_shape shape = indices->shape;
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_gather_nd(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *indices;
    int64_t depth;
    int64_t batch = sy_node_int(node, "batch_dims", 0);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &indices));
    int last = indices->shape.rank - 1;
    if (last < 0 || batch < 0 || batch > last)
        return sy_infer_fail(node, SY_ECORRUPT, "indices of %d dimensions", last + 1);
    SY_TRY(sy_infer_fixed(in, node, &indices->shape, last, &depth));
    int rank = last + x->shape.rank - (int)(batch + depth);
    if (depth < 1 || batch + depth > x->shape.rank || rank > SY_MAX_RANK)
        return sy_infer_fail(node, SY_ECORRUPT, "indices of length %lld", (long long)depth);
    struct sy_shape shape = {.rank = 0};
    for (int i = 0; i < last; i++)
        shape.dims[shape.rank++] = indices->shape.dims[i];
    for (int i = (int)(batch + depth); i < x->shape.rank; i++)
        shape.dims[shape.rank++] = x->shape.dims[i];
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* Scatter is ScatterElements by its old name. */
int sy_rule_scatter(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *indices, *updates;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &indices));
    SY_TRY(sy_infer_need(in, node, 2, &updates));
    if (node->op == SY_OP_SCATTER)
        node->op = SY_OP_SCATTER_ELEMENTS;
    if (node->op == SY_OP_SCATTER_ELEMENTS) {
        SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", 0), x->shape.rank, &axis));
        SY_TRY(sy_node_set_int(node, "axis", axis));
        if (indices->shape.rank != x->shape.rank ||
            !sy_infer_same_shape(in, node, &indices->shape, &updates->shape) ||
            !are_within(in, node, &x->shape, &indices->shape, axis))
            return sy_infer_fail(node, SY_ECORRUPT, "indices do not fit data or updates");
    }
    return sy_infer_same(in, node);
}

/* OneHot's depth, known: a number of any type, or a size. */
static int read_depth(struct sy_infer *in, const struct sy_node *node, struct sy_dim *count)
{
    struct sy_dim *read;
    float number;
    int n;
    *count = (struct sy_dim){0, 0};
    if (sy_graph_scalar(in->graph, node->inputs[1], &number)) {
        count->fixed = number >= 0 && number < 1e9f ? (int64_t)number : 0;
        return SY_OK;
    }
    SY_TRY(sy_infer_dims(in, node, 1, "depth", &n, &read));
    if (n == 1)
        *count = read[0];
    free(read);
    if (n != 1)
        return sy_infer_fail(node, SY_ECORRUPT, "depth is not one number");
    if (sy_size_max(*count, (struct sy_dim){0, 0}, count) < 0)
        return sy_infer_defer(in, node, "a depth that is not a size");
    return SY_OK;
}

/* The depth as an input that is a constant, or the file's word for the shape. */
int sy_rule_one_hot(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *indices, *depth, *values;
    struct sy_dim count;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &indices));
    SY_TRY(sy_infer_need(in, node, 1, &depth));
    SY_TRY(sy_infer_need(in, node, 2, &values));
    struct sy_shape shape = indices->shape;
    enum sy_dtype dtype = values->dtype;
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", -1), shape.rank + 1, &axis));
    if (shape.rank == SY_MAX_RANK)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "more than %d dimensions", SY_MAX_RANK);
    if (!sy_infer_is_known(in, node, 1)) {
        SY_TRY(sy_infer_declared(in, node, 0, &shape));
    } else {
        SY_TRY(read_depth(in, node, &count));
        for (int i = shape.rank++; i > axis; i--)
            shape.dims[i] = shape.dims[i - 1];
        shape.dims[axis] = count;
    }
    SY_TRY(sy_node_set_int(node, "axis", axis));
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

int sy_rule_reverse_sequence(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *lengths;
    SY_TRY(sy_infer_need(in, node, 1, &lengths));
    return sy_infer_same(in, node);
}

/* Shape rules: products, softmax, layer normalisation, reductions. */
#include <stdlib.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int misfit(const struct sy_node *node, const struct sy_shape *a, const struct sy_shape *b)
{
    char text_a[160], text_b[160];
    return sy_infer_fail(node, SY_ECORRUPT, "shapes %s and %s do not fit",
                         sy_shape_text(a, text_a, sizeof text_a),
                         sy_shape_text(b, text_b, sizeof text_b));
}

int sy_rule_gemm(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *a, *b;
    SY_TRY(sy_infer_need(in, node, 0, &a));
    SY_TRY(sy_infer_need(in, node, 1, &b));
    int trans_a = sy_node_int(node, "transA", 0) != 0,
        trans_b = sy_node_int(node, "transB", 0) != 0;
    struct sy_dim inner = a->shape.dims[1 - trans_a];
    if (a->shape.rank != 2 || b->shape.rank != 2 ||
        !sy_infer_same_size(in, node, &inner, b->shape.dims[trans_b]))
        return misfit(node, &a->shape, &b->shape);
    struct sy_shape shape = {.rank = 2,
                             .dims = {a->shape.dims[trans_a], b->shape.dims[1 - trans_b]}};
    if (sy_node_input(node, 2) >= 0) {
        const struct sy_tensor *c = &in->graph->tensors[node->inputs[2]];
        struct sy_shape sum = shape;
        if (sy_infer_broadcast(in, node, &sum, &c->shape) < 0 || !sy_shape_equal(&sum, &shape))
            return misfit(node, &shape, &c->shape);
        node->bias_input = 2;
    }
    sy_infer_set(in, node, 0, a->dtype, &shape);
    return SY_OK;
}

int sy_rule_matmul(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *ta, *tb;
    SY_TRY(sy_infer_need(in, node, 0, &ta));
    SY_TRY(sy_infer_need(in, node, 1, &tb));
    struct sy_shape a = ta->shape, b = tb->shape;
    bool row = a.rank == 1, column = b.rank == 1;
    if (a.rank < 1 || b.rank < 1)
        return misfit(node, &a, &b);
    if (row)
        a = (struct sy_shape){.rank = 2, .dims = {{1, 0}, a.dims[0]}};
    if (column)
        b = (struct sy_shape){.rank = 2, .dims = {b.dims[0], {1, 0}}};
    struct sy_dim rows = a.dims[a.rank - 2], columns = b.dims[b.rank - 1];
    if (!sy_infer_same_size(in, node, &a.dims[a.rank - 1], b.dims[b.rank - 2]))
        return misfit(node, &ta->shape, &tb->shape);
    a.rank -= 2;
    b.rank -= 2;
    if (sy_infer_broadcast(in, node, &a, &b) < 0)
        return misfit(node, &ta->shape, &tb->shape);
    if (!row)
        a.dims[a.rank++] = rows;
    if (!column)
        a.dims[a.rank++] = columns;
    sy_infer_set(in, node, 0, ta->dtype, &a);
    return SY_OK;
}

/* Up to opset 12 softmax runs over all dimensions from `axis` on; that is the same if all but one of them are 1. */
static bool is_flat_softmax(const struct sy_shape *shape, int *axis)
{
    int wide = 0, last = *axis;
    for (int i = *axis; i < shape->rank; i++) {
        if (!sy_dim_is(shape->dims[i], 1)) {
            wide++;
            last = i;
        }
    }
    if (wide <= 1)
        *axis = last;
    return wide > 1;
}

int sy_rule_softmax(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", node->opset < 13 ? 1 : -1), x->shape.rank,
                         &axis));
    if (node->opset < 13 && is_flat_softmax(&x->shape, &axis))
        SY_TRY(sy_node_set_int(node, "flat", 1));
    SY_TRY(sy_node_set_int(node, "axis", axis));
    return sy_infer_same(in, node);
}

/* Open dimensions of a scale or bias are those of the tensor that it is applied to. */
static int meet_scales(struct sy_infer *in, const struct sy_node *node, const struct sy_shape *x)
{
    for (int i = 1; i < node->n_inputs && i < 3; i++) {
        if (node->inputs[i] < 0)
            continue;
        struct sy_shape own = in->graph->tensors[node->inputs[i]].shape;
        for (int d = 1; d <= own.rank && d <= x->rank; d++) {
            struct sy_dim *size = &own.dims[own.rank - d];
            if (!sy_dim_is_number(*size) &&
                !sy_infer_same_size(in, node, size, x->dims[x->rank - d]))
                return sy_infer_fail(node, SY_EUNSUPPORTED, "input %d does not fit", i);
        }
    }
    return SY_OK;
}

int sy_rule_layer_norm(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int axis;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_axis(node, sy_node_int(node, "axis", -1), x->shape.rank, &axis));
    struct sy_shape shape = x->shape;
    bool extra = false;
    SY_TRY(meet_scales(in, node, &shape));
    for (int i = axis; i < shape.rank; i++)
        shape.dims[i] = (struct sy_dim){1, 0};
    for (int i = 1; i < node->n_outputs; i++) {
        sy_infer_set(in, node, i, SY_DTYPE_F32, &shape);
        extra = extra || (node->outputs[i] >= 0 && in->uses[node->outputs[i]] > 0);
    }
    if (!extra)
        SY_TRY(sy_infer_keep_outputs(in, node, 1));
    SY_TRY(sy_node_set_int(node, "axis", axis));
    SY_TRY(sy_node_set_float(node, "epsilon", sy_node_float(node, "epsilon", 1e-5f)));
    return sy_infer_same(in, node);
}

static void reduced_shape(struct sy_shape *shape, const bool *is_reduced, bool keep)
{
    int rank = 0;
    for (int i = 0; i < shape->rank; i++) {
        if (!is_reduced[i])
            shape->dims[rank++] = shape->dims[i];
        else if (keep)
            shape->dims[rank++] = (struct sy_dim){1, 0};
    }
    shape->rank = rank;
}

/* Axes: an attribute or an input, perhaps negative, absent for all; here always an attribute, sorted, not negative. */
int sy_rule_reduce(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int64_t axes[SY_MAX_RANK], sorted[SY_MAX_RANK];
    bool is_reduced[SY_MAX_RANK] = {false};
    int n, n_sorted = 0;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    enum sy_dtype dtype = x->dtype;
    if (!sy_infer_is_known(in, node, 1)) {
        SY_TRY(sy_infer_declared(in, node, 0, &shape));
        sy_infer_set(in, node, 0, dtype, &shape);
        return SY_OK;
    }
    SY_TRY(sy_infer_ints(in, node, 1, "axes", SY_MAX_RANK, &n, axes));
    for (int i = 0; i < n; i++) {
        int axis;
        SY_TRY(sy_infer_axis(node, axes[i], shape.rank, &axis));
        is_reduced[axis] = true;
    }
    bool all = n <= 0 && sy_node_int(node, "noop_with_empty_axes", 0) == 0;
    for (int i = 0; i < shape.rank; i++) {
        is_reduced[i] |= all;
        if (is_reduced[i])
            sorted[n_sorted++] = i;
    }
    int64_t keep = sy_node_int(node, "keepdims", 1) != 0;
    reduced_shape(&shape, is_reduced, keep);
    SY_TRY(sy_node_set_ints(node, "axes", n_sorted, sorted));
    SY_TRY(sy_node_set_int(node, "keepdims", keep));
    sy_infer_keep_inputs(node, 1);
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

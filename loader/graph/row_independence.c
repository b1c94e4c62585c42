#include "loader/graph/row_independence.h"

#include <stdlib.h>

#include "loader/graph/graph_internal.h"
#include "loader/graph/size_expr.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A tensor's batch: along `axis`, with `each` elements of that axis for each row. */
struct rows {
    enum { NONE, ROWS, ELSEWHERE } where; /* ELSEWHERE: the rows may not be separate */
    int axis, rank;
    int64_t each;
};

struct look {
    const struct sy_graph *graph, *usual;
    bool *counts; /* per tensor: values that depend on the number of rows */
};

static struct rows rows_of(const struct look *l, int tensor)
{
    struct rows r = {.where = NONE};
    if (tensor < 0)
        return r;
    const struct sy_shape *shape = &l->usual->tensors[tensor].shape;
    r.rank = shape->rank;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dims[d].per_batch == 0)
            continue;
        bool plain = r.where == NONE && shape->dims[d].fixed == 0 && shape->dims[d].per_batch > 0;
        r.where = plain ? ROWS : ELSEWHERE;
        r.axis = d;
        r.each = shape->dims[d].per_batch;
    }
    return r;
}

static struct rows input(const struct look *l, const struct sy_node *node, int i)
{
    return rows_of(l, sy_node_input(node, i));
}

static struct rows result(const struct look *l, const struct sy_node *node)
{
    return rows_of(l, node->outputs[0]);
}

/* ---- rules: the node's first result has rows ---- */

/* Each input has the batch where the result has it, counted from the last dimension, or not at all. */
static bool is_elementwise(const struct look *l, const struct sy_node *node)
{
    struct rows y = result(l, node);
    for (int i = 0; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        if (x.where == ROWS && (x.rank - x.axis != y.rank - y.axis || x.each != y.each))
            return false;
    }
    return true;
}

/* The batch is the first dimension of all operands that have it: images, norms of images, fused sums. */
static bool is_first(const struct look *l, const struct sy_node *node)
{
    struct rows y = result(l, node);
    bool all = y.axis == 0;
    for (int i = 0; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        all = all && (x.where == NONE || (x.axis == 0 && x.each == y.each));
    }
    return all && input(l, node, 0).where == ROWS;
}

/* The axis that the operator works along is another than the batch's, which stays where it is. */
static bool is_beside(const struct look *l, const struct sy_node *node, int64_t axis)
{
    struct rows x = input(l, node, 0);
    axis += axis < 0 ? x.rank : 0;
    return is_elementwise(l, node) && x.where == ROWS && axis != x.axis;
}

/* Dimensions from `axis` on are combined; the batch must precede them. */
static bool is_in_front(const struct look *l, const struct sy_node *node, int64_t axis)
{
    struct rows x = input(l, node, 0);
    axis += axis < 0 ? x.rank : 0;
    return is_elementwise(l, node) && x.where == ROWS && x.axis < axis;
}

static bool is_softmax(const struct look *l, const struct sy_node *node)
{
    int64_t axis = sy_node_int(node, "axis", node->opset < 13 ? 1 : -1);
    return node->opset < 13 || sy_node_int(node, "flat", 0) ? is_in_front(l, node, axis)
                                                            : is_beside(l, node, axis);
}

/* The result has the same elements in the same order, and as many of them in front of the batch dimension as the input. */
static bool is_view(const struct look *l, const struct sy_node *node)
{
    struct rows x = input(l, node, 0), y = result(l, node);
    struct sy_dim before = {1, 0}, after = {1, 0};
    if (x.where == NONE)
        return false;
    const struct sy_shape *from = &l->graph->tensors[node->inputs[0]].shape,
                          *to = &l->graph->tensors[node->outputs[0]].shape;
    for (int d = 0; d < x.axis; d++)
        if (sy_size_mul(before, from->dims[d], &before) < 0)
            return false;
    for (int d = 0; d < y.axis; d++)
        if (sy_size_mul(after, to->dims[d], &after) < 0)
            return false;
    return before.fixed == after.fixed && before.per_batch == after.per_batch;
}

/* In every result the batch stays one dimension with the same rows, wherever it is. */
static bool is_kept(const struct look *l, const struct sy_node *node)
{
    struct rows x = input(l, node, 0);
    bool all = x.where == ROWS;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0) {
            struct rows y = rows_of(l, node->outputs[i]);
            all = all && y.where == ROWS && y.each == x.each;
        }
    return all;
}

static bool is_concat(const struct look *l, const struct sy_node *node)
{
    struct rows y = result(l, node);
    bool all = true;
    for (int i = 0; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        all = all && x.where == ROWS && x.axis == y.axis && x.each == y.each;
    }
    return all && sy_node_int(node, "axis", 0) != y.axis;
}

/* Whether entry i of a list that inference wrote for all dimensions is `wanted`. */
static bool is_number(const struct sy_node *node, const char *name, int i, int64_t wanted)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    if (!a || i >= a->n)
        return false;
    if (a->kind == SY_ATTR_SIZES)
        return a->sizes[i].per_batch == 0 && a->sizes[i].fixed == wanted;
    return a->kind == SY_ATTR_INTS && a->ints[i] == wanted;
}

/* The batch axis is neither reversed nor shifted. */
static bool is_slice(const struct look *l, const struct sy_node *node)
{
    struct rows x = input(l, node, 0);
    return is_elementwise(l, node) && x.where == ROWS && is_number(node, "starts", x.axis, 0) &&
           is_number(node, "steps", x.axis, 1);
}

static bool is_pad(const struct look *l, const struct sy_node *node)
{
    struct rows x = input(l, node, 0);
    return is_elementwise(l, node) && x.where == ROWS && is_number(node, "pads", x.axis, 0) &&
           is_number(node, "pads", x.axis + x.rank, 0);
}

/* A table indexed by each row, or the same positions taken from each row. */
static bool is_gather(const struct look *l, const struct sy_node *node)
{
    struct rows data = input(l, node, 0), indices = input(l, node, 1), y = result(l, node);
    int64_t axis = sy_node_int(node, "axis", 0);
    axis += axis < 0 ? data.rank : 0;
    if (data.where == NONE)
        return indices.where == ROWS && y.axis == axis + indices.axis && y.each == indices.each;
    return indices.where == NONE && data.axis != axis && y.each == data.each;
}

/* A matrix product, with fused operations. */
static bool is_product(const struct look *l, const struct sy_node *node)
{
    struct rows a = input(l, node, 0), b = input(l, node, 1), y = result(l, node);
    bool gemm = node->op == SY_OP_GEMM;
    int turned_a = gemm && sy_node_int(node, "transA", 0),
        turned_b = gemm && sy_node_int(node, "transB", 0);
    for (int i = 2; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        if (x.where == ROWS && (x.rank - x.axis != y.rank - y.axis || x.each != y.each))
            return false;
    }
    int depth_a = a.rank - (turned_a ? 2 : 1), depth_b = b.rank - (turned_b ? 1 : 2);
    if (a.rank < 2 || b.rank < 2 || (a.where == ROWS && (a.axis == depth_a || a.each != y.each)) ||
        (b.where == ROWS && (b.axis == depth_b || b.each != y.each)))
        return false;
    if (a.where == ROWS && b.where == ROWS) /* separate matrices, not separate rows */
        return a.rank - a.axis == b.rank - b.axis && a.rank - a.axis > 2 &&
               a.rank - a.axis == y.rank - y.axis;
    return a.where == ROWS || b.where == ROWS;
}

static bool keeps_first(const struct sy_node *node, const char *perm)
{
    const struct sy_attr *a = sy_node_attr(node, perm);
    return a && a->kind == SY_ATTR_INTS && a->n >= 3 && a->ints[0] == 0;
}

static bool is_attention(const struct look *l, const struct sy_node *node)
{
    struct rows q = input(l, node, 0);
    for (int i = 0; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        if (x.where == ROWS ? x.rank != q.rank : i < 3)
            return false;
    }
    return is_first(l, node) && keeps_first(node, "q_perm") && keeps_first(node, "k_perm") &&
           keeps_first(node, "v_perm") && keeps_first(node, "y_perm") &&
           (sy_node_int(node, "group", 1) == 1 || sy_node_int(node, "group_axis", 0) != 0);
}

/* X and states have the batch behind time (or directions); lengths have only the batch. */
static bool is_recurrent(const struct look *l, const struct sy_node *node)
{
    int axis = sy_node_int(node, "layout", 0) ? 0 : 1;
    for (int i = 0; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        bool given = x.where == NONE ? i > 0
                                     : x.each == 1 && x.axis == (i == 4 ? 0 : axis) &&
                                           (i == 0 || (i >= 4 && i <= 6));
        if (!given)
            return false;
    }
    return true;
}

static bool is_resize(const struct look *l, const struct sy_node *node)
{
    const struct sy_attr *mode = sy_node_attr(node, "coordinate_transformation_mode");
    bool crops = mode && mode->kind == SY_ATTR_STRING && mode->s[0] == 't';
    return !crops && is_first(l, node);
}

static bool is_row_norm(const struct look *l, const struct sy_node *node)
{
    return is_in_front(l, node, sy_node_int(node, "axis", -1));
}

static bool is_along_axis(const struct look *l, const struct sy_node *node)
{
    return sy_node_attr(node, "axis") && is_beside(l, node, sy_node_int(node, "axis", 0));
}

/* The result has the same value for all rows. */
static bool is_constant(const struct look *l, const struct sy_node *node)
{
    (void)l;
    (void)node;
    return true;
}

/* Operators without a rule: false if any input has rows. */
static bool is_unknown(const struct look *l, const struct sy_node *node)
{
    (void)l;
    (void)node;
    return false;
}

typedef bool (*row_rule)(const struct look *l, const struct sy_node *node);

static const row_rule rules[] = {
#define X(id, name, shape, rows, ...) is_##rows,
    SY_OP_TABLE(X)
#undef X
};

/* ---- the graph ---- */

/* Input i holds sizes: inference has stored its value in the result's shape or the node's lists. */
static bool is_a_size(const struct sy_node *node, int i)
{
    switch (node->op) {
    case SY_OP_RESHAPE:
    case SY_OP_EXPAND:
    case SY_OP_TILE:
    case SY_OP_SLICE:
    case SY_OP_PAD:
    case SY_OP_RESIZE:
    case SY_OP_UPSAMPLE:
        return i > 0;
    default:
        return node->op == SY_OP_CONSTANT_OF_SHAPE;
    }
}

static bool counts_rows(const struct sy_node *node)
{
    const struct sy_attr *a = node->op == SY_OP_NUMBERS ? sy_node_attr(node, "per_batch") : NULL;
    bool any = a && a->kind != SY_ATTR_INTS;
    for (int i = 0; a && a->kind == SY_ATTR_INTS && i < a->n; i++)
        any = any || a->ints[i] != 0;
    return any;
}

static bool is_apart(const struct look *l, const struct sy_node *node)
{
    bool any_rows = false, all_rows = true;
    for (int i = 0; i < node->n_inputs; i++) {
        struct rows x = input(l, node, i);
        any_rows = any_rows || x.where != NONE;
        if (x.where == ELSEWHERE ||
            (node->inputs[i] >= 0 && l->counts[node->inputs[i]] && !is_a_size(node, i)))
            return false;
    }
    for (int i = 0; i < node->n_outputs; i++) {
        struct rows y = rows_of(l, node->outputs[i]);
        if (y.where == ELSEWHERE)
            return false;
        any_rows = any_rows || y.where == ROWS;
        all_rows = all_rows && (y.where == ROWS || node->outputs[i] < 0);
    }
    return !any_rows ||
           (all_rows && node->n_outputs > 0 && node->outputs[0] >= 0 && rules[node->op](l, node));
}

static bool has_rows(const struct look *l)
{
    for (int i = 0; i < l->usual->n_inputs; i++)
        if (rows_of(l, l->usual->inputs[i]).where != NONE)
            return true;
    return false;
}

bool sy_graph_rows_are_independent(const struct sy_graph *graph, const struct sy_graph *usual)
{
    struct look l = {graph, usual, calloc((size_t)usual->n_tensors + 1, sizeof *l.counts)};
    /* Each request with strings needs its own heap. */
    bool all = l.counts != NULL && usual->string_bytes == 0 && has_rows(&l);
    for (int n = 0; n < usual->n_nodes && all; n++) {
        const struct sy_node *node = &usual->nodes[n];
        all = is_apart(&l, node);
        for (int i = 0; i < node->n_outputs && counts_rows(node); i++)
            if (node->outputs[i] >= 0)
                l.counts[node->outputs[i]] = true;
    }
    for (int i = 0; i < usual->n_outputs && all; i++)
        all = !l.counts[usual->outputs[i]];
    free(l.counts);
    return all;
}

/* Gradient (ai.onnx.preview.training): the nodes between its inputs and `y` backwards, as nodes. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct back {
    struct sy_expand *e;
    bool *depends; /* per tensor: depends on a variable of the differentiation */
    int *gradient; /* per such tensor; -1: none yet */
    /* the node being differentiated; a copy, since adding nodes moves them */
    enum sy_op op;
    const char *name;
    int n_in, in[8], out, g; /* its inputs, result, and the result's gradient */
    int64_t axes[SY_MAX_RANK], keepdims;
    int n_axes;
};

static struct sy_shape shape_of(const struct back *b, int tensor)
{
    return b->e->graph->tensors[tensor].shape;
}

static int number(struct back *b, double value)
{
    return sy_expand_number(b->e, b->e->graph->tensors[b->out].dtype, value);
}

static int shape_node(struct back *b, int tensor)
{
    return SY_EXPAND(b->e, SHAPE, tensor);
}

/* Sums g over the dimensions along which `tensor` was broadcast. */
static int shrink(struct back *b, int g, int tensor)
{
    struct sy_shape from = shape_of(b, b->out), to = shape_of(b, tensor);
    int64_t axes[SY_MAX_RANK], leading[SY_MAX_RANK];
    int n = 0, n_leading = from.rank - to.rank;
    for (int d = 0; d < from.rank; d++) {
        bool is_new = d < n_leading;
        if (is_new)
            leading[d] = d;
        if (is_new || (sy_dim_is(to.dims[d - n_leading], 1) && !sy_dim_is(from.dims[d], 1)))
            axes[n++] = d;
    }
    if (n == 0)
        return g;
    g = SY_EXPAND(b->e, REDUCE_SUM, g, sy_expand_ints(b->e, axes, n));
    sy_expand_set_int(b->e, "keepdims", 1);
    return n_leading > 0 ? SY_EXPAND(b->e, SQUEEZE, g, sy_expand_ints(b->e, leading, n_leading))
                         : g;
}

/* Adds g, which has the result's shape, to the gradient of input i, summed over the dimensions along which that was broadcast. */
static void give(struct back *b, int i, int g)
{
    int tensor = b->in[i];
    if (b->e->status < 0 || tensor < 0 || !b->depends[tensor])
        return;
    g = shrink(b, g, tensor);
    int *sum = &b->gradient[tensor];
    *sum = *sum < 0 ? g : SY_EXPAND(b->e, ADD, *sum, g);
}

/* As give, for a gradient that has the input's shape. */
static void give_shaped(struct back *b, int i, int g)
{
    int tensor = b->in[i];
    if (b->e->status < 0 || tensor < 0 || !b->depends[tensor])
        return;
    int *sum = &b->gradient[tensor];
    *sum = *sum < 0 ? g : SY_EXPAND(b->e, ADD, *sum, g);
}

static int mul(struct back *b, int x, int y)
{
    return SY_EXPAND(b->e, MUL, x, y);
}

/* ---- operators ---------------------------------------------------------------------------------- */

static bool back_pair(struct back *b)
{
    struct sy_expand *e = b->e;
    int x = b->in[0], y = b->n_in > 1 ? b->in[1] : -1, g = b->g;
    switch (b->op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
        for (int i = 0; i < b->n_in; i++)
            give(b, i, g);
        return true;
    case SY_OP_SUB:
        give(b, 0, g);
        give(b, 1, SY_EXPAND(e, NEG, g));
        return true;
    case SY_OP_MUL:
        give(b, 0, mul(b, g, y));
        give(b, 1, mul(b, g, x));
        return true;
    case SY_OP_DIV:
        give(b, 0, SY_EXPAND(e, DIV, g, y));
        give(b, 1, SY_EXPAND(e, NEG, SY_EXPAND(e, DIV, mul(b, g, b->out), y)));
        return true;
    case SY_OP_POW:
        if (b->depends[y])
            return false;
        give(b, 0, mul(b, mul(b, g, y), SY_EXPAND(e, POW, x, SY_EXPAND(e, SUB, y, number(b, 1)))));
        return true;
    default:
        return false;
    }
}

/* dy/dx of unary operators, as a tensor; -1: not supported. */
static int slope(struct back *b)
{
    struct sy_expand *e = b->e;
    int x = b->in[0], y = b->out;
    switch (b->op) {
    case SY_OP_NEG:
        return number(b, -1);
    case SY_OP_EXP:
        return y;
    case SY_OP_LOG:
        return SY_EXPAND(e, RECIPROCAL, x);
    case SY_OP_SQRT:
        return SY_EXPAND(e, DIV, number(b, 0.5), y);
    case SY_OP_TANH:
        return SY_EXPAND(e, SUB, number(b, 1), mul(b, y, y));
    case SY_OP_SIGMOID:
        return mul(b, y, SY_EXPAND(e, SUB, number(b, 1), y));
    case SY_OP_ABS:
        return SY_EXPAND(e, SIGN, x);
    case SY_OP_RELU:
        return SY_EXPAND(e, SIGN, y);
    case SY_OP_SIN:
        return SY_EXPAND(e, COS, x);
    case SY_OP_COS:
        return SY_EXPAND(e, NEG, SY_EXPAND(e, SIN, x));
    case SY_OP_RECIPROCAL:
        return SY_EXPAND(e, NEG, mul(b, y, y));
    default:
        return -1;
    }
}

static int turned(struct back *b, int tensor)
{
    int64_t perm[SY_MAX_RANK];
    int rank = shape_of(b, tensor).rank;
    for (int d = 0; d < rank; d++)
        perm[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    return sy_expand_transpose(b->e, tensor, perm, rank);
}

/* g bT and aT g, of matrices of the same batches. */
static bool back_matmul(struct back *b)
{
    struct sy_shape x = shape_of(b, b->in[0]), y = shape_of(b, b->in[1]);
    bool alike = x.rank == y.rank && x.rank >= 2;
    for (int d = 0; alike && d + 2 < x.rank; d++)
        alike = sy_dim_equal(x.dims[d], y.dims[d]);
    if (!alike)
        return false;
    give_shaped(b, 0, SY_EXPAND(b->e, MATMUL, b->g, turned(b, b->in[1])));
    give_shaped(b, 1, SY_EXPAND(b->e, MATMUL, turned(b, b->in[0]), b->g));
    return true;
}

/* Sums and means: broadcasts g along the reduced axes. */
static void back_reduce(struct back *b)
{
    struct sy_expand *e = b->e;
    int g = b->g, x = b->in[0];
    if (!b->keepdims && b->n_axes > 0)
        g = SY_EXPAND(e, UNSQUEEZE, g, sy_expand_ints(e, b->axes, b->n_axes));
    if (b->op == SY_OP_REDUCE_MEAN) {
        enum sy_dtype dtype = e->graph->tensors[b->out].dtype;
        int all = sy_expand_cast(e, SY_EXPAND(e, SIZE, x), dtype),
            left = sy_expand_cast(e, SY_EXPAND(e, SIZE, b->out), dtype);
        g = mul(b, g, SY_EXPAND(e, DIV, left, all));
    }
    give_shaped(b, 0, SY_EXPAND(e, EXPAND, g, shape_node(b, x)));
}

static bool back_move(struct back *b)
{
    switch (b->op) {
    case SY_OP_IDENTITY:
        give_shaped(b, 0, b->g);
        return true;
    case SY_OP_RESHAPE:
    case SY_OP_FLATTEN:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
        give_shaped(b, 0, SY_EXPAND(b->e, RESHAPE, b->g, shape_node(b, b->in[0])));
        return true;
    case SY_OP_REDUCE_SUM:
    case SY_OP_REDUCE_MEAN:
        back_reduce(b);
        return true;
    case SY_OP_MATMUL:
        return back_matmul(b);
    default:
        return false;
    }
}

/* ---- the walk ------------------------------------------------------------------------------------ */

static bool copy_node(struct back *b, const struct sy_node *node)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    if (node->n_inputs < 1 || node->n_inputs > (int)SY_ARRAY_LEN(b->in))
        return false;
    b->op = node->op;
    b->name = sy_op_name(node->op);
    b->n_in = node->n_inputs;
    memcpy(b->in, node->inputs, (size_t)node->n_inputs * sizeof *b->in);
    b->out = node->outputs[0];
    b->g = b->gradient[b->out];
    b->keepdims = sy_node_int(node, "keepdims", 1);
    b->n_axes = axes && axes->kind == SY_ATTR_INTS ? SY_MIN(axes->n, SY_MAX_RANK) : 0;
    for (int i = 0; i < b->n_axes; i++)
        b->axes[i] = axes->ints[i];
    return true;
}

static bool reads_dependent(const struct back *b, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && b->depends[node->inputs[i]])
            return true;
    return false;
}

static void mark_dependent(struct back *b)
{
    for (int n = 0; n < b->e->first; n++) {
        const struct sy_node *node = &b->e->graph->nodes[n];
        if (reads_dependent(b, node))
            for (int i = 0; i < node->n_outputs; i++)
                if (node->outputs[i] >= 0)
                    b->depends[node->outputs[i]] = true;
    }
}

static void walk(struct back *b)
{
    for (int n = b->e->first - 1; n >= 0 && b->e->status == SY_OK; n--) {
        const struct sy_node *node = &b->e->graph->nodes[n];
        if (node->n_outputs < 1 || node->outputs[0] < 0 || b->gradient[node->outputs[0]] < 0 ||
            !reads_dependent(b, node))
            continue;
        bool known = copy_node(b, node);
        int dx = known ? slope(b) : -1;
        if (dx >= 0)
            give_shaped(b, 0, mul(b, b->g, dx));
        else if (!known || (!back_pair(b) && !back_move(b)))
            sy_expand_fail(b->e, SY_EUNSUPPORTED, "it leads through %s, of which it has no slope",
                           sy_op_name(b->e->graph->nodes[n].op));
    }
}

/* The inputs must be the tensors that the attributes name; substituting others would require recomputing the nodes between. */
static int check_names(struct back *b, const struct sy_attr *list, int from)
{
    struct sy_expand *e = b->e;
    for (int i = 0; list && i < list->n; i++) {
        size_t bytes;
        int tensor = sy_expand_input(e, from + i);
        if (tensor < 0 ||
            strcmp(e->graph->tensors[tensor].name, sy_attr_string(list, i, &bytes)) != 0)
            return sy_expand_fail(e, SY_EUNSUPPORTED,
                                  "input %d is another tensor than the one that is named",
                                  from + i);
    }
    return SY_OK;
}

static int differentiate(struct back *b, int n_xs, int y)
{
    struct sy_expand *e = b->e;
    for (int i = 0; i < n_xs; i++)
        b->depends[sy_expand_input(e, i)] = true;
    mark_dependent(b);
    b->out = y;
    b->gradient[y] = SY_EXPAND(e, EXPAND, number(b, 1), shape_node(b, y));
    walk(b);
    for (int i = 0; i < n_xs && e->status == SY_OK; i++) {
        int x = sy_expand_input(e, i), g = b->gradient[x];
        b->out = x;
        if (g < 0) /* y does not depend on it */
            g = SY_EXPAND(e, EXPAND, number(b, 0), shape_node(b, x));
        sy_expand_result(e, i, g);
    }
    return e->status;
}

static int expand_gradient(struct sy_expand *e)
{
    struct back b = {.e = e};
    const struct sy_attr *xs = sy_node_attr(e->node, "xs"), *zs = sy_node_attr(e->node, "zs");
    int n_xs = xs ? xs->n : 0, n_zs = zs ? zs->n : 0, y = sy_expand_input(e, e->node->n_inputs - 1);
    size_t n = (size_t)e->graph->n_tensors;
    if (n_xs < 1 || n_xs + n_zs + 1 != e->node->n_inputs || e->node->n_outputs > n_xs || y < 0)
        return sy_expand_fail(e, SY_ECORRUPT, "%d inputs, %d outputs, %d names", e->node->n_inputs,
                              e->node->n_outputs, n_xs);
    SY_TRY(check_names(&b, xs, 0));
    SY_TRY(check_names(&b, zs, n_xs));
    SY_TRY(sy_graph_alloc(n, sizeof *b.depends, &b.depends));
    int status = sy_graph_alloc(n, sizeof *b.gradient, &b.gradient);
    for (size_t t = 0; status == SY_OK && t < n; t++)
        b.gradient[t] = -1;
    if (status == SY_OK)
        status = differentiate(&b, n_xs, y);
    free(b.depends);
    free(b.gradient);
    return status;
}

const struct sy_expander_line sy_expanders_gradient[] = {{SY_OP_GRADIENT, expand_gradient}, {0}};

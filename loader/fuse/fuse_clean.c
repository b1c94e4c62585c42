/* Passes that take away: nodes that do nothing, reshapes of reshapes, padding before a window. */
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static bool all_are(const struct sy_attr *attr, int64_t value)
{
    if (!attr || attr->kind != SY_ATTR_INTS)
        return false;
    for (int i = 0; i < attr->n; i++)
        if (attr->ints[i] != value)
            return false;
    return true;
}

static bool is_straight(const struct sy_attr *perm)
{
    for (int i = 0; perm && i < perm->n; i++)
        if (perm->ints[i] != i)
            return false;
    return perm != NULL;
}

static bool is_noop(const struct sy_fuse *f, const struct sy_node *node)
{
    if (node->n_inputs < 1 || node->n_outputs != 1 || node->inputs[0] < 0)
        return false;
    const struct sy_tensor *x = sy_fuse_tensor(f, node->inputs[0]),
                           *y = sy_fuse_tensor(f, node->outputs[0]);
    bool same = x->dtype == y->dtype && sy_shape_equal(&x->shape, &y->shape);
    switch (node->op) {
    case SY_OP_IDENTITY:
        return true;
    case SY_OP_CAST:
    case SY_OP_RESHAPE:
    case SY_OP_FLATTEN:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
    case SY_OP_EXPAND:
        return same;
    case SY_OP_CONCAT:
    case SY_OP_SUM:
        return node->n_inputs == 1;
    case SY_OP_PAD:
        return all_are(sy_node_attr(node, "pads"), 0);
    case SY_OP_SLICE:
        return same && all_are(sy_node_attr(node, "starts"), 0) &&
               all_are(sy_node_attr(node, "steps"), 1);
    case SY_OP_TRANSPOSE:
        return same && is_straight(sy_node_attr(node, "perm"));
    default:
        return false;
    }
}

/* The maker of x writes to `out`, which is a graph output and keeps its name. */
static bool write_directly(struct sy_fuse *f, int x, int out)
{
    if (f->producer[x] < 0 || sy_graph_is_input(f->graph, x) || sy_graph_is_output(f->graph, x))
        return false;
    struct sy_node *maker = &f->graph->nodes[f->producer[x]];
    for (int i = 0; i < maker->n_outputs; i++)
        if (maker->outputs[i] == x)
            maker->outputs[i] = out;
    f->producer[out] = f->producer[x];
    f->producer[x] = -1;
    sy_graph_replace_uses(f->graph, x, out);
    return true;
}

/* Identity, Dropout at inference, Cast to the same type, Reshape to the same shape and the like. One that leads from an
 * input (or a constant, or another output) to an output stays: outputs are memory of their own. */
int sy_fuse_noops(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        if (node->op == SY_OP_SUM && node->n_inputs == 2)
            node->op = SY_OP_ADD;
        if (!is_noop(f, node))
            continue;
        int x = node->inputs[0], out = node->outputs[0];
        if (sy_graph_is_output(f->graph, out)) {
            if (!write_directly(f, x, out)) {
                node->op = SY_OP_IDENTITY;
                node->n_inputs = 1;
                continue;
            }
        } else {
            sy_graph_replace_uses(f->graph, out, x);
        }
        sy_node_finish(node);
    }
    return SY_OK;
}

static bool is_one(struct sy_dim dim)
{
    return dim.fixed == 1 && dim.per_batch == 0;
}

/* The axes that are not 1 keep their order: no element moves. */
static bool moves_nothing(const struct sy_shape *shape, const struct sy_attr *perm)
{
    int64_t last = -1;
    for (int i = 0; i < perm->n; i++) {
        if (is_one(shape->dims[perm->ints[i]]))
            continue;
        if (perm->ints[i] < last)
            return false;
        last = perm->ints[i];
    }
    return true;
}

/* Transpose(Transpose(x)) -> Transpose(x), with the axes of both. */
static int join_transposes(const struct sy_fuse *f, struct sy_node *node)
{
    const struct sy_node *before = sy_fuse_maker(f, node->inputs[0], SY_OP_TRANSPOSE);
    const struct sy_attr *outer = sy_node_attr(node, "perm"),
                         *inner = before ? sy_node_attr(before, "perm") : NULL;
    int64_t both[SY_MAX_RANK];
    if (!outer || !inner || outer->n != inner->n)
        return SY_OK;
    for (int i = 0; i < outer->n; i++)
        both[i] = inner->ints[outer->ints[i]];
    SY_TRY(sy_node_set_ints(node, "perm", outer->n, both));
    node->inputs[0] = before->inputs[0];
    return SY_OK;
}

/* In the order of the graph, so that a chain ends as one. One that moves nothing is a Reshape. */
int sy_fuse_transposes(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        if (node->op != SY_OP_TRANSPOSE)
            continue;
        SY_TRY(join_transposes(f, node));
        const struct sy_attr *perm = sy_node_attr(node, "perm");
        const struct sy_shape *shape = &sy_fuse_tensor(f, node->inputs[0])->shape;
        if (perm && perm->n == shape->rank && moves_nothing(shape, perm))
            SY_TRY(sy_fuse_become(f, node, SY_OP_RESHAPE, 1, (const int[]){node->inputs[0]}));
    }
    return SY_OK;
}

static bool is_reshape(const struct sy_node *node)
{
    return node->n_outputs == 1 && (node->op == SY_OP_RESHAPE || node->op == SY_OP_FLATTEN ||
                                    node->op == SY_OP_SQUEEZE || node->op == SY_OP_UNSQUEEZE);
}

/* Flatten(Reshape(x)) -> Reshape(x): only the last shape counts. */
int sy_fuse_reshapes(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        if (!is_reshape(node) || f->producer[node->inputs[0]] < 0)
            continue;
        const struct sy_node *before = &f->graph->nodes[f->producer[node->inputs[0]]];
        if (is_reshape(before))
            SY_TRY(sy_fuse_become(f, node, SY_OP_RESHAPE, 1, before->inputs));
    }
    return SY_OK;
}

/* Zero padding of the spatial dimensions only. */
static bool is_zero_border(const struct sy_node *pad)
{
    const struct sy_attr *mode = sy_node_attr(pad, "mode"), *pads = sy_node_attr(pad, "pads");
    if (mode && mode->kind == SY_ATTR_STRING && strcmp(mode->s, "constant") != 0)
        return false;
    if (!pads || pads->kind != SY_ATTR_INTS || pads->n < 6 || sy_node_float(pad, "value", 0) != 0)
        return false;
    for (int i = 0; i < pads->n; i++)
        if (pads->ints[i] < 0 || (i % (pads->n / 2) < 2 && pads->ints[i] != 0))
            return false;
    return true;
}

/* Conv(Pad(x)) -> Conv(x) with larger pads. An AveragePool without padding of its own then counts the zeros. */
static int fold_pad(struct sy_fuse *f, struct sy_node *node)
{
    const struct sy_node *pad = sy_fuse_maker(f, node->inputs[0], SY_OP_PAD);
    const struct sy_attr *own = sy_node_attr(node, "pads");
    int64_t sum[2 * SY_MAX_RANK];
    bool pool = node->op == SY_OP_AVERAGE_POOL;
    if (!pad || !own || own->kind != SY_ATTR_INTS || !is_zero_border(pad) ||
        (pool && (!all_are(own, 0) || sy_node_int(node, "ceil_mode", 0))))
        return SY_OK;
    const struct sy_attr *border = sy_node_attr(pad, "pads");
    int n = own->n / 2, rank = border->n / 2;
    if (rank != n + 2)
        return SY_OK;
    for (int i = 0; i < n; i++) {
        sum[i] = own->ints[i] + border->ints[i + 2];
        sum[i + n] = own->ints[i + n] + border->ints[i + 2 + rank];
    }
    SY_TRY(sy_node_set_ints(node, "pads", 2 * n, sum));
    if (pool)
        SY_TRY(sy_node_set_int(node, "count_include_pad", 1));
    node->inputs[0] = pad->inputs[0];
    return SY_OK;
}

int sy_fuse_pads(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_CONV || f->graph->nodes[n].op == SY_OP_AVERAGE_POOL)
            SY_TRY(fold_pad(f, &f->graph->nodes[n]));
    return SY_OK;
}

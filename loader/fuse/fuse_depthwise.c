/* Depthwise convolutions of one dimension as two-dimensional ones. */
#include <stdio.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/status.h"

static bool has_ints(const struct sy_node *node, const char *name, int n)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return !attr || (attr->kind == SY_ATTR_INTS && attr->n == n);
}

/* Whether it is a depthwise convolution along one dimension with constant weights. */
static bool is_depthwise_line(const struct sy_fuse *f, const struct sy_node *node)
{
    if (node->op != SY_OP_CONV || node->n_inputs < 2 || !has_ints(node, "kernel_shape", 1) ||
        !has_ints(node, "strides", 1) || !has_ints(node, "dilations", 1) ||
        !has_ints(node, "pads", 2))
        return false;
    const struct sy_tensor *x = sy_fuse_tensor(f, node->inputs[0]),
                           *w = sy_fuse_tensor(f, node->inputs[1]);
    int64_t groups = sy_node_int(node, "group", 1);
    return x->dtype == SY_DTYPE_F32 && x->shape.rank == 3 && w->data && w->dtype == SY_DTYPE_F32 &&
           w->shape.rank == 3 && groups > 1 && w->shape.dims[0].fixed == groups &&
           w->shape.dims[1].fixed == 1;
}

/* The shape with a last dimension of 1. */
static struct sy_shape raised(const struct sy_fuse *f, int tensor)
{
    struct sy_shape shape = sy_fuse_tensor(f, tensor)->shape;
    shape.dims[shape.rank++] = (struct sy_dim){1, 0};
    return shape;
}

/* *tensor becomes a view of it with that shape. */
static int raise_input(struct sy_fuse *f, const char *of, int *tensor)
{
    struct sy_shape shape = raised(f, *tensor);
    char name[256];
    int view;
    snprintf(name, sizeof name, "%.200s/raised%d", of, f->graph->n_tensors);
    SY_TRY(sy_graph_add_tensor(f->graph, name, SY_DTYPE_F32, &shape, &view));
    SY_TRY(sy_graph_add_node(f->graph, SY_OP_RESHAPE, 13, name, 1, tensor, 1, &view, NULL));
    *tensor = view;
    return SY_OK;
}

/* A copy: other nodes may share the weights. */
static int raise_weights(struct sy_fuse *f, const char *of, int *tensor)
{
    struct sy_shape shape = raised(f, *tensor);
    char name[256];
    float *to;
    int copy;
    snprintf(name, sizeof name, "%.200s/raised%d", of, f->graph->n_tensors);
    SY_TRY(sy_fuse_constant(f, name, &shape, &copy, &to));
    const struct sy_tensor *from = sy_fuse_tensor(f, *tensor);
    memcpy(to, from->data, from->data_bytes);
    *tensor = copy;
    return SY_OK;
}

/* An attribute of one number a dimension, or (pads) of all beginnings and then all ends. */
static int raise_attr(struct sy_node *node, const char *name, int64_t of_new)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    int64_t values[4];
    if (!attr)
        return SY_OK;
    for (int i = 0; i < attr->n; i++) {
        values[2 * i] = attr->ints[i];
        values[2 * i + 1] = of_new;
    }
    return sy_node_set_ints(node, name, 2 * attr->n, values);
}

static int raise_node(struct sy_fuse *f, int n)
{
    struct sy_node *node = &f->graph->nodes[n];
    int out = node->outputs[0], made, inputs[2] = {node->inputs[0], node->inputs[1]};
    int residual = node->residual_input, added = residual >= 0 ? node->inputs[residual] : -1;
    struct sy_shape shape = raised(f, out);
    char of[256], name[256];
    snprintf(of, sizeof of, "%.200s", node->name);
    snprintf(name, sizeof name, "%.200s/raised%d", of, f->graph->n_tensors);
    SY_TRY(raise_input(f, of, &inputs[0]));
    SY_TRY(raise_weights(f, of, &inputs[1]));
    if (added >= 0)
        SY_TRY(raise_input(f, of, &added));
    SY_TRY(sy_graph_add_tensor(f->graph, name, SY_DTYPE_F32, &shape, &made));
    SY_TRY(sy_graph_add_node(f->graph, SY_OP_RESHAPE, 13, of, 1, &made, 1, &out, NULL));
    node = &f->graph->nodes[n]; /* they moved */
    node->inputs[0] = inputs[0];
    node->inputs[1] = inputs[1];
    if (added >= 0)
        node->inputs[residual] = added;
    node->outputs[0] = made;
    SY_TRY(raise_attr(node, "kernel_shape", 1));
    SY_TRY(raise_attr(node, "strides", 1));
    SY_TRY(raise_attr(node, "dilations", 1));
    return raise_attr(node, "pads", 0);
}

int sy_fuse_depthwise_lines(struct sy_fuse *f)
{
    bool changed = false;
    int n_nodes = f->graph->n_nodes;
    for (int n = 0; n < n_nodes; n++) {
        if (!is_depthwise_line(f, &f->graph->nodes[n]))
            continue;
        SY_TRY(raise_node(f, n));
        changed = true;
    }
    return changed ? sy_graph_sort(f->graph) : SY_OK;
}

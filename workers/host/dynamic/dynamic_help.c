#include "workers/host/dynamic/dynamic_help.h"

/* A node is worth the transfer from some ten multiplications per byte on: 16 cores with AVX-512 do 250 per nanosecond, the link moves 25 bytes. Below four
 * million multiplications the latency dominates. Calculated, not measured. */
#define LEAST_PER_BYTE        12
#define LEAST_MULTIPLICATIONS (1 << 22)

static const struct sy_node_helper *the_helper;

void sy_dynamic_use_helper(const struct sy_node_helper *helper)
{
    the_helper = helper;
}

bool sy_dynamic_has_helper(void)
{
    return the_helper != NULL;
}

static double elements(const struct sy_graph *graph, int tensor)
{
    return tensor < 0 ? 0 : (double)sy_shape_elements(&graph->tensors[tensor].shape, 1);
}

static double multiplications(const struct sy_graph *g, const struct sy_node *node)
{
    const struct sy_tensor *a = &g->tensors[node->inputs[0]], *b = &g->tensors[node->inputs[1]];
    double out = elements(g, node->outputs[0]);
    if (a->dtype != SY_DTYPE_F32 || a->shape.rank < 1 || b->shape.rank < 1 || out < 1)
        return 0;
    switch (node->op) {
    case SY_OP_GEMM:
        return out * (double)a->shape.dims[sy_node_int(node, "transA", 0) ? 0 : 1].fixed;
    case SY_OP_MATMUL:
        return out * (double)a->shape.dims[a->shape.rank - 1].fixed;
    case SY_OP_CONV:
        return out * elements(g, node->inputs[1]) / (double)b->shape.dims[0].fixed;
    case SY_OP_CONV_TRANSPOSE:
        return elements(g, node->inputs[0]) * elements(g, node->inputs[1]) /
               (double)b->shape.dims[0].fixed;
    default:
        return 0;
    }
}

const struct sy_node_helper *sy_dynamic_helper(const struct sy_graph *graph)
{
    const struct sy_node *node = &graph->nodes[0];
    double bytes = 0;
    if (!the_helper || graph->n_nodes != 1 || node->n_inputs < 2 || node->n_outputs != 1 ||
        node->inputs[0] < 0 || node->inputs[1] < 0 || node->outputs[0] < 0)
        return NULL;
    for (int i = 0; i < node->n_inputs; i++)
        bytes += 4 * elements(graph, node->inputs[i]);
    bytes += 4 * elements(graph, node->outputs[0]);
    double n = multiplications(graph, node);
    return n >= LEAST_MULTIPLICATIONS && n >= LEAST_PER_BYTE * bytes ? the_helper : NULL;
}

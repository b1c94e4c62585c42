#include "workers/engine/keeps_precision.h"

bool sy_keeps_precision(const struct sy_graph *graph, const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_RELU:
    case SY_OP_LEAKY_RELU:
    case SY_OP_SIGMOID:
    case SY_OP_TANH:
    case SY_OP_CLIP:
    case SY_OP_GELU:
    case SY_OP_SWISH:
    case SY_OP_HARD_SWISH:
    case SY_OP_MAX_POOL:
    case SY_OP_AVERAGE_POOL:
    case SY_OP_GLOBAL_AVERAGE_POOL:
    case SY_OP_GLOBAL_MAX_POOL:
    case SY_OP_CONCAT:
    case SY_OP_SPLIT:
    case SY_OP_SLICE:
    case SY_OP_TRANSPOSE:
    case SY_OP_RESHAPE:
    case SY_OP_FLATTEN:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
    case SY_OP_IDENTITY:
        return true;
    case SY_OP_ADD:
    case SY_OP_SUB:
    case SY_OP_MUL:
        return sy_shape_equal(&graph->tensors[node->inputs[0]].shape,
                              &graph->tensors[node->inputs[1]].shape);
    default:
        return false;
    }
}

bool sy_is_large_product(const struct sy_graph *graph, const struct sy_node *node)
{
    const struct sy_shape *a = &graph->tensors[node->inputs[0]].shape,
                          *b = &graph->tensors[node->inputs[1]].shape;
    const int64_t least = 16;
    return a->rank >= 2 && b->rank >= 2 && sy_dim_at(a->dims[a->rank - 1], 1) >= least &&
           sy_dim_at(b->dims[b->rank - 2], 1) >= least &&
           sy_dim_at(b->dims[b->rank - 1], 1) >= least;
}

unsigned sy_wants_of_results(const struct sy_node *node, const unsigned char *wants)
{
    unsigned all = 0;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            all |= wants[node->outputs[i]];
    return all;
}

void sy_wants_plan(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                   unsigned (*wanted_as)(const struct sy_program *program,
                                         const struct sy_layer *layer, int input),
                   const struct sy_program *program, unsigned char *wants)
{
    for (int i = 0; i < graph->n_outputs; i++)
        wants[graph->outputs[i]] |= SY_WANT_WIDE;
    for (int l = n_layers - 1; l >= 0; l--) {
        const struct sy_node *node = &graph->nodes[layers[l].node];
        for (int i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                wants[node->inputs[i]] |= (unsigned char)wanted_as(program, &layers[l], i);
    }
}

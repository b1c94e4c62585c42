#include "workers/engine/keeps_precision.h"

bool sy_node_propagates_precision(const struct sy_graph *graph, const struct sy_node *node)
{
    switch (sy_op_facts(node->op)->narrow) {
    case SY_NARROW_ALWAYS:
        return true;
    case SY_NARROW_ALIKE:
        return sy_shape_equal(&graph->tensors[node->inputs[0]].shape,
                              &graph->tensors[node->inputs[1]].shape);
    case SY_NARROW_NEVER:
        return false;
    }
    return false;
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

#include "workers/engine/layer_node.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/status.h"

const struct sy_param *sy_layer_param(const struct sy_layer *layer, int input)
{
    for (int i = 0; i < layer->n_params; i++)
        if (layer->params[i].input == input)
            return &layer->params[i];
    return NULL;
}

bool sy_layer_packed_alike(const struct sy_layer *a, const struct sy_layer *b)
{
    bool same = a->bytes == b->bytes && a->n_params == b->n_params;
    for (int i = 0; same && i < a->n_params; i++) {
        const struct sy_param *p = &a->params[i], *q = &b->params[i];
        same = p->input == q->input && p->offset_bytes == q->offset_bytes && p->bytes == q->bytes &&
               p->layout_bytes == q->layout_bytes &&
               (p->layout_bytes == 0 || memcmp(p->layout, q->layout, p->layout_bytes) == 0);
    }
    return same;
}

void sy_last_uses(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                  int *last_use)
{
    for (int t = 0; t < graph->n_tensors; t++)
        last_use[t] = -1;
    for (int l = 0; l < n_layers; l++) {
        const struct sy_node *node = &graph->nodes[layers[l].node];
        for (int i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                last_use[node->inputs[i]] = l;
    }
}

bool sy_node_makes(const struct sy_node *node, int tensor)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] == tensor)
            return true;
    return false;
}

int sy_unsupported(const struct sy_node *node, const char *what)
{
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s", node->name,
                        sy_op_name(node->op), node->opset, what);
}

int sy_node_check_outputs(const struct sy_graph *graph, const struct sy_node *node,
                          const int *values)
{
    char what[96];
    for (int i = 0; i < node->n_outputs; i++) {
        int tensor = node->outputs[i];
        if (tensor < 0 || values[tensor] >= 0 || !sy_graph_is_read(graph, tensor))
            continue;
        snprintf(what, sizeof what, "its output %d (%.48s)", i, graph->tensors[tensor].name);
        return sy_unsupported(node, what);
    }
    return SY_OK;
}

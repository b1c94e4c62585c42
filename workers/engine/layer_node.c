#include "workers/engine/layer_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

bool sy_op_is_among(const enum sy_op *ops, int n, enum sy_op op)
{
    for (int i = 0; i < n; i++)
        if (ops[i] == op)
            return true;
    return false;
}

static int add_param(const struct sy_graph *graph, const struct sy_param_rules *rules,
                     struct sy_layer *layer, int input)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    struct sy_param *param = &layer->params[layer->n_params];
    struct sy_param_form form = {0};
    SY_TRY(rules->form(graph, node, input, &form));
    *param = (struct sy_param){.input = input,
                               .offset_bytes = SY_ALIGN_UP(layer->bytes, (uint64_t)SY_PARAM_ALIGN),
                               .bytes = form.bytes};
    if (form.layout_bytes) {
        param->layout = malloc(form.layout_bytes);
        SY_TRY_ALLOC(param->layout, "no memory for the layout of %s",
                     graph->tensors[node->inputs[input]].name);
        memcpy(param->layout, form.layout, form.layout_bytes);
        param->layout_bytes = form.layout_bytes;
    }
    layer->bytes = param->offset_bytes + param->bytes;
    layer->n_params++;
    return SY_OK;
}

int sy_layer_lay_out(const struct sy_graph *graph, const struct sy_param_rules *rules,
                     struct sy_layer *layer)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    layer->bytes = 0;
    layer->n_params = 0;
    layer->params = calloc((size_t)(node->n_inputs ? node->n_inputs : 1), sizeof *layer->params);
    SY_TRY_ALLOC(layer->params, "no memory for the parameters of node %s", node->name);
    for (int i = 0; i < node->n_inputs; i++)
        if (rules->is_param(graph, node, i))
            SY_TRY(add_param(graph, rules, layer, i));
    layer->bytes = SY_ALIGN_UP(layer->bytes, (uint64_t)SY_LAYER_ALIGN);
    return SY_OK;
}

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

bool sy_tensor_is_needed(const struct sy_node *node, int tensor, int but_input, const int *last_use,
                         int layer)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (i != but_input && node->inputs[i] == tensor)
            return true;
    return last_use[tensor] > layer;
}

int sy_tensor_dims(const struct sy_graph *graph, int tensor, int64_t batch, int64_t *dims)
{
    const struct sy_shape *shape = &graph->tensors[tensor].shape;
    for (int i = 0; i < shape->rank; i++)
        dims[i] = sy_dim_at(shape->dims[i], batch);
    return shape->rank;
}

void sy_row_major_strides(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
}

const struct sy_attr *sy_node_ints(const struct sy_node *node, const char *name, int n)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_INTS && attr->n >= n ? attr : NULL;
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

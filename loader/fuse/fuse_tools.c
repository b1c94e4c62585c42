/* Helpers of passes: finding and changing nodes. */
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/status.h"

int sy_fuse_open(struct sy_fuse *f, struct sy_graph *graph)
{
    *f = (struct sy_fuse){.graph = graph, .n_tensors = graph->n_tensors};
    SY_TRY(sy_graph_producers(graph, &f->producer));
    int status = sy_graph_use_counts(graph, &f->uses);
    if (status < 0)
        sy_fuse_close(f);
    return status;
}

void sy_fuse_close(struct sy_fuse *f)
{
    free(f->producer);
    free(f->uses);
    free(f->learns);
    f->producer = f->uses = NULL;
    f->learns = NULL;
}

struct sy_node *sy_fuse_maker(const struct sy_fuse *f, int tensor, enum sy_op op)
{
    if (tensor < 0 || tensor >= f->n_tensors || f->producer[tensor] < 0)
        return NULL;
    struct sy_node *node = &f->graph->nodes[f->producer[tensor]];
    return node->n_outputs == 1 && node->op == op ? node : NULL;
}

struct sy_node *sy_fuse_inner(const struct sy_fuse *f, int tensor, enum sy_op op)
{
    struct sy_node *node = sy_fuse_maker(f, tensor, op);
    return node && f->uses[tensor] == 1 ? node : NULL;
}

const struct sy_tensor *sy_fuse_tensor(const struct sy_fuse *f, int tensor)
{
    return &f->graph->tensors[tensor];
}

bool sy_fuse_split_scalar(const struct sy_fuse *f, const struct sy_node *node, float *scalar,
                          int *other)
{
    if (node->n_inputs != 2)
        return false;
    for (int i = 1; i >= 0; i--) {
        if (sy_graph_scalar(f->graph, node->inputs[i], scalar) && node->inputs[1 - i] >= 0) {
            *other = node->inputs[1 - i];
            return true;
        }
    }
    return false;
}

void sy_fuse_absorb(struct sy_fuse *f, struct sy_node *early, struct sy_node *late)
{
    int out = late->outputs[0];
    struct sy_node fused = *early;
    *early = (struct sy_node){.bias_input = -1, .residual_input = -1};
    f->producer[fused.outputs[0]] = -1;
    fused.outputs[0] = out;
    sy_node_finish(late);
    *late = fused;
    f->producer[out] = (int)(late - f->graph->nodes);
}

int sy_fuse_become(struct sy_fuse *f, struct sy_node *node, enum sy_op op, int n_inputs,
                   const int *inputs)
{
    int *copy;
    SY_TRY(sy_graph_alloc((size_t)n_inputs, sizeof *copy, &copy));
    memcpy(copy, inputs, (size_t)n_inputs * sizeof *copy);
    for (int i = 0; i < n_inputs; i++)
        if (copy[i] >= 0 && copy[i] < f->n_tensors)
            f->uses[copy[i]]++;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && node->inputs[i] < f->n_tensors)
            f->uses[node->inputs[i]]--;
    for (int i = 0; i < node->n_attrs; i++)
        sy_attr_finish(&node->attrs[i]);
    node->n_attrs = 0;
    free(node->inputs);
    node->inputs = copy;
    node->n_inputs = n_inputs;
    node->op = op;
    node->bias_input = node->residual_input = -1;
    return SY_OK;
}

int sy_fuse_constant(struct sy_fuse *f, const char *name, const struct sy_shape *shape, int *tensor,
                     float **data)
{
    int64_t n = sy_shape_elements(shape, 0);
    if (n < 0)
        return sy_error_set(SY_EBUG, "constant '%.100s' has no size", name);
    SY_TRY(sy_graph_alloc((size_t)n, sizeof **data, data));
    return sy_graph_add_constant(f->graph, name, SY_DTYPE_F32, shape, *data,
                                 (size_t)n * sizeof **data, tensor);
}

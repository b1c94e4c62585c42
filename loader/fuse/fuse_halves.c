/* float16 and bfloat16 are how such models are stored; computed is in float32. What is inside the graph becomes float32, constants once
 * here, and inputs and outputs keep their type behind a Cast. Results are rounded less often than the model would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"

static bool is_half(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F16 || dtype == SY_DTYPE_BF16;
}

static int widen_tensor(struct sy_tensor *t)
{
    enum sy_dtype from = t->dtype;
    t->dtype = SY_DTYPE_F32;
    if (!t->data)
        return SY_OK;
    size_t n = t->data_bytes / sizeof(uint16_t);
    const uint16_t *halves = t->data;
    float *floats;
    SY_TRY(sy_graph_alloc(n, sizeof *floats, &floats));
    for (size_t i = 0; i < n; i++)
        floats[i] =
            from == SY_DTYPE_F16 ? sy_half_to_float(halves[i]) : sy_bf16_to_float(halves[i]);
    free(t->data);
    t->data = floats;
    t->data_bytes = n * sizeof *floats;
    return SY_OK;
}

static int add_wide_tensor(struct sy_graph *graph, int like, int *out)
{
    char name[256];
    const struct sy_shape shape = graph->tensors[like].shape;
    snprintf(name, sizeof name, "%.200s/f32", graph->tensors[like].name);
    return sy_graph_add_tensor(graph, name, SY_DTYPE_F32, &shape, out);
}

static int add_cast(struct sy_graph *graph, int from, int to)
{
    struct sy_node *node;
    char name[256];
    snprintf(name, sizeof name, "%.200s/cast", graph->tensors[to].name);
    SY_TRY(sy_graph_add_node(graph, SY_OP_CAST, 13, name, 1, &from, 1, &to, &node));
    return sy_node_set_int(node, "to", (int64_t)graph->tensors[to].dtype);
}

/* Nodes [0, n) name `to` where they named `from`. */
static void rename_in_nodes(struct sy_graph *graph, int n, int from, int to)
{
    for (int i = 0; i < n; i++) {
        struct sy_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] == from)
                node->inputs[k] = to;
        for (int k = 0; k < node->n_outputs; k++)
            if (node->outputs[k] == from)
                node->outputs[k] = to;
    }
}

/* Inside, the tensor has another name; a Cast leads from the input to it, or from it to the output. An output that is an input stays. */
static int move_behind_cast(struct sy_graph *graph, int n_nodes, int tensor, bool is_input)
{
    int wide;
    if (!is_half(graph->tensors[tensor].dtype))
        return SY_OK;
    SY_TRY(add_wide_tensor(graph, tensor, &wide));
    rename_in_nodes(graph, n_nodes, tensor, wide);
    return is_input ? add_cast(graph, tensor, wide) : add_cast(graph, wide, tensor);
}

/* Once for each tensor, also if it is two outputs. */
static bool was_before(const int *list, int i)
{
    for (int k = 0; k < i; k++)
        if (list[k] == list[i])
            return true;
    return false;
}

/* is_waiting: nodes within an AtRun's body were not inferred. */
static int fix_casts(struct sy_graph *graph, bool is_waiting)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        struct sy_node *node = &graph->nodes[i];
        if (node->op != SY_OP_CAST || node->n_outputs != 1 || node->outputs[0] < 0)
            continue;
        enum sy_dtype to = graph->tensors[node->outputs[0]].dtype;
        if (is_waiting) /* its type is not known before the run */
            to = is_half((enum sy_dtype)sy_node_int(node, "to", 0))
                     ? SY_DTYPE_F32
                     : (enum sy_dtype)sy_node_int(node, "to", 0);
        SY_TRY(sy_node_set_int(node, "to", (int64_t)to));
    }
    return SY_OK;
}

/* Bodies get float32 from the node around them, and give it back. */
static int widen_bodies(struct sy_graph *graph, bool is_waiting)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_attrs; i++) {
            struct sy_attr *attr = &graph->nodes[n].attrs[i];
            if (attr->kind != SY_ATTR_GRAPH)
                continue;
            for (int t = 0; t < attr->graph->n_tensors; t++)
                if (is_half(attr->graph->tensors[t].dtype))
                    SY_TRY(widen_tensor(&attr->graph->tensors[t]));
            bool waits = is_waiting || graph->nodes[n].op == SY_OP_DYNAMIC;
            SY_TRY(fix_casts(attr->graph, waits));
            SY_TRY(widen_bodies(attr->graph, waits));
        }
    return SY_OK;
}

int sy_fuse_halves(struct sy_fuse *f)
{
    struct sy_graph *graph = f->graph;
    const int n_nodes = graph->n_nodes;
    bool any = false;
    for (int t = 0; t < graph->n_tensors; t++)
        any = any || is_half(graph->tensors[t].dtype);
    if (!any)
        return SY_OK;
    for (int i = 0; i < graph->n_inputs; i++)
        SY_TRY(move_behind_cast(graph, n_nodes, graph->inputs[i], true));
    for (int i = 0; i < graph->n_outputs; i++)
        if (!sy_graph_is_input(graph, graph->outputs[i]) && !was_before(graph->outputs, i) &&
            !graph->tensors[graph->outputs[i]].data &&
            !sy_graph_is_dynamic(graph, graph->outputs[i])) /* the run narrows it */
            SY_TRY(move_behind_cast(graph, n_nodes, graph->outputs[i], false));
    for (int t = 0; t < graph->n_tensors; t++)
        if (is_half(graph->tensors[t].dtype) && !sy_graph_is_input(graph, t) &&
            !sy_graph_is_output(graph, t))
            SY_TRY(widen_tensor(&graph->tensors[t]));
    SY_TRY(fix_casts(graph, false));
    SY_TRY(widen_bodies(graph, false));
    return sy_graph_sort(graph);
}

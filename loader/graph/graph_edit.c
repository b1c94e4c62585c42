/* Queries and changes of a graph: uses, producers, order, dead code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- looking ---------------------------------------------------------------------------------- */

static bool has(const int *list, int n, int tensor)
{
    for (int i = 0; i < n; i++)
        if (list[i] == tensor)
            return true;
    return false;
}

bool sy_graph_is_input(const struct sy_graph *graph, int tensor)
{
    return has(graph->inputs, graph->n_inputs, tensor);
}

bool sy_graph_is_output(const struct sy_graph *graph, int tensor)
{
    return has(graph->outputs, graph->n_outputs, tensor);
}

bool sy_graph_is_read(const struct sy_graph *graph, int tensor)
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (has(graph->nodes[n].inputs, graph->nodes[n].n_inputs, tensor))
            return true;
    return sy_graph_is_output(graph, tensor);
}

int sy_graph_producers(const struct sy_graph *graph, int **out)
{
    int *producer;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors, sizeof *producer, &producer));
    for (int t = 0; t < graph->n_tensors; t++)
        producer[t] = -1;
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_outputs; i++)
            if (graph->nodes[n].outputs[i] >= 0)
                producer[graph->nodes[n].outputs[i]] = n;
    *out = producer;
    return SY_OK;
}

int sy_graph_use_counts(const struct sy_graph *graph, int **out)
{
    int *count;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors, sizeof *count, &count));
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] >= 0)
                count[graph->nodes[n].inputs[i]]++;
    for (int i = 0; i < graph->n_outputs; i++)
        count[graph->outputs[i]]++;
    *out = count;
    return SY_OK;
}

bool sy_graph_scalar(const struct sy_graph *graph, int tensor, float *out)
{
    if (tensor < 0)
        return false;
    const struct sy_tensor *t = &graph->tensors[tensor];
    if (!t->data || t->dtype != SY_DTYPE_F32 || t->data_bytes != sizeof(float))
        return false;
    memcpy(out, t->data, sizeof *out);
    return true;
}

int sy_node_input(const struct sy_node *node, int i)
{
    return i < node->n_inputs ? node->inputs[i] : -1;
}

const char *sy_node_text(const struct sy_node *node, char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "node '%.120s' (%s, opset %d)", node->name, sy_op_name(node->op),
             node->opset);
    return buffer;
}

/* ---- editing ---------------------------------------------------------------------------------- */

void sy_graph_replace_uses(struct sy_graph *graph, int from, int to)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_inputs; i++)
            if (graph->nodes[n].inputs[i] == from)
                graph->nodes[n].inputs[i] = to;
    for (int i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] == from)
            graph->outputs[i] = to;
}

void sy_graph_compact(struct sy_graph *graph)
{
    int kept = 0;
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].n_outputs > 0)
            graph->nodes[kept++] = graph->nodes[n];
    graph->n_nodes = kept;
}

static void mark_inputs(const struct sy_node *node, bool *needed)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            needed[node->inputs[i]] = true;
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].kind == SY_ATTR_TENSOR)
            needed[node->attrs[i].tensor] = true;
}

static bool is_needed(const struct sy_node *node, const bool *needed)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0 && needed[node->outputs[i]])
            return true;
    return false;
}

static void renumber(int n, int *indices, const int *map)
{
    for (int i = 0; i < n; i++)
        if (indices[i] >= 0)
            indices[i] = map[indices[i]];
}

static void renumber_node(struct sy_node *node, const int *map)
{
    renumber(node->n_inputs, node->inputs, map);
    renumber(node->n_outputs, node->outputs, map);
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].kind == SY_ATTR_TENSOR)
            node->attrs[i].tensor = map[node->attrs[i].tensor];
}

static void keep_tensors(struct sy_graph *graph, const bool *keep, int *map)
{
    int kept = 0;
    for (int t = 0; t < graph->n_tensors; t++) {
        map[t] = keep[t] ? kept : -1;
        if (keep[t]) {
            graph->tensors[kept++] = graph->tensors[t];
        } else {
            free(graph->tensors[t].name);
            if (!graph->tensors[t].is_borrowed)
                free(graph->tensors[t].data);
        }
    }
    graph->n_tensors = kept;
    for (int n = 0; n < graph->n_nodes; n++)
        renumber_node(&graph->nodes[n], map);
    renumber(graph->n_inputs, graph->inputs, map);
    renumber(graph->n_outputs, graph->outputs, map);
}

int sy_graph_remove_dead(struct sy_graph *graph)
{
    bool *needed;
    int *map;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors, sizeof *needed, &needed));
    int status = sy_graph_alloc((size_t)graph->n_tensors, sizeof *map, &map);
    if (status < 0) {
        free(needed);
        return status;
    }
    for (int i = 0; i < graph->n_outputs; i++)
        needed[graph->outputs[i]] = true;
    for (int i = 0; i < graph->n_inputs; i++)
        needed[graph->inputs[i]] = true;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        if (is_needed(&graph->nodes[n], needed))
            mark_inputs(&graph->nodes[n], needed);
        else
            sy_node_finish(&graph->nodes[n]);
    }
    sy_graph_compact(graph);
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_outputs; i++)
            if (graph->nodes[n].outputs[i] >= 0)
                needed[graph->nodes[n].outputs[i]] = true;
    keep_tensors(graph, needed, map);
    free(map);
    free(needed);
    return SY_OK;
}

/* ---- order ------------------------------------------------------------------------------------ */

enum { UNSEEN, OPEN, DONE };

struct sorter {
    struct sy_graph *graph;
    int *producer;
    unsigned char *state;
    int *stack, *next_input; /* depth first, without recursion: chains may be long */
    struct sy_node *sorted;
    int n_sorted;
};

/* Pushes the producers of node's inputs, one at a time; true when the node itself may be placed. */
static int visit_top(struct sorter *s, int *depth)
{
    int n = s->stack[*depth - 1];
    struct sy_node *node = &s->graph->nodes[n];
    while (s->next_input[n] < node->n_inputs) {
        int tensor = node->inputs[s->next_input[n]++];
        int producer = tensor < 0 ? -1 : s->producer[tensor];
        if (producer < 0 || s->state[producer] == DONE)
            continue;
        if (s->state[producer] == OPEN)
            return sy_error_set(SY_ECORRUPT, "graph '%.100s': node '%.120s' depends on itself",
                                s->graph->name, node->name);
        s->state[producer] = OPEN;
        s->stack[(*depth)++] = producer;
        return SY_OK;
    }
    s->state[n] = DONE;
    s->sorted[s->n_sorted++] = *node;
    (*depth)--;
    return SY_OK;
}

static int sort_nodes(struct sorter *s)
{
    for (int n = 0; n < s->graph->n_nodes; n++) {
        if (s->state[n] != UNSEEN)
            continue;
        int depth = 1;
        s->stack[0] = n;
        s->state[n] = OPEN;
        while (depth > 0)
            SY_TRY(visit_top(s, &depth));
    }
    return SY_OK;
}

int sy_graph_sort(struct sy_graph *graph)
{
    struct sorter s = {.graph = graph};
    size_t n = (size_t)graph->n_nodes;
    int status;
    SY_TRY_GOTO(sy_graph_producers(graph, &s.producer), out);
    SY_TRY_GOTO(sy_graph_alloc(n, sizeof *s.state, &s.state), out);
    SY_TRY_GOTO(sy_graph_alloc(n, sizeof *s.stack, &s.stack), out);
    SY_TRY_GOTO(sy_graph_alloc(n, sizeof *s.next_input, &s.next_input), out);
    SY_TRY_GOTO(sy_graph_alloc(n, sizeof *s.sorted, &s.sorted), out);
    SY_TRY_GOTO(sort_nodes(&s), out);
    struct sy_node *old = graph->nodes;
    graph->nodes = s.sorted;
    s.sorted = old;
out:
    free(s.sorted);
    free(s.next_input);
    free(s.stack);
    free(s.state);
    free(s.producer);
    return status;
}

/* ---- checking --------------------------------------------------------------------------------- */

static int check_indices(const struct sy_graph *graph, const char *what, int n, const int *indices,
                         int lowest)
{
    for (int i = 0; i < n; i++)
        if (indices[i] < lowest || indices[i] >= graph->n_tensors)
            return sy_error_set(SY_ECORRUPT, "graph '%.100s': %s %d is tensor %d of %d",
                                graph->name, what, i, indices[i], graph->n_tensors);
    return SY_OK;
}

static int check_node(const struct sy_graph *graph, const struct sy_node *node, bool *made)
{
    SY_TRY(check_indices(graph, "node input", node->n_inputs, node->inputs, -1));
    SY_TRY(check_indices(graph, "node output", node->n_outputs, node->outputs, -1));
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].kind == SY_ATTR_TENSOR)
            SY_TRY(check_indices(graph, "attribute", 1, &node->attrs[i].tensor, 0));
        else if (node->attrs[i].kind == SY_ATTR_GRAPH)
            SY_TRY(sy_graph_check(node->attrs[i].graph));
    if (node->bias_input < -1 || node->bias_input >= node->n_inputs || node->residual_input < -1 ||
        node->residual_input >= node->n_inputs)
        return sy_error_set(SY_ECORRUPT, "node '%.120s': bias or residual outside its %d inputs",
                            node->name, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && !made[node->inputs[i]])
            return sy_error_set(SY_ECORRUPT,
                                "node '%.120s' reads '%.120s' before anything makes it", node->name,
                                graph->tensors[node->inputs[i]].name);
    for (int i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] < 0)
            continue;
        if (made[node->outputs[i]])
            return sy_error_set(SY_ECORRUPT, "node '%.120s' makes '%.120s', which is made already",
                                node->name, graph->tensors[node->outputs[i]].name);
        made[node->outputs[i]] = true;
    }
    return SY_OK;
}

static int check_order(const struct sy_graph *graph, bool *made)
{
    int *producer;
    SY_TRY(sy_graph_producers(graph, &producer));
    for (int t = 0; t < graph->n_tensors; t++)
        made[t] = producer[t] < 0 || graph->tensors[t].data;
    free(producer);
    for (int n = 0; n < graph->n_nodes; n++)
        SY_TRY(check_node(graph, &graph->nodes[n], made));
    return SY_OK;
}

int sy_graph_check(const struct sy_graph *graph)
{
    SY_TRY(check_indices(graph, "input", graph->n_inputs, graph->inputs, 0));
    SY_TRY(check_indices(graph, "output", graph->n_outputs, graph->outputs, 0));
    for (int n = 0; n < graph->n_nodes; n++) {
        SY_TRY(check_indices(graph, "node input", graph->nodes[n].n_inputs, graph->nodes[n].inputs,
                             -1));
        SY_TRY(check_indices(graph, "node output", graph->nodes[n].n_outputs,
                             graph->nodes[n].outputs, -1));
    }
    bool *made;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors, sizeof *made, &made));
    int status = check_order(graph, made);
    free(made);
    return status;
}

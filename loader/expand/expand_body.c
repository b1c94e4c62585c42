/* The nodes of a body in the place of the node that has it. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Maps the body's tensor to the graph's: an input or result that was mapped before, or a constant. -1 stays -1. */
static int mapped(struct sy_expand *e, const struct sy_graph *body, int *map, int tensor)
{
    const struct sy_tensor *t = tensor < 0 ? NULL : &body->tensors[tensor];
    struct sy_shape shape;
    void *data;
    if (!t || e->status < 0 || map[tensor] >= 0 || !t->data)
        return t ? map[tensor] : -1;
    shape = t->shape;
    e->status = sy_graph_alloc(t->data_bytes, 1, &data);
    if (e->status < 0)
        return -1;
    if (t->data_bytes > 0)
        memcpy(data, t->data, t->data_bytes);
    e->status = sy_graph_add_constant(e->graph, t->name, t->dtype, &shape, data, t->data_bytes,
                                      &map[tensor]);
    if (e->status == SY_OK)
        e->graph->tensors[map[tensor]].is_derived = t->is_derived;
    return map[tensor];
}

static int copy_list(const void *from, size_t n, size_t bytes, void *out)
{
    void *copy;
    SY_TRY(sy_graph_alloc(n, bytes, &copy));
    if (n > 0)
        memcpy(copy, from, n * bytes);
    memcpy(out, &copy, sizeof copy);
    return SY_OK;
}

static int copy_attr(struct sy_expand *e, const struct sy_graph *body, int *map,
                     const struct sy_attr *from)
{
    struct sy_attr *to;
    int tensor = from->kind == SY_ATTR_TENSOR ? mapped(e, body, map, from->tensor) : -1;
    SY_TRY(e->status);
    SY_TRY(sy_node_attr_slot(&e->graph->nodes[e->graph->n_nodes - 1], from->name, &to));
    to->kind = from->kind;
    to->i = from->i;
    to->f = from->f;
    to->tensor = tensor;
    if (from->s)
        SY_TRY(sy_graph_strdup(from->s, &to->s));
    if (from->ints)
        SY_TRY(copy_list(from->ints, (size_t)from->n, sizeof *from->ints, &to->ints));
    if (from->floats)
        SY_TRY(copy_list(from->floats, (size_t)from->n, sizeof *from->floats, &to->floats));
    to->n = from->n;
    return from->graph ? sy_graph_clone(from->graph, &to->graph) : SY_OK;
}

static int copy_node(struct sy_expand *e, const struct sy_graph *body, int *map,
                     const struct sy_node *from)
{
    int n = from->n_inputs + from->n_outputs, *ids;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *ids, &ids));
    int *outputs = ids + from->n_inputs, status = SY_OK;
    for (int i = 0; i < from->n_inputs; i++)
        ids[i] = mapped(e, body, map, from->inputs[i]);
    for (int i = 0; i < from->n_outputs && status == SY_OK; i++) {
        const struct sy_tensor *t = from->outputs[i] < 0 ? NULL : &body->tensors[from->outputs[i]];
        outputs[i] = -1;
        if (!t)
            continue;
        status = sy_graph_add_tensor(e->graph, t->name, t->dtype, &t->shape, &outputs[i]);
        map[from->outputs[i]] = outputs[i];
    }
    if (status == SY_OK)
        status = e->status;
    if (status == SY_OK)
        status = sy_graph_add_node(e->graph, from->op, from->opset, from->name, from->n_inputs, ids,
                                   from->n_outputs, outputs, NULL);
    free(ids);
    for (int i = 0; i < from->n_attrs && status == SY_OK; i++)
        status = copy_attr(e, body, map, &from->attrs[i]);
    return status;
}

/* Counts nested bodies too. */
int64_t sy_expand_nodes_of(const struct sy_graph *graph)
{
    int64_t n = graph->n_nodes;
    for (int k = 0; k < graph->n_nodes; k++)
        for (int i = 0; i < graph->nodes[k].n_attrs; i++)
            if (graph->nodes[k].attrs[i].graph)
                n += sy_expand_nodes_of(graph->nodes[k].attrs[i].graph);
    return n;
}

int sy_expand_room_for(struct sy_expand *e, const struct sy_graph *body, int64_t times)
{
    if (times > 0 && sy_expand_nodes_of(body) > (SY_EXPAND_MAX_NODES - e->graph->n_nodes) / times)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "written out it has more than %d nodes",
                              SY_EXPAND_MAX_NODES);
    return SY_OK;
}

static int copy_body(struct sy_expand *e, const struct sy_graph *body, const int *given, int *map,
                     int *results)
{
    if (e->graph->n_nodes + body->n_nodes > SY_EXPAND_MAX_NODES)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "written out it has more than %d nodes",
                              SY_EXPAND_MAX_NODES);
    for (int t = 0; t < body->n_tensors; t++)
        if (!body->tensors[t].data)
            map[t] = -1;
    for (int i = 0; i < body->n_inputs; i++)
        map[body->inputs[i]] = given[i];
    for (int n = 0; n < body->n_nodes; n++)
        SY_TRY(copy_node(e, body, map, &body->nodes[n]));
    for (int i = 0; i < body->n_outputs; i++)
        results[i] = mapped(e, body, map, body->outputs[i]);
    return e->status;
}

int sy_expand_new_map(const struct sy_graph *body, int **map)
{
    SY_TRY(sy_graph_alloc((size_t)body->n_tensors, sizeof **map, map));
    for (int t = 0; t < body->n_tensors; t++)
        (*map)[t] = -1;
    return SY_OK;
}

int sy_expand_body(struct sy_expand *e, const struct sy_graph *body, const int *given, int *map,
                   int *results)
{
    int *own = NULL;
    if (e->status < 0)
        return e->status;
    if (!map)
        e->status = sy_expand_new_map(body, &own);
    if (e->status == SY_OK)
        e->status = copy_body(e, body, given, map ? map : own, results);
    free(own);
    return e->status;
}

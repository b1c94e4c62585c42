/* Graphs with numbers for their open sizes. */
#include "loader/graph_bind.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

void sy_graph_usual_sizes(const struct sy_graph *graph, struct sy_sizes *out)
{
    *out = (struct sy_sizes){{0}};
    for (int i = 0; i < graph->n_symbols; i++)
        out->of[i] = graph->symbols[i].usual;
}

int sy_graph_check_sizes(const struct sy_graph *graph, const struct sy_sizes *sizes)
{
    for (int i = 0; i < graph->n_symbols; i++)
        if (sizes->of[i] < 0 || sizes->of[i] > INT32_MAX)
            return sy_error_set(SY_EARG, "size '%.100s' is %lld; 0 to %d", graph->symbols[i].name,
                                (long long)sizes->of[i], INT32_MAX);
    return SY_OK;
}

int sy_graph_bind_shape(const struct sy_graph *graph, int tensor, const struct sy_sizes *sizes,
                        struct sy_shape *out)
{
    (void)sizes;
    *out = graph->tensors[tensor].shape;
    return SY_OK;
}

/* ---- the copy ----------------------------------------------------------------------------------- */

static int copy_ints(int n, const int *from, int **out)
{
    SY_TRY(sy_graph_alloc((size_t)n, sizeof **out, out));
    if (n > 0)
        memcpy(*out, from, (size_t)n * sizeof **out);
    return SY_OK;
}

static int bind_tensor(const struct sy_graph *graph, int tensor, const struct sy_sizes *sizes,
                       struct sy_tensor *to)
{
    struct sy_shape shape;
    char *name;
    SY_TRY(sy_graph_bind_shape(graph, tensor, sizes, &shape));
    SY_TRY(sy_graph_strdup(graph->tensors[tensor].name, &name));
    *to = graph->tensors[tensor];
    to->name = name;
    to->shape = shape;
    return SY_OK;
}

static int bind_bodies(const struct sy_node *from, const struct sy_sizes *sizes, struct sy_node *to)
{
    for (int i = 0; i < from->n_attrs; i++) {
        const struct sy_attr *attr = &from->attrs[i];
        struct sy_graph *body;
        if (attr->kind != SY_ATTR_GRAPH)
            continue;
        SY_TRY(sy_graph_bind(attr->graph, sizes, &body));
        to->attrs[i].graph = body;
    }
    return SY_OK;
}

static int bind_into(const struct sy_graph *graph, const struct sy_sizes *sizes,
                     struct sy_graph *to)
{
    to->precision = graph->precision;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors + 1, sizeof(struct sy_tensor), &to->tensors));
    for (int t = 0; t < graph->n_tensors; t++) {
        SY_TRY(bind_tensor(graph, t, sizes, &to->tensors[t]));
        to->n_tensors++;
    }
    SY_TRY(sy_graph_alloc((size_t)graph->n_nodes + 1, sizeof(struct sy_node), &to->nodes));
    for (int n = 0; n < graph->n_nodes; n++) {
        SY_TRY(sy_node_clone_flat(&graph->nodes[n], &to->nodes[n]));
        to->n_nodes++;
        SY_TRY(bind_bodies(&graph->nodes[n], sizes, &to->nodes[n]));
    }
    SY_TRY(copy_ints(graph->n_inputs, graph->inputs, &to->inputs));
    to->n_inputs = graph->n_inputs;
    SY_TRY(copy_ints(graph->n_outputs, graph->outputs, &to->outputs));
    to->n_outputs = graph->n_outputs;
    return SY_OK;
}

int sy_graph_bind(const struct sy_graph *graph, const struct sy_sizes *sizes, struct sy_graph **out)
{
    struct sy_graph *to;
    SY_TRY(sy_graph_check_sizes(graph, sizes));
    SY_TRY(sy_graph_create(graph->name, &to));
    to->borrows_data = true;
    int status = bind_into(graph, sizes, to);
    if (status < 0) {
        sy_graph_free(to);
        return status;
    }
    *out = to;
    return SY_OK;
}

/* ---- sizes of a request ------------------------------------------------------------------------- */

static int solve_input(const struct sy_graph *graph, const struct sy_given_input *given,
                       int64_t *batch)
{
    const struct sy_tensor *t = &graph->tensors[graph->inputs[given->input]];
    if (given->rank != t->shape.rank)
        return sy_error_set(SY_EARG, "input '%.100s' has %d dimensions, the model's has %d",
                            t->name, given->rank, t->shape.rank);
    for (int i = 0; i < given->rank; i++) {
        struct sy_dim dim = t->shape.dims[i];
        if (dim.per_batch == 1 && dim.fixed == 0 && *batch < 0)
            *batch = given->dims[i];
        if (given->dims[i] < 0 ||
            given->dims[i] != dim.fixed + (dim.per_batch ? dim.per_batch * *batch : 0))
            return sy_error_set(SY_EARG, "input '%.100s': dimension %d is %lld", t->name, i,
                                (long long)given->dims[i]);
    }
    return SY_OK;
}

int sy_graph_solve(const struct sy_graph *graph, int n_given, const struct sy_given_input *given,
                   int64_t *batch, struct sy_sizes *sizes)
{
    sy_graph_usual_sizes(graph, sizes);
    *batch = -1;
    for (int i = 0; i < n_given; i++)
        SY_TRY(solve_input(graph, &given[i], batch));
    *batch = SY_MAX(*batch, 1);
    return SY_OK;
}

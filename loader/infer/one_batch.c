#include "loader/infer/one_batch.h"

#include <stdbool.h>
#include <stdlib.h>

#include "loader/graph/size_expr.h"
#include "runtime/base/status.h"

/* The open size in the input's first dimension, if the input has N nowhere else. */
static bool has_own_batch(const struct sy_shape *shape, int *atom)
{
    for (int d = 1; d < shape->rank; d++)
        if (shape->dims[d].per_batch != 0)
            return false;
    return shape->rank > 0 && sy_size_is_symbol(shape->dims[0], atom);
}

static int replace_in_inputs(struct sy_graph *graph, int atom)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        for (int d = 0; d < shape->rank; d++)
            if (sy_dim_is_expr(shape->dims[d]))
                SY_TRY(sy_size_substitute(shape->dims[d], atom, (struct sy_dim){0, 1},
                                          &shape->dims[d]));
    }
    return SY_OK;
}

static int drop_symbol(struct sy_graph *graph, int atom)
{
    int own, kept = 0;
    for (int k = 0; k < graph->n_symbols; k++) {
        struct sy_dim dim;
        SY_TRY(sy_size_symbol(graph->symbols[k].name, &dim));
        if (sy_size_is_symbol(dim, &own) && own == atom)
            free(graph->symbols[k].name);
        else
            graph->symbols[kept++] = graph->symbols[k];
    }
    graph->n_symbols = kept;
    return SY_OK;
}

int sy_graph_join_batches(struct sy_graph *graph)
{
    int atom;
    for (int i = 0; i < graph->n_inputs; i++) {
        if (!has_own_batch(&graph->tensors[graph->inputs[i]].shape, &atom))
            continue;
        SY_TRY(replace_in_inputs(graph, atom));
        SY_TRY(drop_symbol(graph, atom));
    }
    return SY_OK;
}

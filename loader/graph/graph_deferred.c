/* Data-dependent shapes: results of deferred nodes, and the symbol for the memory that they need. */
#include <string.h>

#include "loader/graph/graph_internal.h"

bool sy_graph_is_dynamic(const struct sy_graph *graph, int tensor)
{
    for (int n = graph->n_nodes - 1; n >= 0; n--)
        for (int i = 0; graph->nodes[n].op == SY_OP_DYNAMIC && i < graph->nodes[n].n_outputs; i++)
            if (graph->nodes[n].outputs[i] == tensor)
                return true;
    return false;
}

int sy_graph_room_size(const struct sy_graph *graph)
{
    for (int i = 0; i < graph->n_symbols; i++)
        if (strcmp(graph->symbols[i].name, SY_ROOM_SYMBOL) == 0)
            return i;
    return -1;
}

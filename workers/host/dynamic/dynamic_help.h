/* Chooses which nodes with data-dependent sizes another device computes: those with so many multiplications that the transfers hardly matter. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_HELP_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_HELP_H

#include "loader/graph/engine.h"

/* As use_helper of struct sy_engine_ops. */
void sy_dynamic_use_helper(const struct sy_node_helper *helper);
/* The helper for a graph of one node with all sizes known; NULL: none, or the node is too small. */
const struct sy_node_helper *sy_dynamic_helper(const struct sy_graph *graph);
bool sy_dynamic_has_helper(void);

#endif

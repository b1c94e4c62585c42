/* Which nodes that are sized at run another device computes: those that multiply so much that the way there and back is little beside it. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_HELP_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_HELP_H

#include "loader/graph/engine.h"

/* As use_helper of struct sy_engine_ops. */
void sy_dynamic_use_helper(const struct sy_node_helper *helper);
/* The helper for a graph of one node, all sizes known; NULL: none, or the node is not worth it. */
const struct sy_node_helper *sy_dynamic_helper(const struct sy_graph *graph);
bool sy_dynamic_has_helper(void);

#endif

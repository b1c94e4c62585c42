/* Which nodes that are sized at run another device computes: those that multiply so much that the way there and back is little beside it. */
#ifndef SY_WORKERS_HOST_AT_RUN_AT_RUN_HELP_H
#define SY_WORKERS_HOST_AT_RUN_AT_RUN_HELP_H

#include "loader/graph/engine.h"

/* As use_helper of struct sy_engine_ops. */
void sy_at_run_use_helper(const struct sy_node_helper *helper);
/* The helper for a graph of one node, all sizes known; NULL: none, or the node is not worth it. */
const struct sy_node_helper *sy_at_run_helper(const struct sy_graph *graph);
bool sy_at_run_has_helper(void);

#endif

/* What a body computes of constants alone leaves the body (G10): a recurrence's weights that get a dimension more within an If are then constants,
 * which are folded, packed and laid out as those of any other node. */
#ifndef SY_LOADER_INFER_HOIST_H
#define SY_LOADER_INFER_HOIST_H

#include "loader/graph/graph.h"

/* Of a graph as it was read, bodies within bodies first. Nodes stay in execution order. */
int sy_hoist_constants(struct sy_graph *graph);

#endif

/* Hoisting: nodes of a body that depend on constants only move out of the body (G10). A recurrence's weights that are reshaped within an If then are
 * constants, which are folded, packed and laid out like those of any other node. */
#ifndef SY_LOADER_INFER_HOIST_H
#define SY_LOADER_INFER_HOIST_H

#include "loader/graph/graph.h"

/* Call on a graph as it was read; nested bodies are processed first. The nodes stay in execution order. */
int sy_hoist_constants(struct sy_graph *graph);

#endif

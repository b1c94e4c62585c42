/* Gives all inputs of a trained model the same batch dimension. */
#ifndef SY_LOADER_INFER_ONE_BATCH_H
#define SY_LOADER_INFER_ONE_BATCH_H

#include "loader/graph/graph.h"

/* Open first sizes of inputs that have N nowhere else become N, wherever they stand in inputs, and are open sizes no longer. Before inference. */
int sy_graph_join_batches(struct sy_graph *graph);

#endif

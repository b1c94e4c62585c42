/* Gives all inputs of a trained model the same batch dimension. */
#ifndef SY_LOADER_INFER_ONE_BATCH_H
#define SY_LOADER_INFER_ONE_BATCH_H

#include "loader/graph/graph.h"

/* Open first dimensions of inputs that have N nowhere else become N, wherever the same size occurs in inputs, and stop being open sizes. Call before
 * inference. */
int sy_graph_join_batches(struct sy_graph *graph);

#endif

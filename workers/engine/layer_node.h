/* What every engine asks of a layer and its graph when it makes a program. Pure. */
#ifndef SY_WORKERS_ENGINE_LAYER_NODE_H
#define SY_WORKERS_ENGINE_LAYER_NODE_H

#include "loader/graph/engine.h"

/* The layer's parameter for node input `input`; NULL: it has none. */
const struct sy_param *sy_layer_param(const struct sy_layer *layer, int input);
/* Whether what one has packed is what the other would pack of the same constants. */
bool sy_layer_packed_alike(const struct sy_layer *a, const struct sy_layer *b);
/* Per tensor the last layer that reads it; -1: none does. */
void sy_last_uses(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                  int *last_use);
/* Whether the node writes the tensor. */
bool sy_node_makes(const struct sy_node *node, int tensor);
/* EUNSUPPORTED, naming node, operator and opset: what of it an engine does not have. */
int sy_unsupported(const struct sy_node *node, const char *what);
/* EUNSUPPORTED if an output that somebody reads has no value. values: per tensor, -1: none. */
int sy_node_check_outputs(const struct sy_graph *graph, const struct sy_node *node,
                          const int *values);

#endif

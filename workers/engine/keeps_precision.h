/* Which operators hand numbers on in the type that they came in, so that a narrow value (float16, bfloat16) may pass through them between
 * two products. The same for all engines: a package's precision means one thing. Pure. */
#ifndef SY_WORKERS_ENGINE_KEEPS_PRECISION_H
#define SY_WORKERS_ENGINE_KEEPS_PRECISION_H

#include <stdbool.h>

#include "loader/graph/engine.h"

/* True for curves, pools, movement, and sums and products of two tensors of one shape. */
bool sy_node_propagates_precision(const struct sy_graph *graph, const struct sy_node *node);
/* Whether a product of two computed matrices is large enough for narrow factors: each rounded number is used in several products. */
bool sy_is_large_product(const struct sy_graph *graph, const struct sy_node *node);

#define SY_WANT_WIDE   1u
#define SY_WANT_NARROW 2u

/* `wants` below: per tensor of the graph, SY_WANT_ bits of its readers. */

/* The union of its readers' wants for the node's results. */
unsigned sy_wants_of_results(const struct sy_node *node, const unsigned char *wants);
/* Adds to `wants`: readers are looked at from the last layer to the first, and `wanted_as` says what a layer wants input `input` as; outputs of the
 * graph are wanted wide. The producer chooses from the sum of these wishes, and readers of the other form convert. */
void sy_wants_plan(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                   unsigned (*wanted_as)(const struct sy_program *program,
                                         const struct sy_layer *layer, int input),
                   const struct sy_program *program, unsigned char *wants);

#endif

/* Small graphs by hand, already inferred (every tensor has type and shape), for tests of the trainer. */
#ifndef SY_TESTS_NETS_GRAPH_BUILDER_H
#define SY_TESTS_NETS_GRAPH_BUILDER_H

#include <stdint.h>

#include "loader/graph/graph.h"

struct sy_graph *gb_new(const char *name); /* free with sy_graph_free */
/* Dims: n of them; for input and node results the first is the batch size (per_batch 1). Return tensor indices. */
int gb_input(struct sy_graph *g, int n, const int64_t *dims);
int gb_constant(struct sy_graph *g, const char *name, int n, const int64_t *dims, uint64_t *seed,
                double low, double high);
int gb_node(struct sy_graph *g, enum sy_op op, int n_inputs, const int *inputs, int n,
            const int64_t *dims);
/* Of the node that was added last. */
void gb_int(struct sy_graph *g, const char *name, int64_t value);
void gb_float(struct sy_graph *g, const char *name, float value);
void gb_ints(struct sy_graph *g, const char *name, int n, const int64_t *values);
void gb_output(struct sy_graph *g, int tensor);
/* x of `dims` as a node turns its dimensions. */
int gb_transpose(struct sy_graph *g, int x, const int64_t *dims, const int64_t *perm, int rank);
/* A constant's double, as the result of a node: no constant any more, and not per batch. */
int gb_doubled(struct sy_graph *g, int constant);

double gb_uniform(uint64_t *seed, double low, double high); /* splitmix64 */

#endif

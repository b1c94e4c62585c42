/* Binding of open sizes: derives their numbers from a request's shapes and substitutes them in a graph. Pure; thread-safe. */
#ifndef SY_LOADER_GRAPH_GRAPH_BIND_H
#define SY_LOADER_GRAPH_GRAPH_BIND_H

#include "loader/graph/graph.h"

/* The sizes for which the model is laid out and profiled. */
void sy_graph_usual_sizes(const struct sy_graph *graph, struct sy_sizes *out);
/* Elements of `shape` with the usual sizes and a batch of one; INT64_MAX: more than can be counted, or a size that the graph does not know. */
int64_t sy_graph_usual_elements(const struct sy_graph *graph, const struct sy_shape *shape);

/* The graph with these sizes: all dimensions are `fixed + per_batch * N`, no symbols, no conditions. Nodes and tensors have the same
 * indices, in bodies too. The data of constants, bodies' too, is borrowed: `graph` must outlive *out. Caller frees *out (sy_graph_free).
 * EARG: a size is below 0 or absurd, a condition does not hold (it is named, with the numbers), or a dimension gets negative. */
int sy_graph_bind(const struct sy_graph *graph, const struct sy_sizes *sizes,
                  struct sy_graph **out);

/* The shape that an input or output of the graph has with these sizes, without binding all: linear in N. EARG as above. */
int sy_graph_bind_shape(const struct sy_graph *graph, int tensor, const struct sy_sizes *sizes,
                        struct sy_shape *out);

/* After inference: sets the symbols' usual sizes to some that the model allows, near those that they have. EUNSUPPORTED: none were found. */
int sy_graph_find_usual_sizes(struct sy_graph *graph);

/* An input as a request sends it. */
struct sy_given_input {
    int input; /* index into graph->inputs */
    int rank;
    const int64_t *dims;
};

/* The batch size and the sizes that these shapes mean. Every input of the graph should be given: a size that none of them decides is the
 * usual one, and N is 1 then. EARG: a rank or dimension that does not fit, with names and numbers; sizes that contradict each other. */
int sy_graph_solve(const struct sy_graph *graph, int n_given, const struct sy_given_input *given,
                   int64_t *batch, struct sy_sizes *sizes);

#endif

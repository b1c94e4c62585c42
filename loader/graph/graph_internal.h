/* Building and editing graphs: for the reader, the passes and the codec. One thread per graph. */
#ifndef SY_LOADER_GRAPH_GRAPH_INTERNAL_H
#define SY_LOADER_GRAPH_GRAPH_INTERNAL_H

#include "loader/graph/graph.h"

/* ---- memory: malloc that sets the error text ---- */

/* calloc; ENOMEM_HOST. n * bytes is checked. Caller frees *out (void **). n == 0 gives a block too. */
int sy_graph_alloc(size_t n, size_t bytes, void *out);
/* strdup; NULL becomes "". */
int sy_graph_strdup(const char *text, char **out);

/* ---- building ---- */

int sy_graph_create(const char *name, struct sy_graph **out);
/* A new tensor without data; shape NULL: rank 0. Pointers into graph->tensors are invalid afterwards. */
int sy_graph_add_tensor(struct sy_graph *graph, const char *name, enum sy_dtype dtype,
                        const struct sy_shape *shape, int *out);
/* A new constant; takes `data` (malloc'd) in every case, frees it on failure. */
int sy_graph_add_constant(struct sy_graph *graph, const char *name, enum sy_dtype dtype,
                          const struct sy_shape *shape, void *data, size_t data_bytes, int *out);
/* The dimension that stands for the open size `name`: dimension i of an input of that rank, which says what is usual. New, if the
 * graph has it not yet. EUNSUPPORTED: too many. */
int sy_graph_add_symbol(struct sy_graph *graph, const char *name, int rank, int i,
                        struct sy_dim *out);
/* A new last node, tensor lists copied. Pointers into graph->nodes are invalid afterwards. *out is borrowed, may be NULL. */
int sy_graph_add_node(struct sy_graph *graph, enum sy_op op, int opset, const char *name,
                      int n_inputs, const int *inputs, int n_outputs, const int *outputs,
                      struct sy_node **out);
/* A copy of the node, bodies too; constants that attributes name stay the graph's. Caller finishes it. */
int sy_node_clone(const struct sy_node *from, struct sy_node *to);
/* As sy_node_clone, without the bodies: those attributes' graphs are NULL. */
int sy_node_clone_flat(const struct sy_node *from, struct sy_node *to);
/* As sy_graph_decode, of bytes that this process encoded: before inference a graph may have SY_SIZE_MOST_SYMBOLS open sizes. */
int sy_graph_decode_copy(const void *bytes, size_t n_bytes, struct sy_graph **out);
/* A copy with all constants. Caller frees. */
int sy_graph_clone(const struct sy_graph *from, struct sy_graph **out);
/* Frees what the node owns and leaves it empty (n_outputs 0: dropped by the next sy_graph_compact). */
void sy_node_finish(struct sy_node *node);
int sy_node_add_input(struct sy_node *node, int tensor);
/* Sets or replaces an attribute. */
int sy_node_set_int(struct sy_node *node, const char *name, int64_t value);
int sy_node_set_float(struct sy_node *node, const char *name, float value);
/* A copy of a list of strings. */
int sy_node_set_strings(struct sy_node *node, const char *name, const struct sy_attr *from);
int sy_node_set_ints(struct sy_node *node, const char *name, int n, const int64_t *values);
int sy_node_set_floats(struct sy_node *node, const char *name, int n, const float *values);
/* SIZES, or INTS if all are numbers. They must not be linear in N alone, but for attributes that say so (Numbers). */
int sy_node_set_sizes(struct sy_node *node, const char *name, int n, const struct sy_dim *values);
/* The attribute's slot: there already, emptied, or new. */
int sy_node_attr_slot(struct sy_node *node, const char *name, struct sy_attr **out);
void sy_attr_finish(struct sy_attr *attr);
void sy_run_reason_finish(struct sy_run_reason *reason);

/* ---- looking ---- */

/* Per tensor: the node that makes it, or -1. Caller frees. */
int sy_graph_producers(const struct sy_graph *graph, int **out);
/* Per tensor: how many node inputs and graph outputs read it. Caller frees. */
int sy_graph_use_counts(const struct sy_graph *graph, int **out);
/* Constant float of one element: true and its value. */
bool sy_graph_scalar(const struct sy_graph *graph, int tensor, float *out);
/* "node 'conv1' (Conv, opset 13)", for error texts. */
const char *sy_node_text(const struct sy_node *node, char *buffer, size_t bytes);

/* ---- editing ---- */

/* Every reader of `from`, graph outputs too, reads `to` instead. */
void sy_graph_replace_uses(struct sy_graph *graph, int from, int to);
/* Takes out nodes without outputs (see sy_node_finish); keeps the order. */
void sy_graph_compact(struct sy_graph *graph);
/* Drops nodes that no output needs, then tensors that no node names. */
int sy_graph_remove_dead(struct sy_graph *graph);
/* Stable topological order; ECORRUPT names a node on a cycle, and a tensor that two nodes make. */
int sy_graph_sort(struct sy_graph *graph);
/* All indices are in range, lists are consistent: for graphs from outside. ECORRUPT. */
int sy_graph_check(const struct sy_graph *graph);

/* The name of the symbol that sy_graph_room_size finds. */
#define SY_ROOM_SYMBOL "switchyard.room"

#endif

/* Queries on a layer and its graph that every engine makes when it builds a program. Pure. */
#ifndef SY_WORKERS_ENGINE_LAYER_NODE_H
#define SY_WORKERS_ENGINE_LAYER_NODE_H

#include "loader/graph/engine.h"

#define SY_PARAM_LAYOUT_BYTES 1024 /* oneDNN's descriptor of a layout is the largest */

/* The operators that one function builds, in a row of an engine's table. */
#define SY_OPS_FIELDS      \
    const enum sy_op *ops; \
    int n_ops
#define SY_OPS(...)                           \
    .ops = (const enum sy_op[]){__VA_ARGS__}, \
    .n_ops = sizeof((const enum sy_op[]){__VA_ARGS__}) / sizeof(enum sy_op)
bool sy_op_is_among(const enum sy_op *ops, int n, enum sy_op op);

/* How an engine lays out a parameter: its bytes, and the layout as it stands in a package; layout_bytes 0: row-major. */
struct sy_param_form {
    uint64_t bytes;
    size_t layout_bytes;
    _Alignas(16) unsigned char layout[SY_PARAM_LAYOUT_BYTES];
};
/* The engine-specific part of a layer: which inputs are parameters, and their forms. */
struct sy_param_rules {
    bool (*is_param)(const struct sy_graph *graph, const struct sy_node *node, int input);
    int (*form)(const struct sy_graph *graph, const struct sy_node *node, int input,
                struct sy_param_form *out);
};
/* Fills in the layer's parameters and bytes: one behind the other, aligned. Also after a failure they are the caller's, which frees each layout and
 * the list. */
int sy_layer_lay_out(const struct sy_graph *graph, const struct sy_param_rules *rules,
                     struct sy_layer *layer);

/* The layer's parameter for node input `input`; NULL: it has none. */
const struct sy_param *sy_layer_param(const struct sy_layer *layer, int input);
/* Whether what one has packed is what the other would pack of the same constants. */
bool sy_layer_packed_alike(const struct sy_layer *a, const struct sy_layer *b);
/* Per tensor the last layer that reads it; -1: none does. */
void sy_last_uses(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                  int *last_use);
/* Whether another input of the node than `but_input`, or a later layer than `layer`, reads the tensor. */
bool sy_tensor_is_needed(const struct sy_node *node, int tensor, int but_input, const int *last_use,
                         int layer);
/* The tensor's dimensions at this batch size; returns the rank. */
int sy_tensor_dims(const struct sy_graph *graph, int tensor, int64_t batch, int64_t *dims);
/* Strides of a row-major array, in elements. */
void sy_row_major_strides(int rank, const int64_t *dims, int64_t *strides);
/* The list of integers `name`, of at least n; NULL: the node has none. */
const struct sy_attr *sy_node_ints(const struct sy_node *node, const char *name, int n);
/* Whether the node writes the tensor. */
bool sy_node_makes(const struct sy_node *node, int tensor);
/* EUNSUPPORTED, naming node, operator and opset: what of it an engine does not have. */
int sy_unsupported(const struct sy_node *node, const char *what);
/* EUNSUPPORTED if an output that somebody reads has no value. values: per tensor, -1: none. */
int sy_node_check_outputs(const struct sy_graph *graph, const struct sy_node *node,
                          const int *values);

#endif

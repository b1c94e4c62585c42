/* Lowering: operators that are rewritten as other operators while shapes are inferred. These are those of ONNX Runtime's and scikit-learn's domains,
 * sequences (lists of tensors that exist at import only), Scan, and bodies whose number of runs is known.
 *
 * An expander gets its node with inputs inferred, removed from the graph; the nodes that it adds take its place and are inferred next. */
#ifndef SY_LOADER_EXPAND_EXPAND_H
#define SY_LOADER_EXPAND_EXPAND_H

#include "loader/shape/graph_infer.h"

enum {
    SY_EXPAND_OPSET = 20,         /* opset of the nodes that expanders add */
    SY_EXPAND_MAX_NODES = 200000, /* limit for a graph with its bodies inlined */
};

struct sy_expand {
    struct sy_infer *in;
    struct sy_graph *graph;
    const struct sy_node *node;
    int first;  /* nodes from this index on belong to the expansion */
    int status; /* status of the first call that failed; later calls do nothing */
};

typedef int sy_expander(struct sy_expand *e);

/* ---- for the driver ---- */

/* Replaces node n by other nodes if its operator is lowered. If *replaced, pointers into the graph are invalid. */
int sy_expand_node(struct sy_infer *in, int n, bool *replaced);
/* As sy_expand_node, with an expander that the caller chooses. */
int sy_expand_by(struct sy_infer *in, int n, sy_expander *expander);
/* Grows the arrays in `in` for the tensors that were added, and for one more per node. */
int sy_expand_grow(struct sy_infer *in);
/* Whether the node is an If whose condition is known. */
bool sy_expand_is_decided(const struct sy_infer *in, const struct sy_node *node);
/* Whether the node is a ReduceMax or ReduceMin of bool. */
bool sy_expand_reduces_bool(const struct sy_infer *in, const struct sy_node *node);
/* Whether the node is a Dropout in training mode, or one whose mode is known at run only. */
bool sy_expand_drops(const struct sy_infer *in, const struct sy_node *node);
/* Whether the node is a Split of a list of open sizes. */
bool sy_expand_splits_sizes(const struct sy_infer *in, const struct sy_node *node);
/* Whether the node is a Tokenizer whose tokens only TfIdfVectorizer reads, which can tokenize itself. */
bool sy_expand_feeds_grams(const struct sy_infer *in, const struct sy_node *node);
/* Whether the node is a Cast to a small type (small_types.h), or a quantisation from or to one that needs other operators. */
bool sy_expand_makes_small(const struct sy_infer *in, const struct sy_node *node);
/* Whether the node's first input is a constant. */
bool sy_expand_is_constant(const struct sy_infer *in, const struct sy_node *node);
/* Copies a Loop's body if the Loop may be unrolled: for sy_expand_loop, should inference of the Loop fail. NULL: it may not. Caller frees. */
int sy_expand_spare_body(const struct sy_infer *in, const struct sy_node *node,
                         struct sy_graph **out);
/* Replaces node n, a Loop, by its iterations. Takes `body`. */
int sy_expand_loop(struct sy_infer *in, int n, struct sy_graph *body);

/* ---- for expanders: tensors are indices, -1 is one left out or a failure that is in `status` ---- */

int sy_expand_input(const struct sy_expand *e, int i);
/* Input i's tensor (type and shape); NULL if it is omitted. Valid until a tensor is added. */
const struct sy_tensor *sy_expand_tensor(const struct sy_expand *e, int i);
enum sy_dtype sy_expand_dtype(const struct sy_expand *e, int i);
/* Adds a node with one result, which is returned. Attributes are set on the last node. */
int sy_expand_op(struct sy_expand *e, enum sy_op op, const int *inputs, int n);
#define SY_EXPAND(e, op, ...)                                 \
    sy_expand_op((e), SY_OP_##op, (const int[]){__VA_ARGS__}, \
                 (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))
/* Adds a node with n_out results. */
void sy_expand_op_many(struct sy_expand *e, enum sy_op op, const int *inputs, int n, int *out,
                       int n_out);
void sy_expand_set_int(struct sy_expand *e, const char *name, int64_t value);
void sy_expand_set_float(struct sy_expand *e, const char *name, float value);
void sy_expand_set_floats(struct sy_expand *e, const char *name, const float *values, int n);
void sy_expand_set_text(struct sy_expand *e, const char *name, const char *value);
/* Copies an attribute of the expanded node, if present, to the last node. */
void sy_expand_pass(struct sy_expand *e, const char *name);
/* Constants: a list of int64, one int64, one number of a floating-point type, float32 numbers. */
int sy_expand_ints(struct sy_expand *e, const int64_t *values, int n);
int sy_expand_int(struct sy_expand *e, int64_t value);
int sy_expand_number(struct sy_expand *e, enum sy_dtype dtype, double value);
int sy_expand_floats(struct sy_expand *e, const float *values, int n);
int sy_expand_float_array(struct sy_expand *e, const float *values, int rank, const int64_t *dims);
int sy_expand_reshape(struct sy_expand *e, int x, const int64_t *dims, int n);
int sy_expand_transpose(struct sy_expand *e, int x, const int64_t *perm, int n);
int sy_expand_cast(struct sy_expand *e, int x, enum sy_dtype to);
int sy_expand_unsqueeze(struct sy_expand *e, int x, int64_t axis);
/* Concatenates a and b along the axis. */
int sy_expand_join(struct sy_expand *e, int a, int b, int axis);
/* [batch, length, heads, size] -> [batch, heads, length, size], and back. */
int sy_expand_heads_first(struct sy_expand *e, int x);
/* Size of the tensor's dimension `axis` as an int64 tensor of one element: a constant if `dim` is known, else computed at run. */
int sy_expand_size(struct sy_expand *e, struct sy_dim dim, int tensor, int axis);
/* Concatenates n sizes, one int64 each, to a shape; n up to SY_MAX_RANK. */
int sy_expand_shape(struct sy_expand *e, const int *sizes, int n);
/* The range 0, 1, ... below `end`, an int64. */
int sy_expand_count(struct sy_expand *e, int end);
/* x[first, end) along the axis. */
int sy_expand_slice(struct sy_expand *e, int x, int axis, int64_t first, int64_t end);
/* Declares `tensor` to be the node's result i. */
void sy_expand_result(struct sy_expand *e, int i, int tensor);
/* Whether the node's result i is used. */
bool sy_expand_wanted(const struct sy_expand *e, int i);
/* EUNSUPPORTED, for nodes that depend on values known at run only (sy_infer_defer). */
int sy_expand_defer(struct sy_expand *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int sy_expand_fail(struct sy_expand *e, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the nodes of a body, with `given` for its inputs. map: NULL, or an array from the body's tensors to the graph's, kept between calls so that constants
 * are shared. *results: one per output of the body. */
int sy_expand_body(struct sy_expand *e, const struct sy_graph *body, const int *given, int *map,
                   int *results);
/* Makes a map for sy_expand_body, with -1 for each tensor. Caller frees. */
int sy_expand_new_map(const struct sy_graph *body, int **map);
/* Number of nodes, including those of nested bodies. */
int64_t sy_expand_nodes_of(const struct sy_graph *graph);
/* EUNSUPPORTED: `times` copies of the body, including nested bodies, exceed the limit on nodes. */
int sy_expand_room_for(struct sy_expand *e, const struct sy_graph *body, int64_t times);

/* A product of quantised matrices; -1 for omitted parts. */
struct sy_whole_product {
    int a, a_scale, a_zero, b, b_scale, b_zero, bias;
};
/* As float32: (a - a_zero) (b - b_zero) a_scale b_scale + bias. */
int sy_expand_integer_product(struct sy_expand *e, const struct sy_whole_product *p);

/* ---- families: operators and their expanders, ending with NULL ---- */

struct sy_expander_line {
    enum sy_op op;
    sy_expander *expand;
};
extern const struct sy_expander_line sy_expanders_microsoft[], sy_expanders_attention[],
    sy_expanders_attend[], sy_expanders_decoder[], sy_expanders_resize[], sy_expanders_quantized[],
    sy_expanders_sequence[], sy_expanders_control[], sy_expanders_learn[], sy_expanders_various[],
    sy_expanders_sizes[], sy_expanders_training[], sy_expanders_deform[], sy_expanders_gradient[],
    sy_expanders_recurrent[], sy_expanders_text[], sy_expanders_layouts[], sy_expanders_blocks[],
    sy_expanders_bits[], sy_expanders_experts[], sy_expanders_contrib[], sy_expanders_small[],
    sy_expanders_flex[];
/* Scan of opset 8, whose operands have a leading batch dimension: one Scan per row. (expand_scan.c) */
sy_expander sy_expand_batch_scan;

/* ---- sequences ---- */

struct sy_sequence {
    int n, *tensors;
};
void sy_sequence_free(struct sy_sequence *s);

#endif

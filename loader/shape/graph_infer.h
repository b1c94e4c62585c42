/* Shape inference: shared by the driver (graph_infer.c), the rules per operator (shape_*.c) and constant folding (fold*.c).
 *
 * For each node in order: its rule normalises it (operands that newer opsets pass as inputs become attributes, see README.md)
 * and determines its outputs' types and shapes. Then, if all inputs are known, it is folded. Known inputs are constants and
 * `values`: small integers linear in N, the results of shape arithmetic. */
#ifndef SY_LOADER_SHAPE_GRAPH_INFER_H
#define SY_LOADER_SHAPE_GRAPH_INFER_H

#include "loader/graph/graph_internal.h"

#define SY_MAX_VALUES 65536 /* elements of a tracked value: a shape, or a row of a mask */

struct sy_sequence; /* expand.h */
struct sy_facts;    /* size_facts.h */
struct sy_branches; /* branch_choices.h */

/* A float: a quotient of sizes. */
struct sy_fraction {
    struct sy_dim over, under; /* under is above 0 where the model runs */
    /* the float32 may differ from the quotient, but has the same floor (and ceiling, unless
     * only_down) */
    bool is_rounded;
    bool is_whole;
    bool only_down; /* the floor agrees, but the ceiling of the float32 may differ */
};

struct sy_infer {
    struct sy_graph *graph;
    struct sy_dim **values;         /* per tensor; NULL: not known, or a constant of the graph */
    struct sy_fraction **fractions; /* per tensor: floats made of open sizes; NULL: not known */
    int *uses;                      /* per tensor: uses by nodes as read, or expanded */
    struct sy_sequence **sequences; /* per tensor: the sequence that it is; NULL: a tensor */
    int capacity;                   /* of the arrays per tensor */
    int n_expanded;                 /* number of nodes expanded */
    bool *is_dynamic;               /* per tensor: size and values are known at run only */
    bool is_body;                   /* of an If or Loop: the outermost graph is another one */
    bool for_training;              /* parameters are not folded, Dropout and training modes stay */
    bool is_bound;                  /* data-dependent sizes are set to their maximum (deferred.c) */
    bool is_trial;                  /* only for reading shapes (sy_graph_infer_ready) */
    /* about open sizes, shared with the outermost graph; NULL: all sizes are numbers */
    struct sy_facts *facts;
    /* set when a rule fails because a value is known at run only; shared with the outermost graph */
    bool *puts_off;
};

/* ---- linear arithmetic; EUNSUPPORTED when the result is not linear in N, without a text ---- */

int sy_dim_add(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_dim_sub(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_dim_mul(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
/* Exact quotient only, or of two numbers without N (rounded toward zero). */
int sy_dim_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
bool sy_dim_equal(struct sy_dim a, struct sy_dim b);
bool sy_dim_is(struct sy_dim dim, int64_t value);
/* The quotient rounded down, of sizes that are not negative: of all that is not linear in N too. */
int sy_dim_floor_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_shape_product(const struct sy_shape *shape, int first, int end, struct sy_dim *out);

/* ---- for rules; texts name the node ---- */

int sy_infer_fail(const struct sy_node *node, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* EUNSUPPORTED, for what is known at run only: the node may be deferred to the run. */
int sy_infer_defer(const struct sy_infer *in, const struct sy_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The i-th input's tensor; ECORRUPT if the node has none. Borrowed, until a tensor is added. */
/* A product of sizes, `n_growing` of which grow with the batch, could not be told: of two it is not linear, which the run need not mind; otherwise it is
 * larger than any number (ECORRUPT). */
int sy_infer_no_product(const struct sy_infer *in, const struct sy_node *node, int n_growing);
int sy_infer_need(const struct sy_infer *in, const struct sy_node *node, int i,
                  const struct sy_tensor **out);
/* The i-th output's type and shape. */
void sy_infer_set(struct sy_infer *in, const struct sy_node *node, int i, enum sy_dtype dtype,
                  const struct sy_shape *shape);
/* Output 0 is like input 0. */
int sy_infer_same(struct sy_infer *in, struct sy_node *node);
/* A list of integers: input i if the node has it, else the attribute, else *n = -1. Linear in N; *out is the caller's. */
int sy_infer_dims(const struct sy_infer *in, const struct sy_node *node, int i, const char *attr,
                  int *n, struct sy_dim **out);
/* As sy_infer_dims, without N, at most max of them. */
int sy_infer_ints(const struct sy_infer *in, const struct sy_node *node, int i, const char *attr,
                  int max, int *n, int64_t *out);
/* A float from constant input i, else from the attribute, else `otherwise`. */
int sy_infer_float(const struct sy_infer *in, const struct sy_node *node, int i, const char *attr,
                   float otherwise, float *out);
/* Whether input i is left out, a constant or a known value. */
bool sy_infer_is_known(const struct sy_infer *in, const struct sy_node *node, int i);
/* The shape that the file declares for output i, in numbers, for data-dependent results; EUNSUPPORTED if it declares none. The caller makes sure that the run
 * checks it. */
int sy_infer_declared(const struct sy_infer *in, const struct sy_node *node, int i,
                      struct sy_shape *out);
/* The attribute's text, or `otherwise`. */
const char *sy_infer_text(const struct sy_node *node, const char *name, const char *otherwise);
/* axis + rank if negative; ECORRUPT outside. */
int sy_infer_axis(const struct sy_node *node, int64_t axis, int rank, int *out);
/* EUNSUPPORTED where QuantizeLinear or DequantizeLinear (opset 23 on) names other types than those of its operands, or float32. */
int sy_infer_quantized_types(const struct sy_infer *in, const struct sy_node *node);
/* Gives up outputs from `n` on; EUNSUPPORTED if somebody reads them. */
int sy_infer_keep_outputs(const struct sy_infer *in, struct sy_node *node, int n);
void sy_infer_keep_inputs(struct sy_node *node, int n);
/* Whether two sizes may be taken for the same: they are, or that is made a condition of the graph (size_facts.h), named after the node. *a becomes the
 * plainer of the two. */
bool sy_infer_same_size(struct sy_infer *in, const struct sy_node *node, struct sy_dim *a,
                        struct sy_dim b);
bool sy_infer_same_shape(struct sy_infer *in, const struct sy_node *node, const struct sy_shape *a,
                         const struct sy_shape *b);
/* `left <= right` becomes a condition, unless it holds for all sizes. False: it never holds. Of numbers: whether it holds. */
bool sy_infer_at_most(struct sy_infer *in, const struct sy_node *node, struct sy_dim left,
                      struct sy_dim right);
/* *total elements, without N, are divided by `known`, a multiple of N: if an input's first size is a factor of *total, it becomes N, and *total is rewritten
 * with it. False: there is none. */
bool sy_infer_meet_batch(struct sy_infer *in, struct sy_dim *total, struct sy_dim known);
/* The first `count` of `size` rows meet N rows: if these are N, and `size` is an input's first size without a name, that becomes N. */
bool sy_infer_meet_sliced(struct sy_infer *in, struct sy_dim size, struct sy_dim count);
/* numpy's rules; into *shape. EUNSUPPORTED, without a text: they do not fit. */
int sy_infer_broadcast(struct sy_infer *in, const struct sy_node *node, struct sy_shape *shape,
                       const struct sy_shape *other);
/* Dimension i of the shape, which must not depend on N; deferred if it is an expression. */
int sy_infer_fixed(const struct sy_infer *in, const struct sy_node *node,
                   const struct sy_shape *shape, int i, int64_t *out);

/* Inference of a body (attribute `name` of the node): its inputs are the node's inputs from `first` on, `formal` before them with the types and
 * shapes in `given`. Outputs have types and shapes afterwards. EUNSUPPORTED: no such body, or it cannot be run as it stands. */
int sy_infer_body(struct sy_infer *in, struct sy_node *node, const char *name, int formal,
                  const struct sy_tensor *given, struct sy_graph **body);

/* A known list of integers that a body captures as `input` becomes the body's own, so that its shapes can depend on it. The caller sorts the nodes
 * afterwards. */
int sy_infer_hand_down(const struct sy_infer *in, int outer, struct sy_graph *body, int input);
/* Inference of a graph as it was read, in the way that `choices` say (branch_choices.h). */
int sy_infer_one_way(struct sy_graph *graph, struct sy_branches *choices);
/* Inference of `graph` with the largest sizes that its data can lead to; is_unknown[i]: none follows for output i. The graph is good for nothing else
 * afterwards. */
int sy_infer_bound(struct sy_graph *graph, bool *is_unknown);

typedef int sy_infer_rule(struct sy_infer *in, struct sy_node *node);

/* NULL: the operator is not supported. */
sy_infer_rule *sy_infer_rule_of(enum sy_op op); /* graph_infer_rules.c */

sy_infer_rule sy_rule_string_normalizer, sy_rule_string_concat, sy_rule_string_parts, sy_rule_regex,
    sy_rule_hash, sy_rule_label_encoder, sy_rule_category_mapper, sy_rule_ml_one_hot,
    sy_rule_couple, sy_rule_trees;                       /* shape_learn.c */
sy_infer_rule sy_rule_if, sy_rule_loop, sy_rule_numbers; /* shape_control.c */
sy_infer_rule sy_rule_same, sy_rule_broadcast, sy_rule_cast, sy_rule_clip, sy_rule_test,
    sy_rule_bit_cast, sy_rule_dropout; /* shape_elementwise.c */
sy_infer_rule sy_rule_arg, sy_rule_cum_sum, sy_rule_top_k, sy_rule_unique, sy_rule_non_zero,
    sy_rule_compress, sy_rule_gather_elements, sy_rule_gather_nd, sy_rule_scatter, sy_rule_one_hot,
    sy_rule_reverse_sequence; /* shape_index.c */
sy_infer_rule sy_rule_conv_transpose, sy_rule_max_unpool, sy_rule_resize, sy_rule_depth_to_space,
    sy_rule_space_to_depth, sy_rule_grid_sample, sy_rule_roi_align, sy_rule_max_roi_pool,
    sy_rule_nms, sy_rule_recurrent; /* shape_space.c */
sy_infer_rule sy_rule_tile, sy_rule_size, sy_rule_eye_like, sy_rule_random_like, sy_rule_trilu,
    sy_rule_norm, sy_rule_nll_loss, sy_rule_softmax_loss, sy_rule_det, sy_rule_window,
    sy_rule_einsum, sy_rule_dft, sy_rule_tf_idf; /* shape_various.c */
sy_infer_rule sy_rule_quantize, sy_rule_dequantize, sy_rule_dynamic_quantize, sy_rule_qlinear_conv,
    sy_rule_qlinear_matmul; /* shape_quantized.c */
sy_infer_rule sy_rule_conv, sy_rule_pool, sy_rule_global_pool, sy_rule_pad,
    sy_rule_batch_norm; /* shape_window.c */
sy_infer_rule sy_rule_gemm, sy_rule_matmul, sy_rule_softmax, sy_rule_layer_norm,
    sy_rule_reduce; /* shape_matrix.c */
sy_infer_rule sy_rule_gather, sy_rule_concat, sy_rule_split, sy_rule_slice,
    sy_rule_transpose; /* shape_select.c */
sy_infer_rule sy_rule_reshape, sy_rule_flatten, sy_rule_squeeze, sy_rule_unsqueeze,
    sy_rule_expand;                                                    /* shape_layout.c */
sy_infer_rule sy_rule_shape, sy_rule_constant_of_shape, sy_rule_range; /* shape_layout.c */

/* ---- folding ---- */

/* Elements in memory with a shape: a constant, or a value (then elements are struct sy_dim). */
struct sy_block {
    int rank;
    int64_t dims[SY_MAX_RANK], n;
    const unsigned char *data;
};

/* If all inputs are known, and it is worth it: makes the outputs known too, and *folded true. */
int sy_fold_node(struct sy_infer *in, const struct sy_node *node, bool *folded);
/* A node on floats made of open sizes: in->fractions of its output are set, or in->values where it casts to integers. EUNSUPPORTED: they are not
 * known. */
int sy_fold_fractions(struct sy_infer *in, const struct sy_node *node);
/* Element i of a tensor, if it is known; and a number, if it is a quotient of small ones. */
bool sy_fraction_read(const struct sy_infer *in, int tensor, int64_t i, struct sy_fraction *out);
bool sy_fraction_of(double value, struct sy_fraction *out);
/* Rounded down, or up. */
int sy_fraction_floor(struct sy_fraction a, bool up, struct sy_dim *out);
int sy_fraction_mul(struct sy_fraction a, struct sy_fraction b, struct sy_fraction *out);
int sy_fraction_sub(struct sy_fraction a, struct sy_fraction b, struct sy_fraction *out);
int sy_fraction_div(struct sy_fraction a, struct sy_fraction b, struct sy_fraction *out);
/* Operators that only move elements of `bytes` each, into to[out->n]; `indices` for Gather. EUNSUPPORTED: not one of them. */
int sy_fold_move(const struct sy_node *node, const struct sy_block *inputs, const int64_t *indices,
                 size_t bytes, const struct sy_block *out, unsigned char *to);
/* As sy_fold_move, for Tile and for operators that read or write at places given by `indices` (fold_index.c). */
int sy_fold_index(const struct sy_node *node, const struct sy_block *inputs, const int64_t *indices,
                  size_t bytes, const struct sy_block *out, unsigned char *to);
/* Makes a block of that shape, without data. False: a size depends on the batch, or it has more elements than can be counted. */
bool sy_block_make(const struct sy_shape *shape, struct sy_block *block);
/* Offset in `block` of element `index` of `out`, which `block` is broadcast to. */
/* The coordinates of element `index`, and the element at coordinates. */
void sy_block_coordinates(const struct sy_block *block, int64_t index, int64_t *at);
int64_t sy_block_offset_at(const struct sy_block *block, const int64_t *at);
int64_t sy_block_offset(const struct sy_block *out, int64_t index, const struct sy_block *block);
/* Whether all inputs are broadcast to the result's shape, and each element is made of theirs at its place alone. */
bool sy_fold_is_elementwise(enum sy_op op);
/* Elementwise, sizes (fold_sizes.c). */
int sy_fold_dims(struct sy_infer *in, const struct sy_node *node, const struct sy_block *inputs,
                 const struct sy_block *out, struct sy_dim *to);
/* Elementwise, floating point: inputs and output of element type F32 or F64. */
int sy_fold_floats(const struct sy_node *node, const struct sy_block *inputs,
                   const enum sy_dtype *dtypes, const struct sy_block *out, enum sy_dtype dtype,
                   unsigned char *to);
/* Reductions, ArgMax and NonZero (fold_reduce.c), of numbers linear in N and of constants; EUNSUPPORTED: not one of them. */
int sy_fold_whole_dims(const struct sy_node *node, const struct sy_block *x,
                       const struct sy_block *out, struct sy_dim *to);
int sy_fold_whole(const struct sy_node *node, const struct sy_block *x, enum sy_dtype dtype,
                  const struct sy_block *out, unsigned char *to);
/* BatchNormalization with training_mode: by the mean and variance of x itself. */
int sy_fold_batch_norm(const struct sy_node *node, const struct sy_block *inputs,
                       const enum sy_dtype *dtypes, const struct sy_block *out, unsigned char *to);
/* How many elements of a constant are not zero. EUNSUPPORTED: it is none. */
int sy_fold_count_set(const struct sy_tensor *t, int64_t *n);
/* One element of a constant. */
double sy_load_double(enum sy_dtype dtype, const void *from);
void sy_store_double(enum sy_dtype dtype, double value, void *to);
bool sy_dtype_is_integer(enum sy_dtype dtype);
int64_t sy_load_integer(enum sy_dtype dtype, const void *from);
void sy_store_integer(enum sy_dtype dtype, int64_t value, void *to);

#endif

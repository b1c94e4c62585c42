/* The passes of sy_graph_optimize, and what they share. Each pass reads a graph whose shapes are known, keeps every graph
 * output (name, type, shape, value up to rounding), and leaves unused nodes to dead node removal.
 *
 * A fused node takes the place of the last node of its pattern, where all inputs of the pattern have been computed: so no
 * sorting is needed. Each inner result must have one reader only. */
#ifndef SY_LOADER_FUSE_FUSE_H
#define SY_LOADER_FUSE_FUSE_H

#include "loader/graph/graph_internal.h"

struct sy_fuse {
    struct sy_graph *graph;
    int n_tensors; /* number of tensors at the start of the pass; later ones are constants that it made */
    int *producer, *uses;
    bool (*has)(enum sy_op op, int64_t size); /* with sy_graph_fuse; NULL in other passes */
    bool *learns; /* by tensor: may depend on a trained parameter; NULL: none does */
};

int sy_fuse_open(struct sy_fuse *f, struct sy_graph *graph);
void sy_fuse_close(struct sy_fuse *f);

/* The node that makes `tensor`, if it is one of operator `op`; NULL otherwise. */
struct sy_node *sy_fuse_maker(const struct sy_fuse *f, int tensor, enum sy_op op);
/* The same, if no other node reads `tensor`. */
struct sy_node *sy_fuse_inner(const struct sy_fuse *f, int tensor, enum sy_op op);
const struct sy_tensor *sy_fuse_tensor(const struct sy_fuse *f, int tensor);
/* For a node with two inputs: finds the constant float of one element, and the other input. */
bool sy_fuse_split_scalar(const struct sy_fuse *f, const struct sy_node *node, float *scalar,
                          int *other);
/* For a node with two inputs: finds the constant float vector of n elements, and the other input. NULL has none. */
bool sy_fuse_split_vector(const struct sy_fuse *f, const struct sy_node *node, int64_t n,
                          int *vector, int *other);
/* The ReduceMean over the last axis, which stays as 1, that makes `tensor`; or NULL. */
const struct sy_node *sy_fuse_last_axis_mean(const struct sy_fuse *f, int tensor);
/* Puts `early`, changed as the pass likes, into the place of `late`, with late's output; `early` is left empty. */
void sy_fuse_absorb(struct sy_fuse *f, struct sy_node *early, struct sy_node *late);
/* Makes `node` into another one with the same output and these inputs. */
int sy_fuse_become(struct sy_fuse *f, struct sy_node *node, enum sy_op op, int n_inputs,
                   const int *inputs);
/* Constant F32 tensor of this shape; data uninitialised, borrowed. */
int sy_fuse_constant(struct sy_fuse *f, const char *name, const struct sy_shape *shape, int *tensor,
                     float **data);

/* y = (x - mean) / sqrt(var + eps) * gamma + beta of n channels, as x * scale + shift in double; false: not of constants. (fuse_conv.c) */
bool sy_fuse_read_batch_norm(const struct sy_fuse *f, const struct sy_node *bn, int64_t n,
                             double *scale, double *shift);
/* The activation that this node becomes when it is fused into a product; NONE: it is no activation. */
enum sy_activation sy_fuse_activation_of(const struct sy_node *node);

typedef int sy_fuse_pass(struct sy_fuse *f);

sy_fuse_pass sy_fuse_halves;                         /* fuse_halves.c */
sy_fuse_pass sy_fuse_dequantized, sy_fuse_quantized; /* fuse_quantized.c */
sy_fuse_pass sy_fuse_einsum_pairs, sy_fuse_einsums;  /* fuse_einsum.c */
sy_fuse_pass sy_fuse_noops, sy_fuse_transposes, sy_fuse_reshapes, sy_fuse_pads; /* fuse_clean.c */
sy_fuse_pass sy_fuse_thin_reshapes;                                             /* fuse_thin.c */
sy_fuse_pass sy_fuse_known_products;                                            /* fuse_known.c */
/* With so many multiplications and bytes of results at most, of all nodes together; what is beyond stays a node. */
int sy_fuse_known_products_within(struct sy_fuse *f, int64_t products, int64_t bytes);
sy_fuse_pass sy_fuse_batch_norms, sy_fuse_conv_pairs, sy_fuse_conv_biases,
    sy_fuse_residuals; /* fuse_conv.c */
sy_fuse_pass sy_fuse_matmul_scales, sy_fuse_flat_biases, sy_fuse_matmul_biases,
    sy_fuse_activations;                                             /* fuse_matmul.c */
sy_fuse_pass sy_fuse_product_norms;                                  /* fuse_products.c */
sy_fuse_pass sy_fuse_gelus, sy_fuse_layer_norms, sy_fuse_skip_norms; /* fuse_norm.c */
sy_fuse_pass sy_fuse_rms_norms, sy_fuse_late_layer_norms;            /* fuse_rms.c */
sy_fuse_pass sy_fuse_curves, sy_fuse_swishes;                        /* fuse_curves.c */
sy_fuse_pass sy_fuse_group_norms;                                    /* fuse_group.c */
sy_fuse_pass sy_fuse_prelus;                                         /* fuse_curves.c */
/* fuse_depthwise.c: Conv [N, C, L] of C groups -> Reshape, Conv [N, C, L, 1], Reshape. oneDNN has its fast loops for two dimensions only, along the
 * first of them (256 channels of 400 with kernels of 31: 0.3 ms beside 3.3). */
sy_fuse_pass sy_fuse_depthwise_lines;
/* fuse_affine.c: BatchNormalization that no convolution takes -> ChannelAffine(x, scale, shift), with the Relu or Clip behind it. */
sy_fuse_pass sy_fuse_channel_affines;
sy_fuse_pass sy_fuse_gated_activations; /* fuse_matmul.c */
sy_fuse_pass sy_fuse_int8_products, sy_fuse_int8_sums, sy_fuse_int8_moves,
    sy_fuse_int8_recurrences;   /* fuse_int8*.c */
sy_fuse_pass sy_fuse_attention; /* fuse_attention.c */

/* write_out.c: If and Loop become other nodes where that can be done, those in bodies too; *changed is set if one did. */
int sy_graph_write_out(struct sy_graph *graph, bool *changed);

#endif

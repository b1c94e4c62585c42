/* A Conv node as oneDNN takes it. */
#ifndef SY_WORKERS_HOST_OPERATORS_OP_CONV_H
#define SY_WORKERS_HOST_OPERATORS_OP_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/host/program/program_internal.h"

struct sy_conv_shape {
    dnnl_data_type_t type, dst_type; /* type: of source and weights; dst_type: of the result */
    dnnl_format_tag_t data;          /* layout of source and result; any: oneDNN's preference */
    int spatial, groups;
    int turned; /* number of trailing spatial dimensions of 1 that were moved to the front */
    dnnl_dims_t src, weights, bias, dst, strides, dilations, pad_left, pad_right;
    int weights_rank;
};

/* With types of float32 (of a QuantizedConv too, which sets its own); EUNSUPPORTED names what is missing. */
int sy_conv_shape_read(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                       struct sy_conv_shape *c);
/* With the node's bias, residual and activation (unless that is a step of its own, op_blocked.h); weights: in the node's order of dimensions, NULL lets
 * oneDNN choose. The caller destroys *out. */
int sy_conv_make_pd(const struct sy_node *node, const struct sy_conv_shape *c,
                    const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out);
/* Number of elements of a source or result with these dims. */
int64_t sy_conv_elements(const int64_t *dims, int spatial);
int64_t sy_conv_rows(const struct sy_conv_shape *c); /* number of multiplications per weight */
bool sy_conv_is_reference(const_dnnl_primitive_desc_t pd);
bool sy_conv_has_bias(const struct sy_node *node);
/* The node's fused activation as oneDNN's; dnnl_alg_kind_undef: none. */
dnnl_alg_kind_t sy_dnnl_activation(const struct sy_node *node, float *alpha, float *beta);
/* Chooses the convolution's output: over the residual if it has no other reader, else over a copy of it. */
int sy_conv_place_output(struct sy_program *p, const dnnl_memory_desc_t *dst, int *out);

#endif

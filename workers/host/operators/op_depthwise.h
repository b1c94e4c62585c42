/* Conv with a window for each channel, as depthwise.h computes it. */
#ifndef SY_WORKERS_HOST_OPERATORS_OP_DEPTHWISE_H
#define SY_WORKERS_HOST_OPERATORS_OP_DEPTHWISE_H

#include "workers/host/operators/op_conv.h"
#include "workers/host/products/depthwise.h"

/* Whether the node is a depthwise convolution of float32 without residual, on a CPU that has the loops; fills *d. */
bool sy_depthwise_read(const struct sy_node *node, const struct sy_conv_shape *c,
                       struct sy_depthwise *d);
/* The layout of its weights. */
int sy_depthwise_weights_md(const struct sy_node *node, const struct sy_conv_shape *c,
                            dnnl_memory_desc_t *md);
/* Adds the steps of the layer being built; *built false: it is another convolution, and nothing was added. */
int sy_depthwise_build(struct sy_program *p, const struct sy_conv_shape *c, bool *built);

#endif

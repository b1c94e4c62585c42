/* Conv of one channel with long windows, as a spectrogram or a bank of filters over samples begins: rows of windows times the weights. oneDNN multiplies tap by
 * tap, each with a single channel: 130 filters of 256 taps at 5 places took 143 us, of which the product is 6. */
#ifndef SY_WORKERS_HOST_OPERATORS_OP_WINDOWS_H
#define SY_WORKERS_HOST_OPERATORS_OP_WINDOWS_H

#include "workers/host/operators/op_conv.h"

/* Whether a node of this shape is computed this way; independent of length and batch. */
bool sy_windows_fit(const struct sy_node *node, const struct sy_conv_shape *c);
/* The layout of its weights: panels of SY_PACKED_COLUMNS filters. */
int sy_windows_weights_md(const struct sy_node *node, const struct sy_conv_shape *c,
                          dnnl_memory_desc_t *md);
/* *built false: it is none of them, and nothing was added. */
int sy_windows_build(struct sy_program *p, const struct sy_conv_shape *c, bool *built);

#endif

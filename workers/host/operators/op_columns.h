/* ConvTranspose with strides: each pixel's channels times all taps of the weights, then the columns that meet in a pixel of the result are summed. oneDNN's
 * deconvolution goes backwards through a convolution with strides, which is slow with few channels: 32 channels to 3 at 64x64 by a window of 4 took 0.95 ms. */
#ifndef SY_WORKERS_HOST_OPERATORS_OP_COLUMNS_H
#define SY_WORKERS_HOST_OPERATORS_OP_COLUMNS_H

#include "workers/host/program/program_internal.h"

/* A line is an image of one column. */
struct sy_columns {
    int64_t images, in, out; /* channels */
    int64_t size[2], out_size[2], kernel[2], strides[2], before[2];
};

/* Whether a window of this shape is computed by columns; independent of size and batch. */
bool sy_columns_fit(const struct sy_columns *c);
/* The layout of its weights (one row of floats), and from [in, out, window] to it; `to` has room for both. */
void sy_columns_md(const struct sy_columns *c, dnnl_memory_desc_t *md);
int sy_columns_prepare(const struct sy_node *node, const struct sy_columns *c, const float *weights,
                       float *to);
/* Steps with parameter 1, packed; the result has channels last. */
int sy_columns_build(struct sy_program *p, const struct sy_columns *c, bool has_bias);

#endif

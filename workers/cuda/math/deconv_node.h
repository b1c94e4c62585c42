/* What a ConvTranspose node describes, for inference and training: the gradient of a convolution's input, which makes its own gradients a
 * convolution and that one's weights'.
 *
 * In terms of that convolution x is what comes out and y what goes in, so [in, out / groups, window...] are its weights as they are. Where
 * equal padding on both sides does not lead from y to x, it is done without padding on all that the windows reach, of which y is a part. */
#ifndef SY_WORKERS_CUDA_MATH_DECONV_NODE_H
#define SY_WORKERS_CUDA_MATH_DECONV_NODE_H

#include "workers/cuda/math/device_math.h"

struct sy_deconv_node {
    struct sy_math_conv conv; /* direction DATA; the type is the caller's */
    bool padded; /* conv.in is all that the windows reach, y lies in it from pad_left on */
    int64_t pad_left[SY_MATH_SPATIAL];
};

/* x, weights, y: their dimensions; one spatial dimension becomes the second of two. Returns NULL, or the name of what is not supported. */
const char *sy_deconv_node_read(const struct sy_node *node, int rank, const int64_t *x,
                                const int64_t *weights, const int64_t *y,
                                struct sy_deconv_node *out);
/* The part of y that windows reach: its dims; *offset grows by the number of elements of the full result (of these strides) in front of it. False: there is
 * none. */
bool sy_deconv_common(int rank, const int64_t *y, const int64_t *full, const int64_t *full_strides,
                      const int64_t *pad_left, int64_t *dims, int64_t *offset);

#endif

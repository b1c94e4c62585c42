/* x * scale + shift by channel, between limits: batch normalisation and the Relu behind it in one pass, in the layouts that convolutions leave. */
#ifndef SY_WORKERS_HOST_ROWS_CHANNEL_ROWS_H
#define SY_WORKERS_HOST_ROWS_CHANNEL_ROWS_H

#include <stdint.h>

/* An image is `blocks` blocks of channels, a block `pixels` rows of `block` channels. Row-major: block 1; channels last: blocks 1. Either
 * side may be some channels of a larger tensor: then there are gaps between rows, blocks or images. */
struct sy_channel_rows {
    int64_t images, blocks, pixels, block;
    int64_t from_image, from_block, from_pixel; /* floats from one to the next */
    int64_t to_image, to_block, to_pixel;
};

/* scale, shift: blocks * block of them. Clamped to [low, high]; NaN stays NaN. `out` may be `x`
 * if both sides lie alike. */
void sy_channel_rows_run(const struct sy_channel_rows *r, const float *x, const float *scale,
                         const float *shift, float low, float high, float *out);

void sy_channel_rows_copy(const struct sy_channel_rows *r, const float *x, float *out);

#endif

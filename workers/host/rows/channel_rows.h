/* x * scale + shift by channel, between limits: batch normalisation and the Relu behind it in one pass, in the layouts that convolutions leave. */
#ifndef SY_WORKERS_HOST_ROWS_CHANNEL_ROWS_H
#define SY_WORKERS_HOST_ROWS_CHANNEL_ROWS_H

#include <stdint.h>

/* An image is `blocks` blocks of channels, a block `pixels` rows of `block` channels. Row-major: block 1; channels last: blocks 1. Rows are
 * `from_pixel` floats apart in the source, so that it may be some channels of a larger tensor; the result has no gaps. */
struct sy_channel_rows {
    int64_t images, blocks, pixels, block;
    int64_t from_image, from_block, from_pixel; /* floats from one to the next */
};

/* scale, shift: blocks * block of them. Below `low` is low, above `high` is high; what is no number stays so. `out` may be `x` where there are
 * no gaps. */
void sy_channel_rows_run(const struct sy_channel_rows *r, const float *x, const float *scale,
                         const float *shift, float low, float high, float *out);

#endif

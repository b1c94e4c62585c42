/* A pool as cuDNN describes it. No CUDA here. */
#ifndef SY_WORKERS_CUDA_MATH_LIBRARY_POOL_H
#define SY_WORKERS_CUDA_MATH_LIBRARY_POOL_H

#include "workers/cuda/math/choices.h"
#include "workers/cuda/math/device_math.h"

#define SY_LIBRARY_POOL_RANK  (2 + SY_MATH_SPATIAL)
#define SY_LIBRARY_BATCH_WORD 1 /* of words */

struct sy_library_pool {
    enum sy_dtype type;
    bool max, count_padding;
    int spatial; /* 2 or 3; one dimension is written as [k, 1] */
    int x_dims[SY_LIBRARY_POOL_RANK], x_strides[SY_LIBRARY_POOL_RANK]; /* batch, channel, spatial */
    int y_dims[SY_LIBRARY_POOL_RANK], y_strides[SY_LIBRARY_POOL_RANK];
    int window[SY_MATH_SPATIAL], pads[SY_MATH_SPATIAL], strides[SY_MATH_SPATIAL];
    int64_t words[SY_CHOICE_WORDS]; /* all of it; word 1 is the batch size */
};

/* false: cuDNN has none such. It has no dilations, the same padding at both ends, in which no window lies whole, dense tensors either row-major
 * or channels last, and as many results as fit between the paddings. */
bool sy_library_pool_of(const struct sy_math_pool *pool, struct sy_library_pool *out);

#endif

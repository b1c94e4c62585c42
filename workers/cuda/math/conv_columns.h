/* A convolution or its gradient as matrix products over unrolled windows, for windows of more than one element. Pure.
 *
 *   u[rows, columns]: a row for each output position; its columns are what the window there reads, [kernel..., in]
 *
 *   FORWARD   unroll x into u; y[rows, out] = u[rows, columns] w'[columns, out] + bias
 *   WEIGHTS   unroll x into u; dw[out, columns] = dy'[out, rows] u[rows, columns]
 *   DATA      u[rows, columns] = dy[rows, out] w[out, columns]; roll: each input adds up its elements of u
 *
 * u holds some images at a time. Few tiles of dw would leave most of a GPU idle: rows are cut into `parts`, multiplied side by side, whose
 * results are added in one order. u of DATA and the parts are float32, so a narrow gradient is rounded once. */
#ifndef SY_WORKERS_CUDA_MATH_CONV_COLUMNS_H
#define SY_WORKERS_CUDA_MATH_CONV_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/cuda/math/device_math.h"

struct sy_conv_columns {
    int64_t images;  /* at a time; a divisor of the batch */
    int64_t columns; /* of u; WEIGHTS: padded with zeros */
    int64_t parts;
    struct sy_math_matmul product; /* the first; the others add to what WEIGHTS has so far */
};

/* false: it is in groups, too large (u and all parts have so much room), or forward with a residual, an activation or rows of w that are not
 * aligned. */
bool sy_conv_columns_of(const struct sy_math_conv *conv, uint64_t u_bytes, uint64_t parts_bytes,
                        struct sy_conv_columns *out);

/* Each enqueues and returns a status. x and dx are those of the images in u. product: FORWARD with the conv's bias, if it has one. */
struct sy_conv_columns_ops {
    int (*unroll)(void *ctx, const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                  const void *x, void *u);
    int (*roll)(void *ctx, const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                const void *u, void *dx);
    int (*product)(void *ctx, const struct sy_conv_columns *columns, bool adds, const void *a,
                   const void *b, void *y);
    int (*add_parts)(void *ctx, const struct sy_math_conv *conv,
                     const struct sy_conv_columns *columns, const void *parts, void *dw);
};
/* a, b, y: as struct sy_math_conv has them. u, parts: scratch. */
int sy_conv_columns_run(const struct sy_conv_columns_ops *ops, void *ctx,
                        const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                        const void *a, const void *b, void *y, void *u, void *parts);

#endif

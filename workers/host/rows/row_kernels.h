/* Loops over rows: layer norm, group norm, mean and variance, batch norm. Row-major floats; each row by one thread, so deterministic. */
#ifndef SY_WORKERS_HOST_ROWS_ROW_KERNELS_H
#define SY_WORKERS_HOST_ROWS_ROW_KERNELS_H

#include <stdint.h>

#include "loader/graph/graph.h"

struct sy_layer_norm {
    int64_t rows, columns;
    float epsilon;
    const float *x, *skip;     /* skip NULL: nothing is added */
    const float *scale, *bias; /* bias NULL: zero */
    float *out, *sum;          /* sum NULL: x + skip is not needed */
    uint16_t *narrow;          /* NULL, or the result as bf16 too */
    int64_t root;              /* 1: by the root of the mean square; nothing is subtracted */
};

/* Channels of an image in groups, each by its own mean and variance (InstanceNormalization: a channel a group). */
struct sy_group_norm {
    int64_t images, channels, groups, spatial;
    int64_t per_group;     /* 1: scale and bias have one number a group, not one a channel */
    int64_t channels_last; /* 1: x and out lie so; of one group only, scale and bias of channels */
    float epsilon;
    const float *x, *scale, *bias;
    float *out;
};

void sy_row_layer_norm(const struct sy_layer_norm *n);
void sy_row_group_norm(const struct sy_group_norm *n);
/* x is [images, groups, inner]: each group, of all images together, minus its mean, over its standard deviation + 1e-9. In double: where
 * all are alike the result is 0. */
void sy_row_mean_variance(int64_t images, int64_t groups, int64_t inner, const float *x,
                          float *out);
/* in: x, scale, bias, mean, variance. */
void sy_row_batch_norm(int64_t batch, int64_t channels, int64_t spatial, float epsilon,
                       const float *const *in, float *out);

#endif

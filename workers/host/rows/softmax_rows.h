/* Softmax and its logarithm of floats that lie [outer, reduced, inner], and what is divided by its norm. Each line by one thread in one order. */
#ifndef SY_WORKERS_HOST_ROWS_SOFTMAX_ROWS_H
#define SY_WORKERS_HOST_ROWS_SOFTMAX_ROWS_H

#include "workers/host/rows/reduce_rows.h"

/* `out` has the layout of `in`, or is `in`. A line with NaN, with +infinity, or of only -infinity becomes NaN. */
void sy_softmax_rows(bool logarithm, const struct sy_reduce_shape *s, const float *in, float *out);

/* Each line over the sum of its absolute values (p 1) or the root of that of its squares; what has norm 0 becomes 0. In double. */
void sy_lp_norm_rows(int64_t p, const struct sy_reduce_shape *s, const float *in, float *out);

#endif

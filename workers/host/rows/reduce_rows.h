/* Reductions and places of the largest of floats that lie [outer, reduced, inner]. Each result by one thread in one order. */
#ifndef SY_WORKERS_HOST_ROWS_REDUCE_ROWS_H
#define SY_WORKERS_HOST_ROWS_REDUCE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

/* No extent is 0. */
struct sy_reduce_shape {
    int64_t outer, reduced, inner;
};

/* Whether sy_reduce_rows has this operator. */
bool sy_reduce_rows_has(enum sy_op op);
/* Writes out [outer, inner]. Computed in double, rounded once; NaN propagates. */
void sy_reduce_rows(enum sy_op op, const struct sy_reduce_shape *s, const float *in, float *out);

struct sy_reduction {
    int64_t rank;
    int64_t dims[SY_MAX_RANK];    /* may be 0 */
    int64_t reduced[SY_MAX_RANK]; /* 0 or 1 */
};

/* Over any dimensions, else as sy_reduce_rows. */
bool sy_reduce_any_has(enum sy_op op);
void sy_reduce_any(enum sy_op op, const struct sy_reduction *r, const float *in, float *out);

/* Writes out [outer, inner]: the index of the largest element, or the smallest; of equal ones the first, or the last. NaN is skipped, unless it is the first
 * element: then the index is 0. */
void sy_arg_rows(bool smallest, bool last, const struct sy_reduce_shape *s, const float *in,
                 int64_t *out);

#endif

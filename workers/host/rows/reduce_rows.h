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
/* out [outer, inner]. In double, rounded once; what is no number makes the result none. */
void sy_reduce_rows(enum sy_op op, const struct sy_reduce_shape *s, const float *in, float *out);

struct sy_reduction {
    int64_t rank;
    int64_t dims[SY_MAX_RANK];    /* may be 0 */
    int64_t reduced[SY_MAX_RANK]; /* 0 or 1 */
};

/* Over any dimensions, else as sy_reduce_rows. */
bool sy_reduce_any_has(enum sy_op op);
void sy_reduce_any(enum sy_op op, const struct sy_reduction *r, const float *in, float *out);

/* out [outer, inner]: where the largest is, or the smallest; of equal ones the first, or the last. What is no number is passed
 * over, but for the first of all: then the place is 0. */
void sy_arg_rows(bool smallest, bool last, const struct sy_reduce_shape *s, const float *in,
                 int64_t *out);

#endif

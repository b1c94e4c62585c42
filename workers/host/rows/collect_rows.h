/* What reductions collect of a row: float64 or int64 elements that follow each other, by reduction_formulas.h, in the order they lie. */
#ifndef SY_WORKERS_HOST_ROWS_COLLECT_ROWS_H
#define SY_WORKERS_HOST_ROWS_COLLECT_ROWS_H

#include <stdint.h>

#include "loader/graph/graph.h"

/* x[i] into sums[i * stride] for i < n: stride 0 collects all into one. `op`: a reduction; sums begin with sy_reduction_start, those of
 * LogSumExp with -INFINITY. In the calling thread, as the other. */
void sy_collect_row(enum sy_op op, int64_t n, const double *x, double *sums, int64_t stride);
/* The same for integers, which wrap around. Sums and `seen` begin with 0; `seen` counts the elements of each sum where a first one
 * must replace the 0 (not for SUM and MEAN). */
void sy_collect_integers(enum sy_op op, int64_t n, const int64_t *x, int64_t *sums, int64_t *seen,
                         int64_t stride);

#endif

/* Rows of float64, int32 and int64: the arithmetic of sizes, indices and tables, with sy_pair_of_floats and sy_pair_of_integers. */
#ifndef SY_WORKERS_HOST_ROWS_PAIR_ROWS_H
#define SY_WORKERS_HOST_ROWS_PAIR_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

/* out[i] = a[i * of_a] op b[i * of_b] for i < n, all of one type. `out` may be `a` or `b` where that one's step is 1. ADD, SUB, MUL,
 * MAX and MIN of F64, I32 and I64, DIV of F64. False: another operator or type, and nothing is written. In the calling thread. */
bool sy_pair_row(enum sy_op op, enum sy_dtype dtype, int64_t n, const void *a, int64_t of_a,
                 const void *b, int64_t of_b, void *out);

#endif

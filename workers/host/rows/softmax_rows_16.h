/* Softmax of lines for CPUs with AVX-512. In the calling thread; `out` may be `x`. */
#ifndef SY_WORKERS_HOST_ROWS_SOFTMAX_ROWS_16_H
#define SY_WORKERS_HOST_ROWS_SOFTMAX_ROWS_16_H

#include <stdbool.h>
#include <stdint.h>

/* `lines` lines of n numbers that lie together. A line's bits are those that it has in any other place. */
void sy_softmax_lines_16(bool logarithm, int64_t lines, int64_t n, const float *x, float *out);

#endif

/* The largest k of lines of floats, in order. */
#ifndef SY_WORKERS_HOST_ROWS_TOP_ROWS_H
#define SY_WORKERS_HOST_ROWS_TOP_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* Line `i` of `n` elements begins at i / step * step * n + i % step, its elements are `step` apart. */
struct sy_top {
    int64_t lines, n, step;
    int64_t k; /* at most n */
    bool smallest;
};

/* The k first of each line into `values` and, unless it is NULL, their places into `places`, which lie as the input does, with k for n: the
 * largest first (or the smallest), of equal ones the first, NaNs last. scratch: sy_top_scratch numbers. n < 2^32. */
void sy_top_rows(const struct sy_top *t, const float *in, uint64_t *scratch, float *values,
                 int64_t *places);

/* k for each part of the lines that goes by itself; the lines may be many more. */
int64_t sy_top_scratch(int64_t lines, int64_t k);

#endif

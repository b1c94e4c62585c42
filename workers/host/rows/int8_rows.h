/* Loops over 8-bit numbers. Pure, but for the compute threads that they run on. */
#ifndef SY_WORKERS_HOST_ROWS_INT8_ROWS_H
#define SY_WORKERS_HOST_ROWS_INT8_ROWS_H

#include <stdint.h>

/* Images, channels last, copied into larger ones. Sizes: depth, height, width (1 where there is none). Below 0, `after` is left out. */
struct sy_border {
    int64_t images, channels, size[3], before[3], after[3];
    int64_t flip,
        zero; /* xor for each number; what the border is filled with if the caller knows it */
};
void sy_int8_border(const struct sy_border *b, uint8_t zero, const uint8_t *from, uint8_t *to);

/* Least and largest of x and 0; numbers that are none are left out. */
void sy_int8_range(int64_t n, const float *x, float *low, float *high);

#endif

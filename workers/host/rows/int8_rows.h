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
/* As sy_int8_range, in the calling thread. */
void sy_int8_range_of(int64_t n, const float *x, float *low, float *high);

/* DynamicQuantizeLinear: scale and zero point (0 to 255) of numbers in [low, high], which holds 0. */
void sy_int8_scale_of(float low, float high, float *scale, float *zero);
/* y = round(x / scale) + zero, cut to [low, high]: whole numbers of 8 bits. NaN becomes the least. In the calling thread. */
void sy_int8_quantize(int64_t n, const float *x, float scale, float zero, float low, float high,
                      uint8_t *y);

#endif

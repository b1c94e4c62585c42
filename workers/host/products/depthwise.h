/* Depthwise convolutions of float32, with the channels last or in blocks of 16: each channel has its own window. oneDNN's take 1.2 to 2.6 times as long
 * (README, "Depthwise convolutions"). For CPUs with AVX-512.
 *
 *   a row of the result, 4 vectors of 16 channels at once
 *     ▒▒░░░░░░▒   ▒ pixels whose window reaches over the edge: one by one
 *                 ░ all others: 4 beside each other, 16 sums in registers
 *
 * The activation is applied to a few rows at once, while they are in the first caches. */
#ifndef SY_WORKERS_HOST_PRODUCTS_DEPTHWISE_H
#define SY_WORKERS_HOST_PRODUCTS_DEPTHWISE_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/engine/curve_formulas.h"

enum { SY_DEPTHWISE_LANES = 16 };

struct sy_depthwise {
    int64_t channels, height, width, out_height, out_width; /* heights: of blocks only */
    bool is_blocked;                             /* nChw16c, of whole blocks; else nhwc */
    int64_t kernel[2], strides[2], dilations[2]; /* rows, columns; 1: the taps lie side by side */
    int64_t pad_left;
    bool is_curved; /* an activation follows */
    struct sy_curve curve;
};

/* Rows of one image, in its first 16 channels; other blocks have the same distances as in whole images. */
struct sy_depthwise_rows {
    const float *weights; /* [channels / 16, rounded up][rows][columns][16], 64-byte aligned */
    const float *bias;    /* NULL: none */
    const float *src;     /* n_src rows, with pad_top rows of zeros above and further ones below */
    int64_t n_src, pad_top;
    float *dst;
    int64_t n;
};

/* In the calling thread. Each result is one sum in the order of the taps, however the rows are cut into calls. */
void sy_depthwise_run(const struct sy_depthwise *d, const struct sy_depthwise_rows *rows);

#endif

/* Internals of winograd.c and the compiled forms of its loops. */
#ifndef SY_WORKERS_HOST_PRODUCTS_WINOGRAD_INTERNAL_H
#define SY_WORKERS_HOST_PRODUCTS_WINOGRAD_INTERNAL_H

#include "workers/host/products/winograd.h"

/* PLACES of a transformed tile. */
enum { WINOGRAD_SIDE = 4, WINOGRAD_PLACES = WINOGRAD_SIDE * WINOGRAD_SIDE };

/* Loops for vectors of `lanes` floats. Transformed weights lie in panels of `panel` filters; their sums for `rows` tiles stay in registers. */
struct winograd_kernels {
    int64_t lanes, panel, rows;
    /* Channels [first, first + n) of a panel's weights -> to [16][place] with [channels][panel] at each place. */
    void (*weights)(const struct sy_winograd *w, const struct sy_winograd_plain *plain,
                    int64_t panel, int64_t first, int64_t n, int64_t place, float *to);
    /* Tiles [first, first + n) -> v [16][n][row]. */
    void (*tiles_in)(const struct sy_winograd *w, const float *src, int64_t first, int64_t n,
                     int64_t row, float *v);
    /* m [16][n][panel] -> the filters of a panel, from `f` on. */
    void (*tiles_out)(const struct sy_winograd *w, int64_t first, int64_t n, int64_t f,
                      const float *m, const float *bias, float *dst);
    /* c [n, panel] = a [n, k] times b [k, panel]. */
    void (*product)(int64_t n, int64_t k, const float *a, int64_t lda, const float *b, float *c);
};

extern const struct winograd_kernels winograd_kernels_8,
    winograd_kernels_16; /* the latter: AVX-512 */

#endif

/* y = x w + bias for a matrix w that is packed at import, on CPUs with AVX2 but without AVX-512: there oneDNN packs w again in each run, and
 * computes a fused Gelu element by element. Of float32, or of bf16 that is made wide in the first cache, a block at a time.
 *
 *   w, packed: panels of 16 columns, all k of them behind each other
 *
 *               panel 0       panel 1
 *    k = 0     0 1 .. 15     16 .. 31          A block is 384 k of a panel (24 KiB as floats). Rows of x are put together by up to 6
 *        1     0 1 .. 15     16 .. 31          (tiles), whose 12 sums of 8 floats stay in registers over a block.
 *        ..                                                                                                               */
#ifndef SY_WORKERS_HOST_PRODUCTS_BLOCKED_PRODUCT_H
#define SY_WORKERS_HOST_PRODUCTS_BLOCKED_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

struct sy_blocked_product {
    int64_t m, k, n; /* each at least 1 */
    const float *x;  /* element (i, j) is x[i * x_row + j * x_column] */
    int64_t x_row, x_column;
    const void *w; /* packed; of bf16 if narrow */
    bool narrow;
    const float *bias; /* [n], or NULL */
    float y_scale;     /* factor of the previous content of y; 0: y is not read */
    float *y;          /* [m, n] */
    float *scratch;    /* m * k floats, content undefined */
};

/* Number of elements of the packed matrix. */
int64_t sy_blocked_elements(int64_t k, int64_t n);
/* Packs w [k, n]; the rest is filled with zeros. */
void sy_blocked_pack(int64_t k, int64_t n, const float *w, float *to);
/* The reverse, on all threads. */
void sy_blocked_unpack(int64_t k, int64_t n, const void *w, bool narrow, float *to);
/* On all threads; needs AVX2 and FMA. Each sum has one order, so a row's bits do not depend on the other rows or the number of threads, and bf16 weights give
 * the bits of the same numbers as float32. */
void sy_blocked_product_run(const struct sy_blocked_product *b);

#endif

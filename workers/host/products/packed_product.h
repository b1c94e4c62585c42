/* Products of a few rows with the same matrix again and again, by one thread each: the matrix is put in order once, and what a step of a
 * recurrence pays is the product alone, without a library's setting up, packing and waking of threads. */
#ifndef SY_WORKERS_HOST_PRODUCTS_PACKED_PRODUCT_H
#define SY_WORKERS_HOST_PRODUCTS_PACKED_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* Columns of a packed panel. A product of some columns starts at a multiple of it, at sy_packed_floats(first, k). */
#define SY_PACKED_COLUMNS 32

/* Floats of a packed matrix of k rows and n columns. */
int64_t sy_packed_floats(int64_t n, int64_t k);
/* Element (i, j) of the matrix is b[i * row + j * column]. */
void sy_packed_make(int64_t n, int64_t k, const float *b, int64_t row, int64_t column, float *to);
/* Computes c [m, n] = a [m, k] times the matrix, plus the previous c if `adds`. A row's bits do not depend on the other rows. */
void sy_packed_product(bool adds, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                       const float *packed, float *c, int64_t ldc);

#endif

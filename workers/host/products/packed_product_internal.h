/* Products with one panel, for vectors of 8 floats and of 16. */
#ifndef SY_WORKERS_HOST_PRODUCTS_PACKED_PRODUCT_INTERNAL_H
#define SY_WORKERS_HOST_PRODUCTS_PACKED_PRODUCT_INTERNAL_H

#include "workers/host/products/packed_product.h"

/* The matrix has `width` of the panel's columns; the others are padding. */
typedef void sy_packed_panel(bool adds, int64_t m, int64_t width, int64_t k, const float *a,
                             int64_t lda, const float *packed, float *c, int64_t ldc);
sy_packed_panel sy_packed_panel_8, sy_packed_panel_16; /* the latter needs AVX-512 */

#endif

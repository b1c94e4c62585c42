#include "workers/host/products/packed_product.h"

#include "runtime/base/assert.h"
#include "workers/host/products/packed_product_internal.h"

/* A panel: PANEL columns of the matrix, with all k rows in sequence; the last panel is padded with zeros. */
enum { PANEL = SY_PACKED_COLUMNS };

int64_t sy_packed_floats(int64_t n, int64_t k)
{
    return SY_ALIGN_UP(n, PANEL) * k;
}

void sy_packed_make(int64_t n, int64_t k, const float *b, int64_t row, int64_t column, float *to)
{
    for (int64_t first = 0; first < n; first += PANEL)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = first; j < first + PANEL; j++)
                *to++ = j < n ? b[i * row + j * column] : 0.0f;
}

void sy_packed_product(bool adds, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                       const float *packed, float *c, int64_t ldc)
{
    sy_packed_panel *panel =
        __builtin_cpu_supports("avx512f") ? sy_packed_panel_16 : sy_packed_panel_8;
    for (int64_t first = 0; first < n; first += PANEL)
        panel(adds, m, SY_MIN(n - first, PANEL), k, a, lda, packed + first * k, c + first, ldc);
}

/* A panel's product with vectors of LANES floats, as wide as the instructions that it is compiled for, since GCC keeps wider ones in memory.
 * Included once by a file for each width. */
#ifndef LANES
#define LANES 8
#endif
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/products/packed_product_internal.h"

/* Sums that are in registers together: ROWS rows of COLUMNS. */
enum { ROWS = 4, VECTORS = 2, COLUMNS = VECTORS * LANES };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

/* `width` floats, the rest zero. */
INLINE void load(lanes *to, const float *from, int64_t width)
{
    float edge[COLUMNS] = {0};
    if (width < COLUMNS)
        from = memcpy(edge, from, (size_t)width * sizeof *from);
    memcpy(to, from, COLUMNS * sizeof *from);
}

INLINE void store(float *to, const lanes *from, int64_t width)
{
    float edge[COLUMNS];
    memcpy(width < COLUMNS ? edge : to, from, COLUMNS * sizeof *to);
    if (width < COLUMNS)
        memcpy(to, edge, (size_t)width * sizeof *to);
}

/* `rows` is known to the compiler: the sums stay in registers. */
INLINE void some_rows(bool adds, int rows, int64_t width, int64_t k, const float *a, int64_t lda,
                      const float *w, float *c, int64_t ldc)
{
    lanes sum[ROWS][VECTORS] = {0};
    for (int r = 0; adds && r < rows; r++)
        load(sum[r], c + r * ldc, width);
    for (int64_t i = 0; i < k; i++)
        for (int v = 0; v < VECTORS; v++)
            for (int r = 0; r < rows; r++)
                sum[r][v] +=
                    *(const lanes *)(w + i * SY_PACKED_COLUMNS + v * LANES) * a[r * lda + i];
    for (int r = 0; r < rows; r++)
        store(c + r * ldc, sum[r], width);
}

INLINE void columns(bool adds, int64_t m, int64_t width, int64_t k, const float *a, int64_t lda,
                    const float *w, float *c, int64_t ldc)
{
    int64_t r = 0;
    for (; r + ROWS <= m; r += ROWS)
        some_rows(adds, ROWS, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r + 2 <= m; r += 2)
        some_rows(adds, 2, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r < m; r++)
        some_rows(adds, 1, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
}

#define PANEL_PRODUCT(compiled, name)                                                           \
    compiled void name(bool adds, int64_t m, int64_t width, int64_t k, const float *a,          \
                       int64_t lda, const float *packed, float *c, int64_t ldc)                 \
    {                                                                                           \
        for (int64_t at = 0; at < width; at += COLUMNS)                                         \
            columns(adds, m, SY_MIN(width - at, COLUMNS), k, a, lda, packed + at, c + at, ldc); \
    }

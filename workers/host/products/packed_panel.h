/* A panel's product with vectors of LANES floats, as wide as the instructions that it is compiled for, since GCC keeps wider ones in memory.
 * Included once by a file for each width. */
#ifndef LANES
#define LANES 8
#endif
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/products/packed_product_internal.h"

/* Sums that are in registers together: ROWS rows of COLUMNS, of 16 or 32 registers. */
enum { ROWS = LANES == 16 ? 8 : 4, VECTORS = 2, COLUMNS = VECTORS * LANES };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

/* The next vector's floats of `width`, the rest zero. */
INLINE void load(lanes *to, const float *from, int64_t width)
{
    *to = (lanes){0};
    if (width >= LANES)
        memcpy(to, from, sizeof *to);
    else if (width > 0)
        memcpy(to, from, (size_t)width * sizeof *from);
}

INLINE void store(float *to, const lanes *from, int64_t width)
{
    if (width >= LANES)
        memcpy(to, from, sizeof *from);
    else if (width > 0)
        memcpy(to, from, (size_t)width * sizeof *to);
}

/* `rows` and `vectors` are known to the compiler: the sums stay in registers. */
INLINE void some_rows(bool adds, int rows, int vectors, int64_t width, int64_t k, const float *a,
                      int64_t lda, const float *w, float *c, int64_t ldc)
{
    lanes sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            load(&sum[r][v], c + r * ldc + v * LANES, adds ? width - v * LANES : 0);
    for (int64_t i = 0; i < k; i++)
        for (int v = 0; v < vectors; v++)
            for (int r = 0; r < rows; r++)
                sum[r][v] +=
                    *(const lanes *)(w + i * SY_PACKED_COLUMNS + v * LANES) * a[r * lda + i];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            store(c + r * ldc + v * LANES, &sum[r][v], width - v * LANES);
}

INLINE void all_rows(bool adds, int64_t m, int vectors, int64_t width, int64_t k, const float *a,
                     int64_t lda, const float *w, float *c, int64_t ldc)
{
    int64_t r = 0;
    for (; r + ROWS <= m; r += ROWS)
        some_rows(adds, ROWS, vectors, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r + 4 <= m; r += 4)
        some_rows(adds, 4, vectors, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r + 2 <= m; r += 2)
        some_rows(adds, 2, vectors, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r < m; r++)
        some_rows(adds, 1, vectors, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
}

INLINE void columns(bool adds, int64_t m, int64_t width, int64_t k, const float *a, int64_t lda,
                    const float *w, float *c, int64_t ldc)
{
    if (width <= LANES)
        all_rows(adds, m, 1, width, k, a, lda, w, c, ldc);
    else
        all_rows(adds, m, VECTORS, width, k, a, lda, w, c, ldc);
}

#define PANEL_PRODUCT(compiled, name)                                                           \
    compiled void name(bool adds, int64_t m, int64_t width, int64_t k, const float *a,          \
                       int64_t lda, const float *packed, float *c, int64_t ldc)                 \
    {                                                                                           \
        for (int64_t at = 0; at < width; at += COLUMNS)                                         \
            columns(adds, m, SY_MIN(width - at, COLUMNS), k, a, lda, packed + at, c + at, ldc); \
    }

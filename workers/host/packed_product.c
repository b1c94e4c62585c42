#include "workers/host/packed_product.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/clones.h"

/* A panel: PANEL columns of the matrix, all k of them behind each other; the last one is filled up with zeros. */
enum { PANEL = SY_PACKED_COLUMNS, LANES = 16, VECTORS = PANEL / LANES, ROWS = 4 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

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

INLINE void load(lanes *to, const float *from, int64_t n)
{
    if (n == PANEL)
        memcpy(to, from, PANEL * sizeof *from);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

/* `rows` is known to the compiler: the sums stay in registers. */
INLINE void some_rows(bool adds, int rows, int64_t width, int64_t k, const float *a, int64_t lda,
                      const lanes *w, float *c, int64_t ldc)
{
    lanes sum[ROWS][VECTORS] = {0};
    for (int r = 0; adds && r < rows; r++)
        load(sum[r], c + r * ldc, width);
    for (int64_t i = 0; i < k; i++)
        for (int v = 0; v < VECTORS; v++)
            for (int r = 0; r < rows; r++)
                sum[r][v] += w[i * VECTORS + v] * a[r * lda + i];
    for (int r = 0; r < rows; r++) {
        if (width == PANEL)
            memcpy(c + r * ldc, sum[r], PANEL * sizeof *c);
        else
            memcpy(c + r * ldc, sum[r], (size_t)width * sizeof *c);
    }
}

SY_CLONES static void panel(bool adds, int64_t m, int64_t width, int64_t k, const float *a,
                            int64_t lda, const float *packed, float *c, int64_t ldc)
{
    const lanes *w = (const lanes *)packed;
    int64_t r = 0;
    for (; r + ROWS <= m; r += ROWS)
        some_rows(adds, ROWS, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r + 2 <= m; r += 2)
        some_rows(adds, 2, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
    for (; r < m; r++)
        some_rows(adds, 1, width, k, a + r * lda, lda, w, c + r * ldc, ldc);
}

void sy_packed_product(bool adds, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                       const float *packed, float *c, int64_t ldc)
{
    for (int64_t first = 0; first < n; first += PANEL)
        panel(adds, m, SY_MIN(n - first, PANEL), k, a, lda, packed + first * k, c + first, ldc);
}

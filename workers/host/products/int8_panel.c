#include "workers/host/products/int8_panel.h"

#include <immintrin.h>
#include <string.h>

#include "workers/host/products/int8_matrix.h"

#define INLINE static inline __attribute__((always_inline))
#define VNNI   __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVX2   __attribute__((target("avx2")))

enum { COLUMNS = SY_INT8_COLUMNS, VECTORS = COLUMNS / 16, HALVES = 2 };

INLINE int four_of(const uint8_t *a)
{
    int four;
    memcpy(&four, a, sizeof four);
    return four;
}

/* `vectors` of 16 columns; it, `rows` and `chains` are known to the compiler: the sums stay in registers. Chains: sums of every second quad, as
 * one row has only a few sums, which would wait for each other. */
VNNI INLINE void vnni_rows(int64_t quads, const uint8_t *a, int64_t stride, const int8_t *w,
                           int32_t *sums, int vectors, int rows, int chains)
{
    __m512i sum[SY_INT8_ROWS][VECTORS * HALVES];
    int64_t q = 0;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors * chains; v++)
            sum[r][v] = _mm512_setzero_si512();
    for (; q + chains <= quads; q += chains)
        for (int c = 0; c < chains; c++)
            for (int v = 0; v < vectors; v++) {
                __m512i panel = _mm512_loadu_si512(w + ((q + c) * COLUMNS + v * 16) * 4);
                for (int r = 0; r < rows; r++)
                    sum[r][c * vectors + v] = _mm512_dpbusd_epi32(
                        sum[r][c * vectors + v],
                        _mm512_set1_epi32(four_of(a + r * stride + (q + c) * 4)), panel);
            }
    for (; q < quads; q++)
        for (int v = 0; v < vectors; v++)
            for (int r = 0; r < rows; r++)
                sum[r][v] = _mm512_dpbusd_epi32(sum[r][v],
                                                _mm512_set1_epi32(four_of(a + r * stride + q * 4)),
                                                _mm512_loadu_si512(w + (q * COLUMNS + v * 16) * 4));
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            if (chains == 2)
                sum[r][v] = _mm512_add_epi32(sum[r][v], sum[r][vectors + v]);
            _mm512_storeu_si512(sums + r * COLUMNS + v * 16, sum[r][v]);
        }
}

/* One function for each number of vectors: all of them in one are 24 loops, which GCC compiles for long. */
#define VNNI_PANEL(vectors)                                                                     \
    VNNI static void panel_##vectors(int64_t quads, int rows, const uint8_t *a, int64_t stride, \
                                     const int8_t *w, int32_t *sums)                            \
    {                                                                                           \
        switch (rows) {                                                                         \
        case 1:                                                                                 \
            vnni_rows(quads, a, stride, w, sums, vectors, 1, 2);                                \
            break;                                                                              \
        case 2:                                                                                 \
            vnni_rows(quads, a, stride, w, sums, vectors, 2, 2);                                \
            break;                                                                              \
        case 3:                                                                                 \
            vnni_rows(quads, a, stride, w, sums, vectors, 3, 1);                                \
            break;                                                                              \
        case 4:                                                                                 \
            vnni_rows(quads, a, stride, w, sums, vectors, 4, 1);                                \
            break;                                                                              \
        case 5:                                                                                 \
            vnni_rows(quads, a, stride, w, sums, vectors, 5, 1);                                \
            break;                                                                              \
        default:                                                                                \
            vnni_rows(quads, a, stride, w, sums, vectors, 6, 1);                                \
        }                                                                                       \
    }

VNNI_PANEL(1)
VNNI_PANEL(2)
VNNI_PANEL(3)
VNNI_PANEL(4)

void sy_int8_panel_vnni(int64_t quads, int columns, int rows, const uint8_t *a, int64_t stride,
                        const int8_t *w, int32_t *sums)
{
    static sy_int8_panel_rows *const forms[] = {panel_1, panel_2, panel_3, panel_4};
    forms[(columns - 1) / 16](quads, rows, a, stride, w, sums);
}

/* Four numbers of each of eight columns, from column `first` on: pairs of products in 16 bits each, added in 32. */
AVX2 INLINE void avx2_columns(int64_t quads, const uint8_t *a, const int8_t *w, int32_t *sums)
{
    __m256i low = _mm256_setzero_si256(), high = low;
    for (int64_t q = 0; q < quads; q++) {
        const __m128i *from = (const __m128i *)(const void *)(w + q * COLUMNS * 4);
        __m256i four =
            _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(four_of(a + q * 4))));
        low = _mm256_add_epi32(
            low, _mm256_madd_epi16(four, _mm256_cvtepi8_epi16(_mm_loadu_si128(from))));
        high = _mm256_add_epi32(
            high, _mm256_madd_epi16(four, _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1))));
    }
    __m256i sum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)sums, sum);
}

AVX2 void sy_int8_panel_avx2(int64_t quads, int columns, int rows, const uint8_t *a, int64_t stride,
                             const int8_t *w, int32_t *sums)
{
    for (int c = 0; c < columns; c += 8)
        for (int r = 0; r < rows; r++)
            avx2_columns(quads, a + r * stride, w + c * 4, sums + r * COLUMNS + c);
}

void sy_int8_panel_plain(int64_t quads, int columns, int rows, const uint8_t *a, int64_t stride,
                         const int8_t *w, int32_t *sums)
{
    memset(sums, 0, (size_t)rows * COLUMNS * sizeof *sums);
    for (int r = 0; r < rows; r++)
        for (int64_t q = 0; q < quads; q++)
            for (int c = 0; c < columns; c++)
                for (int k = 0; k < 4; k++)
                    sums[r * COLUMNS + c] +=
                        a[r * stride + q * 4 + k] * w[(q * COLUMNS + c) * 4 + k];
}

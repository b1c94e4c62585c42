#include "workers/host/products/int8_panel.h"

#include <immintrin.h>
#include <string.h>

#include "workers/host/products/int8_matrix.h"

#define INLINE static inline __attribute__((always_inline))
#define VNNI   __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVX2   __attribute__((target("avx2")))

enum { COLUMNS = SY_INT8_COLUMNS };

INLINE int four_of(const uint8_t *a)
{
    int four;
    memcpy(&four, a, sizeof four);
    return four;
}

/* Sums by name: GCC puts arrays of them into memory. One row's four vectors of 16 columns, of which `vectors` are computed. */
#define SUMS(r) __m512i s##r##_0 = zero, s##r##_1 = zero, s##r##_2 = zero, s##r##_3 = zero;
#define ADD(r)                                                                    \
    {                                                                             \
        const __m512i four = _mm512_set1_epi32(four_of(a + (r)*stride + q * 4));  \
        s##r##_0 = _mm512_dpbusd_epi32(s##r##_0, four, w_0);                      \
        s##r##_1 = vectors > 1 ? _mm512_dpbusd_epi32(s##r##_1, four, w_1) : zero; \
        s##r##_2 = vectors > 2 ? _mm512_dpbusd_epi32(s##r##_2, four, w_2) : zero; \
        s##r##_3 = vectors > 3 ? _mm512_dpbusd_epi32(s##r##_3, four, w_3) : zero; \
    }
#define PUT(r)                                              \
    _mm512_storeu_si512(sums + (r)*COLUMNS, s##r##_0);      \
    _mm512_storeu_si512(sums + (r)*COLUMNS + 16, s##r##_1); \
    _mm512_storeu_si512(sums + (r)*COLUMNS + 32, s##r##_2); \
    _mm512_storeu_si512(sums + (r)*COLUMNS + 48, s##r##_3);

#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)

#define PANEL_ROWS(rows)                                                                           \
    VNNI INLINE void vnni_##rows(int64_t quads, const uint8_t *a, int64_t stride, const int8_t *w, \
                                 int32_t *sums, int vectors)                                       \
    {                                                                                              \
        const __m512i zero = _mm512_setzero_si512();                                               \
        ROWS_##rows(SUMS) for (int64_t q = 0; q < quads; q++)                                      \
        {                                                                                          \
            const int8_t *from = w + q * COLUMNS * 4;                                              \
            const __m512i w_0 = _mm512_loadu_si512(from), w_1 = _mm512_loadu_si512(from + 64),     \
                          w_2 = _mm512_loadu_si512(from + 128),                                    \
                          w_3 = _mm512_loadu_si512(from + 192);                                    \
            ROWS_##rows(ADD)                                                                       \
        }                                                                                          \
        ROWS_##rows(PUT)                                                                           \
    }

PANEL_ROWS(2)
PANEL_ROWS(3)
PANEL_ROWS(4)
PANEL_ROWS(5)
PANEL_ROWS(6)

/* One row, computed as two halves of its depth: with four sums alone each instruction would wait for the previous one. */
VNNI INLINE void vnni_1(int64_t quads, const uint8_t *a, int64_t stride, const int8_t *w,
                        int32_t *sums, int vectors)
{
    int64_t half = quads / 2, apart = half * 4;
    const __m512i zero = _mm512_setzero_si512();
    (void)stride;
    {
        SUMS(0) SUMS(1) for (int64_t q = 0; q < half; q++)
        {
            const int8_t *from = w + q * COLUMNS * 4, *other = from + half * COLUMNS * 4;
            const __m512i four = _mm512_set1_epi32(four_of(a + q * 4)),
                          later = _mm512_set1_epi32(four_of(a + q * 4 + apart));
            s0_0 = _mm512_dpbusd_epi32(s0_0, four, _mm512_loadu_si512(from));
            s1_0 = _mm512_dpbusd_epi32(s1_0, later, _mm512_loadu_si512(other));
            if (vectors > 1) {
                s0_1 = _mm512_dpbusd_epi32(s0_1, four, _mm512_loadu_si512(from + 64));
                s1_1 = _mm512_dpbusd_epi32(s1_1, later, _mm512_loadu_si512(other + 64));
            }
            if (vectors > 2) {
                s0_2 = _mm512_dpbusd_epi32(s0_2, four, _mm512_loadu_si512(from + 128));
                s1_2 = _mm512_dpbusd_epi32(s1_2, later, _mm512_loadu_si512(other + 128));
            }
            if (vectors > 3) {
                s0_3 = _mm512_dpbusd_epi32(s0_3, four, _mm512_loadu_si512(from + 192));
                s1_3 = _mm512_dpbusd_epi32(s1_3, later, _mm512_loadu_si512(other + 192));
            }
        }
        s0_0 = _mm512_add_epi32(s0_0, s1_0);
        s0_1 = _mm512_add_epi32(s0_1, s1_1);
        s0_2 = _mm512_add_epi32(s0_2, s1_2);
        s0_3 = _mm512_add_epi32(s0_3, s1_3);
        if (quads % 2) {
            const int64_t q = quads - 1;
            const int8_t *from = w + q * COLUMNS * 4;
            const __m512i w_0 = _mm512_loadu_si512(from), w_1 = _mm512_loadu_si512(from + 64),
                          w_2 = _mm512_loadu_si512(from + 128),
                          w_3 = _mm512_loadu_si512(from + 192);
            ADD(0)
        }
        PUT(0)
    }
}

/* One function for each number of vectors. */
#define VNNI_PANEL(vectors)                                                                     \
    VNNI static void panel_##vectors(int64_t quads, int rows, const uint8_t *a, int64_t stride, \
                                     const int8_t *w, int32_t *sums)                            \
    {                                                                                           \
        switch (rows) {                                                                         \
        case 1:                                                                                 \
            vnni_1(quads, a, stride, w, sums, vectors);                                         \
            break;                                                                              \
        case 2:                                                                                 \
            vnni_2(quads, a, stride, w, sums, vectors);                                         \
            break;                                                                              \
        case 3:                                                                                 \
            vnni_3(quads, a, stride, w, sums, vectors);                                         \
            break;                                                                              \
        case 4:                                                                                 \
            vnni_4(quads, a, stride, w, sums, vectors);                                         \
            break;                                                                              \
        case 5:                                                                                 \
            vnni_5(quads, a, stride, w, sums, vectors);                                         \
            break;                                                                              \
        default:                                                                                \
            vnni_6(quads, a, stride, w, sums, vectors);                                         \
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

/* Sigmoid and Swish for AVX-512: from the loops in C the compiler makes masked instructions that wait for each other, 2.5 times as many cycles. */
#include "workers/host/rows/curve_rows_16.h"

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define INLINE static inline __attribute__((always_inline, target("avx512f")))

enum { LANES = 16 };

/* e^x for -110 <= x <= 0, also where it is denormal (scalef rounds once). NaN stays. */
INLINE __m512 power(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    __m512 q = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    return _mm512_scalef_ps(_mm512_add_ps(q, _mm512_set1_ps(1)), n);
}

/* 1 / (1 + e^-x), by the power of -|x|: nothing overflows. */
INLINE __m512 sigmoid(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1);
    __m512 below =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
    /* In this order NaN stays. */
    __m512 e = power(_mm512_max_ps(_mm512_set1_ps(-110), below));
    __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_div_ps(_mm512_mask_mov_ps(one, negative, e), _mm512_add_ps(one, e));
}

/* Two vectors at once: what one of them waits for, the other fills. */
#define ROWS(name, expression)                                                          \
    AVX512 void name(const struct sy_curve *c, int64_t n, const float *in, float *out)  \
    {                                                                                   \
        const __m512 a = _mm512_set1_ps(c->a);                                          \
        int64_t i = 0;                                                                  \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                                    \
            __m512 x = _mm512_loadu_ps(in + i), y = _mm512_loadu_ps(in + i + LANES);    \
            x = expression(a, x);                                                       \
            y = expression(a, y);                                                       \
            _mm512_storeu_ps(out + i, x);                                               \
            _mm512_storeu_ps(out + i + LANES, y);                                       \
        }                                                                               \
        for (; i < n; i += LANES) {                                                     \
            __mmask16 mask = n - i < LANES ? (__mmask16)((1u << (n - i)) - 1) : 0xffff; \
            _mm512_mask_storeu_ps(out + i, mask,                                        \
                                  expression(a, _mm512_maskz_loadu_ps(mask, in + i)));  \
        }                                                                               \
    }

INLINE __m512 sigmoid_of(__m512 a, __m512 x)
{
    (void)a;
    return sigmoid(x);
}

INLINE __m512 swish_of(__m512 a, __m512 x)
{
    return _mm512_mul_ps(x, sigmoid(_mm512_mul_ps(a, x)));
}

ROWS(sy_curve_sigmoid_16, sigmoid_of)
ROWS(sy_curve_swish_16, swish_of)

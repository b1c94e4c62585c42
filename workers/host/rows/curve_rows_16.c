/* Sigmoid and Swish for AVX-512: from the loops in C the compiler makes masked instructions that wait for each other, 2.5 times as many cycles. */
#include "workers/host/rows/curve_rows_16.h"

#include "workers/host/rows/power_16.h"

#define AVX512 __attribute__((target("avx512f")))
#define INLINE SY_INLINE_16

enum { LANES = 16 };

/* 1 / (1 + e^-x), by the power of -|x|: nothing overflows. */
INLINE __m512 sigmoid(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1);
    __m512 below =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
    /* In this order NaN stays. */
    __m512 e = sy_power_16(_mm512_max_ps(_mm512_set1_ps(-110), below));
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

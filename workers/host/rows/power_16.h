/* e^x of 16 floats, for loops that are written for AVX-512. */
#ifndef SY_WORKERS_HOST_ROWS_POWER_16_H
#define SY_WORKERS_HOST_ROWS_POWER_16_H

#include <immintrin.h>

#define SY_INLINE_16 static inline __attribute__((always_inline, target("avx512f")))

/* e^x for -110 <= x <= 0, also where it is denormal (scalef rounds once). NaN stays. 2 ulp. */
SY_INLINE_16 __m512 sy_power_16(__m512 x)
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

#endif

/* The end of a line is a masked vector: from the loops in C the compiler makes one number after the other of it, 8 ns each, which was four fifths of the
 * time of a line of 28. */
#include "workers/host/rows/softmax_rows_16.h"

#include <math.h>

#include "runtime/base/assert.h"
#include "workers/host/rows/power_16.h"

#define AVX512 __attribute__((target("avx512f")))

enum { LANES = 16, STRETCH = 4096 /* floats that are summed as floats; their sums as doubles */ };

SY_INLINE_16 __mmask16 some_of(int64_t n)
{
    return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1);
}

SY_INLINE_16 float top_of(const float *x, int64_t n)
{
    __m512 top = _mm512_set1_ps(-INFINITY);
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 some =
            some_of(n - i); /* in this order NaN is left out; it comes back with its power */
        top = _mm512_mask_max_ps(top, some, _mm512_maskz_loadu_ps(some, x + i), top);
    }
    return _mm512_reduce_max_ps(top);
}

/* e^(x - top), 0 where the mask is. */
SY_INLINE_16 __m512 power_below(const float *x, __mmask16 some, __m512 top)
{
    __m512 below = _mm512_sub_ps(_mm512_maskz_loadu_ps(some, x), top);
    return _mm512_maskz_mov_ps(some, sy_power_16(_mm512_max_ps(_mm512_set1_ps(-110), below)));
}

/* The sum of the powers, which `out` gets unless it is NULL. */
SY_INLINE_16 double sum_powers(const float *x, int64_t n, float top, float *out)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += STRETCH) {
        __m512 sums = _mm512_setzero_ps();
        int64_t end = SY_MIN(from + STRETCH, n);
        for (int64_t i = from; i < end; i += LANES) {
            __mmask16 some = some_of(end - i);
            __m512 e = power_below(x + i, some, _mm512_set1_ps(top));
            sums = _mm512_add_ps(sums, e);
            if (out)
                _mm512_mask_storeu_ps(out + i, some, e);
        }
        sum += (double)_mm512_reduce_add_ps(sums);
    }
    return sum;
}

SY_INLINE_16 void scale(float *out, int64_t n, float rate)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 some = some_of(n - i);
        _mm512_mask_storeu_ps(
            out + i, some,
            _mm512_mul_ps(_mm512_maskz_loadu_ps(some, out + i), _mm512_set1_ps(rate)));
    }
}

SY_INLINE_16 void shift(const float *x, int64_t n, float top, float logarithm, float *out)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 some = some_of(n - i);
        __m512 below = _mm512_sub_ps(_mm512_maskz_loadu_ps(some, x + i), _mm512_set1_ps(top));
        _mm512_mask_storeu_ps(out + i, some, _mm512_sub_ps(below, _mm512_set1_ps(logarithm)));
    }
}

AVX512 void sy_softmax_lines_16(bool logarithm, int64_t lines, int64_t n, const float *x,
                                float *out)
{
    for (int64_t line = 0; line < lines; line++, x += n, out += n) {
        float top = top_of(x, n);
        if (logarithm)
            shift(x, n, top, logf((float)sum_powers(x, n, top, NULL)), out);
        else
            scale(out, n, (float)(1 / sum_powers(x, n, top, out)));
    }
}

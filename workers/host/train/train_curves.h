/* e^x, sigmoid, tanh and erf for loops that the compiler vectorises, to about 1e-7. The same bits whatever the width of the vectors is not promised. */
#ifndef SY_WORKERS_HOST_TRAIN_TRAIN_CURVES_H
#define SY_WORKERS_HOST_TRAIN_TRAIN_CURVES_H

#include <stdint.h>

/* x is cut to where the result is finite and not denormal. */
static inline float sy_curve_exp(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float k = __builtin_rintf(x * 1.44269504f), r = x - k * 0.693359375f + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union {
        uint32_t i;
        float f;
    } two = {.i = (uint32_t)((int32_t)k + 127) << 23}; /* of NaN any number: the product is NaN */
    return p * two.f;
}

static inline float sy_curve_sigmoid(float x)
{
    return 1.0f / (1.0f + sy_curve_exp(-x));
}

static inline float sy_curve_tanh(float x)
{
    return 1.0f - 2.0f / (sy_curve_exp(2.0f * x) + 1.0f);
}

/* Given e^(-x x). Abramowitz and Stegun 7.1.26; its series where x is small, so that the result is exact relative to x there. */
static inline float sy_curve_erf_given(float x, float e)
{
    float a = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.3275911f * a), s = x * x;
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float far = 1.0f - p * t * e;
    float near = -8.5483270e-4f;
    near = near * s + 5.2239776e-3f;
    near = near * s - 2.6866171e-2f;
    near = near * s + 1.1283792e-1f;
    near = near * s - 3.7612639e-1f;
    near = near * s + 1.1283792f;
    float big = x < 0.0f ? -far : far;
    return a < 0.5f ? near * x : big;
}

static inline float sy_curve_erf(float x)
{
    return sy_curve_erf_given(x, sy_curve_exp(-x * x));
}

#endif

/* e^x, sigmoid and tanh for loops that the compiler vectorises, to about 1e-7. The same bits whatever the width of the vectors is not promised. */
#ifndef SY_WORKERS_HOST_TRAIN_CURVES_H
#define SY_WORKERS_HOST_TRAIN_CURVES_H

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
        int32_t i;
        float f;
    } two = {.i = ((int32_t)k + 127) << 23};
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

#endif

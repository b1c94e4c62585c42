/* e^x of what is not above 0, for loops that the compiler vectorises. */
#ifndef SY_WORKERS_HOST_EXP_BELOW_ZERO_H
#define SY_WORKERS_HOST_EXP_BELOW_ZERO_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* e^x for x <= 0, relative error 2e-7; 0 below -87, where it is no normal number. NaN stays. */
static inline float sy_exp_below_zero(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves whole numbers */
    bool vanishes = x < -87.0f;
    x = vanishes ? -87.0f : x;
    float shifted = x * 1.44269504f + round, n = shifted - round;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* log 2 in two parts */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1;
    p = p * r + 1;
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    return vanishes ? 0 : p * power;
}

#endif

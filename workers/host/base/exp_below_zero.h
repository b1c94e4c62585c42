/* e^x in parts, for loops that the compiler vectorises. */
#ifndef SY_WORKERS_HOST_BASE_EXP_BELOW_ZERO_H
#define SY_WORKERS_HOST_BASE_EXP_BELOW_ZERO_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SY_VECTORISED static inline __attribute__((always_inline))

/* 2^k for k from -127 (where it is 0) to 128 (infinity). */
SY_VECTORISED float sy_power_of_two(uint32_t k)
{
    uint32_t bits = (k + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* e^x = 2^k (1 + the result), -0.3 to 0.42; x from -150 to 150. NaN stays, with any k. */
SY_VECTORISED float sy_exp_split(float x, uint32_t *k)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves whole numbers */
    float shifted = x * 1.44269504f + round, n = shifted - round;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* log 2 in two parts */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    memcpy(k, &shifted, sizeof *k);
    *k -= 0x4b400000; /* round's bits */
    return p * r * r + r;
}

/* e^x for x <= 0, relative error 2e-7; 0 below -87, where it is no normal number. NaN stays. */
SY_VECTORISED float sy_exp_below_zero(float x)
{
    bool vanishes = x < -87.0f;
    uint32_t k;
    float q = sy_exp_split(vanishes ? -87.0f : x, &k);
    return vanishes ? 0 : (1 + q) * sy_power_of_two(k);
}

#endif

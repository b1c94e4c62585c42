/* float16 (IEEE binary16) and bfloat16 as bits, from and to float32. Rounding is to nearest even; NaN stays NaN. */
#ifndef SY_BASE_HALF_H
#define SY_BASE_HALF_H

#include <stdint.h>
#include <string.h>

uint16_t sy_float_to_half(float value); /* infinity from 65520 on */

static inline float sy_half_to_float(uint16_t bits)
{
    uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
    uint32_t wide = (uint32_t)(bits & 0x8000) << 16 | mantissa << 13;
    float value;
    if (exponent == 0)
        return (bits & 0x8000 ? -0x1p-24f : 0x1p-24f) * (float)mantissa;
    wide |= (exponent == 31 ? 255 : exponent + 127 - 15) << 23;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline float sy_bf16_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t sy_float_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif

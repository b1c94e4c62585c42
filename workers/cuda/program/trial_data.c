#include "workers/cuda/program/trial_data.h"

#include <math.h>

#include "runtime/base/half.h"

static float number_at(enum sy_dtype type, const void *at, int64_t i)
{
    return type == SY_DTYPE_F16    ? sy_half_to_float(((const uint16_t *)at)[i])
           : type == SY_DTYPE_BF16 ? sy_bf16_to_float(((const uint16_t *)at)[i])
                                   : ((const float *)at)[i];
}

static void set_number(enum sy_dtype type, void *at, int64_t i, float value)
{
    if (type == SY_DTYPE_F16)
        ((uint16_t *)at)[i] = sy_float_to_half(value);
    else if (type == SY_DTYPE_BF16)
        ((uint16_t *)at)[i] = sy_float_to_bf16(value);
    else
        ((float *)at)[i] = value;
}

/* splitmix64's mixing of a counter. */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void sy_trial_fill(enum sy_dtype type, float scale, bool odd, uint64_t seed, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = mixed(seed + (uint64_t)i);
        float value = scale * ((float)(bits >> 40) / (float)(1 << 23) - 1);
        unsigned which = (unsigned)(bits % 509);
        if (odd && (i < n / 8 || which < 3))
            value = i < n / 8 || which == 0 ? -INFINITY : which == 1 ? INFINITY : NAN;
        set_number(type, out, i, value);
    }
}

bool sy_trial_agrees(enum sy_dtype type, double tolerance, int64_t n, const void *want,
                     const void *got, double *out_off)
{
    *out_off = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = (double)number_at(type, want, i), b = (double)number_at(type, got, i);
        double off = isfinite(a) && isfinite(b)         ? fabs(a - b) / (1 + fabs(a))
                     : (isnan(a) && isnan(b)) || a == b ? 0
                                                        : INFINITY;
        *out_off = fmax(*out_off, off);
    }
    return *out_off <= tolerance;
}

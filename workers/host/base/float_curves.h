/* Functions of one float for loops that the compiler vectorises: no branch, no table. Errors in units in the last place (ulp), against double,
 * are those that tests/workers/kernels/test_float_curves.c holds over all floats. NaN stays NaN. */
#ifndef SY_WORKERS_HOST_BASE_FLOAT_CURVES_H
#define SY_WORKERS_HOST_BASE_FLOAT_CURVES_H

#include <math.h>

#include "workers/host/base/exp_below_zero.h"

/* e^x, also where it is denormal: twice half the power, as one alone would be 0 or infinite. 2 ulp. */
SY_VECTORISED float sy_float_exp(float x)
{
    uint32_t k;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float q = sy_exp_split(x, &k);
    uint32_t half = (uint32_t)((int32_t)k >> 1);
    return (1 + q) * sy_power_of_two(half) * sy_power_of_two(k - half);
}

/* e^x - 1 for x <= 80. 3 ulp. */
SY_VECTORISED float sy_float_expm1(float x)
{
    uint32_t k;
    x = x < -30.0f ? -30.0f : x; /* -1 */
    float q = sy_exp_split(x, &k), power = sy_power_of_two(k);
    return power * q + (power - 1);
}

/* 1 from 9.02 on. 4 ulp. */
SY_VECTORISED float sy_float_tanh(float x)
{
    float twice = 2 * fabsf(x);
    float e = sy_float_expm1(twice > 20.0f ? 20.0f : twice);
    return copysignf(e / (e + 2), x);
}

/* 4 ulp. */
SY_VECTORISED float sy_float_sigmoid(float x)
{
    float e = sy_float_exp(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1 + e);
}

/* Near 0 an odd polynomial, then 1 - e^-q: both minimax on [0, 0.9] and [0.9, 4], where 1 is reached. 3 ulp. */
SY_VECTORISED float sy_float_erf(float x)
{
    float a = fabsf(x), s = x * x;
    a = a > 4.0f ? 4.0f : a;
    float near = 8.51312228e-5f;
    near = near * s - 8.17564411e-4f;
    near = near * s + 5.20385965e-3f;
    near = near * s - 2.68605087e-2f;
    near = near * s + 1.1283715e-1f;
    near = near * s - 3.7612635e-1f;
    near = near * s + 1.28379167e-1f;
    float q = 2.08285139e-5f;
    q = q * a - 4.31392402e-4f;
    q = q * a + 4.15624949e-3f;
    q = q * a - 2.50806028e-2f;
    q = q * a + 1.08220364e-1f;
    q = q * a + 6.33400869e-1f;
    q = q * a + 1.1294884f;
    q = q * a - 1.69203473e-4f;
    float far = copysignf(1 - sy_exp_below_zero(-q), x);
    return a < 0.9f ? x + x * near : far;
}

/* ---- in double, rounded once ------------------------------------------------------------------------------- */

/* log((1 + s) / (1 - s)), |s| <= 1/3: relative error 1e-10. */
SY_VECTORISED double sy_double_log_ratio(double s)
{
    double u = s * s, p = 1.0 / 19;
    p = p * u + 1.0 / 17;
    p = p * u + 1.0 / 15;
    p = p * u + 1.0 / 13;
    p = p * u + 1.0 / 11;
    p = p * u + 1.0 / 9;
    p = p * u + 1.0 / 7;
    p = p * u + 1.0 / 5;
    p = p * u + 1.0 / 3;
    return 2 * s + 2 * s * u * p;
}

/* log x for a normal x > 0 whose mantissa is in [sqrt(1/2), sqrt 2) of a power of two, which counts whole. */
SY_VECTORISED double sy_double_log(double x)
{
    const double whole = 4503599627370496.0; /* 2^52: its last bits count */
    uint64_t bits, exponent, high;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x3ff0000000000000 - 0x3fe6a09e667f3bcd; /* from sqrt(1/2) on the next power */
    high = bits >> 52 | 0x4330000000000000;
    exponent = (bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd;
    double power, m;
    memcpy(&power, &high, sizeof power);
    memcpy(&m, &exponent, sizeof m);
    return (power - whole - 1023) * 0.6931471805599453 + sy_double_log_ratio((m - 1) / (m + 1));
}

/* Exact at powers of two, where models round. 1 ulp. */
SY_VECTORISED float sy_float_log(float x)
{
    double inside = x > 0 && x < INFINITY ? (double)x : 1.0;
    float y = (float)sy_double_log(inside);
    y = x == INFINITY ? x : y;
    y = x == 0 ? -INFINITY : y;
    return x < 0 || x != x ? NAN : y;
}

/* log(1 + e), 0 <= e <= 1. */
SY_VECTORISED double sy_double_log1p(double e)
{
    return sy_double_log_ratio(e / (2 + e));
}

/* 2 ulp. */
SY_VECTORISED float sy_float_softplus(float x)
{
    float e = sy_float_exp(-fabsf(x));
    return (float)((double)(x > 0 ? x : 0) + sy_double_log1p((double)e));
}

#define SY_FLOAT_TURN_LIMIT 1e6f /* radians: up to it a turn is taken off exactly */

struct sy_turn {
    double sine, cosine; /* of the rest, |rest| <= pi / 4 */
    uint64_t quarters;   /* taken off; the last two bits count */
};

/* |x| <= SY_FLOAT_TURN_LIMIT; beyond it anything. */
SY_VECTORISED struct sy_turn sy_double_turn(double x)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    double shifted = x * 0.6366197723675814 + round, n = shifted - round;
    double r = x - n * 1.57079632673412561417; /* pi / 2 in two parts, the first of 33 bits */
    r -= n * 6.07710050650619224932e-11;
    double u = r * r, s = -1.0 / 39916800, c = -1.0 / 3628800;
    s = s * u + 1.0 / 362880;
    s = s * u - 1.0 / 5040;
    s = s * u + 1.0 / 120;
    s = s * u - 1.0 / 6;
    c = c * u + 1.0 / 40320;
    c = c * u - 1.0 / 720;
    c = c * u + 1.0 / 24;
    c = c * u - 0.5;
    struct sy_turn t = {r * (1 + s * u), 1 + c * u, 0};
    memcpy(&t.quarters, &shifted, sizeof t.quarters);
    return t;
}

/* The sine, shifted by a number of quarter turns. 1 ulp. */
SY_VECTORISED float sy_float_sine(float x, uint64_t more)
{
    struct sy_turn t = sy_double_turn((double)x);
    uint64_t quarters = t.quarters + more;
    double y = quarters & 1 ? t.cosine : t.sine;
    return (float)(quarters & 2 ? -y : y);
}

/* 1 ulp. */
SY_VECTORISED float sy_float_tan(float x)
{
    struct sy_turn t = sy_double_turn((double)x);
    bool odd = t.quarters & 1;
    double above = odd ? -t.cosine : t.sine, below = odd ? t.sine : t.cosine;
    return (float)(above / below);
}

/* 1 ulp. */
SY_VECTORISED float sy_float_atan(float x)
{
    double a = (double)fabsf(x);
    bool is_large = a > 2.414213562373095, is_middle = a > 0.41421356237309503;
    double above = is_large ? -1 : is_middle ? a - 1 : a;
    double below = is_large ? a : is_middle ? a + 1 : 1; /* infinite: nothing is added */
    double t = above / below, u = t * t, p = -1.0 / 23;
    p = p * u + 1.0 / 21;
    p = p * u - 1.0 / 19;
    p = p * u + 1.0 / 17;
    p = p * u - 1.0 / 15;
    p = p * u + 1.0 / 13;
    p = p * u - 1.0 / 11;
    p = p * u + 1.0 / 9;
    p = p * u - 1.0 / 7;
    p = p * u + 1.0 / 5;
    p = p * u - 1.0 / 3;
    double from = is_large ? 1.5707963267948966 : is_middle ? 0.7853981633974483 : 0;
    return copysignf((float)(from + (t + t * u * p)), x);
}

#endif

#include "loader/graph/small_types.h"

#include <math.h>

#include "runtime/base/assert.h"

enum { FIRST = SY_SMALL_E4M3FN, N_TYPES = SY_SMALL_INT2 - SY_SMALL_E4M3FN + 1 };

static const struct kind {
    enum sy_dtype carrier;
    int bits;
    bool is_signed;     /* of whole numbers */
    int mantissa, bias; /* of floats */
    double most;
    bool has_infinity, has_one_zero; /* one zero: the bits of -0 are its NaN */
} kinds[N_TYPES] = {
    [SY_SMALL_E4M3FN - FIRST] = {SY_DTYPE_F32, 8, .mantissa = 3, .bias = 7, .most = 448},
    [SY_SMALL_E4M3FNUZ -
        FIRST] = {SY_DTYPE_F32, 8, .mantissa = 3, .bias = 8, .most = 240, .has_one_zero = true},
    [SY_SMALL_E5M2 -
        FIRST] = {SY_DTYPE_F32, 8, .mantissa = 2, .bias = 15, .most = 57344, .has_infinity = true},
    [SY_SMALL_E5M2FNUZ -
        FIRST] = {SY_DTYPE_F32, 8, .mantissa = 2, .bias = 16, .most = 57344, .has_one_zero = true},
    [SY_SMALL_UINT4 - FIRST] = {SY_DTYPE_U8, 4},
    [SY_SMALL_INT4 - FIRST] = {SY_DTYPE_I8, 4, .is_signed = true},
    [SY_SMALL_E2M1 - FIRST] = {SY_DTYPE_F32, 4, .mantissa = 1, .bias = 1, .most = 6},
    [SY_SMALL_E8M0 - FIRST] = {SY_DTYPE_F32, 8},
    [SY_SMALL_UINT2 - FIRST] = {SY_DTYPE_U8, 2},
    [SY_SMALL_INT2 - FIRST] = {SY_DTYPE_I8, 2, .is_signed = true},
};

static const struct kind *kind_of(int64_t type)
{
    return type >= FIRST && type < FIRST + N_TYPES ? &kinds[type - FIRST] : NULL;
}

enum sy_dtype sy_small_carrier(int64_t type)
{
    const struct kind *kind = kind_of(type);
    return kind ? kind->carrier : SY_DTYPE_NONE;
}

int sy_small_bits(int64_t type)
{
    return kind_of(type)->bits;
}

/* The lowest bits of a whole number. */
static double wrapped(const struct kind *kind, int64_t number)
{
    int64_t all = (int64_t)1 << kind->bits, low = number & (all - 1);
    return (double)(kind->is_signed && low >= all / 2 ? low - all : low);
}

void sy_small_range(int64_t type, double *least, double *most)
{
    const struct kind *kind = kind_of(type);
    double all = ldexp(1, kind->bits);
    *least = kind->is_signed ? -all / 2 : 0;
    *most = kind->is_signed ? all / 2 - 1 : all - 1;
}

static double float_of(const struct kind *kind, unsigned bits)
{
    unsigned sign = bits >> (kind->bits - 1), rest = bits & ((1u << (kind->bits - 1)) - 1),
             all = (1u << (kind->bits - 1)) - 1, mantissa = rest & ((1u << kind->mantissa) - 1);
    int exponent = (int)(rest >> kind->mantissa), most = (int)(all >> kind->mantissa);
    if (kind->has_one_zero && sign && rest == 0)
        return NAN;
    if (kind->has_infinity && exponent == most)
        return mantissa ? NAN : sign ? -INFINITY : INFINITY;
    if (!kind->has_one_zero && !kind->has_infinity && kind->bits == 8 && rest == all)
        return NAN;
    double value = exponent == 0 ? ldexp(mantissa, 1 - kind->bias - kind->mantissa)
                                 : ldexp(mantissa + (1u << kind->mantissa),
                                         exponent - kind->bias - kind->mantissa);
    return sign ? -value : value;
}

double sy_small_value(int64_t type, unsigned bits)
{
    const struct kind *kind = kind_of(type);
    if (type == SY_SMALL_E8M0)
        return bits == 255 ? NAN : ldexp(1, (int)bits - 127);
    return kind->carrier == SY_DTYPE_F32 ? float_of(kind, bits) : wrapped(kind, bits);
}

/* A power of two from 2^-127 to 2^127. */
static double power_of_two(double x, bool saturate, enum sy_small_mode mode)
{
    enum { LEAST = -127, MOST = 127 };
    int exponent;
    if (isnan(x) || x < 0 || (isinf(x) && !saturate))
        return NAN;
    if (x == 0)
        return ldexp(1, LEAST);
    if (isinf(x))
        return ldexp(1, MOST);
    double part = frexp(x, &exponent) * 2; /* from 1 to below 2 */
    exponent--;
    if ((mode == SY_SMALL_UP && part > 1) || (mode == SY_SMALL_NEAREST && part >= 1.5))
        exponent++;
    if (exponent > MOST)
        return saturate ? ldexp(1, MOST) : NAN;
    return ldexp(1, SY_MAX(exponent, LEAST));
}

static double rounded_float(const struct kind *kind, double x, bool saturate)
{
    int exponent;
    if (isnan(x))
        return kind->bits == 8 ? x : -0.0; /* as the reference for a type without NaN */
    saturate |= kind->bits < 8;            /* which has neither infinity nor NaN */
    double most = copysign(kind->most, x);
    double beyond = saturate ? most : kind->has_infinity ? copysign(INFINITY, x) : NAN;
    if (isinf(x))
        return beyond;
    frexp(x, &exponent);
    double step = ldexp(1, SY_MAX(exponent - 1, 1 - kind->bias) - kind->mantissa);
    double y = rint(x / step) * step;
    if (fabs(y) > kind->most)
        return beyond;
    return y == 0 && kind->has_one_zero ? 0 : y;
}

double sy_small_round(int64_t type, double x, bool saturate, enum sy_small_mode mode)
{
    const struct kind *kind = kind_of(type);
    if (type == SY_SMALL_E8M0)
        return power_of_two(x, saturate, mode);
    if (kind->carrier == SY_DTYPE_F32)
        return rounded_float(kind, x, saturate);
    return fabs(x) < ldexp(1, 62) ? wrapped(kind, (int64_t)x) : 0;
}

/* What elementwise operators compute, and their derivatives: one text for the host's loops and the CUDA kernels of training. In float32. */
#ifndef SY_WORKERS_ENGINE_TRAIN_FORMULAS_H
#define SY_WORKERS_ENGINE_TRAIN_FORMULAS_H

#include <math.h>
#include <stdbool.h>

#include "loader/graph/graph.h"
#include "workers/engine/curve_formulas.h"
#include "workers/engine/formula.h"

/* ---- one input: sy_curve_of, sy_curve_slope ------------------------------------------------------- */

#define SY_ROOT_2_PI 0.797884560802865f

SY_FORMULA float sy_formula_gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

SY_FORMULA float sy_formula_gelu_slope(float x)
{
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
}

SY_FORMULA float sy_formula_softplus(float x)
{
    return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

SY_FORMULA float sy_formula_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

SY_FORMULA float sy_formula_clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x; /* NaN stays NaN */
}

SY_FORMULA float sy_curve_of(const struct sy_curve *c, float x)
{
    switch (c->op) {
    case SY_OP_RELU:
        return x > 0.0f ? x : 0.0f;
    case SY_OP_LEAKY_RELU:
        return x > 0.0f ? x : c->a * x;
    case SY_OP_THRESHOLDED_RELU:
        return x > c->a ? x : 0.0f;
    case SY_OP_ELU:
        return x > 0.0f ? x : c->a * expm1f(x);
    case SY_OP_CELU:
        return x > 0.0f ? x : c->a * expm1f(x / c->a);
    case SY_OP_SELU:
        return c->b * (x > 0.0f ? x : c->a * expm1f(x));
    case SY_OP_SIGMOID:
        return sy_formula_sigmoid(x);
    case SY_OP_TANH:
        return tanhf(x);
    case SY_OP_GELU:
        return c->is_tanh_gelu
                   ? 0.5f * x * (1.0f + tanhf(SY_ROOT_2_PI * (x + 0.044715f * x * x * x)))
                   : sy_formula_gelu(x);
    case SY_OP_HARD_SWISH:
        return x * sy_formula_clamp(x / 6.0f + 0.5f, 0.0f, 1.0f);
    case SY_OP_HARD_SIGMOID:
        return sy_formula_clamp(c->a * x + c->b, 0.0f, 1.0f);
    case SY_OP_SOFTPLUS:
        return sy_formula_softplus(x);
    case SY_OP_SOFTSIGN:
        return x / (1.0f + fabsf(x));
    case SY_OP_MISH:
        return x * tanhf(sy_formula_softplus(x));
    case SY_OP_SHRINK:
        return x < -c->a ? x + c->b : x > c->a ? x - c->b : 0.0f;
    case SY_OP_CLIP:
        return sy_formula_clamp(x, c->a, c->b);
    case SY_OP_ERF:
        return erff(x);
    case SY_OP_EXP:
        return expf(x);
    case SY_OP_LOG:
        return logf(x);
    case SY_OP_SQRT:
        return sqrtf(x);
    case SY_OP_NEG:
        return -x;
    case SY_OP_ABS:
        return fabsf(x);
    case SY_OP_RECIPROCAL:
        return 1.0f / x;
    case SY_OP_SIN:
        return sinf(x);
    case SY_OP_COS:
        return cosf(x);
    case SY_OP_TAN:
        return tanf(x);
    case SY_OP_ATAN:
        return atanf(x);
    case SY_OP_ASIN:
        return asinf(x);
    case SY_OP_ACOS:
        return acosf(x);
    case SY_OP_SINH:
        return sinhf(x);
    case SY_OP_COSH:
        return coshf(x);
    case SY_OP_ASINH:
        return asinhf(x);
    case SY_OP_ACOSH:
        return acoshf(x);
    case SY_OP_ATANH:
        return atanhf(x);
    default:
        return x;
    }
}

SY_FORMULA float sy_formula_tanh_gelu_slope(float x)
{
    float t = tanhf(SY_ROOT_2_PI * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * SY_ROOT_2_PI * (1.0f + 3.0f * 0.044715f * x * x);
}

SY_FORMULA float sy_formula_mish_slope(float x)
{
    float t = tanhf(sy_formula_softplus(x));
    return t + x * (1.0f - t * t) * sy_formula_sigmoid(x);
}

/* At x, with result y. */
SY_FORMULA float sy_curve_slope(const struct sy_curve *c, float x, float y)
{
    switch (c->op) {
    case SY_OP_RELU:
        return x > 0.0f ? 1.0f : 0.0f;
    case SY_OP_LEAKY_RELU:
        return x > 0.0f ? 1.0f : c->a;
    case SY_OP_THRESHOLDED_RELU:
        return x > c->a ? 1.0f : 0.0f;
    case SY_OP_ELU:
        return x > 0.0f ? 1.0f : y + c->a;
    case SY_OP_CELU:
        return x > 0.0f ? 1.0f : expf(x / c->a);
    case SY_OP_SELU:
        return x > 0.0f ? c->b : y + c->a * c->b;
    case SY_OP_SIGMOID:
        return y * (1.0f - y);
    case SY_OP_TANH:
        return 1.0f - y * y;
    case SY_OP_GELU:
        return c->is_tanh_gelu ? sy_formula_tanh_gelu_slope(x) : sy_formula_gelu_slope(x);
    case SY_OP_HARD_SWISH:
        return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x / 3.0f + 0.5f;
    case SY_OP_HARD_SIGMOID:
        return y > 0.0f && y < 1.0f ? c->a : 0.0f;
    case SY_OP_SOFTPLUS:
        return sy_formula_sigmoid(x);
    case SY_OP_SOFTSIGN:
        return 1.0f / ((1.0f + fabsf(x)) * (1.0f + fabsf(x)));
    case SY_OP_MISH:
        return sy_formula_mish_slope(x);
    case SY_OP_SHRINK:
        return x < -c->a || x > c->a ? 1.0f : 0.0f;
    case SY_OP_CLIP:
        return x >= c->a && x <= c->b ? 1.0f : 0.0f;
    case SY_OP_ERF:
        return 1.12837917f * expf(-x * x);
    case SY_OP_EXP:
        return y;
    case SY_OP_LOG:
        return 1.0f / x;
    case SY_OP_SQRT:
        return 0.5f / y;
    case SY_OP_NEG:
        return -1.0f;
    case SY_OP_ABS:
        return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
    case SY_OP_RECIPROCAL:
        return -y * y;
    case SY_OP_SIN:
        return cosf(x);
    case SY_OP_COS:
        return -sinf(x);
    case SY_OP_TAN:
        return 1.0f + y * y;
    case SY_OP_ATAN:
        return 1.0f / (1.0f + x * x);
    case SY_OP_ASIN:
        return 1.0f / sqrtf(1.0f - x * x);
    case SY_OP_ACOS:
        return -1.0f / sqrtf(1.0f - x * x);
    case SY_OP_SINH:
        return coshf(x);
    case SY_OP_COSH:
        return sinhf(x);
    case SY_OP_ASINH:
        return 1.0f / sqrtf(1.0f + x * x);
    case SY_OP_ACOSH:
        return 1.0f / sqrtf(x * x - 1.0f);
    case SY_OP_ATANH:
        return 1.0f / (1.0f - x * x);
    default:
        return 1.0f;
    }
}

/* ---- two inputs: sy_pair_of, sy_pair_slope -------------------------------------------------------- */

SY_FORMULA float sy_pair_of(enum sy_op op, float a, float b)
{
    switch (op) {
    case SY_OP_ADD:
        return a + b;
    case SY_OP_SUB:
        return a - b;
    case SY_OP_MUL:
        return a * b;
    case SY_OP_DIV:
        return a / b;
    case SY_OP_POW:
        return powf(a, b);
    case SY_OP_MIN:
        return a != a || a < b ? a : b; /* NaN goes on */
    case SY_OP_MAX:
        return a != a || a > b ? a : b;
    default: /* PRelu: 0 stays, whatever the slope is */
        return a < 0.0f ? a * b : a;
    }
}

SY_FORMULA float sy_formula_power_slope(float a, float b, int which)
{
    if (which == 0)
        return b == 2.0f ? 2.0f * a : b == 0.0f ? 0.0f : b * powf(a, b - 1.0f);
    return a > 0.0f ? powf(a, b) * logf(a) : 0.0f;
}

/* Two that are equal share the gradient of Min and Max. */
SY_FORMULA float sy_formula_extreme_slope(float mine, float other)
{
    return mine > other ? 1.0f : mine == other ? 0.5f : 0.0f;
}

SY_FORMULA float sy_pair_slope(enum sy_op op, int which, float a, float b)
{
    switch (op) {
    case SY_OP_ADD:
        return 1.0f;
    case SY_OP_SUB:
        return which ? -1.0f : 1.0f;
    case SY_OP_MUL:
        return which ? a : b;
    case SY_OP_DIV:
        return which ? -a / (b * b) : 1.0f / b;
    case SY_OP_POW:
        return sy_formula_power_slope(a, b, which);
    case SY_OP_MAX:
        return which ? sy_formula_extreme_slope(b, a) : sy_formula_extreme_slope(a, b);
    case SY_OP_MIN:
        return which ? sy_formula_extreme_slope(a, b) : sy_formula_extreme_slope(b, a);
    default:
        return which ? (a > 0.0f ? 0.0f : a) : (a > 0.0f ? 1.0f : b);
    }
}

#endif

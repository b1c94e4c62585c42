/* What operators of one input compute of an element: floats in double, integers wrapping around. */
#ifndef SY_WORKERS_ENGINE_CURVE_FORMULAS_H
#define SY_WORKERS_ENGINE_CURVE_FORMULAS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/formula.h"

struct sy_curve {
    enum sy_op op;
    float a, b; /* what the attributes say */
    bool is_tanh_gelu;
};

#ifdef __cplusplus
extern "C" {
#endif
void sy_curve_read(const struct sy_node *node, struct sy_curve *out);
#ifdef __cplusplus
}
#endif

SY_FORMULA double sy_curve_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

SY_FORMULA double sy_curve_unit(double x)
{
    return x < 0 ? 0.0 : x > 1 ? 1.0 : x;
}

/* Those with parameters. */
SY_FORMULA double sy_curve_bent(const struct sy_curve *c, double x)
{
    double a = (double)c->a, b = (double)c->b;
    switch (c->op) {
    case SY_OP_LEAKY_RELU:
        return x < 0 ? x * a : x;
    case SY_OP_ELU:
        return x < 0 ? a * expm1(x) : x;
    case SY_OP_CELU:
        return x > 0 ? x : a * expm1(x / a);
    case SY_OP_SELU:
        return b * (x > 0 ? x : a * expm1(x));
    case SY_OP_THRESHOLDED_RELU:
        return x > a ? x : 0.0;
    case SY_OP_HARD_SIGMOID:
        return sy_curve_unit(a * x + b);
    case SY_OP_SHRINK:
        return x < -a ? x + b : x > a ? x - b : 0.0;
    case SY_OP_GELU:
        return c->is_tanh_gelu
                   ? 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
                   : 0.5 * x * (1 + erf(x * 0.7071067811865476));
    default: /* Clip; the upper bound wins */
        x = x < a ? a : x;
        return x > b ? b : x;
    }
}

SY_FORMULA double sy_curve_at(const struct sy_curve *c, double x)
{
    switch (c->op) {
    case SY_OP_RELU:
        return x < 0 ? 0.0 : x;
    case SY_OP_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_OP_TANH:
        return tanh(x);
    case SY_OP_ERF:
        return erf(x);
    case SY_OP_HARD_SWISH:
        return x * sy_curve_unit(x / 6 + 0.5);
    case SY_OP_EXP:
        return exp(x);
    case SY_OP_LOG:
        return log(x);
    case SY_OP_SQRT:
        return sqrt(x);
    case SY_OP_NEG:
        return -x;
    case SY_OP_ABS:
        return fabs(x);
    case SY_OP_RECIPROCAL:
        return 1 / x;
    case SY_OP_ACOS:
        return acos(x);
    case SY_OP_ACOSH:
        return acosh(x);
    case SY_OP_ASIN:
        return asin(x);
    case SY_OP_ASINH:
        return asinh(x);
    case SY_OP_ATAN:
        return atan(x);
    case SY_OP_ATANH:
        return atanh(x);
    case SY_OP_CEIL:
        return ceil(x);
    case SY_OP_FLOOR:
        return floor(x);
    case SY_OP_ROUND:
        return nearbyint(x);
    case SY_OP_COS:
        return cos(x);
    case SY_OP_COSH:
        return cosh(x);
    case SY_OP_SIN:
        return sin(x);
    case SY_OP_SINH:
        return sinh(x);
    case SY_OP_TAN:
        return tan(x);
    case SY_OP_SIGN:
        return x > 0 ? 1.0 : x < 0 ? -1.0 : x;
    case SY_OP_SOFTPLUS:
        return sy_curve_softplus(x);
    case SY_OP_SOFTSIGN:
        return x / (1 + fabs(x));
    case SY_OP_MISH:
        return x * tanh(sy_curve_softplus(x));
    default:
        return sy_curve_bent(c, x);
    }
}

SY_FORMULA int64_t sy_curve_of_integer(enum sy_op op, int64_t x)
{
    switch (op) {
    case SY_OP_NEG:
        return (int64_t)(0 - (uint64_t)x);
    case SY_OP_ABS:
        return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    case SY_OP_RELU:
        return x < 0 ? 0 : x;
    case SY_OP_SIGN:
        return (x > 0) - (x < 0);
    case SY_OP_BITWISE_NOT:
        return ~x;
    default:
        return !x;
    }
}

#endif

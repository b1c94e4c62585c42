/* Elements by elements: curves, pairs with numpy's repetition, choices, casts. */
#include "workers/cuda/each_arrays.cuh"
#include "workers/pair_formulas.h"

SY_KERNEL_FILE(each)

/* ---- one input ---------------------------------------------------------------------------------------- */

__device__ static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

__device__ static double unit(double x)
{
    return x < 0 ? 0.0 : x > 1 ? 1.0 : x;
}

/* Curves with parameters a and b. */
__device__ static double bend(enum sy_op op, double x, double a, double b, bool tanh_form)
{
    switch (op) {
    case SY_OP_LEAKY_RELU:
        return x < 0 ? x * a : x;
    case SY_OP_ELU:
        return x < 0 ? a * expm1(x) : x;
    case SY_OP_CELU:
        return fmax(0.0, x) + fmin(0.0, a * expm1(x / a));
    case SY_OP_SELU:
        return b * (x > 0 ? x : a * expm1(x));
    case SY_OP_THRESHOLDED_RELU:
        return x > a ? x : 0.0;
    case SY_OP_HARD_SIGMOID:
        return unit(a * x + b);
    case SY_OP_SHRINK:
        return fabs(x) <= a ? 0.0 : x - copysign(b, x);
    case SY_OP_GELU:
        return tanh_form
                   ? 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
                   : 0.5 * x * (1 + erf(x * 0.7071067811865476));
    default: /* Clip */
        return fmin(fmax(x, a), b);
    }
}

__device__ static double curve(const each &c, double x)
{
    switch (c.e.op) {
    case SY_OP_RELU:
        return x < 0 ? 0.0 : x;
    case SY_OP_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_OP_TANH:
        return tanh(x);
    case SY_OP_ERF:
        return erf(x);
    case SY_OP_HARD_SWISH:
        return x * unit(x / 6 + 0.5);
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
        return softplus(x);
    case SY_OP_SOFTSIGN:
        return x / (1 + fabs(x));
    case SY_OP_MISH:
        return x * tanh(softplus(x));
    default:
        return bend(c.e.op, x, c.e.floats[0], c.e.floats[1], c.number(EACH_IS_TANH_FORM) != 0);
    }
}

__device__ static int64_t whole(enum sy_op op, int64_t x)
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
    case SY_OP_CAST:
        return x;
    default:
        return !x;
    }
}

struct one {
    __device__ static void of(const each &c, int64_t i)
    {
        enum sy_op op = c.e.op;
        bool floats = c.is_float(0);
        if (op == SY_OP_IS_NAN || op == SY_OP_IS_INF) {
            double x = c.get(0, i);
            bool counts = c.number(x > 0 ? EACH_POSITIVE : EACH_NEGATIVE) != 0;
            c.put_int(EACH_OUT, i,
                      op == SY_OP_IS_NAN ? x != x : x == x && x - x != 0 && counts);
        } else if (op == SY_OP_CAST && (floats || c.is_float(EACH_OUT))) {
            c.put(EACH_OUT, i, c.get(0, i));
        } else if (floats || op == SY_OP_SHRINK) {
            c.put(EACH_OUT, i, curve(c, c.get(0, i)));
        } else {
            c.put_int(EACH_OUT, i, whole(op, c.get_int(0, i)));
        }
    }
};

/* ---- two inputs and more ------------------------------------------------------------------------------ */

/* From the left, rounded as the result is after each. */
struct pair {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_pair_rules rules = {c.e.op, c.number(EACH_C_RULE) != 0, c.number(EACH_IS_LEFT) != 0};
        bool floats = c.is_float(0);
        for (int k = 1; k < c.e.n_in; k++)
            floats = floats || c.is_float(k);
        if (floats) {
            double value = c.get(0, c.seen(0, i));
            for (int k = 1; k < c.e.n_in; k++)
                value = c.rounded(EACH_OUT, sy_pair_of_floats(&rules, value, c.get(k, c.seen(k, i))));
            c.put(EACH_OUT, i, c.e.op == SY_OP_MEAN ? value / c.e.n_in : value);
        } else {
            int64_t value = c.get_int(0, c.seen(0, i));
            for (int k = 1; k < c.e.n_in; k++)
                value = sy_pair_of_integers(&rules, value, c.get_int(k, c.seen(k, i)));
            c.put_int(EACH_OUT, i, value);
        }
    }
};

struct where {
    __device__ static void of(const each &c, int64_t i)
    {
        int pick = c.get_int(0, c.seen(0, i)) ? 1 : 2;
        c.copy(EACH_OUT, i, pick, c.seen(pick, i));
    }
};

/* Bounds as inputs 1 and 2, each of which may be left out. */
struct bound {
    __device__ static void of(const each &c, int64_t i)
    {
        if (c.is_float(0)) {
            double v = c.get(0, i);
            v = c.has(1) && v < c.get(1, 0) ? c.get(1, 0) : v;
            c.put(EACH_OUT, i, c.has(2) && v > c.get(2, 0) ? c.get(2, 0) : v);
        } else {
            int64_t v = c.get_int(0, i);
            v = c.has(1) && v < c.get_int(1, 0) ? c.get_int(1, 0) : v;
            c.put_int(EACH_OUT, i, c.has(2) && v > c.get_int(2, 0) ? c.get_int(2, 0) : v);
        }
    }
};

int sy_kernel_each(struct CUstream_st *stream, const struct sy_math_each *e, void *const *at,
                   struct sy_math_fault *fault)
{
    if (e->items == 0)
        return 0;
    switch (e->kind) {
    case SY_EACH_ONE:
        return each_launch<one>(stream, e, at, fault);
    case SY_EACH_PAIR:
        return each_launch<pair>(stream, e, at, fault);
    case SY_EACH_WHERE:
        return each_launch<where>(stream, e, at, fault);
    case SY_EACH_BOUND:
        return each_launch<bound>(stream, e, at, fault);
    default:
        break;
    }
    int error = sy_kernel_each_index(stream, e, at, fault);
    if (error < 0)
        error = sy_kernel_each_lines(stream, e, at, fault);
    return error < 0 ? sy_kernel_each_windows(stream, e, at, fault) : error;
}

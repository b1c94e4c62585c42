/* One input, element by element. */
#include <float.h>

#include "runtime/base/status.h"
#include "workers/host/kernel.h"

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double clamp_unit(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double gelu(const struct sy_node *node, double x)
{
    const struct sy_attr *form = sy_node_attr(node, "approximate");
    if (form && form->s && strcmp(form->s, "tanh") == 0)
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * 0.7071067811865476));
}

/* Curves with parameters. */
static double bend(const struct sy_node *node, double x)
{
    double alpha;
    switch (node->op) {
    case SY_OP_LEAKY_RELU:
        return x < 0 ? x * (double)sy_node_float(node, "alpha", 0.01f) : x;
    case SY_OP_ELU:
        return x < 0 ? (double)sy_node_float(node, "alpha", 1) * expm1(x) : x;
    case SY_OP_CELU:
        alpha = (double)sy_node_float(node, "alpha", 1);
        return fmax(0, x) + fmin(0, alpha * expm1(x / alpha));
    case SY_OP_SELU:
        return (double)sy_node_float(node, "gamma", 1.05070102214813232421875f) *
               (x > 0
                    ? x
                    : (double)sy_node_float(node, "alpha", 1.67326319217681884765625f) * expm1(x));
    case SY_OP_THRESHOLDED_RELU:
        return x > (double)sy_node_float(node, "alpha", 1) ? x : 0;
    case SY_OP_HARD_SIGMOID:
        return clamp_unit((double)sy_node_float(node, "alpha", 0.2f) * x +
                          (double)sy_node_float(node, "beta", 0.5f));
    case SY_OP_SHRINK:
        alpha = (double)sy_node_float(node, "lambd", 0.5f);
        if (fabs(x) <= alpha)
            return 0;
        return x - copysign((double)sy_node_float(node, "bias", 0), x);
    case SY_OP_GELU:
        return gelu(node, x);
    case SY_OP_CLIP:
        return fmin(fmax(x, (double)sy_node_float(node, "min", -FLT_MAX)),
                    (double)sy_node_float(node, "max", FLT_MAX));
    default:
        return x;
    }
}

typedef double curve(double x);

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double relu(double x)
{
    return x < 0 ? 0 : x;
}

static double hard_swish(double x)
{
    return x * clamp_unit(x / 6 + 0.5);
}

static double negate(double x)
{
    return -x;
}

static double reciprocal(double x)
{
    return 1 / x;
}

static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}

static double softsign(double x)
{
    return x / (1 + fabs(x));
}

static double mish(double x)
{
    return x * tanh(softplus(x));
}

/* Curves without parameters. */
static const struct {
    enum sy_op op;
    curve *at;
} curves[] = {{SY_OP_RELU, relu},
              {SY_OP_SIGMOID, sigmoid},
              {SY_OP_TANH, tanh},
              {SY_OP_ERF, erf},
              {SY_OP_HARD_SWISH, hard_swish},
              {SY_OP_EXP, exp},
              {SY_OP_LOG, log},
              {SY_OP_SQRT, sqrt},
              {SY_OP_NEG, negate},
              {SY_OP_ABS, fabs},
              {SY_OP_RECIPROCAL, reciprocal},
              {SY_OP_ACOS, acos},
              {SY_OP_ACOSH, acosh},
              {SY_OP_ASIN, asin},
              {SY_OP_ASINH, asinh},
              {SY_OP_ATAN, atan},
              {SY_OP_ATANH, atanh},
              {SY_OP_CEIL, ceil},
              {SY_OP_FLOOR, floor},
              {SY_OP_ROUND, nearbyint},
              {SY_OP_COS, cos},
              {SY_OP_COSH, cosh},
              {SY_OP_SIN, sin},
              {SY_OP_SINH, sinh},
              {SY_OP_TAN, tan},
              {SY_OP_SIGN, sign},
              {SY_OP_SOFTPLUS, softplus},
              {SY_OP_SOFTSIGN, softsign},
              {SY_OP_MISH, mish}};

static int run_floats(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    curve *at = NULL;
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (curves[i].op == call->node->op)
            at = curves[i].at;
    for (int64_t i = 0; i < x->n; i++)
        sy_put(y, i, at ? at(sy_get(x, i)) : bend(call->node, sy_get(x, i)));
    return SY_OK;
}

static int64_t integer(enum sy_op op, int64_t x)
{
    switch (op) {
    case SY_OP_NEG:
        return (int64_t) - (uint64_t)x;
    case SY_OP_ABS:
        return x < 0 ? (int64_t) - (uint64_t)x : x;
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

static int run_number(const struct sy_call *call)
{
    if (sy_is_float(call->in[0].dtype))
        return run_floats(call);
    for (int64_t i = 0; i < call->in[0].n; i++)
        sy_put_int(&call->out[0], i, integer(call->node->op, sy_get_int(&call->in[0], i)));
    return SY_OK;
}

/* Shrink of integers: through double, exact up to 2^53. */
static int run_is(const struct sy_call *call)
{
    bool nan = call->node->op == SY_OP_IS_NAN;
    bool positive = sy_node_int(call->node, "detect_positive", 1) != 0,
         negative = sy_node_int(call->node, "detect_negative", 1) != 0;
    for (int64_t i = 0; i < call->in[0].n; i++) {
        double x = sy_get(&call->in[0], i);
        sy_put_int(&call->out[0], i, nan ? isnan(x) : isinf(x) && (x > 0 ? positive : negative));
    }
    return SY_OK;
}

/* Bounds as inputs 1 and 2, of any type. */
static int run_clip(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *low = sy_call_in(call, 1),
                          *high = sy_call_in(call, 2);
    for (int64_t i = 0; i < x->n; i++) {
        if (sy_is_float(x->dtype)) {
            double v = sy_get(x, i);
            v = low && v < sy_get(low, 0) ? sy_get(low, 0) : v;
            sy_put(&call->out[0], i, high && v > sy_get(high, 0) ? sy_get(high, 0) : v);
            continue;
        }
        int64_t v = sy_get_int(x, i);
        v = low && v < sy_get_int(low, 0) ? sy_get_int(low, 0) : v;
        sy_put_int(&call->out[0], i, high && v > sy_get_int(high, 0) ? sy_get_int(high, 0) : v);
    }
    return SY_OK;
}

static int check_clip(const struct sy_call *call)
{
    for (int i = 1; i < call->n_in; i++)
        if (sy_call_in(call, i) && call->in[i].n != 1)
            return sy_kernel_refuse(call, "bounds of several elements");
    return sy_array_same_dims(&call->in[0], &call->out[0])
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another shape");
}

static int check_same(const struct sy_call *call)
{
    bool same = sy_array_same_dims(&call->in[0], &call->out[0]);
    return same ? SY_OK : sy_kernel_refuse(call, "a result of another shape");
}

/* Cast between any two types; integers do not pass through double. Floats become true unless 0. */
static int run_cast(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    for (int64_t i = 0; i < x->n; i++) {
        if (sy_is_float(x->dtype) || sy_is_float(y->dtype))
            sy_put(y, i, sy_get(x, i));
        else
            sy_put_int(y, i, sy_get_int(x, i));
    }
    return SY_OK;
}

/* The mask of Dropout at inference: nothing is dropped. */
static int run_dropout(const struct sy_call *call)
{
    const struct sy_array *mask = sy_call_out(call, 1);
    memcpy(call->out[0].data, call->in[0].data,
           (size_t)call->in[0].n * sy_dtype_bytes(call->in[0].dtype));
    for (int64_t i = 0; mask && i < mask->n; i++)
        sy_put(mask, i, 1);
    return SY_OK;
}

#define FLOATS(op)                                       \
    {                                                    \
        op, run_floats, {SY_ANY_FLOAT}, check_same, NULL \
    }
#define NUMBERS(op)                                       \
    {                                                     \
        op, run_number, {SY_ANY_NUMBER}, check_same, NULL \
    }
const struct sy_kernel sy_kernels_unary[] = {
    FLOATS(SY_OP_LEAKY_RELU),
    FLOATS(SY_OP_SIGMOID),
    FLOATS(SY_OP_TANH),
    FLOATS(SY_OP_ERF),
    FLOATS(SY_OP_CLIP),
    FLOATS(SY_OP_HARD_SIGMOID),
    FLOATS(SY_OP_HARD_SWISH),
    FLOATS(SY_OP_ELU),
    FLOATS(SY_OP_EXP),
    FLOATS(SY_OP_LOG),
    FLOATS(SY_OP_SQRT),
    FLOATS(SY_OP_RECIPROCAL),
    FLOATS(SY_OP_GELU),
    FLOATS(SY_OP_ACOS),
    FLOATS(SY_OP_ACOSH),
    FLOATS(SY_OP_ASIN),
    FLOATS(SY_OP_ASINH),
    FLOATS(SY_OP_ATAN),
    FLOATS(SY_OP_ATANH),
    FLOATS(SY_OP_CEIL),
    FLOATS(SY_OP_FLOOR),
    FLOATS(SY_OP_ROUND),
    FLOATS(SY_OP_COS),
    FLOATS(SY_OP_COSH),
    FLOATS(SY_OP_SIN),
    FLOATS(SY_OP_SINH),
    FLOATS(SY_OP_TAN),
    FLOATS(SY_OP_SOFTPLUS),
    FLOATS(SY_OP_SOFTSIGN),
    FLOATS(SY_OP_SELU),
    FLOATS(SY_OP_CELU),
    FLOATS(SY_OP_THRESHOLDED_RELU),
    FLOATS(SY_OP_MISH),
    NUMBERS(SY_OP_RELU),
    NUMBERS(SY_OP_NEG),
    NUMBERS(SY_OP_ABS),
    NUMBERS(SY_OP_SIGN),
    {SY_OP_SHRINK, run_floats, {SY_ANY_NUMBER}, check_same, NULL},
    {SY_OP_NOT, run_number, {SY_BIT(BOOL)}, check_same, NULL},
    {SY_OP_BITWISE_NOT, run_number, {SY_ANY_INT}, check_same, NULL},
    {SY_OP_IS_NAN, run_is, {SY_ANY_FLOAT}, check_same, NULL},
    {SY_OP_IS_INF, run_is, {SY_ANY_FLOAT}, check_same, NULL},
    {SY_OP_RUN_CLIP, run_clip, {SY_ANY_NUMBER, SY_AS_FIRST}, check_clip, NULL},
    {SY_OP_CAST, run_cast, {SY_ANY_TYPE}, check_same, NULL},
    {SY_OP_DROPOUT, run_dropout, {SY_ANY_TYPE}, check_same, NULL},
    {0}};

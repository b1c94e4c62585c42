#include "workers/host/rows/curve_rows.h"

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"
#include "workers/host/base/float_curves.h"
#include "workers/host/rows/curve_rows_16.h"

#define BLOCK         4096  /* elements that a thread takes at once */
#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

typedef void curve_fn(const struct sy_curve *c, int64_t n, const float *in, float *out);

/* simd: each element only depends on itself, also where `out` is `in`. */
#define CURVE(name, expression)                                                                  \
    SY_CLONES static void name(const struct sy_curve *c, int64_t n, const float *in, float *out) \
    {                                                                                            \
        const float a = c->a, b = c->b;                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                      \
        {                                                                                        \
            float x = in[i];                                                                     \
            out[i] = (expression);                                                               \
        }                                                                                        \
        (void)a;                                                                                 \
        (void)b;                                                                                 \
    }

/* NaN goes on. */
SY_VECTORISED float between(float low, float high, float x)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* tanh(log(1 + e)) = (e e + 2 e) / (e e + 2 e + 2): past 20 it is 1. */
SY_VECTORISED float mish(float x)
{
    float e = sy_float_exp(x > 20.0f ? 20.0f : x), u = e * (e + 2.0f);
    return x * (u / (u + 2.0f));
}

SY_VECTORISED float tanh_gelu(float x)
{
    return 0.5f * x * (1 + sy_float_tanh(0.797884561f * (x + 0.044715f * x * x * x)));
}

CURVE(relu, x < 0 ? 0.0f : x)
CURVE(leaky_relu, x < 0 ? x * a : x)
CURVE(thresholded_relu, x > a ? x : 0.0f)
CURVE(clip, between(a, b, x))
CURVE(hard_sigmoid, between(0, 1, a *x + b))
CURVE(hard_swish, x *between(0, 1, x *(1.0f / 6) + 0.5f))
CURVE(shrink, x<-a ? x + b : x> a ? x - b : 0.0f)
CURVE(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
CURVE(softsign, x / (1 + fabsf(x)))
CURVE(negative, -x)
CURVE(size, fabsf(x))
CURVE(root, sqrtf(x))
CURVE(reciprocal, 1 / x)
CURVE(down, floorf(x))
CURVE(up, ceilf(x))
CURVE(nearest, rintf(x))
CURVE(power, sy_float_exp(x))
CURVE(logarithm, sy_float_log(x))
CURVE(sigmoid, sy_float_sigmoid(x))
CURVE(swish, x *sy_float_sigmoid(a *x))
CURVE(hyperbolic, sy_float_tanh(x))
CURVE(errors, sy_float_erf(x))
CURVE(gelu, 0.5f * x * (1 + sy_float_erf(x * 0.707106781f)))
CURVE(gelu_of_tanh, tanh_gelu(x))
CURVE(elu, x < 0 ? a * sy_float_expm1(x) : x)
CURVE(selu, b *(x >= 0 ? x : a * sy_float_expm1(x)))
CURVE(celu, x >= 0 ? x : a * sy_float_expm1(x / a))
CURVE(softplus, sy_float_softplus(x))
CURVE(mishes, mish(x))

CURVE(arc, sy_float_atan(x))
CURVE(near_sine, sy_float_sine(x, 0))
CURVE(near_cosine, sy_float_sine(x, 1))
CURVE(near_tangent, sy_float_tan(x))

SY_CLONES static bool has_far_turn(int64_t n, const float *in)
{
    float most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = fabsf(in[i]) > most ? fabsf(in[i]) : most;
    return most > SY_FLOAT_TURN_LIMIT;
}

/* The library's where a turn cannot be taken off in double, infinity too. */
static void turned(curve_fn *near, float (*far)(float), int64_t n, const float *in, float *out)
{
    const struct sy_curve none = {.a = 0};
    if (!has_far_turn(n, in)) {
        near(&none, n, in, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (fabsf(in[i]) > SY_FLOAT_TURN_LIMIT)
            out[i] = far(in[i]);
        else
            near(&none, 1, in + i, out + i);
}

static void sine(const struct sy_curve *c, int64_t n, const float *in, float *out)
{
    (void)c;
    turned(near_sine, sinf, n, in, out);
}

static void cosine(const struct sy_curve *c, int64_t n, const float *in, float *out)
{
    (void)c;
    turned(near_cosine, cosf, n, in, out);
}

static void tangent(const struct sy_curve *c, int64_t n, const float *in, float *out)
{
    (void)c;
    turned(near_tangent, tanf, n, in, out);
}

static const struct {
    enum sy_op op;
    curve_fn *run;
} curves[] = {
    {SY_OP_RELU, relu},
    {SY_OP_LEAKY_RELU, leaky_relu},
    {SY_OP_THRESHOLDED_RELU, thresholded_relu},
    {SY_OP_CLIP, clip},
    {SY_OP_HARD_SIGMOID, hard_sigmoid},
    {SY_OP_HARD_SWISH, hard_swish},
    {SY_OP_SHRINK, shrink},
    {SY_OP_SIGN, sign},
    {SY_OP_SOFTSIGN, softsign},
    {SY_OP_NEG, negative},
    {SY_OP_ABS, size},
    {SY_OP_SQRT, root},
    {SY_OP_RECIPROCAL, reciprocal},
    {SY_OP_FLOOR, down},
    {SY_OP_CEIL, up},
    {SY_OP_ROUND, nearest},
    {SY_OP_EXP, power},
    {SY_OP_LOG, logarithm},
    {SY_OP_SIGMOID, sigmoid},
    {SY_OP_SWISH, swish},
    {SY_OP_TANH, hyperbolic},
    {SY_OP_ERF, errors},
    {SY_OP_GELU, gelu},
    {SY_OP_ELU, elu},
    {SY_OP_SELU, selu},
    {SY_OP_CELU, celu},
    {SY_OP_SOFTPLUS, softplus},
    {SY_OP_MISH, mishes},
    {SY_OP_ATAN, arc},
    {SY_OP_SIN, sine},
    {SY_OP_COS, cosine},
    {SY_OP_TAN, tangent},
};

static curve_fn *curve_of(const struct sy_curve *c)
{
    if ((c->op == SY_OP_SIGMOID || c->op == SY_OP_SWISH) && __builtin_cpu_supports("avx512f"))
        return c->op == SY_OP_SWISH ? sy_curve_swish_16 : sy_curve_sigmoid_16;
    if (c->op == SY_OP_GELU && c->is_tanh_gelu)
        return gelu_of_tanh;
    if (c->op == SY_OP_CELU && !(c->a > 0)) /* the exponent could be above 0 */
        return NULL;
    for (size_t i = 0; i < SY_ARRAY_LEN(curves); i++)
        if (curves[i].op == c->op)
            return curves[i].run;
    return NULL;
}

bool sy_curve_rows_has(const struct sy_curve *c)
{
    return curve_of(c) != NULL;
}

void sy_curve_rows(const struct sy_curve *c, int64_t n, const float *in, float *out)
{
    curve_fn *run = curve_of(c);
#pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += BLOCK)
        run(c, SY_MIN(n - i, BLOCK), in + i, out + i);
}

void sy_curve_rows_here(const struct sy_curve *c, int64_t n, const float *in, float *out)
{
    curve_of(c)(c, n, in, out);
}

SY_CLONES void sy_curve_is_nan(int64_t n, const float *restrict in, uint8_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = in[i] != in[i];
}

SY_CLONES void sy_curve_is_infinite(bool positive, bool negative, int64_t n,
                                    const float *restrict in, uint8_t *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(((in[i] == INFINITY) & positive) | ((in[i] == -INFINITY) & negative));
}

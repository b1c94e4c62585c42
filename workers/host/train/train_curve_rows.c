#include "workers/host/train/train_curve_rows.h"

#include "workers/host/base/clones.h"
#include "workers/host/train/train_curves.h"

#define INLINE static inline __attribute__((always_inline))
#define FLAT   __attribute__((flatten)) /* the formulas too */

/* A loop for one operator, which the compiler knows: so it is vectorised, where the table's formula is. */
#define EACH(operator, to, formula)                                              \
    case operator: {                                                             \
        struct sy_curve k = *c;                                                  \
        k.op = (enum sy_op)(operator);                                           \
        (void)k;                                                                 \
        _Pragma("omp simd") for (uint64_t i = 0; i < n; i++)(to)[i] = (formula); \
        break;                                                                   \
    }
#define GENERIC_OF(operator)    EACH(operator, y, sy_curve_of(&k, x[i]))
#define GENERIC_SLOPE(operator) EACH(operator, dx, dy[i] * sy_curve_slope(&k, x[i], y[i]))

/* ---- those with an exponential: the library's are not vectorised ------------------------------------ */

struct gelu {
    float share, slope; /* y = x share */
};

INLINE struct gelu gelu_at(float x)
{
    float z = x * 0.70710678f, e = sy_curve_exp(-z * z);
    float share = 0.5f * (1.0f + sy_curve_erf_given(z, e));
    return (struct gelu){share, share + x * 0.39894228f * e};
}

INLINE struct gelu tanh_gelu_at(float x)
{
    float s = x * x, t = sy_curve_tanh(SY_ROOT_2_PI * (x + 0.044715f * s * x));
    float share = 0.5f * (1.0f + t);
    return (struct gelu){share, share + 0.5f * x * (1.0f - t * t) * SY_ROOT_2_PI *
                                            (1.0f + 3.0f * 0.044715f * s)};
}

/* tanh(log(1 + e)) = (e e + 2 e) / (e e + 2 e + 2): past 20 it is 1. */
INLINE struct gelu mish_at(float x)
{
    float e = sy_curve_exp(x < 20.0f ? x : 20.0f), u = e * (e + 2.0f), t = u / (u + 2.0f);
    return (struct gelu){t, t + x * (1.0f - t * t) * (e / (1.0f + e))};
}

/* The two kinds of GELU are two loops. */
#define TANH_GELU 0x10000u /* no operator's number */

INLINE unsigned which(const struct sy_curve *c)
{
    return c->op == SY_OP_GELU && c->is_tanh_gelu ? TANH_GELU : (unsigned)c->op;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

SY_CLONES FLAT void sy_curve_row(const struct sy_curve *c, const float *restrict x,
                                 float *restrict y, uint64_t n)
{
    switch (which(c)) {
        EACH(SY_OP_GELU, y, x[i] * gelu_at(x[i]).share)
        EACH(TANH_GELU, y, x[i] * tanh_gelu_at(x[i]).share)
        EACH(SY_OP_MISH, y, x[i] * mish_at(x[i]).share)
        EACH(SY_OP_ERF, y, sy_curve_erf(x[i]))
        GENERIC_OF(SY_OP_HARD_SWISH)
        GENERIC_OF(SY_OP_HARD_SIGMOID)
        GENERIC_OF(SY_OP_RELU)
        GENERIC_OF(SY_OP_LEAKY_RELU)
        GENERIC_OF(SY_OP_CLIP)
        GENERIC_OF(SY_OP_SQRT)
        GENERIC_OF(SY_OP_NEG)
        GENERIC_OF(SY_OP_ABS)
        GENERIC_OF(SY_OP_RECIPROCAL)
    default:
        for (uint64_t i = 0; i < n; i++)
            y[i] = sy_curve_of(c, x[i]);
    }
}

SY_CLONES FLAT void sy_curve_row_back(const struct sy_curve *c, const float *restrict x,
                                      const float *restrict y, const float *restrict dy,
                                      float *restrict dx, uint64_t n)
{
    switch (which(c)) {
        EACH(SY_OP_GELU, dx, dy[i] * gelu_at(x[i]).slope)
        EACH(TANH_GELU, dx, dy[i] * tanh_gelu_at(x[i]).slope)
        EACH(SY_OP_MISH, dx, dy[i] * mish_at(x[i]).slope)
        EACH(SY_OP_ERF, dx, dy[i] * 1.12837917f * sy_curve_exp(-x[i] * x[i]))
        EACH(SY_OP_SOFTPLUS, dx, dy[i] * sy_curve_sigmoid(x[i]))
        GENERIC_SLOPE(SY_OP_TANH)
        GENERIC_SLOPE(SY_OP_SIGMOID)
        GENERIC_SLOPE(SY_OP_ELU)
        GENERIC_SLOPE(SY_OP_SELU)
        GENERIC_SLOPE(SY_OP_HARD_SWISH)
        GENERIC_SLOPE(SY_OP_HARD_SIGMOID)
        GENERIC_SLOPE(SY_OP_RELU)
        GENERIC_SLOPE(SY_OP_LEAKY_RELU)
        GENERIC_SLOPE(SY_OP_CLIP)
        GENERIC_SLOPE(SY_OP_EXP)
        GENERIC_SLOPE(SY_OP_LOG)
        GENERIC_SLOPE(SY_OP_SQRT)
        GENERIC_SLOPE(SY_OP_NEG)
        GENERIC_SLOPE(SY_OP_ABS)
        GENERIC_SLOPE(SY_OP_RECIPROCAL)
    default:
        for (uint64_t i = 0; i < n; i++)
            dx[i] = dy[i] * sy_curve_slope(c, x[i], y[i]);
    }
}

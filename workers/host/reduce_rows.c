#include "workers/host/reduce_rows.h"

#include <math.h>

#include "runtime/base/assert.h"
#include "workers/host/clones.h"
#include "workers/host/exp_below_zero.h"

#define COLUMNS 256 /* computed beside each other: their sums stay in the first cache */

/* ---- reductions ------------------------------------------------------------------------------------------ */

static inline double larger_of(double a, double x)
{
    return (x > a) | (x != x) ? x : a;
}

static inline double smaller_of(double a, double x)
{
    return (x < a) | (x != x) ? x : a;
}

/* One row of n floats, and rows of `width` columns that are `step` apart, into `sums`. */
struct fold {
    double start;
    double (*row)(const float *x, int64_t n);
    void (*columns)(const float *x, int64_t n, int64_t step, int64_t width, double *sums);
};

#define COLUMNS_OF(name, next)                                                                   \
    SY_CLONES static void name##_columns(const float *x, int64_t n, int64_t step, int64_t width, \
                                         double *sums)                                           \
    {                                                                                            \
        for (int64_t i = 0; i < n; i++, x += step)                                               \
            for (int64_t k = 0; k < width; k++) {                                                \
                double a = sums[k], v = (double)x[k];                                            \
                sums[k] = next;                                                                  \
            }                                                                                    \
    }

#define FOLD_OF(name, first, simd, next)                          \
    SY_CLONES static double name##_row(const float *x, int64_t n) \
    {                                                             \
        double a = first;                                         \
        _Pragma(simd) for (int64_t i = 0; i < n; i++)             \
        {                                                         \
            double v = (double)x[i];                              \
            a = next;                                             \
        }                                                         \
        return a;                                                 \
    }                                                             \
    COLUMNS_OF(name, next)                                        \
    static const struct fold name##_fold = {first, name##_row, name##_columns};

FOLD_OF(sum, 0.0, "omp simd reduction(+:a)", a + v)
FOLD_OF(square, 0.0, "omp simd reduction(+:a)", a + v * v)
FOLD_OF(size, 0.0, "omp simd reduction(+:a)", a + fabs(v))
FOLD_OF(product, 1.0, "omp simd reduction(*:a)", a *v)

/* A comparison drops what is no number, so those are counted. */
#define EXTREME_OF(name, first, simd, compare, next)              \
    SY_CLONES static double name##_row(const float *x, int64_t n) \
    {                                                             \
        float best = first, none = 0;                             \
        _Pragma(simd) for (int64_t i = 0; i < n; i++)             \
        {                                                         \
            best = x[i] compare best ? x[i] : best;               \
            none += x[i] != x[i] ? 1.0f : 0.0f;                   \
        }                                                         \
        return none > 0 ? (double)NAN : (double)best;             \
    }                                                             \
    COLUMNS_OF(name, next)                                        \
    static const struct fold name##_fold = {(double)first, name##_row, name##_columns};

EXTREME_OF(large, -INFINITY, "omp simd reduction(max:best) reduction(+:none)", >, larger_of(a, v))
EXTREME_OF(small, INFINITY, "omp simd reduction(min:best) reduction(+:none)", <, smaller_of(a, v))

static const struct fold *fold_of(enum sy_op op)
{
    switch (op) {
    case SY_OP_REDUCE_MEAN:
    case SY_OP_REDUCE_SUM:
    case SY_OP_REDUCE_LOG_SUM:
        return &sum_fold;
    case SY_OP_REDUCE_L2:
    case SY_OP_REDUCE_SUM_SQUARE:
        return &square_fold;
    case SY_OP_REDUCE_L1:
        return &size_fold;
    case SY_OP_REDUCE_PROD:
        return &product_fold;
    case SY_OP_REDUCE_MAX:
        return &large_fold;
    case SY_OP_REDUCE_MIN:
        return &small_fold;
    default:
        return NULL;
    }
}

static float finish(enum sy_op op, double sum, int64_t count)
{
    switch (op) {
    case SY_OP_REDUCE_MEAN:
        return (float)(sum / (double)count);
    case SY_OP_REDUCE_L2:
        return (float)sqrt(sum);
    case SY_OP_REDUCE_LOG_SUM:
        return (float)log(sum);
    default:
        return (float)sum;
    }
}

bool sy_reduce_rows_has(enum sy_op op)
{
    return fold_of(op) != NULL;
}

static void reduce_rows(enum sy_op op, const struct sy_reduce_shape *s, const float *in, float *out)
{
    const struct fold *fold = fold_of(op);
#pragma omp parallel for schedule(static) if (s->outer > 8)
    for (int64_t o = 0; o < s->outer; o++)
        out[o] = finish(op, fold->row(in + o * s->reduced, s->reduced), s->reduced);
}

/* ---- blocks of columns ----------------------------------------------------------------------------------- */

/* A block: its first element of the input and of the result, and how many columns it has. */
struct block {
    int64_t in, out, width;
};

static int64_t blocks_of(const struct sy_reduce_shape *s)
{
    return s->outer * ((s->inner + COLUMNS - 1) / COLUMNS);
}

static struct block block_at(const struct sy_reduce_shape *s, int64_t k)
{
    int64_t across = (s->inner + COLUMNS - 1) / COLUMNS, o = k / across,
            column = k % across * COLUMNS;
    return (struct block){o * s->reduced * s->inner + column, o * s->inner + column,
                          SY_MIN(s->inner - column, COLUMNS)};
}

void sy_reduce_rows(enum sy_op op, const struct sy_reduce_shape *s, const float *in, float *out)
{
    const struct fold *fold = fold_of(op);
    if (s->inner == 1) {
        reduce_rows(op, s, in, out);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < blocks_of(s); k++) {
        struct block b = block_at(s, k);
        double sums[COLUMNS];
        for (int64_t i = 0; i < b.width; i++)
            sums[i] = fold->start;
        fold->columns(in + b.in, s->reduced, s->inner, b.width, sums);
        for (int64_t i = 0; i < b.width; i++)
            out[b.out + i] = finish(op, sums[i], s->reduced);
    }
}

/* ---- the place of the largest ---------------------------------------------------------------------------- */

/* As columns that are compared beside each other; `sign` -1 for the smallest. */
SY_CLONES static void arg_columns(float sign, bool last, const float *x, int64_t n, int64_t step,
                                  int64_t width, int64_t *out)
{
    float best[COLUMNS];
    int32_t place[COLUMNS];
    for (int64_t k = 0; k < width; k++) {
        best[k] = sign * x[k];
        place[k] = 0;
    }
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = 0; k < width; k++) {
            float v = sign * x[i * step + k];
            bool takes = (v > best[k]) | (last & (v == best[k]));
            best[k] = takes ? v : best[k];
            place[k] = takes ? (int32_t)i : place[k];
        }
    for (int64_t k = 0; k < width; k++)
        out[k] = place[k];
}

static int64_t arg_row(bool smallest, bool last, const float *x, int64_t n)
{
    if (isnan(x[0]))
        return 0;
    float best = (float)(smallest ? small_row : large_row)(x, n);
    if (isnan(best)) { /* somewhere behind the first */
        int64_t place;
        arg_columns(smallest ? -1 : 1, last, x, n, 1, 1, &place);
        return place;
    }
    int64_t i = last ? n - 1 : 0;
    while (x[i] != best)
        i += last ? -1 : 1;
    return i;
}

void sy_arg_rows(bool smallest, bool last, const struct sy_reduce_shape *s, const float *in,
                 int64_t *out)
{
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < blocks_of(s); k++) {
        struct block b = block_at(s, k);
        if (s->inner == 1)
            out[k] = arg_row(smallest, last, in + b.in, s->reduced);
        else
            arg_columns(smallest ? -1 : 1, last, in + b.in, s->reduced, s->inner, b.width,
                        out + b.out);
    }
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

#define STRETCH 64 /* rows that are summed as floats; their sums as doubles */

SY_CLONES static void top_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                  float *top)
{
    for (int64_t k = 0; k < width; k++)
        top[k] = x[k];
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            top[k] = x[i * step + k] > top[k] ? x[i * step + k] : top[k];
}

/* To each of the sums e^(x - top) of n rows, which `out` gets unless it is NULL. */
SY_CLONES static void exp_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                  const float *top, float *out, double *sums)
{
    float some[COLUMNS] = {0}, e[COLUMNS];
    for (int64_t i = 0; i < n; i++) {
        const float *row = x + i * step;
        float *to = out ? out + i * step : e;
#pragma omp simd
        for (int64_t k = 0; k < width; k++) {
            to[k] = sy_exp_below_zero(row[k] - top[k]);
            some[k] += to[k];
        }
    }
    for (int64_t k = 0; k < width; k++)
        sums[k] += (double)some[k];
}

SY_CLONES static void scale_columns(float *x, int64_t n, int64_t step, int64_t width,
                                    const float *rate)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            x[i * step + k] *= rate[k];
}

SY_CLONES static void shift_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                    const float *top, const float *shift, float *out)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++)
            out[i * step + k] = x[i * step + k] - top[k] - shift[k];
}

static void softmax_block(bool logarithm, const struct sy_reduce_shape *s, int64_t width,
                          const float *x, float *out)
{
    float top[COLUMNS], rate[COLUMNS];
    double sums[COLUMNS] = {0};
    int64_t step = s->inner;
    top_columns(x, s->reduced, step, width, top);
    for (int64_t i = 0; i < s->reduced; i += STRETCH)
        exp_columns(x + i * step, SY_MIN(s->reduced - i, STRETCH), step, width, top,
                    logarithm ? NULL : out + i * step, sums);
    for (int64_t k = 0; k < width; k++)
        rate[k] = logarithm ? logf((float)sums[k]) : (float)(1 / sums[k]);
    if (logarithm)
        shift_columns(x, s->reduced, step, width, top, rate, out);
    else
        scale_columns(out, s->reduced, step, width, rate);
}

void sy_softmax_columns(bool logarithm, const struct sy_reduce_shape *s, const float *in,
                        float *out)
{
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < blocks_of(s); k++) {
        struct block b = block_at(s, k);
        softmax_block(logarithm, s, b.width, in + b.in, out + b.in);
    }
}

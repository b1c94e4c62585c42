#include "workers/host/rows/reduce_rows.h"

#include <math.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"
#include "workers/host/base/exp_below_zero.h"

#define COLUMNS       256  /* computed beside each other: their sums stay in the first cache */
#define STRETCH       4096 /* floats that are summed as floats; their sums as doubles */
#define SHORT_ROW     16
#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

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
struct reduction {
    double start;
    double (*join)(double a, double b); /* of two parts */
    double (*row)(const float *x, int64_t n);
    void (*columns)(const float *x, int64_t n, int64_t step, int64_t width, double *sums);
    void (*short_rows)(const float *x, int64_t n, int64_t rows,
                       double *sums); /* beside each other */
};

static double sum_of(double a, double b)
{
    return a + b;
}

static double product_of(double a, double b)
{
    return a * b;
}

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

/* `n` is known to the compiler in the usual lengths: it then takes whole vectors apart instead of picking numbers one by one. */
#define SHORT_ROWS_OF(name, next)                                                             \
    static inline __attribute__((always_inline)) void name##_of_rows(                         \
        const float *restrict x, int64_t n, int64_t rows, double *restrict sums)              \
    {                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                       \
            for (int64_t k = 0; k < rows; k++) {                                              \
                double a = sums[k], v = (double)x[k * n + i];                                 \
                sums[k] = next;                                                               \
            }                                                                                 \
    }                                                                                         \
    SY_CLONES static void name##_short(const float *x, int64_t n, int64_t rows, double *sums) \
    {                                                                                         \
        if (n == 2)                                                                           \
            name##_of_rows(x, 2, rows, sums);                                                 \
        else if (n == 3)                                                                      \
            name##_of_rows(x, 3, rows, sums);                                                 \
        else if (n == 4)                                                                      \
            name##_of_rows(x, 4, rows, sums);                                                 \
        else                                                                                  \
            name##_of_rows(x, n, rows, sums);                                                 \
    }

#define FOLD_OF(name, first, joined, simd, next)                                            \
    SY_CLONES static double name##_row(const float *x, int64_t n)                           \
    {                                                                                       \
        double a = first;                                                                   \
        _Pragma(simd) for (int64_t i = 0; i < n; i++)                                       \
        {                                                                                   \
            double v = (double)x[i];                                                        \
            a = next;                                                                       \
        }                                                                                   \
        return a;                                                                           \
    }                                                                                       \
    COLUMNS_OF(name, next)                                                                  \
    SHORT_ROWS_OF(name, next)                                                               \
    static const struct reduction name##_fold = {first, joined, name##_row, name##_columns, \
                                                 name##_short};

FOLD_OF(sum, 0.0, sum_of, "omp simd reduction(+:a)", a + v)
FOLD_OF(square, 0.0, sum_of, "omp simd reduction(+:a)", a + v * v)
FOLD_OF(size, 0.0, sum_of, "omp simd reduction(+:a)", a + fabs(v))
FOLD_OF(product, 1.0, product_of, "omp simd reduction(*:a)", a *v)

/* A comparison drops NaN, so NaNs are counted. */
#define EXTREME_OF(name, first, joined, simd, compare)                              \
    SY_CLONES static double name##_row(const float *x, int64_t n)                   \
    {                                                                               \
        float best = first, none = 0;                                               \
        _Pragma(simd) for (int64_t i = 0; i < n; i++)                               \
        {                                                                           \
            best = x[i] compare best ? x[i] : best;                                 \
            none += x[i] != x[i] ? 1.0f : 0.0f;                                     \
        }                                                                           \
        return none > 0 ? (double)NAN : (double)best;                               \
    }                                                                               \
    COLUMNS_OF(name, joined(a, v))                                                  \
    SHORT_ROWS_OF(name, joined(a, v))                                               \
    static const struct reduction name##_fold = {(double)first, joined, name##_row, \
                                                 name##_columns, name##_short};

EXTREME_OF(large, -INFINITY, larger_of, "omp simd reduction(max:best) reduction(+:none)", >)
EXTREME_OF(small, INFINITY, smaller_of, "omp simd reduction(min:best) reduction(+:none)", <)

static const struct reduction *fold_of(enum sy_op op)
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

/* log of the sum of e^x, from the largest on; where that is infinite or NaN, so is the result. */
SY_CLONES static double power_sum(const float *x, float top, int64_t n)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += STRETCH) {
        float some = 0;
        int64_t end = SY_MIN(from + STRETCH, n);
#pragma omp simd reduction(+ : some)
        for (int64_t i = from; i < end; i++)
            some += sy_exp_below_zero(x[i] - top);
        sum += (double)some;
    }
    return sum;
}

static float log_sum_exp_row(const float *x, int64_t n)
{
    double top = large_row(x, n);
    return (float)(isfinite(top) ? top + log(power_sum(x, (float)top, n)) : top);
}

SY_CLONES static void power_sum_columns(const float *x, int64_t n, int64_t step, int64_t width,
                                        const float *restrict top, double *restrict sums)
{
    for (int64_t i = 0; i < n; i++, x += step)
#pragma omp simd
        for (int64_t k = 0; k < width; k++)
            sums[k] += (double)sy_exp_below_zero(x[k] - top[k]);
}

static void log_sum_exp_columns(const float *x, int64_t n, int64_t step, int64_t width, float *out)
{
    double tops[COLUMNS], sums[COLUMNS] = {0};
    for (int64_t k = 0; k < width; k++)
        tops[k] = -INFINITY;
    large_columns(x, n, step, width, tops);
    for (int64_t k = 0; k < width; k++)
        out[k] = (float)tops[k];
    power_sum_columns(x, n, step, width, out, sums);
    for (int64_t k = 0; k < width; k++)
        out[k] = (float)(isfinite(tops[k]) ? tops[k] + log(sums[k]) : tops[k]);
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
    return op == SY_OP_REDUCE_LOG_SUM_EXP || fold_of(op) != NULL;
}

static bool is_long(const struct sy_reduce_shape *s)
{
    return s->outer * s->reduced * s->inner > PARALLEL_FROM;
}

/* A call, a division and a turn of the loop for each took 5 ns a result where three numbers are joined; a block takes 0.4. */
static void reduce_short_rows(enum sy_op op, const struct reduction *reduction,
                              const struct sy_reduce_shape *s, const float *in, float *out)
{
    int64_t blocks = (s->outer + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static) if (is_long(s))
    for (int64_t k = 0; k < blocks; k++) {
        int64_t first = k * COLUMNS, rows = SY_MIN(s->outer - first, COLUMNS);
        double sums[COLUMNS];
        for (int64_t i = 0; i < rows; i++)
            sums[i] = reduction->start;
        reduction->short_rows(in + first * s->reduced, s->reduced, rows, sums);
        for (int64_t i = 0; i < rows; i++)
            out[first + i] = finish(op, sums[i], s->reduced);
    }
}

static void reduce_rows(enum sy_op op, const struct sy_reduce_shape *s, const float *in, float *out)
{
    const struct reduction *reduction = fold_of(op);
    if (reduction && s->reduced <= SHORT_ROW) {
        reduce_short_rows(op, reduction, s, in, out);
        return;
    }
#pragma omp parallel for schedule(static) if (is_long(s))
    for (int64_t o = 0; o < s->outer; o++)
        out[o] = reduction ? finish(op, reduction->row(in + o * s->reduced, s->reduced), s->reduced)
                           : log_sum_exp_row(in + o * s->reduced, s->reduced);
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
    const struct reduction *reduction = fold_of(op);
    if (s->inner == 1) {
        reduce_rows(op, s, in, out);
        return;
    }
#pragma omp parallel for schedule(static) if (is_long(s))
    for (int64_t k = 0; k < blocks_of(s); k++) {
        struct block b = block_at(s, k);
        double sums[COLUMNS];
        if (!reduction) {
            log_sum_exp_columns(in + b.in, s->reduced, s->inner, b.width, out + b.out);
            continue;
        }
        for (int64_t i = 0; i < b.width; i++)
            sums[i] = reduction->start;
        reduction->columns(in + b.in, s->reduced, s->inner, b.width, sums);
        for (int64_t i = 0; i < b.width; i++)
            out[b.out + i] = finish(op, sums[i], s->reduced);
    }
}

/* ---- any dimensions -------------------------------------------------------------------------------------- */

/* Nested loops: how often, and how far each turn goes in the input. */
struct nest {
    int n;
    int64_t count, extents[SY_MAX_RANK], steps[SY_MAX_RANK];
};

static void nest_add(struct nest *nest, int64_t extent, int64_t step)
{
    nest->extents[nest->n] = extent;
    nest->steps[nest->n++] = step;
    nest->count *= extent;
}

static int64_t nest_offset(const struct nest *nest, int64_t turn)
{
    int64_t offset = 0;
    for (int i = nest->n - 1; i >= 0; i--) {
        offset += turn % nest->extents[i] * nest->steps[i];
        turn /= nest->extents[i];
    }
    return offset;
}

/* The innermost dimensions as rows or columns, the others as loops around: `kept` leads to the results, `reduced` to their parts. */
struct shape_of_any {
    struct nest kept, reduced;
    bool rows;        /* the last dimension is reduced */
    int64_t n, width; /* of what lies together: elements or rows, columns */
};

static struct shape_of_any split(const struct sy_reduction *r)
{
    struct shape_of_any s = {.kept.count = 1, .reduced.count = 1, .n = 1, .width = 1};
    int64_t extents[SY_MAX_RANK], step = 1;
    bool reduced[SY_MAX_RANK];
    int rank = 0;
    for (int64_t d = 0; d < r->rank; d++) {
        if (r->dims[d] == 1)
            continue;
        if (rank > 0 && reduced[rank - 1] == (r->reduced[d] != 0)) {
            extents[rank - 1] *= r->dims[d];
        } else {
            reduced[rank] = r->reduced[d] != 0;
            extents[rank++] = r->dims[d];
        }
    }
    s.rows = rank > 0 && reduced[rank - 1];
    if (rank > 0 && !s.rows)
        step = s.width = extents[--rank];
    if (rank > 0) {
        s.n = extents[--rank];
        step *= s.n;
    }
    struct nest kept = s.kept, parts = s.reduced;
    for (int d = rank - 1; d >= 0; step *= extents[d--])
        nest_add(reduced[d] ? &parts : &kept, extents[d], step);
    for (int i = kept.n - 1; i >= 0; i--)
        nest_add(&s.kept, kept.extents[i], kept.steps[i]);
    for (int i = parts.n - 1; i >= 0; i--)
        nest_add(&s.reduced, parts.extents[i], parts.steps[i]);
    return s;
}

/* `width` results that lie together, of the elements from x on. */
static void reduce_parts(const struct reduction *reduction, const struct shape_of_any *s,
                         const float *x, int64_t width, double *sums)
{
    for (int64_t i = 0; i < width; i++)
        sums[i] = reduction->start;
    for (int64_t part = 0; part < s->reduced.count; part++) {
        const float *from = x + nest_offset(&s->reduced, part);
        if (s->rows)
            sums[0] = reduction->join(sums[0], reduction->row(from, s->n));
        else
            reduction->columns(from, s->n, s->width, width, sums);
    }
}

bool sy_reduce_any_has(enum sy_op op)
{
    return fold_of(op) != NULL;
}

void sy_reduce_any(enum sy_op op, const struct sy_reduction *r, const float *in, float *out)
{
    const struct reduction *reduction = fold_of(op);
    const struct shape_of_any s = split(r);
    int64_t across = (s.width + COLUMNS - 1) / COLUMNS, count = s.n * s.reduced.count;
#pragma omp parallel for schedule(static) if (s.kept.count * s.width * count > PARALLEL_FROM)
    for (int64_t k = 0; k < s.kept.count * across; k++) {
        int64_t column = k % across * COLUMNS, width = SY_MIN(s.width - column, COLUMNS);
        double sums[COLUMNS];
        reduce_parts(reduction, &s, in + nest_offset(&s.kept, k / across) + column, width, sums);
        for (int64_t i = 0; i < width; i++)
            out[k / across * s.width + column + i] = finish(op, sums[i], count);
    }
}

/* ---- the place of the largest ---------------------------------------------------------------------------- */

/* Compares columns side by side; `sign` -1 finds the smallest. */
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

/* The place of the largest (sign -1: smallest) element of a row that is too short for vectors. */
static int64_t arg_short_row(float sign, bool last, const float *x, int64_t n)
{
    float best = sign * x[0];
    int64_t place = 0;
    for (int64_t i = 1; i < n; i++) {
        float v = sign * x[i];
        bool takes = (v > best) | (last & (v == best));
        best = takes ? v : best;
        place = takes ? i : place;
    }
    return place;
}

static void arg_whole_rows(bool smallest, bool last, const struct sy_reduce_shape *s,
                           const float *in, int64_t *out)
{
#pragma omp parallel for schedule(static) if (is_long(s))
    for (int64_t o = 0; o < s->outer; o++)
        out[o] = s->reduced <= SHORT_ROW
                     ? arg_short_row(smallest ? -1 : 1, last, in + o * s->reduced, s->reduced)
                     : arg_row(smallest, last, in + o * s->reduced, s->reduced);
}

void sy_arg_rows(bool smallest, bool last, const struct sy_reduce_shape *s, const float *in,
                 int64_t *out)
{
    if (s->inner == 1) {
        arg_whole_rows(smallest, last, s, in, out);
        return;
    }
#pragma omp parallel for schedule(static) if (is_long(s))
    for (int64_t k = 0; k < blocks_of(s); k++) {
        struct block b = block_at(s, k);
        arg_columns(smallest ? -1 : 1, last, in + b.in, s->reduced, s->inner, b.width, out + b.out);
    }
}

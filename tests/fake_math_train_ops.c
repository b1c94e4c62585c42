/* The fake mathematics of training beyond convolutional networks: device_math_train.h as loops. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "tests/fake_math_internal.h"
#include "workers/cuda/cell_formulas.h"
#include "workers/train_philox.h"

static int64_t offset_of(int64_t k, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; d--) {
        offset += k % dims[d] * strides[d];
        k /= dims[d];
    }
    return offset;
}

/* at: x, y, dy, dx */
static void run_curve(const struct note *q)
{
    const float *x = q->at[0], *y = q->at[1], *dy = q->at[2];
    for (int64_t i = 0; i < q->curve.n && !dy; i++)
        ((float *)q->at[1])[i] = sy_curve_of(&q->curve.of, x[i]);
    for (int64_t i = 0; i < q->curve.n && dy; i++)
        ((float *)q->at[3])[i] = dy[i] * sy_curve_slope(&q->curve.of, x[i], y[i]);
}

static int curve(struct sy_math *math, const struct sy_math_curve *c, const void *x, void *y)
{
    struct note q = {.run = run_curve, .curve = *c, .at = {fake_seen(x), fake_seen(y)}};
    return fake_enqueue(math, "curve", &q);
}

static int curve_gradient(struct sy_math *math, const struct sy_math_curve *c, const void *x,
                          const void *y, const void *dy, void *dx)
{
    struct note q = {.run = run_curve,
                     .curve = *c,
                     .at = {fake_seen(x), fake_seen(y), fake_seen(dy), fake_seen(dx)}};
    assert(dy);
    return fake_enqueue(math, "curve_gradient", &q);
}

/* at: a, b, dy, to */
static void run_pair(const struct note *q)
{
    const struct sy_math_pair *p = &q->pair;
    const float *a = q->at[0], *b = q->at[1], *dy = q->at[2];
    int64_t n = 1;
    for (int d = 0; d < p->rank; d++)
        n *= p->dims[d];
    for (int64_t i = 0; i < n; i++) {
        float x = a[offset_of(i, p->rank, p->dims, p->a_strides)],
              y = b[offset_of(i, p->rank, p->dims, p->b_strides)];
        ((float *)q->at[3])[i] =
            dy ? dy[i] * sy_pair_slope(p->op, q->which, x, y) : sy_pair_of(p->op, x, y);
    }
}

static int pair(struct sy_math *math, const struct sy_math_pair *p, const void *a, const void *b,
                void *y)
{
    struct note q = {
        .run = run_pair, .pair = *p, .at = {fake_seen(a), fake_seen(b), NULL, fake_seen(y)}};
    return fake_enqueue(math, "pair", &q);
}

/* at: a, b, y */
static void run_compare(const struct note *q)
{
    const struct sy_math_pair *p = &q->pair;
    int64_t n = 1;
    for (int d = 0; d < p->rank; d++)
        n *= p->dims[d];
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)q->at[2])[i] =
            sy_pair_holds(p->op, ((float *)q->at[0])[offset_of(i, p->rank, p->dims, p->a_strides)],
                          ((float *)q->at[1])[offset_of(i, p->rank, p->dims, p->b_strides)]);
}

static int compare(struct sy_math *math, const struct sy_math_pair *p, const void *a, const void *b,
                   void *y)
{
    struct note q = {
        .run = run_compare, .pair = *p, .at = {fake_seen(a), fake_seen(b), fake_seen(y)}};
    return fake_enqueue(math, "compare", &q);
}

static int pair_gradient(struct sy_math *math, const struct sy_math_pair *p, int which,
                         const void *a, const void *b, const void *dy, void *d)
{
    struct note q = {.run = run_pair,
                     .pair = *p,
                     .which = which,
                     .at = {fake_seen(a), fake_seen(b), fake_seen(dy), fake_seen(d)}};
    assert(dy);
    return fake_enqueue(math, "pair_gradient", &q);
}

/* at: y, dy, dx */
static void run_softmax_gradient(const struct note *q)
{
    const struct sy_math_softmax *s = &q->softmax;
    for (int64_t k = 0; k < s->outer * s->inner; k++) {
        int64_t first = k / s->inner * s->extent * s->inner + k % s->inner;
        const float *y = (float *)q->at[0] + first, *dy = (float *)q->at[1] + first;
        double sum = 0;
        for (int64_t i = 0; i < s->extent * s->inner; i += s->inner)
            sum += s->logarithm ? (double)dy[i] : (double)dy[i] * (double)y[i];
        for (int64_t i = 0; i < s->extent * s->inner; i += s->inner)
            ((float *)q->at[2])[first + i] =
                (float)(s->logarithm ? (double)dy[i] - exp((double)y[i]) * sum
                                     : (double)y[i] * ((double)dy[i] - sum));
    }
}

static int softmax_gradient(struct sy_math *math, const struct sy_math_softmax *s, const void *y,
                            const void *dy, void *dx)
{
    struct note q = {.run = run_softmax_gradient,
                     .softmax = *s,
                     .at = {fake_seen(y), fake_seen(dy), fake_seen(dx)}};
    return fake_enqueue(math, "softmax_gradient", &q);
}

/* at: x, mean, rate */
static void run_row_moments(const struct note *q)
{
    const struct sy_math_rows *r = &q->rows;
    for (int64_t row = 0; row < r->rows; row++) {
        const float *x = (float *)q->at[0] + row * r->columns;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < r->columns && !r->is_rms; i++)
            mean += (double)x[i] / (double)r->columns;
        for (int64_t i = 0; i < r->columns; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)r->columns;
        ((float *)q->at[1])[row] = (float)mean;
        ((float *)q->at[2])[row] = (float)(1 / sqrt(variance + (double)r->epsilon));
    }
}

static int row_moments(struct sy_math *math, const struct sy_math_rows *r, const void *x,
                       void *mean, void *rate)
{
    struct note q = {
        .run = run_row_moments, .rows = *r, .at = {fake_seen(x), fake_seen(mean), fake_seen(rate)}};
    return fake_enqueue(math, "row_moments", &q);
}

/* at: x, g, mean, rate, dx */
static void run_row_gradient(const struct note *q)
{
    const struct sy_math_rows *r = &q->rows;
    for (int64_t row = 0; row < r->rows; row++) {
        const float *x = (float *)q->at[0] + row * r->columns,
                    *g = (float *)q->at[1] + row * r->columns;
        double mean = (double)((float *)q->at[2])[row], rate = (double)((float *)q->at[3])[row];
        double of_g = 0, of_gx = 0;
        for (int64_t i = 0; i < r->columns; i++) {
            of_g += r->is_rms ? 0 : (double)g[i] / (double)r->columns;
            of_gx += (double)g[i] * ((double)x[i] - mean) * rate / (double)r->columns;
        }
        for (int64_t i = 0; i < r->columns; i++)
            ((float *)q->at[4])[row * r->columns + i] =
                (float)(rate * ((double)g[i] - of_g - ((double)x[i] - mean) * rate * of_gx));
    }
}

static int row_gradient(struct sy_math *math, const struct sy_math_rows *r, const void *x,
                        const void *g, const void *mean, const void *rate, void *dx)
{
    struct note q = {
        .run = run_row_gradient,
        .rows = *r,
        .at = {fake_seen(x), fake_seen(g), fake_seen(mean), fake_seen(rate), fake_seen(dx)}};
    return fake_enqueue(math, "row_gradient", &q);
}

/* at: dy, indices, to */
static void run_scatter(const struct note *q)
{
    const struct sy_math_gather *g = &q->gather;
    int64_t inner = g->inner_bytes / (int64_t)sizeof(float);
    float *to = q->at[2];
    memset(to, 0, (size_t)(g->outer * g->extent * g->inner_bytes));
    for (int64_t o = 0; o < g->outer; o++)
        for (int64_t k = 0; k < g->n_indices; k++) {
            int64_t row = g->wide ? ((int64_t *)q->at[1])[k] : ((int32_t *)q->at[1])[k];
            row += row < 0 ? g->extent : 0;
            for (int64_t i = 0; i < inner && row >= 0 && row < g->extent; i++)
                to[(o * g->extent + row) * inner + i] +=
                    ((float *)q->at[0])[(o * g->n_indices + k) * inner + i];
        }
}

static int scatter(struct sy_math *math, const struct sy_math_gather *g, const void *dy,
                   const void *indices, void *to)
{
    struct note q = {
        .run = run_scatter, .gather = *g, .at = {fake_seen(dy), fake_seen(indices), fake_seen(to)}};
    return fake_enqueue(math, "scatter", &q);
}

/* at: x, y */
static void run_drop(const struct note *q)
{
    const struct sy_math_drop *d = &q->drop;
    uint32_t limit = (uint32_t)((double)d->ratio * 4294967296.0);
    float scale = 1.0f / (1.0f - d->ratio);
    for (int64_t i = 0; i < d->n; i++)
        ((float *)q->at[1])[i] = sy_philox_element(d->seed, d->batch, d->node, (uint64_t)i) < limit
                                     ? 0.0f
                                     : ((float *)q->at[0])[i] * scale;
}

static int drop(struct sy_math *math, const struct sy_math_drop *d, const void *x, void *y)
{
    struct note q = {.run = run_drop, .drop = *d, .at = {fake_seen(x), fake_seen(y)}};
    return fake_enqueue(math, "drop", &q);
}

/* at: x, y, dy, dx */
static void run_fold(const struct note *q)
{
    const struct sy_fold *f = &q->fold;
    for (int64_t o = 0; o < f->n_out; o++) {
        int64_t at = sy_fold_offset(o, f->n_kept, f->kept, f->kept_strides);
        const float *x = (float *)q->at[0] + at;
        if (!q->at[2])
            ((float *)q->at[1])[o] = sy_fold_of(f, x);
        else
            sy_fold_back(f, x, ((float *)q->at[1])[o], ((float *)q->at[2])[o],
                         (float *)q->at[3] + at);
    }
}

static int fold(struct sy_math *math, const struct sy_fold *f, const void *x, void *y)
{
    struct note q = {.run = run_fold, .fold = *f, .at = {fake_seen(x), fake_seen(y)}};
    return fake_enqueue(math, "fold", &q);
}

static int fold_gradient(struct sy_math *math, const struct sy_fold *f, const void *x,
                         const void *y, const void *dy, void *dx)
{
    struct note q = {.run = run_fold,
                     .fold = *f,
                     .at = {fake_seen(x), fake_seen(y), fake_seen(dy), fake_seen(dx)}};
    assert(dy);
    return fake_enqueue(math, "fold_gradient", &q);
}

/* at: x, out, scratch */
static void run_square_sum(const struct note *q)
{
    double sum = q->adds ? *(double *)q->at[1] : 0;
    fake_spoil(q->at[2]);
    for (int64_t i = 0; i < q->n; i++)
        sum += (double)((float *)q->at[0])[i] * (double)((float *)q->at[0])[i];
    *(double *)q->at[1] = sum;
}

static int square_sum(struct sy_math *math, int64_t n, const void *x, bool adds, void *out,
                      void *scratch)
{
    struct note q = {.run = run_square_sum,
                     .n = n,
                     .adds = adds,
                     .at = {fake_seen(x), fake_seen(out), fake_seen(scratch)}};
    return fake_enqueue(math, "square_sum", &q);
}

static void run_cell(const struct note *q)
{
    for (int64_t k = 0; k < q->cell.batch * q->cell.hidden; k++)
        sy_cell_run(&q->cell, q->roles, k);
}

static int cell(struct sy_math *math, const struct sy_math_cell *c, void *const *at)
{
    struct note q = {.run = run_cell, .cell = *c};
    bool is_back = c->part >= SY_CELL_PART_BACK;
    assert(at[SY_CELL_G] && at[SY_CELL_H]);
    assert(is_back ? at[SY_CELL_DH] && at[SY_CELL_DG] : !!at[SY_CELL_REC]);
    for (int i = 0; i < SY_CELL_ROLES; i++)
        q.roles[i] = fake_seen(at[i]);
    return fake_enqueue(math, "cell", &q);
}

const struct sy_math_train_ops fake_math_train = {
    .curve = curve,
    .curve_gradient = curve_gradient,
    .pair = pair,
    .compare = compare,
    .pair_gradient = pair_gradient,
    .softmax_gradient = softmax_gradient,
    .row_moments = row_moments,
    .row_gradient = row_gradient,
    .scatter = scatter,
    .drop = drop,
    .fold = fold,
    .fold_gradient = fold_gradient,
    .cell = cell,
    .square_sum = square_sum,
};

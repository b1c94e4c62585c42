/* The training half of the fake mathematics: by definition, in double. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "tests/fake_math_internal.h"

/* ---- convolutions -------------------------------------------------------------------------------- */

/* Adds to the gradients what output element (n, channel, o) with gradient g gives. */
static void spread(const struct sy_math_conv *c, const void *x, const void *w, double g, int64_t n,
                   int64_t channel, const int64_t *o, double *dx, double *dw)
{
    int64_t ins = c->in_channels / c->groups, first = channel / (c->out_channels / c->groups) * ins;
    int64_t area = c->kernel[0] * c->kernel[1] * c->kernel[2];
    for (int64_t k = 0; k < area; k++) {
        int64_t e[3] = {k / c->kernel[2] / c->kernel[1], k / c->kernel[2] % c->kernel[1],
                        k % c->kernel[2]},
                at = n;
        int outside = 0;
        for (int d = 0; d < 3; d++) {
            int64_t i = o[d] * c->strides[d] - c->pads[d] + e[d] * c->dilations[d];
            outside |= i < 0 || i >= c->in[d];
            at = at * c->in[d] + i;
        }
        for (int64_t i = 0; i < ins && !outside; i++) {
            int64_t from = at * c->in_channels + first + i, weight = (channel * area + k) * ins + i;
            if (dx)
                dx[from] += g * fake_float_at(c->type, w, weight);
            if (dw)
                dw[weight] += g * fake_float_at(c->type, x, from);
        }
    }
}

/* at: a, b, -, -, result, scratch */
void fake_run_conv_gradient(const struct note *q)
{
    const struct sy_math_conv *c = &q->conv;
    bool data = c->direction == SY_MATH_DATA;
    const void *dy = q->at[data ? 0 : 1];
    int64_t area = c->out[0] * c->out[1] * c->out[2], n = c->batch * c->in_channels;
    if (!data)
        n = c->out_channels * (c->in_channels / c->groups);
    for (int d = 0; d < 3; d++)
        n *= data ? c->in[d] : c->kernel[d];
    double *sums = calloc((size_t)n + 1, sizeof *sums);
    assert(sums);
    fake_spoil_back(q->at[5]);
    for (int64_t k = 0; k < c->batch * area; k++) {
        int64_t o[3] = {k % area / c->out[2] / c->out[1], k % area / c->out[2] % c->out[1],
                        k % c->out[2]};
        for (int64_t channel = 0; channel < c->out_channels; channel++)
            spread(c, data ? NULL : q->at[0], data ? q->at[1] : NULL,
                   fake_float_at(c->type, dy, k * c->out_channels + channel), k / area, channel, o,
                   data ? sums : NULL, data ? NULL : sums);
    }
    for (int64_t i = 0; i < n; i++)
        fake_store_float(c->type, q->at[4], i, sums[i]);
    free(sums);
}

/* ---- columns ------------------------------------------------------------------------------------- */

/* at: a, x, moments, out, scratch */
static void run_columns(const struct note *q)
{
    const struct sy_math_columns *c = &q->columns;
    const float *moments = q->at[2];
    float *out = q->at[3];
    fake_spoil(q->at[4]);
    for (int64_t k = 0; k < c->columns; k++) {
        double sum = 0, second = 0;
        for (int64_t r = 0; r < c->rows; r++)
            sum += fake_float_at(c->a_type, q->at[0], r * c->columns + k);
        double mean = sum / (double)c->rows;
        for (int64_t r = 0; r < c->rows; r++) {
            int64_t i = r * c->columns + k;
            double a = fake_float_at(c->a_type, q->at[0], i);
            if (c->kind == SY_COLUMNS_MOMENTS)
                second += (a - mean) * (a - mean) / (double)c->rows;
            else if (c->kind == SY_COLUMNS_NORM)
                second += a * (fake_float_at(c->x_type, q->at[1], i) - (double)moments[k]) /
                          sqrt((double)moments[c->columns + k] + (double)c->epsilon);
        }
        out[k] = (float)(c->kind == SY_COLUMNS_MOMENTS ? mean : sum);
        if (c->kind != SY_COLUMNS_SUM)
            out[c->columns + k] = (float)second;
    }
}

int fake_columns(struct sy_math *math, const struct sy_math_columns *c, const void *a,
                 const void *x, const void *moments, void *out, void *scratch)
{
    assert((c->kind == SY_COLUMNS_NORM) == (x && moments));
    struct note q = {
        .run = run_columns,
        .columns = *c,
        .at = {fake_seen(a), fake_seen(x), fake_seen(moments), fake_seen(out), fake_seen(scratch)}};
    return fake_enqueue(math, "columns", &q);
}

/* at: dy, x, moments, sums, scale, dx */
static void run_norm_gradient(const struct note *q)
{
    const struct sy_math_columns *c = &q->columns;
    const float *moments = q->at[2], *sums = q->at[3], *scale = q->at[4];
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        int64_t k = i % c->columns;
        double rate = 1 / sqrt((double)moments[c->columns + k] + (double)c->epsilon);
        double unit = (fake_float_at(c->x_type, q->at[1], i) - (double)moments[k]) * rate;
        double all = (double)sums[k] + unit * (double)sums[c->columns + k];
        fake_store_float(c->x_type, q->at[5], i,
                         (double)scale[k] * rate *
                             (fake_float_at(c->a_type, q->at[0], i) - all / (double)c->rows));
    }
}

int fake_norm_gradient(struct sy_math *math, const struct sy_math_columns *c, const void *dy,
                       const void *x, const void *moments, const void *sums, const void *scale,
                       void *dx)
{
    struct note q = {.run = run_norm_gradient,
                     .columns = *c,
                     .at = {fake_seen(dy), fake_seen(x), fake_seen(moments), fake_seen(sums),
                            fake_seen(scale), fake_seen(dx)}};
    return fake_enqueue(math, "norm_gradient", &q);
}

/* ---- pools --------------------------------------------------------------------------------------- */

/* Offset in the input of window element k at output o; -1: in the padding. */
static int64_t pool_input(const struct sy_math_pool *p, const int64_t *o, int64_t k)
{
    int64_t e[3] = {k / p->kernel[2] / p->kernel[1], k / p->kernel[2] % p->kernel[1],
                    k % p->kernel[2]},
            at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t i = o[d] * p->strides[d] - p->pads[d] + e[d] * p->dilations[d];
        if (i < 0 || i >= p->in[d])
            return -1;
        at += i * p->in_strides[2 + d];
    }
    return at;
}

/* From `first` on in x; sums in double. */
static void pool_window(const struct sy_math_pool *p, const void *x, int64_t first, double g,
                        const int64_t *o, double *dx)
{
    int64_t all = p->kernel[0] * p->kernel[1] * p->kernel[2], n = 0, best = -1;
    for (int64_t k = 0; k < all; k++) {
        int64_t at = pool_input(p, o, k);
        n += at >= 0;
        if (at >= 0 && (best < 0 || fake_float_at(p->type, x, first + at) >
                                        fake_float_at(p->type, x, first + best)))
            best = at;
    }
    for (int64_t k = 0; k < all && !p->max; k++) {
        int64_t at = pool_input(p, o, k);
        if (at >= 0)
            dx[first + at] += g / (double)(p->count_padding ? all : n);
    }
    if (p->max && best >= 0)
        dx[first + best] += g;
}

/* at: x, dy, dx */
static void run_pool_gradient(const struct note *q)
{
    const struct sy_math_pool *p = &q->pool;
    int64_t area = p->out[0] * p->out[1] * p->out[2];
    int64_t all = p->batch * p->channels * p->in[0] * p->in[1] * p->in[2];
    double *sums = calloc((size_t)all + 1, sizeof *sums); /* dense, in whatever order */
    assert(sums);
    for (int64_t k = 0; k < p->batch * p->channels * area; k++) {
        int64_t n = k / area / p->channels, channel = k / area % p->channels;
        int64_t o[3] = {k % area / p->out[2] / p->out[1], k % area / p->out[2] % p->out[1],
                        k % p->out[2]};
        int64_t from = n * p->in_strides[0] + channel * p->in_strides[1];
        double g = fake_float_at(p->type, q->at[1],
                                 n * p->out_strides[0] + channel * p->out_strides[1] +
                                     o[0] * p->out_strides[2] + o[1] * p->out_strides[3] +
                                     o[2] * p->out_strides[4]);
        pool_window(p, q->at[0], from, g, o, sums);
    }
    for (int64_t i = 0; i < all; i++)
        fake_store_float(p->type, q->at[2], i, sums[i]);
    free(sums);
}

int fake_pool_gradient(struct sy_math *math, const struct sy_math_pool *p, const void *x,
                       const void *dy, void *dx)
{
    struct note q = {
        .run = run_pool_gradient, .pool = *p, .at = {fake_seen(x), fake_seen(dy), fake_seen(dx)}};
    return fake_enqueue(math, "pool_gradient", &q);
}

/* ---- loss and optimizers --------------------------------------------------------------------------- */

static double cross_entropy_row(const float *x, int64_t n, int32_t label, int64_t counted,
                                float *diff)
{
    double sum = 0;
    assert(label < n);
    for (int64_t i = 0; i < n; i++)
        diff[i] = 0;
    for (int64_t i = 0; i < n && label >= 0; i++)
        sum += exp((double)x[i] - (double)x[label]);
    for (int64_t i = 0; i < n && label >= 0; i++)
        diff[i] =
            (float)((exp((double)x[i] - (double)x[label]) / sum - (i == label)) / (double)counted);
    return label < 0 ? 0 : log(sum) / (double)counted;
}

static double element_loss(const struct sy_math_loss *l, double x, double wanted, float *diff)
{
    double all = (double)(l->rows * l->columns), p = 1 / (1 + exp(-x));
    bool square = l->kind == SY_MATH_SQUARE;
    *diff = (float)((square ? 2 * (x - wanted) : p - wanted) / all);
    return square ? (x - wanted) * (x - wanted) / all
                  : -(wanted * log(p) + (1 - wanted) * log(1 - p)) / all;
}

/* at: x, wanted, diff, out, scratch */
static void run_loss(const struct note *q)
{
    const struct sy_math_loss *l = &q->loss;
    const float *x = q->at[0], *wanted = q->at[1];
    float *diff = q->at[2];
    double loss = 0;
    bool classes = l->kind == SY_MATH_CLASSES;
    fake_spoil(q->at[4]);
    for (int64_t r = 0; r < l->rows && classes; r++)
        loss += cross_entropy_row(x + r * l->columns, l->columns, ((int32_t *)q->at[1])[r],
                                  l->counted, diff + r * l->columns);
    for (int64_t i = 0; i < l->rows * l->columns && !classes; i++)
        loss += element_loss(l, (double)x[i], (double)wanted[i], &diff[i]);
    *(float *)q->at[3] = (float)loss;
}

int fake_loss(struct sy_math *math, const struct sy_math_loss *l, const void *x, const void *wanted,
              void *diff, void *out, void *scratch)
{
    struct note q = {.run = run_loss,
                     .loss = *l,
                     .at = {fake_seen(x), fake_seen(wanted), fake_seen(diff), fake_seen(out),
                            fake_seen(scratch)}};
    return fake_enqueue(math, "loss", &q);
}

static void update_one(const struct sy_math_update *u, float scale, float *w, float g, float *m,
                       float *v)
{
    float d = scale * g + u->decay * *w;
    if (u->kind == SY_UPDATE_ADAM) {
        *m = u->beta1 * *m + u->rest1 * d;
        *v = u->beta2 * *v + u->rest2 * d * d;
        *w = u->shrink * *w - u->rate * *m / (sqrtf(*v) * u->correct2 + u->epsilon);
        return;
    }
    if (u->kind != SY_UPDATE_SGD)
        *m = u->momentum * *m + d;
    *w -= u->rate * (u->kind == SY_UPDATE_SGD        ? d
                     : u->kind == SY_UPDATE_MOMENTUM ? *m
                                                     : d + u->momentum * *m);
}

/* at: w, g, m, v, norm_square */
static void run_update(const struct note *q)
{
    const struct sy_math_update *u = &q->update;
    float *w = q->at[0], *m = q->at[2], *v = q->at[3], spare = 0;
    const float *g = q->at[1];
    bool plain = u->kind == SY_UPDATE_STATISTIC || u->kind == SY_UPDATE_SUM;
    double square = plain ? 0 : *(double *)q->at[4], norm = sqrt(square) * u->mean;
    double scale = u->limit > 0 && norm > u->limit ? u->mean * u->limit / (norm + 1e-6) : u->mean;
    for (int64_t i = 0; i < u->n && isfinite(square); i++) {
        if (plain)
            w[i] = u->kind == SY_UPDATE_SUM ? w[i] + g[i] : u->momentum * w[i] + u->rest1 * g[i];
        else
            update_one(u, (float)scale, &w[i], g[i], m ? &m[i] : &spare, v ? &v[i] : &spare);
    }
}

int fake_update(struct sy_math *math, const struct sy_math_update *u, void *w, const void *g,
                void *m, void *v, const void *norm_square)
{
    bool plain = u->kind == SY_UPDATE_STATISTIC || u->kind == SY_UPDATE_SUM;
    assert(u->n > 0 && w && g && (u->kind != SY_UPDATE_ADAM || (m && v)) && plain != !!norm_square);
    struct note q = {
        .run = run_update,
        .update = *u,
        .at = {fake_seen(w), fake_seen(g), fake_seen(m), fake_seen(v), fake_seen(norm_square)}};
    return fake_enqueue(math, "update", &q);
}

/* ---- activations ----------------------------------------------------------------------------------- */

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double fake_chain_slope(const struct sy_math_chain_step *s, double x, double y)
{
    const double h = 1e-5;
    switch ((enum sy_math_chain_code)s->code) {
    case SY_CHAIN_GRAD_LEAKY:
        return y > 0 ? x : (double)s->alpha * x;
    case SY_CHAIN_GRAD_SIGMOID:
        return x * y * (1 - y);
    case SY_CHAIN_GRAD_TANH:
        return x * (1 - y * y);
    case SY_CHAIN_GRAD_ELU:
        return y > 0 ? x : x * (y + (double)s->alpha);
    case SY_CHAIN_GRAD_GELU_ERF:
        return x * (0.5 * (1 + erf(y / sqrt(2))) + y * exp(-y * y / 2) / sqrt(2 * M_PI));
    case SY_CHAIN_GRAD_GELU_TANH:
        return x * (gelu_tanh(y + h) - gelu_tanh(y - h)) / (2 * h);
    case SY_CHAIN_GRAD_HARD_SWISH:
        return y <= -3 ? 0 : y >= 3 ? x : x * (y / 3 + 0.5);
    case SY_CHAIN_GRAD_CLIP:
        return y > (double)s->alpha && y < (double)s->beta ? x : 0;
    default:
        assert(!"a slope");
        return 0;
    }
}

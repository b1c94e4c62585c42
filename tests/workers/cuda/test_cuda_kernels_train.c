/* The CUDA kernels of windows and of training, run on the CPU, against their definitions in double. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels.h"

#define ROUNDS 40

static double *zeros(int64_t n)
{
    double *sums = calloc((size_t)n + 1, sizeof *sums);
    assert_non_null(sums);
    return sums;
}

static void compare_all(const struct kernel_tensor *t, double *want, double scale)
{
    for (int64_t i = 0; i < t->n; i++)
        kernel_compare(t, i, want[i], scale);
    free(want);
}

/* ---- windows ----------------------------------------------------------------------------------------- */

/* Of `out`, at least one, for which some `in` fits. */
static void random_window(int64_t *in, int64_t *out, int64_t *kernel, int64_t *strides,
                          int64_t *dilations, int64_t *pads)
{
    for (int d = 0; d < 3; d++) {
        bool flat = d == 2 && kernel_between(0, 2) == 0;
        kernel[d] = flat ? 1 : kernel_between(1, 3);
        strides[d] = kernel_between(1, 3);
        dilations[d] = kernel_between(1, 2);
        pads[d] = kernel_between(0, 1) * (kernel[d] / 2);
        int64_t width = (kernel[d] - 1) * dilations[d] + 1;
        in[d] = flat ? 1 : kernel_between(1, 6);
        in[d] = in[d] + 2 * pads[d] < width ? width : in[d];
        out[d] = (in[d] + 2 * pads[d] - width) / strides[d] + 1;
        if (out[d] == 1 && kernel_between(0, 9) == 0)
            strides[d] = 1 << 20; /* never taken; more than 32 bits are for */
    }
}

/* The input's position of window element k at output o, for a window of any kind; false: outside. */
#define WINDOW_INPUT(w, o, k, at) \
    window_input((w)->in, (w)->kernel, (w)->strides, (w)->dilations, (w)->pads, (o), (k), (at))

static bool window_input(const int64_t *in, const int64_t *kernel, const int64_t *strides,
                         const int64_t *dilations, const int64_t *pads, const int64_t *o, int64_t k,
                         int64_t *at)
{
    const int64_t e[3] = {k / kernel[2] / kernel[1], k / kernel[2] % kernel[1], k % kernel[2]};
    bool inside = true;
    for (int d = 0; d < 3; d++) {
        at[d] = o[d] * strides[d] - pads[d] + e[d] * dilations[d];
        inside = inside && at[d] >= 0 && at[d] < in[d];
    }
    return inside;
}

struct pool_case {
    struct sy_math_pool pool;
    struct kernel_tensor *x, *y, *dy, *dx;
};

static int launch_pool(void *arg)
{
    struct pool_case *c = arg;
    return sy_kernel_pool(kernel_stream, &c->pool, c->x->device, c->y->device);
}

static int launch_pool_gradient(void *arg)
{
    struct pool_case *c = arg;
    return sy_kernel_pool_gradient(kernel_stream, &c->pool, c->x->device, c->dy->device,
                                   c->dx->device);
}

/* The lowest finite number: of a window that sees nothing but padding. */
static double lowest(enum sy_dtype type)
{
    return type == SY_DTYPE_F16    ? -65504
           : type == SY_DTYPE_BF16 ? -3.38953139e38
                                   : -(double)FLT_MAX;
}

/* One output: its value into *value, and what it gives to dx. */
static void pool_output(const struct pool_case *c, int64_t k, double *value, double *dx,
                        int64_t *to)
{
    const struct sy_math_pool *p = &c->pool;
    const int64_t dims[5] = {p->batch, p->channels, p->out[0], p->out[1], p->out[2]};
    int64_t tuple[5], all = p->kernel[0] * p->kernel[1] * p->kernel[2], best = -1, n = 0, at[3];
    double sum = 0;
    *to = kernel_offset(k, 5, dims, p->out_strides);
    for (int d = 4; d >= 0; d--, k /= dims[d + 1])
        tuple[d] = k % dims[d];
    int64_t first = tuple[0] * p->in_strides[0] + tuple[1] * p->in_strides[1];
    for (int pass = 0; pass < 2; pass++)
        for (int64_t e = 0; e < all; e++) {
            if (!WINDOW_INPUT(p, tuple + 2, e, at))
                continue;
            int64_t from = first + at[0] * p->in_strides[2] + at[1] * p->in_strides[3] +
                           at[2] * p->in_strides[4];
            if (pass == 1 && !p->max)
                dx[from] += kernel_get(c->dy, *to) / (double)(p->count_padding ? all : n);
            if (pass == 1)
                continue;
            n++;
            sum += kernel_get(c->x, from);
            double v = kernel_get(c->x, from), top = best < 0 ? 0 : kernel_get(c->x, best);
            if (best < 0 || v > top || (isnan(v) && !isnan(top)))
                best = from;
        }
    if (p->max && best >= 0)
        dx[best] += kernel_get(c->dy, *to);
    if (n == 0)
        *value = p->max ? lowest(p->type) : 0;
    else
        *value = p->max ? kernel_get(c->x, best) : sum / (double)(p->count_padding ? all : n);
}

static void pool_strides(bool last, int64_t channels, const int64_t *spatial, int64_t *strides)
{
    int64_t area = spatial[0] * spatial[1] * spatial[2], inner = last ? channels : 1;
    strides[0] = channels * area;
    strides[1] = last ? 1 : area;
    strides[2] = spatial[1] * spatial[2] * inner;
    strides[3] = spatial[2] * inner;
    strides[4] = inner;
}

static void test_pools(void **state)
{
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct pool_case c = {.pool = {.type = kernel_float_type(),
                                       .max = round % 2,
                                       .count_padding = kernel_between(0, 1),
                                       .batch = kernel_between(1, 3),
                                       .channels = kernel_between(1, 5)}};
        struct sy_math_pool *p = &c.pool;
        random_window(p->in, p->out, p->kernel, p->strides, p->dilations, p->pads);
        pool_strides(round % 3, p->channels, p->in, p->in_strides);
        pool_strides(round % 3, p->channels, p->out, p->out_strides);
        int64_t ins = p->batch * p->in_strides[0], outs = p->batch * p->out_strides[0];
        c.x = kernel_random(p->type, ins);
        for (int64_t i = 0; round % 5 == 0 && i < ins; i++) /* a NaN is the largest */
            if (kernel_between(0, 15) == 0)
                kernel_put(c.x, i, NAN);
        c.y = kernel_tensor(p->type, outs);
        c.dy = kernel_random(p->type, outs);
        c.dx = kernel_tensor(p->type, ins);
        kernel_run(launch_pool, &c);
        kernel_run(launch_pool_gradient, &c);
        double *dx = zeros(ins), value;
        for (int64_t k = 0, to; k < outs; k++) {
            pool_output(&c, k, &value, dx, &to);
            kernel_compare(c.y, to, value, 2);
            assert_false(isinf(kernel_get(c.y, to)));
        }
        compare_all(c.dx, dx, 8);
        kernel_end(state);
    }
}

struct conv_case {
    struct sy_math_conv conv;
    struct kernel_tensor *x, *w, *bias, *residual, *y, *dx, *dw;
};

static int launch_conv(void *arg)
{
    struct conv_case *c = arg;
    return sy_kernel_conv(kernel_stream, &c->conv, c->x->device, c->w->device, KERNEL_AT(c->bias),
                          KERNEL_AT(c->residual), c->y->device);
}

static int launch_conv_data(void *arg)
{
    struct conv_case *c = arg;
    return sy_kernel_conv(kernel_stream, &c->conv, c->y->device, c->w->device, NULL, NULL,
                          c->dx->device);
}

static int launch_conv_weights(void *arg)
{
    struct conv_case *c = arg;
    return sy_kernel_conv(kernel_stream, &c->conv, c->x->device, c->y->device, NULL, NULL,
                          c->dw->device);
}

/* Output (position, channel): its sum, and what it gives to the gradients, which may be NULL. */
static double conv_output(const struct conv_case *c, int64_t position, int64_t channel, double *dx,
                          double *dw)
{
    const struct sy_math_conv *m = &c->conv;
    int64_t ins = m->in_channels / m->groups, first = channel / (m->out_channels / m->groups) * ins;
    int64_t area = m->kernel[0] * m->kernel[1] * m->kernel[2], at[3];
    int64_t o[3] = {position / m->out[2] / m->out[1] % m->out[0], position / m->out[2] % m->out[1],
                    position % m->out[2]};
    int64_t n = position / m->out[2] / m->out[1] / m->out[0];
    double sum = 0, g = dx ? kernel_get(c->y, position * m->out_channels + channel) : 0;
    for (int64_t k = 0; k < area; k++) {
        if (!WINDOW_INPUT(m, o, k, at))
            continue;
        int64_t from =
            (((n * m->in[0] + at[0]) * m->in[1] + at[1]) * m->in[2] + at[2]) * m->in_channels +
            first;
        for (int64_t i = 0; i < ins; i++) {
            int64_t weight = (channel * area + k) * ins + i;
            double x = kernel_get(c->x, from + i), w = kernel_get(c->w, weight);
            sum += x * w;
            if (dx)
                dx[from + i] += g * w;
            if (dx)
                dw[weight] += g * x;
        }
    }
    return sum;
}

static void check_conv(const struct conv_case *c)
{
    for (int64_t i = 0; i < c->y->n; i++) {
        double v = conv_output(c, i / c->conv.out_channels, i % c->conv.out_channels, NULL, NULL);
        v += c->bias ? kernel_get(c->bias, i % c->conv.out_channels) : 0;
        v += c->residual ? kernel_get(c->residual, i) : 0;
        kernel_compare(c->y, i, c->conv.activation == SY_ACT_RELU ? fmax(v, 0) : v, 30);
    }
}

static void test_convolutions(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        int64_t groups = kernel_between(1, 3);
        struct conv_case c = {.conv = {.type = kernel_float_type(),
                                       .spatial = 3,
                                       .batch = kernel_between(1, 2),
                                       .groups = groups,
                                       .in_channels = groups * kernel_between(1, 3),
                                       .out_channels = groups * kernel_between(1, 3),
                                       .has_bias = round & 1,
                                       .has_residual = round & 2,
                                       .activation = round & 4 ? SY_ACT_RELU : SY_ACT_NONE}};
        struct sy_math_conv *m = &c.conv;
        m->bias_type = round & 8 ? m->type : SY_DTYPE_F32;
        random_window(m->in, m->out, m->kernel, m->strides, m->dilations, m->pads);
        int64_t ins = m->batch * m->in_channels * m->in[0] * m->in[1] * m->in[2],
                outs = m->batch * m->out_channels * m->out[0] * m->out[1] * m->out[2],
                weights = m->out_channels * (m->in_channels / groups) * m->kernel[0] *
                          m->kernel[1] * m->kernel[2];
        c.x = kernel_random(m->type, ins);
        c.w = kernel_random(m->type, weights);
        c.bias = m->has_bias ? kernel_random(m->bias_type, m->out_channels) : NULL;
        c.residual = m->has_residual ? kernel_random(m->type, outs) : NULL;
        c.y = kernel_tensor(m->type, outs);
        c.dx = kernel_tensor(m->type, ins);
        c.dw = kernel_tensor(m->type, weights);
        kernel_run(launch_conv, &c);
        check_conv(&c);
        double *dx = zeros(ins), *dw = zeros(weights); /* y as its own gradient */
        m->direction = SY_MATH_DATA;
        kernel_run(launch_conv_data, &c);
        m->direction = SY_MATH_WEIGHTS;
        kernel_run(launch_conv_weights, &c);
        for (int64_t i = 0; i < outs; i++)
            conv_output(&c, i / m->out_channels, i % m->out_channels, dx, dw);
        compare_all(c.dx, dx, 300);
        compare_all(c.dw, dw, 300);
        kernel_end(state);
    }
}

/* ---- columns ----------------------------------------------------------------------------------------- */

struct columns_case {
    struct sy_math_columns columns;
    struct kernel_tensor *a, *x, *moments, *out, *scratch, *scale, *dx;
};

static int launch_columns(void *arg)
{
    struct columns_case *c = arg;
    return sy_kernel_columns(kernel_stream, &c->columns, c->a->device, KERNEL_AT(c->x),
                             KERNEL_AT(c->moments), c->out->device, c->scratch->device,
                             (uint64_t)c->scratch->n * sizeof(double));
}

static int launch_norm_gradient(void *arg)
{
    struct columns_case *c = arg;
    return sy_kernel_norm_gradient(kernel_stream, &c->columns, c->a->device, c->x->device,
                                   c->moments->device, c->out->device, c->scale->device,
                                   c->dx->device);
}

static void check_columns(const struct columns_case *c)
{
    const struct sy_math_columns *m = &c->columns;
    for (int64_t k = 0; k < m->columns; k++) {
        double sum = 0, second = 0;
        for (int64_t r = 0; r < m->rows; r++)
            sum += kernel_get(c->a, r * m->columns + k);
        for (int64_t r = 0; r < m->rows; r++) {
            int64_t i = r * m->columns + k;
            double a = kernel_get(c->a, i);
            if (m->kind == SY_COLUMNS_MOMENTS)
                second +=
                    (a - sum / (double)m->rows) * (a - sum / (double)m->rows) / (double)m->rows;
            else if (m->kind == SY_COLUMNS_NORM)
                second += a * (kernel_get(c->x, i) - kernel_get(c->moments, k)) /
                          sqrt(kernel_get(c->moments, m->columns + k) + (double)m->epsilon);
        }
        kernel_compare(c->out, k, m->kind == SY_COLUMNS_MOMENTS ? sum / (double)m->rows : sum, 20);
        if (m->kind != SY_COLUMNS_SUM)
            kernel_compare(c->out, m->columns + k, second, 20);
    }
}

static void check_norm_gradient(const struct columns_case *c)
{
    const struct sy_math_columns *m = &c->columns;
    kernel_run(launch_norm_gradient, (void *)(uintptr_t)c);
    for (int64_t i = 0; i < c->dx->n; i++) {
        int64_t k = i % m->columns;
        double rate = 1 / sqrt(kernel_get(c->moments, m->columns + k) + (double)m->epsilon);
        double unit = (kernel_get(c->x, i) - kernel_get(c->moments, k)) * rate;
        double all = kernel_get(c->out, k) + unit * kernel_get(c->out, m->columns + k);
        kernel_compare(
            c->dx, i,
            kernel_get(c->scale, k) * rate * (kernel_get(c->a, i) - all / (double)m->rows), 60);
    }
}

static void test_columns(void **state)
{
    static const int64_t rows[] = {1, 7, 128, 300, 1100}, columns[] = {1, 31, 32, 33, 100};
    for (int round = 0; round < 75; round++) {
        struct columns_case c = {.columns = {.kind = (enum sy_math_columns_kind)(round % 3),
                                             .rows = rows[round / 3 % 5],
                                             .columns = columns[round / 15],
                                             .epsilon = 1e-3f,
                                             .a_type = kernel_float_type(),
                                             .x_type = kernel_float_type()}};
        struct sy_math_columns *m = &c.columns;
        bool norm = m->kind == SY_COLUMNS_NORM;
        int64_t n = m->rows * m->columns, parts = kernel_between(1, 20);
        c.a = kernel_random(m->a_type, n);
        c.x = norm ? kernel_random(m->x_type, n) : NULL;
        c.moments = norm ? kernel_random(SY_DTYPE_F32, 2 * m->columns) : NULL;
        for (int64_t k = 0; norm && k < m->columns; k++)
            kernel_put(c.moments, m->columns + k, 0.3 + kernel_uniform() * 0.2);
        c.out = kernel_tensor(SY_DTYPE_F32, (m->kind == SY_COLUMNS_SUM ? 1 : 2) * m->columns);
        c.scratch = kernel_tensor(SY_DTYPE_F64, 2 * parts * m->columns);
        c.scale = kernel_random(SY_DTYPE_F32, m->columns);
        c.dx = kernel_tensor(m->x_type, n);
        kernel_run(launch_columns, &c);
        check_columns(&c);
        if (norm)
            check_norm_gradient(&c);
        kernel_end(state);
    }
}

/* ---- losses and optimizers ---------------------------------------------------------------------------- */

struct loss_case {
    struct sy_math_loss loss;
    struct kernel_tensor *x, *wanted, *diff, *out, *scratch;
};

static int launch_loss(void *arg)
{
    struct loss_case *c = arg;
    return sy_kernel_loss(kernel_stream, &c->loss, c->x->device, c->wanted->device, c->diff->device,
                          c->out->device, c->scratch->device);
}

static double check_class_row(const struct loss_case *c, int64_t row)
{
    int64_t n = c->loss.columns, first = row * n, label = (int64_t)kernel_get(c->wanted, row);
    double sum = 0;
    for (int64_t i = 0; i < n && label >= 0; i++)
        sum += exp(kernel_get(c->x, first + i) - kernel_get(c->x, first + label));
    for (int64_t i = 0; i < n; i++)
        kernel_compare(
            c->diff, first + i,
            label < 0 ? 0
                      : (exp(kernel_get(c->x, first + i) - kernel_get(c->x, first + label)) / sum -
                         (i == label)) /
                            (double)c->loss.counted,
            1);
    return label < 0 ? 0 : log(sum) / (double)c->loss.counted;
}

static double check_element(const struct loss_case *c, int64_t i)
{
    double x = kernel_get(c->x, i), wanted = kernel_get(c->wanted, i), n = (double)c->x->n;
    double p = 1 / (1 + exp(-x));
    bool square = c->loss.kind == SY_MATH_SQUARE;
    kernel_compare(c->diff, i, (square ? 2 * (x - wanted) : p - wanted) / n, 1);
    return (square ? (x - wanted) * (x - wanted) : -(wanted * log(p) + (1 - wanted) * log(1 - p))) /
           n;
}

static void test_losses(void **state)
{
    static const int64_t columns[] = {1, 10, 255, 256, 300};
    for (int round = 0; round < ROUNDS; round++) {
        struct loss_case c = {
            .loss = {.rows = kernel_between(1, 300), .columns = columns[round % 5]}};
        bool classes = round % 3 == 0;
        int64_t n = c.loss.rows * c.loss.columns;
        double want = 0;
        c.loss.kind = classes ? SY_MATH_CLASSES : round % 3 == 1 ? SY_MATH_SQUARE : SY_MATH_LOGITS;
        c.x = kernel_random(SY_DTYPE_F32, n);
        c.wanted = kernel_tensor(classes ? SY_DTYPE_I32 : SY_DTYPE_F32, classes ? c.loss.rows : n);
        for (int64_t i = 0; i < c.wanted->n; i++) {
            int64_t label = kernel_between(-1, c.loss.columns - 1);
            kernel_put(c.wanted, i,
                       classes ? (double)(i == 0 ? 0 : label) : kernel_uniform() / 2 + 0.5);
            c.loss.counted += classes && kernel_get(c.wanted, i) >= 0;
        }
        c.diff = kernel_tensor(SY_DTYPE_F32, n);
        c.out = kernel_tensor(SY_DTYPE_F32, 1);
        c.scratch = kernel_tensor(SY_DTYPE_F64, c.loss.rows);
        kernel_run(launch_loss, &c);
        for (int64_t i = 0; i < (classes ? c.loss.rows : n); i++)
            want += classes ? check_class_row(&c, i) : check_element(&c, i);
        kernel_compare(c.out, 0, want, 1);
        kernel_end(state);
    }
}

struct update_case {
    struct sy_math_update update;
    struct kernel_tensor *w, *g, *m, *v, *norm;
};

static int launch_update(void *arg)
{
    struct update_case *c = arg;
    return sy_kernel_update(kernel_stream, &c->update, c->w->device, c->g->device, KERNEL_AT(c->m),
                            KERNEL_AT(c->v), KERNEL_AT(c->norm));
}

static void update_one(const struct sy_math_update *u, double scale, double *w, double g, double *m,
                       double *v)
{
    double d = scale * g + (double)u->rule.decay * *w, rate = (double)u->rule.rate;
    switch ((int)u->kind) {
    case SY_UPDATE_SUM:
        *w += g;
        break;
    case SY_UPDATE_STATISTIC:
        *w = (double)u->rule.momentum * *w + (double)u->rule.rest1 * g;
        break;
    case SY_UPDATE_ADAM:
        *m = (double)u->rule.beta1 * *m + (double)u->rule.rest1 * d;
        *v = (double)u->rule.beta2 * *v + (double)u->rule.rest2 * d * d;
        *w = (double)u->rule.shrink * *w -
             rate * *m / (sqrt(*v) * (double)u->rule.correct2 + (double)u->rule.epsilon);
        break;
    case SY_UPDATE_SGD:
        *w -= rate * d;
        break;
    default:
        *m = (double)u->rule.momentum * *m + d;
        *w -= rate * (u->kind == SY_UPDATE_MOMENTUM ? *m : d + (double)u->rule.momentum * *m);
    }
}

static void test_updates(void **state)
{
    static const int64_t sizes[] = {1, 255, 256, 700};
    for (int round = 0; round < 6 * 4 * 4; round++) {
        int clip = round / 24; /* 2: by a norm that is none, 3: by one near what is added to it */
        double unit = clip == 3 ? 1e-6 : 1;
        struct update_case c = {.update = {.n = sizes[round / 6 % 4],
                                           .rule = {.rate = 0.1f,
                                                    .momentum = 0.9f,
                                                    .decay = 0.01f,
                                                    .beta1 = 0.9f,
                                                    .beta2 = 0.99f,
                                                    .rest1 = 0.1f,
                                                    .rest2 = 0.01f,
                                                    .epsilon = 1e-3f,
                                                    .correct2 = 1.5f,
                                                    .shrink = 0.999f},
                                           .mean = 0.5,
                                           .limit = clip ? (float)unit : 0}};
        struct sy_math_update *u = &c.update;
        u->kind = (__typeof__(u->kind))(round % 6);
        bool plain = u->kind == SY_UPDATE_STATISTIC || u->kind == SY_UPDATE_SUM;
        c.w = kernel_random(SY_DTYPE_F32, u->n);
        c.g = kernel_random(SY_DTYPE_F32, u->n);
        c.m = kernel_random(SY_DTYPE_F32, u->n);
        c.v = kernel_random(SY_DTYPE_F32, u->n);
        c.norm = plain ? NULL : kernel_random(SY_DTYPE_F64, 1);
        if (!plain)
            kernel_put(c.norm, 0, clip == 2 ? NAN : 16 * unit * unit);
        double *want = zeros(3 * u->n), scale = clip ? 0.5 * unit / (2 * unit + 1e-6) : 0.5;
        for (int64_t i = 0; i < u->n; i++) {
            want[i] = kernel_get(c.w, i);
            kernel_put(c.v, i, fabs(kernel_get(c.v, i)));
            want[u->n + i] = kernel_get(c.m, i);
            want[2 * u->n + i] = kernel_get(c.v, i);
            if (plain || clip != 2)
                update_one(u, scale, &want[i], kernel_get(c.g, i), &want[u->n + i],
                           &want[2 * u->n + i]);
        }
        kernel_run(launch_update, &c);
        for (int64_t i = 0; i < u->n; i++) {
            kernel_compare(c.w, i, want[i], 2);
            kernel_compare(c.m, i, want[u->n + i], 2);
            kernel_compare(c.v, i, want[2 * u->n + i], 2);
        }
        free(want);
        kernel_end(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_pools, kernel_end),
        cmocka_unit_test_teardown(test_convolutions, kernel_end),
        cmocka_unit_test_teardown(test_columns, kernel_end),
        cmocka_unit_test_teardown(test_losses, kernel_end),
        cmocka_unit_test_teardown(test_updates, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The CUDA kernels of kernels_train_ops.h, run on the CPU. The formulas of one element are one text with the host's; what is looked at here is
 * which elements they are given, sums, and rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/cell_formulas.h"
#include "workers/cuda/kernels/kernels_train_ops.h"
#include "workers/engine/train_philox.h"

#define ROUNDS 40

static float float_at(const struct kernel_tensor *t, int64_t i)
{
    return (float)kernel_get(t, i);
}

/* ---- elements ---------------------------------------------------------------------------------------- */

struct curve_case {
    struct sy_math_curve curve;
    struct kernel_tensor *x, *y, *dy, *dx;
};

static int launch_curve(void *arg)
{
    struct curve_case *c = arg;
    int error = sy_kernel_curve(kernel_stream, &c->curve, c->x->device, c->y->device);
    return error ? error
                 : sy_kernel_curve_gradient(kernel_stream, &c->curve, c->x->device, c->y->device,
                                            c->dy->device, c->dx->device);
}

static void test_curves(void **state)
{
    static const enum sy_op ops[] = {SY_OP_RELU, SY_OP_ELU, SY_OP_SIGMOID, SY_OP_GELU, SY_OP_SIN};
    for (int64_t n = 0; n < 700; n += 1 + n / 2) {
        struct curve_case c = {.curve = {.of = {ops[n % 5], 0.5f, 1, false}, .n = n}};
        c.x = kernel_random(SY_DTYPE_F32, n);
        c.y = kernel_tensor(SY_DTYPE_F32, n);
        c.dy = kernel_random(SY_DTYPE_F32, n);
        c.dx = kernel_tensor(SY_DTYPE_F32, n);
        kernel_run(launch_curve, &c);
        for (int64_t i = 0; i < n; i++) {
            float x = float_at(c.x, i), y = sy_curve_of(&c.curve.of, x);
            kernel_compare(c.y, i, (double)y, 1);
            kernel_compare(c.dx, i, (double)(float_at(c.dy, i) * sy_curve_slope(&c.curve.of, x, y)),
                           4);
        }
        kernel_end(state);
    }
}

struct pair_case {
    struct sy_math_pair pair, comparison;
    struct kernel_tensor *a, *b, *y, *dy, *da, *db, *holds;
};

static int launch_pair(void *arg)
{
    struct pair_case *c = arg;
    const void *a = c->a->device, *b = c->b->device, *dy = c->dy->device;
    int errors = sy_kernel_pair(kernel_stream, &c->pair, 0, a, b, NULL, c->y->device);
    errors |= sy_kernel_pair(kernel_stream, &c->pair, 0, a, b, dy, c->da->device);
    errors |= sy_kernel_pair(kernel_stream, &c->pair, 1, a, b, dy, c->db->device);
    return errors | sy_kernel_compare(kernel_stream, &c->comparison, a, b, c->holds->device);
}

static void test_pairs(void **state)
{
    static const enum sy_op ops[] = {SY_OP_MUL, SY_OP_DIV, SY_OP_MAX, SY_OP_POW};
    for (int round = 0; round < ROUNDS; round++) {
        struct pair_case c = {.pair = {.op = ops[round % 4], .rank = (int)kernel_between(0, 4)}};
        struct sy_math_pair *p = &c.pair;
        for (int d = 0; d < p->rank; d++)
            p->dims[d] = kernel_between(round % 9 ? 1 : 0, 6);
        int64_t n = kernel_elements(p->rank, p->dims);
        c.a = kernel_random(SY_DTYPE_F32, kernel_broadcast(p->rank, p->dims, p->a_strides));
        c.b = kernel_random(SY_DTYPE_F32, kernel_broadcast(p->rank, p->dims, p->b_strides));
        for (int64_t i = 0; i < c.a->n; i++)
            kernel_put(c.a, i, fabs(kernel_get(c.a, i)) + 0.5);
        struct kernel_tensor **floats[] = {&c.y, &c.da, &c.db};
        for (int i = 0; i < 3; i++)
            *floats[i] = kernel_tensor(SY_DTYPE_F32, n);
        c.dy = kernel_random(SY_DTYPE_F32, n);
        c.holds = kernel_tensor(SY_DTYPE_BOOL, n);
        c.comparison = *p;
        c.comparison.op = round % 2 ? SY_OP_LESS : SY_OP_GREATER_OR_EQUAL;
        kernel_run(launch_pair, &c);
        for (int64_t i = 0; i < n; i++) {
            float a = float_at(c.a, kernel_offset(i, p->rank, p->dims, p->a_strides)),
                  b = float_at(c.b, kernel_offset(i, p->rank, p->dims, p->b_strides));
            float dy = float_at(c.dy, i);
            kernel_compare(c.y, i, (double)sy_pair_of(p->op, a, b), 1);
            kernel_compare(c.da, i, (double)(dy * sy_pair_slope(p->op, 0, a, b)), 4);
            kernel_compare(c.db, i, (double)(dy * sy_pair_slope(p->op, 1, a, b)), 4);
            assert_int_equal(kernel_get(c.holds, i), round % 2 ? a < b : a >= b);
        }
        kernel_end(state);
    }
}

struct drop_case {
    struct sy_math_drop drop;
    struct kernel_tensor *x, *y;
};

static int launch_drop(void *arg)
{
    struct drop_case *c = arg;
    return sy_kernel_drop(kernel_stream, &c->drop, c->x->device, c->y->device);
}

static void test_dropout(void **state)
{
    struct drop_case c = {.drop = {.seed = 5, .batch = 7, .node = 3, .ratio = 0.25f, .n = 5000}};
    int64_t n_dropped = 0;
    c.x = kernel_random(SY_DTYPE_F32, c.drop.n);
    c.y = kernel_tensor(SY_DTYPE_F32, c.drop.n);
    kernel_run(launch_drop, &c);
    for (int64_t i = 0; i < c.drop.n; i++) {
        bool dropped = sy_philox_element(5, 7, 3, (uint64_t)i) < 0x40000000u;
        kernel_compare(c.y, i, dropped ? 0 : kernel_get(c.x, i) / 0.75, 0);
        n_dropped += dropped;
    }
    assert_true(n_dropped > 1100 && n_dropped < 1400);
    kernel_end(state);
}

/* ---- rows -------------------------------------------------------------------------------------------- */

struct softmax_case {
    struct sy_math_softmax softmax;
    struct kernel_tensor *y, *dy, *dx;
};

static int launch_softmax(void *arg)
{
    struct softmax_case *c = arg;
    return sy_kernel_softmax_gradient(kernel_stream, &c->softmax, c->y->device, c->dy->device,
                                      c->dx->device);
}

static void test_softmax_gradient(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct softmax_case c = {.softmax = {.outer = kernel_between(0, 5),
                                             .extent = kernel_between(1, 600),
                                             .inner = round % 3 ? 1 : kernel_between(1, 5),
                                             .logarithm = round % 2}};
        const struct sy_math_softmax *s = &c.softmax;
        int64_t n = s->outer * s->extent * s->inner;
        c.y = kernel_random(SY_DTYPE_F32, n);
        c.dy = kernel_random(SY_DTYPE_F32, n);
        c.dx = kernel_tensor(SY_DTYPE_F32, n);
        kernel_run(launch_softmax, &c);
        for (int64_t k = 0; k < s->outer * s->inner; k++) {
            int64_t first = k / s->inner * s->extent * s->inner + k % s->inner;
            double sum = 0;
            for (int64_t i = first; i < first + s->extent * s->inner; i += s->inner)
                sum += kernel_get(c.dy, i) * (s->logarithm ? 1 : kernel_get(c.y, i));
            for (int64_t i = first; i < first + s->extent * s->inner; i += s->inner)
                kernel_compare(c.dx, i,
                               s->logarithm ? kernel_get(c.dy, i) - exp(kernel_get(c.y, i)) * sum
                                            : kernel_get(c.y, i) * (kernel_get(c.dy, i) - sum),
                               300);
        }
        kernel_end(state);
    }
}

struct rows_case {
    struct sy_math_rows rows;
    struct kernel_tensor *x, *g, *mean, *rate, *dx;
};

static int launch_rows(void *arg)
{
    struct rows_case *c = arg;
    int error = sy_kernel_row_moments(kernel_stream, &c->rows, c->x->device, c->mean->device,
                                      c->rate->device);
    return error ? error
                 : sy_kernel_row_gradient(kernel_stream, &c->rows, c->x->device, c->g->device,
                                          c->mean->device, c->rate->device, c->dx->device);
}

/* g: as it was before, if dx is it. */
static void check_row(const struct rows_case *c, const double *g, int64_t row)
{
    int64_t n = c->rows.columns, first = row * n;
    double mean = 0, variance = 0, of_g = 0, of_gx = 0;
    for (int64_t i = 0; i < n && !c->rows.is_rms; i++)
        mean += kernel_get(c->x, first + i) / (double)n;
    for (int64_t i = 0; i < n; i++)
        variance += pow(kernel_get(c->x, first + i) - mean, 2) / (double)n;
    double rate = 1 / sqrt(variance + (double)c->rows.epsilon);
    kernel_compare(c->mean, row, mean, 4);
    kernel_compare(c->rate, row, rate, 4);
    for (int64_t i = 0; i < n; i++) {
        of_g += c->rows.is_rms ? 0 : g[first + i] / (double)n;
        of_gx += g[first + i] * (kernel_get(c->x, first + i) - mean) * rate / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        kernel_compare(
            c->dx, first + i,
            rate * (g[first + i] - of_g - (kernel_get(c->x, first + i) - mean) * rate * of_gx),
            40 * rate);
}

static void test_rows(void **state)
{
    static const int64_t columns[] = {1, 2, 255, 256, 257, 600};
    for (int round = 0; round < ROUNDS; round++) {
        struct rows_case c = {.rows = {.rows = kernel_between(0, 5),
                                       .columns = columns[round % 6],
                                       .epsilon = 0.01f,
                                       .is_rms = round % 2}};
        int64_t n = c.rows.rows * c.rows.columns;
        double *g = calloc((size_t)n + 1, sizeof *g);
        c.x = kernel_random(SY_DTYPE_F32, n);
        c.g = kernel_random(SY_DTYPE_F32, n);
        c.mean = kernel_tensor(SY_DTYPE_F32, c.rows.rows);
        c.rate = kernel_tensor(SY_DTYPE_F32, c.rows.rows);
        c.dx = round % 3 ? kernel_tensor(SY_DTYPE_F32, n) : c.g;
        for (int64_t i = 0; i < n; i++)
            g[i] = kernel_get(c.g, i);
        kernel_run(launch_rows, &c);
        for (int64_t row = 0; row < c.rows.rows; row++)
            check_row(&c, g, row);
        free(g);
        kernel_end(state);
    }
}

/* ---- embeddings, reductions, norms ------------------------------------------------------------------- */

struct scatter_case {
    struct sy_math_gather gather;
    struct kernel_tensor *dy, *indices, *to;
};

static int launch_scatter(void *arg)
{
    struct scatter_case *c = arg;
    return sy_kernel_scatter(kernel_stream, &c->gather, c->dy->device, c->indices->device,
                             c->to->device);
}

static void test_scatter(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        int64_t inner = kernel_between(1, 40);
        struct scatter_case c = {.gather = {.outer = kernel_between(1, 3),
                                            .extent = kernel_between(1, 20),
                                            .n_indices = round % 7 ? kernel_between(1, 50) : 0,
                                            .inner_bytes = inner * 4,
                                            .wide = round % 2}};
        const struct sy_math_gather *g = &c.gather;
        c.dy = kernel_random(SY_DTYPE_F32, g->outer * g->n_indices * inner);
        c.indices = kernel_tensor(g->wide ? SY_DTYPE_I64 : SY_DTYPE_I32, g->n_indices);
        c.to = kernel_tensor(SY_DTYPE_F32, g->outer * g->extent * inner);
        double *want = calloc((size_t)c.to->n, sizeof *want);
        for (int64_t k = 0; k < g->n_indices; k++) { /* some are outside, and give nothing */
            int64_t row = kernel_between(-g->extent - 1, g->extent);
            kernel_put(c.indices, k, (double)row);
            row += row < 0 ? g->extent : 0;
            for (int64_t i = 0; i < g->outer * inner && row >= 0 && row < g->extent; i++)
                want[(i / inner * g->extent + row) * inner + i % inner] +=
                    kernel_get(c.dy, (i / inner * g->n_indices + k) * inner + i % inner);
        }
        kernel_run(launch_scatter, &c);
        for (int64_t i = 0; i < c.to->n; i++)
            kernel_compare(c.to, i, want[i], 20);
        free(want);
        kernel_end(state);
    }
}

struct fold_case {
    struct sy_train_reduction reduction;
    struct kernel_tensor *x, *y, *dy, *dx;
};

static int launch_fold(void *arg)
{
    struct fold_case *c = arg;
    int error = sy_kernel_train_reduction(kernel_stream, &c->reduction, c->x->device, c->y->device);
    return error ? error
                 : sy_kernel_train_reduction_gradient(kernel_stream, &c->reduction, c->x->device,
                                                      c->y->device, c->dy->device, c->dx->device);
}

/* [outer, middle, inner] over the middle. */
static void test_folds(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        int64_t outer = kernel_between(1, 20), middle = kernel_between(1, 30),
                inner = kernel_between(1, 20);
        struct fold_case c = {.reduction = {.op = round % 2 ? SY_OP_REDUCE_L2 : SY_OP_REDUCE_MAX,
                                            .n_kept = 2,
                                            .n_reduced = 1,
                                            .kept = {inner, outer},
                                            .kept_strides = {1, middle * inner},
                                            .reduced = {middle},
                                            .reduced_strides = {inner},
                                            .n_out = outer * inner,
                                            .n_each = middle}};
        c.x = kernel_random(SY_DTYPE_F32, outer * middle * inner);
        c.y = kernel_tensor(SY_DTYPE_F32, c.reduction.n_out);
        c.dy = kernel_random(SY_DTYPE_F32, c.reduction.n_out);
        c.dx = kernel_tensor(SY_DTYPE_F32, c.x->n);
        kernel_run(launch_fold, &c);
        for (int64_t o = 0; o < c.reduction.n_out; o++) {
            int64_t first = o / inner * middle * inner + o % inner;
            double most = -INFINITY, square = 0;
            for (int64_t i = first; i < first + middle * inner; i += inner) {
                most = fmax(most, kernel_get(c.x, i));
                square += kernel_get(c.x, i) * kernel_get(c.x, i);
            }
            double y = round % 2 ? sqrt(square) : most;
            kernel_compare(c.y, o, y, 1);
            for (int64_t i = first; i < first + middle * inner; i += inner) {
                double x = kernel_get(c.x, i);
                kernel_compare(c.dx, i, kernel_get(c.dy, o) * (round % 2 ? x / y : x == most), 2);
            }
        }
        kernel_end(state);
    }
}

struct square_case {
    struct kernel_tensor *x, *out, *scratch;
    bool adds;
};

static int launch_square_sum(void *arg)
{
    struct square_case *c = arg;
    return sy_kernel_square_sum(kernel_stream, c->x->n, c->x->device, c->adds, c->out->device,
                                c->scratch->device);
}

static void test_square_sums(void **state)
{
    for (int64_t n = 1; n < 400000; n = n * 5 + 1) {
        struct square_case c = {kernel_random(SY_DTYPE_F32, n), kernel_random(SY_DTYPE_F64, 1),
                                kernel_tensor(SY_DTYPE_F64, 1024), n % 2};
        double want = c.adds ? kernel_get(c.out, 0) : 0;
        for (int64_t i = 0; i < n; i++)
            want += kernel_get(c.x, i) * kernel_get(c.x, i);
        kernel_run(launch_square_sum, &c);
        assert_true(fabs(kernel_get(c.out, 0) - want) <= 1e-12 * (fabs(want) + 1));
        kernel_end(state);
    }
}

/* ---- cells ------------------------------------------------------------------------------------------- */

struct cell_case {
    struct sy_math_cell cell;
    struct kernel_tensor *roles[SY_CELL_ROLES];
};

static int launch_cell(void *arg)
{
    struct cell_case *c = arg;
    void *at[SY_CELL_ROLES];
    for (int i = 0; i < SY_CELL_ROLES; i++)
        at[i] = KERNEL_AT(c->roles[i]);
    return sy_kernel_cell(kernel_stream, &c->cell, at);
}

/* An LSTM's step by its definition: each unit of each sample once, those behind the end carried. */
static void test_cells(void **state)
{
    for (int64_t batch = 1; batch < 20; batch += 6)
        for (int64_t hidden = 1; hidden < 100; hidden = hidden * 3 + 1) {
            struct cell_case c = {
                .cell = {.op = SY_OP_LSTM, .time = 2, .batch = batch, .hidden = hidden}};
            c.cell.rules = (struct sy_cell_rules){{{SY_CELL_CURVE_SIGMOID, 0, 0},
                                                   {SY_CELL_CURVE_TANH, 0, 0},
                                                   {SY_CELL_CURVE_TANH, 0, 0}},
                                                  INFINITY,
                                                  false};
            enum sy_dtype narrow = kernel_float_type();
            int64_t n = batch * hidden;
            struct kernel_tensor **r = c.roles;
            r[SY_CELL_REC] = kernel_random(SY_DTYPE_F32, 4 * n);
            r[SY_CELL_G] = kernel_random(SY_DTYPE_F32, 4 * n);
            r[SY_CELL_LENGTHS] = kernel_random(SY_DTYPE_I32, batch);
            r[SY_CELL_H] = kernel_random(SY_DTYPE_F32, n);
            r[SY_CELL_C] = kernel_random(SY_DTYPE_F32, n);
            r[SY_CELL_EXTRA] = kernel_tensor(SY_DTYPE_F32, n);
            r[SY_CELL_H_NEW] = kernel_tensor(SY_DTYPE_F32, n);
            r[SY_CELL_Y] = kernel_tensor(SY_DTYPE_F32, n);
            if (sy_math_is_narrow(narrow)) {
                c.cell.narrow = narrow;
                r[SY_CELL_NARROW] = kernel_tensor(narrow, n);
            }
            double *sums = malloc((size_t)(4 * n) * sizeof *sums);
            for (int64_t i = 0; i < 4 * n; i++)
                sums[i] = kernel_get(r[SY_CELL_G], i) + kernel_get(r[SY_CELL_REC], i);
            kernel_run(launch_cell, &c);
            for (int64_t k = 0; k < n; k++) {
                const double *gate = sums + k / hidden * 4 * hidden + k % hidden;
                double before = kernel_get(r[SY_CELL_C], k),
                       after = before / (1 + exp(-gate[2 * hidden])) +
                               tanh(gate[3 * hidden]) / (1 + exp(-gate[0]));
                double h = tanh(after) / (1 + exp(-gate[hidden]));
                bool ended = kernel_get(r[SY_CELL_LENGTHS], k / hidden) <= 2;
                kernel_compare(r[SY_CELL_EXTRA], k, ended ? before : after, 2);
                kernel_compare(r[SY_CELL_H_NEW], k, ended ? kernel_get(r[SY_CELL_H], k) : h, 2);
                kernel_compare(r[SY_CELL_Y], k, ended ? 0 : h, 2);
                if (r[SY_CELL_NARROW])
                    kernel_compare(r[SY_CELL_NARROW], k, kernel_get(r[SY_CELL_H_NEW], k), 0);
            }
            free(sums);
            kernel_end(state);
        }
}

/* One number through a curve: RNN's step by ONNX's definitions. */
static void test_curves_of_cells(void **state)
{
    for (int curve = SY_CELL_CURVE_SIGMOID; curve <= SY_CELL_CURVE_SCALED_TANH; curve++)
        for (int clips = 0; clips < 2; clips++) {
            struct cell_case c = {.cell = {.op = SY_OP_RNN, .batch = 3, .hidden = 50}};
            c.cell.rules = (struct sy_cell_rules){
                {{(enum sy_cell_curve_kind)curve, 0.75f, -0.25f}}, clips ? 0.5f : INFINITY, false};
            c.roles[SY_CELL_G] = kernel_random(SY_DTYPE_F32, 150);
            c.roles[SY_CELL_H_NEW] = kernel_tensor(SY_DTYPE_F32, 150);
            double x[150];
            for (int i = 0; i < 150; i++) {
                kernel_put(c.roles[SY_CELL_G], i, 4 * kernel_uniform());
                x[i] = kernel_get(c.roles[SY_CELL_G], i);
                x[i] = clips ? fmax(-0.5, fmin(0.5, x[i])) : x[i];
            }
            kernel_run(launch_cell, &c);
            for (int i = 0; i < 150; i++) {
                const double want[] = {1 / (1 + exp(-x[i])),
                                       tanh(x[i]),
                                       fmax(0, x[i]),
                                       fmax(0, fmin(1, 0.75 * x[i] - 0.25)),
                                       x[i] / (1 + fabs(x[i])),
                                       log(1 + exp(x[i])),
                                       x[i] < 0 ? 0.75 * x[i] : x[i],
                                       x[i] > 0.75 ? x[i] : 0,
                                       x[i] < 0 ? 0.75 * (exp(x[i]) - 1) : x[i],
                                       0.75 * x[i] - 0.25,
                                       0.75 * tanh(-0.25 * x[i])};
                kernel_compare(c.roles[SY_CELL_H_NEW], i, want[curve], 2);
            }
            kernel_end(state);
        }
}

/* An LSTM's step with peepholes, whose forget gate is what the input gate leaves. */
static void test_peepholes(void **state)
{
    const int64_t batch = 4, hidden = 30, n = batch * hidden;
    struct cell_case c = {.cell = {.op = SY_OP_LSTM, .batch = batch, .hidden = hidden}};
    struct kernel_tensor **r = c.roles;
    double sums[4 * 120];
    c.cell.rules = (struct sy_cell_rules){
        {{SY_CELL_CURVE_SIGMOID, 0, 0}, {SY_CELL_CURVE_TANH, 0, 0}, {SY_CELL_CURVE_TANH, 0, 0}},
        INFINITY,
        true};
    r[SY_CELL_G] = kernel_random(SY_DTYPE_F32, 4 * n);
    r[SY_CELL_C] = kernel_random(SY_DTYPE_F32, n);
    r[SY_CELL_PEEPS] = kernel_random(SY_DTYPE_F32, 3 * hidden);
    r[SY_CELL_EXTRA] = kernel_tensor(SY_DTYPE_F32, n);
    r[SY_CELL_H_NEW] = kernel_tensor(SY_DTYPE_F32, n);
    for (int64_t i = 0; i < 4 * n; i++)
        sums[i] = kernel_get(r[SY_CELL_G], i);
    kernel_run(launch_cell, &c);
    for (int64_t k = 0; k < n; k++) {
        int64_t unit = k % hidden;
        const double *gate = sums + k / hidden * 4 * hidden + unit;
        double before = kernel_get(r[SY_CELL_C], k), peep[3];
        for (int i = 0; i < 3; i++)
            peep[i] = kernel_get(r[SY_CELL_PEEPS], i * hidden + unit);
        double in = 1 / (1 + exp(-gate[0] - peep[0] * before));
        double after = (1 - in) * before + in * tanh(gate[3 * hidden]);
        kernel_compare(r[SY_CELL_EXTRA], k, after, 2);
        kernel_compare(r[SY_CELL_H_NEW], k,
                       tanh(after) / (1 + exp(-gate[hidden] - peep[1] * after)), 2);
    }
    kernel_end(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_curves, kernel_end),
        cmocka_unit_test_teardown(test_pairs, kernel_end),
        cmocka_unit_test_teardown(test_dropout, kernel_end),
        cmocka_unit_test_teardown(test_softmax_gradient, kernel_end),
        cmocka_unit_test_teardown(test_rows, kernel_end),
        cmocka_unit_test_teardown(test_scatter, kernel_end),
        cmocka_unit_test_teardown(test_folds, kernel_end),
        cmocka_unit_test_teardown(test_square_sums, kernel_end),
        cmocka_unit_test_teardown(test_cells, kernel_end),
        cmocka_unit_test_teardown(test_curves_of_cells, kernel_end),
        cmocka_unit_test_teardown(test_peepholes, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* LSTM and GRU steps against their definition in double: random sizes, states, directions and numbers of threads. */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine_rig.h"
#include "workers/host/recurrence.h"

static uint64_t seed;

static float *numbers(int64_t n, float size)
{
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)gb_uniform(&seed, -size, size);
    return x;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

struct net {
    struct sy_recurrence r;
    const float *plain; /* [directions][gates * hidden][hidden] */
};

/* Sums of gate g, unit i: from the state only. */
static double from_state(const struct net *n, int64_t d, int64_t g, int64_t i, const double *h)
{
    const float *row = n->plain + ((d * n->r.gates + g) * n->r.hidden + i) * n->r.hidden;
    double sum = 0;
    for (int64_t k = 0; k < n->r.hidden; k++)
        sum += row[k] * h[k];
    return sum;
}

static void naive_step(const struct net *n, int64_t d, const float *x, double *h, double *c)
{
    int64_t size = n->r.hidden;
    double *next = calloc((size_t)size, sizeof *next), gate[4];
    for (int64_t i = 0; i < size; i++) {
        for (int64_t g = 0; g < n->r.gates; g++)
            gate[g] = from_state(n, d, g, i, h);
        if (n->r.gates == 4) {
            c[i] = sigmoid(gate[2] + x[2 * size + i]) * c[i] +
                   sigmoid(gate[0] + x[i]) * tanh(gate[3] + x[3 * size + i]);
            next[i] = sigmoid(gate[1] + x[size + i]) * tanh(c[i]);
        } else {
            double update = sigmoid(gate[0] + x[i]), reset = sigmoid(gate[1] + x[size + i]);
            double late = n->r.late_bias ? n->r.late_bias[d * size + i] : 0;
            next[i] =
                (1 - update) * tanh(x[2 * size + i] + reset * (gate[2] + late)) + update * h[i];
        }
    }
    memcpy(h, next, (size_t)size * sizeof *h);
    free(next);
}

static void check_sequence(const struct net *n, int64_t d, int64_t b)
{
    const struct sy_recurrence *r = &n->r;
    int64_t row = d * r->batch + b;
    double *h = calloc((size_t)r->hidden, sizeof *h), *c = calloc((size_t)r->hidden, sizeof *c);
    for (int64_t i = 0; i < r->hidden; i++) {
        h[i] = r->h0 ? r->h0[row * r->hidden + i] : 0;
        c[i] = r->c0 ? r->c0[row * r->hidden + i] : 0;
    }
    for (int64_t s = 0; s < r->steps; s++) {
        int64_t t = d == 1 || r->first_is_reverse ? r->steps - 1 - s : s;
        naive_step(n, d,
                   r->from_x + ((t * r->batch + b) * r->directions + d) * r->gates * r->hidden, h,
                   c);
        const float *y = r->y + ((t * r->directions + d) * r->batch + b) * r->hidden;
        for (int64_t i = 0; i < r->hidden; i++)
            assert_true(fabs(y[i] - h[i]) <= 1e-5);
    }
    for (int64_t i = 0; i < r->hidden; i++) {
        assert_true(fabs(r->last_h[row * r->hidden + i] - h[i]) <= 1e-5);
        if (r->gates == 4)
            assert_true(fabs(r->cell[row * r->hidden + i] - c[i]) <= 1e-5 + 1e-5 * fabs(c[i]));
    }
    free(h);
    free(c);
}

static void one_net(int64_t gates)
{
    struct sy_recurrence r = {.gates = gates,
                              .steps = rig_int(&seed, 1, 7),
                              .batch = rig_int(&seed, 1, 9),
                              .hidden = rig_int(&seed, 1, 70),
                              .directions = rig_int(&seed, 1, 2)};
    r.first_is_reverse = r.directions == 1 && rig_int(&seed, 0, 1);
    int64_t state = r.directions * r.batch * r.hidden;
    int64_t packed = sy_recurrence_packed(r.directions, gates, r.hidden);
    bool given = rig_int(&seed, 0, 1);
    float *x = numbers(r.steps * r.batch * r.directions * gates * r.hidden, 3),
          *plain = numbers(r.directions * gates * r.hidden * r.hidden, 0.5f),
          *weights = numbers(packed, 1), *late = numbers(r.directions * r.hidden, 1),
          *h0 = numbers(state, 1), *c0 = numbers(state, 2), *y = numbers(r.steps * state, 1),
          *last = numbers(state, 1), *cell = numbers(state, 1),
          *again = numbers(r.steps * state, 1);
    sy_recurrence_pack(r.directions, gates, r.hidden, plain, weights);
    r.from_x = x;
    r.weights = weights;
    r.late_bias = gates == 3 && given ? late : NULL;
    r.h0 = given ? h0 : NULL;
    r.c0 = given ? c0 : NULL;
    r.y = y;
    r.last_h = last;
    r.cell = cell;
    struct net net = {.r = r, .plain = plain};
    omp_set_num_threads((int)rig_int(&seed, 1, 4));
    sy_recurrence_run(&r);
    for (int64_t d = 0; d < r.directions; d++)
        for (int64_t b = 0; b < r.batch; b++)
            check_sequence(&net, d, b);
    omp_set_num_threads(1);
    r.y = again;
    sy_recurrence_run(&r);
    assert_memory_equal(y, again, (size_t)(r.steps * state) * sizeof *y);
    float *all[] = {x, plain, weights, late, h0, c0, y, last, cell, again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void test_lstm(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++)
        one_net(4);
}

static void test_gru(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++)
        one_net(3);
}

/* Far outside where e^x is finite the curves are flat, and not a number stays one. */
static void test_extremes(void **state)
{
    (void)state;
    float x[] = {1000, 1000, -1000, 1000}, weights[SY_RECURRENCE_UNITS * 4] = {0}, y, cell;
    struct sy_recurrence r = {.gates = 4,
                              .steps = 1,
                              .batch = 1,
                              .hidden = 1,
                              .directions = 1,
                              .from_x = x,
                              .weights = weights,
                              .y = &y,
                              .cell = &cell};
    sy_recurrence_run(&r);
    assert_true(fabs((double)cell - 1) < 1e-6 && fabs((double)y - tanh(1)) < 1e-6);
    x[3] = NAN;
    sy_recurrence_run(&r);
    assert_true(isnan(y));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lstm), cmocka_unit_test(test_gru),
                                       cmocka_unit_test(test_extremes)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

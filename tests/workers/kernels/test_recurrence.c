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

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/products/recurrence.h"
#include "workers/host/reference/kernel.h"

#ifdef SY_SANITIZED
#define N_NETS 8
#else
#define N_NETS 60
#endif

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
    double error;       /* of a state, each step */
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
            assert_true(fabs(y[i] - h[i]) <= n->error);
    }
    for (int64_t i = 0; i < r->hidden; i++) {
        assert_true(fabs(r->last_h[row * r->hidden + i] - h[i]) <= n->error);
        if (r->gates == 4)
            assert_true(fabs(r->cell[row * r->hidden + i] - c[i]) <= n->error * (1 + fabs(c[i])));
    }
    free(h);
    free(c);
}

/* To bf16 and back, ties to even. */
static uint16_t rounded(float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16;
    memcpy(x, &bits, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void round_weights(struct sy_recurrence *r, float *plain, float *weights)
{
    int64_t packed = sy_recurrence_packed(r->directions, r->gates, r->hidden, r->units, true);
    uint16_t *to = (uint16_t *)weights; /* over what has been read */
    for (int64_t i = 0; i < r->directions * r->gates * r->hidden * r->hidden; i++)
        rounded(&plain[i]);
    for (int64_t i = 0; i < packed; i++) {
        float x = weights[i];
        uint16_t bits = rounded(&x);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static void one_net(int64_t gates, bool narrow, int64_t hidden, int64_t directions)
{
    struct sy_recurrence r = {.gates = gates,
                              .steps = rig_int(&seed, 1, 7),
                              .batch = rig_int(&seed, 1, 9),
                              .hidden = hidden,
                              .directions = directions};
    r.first_is_reverse = r.directions == 1 && rig_int(&seed, 0, 1);
    int64_t state = r.directions * r.batch * r.hidden;
    bool wide = narrow || (__builtin_cpu_supports("avx512f") && rig_int(&seed, 0, 1));
    r.units = wide ? SY_RECURRENCE_MOST_UNITS : SY_RECURRENCE_UNITS;
    int64_t packed = sy_recurrence_packed(r.directions, gates, r.hidden, r.units, narrow);
    bool given = rig_int(&seed, 0, 1);
    float *x = numbers(r.steps * r.batch * r.directions * gates * r.hidden, 3),
          *plain = numbers(r.directions * gates * r.hidden * r.hidden, hidden > 70 ? 0.1f : 0.5f),
          *weights = numbers(packed, 1), *late = numbers(r.directions * r.hidden, 1),
          *h0 = numbers(state, 1), *c0 = numbers(state, 2), *y = numbers(r.steps * state, 1),
          *last = numbers(state, 1), *cell = numbers(state, 1),
          *again = numbers(r.steps * state, 1);
    r.narrow = narrow;
    float *states = numbers(sy_recurrence_narrow_states(r.directions, r.batch, r.hidden), 1);
    r.narrow_states = (uint16_t *)states;
    sy_recurrence_pack(r.directions, gates, r.hidden, r.units, narrow, plain, weights);
    if (narrow)
        round_weights(&r, plain, weights);
    r.from_x = x;
    r.weights = weights;
    r.late_bias = gates == 3 && given ? late : NULL;
    r.h0 = given ? h0 : NULL;
    r.c0 = given ? c0 : NULL;
    r.y = y;
    r.last_h = last;
    r.cell = cell;
    struct net net = {.r = r, .plain = plain, .error = narrow ? 0.03 : 1e-5};
    omp_set_num_threads((int)rig_int(&seed, 1, 4));
    sy_recurrence_run(&r);
    for (int64_t d = 0; d < r.directions; d++)
        for (int64_t b = 0; b < r.batch; b++)
            check_sequence(&net, d, b);
    omp_set_num_threads(1);
    r.y = again;
    sy_recurrence_run(&r);
    assert_memory_equal(y, again, (size_t)(r.steps * state) * sizeof *y);
    float *all[] = {x, plain, weights, late, h0, c0, y, last, cell, again, states};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void small_net(int64_t gates, bool narrow)
{
    int64_t hidden = rig_int(&seed, 1, 70);
    one_net(gates, narrow, hidden, rig_int(&seed, 1, 2));
}

static void test_lstm(void **state)
{
    (void)state;
    for (int i = 0; i < N_NETS; i++)
        small_net(4, false);
}

static void test_gru(void **state)
{
    (void)state;
    for (int i = 0; i < N_NETS; i++)
        small_net(3, false);
}

/* Rounding the state makes errors of 1/512 of it, which the steps carry on. */
static void test_narrow(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512bf16"))
        skip();
    for (int i = 0; i < N_NETS; i++)
        small_net(i % 2 ? 4 : 3, true);
}

/* Threads then share each direction in turn. */
static void test_two_directions_of_many_weights(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++)
        one_net(i % 2 ? 4 : 3, false, rig_int(&seed, 250, 330), 2);
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
                              .units = SY_RECURRENCE_UNITS,
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

/* A tensor without elements may have a dimension of any size: it is not walked. */
static void test_many_steps_of_no_sequence(void **state)
{
    (void)state;
    float weights[12] = {0};
    struct sy_attr hidden = {.name = "hidden_size", .kind = SY_ATTR_INT, .i = 1};
    struct sy_node node = {.op = SY_OP_RNN, .name = (char *)"rnn", .attrs = &hidden, .n_attrs = 1};
    struct sy_call call = {.node = &node, .n_in = 3, .n_out = 1, .scratch = weights};
    call.in[0] = (struct sy_array){SY_DTYPE_F32, 3, {INT64_C(1) << 40, 0, 2}, 0, weights};
    call.in[1] = (struct sy_array){SY_DTYPE_F32, 3, {1, 1, 2}, 2, weights};
    call.in[2] = (struct sy_array){SY_DTYPE_F32, 3, {1, 1, 1}, 1, weights};
    call.out[0] = (struct sy_array){SY_DTYPE_F32, 4, {INT64_C(1) << 40, 1, 0, 1}, 0, weights};
    const struct sy_kernel *kernel = sy_kernel_find(SY_OP_RNN);
    assert_int_equal(kernel->check(&call), SY_OK);
    assert_int_equal(kernel->run(&call), SY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lstm),
                                       cmocka_unit_test(test_gru),
                                       cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_two_directions_of_many_weights),
                                       cmocka_unit_test(test_many_steps_of_no_sequence),
                                       cmocka_unit_test(test_extremes)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

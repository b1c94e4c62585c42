/* Softmax, reductions and ArgMax of short rows (softmax_rows.h, reduce_rows.h): against the definition, and the same bits wherever a row stands. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/rigs/seed.h"
#include "workers/host/rows/reduce_rows.h"
#include "workers/host/rows/softmax_rows.h"

enum { MOST_COLUMNS = 70, MOST_ROWS = 70 };

static float in[MOST_ROWS * MOST_COLUMNS], out[MOST_ROWS * MOST_COLUMNS], alone[MOST_COLUMNS];

static void fill(uint64_t *seed, int64_t n)
{
    static const float rare[] = {INFINITY, -INFINITY, NAN, 0, -0.0f, 500, -500};
    for (int64_t i = 0; i < n; i++)
        in[i] = seed_below(seed, 40) == 0 ? rare[seed_below(seed, 7)]
                                          : (float)seed_below(seed, 7) - 3.25f;
}

static double softmax_at(bool logarithm, const float *x, int64_t n, int64_t i)
{
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        top = isnan(x[k]) || isnan(top) ? NAN : fmax(top, (double)x[k]);
    for (int64_t k = 0; k < n; k++)
        sum += exp((double)x[k] - top);
    return logarithm ? (double)x[i] - top - log(sum) : exp((double)x[i] - top) / sum;
}

/* Which NaN it is aside. */
static bool same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static void check_softmax(bool logarithm, int64_t rows, int64_t n)
{
    struct sy_reduce_shape s = {rows, n, 1}, one = {1, n, 1};
    sy_softmax_rows(logarithm, &s, in, out);
    for (int64_t row = 0; row < rows; row++) {
        sy_softmax_rows(logarithm, &one, in + row * n, alone);
        for (int64_t i = 0; i < n; i++) {
            assert_true(same_bits(alone[i], out[row * n + i]));
            double want = softmax_at(logarithm, in + row * n, n, i), got = (double)alone[i];
            if (isnan(want) ? !isnan(got)
                            : got != want && !(fabs(got - want) <= 1e-6 + 1e-6 * fabs(want)))
                fail_msg("row of %lld: element %lld is %g, not %g", (long long)n, (long long)i, got,
                         want);
        }
    }
}

static void softmax_is_its_definition(void **state)
{
    uint64_t seed = seed_of_run(1);
    (void)state;
    for (int64_t n = 1; n <= MOST_COLUMNS; n++)
        for (int64_t rows = 1; rows <= MOST_ROWS; rows += 1 + (int64_t)seed_below(&seed, 9)) {
            fill(&seed, rows * n);
            check_softmax(false, rows, n);
            check_softmax(true, rows, n);
        }
}

static double join(enum sy_op op, double a, double x)
{
    switch (op) {
    case SY_OP_REDUCE_MAX:
        return isnan(a) || isnan(x) ? NAN : fmax(a, x);
    case SY_OP_REDUCE_MIN:
        return isnan(a) || isnan(x) ? NAN : fmin(a, x);
    case SY_OP_REDUCE_PROD:
        return a * x;
    case SY_OP_REDUCE_L1:
        return a + fabs(x);
    case SY_OP_REDUCE_L2:
    case SY_OP_REDUCE_SUM_SQUARE:
        return a + x * x;
    default:
        return a + x;
    }
}

static double reduced(enum sy_op op, const float *x, int64_t n)
{
    double a = op == SY_OP_REDUCE_MAX    ? -INFINITY
               : op == SY_OP_REDUCE_MIN  ? INFINITY
               : op == SY_OP_REDUCE_PROD ? 1
                                         : 0;
    for (int64_t i = 0; i < n; i++)
        a = join(op, a, (double)x[i]);
    return op == SY_OP_REDUCE_MEAN ? a / (double)n : op == SY_OP_REDUCE_L2 ? sqrt(a) : a;
}

static void check_reduction(enum sy_op op, int64_t rows, int64_t n)
{
    struct sy_reduce_shape s = {rows, n, 1}, one = {1, n, 1};
    sy_reduce_rows(op, &s, in, out);
    for (int64_t row = 0; row < rows; row++) {
        double want = reduced(op, in + row * n, n), got = (double)out[row];
        sy_reduce_rows(op, &one, in + row * n, alone);
        assert_true(same_bits(alone[0], out[row]));
        if (isnan(want) ? !isnan(got)
                        : got != want && !(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
            fail_msg("operator %d, row %lld of %lld: %g, not %g", (int)op, (long long)row,
                     (long long)n, got, want);
    }
}

static void reductions_are_their_definition(void **state)
{
    static const enum sy_op ops[] = {SY_OP_REDUCE_MAX, SY_OP_REDUCE_MIN,       SY_OP_REDUCE_SUM,
                                     SY_OP_REDUCE_L1,  SY_OP_REDUCE_MEAN,      SY_OP_REDUCE_PROD,
                                     SY_OP_REDUCE_L2,  SY_OP_REDUCE_SUM_SQUARE};
    uint64_t seed = seed_of_run(3);
    (void)state;
    for (int64_t n = 1; n <= MOST_COLUMNS; n++)
        for (int64_t rows = 1; rows <= MOST_ROWS; rows += 1 + (int64_t)seed_below(&seed, 9))
            for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
                fill(&seed, rows * n);
                check_reduction(ops[k], rows, n);
            }
}

/* In place, as a program may run it. */
static void softmax_writes_over_its_input(void **state)
{
    uint64_t seed = seed_of_run(2);
    struct sy_reduce_shape s = {37, 5, 1};
    (void)state;
    fill(&seed, 37 * 5);
    sy_softmax_rows(false, &s, in, out);
    sy_softmax_rows(false, &s, in, in);
    for (int i = 0; i < 37 * 5; i++)
        assert_true(same_bits(in[i], out[i]));
}

/* The first place, or the last one, whose number is larger (smaller) than all before it; one that is NaN is larger than none. */
static int64_t place_of(bool smallest, bool last, const float *x, int64_t n)
{
    int64_t place = 0;
    for (int64_t i = 1; i < n; i++)
        if ((smallest ? x[i] < x[place] : x[i] > x[place]) || (last && x[i] == x[place]))
            place = i;
    return place;
}

static void places_are_those_of_a_scan(void **state)
{
    uint64_t seed = seed_of_run(3);
    int64_t places[MOST_ROWS];
    (void)state;
    for (int64_t n = 1; n <= MOST_COLUMNS; n++)
        for (int how = 0; how < 4; how++) {
            struct sy_reduce_shape s = {MOST_ROWS, n, 1};
            fill(&seed, MOST_ROWS * n);
            sy_arg_rows(how & 1, how & 2, &s, in, places);
            for (int64_t row = 0; row < MOST_ROWS; row++)
                assert_int_equal(places[row], place_of(how & 1, how & 2, in + row * n, n));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_is_its_definition),
        cmocka_unit_test(softmax_writes_over_its_input),
        cmocka_unit_test(reductions_are_their_definition),
        cmocka_unit_test(places_are_those_of_a_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

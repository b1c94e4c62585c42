/* Slow-downs of pairs: what is observed is predicted, and from few pairs all others, where the world is as the model says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>

#include "runtime/base/assert.h"
#include "runtime/sched/interference.h"
#include "tests/rigs/seed.h"

#define N 12

static uint64_t seed;
static struct sy_interference i;

static double part(void)
{
    return (double)seed_below(&seed, 1000) / 1000;
}

static void test_unknown_is_no_slow_down(void **state)
{
    (void)state;
    sy_interference_start(&i);
    assert_true(sy_interference_predict(&i, 3, 4) == 1.0);
    assert_null(sy_interference_find(&i, 3, 4));
    sy_interference_observe(&i, 3, 4, 0.0);
    sy_interference_observe(&i, 3, 4, NAN);
    sy_interference_observe(&i, 3, 4, 1e9);
    assert_null(sy_interference_find(&i, 3, 4));
    sy_interference_observe(&i, 3, 4, 0.9);
    assert_true(sy_interference_predict(&i, 3, 4) == 1.0); /* nobody gets faster by company */
    assert_true(sy_interference_predict(&i, 4, 3) == 1.0);
}

static void test_a_pair_is_what_it_was(void **state)
{
    (void)state;
    sy_interference_start(&i);
    for (int k = 0; k < 100; k++)
        sy_interference_observe(&i, 1, 2, 1.3 + 0.02 * (k % 2));
    assert_true(fabs(sy_interference_predict(&i, 1, 2) - 1.31) < 0.02);
    for (int k = 0; k < 40; k++)
        sy_interference_observe(&i, 1, 2, 2.0);
    assert_true(fabs(sy_interference_predict(&i, 1, 2) - 2.0) < 0.02);
    sy_interference_forget(&i, 2);
    assert_null(sy_interference_find(&i, 1, 2));
    assert_true(sy_interference_predict(&i, 1, 2) == 1.0);
}

/* All but one pair of each task, in a full table. */
static void test_a_pair_that_was_never_measured(void **state)
{
    double sensitivity[N], pressure[N];
    (void)state;
    sy_interference_start(&i);
    for (int t = 0; t < N; t++) {
        sensitivity[t] = 0.2 + part();
        pressure[t] = 0.2 + part();
    }
    for (int round = 0; round < 400; round++)
        for (int a = 0; a < N; a++)
            for (int b = 0; b < N; b++)
                if (b != (a + 1) % N)
                    sy_interference_observe(&i, a, b, 1 + sensitivity[a] * pressure[b]);
    for (int a = 0; a < N; a++) {
        int b = (a + 1) % N;
        double real = 1 + sensitivity[a] * pressure[b];
        assert_null(sy_interference_find(&i, a, b));
        assert_true(fabs(sy_interference_predict(&i, a, b) - real) / real < 0.05);
    }
}

static void test_the_table_is_bounded(void **state)
{
    (void)state;
    sy_interference_start(&i);
    for (int k = 0; k < 2000; k++)
        sy_interference_observe(&i, k % SY_INTERFERENCE_TASKS, (k / 7) % SY_INTERFERENCE_TASKS,
                                1.5);
    assert_non_null(
        sy_interference_find(&i, 1999 % SY_INTERFERENCE_TASKS, (1999 / 7) % SY_INTERFERENCE_TASKS));
    assert_null(sy_interference_find(&i, 0, 0));
}

/* What disturbs single runs is not the pair's. */
static void test_outliers_do_not_count(void **state)
{
    (void)state;
    sy_interference_start(&i);
    for (int k = 0; k < 200; k++)
        sy_interference_observe(&i, 1, 2, k % 5 == 4 ? 3.0 : 1.2 + part() / 100);
    assert_true(fabs(sy_interference_predict(&i, 1, 2) - 1.205) < 0.01);
    assert_true(sy_interference_find(&i, 1, 2)->next_error < 0.05);
    assert_true(fabs(sy_interference_find(&i, 1, 2)->first_error - 0.205 / 1.205) < 0.02);
}

/* Half of the tasks are observed beside each other; of the others the solo profiles are known only. */
static void test_profiles_tell_of_tasks_that_were_never_observed(void **state)
{
    double traffic[N];
    (void)state;
    sy_interference_start(&i);
    for (int t = 0; t < N; t++) {
        traffic[t] = 0.5 + 10 * part();
        sy_interference_profile(&i, t, traffic[t]);
    }
    sy_interference_profile(&i, 0, NAN);
    sy_interference_profile(&i, 0, -1);
    assert_true(sy_interference_predict(&i, 6, 7) == 1.0);
    for (int a = 0; a < N / 2; a++)
        for (int b = 0; b < N / 2; b++)
            for (int k = 0; k < 16; k++)
                sy_interference_observe(
                    &i, a, b, (1 + 0.01 * traffic[a] * traffic[b]) * (1.02 - 0.04 * part()));
    for (int a = N / 2; a < N; a++)
        for (int b = N / 2; b < N; b++) {
            double real = 1 + 0.01 * traffic[a] * traffic[b];
            assert_true(fabs(sy_interference_predict(&i, a, b) - real) / real < 0.05);
        }
    sy_interference_forget(&i, 6);
    assert_true(sy_interference_predict(&i, 6, 7) == 1.0);
}

/* ---- no worse than predicting nothing ------------------------------------------------------------------------ */

/* A world: what a pair's block is, whatever was before. */
static double world(int kind, int a, int b, int n)
{
    switch (kind) {
    case 0: /* noise about 1, both ways */
        return 0.7 + 0.6 * part();
    case 1: /* alone was measured too high */
        return 0.7 * (1 + 0.05 * part());
    case 2: /* each pair its own, in no relation to profiles */
        return 1 + 2 * (double)((a * 7919 + b * 104729) % 97) / 97;
    case 3: /* what was learned is wrong every time */
        return n % 2 ? 1.0 : 2.5;
    default: /* as profiles say, for a while */
        return a < 8 ? 1 + 0.1 * a * b : 1.0;
    }
}

static void test_it_loses_little_against_predicting_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        double first = 0, none_first = 0;
        int n_pairs = 0;
        sy_interference_start(&i);
        for (int t = 0; t < 20; t++)
            sy_interference_profile(&i, t, 0.5 + 10 * part());
        for (int k = 0; k < 200; k++) {
            int a = k / 20, b = 10 + k % 20, n_blocks = 1 + (int)seed_below(&seed, 6);
            double next = 0, none = 0, most = 0;
            for (int block = 0; block < n_blocks; block++) {
                double is = world(kind, a, b, block + k), predicted;
                for (int run = 0; run < SY_INTERFERENCE_BLOCK; run++)
                    sy_interference_observe(&i, a, b, is);
                predicted = sy_interference_find(&i, a, b)->block_predicted;
                next += block ? fabs(predicted - is) / is : 0;
                none += block ? fabs(1 - is) / is : 0;
                most = SY_MAX(most, fabs(predicted - 1) / is);
            }
            const struct sy_interference_pair *p = sy_interference_find(&i, a, b);
            assert_true(next <= none + 0.2 + 0.01 * n_blocks + most + 1e-5);
            first += p->first_error;
            none_first += p->none_first;
            n_pairs++;
            assert_true(first <= none_first + 0.2 + 0.01 * n_pairs +
                                     1.5); /* at most 2.5 is predicted of 1 */
        }
        print_message("world %d: first predictions %.3f off, predicting nothing %.3f\n", kind,
                      first / n_pairs, none_first / n_pairs);
    }
}

/* Two numbers a task explain as many pairs exactly, and tell nothing of another. */
static void test_few_pairs_are_no_evidence(void **state)
{
    (void)state;
    sy_interference_start(&i);
    for (int k = 0; k < 64; k++) {
        sy_interference_observe(&i, 1, 2, 3.0);
        sy_interference_observe(&i, 1, 3, 1.0);
        sy_interference_observe(&i, 4, 3, 1.0);
    }
    assert_true(sy_interference_predict(&i, 4, 2) < 1.5);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_is_no_slow_down),
        cmocka_unit_test(test_a_pair_is_what_it_was),
        cmocka_unit_test(test_a_pair_that_was_never_measured),
        cmocka_unit_test(test_the_table_is_bounded),
        cmocka_unit_test(test_outliers_do_not_count),
        cmocka_unit_test(test_profiles_tell_of_tasks_that_were_never_observed),
        cmocka_unit_test(test_it_loses_little_against_predicting_nothing),
        cmocka_unit_test(test_few_pairs_are_no_evidence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What opportunistic work may have: the job that is promised its speed keeps it, over any stretch, and all that it can spare is given. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/sched/fill.h"
#include "tests/rigs/seed.h"

#define KEEP 0.97

static uint64_t seed;

/* A world in which a step takes 1 alone and 1 / ratio beside; opportunistic work overruns its windows by some. Returns the job's speed over all of it. */
static double run(struct sy_fill *f, int n, double ratio, double overrun, double *had_all)
{
    double done = 0, had = 0;
    bool may = sy_fill_next(f, KEEP, 0);
    *had_all = 0;
    for (int i = 0; i < n; i++) {
        had = may ? 1 : had == 1 ? overrun : 0;
        double step = 1 + (double)seed_below(&seed, 100) / 5000 - 0.01;
        if (had == 1)
            sy_fill_observe(f, true, step / ratio);
        else if (had == 0)
            sy_fill_observe(f, false, step);
        done += had * ratio + (1 - had);
        *had_all += had;
        may = sy_fill_next(f, KEEP, had);
    }
    *had_all /= n;
    return done / n;
}

static void test_production_keeps_its_part(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct sy_fill f;
        double had, ratio = 0.3 + (double)seed_below(&seed, 66) / 100;
        sy_fill_start(&f);
        double speed = run(&f, 4000, ratio, 0, &had);
        assert_true(speed >= KEEP - 0.004);
        assert_true(had >= 0.8 * (1 - KEEP) / (1 - ratio)); /* and no more is kept back */
    }
}

static void test_an_overrun_is_repaid(void **state)
{
    struct sy_fill f;
    double had;
    (void)state;
    sy_fill_start(&f);
    assert_true(run(&f, 4000, 0.6, 0.5, &had) >= KEEP - 0.004);
    assert_true(had > 0.05);
}

static void test_what_does_not_disturb_has_nearly_all(void **state)
{
    struct sy_fill f;
    double had;
    (void)state;
    sy_fill_start(&f);
    (void)run(&f, 1000, 1.0, 0, &had);
    assert_true(had > 0.9 && had < 1); /* now and then the job is measured alone */
    assert_true(sy_fill_part(&f, KEEP) == 1);
}

/* The first windows are alone; a change of the world is followed. */
static void test_it_learns(void **state)
{
    struct sy_fill f;
    double had;
    (void)state;
    sy_fill_start(&f);
    assert_false(sy_fill_next(&f, KEEP, 0));
    assert_true(sy_fill_part(&f, KEEP) == 0);
    sy_fill_observe(&f, true, NAN);
    sy_fill_observe(&f, false, 0);
    assert_int_equal(f.n_alone + f.n_beside, 0);
    assert_true(sy_fill_next(&f, 0, 0)); /* nothing is promised */
    (void)run(&f, 500, 1.0, 0, &had);
    (void)run(&f, 500, 0.5, 0, &had);
    assert_true(run(&f, 2000, 0.5, 0, &had) >= KEEP - 0.004);
    assert_true(fabs(sy_fill_ratio(&f) - 0.5) < 0.03);
    (void)run(&f, 4000, 1.0, 0, &had);
    assert_true(sy_fill_part(&f, KEEP) == 1);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_production_keeps_its_part),
        cmocka_unit_test(test_an_overrun_is_repaid),
        cmocka_unit_test(test_what_does_not_disturb_has_nearly_all),
        cmocka_unit_test(test_it_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Predicted swaps against closed forms, and against rules that any prediction must keep. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/doctor/swap_forecast.h"
#include "tests/rigs/seed.h"

static struct sy_doctor_facts machine(bool unified, double storage_gbps, double link_gbps)
{
    struct sy_doctor_facts f;
    sy_doctor_facts_init(&f);
    f.device_unified = unified;
    f.storage_gbps = storage_gbps;
    f.link_gbps = link_gbps;
    f.link_alpha_us = f.link_sigma_us = f.link_lost_ns_per_byte = 0;
    return f;
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 + 1e-9 * fabs(b)))
        fail_msg("%.9g, not %.9g", a, b);
}

static void bytes_alone_take_what_the_slower_stage_takes(void **state)
{
    (void)state;
    struct sy_doctor_facts host = machine(true, 1.5, 20), gpu = machine(false, 1.5, 12);
    struct sy_swap_forecast swap;
    sy_swap_forecast_bytes(&host, 240000000, &swap);
    assert_near(swap.storage_ms, 160);
    assert_near(swap.link_ms, 0);
    assert_near(swap.cold_ms, 160);
    assert_near(swap.warm_ms, 0);
    assert_int_equal(swap.cold_bound, SY_BOUND_STORAGE);
    sy_swap_forecast_bytes(&gpu, 240000000, &swap);
    assert_near(swap.link_ms, 20);
    assert_near(swap.cold_ms, 160);
    assert_near(swap.warm_ms, 20);
    assert_int_equal(swap.cold_bound, SY_BOUND_STORAGE);
    assert_int_equal(swap.warm_bound, SY_BOUND_LINK);
    gpu.storage_gbps = 24;
    sy_swap_forecast_bytes(&gpu, 240000000, &swap);
    assert_int_equal(swap.cold_bound, SY_BOUND_LINK);
    assert_near(swap.cold_ms, 20);
}

static void what_is_unknown_stays_unknown(void **state)
{
    (void)state;
    struct sy_doctor_facts facts = machine(false, NAN, 12);
    struct sy_plan_layer layer = {12000000, 5000000};
    struct sy_swap_forecast swap;
    assert_int_equal(sy_swap_forecast_model(&facts, &layer, 1, true, &swap), SY_OK);
    assert_true(isnan(swap.storage_ms) && isnan(swap.cold_ms));
    assert_near(swap.warm_ms, 6); /* 1 ms of copying, then 5 of computing */
    assert_int_equal(sy_swap_forecast_model(&facts, &layer, 1, false, &swap), SY_OK);
    assert_true(isnan(swap.compute_ms) && isnan(swap.warm_ms) && isnan(swap.cold_ms));
    assert_near(swap.link_ms, 1);
    facts.link_gbps = NAN;
    assert_int_equal(sy_swap_forecast_model(&facts, &layer, 1, true, &swap), SY_OK);
    assert_true(isnan(swap.warm_ms));
    assert_int_equal(sy_swap_forecast_model(&facts, &layer, 0, true, &swap), SY_EARG);
}

/* No swap is shorter than its longest term, nor longer than all of them in a row and the costs of its groups; a warm one is never the longer. */
static void predictions_lie_between_their_bounds(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run(7);
    for (int round = 0; round < 300; round++) {
        struct sy_plan_layer layers[20];
        int n = 1 + (int)seed_below(&seed, 20);
        double storage = 0.1 + (double)seed_below(&seed, 50) / 10;
        struct sy_doctor_facts facts =
            machine(seed_below(&seed, 2), storage, 0.1 + (double)seed_below(&seed, 50) / 10);
        struct sy_swap_forecast swap;
        for (int i = 0; i < n; i++)
            layers[i] =
                (struct sy_plan_layer){seed_below(&seed, 1000) * 4096, seed_below(&seed, 3000000)};
        assert_int_equal(sy_swap_forecast_model(&facts, layers, n, true, &swap), SY_OK);
        double longest = fmax(fmax(swap.storage_ms, swap.link_ms), swap.compute_ms);
        double sum = swap.storage_ms + swap.link_ms + swap.compute_ms;
        assert_true(swap.cold_ms >= longest - 1e-3);
        assert_true(swap.cold_ms <= sum + 0.01 * 2 * n + 1e-3);
        assert_true(swap.warm_ms <= swap.cold_ms + 1e-3);
        assert_true(swap.warm_ms >= fmax(swap.link_ms, swap.compute_ms) - 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_alone_take_what_the_slower_stage_takes),
        cmocka_unit_test(what_is_unknown_stays_unknown),
        cmocka_unit_test(predictions_lie_between_their_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

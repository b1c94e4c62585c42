/* Histograms and phases: what is counted is what was observed, and phases lie within their request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/core/phases.h"
#include "tests/rigs/seed.h"

static uint64_t seed = 1;

static void test_bounds_ascend_over_the_span(void **state)
{
    (void)state;
    assert_int_equal(sy_histogram_bound_ns(0), 100 * SY_NS_PER_US);
    assert_int_equal(sy_histogram_bound_ns(SY_HISTOGRAM_BOUNDS - 1), 60 * SY_NS_PER_S);
    for (int i = 1; i < SY_HISTOGRAM_BOUNDS; i++)
        assert_true(sy_histogram_bound_ns(i) > sy_histogram_bound_ns(i - 1));
    /* A bound is the last duration of its bucket. */
    for (int i = 0; i < SY_HISTOGRAM_BOUNDS; i++) {
        assert_int_equal(sy_histogram_bucket(sy_histogram_bound_ns(i)), i);
        assert_int_equal(sy_histogram_bucket(sy_histogram_bound_ns(i) + 1), i + 1);
    }
    assert_int_equal(sy_histogram_bucket(0), 0);
    assert_int_equal(sy_histogram_bucket(UINT64_MAX), SY_HISTOGRAM_BOUNDS);
}

/* Durations of all sizes: each power of two as likely as the next. */
static sy_ns any_duration(void)
{
    return seed_next(&seed) >> (28 + seed_below(&seed, 36));
}

static void test_cumulative_counts_are_those_of_a_list(void **state)
{
    enum { N = 3000 };
    static sy_ns seen[N];
    struct sy_histogram h = {0};
    sy_ns sum = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        seen[i] = any_duration();
        sum += seen[i];
        sy_histogram_add(&h, seen[i]);
    }
    assert_int_equal(sy_histogram_count(&h), N);
    assert_int_equal(h.sum_ns, sum);
    uint64_t below = 0;
    for (int b = 0; b < SY_HISTOGRAM_BOUNDS; b++) {
        uint64_t expected = 0;

        below += h.counts[b];
        for (int i = 0; i < N; i++)
            expected += seen[i] <= sy_histogram_bound_ns(b);
        assert_int_equal(below, expected);
    }
}

static void check_spans(const struct sy_request_report *r)
{
    struct sy_phase_span spans[SY_N_PHASES];

    sy_phases_of(r, spans);
    for (int i = 0; i < SY_N_PHASES; i++) {
        if (spans[i].from_ns == 0) {
            assert_true(spans[i].to_ns == 0 && spans[i].ns == 0);
            continue;
        }
        assert_true(spans[i].from_ns >= r->arrived_ns && spans[i].from_ns <= spans[i].to_ns);
        assert_true(spans[i].to_ns <= r->finished_ns);
    }
    assert_true(spans[SY_PHASE_QUEUE].ns + spans[SY_PHASE_WAIT].ns + spans[SY_PHASE_COMPUTE].ns <=
                r->finished_ns - r->arrived_ns);
}

/* Workers may say anything: a time may be 0, before the request or after it. */
static sy_ns any_time(void)
{
    return seed_below(&seed, 4) == 0 ? 0 : seed_below(&seed, 3000);
}

static void test_phases_lie_within_the_request(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        sy_ns arrived = 1 + seed_below(&seed, 1000);
        sy_ns started = seed_below(&seed, 4) ? arrived + seed_below(&seed, 500) : 0;
        sy_ns run = started && seed_below(&seed, 4) ? started + seed_below(&seed, 500) : 0;
        struct sy_request_report r = {.arrived_ns = arrived,
                                      .started_ns = started,
                                      .run_ns = run,
                                      .first_layer_ns = any_time(),
                                      .finished_ns = SY_MAX(SY_MAX(arrived, started), run) +
                                                     seed_below(&seed, 1000),
                                      .storage_start_ns = any_time(),
                                      .storage_end_ns = any_time(),
                                      .copy_start_ns = any_time(),
                                      .copy_end_ns = any_time(),
                                      .compute_wait_ns = seed_below(&seed, 1500)};

        check_spans(&r);
    }
}

static void test_phases_of_a_swap(void **state)
{
    struct sy_request_report r = {.arrived_ns = 100,
                                  .started_ns = 300,
                                  .run_ns = 400,
                                  .first_layer_ns = 550,
                                  .finished_ns = 1000,
                                  .storage_start_ns = 310,
                                  .storage_end_ns = 700,
                                  .copy_start_ns = 330,
                                  .copy_end_ns = 800,
                                  .compute_wait_ns = 200};
    struct sy_phase_span spans[SY_N_PHASES];
    struct sy_phase_histograms h = {0}, also = {0};

    (void)state;
    sy_phases_of(&r, spans);
    assert_int_equal(spans[SY_PHASE_QUEUE].ns, 200);
    assert_int_equal(spans[SY_PHASE_STORAGE].ns, 390);
    assert_int_equal(spans[SY_PHASE_LINK].ns, 470);
    assert_int_equal(spans[SY_PHASE_WAIT].ns, 200); /* 150 before the first layer, 50 later */
    assert_int_equal(spans[SY_PHASE_COMPUTE].ns, 400);
    assert_int_equal(spans[SY_PHASE_COMPUTE].from_ns, 550);
    sy_phases_add(&h, &also, &r);
    r.storage_start_ns = r.copy_start_ns = 0; /* all was resident */
    sy_phases_add(&h, &also, &r);
    assert_int_equal(sy_histogram_count(&h.of[SY_PHASE_QUEUE]), 2);
    assert_int_equal(sy_histogram_count(&h.of[SY_PHASE_STORAGE]), 1);
    assert_int_equal(sy_histogram_count(&h.of[SY_PHASE_LINK]), 1);
    assert_int_equal(h.total.sum_ns, 1800);
    assert_memory_equal(&h, &also, sizeof h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_ascend_over_the_span),
        cmocka_unit_test(test_cumulative_counts_are_those_of_a_list),
        cmocka_unit_test(test_phases_lie_within_the_request),
        cmocka_unit_test(test_phases_of_a_swap),
    };
    seed = seed_of_run(11);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Triton's statistics of a model's version, against sums over all that was noted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/front/request/front_stats.h"
#include "tests/rigs/seed.h"

#define MOST_ROWS 100

static uint64_t seed;

struct naive {
    uint64_t n, rows, runs;
    struct sy_front_batch_stats batches[MOST_ROWS + 1];
    int n_sizes;
};

static void add(struct sy_front_duration *to, uint64_t ns)
{
    to->count++;
    to->ns += ns;
}

/* A run of some requests: the first one has what the run was, the others rows alone. */
static void note_run(struct sy_front_stats *stats, struct naive *naive, int most_rows)
{
    struct sy_core_model_ref ref = {.name = "m", .version = 3};
    int n = 1 + (int)(seed_below(&seed, 3)), rows = 0, own[3];
    uint64_t input = seed_below(&seed, 1000), infer = seed_below(&seed, 1000);

    for (int i = 0; i < n; i++)
        rows += own[i] = 1 + (int)(seed_below(&seed, (uint64_t)(most_rows / 3)));
    for (int i = 0; i < n; i++) {
        struct sy_request_report report = {.arrived_ns = 10,
                                           .started_ns = 100,
                                           .run_ns = 100 + input,
                                           .finished_ns = 100 + input + infer,
                                           .served_ns = i == 0,
                                           .run_rows = i == 0 ? rows : 0};
        sy_front_stats_note(stats, &ref, own[i], SY_OK, &report);
        naive->n++;
    }
    naive->rows += (uint64_t)rows;
    naive->runs++;
    struct sy_front_batch_stats *batch = &naive->batches[rows];
    if (batch->rows == 0 && naive->n_sizes == SY_FRONT_BATCH_SIZES)
        return;
    naive->n_sizes += batch->rows == 0;
    batch->rows = rows;
    add(&batch->compute_input, input);
    add(&batch->compute_infer, infer);
    add(&batch->compute_output, 0);
}

static void expect_same(const struct sy_front_stats *stats, const struct naive *naive)
{
    struct sy_front_model_stats of;
    int at = 0;

    sy_front_stats_of(stats, "m", 3, &of);
    assert_int_equal(of.n_successes, naive->n);
    assert_int_equal(of.n_inferences, naive->rows);
    assert_int_equal(of.n_executions, naive->runs);
    assert_int_equal(of.n_batches, naive->n_sizes);
    for (int rows = 1; rows <= MOST_ROWS; rows++)
        if (naive->batches[rows].rows)
            assert_memory_equal(&of.batches[at++], &naive->batches[rows], sizeof *of.batches);
}

static void runs_are_counted_by_their_rows(void **state)
{
    struct sy_front_stats *stats;
    struct naive naive = {0};

    (void)state;
    assert_int_equal(sy_front_stats_create(&stats), SY_OK);
    expect_same(stats, &naive);
    for (int i = 0; i < 300; i++) {
        note_run(stats, &naive, 30);
        expect_same(stats, &naive);
    }
    for (int i = 0; i < 3000; i++) /* more sizes than are kept */
        note_run(stats, &naive, MOST_ROWS);
    assert_int_equal(naive.n_sizes, SY_FRONT_BATCH_SIZES);
    expect_same(stats, &naive);
    sy_front_stats_destroy(stats);
}

static void failures_are_no_runs(void **state)
{
    struct sy_core_model_ref ref = {.name = "m", .version = 3};
    const struct sy_request_report report = {.arrived_ns = 1, .finished_ns = 2, .run_rows = 4};
    struct sy_front_model_stats of;
    struct sy_front_stats *stats;

    (void)state;
    assert_int_equal(sy_front_stats_create(&stats), SY_OK);
    sy_front_stats_note(stats, &ref, 4, SY_EBUSY, &report);
    sy_front_stats_note(stats, &ref, 4, SY_ECANCELED, NULL);
    sy_front_stats_of(stats, "m", 3, &of);
    assert_int_equal(of.n_failures, 2);
    assert_int_equal(of.n_rejected, 1);
    assert_int_equal(of.n_canceled, 1);
    assert_int_equal(of.n_batches, 0);
    assert_int_equal(of.n_executions, 0);
    sy_front_stats_destroy(stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_counted_by_their_rows),
        cmocka_unit_test(failures_are_no_runs),
    };

    seed = seed_of_run(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Requests that are canceled after they have started, against a model of the world. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/fakes/sched_world.h"

static int worker_that(const struct world *w, enum worker_doing doing)
{
    for (int i = 0; i < N_WORKERS; i++)
        if (w->workers[i] == doing)
            return i;
    fail_msg("no worker does that");
    return -1;
}

static void until_runs(struct world *w, int n_runs)
{
    for (int i = 0; i < 100 && w->n_runs < n_runs; i++)
        world_deliver(w, false);
    assert_int_equal(w->n_runs, n_runs);
}

static void test_computing_stops_and_is_not_begun_again(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 2);
    world_request(&w, 0, 1);
    world_request(&w, 1, 1);
    until_runs(&w, 1);
    sy_sched_cancel(w.s, 1);
    world_settle(&w);
    assert_int_equal(w.n_interrupts, 1);
    assert_int_equal(w.n_ends[1], 0); /* its worker still writes */
    sy_sched_cancel(w.s, 1);
    world_settle(&w);
    assert_int_equal(w.n_interrupts, 1);
    world_finish_run(&w, worker_that(&w, RUNNING), SY_ECANCELED);
    while (w.n_reads > 0)
        world_finish_read(&w, 0, true);
    assert_int_equal(w.n_ends[1], 1);
    assert_int_equal(w.end_status[1], SY_ECANCELED);
    world_drain(&w);
    assert_int_equal(w.end_status[2], SY_OK);
    assert_int_equal(w.n_runs, 2);
    sy_sched_destroy(w.s);
}

static void test_done_before_it_stops_is_done(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 2);
    world_request(&w, 0, 1);
    until_runs(&w, 1);
    sy_sched_cancel(w.s, 1);
    world_settle(&w);
    while (w.n_reads > 0)
        world_finish_read(&w, 0, true);
    world_finish_run(&w, worker_that(&w, RUNNING), SY_OK);
    assert_int_equal(w.n_ends[1], 1);
    assert_int_equal(w.end_status[1], SY_OK);
    sy_sched_destroy(w.s);
}

/* It holds the device, but waits for training to stand still. */
static void test_loaded_is_forgotten_and_training_goes_on(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 2);
    world_start_training(&w);
    world_request(&w, 0, 1);
    assert_int_equal(w.n_loads, 1);
    assert_int_equal(w.n_runs, 0);
    sy_sched_cancel(w.s, 1);
    world_settle(&w);
    world_drain(&w);
    assert_int_equal(w.n_ends[1], 1);
    assert_int_equal(w.end_status[1], SY_ECANCELED);
    assert_int_equal(w.n_runs, 0);
    assert_true(sy_sched_training_runs(w.s));
    world_request(&w, 0, 1);
    world_drain(&w);
    assert_int_equal(w.end_status[2], SY_OK);
    sy_sched_destroy(w.s);
}

static void test_prefetched_is_forgotten(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 2);
    world_request(&w, 0, 1);
    world_request(&w, 1, 1);
    until_runs(&w, 1);
    assert_int_equal(w.n_loads, 2);
    sy_sched_cancel(w.s, 2);
    world_settle(&w);
    assert_int_equal(w.n_interrupts, 0);
    world_drain(&w);
    assert_int_equal(w.end_status[1], SY_OK);
    assert_int_equal(w.end_status[2], SY_ECANCELED);
    assert_int_equal(w.n_runs, 1);
    assert_int_equal(sy_sched_model_remove(w.s, 1), SY_OK);
    sy_sched_destroy(w.s);
}

static void test_canceled_on_a_worker_that_dies_is_not_run_again(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 2);
    world_request(&w, 0, 1);
    until_runs(&w, 1);
    sy_sched_cancel(w.s, 1);
    world_settle(&w);
    world_lose_worker(&w, worker_that(&w, RUNNING));
    world_drain(&w);
    assert_int_equal(w.n_ends[1], 1);
    assert_int_equal(w.end_status[1], SY_ECANCELED);
    assert_int_equal(w.n_runs, 1);
    sy_sched_destroy(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_computing_stops_and_is_not_begun_again),
        cmocka_unit_test(test_done_before_it_stops_is_done),
        cmocka_unit_test(test_loaded_is_forgotten_and_training_goes_on),
        cmocka_unit_test(test_prefetched_is_forgotten),
        cmocka_unit_test(test_canceled_on_a_worker_that_dies_is_not_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

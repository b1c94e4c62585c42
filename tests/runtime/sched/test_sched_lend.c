/* Slices that nobody uses are lent to opportunistic jobs (S13), and those stand still when they are told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/fakes/sched_world.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static struct sy_sched_job_view view_of(const struct world *w, uint64_t job)
{
    struct sy_sched_job_view view;
    assert_true(sy_sched_job_view(w->s, job, &view));
    return view;
}

static int worker_of(const struct world *w, uint64_t job)
{
    return view_of(w, job).worker;
}

static void go_on(struct world *w, int n)
{
    for (int i = 0; i < n; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            (void)world_advance_job(w, worker);
}

/* Two slices, model 1 in slice 1. Jobs of even numbers are in slice 0: job 2 is guaranteed, job 4 is not. */
static void make(struct world *w)
{
    world_make(w, true, 300, 2);
    w->check_fifo = false;
    assert_int_equal(sy_sched_set_slices(w->s, 2), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w->s, 1, 1), SY_OK);
    w->job_mib = 20;
    w->next_job = 1;
    world_submit_job(w);
    go_on(w, 10);
    assert_true(view_of(w, 2).has_turn);
    w->next_job = 3;
    w->next_is_opportunistic = true;
    world_submit_job(w);
    go_on(w, 20);
}

static void test_an_idle_slice_is_lent_and_given_back(void **state)
{
    struct world w;
    (void)state;
    make(&w);
    assert_int_equal(view_of(&w, 4).slice, 1);
    assert_int_equal(world_n_at_once(&w), 2);
    /* Its owner's request: the lent job is told at once, and the request computes when it stands still; the guaranteed one is not touched. */
    int lent = worker_of(&w, 4), own = worker_of(&w, 2);
    world_request(&w, 1, 1);
    while (w.n_reads > 0)
        world_finish_read(&w, 0, true);
    assert_true(w.held[lent] && !w.held[own]);
    for (int i = 0; i < 3 && world_n_running(&w) == 0; i++)
        (void)world_advance_job(&w, lent);
    assert_int_equal(world_n_running(&w), 1);
    world_drain(&w);
    assert_false(w.held[lent]);
    /* The guaranteed job is suspended: the other one goes home, and is lent nothing. */
    assert_int_equal(sy_sched_job_suspend(w.s, 2, true), SY_OK);
    world_settle(&w);
    go_on(&w, 10);
    assert_int_equal(view_of(&w, 4).slice, 0);
    assert_true(view_of(&w, 4).has_turn);
    assert_int_equal(sy_sched_job_suspend(w.s, 2, false), SY_OK);
    world_settle(&w);
    go_on(&w, 10);
    assert_int_equal(view_of(&w, 4).slice, 1);
    assert_true(view_of(&w, 2).has_turn);
    sy_sched_destroy(w.s);
}

/* A guaranteed job that comes into the lent slice has it from the boundary on. */
static void test_the_owners_job_has_its_slice_back(void **state)
{
    struct world w;
    (void)state;
    make(&w);
    w.next_is_opportunistic = false;
    w.next_job = 4;
    world_submit_job(&w);                   /* 5: of slice 1 */
    sy_sched_hold_opportunistic(w.s, true); /* would not keep it from its slice for ever */
    world_settle(&w);
    go_on(&w, 30);
    assert_true(view_of(&w, 5).has_turn && view_of(&w, 2).has_turn);
    assert_false(view_of(&w, 4).has_turn);
    sy_sched_destroy(w.s);
}

static void test_held_ones_stand_still(void **state)
{
    struct world w;
    (void)state;
    make(&w);
    int lent = worker_of(&w, 4), own = worker_of(&w, 2);
    sy_sched_hold_opportunistic(w.s, true);
    world_settle(&w);
    assert_true(w.held[lent] && !w.held[own]);
    go_on(&w, 5);
    assert_true(w.still[lent] || !view_of(&w, 4).has_turn);
    assert_int_equal(world_n_at_once(&w), 1);
    sy_sched_hold_opportunistic(w.s, false);
    world_settle(&w);
    assert_false(w.held[lent]);
    go_on(&w, 10);
    assert_int_equal(world_n_at_once(&w), 2);
    assert_int_equal(sy_sched_set_slices(w.s, 1), SY_OK); /* without slices it waits, as ever */
    world_settle(&w);
    go_on(&w, 10);
    assert_false(view_of(&w, 4).has_turn);
    assert_true(view_of(&w, 2).has_turn);
    sy_sched_destroy(w.s);
}

/* One that stands within an iteration goes on to its boundary for a job that waits for memory, and stands still from there on. */
static void test_a_held_one_is_in_nobodys_way(void **state)
{
    struct world w;
    (void)state;
    make(&w);
    int lent = worker_of(&w, 4);
    sy_sched_hold_opportunistic(w.s, true);
    world_settle(&w);
    assert_true(w.held[lent] && view_of(&w, 4).has_turn);
    w.next_is_opportunistic = false;
    w.next_job = 5;
    w.job_mib = 180;
    world_submit_job(&w);
    for (int i = 0; i < 4; i++) /* until it asks for memory */
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (worker != lent)
                (void)world_advance_job(&w, worker);
    assert_false(w.held[lent]);
    go_on(&w, 10);
    assert_false(view_of(&w, 4).has_turn);
    assert_true(view_of(&w, 2).has_turn);
    sy_sched_destroy(w.s);
}

/* A slice of other cores would need another team: nothing is lent, so the bits stay. */
static void test_only_slices_of_its_team(void **state)
{
    struct world w;
    (void)state;
    make(&w);
    sy_sched_slice_resized(w.s, 1, 3);
    world_settle(&w);
    go_on(&w, 20);
    assert_int_equal(view_of(&w, 4).slice, 0);
    assert_false(view_of(&w, 4).has_turn);
    assert_int_equal(w.n_left_for_team, 0);
    sy_sched_destroy(w.s);
}

/* While a worker prepares an older head that is apart, the other slice's requests run; from then on they wait for it. */
static void test_others_run_while_an_apart_head_prepares(void **state)
{
    struct world w;
    (void)state;
    world_make(&w, true, 200, 2);
    w.check_fifo = false;
    assert_int_equal(sy_sched_set_slices(w.s, 2), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w.s, 1, 1), SY_OK);
    world_all_prepared(&w, 0, 1);
    assert_int_equal(sy_sched_set_exclusive(w.s, 0, 1, true), SY_OK);
    w.apart[0][1] = w.apart[1][0] = true;
    world_settle(&w);
    world_sized_request(&w, 1, 1, 7); /* nobody has prepared these sizes */
    assert_true(w.n_prepares > 0);
    world_request(&w, 0, 1);
    while (w.n_reads > 0)
        world_finish_read(&w, 0, true);
    assert_int_equal(world_n_running(&w), 1);
    world_drain(&w);
    assert_int_equal(w.end_status[1], SY_OK);
    assert_int_equal(w.end_status[2], SY_OK);
    sy_sched_destroy(w.s);
}

/* Whatever happens, in whatever order: the world checks each action, and all requests end. */
static void test_random_lending(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct world w;
        world_make(&w, true, 300, 100 + seed_below(&seed, 1000));
        w.check_fifo = false;
        w.mixed = true;
        assert_int_equal(sy_sched_set_slices(w.s, 3), SY_OK);
        for (int m = 0; m < N_MODELS; m++)
            assert_int_equal(sy_sched_model_set_slice(w.s, m, m % 3), SY_OK);
        for (int i = 0; i < 400; i++) {
            uint64_t what = world_pick(&w, 20);
            if (what == 0 && w.next_job < 6)
                world_submit_job(&w);
            else if (what == 1)
                world_request(&w, (int)world_pick(&w, N_MODELS), 1);
            else if (what == 2)
                sy_sched_hold_opportunistic(w.s, world_pick(&w, 2));
            else if (what == 3 && w.next_job > 0)
                (void)sy_sched_job_suspend(w.s, 1 + world_pick(&w, w.next_job), world_pick(&w, 2));
            else
                (void)world_deliver(&w, false);
            world_settle(&w);
            assert_true(sy_sched_is_valid(w.s));
        }
        sy_sched_hold_opportunistic(w.s, false);
        world_settle(&w);
        world_drain(&w);
        sy_sched_destroy(w.s);
    }
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_idle_slice_is_lent_and_given_back),
        cmocka_unit_test(test_the_owners_job_has_its_slice_back),
        cmocka_unit_test(test_held_ones_stand_still),
        cmocka_unit_test(test_a_held_one_is_in_nobodys_way),
        cmocka_unit_test(test_only_slices_of_its_team),
        cmocka_unit_test(test_others_run_while_an_apart_head_prepares),
        cmocka_unit_test(test_random_lending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

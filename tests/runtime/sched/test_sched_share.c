/* Training's guaranteed share: kept under any flood, as far as tenants' hard shares let it be used, and what predictions leave to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/fakes/sched_world.h"

static int ask(struct world *w, sy_ns duration_ns, sy_ns within_ns)
{
    struct sy_sched_request r = {.id = w->next_request++,
                                 .batch = 1,
                                 .deadline_ns = w->now + within_ns,
                                 .duration = {duration_ns, 0}};
    int status = sy_sched_request(w->s, &r, NULL);
    world_settle(w);
    return status;
}

static void finish_requests(struct world *w)
{
    while (sy_sched_n_waiting(w->s) + sy_sched_n_started(w->s) > 0)
        assert_true(world_deliver(w, false));
}

static void pass(struct world *w, sy_ns ns)
{
    w->now += ns;
    sy_sched_set_time(w->s, w->now);
    world_settle(w);
}

/* Half of the time is training's: 100 ms are promised within 150 while no job is there, within 200 while one is, and what was promised before it
 * came is kept. */
static void test_predictions_leave_to_training_what_it_can_use(void **state)
{
    (void)state;
    static struct world w;
    const sy_ns ms = SY_NS_PER_MS;
    world_make(&w, true, 400, 1);
    assert_int_equal(sy_sched_set_train_share(w.s, 500), SY_OK);
    assert_int_equal(ask(&w, 100 * ms, 50 * ms), SY_EDEADLINE);
    assert_int_equal(ask(&w, 100 * ms, 150 * ms), SY_OK);
    finish_requests(&w);
    world_start_training(&w);
    assert_int_equal(ask(&w, 100 * ms, 150 * ms), SY_EDEADLINE);
    assert_int_equal(ask(&w, 100 * ms, 250 * ms), SY_OK);
    finish_requests(&w);
    assert_int_equal(sy_sched_set_tenant(w.s, 0, 1, 100, 0), SY_OK); /* whichever tenant it is of */
    assert_int_equal(sy_sched_set_tenant(w.s, 1, 1, 100, 0), SY_OK);
    assert_int_equal(sy_sched_set_tenant(w.s, 2, 1, 100, 0), SY_OK);
    assert_int_equal(ask(&w, 100 * ms, 150 * ms), SY_EDEADLINE); /* it may be only for a moment */
    pass(&w, SY_NS_PER_S);
    pass(&w, ms);
    assert_int_equal(ask(&w, 100 * ms, 150 * ms), SY_OK);
    finish_requests(&w);
    sy_sched_destroy(w.s);
}

static void end_turns(struct world *w)
{
    for (int worker = 0; worker < N_WORKERS; worker++)
        if (w->workers[worker] == TRAINING)
            (void)world_advance_job(w, worker);
}

/* What part of the time some job computes while requests never end. Turns that are `short_` take the millisecond that they say they took. */
static double trained_under_a_flood(struct world *w, bool short_)
{
    sy_ns trained = 0, begin = w->now;
    for (int i = 0; i < 20000; i++) {
        while (sy_sched_n_waiting(w->s) < 20 && w->next_request < MAX_IDS - 1)
            world_request(w, (int)world_pick(w, N_MODELS), 1);
        sy_ns before = w->now;
        bool runs = world_trains(w);
        if (short_)
            end_turns(w);
        (void)world_deliver(w, false);
        w->now += SY_NS_PER_MS;
        sy_sched_set_time(w->s, w->now);
        world_settle(w);
        trained += runs ? w->now - before : 0;
        if (w->next_request >= MAX_IDS - 1)
            break;
    }
    double share = (double)trained / (double)(w->now - begin);
    print_message("share %.4f of %.1f s\n", share, (double)(w->now - begin) / 1e9);
    return share;
}

static void test_training_keeps_its_share_under_a_flood(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_start_training(&w);
    assert_int_equal(sy_sched_set_train_share(w.s, 300), SY_OK);
    world_settle(&w);
    double share = trained_under_a_flood(&w, false);
    assert_true(share > 0.299);
    assert_true(share < 0.32); /* and requests get the rest */
    sy_sched_destroy(w.s);
}

/* Half of the time is training's, but its only tenant may have a tenth: requests have the rest, and do not wait for what nobody may use. */
static void test_what_a_hard_share_forbids_is_not_guaranteed(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_start_training(&w);
    for (int tenant = 0; tenant < 3; tenant++)
        assert_int_equal(sy_sched_set_tenant(w.s, tenant, 1, 100, 0), SY_OK);
    assert_int_equal(sy_sched_set_train_share(w.s, 500), SY_OK);
    world_settle(&w);
    int before = w.n_runs;
    sy_ns begin = w.now;
    (void)trained_under_a_flood(&w, true);
    double share = (double)(w.iterations[1] * SY_NS_PER_MS) / (double)(w.now - begin);
    print_message("%d runs, share %.4f\n", w.n_runs - before, share);
    assert_true(share > 0.05 && share < 0.101);
    assert_true(w.n_runs - before > MAX_IDS / 2);
    sy_sched_destroy(w.s);
}

static void end_turn_of(struct world *w, sy_ns took)
{
    for (int worker = 0; worker < N_WORKERS; worker++) {
        uint64_t job = w->job_of[worker];
        if (w->workers[worker] != TRAINING || w->still[worker] || w->held[worker])
            continue;
        w->workers[worker] = WAITING_TURN;
        assert_int_equal(sy_sched_job_turn_over(w->s, worker, job, ++w->iterations[job], took),
                         SY_OK);
        world_settle(w);
    }
}

/* What part of `n_ms` one job computes, in turns of 20 ms, with requests or alone. */
static double trained_in_turns(struct world *w, bool requests, int n_ms)
{
    sy_ns trained = 0, turn = 0, begin = w->now;
    for (int i = 0; i < n_ms && w->next_request < MAX_IDS - 1; i++) {
        while (requests && sy_sched_n_waiting(w->s) < 20 && w->next_request < MAX_IDS - 1)
            world_request(w, (int)world_pick(w, N_MODELS), 1);
        sy_ns before = w->now;
        bool runs = world_trains(w);
        if (requests)
            (void)world_deliver(w, false);
        w->now += SY_NS_PER_MS;
        sy_sched_set_time(w->s, w->now);
        world_settle(w);
        trained += runs ? w->now - before : 0;
        turn += runs ? w->now - before : 0;
        if (turn < 20 * SY_NS_PER_MS || !world_trains(w))
            continue;
        end_turn_of(w, turn);
        turn = 0;
    }
    return (double)trained / (double)(w->now - begin);
}

/* A tenth is guaranteed. Whose hard share of a fifth was used up when requests come has a tenth then, not the fifth. */
static void test_time_that_a_hard_share_forbids_does_not_settle_debts(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_start_training(&w);
    for (int tenant = 0; tenant < 3; tenant++)
        assert_int_equal(sy_sched_set_tenant(w.s, tenant, 1, 200, 0), SY_OK);
    assert_int_equal(sy_sched_set_train_share(w.s, 100), SY_OK);
    world_settle(&w);
    double alone = trained_in_turns(&w, false, 3000);
    double share = trained_in_turns(&w, true, 20000);
    print_message("alone %.4f, then %.4f\n", alone, share);
    assert_true(alone > 0.19 && alone < 0.21);
    assert_true(share > 0.08 && share < 0.11);
    sy_sched_destroy(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_keeps_its_share_under_a_flood),
        cmocka_unit_test(test_what_a_hard_share_forbids_is_not_guaranteed),
        cmocka_unit_test(test_time_that_a_hard_share_forbids_does_not_settle_debts),
        cmocka_unit_test(test_predictions_leave_to_training_what_it_can_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

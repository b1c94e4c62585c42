/* The scheduler and spilled jobs, by name: their workers go to who can use them, and what was spilled outlives each worker (S10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/fakes/sched_world.h"

#define POOL 120 /* MiB; three workers for jobs, one left to requests */

static int worker_of(const struct world *w, uint64_t job)
{
    struct sy_sched_job_view view;
    return sy_sched_job_view(w->s, job, &view) ? view.worker : -1;
}

static enum worker_doing doing(const struct world *w, uint64_t job)
{
    int worker = worker_of(w, job);
    return worker < 0 ? IDLE : w->workers[worker];
}

static void advance_all(struct world *w, int times)
{
    for (int i = 0; i < times; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w->workers[worker] != TRAINING || !w->keeps[worker])
                world_advance_job(w, worker);
}

static void submit(struct world *w, uint64_t id, bool opportunistic, uint64_t mib)
{
    struct sy_sched_job job = {.id = id, .opportunistic = opportunistic};
    w->opportunistic[id] = opportunistic;
    w->persistent[id] = mib * MIB;
    w->ephemeral[id] = 2 * MIB;
    w->next_job = id;
    assert_int_equal(sy_sched_job_submit(w->s, &job), SY_OK);
    world_settle(w);
}

static void end(struct world *w, uint64_t job)
{
    assert_true(worker_of(w, job) >= 0);
    world_end_job(w, worker_of(w, job));
}

/* Job 1, opportunistic, is out for the guaranteed 2; with 3 all workers have jobs. */
static void world_with_spilled(struct world *w)
{
    world_make(w, true, POOL, 1);
    w->spills_work = true;
    submit(w, 1, true, 60);
    advance_all(w, 6);
    submit(w, 2, false, 60);
    for (int i = 0; i < 60 && doing(w, 1) != SPILLED; i++)
        advance_all(w, 1);
    assert_int_equal(doing(w, 1), SPILLED);
    submit(w, 3, false, 1);
    advance_all(w, 10);
    assert_true(worker_of(w, 2) >= 0 && worker_of(w, 3) >= 0);
}

/* The worker goes at once to the guaranteed job that comes; nobody comes and goes while the memory is taken; then it is back with what it had. */
static void test_spilled_job_lets_its_worker_go(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    world_with_spilled(&w);
    uint64_t before = w.iterations[1];
    submit(&w, 4, false, 1);
    assert_int_equal(doing(&w, 1), LEAVING);
    advance_all(&w, 20);
    assert_true(worker_of(&w, 4) >= 0 && w.iterations[4] > 0);
    assert_true(sy_sched_job_view(w.s, 1, &view));
    assert_true(view.worker < 0 && view.spilled && !view.admitted);
    end(&w, 4);
    advance_all(&w, 40);
    assert_int_equal(doing(&w, 1), JOB_READY); /* on a worker again, without memory */
    assert_int_equal(w.n_left, 1);
    submit(&w, 5, false, 1); /* which it gives once more, having started nothing */
    advance_all(&w, 40);
    assert_true(w.iterations[5] > 0);
    assert_int_equal(w.n_left, 2);
    end(&w, 2);
    advance_all(&w, 40);
    assert_true(worker_of(&w, 1) >= 0);
    end(&w, 5);
    end(&w, 3);
    advance_all(&w, 10); /* the world checks that it is told where its persistent part is */
    assert_true(w.iterations[1] >= before);
    assert_int_equal(doing(&w, 1), TRAINING);
    assert_int_equal(w.n_left, 2);
    sy_sched_destroy(w.s);
}

/* Where a guaranteed job comes while another is on its way out, or back: the trip ends, then the worker goes. */
static void test_on_its_way(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, POOL, 1);
    w.spills_work = true;
    submit(&w, 1, true, 60);
    submit(&w, 3, false, 1);
    advance_all(&w, 10);
    submit(&w, 2, false, 60);
    for (int i = 0; i < 60 && doing(&w, 1) != SPILLING; i++)
        advance_all(&w, 1);
    assert_int_equal(doing(&w, 1), SPILLING);
    submit(&w, 4, false, 1);
    assert_int_equal(doing(&w, 1), SPILLING);
    world_advance_job(&w, worker_of(&w, 1));
    assert_int_equal(doing(&w, 1), LEAVING);
    advance_all(&w, 20);
    assert_true(w.iterations[4] > 0 && w.away[1]);
    end(&w, 4);
    advance_all(&w, 10);
    end(&w, 2);
    for (int i = 0; i < 20 && doing(&w, 1) != STARTING_JOB; i++)
        advance_all(&w, 1);
    assert_int_equal(doing(&w, 1), STARTING_JOB);
    submit(&w, 5, false, 60); /* takes the third worker */
    submit(&w, 6, false, 1);  /* none is left for this one */
    advance_all(&w, 40);
    assert_true(w.iterations[5] > 0 && w.iterations[6] > 0);
    assert_true(w.away[1] && worker_of(&w, 1) < 0);
    sy_sched_destroy(w.s);
}

/* Two are to go out for a guaranteed job, which ends when the first is out: that one has room again, but waits for the second's trip. The next
 * guaranteed job has its worker now, not after that trip. */
static void test_spilled_job_with_room_lets_its_worker_go(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    world_make(&w, true, POOL, 1);
    w.spills_work = true;
    submit(&w, 1, true, 40);
    submit(&w, 2, true, 40);
    advance_all(&w, 10);
    submit(&w, 3, false, 90);
    for (int i = 0; i < 60 && doing(&w, 1) != SPILLING; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != SPILLING || w.job_of[worker] == 2)
                world_advance_job(&w, worker);
    assert_int_equal(doing(&w, 1), SPILLING);
    assert_int_equal(doing(&w, 2), SPILLED);
    end(&w, 3);
    assert_true(sy_sched_job_view(w.s, 2, &view) && view.admitted);
    submit(&w, 4, false, 1); /* takes the third worker */
    assert_int_equal(doing(&w, 2), SPILLED);
    submit(&w, 5, false, 1);
    assert_int_equal(doing(&w, 2), LEAVING);
    assert_int_equal(doing(&w, 1), SPILLING);
    world_advance_job(&w, worker_of(&w, 2));
    assert_true(worker_of(&w, 5) >= 0);
    advance_all(&w, 20);
    end(&w, 4);
    end(&w, 5);
    uint64_t before[] = {w.iterations[1], w.iterations[2]};
    advance_all(&w, 60); /* both are back */
    assert_true(w.iterations[1] > before[0] && w.iterations[2] > before[1]);
    sy_sched_destroy(w.s);
}

/* Its worker dies while it is out, on its way back, or starts with it: it goes on from there, on another worker. */
static void test_what_is_spilled_outlives_its_worker(void **state)
{
    (void)state;
    static struct world w;
    for (int when = 0; when < 3; when++) {
        static const enum worker_doing moments[] = {SPILLED, RETURNING, STARTING_JOB};
        world_with_spilled(&w);
        uint64_t before = w.iterations[1];
        if (when == 2) {
            world_lose_worker(&w, worker_of(&w, 1));
            for (int i = 0; i < 4; i++) /* AWAY: ready again */
                world_deliver(&w, false);
        }
        if (when > 0)
            end(&w, 2);
        for (int i = 0; i < 20 && doing(&w, 1) != moments[when]; i++)
            advance_all(&w, 1);
        assert_int_equal(doing(&w, 1), moments[when]);
        int worker = worker_of(&w, 1);
        world_lose_worker(&w, worker);
        assert_true(w.away[1]);
        w.workers[worker] = IDLE;
        sy_sched_worker_ready(w.s, worker);
        world_settle(&w);
        if (when == 0)
            end(&w, 2);
        advance_all(&w, 20);
        end(&w, 3);
        advance_all(&w, 10);
        assert_int_equal(doing(&w, 1), TRAINING);
        assert_true(w.iterations[1] >= before && !w.away[1]);
        sy_sched_destroy(w.s);
    }
}

/* The third guaranteed job takes the last worker of an opportunistic one, and needs the memory that this one had: no worker would be left to give it. */
static void test_memory_of_one_without_a_worker_is_had_back(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, POOL, 3);
    w.spills_work = true;
    for (uint64_t id = 2; id <= 3; id++)
        submit(&w, id, false, 1);
    advance_all(&w, 10);
    submit(&w, 1, true, 60);
    advance_all(&w, 20);
    assert_int_equal(doing(&w, 1), WAITING_TURN);
    submit(&w, 4, false, 90);
    for (int i = 0; i < 100 && w.iterations[4] == 0; i++)
        advance_all(&w, 1);
    assert_true(w.iterations[4] > 0 && w.away[1]);
    advance_all(&w, 100);
    assert_true(w.n_spills == 1 && w.n_left == 1); /* nobody comes and goes */
    end(&w, 4);
    advance_all(&w, 60);
    assert_true(doing(&w, 1) == WAITING_TURN && !w.away[1]);
    sy_sched_destroy(w.s);
}

/* Its worker died, and another guaranteed job waited for one: it is brought to life first, and gives its memory. */
static void test_memory_of_one_that_lost_its_worker_is_had_back(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, POOL, 3);
    w.spills_work = true;
    for (uint64_t id = 1; id <= 2; id++)
        submit(&w, id, false, 1);
    submit(&w, 3, true, 60);
    advance_all(&w, 20);
    assert_int_equal(doing(&w, 3), WAITING_TURN);
    world_lose_worker(&w, worker_of(&w, 3));
    submit(&w, 4, false, 90);
    for (int i = 0; i < 8; i++) /* AWAY: ready again */
        world_deliver(&w, false);
    for (int i = 0; i < 200 && w.iterations[4] == 0; i++)
        advance_all(&w, 1);
    assert_true(w.iterations[4] > 0 && worker_of(&w, 3) < 0);
    sy_sched_destroy(w.s);
}

/* A small guaranteed job's memory lies in the middle, so that a large one does not fit though enough is free. Who gave way for it stays out until
 * it is in, and does not come back to be sent away once more. */
static void test_no_trips_for_a_job_that_does_not_fit(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    world_make(&w, true, POOL, 1);
    w.spills_work = true;
    submit(&w, 1, true, 45);
    submit(&w, 2, false, 1);
    advance_all(&w, 20);
    submit(&w, 3, false, 80);
    advance_all(&w, 200);
    assert_true(sy_sched_job_view(w.s, 3, &view) && !view.admitted);
    assert_true(w.iterations[2] > 0 && w.iterations[3] == 0);
    assert_int_equal(w.n_spills, 1);
    end(&w, 2);
    advance_all(&w, 40);
    assert_true(w.iterations[3] > 0);
    end(&w, 3);
    advance_all(&w, 40);
    assert_int_equal(doing(&w, 1), TRAINING);
    assert_int_equal(w.n_spills, 1);
    sy_sched_destroy(w.s);
}

/* The last worker goes to one of two guaranteed jobs that come at once: the other needs the spilled one's, in the same step (the world looks). */
static void test_the_last_worker_is_not_enough(void **state)
{
    (void)state;
    static struct world w;
    world_with_spilled(&w);
    end(&w, 3);
    advance_all(&w, 10);
    if (doing(&w, 1) != SPILLED) /* it has its memory back as soon as there is some */
        fail_msg("job 1 does %d", (int)doing(&w, 1));
    sy_sched_hold_jobs(w.s, true);
    submit(&w, 4, false, 1);
    submit(&w, 5, false, 1);
    assert_int_equal(doing(&w, 1), SPILLED);
    sy_sched_hold_jobs(w.s, false);
    world_settle(&w);
    assert_int_equal(doing(&w, 1), LEAVING);
    advance_all(&w, 20);
    assert_true(w.iterations[4] > 0 && w.iterations[5] > 0);
    sy_sched_destroy(w.s);
}

/* Canceled while it leaves, or while it waits for a worker: gone, with its memory. */
static void test_canceled_without_a_worker(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    for (int waits = 0; waits < 2; waits++) {
        world_with_spilled(&w);
        submit(&w, 4, false, 1);
        if (waits)
            advance_all(&w, 20);
        assert_int_equal(sy_sched_job_stop(w.s, 1), waits ? SY_EBUSY : SY_OK);
        world_settle(&w);
        advance_all(&w, 20);
        assert_false(sy_sched_job_view(w.s, 1, &view));
        assert_int_equal(w.jobs_refused, !waits);
        assert_true(w.iterations[4] > 0);
        sy_sched_destroy(w.s);
    }
}

static void wait_and_settle(struct world *w, sy_ns for_ns)
{
    w->now += for_ns;
    world_settle(w);
}

/* A spill that failed is asked for again after a second, then after two; one that works is the last. The scheduler asks to be woken for it. */
static void test_failed_spill_is_asked_again(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, POOL, 1);
    w.spills_fail = true;
    submit(&w, 1, true, 60);
    advance_all(&w, 6);
    submit(&w, 2, false, 60);
    advance_all(&w, 20);
    for (int i = 0; i < 2; i++) { /* it failed i + 1 times */
        sy_ns pause = w.spill_pause[1];
        assert_true(pause == (1 + i) * SY_NS_PER_S);
        assert_true(sy_sched_wake_at(w.s) == w.spill_again[1]);
        assert_int_not_equal(doing(&w, 1), SPILLED);
        w.spills_fail = i == 0;
        w.spills_work = i == 1;
        wait_and_settle(&w, pause);
        for (int k = 0; k < 60 && w.spill_pause[1] == pause; k++)
            advance_all(&w, 1);
    }
    struct sy_sched_job_view view;
    assert_true(sy_sched_job_view(w.s, 1, &view) && view.spilled);
    advance_all(&w, 20);
    assert_true(sy_sched_job_view(w.s, 2, &view) && view.admitted);
    assert_true(sy_sched_wake_at(w.s) == 0);
    sy_sched_destroy(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spilled_job_lets_its_worker_go),
        cmocka_unit_test(test_on_its_way),
        cmocka_unit_test(test_spilled_job_with_room_lets_its_worker_go),
        cmocka_unit_test(test_what_is_spilled_outlives_its_worker),
        cmocka_unit_test(test_memory_of_one_without_a_worker_is_had_back),
        cmocka_unit_test(test_memory_of_one_that_lost_its_worker_is_had_back),
        cmocka_unit_test(test_no_trips_for_a_job_that_does_not_fit),
        cmocka_unit_test(test_the_last_worker_is_not_enough),
        cmocka_unit_test(test_canceled_without_a_worker),
        cmocka_unit_test(test_failed_spill_is_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The scheduler against a model of the world: random events, and requests by name. Jobs by name: test_sched_jobs.c;
 * requests that give way: test_sched_interrupts.c. */
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
#include "tests/rigs/seed.h"

static void change_rules(struct world *w)
{
    uint64_t job = 1 + world_pick(w, w->next_job + 1);
    int model = (int)world_pick(w, N_MODELS);
    switch (world_pick(w, 6)) {
    case 4:
    case 5:
        assert_int_equal(sy_sched_model_head(w->s, model,
                                             (int)world_pick(w, world_model_groups[model] + 1),
                                             (double)world_pick(w, 5)),
                         SY_OK);
        break;
    case 0:
        assert_int_equal(sy_sched_set_policy(w->s,
                                             (enum sy_policy_kind)world_pick(w, SY_POLICY_N_KINDS),
                                             (int)world_pick(w, 3), world_pick(w, 2) * SY_NS_PER_S),
                         SY_OK);
        break;
    case 1:
        (void)sy_sched_job_suspend(w->s, job, world_pick(w, 2));
        break;
    case 2:
        (void)sy_sched_job_set_priority(w->s, job, (int)world_pick(w, 5));
        break;
    default:
        assert_int_equal(sy_sched_set_train_share(w->s, (unsigned)world_pick(w, 2) * 300), SY_OK);
        break;
    }
    world_settle(w);
}

/* Mostly the usual ones; at times more than the scheduler remembers. */
static uint64_t random_sizes(struct world *w)
{
    return world_pick(w, 2) ? 0 : world_pick(w, world_pick(w, 3) ? 3 : MAX_SIZES);
}

/* What shall have happened in some walk. */
struct happened {
    int n_continued, n_left, n_left_spilled;
};

/* The seed alone says which world it is, so that each walk can be had again by itself. */
static void random_walk(uint64_t seed, struct happened *happened)
{
    static struct world w;
    bool unified = seed / 4 % 2;
    uint64_t pool_mib = 60 + 30 * (seed % 4);
    world_make(&w, unified, pool_mib, seed);
    w.mixed = seed % 2;
    w.check_fifo = !w.mixed;
    for (int step = 0; step < 1500; step++) {
        uint64_t what = world_pick(&w, 100);
        if (what < 22 && sy_sched_n_waiting(w.s) < 60 && w.next_request < MAX_IDS - 1)
            world_sized_request(&w, (int)world_pick(&w, N_MODELS),
                                1 + (int64_t)world_pick(&w, 3) * 3, random_sizes(&w));
        else if (what < 24)
            world_submit_job(&w);
        else if (what < 26 && w.next_job > 0) {
            int status = sy_sched_job_stop(w.s, 1 + world_pick(&w, w.next_job));
            assert_true(status == SY_OK || status == SY_EBUSY);
            world_settle(&w);
        } else if (what < 28) {
            int worker = (int)world_pick(&w, N_WORKERS);
            if (w.workers[worker] != AWAY)
                world_lose_worker(&w, worker);
        } else if (what < 32) {
            uint64_t recent = world_pick(&w, 2) ? SY_MIN(4, w.next_request) : w.next_request;
            sy_sched_cancel(w.s, w.next_request - world_pick(&w, recent));
            world_settle(&w);
        } else if (what < 33) {
            change_rules(&w);
        } else if (what < 34) {
            int status =
                sy_sched_model_evict(w.s, (int)world_pick(&w, N_MODELS), world_pick(&w, 2));
            assert_true(status == SY_OK || status == SY_EBUSY);
            world_settle(&w);
        } else {
            world_deliver(&w, true);
        }
        assert_true(world_n_running(&w) == 0 || !world_trains(&w));
    }
    world_drain(&w);
    sy_sched_destroy(w.s);
    happened->n_continued += w.n_continued;
    happened->n_left += w.n_left;
    happened->n_left_spilled += w.n_left_spilled;
}

#define WALKS 24

/* SY_WALKS: as many instead (make simulation). Each is announced, so that the last one said is the one that failed. */
static void test_random(void **state)
{
    struct happened happened = {0};
    (void)state;
    const char *other = getenv("SY_WALKS");
    uint64_t seed = seed_of_run(20), n = other ? strtoull(other, NULL, 10) : WALKS;
    assert_true(n > 0);
    for (uint64_t i = 0; i < n; i++) {
        if (other) {
            printf("walk: SY_SEED=%llu SY_WALKS=1\n", (unsigned long long)(seed + i));
            fflush(stdout);
        }
        random_walk(seed + i, &happened);
    }
    if (n < WALKS)
        return;
    assert_true(happened.n_continued > 0); /* S8 */
    assert_true(happened.n_left > 0);      /* workers change hands */
    assert_true(happened.n_left_spilled > 0);
}

/* ---- by name -------------------------------------------------------------------------------------- */

/* S9: a head that went comes back by itself; a request stops that at once and what came stays. */
static void test_heads_come_back_while_nothing_waits(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, false, 60, 1);
    assert_int_equal(sy_sched_model_head(w.s, 0, 4, 2), SY_OK);
    assert_int_equal(sy_sched_model_head(w.s, 1, 3, 1), SY_OK);
    world_request(&w, 4, 1); /* larger than the pool: takes all of it */
    assert_int_equal(w.n_fetches, 0);
    world_drain(&w);
    for (int i = 0; i < 50; i++)
        world_deliver(&w, false);
    assert_true(w.n_fetched >= 2);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), 4);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 1), 3);
    /* Nothing of less worth takes its place, and nothing is fetched twice. */
    int n = w.n_fetches;
    assert_int_equal(sy_sched_model_head(w.s, 3, 3, 0.5), SY_OK);
    world_request(&w, 2, 1);
    world_drain(&w);
    for (int i = 0; i < 50; i++)
        world_deliver(&w, false);
    assert_true(w.n_fetches > n);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), 4);
    /* A fetch is under way when its model is evicted, or asked for. */
    assert_int_equal(sy_sched_model_evict(w.s, 0, false), SY_OK);
    assert_int_equal(sy_sched_model_head(w.s, 0, 4, 2), SY_OK);
    world_request(&w, 3, 1);
    world_drain(&w);
    while (w.n_fetches == w.n_fetched && world_deliver(&w, false))
        continue;
    assert_int_equal(sy_sched_model_evict(w.s, 0, true), SY_OK);
    world_settle(&w);
    world_request(&w, 0, 1);
    world_drain(&w);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), 4);
    sy_sched_destroy(w.s);
}

static void test_request_preempts_training(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_start_training(&w);
    world_request(&w, 0, 1);
    assert_int_equal(w.n_loads, 1); /* at once, before training stands */
    assert_int_equal(w.n_preempts, 1);
    assert_int_equal(w.n_runs, 0);
    assert_true(world_advance_job(&w, 0)); /* paused */
    assert_int_equal(w.n_runs, 1);
    assert_int_equal(w.n_resumes, 0);
    world_drain(&w);
    assert_int_equal(w.n_resumes, 1);
    assert_true(sy_sched_training_runs(w.s));
    sy_sched_destroy(w.s);
}

static void test_next_is_prefetched_and_training_stays_paused(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_start_training(&w);
    world_request(&w, 0, 1);
    world_request(&w, 1, 1);
    world_advance_job(&w, 0);
    assert_int_equal(w.n_loads, 2); /* the second streams while the first computes */
    assert_int_equal(w.n_runs, 1);
    world_drain(&w);
    assert_int_equal(w.n_runs, 2);
    assert_int_equal(w.n_preempts, 1); /* training was not resumed in between */
    assert_int_equal(w.n_resumes, 1);
    sy_sched_destroy(w.s);
}

static void test_resident_model_is_not_read_again(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_request(&w, 0, 1);
    assert_int_equal(w.n_reads, 1);
    world_drain(&w);
    world_request(&w, 0, 1);
    assert_int_equal(w.n_reads, 0);
    world_drain(&w);
    assert_int_equal(w.n_runs, 2);
    sy_sched_destroy(w.s);
}

static void test_third_death_ends_the_request(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_request(&w, 0, 1);
    for (int death = 0; death < SY_SCHED_MOST_DEATHS; death++) {
        assert_int_equal(w.n_ends[1], 0);
        int worker = 0;
        while (w.workers[worker] != RUNNING)
            worker++;
        world_lose_worker(&w, worker);
        while (w.n_reads > 0)
            world_finish_read(&w, 0, true);
    }
    assert_int_equal(w.n_ends[1], 1);
    assert_int_equal(w.end_status[1], SY_EPEER);
    sy_sched_destroy(w.s);
}

static void test_one_death_runs_it_again(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_request(&w, 0, 1);
    world_lose_worker(&w, 0);
    assert_int_equal(w.n_ends[1], 0);
    assert_int_equal(w.n_loads,
                     1); /* not before the read that writes to the same memory has ended: S3 */
    world_drain(&w);
    assert_int_equal(w.n_runs, 2);
    assert_int_equal(w.end_status[1], SY_OK);
    sy_sched_destroy(w.s);
}

static void test_model_larger_than_the_pool_cycles(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 60, 1);
    world_request(&w, 4, 1); /* 80 MiB */
    world_drain(&w);
    assert_int_equal(w.end_status[1], SY_OK);
    sy_sched_destroy(w.s);
}

/* New sizes are made ready by one worker, and the next request of them finds it. */
static void test_sizes_are_prepared_once(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_sized_request(&w, 0, 1, 3);
    assert_int_equal(w.n_prepares, 1);
    assert_int_equal(w.n_loads, 0);
    world_drain(&w);
    for (int i = 0; i < 5; i++) {
        world_sized_request(&w, 0, 1, i % 2 ? 3 : 0);
        world_drain(&w);
    }
    assert_int_equal(w.n_prepared, 1);
    assert_int_equal(w.n_runs, 6);
    world_lose_worker(&w, 0); /* that had them */
    world_sized_request(&w, 0, 1, 3);
    world_drain(&w);
    assert_int_equal(w.n_prepared, 2);
    sy_sched_destroy(w.s);
}

/* More than are remembered: those that are forgotten are asked for again, and each request has its own workspace. */
static void test_a_client_with_ever_new_sizes(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < MAX_SIZES * MAX_BATCH; i++) {
            world_sized_request(&w, 0, 1 + (int64_t)i % MAX_BATCH, i / MAX_BATCH);
            world_drain(&w);
        }
    for (uint64_t id = 1; id < w.next_request; id++)
        assert_int_equal(w.end_status[id], SY_OK);
    assert_true(w.n_prepared > MAX_SIZES * MAX_BATCH);
    sy_sched_destroy(w.s);
}

/* 80 MiB in groups of 4, a workspace of 1 + 2 * 15: a pool of 32 cannot hold it, and what is there stays there. */
static void test_sizes_beyond_the_pool_are_refused(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 32, 2);
    world_request(&w, 0, 1);
    world_drain(&w);
    int n_before = sy_residency_n_resident(sy_sched_residency(w.s), 0);
    uint64_t evicted = sy_sched_n_evicted(w.s);
    world_sized_request(&w, 4, 1, 15);
    world_drain(&w);
    assert_int_equal(w.end_status[2], SY_ENOMEM_DEVICE);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), n_before);
    assert_int_equal(sy_sched_n_evicted(w.s), evicted);
    world_sized_request(&w, 4, 1, 13); /* 27 MiB: it cycles */
    world_drain(&w);
    assert_int_equal(w.end_status[3], SY_OK);
    sy_sched_destroy(w.s);
}

/* After one long request its workspace, 31 MiB, is there for the models again. */
static void test_a_large_workspace_is_not_kept(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 100, 2);
    world_sized_request(&w, 0, 1, 15); /* 16 MiB of groups */
    world_drain(&w);
    assert_int_equal(sy_pool_free_bytes(sy_sched_pool(w.s)), (100 - 16 - 31) * MIB);
    for (int i = 0; i < 20; i++) {
        world_request(&w, 0, 1);
        world_drain(&w);
    }
    assert_int_equal(sy_pool_free_bytes(sy_sched_pool(w.s)), (100 - 16 - 1) * MIB);
    sy_sched_destroy(w.s);
}

static void test_impossible_is_refused_with_sizes(void **state)
{
    (void)state;
    static struct world w;
    uint64_t huge[] = {100 * MIB};
    world_make(&w, true, 60, 1);
    assert_int_equal(sy_sched_model_add(w.s, 9, 1, huge, MIB), SY_ENOMEM_DEVICE);
    assert_non_null(strstr(sy_error_text(), "104857600"));
    struct sy_sched_request unknown = {.id = 1, .model = 9, .batch = 1};
    struct sy_sched_request empty = {.id = 1, .model = 0};
    assert_int_equal(sy_sched_request(w.s, &unknown, NULL), SY_ENOTFOUND);
    assert_int_equal(sy_sched_request(w.s, &empty, NULL), SY_EARG);
    world_submit_job(&w);
    w.workers[0] = JOB_READY;
    assert_int_equal(sy_sched_job_prepared(w.s, 0, 1, 100 * MIB, MIB, 0), SY_OK);
    world_settle(&w);
    assert_int_equal(w.refused_job_status, SY_ENOMEM_DEVICE);
    sy_sched_destroy(w.s);
}

static void test_queue_is_bounded(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    int n = 0;
    struct sy_sched_request r = {.id = w.next_request, .model = 0, .batch = 1};
    while (sy_sched_request(w.s, &r, NULL) == SY_OK) {
        r.id = ++w.next_request;
        n++;
    }
    world_settle(&w);
    assert_int_equal(n, 65); /* one that runs, 64 that wait */
    r.id = 999;
    assert_int_equal(sy_sched_request(w.s, &r, NULL), SY_EBUSY);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

static void test_no_worker_left_ends_all(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    for (int i = 0; i < N_WORKERS; i++) {
        w.workers[i] = AWAY;
        sy_sched_worker_lost(w.s, i, &(struct sy_sched_loss){.heard = true, .why = "given up"});
    }
    world_request(&w, 0, 1);
    assert_int_equal(w.end_status[1], SY_EPEER);
    sy_sched_destroy(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_come_back_while_nothing_waits),
        cmocka_unit_test(test_request_preempts_training),
        cmocka_unit_test(test_next_is_prefetched_and_training_stays_paused),
        cmocka_unit_test(test_resident_model_is_not_read_again),
        cmocka_unit_test(test_third_death_ends_the_request),
        cmocka_unit_test(test_one_death_runs_it_again),
        cmocka_unit_test(test_model_larger_than_the_pool_cycles),
        cmocka_unit_test(test_impossible_is_refused_with_sizes),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_no_worker_left_ends_all),
        cmocka_unit_test(test_sizes_are_prepared_once),
        cmocka_unit_test(test_a_large_workspace_is_not_kept),
        cmocka_unit_test(test_a_client_with_ever_new_sizes),
        cmocka_unit_test(test_sizes_beyond_the_pool_are_refused),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

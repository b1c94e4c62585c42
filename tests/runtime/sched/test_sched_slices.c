/* Slices: what computes side by side, and what does not (S11, S12). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/fakes/sched_world.h"
#include "tests/rigs/seed.h"

#ifdef SY_SANITIZED
#define N_WORLDS 8
#else
#define N_WORLDS 60
#endif

static uint64_t seed;

static int worker_doing(const struct world *w, enum worker_doing what)
{
    for (int i = 0; i < N_WORKERS; i++)
        if (w->workers[i] == what)
            return i;
    return -1;
}

/* Two slices, the job in slice 0, model 1 in slice 1. */
static void make_two(struct world *w)
{
    world_make(w, true, 200, 2);
    assert_int_equal(sy_sched_set_slices(w->s, 2), SY_OK);
    w->job_mib = 20;
    w->next_job = 1; /* jobs of even ids are in slice 0 */
    world_submit_job(w);
    for (int i = 0; i < 20 && worker_doing(w, TRAINING) < 0; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w->workers[worker] != TRAINING)
                (void)world_advance_job(w, worker);
    assert_int_equal(sy_sched_model_set_slice(w->s, 1, 1), SY_OK);
}

static void run_request(struct world *w, int model)
{
    world_request(w, model, 1);
    while (w->n_reads > 0)
        world_finish_read(w, 0, true);
}

static void test_training_goes_on_beside_another_slices_request(void **state)
{
    struct world w;
    (void)state;
    make_two(&w);
    run_request(&w, 1);
    assert_true(worker_doing(&w, RUNNING) >= 0 && worker_doing(&w, TRAINING) >= 0);
    assert_int_equal(w.n_preempts, 0);
    assert_int_equal(w.most_at_once, 2);
    run_request(&w, 0); /* slice 0: there it holds the job */
    assert_int_equal(w.n_preempts, 1);
    sy_sched_destroy(w.s);
}

static void test_two_requests_compute_at_once(void **state)
{
    struct world w;
    (void)state;
    world_make(&w, true, 200, 2);
    w.check_fifo = false;
    assert_int_equal(sy_sched_set_slices(w.s, 2), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w.s, 1, 1), SY_OK);
    run_request(&w, 0);
    run_request(&w, 0);
    run_request(&w, 1);
    run_request(&w, 1);
    assert_int_equal(world_n_running(&w), 2);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

static void test_a_death_in_one_slice_is_no_others_matter(void **state)
{
    struct world w;
    (void)state;
    make_two(&w);
    run_request(&w, 1);
    int request = worker_doing(&w, RUNNING), trainer = worker_doing(&w, TRAINING);
    uint64_t runs = (uint64_t)w.n_runs;
    world_lose_worker(&w, trainer);
    assert_int_equal(w.workers[request], RUNNING);
    assert_int_equal(w.n_interrupts, 0);
    world_finish_run(&w, request, SY_OK);
    assert_int_equal(w.end_status[1], SY_OK);
    assert_int_equal(w.n_runs, runs);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

static void test_what_is_apart_takes_turns(void **state)
{
    struct world w;
    (void)state;
    make_two(&w);
    assert_int_equal(sy_sched_job_set_exclusive(w.s, 2, 1, true), SY_OK);
    w.job_apart[2][1] = true;
    world_settle(&w);
    run_request(&w, 1);
    assert_int_equal(world_n_running(&w), 0); /* the job has to stand still first */
    int trainer = worker_doing(&w, TRAINING);
    while (w.workers[trainer] == TRAINING && !w.still[trainer])
        assert_true(world_advance_job(&w, trainer));
    assert_int_equal(world_n_running(&w), 1);
    assert_int_equal(world_n_at_once(&w), 1);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

/* Both go on to their ends, and take turns from then on. */
static void test_two_are_told_apart_while_both_compute(void **state)
{
    struct world w;
    (void)state;
    make_two(&w);
    run_request(&w, 1);
    int running = worker_doing(&w, RUNNING), trainer = worker_doing(&w, TRAINING);
    assert_int_equal(sy_sched_job_set_exclusive(w.s, 2, 1, true), SY_OK);
    world_settle(&w);
    assert_true(w.held[trainer]);
    world_finish_run(&w, running, SY_OK);
    assert_false(w.held[trainer]);
    assert_int_equal(sy_sched_job_set_slice(w.s, 2, 1), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w.s, 0, 0), SY_OK);
    run_request(&w, 0);
    while (world_n_running(&w) == 0)
        assert_true(world_deliver(&w, false));
    run_request(&w, 1);
    while (world_n_running(&w) < 2)
        assert_true(world_deliver(&w, false));
    assert_int_equal(sy_sched_set_exclusive(w.s, 0, 1, true), SY_OK);
    world_settle(&w);
    assert_int_equal(world_n_running(&w), 2);
    world_drain(&w);
    w.apart[0][1] = w.apart[1][0] = true;
    run_request(&w, 0);
    run_request(&w, 1);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

static void test_an_id_that_comes_again_is_apart_from_nobody(void **state)
{
    struct world w;
    uint64_t bytes[8];
    (void)state;
    make_two(&w);
    w.check_fifo = false;
    assert_int_equal(sy_sched_set_exclusive(w.s, 0, 1, true), SY_OK);
    assert_int_equal(sy_sched_job_set_exclusive(w.s, 2, 1, true), SY_OK);
    assert_int_equal(sy_sched_model_remove(w.s, 1), SY_OK);
    for (int g = 0; g < 8; g++)
        bytes[g] = 4 * MIB;
    assert_int_equal(sy_sched_model_add(w.s, 1, 8, bytes, MIB), SY_OK);
    world_all_prepared(&w, 1, 1);
    assert_int_equal(sy_sched_model_set_slice(w.s, 1, 1), SY_OK);
    run_request(&w, 1);
    assert_int_equal(world_n_at_once(&w), 2); /* the job, and it */
    run_request(&w, 0);
    while (world_n_running(&w) < 2)
        assert_true(world_advance_job(&w, worker_doing(&w, TRAINING)));
    world_drain(&w);
    sy_sched_destroy(w.s);
}

static void test_a_slice_that_is_gone_holds_nothing(void **state)
{
    struct world w;
    (void)state;
    world_make(&w, true, 200, 2);
    assert_int_equal(sy_sched_set_slices(w.s, 3), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w.s, 1, 2), SY_OK);
    uint64_t before = sy_pool_free_bytes(sy_sched_pool(w.s));
    run_request(&w, 1);
    assert_int_equal(sy_sched_set_slices(w.s, 1), SY_OK);
    world_drain(&w);
    assert_int_equal(sy_sched_model_evict(w.s, 1, true), SY_OK);
    assert_int_equal(sy_pool_free_bytes(sy_sched_pool(w.s)), before);
    assert_int_equal(sy_sched_set_slices(w.s, 3), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w.s, 1, 2), SY_OK);
    run_request(&w, 1);
    world_drain(&w);
    sy_sched_destroy(w.s);
}

static void all_prepared_for(struct world *w, int model, uint64_t sizes)
{
    struct sy_sched_prepared p = {.worker = -1,
                                  .model = model,
                                  .batch = 1,
                                  .sizes = sizes,
                                  .workspace_bytes = world_workspace_bytes(1, sizes)};
    for (int i = 0; i < N_WORKERS; i++)
        w->ready[i][model][1][sizes] = w->teams[i][model][1][sizes] |= 1;
    sy_sched_workspace(w->s, &p);
}

/* Model 0 in slice 0, model 1 in slice 1; all workers are ready for both. */
static void make_flooded(struct world *w, uint64_t pool_mib, uint64_t sizes, uint64_t others_sizes)
{
    world_make(w, true, pool_mib, 2);
    w->check_fifo = false;
    assert_int_equal(sy_sched_set_slices(w->s, 2), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w->s, 1, 1), SY_OK);
    all_prepared_for(w, 0, sizes);
    all_prepared_for(w, 1, others_sizes);
}

static int n_ended(const struct world *w)
{
    int n = 0;
    for (uint64_t r = 1; r < w->next_request; r++)
        n += w->n_ends[r];
    return n;
}

/* How many of the flood's requests end from a request's arrival to its own end, while as many come again. */
static int n_before_ones_own(struct world *w, uint64_t sizes, uint64_t others_sizes)
{
    int n = 0, before = n_ended(w);
    for (int i = 0; i < 4; i++)
        world_sized_request(w, 0, 1, sizes);
    uint64_t own = w->next_request;
    world_sized_request(w, 1, 1, others_sizes);
    while (w->n_ends[own] == 0 && n < 40) {
        assert_true(world_deliver(w, false));
        if (n_ended(w) - w->n_ends[own] - before == n)
            continue;
        n++;
        world_sized_request(w, 0, 1, sizes);
    }
    print_message("%d of the flood ended before\n", n);
    assert_int_equal(w->end_status[own], SY_OK);
    world_drain(w);
    sy_sched_destroy(w->s);
    return n;
}

static void test_a_flood_lets_what_is_apart_through(void **state)
{
    struct world w;
    (void)state;
    make_flooded(&w, 200, 0, 0);
    assert_int_equal(sy_sched_set_exclusive(w.s, 0, 1, true), SY_OK);
    w.apart[0][1] = w.apart[1][0] = true;
    assert_in_range(n_before_ones_own(&w, 0, 0), 0, 4);
}

/* 29 MiB and 16 of weights for the flood's, 31 and 32 for the other (its weights may cycle) do not lie in 60 MiB at once. */
static void test_a_flood_lets_one_through_that_finds_no_room(void **state)
{
    struct world w;
    (void)state;
    make_flooded(&w, 60, 14, 15);
    assert_in_range(n_before_ones_own(&w, 14, 15), 0, 4);
}

static void test_a_resize_prepares_anew(void **state)
{
    struct world w;
    (void)state;
    make_two(&w);
    run_request(&w, 1);
    int n = w.n_prepared;
    world_finish_run(&w, worker_doing(&w, RUNNING), SY_OK);
    sy_sched_slice_resized(w.s, 1, 3);
    world_settle(&w);
    run_request(&w, 1);
    assert_int_equal(world_n_running(&w), 0);
    world_drain(&w);
    assert_true(w.n_prepared > n);
    assert_int_equal(w.n_left_for_team, 0); /* the other slice's job */
    sy_sched_slice_resized(w.s, 0, 2);
    world_settle(&w);
    assert_int_equal(w.n_left_for_team, 0); /* job 2 has no snapshots */
    sy_sched_destroy(w.s);
}

/* Job 3 has snapshots, is in slice 1 and trains there; its slice gets other cores, and the snapshot fails or its worker dies over it. */
static void leave_for_a_team(struct world *w, bool dies)
{
    struct sy_sched_job_view view;
    make_two(w);
    w->snapshots_fail = true;
    world_submit_job(w);
    for (int i = 0; i < 100 && !(sy_sched_job_view(w->s, 3, &view) && view.has_turn); i++)
        (void)world_deliver(w, false);
    uint64_t at = w->persistent_at[3];
    sy_sched_slice_resized(w->s, 1, 5);
    world_settle(w);
    while (worker_doing(w, LEAVING) < 0)
        assert_true(world_deliver(w, false));
    if (dies)
        world_lose_worker(w, worker_doing(w, LEAVING));
    else
        assert_true(world_advance_job(w, worker_doing(w, LEAVING)));
    w->snapshots_fail = !dies;
    for (int i = 0; i < 100; i++) /* its start finds its memory: the world looks */
        (void)world_deliver(w, false);
    assert_true(sy_sched_job_view(w->s, 3, &view) && view.admitted && view.worker >= 0);
    if (!dies) {
        assert_int_equal(view.team, 0);
        assert_int_equal(view.persistent_offset, at);
    }
    assert_int_equal(w->n_left_for_team, dies ? 2 : 1);
    sy_sched_destroy(w->s);
}

static void test_who_has_no_snapshot_keeps_its_team(void **state)
{
    struct world w;
    (void)state;
    leave_for_a_team(&w, false);
    leave_for_a_team(&w, true);
}

static void test_a_job_moves_at_its_boundary(void **state)
{
    struct world w;
    struct sy_sched_job_view view;
    (void)state;
    make_two(&w);
    int trainer = worker_doing(&w, TRAINING);
    assert_int_equal(sy_sched_job_set_slice(w.s, 2, 1), SY_OK);
    world_settle(&w);
    assert_true(sy_sched_job_view(w.s, 2, &view));
    assert_int_equal(view.slice, 0); /* within its iteration */
    assert_true(world_advance_job(&w, trainer));
    assert_true(sy_sched_job_view(w.s, 2, &view));
    assert_int_equal(view.slice, 1);
    assert_int_equal(view.used_ns, SY_NS_PER_MS); /* what it computed before it moved */
    assert_int_equal(view.left_ns, 999 * SY_NS_PER_MS);
    assert_int_equal(sy_sched_job_set_slice(w.s, 2, 2), SY_EARG);
    assert_int_equal(sy_sched_model_set_slice(w.s, 1, 5), SY_EARG);
    assert_int_equal(sy_sched_set_slices(w.s, 0), SY_EARG);
    assert_int_equal(sy_sched_set_slices(w.s, SY_SCHED_MAX_SLICES + 1), SY_EARG);
    sy_sched_destroy(w.s);
}

/* ---- with one slice all is as without ---- */

static void some_event(struct world *w, uint64_t what)
{
    if (what < 30 && sy_sched_n_waiting(w->s) < 40 && w->next_request < MAX_IDS - 1)
        world_request(w, (int)world_pick(w, N_MODELS), 1 + (int64_t)world_pick(w, MAX_BATCH));
    else if (what < 36 && w->next_job < 100)
        world_submit_job(w);
    else if (what < 38)
        world_lose_worker(w, (int)world_pick(w, N_WORKERS));
    else if (what < 42 && w->next_request > 1) {
        sy_sched_cancel(w->s, 1 + world_pick(w, w->next_request - 1));
        world_settle(w);
    } else
        (void)world_deliver(w, true);
}

static void test_one_slice_decides_as_none(void **state)
{
    (void)state;
    for (int i = 0; i < N_WORLDS; i++) {
        struct world a, b;
        world_make(&a, i % 2, 120, (uint64_t)i + seed);
        world_make(&b, i % 2, 120, (uint64_t)i + seed);
        a.mixed = b.mixed = true;
        a.check_fifo = b.check_fifo = false;
        assert_int_equal(sy_sched_set_slices(b.s, 1 + i % 3), SY_OK); /* empty ones besides */
        assert_int_equal(sy_sched_set_slices(b.s, 1), SY_OK);
        for (int n = 0; n < 400; n++) {
            some_event(&a, world_pick(&a, 100));
            some_event(&b, world_pick(&b, 100));
            assert_true(a.log == b.log);
        }
        sy_sched_destroy(a.s);
        sy_sched_destroy(b.s);
    }
}

/* The older head of slice 1 ends for want of room once a suspended job's turn is over; the one of slice 0, kept apart from it, starts then. It reads
 * nothing, and no job computes: no other event comes. */
static void test_head_behind_one_that_ends(void **state)
{
    (void)state;
    struct world w;
    world_make(&w, false, 60, 2);
    assert_int_equal(sy_sched_set_slices(w.s, 2), SY_OK);
    assert_int_equal(sy_sched_model_set_slice(w.s, 4, 1), SY_OK);
    assert_int_equal(sy_sched_set_exclusive(w.s, 0, 4, true), SY_OK);
    world_all_prepared(&w, 4, 8);
    world_request(&w, 0, 1); /* from here on in the image */
    world_drain(&w);
    w.job_mib = 34; /* and 17 for an iteration: 9 are left, for a group of 4 and a workspace of 8 */
    world_submit_job(&w);
    int worker = worker_doing(&w, PREPARING_JOB);
    for (int i = 0; i < 3 && w.workers[worker] != TRAINING; i++)
        world_advance_job(&w, worker);
    assert_int_equal(w.workers[worker], TRAINING);
    assert_int_equal(sy_sched_job_suspend(w.s, 1, true), SY_OK);
    world_settle(&w);
    world_request(&w, 4, 8);
    world_request(&w, 0, 1);
    assert_int_equal(w.n_ends[2] + w.n_ends[3], 0); /* lanes move when the turn is over */
    int n_runs = w.n_runs;
    assert_true(world_advance_job(&w, worker));
    assert_int_equal(w.end_status[2], SY_ENOMEM_DEVICE);
    assert_int_equal(w.n_runs, n_runs + 1);
    world_drain(&w);
    assert_int_equal(w.end_status[3], SY_OK);
    sy_sched_destroy(w.s);
}

/* ---- at random ---- */

static void change_slices(struct world *w)
{
    int n = sy_sched_n_slices(w->s), model = (int)world_pick(w, N_MODELS),
        other = (int)world_pick(w, N_MODELS);
    bool apart = world_pick(w, 4) == 0;
    uint64_t job = 1 + world_pick(w, w->next_job + 1);
    switch (world_pick(w, 6)) {
    case 0:
        assert_int_equal(sy_sched_set_slices(w->s, 1 + (int)world_pick(w, 4)), SY_OK);
        break;
    case 1:
        assert_int_equal(sy_sched_model_set_slice(w->s, model, (int)world_pick(w, (uint64_t)n)),
                         SY_OK);
        break;
    case 2:
        (void)sy_sched_job_set_slice(w->s, job, (int)world_pick(w, (uint64_t)n));
        break;
    case 3:
        sy_sched_slice_resized(w->s, (int)world_pick(w, 4), (int)world_pick(w, 4));
        break;
    default:
        /* Pairs that compute at this moment are not told apart in its middle. */
        if (world_n_at_once(w) > 1 || worker_doing(w, RUNNING) >= 0 ||
            worker_doing(w, TRAINING) >= 0 || worker_doing(w, STARTING_JOB) >= 0)
            break;
        if (world_pick(w, 2) && sy_sched_job_set_exclusive(w->s, job, model, apart) == SY_OK)
            w->job_apart[job][model] = apart;
        else if (sy_sched_set_exclusive(w->s, model, other, apart) == SY_OK)
            w->apart[model][other] = w->apart[other][model] = apart && model != other;
        break;
    }
    world_settle(w);
}

static void test_random_slices(void **state)
{
    int most = 0, left = 0, continued = 0, failed = 0;
    (void)state;
    for (int i = 0; i < N_WORLDS; i++) {
        struct world w;
        world_make(&w, i % 2, 120 + 20 * (uint64_t)(i % 5), (uint64_t)i + 1000 * seed);
        w.mixed = i % 3 > 0;
        w.check_fifo = false;
        assert_int_equal(sy_sched_set_slices(w.s, 1 + i % 4), SY_OK);
        for (int n = 0; n < 600; n++) {
            if (world_pick(&w, 12) == 0)
                change_slices(&w);
            else
                some_event(&w, world_pick(&w, 110));
        }
        most = SY_MAX(most, w.most_at_once);
        left += w.n_left_for_team;
        failed += w.n_without_snapshot;
        continued += w.n_continued;
        world_drain(&w);
        sy_sched_destroy(w.s);
    }
    print_message("at most %d at once, %d left for another team (%d without a snapshot), %d "
                  "continued\n",
                  most, left, failed, continued);
    assert_true(most >= 3 && left > 0 && failed > 0);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_goes_on_beside_another_slices_request),
        cmocka_unit_test(test_two_requests_compute_at_once),
        cmocka_unit_test(test_a_death_in_one_slice_is_no_others_matter),
        cmocka_unit_test(test_what_is_apart_takes_turns),
        cmocka_unit_test(test_two_are_told_apart_while_both_compute),
        cmocka_unit_test(test_an_id_that_comes_again_is_apart_from_nobody),
        cmocka_unit_test(test_a_slice_that_is_gone_holds_nothing),
        cmocka_unit_test(test_a_flood_lets_what_is_apart_through),
        cmocka_unit_test(test_a_flood_lets_one_through_that_finds_no_room),
        cmocka_unit_test(test_a_resize_prepares_anew),
        cmocka_unit_test(test_who_has_no_snapshot_keeps_its_team),
        cmocka_unit_test(test_a_job_moves_at_its_boundary),
        cmocka_unit_test(test_one_slice_decides_as_none),
        cmocka_unit_test(test_head_behind_one_that_ends),
        cmocka_unit_test(test_random_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

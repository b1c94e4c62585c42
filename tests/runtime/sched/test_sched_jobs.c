/* The scheduler and training jobs, by name: turns, suspended and spilled ones, quotas, deaths of their workers. */
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

static void test_training_memory_survives_its_worker(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_action a;
    uint64_t before = 0;
    world_make(&w, true, 400, 1);
    world_submit_job(&w);
    w.workers[0] = JOB_READY;
    assert_int_equal(sy_sched_job_prepared(w.s, 0, 1, 20 * MIB, 10 * MIB, 0), SY_OK);
    while (sy_sched_next(w.s, &a))
        if (a.kind == SY_DO_JOB_START)
            before = a.persistent_offset;
    assert_int_equal(sy_sched_job_started(w.s, 0, 1, 0), SY_OK);
    assert_true(sy_sched_next(w.s, &a));
    assert_int_equal(a.kind, SY_DO_JOB_TURN);
    assert_true(a.keeps); /* it is alone */
    sy_sched_worker_lost(w.s, 0,
                         &(struct sy_sched_loss){.heard = true,
                                                 .state_intact = true,
                                                 .job_progressed = true,
                                                 .comes_back = true,
                                                 .why = "killed"});
    assert_true(sy_sched_next(w.s, &a));
    assert_int_equal(a.kind, SY_DO_JOB_PREPARE);
    assert_int_equal(sy_sched_job_prepared(w.s, a.worker, 1, 20 * MIB, 10 * MIB, 0), SY_OK);
    assert_true(sy_sched_next(w.s, &a));
    assert_int_equal(a.kind, SY_DO_JOB_START);
    assert_true(a.in_memory);
    assert_true(a.persistent_offset == before);
    sy_sched_destroy(w.s);
}

/* Jobs `1..n` train, one after the other; the world's clock goes on by what an iteration takes. */
static void take_turns(struct world *w, int n, sy_ns each)
{
    for (int i = 0; i < n; i++) {
        for (int worker = 0; worker < N_WORKERS; worker++) {
            if (w->workers[worker] != TRAINING || w->keeps[worker])
                continue;
            uint64_t job = w->job_of[worker];
            w->workers[worker] = WAITING_TURN;
            w->now += each * (job + 1);
            sy_sched_set_time(w->s, w->now);
            assert_int_equal(
                sy_sched_job_turn_over(w->s, worker, job, ++w->iterations[job], each * (job + 1)),
                SY_OK);
            world_settle(w);
            break;
        }
    }
}

static void start_all(struct world *w, int n_jobs)
{
    w->job_mib = 20;
    for (int i = 0; i < n_jobs; i++)
        world_submit_job(w);
    for (int i = 0; i < 8 * n_jobs; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w->workers[worker] != TRAINING || !w->keeps[worker])
                world_advance_job(w, worker);
}

static void test_jobs_take_turns(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    world_start_training(&w);
    assert_true(w.keeps[0]);
    start_all(&w, 2);
    assert_true(w.n_yields > 0); /* the first had the device to itself until the second came */
    int before = w.n_turns;
    sy_ns used[4];
    struct sy_sched_job_view view;
    for (uint64_t job = 1; job <= 3; job++) {
        assert_true(sy_sched_job_view(w.s, job, &view));
        used[job] = view.used_ns;
    }
    take_turns(&w, 600, SY_NS_PER_MS);
    assert_true(w.n_turns >= before + 590);
    sy_ns least = UINT64_MAX, most = 0;
    for (uint64_t job = 1; job <= 3; job++) {
        assert_true(sy_sched_job_view(w.s, job, &view));
        least = SY_MIN(least, view.used_ns - used[job]);
        most = SY_MAX(most, view.used_ns - used[job]);
    }
    assert_true(most - least <=
                2 * 2 * 4 * SY_NS_PER_MS); /* fair: 2 x (n-1) x the longest iteration */
    sy_sched_destroy(w.s);
}

static void test_suspended_job_gives_its_turns_away(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    start_all(&w, 2);
    assert_int_equal(sy_sched_job_suspend(w.s, 1, true), SY_OK);
    world_settle(&w);
    take_turns(&w, 4, SY_NS_PER_MS);
    uint64_t before = w.iterations[1];
    assert_int_equal(w.workers[1], TRAINING);
    assert_true(w.keeps[1]); /* alone again */
    assert_int_equal(sy_sched_job_suspend(w.s, 1, false), SY_OK);
    world_settle(&w);
    assert_false(w.keeps[1]);
    take_turns(&w, 10, SY_NS_PER_MS);
    assert_true(w.iterations[1] >= before + 4);
    sy_sched_destroy(w.s);
}

/* Two jobs of 60 MiB and 30 MiB an iteration in 170 MiB: both persistent parts fit, one lane only. */
static void test_jobs_share_a_lane_when_memory_is_scarce(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view a, b;
    world_make(&w, true, 170, 1);
    w.job_mib = 60;
    world_submit_job(&w);
    world_submit_job(&w);
    for (int i = 0; i < 20; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != TRAINING || !w.keeps[worker])
                world_advance_job(&w, worker);
    assert_true(sy_sched_job_view(w.s, 1, &a));
    assert_true(sy_sched_job_view(w.s, 2, &b));
    assert_true(a.admitted && b.admitted);
    assert_int_equal(a.lane, b.lane);
    uint64_t before = w.iterations[1] + w.iterations[2];
    take_turns(&w, 10, SY_NS_PER_MS);
    assert_true(w.iterations[1] + w.iterations[2] == before + 10);
    sy_sched_destroy(w.s);
}

/* A guaranteed job has no room beside an opportunistic one: that one's memory goes, and comes back. */
static void test_opportunistic_job_gives_way(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    world_make(&w, true, 120, 1);
    w.persistent[1] = w.persistent[2] = 60 * MIB;
    w.ephemeral[1] = w.ephemeral[2] = 10 * MIB;
    w.opportunistic[1] = true;
    struct sy_sched_job first = {.id = 1, .opportunistic = true}, second = {.id = 2};
    w.next_job = 2;
    assert_int_equal(sy_sched_job_submit(w.s, &first), SY_OK);
    world_settle(&w);
    for (int i = 0; i < 3; i++)
        world_advance_job(&w, 0);
    assert_int_equal(w.workers[0], TRAINING);
    assert_int_equal(sy_sched_job_submit(w.s, &second), SY_OK);
    world_settle(&w);
    for (int i = 0; i < 40; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != TRAINING || !w.keeps[worker])
                world_advance_job(&w, worker);
    assert_true(w.n_spills >= 1);
    assert_int_equal(w.workers[0], SPILLED);
    assert_int_equal(w.workers[1], TRAINING);
    assert_true(sy_sched_job_view(w.s, 1, &view));
    assert_true(view.spilled && !view.admitted);
    uint64_t before = w.iterations[1];
    world_end_job(&w, 1);
    for (int i = 0; i < 10; i++)
        if (w.workers[0] != TRAINING)
            world_advance_job(&w, 0);
    assert_int_equal(w.workers[0], TRAINING); /* back, and on */
    assert_true(w.iterations[1] == before);
    sy_sched_destroy(w.s);
}

static void advance_all(struct world *w, int times)
{
    for (int i = 0; i < times; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w->workers[worker] != TRAINING || !w->keeps[worker])
                world_advance_job(w, worker);
}

/* What gave way leaves a hole below another job. The one that it gave way to gets it; it is not told that it can never run, and comes back,
 * also when its tenant's quota has become too small for it. */
static void test_spilled_job_is_not_refused(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view first, last;
    world_make(&w, true, 120, 1);
    w.persistent[1] = w.persistent[3] = 58 * MIB;
    w.persistent[2] = 2 * MIB;
    w.ephemeral[1] = w.ephemeral[2] = w.ephemeral[3] = MIB;
    w.opportunistic[1] = true;
    for (uint64_t id = 1; id <= 3; id++) {
        struct sy_sched_job job = {.id = id, .opportunistic = id == 1, .tenant = id == 1};
        w.next_job = id;
        assert_int_equal(sy_sched_job_submit(w.s, &job), SY_OK);
        world_settle(&w);
        advance_all(&w, 4);
        assert_int_equal(sy_sched_set_tenant(w.s, 1, 1, 0, 10 * MIB), SY_OK);
        world_settle(&w);
    }
    advance_all(&w, 40);
    assert_true(w.n_spills >= 1);
    assert_true(sy_sched_job_view(w.s, 1, &first) && sy_sched_job_view(w.s, 3, &last));
    assert_true(first.spilled && !first.admitted);
    assert_true(last.admitted);
    assert_true(last.persistent_offset < 58 * MIB); /* in the hole */
    for (uint64_t id = 2; id <= 3; id++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.job_of[worker] == id)
                world_end_job(&w, worker);
    advance_all(&w, 10);
    assert_true(sy_sched_job_view(w.s, 1, &first));
    assert_true(first.admitted && !first.spilled); /* back */
    sy_sched_destroy(w.s);
}

static int worker_of(const struct world *w, uint64_t job)
{
    struct sy_sched_job_view view;
    return sy_sched_job_view(w->s, job, &view) ? view.worker : -1;
}

static void lose_worker_of(struct world *w, uint64_t job)
{
    int worker = worker_of(w, job);
    assert_true(worker >= 0);
    world_lose_worker(w, worker);
    w->workers[worker] = IDLE;
    sy_sched_worker_ready(w->s, worker);
    world_settle(w);
    advance_all(w, 12);
}

/* A suspended job's memory leaves no room for a request, even in one piece. The one behind it is in the image, so no read ends, and no job has a turn
 * that ends: nothing but the event that ended the first can start it. */
static void test_request_behind_one_without_room_runs_at_once(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, false, 60, 2);
    world_request(&w, 0, 1);
    world_drain(&w);
    world_start_training(&w); /* 20 MiB, and 10 for an iteration */
    assert_int_equal(sy_sched_job_suspend(w.s, 1, true), SY_OK);
    world_settle(&w);
    advance_all(&w, 2);
    assert_false(sy_sched_training_runs(w.s));
    world_sized_request(&w, 4, 1, 15); /* 31 MiB of workspace beside a group of 4 */
    world_request(&w, 0, 1);
    int n_runs = w.n_runs;
    assert_true(world_deliver(&w, false)); /* it is prepared: now its size is known */
    assert_int_equal(w.end_status[2], SY_ENOMEM_DEVICE);
    assert_int_equal(w.n_reads, 0);
    assert_int_equal(w.n_runs, n_runs + 1);
    world_drain(&w);
    assert_int_equal(w.end_status[3], SY_OK);
    sy_sched_destroy(w.s);
}

/* A job whose worker is killed while it waits for its turn is not to blame. */
static void test_deaths_count_at_work_only(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    world_make(&w, true, 400, 1);
    start_all(&w, 2);
    w.no_progress = true;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(w.workers[worker_of(&w, 2)], WAITING_TURN);
        lose_worker_of(&w, 2);
    }
    assert_true(sy_sched_job_view(w.s, 2, &view));
    assert_true(view.admitted);
    sy_sched_destroy(w.s);
}

/* Both fit: the opportunistic one has no turn while the guaranteed one wants it. */
static void test_opportunistic_job_waits(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    start_all(&w, 1);
    struct sy_sched_job other = {.id = 2, .opportunistic = true};
    w.persistent[2] = w.ephemeral[2] = MIB;
    w.opportunistic[2] = true;
    w.next_job = 2;
    assert_int_equal(sy_sched_job_submit(w.s, &other), SY_OK);
    world_settle(&w);
    for (int i = 0; i < 10; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != TRAINING || !w.keeps[worker])
                world_advance_job(&w, worker);
    assert_int_equal(w.workers[1], WAITING_TURN);
    assert_true(w.keeps[0]);
    assert_int_equal(sy_sched_job_suspend(w.s, 1, true), SY_OK);
    world_settle(&w);
    take_turns(&w, 1, SY_NS_PER_MS);
    assert_int_equal(w.workers[1], TRAINING);
    sy_sched_destroy(w.s);
}

/* Three workers for jobs, all taken: the next one that is free goes to a guaranteed job, whatever the opportunistic one's priority. */
static void test_guaranteed_job_has_the_next_worker(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_action a;
    world_make(&w, true, 400, 1);
    for (uint64_t id = 1; id <= 5; id++) {
        struct sy_sched_job job = {
            .id = id, .opportunistic = id == 4, .priority = id == 4 ? -5 : 5};
        assert_int_equal(sy_sched_job_submit(w.s, &job), SY_OK);
    }
    int worker = -1, prepared = 0;
    for (; sy_sched_next(w.s, &a); prepared++) {
        assert_int_equal(a.kind, SY_DO_JOB_PREPARE);
        assert_in_range(a.job, 1, 3);
        worker = a.job == 1 ? a.worker : worker;
    }
    assert_int_equal(prepared, 3);
    sy_sched_job_ended(w.s, worker, 1);
    assert_true(sy_sched_next(w.s, &a));
    assert_int_equal(a.kind, SY_DO_JOB_PREPARE);
    assert_int_equal(a.job, 5);
    sy_sched_destroy(w.s);
}

static int n_of_class_on_workers(const struct world *w, bool opportunistic)
{
    int n = 0;
    for (int i = 0; i < N_WORKERS; i++)
        n += w->workers[i] >= PREPARING_JOB && w->opportunistic[w->job_of[i]] == opportunistic;
    return n;
}

static void submit(struct world *w, uint64_t id, bool opportunistic)
{
    struct sy_sched_job job = {.id = id, .opportunistic = opportunistic};
    w->opportunistic[id] = opportunistic;
    w->persistent[id] = w->ephemeral[id] = MIB;
    w->next_job = id;
    assert_int_equal(sy_sched_job_submit(w->s, &job), SY_OK);
    world_settle(w);
}

/* Opportunistic jobs have all workers, one of them the turn, which it would keep: after its next iteration's end a guaranteed one has a worker. Who
 * gave way goes on where it stood, once there is a worker again: with what was spilled, or if that fails from its memory, which stays. */
static void opportunistic_job_gives_its_worker(bool spills_work)
{
    static struct world w;
    world_make(&w, true, 400, 1);
    w.spills_work = spills_work;
    w.spills_fail = !spills_work;
    for (uint64_t id = 1; id <= 3; id++)
        submit(&w, id, true);
    advance_all(&w, 20);
    assert_int_equal(n_of_class_on_workers(&w, true), 3);
    uint64_t before[4];
    memcpy(before, w.iterations, sizeof before);
    submit(&w, 4, false);
    for (int n = 0; n < (spills_work ? 2 : 4) && w.n_left == 0; n++)
        for (int i = 0; i < N_WORKERS; i++) /* one thing of each: at most one iteration */
            world_advance_job(&w, i);
    assert_int_equal(w.n_left, 1);
    assert_int_equal(n_of_class_on_workers(&w, false), 1);
    advance_all(&w, 20);
    uint64_t left = worker_of(&w, 1) < 0 ? 1 : worker_of(&w, 2) < 0 ? 2 : 3;
    struct sy_sched_job_view view;
    assert_true(sy_sched_job_view(w.s, left, &view));
    assert_true(view.worker < 0 && view.admitted == !spills_work && view.spilled == spills_work);
    assert_true(w.iterations[left] <= before[left] + 1);
    assert_int_equal(w.n_left, 1); /* nobody else had to */
    uint64_t at = view.persistent_offset;
    world_end_job(&w, worker_of(&w, 4));
    advance_all(&w, 20); /* the world checks that it is told of its memory */
    assert_true(sy_sched_job_view(w.s, left, &view));
    assert_true(view.worker >= 0 && (spills_work || view.persistent_offset == at));
    assert_true(w.iterations[left] >= before[left]);
    sy_sched_destroy(w.s);
}

static void test_opportunistic_job_gives_its_worker(void **state)
{
    (void)state;
    opportunistic_job_gives_its_worker(true);
    opportunistic_job_gives_its_worker(false);
}

/* Four guaranteed ones want the three workers of three opportunistic ones; when two have ended, one of those is back. Canceled on its way out, it is
 * gone. */
static void test_guaranteed_jobs_take_all_workers(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    int leaving = -1;
    world_make(&w, true, 400, 1);
    w.spills_work = true;
    for (uint64_t id = 1; id <= 3; id++)
        submit(&w, id, true);
    advance_all(&w, 20);
    for (uint64_t id = 4; id <= 7; id++)
        submit(&w, id, false);
    for (int n = 0; n < 60 && leaving < 0; n++) {
        world_advance_job(&w, n % N_WORKERS);
        for (int i = 0; i < N_WORKERS; i++)
            leaving = w.workers[i] == LEAVING ? i : leaving;
    }
    assert_true(leaving >= 0);
    (void)sy_sched_job_stop(w.s, w.job_of[leaving]);
    world_settle(&w);
    advance_all(&w, 20);
    assert_int_equal(w.n_left, 3);
    assert_int_equal(w.jobs_refused, 1);
    assert_int_equal(w.refused_job_status, SY_ECANCELED);
    assert_int_equal(n_of_class_on_workers(&w, false), 3);
    int n_there = 0;
    for (uint64_t id = 1; id <= 3; id++)
        n_there += sy_sched_job_view(w.s, id, &view);
    assert_int_equal(n_there, 2);
    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < N_WORKERS; i++)
            if (w.workers[i] >= WAITING_TURN && !w.opportunistic[w.job_of[i]]) {
                world_end_job(&w, i);
                break;
            }
        advance_all(&w, 20);
    }
    assert_int_equal(n_of_class_on_workers(&w, false), 2);
    assert_int_equal(n_of_class_on_workers(&w, true), 1);
    sy_sched_destroy(w.s);
}

/* Two that were suspended before they had workers leave them to others, and have them once they are let go. */
static void test_suspended_before_it_has_a_worker(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    sy_sched_hold_jobs(w.s, true);
    for (uint64_t id = 1; id <= 3; id++) {
        submit(&w, id, id == 2);
        assert_int_equal(sy_sched_job_suspend(w.s, id, true), SY_OK);
    }
    sy_sched_hold_jobs(w.s, false);
    submit(&w, 4, false);
    advance_all(&w, 20);
    assert_true(worker_of(&w, 4) >= 0 && w.workers[worker_of(&w, 4)] == TRAINING);
    for (uint64_t id = 1; id <= 3; id++)
        assert_true(worker_of(&w, id) < 0);
    world_end_job(&w, worker_of(&w, 4));
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(sy_sched_job_suspend(w.s, id, false), SY_OK);
    world_settle(&w);
    advance_all(&w, 20);
    for (uint64_t id = 1; id <= 3; id++)
        assert_true(worker_of(&w, id) >= 0);
    sy_sched_destroy(w.s);
}

static void test_tenant_over_its_quota_is_refused(void **state)
{
    (void)state;
    static struct world w;
    world_make(&w, true, 400, 1);
    assert_int_equal(sy_sched_set_tenant(w.s, 1, 1, 0, 25 * MIB), SY_OK);
    w.job_mib = 20; /* and 10 an iteration */
    struct sy_sched_job job = {.id = ++w.next_job, .tenant = 1};
    w.persistent[1] = 20 * MIB;
    w.ephemeral[1] = 10 * MIB;
    assert_int_equal(sy_sched_job_submit(w.s, &job), SY_OK);
    world_settle(&w);
    world_advance_job(&w, 0);
    assert_int_equal(w.jobs_refused, 1);
    struct sy_sched_job other = {.id = ++w.next_job, .tenant = 2};
    w.persistent[2] = 20 * MIB;
    w.ephemeral[2] = 10 * MIB;
    assert_int_equal(sy_sched_job_submit(w.s, &other), SY_OK);
    world_settle(&w);
    for (int i = 0; i < 3; i++)
        world_advance_job(&w, 1);
    assert_true(sy_sched_training_runs(w.s)); /* nobody else notices */
    sy_sched_destroy(w.s);
}

/* A job of 50 of 64 MiB comes, then a model that needs 21 of them. Where jobs are held until it is there, the model is taken, whose room beside
 * all jobs is for certain, and the job is refused; otherwise the model is. */
static void add_model_beside_job(bool held)
{
    const uint64_t group = 20 * MIB;
    struct sy_sched_config config = {.pool_bytes = 64 * MIB, .n_workers = 2, .max_queue = 4};
    struct sy_sched_job job = {.id = 1};
    struct sy_sched_action a;
    struct sy_sched *s;
    assert_int_equal(sy_sched_create(&config, &s), SY_OK);
    sy_sched_hold_jobs(s, held);
    for (int worker = 0; worker < 2; worker++)
        sy_sched_worker_ready(s, worker);
    assert_int_equal(sy_sched_job_submit(s, &job), SY_OK);
    assert_true(sy_sched_next(s, &a) == !held);
    if (!held) {
        assert_int_equal(a.kind, SY_DO_JOB_PREPARE);
        assert_int_equal(sy_sched_job_prepared(s, a.worker, 1, 40 * MIB, 10 * MIB, 0), SY_OK);
        assert_int_equal(sy_sched_model_add(s, 0, 1, &group, MIB), SY_ENOMEM_DEVICE);
    } else {
        assert_int_equal(sy_sched_model_add(s, 0, 1, &group, MIB), SY_OK);
        assert_false(sy_sched_next(s, &a));
        sy_sched_hold_jobs(s, false);
        assert_true(sy_sched_next(s, &a));
        assert_int_equal(a.kind, SY_DO_JOB_PREPARE);
        assert_int_equal(sy_sched_job_prepared(s, a.worker, 1, 40 * MIB, 10 * MIB, 0), SY_OK);
        assert_true(sy_sched_next(s, &a));
        assert_int_equal(a.kind, SY_DO_JOB_REFUSE);
        assert_int_equal(a.status, SY_ENOMEM_DEVICE);
    }
    sy_sched_destroy(s);
}

static void test_held_job_leaves_room_for_models(void **state)
{
    (void)state;
    add_model_beside_job(false);
    add_model_beside_job(true);
}

/* The first worker that is ready takes requests; a job has the second, which still loads models. */
static void test_job_leaves_the_only_ready_worker(void **state)
{
    (void)state;
    struct sy_sched_config config = {.pool_bytes = 64 * MIB, .n_workers = 3, .max_queue = 4};
    struct sy_sched_job job = {.id = 1};
    struct sy_sched_action a;
    struct sy_sched *s;
    assert_int_equal(sy_sched_create(&config, &s), SY_OK);
    assert_int_equal(sy_sched_job_submit(s, &job), SY_OK);
    sy_sched_worker_ready(s, 0);
    assert_false(sy_sched_next(s, &a));
    sy_sched_worker_loads(s, 1, 1);
    sy_sched_worker_ready(s, 1);
    assert_true(sy_sched_next(s, &a));
    assert_int_equal(a.kind, SY_DO_JOB_PREPARE);
    assert_int_equal(a.worker, 1);
    sy_sched_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_leaves_the_only_ready_worker),
        cmocka_unit_test(test_training_memory_survives_its_worker),
        cmocka_unit_test(test_jobs_take_turns),
        cmocka_unit_test(test_suspended_job_gives_its_turns_away),
        cmocka_unit_test(test_jobs_share_a_lane_when_memory_is_scarce),
        cmocka_unit_test(test_suspended_before_it_has_a_worker),
        cmocka_unit_test(test_tenant_over_its_quota_is_refused),
        cmocka_unit_test(test_opportunistic_job_gives_way),
        cmocka_unit_test(test_spilled_job_is_not_refused),
        cmocka_unit_test(test_request_behind_one_without_room_runs_at_once),
        cmocka_unit_test(test_deaths_count_at_work_only),
        cmocka_unit_test(test_opportunistic_job_waits),
        cmocka_unit_test(test_guaranteed_job_has_the_next_worker),
        cmocka_unit_test(test_opportunistic_job_gives_its_worker),
        cmocka_unit_test(test_guaranteed_jobs_take_all_workers),
        cmocka_unit_test(test_held_job_leaves_room_for_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the scheduler's actions do to the world, and what must hold after each. */
#include "tests/fakes/sched_world.h"

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
#include "tests/rigs/seed.h"

bool world_trains(const struct world *w)
{
    for (int i = 0; i < N_WORKERS; i++)
        if ((w->workers[i] == TRAINING || w->workers[i] == STARTING_JOB) && !w->still[i])
            return true;
    return false;
}

int world_n_running(const struct world *w)
{
    int n = 0;
    for (int i = 0; i < N_WORKERS; i++)
        n += w->workers[i] == RUNNING;
    return n;
}

int world_n_at_once(const struct world *w)
{
    int n = world_n_running(w);
    for (int i = 0; i < N_WORKERS; i++)
        n += w->workers[i] == TRAINING && !w->still[i];
    return n;
}

static bool computes(const struct world *w, int worker)
{
    return w->workers[worker] == RUNNING ||
           ((w->workers[worker] == TRAINING || w->workers[worker] == STARTING_JOB) &&
            !w->still[worker]);
}

/* S11, S12: what may compute beside it. */
static void check_beside(const struct world *w, int worker)
{
    for (int i = 0; i < N_WORKERS; i++) {
        if (i == worker || !computes(w, i))
            continue;
        int slices[2] = {w->slice_of[i], w->slice_of[worker]};
        assert_int_not_equal(slices[0], slices[1]);
        if (w->workers[worker] == RUNNING && w->workers[i] == RUNNING) {
            assert_false(w->apart[w->model_of[worker]][w->model_of[i]]);
            assert_true(w->workspace_at[i] + w->workspace_bytes[i] <= w->workspace_at[worker] ||
                        w->workspace_at[worker] + w->workspace_bytes[worker] <= w->workspace_at[i]);
        } else if (w->workers[i] == RUNNING) {
            assert_false(w->job_apart[w->job_of[worker]][w->model_of[i]]);
        } else if (w->workers[worker] == RUNNING) {
            assert_false(w->job_apart[w->job_of[i]][w->model_of[worker]]);
        }
    }
}

static void write_pool(struct world *w, uint64_t at, uint64_t bytes, uint64_t what)
{
    assert_true(w->pool_bytes <= MAX_CELLS * CELL && at % CELL == 0 && bytes % CELL == 0);
    for (uint64_t cell = at / CELL; cell < (at + bytes) / CELL; cell++)
        w->content[cell] = what;
}

/* S8: what it goes on with is as it left it. */
static void do_run(struct world *w, const struct sy_sched_action *a)
{
    uint64_t bytes = world_workspace_bytes(a->batch, a->sizes);
    assert_true(a->workspace_offset + bytes <= w->pool_bytes && bytes <= a->workspace_bytes);
    w->slice_of[a->worker] = a->slice;
    w->model_of[a->worker] = a->model;
    w->workspace_at[a->worker] = a->workspace_offset;
    w->workspace_bytes[a->worker] = bytes;
    if (a->first_layer > 0) {
        assert_int_equal(a->first_layer, w->stopped_at[a->request]);
        for (uint64_t at = a->workspace_offset; at < a->workspace_offset + bytes; at += CELL)
            assert_true(w->content[at / CELL] == a->request);
        w->n_continued++;
    }
    w->stopped_at[a->request] = 0;
    write_pool(w, a->workspace_offset, bytes, a->request);
}

static void do_load(struct world *w, const struct sy_sched_action *a)
{
    bool more = w->workers[a->worker] == LOADED && w->run_of[a->worker] == a->run;
    assert_true(more || w->workers[a->worker] == IDLE);
    if (!more) {
        assert_int_equal(a->first_group, 0);
        if (w->check_fifo && a->request)
            assert_true(a->request >= w->last_started); /* equal: started again after a CANCEL */
        w->last_started = a->request ? a->request : w->last_started;
        w->fetching[a->worker] = false;
        if (a->request)
            assert_true(w->ready[a->worker][a->model][a->batch][a->sizes]);
    }
    w->workers[a->worker] = LOADED;
    w->run_of[a->worker] = a->run;
    w->request_of[a->worker] = a->request;
    w->n_loads++;
    for (int g = a->first_group; g < a->first_group + a->n_groups; g++) {
        assert_true(a->places[g].after_group < g);
        if (!a->places[g].resident)
            write_pool(w, a->places[g].offset, a->places[g].bytes, 0);
    }
}

static void do_end(struct world *w, const struct sy_sched_action *a)
{
    assert_true(a->request > 0 && a->request < MAX_IDS);
    w->n_ends[a->request]++;
    w->end_status[a->request] = a->status;
    assert_int_equal(w->n_ends[a->request], 1); /* S4 */
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Persistent parts overlap with nothing else that jobs have now; nor does an iteration's ephemeral part. */
static void check_job_memory(const struct world *w, int worker, uint64_t at, uint64_t bytes)
{
    for (int i = 0; i < N_WORKERS; i++) {
        uint64_t other = w->job_of[i];
        if (w->workers[i] < STARTING_JOB)
            continue;
        if (i != worker)
            assert_false(overlap(at, bytes, w->persistent_at[other], w->persistent[other]));
        if (i != worker && w->workers[i] == TRAINING)
            assert_false(overlap(at, bytes, w->turn_at[i], w->ephemeral[other]));
    }
    struct sy_sched_job_view view;
    for (uint64_t other = 1; other <= w->next_job; other++)
        if (w->kept[other] && other != w->job_of[worker] &&
            sy_sched_job_view(w->s, other, &view)) /* a canceled one has none */
            assert_false(overlap(at, bytes, w->persistent_at[other], w->persistent[other]));
}

/* Jobs of lanes of their own may have turns at once, as the policy says. */
static void check_beside_requests(const struct world *w, int worker)
{
    for (int i = 0; i < N_WORKERS; i++) {
        int slices[2] = {w->slice_of[i], w->slice_of[worker]};
        if (w->workers[i] == RUNNING) {
            assert_int_not_equal(slices[0], slices[1]);
            assert_false(w->job_apart[w->job_of[worker]][w->model_of[i]]);
        }
    }
}

static void do_job(struct world *w, const struct sy_sched_action *a)
{
    switch (a->kind) {
    case SY_DO_JOB_PREPARE:
        assert_int_equal(w->workers[a->worker], IDLE);
        w->workers[a->worker] = PREPARING_JOB;
        if (w->kept[a->job]) /* its persistent part is laid out for it */
            assert_int_equal(a->team, w->team_of[a->job]);
        w->team_of[a->job] = a->team;
        w->job_of[a->worker] = a->job;
        break;
    case SY_DO_JOB_START:
        assert_int_equal(w->workers[a->worker], JOB_READY);
        w->slice_of[a->worker] = a->slice;
        assert_true(!a->in_memory || w->persistent_at[a->job] == a->persistent_offset); /* S6 */
        assert_true(a->in_memory || !w->kept[a->job]); /* its state is not lost */
        assert_true(a->spilled == w->away[a->job] && !(a->spilled && a->in_memory));
        w->kept[a->job] = false;
        w->workers[a->worker] = STARTING_JOB;
        check_beside(w, a->worker);
        w->persistent_at[a->job] = a->persistent_offset;
        w->still[a->worker] = false;
        check_job_memory(w, a->worker, a->persistent_offset, w->persistent[a->job]);
        check_job_memory(w, a->worker, a->ephemeral_offset, w->ephemeral[a->job]);
        write_pool(w, a->persistent_offset, w->persistent[a->job], 0);
        write_pool(w, a->ephemeral_offset, w->ephemeral[a->job], 0);
        break;
    case SY_DO_JOB_TURN:
        assert_int_equal(w->workers[a->worker], WAITING_TURN);
        w->slice_of[a->worker] = a->slice;
        assert_false(w->held[a->worker]);
        check_job_memory(w, a->worker, a->ephemeral_offset, w->ephemeral[a->job]);
        write_pool(w, a->ephemeral_offset, w->ephemeral[a->job], 0);
        w->workers[a->worker] = TRAINING;
        check_beside_requests(w, a->worker);
        w->turn_at[a->worker] = a->ephemeral_offset;
        w->keeps[a->worker] = a->keeps;
        w->n_turns++;
        break;
    case SY_DO_JOB_SPILL:
        assert_int_equal(w->workers[a->worker], WAITING_TURN);
        assert_true(w->opportunistic[a->job]);
        w->workers[a->worker] = SPILLING;
        w->n_spills++;
        break;
    case SY_DO_JOB_LEAVE:
        assert_true(w->workers[a->worker] == WAITING_TURN || w->workers[a->worker] == JOB_READY ||
                    w->workers[a->worker] == SPILLED);
        if (!w->opportunistic[a->job]) {
            assert_true(w->moves[a->job] && w->workers[a->worker] == WAITING_TURN);
            w->n_left_for_team++;
            w->kept[a->job] = w->for_team[a->worker] = true; /* until it has a snapshot */
            w->workers[a->worker] = LEAVING;
            break;
        }
        w->n_left_spilled += w->workers[a->worker] == SPILLED;
        w->kept[a->job] |= w->workers[a->worker] == WAITING_TURN;
        w->workers[a->worker] = LEAVING;
        break;
    case SY_DO_JOB_RETURN:
        assert_int_equal(w->workers[a->worker], SPILLED);
        assert_true(w->away[a->job]);
        w->workers[a->worker] = RETURNING;
        w->persistent_at[a->job] = a->persistent_offset;
        check_job_memory(w, a->worker, a->persistent_offset, w->persistent[a->job]);
        write_pool(w, a->persistent_offset, w->persistent[a->job], 0);
        break;
    case SY_DO_JOB_YIELD:
        assert_int_equal(w->workers[a->worker], TRAINING);
        assert_true(w->keeps[a->worker]);
        w->keeps[a->worker] = false;
        w->n_yields++;
        break;
    case SY_DO_JOB_STOP:
        if (w->workers[a->worker] >= PREPARING_JOB)
            w->stop_job[a->worker] = a->job;
        break;
    default:
        w->jobs_refused++;
        w->refused_job_status = a->status;
        break;
    }
}

static void act(struct world *w, const struct sy_sched_action *a)
{
    uint64_t what = (uint64_t)a->kind << 40 ^ (uint64_t)(a->worker + 1) << 32 ^ a->run << 16 ^
                    a->job << 8 ^ a->request;
    w->log = (w->log ^ what) * 1099511628211ull;
    switch (a->kind) {
    case SY_DO_PREEMPT:
        assert_int_equal(w->workers[a->worker], TRAINING);
        assert_false(w->held[a->worker]);
        w->held[a->worker] = true;
        w->n_preempts++;
        break;
    case SY_DO_RESUME:
        assert_true(w->held[a->worker]);
        w->held[a->worker] = w->still[a->worker] = false;
        w->n_resumes++;
        if (w->workers[a->worker] == TRAINING)
            check_beside_requests(w, a->worker);
        break;
    case SY_DO_PREPARE:
        assert_int_equal(w->workers[a->worker], IDLE);
        assert_true(w->n_prepares < 256);
        w->prepares[w->n_prepares].worker = a->worker;
        w->prepares[w->n_prepares].model = a->model;
        w->prepares[w->n_prepares].sizes = a->sizes;
        w->prepares[w->n_prepares].team = a->team;
        w->prepares[w->n_prepares++].batch = a->batch;
        break;
    case SY_DO_LOAD:
        do_load(w, a);
        break;
    case SY_DO_READ:
        assert_true(w->n_reads < 16);
        w->reads[w->n_reads].run = a->run;
        w->reads[w->n_reads].first = a->first_group;
        w->reads[w->n_reads].n = a->n_groups;
        w->reads[w->n_reads++].canceled = false;
        break;
    case SY_DO_CANCEL_READ:
        for (int i = 0; i < w->n_reads; i++)
            w->reads[i].canceled |= w->reads[i].run == a->run;
        break;
    case SY_DO_FETCH: /* S9 */
        assert_int_equal(w->workers[a->worker], LOADED);
        assert_true(w->run_of[a->worker] == a->run);
        assert_int_equal(sy_sched_n_waiting(w->s) + sy_sched_n_started(w->s), 0);
        w->fetching[a->worker] = true;
        w->n_fetches++;
        break;
    case SY_DO_RUN:
        assert_false(w->fetching[a->worker]);
        assert_int_equal(w->workers[a->worker], LOADED);
        assert_true(w->run_of[a->worker] == a->run);
        assert_true(w->teams[a->worker][a->model][a->batch][a->sizes] >> a->team & 1);
        do_run(w, a);
        w->workers[a->worker] = RUNNING;
        check_beside(w, a->worker); /* S1 */
        w->n_runs++;
        break;
    case SY_DO_CANCEL:
        assert_int_equal(w->workers[a->worker], LOADED);
        w->workers[a->worker] = CANCELING;
        break;
    case SY_DO_INTERRUPT:
        assert_int_equal(w->workers[a->worker], RUNNING);
        w->interrupted[a->worker] = true;
        w->n_interrupts++;
        break;
    case SY_DO_END:
        do_end(w, a);
        break;
    default:
        do_job(w, a);
        break;
    }
}

static bool waits_for_memory(const struct world *w)
{
    struct sy_sched_job_view view;
    for (int i = 0; i < N_WORKERS; i++)
        if (w->workers[i] == JOB_READY && !w->opportunistic[w->job_of[i]] && !w->stop_job[i] &&
            sy_sched_job_view(w->s, w->job_of[i], &view) && !view.admitted)
            return true;
    return false;
}

/* S10: while a guaranteed job lacks a worker, or one that is to give a guaranteed one its memory, nobody who is spilled keeps his. */
static void check_spilled_workers(const struct world *w)
{
    struct sy_sched_job_view view;
    bool memory_is_wanted = waits_for_memory(w);
    int n_lacking = 0, n_free = 0, n_spilled = 0;
    for (int i = 0; i < N_WORKERS; i++) {
        bool has_job = w->workers[i] >= PREPARING_JOB, leaves = w->workers[i] == LEAVING;
        n_free += !has_job;
        n_lacking -= leaves || (has_job && w->stop_job[i]);
        n_spilled += w->workers[i] == SPILLED && !w->stop_job[i];
    }
    for (uint64_t job = 1; job <= w->next_job; job++) {
        if (!sy_sched_job_view(w->s, job, &view) || view.worker >= 0)
            continue;
        bool gives = memory_is_wanted && view.admitted && w->now >= w->spill_again[job];
        n_lacking += w->opportunistic[job] ? gives : !view.suspended;
    }
    assert_true(n_free >= 2 || n_lacking <= 0 || n_spilled == 0);
}

void world_settle(struct world *w)
{
    struct sy_sched_action a;
    while (sy_sched_next(w->s, &a))
        act(w, &a);
    w->now += world_pick(w, 3 * SY_NS_PER_MS);
    sy_sched_set_time(w->s, w->now);
    while (sy_sched_next(w->s, &a))
        act(w, &a);
    w->most_at_once = SY_MAX(w->most_at_once, world_n_at_once(w));
    assert_true(sy_sched_is_valid(w->s));
    if (w->check_spills)
        check_spilled_workers(w);
}

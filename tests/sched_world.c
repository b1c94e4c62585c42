#include "tests/sched_world.h"

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
#include "tests/seed.h"

uint64_t world_pick(struct world *w, uint64_t n)
{
    return seed_below(&w->random, n);
}

/* ---- what actions do to the world --------------------------------------------------------------- */

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
    assert_true(a->workspace_offset + bytes <= w->pool_bytes);
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

/* What lasts lies apart from all else that jobs have now; so does what an iteration needs. */
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

static void do_job(struct world *w, const struct sy_sched_action *a)
{
    switch (a->kind) {
    case SY_DO_JOB_PREPARE:
        assert_int_equal(w->workers[a->worker], IDLE);
        w->workers[a->worker] = PREPARING_JOB;
        w->job_of[a->worker] = a->job;
        break;
    case SY_DO_JOB_START:
        assert_int_equal(w->workers[a->worker], JOB_READY);
        assert_false(world_trains(w));
        assert_true(!a->in_memory || w->persistent_at[a->job] == a->persistent_offset); /* S6 */
        assert_true(a->in_memory || !w->kept[a->job]); /* its state is not lost */
        assert_true(a->spilled == w->away[a->job] && !(a->spilled && a->in_memory));
        w->kept[a->job] = false;
        w->workers[a->worker] = STARTING_JOB;
        w->persistent_at[a->job] = a->persistent_offset;
        w->still[a->worker] = false;
        check_job_memory(w, a->worker, a->persistent_offset, w->persistent[a->job]);
        check_job_memory(w, a->worker, a->ephemeral_offset, w->ephemeral[a->job]);
        write_pool(w, a->persistent_offset, w->persistent[a->job], 0);
        write_pool(w, a->ephemeral_offset, w->ephemeral[a->job], 0);
        break;
    case SY_DO_JOB_TURN:
        assert_int_equal(w->workers[a->worker], WAITING_TURN);
        assert_int_equal(world_n_running(w), 0);
        assert_false(w->held[a->worker]);
        check_job_memory(w, a->worker, a->ephemeral_offset, w->ephemeral[a->job]);
        write_pool(w, a->ephemeral_offset, w->ephemeral[a->job], 0);
        w->workers[a->worker] = TRAINING;
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
        assert_true(w->opportunistic[a->job]);
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
        assert_int_equal(world_n_running(w), 0);
        break;
    case SY_DO_PREPARE:
        assert_int_equal(w->workers[a->worker], IDLE);
        assert_true(w->n_prepares < 256);
        w->prepares[w->n_prepares].worker = a->worker;
        w->prepares[w->n_prepares].model = a->model;
        w->prepares[w->n_prepares].sizes = a->sizes;
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
        assert_int_equal(world_n_running(w), 0); /* S1 */
        assert_false(world_trains(w));
        do_run(w, a);
        w->workers[a->worker] = RUNNING;
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
        bool gives = memory_is_wanted && view.admitted && !w->cannot_spill[job];
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
    assert_true(sy_sched_is_valid(w->s));
    check_spilled_workers(w);
}

/* ---- events --------------------------------------------------------------------------------------- */

void world_finish_read(struct world *w, int i, bool ok)
{
    bool arrived[64];
    uint64_t run = w->reads[i].run;
    int first = w->reads[i].first, n = w->reads[i].n;
    for (int g = 0; g < n; g++)
        arrived[g] = ok && !w->reads[i].canceled;
    w->reads[i] = w->reads[--w->n_reads];
    sy_sched_read_done(w->s, run, first, n, arrived);
    world_settle(w);
}

void world_finish_run(struct world *w, int worker, int status)
{
    bool fetched = w->fetching[worker] && status == SY_OK;
    if (w->interrupted[worker] && status == SY_ECANCELED) {
        int layer = w->stops_at ? w->stops_at : (int)world_pick(w, 10);
        w->stopped_at[w->request_of[worker]] = layer;
        sy_sched_stopped_at(w->s, worker, w->run_of[worker], layer, w->left);
    }
    w->workers[worker] = IDLE;
    w->interrupted[worker] = w->fetching[worker] = false;
    w->n_fetched += fetched;
    if (w->random % 3 == 0)
        sy_sched_arrived(w->s, worker, w->run_of[worker], world_pick(w, 20));
    assert_int_equal(
        sy_sched_run_done(w->s, worker, w->run_of[worker], status, status ? "it failed" : ""),
        SY_OK);
    world_settle(w);
}

void world_end_job(struct world *w, int worker)
{
    w->workers[worker] = IDLE;
    w->still[worker] = false;
    w->stop_job[worker] = 0;
    assert_int_equal(sy_sched_job_ended(w->s, worker, w->job_of[worker]), SY_OK);
    world_settle(w);
}

void world_lose_worker(struct world *w, int worker)
{
    w->check_fifo = false; /* it goes back to the queue's head, behind what was prefetched */
    w->workers[worker] = AWAY;
    w->held[worker] = w->still[worker] = w->interrupted[worker] = w->fetching[worker] = false;
    w->stop_job[worker] = 0;
    memset(w->ready[worker], 0, sizeof w->ready[worker]);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b <= MAX_BATCH; b++)
            w->ready[worker][m][b][0] = w->everywhere[m][b];
    for (int i = 0; i < w->n_prepares;) {
        if (w->prepares[i].worker == worker)
            w->prepares[i] = w->prepares[--w->n_prepares];
        else
            i++;
    }
    sy_sched_worker_lost(w->s, worker, world_pick(w, 2), !w->no_progress, true,
                         "killed by the test");
    world_settle(w);
}

bool world_advance_job(struct world *w, int worker)
{
    uint64_t job = w->job_of[worker];
    switch (w->workers[worker]) {
    case PREPARING_JOB:
        w->workers[worker] = JOB_READY;
        assert_int_equal(
            sy_sched_job_prepared(w->s, worker, job, w->persistent[job], w->ephemeral[job], 1000),
            SY_OK);
        break;
    case STARTING_JOB:
        w->workers[worker] = WAITING_TURN;
        w->away[job] = false;
        assert_int_equal(sy_sched_job_started(w->s, worker, job, w->iterations[job]), SY_OK);
        break;
    case SPILLING: {
        bool worked = (world_pick(w, 8) != 0 || w->spills_work) && !w->spills_fail;
        w->workers[worker] = worked ? SPILLED : WAITING_TURN;
        w->away[job] = worked;
        w->cannot_spill[job] |= !worked;
        assert_int_equal(sy_sched_job_spilled(w->s, worker, job, worked), SY_OK);
        break;
    }
    case LEAVING:
        w->workers[worker] = IDLE;
        w->stop_job[worker] = 0;
        w->n_left++;
        assert_int_equal(sy_sched_job_left(w->s, worker, job), SY_OK);
        break;
    case RETURNING:
        w->workers[worker] = WAITING_TURN;
        w->away[job] = false;
        assert_int_equal(sy_sched_job_returned(w->s, worker, job), SY_OK);
        break;
    case TRAINING:
        if (w->still[worker])
            return false;
        if (w->held[worker] && (w->keeps[worker] || world_pick(w, 2))) {
            w->still[worker] = true;
            assert_int_equal(sy_sched_job_paused(w->s, worker, job), SY_OK);
            break;
        }
        if (w->keeps[worker])
            return false;
        w->workers[worker] = WAITING_TURN;
        w->iterations[job]++;
        assert_int_equal(
            sy_sched_job_turn_over(w->s, worker, job, w->iterations[job], SY_NS_PER_MS), SY_OK);
        break;
    default:
        return false;
    }
    world_settle(w);
    return true;
}

static bool answer_prepare(struct world *w)
{
    if (w->n_prepares == 0)
        return false;
    int i = (int)world_pick(w, (uint64_t)w->n_prepares);
    struct sy_sched_prepared p = {
        .worker = w->prepares[i].worker,
        .model = w->prepares[i].model,
        .batch = w->prepares[i].batch,
        .sizes = w->prepares[i].sizes,
        .workspace_bytes = world_workspace_bytes(w->prepares[i].batch, w->prepares[i].sizes)};
    w->prepares[i] = w->prepares[--w->n_prepares];
    w->ready[p.worker][p.model][p.batch][p.sizes] = true;
    w->n_prepared++;
    sy_sched_workspace(w->s, &p);
    world_settle(w);
    return true;
}

static bool is_read(const struct world *w, uint64_t run)
{
    for (int i = 0; i < w->n_reads; i++)
        if (w->reads[i].run == run)
            return true;
    return false;
}

/* One thing that is on its way happens. False: nothing is on its way. */
bool world_deliver(struct world *w, bool may_fail)
{
    /* Turns without end are no progress: what else is on its way comes first every other time. */
    bool turns = world_pick(w, 2);
    uint64_t first = world_pick(w, N_WORKERS);
    for (int i = 0; i < N_WORKERS; i++) {
        int worker = (int)((first + (uint64_t)i) % N_WORKERS);
        bool fails = may_fail && world_pick(w, 20) == 0;
        if (w->workers[worker] == AWAY) {
            w->workers[worker] = IDLE;
            sy_sched_worker_ready(w->s, worker);
            world_settle(w);
            return true;
        }
        bool may_end = w->workers[worker] == JOB_READY || w->workers[worker] == TRAINING ||
                       w->workers[worker] == SPILLED;
        if (w->stop_job[worker] && may_end && !w->still[worker]) {
            world_end_job(w, worker);
            return true;
        }
        if ((w->workers[worker] == RUNNING && (fails || !is_read(w, w->run_of[worker]))) ||
            w->workers[worker] == CANCELING) {
            bool stopped = w->interrupted[worker] && world_pick(w, 2);
            world_finish_run(w, worker,
                             stopped                                    ? SY_ECANCELED
                             : fails || w->workers[worker] == CANCELING ? SY_EIO
                                                                        : SY_OK);
            return true;
        }
        if (w->workers[worker] == LOADED && w->fetching[worker] &&
            (fails || !is_read(w, w->run_of[worker]))) {
            world_finish_run(w, worker, fails ? SY_EIO : SY_OK);
            return true;
        }
        bool only_a_turn = w->workers[worker] == TRAINING && !w->held[worker];
        if ((turns || !only_a_turn) && world_advance_job(w, worker))
            return true;
    }
    if (w->n_reads > 0) {
        world_finish_read(w, (int)world_pick(w, (uint64_t)w->n_reads),
                          !may_fail || world_pick(w, 20) != 0);
        return true;
    }
    return answer_prepare(w);
}

uint64_t world_workspace_bytes(int64_t batch, uint64_t sizes)
{
    return ((uint64_t)batch + 2 * sizes) * MIB;
}

void world_all_prepared(struct world *w, int model, int64_t batch)
{
    struct sy_sched_prepared p = {.worker = -1,
                                  .model = model,
                                  .batch = batch,
                                  .workspace_bytes = world_workspace_bytes(batch, 0)};
    for (int i = 0; i < N_WORKERS; i++)
        w->ready[i][model][batch][0] = true;
    w->everywhere[model][batch] = true;
    sy_sched_workspace(w->s, &p);
}

void world_request(struct world *w, int model, int64_t batch)
{
    world_sized_request(w, model, batch, 0);
}

void world_sized_request(struct world *w, int model, int64_t batch, uint64_t sizes)
{
    assert_true(w->next_request < MAX_IDS && batch <= MAX_BATCH && sizes < MAX_SIZES);
    struct sy_sched_request r = {.id = w->next_request++,
                                 .model = model,
                                 .batch = batch,
                                 .sizes = sizes,
                                 .class_ = w->mixed ? (int)world_pick(w, 3) : 0,
                                 .duration = {SY_NS_PER_MS, SY_NS_PER_MS / 10}};
    assert_int_equal(sy_sched_request(w->s, &r, NULL), SY_OK);
    world_settle(w);
}

void world_submit_job(struct world *w)
{
    uint64_t id = ++w->next_job;
    struct sy_sched_job job = {.id = id,
                               .tenant = (int)world_pick(w, 3),
                               .priority = (int)world_pick(w, 3),
                               .opportunistic = w->mixed && world_pick(w, 2)};
    w->opportunistic[id] = job.opportunistic;
    w->persistent[id] = w->job_mib ? w->job_mib * MIB : (1 + world_pick(w, 20)) * MIB;
    w->ephemeral[id] = w->job_mib ? w->job_mib * MIB / 2 : (1 + world_pick(w, 15)) * MIB;
    assert_int_equal(sy_sched_job_submit(w->s, &job), SY_OK);
    world_settle(w);
}

/* ---- worlds --------------------------------------------------------------------------------------- */

const uint64_t world_model_groups[N_MODELS] = {4, 8, 12, 3, 20};

void world_make(struct world *w, bool unified, uint64_t pool_mib, uint64_t seed)
{
    struct sy_sched_config config = {.pool_bytes = pool_mib * MIB,
                                     .image_bytes = unified ? 0 : 400 * MIB,
                                     .n_workers = N_WORKERS,
                                     .max_queue = 64,
                                     .fetch_heads = seed % 2};
    uint64_t bytes[32];
    memset(w, 0, sizeof *w);
    w->random = seed * 2654435761u + 88172645463325252ull;
    w->unified = unified;
    w->pool_bytes = pool_mib * MIB;
    w->next_request = 1;
    w->check_fifo = true;
    assert_int_equal(sy_sched_create(&config, &w->s), SY_OK);
    for (int m = 0; m < N_MODELS; m++) {
        for (uint64_t g = 0; g < world_model_groups[m]; g++)
            bytes[g] = 4 * MIB;
        assert_int_equal(sy_sched_model_add(w->s, m, (int)world_model_groups[m], bytes, MIB),
                         SY_OK);
        world_all_prepared(w, m, 1);
    }
    for (int i = 0; i < N_WORKERS; i++) {
        w->workers[i] = IDLE;
        sy_sched_worker_ready(w->s, i);
        world_settle(w);
    }
}

void world_drain(struct world *w)
{
    /* Jobs that take turns never stand still: the requests are what must come to an end. */
    for (int i = 0; i < 100000; i++) {
        bool any = world_deliver(w, false);
        if (!any && sy_sched_n_waiting(w->s) == 0 && sy_sched_n_started(w->s) == 0)
            break;
        if (any && sy_sched_n_waiting(w->s) == 0 && sy_sched_n_started(w->s) == 0 &&
            w->n_reads == 0 && i > 2000)
            break;
    }
    assert_int_equal(sy_sched_n_waiting(w->s), 0);
    assert_int_equal(sy_sched_n_started(w->s), 0);
    for (uint64_t r = 1; r < w->next_request; r++)
        assert_int_equal(w->n_ends[r], 1);
}

void world_start_training(struct world *w)
{
    w->job_mib = 20;
    world_submit_job(w);
    for (int worker = 0; worker < N_WORKERS; worker++)
        for (int i = 0; i < 3 && w->workers[worker] != TRAINING; i++)
            world_advance_job(w, worker);
    assert_true(sy_sched_training_runs(w->s));
}

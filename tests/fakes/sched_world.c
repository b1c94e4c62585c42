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

uint64_t world_pick(struct world *w, uint64_t n)
{
    return seed_below(&w->random, n);
}

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
    w->for_team[worker] = false;
    w->stop_job[worker] = 0;
    memset(w->ready[worker], 0, sizeof w->ready[worker]);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b <= MAX_BATCH; b++)
            w->ready[worker][m][b][0] = w->everywhere[m][b];
    memset(w->teams[worker], 0, sizeof w->teams[worker]);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b <= MAX_BATCH; b++)
            w->teams[worker][m][b][0] = w->everywhere[m][b];
    for (int i = 0; i < w->n_prepares;) {
        if (w->prepares[i].worker == worker)
            w->prepares[i] = w->prepares[--w->n_prepares];
        else
            i++;
    }
    const struct sy_sched_loss loss = {.heard = true,
                                       .state_intact = world_pick(w, 2),
                                       .job_progressed = !w->no_progress,
                                       .comes_back = true,
                                       .why = "killed by the test"};
    sy_sched_worker_lost(w->s, worker, &loss);
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
        if (!worked) {
            w->spill_pause[job] = SY_MIN(
                w->spill_pause[job] ? 2 * w->spill_pause[job] : SY_NS_PER_S, 300 * SY_NS_PER_S);
            w->spill_again[job] = w->now + w->spill_pause[job];
        } else {
            w->spill_pause[job] = 0;
        }
        assert_int_equal(sy_sched_job_spilled(w->s, worker, job, worked), SY_OK);
        break;
    }
    case LEAVING: {
        bool has_snapshot = !w->for_team[worker] || (world_pick(w, 4) != 0 && !w->snapshots_fail);
        if (w->for_team[worker])
            w->kept[job] = !has_snapshot;
        w->moves[job] &= has_snapshot;
        w->workers[worker] = IDLE;
        w->for_team[worker] = false;
        w->stop_job[worker] = 0;
        w->n_left++;
        w->n_without_snapshot += !has_snapshot;
        assert_int_equal(sy_sched_job_left(w->s, worker, job, has_snapshot), SY_OK);
        break;
    }
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
        .team = w->prepares[i].team,
        .workspace_bytes = world_workspace_bytes(w->prepares[i].batch, w->prepares[i].sizes)};
    w->prepares[i] = w->prepares[--w->n_prepares];
    w->ready[p.worker][p.model][p.batch][p.sizes] = true;
    w->teams[p.worker][p.model][p.batch][p.sizes] |= 1ull << p.team;
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
        w->ready[i][model][batch][0] = w->teams[i][model][batch][0] |= 1;
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
                               .opportunistic =
                                   w->next_is_opportunistic || (w->mixed && world_pick(w, 2))};
    job.moves = w->moves[id] = !job.opportunistic && id % 2;
    job.slice = (int)(id % (uint64_t)sy_sched_n_slices(w->s));
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
    w->check_fifo = w->check_spills = true;
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

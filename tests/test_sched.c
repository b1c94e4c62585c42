/* The scheduler against a model of the world: random events, the promises of sched.h checked after each action. */
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
#include "runtime/sched/sched.h"

#define MIB       (1ull << 20)
#define N_WORKERS 4
#define N_MODELS  5
#define MAX_IDS   4096

enum worker_doing {
    AWAY,
    IDLE,
    LOADED,
    RUNNING,
    CANCELING,
    PREPARING_JOB,
    JOB_READY,
    SPILLED, /* its memory is nobody's */
    STARTING_JOB,
    SPILLING,
    RETURNING,
    WAITING_TURN,
    TRAINING
};

struct world {
    uint64_t pool_bytes;
    struct sy_sched *s;
    bool unified;
    enum worker_doing workers[N_WORKERS];
    uint64_t run_of[N_WORKERS], job_of[N_WORKERS], request_of[N_WORKERS];
    int deaths[MAX_IDS];
    bool held[N_WORKERS], still[N_WORKERS]; /* the epoch is odd; training has seen it */
    bool keeps[N_WORKERS];                  /* the turn, over iterations */
    uint64_t iterations[MAX_IDS];           /* of each job */
    uint64_t persistent[MAX_IDS], persistent_at[MAX_IDS];
    uint64_t turn_at[N_WORKERS], ephemeral[MAX_IDS];
    sy_ns now;
    int n_turns, n_yields, n_interrupts;
    bool fetching[N_WORKERS];
    int n_fetches, n_fetched;
    bool interrupted[N_WORKERS], mixed; /* mixed: requests of several classes */
    uint64_t job_mib;                   /* 0: any */
    bool opportunistic[MAX_IDS];
    int n_spills;
    bool no_progress; /* jobs whose workers die had finished no iteration on them */
    int n_ends[MAX_IDS], end_status[MAX_IDS];
    uint64_t started_order, last_started; /* FIFO */
    struct {
        uint64_t run;
        int first, n;
        bool canceled;
    } reads[16];
    int n_reads;
    struct {
        int worker, model;
        int64_t batch;
    } prepares[256];
    int n_prepares;
    uint64_t stop_job[N_WORKERS];
    bool loaded_without_run[N_WORKERS];
    int refused_job_status;
    uint64_t next_request, next_job, jobs_refused;
    bool check_fifo;
    int n_runs, n_loads, n_preempts, n_resumes;
    uint64_t random;
};

static uint64_t pick(struct world *w, uint64_t n)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % n;
}

/* ---- what actions do to the world --------------------------------------------------------------- */

static bool trains(const struct world *w)
{
    for (int i = 0; i < N_WORKERS; i++)
        if ((w->workers[i] == TRAINING || w->workers[i] == STARTING_JOB) && !w->still[i])
            return true;
    return false;
}

static int n_running(const struct world *w)
{
    int n = 0;
    for (int i = 0; i < N_WORKERS; i++)
        n += w->workers[i] == RUNNING;
    return n;
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
    }
    w->workers[a->worker] = LOADED;
    w->run_of[a->worker] = a->run;
    w->request_of[a->worker] = a->request;
    w->n_loads++;
    for (int g = a->first_group; g < a->first_group + a->n_groups; g++)
        assert_true(a->places[g].after_group < g);
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
        assert_false(trains(w));
        assert_true(!a->in_memory || w->persistent_at[a->job] == a->persistent_offset); /* S6 */
        w->workers[a->worker] = STARTING_JOB;
        w->persistent_at[a->job] = a->persistent_offset;
        w->still[a->worker] = false;
        check_job_memory(w, a->worker, a->persistent_offset, w->persistent[a->job]);
        check_job_memory(w, a->worker, a->ephemeral_offset, w->ephemeral[a->job]);
        break;
    case SY_DO_JOB_TURN:
        assert_int_equal(w->workers[a->worker], WAITING_TURN);
        assert_int_equal(n_running(w), 0);
        assert_false(w->held[a->worker]);
        check_job_memory(w, a->worker, a->ephemeral_offset, w->ephemeral[a->job]);
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
    case SY_DO_JOB_RETURN:
        assert_int_equal(w->workers[a->worker], SPILLED);
        w->workers[a->worker] = RETURNING;
        w->persistent_at[a->job] = a->persistent_offset;
        check_job_memory(w, a->worker, a->persistent_offset, w->persistent[a->job]);
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
        assert_int_equal(n_running(w), 0);
        break;
    case SY_DO_PREPARE:
        assert_int_equal(w->workers[a->worker], IDLE);
        assert_true(w->n_prepares < 256);
        w->prepares[w->n_prepares].worker = a->worker;
        w->prepares[w->n_prepares].model = a->model;
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
        assert_int_equal(n_running(w), 0); /* S1 */
        assert_false(trains(w));
        assert_true(a->workspace_offset + (uint64_t)a->batch * MIB <= w->pool_bytes);
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

static void settle(struct world *w)
{
    struct sy_sched_action a;
    while (sy_sched_next(w->s, &a))
        act(w, &a);
    w->now += pick(w, 3 * SY_NS_PER_MS);
    sy_sched_set_time(w->s, w->now);
    while (sy_sched_next(w->s, &a))
        act(w, &a);
    assert_true(sy_sched_is_valid(w->s));
}

/* ---- events --------------------------------------------------------------------------------------- */

static void finish_read(struct world *w, int i, bool ok)
{
    bool arrived[64];
    uint64_t run = w->reads[i].run;
    int first = w->reads[i].first, n = w->reads[i].n;
    for (int g = 0; g < n; g++)
        arrived[g] = ok && !w->reads[i].canceled;
    w->reads[i] = w->reads[--w->n_reads];
    sy_sched_read_done(w->s, run, first, n, arrived);
    settle(w);
}

static void finish_run(struct world *w, int worker, int status)
{
    bool fetched = w->fetching[worker] && status == SY_OK;
    w->workers[worker] = IDLE;
    w->interrupted[worker] = w->fetching[worker] = false;
    w->n_fetched += fetched;
    if (w->random % 3 == 0)
        sy_sched_arrived(w->s, worker, w->run_of[worker], pick(w, 20));
    assert_int_equal(
        sy_sched_run_done(w->s, worker, w->run_of[worker], status, status ? "it failed" : ""),
        SY_OK);
    settle(w);
}

static void end_job(struct world *w, int worker)
{
    w->workers[worker] = IDLE;
    w->still[worker] = false;
    w->stop_job[worker] = 0;
    assert_int_equal(sy_sched_job_ended(w->s, worker, w->job_of[worker]), SY_OK);
    settle(w);
}

static void lose_worker(struct world *w, int worker)
{
    w->check_fifo = false; /* it goes back to the queue's head, behind what was prefetched */
    w->workers[worker] = AWAY;
    w->held[worker] = w->still[worker] = w->interrupted[worker] = w->fetching[worker] = false;
    w->stop_job[worker] = 0;
    for (int i = 0; i < w->n_prepares;) {
        if (w->prepares[i].worker == worker)
            w->prepares[i] = w->prepares[--w->n_prepares];
        else
            i++;
    }
    sy_sched_worker_lost(w->s, worker, pick(w, 2), !w->no_progress, true, "killed by the test");
    settle(w);
}

static bool advance_job(struct world *w, int worker)
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
        assert_int_equal(sy_sched_job_started(w->s, worker, job, w->iterations[job]), SY_OK);
        break;
    case SPILLING: {
        bool worked = pick(w, 8) != 0;
        w->workers[worker] = worked ? SPILLED : WAITING_TURN;
        assert_int_equal(sy_sched_job_spilled(w->s, worker, job, worked), SY_OK);
        break;
    }
    case RETURNING:
        w->workers[worker] = WAITING_TURN;
        assert_int_equal(sy_sched_job_returned(w->s, worker, job), SY_OK);
        break;
    case TRAINING:
        if (w->still[worker])
            return false;
        if (w->held[worker] && (w->keeps[worker] || pick(w, 2))) {
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
    settle(w);
    return true;
}

static bool answer_prepare(struct world *w)
{
    if (w->n_prepares == 0)
        return false;
    int i = (int)pick(w, (uint64_t)w->n_prepares);
    int model = w->prepares[i].model;
    int64_t batch = w->prepares[i].batch;
    w->prepares[i] = w->prepares[--w->n_prepares];
    sy_sched_workspace(w->s, model, batch, SY_OK, NULL, (uint64_t)batch * MIB);
    settle(w);
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
static bool deliver(struct world *w, bool may_fail)
{
    /* Turns without end are no progress: what else is on its way comes first every other time. */
    bool turns = pick(w, 2);
    uint64_t first = pick(w, N_WORKERS);
    for (int i = 0; i < N_WORKERS; i++) {
        int worker = (int)((first + (uint64_t)i) % N_WORKERS);
        bool fails = may_fail && pick(w, 20) == 0;
        if (w->workers[worker] == AWAY) {
            w->workers[worker] = IDLE;
            sy_sched_worker_ready(w->s, worker);
            settle(w);
            return true;
        }
        bool may_end = w->workers[worker] == JOB_READY || w->workers[worker] == TRAINING ||
                       w->workers[worker] == SPILLED;
        if (w->stop_job[worker] && may_end && !w->still[worker]) {
            end_job(w, worker);
            return true;
        }
        if ((w->workers[worker] == RUNNING && (fails || !is_read(w, w->run_of[worker]))) ||
            w->workers[worker] == CANCELING) {
            bool stopped = w->interrupted[worker] && pick(w, 2);
            finish_run(w, worker,
                       stopped                                    ? SY_ECANCELED
                       : fails || w->workers[worker] == CANCELING ? SY_EIO
                                                                  : SY_OK);
            return true;
        }
        if (w->workers[worker] == LOADED && w->fetching[worker] &&
            (fails || !is_read(w, w->run_of[worker]))) {
            finish_run(w, worker, fails ? SY_EIO : SY_OK);
            return true;
        }
        bool only_a_turn = w->workers[worker] == TRAINING && !w->held[worker];
        if ((turns || !only_a_turn) && advance_job(w, worker))
            return true;
    }
    if (w->n_reads > 0) {
        finish_read(w, (int)pick(w, (uint64_t)w->n_reads), !may_fail || pick(w, 20) != 0);
        return true;
    }
    return answer_prepare(w);
}

static void request(struct world *w, int model, int64_t batch)
{
    assert_true(w->next_request < MAX_IDS);
    struct sy_sched_request r = {.id = w->next_request++,
                                 .model = model,
                                 .batch = batch,
                                 .class_ = w->mixed ? (int)pick(w, 3) : 0,
                                 .duration = {SY_NS_PER_MS, SY_NS_PER_MS / 10}};
    assert_int_equal(sy_sched_request(w->s, &r, NULL), SY_OK);
    settle(w);
}

static void submit_job(struct world *w)
{
    uint64_t id = ++w->next_job;
    struct sy_sched_job job = {.id = id,
                               .tenant = (int)pick(w, 3),
                               .priority = (int)pick(w, 3),
                               .opportunistic = w->mixed && pick(w, 2)};
    w->opportunistic[id] = job.opportunistic;
    w->persistent[id] = w->job_mib ? w->job_mib * MIB : (1 + pick(w, 20)) * MIB;
    w->ephemeral[id] = w->job_mib ? w->job_mib * MIB / 2 : (1 + pick(w, 15)) * MIB;
    assert_int_equal(sy_sched_job_submit(w->s, &job), SY_OK);
    settle(w);
}

/* ---- worlds --------------------------------------------------------------------------------------- */

static const uint64_t model_groups[N_MODELS] = {4, 8, 12, 3, 20};

static void make_world(struct world *w, bool unified, uint64_t pool_mib, uint64_t seed)
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
        for (uint64_t g = 0; g < model_groups[m]; g++)
            bytes[g] = 4 * MIB;
        assert_int_equal(sy_sched_model_add(w->s, m, (int)model_groups[m], bytes, MIB), SY_OK);
        sy_sched_workspace(w->s, m, 1, SY_OK, NULL, MIB);
    }
    for (int i = 0; i < N_WORKERS; i++) {
        w->workers[i] = IDLE;
        sy_sched_worker_ready(w->s, i);
        settle(w);
    }
}

static void drain(struct world *w)
{
    /* Jobs that take turns never stand still: the requests are what must come to an end. */
    for (int i = 0; i < 100000; i++) {
        bool any = deliver(w, false);
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

static uint64_t seed_from_environment(void)
{
    const char *text = getenv("SY_SEED");
    return text ? strtoull(text, NULL, 0) : 20;
}

static void change_rules(struct world *w)
{
    uint64_t job = 1 + pick(w, w->next_job + 1);
    int model = (int)pick(w, N_MODELS);
    switch (pick(w, 6)) {
    case 4:
    case 5:
        assert_int_equal(sy_sched_model_head(w->s, model, (int)pick(w, model_groups[model] + 1),
                                             (double)pick(w, 5)),
                         SY_OK);
        break;
    case 0:
        assert_int_equal(sy_sched_set_policy(w->s, (enum sy_policy_kind)pick(w, SY_POLICY_N_KINDS),
                                             (int)pick(w, 3), pick(w, 2) * SY_NS_PER_S),
                         SY_OK);
        break;
    case 1:
        (void)sy_sched_job_suspend(w->s, job, pick(w, 2));
        break;
    case 2:
        (void)sy_sched_job_set_priority(w->s, job, (int)pick(w, 5));
        break;
    default:
        assert_int_equal(sy_sched_set_train_share(w->s, (unsigned)pick(w, 2) * 300), SY_OK);
        break;
    }
    settle(w);
}

static void random_walk(bool unified, uint64_t pool_mib, uint64_t seed)
{
    static struct world w;
    make_world(&w, unified, pool_mib, seed);
    w.mixed = seed % 2;
    w.check_fifo = !w.mixed;
    for (int step = 0; step < 1500; step++) {
        uint64_t what = pick(&w, 100);
        if (what < 22 && sy_sched_n_waiting(w.s) < 60 && w.next_request < MAX_IDS - 1)
            request(&w, (int)pick(&w, N_MODELS), 1 + (int64_t)pick(&w, 3) * 3);
        else if (what < 24)
            submit_job(&w);
        else if (what < 26 && w.next_job > 0) {
            int status = sy_sched_job_stop(w.s, 1 + pick(&w, w.next_job));
            assert_true(status == SY_OK || status == SY_EBUSY);
            settle(&w);
        } else if (what < 28) {
            int worker = (int)pick(&w, N_WORKERS);
            if (w.workers[worker] != AWAY)
                lose_worker(&w, worker);
        } else if (what < 32) {
            sy_sched_cancel(w.s, 1 + pick(&w, w.next_request));
            settle(&w);
        } else if (what < 33) {
            change_rules(&w);
        } else if (what < 34) {
            int status = sy_sched_model_evict(w.s, (int)pick(&w, N_MODELS), pick(&w, 2));
            assert_true(status == SY_OK || status == SY_EBUSY);
            settle(&w);
        } else {
            deliver(&w, true);
        }
        assert_true(n_running(&w) == 0 || !trains(&w));
    }
    drain(&w);
    sy_sched_destroy(w.s);
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = seed_from_environment();
    printf("SY_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 12; i++) {
        random_walk(true, 60 + 30 * (i % 4), seed + i);
        random_walk(false, 60 + 30 * (i % 4), seed + 100 + i);
    }
}

/* ---- by name -------------------------------------------------------------------------------------- */

static void start_training(struct world *w)
{
    w->job_mib = 20;
    submit_job(w);
    for (int worker = 0; worker < N_WORKERS; worker++)
        for (int i = 0; i < 3 && w->workers[worker] != TRAINING; i++)
            advance_job(w, worker);
    assert_true(sy_sched_training_runs(w->s));
}

/* S9: a head that went comes back by itself; a request stops that at once and what came stays. */
static void test_heads_come_back_while_nothing_waits(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, false, 60, 1);
    assert_int_equal(sy_sched_model_head(w.s, 0, 4, 2), SY_OK);
    assert_int_equal(sy_sched_model_head(w.s, 1, 3, 1), SY_OK);
    request(&w, 4, 1); /* larger than the pool: takes all of it */
    assert_int_equal(w.n_fetches, 0);
    drain(&w);
    for (int i = 0; i < 50; i++)
        deliver(&w, false);
    assert_true(w.n_fetched >= 2);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), 4);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 1), 3);
    /* Nothing of less worth takes its place, and nothing is fetched twice. */
    int n = w.n_fetches;
    assert_int_equal(sy_sched_model_head(w.s, 3, 3, 0.5), SY_OK);
    request(&w, 2, 1);
    drain(&w);
    for (int i = 0; i < 50; i++)
        deliver(&w, false);
    assert_true(w.n_fetches > n);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), 4);
    /* A fetch is under way when its model is evicted, or asked for. */
    assert_int_equal(sy_sched_model_evict(w.s, 0, false), SY_OK);
    assert_int_equal(sy_sched_model_head(w.s, 0, 4, 2), SY_OK);
    request(&w, 3, 1);
    drain(&w);
    while (w.n_fetches == w.n_fetched && deliver(&w, false))
        continue;
    assert_int_equal(sy_sched_model_evict(w.s, 0, true), SY_OK);
    settle(&w);
    request(&w, 0, 1);
    drain(&w);
    assert_int_equal(sy_residency_n_resident(sy_sched_residency(w.s), 0), 4);
    sy_sched_destroy(w.s);
}

static void test_request_preempts_training(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    start_training(&w);
    request(&w, 0, 1);
    assert_int_equal(w.n_loads, 1); /* at once, before training stands */
    assert_int_equal(w.n_preempts, 1);
    assert_int_equal(w.n_runs, 0);
    assert_true(advance_job(&w, 0)); /* paused */
    assert_int_equal(w.n_runs, 1);
    assert_int_equal(w.n_resumes, 0);
    drain(&w);
    assert_int_equal(w.n_resumes, 1);
    assert_true(sy_sched_training_runs(w.s));
    sy_sched_destroy(w.s);
}

static void test_next_is_prefetched_and_training_stays_paused(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    start_training(&w);
    request(&w, 0, 1);
    request(&w, 1, 1);
    advance_job(&w, 0);
    assert_int_equal(w.n_loads, 2); /* the second streams while the first computes */
    assert_int_equal(w.n_runs, 1);
    drain(&w);
    assert_int_equal(w.n_runs, 2);
    assert_int_equal(w.n_preempts, 1); /* training was not resumed in between */
    assert_int_equal(w.n_resumes, 1);
    sy_sched_destroy(w.s);
}

static void test_resident_model_is_not_read_again(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    request(&w, 0, 1);
    assert_int_equal(w.n_reads, 1);
    drain(&w);
    request(&w, 0, 1);
    assert_int_equal(w.n_reads, 0);
    drain(&w);
    assert_int_equal(w.n_runs, 2);
    sy_sched_destroy(w.s);
}

static void test_second_death_ends_the_request(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    request(&w, 0, 1);
    for (int death = 0; death < 2; death++) {
        int worker = 0;
        while (w.workers[worker] != RUNNING)
            worker++;
        lose_worker(&w, worker);
        while (w.n_reads > 0)
            finish_read(&w, 0, true);
    }
    assert_int_equal(w.n_ends[1], 1);
    assert_int_equal(w.end_status[1], SY_EPEER);
    sy_sched_destroy(w.s);
}

static void test_one_death_runs_it_again(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    request(&w, 0, 1);
    lose_worker(&w, 0);
    assert_int_equal(w.n_ends[1], 0);
    assert_int_equal(w.n_loads,
                     1); /* not before the read that writes to the same memory has ended: S3 */
    drain(&w);
    assert_int_equal(w.n_runs, 2);
    assert_int_equal(w.end_status[1], SY_OK);
    sy_sched_destroy(w.s);
}

static void test_model_larger_than_the_pool_cycles(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 60, 1);
    request(&w, 4, 1); /* 80 MiB */
    drain(&w);
    assert_int_equal(w.end_status[1], SY_OK);
    sy_sched_destroy(w.s);
}

static void test_impossible_is_refused_with_sizes(void **state)
{
    (void)state;
    static struct world w;
    uint64_t huge[] = {100 * MIB};
    make_world(&w, true, 60, 1);
    assert_int_equal(sy_sched_model_add(w.s, 9, 1, huge, MIB), SY_ENOMEM_DEVICE);
    assert_non_null(strstr(sy_error_text(), "104857600"));
    struct sy_sched_request unknown = {.id = 1, .model = 9, .batch = 1};
    struct sy_sched_request empty = {.id = 1, .model = 0};
    assert_int_equal(sy_sched_request(w.s, &unknown, NULL), SY_ENOTFOUND);
    assert_int_equal(sy_sched_request(w.s, &empty, NULL), SY_EARG);
    submit_job(&w);
    w.workers[0] = JOB_READY;
    assert_int_equal(sy_sched_job_prepared(w.s, 0, 1, 100 * MIB, MIB, 0), SY_OK);
    settle(&w);
    assert_int_equal(w.refused_job_status, SY_ENOMEM_DEVICE);
    sy_sched_destroy(w.s);
}

static void test_queue_is_bounded(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    int n = 0;
    struct sy_sched_request r = {.id = w.next_request, .model = 0, .batch = 1};
    while (sy_sched_request(w.s, &r, NULL) == SY_OK) {
        r.id = ++w.next_request;
        n++;
    }
    settle(&w);
    assert_int_equal(n, 65); /* one that runs, 64 that wait */
    r.id = 999;
    assert_int_equal(sy_sched_request(w.s, &r, NULL), SY_EBUSY);
    drain(&w);
    sy_sched_destroy(w.s);
}

static void test_no_worker_left_ends_all(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    for (int i = 0; i < N_WORKERS; i++) {
        w.workers[i] = AWAY;
        sy_sched_worker_lost(w.s, i, false, false, false, "given up");
    }
    request(&w, 0, 1);
    assert_int_equal(w.end_status[1], SY_EPEER);
    sy_sched_destroy(w.s);
}

static void test_training_memory_survives_its_worker(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_action a;
    uint64_t before = 0;
    make_world(&w, true, 400, 1);
    submit_job(&w);
    w.workers[0] = JOB_READY;
    assert_int_equal(sy_sched_job_prepared(w.s, 0, 1, 20 * MIB, 10 * MIB, 0), SY_OK);
    while (sy_sched_next(w.s, &a))
        if (a.kind == SY_DO_JOB_START)
            before = a.persistent_offset;
    assert_int_equal(sy_sched_job_started(w.s, 0, 1, 0), SY_OK);
    assert_true(sy_sched_next(w.s, &a));
    assert_int_equal(a.kind, SY_DO_JOB_TURN);
    assert_true(a.keeps); /* it is alone */
    sy_sched_worker_lost(w.s, 0, true, true, true, "killed");
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
            settle(w);
            break;
        }
    }
}

static void start_all(struct world *w, int n_jobs)
{
    w->job_mib = 20;
    for (int i = 0; i < n_jobs; i++)
        submit_job(w);
    for (int i = 0; i < 8 * n_jobs; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w->workers[worker] != TRAINING || !w->keeps[worker])
                advance_job(w, worker);
}

static void test_jobs_take_turns(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    start_training(&w);
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
    make_world(&w, true, 400, 1);
    start_all(&w, 2);
    assert_int_equal(sy_sched_job_suspend(w.s, 1, true), SY_OK);
    settle(&w);
    take_turns(&w, 4, SY_NS_PER_MS);
    uint64_t before = w.iterations[1];
    assert_int_equal(w.workers[1], TRAINING);
    assert_true(w.keeps[1]); /* alone again */
    assert_int_equal(sy_sched_job_suspend(w.s, 1, false), SY_OK);
    settle(&w);
    assert_false(w.keeps[1]);
    take_turns(&w, 10, SY_NS_PER_MS);
    assert_true(w.iterations[1] >= before + 4);
    sy_sched_destroy(w.s);
}

/* Two jobs of 60 MiB and 30 MiB an iteration in 170 MiB: both lasting parts fit, one lane only. */
static void test_jobs_share_a_lane_when_memory_is_scarce(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view a, b;
    make_world(&w, true, 170, 1);
    w.job_mib = 60;
    submit_job(&w);
    submit_job(&w);
    for (int i = 0; i < 20; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != TRAINING || !w.keeps[worker])
                advance_job(&w, worker);
    assert_true(sy_sched_job_view(w.s, 1, &a));
    assert_true(sy_sched_job_view(w.s, 2, &b));
    assert_true(a.admitted && b.admitted);
    assert_int_equal(a.lane, b.lane);
    uint64_t before = w.iterations[1] + w.iterations[2];
    take_turns(&w, 10, SY_NS_PER_MS);
    assert_true(w.iterations[1] + w.iterations[2] == before + 10);
    sy_sched_destroy(w.s);
}

static void test_training_keeps_its_share_under_a_flood(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    start_training(&w);
    assert_int_equal(sy_sched_set_train_share(w.s, 300), SY_OK);
    settle(&w);
    sy_ns trained = 0, begin = w.now;
    for (int i = 0; i < 20000; i++) {
        while (sy_sched_n_waiting(w.s) < 20 && w.next_request < MAX_IDS - 1)
            request(&w, (int)pick(&w, N_MODELS), 1);
        sy_ns before = w.now;
        bool runs = trains(&w);
        (void)deliver(&w, false);
        w.now += SY_NS_PER_MS;
        sy_sched_set_time(w.s, w.now);
        settle(&w);
        trained += runs ? w.now - before : 0;
        if (w.next_request >= MAX_IDS - 1)
            break;
    }
    double share = (double)trained / (double)(w.now - begin);
    assert_true(share > 0.27);
    assert_true(share < 0.40); /* and requests get the rest */
    sy_sched_destroy(w.s);
}

/* A guaranteed job has no room beside an opportunistic one: that one's memory goes, and comes back. */
static void test_opportunistic_job_gives_way(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    make_world(&w, true, 120, 1);
    w.persistent[1] = w.persistent[2] = 60 * MIB;
    w.ephemeral[1] = w.ephemeral[2] = 10 * MIB;
    w.opportunistic[1] = true;
    struct sy_sched_job first = {.id = 1, .opportunistic = true}, second = {.id = 2};
    w.next_job = 2;
    assert_int_equal(sy_sched_job_submit(w.s, &first), SY_OK);
    settle(&w);
    for (int i = 0; i < 3; i++)
        advance_job(&w, 0);
    assert_int_equal(w.workers[0], TRAINING);
    assert_int_equal(sy_sched_job_submit(w.s, &second), SY_OK);
    settle(&w);
    for (int i = 0; i < 40; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != TRAINING || !w.keeps[worker])
                advance_job(&w, worker);
    assert_true(w.n_spills >= 1);
    assert_int_equal(w.workers[0], SPILLED);
    assert_int_equal(w.workers[1], TRAINING);
    assert_true(sy_sched_job_view(w.s, 1, &view));
    assert_true(view.spilled && !view.admitted);
    uint64_t before = w.iterations[1];
    end_job(&w, 1);
    for (int i = 0; i < 10; i++)
        if (w.workers[0] != TRAINING)
            advance_job(&w, 0);
    assert_int_equal(w.workers[0], TRAINING); /* back, and on */
    assert_true(w.iterations[1] == before);
    sy_sched_destroy(w.s);
}

static void advance_all(struct world *w, int times)
{
    for (int i = 0; i < times; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w->workers[worker] != TRAINING || !w->keeps[worker])
                advance_job(w, worker);
}

/* What gave way leaves a hole below another job. The one that it gave way to gets it; it is not told that it can never run, and comes back,
 * also when its tenant's quota has become too small for it. */
static void test_spilled_job_is_not_refused(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view first, last;
    make_world(&w, true, 120, 1);
    w.persistent[1] = w.persistent[3] = 58 * MIB;
    w.persistent[2] = 2 * MIB;
    w.ephemeral[1] = w.ephemeral[2] = w.ephemeral[3] = MIB;
    w.opportunistic[1] = true;
    for (uint64_t id = 1; id <= 3; id++) {
        struct sy_sched_job job = {.id = id, .opportunistic = id == 1, .tenant = id == 1};
        w.next_job = id;
        assert_int_equal(sy_sched_job_submit(w.s, &job), SY_OK);
        settle(&w);
        advance_all(&w, 4);
        assert_int_equal(sy_sched_set_tenant(w.s, 1, 1, 0, 10 * MIB), SY_OK);
        settle(&w);
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
                end_job(&w, worker);
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
    lose_worker(w, worker);
    w->workers[worker] = IDLE;
    sy_sched_worker_ready(w->s, worker);
    settle(w);
    advance_all(w, 12);
}

/* A job whose worker is killed while it waits for its turn is not to blame. */
static void test_deaths_count_at_work_only(void **state)
{
    (void)state;
    static struct world w;
    struct sy_sched_job_view view;
    make_world(&w, true, 400, 1);
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
    make_world(&w, true, 400, 1);
    start_all(&w, 1);
    struct sy_sched_job other = {.id = 2, .opportunistic = true};
    w.persistent[2] = w.ephemeral[2] = MIB;
    w.opportunistic[2] = true;
    w.next_job = 2;
    assert_int_equal(sy_sched_job_submit(w.s, &other), SY_OK);
    settle(&w);
    for (int i = 0; i < 10; i++)
        for (int worker = 0; worker < N_WORKERS; worker++)
            if (w.workers[worker] != TRAINING || !w.keeps[worker])
                advance_job(&w, worker);
    assert_int_equal(w.workers[1], WAITING_TURN);
    assert_true(w.keeps[0]);
    assert_int_equal(sy_sched_job_suspend(w.s, 1, true), SY_OK);
    settle(&w);
    take_turns(&w, 1, SY_NS_PER_MS);
    assert_int_equal(w.workers[1], TRAINING);
    sy_sched_destroy(w.s);
}

static int batch_of(struct world *w, int model, int64_t batch, int class_, sy_ns deadline_ns)
{
    struct sy_sched_request r = {.id = w->next_request,
                                 .model = model,
                                 .batch = batch,
                                 .class_ = class_,
                                 .deadline_ns = deadline_ns,
                                 .duration = {10 * SY_NS_PER_MS, 0}};
    int status = sy_sched_request(w->s, &r, NULL);
    w->next_request += status == SY_OK;
    settle(w);
    return status;
}

static int request_of(struct world *w, int model, int class_, sy_ns deadline_ns)
{
    return batch_of(w, model, 1, class_, deadline_ns);
}

/* One that comes before what is prefetched may need the room above its own workspace; the prefetched one then gets a larger one again. */
static void test_workspace_shrinks_below_what_is_prefetched(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 100, 2);
    w.check_fifo = false;
    for (int m = 0; m < N_MODELS; m++)
        sy_sched_workspace(w.s, m, 8, SY_OK, NULL, 8 * MIB);
    assert_int_equal(batch_of(&w, 3, 8, 2, 0), SY_OK); /* runs: 12 MiB and 8 */
    assert_int_equal(batch_of(&w, 0, 8, 2, 0), SY_OK); /* is prefetched: 16 MiB */
    assert_int_equal(request_of(&w, 4, 2, 1000000 * SY_NS_PER_MS), SY_OK); /* 80 MiB and 1 */
    drain(&w);
    for (int id = 1; id <= 3; id++) {
        assert_int_equal(w.n_ends[id], 1);
        assert_int_equal(w.end_status[id], SY_OK);
    }
    sy_sched_destroy(w.s);
}

static void test_urgent_request_interrupts(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    w.check_fifo = false;
    assert_int_equal(request_of(&w, 0, 2, 0), SY_OK); /* runs */
    assert_int_equal(request_of(&w, 1, 2, 0), SY_OK); /* is prefetched */
    assert_int_equal(w.n_interrupts, 0);              /* its equal waits */
    assert_int_equal(request_of(&w, 2, 0, 0), SY_OK);
    assert_int_equal(w.n_interrupts, 1);
    assert_int_equal(w.n_runs, 1);
    for (int i = 0; i < N_WORKERS; i++)
        if (w.workers[i] == RUNNING && w.interrupted[i])
            finish_run(&w, i, SY_ECANCELED);
    for (int i = 0; i < 50 && w.n_ends[3] == 0; i++)
        deliver(&w, false);
    assert_int_equal(w.n_ends[3], 1); /* the urgent one first, then who was interrupted */
    assert_int_equal(w.n_ends[1], 0);
    assert_int_equal(w.n_ends[2], 0);
    for (int i = 0; i < 50 && w.n_ends[1] == 0; i++)
        deliver(&w, false);
    assert_int_equal(w.end_status[1], SY_OK);
    assert_int_equal(w.n_ends[2], 0);
    drain(&w);
    sy_sched_destroy(w.s);
}

static void test_late_by_prediction_is_refused(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    w.check_fifo = false;
    sy_ns now = w.now;
    assert_int_equal(request_of(&w, 0, 1, 0), SY_OK);
    assert_int_equal(request_of(&w, 1, 1, now + 5 * SY_NS_PER_MS), SY_EDEADLINE);
    assert_non_null(strstr(sy_error_text(), "ms"));
    assert_int_equal(request_of(&w, 1, 1, now + 100 * SY_NS_PER_MS), SY_OK);
    assert_int_equal(request_of(&w, 2, 1, now + 60 * SY_NS_PER_MS), SY_OK); /* before the other */
    uint64_t first = w.next_request - 1;
    for (int i = 0; i < 60 && w.n_ends[first] == 0; i++)
        deliver(&w, false);
    assert_int_equal(w.n_ends[first - 1], 0);
    drain(&w);
    sy_sched_destroy(w.s);
}

static void test_tenant_over_its_quota_is_refused(void **state)
{
    (void)state;
    static struct world w;
    make_world(&w, true, 400, 1);
    assert_int_equal(sy_sched_set_tenant(w.s, 1, 1, 0, 25 * MIB), SY_OK);
    w.job_mib = 20; /* and 10 an iteration */
    struct sy_sched_job job = {.id = ++w.next_job, .tenant = 1};
    w.persistent[1] = 20 * MIB;
    w.ephemeral[1] = 10 * MIB;
    assert_int_equal(sy_sched_job_submit(w.s, &job), SY_OK);
    settle(&w);
    advance_job(&w, 0);
    assert_int_equal(w.jobs_refused, 1);
    struct sy_sched_job other = {.id = ++w.next_job, .tenant = 2};
    w.persistent[2] = 20 * MIB;
    w.ephemeral[2] = 10 * MIB;
    assert_int_equal(sy_sched_job_submit(w.s, &other), SY_OK);
    settle(&w);
    for (int i = 0; i < 3; i++)
        advance_job(&w, 1);
    assert_true(sy_sched_training_runs(w.s)); /* nobody else notices */
    sy_sched_destroy(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_come_back_while_nothing_waits),
        cmocka_unit_test(test_request_preempts_training),
        cmocka_unit_test(test_next_is_prefetched_and_training_stays_paused),
        cmocka_unit_test(test_resident_model_is_not_read_again),
        cmocka_unit_test(test_second_death_ends_the_request),
        cmocka_unit_test(test_one_death_runs_it_again),
        cmocka_unit_test(test_model_larger_than_the_pool_cycles),
        cmocka_unit_test(test_impossible_is_refused_with_sizes),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_no_worker_left_ends_all),
        cmocka_unit_test(test_training_memory_survives_its_worker),
        cmocka_unit_test(test_jobs_take_turns),
        cmocka_unit_test(test_suspended_job_gives_its_turns_away),
        cmocka_unit_test(test_jobs_share_a_lane_when_memory_is_scarce),
        cmocka_unit_test(test_training_keeps_its_share_under_a_flood),
        cmocka_unit_test(test_tenant_over_its_quota_is_refused),
        cmocka_unit_test(test_opportunistic_job_gives_way),
        cmocka_unit_test(test_spilled_job_is_not_refused),
        cmocka_unit_test(test_deaths_count_at_work_only),
        cmocka_unit_test(test_opportunistic_job_waits),
        cmocka_unit_test(test_urgent_request_interrupts),
        cmocka_unit_test(test_workspace_shrinks_below_what_is_prefetched),
        cmocka_unit_test(test_late_by_prediction_is_refused),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

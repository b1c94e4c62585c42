/* The runtime's core with fake workers that die, hang and lie, in each state by name: requests are answered by another
 * worker, memory comes back, what cannot succeed ends with a reason. */
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"
#include "tests/nets/graph_builder.h"
#include "tests/rigs/core_rig.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static int random_int(int low, int high)
{
    return low + (int)gb_uniform(&seed, 0, high - low + 0.999999);
}

/* ---- requests ----------------------------------------------------------------------------------- */

static void test_requests_without_faults(void **state)
{
    (void)state;
    static const char *const devices[] = {"host", "emulated,link-gbps=10"};
    for (int d = 0; d < 2; d++) {
        struct core_rig r;
        struct core_answer answers[30];
        core_rig_open(&r, devices[d], 3);
        core_rig_add_both(&r);
        for (int i = 0; i < 30; i++)
            core_rig_infer(&r, i % 3 ? "a" : "b", 1 + i % 4, &answers[i]);
        for (int i = 0; i < 30; i++)
            assert_int_equal(core_rig_wait(&r, &answers[i]), SY_OK);
        core_rig_calm(&r);
        assert_int_equal(core_rig_deaths(&r), 0);
        assert_int_equal(atomic_load(&r.script->n_absent), 0);
        core_rig_close(&r);
    }
}

/* One fault at one moment of a request: another worker answers it, the one that did wrong is replaced. */
static void one_fault(struct core_rig *r, enum fake_moment moment, enum fake_fault fault)
{
    struct core_answer first, second;
    int deaths = core_rig_deaths(r);
    uint64_t struck = atomic_load(&r->script->n_struck);
    print_message("  %s: %s\n", fake_moment_name(moment), fake_fault_name(fault));
    core_rig_fault(r, moment, fault, 1);
    core_rig_infer(r, "a", 1, &first);
    core_rig_infer(r, "b", 1, &second);
    if (core_rig_wait(r, &first) < 0)
        fail_msg("the first request: %s", first.error);
    if (core_rig_wait(r, &second) < 0)
        fail_msg("the second request: %s", second.error);
    assert_int_equal(atomic_load(&r->script->n_struck), struck + 1);
    /* The one that lost its worker is first again; what was loaded ahead of it may have to give it its worker. */
    int attempts = first.report.attempts + second.report.attempts;
    assert_true(attempts == 3 || attempts == 4);
    core_rig_calm(r);
    assert_int_equal(core_rig_deaths(r), deaths + 1);
}

static void faults_at(enum fake_moment moment, const char *device)
{
    struct core_rig r;
    core_rig_open(&r, device, 3);
    core_rig_add_both(&r);
    for (int fault = FAKE_DIE; fault < FAKE_FAIL; fault++) {
        bool of_a_run = fault == FAKE_BAD_STATUS || fault == FAKE_BAD_SPANS;
        if (fault != FAKE_OLD_VERSION && !(of_a_run && moment != FAKE_AT_RUN))
            one_fault(&r, moment, (enum fake_fault)fault);
    }
    core_rig_close(&r);
}

static void test_faults_while_loading(void **state)
{
    (void)state;
    faults_at(FAKE_AT_LOAD, "host");
}

static void test_faults_while_running(void **state)
{
    (void)state;
    faults_at(FAKE_AT_RUN, "host");
}

static void test_faults_on_a_discrete_device(void **state)
{
    (void)state;
    faults_at(FAKE_AT_RUN, "emulated,link-gbps=10");
}

/* A model that is larger than the pool: groups are read into places that the run has left. The reader waits for the progress of a
 * worker that is not there any more. */
static void test_faults_while_a_model_cycles(void **state)
{
    (void)state;
    static const enum fake_fault faults[] = {FAKE_DIE, FAKE_GARBAGE, FAKE_EXIT, FAKE_STOP};
    static const enum fake_moment moments[] = {FAKE_AT_LOAD, FAKE_AT_RUN, FAKE_AT_GROUP};
    static const char *const devices[] = {"host", "emulated,link-gbps=10"};
    for (int d = 0; d < 2; d++) {
        struct core_rig r;
        core_rig_open_small(&r, devices[d], 3, 4 * SY_POOL_ALIGN);
        core_rig_add_both(&r);
        for (int m = 0; m < 3; m++)
            for (int f = 0; f < 4; f++)
                one_fault(&r, moments[m], faults[f]);
        core_rig_close(&r);
    }
}

/* A worker that has nothing to do is killed: nobody notices, and a request that comes just then is answered. */
static void test_idle_worker_dies(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    for (int i = 0; i < 6; i++) {
        core_rig_await_deaths(&r, i);
        core_rig_calm(&r);
        core_rig_kill(&r, i % 2);
        core_rig_must_infer(&r, i % 3 ? "a" : "b", &answer);
    }
    core_rig_await_deaths(&r, 6);
    core_rig_calm(&r);
    assert_int_equal(core_rig_deaths(&r), 6);
    core_rig_close(&r);
}

/* S5: the third death ends the request, with the reason; others do not suffer. */
static void test_third_death_ends_a_request(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_LOAD, FAKE_AT_RUN};
    struct core_rig r;
    core_rig_open(&r, "host", 3);
    core_rig_add_both(&r);
    for (int i = 0; i < 2; i++) {
        struct core_answer bad, good;
        core_rig_fault(&r, moments[i], FAKE_DIE, 3);
        core_rig_infer(&r, "a", 1, &bad);
        assert_int_equal(core_rig_wait(&r, &bad), SY_EPEER);
        assert_non_null(strstr(bad.error, "model a"));
        assert_non_null(strstr(bad.error, "3 workers died"));
        assert_int_equal(bad.report.attempts, 3);
        core_rig_must_infer(&r, "a", &good);
        core_rig_calm(&r);
    }
    assert_int_equal(core_rig_deaths(&r), 6);
    core_rig_close(&r);
}

/* A batch size that no worker knows has to be prepared first. */
static void test_faults_while_preparing_a_batch(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_fault(&r, FAKE_AT_PREPARE, FAKE_DIE, 1);
    core_rig_infer(&r, "a", 5, &answer);
    assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
    core_rig_calm(&r);

    core_rig_fault(&r, FAKE_AT_PREPARE, FAKE_DIE, 1000);
    core_rig_infer(&r, "a", 6, &answer);
    assert_int_equal(core_rig_wait(&r, &answer), SY_EPEER);
    core_rig_fault(&r, FAKE_AT_NEVER, FAKE_FAIL, 0);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* A failure that a worker reports is the request's answer; the worker lives. */
static void test_reported_failure(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer bad, good;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_fault(&r, FAKE_AT_RUN, FAKE_FAIL, 1);
    core_rig_infer(&r, "a", 1, &bad);
    assert_int_equal(core_rig_wait(&r, &bad), SY_EDEVICE);
    assert_non_null(strstr(bad.error, "as the script says"));
    core_rig_fault(&r, FAKE_AT_PREPARE, FAKE_FAIL, 2);
    core_rig_infer(&r, "a", 7, &bad);
    assert_int_equal(core_rig_wait(&r, &bad), SY_EDEVICE);
    core_rig_fault(&r, FAKE_AT_NEVER, FAKE_FAIL, 0);
    core_rig_must_infer(&r, "a", &good);
    core_rig_calm(&r);
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_close(&r);
}

/* Faults of all kinds at all moments of a request, while many wait: each gets exactly one answer, right or EPEER. */
static void storm(const char *device, int n_faults)
{
    static const enum fake_moment moments[] = {FAKE_AT_LOAD, FAKE_AT_RUN, FAKE_AT_MODEL_ADD,
                                               FAKE_AT_WELCOME, FAKE_AT_START};
    enum { N = 40 };
    static struct core_answer answers[N];
    struct core_rig r;
    int n_ok = 0;
    core_rig_open(&r, device, 4);
    core_rig_add_both(&r);
    for (int i = 0; i < N; i++) {
        if (i % (N / n_faults) == 0) {
            enum fake_fault fault = random_int(0, 2)
                                        ? FAKE_DIE
                                        : (enum fake_fault)random_int(FAKE_EXIT, FAKE_BAD_NUMBER);
            enum fake_moment moment = moments[random_int(0, fault == FAKE_STOP ? 1 : 4)];
            core_rig_fault(&r, moment, fault, random_int(1, 3));
        }
        core_rig_infer(&r, random_int(0, 1) ? "a" : "b", 1, &answers[i]);
        core_rig_turn(&r, random_int(0, 20));
    }
    for (int i = 0; i < N; i++) {
        int status = core_rig_wait(&r, &answers[i]);
        if (status != SY_OK && status != SY_EPEER)
            fail_msg("request %d: status %d, %s", i, status, answers[i].error);
        n_ok += status == SY_OK;
    }
    core_rig_fault(&r, FAKE_AT_NEVER, FAKE_DIE, 0);
    core_rig_calm(&r);
    print_message("  %s: %d of %d answered, %d workers died\n", device, n_ok, N,
                  core_rig_deaths(&r));
    assert_true(n_ok >= N / 2);
    core_rig_close(&r);
}

static void test_storm(void **state)
{
    (void)state;
    storm("host", 10);
    storm("emulated,link-gbps=10", 10);
}

/* ---- the end ------------------------------------------------------------------------------------ */

static void note_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static bool is_set(struct core_rig *r, void *flag)
{
    (void)r;
    return *(bool *)flag;
}

/* Draining ends, whatever the workers do when they are told to stop; one that does nothing is killed when its grace is over, which on a
 * busy machine may be too short for requests: they are answered before. */
static void test_drain(void **state)
{
    (void)state;
    static const enum fake_fault faults[] = {FAKE_FAIL, FAKE_DIE, FAKE_STOP, FAKE_GARBAGE,
                                             FAKE_CLOSE};
    for (int f = 0; f < 5; f++) {
        struct core_rig r;
        struct core_answer answers[4];
        bool drained = false;
        core_rig_open(&r, "host", 2);
        core_rig_add_both(&r);
        core_rig_fault(&r, FAKE_AT_SHUTDOWN, faults[f], f ? 2 : 0);
        for (int i = 0; i < 4; i++)
            core_rig_infer(&r, i & 1 ? "a" : "b", 1, &answers[i]);
        bool stops = faults[f] == FAKE_STOP;
        for (int i = 0; stops && i < 4; i++)
            assert_int_equal(core_rig_wait(&r, &answers[i]), SY_OK);
        sy_core_drain(r.core, stops ? 500 * SY_NS_PER_MS : 60 * SY_NS_PER_S, note_drained,
                      &drained);
        core_rig_until(&r, is_set, &drained, "drained");
        for (int i = 0; !stops && i < 4; i++)
            assert_int_equal(core_rig_wait(&r, &answers[i]), SY_OK);
        core_rig_close(&r);
    }
}

/* One that hung before it was told to stop is not waited for as long as one that writes a snapshot. */
static void test_drain_does_not_wait_for_the_hung(void **state)
{
    (void)state;
    struct core_rig r;
    bool drained = false;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_calm(&r);
    assert_int_equal(kill(sy_supervisor_pid(r.core->supervisor, 0), SIGSTOP), 0);
    sy_core_drain(r.core, 3600 * SY_NS_PER_S, note_drained, &drained);
    core_rig_until(&r, is_set, &drained, "drained");
    core_rig_close(&r);
}

/* Each caller hears when it is over, also one that asks while another waits, or afterwards. */
static void test_all_who_drain_are_told(void **state)
{
    (void)state;
    struct core_rig r;
    bool drained[3] = {false};
    core_rig_open(&r, "host", 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sy_core_drain(r.core, 60 * SY_NS_PER_S, note_drained, &drained[i]), SY_OK);
    core_rig_until(&r, is_set, &drained[0], "drained");
    core_rig_until(&r, is_set, &drained[1], "drained");
    assert_int_equal(sy_core_drain(r.core, 60 * SY_NS_PER_S, note_drained, &drained[2]), SY_OK);
    core_rig_until(&r, is_set, &drained[2], "drained");
    core_rig_close(&r);
}

/* A worker that becomes free while requests finish is nobody's: a job that started now would only be stopped. */
static void test_no_job_starts_while_draining(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    uint64_t jobs[2];
    struct core_done done = {0};
    bool drained = false;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_submit(&r, NULL, &jobs[0]);
    core_rig_submit(&r, &done, &jobs[1]);
    atomic_store(&r.script->hold_runs, 1);
    core_rig_infer(&r, "a", 1, &answer);
    core_rig_await_state(&r, SY_WORKER_RUNNING);
    assert_true(core_rig_job_is(&r, jobs[1], "queued"));
    sy_core_drain(r.core, 60 * SY_NS_PER_S, note_drained, &drained);
    sy_core_hold_jobs(r.core, false); /* models that were still loading are there */
    core_rig_await_state(&r, SY_WORKER_PAUSED);
    core_rig_kill(&r, core_rig_worker_in(&r, SY_WORKER_PAUSED));
    core_rig_await_deaths(&r, 1);
    core_rig_await_state(&r, SY_WORKER_IDLE);
    core_rig_turn(&r, 300);
    for (int i = 0; i < 2; i++)
        assert_true(core_rig_job_is(&r, jobs[i], "queued"));
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
    core_rig_until(&r, is_set, &drained, "drained");
    core_rig_close(&r);
}

/* Requests that are under way when the core goes get their answer, too. */
static void test_destroy_answers_everybody(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answers[5];
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    atomic_store(&r.script->hold_runs, 1);
    for (int i = 0; i < 5; i++)
        core_rig_infer(&r, i & 1 ? "a" : "b", 1, &answers[i]);
    core_rig_await_state(&r, SY_WORKER_RUNNING);
    core_rig_close(&r);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(answers[i].n_calls, 1);
        assert_int_equal(answers[i].status, SY_ECANCELED);
    }
}

/* The client goes away: what waits is dropped, what runs is stopped, and not begun again when its worker dies meanwhile. */
static void test_cancel(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answers[5];
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    atomic_store(&r.script->hold_runs, 1);
    for (int i = 0; i < 5; i++)
        core_rig_infer(&r, "a", 1, &answers[i]);
    core_rig_await_state(&r, SY_WORKER_RUNNING);
    int worker = core_rig_worker_in(&r, SY_WORKER_RUNNING);
    for (int i = 0; i < 5; i++)
        sy_core_infer_cancel(r.core, answers[i].id);
    for (int i = 1; i < 5; i++)
        assert_int_equal(core_rig_wait(&r, &answers[i]), SY_ECANCELED);
    assert_false(answers[0].over);
    core_rig_kill(&r, worker);
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &answers[0]), SY_ECANCELED);
    core_rig_await_deaths(&r, 1);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* While the device is busy, requests for a model become one run; each has its own rows, and one that was canceled has its answer too. */
static void test_gathering(void **state)
{
    (void)state;
    enum { N = 12 };
    struct core_rig r;
    struct core_answer first, answers[N];
    core_rig_open_gathering(&r, "host", 2, 64 * SY_POOL_ALIGN, 30 * SY_NS_PER_S);
    core_rig_add_both(&r);
    atomic_store(&r.script->hold_runs, 1);
    core_rig_infer(&r, "b", 1, &first);
    core_rig_await_state(&r, SY_WORKER_RUNNING);
    for (int i = 0; i < N; i++)
        core_rig_infer(&r, "a", 1 + i % 3, &answers[i]);
    sy_core_infer_cancel(r.core, answers[4].id);
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &first), SY_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(core_rig_wait(&r, &answers[i]), i == 4 ? SY_ECANCELED : SY_OK);
    /* 24 rows, at most 8 a run, and no request is cut in two */
    uint64_t n = sy_core_batch_n_sent(r.core->batches);
    assert_true(n >= 3 && n <= 5);
    core_rig_must_infer(&r, "a", &first); /* alone on an idle device: at once */
    assert_int_equal(sy_core_batch_n_sent(r.core->batches), n);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* All who were gathered have gone before it is sent: nothing is run for them. */
static void test_gathered_for_nobody(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer first, gone[2];
    core_rig_open_gathering(&r, "host", 2, 64 * SY_POOL_ALIGN, 30 * SY_NS_PER_S);
    core_rig_add_both(&r);
    atomic_store(&r.script->hold_runs, 1);
    core_rig_infer(&r, "b", 1, &first);
    core_rig_await_state(&r, SY_WORKER_RUNNING);
    for (int i = 0; i < 2; i++)
        core_rig_infer(&r, "a", 1, &gone[i]);
    for (int i = 0; i < 2; i++)
        sy_core_infer_cancel(r.core, gone[i].id);
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &first), SY_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(core_rig_wait(&r, &gone[i]), SY_ECANCELED);
    assert_int_equal(sy_core_batch_n_sent(r.core->batches), 0);
    assert_int_equal(r.core->models[0].n_requests, 0);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* Nobody waits longer than max_delay, busy or not; and who has a deadline is not gathered. */
static void test_gathering_ends_in_time(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer first, second;
    core_rig_open_gathering(&r, "host", 3, 64 * SY_POOL_ALIGN, 5 * SY_NS_PER_MS);
    core_rig_add_both(&r);
    atomic_store(&r.script->hold_runs, 1);
    core_rig_infer(&r, "b", 1, &first);
    core_rig_await_state(&r, SY_WORKER_RUNNING);
    core_rig_infer(&r, "a", 1, &second);
    assert_int_equal(sy_core_batch_n_gathered(r.core->batches), 1);
    for (int i = 0; i < 500 && sy_core_batch_n_gathered(r.core->batches) > 0; i++)
        core_rig_turn(&r, 10);
    assert_int_equal(sy_core_batch_n_gathered(r.core->batches), 0);
    assert_int_equal(sy_sched_n_waiting(r.core->sched) + sy_sched_n_started(r.core->sched), 2);
    struct sy_core_infer_options in_time = {.class_ = 1, .deadline_ns = SY_NS_PER_S};
    assert_int_equal(sy_core_batch_way(r.core->batches, 0, 1, NULL, &in_time), SY_BATCH_ALONE);
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &first), SY_OK);
    assert_int_equal(core_rig_wait(&r, &second), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

static bool has_seen_run(struct core_rig *r, void *before)
{
    return atomic_load(&r->script->n_seen[FAKE_AT_RUN]) > *(uint64_t *)before;
}

/* Holds the device by a run of "a", which has reached its worker, and asks for n more of it. */
static void ask_behind(struct core_rig *r, struct core_answer *first, struct core_answer *answers,
                       int n)
{
    uint64_t before = atomic_load(&r->script->n_seen[FAKE_AT_RUN]);
    atomic_store(&r->script->hold_runs, 1);
    core_rig_infer(r, "a", 1, first);
    core_rig_until(r, has_seen_run, &before, "a worker that runs");
    for (int i = 0; i < n; i++)
        core_rig_infer(r, "a", 1, &answers[i]);
}

/* Short runs of one model that come while the device is busy are one message; each has its own tensors and answer. */
static void test_runs_back_to_back(void **state)
{
    (void)state;
    enum { N = 100 };
    static struct core_answer first, answers[N], other[2];
    struct core_rig r;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_must_infer(&r, "a", &first); /* it lies in the pool from now on */
    ask_behind(&r, &first, answers, N);
    core_rig_infer(&r, "a", 3, &other[0]); /* another batch, another model: runs of their own */
    core_rig_infer(&r, "b", 1, &other[1]);
    sy_core_infer_cancel(r.core, answers[4].id);
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &first), SY_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(core_rig_wait(&r, &answers[i]), i == 4 ? SY_ECANCELED : SY_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(core_rig_wait(&r, &other[i]), SY_OK);
    uint64_t n = atomic_load(&r.script->n_back_to_back);
    assert_true(n >= 2 && n < N / 2);     /* at most 64 a run */
    core_rig_must_infer(&r, "a", &first); /* on an idle device: alone, at once */
    assert_int_equal(atomic_load(&r.script->n_back_to_back), n);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* A run of several that fails, or whose workers die of it, is done again one by one: each has its own fate. */
static void test_back_to_back_runs_that_fail(void **state)
{
    (void)state;
    enum { N = 5 };
    static struct core_answer first, answers[N];
    static const enum fake_fault faults[] = {FAKE_FAIL, FAKE_DIE};
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct core_rig r;
        core_rig_open(&r, "host", 3);
        core_rig_add_both(&r);
        core_rig_must_infer(&r, "a", &first);
        core_rig_calm(&r);
        ask_behind(&r, &first, answers, N);
        core_rig_fault(&r, FAKE_AT_RUN, faults[f], faults[f] == FAKE_DIE ? 2 : 1);
        atomic_store(&r.script->hold_runs, 0);
        assert_int_equal(core_rig_wait(&r, &first), SY_OK);
        for (int i = 0; i < N; i++)
            assert_int_equal(core_rig_wait(&r, &answers[i]), SY_OK);
        core_rig_calm(&r);
        core_rig_close(&r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_without_faults),
        cmocka_unit_test(test_runs_back_to_back),
        cmocka_unit_test(test_back_to_back_runs_that_fail),
        cmocka_unit_test(test_gathering),
        cmocka_unit_test(test_gathered_for_nobody),
        cmocka_unit_test(test_gathering_ends_in_time),
        cmocka_unit_test(test_faults_while_loading),
        cmocka_unit_test(test_faults_while_running),
        cmocka_unit_test(test_faults_on_a_discrete_device),
        cmocka_unit_test(test_faults_while_a_model_cycles),
        cmocka_unit_test(test_idle_worker_dies),
        cmocka_unit_test(test_third_death_ends_a_request),
        cmocka_unit_test(test_faults_while_preparing_a_batch),
        cmocka_unit_test(test_reported_failure),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_does_not_wait_for_the_hung),
        cmocka_unit_test(test_all_who_drain_are_told),
        cmocka_unit_test(test_no_job_starts_while_draining),
        cmocka_unit_test(test_destroy_answers_everybody),
        cmocka_unit_test(test_cancel),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    seed = seed_of_run(1);
    sy_log_init("test_core");
    if (!getenv("SY_LOG"))
        sy_log_threshold = SY_LOG_ERROR; /* hundreds of workers die here, as they should */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

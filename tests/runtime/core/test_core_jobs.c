/* Training jobs in the runtime's core, with fake workers that die, hang and lie in each state of a job: the job goes on elsewhere, from
 * memory or from a snapshot as it must, and requests are answered meanwhile. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/nets/graph_builder.h"
#include "tests/rigs/core_rig.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static int random_int(int low, int high)
{
    return low + (int)gb_uniform(&seed, 0, high - low + 0.999999);
}

static void open_with_models(struct core_rig *r, int n_workers)
{
    core_rig_open(r, "host", n_workers);
    core_rig_add_both(r);
    core_rig_calm(r);
}

/* Every word that the workers wrote about where a job started. */
static uint64_t starts(const struct core_rig *r)
{
    return atomic_load(&r->script->n_in_memory) + atomic_load(&r->script->n_from_snapshot);
}

/* The job goes on: from the step that it had, if memory is good. */
static void goes_on(struct core_rig *r, uint64_t job, uint64_t step)
{
    core_rig_await_job(r, job, "training");
    core_rig_await_step(r, job, step + 3);
}

/* ---- without faults ----------------------------------------------------------------------------- */

static void test_job_and_requests(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    uint64_t job;
    open_with_models(&r, 3);
    core_rig_submit(&r, NULL, &job);
    for (int i = 0; i < 20; i++) {
        core_rig_must_infer(&r, i & 1 ? "a" : "b", &answer);
        assert_true(answer.report.preempted || i > 0);
    }
    core_rig_calm(&r);
    goes_on(&r, job, core_rig_step(&r, job));
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    assert_true(core_rig_job_is(&r, job, "ended"));
    core_rig_calm(&r);
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_close(&r);
}

/* Jobs run one after the other; each ends by itself. */
static void test_jobs_in_a_row(void **state)
{
    (void)state;
    struct core_rig r;
    uint64_t jobs[4];
    open_with_models(&r, 2);
    atomic_store(&r.script->total_steps, 20);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sy_core_job_submit(r.core, "{\"name\": \"row\"}", NULL, NULL, &jobs[i]),
                         SY_OK);
    for (int i = 0; i < 4; i++) {
        core_rig_await_job(&r, jobs[i], "ended");
        assert_int_equal(core_rig_step(&r, jobs[i]), 20);
    }
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* Three jobs, a worker each, take turns; each gets on, and requests are answered beside them. */
static void test_jobs_beside_each_other(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    uint64_t jobs[3];
    open_with_models(&r, 5);
    for (int i = 0; i < 3; i++)
        core_rig_submit(&r, NULL, &jobs[i]);
    atomic_store(&r.script->step_us, 1000);
    for (int i = 0; i < 30; i++)
        core_rig_must_infer(&r, i & 1 ? "a" : "b", &answer);
    uint64_t before[3];
    for (int i = 0; i < 3; i++)
        before[i] = core_rig_step(&r, jobs[i]);
    for (int i = 0; i < 3; i++)
        core_rig_await_step(&r, jobs[i], before[i] + 20);
    sy_account_pass(&r.core->account, sy_clock_now());
    assert_true(sy_core_account_is_valid(r.core));
    for (int i = 0; i < 3; i++)
        assert_int_equal(core_rig_stop(&r, jobs[i]), SY_OK);
    core_rig_calm(&r);
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_close(&r);
}

static void test_suspended_and_resumed(void **state)
{
    (void)state;
    struct core_rig r;
    uint64_t jobs[2];
    open_with_models(&r, 3);
    for (int i = 0; i < 2; i++)
        core_rig_submit(&r, NULL, &jobs[i]);
    core_rig_await_step(&r, jobs[0], 3);
    assert_int_equal(sy_core_job_suspend(r.core, jobs[0], true), SY_OK);
    uint64_t other = core_rig_step(&r, jobs[1]);
    core_rig_await_step(&r, jobs[1], other + 50);
    uint64_t stands = core_rig_step(&r, jobs[0]);
    core_rig_await_step(&r, jobs[1], other + 100);
    assert_int_equal(core_rig_step(&r, jobs[0]), stands);
    assert_int_equal(sy_core_job_suspend(r.core, jobs[0], false), SY_OK);
    core_rig_await_step(&r, jobs[0], stands + 10);
    assert_int_equal(sy_core_job_suspend(r.core, jobs[0], true), SY_OK);
    assert_int_equal(core_rig_stop(&r, jobs[0]), SY_OK); /* a suspended one can be stopped */
    assert_int_equal(sy_core_job_suspend(r.core, jobs[0], true), SY_EBUSY);
    assert_int_equal(sy_core_job_suspend(r.core, 99, true), SY_ENOTFOUND);
    assert_int_equal(core_rig_stop(&r, jobs[1]), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

static void test_rules(void **state)
{
    (void)state;
    struct core_rig r;
    open_with_models(&r, 2);
    json_t *good = json_pack("{s:s, s:f}", "policy", "srtf", "train_share", 0.25);
    json_t *unknown = json_pack("{s:s}", "policy", "best");
    json_t *key = json_pack("{s:s}", "polcy", "srtf");
    json_t *tenant =
        json_pack("{s:s, s:i, s:i}", "tenant", "red", "weight", 3, "memory_bytes", 1000);
    assert_int_equal(sy_core_policy_set(r.core, good), SY_OK);
    assert_int_equal(sy_core_policy_set(r.core, unknown), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "fifo"));
    assert_int_equal(sy_core_policy_set(r.core, key), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "polcy"));
    assert_int_equal(sy_core_tenant_set(r.core, tenant), SY_OK);
    json_t *rules = sy_core_rules_json(r.core);
    assert_string_equal(json_string_value(json_object_get(rules, "policy")), "srtf");
    assert_int_equal(json_array_size(json_object_get(rules, "tenants")), 2);
    struct core_done done;
    uint64_t job;
    memset(&done, 0, sizeof done);
    assert_int_equal(sy_core_job_submit(r.core, "{\"name\": \"large\", \"tenant\": \"red\"}",
                                        core_rig_done, &done, &job),
                     SY_OK);
    assert_int_equal(core_rig_wait_done(&r, &done, "its refusal"), SY_ENOMEM_DEVICE);
    assert_non_null(strstr(done.error, "1000"));
    core_rig_calm(&r);
    json_decref(good);
    json_decref(unknown);
    json_decref(key);
    json_decref(tenant);
    json_decref(rules);
    core_rig_close(&r);
}

static int set_tenant(struct core_rig *r, int number, int weight)
{
    char name[16];
    snprintf(name, sizeof name, "t%d", number);
    json_t *params = json_pack("{s:s, s:i}", "tenant", name, "weight", weight);
    int status = sy_core_tenant_set(r->core, params);
    json_decref(params);
    return status;
}

/* Who sends requests under ever new names leaves room for those that an operator names; what is set, or has jobs, stays. */
static void test_many_tenants(void **state)
{
    (void)state;
    enum { N = 600, PLACES = 255 /* and those who name none */ };
    struct core_rig r;
    uint64_t job, in = 0, out = 0;
    struct core_done done;
    open_with_models(&r, 3);
    assert_int_equal(set_tenant(&r, 0, 7), SY_OK);
    memset(&done, 0, sizeof done);
    assert_int_equal(sy_core_job_submit(r.core, "{\"name\": \"a\", \"tenant\": \"trainer\"}",
                                        core_rig_done, &done, &job),
                     SY_OK);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "guest%d", i);
        struct sy_core_infer_options options = {.class_ = 99, .tenant = name};
        assert_int_equal(core_rig_send(&r, "a", 1, in, out, &options, NULL, NULL, NULL),
                         SY_EARG); /* of the class */
        options.class_ = SY_CORE_USUAL_CLASS;
        options.deadline_ns = 1; /* refused, but its name was seen */
        assert_int_equal(core_rig_send(&r, "a", 1, in, out, &options, NULL, NULL, NULL),
                         SY_EDEADLINE);
    }
    json_t *rules = sy_core_rules_json(r.core), *tenants = json_object_get(rules, "tenants");
    assert_int_equal(json_array_size(tenants), PLACES + 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(tenants, 1), "weight")), 7);
    assert_string_equal(json_string_value(json_object_get(json_array_get(tenants, 2), "tenant")),
                        "trainer");
    json_decref(rules);
    for (int i = 1; i < PLACES - 1; i++)
        assert_int_equal(set_tenant(&r, i, 2), SY_OK);
    assert_int_equal(set_tenant(&r, PLACES, 2), SY_EBUSY);
    assert_non_null(strstr(sy_error_text(), "256"));
    assert_int_equal(set_tenant(&r, 5, 1),
                     SY_OK); /* its rule is gone: another may have the place */
    assert_int_equal(set_tenant(&r, PLACES, 2), SY_OK);
    core_rig_wait_done(&r, &done, "its start");
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* A queue has an end, and who is behind it hears so. */
static void test_too_many_jobs(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done = {0};
    uint64_t job, first;
    open_with_models(&r, 2);
    core_rig_submit(&r, NULL, &first);
    for (int i = 1; i < SY_SCHED_MAX_JOBS; i++)
        assert_int_equal(sy_core_job_submit(r.core, "{\"name\": \"a\"}", NULL, NULL, &job), SY_OK);
    assert_int_equal(sy_core_job_submit(r.core, "{\"name\": \"late\"}", core_rig_done, &done, &job),
                     SY_EBUSY);
    assert_non_null(strstr(sy_error_text(), "1024"));
    assert_int_equal(done.n_calls, 0);
    core_rig_close(&r);
}

/* A worker that hangs while its job waits is seen too: models could not be loaded otherwise, for want of its answer. */
static void test_hangs_while_it_waits(void **state)
{
    (void)state;
    struct core_rig r;
    uint64_t jobs[2];
    struct core_done added;
    open_with_models(&r, 3);
    for (int i = 0; i < 2; i++)
        core_rig_submit(&r, NULL, &jobs[i]);
    core_rig_await_step(&r, jobs[0], 3);
    assert_int_equal(sy_core_job_suspend(r.core, jobs[0], true), SY_OK);
    core_rig_await_state(&r, SY_WORKER_WAITING_TURN);
    core_rig_await_job(&r, jobs[0], "suspended");
    core_rig_await_step(&r, jobs[1], core_rig_step(&r, jobs[1]) + 5);
    json_t *job = core_rig_job(&r, jobs[0]);
    int worker = (int)json_integer_value(json_object_get(job, "worker"));
    json_decref(job);
    assert_int_equal(kill(sy_supervisor_pid(r.core->supervisor, worker), SIGSTOP), 0);
    assert_int_equal(sy_core_model_remove(r.core, "b", 0), SY_OK);
    assert_int_equal(core_rig_add(&r, "b", &added), SY_OK);
    assert_true(core_rig_deaths(&r) >= 1);
    assert_true(sy_core_account_is_valid(r.core)); /* with a model that is gone */
    assert_int_equal(sy_core_job_suspend(r.core, jobs[0], false), SY_OK);
    for (int i = 0; i < 2; i++) {
        core_rig_await_step(&r, jobs[i], core_rig_step(&r, jobs[i]) + 5);
        assert_int_equal(core_rig_stop(&r, jobs[i]), SY_OK);
    }
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* ---- one fault ---------------------------------------------------------------------------------- */

static const enum fake_fault deadly[] = {FAKE_DIE,        FAKE_EXIT,        FAKE_GARBAGE,
                                         FAKE_HALF,       FAKE_WRONG_WAY,   FAKE_OUT_OF_TURN,
                                         FAKE_BAD_NUMBER, FAKE_FOREIGN_RUN, FAKE_CLOSE};

/* Before training: prepared and started once more on another worker, from the beginning. */
static void test_faults_before_training(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_JOB_PREPARE, FAKE_AT_JOB_START};
    struct core_rig r;
    open_with_models(&r, 2);
    for (int m = 0; m < 2; m++)
        for (size_t f = 0; f < sizeof deadly / sizeof *deadly; f++) {
            uint64_t job;
            int deaths = core_rig_deaths(&r);
            print_message("  %s: %s\n", fake_moment_name(moments[m]), fake_fault_name(deadly[f]));
            core_rig_fault(&r, moments[m], deadly[f], 1);
            core_rig_submit(&r, NULL, &job);
            assert_int_equal(core_rig_deaths(&r), deaths + 1);
            goes_on(&r, job, 0);
            assert_int_equal(core_rig_stop(&r, job), SY_OK);
            core_rig_calm(&r);
        }
    core_rig_close(&r);
}

/* A worker that trains does wrong: the job goes on from memory if it was in the gradient phase, else from a snapshot. */
static void one_fault(struct core_rig *r, enum fake_fault fault, enum sy_train_phase phase)
{
    uint64_t job;
    int deaths = core_rig_deaths(r);
    print_message("  TRAINING, phase %d: %s\n", (int)phase, fake_fault_name(fault));
    atomic_store(&r->script->phase, (int)phase);
    core_rig_submit(r, NULL, &job);
    core_rig_await_step(r, job, 5);
    uint64_t in_memory = atomic_load(&r->script->n_in_memory), all = starts(r);
    core_rig_fault(r, FAKE_AT_STEP, fault, 1);
    core_rig_await_deaths(r, deaths + 1);
    goes_on(r, job, phase == SY_PHASE_GRADIENT ? 5 : 0);
    assert_int_equal(starts(r), all + 1);
    assert_int_equal(atomic_load(&r->script->n_in_memory),
                     in_memory + (phase == SY_PHASE_GRADIENT));
    assert_int_equal(core_rig_deaths(r), deaths + 1);
    assert_int_equal(core_rig_stop(r, job), SY_OK);
    core_rig_calm(r);
}

static void test_faults_while_training(void **state)
{
    (void)state;
    struct core_rig r;
    open_with_models(&r, 2);
    for (size_t f = 0; f < sizeof deadly / sizeof *deadly; f++)
        one_fault(&r, deadly[f], f & 1 ? SY_PHASE_UPDATE : SY_PHASE_GRADIENT);
    one_fault(&r, FAKE_STOP, SY_PHASE_GRADIENT);
    one_fault(&r, FAKE_DIE, SY_PHASE_UPDATE);
    core_rig_close(&r);
}

/* Told to pause for a request, or standing still for it: the request is answered all the same, then the job goes on. */
static void test_faults_while_pausing_and_paused(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_PREEMPT, FAKE_AT_STANDING};
    struct core_rig r;
    open_with_models(&r, 3);
    for (int m = 0; m < 2; m++)
        for (size_t f = 0; f <= sizeof deadly / sizeof *deadly; f++) {
            struct core_answer answer;
            uint64_t job;
            enum fake_fault fault = f < sizeof deadly / sizeof *deadly ? deadly[f] : FAKE_STOP;
            print_message("  %s: %s\n", fake_moment_name(moments[m]), fake_fault_name(fault));
            core_rig_submit(&r, NULL, &job);
            core_rig_await_step(&r, job, 3);
            uint64_t in_memory = atomic_load(&r.script->n_in_memory);
            int deaths = core_rig_deaths(&r);
            core_rig_fault(&r, moments[m], fault, 1);
            core_rig_must_infer(&r, "a", &answer);
            assert_true(answer.report.preempted);
            core_rig_await_deaths(&r, deaths + 1);
            goes_on(&r, job, 3);
            assert_int_equal(atomic_load(&r.script->n_in_memory), in_memory + 1);
            assert_int_equal(core_rig_deaths(&r), deaths + 1);
            assert_int_equal(core_rig_stop(&r, job), SY_OK);
            core_rig_calm(&r);
        }
    core_rig_close(&r);
}

/* The worker that computes a request dies while training is held for it. */
static void test_request_dies_while_training_is_held(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_LOAD, FAKE_AT_RUN};
    struct core_rig r;
    uint64_t job;
    open_with_models(&r, 3);
    core_rig_submit(&r, NULL, &job);
    for (int i = 0; i < 8; i++) {
        struct core_answer answer;
        core_rig_fault(&r, moments[i & 1], i < 4 ? FAKE_DIE : FAKE_GARBAGE, 1);
        core_rig_must_infer(&r, "a", &answer);
        assert_int_equal(answer.report.attempts, 2);
        goes_on(&r, job, core_rig_step(&r, job));
    }
    assert_int_equal(starts(&r), 1);
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* ---- endings ------------------------------------------------------------------------------------ */

/* Three workers in a row without one finished step: the job is the cause, and ends with the reason. */
static void test_job_that_kills(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_JOB_PREPARE, FAKE_AT_JOB_START};
    struct core_rig r;
    open_with_models(&r, 2);
    for (int m = 0; m < 2; m++) {
        struct core_done done;
        struct core_answer answer;
        uint64_t job;
        int deaths = core_rig_deaths(&r);
        core_rig_fault(&r, moments[m], FAKE_DIE, 1000);
        core_rig_submit(&r, &done, &job);
        assert_int_equal(core_rig_wait_done(&r, &done, "the job's refusal"), SY_EPEER);
        assert_true(core_rig_job_is(&r, job, "failed"));
        assert_int_equal(core_rig_deaths(&r), deaths + 3);
        core_rig_must_infer(&r, "a", &answer);
        core_rig_calm(&r);
        core_rig_fault(&r, FAKE_AT_NEVER, FAKE_DIE, 0);
    }
    core_rig_close(&r);
}

/* All workers, idle ones. They are dead when this returns, and the core has not noticed. */
static void kill_all(struct core_rig *r)
{
    core_rig_calm(r);
    for (int w = 0; w < r->n_workers; w++) {
        siginfo_t info;
        core_rig_kill(r, w);
        assert_int_equal(waitid(P_PID, (id_t)sy_supervisor_pid(r->core->supervisor, w), &info,
                                WEXITED | WNOWAIT),
                         0);
    }
}

/* Workers that were dead before they were told of a job or a request do not count as killed by it. */
static void test_workers_dead_before(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    struct core_answer answer;
    uint64_t job;
    open_with_models(&r, 4);
    kill_all(&r);
    core_rig_infer(&r, "a", 1, &answer);
    assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
    kill_all(&r);
    core_rig_submit(&r, &done, &job);
    assert_int_equal(core_rig_wait_done(&r, &done, "the job's start"), SY_OK);
    assert_int_equal(core_rig_deaths(&r), 8);
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* But one that gets on between deaths lives for ever. */
static void test_job_that_gets_on(void **state)
{
    (void)state;
    struct core_rig r;
    uint64_t job, step = 0;
    open_with_models(&r, 2);
    core_rig_submit(&r, NULL, &job);
    for (int i = 0; i < 8; i++) {
        core_rig_await_step(&r, job, step + 3);
        step = core_rig_step(&r, job);
        int deaths = core_rig_deaths(&r);
        core_rig_kill(&r, core_rig_worker_in(&r, SY_WORKER_TRAINING));
        core_rig_await_deaths(&r, deaths + 1);
        core_rig_await_step(&r, job, step + 1);
        core_rig_await_state(&r, SY_WORKER_TRAINING);
    }
    assert_int_equal(atomic_load(&r.script->n_in_memory), 8);
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

static void test_reported_failures(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_JOB_PREPARE, FAKE_AT_JOB_START};
    struct core_rig r;
    open_with_models(&r, 2);
    for (int m = 0; m < 2; m++) {
        struct core_done done;
        uint64_t job;
        core_rig_fault(&r, moments[m], FAKE_FAIL, 1);
        core_rig_submit(&r, &done, &job);
        assert_int_equal(core_rig_wait_done(&r, &done, "the job's failure"), SY_EDEVICE);
        assert_non_null(strstr(done.error, "as the script says"));
        assert_true(core_rig_job_is(&r, job, "failed"));
        core_rig_calm(&r);
    }
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_close(&r);
}

/* Dying when it is told to stop: the job is over all the same, and says so once. */
static void test_fault_while_stopping(void **state)
{
    (void)state;
    struct core_rig r;
    open_with_models(&r, 2);
    for (size_t f = 0; f < sizeof deadly / sizeof *deadly; f++) {
        uint64_t job;
        print_message("  JOB_STOP: %s\n", fake_fault_name(deadly[f]));
        core_rig_submit(&r, NULL, &job);
        core_rig_await_step(&r, job, 2);
        core_rig_fault(&r, FAKE_AT_JOB_STOP, deadly[f], 1);
        (void)core_rig_stop(&r, job);
        assert_false(core_rig_job_is(&r, job, "training"));
        core_rig_calm(&r);
    }
    core_rig_close(&r);
}

/* ---- all at once -------------------------------------------------------------------------------- */

static void storm(const char *device)
{
    static const enum fake_moment moments[] = {FAKE_AT_LOAD,  FAKE_AT_RUN,     FAKE_AT_JOB_START,
                                               FAKE_AT_STEP,  FAKE_AT_PREEMPT, FAKE_AT_STANDING,
                                               FAKE_AT_START, FAKE_AT_TURN};
    enum { N = 60 };
    static struct core_answer answers[N];
    struct core_rig r;
    uint64_t job;
    int n_ok = 0;
    core_rig_open(&r, device, 4);
    core_rig_add_both(&r);
    core_rig_submit(&r, NULL, &job);
    for (int i = 0; i < N; i++) {
        if (i % 4 == 0)
            core_rig_fault(&r, moments[random_int(0, 7)],
                           random_int(0, 2) ? FAKE_DIE : deadly[random_int(1, 7)], 1);
        core_rig_infer(&r, random_int(0, 1) ? "a" : "b", 1, &answers[i]);
        core_rig_turn(&r, random_int(0, 40));
    }
    for (int i = 0; i < N; i++) {
        int status = core_rig_wait(&r, &answers[i]);
        if (status != SY_OK && status != SY_EPEER)
            fail_msg("request %d: status %d, %s", i, status, answers[i].error);
        n_ok += status == SY_OK;
    }
    core_rig_fault(&r, FAKE_AT_NEVER, FAKE_DIE, 0);
    core_rig_calm(&r);
    print_message("  %d of %d answered, %d workers died\n", n_ok, N, core_rig_deaths(&r));
    assert_true(n_ok >= N / 2);
    if (!core_rig_job_is(&r, job, "failed")) {
        goes_on(&r, job, core_rig_step(&r, job));
        assert_int_equal(core_rig_stop(&r, job), SY_OK);
    }
    core_rig_calm(&r);
    core_rig_close(&r);
}

static void test_storm(void **state)
{
    (void)state;
    storm("host");
    storm("emulated,link-gbps=10");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_and_requests),
        cmocka_unit_test(test_jobs_in_a_row),
        cmocka_unit_test(test_jobs_beside_each_other),
        cmocka_unit_test(test_suspended_and_resumed),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_many_tenants),
        cmocka_unit_test(test_too_many_jobs),
        cmocka_unit_test(test_hangs_while_it_waits),
        cmocka_unit_test(test_faults_before_training),
        cmocka_unit_test(test_faults_while_training),
        cmocka_unit_test(test_faults_while_pausing_and_paused),
        cmocka_unit_test(test_request_dies_while_training_is_held),
        cmocka_unit_test(test_job_that_kills),
        cmocka_unit_test(test_workers_dead_before),
        cmocka_unit_test(test_job_that_gets_on),
        cmocka_unit_test(test_reported_failures),
        cmocka_unit_test(test_fault_while_stopping),
        cmocka_unit_test(test_storm),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_core_jobs");
    if (!getenv("SY_LOG"))
        sy_log_threshold = SY_LOG_ERROR;
    seed = seed_of_run(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

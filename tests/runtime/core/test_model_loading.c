/* Workers that come up and load models, some of which they cannot: others answer meanwhile, what cannot be loaded is refused with its
 * reason, and a worker's want of memory costs no model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/rigs/core_rig.h"

/* Dying on the way up: replaced; the others answer meanwhile. */
static void test_faults_on_the_way_up(void **state)
{
    (void)state;
    static const enum fake_moment moments[] = {FAKE_AT_START, FAKE_AT_WELCOME, FAKE_AT_MODEL_ADD};
    static const enum fake_fault faults[] = {FAKE_DIE,        FAKE_EXIT,       FAKE_GARBAGE,
                                             FAKE_WRONG_WAY,  FAKE_BAD_NUMBER, FAKE_HALF,
                                             FAKE_OLD_VERSION};
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_calm(&r);
    for (int m = 0; m < 3; m++)
        for (int f = 0; f < 7; f++) {
            int deaths = core_rig_deaths(&r);
            print_message("  %s: %s\n", fake_moment_name(moments[m]), fake_fault_name(faults[f]));
            core_rig_fault(&r, moments[m], faults[f], 2);
            core_rig_kill(&r, f & 1);
            core_rig_must_infer(&r, "a", &answer);
            core_rig_await_deaths(&r, deaths + 3);
            core_rig_calm(&r);
            assert_int_equal(core_rig_deaths(&r), deaths + 3);
        }
    core_rig_close(&r);
}

/* Which stands still at it. */
static void kill_the_one_that_loads(struct core_rig *r)
{
    int model = sy_core_model_lookup(r->core, "a", 0), worker = -1;
    assert_true(model >= 0);
    for (int w = 0; w < r->n_workers; w++)
        if (r->core->workers[w].has[model] == SY_HAS_SENT)
            worker = w;
    assert_true(worker >= 0);
    core_rig_kill(r, worker);
}

/* While a server starts, a model is ready with the first worker that has it: one that stands still at it does not keep the server waiting. */
static void test_first_worker_is_enough_at_start(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    struct core_answer answer;
    core_rig_open_patient(&r, "host", 3);
    core_rig_calm(&r);
    sy_core_hold_jobs(r.core, true);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_STOP, 1);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_must_infer(&r, "a", &answer); /* by one that has it */
    assert_int_equal(core_rig_deaths(&r), 0);
    sy_core_hold_jobs(r.core, false);
    kill_the_one_that_loads(&r);
    core_rig_await_deaths(&r, 1);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* A model whose loading kills workers is refused before long, and what was there goes on. */
static void test_model_that_kills(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    struct core_answer answer;
    core_rig_open(&r, "host", 3);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    core_rig_calm(&r);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_DIE, 1);
    assert_int_equal(core_rig_add(&r, "b", &done), SY_OK);
    core_rig_calm(&r);
    assert_int_equal(sy_core_model_remove(r.core, "b", 0), SY_OK);

    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_DIE, 1000);
    assert_int_equal(core_rig_add(&r, "b", &done), SY_EPEER);
    assert_non_null(strstr(done.error, "model b"));
    assert_non_null(strstr(done.error, "three workers died"));
    core_rig_fault(&r, FAKE_AT_NEVER, FAKE_DIE, 0);
    core_rig_must_infer(&r, "a", &answer);
    core_rig_calm(&r);
    assert_int_equal(core_rig_add(&r, "b", &done), SY_OK);
    core_rig_must_infer(&r, "b", &answer);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* No worker comes up at all: after ten tries each they are given up, and nobody waits for ever. */
static void test_all_workers_given_up(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done = {0}, job_done = {0};
    uint64_t job;
    char path[128];
#ifdef SY_SANITIZED
    print_message("left out under sanitizers: it waits for 16 s\n");
    skip();
#endif
    core_rig_open(&r, "host", 2);
    snprintf(path, sizeof path, "%s/a.sypkg", r.folder);
    core_rig_calm(&r);
    core_rig_fault(&r, FAKE_AT_START, FAKE_EXIT, 100000);
    core_rig_kill(&r, 0);
    core_rig_kill(&r, 1);
    core_rig_await_deaths(&r, 2);
    core_rig_submit(&r, &job_done, &job);
    assert_int_equal(sy_core_model_add(r.core, path, NULL, core_rig_done, &done), SY_OK);
    assert_int_equal(core_rig_wait_done(&r, &done, "the model's refusal"), SY_EPEER);
    assert_non_null(strstr(done.error, "no worker is left"));
    assert_int_equal(core_rig_wait_done(&r, &job_done, "the job's refusal"), SY_EPEER);
    assert_true(core_rig_job_is(&r, job, "failed"));
    assert_int_equal(sy_core_model_add(r.core, path, NULL, core_rig_done, &done), SY_EPEER);
    assert_int_equal(sy_core_job_submit(r.core, "{}", NULL, NULL, &job), SY_EPEER);
    core_rig_close(&r);
}

static void test_model_that_is_refused(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_calm(&r);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_FAIL, 1);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_EDEVICE);
    assert_non_null(strstr(done.error, "as the script says"));
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    core_rig_must_infer(&r, "a", &answer);
    core_rig_calm(&r);
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_close(&r);
}

/* A fresh worker cannot load a model that another has: it is ended, and the next one loads it. */
static void expect_fresh_workers(enum fake_fault fault)
{
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_calm(&r);
    for (int i = 0; i < 2; i++) { /* what happened once is forgotten when the model is loaded */
        int deaths = core_rig_deaths(&r);
        core_rig_fault(&r, FAKE_AT_MODEL_ADD, fault, 2);
        core_rig_kill(&r, i);
        core_rig_await_deaths(&r, deaths + 2); /* 3 unless one worker answered for both models */
        core_rig_must_infer(&r, "a", &answer);
        core_rig_must_infer(&r, "b", &answer);
        core_rig_calm(&r);
        assert_int_equal(atomic_load(&r.script->left), 0);
        assert_in_range(core_rig_deaths(&r), deaths + 2, deaths + 3);
    }
    core_rig_close(&r);
}

static void test_worker_that_cannot_load_what_others_have(void **state)
{
    (void)state;
    expect_fresh_workers(FAKE_NO_MEMORY);
    expect_fresh_workers(FAKE_FAIL);
}

static bool is_unavailable(struct core_rig *r, void *name)
{
    int model = sy_core_model_lookup(r->core, name, 0);
    return model >= 0 && r->core->models[model].state == SY_MODEL_UNAVAILABLE;
}

/* While a server starts, one worker has the model, and the next one cannot load it. */
static void test_second_worker_fails_at_start(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    struct core_answer answer;
    core_rig_open_patient(&r, "host", 2);
    core_rig_calm(&r);
    sy_core_hold_jobs(r.core, true);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_STOP, 1);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_FAIL, 1);
    kill_the_one_that_loads(&r);
    core_rig_await_deaths(&r, 2);
    core_rig_calm(&r);
    core_rig_must_infer(&r, "a", &answer);
    sy_core_hold_jobs(r.core, false);
    core_rig_close(&r);
}

/* Three in a row: the model is not available and says why; everything else is, and so is it when it is loaded again. */
static void expect_the_models_end(enum fake_fault fault, int status)
{
    struct core_rig r;
    struct core_answer answer;
    struct core_done done;
    struct sy_core_model_ref *ref;
    core_rig_open(&r, "host", 2);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    core_rig_calm(&r);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, fault, 3);
    core_rig_kill(&r, 0);
    core_rig_until(&r, is_unavailable, "a", "the model's end");
    assert_int_equal(core_rig_deaths(&r), 3);
    assert_int_equal(sy_core_model_acquire(r.core, "a", 0, &ref), status);
    assert_non_null(strstr(sy_error_text(), "not available until it is loaded again"));
    assert_int_equal(core_rig_add(&r, "b", &done), SY_OK);
    core_rig_must_infer(&r, "b", &answer);
    assert_int_equal(sy_core_model_remove(r.core, "a", 0), SY_OK);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    core_rig_must_infer(&r, "a", &answer);
    core_rig_calm(&r);
    core_rig_close(&r);
}

static void test_model_that_no_fresh_worker_can_load(void **state)
{
    (void)state;
    expect_the_models_end(FAKE_NO_MEMORY, SY_ENOMEM_HOST);
    expect_the_models_end(FAKE_FAIL, SY_EDEVICE);
}

/* The error's text ends where it is said, whether there are models or not. */
static void a_model_that_is_not_there(void **state)
{
    (void)state;
    struct core_rig r;

    core_rig_open(&r, "host", 2);
    assert_int_equal(sy_core_model_lookup(r.core, "nobody", 0), SY_ENOTFOUND);
    assert_string_equal(sy_error_text(),
                        "there is no model 'nobody'; there are none: load one first");
    core_rig_add_both(&r);
    assert_int_equal(sy_core_model_lookup(r.core, "nobody", 0), SY_ENOTFOUND);
    assert_string_equal(sy_error_text(), "there is no model 'nobody'; there are: a, b");
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_is_not_there),
        cmocka_unit_test(test_faults_on_the_way_up),
        cmocka_unit_test(test_first_worker_is_enough_at_start),
        cmocka_unit_test(test_model_that_kills),
        cmocka_unit_test(test_all_workers_given_up),
        cmocka_unit_test(test_model_that_is_refused),
        cmocka_unit_test(test_worker_that_cannot_load_what_others_have),
        cmocka_unit_test(test_second_worker_fails_at_start),
        cmocka_unit_test(test_model_that_no_fresh_worker_can_load),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_model_loading");
    if (!getenv("SY_LOG"))
        sy_log_threshold = SY_LOG_ERROR; /* dozens of workers die here, as they should */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Workers that stand still where they send no heartbeats: others wait for them no longer than for one that does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/rigs/core_rig.h"

/* One that stands still on its way up, while it loads: it is killed after the hang timeout, and a model that is added meanwhile waits no longer. */
static void test_worker_that_never_ends_loading(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    core_rig_open(&r, "host", 2);
    assert_int_equal(core_rig_add(&r, "a", &done), SY_OK);
    core_rig_calm(&r);
    core_rig_fault(&r, FAKE_AT_MODEL_ADD, FAKE_STOP, 1);
    core_rig_kill(&r, 0);
    core_rig_await_deaths(&r, 1);
    core_rig_await_state(&r, SY_WORKER_LOADING_MODELS);
    assert_int_equal(core_rig_add(&r, "b", &done), SY_OK);
    assert_int_equal(core_rig_deaths(&r), 2);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* One that stands still while it starts a job has the device: no request is answered before it is gone. */
static void test_worker_that_never_starts_its_job(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done = {0};
    struct core_answer answer;
    uint64_t job;
    core_rig_open(&r, "host", 3);
    core_rig_add_both(&r);
    core_rig_fault(&r, FAKE_AT_JOB_START, FAKE_STOP, 1);
    core_rig_submit(&r, &done, &job);
    core_rig_await_state(&r, SY_WORKER_STARTING_JOB);
    core_rig_must_infer(&r, "a", &answer);
    assert_int_equal(core_rig_deaths(&r), 1);
    core_rig_await_job(&r, job, "training");
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker_that_never_ends_loading),
        cmocka_unit_test(test_worker_that_never_starts_its_job),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_standing_still");
    sy_log_threshold = SY_LOG_ERROR; /* workers are killed here, as they should */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

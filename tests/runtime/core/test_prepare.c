/* Deadlines know what it takes to make a program for a batch size that is new. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/rigs/core_rig.h"

#define ROUNDS 3

/* Fake workers say that a program takes FAKE_PREPARE_NS, and compute in no time. */
static void test_a_new_batch_counts_once(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    for (int i = 0; i < 2 * ROUNDS; i++) /* what runs take is learned */
        core_rig_must_infer(&r, i % 2 ? "a" : "b", &answer);
    for (int64_t batch = 2; batch < 2 + ROUNDS; batch++) {
        core_rig_calm(&r);
        assert_int_equal(core_rig_infer_by(&r, "a", batch, FAKE_PREPARE_NS * 3 / 4, &answer),
                         SY_EDEADLINE);
        assert_non_null(strstr(sy_error_text(), "40.000 ms to prepare"));
        core_rig_infer(&r, "a", batch, &answer);
        assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
        assert_true(answer.report.predicted_ns >= FAKE_PREPARE_NS);
        core_rig_calm(&r);
        core_rig_infer(&r, "a", batch, &answer); /* now it is there */
        assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
        assert_true(answer.report.predicted_ns < FAKE_PREPARE_NS);
    }
    core_rig_close(&r);
}

/* The one worker that was ready for it is replaced by one that is not. */
static void test_it_counts_again_for_a_new_worker(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_infer(&r, "b", 3, &answer);
    assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
    core_rig_calm(&r);
    for (int worker = 0; worker < 2; worker++) {
        core_rig_kill(&r, worker);
        core_rig_await_deaths(&r, worker + 1);
        core_rig_calm(&r);
    }
    core_rig_infer(&r, "b", 3, &answer);
    assert_int_equal(core_rig_wait(&r, &answer), SY_OK);
    assert_true(answer.report.predicted_ns >= FAKE_PREPARE_NS);
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_batch_counts_once),
        cmocka_unit_test(test_it_counts_again_for_a_new_worker),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_prepare");
    sy_log_threshold = SY_LOG_ERROR; /* a worker dies here, as it should */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* When workers and the event loop may look for messages awake: not while the runtime itself has other work for the cores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/rigs/core_rig.h"

enum { POLL_US = 50 };

/* As the parsing of a long body does, on this thread or another of the process. */
static void compute(sy_ns how_long)
{
    sy_ns until = sy_clock_process() + how_long;
    while (sy_clock_process() < until)
        continue;
}

static uint32_t told(const struct core_rig *r, const struct core_answer *answer)
{
    return atomic_load(&sy_supervisor_page(r->core->supervisor, answer->report.worker)->poll_us);
}

static void test_other_work_ends_polling(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer answer;
    core_rig_open(&r, "host", 2);
    core_rig_add_both(&r);
    core_rig_calm(&r);
    r.core->poll_us = POLL_US;

    do { /* on a busy machine what was computed may be long ago when the request comes */
        core_rig_must_infer(&r, "a", &answer);
        compute(20 * SY_NS_PER_MS);
        r.core->poll_look.at_ns = sy_clock_now() - 20 * SY_NS_PER_MS;
        core_rig_must_infer(&r, "a", &answer);
    } while (told(&r, &answer) != 0);

    do {
        sy_clock_sleep_until(sy_clock_now() + 100 * SY_NS_PER_MS);
        core_rig_must_infer(&r, "a", &answer);
    } while (told(&r, &answer) != POLL_US);
    core_rig_calm(&r);
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_work_ends_polling)};
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_poll");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* When a worker without a beat counts as silent: by its clock, and by what it had of a core. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/supervisor/cpu_watch.h"

#define TIMEOUT (10 * SY_NS_PER_S)
#define TICK    (SY_NS_PER_S / 10)
#define BEAT    (1000 * SY_NS_PER_S)

/* Looked at each tick, it gets `share` of a core in percent; when it counts as silent, in ticks since its beat. 0: not within ten timeouts. */
static uint64_t silent_after(bool is_runnable, unsigned share)
{
    struct sy_cpu_watch watch = {0};
    struct sy_cpu_use use = {.used_ns = 77, .is_runnable = is_runnable};
    for (uint64_t tick = 1; tick <= 10 * TIMEOUT / TICK; tick++) {
        use.used_ns += TICK * share / 100;
        if (sy_cpu_watch_is_silent(&watch, BEAT, TIMEOUT, use, BEAT + tick * TICK))
            return tick;
    }
    return 0;
}

static void test_what_stands_or_loops_is_silent_after_the_timeout(void **state)
{
    (void)state;
    assert_int_equal(silent_after(false, 0), TIMEOUT / TICK + 1);  /* stopped, or waits for ever */
    assert_int_equal(silent_after(true, 100), TIMEOUT / TICK + 1); /* loops */
    assert_int_equal(silent_after(true, 10), TIMEOUT / TICK + 1);  /* loops among others */
}

static void test_what_has_no_core_has_six_times_as_long(void **state)
{
    (void)state;
    assert_int_equal(silent_after(true, 0), 6 * TIMEOUT / TICK + 1);
    assert_int_equal(silent_after(true, 1), 6 * TIMEOUT / TICK + 1);
}

/* Time without a core counts from half of the timeout on, and only since the last beat. */
static void test_a_core_that_comes_and_a_beat(void **state)
{
    (void)state;
    struct sy_cpu_watch watch = {0};
    struct sy_cpu_use use = {.is_runnable = true};
    sy_ns now = BEAT;
    for (; now < BEAT + TIMEOUT; now += TICK)
        assert_false(sy_cpu_watch_is_silent(&watch, BEAT, TIMEOUT, use, now));
    use.is_runnable = false; /* it had one, and waits */
    for (; now <= BEAT + TIMEOUT + TIMEOUT / 2 - 2 * TICK; now += TICK)
        assert_false(sy_cpu_watch_is_silent(&watch, BEAT, TIMEOUT, use, now));
    assert_true(sy_cpu_watch_is_silent(&watch, BEAT, TIMEOUT, use, now + 2 * TICK));
    sy_ns beat = now;
    assert_false(sy_cpu_watch_is_silent(&watch, beat, TIMEOUT, use, now + TICK));
    for (now += TICK; now <= beat + TIMEOUT; now += TICK)
        assert_false(sy_cpu_watch_is_silent(&watch, beat, TIMEOUT, use, now));
    assert_true(sy_cpu_watch_is_silent(&watch, beat, TIMEOUT, use, now + TICK));
}

static void test_what_the_kernel_tells(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        for (;;) /* computes */
            ;
    struct sy_cpu_use use;
    do
        use = sy_cpu_use_of(child);
    while (use.used_ns == 0);
    assert_true(use.is_runnable);
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    struct sy_cpu_use stopped = sy_cpu_use_of(child);
    assert_true(!stopped.is_runnable && stopped.used_ns >= use.used_ns);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    use = sy_cpu_use_of(child);
    assert_true(!use.is_runnable && use.used_ns == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_stands_or_loops_is_silent_after_the_timeout),
        cmocka_unit_test(test_what_has_no_core_has_six_times_as_long),
        cmocka_unit_test(test_a_core_that_comes_and_a_beat),
        cmocka_unit_test(test_what_the_kernel_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

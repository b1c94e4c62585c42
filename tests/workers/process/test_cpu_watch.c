/* When a worker without a beat counts as silent: by its clock, and by what it had of a core. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
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

/* Looked at each tick from its last computation on: when it counts as standing, in ticks. */
static uint64_t stands_after(bool is_blocked)
{
    struct sy_cpu_watch watch = {0};
    struct sy_cpu_use use = {.used_ns = 77, .is_blocked = is_blocked};
    for (uint64_t tick = 0; tick <= 100 * TIMEOUT / TICK; tick++)
        if (sy_cpu_watch_stands(&watch, use, BEAT, TIMEOUT, BEAT + tick * TICK))
            return tick;
    return 0;
}

static void test_what_waits_for_storage_stands_later(void **state)
{
    (void)state;
    const sy_ns bound = 120 * SY_NS_PER_S;
    assert_int_equal(stands_after(false), TIMEOUT / TICK + 1);
    assert_int_equal(stands_after(true), (bound + TIMEOUT) / TICK + 1);
}

static void test_what_computes_does_not_stand(void **state)
{
    (void)state;
    struct sy_cpu_watch watch = {0};
    struct sy_cpu_use use = {.used_ns = 77};
    sy_ns now = BEAT;
    for (; now < BEAT + 20 * TIMEOUT; now += TIMEOUT, use.used_ns++)
        assert_false(sy_cpu_watch_stands(&watch, use, BEAT, TIMEOUT, now));
    use.used_ns--;
    assert_true(sy_cpu_watch_stands(&watch, use, BEAT, TIMEOUT, now + TICK));
    assert_false(sy_cpu_watch_stands(&watch, use, now, TIMEOUT, now + TICK)); /* a new state */
    use.used_ns = 0; /* the kernel does not tell */
    assert_false(sy_cpu_watch_stands(&watch, use, BEAT, TIMEOUT, now + TICK));
    assert_false(sy_cpu_watch_stands(&watch, use, BEAT, TIMEOUT, now + 10 * TIMEOUT));
}

/* A process whose child has yet to call exec waits as one for a disk does. */
static void test_what_waits_in_the_kernel(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        pid_t parent = getpid();
        if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0)
            while (getppid() == parent)
                usleep(10000);
        _exit(0);
    }
    int n = 0;
    while (!sy_cpu_use_of(child).is_blocked && n++ < 10000)
        usleep(1000);
    assert_true(sy_cpu_use_of(child).is_blocked);
    assert_false(sy_cpu_use_of(getpid()).is_blocked);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
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
        cmocka_unit_test(test_what_waits_for_storage_stands_later),
        cmocka_unit_test(test_what_computes_does_not_stand),
        cmocka_unit_test(test_what_waits_in_the_kernel),
        cmocka_unit_test(test_what_the_kernel_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A thread that is confined to a core, and what it starts: that has the cores from before. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/base/thread_cores.h"

static cpu_set_t before, one;

/* One of the process's cores. */
static int take_one(void **state)
{
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int core = 0; CPU_COUNT(&one) == 0; core++)
        if (CPU_ISSET(core, &before))
            CPU_SET(core, &one);
    return 0;
}

static void assert_has(const cpu_set_t *set)
{
    cpu_set_t own;
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    assert_true(CPU_EQUAL(&own, set));
}

static void *read_cores(void *ctx)
{
    (void)sched_getaffinity(0, sizeof(cpu_set_t), ctx);
    return NULL;
}

static cpu_set_t cores_of_a_thread(void)
{
    pthread_t thread;
    cpu_set_t told;
    CPU_ZERO(&told);
    assert_int_equal(pthread_create(&thread, NULL, read_cores, &told), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return told;
}

static cpu_set_t cores_of_a_child(void)
{
    cpu_set_t told;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        read_cores(&told);
        _exit(write(ends[1], &told, sizeof told) != sizeof told);
    }
    assert_int_equal(read(ends[0], &told, sizeof told), sizeof told);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ends[0]);
    close(ends[1]);
    return told;
}

static void test_what_it_starts(void **state)
{
    (void)state;
    if (CPU_COUNT(&before) < 2)
        skip();
    assert_int_equal(sy_thread_cores_confine(&one), SY_OK);
    assert_has(&one);
    sy_thread_cores_widen();
    cpu_set_t thread = cores_of_a_thread(), child = cores_of_a_child();
    sy_thread_cores_narrow();
    assert_has(&one);
    assert_true(CPU_EQUAL(&thread, &before));
    assert_true(CPU_EQUAL(&child, &before));
    assert_int_equal(sy_thread_cores_confine(NULL), SY_OK);
    assert_has(&before);
}

/* From one core to another: those from before the first call come back, and then there is nothing to narrow to. */
static void test_all_come_back(void **state)
{
    cpu_set_t other;
    (void)state;
    if (CPU_COUNT(&before) < 2)
        skip();
    CPU_XOR(&other, &before, &one);
    assert_int_equal(sy_thread_cores_confine(&one), SY_OK);
    assert_int_equal(sy_thread_cores_confine(&other), SY_OK);
    assert_has(&other);
    sy_thread_cores_widen();
    assert_has(&before);
    sy_thread_cores_narrow();
    assert_has(&other);
    assert_int_equal(sy_thread_cores_confine(NULL), SY_OK);
    assert_has(&before);
    sy_thread_cores_narrow();
    assert_has(&before);
}

/* Not confined: nothing is moved, nor what another has set; and no core at all is refused. */
static void test_not_confined(void **state)
{
    cpu_set_t none;
    (void)state;
    CPU_ZERO(&none);
    assert_int_equal(sy_thread_cores_confine(NULL), SY_OK);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    sy_thread_cores_widen();
    assert_has(&one);
    sy_thread_cores_narrow();
    assert_has(&one);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(sy_thread_cores_confine(&none), SY_EIO);
    assert_has(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_it_starts, take_one),
        cmocka_unit_test_setup(test_all_come_back, take_one),
        cmocka_unit_test_setup(test_not_confined, take_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

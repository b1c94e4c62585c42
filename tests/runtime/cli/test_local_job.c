/* Where the engine's threads run in a process that trains without a server: each test in a child, whose cores and environment are its own. */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <omp.h>

#include "runtime/base/status.h"
#include "runtime/cli/train/local_job.h"

static cpu_set_t cores_of_this_thread(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        abort();
    return set;
}

/* The cores of all threads of this process together; *n_alone: threads that have one only. */
static cpu_set_t cores_of_all_threads(int *n_alone)
{
    cpu_set_t all, own;
    struct dirent *entry;
    DIR *folder = opendir("/proc/self/task");
    CPU_ZERO(&all);
    *n_alone = 0;
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.' || sched_getaffinity(atoi(entry->d_name), sizeof own, &own) < 0)
            continue;
        *n_alone += CPU_COUNT(&own) == 1;
        CPU_OR(&all, &all, &own);
    }
    if (folder)
        closedir(folder);
    return all;
}

/* As many threads as cores: each has one for itself, together they have all. */
static int pin_all(void)
{
    cpu_set_t before = cores_of_this_thread();
    int n_alone, n = CPU_COUNT(&before);
    omp_set_num_threads(n);
    if (sy_local_job_pin_threads() < 0)
        return 1;
    cpu_set_t after = cores_of_all_threads(&n_alone);
    return n_alone == n && CPU_EQUAL(&before, &after) ? 0 : 2;
}

static int stays_everywhere(int n_threads)
{
    cpu_set_t before = cores_of_this_thread();
    omp_set_num_threads(n_threads);
    if (sy_local_job_pin_threads() < 0)
        return 1;
    cpu_set_t after = cores_of_this_thread();
    return CPU_EQUAL(&before, &after) ? 0 : 2;
}

static int leave_fewer(void)
{
    cpu_set_t all = cores_of_this_thread();
    return stays_everywhere(CPU_COUNT(&all) - 1);
}

static int leave_to_environment(void)
{
    cpu_set_t all = cores_of_this_thread();
    return setenv("OMP_PROC_BIND", "false", 1) < 0 ? 3 : stays_everywhere(CPU_COUNT(&all));
}

static int in_child(int (*work)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(work());
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void threads_that_have_all_cores_stay_on_theirs(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__ /* it has a thread of its own, and cannot see into OpenMP's */
    skip();
#endif
    assert_int_equal(in_child(pin_all), 0);
}

static void fewer_threads_share_the_cores(void **state)
{
    (void)state;
    cpu_set_t all = cores_of_this_thread();
    if (CPU_COUNT(&all) < 2)
        skip();
    assert_int_equal(in_child(leave_fewer), 0);
}

static void what_the_environment_says_holds(void **state)
{
    (void)state;
    assert_int_equal(in_child(leave_to_environment), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_have_all_cores_stay_on_theirs),
        cmocka_unit_test(fewer_threads_share_the_cores),
        cmocka_unit_test(what_the_environment_says_holds),
    };
    unsetenv("OMP_PROC_BIND");
    unsetenv("GOMP_CPU_AFFINITY");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

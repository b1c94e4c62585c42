/* A thread's slice: set and read back, and not handed on. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/base/thread_slice.h"

#define SHORT_NS (200 * SY_NS_PER_US)

static void *slice_of_thread(void *ctx)
{
    *(sy_ns *)ctx = sy_thread_slice();
    return NULL;
}

static sy_ns slice_of_child(void)
{
    sy_ns slice = 0;
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        slice = sy_thread_slice();
        _exit(write(ends[1], &slice, sizeof slice) != sizeof slice);
    }
    assert_int_equal(read(ends[0], &slice, sizeof slice), sizeof slice);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ends[0]);
    close(ends[1]);
    return slice;
}

/* In a process of its own: what is set here cannot be taken back without a privilege. */
static void it_is_the_threads_own(void **state)
{
    (void)state;
    sy_ns usual = sy_thread_slice(), of_thread = 0;
    pthread_t thread;

    if (usual == 0)
        skip(); /* a kernel before 6.12 */
    assert_int_not_equal(usual, SHORT_NS);
    assert_int_equal(sy_thread_slice_set(SHORT_NS), SY_OK);
    assert_int_equal(sy_thread_slice(), SHORT_NS);
    assert_int_equal(slice_of_child(), usual);
    assert_int_equal(pthread_create(&thread, NULL, slice_of_thread, &of_thread), 0);
    pthread_join(thread, NULL);
    assert_int_equal(of_thread, usual);
}

/* Its children would lose it. */
static void a_favoured_thread_stays_as_it_is(void **state)
{
    (void)state;
    int status;

    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setpriority(PRIO_PROCESS, 0, -1) != 0)
            _exit(2); /* not allowed here */
        sy_ns before = sy_thread_slice();
        _exit(sy_thread_slice_set(SHORT_NS) != SY_EUNSUPPORTED || sy_thread_slice() != before);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 2)
        skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_favoured_thread_stays_as_it_is),
        cmocka_unit_test(it_is_the_threads_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

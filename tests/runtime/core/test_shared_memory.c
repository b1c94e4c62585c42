/* One memory in two processes; what must be refused is refused. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/shared_memory.h"
#include "runtime/base/status.h"

#define BYTES (1u << 20)

/* In the child: maps the fd afresh, checks the parent's byte, writes its own at the end. */
static int child_main(int fd)
{
    struct sy_shared_memory m = {0};
    if (sy_shared_memory_map(&m, fd, BYTES, true) != SY_OK)
        return 1;
    unsigned char *bytes = m.base;
    if (bytes[12345] != 77)
        return 2;
    bytes[BYTES - 1] = 99;
    sy_shared_memory_finish(&m);
    return 0;
}

static void test_two_processes_see_the_same_bytes(void **state)
{
    (void)state;
    struct sy_shared_memory m;
    assert_int_equal(sy_shared_memory_create(&m, "test", BYTES), SY_OK);
    unsigned char *bytes = m.base;
    for (unsigned i = 0; i < BYTES; i += 4096)
        assert_int_equal(bytes[i], 0);
    bytes[12345] = 77;
    pid_t child = fork();
    if (child == 0)
        _exit(child_main(m.fd));
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    assert_int_equal(bytes[BYTES - 1], 99);
    sy_shared_memory_finish(&m);
}

static void test_too_small_a_file_is_refused(void **state)
{
    (void)state;
    struct sy_shared_memory m, other = {0};
    assert_int_equal(sy_shared_memory_create(&m, "test", 8192), SY_OK);
    assert_int_equal(sy_shared_memory_map(&other, m.fd, 8193, false), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "8192"));
    assert_null(other.base);
    assert_int_equal(sy_shared_memory_map(&other, m.fd, 0, false), SY_EARG);
    assert_int_equal(sy_shared_memory_map(&other, -1, 8192, false), SY_EARG);
    /* The fd is still the caller's. */
    assert_true(fcntl(m.fd, F_GETFD) >= 0);
    sy_shared_memory_finish(&m);
}

static void test_cannot_shrink_and_is_closed_on_exec(void **state)
{
    (void)state;
    struct sy_shared_memory m;
    assert_int_equal(sy_shared_memory_create(&m, "test", 100), SY_OK);
    assert_true(m.bytes >= 100 && m.bytes % 4096 == 0);
    assert_int_equal(ftruncate(m.fd, 1), -1);
    assert_int_equal(errno, EPERM);
    assert_true(fcntl(m.fd, F_GETFD) & FD_CLOEXEC);
    sy_shared_memory_finish(&m);
    sy_shared_memory_finish(&m);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    struct sy_shared_memory m = {0};
    assert_int_equal(sy_shared_memory_create(&m, "test", 0), SY_EARG);
    assert_int_equal(sy_shared_memory_create(&m, "test", UINT64_MAX), SY_EARG);
    assert_int_equal(sy_shared_memory_create(&m, "test", 1ull << 61), SY_ENOMEM_HOST);
    assert_null(m.base);
    sy_shared_memory_finish(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes_see_the_same_bytes),
        cmocka_unit_test(test_too_small_a_file_is_refused),
        cmocka_unit_test(test_cannot_shrink_and_is_closed_on_exec),
        cmocka_unit_test(test_bad_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

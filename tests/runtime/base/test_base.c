/* Status codes, error texts, log levels. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

/* The values travel on the wire: this list is written by hand and never changes, it only grows. */
static void test_status_values_are_pinned(void **state)
{
    (void)state;
    static const struct {
        int value;
        const char *name;
    } pinned[] = {{0, "OK"},          {-1, "EARG"},      {-2, "ENOMEM_HOST"}, {-3, "ENOMEM_DEVICE"},
                  {-4, "ENODEVICE"},  {-5, "EDEVICE"},   {-6, "EPEER"},       {-7, "EPROTO"},
                  {-8, "EBUSY"},      {-9, "EDEADLINE"}, {-10, "ECORRUPT"},   {-11, "EUNSUPPORTED"},
                  {-12, "ENOTFOUND"}, {-13, "EIO"},      {-14, "ECANCELED"},  {-15, "ETOOBIG"},
                  {-16, "EBUG"}};
    for (size_t i = 0; i < SY_ARRAY_LEN(pinned); i++) {
        assert_string_equal(sy_status_name(pinned[i].value), pinned[i].name);
        assert_true(strlen(sy_status_text(pinned[i].value)) > 0);
    }
    assert_string_equal(sy_status_name(-1000), "EUNKNOWN");
    assert_string_equal(sy_status_text(12345), "unknown status");
}

static void test_error_text_is_prefixed_and_bounded(void **state)
{
    (void)state;
    char wide[2000];
    assert_int_equal(sy_error_set(SY_EIO, "cannot read %d bytes", 42), SY_EIO);
    assert_string_equal(sy_error_text(), "cannot read 42 bytes");
    assert_int_equal(sy_error_prefix(SY_EIO, "model '%s'", "a"), SY_EIO);
    assert_string_equal(sy_error_text(), "model 'a': cannot read 42 bytes");
    memset(wide, 'x', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    sy_error_set(SY_EIO, "%s", wide);
    assert_int_equal(strlen(sy_error_text()), 511);
    sy_error_prefix(SY_EIO, "%s", wide);
    assert_int_equal(strlen(sy_error_text()), 511);
}

static void *set_another_text(void *arg)
{
    (void)arg;
    sy_error_set(SY_EARG, "of the other thread");
    return NULL;
}

static void test_error_text_is_per_thread(void **state)
{
    (void)state;
    pthread_t thread;
    sy_error_set(SY_EARG, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, set_another_text, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(sy_error_text(), "of this thread");
}

static int fail_after(int *n)
{
    int status = SY_OK;
    SY_TRY(*n > 0 ? SY_OK : SY_EBUSY);
    ++*n;
    SY_TRY_GOTO(SY_EIO, undo);
    return SY_OK;

undo:
    --*n;
    return status;
}

static void test_try_macros_return_and_undo(void **state)
{
    (void)state;
    int none = 0, one = 1;
    assert_int_equal(fail_after(&none), SY_EBUSY);
    assert_int_equal(fail_after(&one), SY_EIO);
    assert_int_equal(one, 1);
}

/* Logs a line of each level at `level`, and returns what came out on stderr. */
static void capture_log(const char *level, char *out, size_t size)
{
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    setenv("SY_LOG", level, 1);
    sy_log_threshold = SY_LOG_INFO;
    sy_log_init("test");
    fflush(stderr);
    dup2(ends[1], STDERR_FILENO);
    sy_log_error("base", "n=%d", 0);
    sy_log_warn("base", "n=%d", 1);
    sy_log_info("base", "n=%d", 2);
    sy_log_debug("base", "n=%d", 3);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], out, size - 1);
    close(ends[0]);
    assert_true(n >= 0);
    out[n] = '\0';
}

static void test_log_levels(void **state)
{
    (void)state;
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    char text[2000];
    for (int i = 0; i < 4; i++) {
        capture_log(levels[i], text, sizeof text);
        for (int line = 0; line < 4; line++) {
            char wanted[16];
            snprintf(wanted, sizeof wanted, "n=%d\n", line);
            assert_int_equal(strstr(text, wanted) != NULL, line <= i);
        }
    }
    capture_log("nonsense", text, sizeof text);
    assert_true(strstr(text, "n=2\n") && !strstr(text, "n=3\n"));
    sy_log_threshold = SY_LOG_INFO;
}

static void test_clock_goes_forward(void **state)
{
    (void)state;
    sy_ns start = sy_clock_now();
    sy_clock_sleep_until(start + SY_NS_PER_MS);
    assert_true(sy_clock_now() >= start + SY_NS_PER_MS);
    sy_clock_sleep_until(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_values_are_pinned),
        cmocka_unit_test(test_error_text_is_prefixed_and_bounded),
        cmocka_unit_test(test_error_text_is_per_thread),
        cmocka_unit_test(test_try_macros_return_and_undo),
        cmocka_unit_test(test_log_levels),
        cmocka_unit_test(test_clock_goes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

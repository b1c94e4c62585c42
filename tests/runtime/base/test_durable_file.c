/* Durable files: whole or not at all, and nothing lies around afterwards. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sy_durable_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if anything else is there */
}

static void put(const char *text)
{
    struct sy_durable_file file;
    assert_int_equal(sy_durable_file_create(path, &file), SY_OK);
    assert_int_equal(sy_write_fully(file.fd, path, text, strlen(text), 0), SY_OK);
    assert_int_equal(sy_durable_file_commit(&file), SY_OK);
}

static void assert_holds(const char *text)
{
    char got[64] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(sy_read_fully(fd, path, got, strlen(text), 0), SY_OK);
    assert_int_equal(sy_read_fully(fd, path, got + 32, 1, strlen(text)), SY_ECORRUPT);
    close(fd);
    assert_string_equal(got, text);
}

static void test_commit_replaces_and_discard_does_not(void **state)
{
    (void)state;
    struct sy_durable_file file;
    put("one");
    assert_holds("one");
    put("three");
    assert_holds("three");
    assert_int_equal(sy_durable_file_create(path, &file), SY_OK);
    assert_int_equal(sy_write_fully(file.fd, path, "four", 4, 0), SY_OK);
    sy_durable_file_discard(&file);
    sy_durable_file_discard(&file);
    assert_holds("three");
    assert_int_equal(sy_durable_file_create("/nonexistent/file", &file), SY_EIO);
    assert_non_null(strstr(sy_error_text(), "/nonexistent/file"));
}

/* A file PATH.tmp-PID of this age. */
static void leave_behind(pid_t pid, int age_s, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s.tmp-%d", path, (int)pid);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= age_s;
    const struct timespec times[2] = {now, now};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void test_what_killed_writers_left_goes(void **state)
{
    (void)state;
    char dead[160], young[160], living[160], other[160];
    pid_t pid = fork(), second = fork();
    if (pid == 0 || second == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(waitpid(second, NULL, 0), second);
    leave_behind(pid, 3600, dead, sizeof dead);
    leave_behind(second, 5, young, sizeof young);
    leave_behind(getppid(), 3600, living, sizeof living);
    snprintf(other, sizeof other, "%s.tmp-notes", path);
    close(open(other, O_WRONLY | O_CREAT, 0600));
    put("new");
    assert_holds("new");
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(unlink(young), 0); /* may belong to a process that is not seen from here */
    assert_int_equal(unlink(living), 0);
    assert_int_equal(unlink(other), 0);
}

static void test_names(void **state)
{
    (void)state;
    char tail[40];
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(tail, sizeof tail, ".tmp-%d", (int)pid);
    assert_true(sy_durable_file_is_left_behind(tail));
    snprintf(tail, sizeof tail, ".tmp-%d", (int)getpid());
    assert_false(sy_durable_file_is_left_behind(tail));
    const char *const others[] = {"",        ".tmp",       ".tmp-",   ".tmp-0",
                                  ".tmp--4", ".tmp-notes", ".tmp-4x", "x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(sy_durable_file_is_left_behind(others[i]));
    assert_string_equal(sy_path_relative_to("/a/b", "/a/b/c/d"), "c/d");
    assert_string_equal(sy_path_relative_to("/a/b//", "/a/b//c"), "c");
    assert_string_equal(sy_path_relative_to("/a/b", "/a/b/"), "");
    assert_null(sy_path_relative_to("/a/b", "/a/b"));
    assert_null(sy_path_relative_to("/a/b", "/a/bc/d"));
    assert_null(sy_path_relative_to("", "/a"));
    assert_int_equal(sy_folder_sync(folder), SY_OK);
    assert_int_equal(sy_folder_sync("/nonexistent"), SY_EIO);
    assert_non_null(strstr(sy_error_text(), "/nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commit_replaces_and_discard_does_not, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_killed_writers_left_goes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

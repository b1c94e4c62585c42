/* Cgroups are removed as folders are: whole, and while what was in them goes. On folders of /tmp. */
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
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/cli/script_cgroup.h"

static void make(char root[32], char file[64])
{
    static const char *const folders[] = {"inner", "inner/most", "other"};
    char path[64];
    strcpy(root, "/tmp/switchyard-cgroup-XXXXXX");
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(file, 64, "%s/inner/most/process", root);
}

static void fill(const char *file)
{
    int fd = open(file, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void inner_ones_go_first(void **state)
{
    (void)state;
    char root[32], file[64];
    make(root, file);
    sy_script_cgroup_remove(root, 0);
    assert_int_equal(access(root, F_OK), -1);
    sy_script_cgroup_remove(root, 0);
    sy_script_cgroup_remove("", SY_NS_PER_S);
}

static void what_goes_late_is_waited_for(void **state)
{
    (void)state;
    char root[32], file[64];
    make(root, file);
    fill(file);
    pid_t child = fork();
    if (child == 0) {
        usleep(700000);
        unlink(file);
        _exit(0);
    }
    sy_script_cgroup_remove(root, 30 * SY_NS_PER_S);
    assert_int_equal(access(root, F_OK), -1);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void what_stays_is_left(void **state)
{
    (void)state;
    char root[32], file[64];
    make(root, file);
    fill(file);
    sy_script_cgroup_remove(root, SY_NS_PER_S / 20);
    assert_int_equal(access(file, F_OK), 0);
    unlink(file);
    sy_script_cgroup_remove(root, 0);
    assert_int_equal(access(root, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inner_ones_go_first),
        cmocka_unit_test(what_goes_late_is_waited_for),
        cmocka_unit_test(what_stays_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

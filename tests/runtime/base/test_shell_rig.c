/* What tests do by a shell: long outputs, and trees of which entries stay or are removed by others at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/rigs/shell.h"

#define N_FOLDERS 4

static bool keeps; /* what is named "stays" */

/* Stands before the C library's: what is named "gone" is removed by another at the same time. */
int remove(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    struct stat info;

    if (keeps && strcmp(name, "stays") == 0) {
        errno = EACCES;
        return -1;
    }
    int status = lstat(path, &info) == 0 && S_ISDIR(info.st_mode) ? rmdir(path) : unlink(path);
    if (strcmp(name, "gone") == 0) {
        errno = ENOENT;
        return -1;
    }
    return status;
}

static void make_tree(char *root, const char *name)
{
    char output[8];

    strcpy(root, "/tmp/shell_rig_XXXXXX");
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < N_FOLDERS; i++)
        assert_int_equal(shell_run(output, sizeof output,
                                   "mkdir '%s/%d' && cd '%s/%d' && touch '%s' other", root, i, root,
                                   i, name),
                         0);
}

static void test_long_output_is_cut(void **state)
{
    char output[16];

    (void)state;
    assert_int_equal(shell_run(output, sizeof output, "exec head -c 1000000 /dev/zero"), 0);
    assert_int_equal(shell_run(output, sizeof output, "echo 0123456789abcdefgh; exit 3"), 3);
    assert_string_equal(output, "0123456789abcde");
}

static void test_entries_that_others_remove(void **state)
{
    char root[32];

    (void)state;
    make_tree(root, "gone");
    assert_int_equal(remove_tree(root), 0);
    assert_int_equal(access(root, F_OK), -1);
    assert_int_equal(remove_tree(root), 0);
}

static void test_entries_that_stay(void **state)
{
    char root[32], output[256], expected[256] = "";

    (void)state;
    make_tree(root, "stays");
    keeps = true;
    assert_int_equal(remove_tree(root), -1);
    keeps = false;
    for (int i = 0; i < N_FOLDERS; i++)
        sprintf(expected + strlen(expected), "./%d/stays\n", i);
    assert_int_equal(
        shell_run(output, sizeof output, "cd '%s' && find . -type f | LC_ALL=C sort", root), 0);
    assert_string_equal(output, expected);
    assert_int_equal(remove_tree(root), 0);
    assert_int_equal(access(root, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_output_is_cut),
        cmocka_unit_test(test_entries_that_others_remove),
        cmocka_unit_test(test_entries_that_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/rigs/shell.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define MOST_OPEN 8 /* folders that nftw has open at a time */

int shell_run(char *output, size_t bytes, const char *format, ...)
{
    char command[16384], rest[4096];
    va_list list;
    FILE *pipe;
    int status;

    va_start(list, format);
    assert_in_range(vsnprintf(command, sizeof command, format, list), 0, sizeof command - 1);
    va_end(list);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, bytes - 1, pipe)] = 0;
    while (fread(rest, 1, sizeof rest, pipe) > 0) /* else SIGPIPE would end what still writes */
        ;
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int n_stay; /* of the tree that remove_tree removes */

/* Whoever owns the tree may remove entries at the same time. */
static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    n_stay += remove(path) != 0 && errno != ENOENT;
    return 0;
}

int remove_tree(const char *path)
{
    struct stat info;
    int status;

    do { /* a folder that is gone when its turn comes ends the walk */
        n_stay = 0;
        status = nftw(path, remove_entry, MOST_OPEN, FTW_DEPTH | FTW_PHYS);
        if (status != 0 && errno != ENOENT)
            return -1;
    } while (status != 0 && lstat(path, &info) == 0);
    return n_stay == 0 ? 0 : -1;
}

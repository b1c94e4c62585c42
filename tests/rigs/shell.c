#include "tests/rigs/shell.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cmocka.h>

#define MOST_OPEN 8 /* folders that nftw has open at a time */

int shell_run(char *output, size_t bytes, const char *format, ...)
{
    char command[16384];
    va_list list;
    FILE *pipe;
    int status;

    va_start(list, format);
    assert_in_range(vsnprintf(command, sizeof command, format, list), 0, sizeof command - 1);
    va_end(list);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, bytes - 1, pipe)] = 0;
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

int remove_tree(const char *path)
{
    return nftw(path, remove_entry, MOST_OPEN, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT ? 0
                                                                                             : -1;
}

/* What tests do by a shell, or would. */
#ifndef SY_TESTS_RIGS_SHELL_H
#define SY_TESTS_RIGS_SHELL_H

#include <stddef.h>

/* Runs the command in a shell. `output`: what it wrote to stdout, cut at `bytes` - 1, and a terminator. The rest is read and dropped. Returns its
 * exit status; fails the test if a signal ended it. */
int shell_run(char *output, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Removes a file, or a folder with all that it holds. 0, also if it, or a part of it, does not exist; -1: something stays, the rest is removed. One thread at
 * a time. */
int remove_tree(const char *path);

#endif

/* Included ahead of each file that clang-tidy reads: it sees one file at a time, so it is told that the two functions that
 * make errors return the status that they are given. Without that it follows paths on which a failure is not one. */
#ifndef SY_TESTS_LINT_LINT_HINTS_H
#define SY_TESTS_LINT_LINT_HINTS_H

#include "runtime/base/status.h"

#define sy_error_set(status, ...)    (sy_error_set((status), __VA_ARGS__), (status))
#define sy_error_prefix(status, ...) (sy_error_prefix((status), __VA_ARGS__), (status))

#endif

/* A child process that has so long and no longer. Any thread; nobody else may wait for the same child. */
#ifndef SY_RUNTIME_BASE_AWAIT_CHILD_H
#define SY_RUNTIME_BASE_AWAIT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/clock.h"

/* Waits for the child until `end`; false: it did not end in time, and was killed. In both cases it is reaped and *wait_status says how it ended. */
bool sy_await_child(pid_t pid, sy_ns end, int *wait_status);

#endif

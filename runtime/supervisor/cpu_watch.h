/* When a process has computed last. What it does in states without heartbeats takes as long as it takes; one that uses no CPU time at all hangs: it is stopped, or
 * waits for what never comes. */
#ifndef SY_RUNTIME_SUPERVISOR_CPU_WATCH_H
#define SY_RUNTIME_SUPERVISOR_CPU_WATCH_H

#include <sys/types.h>

#include "runtime/base/clock.h"

/* Zeroed for each process. */
struct sy_cpu_watch {
    sy_ns used_ns, moved_ns;
};

/* The last look at which its CPU time had grown since the one before; the first look counts as such. `now` if the kernel does not tell. */
sy_ns sy_cpu_watch_look(struct sy_cpu_watch *watch, pid_t pid, sy_ns now);

#endif

/* When a process has computed last, and how long it had no core to compute on. What it does in states without heartbeats takes as long as it takes; one that uses no CPU time at all hangs: it is stopped, or
 * waits for what never comes. */
#ifndef SY_RUNTIME_SUPERVISOR_CPU_WATCH_H
#define SY_RUNTIME_SUPERVISOR_CPU_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/clock.h"

/* Zeroed for each process. */
struct sy_cpu_watch {
    sy_ns used_ns, moved_ns;
    struct {
        sy_ns look_ns, used_ns, starved_ns; /* look_ns 0: its beat is not late */
    } late;
};

/* Of a process at a look. */
struct sy_cpu_use {
    sy_ns used_ns;    /* CPU time so far, of all its threads */
    bool is_runnable; /* its first thread, which beats, computes or waits for a core */
};

/* The last look at which its CPU time had grown since the one before; the first look counts as such. `now` if the kernel does not tell. */
sy_ns sy_cpu_watch_look(struct sy_cpu_watch *watch, pid_t pid, sy_ns now);

/* Zeros if the kernel does not tell. */
struct sy_cpu_use sy_cpu_use_of(pid_t pid);

/* Its last beat is older than `timeout` and the time since in which it wanted a core and had none, of which five timeouts count: on a machine that others have to
 * themselves it does not hang. Looked at from half of the timeout on, at each tick. Pure. */
bool sy_cpu_watch_is_silent(struct sy_cpu_watch *watch, sy_ns beat, sy_ns timeout,
                            struct sy_cpu_use use, sy_ns now);

#endif

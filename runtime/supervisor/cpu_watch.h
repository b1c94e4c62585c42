/* When a process has computed last, and how long it had no core to compute on. One without heartbeats that uses no CPU time at all hangs: it is stopped, or waits
 * for what never comes. One that waits for storage (swap, a network's file system) does not, for two minutes. */
#ifndef SY_RUNTIME_SUPERVISOR_CPU_WATCH_H
#define SY_RUNTIME_SUPERVISOR_CPU_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/clock.h"

/* Zeroed for each process. */
struct sy_cpu_watch {
    sy_ns used_ns, moved_ns; /* moved_ns: the last look at which used_ns had grown */
    sy_ns stirred_ns;        /* the same, or it waited for storage */
    struct {
        sy_ns look_ns, used_ns, starved_ns; /* look_ns 0: its beat is not late */
    } late;
};

/* CPU use of a process at one look. */
struct sy_cpu_use {
    sy_ns used_ns;    /* CPU time so far, of all its threads */
    bool is_runnable; /* its first thread, which beats, computes or waits for a core */
    bool is_blocked;  /* one of its threads waits for storage (state D) */
};

/* Zeros if the kernel does not tell. */
struct sy_cpu_use sy_cpu_use_of(pid_t pid);

/* Whether a process has neither computed nor waited for storage for `timeout`, counted from `since`. Call it at each tick; the first call counts as progress. Pure. */
bool sy_cpu_watch_stands(struct sy_cpu_watch *watch, struct sy_cpu_use use, sy_ns since,
                         sy_ns timeout, sy_ns now);

/* Its last beat is older than `timeout` and the time since in which it wanted a core and had none, of which five timeouts count: on a machine that others have to
 * themselves it does not hang. Looked at from half of the timeout on, at each tick. Pure. */
bool sy_cpu_watch_is_silent(struct sy_cpu_watch *watch, sy_ns beat, sy_ns timeout,
                            struct sy_cpu_use use, sy_ns now);

#endif

/* When a worker has to go (V4): by its heartbeats, its CPU time, its state's own timeout, and a socket that it has closed. */
#ifndef SY_RUNTIME_SUPERVISOR_WORKER_WATCH_H
#define SY_RUNTIME_SUPERVISOR_WORKER_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/supervisor/cpu_watch.h"
#include "runtime/supervisor/worker_state.h"

#define SY_WORKER_WATCH_WHY 200

/* Zeroed for each process. */
struct sy_worker_watch {
    sy_ns moved_ns;        /* when it came into its state */
    sy_ns deadline;        /* of that state; 0: none */
    sy_ns heard_ns;        /* its last message */
    sy_ns closed_ns;       /* when it closed its socket, 0: it has not; not of a state */
    sy_ns beat_at_stop_ns; /* its last one before SHUTDOWN was sent; 0: it need not beat */
    struct sy_cpu_watch cpu;
};

/* Whether workers send heartbeats in this state: not while libraries, programs or data sets are loaded, nor while they end. */
bool sy_worker_state_has_heartbeat(enum sy_worker_state state);
/* The worker enters this state now: its clocks start anew. */
void sy_worker_watch_move(struct sy_worker_watch *watch, enum sy_worker_state to, sy_ns now);
/* At each tick, of a process that lives; beat: its last one. True: it is to be killed, `why` (SY_WORKER_WATCH_WHY bytes) says the reason. */
bool sy_worker_watch_is_over(struct sy_worker_watch *watch, enum sy_worker_state state, pid_t pid,
                             sy_ns beat, sy_ns hang_timeout, sy_ns now, char *why);

#endif

/* The life of a worker process, as the runtime sees it. Pure: the table says which moves are legal.
 *
 *   SPAWNED ─HELLO→ CONFIGURING ─READY→ LOADING_MODELS ─MODELS_DONE→ IDLE
 *
 *   IDLE ─LOAD→ LOADED ─RUN→ RUNNING ─RUN_DONE→ IDLE          LOADED ─CANCEL→ CANCELING ─RUN_DONE→ IDLE
 *
 *   IDLE ─JOB_PREPARE→ PREPARING_JOB ─JOB_PREPARED→ JOB_READY ─JOB_START→ STARTING_JOB ─JOB_STARTED→ WAITING_TURN
 *   WAITING_TURN ─JOB_TURN→ TRAINING ─JOB_TURN_OVER→ WAITING_TURN
 *   TRAINING ─PREEMPT→ PAUSING ─JOB_PAUSED→ PAUSED ─RESUME→ TRAINING;   PAUSING ─RESUME→ TRAINING,
 *                                                                        ─JOB_TURN_OVER→ WAITING_TURN
 *   any of these with a job ─JOB_ENDED→ IDLE
 *
 *   any ─SHUTDOWN→ STOPPING;   any ─KILL→ KILLED;   any ─EXIT→ DEAD ─SPAWN→ SPAWNED
 *
 * A pair that is not in the table is a bug (of the worker, or ours): log, kill, replace. */
#ifndef SY_RUNTIME_SUPERVISOR_WORKER_STATE_H
#define SY_RUNTIME_SUPERVISOR_WORKER_STATE_H

#include "runtime/base/clock.h"

/* X(name, timeout in ms (0: none), waits for). Within the timeout the next event must come, or the worker is killed. */
#define SY_WORKER_STATE_TABLE(X)                                                 \
    X(DEAD, 0, "being spawned")                                                  \
    X(SPAWNED, 20000, "HELLO")                                                   \
    X(CONFIGURING, 60000, "READY: maps pool, image, slab; opens the device")     \
    X(LOADING_MODELS, 0, "MODEL_ADDED for every model; V4 bounds each")          \
    X(IDLE, 0, "work")                                                           \
    X(LOADED, 0, "RUN, which waits until training has paused, and for its turn") \
    X(CANCELING, 30000, "RUN_DONE of a run that will not run")                   \
    X(RUNNING, 0, "RUN_DONE; the heartbeat bounds it")                           \
    X(PREPARING_JOB, 120000, "JOB_PREPARED: reads model and data set")           \
    X(JOB_READY, 0, "room in the pool")                                          \
    X(STARTING_JOB, 120000, "JOB_STARTED: reads the snapshot")                   \
    X(WAITING_TURN, 0, "the job's turn")                                         \
    X(TRAINING, 0, "a request, the turn's end, or the job's")                    \
    X(PAUSING, 20000, "JOB_PAUSED: the end of the layer")                        \
    X(PAUSED, 0, "no request waiting")                                           \
    X(STOPPING, 0, "its exit; the drain's grace bounds it")                      \
    X(KILLED, 30000, "its exit after SIGKILL")

enum sy_worker_state {
#define X(name, timeout_ms, waits) SY_WORKER_##name,
    SY_WORKER_STATE_TABLE(X)
#undef X
        SY_WORKER_N_STATES
};

/* clang-format off */
#define SY_WORKER_EVENT_TABLE(X) \
    X(SPAWN) \
    X(HELLO) \
    X(READY) \
    X(MODELS_DONE) \
    X(LOAD) \
    X(RUN) \
    X(CANCEL) \
    X(RUN_DONE) \
    X(JOB_PREPARE) \
    X(JOB_PREPARED) \
    X(JOB_START) \
    X(JOB_STARTED) \
    X(JOB_TURN) \
    X(JOB_TURN_OVER) \
    X(PREEMPT) \
    X(JOB_PAUSED) \
    X(RESUME) \
    X(JOB_ENDED) \
    X(SHUTDOWN) \
    X(KILL) \
    X(EXIT)
/* clang-format on */

enum sy_worker_event {
#define X(name) SY_WORKER_EVENT_##name,
    SY_WORKER_EVENT_TABLE(X)
#undef X
        SY_WORKER_N_EVENTS
};

const char *sy_worker_state_name(enum sy_worker_state state);
const char *sy_worker_state_waits_for(enum sy_worker_state state);
const char *sy_worker_event_name(enum sy_worker_event event);
sy_ns sy_worker_state_timeout_ns(enum sy_worker_state state); /* 0: none */
/* The state after `event`, or EPROTO when the pair is not in the table. */
int sy_worker_state_move(enum sy_worker_state from, enum sy_worker_event event,
                         enum sy_worker_state *to);

#endif

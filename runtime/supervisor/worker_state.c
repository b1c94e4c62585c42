#include "runtime/supervisor/worker_state.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct move {
    enum sy_worker_state from;
    enum sy_worker_event event;
    enum sy_worker_state to;
};

#define MOVE(from, event, to)                                     \
    {                                                             \
        SY_WORKER_##from, SY_WORKER_EVENT_##event, SY_WORKER_##to \
    }
#define LIVE(from) MOVE(from, SHUTDOWN, STOPPING), MOVE(from, KILL, KILLED), MOVE(from, EXIT, DEAD)

static const struct move moves[] = {
    MOVE(DEAD, SPAWN, SPAWNED),
    MOVE(SPAWNED, HELLO, CONFIGURING),
    MOVE(CONFIGURING, READY, LOADING_MODELS),
    MOVE(LOADING_MODELS, MODELS_DONE, IDLE),
    /* requests */
    MOVE(IDLE, LOAD, LOADED),
    MOVE(LOADED, LOAD, LOADED), /* the tail of a prefetched model */
    MOVE(LOADED, RUN, RUNNING),
    MOVE(LOADED, CANCEL, CANCELING),
    MOVE(LOADED, RUN_DONE, IDLE), /* the LOAD failed */
    MOVE(CANCELING, RUN_DONE, IDLE),
    MOVE(RUNNING, RUN_DONE, IDLE),
    MOVE(RUNNING, CANCEL, CANCELING), /* interrupted for a more urgent one */
    /* training */
    MOVE(IDLE, JOB_PREPARE, PREPARING_JOB),
    MOVE(PREPARING_JOB, JOB_PREPARED, JOB_READY),
    MOVE(PREPARING_JOB, JOB_ENDED, IDLE), /* it cannot be prepared */
    MOVE(JOB_READY, JOB_START, STARTING_JOB),
    MOVE(JOB_READY, JOB_ENDED, IDLE), /* stopped before it started */
    MOVE(STARTING_JOB, JOB_STARTED, WAITING_TURN),
    MOVE(STARTING_JOB, JOB_ENDED, IDLE), /* no good snapshot, wrong memory */
    MOVE(WAITING_TURN, JOB_TURN, TRAINING),
    MOVE(WAITING_TURN, RESUME,
         WAITING_TURN), /* makes the epoch even after a turn that ended while it was held */
    MOVE(WAITING_TURN, JOB_ENDED, IDLE), /* stopped, without an evaluation */
    MOVE(TRAINING, JOB_TURN_OVER, WAITING_TURN),
    MOVE(TRAINING, PREEMPT, PAUSING),
    MOVE(TRAINING, JOB_ENDED, IDLE),
    MOVE(PAUSING, JOB_PAUSED, PAUSED),
    MOVE(PAUSING, RESUME, TRAINING), /* the request's worker died meanwhile */
    MOVE(PAUSING, JOB_TURN_OVER, WAITING_TURN),
    MOVE(PAUSING, JOB_ENDED, IDLE), /* its last iteration ended before it saw the epoch */
    MOVE(PAUSED, RESUME, TRAINING),
    MOVE(PAUSED, JOB_ENDED, IDLE), /* a script's process was killed where it stood */
    MOVE(IDLE, RESUME, IDLE), /* makes the epoch even after a job that ended while it was held */
    /* messages that were in flight when it was told to stop */
    MOVE(STOPPING, HELLO, STOPPING),
    MOVE(STOPPING, READY, STOPPING),
    MOVE(STOPPING, MODELS_DONE, STOPPING),
    MOVE(STOPPING, RUN_DONE, STOPPING),
    MOVE(STOPPING, JOB_PREPARED, STOPPING),
    MOVE(STOPPING, JOB_STARTED, STOPPING),
    MOVE(STOPPING, JOB_PAUSED, STOPPING),
    MOVE(STOPPING, JOB_TURN_OVER, STOPPING),
    MOVE(STOPPING, JOB_ENDED, STOPPING),
    /* the end */
    LIVE(SPAWNED),
    LIVE(CONFIGURING),
    LIVE(LOADING_MODELS),
    LIVE(IDLE),
    LIVE(LOADED),
    LIVE(CANCELING),
    LIVE(RUNNING),
    LIVE(PREPARING_JOB),
    LIVE(JOB_READY),
    LIVE(STARTING_JOB),
    LIVE(WAITING_TURN),
    LIVE(TRAINING),
    LIVE(PAUSING),
    LIVE(PAUSED),
    LIVE(STOPPING),
    MOVE(KILLED, EXIT, DEAD),
};

const char *sy_worker_state_name(enum sy_worker_state state)
{
    static const char *const names[] = {
#define X(name, timeout_ms, waits) #name,
        SY_WORKER_STATE_TABLE(X)
#undef X
    };
    return (unsigned)state < SY_WORKER_N_STATES ? names[state] : "?";
}

const char *sy_worker_state_waits_for(enum sy_worker_state state)
{
    static const char *const texts[] = {
#define X(name, timeout_ms, waits) waits,
        SY_WORKER_STATE_TABLE(X)
#undef X
    };
    return (unsigned)state < SY_WORKER_N_STATES ? texts[state] : "?";
}

const char *sy_worker_event_name(enum sy_worker_event event)
{
    static const char *const names[] = {
#define X(name) #name,
        SY_WORKER_EVENT_TABLE(X)
#undef X
    };
    return (unsigned)event < SY_WORKER_N_EVENTS ? names[event] : "?";
}

sy_ns sy_worker_state_timeout_ns(enum sy_worker_state state)
{
    static const sy_ns timeouts[] = {
#define X(name, timeout_ms, waits) (timeout_ms) * SY_NS_PER_MS,
        SY_WORKER_STATE_TABLE(X)
#undef X
    };
    assert((unsigned)state < SY_WORKER_N_STATES);
    return timeouts[state];
}

int sy_worker_state_move(enum sy_worker_state from, enum sy_worker_event event,
                         enum sy_worker_state *to)
{
    /* About a hundred rows, looked at a few times a request: a scan is some tens of nanoseconds. */
    for (size_t i = 0; i < SY_ARRAY_LEN(moves); i++) {
        if (moves[i].from == from && moves[i].event == event) {
            *to = moves[i].to;
            return SY_OK;
        }
    }
    return sy_error_set(SY_EPROTO, "event %s in state %s, which waits for %s",
                        sy_worker_event_name(event), sy_worker_state_name(from),
                        sy_worker_state_waits_for(from));
}

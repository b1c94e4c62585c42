#include "runtime/supervisor/worker_watch.h"

#include <stdio.h>

#include "runtime/base/assert.h"

#define LOAD_TIMEOUTS 6u /* hang timeouts for one model or program */
#define LOAD_AT_LEAST (300 * SY_NS_PER_S)
/* lower bound for short hang timeouts, since two ticks measure nothing */
#define STAND_AT_LEAST (5 * SY_NS_PER_S)

bool sy_worker_state_has_heartbeat(enum sy_worker_state state)
{
    return state > SY_WORKER_LOADING_MODELS && state != SY_WORKER_PREPARING_JOB &&
           state != SY_WORKER_STARTING_JOB && state != SY_WORKER_STOPPING;
}

void sy_worker_watch_move(struct sy_worker_watch *watch, enum sy_worker_state to, sy_ns now)
{
    sy_ns timeout = sy_worker_state_timeout_ns(to);
    watch->moved_ns = now;
    watch->deadline = timeout ? now + timeout : 0;
}

/* The time from closing a worker's socket to its exit. A worker that was told to stop frees its memory first. */
static sy_ns exit_time(enum sy_worker_state state)
{
    return state == SY_WORKER_STOPPING ? 5 * SY_NS_PER_S : SY_NS_PER_S;
}

/* A worker that was told to stop and has sent no heartbeat since has not read the message. */
static bool is_deaf(const struct sy_worker_watch *w, enum sy_worker_state state, sy_ns beat,
                    sy_ns hang_timeout, sy_ns now)
{
    return state == SY_WORKER_STOPPING && w->beat_at_stop_ns && w->beat_at_stop_ns == beat &&
           now > w->moved_ns + hang_timeout;
}

/* A worker that loads models answers after each program that it made. */
static bool is_stuck_loading(const struct sy_worker_watch *w, enum sy_worker_state state,
                             sy_ns hang_timeout, sy_ns now)
{
    return state == SY_WORKER_LOADING_MODELS &&
           now > SY_MAX(w->heard_ns, w->moved_ns) +
                     SY_MAX(LOAD_TIMEOUTS * hang_timeout, LOAD_AT_LEAST);
}

/* States without heartbeats for which others wait: a load whose answer is awaited, a job's start that all requests wait for (S1), a drain. */
static bool stands_still(struct sy_worker_watch *w, enum sy_worker_state state, pid_t pid,
                         sy_ns hang_timeout, sy_ns now)
{
    if (state != SY_WORKER_LOADING_MODELS && state != SY_WORKER_STARTING_JOB &&
        (state != SY_WORKER_STOPPING || w->beat_at_stop_ns))
        return false;
    return sy_cpu_watch_stands(&w->cpu, sy_cpu_use_of(pid), w->moved_ns,
                               SY_MAX(hang_timeout, STAND_AT_LEAST), now);
}

static bool is_silent(struct sy_worker_watch *w, pid_t pid, sy_ns beat, sy_ns hang_timeout,
                      sy_ns now)
{
    struct sy_cpu_use use = {0};
    if (now > beat + hang_timeout / 2)
        use = sy_cpu_use_of(pid);
    return sy_cpu_watch_is_silent(&w->cpu, beat, hang_timeout, use, now);
}

bool sy_worker_watch_is_over(struct sy_worker_watch *w, enum sy_worker_state state, pid_t pid,
                             sy_ns beat, sy_ns hang_timeout, sy_ns now, char *why)
{
    bool deaf = is_deaf(w, state, beat, hang_timeout, now);
    beat = SY_MAX(beat,
                  w->moved_ns); /* behind a state without beats the next one has its time again */
    if (deaf)
        snprintf(why, SY_WORKER_WATCH_WHY, "told to stop, it did not stir for %.1f s",
                 (double)(now - w->moved_ns) / 1e9);
    else if (sy_worker_state_has_heartbeat(state) && is_silent(w, pid, beat, hang_timeout, now))
        snprintf(why, SY_WORKER_WATCH_WHY, "no heartbeat for %.1f s", (double)(now - beat) / 1e9);
    else if (is_stuck_loading(w, state, hang_timeout, now))
        snprintf(why, SY_WORKER_WATCH_WHY, "it has computed on one model for %.0f s",
                 (double)(now - SY_MAX(w->heard_ns, w->moved_ns)) / 1e9);
    else if (stands_still(w, state, pid, hang_timeout, now))
        snprintf(why, SY_WORKER_WATCH_WHY, "in state %s it has not computed for the hang timeout",
                 sy_worker_state_name(state));
    else if (w->closed_ns && now > w->closed_ns + exit_time(state))
        snprintf(why, SY_WORKER_WATCH_WHY, "it closed its control socket and did not exit");
    else if (w->deadline && now > w->deadline)
        snprintf(why, SY_WORKER_WATCH_WHY, "it waited too long in state %s for %s",
                 sy_worker_state_name(state), sy_worker_state_waits_for(state));
    else
        return false;
    return true;
}

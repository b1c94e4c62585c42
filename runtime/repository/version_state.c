#include "runtime/repository/version_state.h"

#include <stddef.h>

static const struct {
    enum sy_version_state from;
    enum sy_version_event event;
    enum sy_version_state to;
} moves[] = {
#define MOVE(from, event, to) {SY_VERSION_##from, SY_VERSION_EVENT_##event, SY_VERSION_##to},
    MOVE(UNLOADED, WANT, LOOKING) /* loaded for the first time, or again */
    MOVE(UNAVAILABLE, WANT,
         LOOKING)              /* its source, or what kept it from loading, may be another now */
    MOVE(READY, WANT, LOOKING) /* its source or configuration changed; it serves on */
    MOVE(LOOKING, CURRENT, OPENING)    /* nothing to import */
    MOVE(LOOKING, STALE, QUEUED)       /* one import at a time: R3 */
    MOVE(LOOKING, FAIL, UNAVAILABLE)   /* there is nothing to load */
    MOVE(LOOKING, DROP, UNLOADED)      /* unloaded meanwhile */
    MOVE(QUEUED, TURN, IMPORTING)      /* the one before has ended */
    MOVE(QUEUED, DROP, UNLOADED)       /* unloaded meanwhile */
    MOVE(IMPORTING, IMPORTED, OPENING) /* its package is there */
    MOVE(IMPORTING, FAIL, UNAVAILABLE) /* the import's last line says why */
    MOVE(IMPORTING, DROP, UNLOADED)    /* the import was killed */
    MOVE(OPENING, OPENED, PLACING)     /* it fits its configuration */
    MOVE(OPENING, FAIL, UNAVAILABLE)   /* damaged, or not what the configuration says */
    MOVE(OPENING, DROP, UNLOADED)      /* unloaded meanwhile */
    MOVE(PLACING, PLACED, ADDING)      /* the core took it */
    MOVE(PLACING, FAIL, UNAVAILABLE)   /* the core refused it */
    MOVE(PLACING, DROP, UNLOADED) /* unloaded meanwhile, or loaded at start and no place is left */
    MOVE(ADDING, ADDED, WARMING)  /* every worker has it */
    MOVE(ADDING, FAIL, UNAVAILABLE)   /* a worker refused it */
    MOVE(ADDING, DROP, UNLOADED)      /* unloaded meanwhile */
    MOVE(WARMING, WARMED, READY)      /* its warm-up requests have run */
    MOVE(WARMING, FAIL, UNAVAILABLE)  /* a run failed */
    MOVE(WARMING, DROP, UNLOADED)     /* unloaded meanwhile */
    MOVE(READY, DROP, UNLOADED)       /* unloaded, or evicted */
    MOVE(UNAVAILABLE, DROP, UNLOADED) /* unloaded: the reason is forgotten */
#undef MOVE
};

int sy_version_next(enum sy_version_state state, enum sy_version_event event)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (moves[i].from == state && moves[i].event == event)
            return (int)moves[i].to;
    return -1;
}

const char *sy_version_state_name(enum sy_version_state state)
{
    static const char *const names[] = {
#define X(name, waits) #name,
        SY_VERSION_STATES(X)
#undef X
    };
    return names[state];
}

const char *sy_version_event_name(enum sy_version_event event)
{
    static const char *const names[] = {
#define X(name) #name,
        SY_VERSION_EVENTS(X)
#undef X
    };
    return names[event];
}

/* The states of one version of a model in the repository. Pure.
 *
 *              want             look              its package is up to date
 *   UNLOADED ───────> LOOKING ─────────────────────────────────────> OPENING ──> PLACING ──> ADDING ──> WARMING ──> READY
 *      ^                 │ it is not                                   ^                                              │
 *      │                 └──> QUEUED ──its turn──> IMPORTING ──────────┘                                  want (changed): LOOKING
 *      │
 *      └── drop, from each state <─── UNAVAILABLE <── fail, from each state but READY and UNLOADED
 *
 * While a version is loaded again its older content answers requests: struct sy_repository_version's `serves`. */
#ifndef SY_REPOSITORY_VERSION_STATE_H
#define SY_REPOSITORY_VERSION_STATE_H

#include <stdbool.h>

/* X(name, waits for) */
#define SY_VERSION_STATES(X)                                              \
    X(UNLOADED, "a request for it, or a load")                            \
    X(LOOKING, "the thread: whether its package is up to date")           \
    X(QUEUED, "the import that runs to end")                              \
    X(IMPORTING, "its import to end; limited by the importer's limit_ns") \
    X(OPENING, "the thread: its package, held against the configuration") \
    X(PLACING, "a place in the core's table")                             \
    X(ADDING, "the core: every worker has it, or is replaced")            \
    X(WARMING, "its warm-up runs")                                        \
    X(READY, "nothing")                                                   \
    X(UNAVAILABLE, "a load, or another source")

/* X(name) */
#define SY_VERSION_EVENTS(X)                          \
    X(WANT)     /* to be served */                    \
    X(CURRENT)  /* its package is up to date */       \
    X(STALE)    /* it has none, or an old one */      \
    X(TURN)     /* no other import runs */            \
    X(IMPORTED) /* the package is made */             \
    X(OPENED)   /* and fits its configuration */      \
    X(PLACED)   /* the core has room, and adds it */  \
    X(ADDED)    /* the core answers requests on it */ \
    X(WARMED)   /* its warm-up requests have run */   \
    X(FAIL)     /* the version's reason says why */   \
    X(DROP)     /* not to be served, and nothing is under way */

enum sy_version_state {
#define X(name, waits) SY_VERSION_##name,
    SY_VERSION_STATES(X)
#undef X
        SY_VERSION_N_STATES
};

enum sy_version_event {
#define X(name) SY_VERSION_EVENT_##name,
    SY_VERSION_EVENTS(X)
#undef X
        SY_VERSION_N_EVENTS
};

/* The next state; -1: the event has no place there, which is a bug of the caller's. */
int sy_version_next(enum sy_version_state state, enum sy_version_event event);
const char *sy_version_state_name(enum sy_version_state state);
const char *sy_version_event_name(enum sy_version_event event);

#endif

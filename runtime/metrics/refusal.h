/* Requests that were not taken, by the rule that refused them. */
#ifndef SY_METRICS_REFUSAL_H
#define SY_METRICS_REFUSAL_H

#include <stdint.h>

/* X(name, label, who refuses and why) */
#define SY_REFUSAL_TABLE(X)                                                                       \
    X(QUEUE_FULL, "queue_full", "core: no place in the queue for its class")                      \
    X(LATE, "late", "core: its deadline would pass, by prediction")                               \
    X(DRAINING, "draining", "core: the server stops")                                             \
    X(UNAVAILABLE, "unavailable", "core, front ends: the model did not load, or no longer reads") \
    X(QUOTA, "quota", "core: a model over its tenant's memory quota")                             \
    X(NO_ROOM, "no_room", "core: host memory, or sizes that the pool can never hold")             \
    X(NOT_FOUND, "not_found", "front ends: no such model or version")                             \
    X(INPUT, "input", "front ends: a tensor's name, type, rank or data")                          \
    X(SHAPE, "shape", "front ends: the batch, or shapes that contradict each other")              \
    X(SLAB_FULL, "slab_full", "front ends: no room for its tensors")                              \
    X(LIMIT, "limit", "front ends: a body, header or connection over its limit")                  \
    X(OTHER, "other", "anything else")

enum sy_refusal {
#define X(name, label, why) SY_REFUSED_##name,
    SY_REFUSAL_TABLE(X)
#undef X
        SY_N_REFUSALS
};

struct sy_refusals {
    uint64_t n[SY_N_REFUSALS];
};

const char *sy_refusal_label(enum sy_refusal reason);
/* Counts a refusal if status says that it is one (negative). Returns status. */
static inline int sy_refusals_note(struct sy_refusals *refusals, enum sy_refusal reason, int status)
{
    refusals->n[reason] += status < 0;
    return status;
}

#endif

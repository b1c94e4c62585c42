/* The device's recent activity, for one reader that polls a few times a second: spans by lane, removed when they are read.
 *
 * The trace keeps every span. This keeps what can be drawn: spans of one lane and name with a gap of at most SY_TIMELINE_GAP_NS become one, which
 * says how much of it was busy. Memory is bounded, and busy time is never lost:
 *
 *   L1: of each lane, the sum of busy_ns that is taken is at most the sum of what was added, and less only where spans of the lane overlap.
 *   L2: when all places are taken, a span widens its lane's last one, whose name becomes "".
 *
 * Pure; one thread. */
#ifndef SY_RUNTIME_CORE_TIMELINE_H
#define SY_RUNTIME_CORE_TIMELINE_H

#include "runtime/base/clock.h"

#define SY_TIMELINE_SPANS  512 /* spans between two reads */
#define SY_TIMELINE_LANES  4
#define SY_TIMELINE_GAP_NS (2 * SY_NS_PER_MS)

struct sy_timeline_span {
    char name[48]; /* "": several names */
    int lane;
    uint32_t n; /* number of merged spans */
    sy_ns start, end, busy_ns;
};

struct sy_timeline {
    struct sy_timeline_span spans[SY_TIMELINE_SPANS];
    int n;
    int last[SY_TIMELINE_LANES]; /* index of each lane's last span, plus 1; 0: none */
};

/* Forgets everything. */
void sy_timeline_clear(struct sy_timeline *t);
/* Empty spans are ignored. lane: 0 .. SY_TIMELINE_LANES - 1. `name` is copied and cut to 47 bytes. */
void sy_timeline_add(struct sy_timeline *t, int lane, const char *name, sy_ns start, sy_ns end);

#endif

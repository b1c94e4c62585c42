/* A request's time by phase, from its report. Pure.
 *
 *   arrived      started       run        first layer                finished
 *   | queue ..... | prepared .. | wait ..... | compute ................ |
 *                 | storage ........ |
 *                 | link ..................... |        in parallel with the others
 *
 * A span has a begin and an end; `ns` is its net time: compute that waits for a later group of weights counts as wait. queue.ns + wait.ns +
 * compute.ns, and what passed between LOAD and RUN, are the request's time. */
#ifndef SY_RUNTIME_CORE_PHASES_H
#define SY_RUNTIME_CORE_PHASES_H

#include <stdbool.h>

#include "runtime/core/core.h"
#include "runtime/metrics/histogram.h"

/* X(NAME, label, description) */
#define SY_PHASE_TABLE(X)                                                                   \
    X(QUEUE, "queue", "from arrival until its model begins to load, or nothing is missing") \
    X(STORAGE, "storage", "groups of weights are read from the package into host memory")   \
    X(LINK, "link", "groups are copied to the device")                                      \
    X(WAIT, "wait", "computing waits for a group of weights to arrive")                     \
    X(COMPUTE, "compute", "its layers compute")

enum sy_phase {
#define X(name, label, what) SY_PHASE_##name,
    SY_PHASE_TABLE(X)
#undef X
        SY_N_PHASES
};

struct sy_phase_span {
    sy_ns from_ns,
        to_ns; /* CLOCK_MONOTONIC, within the request; both 0: the request had no such phase */
    sy_ns ns;
};

struct sy_phase_histograms {
    struct sy_histogram of[SY_N_PHASES];
    struct sy_histogram total; /* from arrival to the end */
};

const char *sy_phase_label(enum sy_phase phase);
/* Computes the spans of a request that has ended, in success or failure; a time missing in the report yields no span. */
void sy_phases_of(const struct sy_request_report *report, struct sy_phase_span spans[SY_N_PHASES]);
/* Adds the spans of sy_phases_of to two histograms: its model's, and the total. Some 20 ns. */
void sy_phases_add(struct sy_phase_histograms *h, struct sy_phase_histograms *also,
                   const struct sy_request_report *report);

#endif

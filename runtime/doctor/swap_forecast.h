/* How long a swap takes on this machine by what was measured, and what it waits for. Pure.
 *
 *   unified device    storage ──> pool, computing behind each group
 *   discrete device   storage ──> image ──> link ──> pool
 *
 * cold: nothing of the model is in memory. warm: all of it is in the host image; on a unified device that is the pool. */
#ifndef SY_DOCTOR_SWAP_FORECAST_H
#define SY_DOCTOR_SWAP_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/plan/plan.h"
#include "runtime/doctor/doctor_facts.h"

enum sy_swap_bound { SY_BOUND_UNKNOWN, SY_BOUND_STORAGE, SY_BOUND_LINK, SY_BOUND_COMPUTE };
/* "storage", "link", "compute"; "unknown". */
const char *sy_swap_bound_name(enum sy_swap_bound bound);

/* Milliseconds; NAN: not known, for want of a rate or of a profile. link_ms is 0 on a unified device. */
struct sy_swap_forecast {
    double storage_ms, link_ms; /* all bytes at that rate alone */
    double compute_ms;          /* one request, everything resident */
    double cold_ms,
        warm_ms; /* from "this model is to run" to its end, groups streamed as a server cuts them */
    enum sy_swap_bound cold_bound, warm_bound; /* the largest of the three terms */
};

/* `bytes` of weights that compute nothing. */
void sy_swap_forecast_bytes(const struct sy_doctor_facts *facts, uint64_t bytes,
                            struct sy_swap_forecast *out);
/* A model's layers. has_profile false: compute_ns is not known and everything with it but the transfers. Tables are taken to be copied
 * whole. ENOMEM_HOST; EARG on n_layers < 1. */
int sy_swap_forecast_model(const struct sy_doctor_facts *facts, const struct sy_plan_layer *layers,
                           int n_layers, bool has_profile, struct sy_swap_forecast *out);

#endif

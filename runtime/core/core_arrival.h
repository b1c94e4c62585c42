/* Models whose package still arrives (loader/package/arrival.h): they are ready once its head is there, and take requests.
 *
 *   request ──> held (core_batch.h, B6) ──> sent when what is missing comes within the time that the run takes: its first layers compute while the last
 *                                           ones still arrive, and the device waits for the network no longer than for its own work
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_CORE_CORE_ARRIVAL_H
#define SY_RUNTIME_CORE_CORE_ARRIVAL_H

#include <stdbool.h>

struct sy_core;

/* Whether requests for the model are to wait outside of the scheduler now. */
bool sy_core_arrival_holds(const struct sy_core *core, int model);
/* How the package of a model that arrives stands, for the status: bytes that are there; false: it is whole. */
bool sy_core_arrival_stands(const struct sy_core *core, int model, unsigned long long *bytes);

#endif

/* Models whose package is still being fetched (loader/package/arrival.h): they accept requests once its head has arrived.
 *
 *   request ──> held (core_batch.h, B6) ──> sent when the missing bytes arrive within the run's own time: its first layers compute while the last
 *                                           ones still arrive, and the network adds nothing to the run
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_CORE_CORE_ARRIVAL_H
#define SY_RUNTIME_CORE_CORE_ARRIVAL_H

#include <stdbool.h>

struct sy_core;

/* Whether requests for the model must wait outside of the scheduler now. */
bool sy_core_arrival_holds(const struct sy_core *core, int model);
/* Progress of a model's package that is being fetched, for the status: bytes that have arrived; false: it is complete. */
bool sy_core_arrival_progress(const struct sy_core *core, int model, unsigned long long *bytes);

#endif

/* The profiler: how long each layer of a package computes, by running it, and how fast its file is read. */
#ifndef SY_WORKERS_INFER_PROFILER_H
#define SY_WORKERS_INFER_PROFILER_H

#include "loader/package/package.h"

/* Measures the storage's rate on the package's file, and times every layer at batch 1 and 8: the median of several runs, on the engine's
 * threads as they are set (`n_threads` is noted in the profile), or on `device` (as sy_device_spec_parse takes it) for an engine that
 * computes there; the engine's choices are then noted too. Reads the whole weights into memory; seconds for a large model. Caller
 * calls sy_profile_finish. */
int sy_profile_measure(const struct sy_package *package, const struct sy_engine_ops *engine,
                       const char *device, int n_threads, struct sy_profile *out);
void sy_profile_finish(struct sy_profile *profile);

#endif

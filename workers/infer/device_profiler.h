/* The part of the profiler for engines that compute on a device of their own. */
#ifndef SY_WORKERS_INFER_DEVICE_PROFILER_H
#define SY_WORKERS_INFER_DEVICE_PROFILER_H

#include "loader/package/package.h"

/* Opens `device`, takes a pool for the weights (`weights`: all of them, on the host) and the largest workspace, and fills in
 * out->layer_ns for out->batch by the device's own clock, and out->choices. The engine is attached meanwhile. ENODEVICE,
 * ENOMEM_DEVICE with the sizes; a layer's failure names its node. */
int sy_profile_on_device(const struct sy_package *package, const struct sy_engine_ops *engine,
                         const char *device, const void *weights, struct sy_profile *out);

#endif

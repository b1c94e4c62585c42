/* The plugin's entry, and the bridge that its errors, log and faults take to the process that opened it. */
#ifndef SY_DEVICE_CUDA_PLUGIN_ENTRY_H
#define SY_DEVICE_CUDA_PLUGIN_ENTRY_H

#include "runtime/device/plugin_host.h"

/* As plugin_host.h says. */
const struct sy_device_ops *sy_cuda_device_ops_v1(const struct sy_plugin_host *host);

#endif

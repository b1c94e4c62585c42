/* `cuda:N`: the loader of the plugin that has the backend. This file includes no CUDA header and links no CUDA library.
 *
 * libswitchyard-cuda.so is looked for as $SY_CUDA_PLUGIN (then nowhere else), beside the running program, in ../lib from
 * there, and on the library search path. It is opened once per process and stays open. */
#ifndef SY_DEVICE_DEVICE_CUDA_H
#define SY_DEVICE_DEVICE_CUDA_H

#include "runtime/device/device_ops.h"

#define SY_CUDA_PLUGIN_FILE  "libswitchyard-cuda.so"
#define SY_CUDA_PLUGIN_ENTRY "sy_cuda_device_ops_v1"
#define SY_CUDA_MAX_ORDINAL  127

/* Its open() loads the plugin and hands over to the plugin's own table, which the device then has. ENODEVICE with one line
 * that says why not and what to try. */
extern const struct sy_device_ops sy_device_cuda_ops;

/* Reads "cuda" (device 0), "cuda:N", or "cuda:GPU-UUID" and "cuda:MIG-UUID" (a GPU or a MIG instance, as `nvidia-smi -L` lists
 * them) into out->kind, out->ordinal and out->uuid; 0: it is another kind, `out` is as it was. EARG names what is neither. 1: read. */
int sy_device_cuda_parse(const char *kind, struct sy_device_spec *out);

/* A further symbol of the plugin (the compute engine's table): loads the plugin if it is not open yet. ENODEVICE. */
int sy_device_cuda_symbol(const char *name, void **out);

#endif

/* CUDA's unified memory, which Switchyard does not use: for the bench that compares with it. */
#include <cuda_runtime_api.h>

#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/plugin_entry.h"
#include "workers/engine/engines.h"

extern const struct sy_cuda_managed sy_cuda_managed_v1;

static int take(struct sy_device *device, uint64_t bytes, void **out)
{
    SY_TRY(sy_cuda_device_enter(device));
    return sy_cuda_device_check(device, (int)cudaMallocManaged(out, bytes, cudaMemAttachGlobal),
                                "%llu bytes of unified memory", (unsigned long long)bytes);
}

static int to_host(struct sy_device *device, void *memory, uint64_t bytes)
{
    struct cudaMemLocation host = {.type = cudaMemLocationTypeHost};
    SY_TRY(sy_cuda_device_check(device, (int)cudaMemPrefetchAsync(memory, bytes, host, 0, NULL),
                                "unified memory to the host"));
    return sy_cuda_device_check(device, (int)cudaDeviceSynchronize(), "unified memory to the host");
}

static void drop(struct sy_device *device, void *memory)
{
    (void)device;
    (void)cudaFree(memory);
}

const struct sy_cuda_managed sy_cuda_managed_v1 = {take, to_host, drop};

#include "runtime/device/cuda/pool_fallback.h"

#include <stddef.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"

/* NULL: file descriptors work. */
static const char *reason_against_fd(const struct sy_pool_probe *probe)
{
    if (!probe->has_vmm)
        return "the driver has no virtual memory management here";
    if (!probe->has_fd)
        return "the driver exports no file descriptors here";
    return probe->error ? probe->call : NULL;
}

/* A failure that is not about file descriptors. */
static bool keeper_would_fail_too(int error)
{
    int status = sy_cuda_error_status(error);
    return sy_cuda_error_is_sticky(error) || status == SY_ENODEVICE || status == SY_ENOMEM_DEVICE;
}

int sy_pool_choose_way(const struct sy_pool_probe *probe, const char *wanted, enum sy_pool_way *out,
                       const char **out_why)
{
    const char *against = reason_against_fd(probe);
    bool only_fd = wanted && strcmp(wanted, "fd") == 0;
    bool only_ipc = wanted && strcmp(wanted, "ipc") == 0;
    if (wanted && *wanted && !only_fd && !only_ipc)
        return sy_error_set(SY_EARG, "SY_CUDA_POOL=%s: there are fd and ipc", wanted);
    *out = SY_POOL_BY_KEEPER;
    *out_why = only_ipc ? "SY_CUDA_POOL=ipc" : against;
    if (only_ipc)
        return SY_OK;
    if (probe->error && keeper_would_fail_too(probe->error))
        return sy_error_set(sy_cuda_error_status(probe->error),
                            "cannot take memory: %s fails with CUDA error %d%s", probe->call,
                            probe->error, sy_cuda_error_hint(probe->error));
    if (against && only_fd)
        return sy_error_set(SY_EUNSUPPORTED,
                            "SY_CUDA_POOL=fd, but %s (CUDA error %d); leave it out, or set ipc",
                            against, probe->error);
    if (!against)
        *out = SY_POOL_BY_FD;
    return SY_OK;
}

#include "runtime/device/cuda/cuda_error.h"

#include "runtime/base/status.h"

int sy_cuda_error_status(int error)
{
    switch (error) {
    case SY_CUDA_Success:
        return SY_OK;
#define X(name, number, status, sticky) \
    case number:                        \
        return SY_##status;
        SY_CUDA_ERROR_TABLE(X)
#undef X
    default:
        return SY_EDEVICE;
    }
}

bool sy_cuda_error_is_sticky(int error)
{
    switch (error) {
#define X(name, number, status, sticky) \
    case number:                        \
        return sticky;
        SY_CUDA_ERROR_TABLE(X)
#undef X
    default:
        return false;
    }
}

const char *sy_cuda_error_hint(int error)
{
    switch (error) {
    case SY_CUDA_StubLibrary:
    case SY_CUDA_InsufficientDriver:
    case SY_CUDA_CallRequiresNewerDriver:
        return "; install a newer NVIDIA driver (nvidia-smi shows the one there is)";
    case SY_CUDA_NoDevice:
    case SY_CUDA_InvalidDevice:
        return "; nvidia-smi -L lists the GPUs, CUDA_VISIBLE_DEVICES may hide some";
    case SY_CUDA_DevicesUnavailable:
    case SY_CUDA_DeviceAlreadyInUse:
        return "; another process has it for itself: nvidia-smi -c DEFAULT lets several in";
    case SY_CUDA_MemoryAllocation:
        return "; other processes use some of it: nvidia-smi shows them, --pool-gb takes less";
    case SY_CUDA_SystemNotReady:
        return "; nvidia-fabricmanager has to run first";
    case SY_CUDA_SystemDriverMismatch:
    case SY_CUDA_InitializationError:
        return "; the driver's module and library do not fit together: reboot, or reload the "
               "module";
    default:
        return "";
    }
}

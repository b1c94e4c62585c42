/* CUDA's error numbers, what they mean here, and which of them end the process's use of the device. Pure.
 *
 * The runtime's cudaError_t and the driver's CUresult share their numbers for all that is listed; cuda_api.c, which sees
 * both headers, asserts each of them when it is compiled. A sticky error stays with the context: every later call of this
 * process fails, other processes go on (rule D5). */
#ifndef SY_DEVICE_CUDA_CUDA_ERROR_H
#define SY_DEVICE_CUDA_CUDA_ERROR_H

#include <stdbool.h>

/* X(cudaError's name, number, status, sticky) */
#define SY_CUDA_ERROR_TABLE(X)                           \
    X(InvalidValue, 1, EARG, false)                      \
    X(MemoryAllocation, 2, ENOMEM_DEVICE, false)         \
    X(InitializationError, 3, ENODEVICE, false)          \
    X(CudartUnloading, 4, EDEVICE, true)                 \
    X(InvalidConfiguration, 9, EBUG, false)              \
    X(StubLibrary, 34, ENODEVICE, false)                 \
    X(InsufficientDriver, 35, ENODEVICE, false)          \
    X(CallRequiresNewerDriver, 36, ENODEVICE, false)     \
    X(DevicesUnavailable, 46, ENODEVICE, false)          \
    X(InvalidDeviceFunction, 98, EUNSUPPORTED, false)    \
    X(NoDevice, 100, ENODEVICE, false)                   \
    X(InvalidDevice, 101, ENODEVICE, false)              \
    X(DeviceNotLicensed, 102, ENODEVICE, false)          \
    X(InvalidKernelImage, 200, EUNSUPPORTED, false)      \
    X(DeviceUninitialized, 201, EBUG, false)             \
    X(MapBufferObjectFailed, 205, EUNSUPPORTED, false)   \
    X(NoKernelImageForDevice, 209, EUNSUPPORTED, false)  \
    X(ECCUncorrectable, 214, EDEVICE, true)              \
    X(UnsupportedLimit, 215, EUNSUPPORTED, false)        \
    X(DeviceAlreadyInUse, 216, ENODEVICE, false)         \
    X(NvlinkUncorrectable, 220, EDEVICE, true)           \
    X(UnsupportedPtxVersion, 222, EUNSUPPORTED, false)   \
    X(Contained, 226, EDEVICE, true)                     \
    X(SharedObjectSymbolNotFound, 302, ENODEVICE, false) \
    X(SharedObjectInitFailed, 303, ENODEVICE, false)     \
    X(OperatingSystem, 304, EUNSUPPORTED, false)         \
    X(InvalidResourceHandle, 400, EBUG, false)           \
    X(IllegalState, 401, EBUG, false)                    \
    X(NotReady, 600, EBUSY, false)                       \
    X(IllegalAddress, 700, EDEVICE, true)                \
    X(LaunchOutOfResources, 701, EUNSUPPORTED, false)    \
    X(LaunchTimeout, 702, EDEVICE, true)                 \
    X(ContextIsDestroyed, 709, EDEVICE, true)            \
    X(Assert, 710, EDEVICE, true)                        \
    X(HostMemoryAlreadyRegistered, 712, EARG, false)     \
    X(HostMemoryNotRegistered, 713, EARG, false)         \
    X(HardwareStackError, 714, EDEVICE, true)            \
    X(IllegalInstruction, 715, EDEVICE, true)            \
    X(MisalignedAddress, 716, EDEVICE, true)             \
    X(InvalidAddressSpace, 717, EDEVICE, true)           \
    X(InvalidPc, 718, EDEVICE, true)                     \
    X(LaunchFailure, 719, EDEVICE, true)                 \
    X(CooperativeLaunchTooLarge, 720, EBUG, false)       \
    X(TensorMemoryLeak, 721, EDEVICE, true)              \
    X(NotPermitted, 800, EUNSUPPORTED, false)            \
    X(NotSupported, 801, EUNSUPPORTED, false)            \
    X(SystemNotReady, 802, ENODEVICE, false)             \
    X(SystemDriverMismatch, 803, ENODEVICE, false)       \
    X(CompatNotSupportedOnDevice, 804, ENODEVICE, false) \
    X(MpsConnectionFailed, 805, ENODEVICE, false)        \
    X(MpsServerNotReady, 807, ENODEVICE, false)          \
    X(MpsMaxClientsReached, 808, ENODEVICE, false)       \
    X(MpsClientTerminated, 810, EDEVICE, true)           \
    X(StreamCaptureUnsupported, 900, EBUG, false)        \
    X(StreamCaptureInvalidated, 901, EBUG, false)        \
    X(StreamCaptureImplicit, 906, EBUG, false)           \
    X(CapturedEvent, 907, EBUG, false)                   \
    X(Timeout, 909, EDEADLINE, false)                    \
    X(GraphExecUpdateFailure, 910, EUNSUPPORTED, false)  \
    X(ExternalDevice, 911, EDEVICE, true)                \
    X(FunctionNotLoaded, 913, EUNSUPPORTED, false)       \
    X(Unknown, 999, EDEVICE, true)

enum sy_cuda_error {
    SY_CUDA_Success = 0,
#define X(name, number, status, sticky) SY_CUDA_##name = number,
    SY_CUDA_ERROR_TABLE(X)
#undef X
};

/* Success: SY_OK. A number that is not in the table: SY_EDEVICE, and not sticky: if it is, the next call says so again. */
int sy_cuda_error_status(int error);
bool sy_cuda_error_is_sticky(int error);
/* Advice for the user ("install the NVIDIA driver ..."); "" if there is none. Never NULL. */
const char *sy_cuda_error_hint(int error);

#endif

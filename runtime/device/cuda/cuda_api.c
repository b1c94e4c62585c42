/* The one file that sees CUDA's headers. A slot is one call; what a slot decides, beyond building structs, is nothing. */
#include "runtime/device/cuda/cuda_api.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"

#if CUDART_VERSION < 13000
#error "CUDA 13.0 or later is needed; CUDA=0 builds without the plugin"
#endif

/* cuda_error.h has the numbers without the header; both of CUDA's enums must agree with them. */
#define X(name, number, status, sticky) \
    _Static_assert((int)cudaError##name == (number), "cudaError" #name);
SY_CUDA_ERROR_TABLE(X)
#undef X
_Static_assert((int)CUDA_ERROR_INVALID_VALUE == SY_CUDA_InvalidValue, "");
_Static_assert((int)CUDA_ERROR_OUT_OF_MEMORY == SY_CUDA_MemoryAllocation, "");
_Static_assert((int)CUDA_ERROR_NOT_INITIALIZED == SY_CUDA_InitializationError, "");
_Static_assert((int)CUDA_ERROR_NO_DEVICE == SY_CUDA_NoDevice, "");
_Static_assert((int)CUDA_ERROR_INVALID_DEVICE == SY_CUDA_InvalidDevice, "");
_Static_assert((int)CUDA_ERROR_DEVICE_UNAVAILABLE == SY_CUDA_DevicesUnavailable, "");
_Static_assert((int)CUDA_ERROR_OPERATING_SYSTEM == SY_CUDA_OperatingSystem, "");
_Static_assert((int)CUDA_ERROR_INVALID_HANDLE == SY_CUDA_InvalidResourceHandle, "");
_Static_assert((int)CUDA_ERROR_NOT_PERMITTED == SY_CUDA_NotPermitted, "");
_Static_assert((int)CUDA_ERROR_NOT_SUPPORTED == SY_CUDA_NotSupported, "");
_Static_assert((int)CUDA_ERROR_LAUNCH_FAILED == SY_CUDA_LaunchFailure, "");
_Static_assert((int)CUDA_ERROR_UNKNOWN == SY_CUDA_Unknown, "");
_Static_assert((int)CU_COMPUTEMODE_DEFAULT == SY_CUDA_MODE_DEFAULT, "");
_Static_assert((int)CU_COMPUTEMODE_PROHIBITED == SY_CUDA_MODE_PROHIBITED, "");
_Static_assert((int)CU_COMPUTEMODE_EXCLUSIVE_PROCESS == SY_CUDA_MODE_EXCLUSIVE, "");
_Static_assert(sizeof(cudaIpcMemHandle_t) == SY_CUDA_IPC_BYTES, "");
_Static_assert(sizeof(CUuuid) == SY_CUDA_UUID_BYTES, "");
_Static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t), "");
_Static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(uint64_t), "");

/* X(function, version of its signature, as in cudaTypedefs.h) */
#define DRIVER_TABLE(X)                      \
    X(cuInit, 2000)                          \
    X(cuDeviceGet, 2000)                     \
    X(cuDeviceGetCount, 2000)                \
    X(cuDeviceGetName, 2000)                 \
    X(cuDeviceTotalMem, 3020)                \
    X(cuDeviceGetUuid, 11040)                \
    X(cuDeviceGetPCIBusId, 4010)             \
    X(cuDeviceGetAttribute, 2000)            \
    X(cuDevicePrimaryCtxGetState, 7000)      \
    X(cuMemGetAllocationGranularity, 10020)  \
    X(cuMemCreate, 10020)                    \
    X(cuMemRelease, 10020)                   \
    X(cuMemExportToShareableHandle, 10020)   \
    X(cuMemImportFromShareableHandle, 10020) \
    X(cuMemAddressReserve, 10020)            \
    X(cuMemAddressFree, 10020)               \
    X(cuMemMap, 10020)                       \
    X(cuMemSetAccess, 10020)                 \
    X(cuMemUnmap, 10020)

/* NULL where the driver has none: green contexts came with 12.4, their streams with 12.5. */
#define OPTIONAL_TABLE(X)                 \
    X(cuDeviceGetDevResource, 12040)      \
    X(cuDevSmResourceSplitByCount, 12040) \
    X(cuDevResourceGenerateDesc, 12040)   \
    X(cuGreenCtxCreate, 12040)            \
    X(cuGreenCtxDestroy, 12040)           \
    X(cuGreenCtxStreamCreate, 12050)

static struct {
#define X(name, version) PFN_##name##_v##version name;
    DRIVER_TABLE(X)
    OPTIONAL_TABLE(X)
#undef X
} driver;

/* ---- no context -------------------------------------------------------------------------------------- */

static int init(void)
{
    return (int)driver.cuInit(0);
}

static int device_count(int *out)
{
    return (int)driver.cuDeviceGetCount(out);
}

static int device_name(int ordinal, char *out, int bytes)
{
    CUdevice device;
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    return (int)(error ? error : driver.cuDeviceGetName(out, bytes, device));
}

static int device_memory(int ordinal, uint64_t *out_bytes)
{
    CUdevice device;
    size_t bytes = 0;
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    if (!error)
        error = driver.cuDeviceTotalMem(&bytes, device);
    *out_bytes = bytes;
    return (int)error;
}

static int device_uuid(int ordinal, unsigned char *out)
{
    CUdevice device;
    CUuuid uuid = {0};
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    if (!error)
        error = driver.cuDeviceGetUuid(&uuid, device);
    for (int i = 0; i < SY_CUDA_UUID_BYTES; i++)
        out[i] = (unsigned char)uuid.bytes[i];
    return (int)error;
}

static int device_pci(int ordinal, char *out, int bytes)
{
    CUdevice device;
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    return (int)(error ? error : driver.cuDeviceGetPCIBusId(out, bytes, device));
}

static int device_attribute(int ordinal, enum sy_cuda_attribute which, int *out)
{
    static const CUdevice_attribute attributes[] = {
#define X(name, cu_name) [SY_CUDA_##name] = CU_DEVICE_ATTRIBUTE_##cu_name,
        SY_CUDA_ATTRIBUTE_TABLE(X)
#undef X
    };
    CUdevice device;
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    return (int)(error ? error : driver.cuDeviceGetAttribute(out, attributes[which], device));
}

static int context_active(int ordinal, int *out)
{
    CUdevice device;
    unsigned flags;
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    return (int)(error ? error : driver.cuDevicePrimaryCtxGetState(device, &flags, out));
}

static CUmemAllocationProp pool_properties(int ordinal)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
}

static int mem_granularity(int ordinal, uint64_t *out_bytes)
{
    CUmemAllocationProp properties = pool_properties(ordinal);
    size_t bytes = 0;
    CUresult error =
        driver.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    *out_bytes = bytes;
    return (int)error;
}

static int mem_create(int ordinal, uint64_t bytes, uint64_t *out)
{
    CUmemAllocationProp properties = pool_properties(ordinal);
    CUmemGenericAllocationHandle memory = 0;
    CUresult error = driver.cuMemCreate(&memory, bytes, &properties, 0);
    *out = memory;
    return (int)error;
}

static int mem_release(uint64_t memory)
{
    return (int)driver.cuMemRelease(memory);
}

static int mem_export(uint64_t memory, int *out_fd)
{
    return (int)driver.cuMemExportToShareableHandle(out_fd, memory,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static int mem_import(int fd, uint64_t *out)
{
    CUmemGenericAllocationHandle memory = 0;
    CUresult error = driver.cuMemImportFromShareableHandle(
        &memory, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    *out = memory;
    return (int)error;
}

static int address_reserve(uint64_t bytes, uint64_t align, uint64_t wish, uint64_t *out)
{
    CUdeviceptr address = 0;
    CUresult error = driver.cuMemAddressReserve(&address, bytes, align, wish, 0);
    *out = address;
    return (int)error;
}

static int address_free(uint64_t address, uint64_t bytes)
{
    return (int)driver.cuMemAddressFree(address, bytes);
}

/* The same call in every process gives the same parts in the same order: so a part is known by its number. */
static CUresult split_sms(int ordinal, CUdevResource parts[SY_CUDA_MAX_PARTS], unsigned *out_n)
{
    CUdevResource all, rest;
    CUdevice device;
    *out_n = SY_CUDA_MAX_PARTS;
    if (!driver.cuDeviceGetDevResource || !driver.cuDevSmResourceSplitByCount ||
        !driver.cuDevResourceGenerateDesc || !driver.cuGreenCtxCreate ||
        !driver.cuGreenCtxDestroy || !driver.cuGreenCtxStreamCreate)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult error = driver.cuDeviceGet(&device, ordinal);
    if (!error)
        error = driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (error)
        return error;
    return driver.cuDevSmResourceSplitByCount(parts, out_n, &all, &rest, 0,
                                              all.sm.minSmPartitionSize);
}

static int sm_parts(int ordinal, int *out_n, int *out_each)
{
    CUdevResource parts[SY_CUDA_MAX_PARTS];
    unsigned n;
    CUresult error = split_sms(ordinal, parts, &n);
    *out_n = error ? 0 : (int)n;
    *out_each = error || n == 0 ? 0 : (int)parts[0].sm.smCount;
    return (int)error;
}

/* ---- in the device's context ------------------------------------------------------------------------- */

static int context_open(int ordinal)
{
    return (int)cudaInitDevice(ordinal, cudaDeviceScheduleBlockingSync,
                               cudaInitDeviceFlagsAreValid);
}

static int context_enter(int ordinal)
{
    return (int)cudaSetDevice(ordinal);
}

static int mem_map(uint64_t address, uint64_t bytes, uint64_t memory)
{
    return (int)driver.cuMemMap(address, bytes, 0, memory, 0);
}

static int mem_access(uint64_t address, uint64_t bytes, int ordinal)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return (int)driver.cuMemSetAccess(address, bytes, &access, 1);
}

static int mem_unmap(uint64_t address, uint64_t bytes)
{
    return (int)driver.cuMemUnmap(address, bytes);
}

static int ipc_alloc(uint64_t bytes, uint64_t *out)
{
    void *address = NULL;
    cudaError_t error = cudaMalloc(&address, bytes);
    *out = (uint64_t)(uintptr_t)address;
    return (int)error;
}

static int ipc_free(uint64_t address)
{
    return (int)cudaFree((void *)(uintptr_t)address);
}

static int ipc_handle(uint64_t address, unsigned char *out)
{
    cudaIpcMemHandle_t handle = {{0}};
    cudaError_t error = cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)address);
    for (int i = 0; i < SY_CUDA_IPC_BYTES; i++)
        out[i] = (unsigned char)handle.reserved[i];
    return (int)error;
}

static int ipc_open(const unsigned char *in, uint64_t *out)
{
    cudaIpcMemHandle_t handle;
    void *address = NULL;
    for (int i = 0; i < SY_CUDA_IPC_BYTES; i++)
        handle.reserved[i] = (char)in[i];
    cudaError_t error = cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess);
    *out = (uint64_t)(uintptr_t)address;
    return (int)error;
}

static int ipc_close(uint64_t address)
{
    return (int)cudaIpcCloseMemHandle((void *)(uintptr_t)address);
}

static int host_register(void *base, uint64_t bytes, bool read_only)
{
    return (int)cudaHostRegister(base, bytes,
                                 read_only ? cudaHostRegisterReadOnly : cudaHostRegisterDefault);
}

static int host_unregister(void *base)
{
    return (int)cudaHostUnregister(base);
}

static int stream_create(struct CUstream_st **out, int level)
{
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    return (int)(error ? error
                       : cudaStreamCreateWithPriority(out, cudaStreamNonBlocking,
                                                      level > 0 ? greatest : least));
}

static int slice_create(int ordinal, const int *wanted, int n_wanted, struct CUgreenCtx_st **out)
{
    CUdevResource parts[SY_CUDA_MAX_PARTS], taken[SY_CUDA_MAX_PARTS];
    CUdevResourceDesc description;
    CUdevice device;
    unsigned n;
    CUresult error = split_sms(ordinal, parts, &n);
    for (int i = 0; !error && i < n_wanted; i++) {
        if (wanted[i] < 0 || wanted[i] >= (int)n)
            return (int)CUDA_ERROR_INVALID_VALUE;
        taken[i] = parts[wanted[i]];
    }
    if (!error)
        error = driver.cuDevResourceGenerateDesc(&description, taken, (unsigned)n_wanted);
    if (!error)
        error = driver.cuDeviceGet(&device, ordinal);
    return (int)(error ? error
                       : driver.cuGreenCtxCreate(out, description, device,
                                                 CU_GREEN_CTX_DEFAULT_STREAM));
}

static int slice_destroy(struct CUgreenCtx_st *slice)
{
    return (int)driver.cuGreenCtxDestroy(slice);
}

static int slice_stream(struct CUgreenCtx_st *slice, struct CUstream_st **out, int level)
{
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    return error ? (int)error
                 : (int)driver.cuGreenCtxStreamCreate(out, slice, CU_STREAM_NON_BLOCKING,
                                                      level > 0 ? greatest : least);
}

static int stream_destroy(struct CUstream_st *stream)
{
    return (int)cudaStreamDestroy(stream);
}

static int stream_synchronize(struct CUstream_st *stream)
{
    return (int)cudaStreamSynchronize(stream);
}

static int copy(struct CUstream_st *stream, void *host, uint64_t address, uint64_t bytes,
                bool to_device)
{
    void *device = (void *)(uintptr_t)
        address; /* of host memory that is mapped, perhaps: the kind is its own */
    return (int)(to_device ? cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, stream)
                           : cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, stream));
}

static int launch_host(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    return (int)cudaLaunchHostFunc(stream, fn, arg);
}

static int wait_event(struct CUstream_st *stream, struct CUevent_st *event)
{
    return (int)cudaStreamWaitEvent(stream, event, cudaEventWaitDefault);
}

static int event_create(struct CUevent_st **out, bool timing)
{
    return (int)cudaEventCreateWithFlags(out, cudaEventBlockingSync |
                                                  (timing ? 0u : cudaEventDisableTiming));
}

static int event_destroy(struct CUevent_st *event)
{
    return (int)cudaEventDestroy(event);
}

static int event_record(struct CUevent_st *event, struct CUstream_st *stream)
{
    return (int)cudaEventRecord(event, stream);
}

static int event_query(struct CUevent_st *event)
{
    return (int)cudaEventQuery(event);
}

static int event_synchronize(struct CUevent_st *event)
{
    return (int)cudaEventSynchronize(event);
}

static int event_elapsed(float *out_ms, struct CUevent_st *from, struct CUevent_st *to)
{
    return (int)cudaEventElapsedTime(out_ms, from, to);
}

/* ---- loading ----------------------------------------------------------------------------------------- */

static const char *error_name(int error)
{
    return cudaGetErrorName((cudaError_t)error);
}

static const char *error_text(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

static void error_clear(void)
{
    (void)cudaGetLastError();
}

static int no_driver(const char *what, int error)
{
    int version = 0;
    (void)cudaDriverGetVersion(&version);
    error_clear();
    if (error != SY_CUDA_InsufficientDriver && error != SY_CUDA_CallRequiresNewerDriver)
        return sy_error_set(SY_ENODEVICE, "the NVIDIA driver does not start: %s (%s)%s",
                            error_text(error), error_name(error), sy_cuda_error_hint(error));
    if (version == 0)
        return sy_error_set(SY_ENODEVICE,
                            "there is no NVIDIA driver here (no usable libcuda.so.1); install one "
                            "for CUDA %d.%d or later, or use --device host",
                            CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return sy_error_set(
        SY_ENODEVICE,
        "the NVIDIA driver is for CUDA %d.%d and lacks %s; this program needs CUDA %d.%d "
        "or later: install a newer driver, or on data center GPUs the package cuda-compat, or use "
        "--device host",
        version / 1000, version % 1000 / 10, what, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10);
}

/* A driver that lacks an entry is told apart from one that is not there. */
static int find_entry(const char *name, unsigned version, void **out)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, out, version, cudaEnableDefault, &found);
    if (error != cudaSuccess)
        return no_driver(name, (int)error);
    if (found != cudaDriverEntryPointSuccess || !*out)
        return no_driver(name, SY_CUDA_CallRequiresNewerDriver);
    return SY_OK;
}

static void *find_optional(const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *entry = NULL;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
    error_clear();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? entry : NULL;
}

int sy_cuda_api_load(struct sy_cuda_api *out)
{
    void *entry = NULL;
#define X(name, version)                          \
    SY_TRY(find_entry(#name, (version), &entry)); \
    driver.name = (PFN_##name##_v##version)entry;
    DRIVER_TABLE(X)
#undef X
#define X(name, version) driver.name = (PFN_##name##_v##version)find_optional(#name, (version));
    OPTIONAL_TABLE(X)
#undef X
    *out = (struct sy_cuda_api){
#define X(name, parameters, arguments) .name = name,
        SY_CUDA_CALLS(X)
#undef X
            .error_name = error_name,
        .error_text = error_text,
        .error_clear = error_clear,
    };
    return SY_OK;
}

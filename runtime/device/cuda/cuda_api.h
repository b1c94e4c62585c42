/* Every CUDA call that the device makes, as one struct of function pointers.
 *
 * The backend sees CUDA through this struct only, so that it compiles without CUDA's headers and runs in tests on a fake
 * that records calls. cuda_api.c, the one file that includes CUDA's headers, fills it in: each slot is one call of the
 * runtime or of the driver, with the structs that it wants built there. All return CUDA's error number (cuda_error.h).
 *
 * "no context": works after init() alone, in a process that never opened the device. The runtime process uses nothing else. */
#ifndef SY_DEVICE_CUDA_CUDA_API_H
#define SY_DEVICE_CUDA_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st; /* CUDA's own tags, so that handles need no cast */
struct CUevent_st;
struct CUgreenCtx_st;

#define SY_CUDA_IPC_BYTES  64 /* sizeof(cudaIpcMemHandle_t) */
#define SY_CUDA_UUID_BYTES 16
#define SY_CUDA_MAX_PARTS  64 /* of a device's multiprocessors */

/* X(name, CUdevice_attribute's name) */
#define SY_CUDA_ATTRIBUTE_TABLE(X)                           \
    X(COMPUTE_MODE, COMPUTE_MODE)                            \
    X(CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MAJOR)            \
    X(CAPABILITY_MINOR, COMPUTE_CAPABILITY_MINOR)            \
    X(HAS_VMM, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)          \
    X(HAS_FD, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)   \
    X(READ_ONLY_REGISTER, READ_ONLY_HOST_REGISTER_SUPPORTED) \
    X(NUMA_NODE, HOST_NUMA_ID)                               \
    X(MPS, MPS_ENABLED)

enum sy_cuda_attribute {
#define X(name, cu_name) SY_CUDA_##name,
    SY_CUDA_ATTRIBUTE_TABLE(X)
#undef X
};

/* Values of SY_CUDA_COMPUTE_MODE; asserted against CUcomputemode in cuda_api.c. */
enum sy_cuda_compute_mode {
    SY_CUDA_MODE_DEFAULT = 0,
    SY_CUDA_MODE_PROHIBITED = 2,
    SY_CUDA_MODE_EXCLUSIVE = 3,
};

/* X(name, parameters, arguments). In this order: no context; the device's context (made by context_open, current in the thread
 * by context_enter). */
#define SY_CUDA_CALLS(X)                                                                                 \
    /* cuInit(0) */                                                                                      \
    X(init, (void), ())                                                                                  \
    X(device_count, (int *out), (out))                                                                   \
    X(device_name, (int ordinal, char *out, int bytes), (ordinal, out, bytes))                           \
    X(device_memory, (int ordinal, uint64_t *out_bytes), (ordinal, out_bytes))                           \
    X(device_uuid, (int ordinal, unsigned char *out), (ordinal, out))                                    \
    /* "0000:3b:00.0" */                                                                                 \
    X(device_pci, (int ordinal, char *out, int bytes), (ordinal, out, bytes))                            \
    X(device_attribute, (int ordinal, enum sy_cuda_attribute which, int *out),                           \
      (ordinal, which, out))                                                                             \
    /* cuDevicePrimaryCtxGetState: is there a context in this process? */                                \
    X(context_active, (int ordinal, int *out), (ordinal, out))                                           \
    /* cuMemGetAllocationGranularity, cuMemCreate: pinned on the device, exportable as an fd */          \
    X(mem_granularity, (int ordinal, uint64_t *out_bytes), (ordinal, out_bytes))                         \
    X(mem_create, (int ordinal, uint64_t bytes, uint64_t *out), (ordinal, bytes, out))                   \
    X(mem_release, (uint64_t memory), (memory))                                                          \
    X(mem_export, (uint64_t memory, int *out_fd), (memory, out_fd))                                      \
    X(mem_import, (int fd, uint64_t *out), (fd, out))                                                    \
    X(address_reserve, (uint64_t bytes, uint64_t align, uint64_t wish, uint64_t * out),                  \
      (bytes, align, wish, out))                                                                         \
    X(address_free, (uint64_t address, uint64_t bytes), (address, bytes))                                \
    /* cuDeviceGetDevResource, cuDevSmResourceSplitByCount: how many equal parts its multiprocessors   \
     * split into, and how many are in each. NotSupported: a driver without green contexts */ \
    X(sm_parts, (int ordinal, int *out_n, int *out_each), (ordinal, out_n, out_each))                    \
    /* cudaInitDevice with blocking synchronization; cudaSetDevice */                                    \
    X(context_open, (int ordinal), (ordinal))                                                            \
    X(context_enter, (int ordinal), (ordinal))                                                           \
    X(mem_map, (uint64_t address, uint64_t bytes, uint64_t memory), (address, bytes, memory))            \
    X(mem_access, (uint64_t address, uint64_t bytes, int ordinal), (address, bytes, ordinal))            \
    X(mem_unmap, (uint64_t address, uint64_t bytes), (address, bytes))                                   \
    /* The fallback: cudaMalloc, cudaFree, cudaIpc* */                                                   \
    X(ipc_alloc, (uint64_t bytes, uint64_t * out), (bytes, out))                                         \
    X(ipc_free, (uint64_t address), (address))                                                           \
    X(ipc_handle, (uint64_t address, unsigned char *out), (address, out))                                \
    X(ipc_open, (const unsigned char *handle, uint64_t *out), (handle, out))                             \
    X(ipc_close, (uint64_t address), (address))                                                          \
    X(host_register, (void *base, uint64_t bytes, bool read_only), (base, bytes, read_only))             \
    X(host_unregister, (void *base), (base))                                                             \
    /* cudaStreamCreateWithPriority, non-blocking; `level` 1: first, 0: ordinary */                      \
    X(stream_create, (struct CUstream_st * *out, int level), (out, level))                               \
    /* cuGreenCtxCreate of some of sm_parts' parts; cuGreenCtxStreamCreate, level as above */            \
    X(slice_create, (int ordinal, const int *parts, int n, struct CUgreenCtx_st **out),                  \
      (ordinal, parts, n, out))                                                                          \
    X(slice_destroy, (struct CUgreenCtx_st * slice), (slice))                                            \
    X(slice_stream, (struct CUgreenCtx_st * slice, struct CUstream_st * *out, int level),                \
      (slice, out, level))                                                                               \
    X(stream_destroy, (struct CUstream_st * stream), (stream))                                           \
    X(stream_synchronize, (struct CUstream_st * stream), (stream))                                       \
    X(copy,                                                                                              \
      (struct CUstream_st * stream, void *host, uint64_t address, uint64_t bytes, bool to_device),       \
      (stream, host, address, bytes, to_device))                                                         \
    X(launch_host, (struct CUstream_st * stream, void (*fn)(void *arg), void *arg),                      \
      (stream, fn, arg))                                                                                 \
    X(wait_event, (struct CUstream_st * stream, struct CUevent_st * event), (stream, event))             \
    /* cudaEventCreateWithFlags: a waiting thread sleeps; with or without timing */                      \
    X(event_create, (struct CUevent_st * *out, bool timing), (out, timing))                              \
    X(event_destroy, (struct CUevent_st * event), (event))                                               \
    X(event_record, (struct CUevent_st * event, struct CUstream_st * stream), (event, stream))           \
    X(event_query, (struct CUevent_st * event), (event))                                                 \
    X(event_synchronize, (struct CUevent_st * event), (event))                                           \
    X(event_elapsed, (float *out_ms, struct CUevent_st *from, struct CUevent_st *to),                    \
      (out_ms, from, to))

struct sy_cuda_api {
#define X(name, parameters, arguments) int(*name) parameters;
    SY_CUDA_CALLS(X)
#undef X
    const char *(*error_name)(int error); /* "cudaErrorNoDevice" */
    const char *(*error_text)(int error);
    void (*error_clear)(void); /* cudaGetLastError: what a failed call left for the next to find */
};

/* Fills in `out`: the runtime's functions, and the driver's by cudaGetDriverEntryPointByVersion. Makes no context. ENODEVICE:
 * no driver, or one that is too old, with the numbers. */
int sy_cuda_api_load(struct sy_cuda_api *out);

#endif

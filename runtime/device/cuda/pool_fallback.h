/* How the pool is shared with the workers: by file descriptor, or by a keeper process with cudaIpc memory. Pure.
 *
 *   fd      cuMemCreate in the runtime, which needs no context there; one address in all processes; the pool outlives
 *           everybody but the runtime
 *   keeper  a process with a context has cudaMalloc'ed it; each worker has it at an address of its own */
#ifndef SY_DEVICE_CUDA_POOL_FALLBACK_H
#define SY_DEVICE_CUDA_POOL_FALLBACK_H

#include <stdbool.h>

enum sy_pool_way { SY_POOL_BY_FD, SY_POOL_BY_KEEPER };

/* The capabilities found by queries, and by making, exporting and importing one small block. */
struct sy_pool_probe {
    bool has_vmm, has_fd; /* the device's attributes */
    int error;            /* CUDA's number of the first call that failed; 0: all worked */
    const char *call;     /* which that was */
};

/* `wanted` is SY_CUDA_POOL of the environment: "fd", "ipc", or NULL for what works. *out_why, static or the probe's, says in a few words why it
 * is the keeper. EARG: another word. ENODEVICE, ENOMEM_DEVICE, EDEVICE: the probe failed for a reason that the keeper would
 * meet too; or "fd" was asked for and does not work. */
int sy_pool_choose_way(const struct sy_pool_probe *probe, const char *wanted, enum sy_pool_way *out,
                       const char **out_why);

#endif

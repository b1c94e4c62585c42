/* The keeper: a small process that owns a pool of cudaMalloc'ed memory, where the driver exports no file descriptors.
 *
 *   runtime ── fork, exec ──> switchyard-cuda-keeper FD ORDINAL BYTES
 *      |<──── reply: status, text, cudaIpcMemHandle ────|        within 60 s
 *      |                                               waits for the end of the socket
 *      x  (stops, dies, closes)                        frees the memory, exits
 *
 * It is needed because cudaMalloc wants a context, which the runtime does not have (C1), and because the memory of a worker would go with
 * the worker. The program lies beside the plugin; SY_CUDA_KEEPER names another. */
#ifndef SY_DEVICE_CUDA_POOL_KEEPER_H
#define SY_DEVICE_CUDA_POOL_KEEPER_H

#include <sys/types.h>

#include "runtime/device/cuda/cuda_api.h"

#define SY_CUDA_KEEPER_FILE "switchyard-cuda-keeper"

/* Starts a keeper, waits for its reply. *out_socket (CLOEXEC) keeps it alive. The keeper's own status and text when it could not: ENODEVICE,
 * ENOMEM_DEVICE; EPEER: it died; EDEADLINE; ENODEVICE: there is no such program. */
int sy_pool_keeper_start(int ordinal, uint64_t bytes, pid_t *out_pid, int *out_socket,
                         unsigned char *out_ipc);
/* Ends it and waits: 5 s, then it is killed. */
void sy_pool_keeper_stop(pid_t pid, int socket);

/* The keeper's main: as drawn above. Returns its exit status. */
int sy_pool_keeper_run(int socket, int ordinal, uint64_t bytes);

#endif

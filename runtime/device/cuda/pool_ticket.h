/* The result of pool_export: one file descriptor that carries the pool's description and CUDA's own handle.
 *
 *   exporter                              importer (any number, any process)
 *   socketpair ── one message: ticket + SCM_RIGHTS(fd of cuMemExportToShareableHandle)
 *       end A: closed                         end B: recvmsg(MSG_PEEK), the message stays
 *
 * CUDA's descriptor alone says neither how large the memory is, nor on which GPU, nor where it lies; a wrong size would only be
 * seen when it is too late. Peeking leaves the message in the socket, so that all workers import from one descriptor. */
#ifndef SY_DEVICE_CUDA_POOL_TICKET_H
#define SY_DEVICE_CUDA_POOL_TICKET_H

#include <stdint.h>

#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/cuda/pool_fallback.h"

struct sy_pool_ticket {
    uint32_t magic, version; /* set by make, checked by read */
    enum sy_pool_way way;
    uint64_t bytes, address; /* address: where the exporter has it; 0 when by keeper */
    unsigned char uuid[SY_CUDA_UUID_BYTES];
    unsigned char ipc[SY_CUDA_IPC_BYTES]; /* by keeper: the handle */
};

/* memory_fd (-1: none; stays the caller's) goes along. *out_fd: CLOEXEC, the caller's. ENOMEM_HOST. */
int sy_pool_ticket_make(const struct sy_pool_ticket *ticket, int memory_fd, int *out_fd);
/* Reads without taking it away. *out_memory_fd: CLOEXEC, the caller's; -1: none came along. EARG: `fd` is no pool, or one of another version. Never
 * blocks. */
int sy_pool_ticket_read(int fd, struct sy_pool_ticket *out, int *out_memory_fd);

#endif

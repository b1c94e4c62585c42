/* Sums over ranks between GPUs, by NCCL's sends and receives and a kernel of our own.
 *
 * NC1: NCCL carries bytes, it adds none: each rank gets its part of the floats of all ranks, adds them in the order of ranks (the bits of ranks over MPI; NCCL's
 * own all-reduce adds in an order that follows from the machine's links and from its version), and sends the sum to all. As many bytes as a ring moves.
 * NC2: each wait looks at the stream and at NCCL's own error, sleeps between two looks, and ends: after SY_NCCL_TIMEOUT_S seconds (60) another rank counts
 * as gone.
 * NC3: a communicator is ended by ncclCommAbort, which waits for no other rank, in a thread of its own, which is waited for 10 s
 * (SY_NCCL_ABORT_TIMEOUT_S). One that has not ended then has the stream and all that its kernels use for as long as the process lives. */
#ifndef SY_WORKERS_CUDA_RANKS_RANKS_NCCL_H
#define SY_WORKERS_CUDA_RANKS_RANKS_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/cuda/math/device_side.h"
#include "workers/engine/exchange.h"

struct sy_nccl_ranks;

/* Floats of scratch for sums of at most `most` floats. */
uint64_t sy_nccl_ranks_scratch(int n_ranks, uint64_t most);
/* All ranks together, NCCL's library found by sy_nccl_api_get. side and scratch, on the device, are borrowed. EPEER, EDEVICE, ENOMEM_HOST. Closed also after an
 * error: *out is then NULL, or what has begun. */
int sy_nccl_ranks_open(const struct sy_rank_wire *wire, struct sy_side *side, float *scratch,
                       struct sy_nccl_ranks **out);
/* False: NCCL has not let go in time (NC3), and what was borrowed stays. NULL is fine. */
bool sy_nccl_ranks_close(struct sy_nccl_ranks *ranks);
/* n floats on the device become their sums. All ranks are about to call it. */
int sy_nccl_ranks_sum(struct sy_nccl_ranks *ranks, float *values, uint64_t n);

#endif

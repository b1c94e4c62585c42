/* sy_cuda_exchange: the table of workers/engine/exchange.h on the device that the engine is attached to.
 *
 * DX1: a sum begins once its mark has passed on all ranks, which they tell each other over the wire: until then no kernel of NCCL's stands on a GPU. So a rank
 * that requests preempt, or that is slow, takes no multiprocessor of another's, and the others' requests run.
 * DX2: what cannot begin on one rank begins on none: ranks tell each other in open, and in front of each sum by NCCL. */
#ifndef SY_WORKERS_CUDA_RANKS_DEVICE_EXCHANGE_H
#define SY_WORKERS_CUDA_RANKS_DEVICE_EXCHANGE_H

#include "workers/engine/exchange.h"

extern const struct sy_device_exchange_ops sy_cuda_exchange;

#endif

/* Kernels of our own around what a library computes (kernels.h). */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNELS_LIBRARY_H
#define SY_WORKERS_CUDA_KERNELS_KERNELS_LIBRARY_H

#include "workers/cuda/math/library_recurrence.h"

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* at: by role. */
int sy_kernel_parts(struct CUstream_st *stream, const struct sy_library_parts *parts,
                    void *const *at, void *to);

#ifdef __cplusplus
}
#endif

#endif

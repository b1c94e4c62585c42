/* What ranks exchange (kernels_ranks.cu). As kernels.h: each enqueues one kernel and returns CUDA's error number. Pointers are aligned to floats only. */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNELS_RANKS_H
#define SY_WORKERS_CUDA_KERNELS_KERNELS_RANKS_H

#include <stdint.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] = from[i] + from[n + i] + ... of n_parts, added in this order. */
int sy_kernel_add_ranks(struct CUstream_st *stream, int n_parts, int64_t n, const float *from,
                        float *to);
int sy_kernel_scale(struct CUstream_st *stream, int64_t n, float share, const float *from,
                    float *to);

#ifdef __cplusplus
}
#endif

#endif

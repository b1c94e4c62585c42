/* The kernels of generic.h, as in kernels.h. at: SY_GENERIC_ARRAYS of them, NULL where there is none. */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNELS_GENERIC_H
#define SY_WORKERS_CUDA_KERNELS_KERNELS_GENERIC_H

#include "workers/cuda/math/device_math.h"
#include "workers/cuda/math/generic.h"

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

int sy_kernel_each(struct CUstream_st *stream, const struct sy_math_generic *each, void *const *at,
                   struct sy_math_fault *fault);
/* For it, by kind: -1 if that is another file's. */
int sy_kernel_each_index(struct CUstream_st *stream, const struct sy_math_generic *each,
                         void *const *at, struct sy_math_fault *fault);
int sy_kernel_each_lines(struct CUstream_st *stream, const struct sy_math_generic *each,
                         void *const *at, struct sy_math_fault *fault);
int sy_kernel_each_run(struct CUstream_st *stream, const struct sy_math_generic *each,
                       void *const *at, struct sy_math_fault *fault);
int sy_kernel_each_sample(struct CUstream_st *stream, const struct sy_math_generic *each,
                          void *const *at, struct sy_math_fault *fault);
int sy_kernel_each_signal(struct CUstream_st *stream, const struct sy_math_generic *each,
                          void *const *at, struct sy_math_fault *fault);
int sy_kernel_each_windows(struct CUstream_st *stream, const struct sy_math_generic *each,
                           void *const *at, struct sy_math_fault *fault);

#ifdef __cplusplus
}
#endif

#endif

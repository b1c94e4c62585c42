/* The kernels behind conv_columns.h; as in kernels.h. images: that u holds; fewer than 2^31 elements each. */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNELS_COLUMNS_H
#define SY_WORKERS_CUDA_KERNELS_KERNELS_COLUMNS_H

#include "workers/cuda/math/device_math.h"

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* u[rows, columns] of the conv's type: what each window reads, zeros for what lies outside and for columns behind. */
int sy_kernel_unroll(struct CUstream_st *stream, const struct sy_math_conv *conv, int64_t images,
                     int64_t columns, const void *x, void *u);
/* dx of the conv's type: for each input the sum of its elements of u, float32. */
int sy_kernel_roll(struct CUstream_st *stream, const struct sy_math_conv *conv, int64_t images,
                   const void *u, void *dx);
/* dw of the conv's type: the sum of parts[parts, out, columns], float32, without columns behind. */
int sy_kernel_add_parts(struct CUstream_st *stream, const struct sy_math_conv *conv, int64_t parts,
                        int64_t columns, const void *from, void *dw);

#ifdef __cplusplus
}
#endif

#endif

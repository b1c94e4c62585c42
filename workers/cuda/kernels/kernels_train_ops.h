/* The kernels behind device_math_train.h; as in kernels.h. scratch: at least 8 KiB. */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNELS_TRAIN_OPS_H
#define SY_WORKERS_CUDA_KERNELS_KERNELS_TRAIN_OPS_H

#include "workers/cuda/math/device_math_train.h"

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

int sy_kernel_curve(struct CUstream_st *stream, const struct sy_math_curve *curve, const void *x,
                    void *y);
int sy_kernel_curve_gradient(struct CUstream_st *stream, const struct sy_math_curve *curve,
                             const void *x, const void *y, const void *dy, void *dx);
/* dy NULL: the result; else dy times the slope in operand `which`. */
int sy_kernel_pair(struct CUstream_st *stream, const struct sy_math_pair *pair, int which,
                   const void *a, const void *b, const void *dy, void *to);
int sy_kernel_compare(struct CUstream_st *stream, const struct sy_math_pair *pair, const void *a,
                      const void *b, void *y);
int sy_kernel_drop(struct CUstream_st *stream, const struct sy_math_drop *drop, const void *x,
                   void *y);
int sy_kernel_softmax_gradient(struct CUstream_st *stream, const struct sy_math_softmax *softmax,
                               const void *y, const void *dy, void *dx);
int sy_kernel_row_moments(struct CUstream_st *stream, const struct sy_math_rows *rows,
                          const void *x, void *mean, void *rate);
int sy_kernel_row_gradient(struct CUstream_st *stream, const struct sy_math_rows *rows,
                           const void *x, const void *g, const void *mean, const void *rate,
                           void *dx);
int sy_kernel_scatter(struct CUstream_st *stream, const struct sy_math_gather *gather,
                      const void *dy, const void *indices, void *to);
int sy_kernel_train_reduction(struct CUstream_st *stream,
                              const struct sy_train_reduction *reduction, const void *x, void *y);
int sy_kernel_train_reduction_gradient(struct CUstream_st *stream,
                                       const struct sy_train_reduction *reduction, const void *x,
                                       const void *y, const void *dy, void *dx);
/* kernels_cells.cu; at: by role. */
int sy_kernel_cell(struct CUstream_st *stream, const struct sy_math_cell *cell, void *const *at);
/* kernels_attention_back.cu: two kernels. tf32, shared memory: as sy_kernel_attention. */
int sy_kernel_attention_gradient(struct CUstream_st *stream,
                                 const struct sy_math_attention_back *attention, bool tf32,
                                 const struct sy_math_attention_at *at);
int sy_kernel_square_sum(struct CUstream_st *stream, int64_t n, const void *x, bool adds, void *out,
                         void *scratch);

#ifdef __cplusplus
}
#endif

#endif

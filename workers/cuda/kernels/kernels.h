/* Kernels of our own, as C functions: each enqueues one kernel into `stream` and returns CUDA's error number. Nothing to do: 0.
 * Arguments as in device_math.h. Pointers are aligned to at least 16 bytes, offsets into them to the element. */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNELS_H
#define SY_WORKERS_CUDA_KERNELS_KERNELS_H

#include "workers/cuda/math/device_math.h"

struct CUstream_st;

/* X(name): kernels_NAME.cu. */
#define SY_KERNEL_FILE_TABLE(X) \
    X(attention)                \
    X(attention_back)           \
    X(cells)                    \
    X(chains)                   \
    X(each)                     \
    X(each_index)               \
    X(generic_lines)            \
    X(generic_run)              \
    X(each_sample)              \
    X(generic_signal)           \
    X(generic_windows)          \
    X(elements)                 \
    X(rows)                     \
    X(train)                    \
    X(train_ops)

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel of the file, by which CUDA's runtime finds the others. */
#define X(name) const void *sy_kernel_file_##name(void);
SY_KERNEL_FILE_TABLE(X)
#undef X

int sy_kernel_chain(struct CUstream_st *stream, const struct sy_math_chain *chain,
                    const void *const *in, void *out);
int sy_kernel_where(struct CUstream_st *stream, const struct sy_math_choice *choice,
                    const void *pick, const void *a, const void *b, void *out);
int sy_kernel_equal(struct CUstream_st *stream, const struct sy_math_choice *choice, const void *a,
                    const void *b, void *out);
int sy_kernel_cast(struct CUstream_st *stream, enum sy_dtype from_type, enum sy_dtype to_type,
                   int64_t n, const void *from, void *to);
int sy_kernel_move(struct CUstream_st *stream, const struct sy_math_move *move, const void *from,
                   void *to);
int sy_kernel_fill(struct CUstream_st *stream, void *to, int64_t n, float value);
int sy_kernel_gather(struct CUstream_st *stream, const struct sy_math_gather *gather,
                     const void *from, const void *indices, void *to, struct sy_math_fault *fault);
int sy_kernel_pool(struct CUstream_st *stream, const struct sy_math_pool *pool, const void *x,
                   void *y);
/* Any shape and direction (a, b, y as in struct sy_math_ops); for what cuDNN does not have, and where it is the fastest (few channels in a group). */
int sy_kernel_conv(struct CUstream_st *stream, const struct sy_math_conv *conv, const void *a,
                   const void *b, const void *bias, const void *residual, void *y);
int sy_kernel_conv_gradient(struct CUstream_st *stream, const struct sy_math_conv *conv,
                            const void *a, const void *b, void *y);
int sy_kernel_softmax(struct CUstream_st *stream, const struct sy_math_softmax *softmax,
                      const void *x, void *y);
/* tf32: float32 factors are rounded to TF32. Needs SY_KERNEL_SHARED_BYTES a block. */
#define SY_KERNEL_SHARED_BYTES (99 << 10) /* what every GPU from sm_80 on has */
int sy_kernel_attention(struct CUstream_st *stream, const struct sy_math_attention *attention,
                        bool tf32, const void *q, const void *k, const void *v,
                        const void *const *masks, void *y, void *stats);
int sy_kernel_layer_norm(struct CUstream_st *stream, const struct sy_math_layer_norm *norm,
                         const void *x, const void *skip, const void *scale, const void *bias,
                         void *out, void *sum);
int sy_kernel_reduce(struct CUstream_st *stream, const struct sy_math_reduce *reduce, const void *x,
                     void *y);

/* ---- kernels_train.cu; scratch: scratch_bytes of it ---- */
int sy_kernel_columns(struct CUstream_st *stream, const struct sy_math_columns *columns,
                      const void *a, const void *x, const void *moments, void *out, void *scratch,
                      uint64_t scratch_bytes);
int sy_kernel_norm_gradient(struct CUstream_st *stream, const struct sy_math_columns *columns,
                            const void *dy, const void *x, const void *moments, const void *sums,
                            const void *scale, void *dx);
int sy_kernel_pool_gradient(struct CUstream_st *stream, const struct sy_math_pool *pool,
                            const void *x, const void *dy, void *dx);
/* scratch: a double a row. */
int sy_kernel_loss(struct CUstream_st *stream, const struct sy_math_loss *loss, const void *x,
                   const void *wanted, void *diff, void *out, void *scratch);
int sy_kernel_update(struct CUstream_st *stream, const struct sy_math_update *update, void *w,
                     const void *g, void *m, void *v, const void *norm_square);

#ifdef __cplusplus
}
#endif

#endif

/* The part of device_math.h's table that is kernels of our own and nothing else: one text for the GPU and for the tests, which run the
 * kernels on the CPU. */
#ifndef SY_WORKERS_CUDA_KERNELS_KERNEL_OPS_H
#define SY_WORKERS_CUDA_KERNELS_KERNEL_OPS_H

#include "workers/cuda/math/device_math_train.h"

struct CUstream_st;

/* ---- what the table's owner brings ---- */

/* Where kernels are enqueued. */
struct CUstream_st *sy_math_kernel_stream(struct sy_math *math);
/* Of the scratch that kernels get: what the table's scratch_bytes says. */
uint64_t sy_math_kernel_scratch(void);
/* Whether products of float32 may round their factors to TF32. */
bool sy_math_kernel_tf32(const struct sy_math *math);
/* CUDA's error number of a launch as a status, with the kernel's name. */
int sy_math_kernel_check(struct sy_math *math, int error, const char *name);

/* ---- the table's functions, as described there ---- */

int sy_math_chain_run(struct sy_math *math, const struct sy_math_chain *chain,
                      const void *const *in, void *out);
int sy_kernel_ops_pool(struct sy_math *math, const struct sy_math_pool *p, const void *x, void *y);
int sy_kernel_ops_where(struct sy_math *math, const struct sy_math_choice *choice, const void *pick,
                        const void *a, const void *b, void *out);
int sy_kernel_ops_equal(struct sy_math *math, const struct sy_math_choice *choice, const void *a,
                        const void *b, void *out);
int sy_kernel_ops_move(struct sy_math *math, const struct sy_math_move *m, const void *from,
                       void *to);
int sy_kernel_ops_fill(struct sy_math *math, void *to, int64_t n, float value);
int sy_kernel_ops_gather(struct sy_math *math, const struct sy_math_gather *g, const void *from,
                         const void *indices, void *to, struct sy_math_fault *fault);
int sy_kernel_ops_cast(struct sy_math *math, enum sy_dtype from_type, enum sy_dtype to_type,
                       int64_t n, const void *from, void *to);
int sy_kernel_ops_softmax(struct sy_math *math, const struct sy_math_softmax *s, const void *x,
                          void *y);
int sy_kernel_ops_attention(struct sy_math *math, const struct sy_math_attention *a, const void *q,
                            const void *k, const void *v, const void *const *masks, void *y,
                            void *stats);
int sy_kernel_ops_layer_norm(struct sy_math *math, const struct sy_math_layer_norm *norm,
                             const void *x, const void *skip, const void *scale, const void *bias,
                             void *out, void *sum);
int sy_kernel_ops_reduce(struct sy_math *math, const struct sy_math_reduce *r, const void *x,
                         void *y);
int sy_kernel_ops_each(struct sy_math *math, const struct sy_math_generic *each, void *const *at,
                       struct sy_math_fault *fault);
int sy_kernel_ops_columns(struct sy_math *math, const struct sy_math_columns *c, const void *a,
                          const void *x, const void *moments, void *out, void *scratch);
int sy_kernel_ops_norm_gradient(struct sy_math *math, const struct sy_math_columns *c,
                                const void *dy, const void *x, const void *moments,
                                const void *sums, const void *scale, void *dx);
int sy_kernel_ops_pool_gradient(struct sy_math *math, const struct sy_math_pool *p, const void *x,
                                const void *dy, void *dx);
int sy_kernel_ops_loss(struct sy_math *math, const struct sy_math_loss *l, const void *x,
                       const void *wanted, void *diff, void *out, void *scratch);
int sy_kernel_ops_update(struct sy_math *math, const struct sy_math_update *u, void *w,
                         const void *g, void *m, void *v, const void *norm_square);

extern const struct sy_math_train_ops sy_kernel_train_ops;

/* For the table. */
#define SY_KERNEL_OPS                                                                       \
    .pool = sy_kernel_ops_pool, .where = sy_kernel_ops_where, .equal = sy_kernel_ops_equal, \
    .move = sy_kernel_ops_move, .fill = sy_kernel_ops_fill, .gather = sy_kernel_ops_gather, \
    .cast = sy_kernel_ops_cast, .softmax = sy_kernel_ops_softmax,                           \
    .layer_norm = sy_kernel_ops_layer_norm, .reduce = sy_kernel_ops_reduce,                 \
    .attention = sy_kernel_ops_attention, .each = sy_kernel_ops_each,                       \
    .columns = sy_kernel_ops_columns, .norm_gradient = sy_kernel_ops_norm_gradient,         \
    .pool_gradient = sy_kernel_ops_pool_gradient, .loss = sy_kernel_ops_loss,               \
    .update = sy_kernel_ops_update, .chain = sy_math_chain_run, .train = &sy_kernel_train_ops

#endif

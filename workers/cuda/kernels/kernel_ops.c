/* The functions of device_math.h's table that are kernels of our own and nothing else. No CUDA here: on a GPU the kernels are nvcc's,
 * in the tests they run on the CPU (tests/on_cpu/). */
#include "workers/cuda/kernels/kernel_ops.h"

#include "runtime/base/status.h"
#include "workers/cuda/kernels/kernels.h"
#include "workers/cuda/kernels/kernels_generic.h"

static int check(struct sy_math *math, int error, const char *name)
{
    return sy_math_kernel_check(math, error, name);
}

/* ---- kernels ------------------------------------------------------------------------------------------ */

int sy_math_chain_run(struct sy_math *math, const struct sy_math_chain *chain,
                      const void *const *in, void *out)
{
    return check(math, sy_kernel_chain(sy_math_kernel_stream(math), chain, in, out), "elementwise");
}

int sy_kernel_ops_pool(struct sy_math *math, const struct sy_math_pool *p, const void *x, void *y)
{
    return check(math, sy_kernel_pool(sy_math_kernel_stream(math), p, x, y), "pooling");
}

int sy_kernel_ops_where(struct sy_math *math, const struct sy_math_choice *choice, const void *pick,
                        const void *a, const void *b, void *out)
{
    return check(math, sy_kernel_where(sy_math_kernel_stream(math), choice, pick, a, b, out),
                 "where");
}

int sy_kernel_ops_equal(struct sy_math *math, const struct sy_math_choice *choice, const void *a,
                        const void *b, void *out)
{
    return check(math, sy_kernel_equal(sy_math_kernel_stream(math), choice, a, b, out), "equal");
}

int sy_kernel_ops_move(struct sy_math *math, const struct sy_math_move *m, const void *from,
                       void *to)
{
    return check(math, sy_kernel_move(sy_math_kernel_stream(math), m, from, to), "move");
}

int sy_kernel_ops_fill(struct sy_math *math, void *to, int64_t n, float value)
{
    return check(math, sy_kernel_fill(sy_math_kernel_stream(math), to, n, value), "fill");
}

int sy_kernel_ops_gather(struct sy_math *math, const struct sy_math_gather *g, const void *from,
                         const void *indices, void *to, struct sy_math_fault *fault)
{
    return check(math, sy_kernel_gather(sy_math_kernel_stream(math), g, from, indices, to, fault),
                 "gather");
}

int sy_kernel_ops_cast(struct sy_math *math, enum sy_dtype from_type, enum sy_dtype to_type,
                       int64_t n, const void *from, void *to)
{
    return check(math, sy_kernel_cast(sy_math_kernel_stream(math), from_type, to_type, n, from, to),
                 "cast");
}

int sy_kernel_ops_softmax(struct sy_math *math, const struct sy_math_softmax *s, const void *x,
                          void *y)
{
    return check(math, sy_kernel_softmax(sy_math_kernel_stream(math), s, x, y), "softmax");
}

int sy_kernel_ops_attention(struct sy_math *math, const struct sy_math_attention *a, const void *q,
                            const void *k, const void *v, const void *const *masks, void *y,
                            void *stats)
{
    return check(math,
                 sy_kernel_attention(sy_math_kernel_stream(math), a, sy_math_kernel_tf32(math), q,
                                     k, v, masks, y, stats),
                 "attention");
}

int sy_kernel_ops_layer_norm(struct sy_math *math, const struct sy_math_layer_norm *norm,
                             const void *x, const void *skip, const void *scale, const void *bias,
                             void *out, void *sum)
{
    return check(
        math,
        sy_kernel_layer_norm(sy_math_kernel_stream(math), norm, x, skip, scale, bias, out, sum),
        "layer norm");
}

int sy_kernel_ops_reduce(struct sy_math *math, const struct sy_math_reduce *r, const void *x,
                         void *y)
{
    return check(math, sy_kernel_reduce(sy_math_kernel_stream(math), r, x, y), "reduction");
}

int sy_kernel_ops_each(struct sy_math *math, const struct sy_math_generic *each, void *const *at,
                       struct sy_math_fault *fault)
{
    return check(math, sy_kernel_each(sy_math_kernel_stream(math), each, at, fault),
                 sy_op_name(each->op));
}

/* ---- training ----------------------------------------------------------------------------------------- */

int sy_kernel_ops_columns(struct sy_math *math, const struct sy_math_columns *c, const void *a,
                          const void *x, const void *moments, void *out, void *scratch)
{
    if ((uint64_t)c->columns > sy_math_kernel_scratch() / (2 * sizeof(double)))
        return sy_error_set(SY_EUNSUPPORTED, "sums of %lld columns", (long long)c->columns);
    return check(math,
                 sy_kernel_columns(sy_math_kernel_stream(math), c, a, x, moments, out, scratch,
                                   sy_math_kernel_scratch()),
                 "column");
}

int sy_kernel_ops_norm_gradient(struct sy_math *math, const struct sy_math_columns *c,
                                const void *dy, const void *x, const void *moments,
                                const void *sums, const void *scale, void *dx)
{
    return check(
        math,
        sy_kernel_norm_gradient(sy_math_kernel_stream(math), c, dy, x, moments, sums, scale, dx),
        "batch norm gradient");
}

int sy_kernel_ops_pool_gradient(struct sy_math *math, const struct sy_math_pool *p, const void *x,
                                const void *dy, void *dx)
{
    return check(math, sy_kernel_pool_gradient(sy_math_kernel_stream(math), p, x, dy, dx),
                 "pool gradient");
}

int sy_kernel_ops_loss(struct sy_math *math, const struct sy_math_loss *l, const void *x,
                       const void *wanted, void *diff, void *out, void *scratch)
{
    if ((uint64_t)l->rows > sy_math_kernel_scratch() / sizeof(double))
        return sy_error_set(SY_EUNSUPPORTED, "a loss over %lld rows", (long long)l->rows);
    return check(math,
                 sy_kernel_loss(sy_math_kernel_stream(math), l, x, wanted, diff, out, scratch),
                 "loss");
}

int sy_kernel_ops_update(struct sy_math *math, const struct sy_math_update *u, void *w,
                         const void *g, void *m, void *v, const void *norm_square)
{
    return check(math, sy_kernel_update(sy_math_kernel_stream(math), u, w, g, m, v, norm_square),
                 "optimizer");
}

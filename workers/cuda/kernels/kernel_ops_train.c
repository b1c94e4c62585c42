/* The table of device_math_train.h: kernels of our own, all of it. */
#include "workers/cuda/kernels/kernel_ops.h"

#include "runtime/base/status.h"
#include "workers/cuda/kernels/kernels_train_ops.h"

static int check(struct sy_math *math, int error, const char *name)
{
    return sy_math_kernel_check(math, error, name);
}

static int curve(struct sy_math *math, const struct sy_math_curve *c, const void *x, void *y)
{
    return check(math, sy_kernel_curve(sy_math_kernel_stream(math), c, x, y), "curve");
}

static int curve_gradient(struct sy_math *math, const struct sy_math_curve *c, const void *x,
                          const void *y, const void *dy, void *dx)
{
    return check(math, sy_kernel_curve_gradient(sy_math_kernel_stream(math), c, x, y, dy, dx),
                 "curve gradient");
}

static int pair(struct sy_math *math, const struct sy_math_pair *p, const void *a, const void *b,
                void *y)
{
    return check(math, sy_kernel_pair(sy_math_kernel_stream(math), p, 0, a, b, NULL, y),
                 "broadcast");
}

static int compare(struct sy_math *math, const struct sy_math_pair *p, const void *a, const void *b,
                   void *y)
{
    return check(math, sy_kernel_compare(sy_math_kernel_stream(math), p, a, b, y), "comparison");
}

static int pair_gradient(struct sy_math *math, const struct sy_math_pair *p, int which,
                         const void *a, const void *b, const void *dy, void *d)
{
    return check(math, sy_kernel_pair(sy_math_kernel_stream(math), p, which, a, b, dy, d),
                 "broadcast gradient");
}

static int softmax_gradient(struct sy_math *math, const struct sy_math_softmax *s, const void *y,
                            const void *dy, void *dx)
{
    return check(math, sy_kernel_softmax_gradient(sy_math_kernel_stream(math), s, y, dy, dx),
                 "softmax gradient");
}

static int row_moments(struct sy_math *math, const struct sy_math_rows *r, const void *x,
                       void *mean, void *rate)
{
    return check(math, sy_kernel_row_moments(sy_math_kernel_stream(math), r, x, mean, rate),
                 "row moments");
}

static int row_gradient(struct sy_math *math, const struct sy_math_rows *r, const void *x,
                        const void *g, const void *mean, const void *rate, void *dx)
{
    return check(math, sy_kernel_row_gradient(sy_math_kernel_stream(math), r, x, g, mean, rate, dx),
                 "row gradient");
}

static int scatter(struct sy_math *math, const struct sy_math_gather *g, const void *dy,
                   const void *indices, void *to)
{
    return check(math, sy_kernel_scatter(sy_math_kernel_stream(math), g, dy, indices, to),
                 "embedding gradient");
}

static int drop(struct sy_math *math, const struct sy_math_drop *d, const void *x, void *y)
{
    return check(math, sy_kernel_drop(sy_math_kernel_stream(math), d, x, y), "dropout");
}

static int reduction(struct sy_math *math, const struct sy_train_reduction *f, const void *x,
                     void *y)
{
    return check(math, sy_kernel_train_reduction(sy_math_kernel_stream(math), f, x, y),
                 "reduction");
}

static int reduction_gradient(struct sy_math *math, const struct sy_train_reduction *f,
                              const void *x, const void *y, const void *dy, void *dx)
{
    return check(math,
                 sy_kernel_train_reduction_gradient(sy_math_kernel_stream(math), f, x, y, dy, dx),
                 "reduction gradient");
}

static int cell(struct sy_math *math, const struct sy_math_cell *c, void *const *at)
{
    return check(math, sy_kernel_cell(sy_math_kernel_stream(math), c, at), "recurrent cell");
}

static int attention_gradient(struct sy_math *math, const struct sy_math_attention_back *a,
                              const struct sy_math_attention_at *at)
{
    return check(
        math,
        sy_kernel_attention_gradient(sy_math_kernel_stream(math), a, sy_math_kernel_tf32(math), at),
        "attention gradient");
}

static int square_sum(struct sy_math *math, int64_t n, const void *x, bool adds, void *out,
                      void *scratch)
{
    return check(math, sy_kernel_square_sum(sy_math_kernel_stream(math), n, x, adds, out, scratch),
                 "norm");
}

const struct sy_math_train_ops sy_kernel_train_ops = {
    .curve = curve,
    .curve_gradient = curve_gradient,
    .pair = pair,
    .compare = compare,
    .pair_gradient = pair_gradient,
    .softmax_gradient = softmax_gradient,
    .row_moments = row_moments,
    .row_gradient = row_gradient,
    .scatter = scatter,
    .drop = drop,
    .reduction = reduction,
    .reduction_gradient = reduction_gradient,
    .cell = cell,
    .attention_gradient = attention_gradient,
    .square_sum = square_sum,
};

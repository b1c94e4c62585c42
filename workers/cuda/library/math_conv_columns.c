/* Convolutions and their gradients as products of unrolled windows (math/conv_columns.h), by cuBLASLt and kernels of our own. */
#include "runtime/base/status.h"
#include "workers/cuda/kernels/kernels_columns.h"
#include "workers/cuda/library/math_internal.h"

/* scratch: [of a product][u][parts] */
#define U_BYTES     (64ull << 20)
#define PARTS_BYTES (32ull << 20)

_Static_assert(SY_MATH_SCRATCH_BYTES + U_BYTES + PARTS_BYTES <= SY_MATH_BACK_SCRATCH_BYTES, "");

struct context {
    struct sy_math *math;
    struct sy_math_plan *plan;
    const void *bias;
    void *scratch;
};

static int unroll(void *ctx, const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                  const void *x, void *u)
{
    struct sy_math *math = ((struct context *)ctx)->math;
    int error = sy_kernel_unroll(math->stream, conv, columns->images, columns->columns, x, u);
    return sy_math_cuda_check(math, (cudaError_t)error, "the unrolling kernel");
}

static int roll(void *ctx, const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                const void *u, void *dx)
{
    struct sy_math *math = ((struct context *)ctx)->math;
    int error = sy_kernel_roll(math->stream, conv, columns->images, u, dx);
    return sy_math_cuda_check(math, (cudaError_t)error, "the rolling kernel");
}

static int product(void *ctx, const struct sy_conv_columns *columns, bool adds, const void *a,
                   const void *b, void *y)
{
    struct context *c = ctx;
    (void)columns;
    return sy_math_matmul_run(c->math, adds ? c->plan->columns_sum : c->plan->columns_product, a, b,
                              c->bias, y, y, c->scratch);
}

static int add_parts(void *ctx, const struct sy_math_conv *conv,
                     const struct sy_conv_columns *columns, const void *parts, void *dw)
{
    struct sy_math *math = ((struct context *)ctx)->math;
    int error =
        sy_kernel_add_parts(math->stream, conv, columns->parts, columns->columns, parts, dw);
    return sy_math_cuda_check(math, (cudaError_t)error, "the kernel that adds parts");
}

int sy_math_columns_plan(struct sy_math *math, struct sy_math_plan *p)
{
    struct sy_math_plan *first, *further = NULL;
    if (sy_math_conv_scratch(&p->conv) < SY_MATH_BACK_SCRATCH_BYTES ||
        !sy_conv_columns_of(&p->conv, U_BYTES, PARTS_BYTES, &p->columns))
        return SY_OK;
    struct sy_math_matmul m = p->columns.product;
    SY_TRY(sy_math_matmul_plan(math, &m, &first));
    m.beta = 1;
    if (p->conv.direction == SY_MATH_WEIGHTS && p->columns.images < p->conv.batch)
        SY_TRY(sy_math_matmul_plan(math, &m, &further));
    p->columns_product = first;
    p->columns_sum = further;
    return SY_OK;
}

int sy_math_columns_run(struct sy_math *math, struct sy_math_plan *p, const void *a, const void *b,
                        const void *bias, void *y, void *scratch)
{
    static const struct sy_conv_columns_ops ops = {
        .unroll = unroll, .roll = roll, .product = product, .add_parts = add_parts};
    unsigned char *u = (unsigned char *)scratch + SY_MATH_SCRATCH_BYTES;
    struct context context = {math, p, bias, scratch};
    return sy_conv_columns_run(&ops, &context, &p->conv, &p->columns, a, b, y, u, u + U_BYTES);
}

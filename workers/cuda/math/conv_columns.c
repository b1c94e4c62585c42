#include "workers/cuda/math/conv_columns.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define PADDED_TO    8   /* columns: 16 bytes of a narrow type */
#define WANTED_TILES 256 /* two for each multiprocessor of a large GPU */
#define TILE         64
#define ALIGN_BYTES  16

static int64_t area_of(const int64_t *dims)
{
    return dims[0] * dims[1] * dims[2];
}

static bool is_weights(const struct sy_math_conv *c)
{
    return c->direction == SY_MATH_WEIGHTS;
}

static int64_t divisor_up_to(int64_t n, int64_t most)
{
    int64_t d = SY_MIN(n, most);
    while (d > 1 && n % d)
        d--;
    return d;
}

static uint64_t row_bytes(const struct sy_math_conv *c, const struct sy_conv_columns *u)
{
    return (uint64_t)(u->columns *
                      (c->direction == SY_MATH_DATA ? 4 : sy_math_float_bytes(c->type)));
}

static void choose_parts(const struct sy_math_conv *c, uint64_t bytes, struct sy_conv_columns *u)
{
    int64_t tiles = (c->out_channels + TILE - 1) / TILE * ((u->columns + TILE - 1) / TILE);
    int64_t room = (int64_t)(bytes / sizeof(float)) / (c->out_channels * u->columns);
    int64_t wanted = SY_MAX(WANTED_TILES / tiles, (int64_t)1);
    u->parts = divisor_up_to(u->images, SY_MIN(wanted, room));
}

static int64_t common_alignment(const struct sy_math_matmul *m)
{
    int64_t in = sy_math_float_bytes(m->type), out = sy_math_float_bytes(m->y_type),
            align = ALIGN_BYTES;
    int64_t a_row = m->a_transposed ? m->m : m->k, b_row = m->b_transposed ? m->k : m->n;
    while (a_row * in % align || b_row * in % align || m->n * out % align)
        align /= 2;
    return align;
}

static void describe_product(const struct sy_math_conv *c, struct sy_conv_columns *u)
{
    int64_t rows = u->images * area_of(c->out);
    struct sy_math_matmul *m = &u->product;
    *m = (struct sy_math_matmul){.type = c->type,
                                 .y_type = SY_DTYPE_F32,
                                 .bias_type = SY_DTYPE_F32,
                                 .m = rows,
                                 .n = u->columns,
                                 .k = c->out_channels,
                                 .count = 1,
                                 .alpha = 1};
    if (c->direction == SY_MATH_FORWARD) {
        m->y_type = c->type;
        m->bias_type = c->bias_type;
        m->n = c->out_channels;
        m->k = u->columns;
        m->b_transposed = true;
        m->has_bias = c->has_bias;
    } else if (is_weights(c)) {
        m->m = c->out_channels;
        m->k = rows / u->parts;
        m->count = u->parts;
        m->a_stride = m->k * m->m;
        m->b_stride = m->k * m->n;
        m->y_stride = m->m * m->n;
        m->a_transposed = true;
    }
    m->align_bytes = common_alignment(m);
}

bool sy_conv_columns_of(const struct sy_math_conv *c, uint64_t u_bytes, uint64_t parts_bytes,
                        struct sy_conv_columns *u)
{
    int64_t taken = area_of(c->kernel) * c->in_channels, rows = area_of(c->out);
    if (c->groups != 1 || taken * rows * c->batch * c->out_channels == 0)
        return false;
    if (c->direction == SY_MATH_FORWARD && (c->has_residual || c->activation != SY_ACT_NONE ||
                                            taken * sy_math_float_bytes(c->type) % ALIGN_BYTES))
        return false;
    *u = (struct sy_conv_columns){.parts = 1};
    u->columns = is_weights(c) ? SY_ALIGN_UP(taken, (int64_t)PADDED_TO) : taken;
    uint64_t image = row_bytes(c, u) * (uint64_t)rows,
             result = (uint64_t)(c->out_channels * u->columns) * sizeof(float);
    if (image > u_bytes || (is_weights(c) && result > parts_bytes))
        return false;
    u->images = divisor_up_to(c->batch, (int64_t)(u_bytes / image));
    if (u->images * area_of(c->in) * c->in_channels > INT32_MAX)
        return false;
    if (is_weights(c))
        choose_parts(c, parts_bytes, u);
    describe_product(c, u);
    return true;
}

static const void *image_at(const void *from, const struct sy_math_conv *c, int64_t image,
                            int64_t channels, const int64_t *dims)
{
    return (const char *)from + image * channels * area_of(dims) * sy_math_float_bytes(c->type);
}

static int run_weights(const struct sy_conv_columns_ops *ops, void *ctx,
                       const struct sy_math_conv *c, const struct sy_conv_columns *columns,
                       const void *x, const void *dy, void *dw, void *u, void *parts)
{
    for (int64_t i = 0; i < c->batch; i += columns->images) {
        SY_TRY(ops->unroll(ctx, c, columns, image_at(x, c, i, c->in_channels, c->in), u));
        SY_TRY(ops->product(ctx, columns, i > 0, image_at(dy, c, i, c->out_channels, c->out), u,
                            parts));
    }
    return ops->add_parts(ctx, c, columns, parts, dw);
}

static int run_forward(const struct sy_conv_columns_ops *ops, void *ctx,
                       const struct sy_math_conv *c, const struct sy_conv_columns *columns,
                       const void *x, const void *w, void *y, void *u)
{
    for (int64_t i = 0; i < c->batch; i += columns->images) {
        SY_TRY(ops->unroll(ctx, c, columns, image_at(x, c, i, c->in_channels, c->in), u));
        SY_TRY(ops->product(ctx, columns, false, u, w,
                            (void *)(uintptr_t)image_at(y, c, i, c->out_channels, c->out)));
    }
    return SY_OK;
}

int sy_conv_columns_run(const struct sy_conv_columns_ops *ops, void *ctx,
                        const struct sy_math_conv *c, const struct sy_conv_columns *columns,
                        const void *a, const void *b, void *y, void *u, void *parts)
{
    if (c->direction == SY_MATH_FORWARD)
        return run_forward(ops, ctx, c, columns, a, b, y, u);
    if (is_weights(c))
        return run_weights(ops, ctx, c, columns, a, b, y, u, parts);
    for (int64_t i = 0; i < c->batch; i += columns->images) {
        SY_TRY(ops->product(ctx, columns, false, image_at(a, c, i, c->out_channels, c->out), b, u));
        SY_TRY(ops->roll(ctx, c, columns, u,
                         (void *)(uintptr_t)image_at(y, c, i, c->in_channels, c->in)));
    }
    return SY_OK;
}

/* Arithmetic on dimensions: linear in N, or expressions of open sizes. */
#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_dim_add(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    if (sy_dim_is_expr(a) || sy_dim_is_expr(b))
        return sy_size_add(a, b, out);
    if (__builtin_add_overflow(a.fixed, b.fixed, &out->fixed) ||
        __builtin_add_overflow(a.per_batch, b.per_batch, &out->per_batch))
        return SY_EUNSUPPORTED;
    return SY_OK;
}

int sy_dim_sub(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    if (sy_dim_is_expr(a) || sy_dim_is_expr(b))
        return sy_size_sub(a, b, out);
    if (__builtin_sub_overflow(a.fixed, b.fixed, &out->fixed) ||
        __builtin_sub_overflow(a.per_batch, b.per_batch, &out->per_batch))
        return SY_EUNSUPPORTED;
    return SY_OK;
}

int sy_dim_mul(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    if (sy_dim_is_expr(a) || sy_dim_is_expr(b))
        return sy_size_mul(a, b, out);
    if (a.per_batch != 0 && b.per_batch != 0)
        return SY_EUNSUPPORTED;
    int64_t factor = a.per_batch == 0 ? a.fixed : b.fixed;
    struct sy_dim linear = a.per_batch == 0 ? b : a;
    if (__builtin_mul_overflow(linear.fixed, factor, &out->fixed) ||
        __builtin_mul_overflow(linear.per_batch, factor, &out->per_batch))
        return SY_EUNSUPPORTED;
    return SY_OK;
}

static bool divides(int64_t divisor, int64_t value)
{
    return divisor != 0 && divisor != -1 && value % divisor == 0;
}

int sy_dim_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    if (sy_dim_is_expr(a) || sy_dim_is_expr(b))
        return sy_size_div(a, b, out);
    if (b.per_batch == 0 && b.fixed == -1)
        return sy_dim_sub((struct sy_dim){0, 0}, a, out);
    if (b.per_batch == 0 && b.fixed != 0 &&
        (a.per_batch == 0 || (divides(b.fixed, a.fixed) && divides(b.fixed, a.per_batch)))) {
        *out = (struct sy_dim){a.fixed / b.fixed, a.per_batch / b.fixed};
        return SY_OK;
    }
    /* (k*f + k*p*N) / (f + p*N) = k */
    if (b.per_batch == 0 || !divides(b.per_batch, a.per_batch))
        return SY_EUNSUPPORTED;
    struct sy_dim back, ratio = {a.per_batch / b.per_batch, 0};
    SY_TRY(sy_dim_mul(b, ratio, &back));
    if (!sy_dim_equal(back, a))
        return SY_EUNSUPPORTED;
    *out = ratio;
    return SY_OK;
}

int sy_dim_floor_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    int64_t least, most;
    if (!sy_dim_is_expr(a) && !sy_dim_is_expr(b))
        return sy_dim_div(a, b, out);
    sy_size_bounds(a, &least, &most);
    return least < 0 ? sy_dim_div(a, b, out) : sy_size_floor_div(a, b, out);
}

bool sy_dim_equal(struct sy_dim a, struct sy_dim b)
{
    return a.fixed == b.fixed && a.per_batch == b.per_batch;
}

bool sy_dim_is(struct sy_dim dim, int64_t value)
{
    return dim.fixed == value && dim.per_batch == 0;
}

int sy_shape_product(const struct sy_shape *shape, int first, int end, struct sy_dim *out)
{
    struct sy_dim product = {1, 0};
    for (int i = first; i < end; i++)
        SY_TRY(sy_dim_mul(product, shape->dims[i], &product));
    *out = product;
    return SY_OK;
}

#include "loader/graph/size_choice.h"

#include "runtime/base/status.h"

static const struct sy_dim zero = {0, 0}, one = {1, 0};

/* min(1, max(0, a - b + 1)) */
int sy_size_at_least(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim more;
    SY_TRY(sy_size_sub(a, b, &more));
    SY_TRY(sy_size_add(more, one, &more));
    SY_TRY(sy_size_max(more, zero, &more));
    return sy_size_min(more, one, out);
}

int sy_size_same(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim not_below, not_above, difference;
    int64_t least, most;
    SY_TRY(sy_size_sub(a, b, &difference));
    sy_size_bounds(difference, &least, &most);
    if (least > 0 || most < 0 || (least == 0 && most == 0)) {
        *out = least == 0 && most == 0 ? one : zero;
        return SY_OK;
    }
    SY_TRY(sy_size_at_least(a, b, &not_below));
    SY_TRY(sy_size_at_least(b, a, &not_above));
    return sy_size_mul(not_below, not_above, out);
}

int sy_size_truth(struct sy_dim a, struct sy_dim *out)
{
    struct sy_dim is_zero;
    SY_TRY(sy_size_same(a, zero, &is_zero));
    return sy_size_sub(one, is_zero, out);
}

int sy_size_choose(struct sy_dim truth, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim more;
    if (sy_dim_is_number(truth)) {
        *out = truth.fixed != 0 ? a : b;
        return SY_OK;
    }
    SY_TRY(sy_size_sub(a, b, &more));
    SY_TRY(sy_size_mul(truth, more, &more));
    return sy_size_add(b, more, out);
}

int sy_size_abs(struct sy_dim a, struct sy_dim *out)
{
    struct sy_dim minus;
    SY_TRY(sy_size_sub(zero, a, &minus));
    return sy_size_max(a, minus, out);
}

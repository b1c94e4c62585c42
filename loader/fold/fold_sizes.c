/* Folding of arithmetic on sizes: numbers linear in N, and expressions of open sizes. */
#include <string.h>

#include "loader/graph/size_choice.h"
#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- comparisons --------------------------------------------------------------------------------- */

/* a == b for every batch size, for none, or (EUNSUPPORTED) for some. */
static int dims_equal(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim difference;
    *out = (struct sy_dim){sy_dim_equal(a, b), 0};
    SY_TRY(sy_dim_sub(a, b, &difference));
    if (difference.per_batch == 0)
        return SY_OK;
    if (sy_dim_is_expr(difference)) {
        int64_t least, most;
        sy_size_bounds(difference, &least, &most);
        return least > 0 || most < 0 ? SY_OK : SY_EUNSUPPORTED;
    }
    /* equal where fixed + per_batch * N = 0 */
    SY_TRY(sy_dim_div((struct sy_dim){difference.fixed, 0}, (struct sy_dim){-1, 0}, &a));
    bool whole = difference.per_batch == -1 || a.fixed % difference.per_batch == 0;
    return whole && (a.fixed > 0) == (difference.per_batch > 0) && a.fixed != 0 ? SY_EUNSUPPORTED
                                                                                : SY_OK;
}

/* Whether a > b, or a >= b, for every batch size, for none, or (EUNSUPPORTED) for some. */
static int dims_greater(struct sy_dim a, struct sy_dim b, bool or_equal, struct sy_dim *out)
{
    struct sy_dim d;
    SY_TRY(sy_dim_sub(a, b, &d));
    int64_t least = or_equal ? 0 : 1, first;
    if (sy_dim_is_expr(d)) {
        int64_t lower, upper;
        sy_size_bounds(d, &lower, &upper);
        *out = (struct sy_dim){lower >= least, 0};
        return lower >= least || upper < least ? SY_OK : SY_EUNSUPPORTED;
    }
    if (__builtin_add_overflow(d.fixed, d.per_batch, &first)) /* at N = 1 */
        return SY_EUNSUPPORTED;
    bool holds = first >= least;
    *out = (struct sy_dim){holds, 0};
    return d.per_batch == 0 || (d.per_batch > 0) == holds ? SY_OK : SY_EUNSUPPORTED;
}

/* a mod b of numbers, with the sign of b, or of a (fmod). */
static int remainder_of(const struct sy_node *node, int64_t a, int64_t b, struct sy_dim *out)
{
    if (node->op != SY_OP_MOD || b == 0 || b == -1)
        return SY_EUNSUPPORTED;
    *out = (struct sy_dim){a % b, 0};
    if (sy_node_int(node, "fmod", 0) == 0 && out->fixed != 0 && (out->fixed < 0) != (b < 0))
        out->fixed += b;
    return SY_OK;
}

static int compare_dims(enum sy_op op, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    switch (op) {
    case SY_OP_GREATER:
        return dims_greater(a, b, false, out);
    case SY_OP_GREATER_OR_EQUAL:
        return dims_greater(a, b, true, out);
    case SY_OP_LESS:
        return dims_greater(b, a, false, out);
    case SY_OP_LESS_OR_EQUAL:
        return dims_greater(b, a, true, out);
    default:
        return SY_EUNSUPPORTED;
    }
}

/* A comparison of sizes as a size of 0 or 1. */
static int open_comparison(enum sy_op op, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim one = {1, 0};
    switch (op) {
    case SY_OP_EQUAL:
        return sy_size_same(a, b, out);
    case SY_OP_GREATER_OR_EQUAL:
        return sy_size_at_least(a, b, out);
    case SY_OP_LESS_OR_EQUAL:
        return sy_size_at_least(b, a, out);
    case SY_OP_GREATER:
        SY_TRY(sy_size_add(b, one, &b));
        return sy_size_at_least(a, b, out);
    case SY_OP_LESS:
        SY_TRY(sy_size_add(a, one, &a));
        return sy_size_at_least(b, a, out);
    default:
        return SY_EUNSUPPORTED;
    }
}

/* Logical operators on truth values. */
static int logic(enum sy_op op, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim both, sum;
    if (op != SY_OP_AND && op != SY_OP_OR && op != SY_OP_XOR)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_size_truth(a, &a));
    SY_TRY(sy_size_truth(b, &b));
    SY_TRY(sy_size_mul(a, b, &both));
    SY_TRY(sy_size_add(a, b, &sum));
    if (op == SY_OP_AND)
        *out = both;
    else
        SY_TRY(sy_size_sub(sum, both, out));
    return op == SY_OP_XOR ? sy_size_sub(*out, both, out) : SY_OK;
}

/* a to the power of a small number. */
static int power(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    if (!sy_dim_is_number(b) || b.fixed < 0 || b.fixed > SY_SIZE_MAX_DEGREE)
        return SY_EUNSUPPORTED;
    *out = (struct sy_dim){1, 0};
    for (int64_t i = 0; i < b.fixed; i++)
        SY_TRY(sy_dim_mul(*out, a, out));
    return SY_OK;
}

static int binary_dims(enum sy_op op, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    int status;
    switch (op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
        return sy_dim_add(a, b, out);
    case SY_OP_SUB:
        return sy_dim_sub(a, b, out);
    case SY_OP_MUL:
        return sy_dim_mul(a, b, out);
    case SY_OP_DIV:
        return sy_dim_div(a, b, out) == SY_OK ? SY_OK : sy_dim_floor_div(a, b, out);
    case SY_OP_POW:
        return power(a, b, out);
    case SY_OP_MIN:
        return sy_size_min(a, b, out);
    case SY_OP_MAX:
        return sy_size_max(a, b, out);
    case SY_OP_AND:
    case SY_OP_OR:
    case SY_OP_XOR:
        return logic(op, a, b, out);
    default:
        status = op == SY_OP_EQUAL ? dims_equal(a, b, out) : compare_dims(op, a, b, out);
        return status == SY_OK ? SY_OK : open_comparison(op, a, b, out);
    }
}

static struct sy_dim dim_of(const struct sy_block *block, const struct sy_block *out, int64_t i)
{
    struct sy_dim dim;
    memcpy(&dim, block->data + (size_t)sy_block_offset(out, i, block) * sizeof dim, sizeof dim);
    return dim;
}

/* a - floor(a / b) * b. */
static int open_remainder(const struct sy_node *node, struct sy_dim a, struct sy_dim b,
                          struct sy_dim *out)
{
    int64_t least, most;
    sy_size_bounds(a, &least, &most);
    if (sy_node_int(node, "fmod", 0) != 0 && least < 0)
        return SY_EUNSUPPORTED;
    SY_TRY(sy_size_floor_div(a, b, out));
    SY_TRY(sy_size_mul(*out, b, out));
    return sy_size_sub(a, *out, out);
}

/* Whether a size is a number below 0: as -1 marks sizes that are to stay, a difference of sizes is taken for one that is not. */
static bool is_never(struct sy_infer *in, const struct sy_node *node, struct sy_dim number,
                     struct sy_dim size)
{
    int64_t least, most;
    if (!sy_dim_is_number(number) || number.fixed >= 0 || !sy_dim_is_expr(size))
        return false;
    sy_size_bounds(size, &least, &most);
    return most >= 0 && (least >= 0 || sy_infer_at_most(in, node, (struct sy_dim){0, 0}, size));
}

/* Toward zero: a difference of sizes is taken for one that is not below 0. */
static int open_quotient(struct sy_infer *in, const struct sy_node *node, struct sy_dim a,
                         struct sy_dim b, struct sy_dim *out)
{
    int64_t least, most;
    sy_size_bounds(a, &least, &most);
    if (least < 0 && (most <= 0 || !sy_infer_at_most(in, node, (struct sy_dim){0, 0}, a)))
        return SY_EUNSUPPORTED;
    return sy_size_floor_div(a, b, out);
}

static int two_dims(struct sy_infer *in, const struct sy_node *node, struct sy_dim a,
                    struct sy_dim b, struct sy_dim *to)
{
    if (node->op == SY_OP_DIV && sy_dim_is_expr(a) && sy_dim_div(a, b, to) < 0)
        return open_quotient(in, node, a, b, to);
    if (node->op == SY_OP_EQUAL && (is_never(in, node, a, b) || is_never(in, node, b, a))) {
        *to = (struct sy_dim){0, 0};
        return SY_OK;
    }
    if (node->op == SY_OP_MOD && (sy_dim_is_expr(a) || sy_dim_is_expr(b)))
        return open_remainder(node, a, b, to);
    int status = binary_dims(node->op, a, b, to);
    if (status == SY_EUNSUPPORTED && a.per_batch == 0 && b.per_batch == 0)
        status = remainder_of(node, a.fixed, b.fixed, to);
    return status;
}

/* Min, Max and Sum take any number of operands, and one. */
static int several_dims(struct sy_infer *in, const struct sy_node *node,
                        const struct sy_block *inputs, const struct sy_block *out, int64_t i,
                        struct sy_dim *to)
{
    bool is_any = node->op == SY_OP_MIN || node->op == SY_OP_MAX || node->op == SY_OP_SUM;
    if (node->n_inputs != 2 && !is_any)
        return SY_EUNSUPPORTED;
    *to = dim_of(&inputs[0], out, i);
    for (int k = 1; k < node->n_inputs; k++)
        SY_TRY(two_dims(in, node, *to, dim_of(&inputs[k], out, i), to));
    return SY_OK;
}

/* Integers keep their value if it fits the type. */
static int cast_dim(enum sy_dtype to, struct sy_dim x, struct sy_dim *out)
{
    int64_t least, most;
    *out = x;
    if (to == SY_DTYPE_BOOL)
        return sy_size_truth(x, out);
    if (to == SY_DTYPE_I64 || to == SY_DTYPE_I32 || sy_dim_is_number(x))
        return SY_OK;
    sy_size_bounds(x, &least, &most);
    bool fits = (to == SY_DTYPE_U8 && least >= 0 && most <= UINT8_MAX) ||
                (to == SY_DTYPE_I8 && least >= INT8_MIN && most <= INT8_MAX);
    return fits || !sy_dtype_is_integer(to) ? SY_OK : SY_EUNSUPPORTED;
}

/* max(low, x), then min(high, that); a bound that is left out has no elements. */
static int clip_dim(const struct sy_node *node, const struct sy_block *inputs, struct sy_dim x,
                    struct sy_dim *to)
{
    *to = x;
    for (int k = 1; k < 3 && k < node->n_inputs; k++) {
        struct sy_dim bound;
        if (inputs[k].n != 1)
            continue;
        memcpy(&bound, inputs[k].data, sizeof bound);
        SY_TRY(k == 1 ? sy_size_max(*to, bound, to) : sy_size_min(*to, bound, to));
    }
    return SY_OK;
}

/* -1, 0 or 1 */
static int sign_of(struct sy_dim x, struct sy_dim *to)
{
    SY_TRY(sy_size_max(x, (struct sy_dim){-1, 0}, to));
    return sy_size_min(*to, (struct sy_dim){1, 0}, to);
}

static int range_dim(const struct sy_block *inputs, const struct sy_block *out, int64_t i,
                     struct sy_dim *to)
{
    struct sy_dim start = dim_of(&inputs[0], out, 0), step = dim_of(&inputs[2], out, 0);
    SY_TRY(sy_dim_mul(step, (struct sy_dim){i, 0}, &step)); /* inputs of one element: offset 0 */
    return sy_dim_add(start, step, to);
}

static int one_of_dims(struct sy_infer *in, const struct sy_node *node,
                       const struct sy_block *inputs, const struct sy_block *out, int64_t i,
                       struct sy_dim *to)
{
    struct sy_dim zero = {0, 0}, one = {1, 0}, first;
    if (node->op == SY_OP_RANGE)
        return range_dim(inputs, out, i, to);
    first = dim_of(&inputs[0], out, i);
    switch (node->op) {
    case SY_OP_CAST:
        return cast_dim(in->graph->tensors[node->outputs[0]].dtype, first, to);
    case SY_OP_NOT:
        SY_TRY(sy_size_truth(first, &first));
        return sy_dim_sub(one, first, to);
    case SY_OP_NEG:
        return sy_dim_sub(zero, first, to);
    case SY_OP_ABS:
        return sy_size_abs(first, to);
    case SY_OP_SIGN:
        return sign_of(first, to);
    case SY_OP_RELU:
        return sy_size_max(first, zero, to);
    case SY_OP_CLIP:
    case SY_OP_RUN_CLIP:
        return clip_dim(node, inputs, first, to);
    case SY_OP_WHERE:
        SY_TRY(sy_size_truth(first, &first));
        return sy_size_choose(first, dim_of(&inputs[1], out, i), dim_of(&inputs[2], out, i), to);
    default:
        return several_dims(in, node, inputs, out, i, to);
    }
}

int sy_fold_dims(struct sy_infer *in, const struct sy_node *node, const struct sy_block *inputs,
                 const struct sy_block *out, struct sy_dim *to)
{
    if (node->op != SY_OP_RANGE && !sy_fold_is_elementwise(node->op))
        return sy_fold_whole_dims(node, &inputs[0], out, to);
    for (int64_t i = 0; i < out->n; i++)
        SY_TRY(one_of_dims(in, node, inputs, out, i, &to[i]));
    return SY_OK;
}

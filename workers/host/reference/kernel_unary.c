/* One input, element by element. */
#include "loader/graph/small_types.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/curve_rows.h"

enum { IS_BLOCK = 16384 };

static int run_floats(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct sy_curve curve;
    sy_curve_read(call->node, &curve);
    if (x->dtype == SY_DTYPE_F32 && y->dtype == SY_DTYPE_F32 && sy_curve_rows_has(&curve)) {
        sy_curve_rows(&curve, x->n, x->data, y->data);
        return SY_OK;
    }
#pragma omp parallel for schedule(static) if (x->n > 16384)
    for (int64_t i = 0; i < x->n; i++)
        sy_put(y, i, sy_curve_at(&curve, sy_get(x, i)));
    return SY_OK;
}

/* For uint64, which is never below 0. */
static int64_t of_unsigned(enum sy_op op, int64_t x)
{
    if (op == SY_OP_ABS || op == SY_OP_RELU)
        return x;
    return op == SY_OP_SIGN ? x != 0 : sy_curve_of_integer(op, x);
}

static int run_number(const struct sy_call *call)
{
    bool is_unsigned = call->in[0].dtype == SY_DTYPE_U64;
    if (sy_is_float(call->in[0].dtype))
        return run_floats(call);
#pragma omp parallel for schedule(static) if (call->in[0].n > IS_BLOCK)
    for (int64_t i = 0; i < call->in[0].n; i++)
        sy_put_int(&call->out[0], i,
                   is_unsigned ? of_unsigned(call->node->op, sy_get_int(&call->in[0], i))
                               : sy_curve_of_integer(call->node->op, sy_get_int(&call->in[0], i)));
    return SY_OK;
}

SY_CLONES static void not_row(int64_t n, const uint8_t *in, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = in[i] == 0;
}

static int run_not(const struct sy_call *call)
{
    const uint8_t *in = (const uint8_t *)call->in[0].data;
    uint8_t *out = (uint8_t *)call->out[0].data;
    const int64_t n = call->in[0].n;
#pragma omp parallel for schedule(static) if (n > IS_BLOCK)
    for (int64_t i = 0; i < n; i += IS_BLOCK)
        not_row(SY_MIN(n - i, IS_BLOCK), in + i, out + i);
    return SY_OK;
}

static void is_of_floats(bool nan, bool positive, bool negative, int64_t n, const float *in,
                         uint8_t *out)
{
#pragma omp parallel for schedule(static) if (n > IS_BLOCK)
    for (int64_t i = 0; i < n; i += IS_BLOCK)
        if (nan)
            sy_curve_is_nan(SY_MIN(n - i, IS_BLOCK), in + i, out + i);
        else
            sy_curve_is_infinite(positive, negative, SY_MIN(n - i, IS_BLOCK), in + i, out + i);
}

static int run_is(const struct sy_call *call)
{
    bool nan = call->node->op == SY_OP_IS_NAN;
    bool positive = sy_node_int(call->node, "detect_positive", 1) != 0,
         negative = sy_node_int(call->node, "detect_negative", 1) != 0;
    if (call->in[0].dtype == SY_DTYPE_F32 && call->out[0].dtype == SY_DTYPE_BOOL) {
        is_of_floats(nan, positive, negative, call->in[0].n, call->in[0].data, call->out[0].data);
        return SY_OK;
    }
#pragma omp parallel for schedule(static) if (call->in[0].n > 16384)
    for (int64_t i = 0; i < call->in[0].n; i++) {
        double x = sy_get(&call->in[0], i);
        sy_put_int(&call->out[0], i, nan ? isnan(x) : isinf(x) && (x > 0 ? positive : negative));
    }
    return SY_OK;
}

/* Bounds as inputs 1 and 2, of any type. */
static int run_clip(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *low = sy_call_in(call, 1),
                          *high = sy_call_in(call, 2);
    for (int64_t i = 0; i < x->n; i++) {
        if (sy_is_float(x->dtype)) {
            double v = sy_get(x, i);
            v = low && v < sy_get(low, 0) ? sy_get(low, 0) : v;
            sy_put(&call->out[0], i, high && v > sy_get(high, 0) ? sy_get(high, 0) : v);
            continue;
        }
        int64_t v = sy_get_ordered(x, i), bias = x->dtype == SY_DTYPE_U64 ? INT64_MIN : 0;
        v = low && v < sy_get_ordered(low, 0) ? sy_get_ordered(low, 0) : v;
        v = high && v > sy_get_ordered(high, 0) ? sy_get_ordered(high, 0) : v;
        sy_put_int(&call->out[0], i, v ^ bias);
    }
    return SY_OK;
}

static int check_clip(const struct sy_call *call)
{
    for (int i = 1; i < call->n_in; i++)
        if (sy_call_in(call, i) && call->in[i].n != 1)
            return sy_kernel_refuse(call, "bounds of several elements");
    return sy_array_same_dims(&call->in[0], &call->out[0])
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another shape");
}

static int check_same(const struct sy_call *call)
{
    bool same = sy_array_same_dims(&call->in[0], &call->out[0]);
    return same ? SY_OK : sy_kernel_refuse(call, "a result of another shape");
}

/* Cast between any two types; integers do not pass through double. Floats become true unless 0. */
static int run_cast(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    if (x->dtype == SY_DTYPE_STRING || y->dtype == SY_DTYPE_STRING)
        return sy_cast_strings(call);
#pragma omp parallel for schedule(static) if (x->n > 16384)
    for (int64_t i = 0; i < x->n; i++) {
        if (sy_is_float(x->dtype) || sy_is_float(y->dtype))
            sy_put(y, i, sy_get(x, i));
        else
            sy_put_int(y, i, sy_get_int(x, i)); /* wider to narrower: the low bits */
    }
    return SY_OK;
}

/* Numbers that a small type has, in the type of x. */
static int run_small(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    const struct sy_attr *how = sy_node_attr(call->node, "round_mode");
    const char *mode = how && how->kind == SY_ATTR_STRING ? how->s : "up";
    enum sy_small_mode rounds = strcmp(mode, "down") == 0      ? SY_SMALL_DOWN
                                : strcmp(mode, "nearest") == 0 ? SY_SMALL_NEAREST
                                                               : SY_SMALL_UP;
    int64_t type = sy_node_int(call->node, "to", 0);
    bool saturate = sy_node_int(call->node, "saturate", 1) != 0;
#pragma omp parallel for schedule(static) if (x->n > 16384)
    for (int64_t i = 0; i < x->n; i++)
        sy_put(&call->out[0], i, sy_small_round(type, sy_get(x, i), saturate, rounds));
    return SY_OK;
}

static int check_small(const struct sy_call *call)
{
    if (sy_small_carrier(sy_node_int(call->node, "to", 0)) == SY_DTYPE_NONE)
        return sy_kernel_refuse(call, "this element type");
    return check_same(call);
}

/* The mask of Dropout at inference: nothing is dropped. */
static int run_dropout(const struct sy_call *call)
{
    const struct sy_array *mask = sy_call_out(call, 1);
    memcpy(call->out[0].data, call->in[0].data,
           (size_t)call->in[0].n * sy_dtype_bytes(call->in[0].dtype));
    for (int64_t i = 0; mask && i < mask->n; i++)
        sy_put(mask, i, 1);
    return SY_OK;
}

/* Shrink of integers: through double, exact up to 2^53. */
#define FLOATS(op)                                       \
    {                                                    \
        op, run_floats, {SY_ANY_FLOAT}, check_same, NULL \
    }
#define NUMBERS(op)                                       \
    {                                                     \
        op, run_number, {SY_ANY_NUMBER}, check_same, NULL \
    }
const struct sy_kernel sy_kernels_unary[] = {
    FLOATS(SY_OP_LEAKY_RELU),
    FLOATS(SY_OP_SIGMOID),
    FLOATS(SY_OP_TANH),
    FLOATS(SY_OP_ERF),
    FLOATS(SY_OP_CLIP),
    FLOATS(SY_OP_HARD_SIGMOID),
    FLOATS(SY_OP_HARD_SWISH),
    FLOATS(SY_OP_ELU),
    FLOATS(SY_OP_EXP),
    FLOATS(SY_OP_LOG),
    FLOATS(SY_OP_SQRT),
    FLOATS(SY_OP_RECIPROCAL),
    FLOATS(SY_OP_GELU),
    FLOATS(SY_OP_ACOS),
    FLOATS(SY_OP_ACOSH),
    FLOATS(SY_OP_ASIN),
    FLOATS(SY_OP_ASINH),
    FLOATS(SY_OP_ATAN),
    FLOATS(SY_OP_ATANH),
    FLOATS(SY_OP_CEIL),
    FLOATS(SY_OP_FLOOR),
    FLOATS(SY_OP_ROUND),
    FLOATS(SY_OP_COS),
    FLOATS(SY_OP_COSH),
    FLOATS(SY_OP_SIN),
    FLOATS(SY_OP_SINH),
    FLOATS(SY_OP_TAN),
    FLOATS(SY_OP_SOFTPLUS),
    FLOATS(SY_OP_SOFTSIGN),
    FLOATS(SY_OP_SELU),
    FLOATS(SY_OP_CELU),
    FLOATS(SY_OP_THRESHOLDED_RELU),
    FLOATS(SY_OP_MISH),
    NUMBERS(SY_OP_RELU),
    NUMBERS(SY_OP_NEG),
    NUMBERS(SY_OP_ABS),
    NUMBERS(SY_OP_SIGN),
    {SY_OP_SHRINK, run_floats, {SY_ANY_NUMBER}, check_same, NULL},
    {SY_OP_NOT, run_not, {SY_BIT(BOOL)}, check_same, NULL},
    {SY_OP_BITWISE_NOT, run_number, {SY_ANY_INT}, check_same, NULL},
    {SY_OP_IS_NAN, run_is, {SY_ANY_FLOAT}, check_same, NULL},
    {SY_OP_IS_INF, run_is, {SY_ANY_FLOAT}, check_same, NULL},
    {SY_OP_RUN_CLIP, run_clip, {SY_ANY_NUMBER, SY_AS_FIRST}, check_clip, NULL},
    {SY_OP_CAST, run_cast, {SY_ANY_MOVED}, check_same, NULL},
    {SY_OP_SMALL, run_small, {SY_ANY_FLOAT}, check_small, NULL},
    {SY_OP_DROPOUT, run_dropout, {SY_ANY_TYPE}, check_same, NULL},
    {0}};

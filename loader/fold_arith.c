/* Folding of arithmetic: on numbers linear in N (shape arithmetic), and on floats (small constant subgraphs). */
#include <math.h>
#include <string.h>

#include "loader/graph_infer.h"
#include "loader/size_expr.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- elements --------------------------------------------------------------------------------- */

bool sy_dtype_is_integer(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_U8 || dtype == SY_DTYPE_I8 || dtype == SY_DTYPE_U16 ||
           dtype == SY_DTYPE_I16 || dtype == SY_DTYPE_I32 || dtype == SY_DTYPE_U32 ||
           dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_BOOL;
}

int64_t sy_load_integer(enum sy_dtype dtype, const void *from)
{
    int64_t i64 = 0;
    int32_t i32;
    int16_t i16;
    switch (dtype) {
    case SY_DTYPE_I32:
        memcpy(&i32, from, sizeof i32);
        return i32;
    case SY_DTYPE_I16:
        memcpy(&i16, from, sizeof i16);
        return i16;
    case SY_DTYPE_I64:
    case SY_DTYPE_U32:
    case SY_DTYPE_U16: /* little-endian: the low bytes come first */
        memcpy(&i64, from, sy_dtype_bytes(dtype));
        return i64;
    case SY_DTYPE_I8:
        return *(const signed char *)from;
    default:
        return *(const unsigned char *)from;
    }
}

void sy_store_integer(enum sy_dtype dtype, int64_t value, void *to)
{
    float f32 = (float)value;
    double f64 = (double)value;
    switch (dtype) {
    case SY_DTYPE_F32:
        memcpy(to, &f32, sizeof f32);
        break;
    case SY_DTYPE_F64:
        memcpy(to, &f64, sizeof f64);
        break;
    case SY_DTYPE_BOOL:
        *(unsigned char *)to = value != 0;
        break;
    default: /* little-endian: the low bytes come first */
        memcpy(to, &value, sy_dtype_bytes(dtype));
        break;
    }
}

/* Only of these do all inputs broadcast to the output's shape, as the loops below take for granted. */
static bool is_elementwise(enum sy_op op)
{
    static const enum sy_op ops[] = {SY_OP_ADD,     SY_OP_SUB,
                                     SY_OP_MUL,     SY_OP_DIV,
                                     SY_OP_POW,     SY_OP_MIN,
                                     SY_OP_MAX,     SY_OP_NEG,
                                     SY_OP_ABS,     SY_OP_EXP,
                                     SY_OP_LOG,     SY_OP_SQRT,
                                     SY_OP_EQUAL,   SY_OP_WHERE,
                                     SY_OP_CAST,    SY_OP_RECIPROCAL,
                                     SY_OP_MOD,     SY_OP_FLOOR,
                                     SY_OP_CEIL,    SY_OP_ROUND,
                                     SY_OP_NOT,     SY_OP_AND,
                                     SY_OP_OR,      SY_OP_XOR,
                                     SY_OP_GREATER, SY_OP_GREATER_OR_EQUAL,
                                     SY_OP_LESS,    SY_OP_LESS_OR_EQUAL,
                                     SY_OP_SIN,     SY_OP_COS,
                                     SY_OP_TANH,    SY_OP_SIGMOID,
                                     SY_OP_ERF,     SY_OP_SIGN,
                                     SY_OP_RELU};
    for (size_t i = 0; i < SY_ARRAY_LEN(ops); i++)
        if (ops[i] == op)
            return true;
    return false;
}

/* ---- linear in N ------------------------------------------------------------------------------ */

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

/* Of numbers without N. */
static int fixed_numbers(const struct sy_node *node, int64_t a, int64_t b, struct sy_dim *out)
{
    *out = (struct sy_dim){0, 0};
    switch (node->op) {
    case SY_OP_MOD:
        if (b == 0 || b == -1)
            return SY_EUNSUPPORTED;
        out->fixed = a % b;
        if (sy_node_int(node, "fmod", 0) == 0 && out->fixed != 0 && (out->fixed < 0) != (b < 0))
            out->fixed += b;
        return SY_OK;
    case SY_OP_AND:
        out->fixed = a && b;
        return SY_OK;
    case SY_OP_OR:
        out->fixed = a || b;
        return SY_OK;
    case SY_OP_XOR:
        out->fixed = !a != !b;
        return SY_OK;
    default:
        return SY_EUNSUPPORTED;
    }
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

static int binary_dims(enum sy_op op, struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    bool fixed = a.per_batch == 0 && b.per_batch == 0;
    switch (op) {
    case SY_OP_ADD:
        return sy_dim_add(a, b, out);
    case SY_OP_SUB:
        return sy_dim_sub(a, b, out);
    case SY_OP_MUL:
        return sy_dim_mul(a, b, out);
    case SY_OP_DIV:
        return sy_dim_div(a, b, out) == SY_OK ? SY_OK : sy_dim_floor_div(a, b, out);
    case SY_OP_EQUAL:
        return dims_equal(a, b, out);
    case SY_OP_MIN:
        if (sy_dim_is_expr(a) || sy_dim_is_expr(b))
            return sy_size_min(a, b, out);
        *out = a.fixed < b.fixed ? a : b;
        return fixed ? SY_OK : SY_EUNSUPPORTED;
    case SY_OP_MAX:
        if (sy_dim_is_expr(a) || sy_dim_is_expr(b))
            return sy_size_max(a, b, out);
        *out = a.fixed > b.fixed ? a : b;
        return fixed ? SY_OK : SY_EUNSUPPORTED;
    default:
        return compare_dims(op, a, b, out);
    }
}

static struct sy_dim dim_of(const struct sy_block *block, const struct sy_block *out, int64_t i)
{
    struct sy_dim dim;
    memcpy(&dim, block->data + (size_t)sy_block_offset(out, i, block) * sizeof dim, sizeof dim);
    return dim;
}

/* a - floor(a / b) * b. A number by an open size is taken for less than it. */
static int open_remainder(struct sy_infer *in, const struct sy_node *node, struct sy_dim a,
                          struct sy_dim b, struct sy_dim *out)
{
    int64_t least, most;
    struct sy_dim more;
    sy_size_bounds(a, &least, &most);
    if (sy_node_int(node, "fmod", 0) != 0 && least < 0)
        return SY_EUNSUPPORTED;
    if (sy_dim_is_number(a) && a.fixed >= 0 && sy_dim_is_expr(b)) {
        SY_TRY(sy_size_add(a, (struct sy_dim){1, 0}, &more));
        *out = a;
        return sy_infer_at_most(in, node, more, b) ? SY_OK : SY_EUNSUPPORTED;
    }
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

static int two_dims(struct sy_infer *in, const struct sy_node *node, const struct sy_block *inputs,
                    const struct sy_block *out, int64_t i, struct sy_dim *to)
{
    if (node->n_inputs != 2)
        return SY_EUNSUPPORTED;
    struct sy_dim a = dim_of(&inputs[0], out, i), b = dim_of(&inputs[1], out, i);
    if (node->op == SY_OP_DIV && sy_dim_is_expr(a) && sy_dim_div(a, b, to) < 0)
        return open_quotient(in, node, a, b, to);
    if (node->op == SY_OP_EQUAL && (is_never(in, node, a, b) || is_never(in, node, b, a))) {
        *to = (struct sy_dim){0, 0};
        return SY_OK;
    }
    if (node->op == SY_OP_MOD && (sy_dim_is_expr(a) || sy_dim_is_expr(b)))
        return open_remainder(in, node, a, b, to);
    int status = binary_dims(node->op, a, b, to);
    if (status == SY_EUNSUPPORTED && a.per_batch == 0 && b.per_batch == 0)
        status = fixed_numbers(node, a.fixed, b.fixed, to);
    return status;
}

static int one_of_dims(struct sy_infer *in, const struct sy_node *node,
                       const struct sy_block *inputs, const struct sy_block *out, int64_t i,
                       struct sy_dim *to)
{
    struct sy_dim zero = {0, 0};
    switch (node->op) {
    case SY_OP_RANGE: /* inputs of one element: offset 0 */
        if (!sy_dim_is_number(dim_of(&inputs[0], out, 0)) ||
            !sy_dim_is_number(dim_of(&inputs[2], out, 0)))
            return SY_EUNSUPPORTED;
        *to = (struct sy_dim){
            dim_of(&inputs[0], out, 0).fixed + i * dim_of(&inputs[2], out, 0).fixed, 0};
        return SY_OK;
    case SY_OP_CAST:
        *to = dim_of(&inputs[0], out, i);
        return SY_OK;
    case SY_OP_NOT:
        if (dim_of(&inputs[0], out, i).per_batch != 0)
            return SY_EUNSUPPORTED;
        *to = (struct sy_dim){dim_of(&inputs[0], out, i).fixed == 0, 0};
        return SY_OK;
    case SY_OP_NEG:
        return sy_dim_sub(zero, dim_of(&inputs[0], out, i), to);
    case SY_OP_WHERE:
        if (dim_of(&inputs[0], out, i).per_batch != 0)
            return SY_EUNSUPPORTED;
        *to = dim_of(&inputs[sy_dim_is(dim_of(&inputs[0], out, i), 0) ? 2 : 1], out, i);
        return SY_OK;
    default:
        return two_dims(in, node, inputs, out, i, to);
    }
}

int sy_fold_dims(struct sy_infer *in, const struct sy_node *node, const struct sy_block *inputs,
                 const struct sy_block *out, struct sy_dim *to)
{
    if (node->op != SY_OP_RANGE && !is_elementwise(node->op))
        return sy_fold_whole_dims(node, &inputs[0], out, to);
    for (int64_t i = 0; i < out->n; i++)
        SY_TRY(one_of_dims(in, node, inputs, out, i, &to[i]));
    return SY_OK;
}

/* ---- floats ----------------------------------------------------------------------------------- */

double sy_load_double(enum sy_dtype dtype, const void *from)
{
    float f32;
    double f64;
    switch (dtype) {
    case SY_DTYPE_F32:
        memcpy(&f32, from, sizeof f32);
        return f32;
    case SY_DTYPE_F64:
        memcpy(&f64, from, sizeof f64);
        return f64;
    default:
        return (double)sy_load_integer(dtype, from);
    }
}

/* Out of range is unspecified in ONNX and undefined in C: it becomes the nearest end. */
static int64_t to_integer(double value)
{
    if (!(value > -9.2e18))
        return INT64_MIN;
    return value < 9.2e18 ? (int64_t)value : INT64_MAX;
}

void sy_store_double(enum sy_dtype dtype, double value, void *to)
{
    float f32 = (float)value;
    if (dtype == SY_DTYPE_F32)
        memcpy(to, &f32, sizeof f32);
    else if (dtype == SY_DTYPE_F64)
        memcpy(to, &value, sizeof value);
    else
        sy_store_integer(dtype, dtype == SY_DTYPE_BOOL ? value != 0 : to_integer(value), to);
}

static int compare(enum sy_op op, double a, double b, double *y)
{
    switch (op) {
    case SY_OP_GREATER:
        *y = a > b;
        return SY_OK;
    case SY_OP_GREATER_OR_EQUAL:
        *y = a >= b;
        return SY_OK;
    case SY_OP_LESS:
        *y = a < b;
        return SY_OK;
    case SY_OP_LESS_OR_EQUAL:
        *y = a <= b;
        return SY_OK;
    default:
        return SY_EUNSUPPORTED;
    }
}

static int curve(enum sy_op op, double x, double *y)
{
    switch (op) {
    case SY_OP_SIN:
        *y = sin(x);
        return SY_OK;
    case SY_OP_COS:
        *y = cos(x);
        return SY_OK;
    case SY_OP_TANH:
        *y = tanh(x);
        return SY_OK;
    case SY_OP_SIGMOID:
        *y = 1 / (1 + exp(-x));
        return SY_OK;
    case SY_OP_ERF:
        *y = erf(x);
        return SY_OK;
    case SY_OP_SIGN:
        *y = isnan(x) ? x : (x > 0) - (x < 0);
        return SY_OK;
    case SY_OP_RELU:
        *y = x < 0 ? 0 : x;
        return SY_OK;
    default:
        return SY_EUNSUPPORTED;
    }
}

static int least_or_most(enum sy_op op, int n, const double *x, double *y)
{
    *y = x[0];
    for (int i = 1; i < n; i++) {
        if (isnan(x[i]) || isnan(*y))
            *y = NAN;
        else if ((x[i] < *y) == (op == SY_OP_MIN))
            *y = x[i];
    }
    return SY_OK;
}

/* In double, rounded once to the tensor's type: for + - * / sqrt that is the type's own result. */
static int compute(enum sy_op op, int n, const double *x, double *y)
{
    double a = x[0], b = n > 1 ? x[1] : 0;
    switch (op) {
    case SY_OP_ADD:
        *y = a + b;
        return SY_OK;
    case SY_OP_SUB:
        *y = a - b;
        return SY_OK;
    case SY_OP_MUL:
        *y = a * b;
        return SY_OK;
    case SY_OP_DIV:
        *y = a / b;
        return SY_OK;
    case SY_OP_POW:
        *y = pow(a, b);
        return SY_OK;
    case SY_OP_MIN:
    case SY_OP_MAX:
        return least_or_most(op, n, x, y);
    case SY_OP_EQUAL:
        *y = a == b;
        return SY_OK;
    case SY_OP_WHERE:
        *y = a != 0 ? b : x[2];
        return SY_OK;
    case SY_OP_CAST:
        *y = a;
        return SY_OK;
    case SY_OP_NEG:
        *y = -a;
        return SY_OK;
    case SY_OP_ABS:
        *y = fabs(a);
        return SY_OK;
    case SY_OP_SQRT:
        *y = sqrt(a);
        return SY_OK;
    case SY_OP_EXP:
        *y = exp(a);
        return SY_OK;
    case SY_OP_LOG:
        *y = log(a);
        return SY_OK;
    case SY_OP_RECIPROCAL:
        *y = 1 / a;
        return SY_OK;
    case SY_OP_FLOOR:
        *y = floor(a);
        return SY_OK;
    case SY_OP_CEIL:
        *y = ceil(a);
        return SY_OK;
    case SY_OP_ROUND:
        *y = nearbyint(a);
        return SY_OK;
    default:
        return curve(op, a, y) == SY_OK ? SY_OK : compare(op, a, b, y);
    }
}

int sy_fold_floats(const struct sy_node *node, const struct sy_block *inputs,
                   const enum sy_dtype *dtypes, const struct sy_block *out, enum sy_dtype dtype,
                   unsigned char *to)
{
    double x[3] = {0}, y;
    if (node->op == SY_OP_BATCH_NORM)
        return sy_fold_batch_norm(node, inputs, dtypes, out, to);
    if (!is_elementwise(node->op))
        return sy_fold_whole(node, &inputs[0], dtypes[0], out, to);
    if (node->n_inputs < 1 || node->n_inputs > 3)
        return SY_EUNSUPPORTED;
    for (int64_t i = 0; i < out->n; i++) {
        for (int k = 0; k < node->n_inputs; k++) {
            int64_t from = sy_block_offset(out, i, &inputs[k]);
            x[k] = sy_load_double(dtypes[k],
                                  inputs[k].data + (size_t)from * sy_dtype_bytes(dtypes[k]));
        }
        SY_TRY(compute(node->op, node->n_inputs, x, &y));
        sy_store_double(dtype, y, to + (size_t)i * sy_dtype_bytes(dtype));
    }
    return SY_OK;
}

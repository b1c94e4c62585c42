/* Folding of arithmetic on floats: small constant subgraphs. And elements of constants. */
#include <math.h>
#include <string.h>

#include "loader/shape/graph_infer.h"
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

bool sy_fold_is_elementwise(enum sy_op op)
{
    return sy_op_facts(op)->fold == SY_FOLD_ELEMENTS;
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
    if (!sy_fold_is_elementwise(node->op))
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

/* Folding of arithmetic on floats: small constant subgraphs. */
#include <math.h>
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

bool sy_fold_is_elementwise(enum sy_op op)
{
    return sy_op_facts(op)->fold == SY_FOLD_ELEMENTS;
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

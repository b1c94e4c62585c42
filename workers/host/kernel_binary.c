/* Two inputs and more, element by element, repeated as numpy does. */
#include "runtime/base/status.h"
#include "workers/host/kernel.h"

static double float_modulo(const struct sy_node *node, double a, double b)
{
    double rest = fmod(a, b);
    bool c_rule = sy_node_int(node, "fmod", 0) != 0;
    return !c_rule && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static double on_floats(const struct sy_node *node, double a, double b)
{
    switch (node->op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
    case SY_OP_MEAN:
        return a + b;
    case SY_OP_SUB:
        return a - b;
    case SY_OP_MUL:
        return a * b;
    case SY_OP_DIV:
        return a / b;
    case SY_OP_POW:
        return pow(a, b);
    case SY_OP_MAX:
        return isnan(a) || a > b ? a : b;
    case SY_OP_MIN:
        return isnan(a) || a < b ? a : b;
    case SY_OP_MOD:
        return float_modulo(node, a, b);
    case SY_OP_PRELU:
        return a < 0 ? a * b : a;
    case SY_OP_EQUAL:
        return a == b;
    case SY_OP_GREATER:
        return a > b;
    case SY_OP_GREATER_OR_EQUAL:
        return a >= b;
    case SY_OP_LESS:
        return a < b;
    default:
        return a <= b;
    }
}

/* Wraps around; a negative exponent gives 1 / a^-b, rounded toward zero. */
static int64_t power(int64_t a, int64_t b)
{
    uint64_t result = 1, factor = (uint64_t)a;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1, factor *= factor)
        result *= b & 1 ? factor : 1;
    return (int64_t)result;
}

/* x / 0 and x % 0 are open in ONNX; they must not trap. */
static int64_t quotient(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    return b == -1 ? (int64_t) - (uint64_t)a : a / b;
}

static int64_t modulo(const struct sy_node *node, int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    int64_t rest = a % b;
    bool c_rule = sy_node_int(node, "fmod", 0) != 0;
    return !c_rule && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t shift(const struct sy_node *node, int64_t a, int64_t b)
{
    const struct sy_attr *way = sy_node_attr(node, "direction");
    if (b < 0 || b > 63)
        return 0;
    return way && way->s && strcmp(way->s, "LEFT") == 0 ? (int64_t)((uint64_t)a << b)
                                                        : (int64_t)((uint64_t)a >> b);
}

static int64_t compare(enum sy_op op, int64_t a, int64_t b)
{
    switch (op) {
    case SY_OP_EQUAL:
        return a == b;
    case SY_OP_GREATER:
        return a > b;
    case SY_OP_GREATER_OR_EQUAL:
        return a >= b;
    case SY_OP_LESS:
        return a < b;
    default:
        return a <= b;
    }
}

static int64_t on_integers(const struct sy_node *node, int64_t a, int64_t b)
{
    switch (node->op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SY_OP_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case SY_OP_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SY_OP_PRELU:
        return a < 0 ? (int64_t)((uint64_t)a * (uint64_t)b) : a;
    case SY_OP_DIV:
        return quotient(a, b);
    case SY_OP_MOD:
        return modulo(node, a, b);
    case SY_OP_POW:
        return power(a, b);
    case SY_OP_MAX:
        return a > b ? a : b;
    case SY_OP_MIN:
        return a < b ? a : b;
    case SY_OP_AND:
        return a && b;
    case SY_OP_OR:
        return a || b;
    case SY_OP_XOR:
        return !a != !b;
    case SY_OP_BITWISE_AND:
        return a & b;
    case SY_OP_BITWISE_OR:
        return a | b;
    case SY_OP_BITWISE_XOR:
        return a ^ b;
    case SY_OP_BIT_SHIFT:
        return shift(node, a, b);
    default:
        return compare(node->op, a, b);
    }
}

static void apply(const struct sy_call *call, const struct sy_array *a, const struct sy_array *b)
{
    const struct sy_array *out = &call->out[0];
    int64_t sa[SY_MAX_RANK], sb[SY_MAX_RANK];
    bool floats = sy_is_float(a->dtype) || sy_is_float(b->dtype);
    sy_array_spread(a, out, sa);
    sy_array_spread(b, out, sb);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t ia = sy_array_offset(out, i, sa), ib = sy_array_offset(out, i, sb);
        if (floats)
            sy_put(out, i, on_floats(call->node, sy_get(a, ia), sy_get(b, ib)));
        else
            sy_put_int(out, i, on_integers(call->node, sy_get_int(a, ia), sy_get_int(b, ib)));
    }
}

static int run_pair(const struct sy_call *call)
{
    apply(call, &call->in[0], &call->in[1]);
    return SY_OK;
}

/* From the left, in the result's memory. */
static int run_many(const struct sy_call *call)
{
    const struct sy_array *out = &call->out[0];
    int64_t strides[SY_MAX_RANK];
    sy_array_spread(&call->in[0], out, strides);
    for (int64_t i = 0; i < out->n; i++)
        sy_array_copy(out, i, &call->in[0], sy_array_offset(out, i, strides));
    for (int k = 1; k < call->n_in; k++)
        apply(call, out, &call->in[k]);
    for (int64_t i = 0; call->node->op == SY_OP_MEAN && i < out->n; i++)
        sy_put(out, i, sy_get(out, i) / call->n_in);
    return SY_OK;
}

static int run_where(const struct sy_call *call)
{
    const struct sy_array *out = &call->out[0];
    int64_t strides[3][SY_MAX_RANK];
    for (int k = 0; k < 3; k++)
        sy_array_spread(&call->in[k], out, strides[k]);
    for (int64_t i = 0; i < out->n; i++) {
        int pick = sy_get_int(&call->in[0], sy_array_offset(out, i, strides[0])) ? 1 : 2;
        sy_array_copy(out, i, &call->in[pick], sy_array_offset(out, i, strides[pick]));
    }
    return SY_OK;
}

static int check_spread(const struct sy_call *call)
{
    int64_t strides[SY_MAX_RANK];
    for (int i = 0; i < call->n_in; i++)
        if (!sy_call_in(call, i) || !sy_array_spread(&call->in[i], &call->out[0], strides))
            return sy_kernel_refuse(call, "shapes that cannot be broadcast");
    return SY_OK;
}

static int check_pair(const struct sy_call *call)
{
    return call->n_in == 2 ? check_spread(call) : sy_kernel_refuse(call, "other than two inputs");
}

static int check_where(const struct sy_call *call)
{
    if (call->n_in != 3 || call->in[1].dtype != call->in[2].dtype ||
        call->out[0].dtype != call->in[1].dtype)
        return sy_kernel_refuse(call, "choices of different types");
    return check_spread(call);
}

/* The remainder of floats is defined with fmod only, but numpy's rule is what is meant otherwise. */
#define PAIR(op, types)                                      \
    {                                                        \
        op, run_pair, {types, SY_AS_FIRST}, check_pair, NULL \
    }
#define MANY(op, types)                                        \
    {                                                          \
        op, run_many, {types, SY_AS_FIRST}, check_spread, NULL \
    }
const struct sy_kernel sy_kernels_binary[] = {
    PAIR(SY_OP_ADD, SY_ANY_NUMBER),
    PAIR(SY_OP_SUB, SY_ANY_NUMBER),
    PAIR(SY_OP_MUL, SY_ANY_NUMBER),
    PAIR(SY_OP_DIV, SY_ANY_NUMBER),
    PAIR(SY_OP_MOD, SY_ANY_NUMBER),
    PAIR(SY_OP_PRELU, SY_ANY_NUMBER),
    PAIR(SY_OP_EQUAL, SY_ANY_TYPE),
    PAIR(SY_OP_GREATER, SY_ANY_NUMBER),
    PAIR(SY_OP_GREATER_OR_EQUAL, SY_ANY_NUMBER),
    PAIR(SY_OP_LESS, SY_ANY_NUMBER),
    PAIR(SY_OP_LESS_OR_EQUAL, SY_ANY_NUMBER),
    PAIR(SY_OP_AND, SY_BIT(BOOL)),
    PAIR(SY_OP_OR, SY_BIT(BOOL)),
    PAIR(SY_OP_XOR, SY_BIT(BOOL)),
    PAIR(SY_OP_BITWISE_AND, SY_ANY_INT),
    PAIR(SY_OP_BITWISE_OR, SY_ANY_INT),
    PAIR(SY_OP_BITWISE_XOR, SY_ANY_INT),
    PAIR(SY_OP_BIT_SHIFT, SY_ANY_INT),
    {SY_OP_POW, run_pair, {SY_ANY_NUMBER, SY_ANY_NUMBER}, check_pair, NULL},
    MANY(SY_OP_MIN, SY_ANY_NUMBER),
    MANY(SY_OP_MAX, SY_ANY_NUMBER),
    MANY(SY_OP_SUM, SY_ANY_NUMBER),
    MANY(SY_OP_MEAN, SY_ANY_FLOAT),
    {SY_OP_WHERE, run_where, {SY_BIT(BOOL), SY_ANY_TYPE}, check_where, NULL},
    {0}};

/* Two inputs and more, element by element, repeated as numpy does. */
#include "runtime/base/status.h"
#include "workers/host/kernel.h"
#include "workers/pair_formulas.h"

static struct sy_pair_rules rules_of(const struct sy_node *node)
{
    const struct sy_attr *way = sy_node_attr(node, "direction");
    return (struct sy_pair_rules){.op = node->op,
                                  .is_c_modulo = sy_node_int(node, "fmod", 0) != 0,
                                  .is_left = way && way->s && strcmp(way->s, "LEFT") == 0};
}

static void apply(const struct sy_call *call, const struct sy_array *a, const struct sy_array *b)
{
    const struct sy_array *out = &call->out[0];
    int64_t sa[SY_MAX_RANK], sb[SY_MAX_RANK];
    const struct sy_pair_rules rules = rules_of(call->node);
    bool floats = sy_is_float(a->dtype) || sy_is_float(b->dtype);
    sy_array_spread(a, out, sa);
    sy_array_spread(b, out, sb);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t ia = sy_array_offset(out, i, sa), ib = sy_array_offset(out, i, sb);
        if (floats)
            sy_put(out, i, sy_pair_of_floats(&rules, sy_get(a, ia), sy_get(b, ib)));
        else
            sy_put_int(out, i, sy_pair_of_integers(&rules, sy_get_int(a, ia), sy_get_int(b, ib)));
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

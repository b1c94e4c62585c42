/* Two inputs and more, element by element, repeated as numpy does. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/pair_formulas.h"
#include "workers/host/base/clones.h"
#include "workers/host/base/strings.h"
#include "workers/host/reference/kernel.h"

enum { PARALLEL_FROM = 16384, PIECE = 4096 /* elements that a thread takes at once */ };

static struct sy_pair_rules rules_of(const struct sy_node *node)
{
    const struct sy_attr *way = sy_node_attr(node, "direction");
    return (struct sy_pair_rules){.op = node->op,
                                  .is_c_modulo = sy_node_int(node, "fmod", 0) != 0,
                                  .is_left = way && way->s && strcmp(way->s, "LEFT") == 0};
}

#define FAR_QUOTIENT 1e8 /* up to it a * quotient is exact in double */

/* The rest of a / b with the sign of a, exactly; NaN unless a is finite and b is not 0. Its quotient may be one too large. */
SY_CLONES static bool rest_row(int64_t n, const float *restrict a, const float *restrict b,
                               int64_t of_b, float *restrict out)
{
    int far = 0;
#pragma omp simd reduction(+ : far)
    for (int64_t i = 0; i < n; i++) {
        double x = (double)a[i], y = fabs((double)b[i * of_b]), size = fabs(x);
        double quotient = trunc(size / y), rest = size - quotient * y;
        rest = rest < 0 ? rest + y : rest;
        out[i] = (float)copysign(rest, x);
        far += !(quotient < FAR_QUOTIENT) | !(y < INFINITY);
    }
    return far == 0;
}

/* Inlined where steps are constants: loops become vectors. */
static inline void logic_steps(enum sy_op op, int64_t n, const uint8_t *restrict a, int64_t of_a,
                               const uint8_t *restrict b, int64_t of_b, uint8_t *restrict out)
{
    for (int64_t i = 0; op == SY_OP_AND && i < n; i++)
        out[i] = (a[i * of_a] != 0) & (b[i * of_b] != 0);
    for (int64_t i = 0; op == SY_OP_OR && i < n; i++)
        out[i] = (a[i * of_a] | b[i * of_b]) != 0;
    for (int64_t i = 0; op == SY_OP_XOR && i < n; i++)
        out[i] = (a[i * of_a] != 0) ^ (b[i * of_b] != 0);
}

SY_CLONES static void logic_row(enum sy_op op, int64_t n, const uint8_t *a, int64_t of_a,
                                const uint8_t *b, int64_t of_b, uint8_t *out)
{
    if (of_a == 1 && of_b == 1)
        logic_steps(op, n, a, 1, b, 1, out);
    else if (of_a == 1 && of_b == 0)
        logic_steps(op, n, a, 1, b, 0, out);
    else if (of_a == 0 && of_b == 1)
        logic_steps(op, n, a, 0, b, 1, out);
    else
        logic_steps(op, n, a, of_a, b, of_b, out);
}

/* A row of floats with unit stride on the left, one or the same on the right. False: of something else, or it takes the library. */
static bool fast_row(const struct sy_pair_rules *rules, const struct sy_array *a, int64_t ia,
                     int64_t of_a, const struct sy_array *b, int64_t ib, int64_t of_b,
                     const struct sy_array *out, int64_t to, int64_t n)
{
    return rules->op == SY_OP_MOD && rules->is_c_modulo && a->dtype == SY_DTYPE_F32 &&
           b->dtype == SY_DTYPE_F32 && of_a == 1 && a->data != out->data &&
           rest_row(n, (const float *)a->data + ia, (const float *)b->data + ib, of_b,
                    (float *)out->data + to);
}

static void apply_row(const struct sy_pair_rules *rules, const struct sy_array *a, int64_t ia,
                      int64_t of_a, const struct sy_array *b, int64_t ib, int64_t of_b,
                      const struct sy_array *out, int64_t to, int64_t n)
{
    bool floats = sy_is_float(a->dtype) || sy_is_float(b->dtype);
    if (fast_row(rules, a, ia, of_a, b, ib, of_b, out, to, n))
        return;
    if (a->dtype == SY_DTYPE_STRING) { /* Equal */
        const struct sy_string *x = (const struct sy_string *)a->data + ia,
                               *y = (const struct sy_string *)b->data + ib;
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)out->data)[to + i] = sy_strings_equal(x[i * of_a], y[i * of_b]);
        return;
    }
    if (rules->op == SY_OP_AND || rules->op == SY_OP_OR || rules->op == SY_OP_XOR) {
        logic_row(rules->op, n, (const uint8_t *)a->data + ia, of_a, (const uint8_t *)b->data + ib,
                  of_b, (uint8_t *)out->data + to);
        return;
    }
    for (int64_t i = 0; i < n; i++, ia += of_a, ib += of_b, to++)
        if (floats)
            sy_put(out, to, sy_pair_of_floats(rules, sy_get(a, ia), sy_get(b, ib)));
        else
            sy_put_int(out, to, sy_pair_of_integers(rules, sy_get_int(a, ia), sy_get_int(b, ib)));
}

/* The last dimensions of an array as one: those over which both inputs go on by the same step. */
struct joined {
    int64_t n, of_a, of_b;
};

static struct joined join_last(const struct sy_array *out, const int64_t *sa, const int64_t *sb)
{
    struct joined j = {.n = 1};
    for (int d = out->rank - 1; d >= 0; d--) {
        if (out->dims[d] == 1)
            continue;
        if (j.n > 1 && (sa[d] != j.of_a * j.n || sb[d] != j.of_b * j.n))
            break;
        if (j.n == 1)
            j = (struct joined){1, sa[d], sb[d]};
        j.n *= out->dims[d];
    }
    return j;
}

static void apply(const struct sy_call *call, const struct sy_array *a, const struct sy_array *b)
{
    const struct sy_array *out = &call->out[0];
    int64_t sa[SY_MAX_RANK + 1] = {0}, sb[SY_MAX_RANK + 1] = {0};
    struct sy_pair_rules rules = rules_of(call->node);
    rules.is_unsigned = a->dtype == SY_DTYPE_U64;
    sy_array_broadcast_strides(a, out, sa);
    sy_array_broadcast_strides(b, out, sb);
    const struct joined j = join_last(out, sa, sb);
    int64_t rows = j.n > 0 ? out->n / j.n : 0, pieces = (j.n + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (out->n > PARALLEL_FROM)
    for (int64_t k = 0; k < rows * pieces; k++) {
        int64_t from = k % pieces * PIECE, row = k / pieces * j.n, n = SY_MIN(j.n - from, PIECE);
        apply_row(&rules, a, sy_array_offset(out, row, sa) + from * j.of_a, j.of_a, b,
                  sy_array_offset(out, row, sb) + from * j.of_b, j.of_b, out, row + from, n);
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
    sy_array_broadcast_strides(&call->in[0], out, strides);
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
        sy_array_broadcast_strides(&call->in[k], out, strides[k]);
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
        if (!sy_call_in(call, i) ||
            !sy_array_broadcast_strides(&call->in[i], &call->out[0], strides))
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
    PAIR(SY_OP_EQUAL, SY_ANY_MOVED),
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
    {SY_OP_WHERE, run_where, {SY_BIT(BOOL), SY_ANY_MOVED}, check_where, NULL},
    {0}};

/* The kernels that compute by formula (workers/cuda/each.h) beside the host engine's loops for the same node: random shapes, all types,
 * attributes, indices that meet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/engine_rig.h"
#include "tests/graph_builder.h"
#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels_each.h"
#include "workers/host/kernel.h"

#define ROUNDS 12

static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_F64, SY_DTYPE_F16, SY_DTYPE_BF16,
                                      SY_DTYPE_I64, SY_DTYPE_I32, SY_DTYPE_I8,  SY_DTYPE_U8};

static enum sy_dtype any_type(void)
{
    return types[kernel_between(0, 7)];
}

/* A node with its operands: the host's call, and what the kernel is given. */
struct trial {
    struct sy_graph *graph;
    struct sy_call call;
    struct kernel_tensor *in[SY_EACH_IN], *out[SY_EACH_OUT], *fault;
    struct sy_math_each each;
    bool copies_first;
};

static struct trial *start(enum sy_op op)
{
    struct trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->graph = gb_new(sy_op_name(op));
    (void)gb_node(t->graph, op, 0, NULL, 0, NULL);
    struct sy_node *node = &t->graph->nodes[0];
    node->residual_input = node->bias_input = -1;
    t->call.node = node;
    return t;
}

static struct kernel_tensor *place(struct sy_array *a, enum sy_dtype type, int rank,
                                   const int64_t *dims)
{
    *a = (struct sy_array){.dtype = type, .rank = rank, .n = kernel_elements(rank, dims)};
    memcpy(a->dims, dims, (size_t)rank * sizeof *dims);
    struct kernel_tensor *tensor = kernel_tensor(type, a->n);
    a->data = tensor->at;
    return tensor;
}

/* Numbers of which some are equal; integers from -4 to 12, or 0 to 1. */
static struct sy_array *operand(struct trial *t, enum sy_dtype type, int rank, const int64_t *dims)
{
    struct sy_array *a = &t->call.in[t->call.n_in];
    t->in[t->call.n_in++] = place(a, type, rank, dims);
    for (int64_t i = 0; i < a->n; i++)
        sy_put(a, i,
               type == SY_DTYPE_BOOL ? (double)kernel_between(0, 1)
               : sy_is_float(type)   ? (double)kernel_between(-30, 30) / 8
                                     : (double)kernel_between(type == SY_DTYPE_U8 ? 0 : -4, 12));
    return a;
}

static void absent(struct trial *t)
{
    t->call.in[t->call.n_in++] = (struct sy_array){.dtype = SY_DTYPE_NONE};
}

/* Between low and high, both included. */
static struct sy_array *indices(struct trial *t, int rank, const int64_t *dims, int64_t low,
                                int64_t high)
{
    struct sy_array *a = operand(t, kernel_between(0, 1) ? SY_DTYPE_I64 : SY_DTYPE_I32, rank, dims);
    for (int64_t i = 0; i < a->n; i++)
        sy_put_int(a, i, kernel_between(low, high));
    return a;
}

static void result(struct trial *t, enum sy_dtype type, int rank, const int64_t *dims)
{
    t->out[t->call.n_out] = place(&t->call.out[t->call.n_out], type, rank, dims);
    t->call.n_out++;
}

static int launch(void *arg)
{
    struct trial *t = arg;
    void *at[SY_EACH_ARRAYS] = {NULL};
    for (int i = 0; i < SY_EACH_IN; i++)
        at[i] = KERNEL_AT(t->in[i]);
    for (int i = 0; i < SY_EACH_OUT; i++)
        at[SY_EACH_IN + i] = KERNEL_AT(t->out[i]);
    return sy_kernel_each(kernel_stream, &t->each, at, t->fault->device);
}

static void describe(struct trial *t)
{
    t->each.n_in = t->call.n_in;
    t->each.n_out = t->call.n_out;
    t->each.step = 7;
    for (int i = 0; i < SY_EACH_ARRAYS; i++) {
        const struct sy_array *a = i < SY_EACH_IN ? &t->call.in[i] : &t->call.out[i - SY_EACH_IN];
        t->each.at[i] = (struct sy_each_array){.dtype = a->dtype, .rank = a->rank};
        memcpy(t->each.at[i].dims, a->dims, sizeof a->dims);
    }
    if (sy_each_describe(t->call.node, &t->each, &t->copies_first) < 0)
        fail_msg("%s", sy_error_text());
}

/* The host's results, in memory of their own. */
static void compute(struct trial *t, struct sy_array *want)
{
    const struct sy_kernel *kernel = sy_kernel_find(t->call.node->op);
    struct sy_call call = t->call;
    call.scratch = kernel->scratch ? malloc((size_t)kernel->scratch(&call) + 1) : NULL;
    for (int i = 0; i < call.n_out; i++) {
        call.out[i].data = malloc((size_t)call.out[i].n * 8 + 1);
        want[i] = call.out[i];
    }
    if (kernel->run(&call) < 0)
        fail_msg("%s", sy_error_text());
    free(call.scratch);
}

/* The kernel beside the host's loops, and the end of the trial. */
static void check(struct trial *t)
{
    struct sy_array want[SY_EACH_OUT];
    t->fault = kernel_tensor(SY_DTYPE_I64, 2);
    memset(t->fault->at, 0, 16);
    describe(t);
    compute(t, want);
    if (t->copies_first)
        memcpy(t->out[0]->at, t->in[0]->at, (size_t)t->in[0]->n * sy_dtype_bytes(t->in[0]->type));
    kernel_run(launch, t);
    assert_int_equal(((struct sy_math_fault *)t->fault->at)->step, 0);
    for (int o = 0; o < t->call.n_out; o++) {
        for (int64_t i = 0; i < want[o].n; i++) {
            double a = sy_get(&t->call.out[o], i), b = sy_get(&want[o], i);
            double unit = want[o].dtype == SY_DTYPE_BF16  ? 0.01
                          : want[o].dtype == SY_DTYPE_F16 ? 0.002
                                                          : 1e-6;
            bool floats = sy_is_float(want[o].dtype);
            bool same =
                floats ? a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= unit * (1 + fabs(b))
                       : sy_get_int(&t->call.out[o], i) == sy_get_int(&want[o], i);
            if (!same)
                fail_msg("%s: result %d[%lld] of %lld is %.9g, not %.9g",
                         sy_op_name(t->call.node->op), o, (long long)i, (long long)want[o].n, a, b);
        }
        free(want[o].data);
    }
    sy_graph_free(t->graph);
    free(t);
    kernel_end(NULL);
}

/* ---- elements ------------------------------------------------------------------------------------------ */

static void test_one_input(void **state)
{
    static const enum sy_op ops[] = {
        SY_OP_RELU,     SY_OP_NEG,  SY_OP_ABS,        SY_OP_SIGN,   SY_OP_LEAKY_RELU,
        SY_OP_SIGMOID,  SY_OP_TANH, SY_OP_ERF,        SY_OP_CLIP,   SY_OP_ELU,
        SY_OP_EXP,      SY_OP_CEIL, SY_OP_FLOOR,      SY_OP_ROUND,  SY_OP_GELU,
        SY_OP_SOFTPLUS, SY_OP_MISH, SY_OP_HARD_SWISH, SY_OP_SELU,   SY_OP_CELU,
        SY_OP_SIN,      SY_OP_ATAN, SY_OP_SHRINK,     SY_OP_IS_NAN, SY_OP_IS_INF};
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(ops); k++)
        for (int round = 0; round < 4; round++) {
            bool whole = k < 4, says = ops[k] == SY_OP_IS_NAN || ops[k] == SY_OP_IS_INF;
            enum sy_dtype type = whole ? any_type() : types[round];
            struct trial *t = start(ops[k]);
            int64_t n = kernel_between(0, 700);
            struct sy_array *x = operand(t, type, 1, &n);
            for (int64_t i = 0; sy_is_float(type) && i + 3 < n; i += 37) {
                sy_put(x, i, NAN);
                sy_put(x, i + 1, INFINITY);
                sy_put(x, i + 2, -INFINITY);
            }
            result(t, says ? SY_DTYPE_BOOL : type, 1, &n);
            check(t);
        }
}

static void test_casts(void **state)
{
    (void)state;
    for (int from = 0; from < 9; from++)
        for (int to = 0; to < 9; to++) {
            struct trial *t = start(SY_OP_CAST);
            int64_t n = kernel_between(1, 300);
            (void)operand(t, from < 8 ? types[from] : SY_DTYPE_BOOL, 1, &n);
            result(t, to < 8 ? types[to] : SY_DTYPE_BOOL, 1, &n);
            check(t);
        }
}

/* Dims of which some are one. */
static void shrunk(int rank, const int64_t *dims, int64_t *out)
{
    for (int d = 0; d < rank; d++)
        out[d] = kernel_between(0, 2) ? dims[d] : 1;
}

static void test_pairs(void **state)
{
    static const enum sy_op ops[] = {
        SY_OP_ADD,         SY_OP_SUB,         SY_OP_MUL,      SY_OP_DIV,   SY_OP_POW,
        SY_OP_MOD,         SY_OP_MIN,         SY_OP_MAX,      SY_OP_EQUAL, SY_OP_LESS,
        SY_OP_PRELU,       SY_OP_AND,         SY_OP_OR,       SY_OP_XOR,   SY_OP_BITWISE_OR,
        SY_OP_BITWISE_AND, SY_OP_BITWISE_XOR, SY_OP_BIT_SHIFT};
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(ops); k++)
        for (int round = 0; round < 8; round++) {
            struct trial *t = start(ops[k]);
            int64_t dims[3], a[3], b[3];
            enum sy_dtype type = k < 11   ? types[round]
                                 : k < 14 ? SY_DTYPE_BOOL
                                          : types[4 + round % 4];
            kernel_dims(3, 9, dims);
            shrunk(3, dims, b);
            memcpy(a, dims, sizeof a);
            (void)operand(t, type, 3, a);
            (void)operand(t, type, 2, b + 1);
            if (ops[k] == SY_OP_BIT_SHIFT)
                gb_string(t->graph, "direction", round % 2 ? "LEFT" : "RIGHT");
            bool compares = ops[k] == SY_OP_EQUAL || ops[k] == SY_OP_LESS;
            result(t, compares ? SY_DTYPE_BOOL : type, 3, dims);
            check(t);
        }
}

static void test_many_and_where(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct trial *t = start(round % 3 ? SY_OP_MEAN : SY_OP_WHERE);
        int64_t dims[3], some[3];
        enum sy_dtype type = round % 3 ? types[round % 4] : any_type();
        kernel_dims(3, 9, dims);
        for (int i = 0; i < 3; i++) {
            shrunk(3, dims, some);
            (void)operand(t, round % 3 || i > 0 ? type : SY_DTYPE_BOOL, 3, i == 2 ? dims : some);
        }
        result(t, type, 3, dims);
        check(t);
    }
}

/* ---- by index ------------------------------------------------------------------------------------------ */

static void test_along_an_axis(void **state)
{
    static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        bool scatters = round % 4 > 0;
        struct trial *t = start(scatters ? SY_OP_SCATTER_ELEMENTS : SY_OP_GATHER_ELEMENTS);
        enum sy_dtype type = any_type();
        int64_t dims[3], some[3], axis = kernel_between(0, 2);
        kernel_dims(3, 7, dims);
        for (int d = 0; d < 3; d++) {
            dims[d] = dims[d] ? dims[d] : 1;
            some[d] = d == axis ? kernel_between(1, 12) : kernel_between(1, dims[d]);
        }
        (void)operand(t, type, 3, dims);
        (void)indices(t, 3, some, -dims[axis], dims[axis] - 1);
        gb_int(t->graph, "axis", axis);
        if (scatters) {
            (void)operand(t, type, 3, some);
            gb_string(t->graph, "reduction", reductions[kernel_between(0, 4)]);
        }
        result(t, type, 3, scatters ? dims : some);
        check(t);
    }
}

static void test_tuples(void **state)
{
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        bool scatters = round % 2;
        struct trial *t = start(scatters ? SY_OP_SCATTER_ND : SY_OP_GATHER_ND);
        enum sy_dtype type = any_type();
        int64_t dims[4], depth = kernel_between(1, 3), batch = scatters ? 0 : kernel_between(0, 1);
        int64_t least = 6, of[3] = {kernel_between(1, 3), kernel_between(1, 9), depth}, out[6];
        for (int d = 0; d < 4; d++) {
            dims[d] = d == 0 && batch ? of[0] : kernel_between(1, 6);
            if (d >= batch && d < batch + depth)
                least = SY_MIN(least, dims[d]);
        }
        (void)operand(t, type, 4, dims);
        (void)indices(t, 3, of, -least, least - 1);
        int rank = 2;
        memcpy(out, of, 2 * sizeof *out);
        for (int64_t d = batch + depth; d < 4; d++)
            out[rank++] = dims[d];
        if (scatters) {
            (void)operand(t, type, rank, out);
            gb_string(t->graph, "reduction", round % 4 == 1 ? "none" : "add");
            result(t, type, 4, dims);
        } else {
            gb_int(t->graph, "batch_dims", batch);
            result(t, type, rank, out);
        }
        check(t);
    }
}

static void test_masks_and_moves(void **state)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        static const enum sy_op ops[] = {SY_OP_TRILU,   SY_OP_PAD,     SY_OP_REVERSE_SEQUENCE,
                                         SY_OP_ONE_HOT, SY_OP_CUM_SUM, SY_OP_RANGE};
        enum sy_op op = ops[round % 6];
        struct trial *t = start(op);
        enum sy_dtype type = op == SY_OP_RANGE ? types[round % 2 ? 0 : 4] : any_type();
        int64_t dims[3] = {kernel_between(2, 7), kernel_between(2, 8), kernel_between(2, 9)},
                one = 1;
        int64_t out[3] = {dims[0], dims[1], dims[2]};
        if (op == SY_OP_TRILU) {
            (void)operand(t, type, 3, dims);
            struct sy_array *k = operand(t, SY_DTYPE_I64, 1, &one);
            sy_put_int(k, 0, kernel_between(-9, 9));
            gb_int(t->graph, "upper", kernel_between(0, 1));
        } else if (op == SY_OP_PAD) {
            int64_t pads[6];
            for (int d = 0; d < 3; d++) {
                pads[d] = kernel_between(-1, 3);
                pads[d + 3] = kernel_between(0, 12);
                out[d] = dims[d] + pads[d] + pads[d + 3];
            }
            (void)operand(t, type, 3, dims);
            gb_ints(t->graph, "pads", 6, pads);
            gb_string(t->graph, "mode", modes[kernel_between(0, 3)]);
        } else if (op == SY_OP_REVERSE_SEQUENCE) {
            bool late = kernel_between(0, 1);
            (void)operand(t, type, 3, dims);
            struct sy_array *lengths = operand(t, SY_DTYPE_I64, 1, &dims[late ? 0 : 1]);
            for (int64_t i = 0; i < lengths->n; i++)
                sy_put_int(lengths, i, kernel_between(0, dims[late ? 1 : 0]));
            gb_int(t->graph, "batch_axis", late ? 0 : 1);
            gb_int(t->graph, "time_axis", late ? 1 : 0);
        } else if (op == SY_OP_ONE_HOT) {
            int64_t two = 2;
            (void)indices(t, 2, dims, -out[2], out[2]);
            struct sy_array *depth = operand(t, SY_DTYPE_I64, 1, &one);
            sy_put_int(depth, 0, out[2]);
            (void)operand(t, type, 1, &two);
        } else if (op == SY_OP_CUM_SUM) {
            (void)operand(t, type, 3, dims);
            struct sy_array *axis = operand(t, SY_DTYPE_I32, 1, &one);
            sy_put_int(axis, 0, kernel_between(-3, 2));
            gb_int(t->graph, "exclusive", kernel_between(0, 1));
            gb_int(t->graph, "reverse", kernel_between(0, 1));
        } else {
            for (int i = 0; i < 3; i++)
                (void)operand(t, type, 0, dims);
            sy_put(&t->call.in[0], 0, 3);
            sy_put(&t->call.in[1], 0, 24);
            sy_put(&t->call.in[2], 0, 2);
            out[0] = 11;
        }
        result(t, type, op == SY_OP_RANGE ? 1 : 3, out);
        check(t);
    }
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static void test_lines(void **state)
{
    static const enum sy_op ops[] = {SY_OP_ARG_MAX,     SY_OP_ARG_MIN,
                                     SY_OP_TOP_K,       SY_OP_HARDMAX,
                                     SY_OP_LP_NORM,     SY_OP_SOFTMAX,
                                     SY_OP_REDUCE_MAX,  SY_OP_REDUCE_SUM,
                                     SY_OP_REDUCE_L2,   SY_OP_REDUCE_LOG_SUM_EXP,
                                     SY_OP_REDUCE_MEAN, SY_OP_REDUCE_PROD};
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        enum sy_op op = ops[round % 12];
        bool floats = op == SY_OP_HARDMAX || op == SY_OP_LP_NORM || op == SY_OP_SOFTMAX;
        struct trial *t = start(op);
        enum sy_dtype type = floats ? types[round / 12] : any_type();
        int64_t dims[3] = {kernel_between(1, 4), kernel_between(1, 5), kernel_between(1, 300)},
                one = 1;
        int64_t axis = kernel_between(0, 2), out[3] = {dims[0], dims[1], dims[2]};
        (void)operand(t, type, 3, dims);
        if (round % 12 >= 6)
            gb_ints(t->graph, "axes", 1, &axis);
        else
            gb_int(t->graph, "axis", axis);
        if (op == SY_OP_TOP_K) {
            out[axis] = kernel_between(1, dims[axis]);
            struct sy_array *k = operand(t, SY_DTYPE_I64, 1, &one);
            sy_put_int(k, 0, out[axis]);
            gb_int(t->graph, "largest", kernel_between(0, 1));
        } else if (!floats) {
            out[axis] = 1;
            gb_int(t->graph, "keepdims", 1);
        }
        bool says = op == SY_OP_ARG_MAX || op == SY_OP_ARG_MIN;
        if (says)
            gb_int(t->graph, "select_last_index", kernel_between(0, 1));
        result(t, says ? SY_DTYPE_I64 : type, 3, out);
        if (op == SY_OP_TOP_K)
            result(t, SY_DTYPE_I64, 3, out);
        check(t);
    }
}

static void test_resizing(void **state)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"},
                             *const places[] = {"half_pixel", "asymmetric", "align_corners",
                                                "pytorch_half_pixel", "half_pixel_symmetric"},
                             *const rounding[] = {"round_prefer_floor", "floor", "ceil",
                                                  "round_prefer_ceil"};
    (void)state;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        struct trial *t = start(SY_OP_RESIZE);
        enum sy_dtype type = round % 3 ? SY_DTYPE_F32 : types[round % 4];
        int64_t dims[4] = {2, 3, kernel_between(1, 6), kernel_between(1, 7)}, four = 4;
        int64_t out[4] = {2, 3, kernel_between(1, 13), kernel_between(1, 13)};
        (void)operand(t, type, 4, dims);
        absent(t);
        absent(t);
        struct sy_array *sizes = operand(t, SY_DTYPE_I64, 1, &four);
        for (int d = 0; d < 4; d++)
            sy_put_int(sizes, d, out[d]);
        gb_string(t->graph, "mode", modes[round % 3]);
        gb_string(t->graph, "coordinate_transformation_mode", places[kernel_between(0, 4)]);
        gb_string(t->graph, "nearest_mode", rounding[kernel_between(0, 3)]);
        gb_int(t->graph, "exclude_outside", kernel_between(0, 1));
        result(t, type, 4, out);
        check(t);
    }
}

static void test_products(void **state)
{
    static const struct {
        const char *equation;
        int rank[2], labels[2][4], n_out, out[4];
    } cases[] = {{"bij,bjk->bik", {3, 3}, {{0, 1, 2}, {0, 2, 3}}, 3, {0, 1, 3}},
                 {"ij,kj->ik", {2, 2}, {{0, 1}, {2, 1}}, 2, {0, 2}},
                 {"i,j->ij", {1, 1}, {{0}, {1}}, 2, {0, 1}},
                 {"bhqd,bhkd->bhqk", {4, 4}, {{0, 1, 2, 3}, {0, 1, 4, 3}}, 4, {0, 1, 2, 4}}};
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int which = round % 4;
        struct trial *t = start(SY_OP_EINSUM);
        enum sy_dtype type = any_type();
        int64_t sizes[5], dims[4];
        for (int i = 0; i < 5; i++)
            sizes[i] = kernel_between(1, 6);
        for (int k = 0; k < 2; k++) {
            for (int d = 0; d < cases[which].rank[k]; d++)
                dims[d] = sizes[cases[which].labels[k][d]];
            (void)operand(t, type, cases[which].rank[k], dims);
        }
        for (int d = 0; d < cases[which].n_out; d++)
            dims[d] = sizes[cases[which].out[d]];
        gb_string(t->graph, "equation", cases[which].equation);
        result(t, type, cases[which].n_out, dims);
        check(t);
    }
}

static void test_eight_bits(void **state)
{
    (void)state;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        bool to = round % 3 == 0, back = round % 3 == 1;
        struct trial *t = start(to     ? SY_OP_QUANTIZE_LINEAR
                                : back ? SY_OP_DEQUANTIZE_LINEAR
                                       : SY_OP_MATMUL_INTEGER);
        enum sy_dtype type = round % 2 ? SY_DTYPE_I8 : SY_DTYPE_U8;
        int64_t dims[3] = {kernel_between(1, 4), kernel_between(1, 9), kernel_between(1, 9)},
                one = 1;
        int64_t right[2] = {dims[2], kernel_between(1, 5)}, out[3] = {dims[0], dims[1], right[1]};
        (void)operand(t, to ? SY_DTYPE_F32 : type, 3, dims);
        if (to || back) {
            struct sy_array *scale = operand(t, SY_DTYPE_F32, 1, &dims[1]);
            for (int64_t i = 0; i < scale->n; i++)
                sy_put(scale, i, 0.05 + kernel_uniform() * 0.04);
            (void)operand(t, type, 1, &dims[1]);
            gb_int(t->graph, "axis", 1);
            result(t, to ? type : SY_DTYPE_F32, 3, dims);
        } else {
            (void)operand(t, SY_DTYPE_U8, 2, right);
            (void)operand(t, type, 1, &one);
            (void)operand(t, SY_DTYPE_U8, 1, &one);
            result(t, SY_DTYPE_I32, 3, out);
        }
        check(t);
    }
}

static void test_windows(void **state)
{
    static const enum sy_op ops[] = {SY_OP_MAX_POOL, SY_OP_AVERAGE_POOL, SY_OP_LP_POOL, SY_OP_LRN};
    (void)state;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        enum sy_op op = ops[round % 4];
        struct trial *t = start(op);
        enum sy_dtype type = op == SY_OP_MAX_POOL ? any_type() : types[round % 3];
        int64_t kernel[2], strides[2], pads[4], dims[4] = {2, 5, 0, 0}, out[4] = {2, 5, 0, 0};
        for (int d = 0; d < 2; d++) {
            kernel[d] = kernel_between(1, 3);
            strides[d] = kernel_between(1, 2);
            pads[d] = pads[d + 2] = kernel[d] > 1;
            dims[2 + d] = kernel_between(3, 8);
            out[2 + d] = (dims[2 + d] + 2 * pads[d] - kernel[d]) / strides[d] + 1;
        }
        (void)operand(t, type, 4, dims);
        gb_ints(t->graph, "kernel_shape", 2, kernel);
        gb_ints(t->graph, "strides", 2, strides);
        gb_ints(t->graph, "pads", 4, pads);
        gb_int(t->graph, "count_include_pad", kernel_between(0, 1));
        gb_int(t->graph, "storage_order", kernel_between(0, 1));
        gb_int(t->graph, "size", kernel_between(1, 7));
        result(t, type, 4, op == SY_OP_LRN ? dims : out);
        if (op == SY_OP_MAX_POOL)
            result(t, SY_DTYPE_I64, 4, out);
        check(t);
    }
}

static void test_samples(void **state)
{
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"}, *const paddings[] = {
                                                                               "zeros", "border",
                                                                               "reflection"};
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = start(SY_OP_GRID_SAMPLE);
        int64_t dims[4] = {2, 3, kernel_between(1, 6), kernel_between(1, 6)},
                grid[4] = {2, kernel_between(1, 5), kernel_between(1, 5), 2},
                out[4] = {2, 3, grid[1], grid[2]};
        (void)operand(t, SY_DTYPE_F32, 4, dims);
        (void)operand(t, SY_DTYPE_F32, 4, grid);
        gb_string(t->graph, "mode", modes[round % 3]);
        gb_string(t->graph, "padding_mode", paddings[round / 3 % 3]);
        gb_int(t->graph, "align_corners", kernel_between(0, 1));
        result(t, SY_DTYPE_F32, 4, out);
        check(t);
    }
}

/* What is outside is told with the step's number, and nothing outside is read or written. */
static void test_an_index_outside(void **state)
{
    (void)state;
    for (int scatters = 0; scatters < 2; scatters++) {
        struct trial *t = start(scatters ? SY_OP_SCATTER_ND : SY_OP_GATHER_ND);
        int64_t dims[2] = {4, 3}, of[2] = {2, 1}, out[2] = {2, 3};
        (void)operand(t, SY_DTYPE_F32, 2, dims);
        struct sy_array *at = indices(t, 2, of, 0, 3);
        sy_put_int(at, 1, 4);
        if (scatters)
            (void)operand(t, SY_DTYPE_F32, 2, out);
        result(t, SY_DTYPE_F32, 2, scatters ? dims : out);
        t->fault = kernel_tensor(SY_DTYPE_I64, 2);
        memset(t->fault->at, 0, 16);
        describe(t);
        memset(t->out[0]->at, 0, (size_t)t->out[0]->n * 4);
        kernel_run(launch, t);
        assert_int_equal(((struct sy_math_fault *)t->fault->at)->step, 7);
        assert_int_equal(((struct sy_math_fault *)t->fault->at)->index, 4);
        sy_graph_free(t->graph);
        free(t);
        kernel_end(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_input),       cmocka_unit_test(test_casts),
        cmocka_unit_test(test_pairs),           cmocka_unit_test(test_many_and_where),
        cmocka_unit_test(test_along_an_axis),   cmocka_unit_test(test_tuples),
        cmocka_unit_test(test_masks_and_moves), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_resizing),        cmocka_unit_test(test_products),
        cmocka_unit_test(test_eight_bits),      cmocka_unit_test(test_windows),
        cmocka_unit_test(test_samples),         cmocka_unit_test(test_an_index_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

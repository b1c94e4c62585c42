/* The kernels that compute by formula (workers/cuda/math/generic.h) beside the host engine's loops for the same node: random shapes, all types,
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
#include "tests/on_cpu/generic_trial.h"
#include "tests/on_cpu/kernel_rig.h"
#include "tests/rigs/engine_rig.h"

#define ROUNDS 12

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
            enum sy_dtype type = whole ? trial_any_type() : trial_types[round];
            struct trial *t = trial_start(ops[k]);
            int64_t n = kernel_between(0, 700);
            struct sy_array *x = trial_operand(t, type, 1, &n);
            for (int64_t i = 0; sy_is_float(type) && i + 3 < n; i += 37) {
                sy_put(x, i, NAN);
                sy_put(x, i + 1, INFINITY);
                sy_put(x, i + 2, -INFINITY);
            }
            trial_result(t, says ? SY_DTYPE_BOOL : type, 1, &n);
            trial_check(t);
        }
}

static void test_casts(void **state)
{
    (void)state;
    for (int from = 0; from < 9; from++)
        for (int to = 0; to < 9; to++) {
            struct trial *t = trial_start(SY_OP_CAST);
            int64_t n = kernel_between(1, 300);
            (void)trial_operand(t, from < 8 ? trial_types[from] : SY_DTYPE_BOOL, 1, &n);
            trial_result(t, to < 8 ? trial_types[to] : SY_DTYPE_BOOL, 1, &n);
            trial_check(t);
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
            struct trial *t = trial_start(ops[k]);
            int64_t dims[3], a[3], b[3];
            enum sy_dtype type = k < 11   ? trial_types[round]
                                 : k < 14 ? SY_DTYPE_BOOL
                                          : trial_types[4 + round % 4];
            kernel_dims(3, 9, dims);
            shrunk(3, dims, b);
            memcpy(a, dims, sizeof a);
            (void)trial_operand(t, type, 3, a);
            (void)trial_operand(t, type, 2, b + 1);
            if (ops[k] == SY_OP_BIT_SHIFT)
                gb_string(t->graph, "direction", round % 2 ? "LEFT" : "RIGHT");
            bool compares = ops[k] == SY_OP_EQUAL || ops[k] == SY_OP_LESS;
            trial_result(t, compares ? SY_DTYPE_BOOL : type, 3, dims);
            trial_check(t);
        }
}

/* Of 16 bits, and without a sign. */
static void test_other_integers(void **state)
{
    static const enum sy_dtype types[] = {SY_DTYPE_I16, SY_DTYPE_U16, SY_DTYPE_U32, SY_DTYPE_U64};
    static const enum sy_op ops[] = {SY_OP_ADD,         SY_OP_MUL,      SY_OP_MIN,  SY_OP_MAX,
                                     SY_OP_MOD,         SY_OP_DIV,      SY_OP_LESS, SY_OP_EQUAL,
                                     SY_OP_BITWISE_AND, SY_OP_BIT_SHIFT};
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(ops); k++)
        for (int round = 0; round < 4; round++) {
            if (ops[k] == SY_OP_BIT_SHIFT && round == 0)
                continue; /* unsigned only */
            struct trial *t = trial_start(ops[k]);
            int64_t dims[2];
            kernel_dims(2, 9, dims);
            (void)trial_operand(t, types[round], 2, dims);
            (void)trial_operand(t, types[round], 2, dims);
            if (ops[k] == SY_OP_BIT_SHIFT)
                gb_string(t->graph, "direction", round % 2 ? "LEFT" : "RIGHT");
            bool compares = ops[k] == SY_OP_LESS || ops[k] == SY_OP_EQUAL;
            trial_result(t, compares ? SY_DTYPE_BOOL : types[round], 2, dims);
            trial_check(t);
        }
}

static void test_many_and_where(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct trial *t = trial_start(round % 3 ? SY_OP_MEAN : SY_OP_WHERE);
        int64_t dims[3], some[3];
        enum sy_dtype type = round % 3 ? trial_types[round % 4] : trial_any_type();
        kernel_dims(3, 9, dims);
        for (int i = 0; i < 3; i++) {
            shrunk(3, dims, some);
            (void)trial_operand(t, round % 3 || i > 0 ? type : SY_DTYPE_BOOL, 3,
                                i == 2 ? dims : some);
        }
        trial_result(t, type, 3, dims);
        trial_check(t);
    }
}

/* ---- by index ------------------------------------------------------------------------------------------ */

static void test_along_an_axis(void **state)
{
    static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        bool scatters = round % 4 > 0;
        struct trial *t = trial_start(scatters ? SY_OP_SCATTER_ELEMENTS : SY_OP_GATHER_ELEMENTS);
        enum sy_dtype type = trial_any_type();
        int64_t dims[3], some[3], axis = kernel_between(0, 2);
        kernel_dims(3, 7, dims);
        for (int d = 0; d < 3; d++) {
            dims[d] = dims[d] ? dims[d] : 1;
            some[d] = d == axis ? kernel_between(1, 12) : kernel_between(1, dims[d]);
        }
        (void)trial_operand(t, type, 3, dims);
        (void)trial_indices(t, 3, some, -dims[axis], dims[axis] - 1);
        gb_int(t->graph, "axis", axis);
        if (scatters) {
            (void)trial_operand(t, type, 3, some);
            gb_string(t->graph, "reduction", reductions[kernel_between(0, 4)]);
        }
        trial_result(t, type, 3, scatters ? dims : some);
        trial_check(t);
    }
}

static void test_tuples(void **state)
{
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        bool scatters = round % 2;
        struct trial *t = trial_start(scatters ? SY_OP_SCATTER_ND : SY_OP_GATHER_ND);
        enum sy_dtype type = trial_any_type();
        int64_t dims[4], depth = kernel_between(1, 3), batch = scatters ? 0 : kernel_between(0, 1);
        int64_t least = 6, of[3] = {kernel_between(1, 3), kernel_between(1, 9), depth}, out[6];
        for (int d = 0; d < 4; d++) {
            dims[d] = d == 0 && batch ? of[0] : kernel_between(1, 6);
            if (d >= batch && d < batch + depth)
                least = SY_MIN(least, dims[d]);
        }
        (void)trial_operand(t, type, 4, dims);
        (void)trial_indices(t, 3, of, -least, least - 1);
        int rank = 2;
        memcpy(out, of, 2 * sizeof *out);
        for (int64_t d = batch + depth; d < 4; d++)
            out[rank++] = dims[d];
        if (scatters) {
            (void)trial_operand(t, type, rank, out);
            gb_string(t->graph, "reduction", round % 4 == 1 ? "none" : "add");
            trial_result(t, type, 4, dims);
        } else {
            gb_int(t->graph, "batch_dims", batch);
            trial_result(t, type, rank, out);
        }
        trial_check(t);
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
        struct trial *t = trial_start(op);
        enum sy_dtype type = op == SY_OP_RANGE ? trial_types[round % 2 ? 0 : 4] : trial_any_type();
        int64_t dims[3] = {kernel_between(2, 7), kernel_between(2, 8), kernel_between(2, 9)},
                one = 1;
        int64_t out[3] = {dims[0], dims[1], dims[2]};
        if (op == SY_OP_TRILU) {
            (void)trial_operand(t, type, 3, dims);
            struct sy_array *k = trial_operand(t, SY_DTYPE_I64, 1, &one);
            sy_put_int(k, 0, kernel_between(-9, 9));
            gb_int(t->graph, "upper", kernel_between(0, 1));
        } else if (op == SY_OP_PAD) {
            int64_t pads[6];
            for (int d = 0; d < 3; d++) {
                pads[d] = kernel_between(-1, 3);
                pads[d + 3] = kernel_between(0, 12);
                out[d] = dims[d] + pads[d] + pads[d + 3];
            }
            (void)trial_operand(t, type, 3, dims);
            gb_ints(t->graph, "pads", 6, pads);
            gb_string(t->graph, "mode", modes[kernel_between(0, 3)]);
        } else if (op == SY_OP_REVERSE_SEQUENCE) {
            bool late = kernel_between(0, 1);
            (void)trial_operand(t, type, 3, dims);
            struct sy_array *lengths = trial_operand(t, SY_DTYPE_I64, 1, &dims[late ? 0 : 1]);
            for (int64_t i = 0; i < lengths->n; i++)
                sy_put_int(lengths, i, kernel_between(0, dims[late ? 1 : 0]));
            gb_int(t->graph, "batch_axis", late ? 0 : 1);
            gb_int(t->graph, "time_axis", late ? 1 : 0);
        } else if (op == SY_OP_ONE_HOT) {
            int64_t two = 2;
            (void)trial_indices(t, 2, dims, -out[2], out[2]);
            struct sy_array *depth = trial_operand(t, SY_DTYPE_I64, 1, &one);
            sy_put_int(depth, 0, out[2]);
            (void)trial_operand(t, type, 1, &two);
        } else if (op == SY_OP_CUM_SUM) {
            (void)trial_operand(t, type, 3, dims);
            struct sy_array *axis = trial_operand(t, SY_DTYPE_I32, 1, &one);
            sy_put_int(axis, 0, kernel_between(-3, 2));
            gb_int(t->graph, "exclusive", kernel_between(0, 1));
            gb_int(t->graph, "reverse", kernel_between(0, 1));
        } else {
            for (int i = 0; i < 3; i++)
                (void)trial_operand(t, type, 0, dims);
            sy_put(&t->call.in[0], 0, 3);
            sy_put(&t->call.in[1], 0, 24);
            sy_put(&t->call.in[2], 0, 2);
            out[0] = 11;
        }
        trial_result(t, type, op == SY_OP_RANGE ? 1 : 3, out);
        trial_check(t);
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
        struct trial *t = trial_start(op);
        enum sy_dtype type = floats ? trial_types[round / 12] : trial_any_type();
        int64_t dims[3] = {kernel_between(1, 4), kernel_between(1, 5), kernel_between(1, 300)},
                one = 1;
        int64_t axis = kernel_between(0, 2), out[3] = {dims[0], dims[1], dims[2]};
        (void)trial_operand(t, type, 3, dims);
        if (round % 12 >= 6)
            gb_ints(t->graph, "axes", 1, &axis);
        else
            gb_int(t->graph, "axis", axis);
        if (op == SY_OP_TOP_K) {
            out[axis] = kernel_between(1, dims[axis]);
            struct sy_array *k = trial_operand(t, SY_DTYPE_I64, 1, &one);
            sy_put_int(k, 0, out[axis]);
            gb_int(t->graph, "largest", kernel_between(0, 1));
        } else if (!floats) {
            out[axis] = 1;
            gb_int(t->graph, "keepdims", 1);
        }
        bool says = op == SY_OP_ARG_MAX || op == SY_OP_ARG_MIN;
        if (says)
            gb_int(t->graph, "select_last_index", kernel_between(0, 1));
        trial_result(t, says ? SY_DTYPE_I64 : type, 3, out);
        if (op == SY_OP_TOP_K)
            trial_result(t, SY_DTYPE_I64, 3, out);
        trial_check(t);
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
        struct trial *t = trial_start(SY_OP_RESIZE);
        enum sy_dtype type = round % 3 ? SY_DTYPE_F32 : trial_types[round % 4];
        int64_t dims[4] = {2, 3, kernel_between(1, 6), kernel_between(1, 7)}, four = 4;
        int64_t out[4] = {2, 3, kernel_between(1, 13), kernel_between(1, 13)};
        (void)trial_operand(t, type, 4, dims);
        trial_absent(t);
        trial_absent(t);
        struct sy_array *sizes = trial_operand(t, SY_DTYPE_I64, 1, &four);
        for (int d = 0; d < 4; d++)
            sy_put_int(sizes, d, out[d]);
        gb_string(t->graph, "mode", modes[round % 3]);
        gb_string(t->graph, "coordinate_transformation_mode", places[kernel_between(0, 4)]);
        gb_string(t->graph, "nearest_mode", rounding[kernel_between(0, 3)]);
        gb_int(t->graph, "exclude_outside", kernel_between(0, 1));
        trial_result(t, type, 4, out);
        trial_check(t);
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
        struct trial *t = trial_start(SY_OP_EINSUM);
        enum sy_dtype type = trial_any_type();
        int64_t sizes[5], dims[4];
        for (int i = 0; i < 5; i++)
            sizes[i] = kernel_between(1, 6);
        for (int k = 0; k < 2; k++) {
            for (int d = 0; d < cases[which].rank[k]; d++)
                dims[d] = sizes[cases[which].labels[k][d]];
            (void)trial_operand(t, type, cases[which].rank[k], dims);
        }
        for (int d = 0; d < cases[which].n_out; d++)
            dims[d] = sizes[cases[which].out[d]];
        gb_string(t->graph, "equation", cases[which].equation);
        trial_result(t, type, cases[which].n_out, dims);
        trial_check(t);
    }
}

static void test_eight_bits(void **state)
{
    (void)state;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        bool to = round % 3 == 0, back = round % 3 == 1;
        struct trial *t = trial_start(to     ? SY_OP_QUANTIZE_LINEAR
                                      : back ? SY_OP_DEQUANTIZE_LINEAR
                                             : SY_OP_MATMUL_INTEGER);
        enum sy_dtype type = round % 2 ? SY_DTYPE_I8 : SY_DTYPE_U8;
        int64_t dims[3] = {kernel_between(1, 4), kernel_between(1, 9), kernel_between(1, 9)},
                one = 1;
        int64_t right[2] = {dims[2], kernel_between(1, 5)}, out[3] = {dims[0], dims[1], right[1]};
        (void)trial_operand(t, to ? SY_DTYPE_F32 : type, 3, dims);
        if (to || back) {
            struct sy_array *scale = trial_operand(t, SY_DTYPE_F32, 1, &dims[1]);
            for (int64_t i = 0; i < scale->n; i++)
                sy_put(scale, i, 0.05 + kernel_uniform() * 0.04);
            (void)trial_operand(t, type, 1, &dims[1]);
            gb_int(t->graph, "axis", 1);
            trial_result(t, to ? type : SY_DTYPE_F32, 3, dims);
        } else {
            (void)trial_operand(t, SY_DTYPE_U8, 2, right);
            (void)trial_operand(t, type, 1, &one);
            (void)trial_operand(t, SY_DTYPE_U8, 1, &one);
            trial_result(t, SY_DTYPE_I32, 3, out);
        }
        trial_check(t);
    }
}

static void test_windows(void **state)
{
    static const enum sy_op ops[] = {SY_OP_MAX_POOL, SY_OP_AVERAGE_POOL, SY_OP_LP_POOL, SY_OP_LRN};
    (void)state;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        enum sy_op op = ops[round % 4];
        struct trial *t = trial_start(op);
        enum sy_dtype type = op == SY_OP_MAX_POOL ? trial_any_type() : trial_types[round % 3];
        int64_t kernel[2], strides[2], pads[4], dims[4] = {2, 5, 0, 0}, out[4] = {2, 5, 0, 0};
        for (int d = 0; d < 2; d++) {
            kernel[d] = kernel_between(1, 3);
            strides[d] = kernel_between(1, 2);
            pads[d] = pads[d + 2] = kernel[d] > 1;
            dims[2 + d] = kernel_between(3, 8);
            out[2 + d] = (dims[2 + d] + 2 * pads[d] - kernel[d]) / strides[d] + 1;
        }
        (void)trial_operand(t, type, 4, dims);
        gb_ints(t->graph, "kernel_shape", 2, kernel);
        gb_ints(t->graph, "strides", 2, strides);
        gb_ints(t->graph, "pads", 4, pads);
        gb_int(t->graph, "count_include_pad", kernel_between(0, 1));
        gb_int(t->graph, "storage_order", kernel_between(0, 1));
        gb_int(t->graph, "size", kernel_between(1, 7));
        trial_result(t, type, 4, op == SY_OP_LRN ? dims : out);
        if (op == SY_OP_MAX_POOL)
            trial_result(t, SY_DTYPE_I64, 4, out);
        trial_check(t);
    }
}

/* Points far outside, and one that is none, are among them; an infinity is read only where it weighs something. */
static void check_sample(int rank, const char *mode, const char *padding, int aligns)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -1e30, 0, 1, -1};
    struct trial *t = trial_start(SY_OP_GRID_SAMPLE);
    enum sy_dtype type = trial_types[kernel_between(0, 3)];
    int64_t dims[5] = {2, 3}, grid[5] = {2}, out[5] = {2, 3};
    for (int d = 2; d < rank; d++) {
        dims[d] = kernel_between(1, 6);
        out[d] = grid[d - 1] = kernel_between(1, 5);
    }
    grid[rank - 1] = rank - 2;
    struct sy_array *x = trial_operand(t, type, rank, dims);
    sy_put(x, kernel_between(0, x->n - 1), (double)INFINITY);
    struct sy_array *points =
        trial_operand(t, kernel_between(0, 1) ? SY_DTYPE_F32 : type, rank, grid);
    for (int64_t i = 0; i < points->n; i++)
        sy_put(points, i, kernel_between(0, 9) ? kernel_uniform() * 1.5 : odd[i % 6]);
    gb_string(t->graph, "mode", mode);
    gb_string(t->graph, "padding_mode", padding);
    gb_int(t->graph, "align_corners", aligns);
    trial_result(t, type, rank, out);
    trial_check(t);
}

static void test_samples(void **state)
{
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"}, *const paddings[] = {
                                                                               "zeros", "border",
                                                                               "reflection"};
    (void)state;
    for (int round = 0; round < 36; round++)
        check_sample(4, modes[round % 3], paddings[round / 3 % 3], round / 9 % 2);
    for (int round = 0; round < 36; round++)
        check_sample(5, modes[round % 2], paddings[round / 2 % 3], round / 6 % 2);
}

/* What is outside is told with the step's number, and nothing outside is read or written. */
static void test_an_index_outside(void **state)
{
    (void)state;
    for (int scatters = 0; scatters < 2; scatters++) {
        struct trial *t = trial_start(scatters ? SY_OP_SCATTER_ND : SY_OP_GATHER_ND);
        int64_t dims[2] = {4, 3}, of[2] = {2, 1}, out[2] = {2, 3};
        (void)trial_operand(t, SY_DTYPE_F32, 2, dims);
        struct sy_array *at = trial_indices(t, 2, of, 0, 3);
        sy_put_int(at, 1, 4);
        if (scatters)
            (void)trial_operand(t, SY_DTYPE_F32, 2, out);
        trial_result(t, SY_DTYPE_F32, 2, scatters ? dims : out);
        trial_refused(t, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_input),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_other_integers),
        cmocka_unit_test(test_many_and_where),
        cmocka_unit_test(test_along_an_axis),
        cmocka_unit_test(test_tuples),
        cmocka_unit_test(test_masks_and_moves),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_resizing),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_eight_bits),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_an_index_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

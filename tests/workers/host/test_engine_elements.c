/* The host engine's elementwise operators against their definition. */
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
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .int_low = -9, .int_high = 9};
    rig_check(&c, &seed);
}

/* ---- one input ---------------------------------------------------------------------------------- */

static const struct {
    enum sy_op op;
    double low, high;
} unaries[] = {{SY_OP_RELU, -1, 1},         {SY_OP_LEAKY_RELU, -1, 1},
               {SY_OP_SIGMOID, -8, 8},      {SY_OP_TANH, -4, 4},
               {SY_OP_ERF, -3, 3},          {SY_OP_CLIP, -1, 1},
               {SY_OP_HARD_SIGMOID, -4, 4}, {SY_OP_HARD_SWISH, -5, 5},
               {SY_OP_ELU, -3, 3},          {SY_OP_EXP, -5, 5},
               {SY_OP_LOG, 0.01, 9},        {SY_OP_SQRT, 0, 9},
               {SY_OP_NEG, -1, 1},          {SY_OP_ABS, -1, 1},
               {SY_OP_RECIPROCAL, 0.1, 4},  {SY_OP_GELU, -4, 4},
               {SY_OP_IDENTITY, -1, 1},     {SY_OP_DROPOUT, -1, 1},
               {SY_OP_FLOOR, -4, 4},        {SY_OP_CEIL, -4, 4},
               {SY_OP_ROUND, -4, 4},        {SY_OP_THRESHOLDED_RELU, -1, 3}};

static void unary_attributes(struct sy_graph *g, enum sy_op op, bool given)
{
    if (op == SY_OP_CLIP) {
        gb_float(g, "min", -0.4f);
        gb_float(g, "max", 0.7f);
    } else if (given && (op == SY_OP_LEAKY_RELU || op == SY_OP_ELU || op == SY_OP_HARD_SIGMOID ||
                         op == SY_OP_THRESHOLDED_RELU)) {
        gb_float(g, "alpha", 0.3f);
    } else if (given && op == SY_OP_GELU) {
        gb_string(g, "approximate", "tanh");
    }
    if (given && op == SY_OP_HARD_SIGMOID)
        gb_float(g, "beta", 0.4f);
}

/* At the input, and over a result that nobody else reads (in place), and over one that is read again. */
static void test_one_input(void **state)
{
    (void)state;
    for (size_t u = 0; u < sizeof unaries / sizeof *unaries; u++)
        for (int i = 0; i < 4; i++) {
            int64_t dims[8];
            int rank = rig_dims(&seed, 1, 5, dims);
            struct sy_graph *g = gb_new(sy_op_name(unaries[u].op));
            int x = gb_input(g, rank, dims);
            int from = i ? gb_node(g, SY_OP_ABS, INPUTS(x), rank, dims) : x;
            int y = gb_node(g, unaries[u].op, INPUTS(from), rank, dims);
            unary_attributes(g, unaries[u].op, i & 1);
            if (i == 3)
                gb_output(g, gb_node(g, SY_OP_ADD, INPUTS(from, y), rank, dims));
            else
                gb_output(g, y);
            struct engine_case c = {.graph = g, .low = unaries[u].low, .high = unaries[u].high};
            rig_check(&c, &seed);
        }
}

/* ---- two inputs and more ------------------------------------------------------------------------ */

/* An operand of `rank` dimensions that is broadcast to `dims`; with N in front if it has the full rank. */
static int operand(struct sy_graph *g, enum sy_dtype dtype, int rank, int full, const int64_t *dims,
                   int ones)
{
    int64_t mine[8];
    for (int i = 0; i < rank; i++)
        mine[i] = ones >> i & 1 ? 1 : dims[full - rank + i];
    int t = gb_input_of(g, dtype, rank, mine);
    if (rank < full || (ones & 1))
        gb_fixed(g, t);
    return t;
}

static const enum sy_op binaries[] = {SY_OP_ADD,
                                      SY_OP_SUB,
                                      SY_OP_MUL,
                                      SY_OP_DIV,
                                      SY_OP_MIN,
                                      SY_OP_MAX,
                                      SY_OP_SUM,
                                      SY_OP_POW,
                                      SY_OP_EQUAL,
                                      SY_OP_LESS,
                                      SY_OP_LESS_OR_EQUAL,
                                      SY_OP_GREATER,
                                      SY_OP_GREATER_OR_EQUAL};

static bool says_bool(enum sy_op op)
{
    return op == SY_OP_EQUAL || op == SY_OP_LESS || op == SY_OP_LESS_OR_EQUAL ||
           op == SY_OP_GREATER || op == SY_OP_GREATER_OR_EQUAL;
}

static void binary_case(enum sy_op op, enum sy_dtype dtype, int rank_a, int rank_b, int ones)
{
    int64_t dims[8] = {1, 3, 2, 5, 4};
    int full = rank_a > rank_b ? rank_a : rank_b;
    char name[96];
    snprintf(name, sizeof name, "%s of ranks %d and %d, ones %d, type %d", sy_op_name(op), rank_a,
             rank_b, ones, (int)dtype);
    struct sy_graph *g = gb_new(name);
    int ones_a = rank_a == full ? 0 : ones, ones_b = rank_a == full ? ones : 0;
    int a = operand(g, dtype, rank_a, full, dims, ones_a),
        b = operand(g, dtype, rank_b, full, dims, ones_b);
    int y = gb_node(g, op, INPUTS(a, b), full, dims);
    gb_type(g, y, says_bool(op) ? SY_DTYPE_BOOL : dtype);
    gb_output(g, y);
    struct engine_case c = {
        .graph = g, .low = 0.3, .high = 2, .int_low = op == SY_OP_POW ? 0 : 1, .int_high = 5};
    rig_check(&c, &seed);
}

/* Every pairing of ranks, every choice of dimensions that are 1 on the smaller side. */
static void test_broadcasting(void **state)
{
    (void)state;
    size_t n = 0;
    for (int a = 1; a <= 5; a++)
        for (int b = 1; b <= 5; b++)
            for (int ones = 0; ones<1 << (a < b ? a : b); ones += a> 3 && b > 3 ? 3 : 1)
                binary_case(binaries[n++ % SY_ARRAY_LEN(binaries)], SY_DTYPE_F32, a, b, ones);
}

static void test_two_inputs_of_each_type(void **state)
{
    (void)state;
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_I32, SY_DTYPE_I64};
    for (size_t o = 0; o < sizeof binaries / sizeof *binaries; o++)
        for (int t = 0; t < 3; t++) {
            binary_case(binaries[o], types[t], 3, 3, 0);
            binary_case(binaries[o], types[t], 3, 2, 2);
            binary_case(binaries[o], types[t], 1, 4, 1);
        }
}

/* Constants on either side are parameters of their layer. */
static void test_constant_operands(void **state)
{
    (void)state;
    for (size_t o = 0; o < sizeof binaries / sizeof *binaries; o++)
        for (int side = 0; side < 2; side++) {
            struct sy_graph *g = gb_new("with a constant");
            int x = gb_input(g, DIMS(1, 3, 7)),
                c = gb_constant(g, "c", side ? 2 : 1, (int64_t[]){side ? 3 : 7, 1}, &seed, 0.5, 2);
            int y = gb_node(g, binaries[o], INPUTS(side ? c : x, side ? x : c), DIMS(1, 3, 7));
            gb_type(g, y, says_bool(binaries[o]) ? SY_DTYPE_BOOL : SY_DTYPE_F32);
            gb_output(g, y);
            struct engine_case k = {.graph = g, .low = 0.3, .high = 2};
            rig_check(&k, &seed);
        }
}

/* Sum, Min and Max of one to five, broadcast. */
static void test_any_number_of_inputs(void **state)
{
    (void)state;
    static const enum sy_op ops[] = {SY_OP_SUM, SY_OP_MIN, SY_OP_MAX};
    for (int i = 0; i < 30; i++) {
        int64_t dims[8];
        int rank = rig_dims(&seed, 1, 4, dims), n = 1 + i % 5, inputs[5];
        struct sy_graph *g = gb_new("any number");
        for (int k = 0; k < n; k++)
            inputs[k] = operand(g, SY_DTYPE_F32, k ? (int)rig_int(&seed, 1, rank) : rank, rank,
                                dims, k ? (int)rig_int(&seed, 0, 15) : 0);
        gb_output(g, gb_node(g, ops[i % 3], n, inputs, rank, dims));
        check(g);
    }
}

/* More than one thread's share: loops are split. */
static void test_large(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sy_graph *g = gb_new("large");
        const int64_t dims[] = {1, 9, 41, 67};
        int x = gb_input(g, 4, dims), y = gb_input(g, i & 1 ? 1 : 4, i & 1 ? &dims[3] : dims);
        if (i & 1)
            gb_fixed(g, y);
        gb_output(g, gb_node(g, i & 2 ? SY_OP_MAX : SY_OP_DIV, INPUTS(x, y), 4, dims));
        int t = gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), DIMS(1, 67, 9, 41));
        gb_ints(g, "perm", DIMS(0, 3, 1, 2));
        gb_output(g, gb_node(g, SY_OP_ERF, INPUTS(t), DIMS(1, 67, 9, 41)));
        struct engine_case c = {.graph = g, .low = 0.3, .high = 2};
        rig_check(&c, &seed);
    }
}

/* A slope for all, one a channel, one a column, one an element. */
static void test_slopes(void **state)
{
    (void)state;
    static const int64_t slopes[][3] = {{1, 1, 1}, {9, 1, 1}, {1, 1, 67}, {9, 41, 67}};
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++) {
        struct sy_graph *g = gb_new("slopes");
        int x = gb_input(g, 4, (int64_t[]){1, 9, 41, 67}),
            slope = gb_constant(g, "slope", 3, slopes[i], &seed, -1, 1);
        gb_output(g, gb_node(g, SY_OP_PRELU, INPUTS(x, slope), 4, (int64_t[]){1, 9, 41, 67}));
        struct engine_case c = {.graph = g, .low = -2, .high = 2};
        rig_check(&c, &seed);
    }
}

/* What is not a number is the larger, and the smaller, of it and any other. */
static void test_not_a_number(void **state)
{
    (void)state;
    const float a[] = {NAN, 1, -INFINITY, 2}, b[] = {1, NAN, 3, INFINITY};
    struct sy_graph *g = gb_new("not a number");
    struct engine_rig rig;
    struct rig_tensors inputs, outputs;
    int x = gb_input(g, DIMS(1, 4)), y = gb_input(g, DIMS(1, 4));
    gb_output(g, gb_node(g, SY_OP_MAX, INPUTS(x, y), DIMS(1, 4)));
    gb_output(g, gb_node(g, SY_OP_MIN, INPUTS(x, y), DIMS(1, 4)));
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 2, 1, 0, &inputs);
    rig_take(&rig, g->outputs, 2, 1, 0xff, &outputs);
    memcpy(inputs.data[0], a, sizeof a);
    memcpy(inputs.data[1], b, sizeof b);
    assert_int_equal(rig_run(&rig, program, &inputs, &outputs, 0xff, NULL), SY_OK);
    const float *most = outputs.data[0], *least = outputs.data[1];
    assert_true(isnan(most[0]) && isnan(most[1]) && isnan(least[0]) && isnan(least[1]));
    assert_true(most[2] == 3 && most[3] == INFINITY && least[2] == -INFINITY && least[3] == 2);
    rig_drop(&inputs);
    rig_drop(&outputs);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(g);
}

/* One operator of `n` numbers, as float32 or in between as float64, beside what IEEE says of it. */
static void give(enum sy_op op, bool wide, int64_t n, const float *numbers, float slope,
                 int64_t left, const float *want)
{
    struct sy_graph *g = gb_new(sy_op_name(op));
    struct engine_rig rig;
    struct rig_tensors in, out;
    int x = gb_input(g, DIMS(1, n)), y = x, a = -1;
    if (op == SY_OP_PRELU)
        a = gb_constant(g, "slope", DIMS(1, 1), &seed, (double)slope, (double)slope);
    if (wide) {
        x = gb_node(g, SY_OP_CAST, INPUTS(x), DIMS(1, n));
        gb_type(g, x, SY_DTYPE_F64);
    }
    y = a < 0 ? gb_node(g, op, INPUTS(x), DIMS(1, left))
              : gb_node(g, op, INPUTS(x, a), DIMS(1, left));
    if (a < 0)
        gb_ints(g, "axes", DIMS(1));
    if (wide) {
        gb_type(g, y, SY_DTYPE_F64);
        y = gb_node(g, SY_OP_CAST, INPUTS(y), DIMS(1, left));
    }
    gb_output(g, y);
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 1, 1, 0, &in);
    rig_take(&rig, g->outputs, 1, 1, 0xff, &out);
    memcpy(in.data[0], numbers, (size_t)n * sizeof *numbers);
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, NULL), SY_OK);
    for (int64_t i = 0; i < left; i++) {
        float got = ((float *)out.data[0])[i];
        if (isnan(want[i]) ? !isnan(got) : got != want[i])
            fail_msg("%s of %s %g ...: %g, not %g", sy_op_name(op), wide ? "float64" : "float32",
                     (double)numbers[0], (double)got, (double)want[i]);
    }
    rig_drop(&in);
    rig_drop(&out);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(g);
}

/* Of infinities and what is not a number: as ONNX Runtime has it. */
static void test_not_finite(void **state)
{
    static const float lists[][3] = {{-INFINITY, -INFINITY, -INFINITY}, {INFINITY, 1, INFINITY},
                                     {-INFINITY, 2, -INFINITY},         {NAN, 1, INFINITY},
                                     {3, INFINITY, -INFINITY},          {1, NAN, 1},
                                     {-INFINITY, -INFINITY, NAN}};
    static const float sums[] = {-INFINITY, INFINITY, 2, NAN, INFINITY, NAN, NAN};
    (void)state;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (int wide = 0; wide < 2; wide++)
            give(SY_OP_REDUCE_LOG_SUM_EXP, wide, 3, lists[i], 0, 1, &sums[i]);
    static const float one[] = {NAN, -INFINITY, 0, -3, INFINITY};
    static const float half[] = {NAN, -INFINITY, 0, -1.5f, INFINITY};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        give(SY_OP_PRELU, false, 1, &one[i], 0.5f, 1, &half[i]);
    give(SY_OP_PRELU, false, 5, one, 0.5f, 5, half);
    static const float zero = 0;
    give(SY_OP_PRELU, false, 1, &zero, INFINITY, 1, &zero);
}

/* One element for a plane, or for all of it; a row again and again. */
static void test_large_expand(void **state)
{
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_I32, SY_DTYPE_I64, SY_DTYPE_BOOL};
    static const int64_t from[][4] = {{1, 9, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 67}, {1, 1, 41, 1}};
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct sy_graph *g = gb_new("large expand");
        int x = gb_input_of(g, types[i & 3], 4, from[i >> 2]);
        int y = gb_node(g, SY_OP_EXPAND, INPUTS(x), DIMS(1, 9, 41, 67));
        gb_type(g, y, types[i & 3]);
        gb_output(g, y);
        check(g);
    }
}

static void test_where_cast_expand(void **state)
{
    (void)state;
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_I32, SY_DTYPE_I64, SY_DTYPE_BOOL};
    for (int i = 0; i < 16; i++) {
        struct sy_graph *g = gb_new("where");
        const int64_t dims[] = {1, 3, 4};
        int pick = operand(g, SY_DTYPE_BOOL, 3, 3, dims, i & 2), y;
        int a = operand(g, types[i & 3], 1 + i % 3, 3, dims, i & 1),
            b = operand(g, types[i & 3], 3, 3, dims, i & 4);
        gb_output(g, y = gb_node(g, SY_OP_WHERE, INPUTS(pick, a, b), 3, dims));
        gb_type(g, y, types[i & 3]);
        check(g);

        g = gb_new("cast"); /* more than a vector, and a rest */
        a = gb_input_of(g, types[i & 3], DIMS(1, 3, 37));
        gb_output(g, y = gb_node(g, SY_OP_CAST, INPUTS(a), DIMS(1, 3, 37)));
        gb_type(g, y, types[i >> 2]);
        struct engine_case c = {.graph = g, .low = -9, .high = 9, .int_low = -9, .int_high = 9};
        rig_check(&c, &seed);

        g = gb_new("expand");
        a = operand(g, types[i & 3], 1 + i % 3, 3, dims, i >> 2);
        gb_output(g, y = gb_node(g, SY_OP_EXPAND, INPUTS(a), 3, dims));
        gb_type(g, y, types[i & 3]);
        check(g);
    }
}

/* 2^53 + 1 and its neighbours: no detour through floating point. */
static void test_large_integers_are_exact(void **state)
{
    (void)state;
    static const enum sy_op ops[] = {SY_OP_MAX, SY_OP_MIN};
    static const int64_t a[] = {(1ll << 53) + 1, (1ll << 62) + 1, INT64_MIN + 1},
                         b[] = {(1ll << 53), (1ll << 62) + 2, INT64_MIN + 2};
    for (int o = 0; o < 2; o++) {
        struct sy_graph *g = gb_new("large integers");
        int x = gb_input_of(g, SY_DTYPE_I64, DIMS(1, 3)),
            y = gb_input_of(g, SY_DTYPE_I64, DIMS(1, 3));
        gb_output(g, gb_node(g, ops[o], INPUTS(x, y), DIMS(1, 3)));
        gb_type(g, g->outputs[0], SY_DTYPE_I64);
        struct engine_rig rig;
        struct rig_tensors in, out;
        assert_int_equal(rig_open(&rig, g, false), SY_OK);
        struct sy_program *program = rig_program(&rig, 1);
        rig_take(&rig, g->inputs, 2, 1, 0, &in);
        rig_take(&rig, g->outputs, 1, 1, 0, &out);
        memcpy(in.data[0], a, sizeof a);
        memcpy(in.data[1], b, sizeof b);
        assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, NULL), SY_OK);
        for (int i = 0; i < 3; i++)
            assert_true(((int64_t *)out.data[0])[i] == ((a[i] > b[i]) == (o == 0) ? a[i] : b[i]));
        rig_engine.ops->program_destroy(program);
        rig_drop(&in);
        rig_drop(&out);
        rig_close(&rig);
        sy_graph_free(g);
    }
}

/* ---- refused ---------------------------------------------------------------------------------------- */

/* One node of two inputs with these types. */
static struct sy_graph *mixed(enum sy_op op, enum sy_dtype a, enum sy_dtype b)
{
    struct sy_graph *g = gb_new("mixed types");
    int x = gb_input_of(g, a, DIMS(1, 4)), y = gb_input_of(g, b, DIMS(1, 4));
    gb_output(g, gb_node(g, op, INPUTS(x, y), DIMS(1, 4)));
    gb_type(g, g->outputs[0], a);
    return g;
}

static void test_refused(void **state)
{
    (void)state;
    rig_refused(mixed(SY_OP_ADD, SY_DTYPE_F32, SY_DTYPE_I64), false, 0, "type");
    static const enum sy_op floats_only[] = {SY_OP_SIGMOID, SY_OP_ERF, SY_OP_HARD_SWISH};
    for (int i = 0; i < 3; i++) {
        struct sy_graph *g = gb_new("integers");
        int x = gb_input_of(g, SY_DTYPE_I32, DIMS(1, 4));
        gb_output(g, gb_node(g, floats_only[i], INPUTS(x), DIMS(1, 4)));
        rig_refused(g, false, 0, "INT32");
    }
    struct sy_graph *g = gb_new("an operator that it does not have, behind one that it has");
    int x = gb_input(g, DIMS(1, 4, 2, 2));
    x = gb_node(g, SY_OP_RELU, INPUTS(x), DIMS(1, 4, 2, 2));
    gb_output(g, gb_node(g, SY_OP_SHAPE, INPUTS(x), DIMS(1, 4, 2, 2)));
    rig_refused(g, false, 1, "does not have this operator");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_input),
        cmocka_unit_test(test_broadcasting),
        cmocka_unit_test(test_two_inputs_of_each_type),
        cmocka_unit_test(test_constant_operands),
        cmocka_unit_test(test_any_number_of_inputs),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_large_expand),
        cmocka_unit_test(test_where_cast_expand),
        cmocka_unit_test(test_large_integers_are_exact),
        cmocka_unit_test(test_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

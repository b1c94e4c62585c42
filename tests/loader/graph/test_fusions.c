/* Patterns that become one node on the host engine: curves, normalisations (attention: test_engine_attention.c); each against the definition of what is written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/fuse/fuse.h"
#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

/* Nodes of `op`, or with that activation, in what the engine runs. */
static int count(const struct sy_graph *g, enum sy_op op, enum sy_activation activation)
{
    struct engine_rig rig;
    int n = 0;
    assert_int_equal(rig_open(&rig, g, true), 0);
    for (int i = 0; i < rig.graph->n_nodes; i++)
        n += activation ? rig.graph->nodes[i].activation == activation
                        : rig.graph->nodes[i].op == op;
    rig_close(&rig);
    return n;
}

static void check_one(struct sy_graph *g, enum sy_op op, double tolerance)
{
    struct engine_case c = {.graph = g, .optimize = true, .int_high = 1, .tolerance = tolerance};
    if (count(g, op, SY_ACT_NONE) != 1)
        fail_msg("%s: %d nodes %s", g->name, count(g, op, SY_ACT_NONE), sy_op_name(op));
    rig_check(&c, &seed);
}

static int scalar(struct sy_graph *g, double value)
{
    return gb_constant(g, "number", DIMS(1), &seed, value, value);
}

/* ---- curves ------------------------------------------------------------------------------------- */

static const int64_t line[] = {1, 37};

static int one(struct sy_graph *g, enum sy_op op, int x)
{
    return gb_node(g, op, INPUTS(x), 2, line);
}

static int two(struct sy_graph *g, enum sy_op op, int a, int b)
{
    return gb_node(g, op, INPUTS(a, b), 2, line);
}

static int sigmoid_of(struct sy_graph *g, int x, bool by_hand)
{
    if (!by_hand)
        return one(g, SY_OP_SIGMOID, x);
    int e = one(g, SY_OP_EXP, one(g, SY_OP_NEG, x));
    return two(g, SY_OP_DIV, scalar(g, 1), two(g, SY_OP_ADD, e, scalar(g, 1)));
}

static int cube(struct sy_graph *g, int x, int form)
{
    return form ? two(g, SY_OP_MUL, x, two(g, SY_OP_MUL, x, x))
                : two(g, SY_OP_POW, x, scalar(g, 3));
}

/* 0.5 x (1 + tanh(...)), in three of its ways. */
static int gelu_tanh(struct sy_graph *g, int x, int form)
{
    int inner;
    if (form == 2) { /* x c (1 + 0.044715 x x) */
        inner = two(g, SY_OP_MUL, two(g, SY_OP_MUL, x, scalar(g, 0.044715)), x);
        inner = two(g, SY_OP_MUL, two(g, SY_OP_MUL, x, scalar(g, 0.7978845608)),
                    two(g, SY_OP_ADD, inner, scalar(g, 1)));
    } else {
        inner = two(g, SY_OP_MUL, cube(g, x, form), scalar(g, 0.044715));
        inner = two(g, SY_OP_MUL, two(g, SY_OP_ADD, x, inner), scalar(g, 0.7978845608));
    }
    int rest = two(g, SY_OP_ADD, one(g, SY_OP_TANH, inner), scalar(g, 1));
    return form == 1 ? two(g, SY_OP_MUL, two(g, SY_OP_MUL, rest, x), scalar(g, 0.5))
                     : two(g, SY_OP_MUL, two(g, SY_OP_MUL, scalar(g, 0.5), x), rest);
}

static int hard_swish(struct sy_graph *g, int x, int form)
{
    if (form == 0) {
        int gate = one(g, SY_OP_HARD_SIGMOID, x);
        gb_float(g, "alpha", 1.0f / 6);
        gb_float(g, "beta", 0.5f);
        return two(g, SY_OP_MUL, x, gate);
    }
    int gate = one(g, SY_OP_CLIP, two(g, SY_OP_ADD, x, scalar(g, 3)));
    gb_float(g, "min", 0);
    gb_float(g, "max", 6);
    return form == 1 ? two(g, SY_OP_DIV, two(g, SY_OP_MUL, x, gate), scalar(g, 6))
                     : two(g, SY_OP_MUL, x, two(g, SY_OP_DIV, gate, scalar(g, 6)));
}

static int swish(struct sy_graph *g, int x, int form)
{
    if (form == 2) {
        int gate = one(g, SY_OP_SIGMOID, two(g, SY_OP_MUL, x, scalar(g, 1.702)));
        return two(g, SY_OP_MUL, gate, x);
    }
    return two(g, SY_OP_MUL, x, sigmoid_of(g, x, form));
}

static void test_curves(void **state)
{
    (void)state;
    static const struct {
        int (*make)(struct sy_graph *g, int x, int form);
        enum sy_op op;
        enum sy_activation activation;
    } curves[] = {{gelu_tanh, SY_OP_GELU, SY_ACT_NONE},
                  {hard_swish, SY_OP_HARD_SWISH, SY_ACT_HARD_SWISH},
                  {swish, SY_OP_SWISH, SY_ACT_SWISH}};
    for (int i = 0; i < 9; i++) {
        struct sy_graph *g = gb_new("curve");
        int x = gb_input(g, 2, line);
        gb_output(g, curves[i % 3].make(g, x, i / 3));
        struct engine_case c = {.graph = g, .optimize = true, .low = -9, .high = 9};
        assert_int_equal(count(g, curves[i % 3].op, SY_ACT_NONE), 1);
        assert_int_equal(count(g, SY_OP_MUL, SY_ACT_NONE), 0);
        rig_check(&c, &seed);
    }
    /* behind a product */
    for (int i = 0; i < 9; i++) {
        struct sy_graph *g = gb_new("curve behind a product");
        int x = gb_input(g, DIMS(1, 24)), w = gb_constant(g, "w", DIMS(24, 37), &seed, -1, 1);
        gb_output(g, curves[i % 3].make(g, two(g, SY_OP_MATMUL, x, w), i / 3));
        if (curves[i % 3].activation)
            assert_int_equal(count(g, SY_OP_MATMUL, curves[i % 3].activation), 1);
        struct engine_case c = {.graph = g, .optimize = true, .tolerance = 5e-5};
        rig_check(&c, &seed);
    }
}

/* Almost: another constant, or somebody reads the gate. */
static void test_no_curves(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sy_graph *g = gb_new("almost a curve");
        int x = gb_input(g, 2, line), gate = one(g, SY_OP_CLIP, two(g, SY_OP_ADD, x, scalar(g, 3)));
        gb_float(g, "min", 0);
        gb_float(g, "max", i == 0 ? 5.99f : 6);
        int y = two(g, SY_OP_DIV, two(g, SY_OP_MUL, x, gate), scalar(g, i == 1 ? 6.01 : 6));
        gb_output(g, y);
        if (i == 2)
            gb_output(g, gate);
        assert_int_equal(count(g, SY_OP_HARD_SWISH, SY_ACT_NONE), 0);
        struct engine_case c = {.graph = g, .optimize = true, .low = -9, .high = 9};
        rig_check(&c, &seed);
    }
}

/* ---- normalisations ----------------------------------------------------------------------------- */

#define ROWS 1, 3, 20
#define ONES 1, 3, 1

static int mean_of(struct sy_graph *g, int x)
{
    int y = gb_node(g, SY_OP_REDUCE_MEAN, INPUTS(x), DIMS(ONES));
    gb_ints(g, "axes", DIMS(2));
    gb_int(g, "keepdims", 1);
    return y;
}

/* 1 / sqrt(x + epsilon) */
static int rate_of(struct sy_graph *g, int x, int form)
{
    int sum = gb_node(g, SY_OP_ADD, INPUTS(x, scalar(g, 1e-3)), DIMS(ONES));
    if (form == 2)
        return gb_node(g, SY_OP_POW, INPUTS(sum, scalar(g, -0.5)), DIMS(ONES));
    int root = gb_node(g, SY_OP_SQRT, INPUTS(sum), DIMS(ONES));
    return form ? gb_node(g, SY_OP_RECIPROCAL, INPUTS(root), DIMS(ONES))
                : gb_node(g, SY_OP_DIV, INPUTS(scalar(g, 1), root), DIMS(ONES));
}

static void test_rms_norm(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        struct sy_graph *g = gb_new("RMS normalisation");
        int x = gb_input(g, DIMS(ROWS)), gamma = gb_constant(g, "gamma", DIMS(20), &seed, 0.5, 2);
        int square = form & 1 ? gb_node(g, SY_OP_MUL, INPUTS(x, x), DIMS(ROWS))
                              : gb_node(g, SY_OP_POW, INPUTS(x, scalar(g, 2)), DIMS(ROWS));
        int mean = mean_of(g, square), y;
        if (form == 3) {
            int sum = gb_node(g, SY_OP_ADD, INPUTS(mean, scalar(g, 1e-3)), DIMS(ONES));
            int root = gb_node(g, SY_OP_SQRT, INPUTS(sum), DIMS(ONES));
            y = gb_node(g, SY_OP_DIV, INPUTS(x, root), DIMS(ROWS));
        } else {
            y = gb_node(g, SY_OP_MUL, INPUTS(x, rate_of(g, mean, form)), DIMS(ROWS));
        }
        gb_output(g, gb_node(g, SY_OP_MUL, INPUTS(gamma, y), DIMS(ROWS)));
        check_one(g, SY_OP_RMS_NORM, 0);
    }
}

/* x r + (beta - mean r), r = gamma / deviation */
static void test_late_layer_norm(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct sy_graph *g = gb_new("layer normalisation as Keras writes it");
        int x = gb_input(g, DIMS(ROWS)), gamma = gb_constant(g, "gamma", DIMS(20), &seed, 0.5, 2),
            beta = gb_constant(g, "beta", DIMS(20), &seed, -1, 1), mean = mean_of(g, x);
        int centred = gb_node(g, SY_OP_SUB, INPUTS(x, mean), DIMS(ROWS));
        int variance = mean_of(g, gb_node(g, SY_OP_MUL, INPUTS(centred, centred), DIMS(ROWS)));
        int rate = gb_node(g, SY_OP_MUL, INPUTS(rate_of(g, variance, form), gamma), DIMS(ROWS));
        int offset;
        if (form == 0) {
            offset = gb_node(g, SY_OP_MUL, INPUTS(mean, rate), DIMS(ROWS));
            offset = gb_node(g, SY_OP_SUB, INPUTS(beta, offset), DIMS(ROWS));
        } else {
            offset = gb_node(g, SY_OP_NEG, INPUTS(mean), DIMS(ONES));
            offset = gb_node(g, SY_OP_MUL, INPUTS(offset, rate), DIMS(ROWS));
            offset = gb_node(g, SY_OP_ADD, INPUTS(offset, beta), DIMS(ROWS));
        }
        int scaled = gb_node(g, SY_OP_MUL, INPUTS(x, rate), DIMS(ROWS));
        gb_output(g, gb_node(g, SY_OP_ADD, INPUTS(scaled, offset), DIMS(ROWS)));
        check_one(g, SY_OP_LAYER_NORM, 5e-5);
    }
}

/* ---- transposes --------------------------------------------------------------------------------- */

static void shuffle(int64_t *perm, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)rig_int(&seed, 0, i);
        int64_t kept = perm[i];
        perm[i] = perm[k];
        perm[k] = kept;
    }
}

/* The batch stays first, as gb_node wants it. A chain ends as at most one; one of extents 1, as none. */
static void test_transposes(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct sy_graph *g = gb_new("transposes");
        int64_t dims[4] = {1, i % 3 ? 3 : 1, i % 3 ? 4 : 1, 5}, next[4];
        int x = gb_input(g, 4, dims), n = (int)rig_int(&seed, 1, 4);
        for (int k = 0; k < n; k++) {
            int64_t perm[4] = {0, 1, 2, 3};
            shuffle(perm + 1, 3);
            x = gb_transpose(g, x, dims, perm, 4);
            for (int d = 0; d < 4; d++)
                next[d] = dims[perm[d]];
            memcpy(dims, next, sizeof dims);
        }
        gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(x), 4, dims));
        assert_in_range(count(g, SY_OP_TRANSPOSE, SY_ACT_NONE), 0, i % 3 ? 1 : 0);
        struct engine_case c = {.graph = g, .optimize = true};
        rig_check(&c, &seed);
    }
}

/* ---- around convolutions -------------------------------------------------------------------------- */

enum { CHANNELS = 24 };
static const int64_t image[] = {1, CHANNELS, 5, 6};

static int conv(struct sy_graph *g, int x)
{
    int w = gb_constant(g, "w", DIMS(CHANNELS, CHANNELS, 3, 3), &seed, -0.3, 0.3);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w), 4, image);
    gb_ints(g, "kernel_shape", 2, (int64_t[]){3, 3});
    gb_ints(g, "pads", 4, (int64_t[]){1, 1, 1, 1});
    return y;
}

/* A bias that stands upright, as scikit-learn's converters write it. */
static void test_upright_biases(void **state)
{
    static const int64_t in[] = {1, 8}, out[] = {1, 12};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sy_graph *g = gb_new("upright");
        int w = gb_constant(g, "w", DIMS(8, 12), &seed, -1, 1);
        int b = gb_constant(g, "b", DIMS(1, 12), &seed, -1, 1);
        int x = gb_node(g, SY_OP_MATMUL, INPUTS(gb_input(g, 2, in), w), 2, out);
        x = gb_node(g, SY_OP_ADD, INPUTS(i ? b : x, i ? x : b), 2, out);
        gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(x), 2, out));
        assert_int_equal(count(g, SY_OP_ADD, SY_ACT_NONE), 0);
        assert_int_equal(count(g, SY_OP_RELU, SY_ACT_NONE), 0);
        check_one(g, SY_OP_MATMUL, 1e-4);
    }
}

/* Constants behind a convolution, one number or one for each channel, go into its weights and bias. */
static void test_conv_constants(void **state)
{
    static const enum sy_op ops[] = {SY_OP_MUL, SY_OP_ADD, SY_OP_SUB, SY_OP_DIV};
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct sy_graph *g = gb_new("constants");
        int x = conv(g, gb_input(g, 4, image)), n = (int)rig_int(&seed, 1, 4);
        for (int k = 0; k < n; k++) {
            enum sy_op op = ops[rig_int(&seed, 0, 3)];
            int c = rig_int(&seed, 0, 1)
                        ? scalar(g, 0.7)
                        : gb_constant(g, "each", DIMS(CHANNELS, 1, 1), &seed, 0.5, 1.5);
            bool first = (op == SY_OP_MUL || op == SY_OP_ADD) && rig_int(&seed, 0, 1);
            x = gb_node(g, op, INPUTS(first ? c : x, first ? x : c), 4, image);
        }
        gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(x), 4, image));
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            assert_int_equal(count(g, ops[k], SY_ACT_NONE), 0);
        check_one(g, SY_OP_CONV, 1e-4);
    }
}

/* What is not a constant for each channel stays: along a line, computed, of a rank that widens the result, the number over the convolution. */
static void test_conv_other_operands(void **state)
{
    static const int64_t shapes[][4] = {
        {1, 1, 1, 6}, {1, 1, 5, 1}, {1, CHANNELS, 1, 1}, {1, 1, 5, 6}, {1, CHANNELS, 5, 1}};
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct sy_graph *g = gb_new("operands");
        int y = gb_input(g, 4, shapes[i % 5]), x = conv(g, gb_input(g, 4, image));
        enum sy_op op = i % 2 ? SY_OP_SUB : SY_OP_MUL;
        x = gb_node(g, op, INPUTS(i % 4 < 2 ? x : y, i % 4 < 2 ? y : x), 4, image);
        gb_output(g, conv(g, x));
        assert_int_equal(count(g, op, SY_ACT_NONE), 1);
        struct engine_case c = {.graph = g, .optimize = true, .tolerance = 1e-4};
        rig_check(&c, &seed);
    }
}

/* ---- group normalisation --------------------------------------------------------------------------- */

/* As PyTorch's exporter writes it, behind a convolution (channels last) or not; `scale` other than 1 stays as it is written. */
static int taken_apart(struct sy_graph *g, int x, int64_t groups, int64_t length, double scale)
{
    const int64_t dims[] = {1, CHANNELS, length};
    const int64_t grouped[] = {1, groups, CHANNELS / groups * length};
    int ones = gb_constant(g, "ones", DIMS(groups), &seed, scale, scale),
        zeros = gb_constant(g, "zeros", DIMS(groups), &seed, 0, 0);
    int y = gb_node(g, SY_OP_RESHAPE, INPUTS(x), 3, grouped);
    y = gb_node(g, SY_OP_INSTANCE_NORM, INPUTS(y, ones, zeros), 3, grouped);
    gb_float(g, "epsilon", 1e-4f);
    y = gb_node(g, SY_OP_RESHAPE, INPUTS(y), 3, dims);
    int gamma = gb_constant(g, "gamma", DIMS(CHANNELS, 1), &seed, 0.5, 2),
        beta = gb_constant(g, "beta", DIMS(1, CHANNELS, 1), &seed, -1, 1);
    y = gb_node(g, SY_OP_MUL, INPUTS(y, gamma), 3, dims);
    return gb_node(g, SY_OP_ADD, INPUTS(beta, y), 3, dims);
}

static int line_conv(struct sy_graph *g, int x, int64_t length)
{
    int w = gb_constant(g, "w", DIMS(CHANNELS, CHANNELS, 1), &seed, -0.3, 0.3);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, CHANNELS, length));
    gb_ints(g, "kernel_shape", 1, (int64_t[]){1});
    return y;
}

static void test_group_norms(void **state)
{
    static const int64_t groups[] = {1, 4, CHANNELS}, lengths[] = {1, 7, 1500};
    (void)state;
    for (int i = 0; i < 18; i++) {
        struct sy_graph *g = gb_new("group norm");
        int64_t length = lengths[i / 3 % 3];
        int x = gb_input(g, DIMS(1, CHANNELS, length));
        if (i < 9)
            x = line_conv(g, x, length);
        x = taken_apart(g, x, groups[i % 3], length, 1);
        gb_output(g, i < 9 ? line_conv(g, x, length) : x);
        assert_int_equal(count(g, SY_OP_INSTANCE_NORM, SY_ACT_NONE), 0);
        check_one(g, SY_OP_GROUP_NORM, 1e-4);
    }
    struct sy_graph *g = gb_new("scaled");
    gb_output(g, taken_apart(g, gb_input(g, DIMS(1, CHANNELS, 7)), 4, 7, 1.5));
    check_one(g, SY_OP_INSTANCE_NORM, 1e-4);
}

/* By one number: a curve. By one for each channel: not. */
static void test_prelus(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sy_graph *g = gb_new("prelu");
        int x = gb_input(g, 4, image);
        int slope = i % 2 ? gb_constant(g, "each", DIMS(CHANNELS, 1, 1), &seed, -1, 1)
                          : gb_constant(g, "one", DIMS(1, 1, 1), &seed, -1, 1);
        if (i / 2)
            x = conv(g, x);
        gb_output(g, gb_node(g, SY_OP_PRELU, INPUTS(x, slope), 4, image));
        check_one(g, i % 2 ? SY_OP_PRELU : SY_OP_LEAKY_RELU, 1e-4);
    }
}

/* ---- constants ------------------------------------------------------------------------------------ */

/* A node of constants alone: no dimension of it is the batch. */
static int known(struct sy_graph *g, enum sy_op op, int n_inputs, const int *inputs, int rank,
                 const int64_t *dims)
{
    int y = gb_node(g, op, n_inputs, inputs, rank, dims);
    gb_fixed(g, y);
    return y;
}

/* x times what two constants make: of `rows` by `depth` and `depth` by `columns`, by a Gemm with the second one turned, or a MatMul, a sum, a transpose. */
static struct sy_graph *times_known(int64_t rows, int64_t depth, int64_t columns, bool gemm)
{
    struct sy_graph *g = gb_new(gemm ? "times a known Gemm" : "times a known MatMul");
    int64_t from = gemm ? rows : columns, to = gemm ? columns : rows;
    int x = gb_input(g, DIMS(1, from)), y;
    int table = gb_constant(g, "table", DIMS(rows, depth), &seed, -1, 1);
    int w = gb_constant(g, "w", DIMS(gemm ? columns : depth, gemm ? depth : columns), &seed, -1, 1);
    if (gemm) {
        y = known(g, SY_OP_GEMM, INPUTS(table, w), DIMS(rows, columns));
        gb_int(g, "transB", 1);
    } else {
        int b = gb_constant(g, "b", DIMS(columns), &seed, -1, 1);
        y = known(g, SY_OP_MATMUL, INPUTS(table, w), DIMS(rows, columns));
        y = known(g, SY_OP_ADD, INPUTS(y, b), DIMS(rows, columns));
        y = known(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(columns, rows));
        gb_ints(g, "perm", DIMS(1, 0));
    }
    gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(x, y), DIMS(1, to)));
    return g;
}

static int n_nodes(const struct sy_graph *g)
{
    struct engine_rig rig;
    assert_int_equal(rig_open(&rig, g, true), 0);
    int n = rig.graph->n_nodes;
    rig_close(&rig);
    return n;
}

/* A product of constants is computed once, at import, with what is made of it alone. */
static void test_known_products(void **state)
{
    (void)state;
    for (int gemm = 0; gemm < 2; gemm++) {
        struct sy_graph *g = times_known(7, 9, 6, gemm);
        assert_int_equal(n_nodes(g), 1);
        rig_check(&(struct engine_case){.graph = g, .optimize = true}, &seed);
    }
}

/* One that is larger than its factors stays a product: a package would grow. */
static void test_large_known_products(void **state)
{
    (void)state;
    struct sy_graph *g = times_known(9, 2, 8, true);
    assert_int_equal(n_nodes(g), 2);
    rig_check(&(struct engine_case){.graph = g, .optimize = true}, &seed);
}

/* What stays of three products of 5 by 4 and 4 by 3. */
static int n_unknown(int64_t products, int64_t bytes)
{
    struct sy_fuse f;
    struct sy_graph *g = gb_new("three products");
    int x = gb_input(g, DIMS(1, 5)), n = 0;
    int table = gb_constant(g, "table", DIMS(5, 4), &seed, -1, 1);
    for (int i = 0; i < 3; i++) {
        int w = gb_constant(g, i == 0 ? "a" : i == 1 ? "b" : "c", DIMS(4, 3), &seed, -1, 1);
        int y = known(g, SY_OP_MATMUL, INPUTS(table, w), DIMS(5, 3));
        gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(x, y), DIMS(1, 3)));
    }
    assert_int_equal(sy_fuse_open(&f, g), SY_OK);
    assert_int_equal(sy_fuse_known_products_within(&f, products, bytes), SY_OK);
    sy_fuse_close(&f);
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == SY_OP_MATMUL && g->nodes[i].inputs[0] == table;
    sy_graph_free(g);
    return n;
}

/* A table that many products share makes neither an import without end nor a package without bound. */
static void test_many_known_products(void **state)
{
    (void)state;
    const int64_t cost = 5 * 4 * 3, bytes = 5 * 3 * 4;
    assert_int_equal(n_unknown(3 * cost, 3 * bytes), 0);
    assert_int_equal(n_unknown(3 * cost - 1, 3 * bytes), 1);
    assert_int_equal(n_unknown(2 * cost - 1, 3 * bytes), 2);
    assert_int_equal(n_unknown(3 * cost, 3 * bytes - 1), 1);
    assert_int_equal(n_unknown(3 * cost, bytes - 1), 3);
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_no_curves),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_late_layer_norm),
        cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_upright_biases),
        cmocka_unit_test(test_conv_constants),
        cmocka_unit_test(test_conv_other_operands),
        cmocka_unit_test(test_group_norms),
        cmocka_unit_test(test_prelus),
        cmocka_unit_test(test_known_products),
        cmocka_unit_test(test_large_known_products),
        cmocka_unit_test(test_many_known_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

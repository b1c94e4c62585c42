/* The host engine's products, normalisations, softmax and reductions against their definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

static void check(struct sy_graph *g, bool optimize)
{
    struct engine_case c = {.graph = g, .optimize = optimize};
    rig_check(&c, &seed);
}

/* ---- Gemm --------------------------------------------------------------------------------------- */

/* A [N, k], or [k, N] with transA; B [k, n] or [n, k]; C of `c_rank` dimensions, -1 for none. */
static struct sy_graph *gemm_graph(int64_t k, int64_t n, bool trans_a, bool trans_b, int c_rank)
{
    char name[96];
    snprintf(name, sizeof name, "Gemm k %lld n %lld transA %d transB %d C %d", (long long)k,
             (long long)n, trans_a, trans_b, c_rank);
    struct sy_graph *g = gb_new(name);
    int a = gb_input(g, trans_a ? 2 : 2, trans_a ? (int64_t[]){k, 1} : (int64_t[]){1, k}), c = -1;
    if (trans_a) {
        g->tensors[a].shape.dims[0] = (struct sy_dim){k, 0};
        g->tensors[a].shape.dims[1] = (struct sy_dim){0, 1};
    }
    int b = trans_b ? gb_constant(g, "b", DIMS(n, k), &seed, -0.5, 0.5)
                    : gb_constant(g, "b", DIMS(k, n), &seed, -0.5, 0.5);
    if (c_rank == 1)
        c = gb_constant(g, "c", DIMS(n), &seed, -1, 1);
    else if (c_rank == 2)
        c = gb_constant(g, "c", DIMS(1, n), &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_GEMM, INPUTS(a, b, c), DIMS(1, n)));
    g->nodes[0].n_inputs = c >= 0 ? 3 : 2;
    gb_int(g, "transA", trans_a);
    gb_int(g, "transB", trans_b);
    return g;
}

static void test_gemm(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 3, 16, 17, 64, 129};
    for (int i = 0; i < 40; i++) {
        int64_t k = sizes[rig_int(&seed, 0, 5)], n = sizes[rig_int(&seed, 0, 5)];
        struct sy_graph *g = gemm_graph(k, n, i % 5 == 4, i & 1, i % 3 == 0 ? -1 : i % 3);
        if (i % 4 >= 2) {
            gb_float(g, "alpha", (float)gb_uniform(&seed, -2, 2));
            gb_float(g, "beta", (float)gb_uniform(&seed, -2, 2));
        }
        check(g, i & 2);
    }
}

/* So many rows that a matrix which was packed for few is unpacked; with what is fused. */
static void test_many_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sy_graph *g = gb_new("many rows");
        int x = gb_input(g, DIMS(1, 400, 33));
        int b = gb_constant(g, "b", DIMS(33, 21), &seed, -0.5, 0.5);
        int y = gb_node(g, SY_OP_MATMUL, INPUTS(x, b), DIMS(1, 400, 21));
        if (i & 1) {
            int bias = gb_constant(g, "bias", DIMS(21), &seed, -1, 1);
            y = gb_node(g, SY_OP_ADD, INPUTS(y, bias), DIMS(1, 400, 21));
            y = gb_node(g, SY_OP_GELU, INPUTS(y), DIMS(1, 400, 21));
        }
        gb_output(g, y);
        check(g, i & 2);
    }
}

/* C that is not one row: as many elements as a row would have, but a column; one number; a whole matrix. */
static void test_gemm_other_biases(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{4, 1}, {1, 1}, {4, 4}};
    for (int i = 0; i < 3; i++) {
        struct sy_graph *g = gb_new("Gemm with C that is no row");
        int a = gb_input(g, DIMS(4, 6));
        gb_fixed(g, a);
        int b = gb_constant(g, "b", DIMS(6, 4), &seed, -0.5, 0.5);
        int c = gb_constant(g, "c", 2, shapes[i], &seed, -1, 1);
        int y = gb_node(g, SY_OP_GEMM, INPUTS(a, b, c), DIMS(4, 4));
        gb_fixed(g, y);
        gb_float(g, "beta", 0.5f);
        gb_output(g, y);
        check(g, false);
    }
}

/* C is computed: beta cannot be multiplied into it at import. */
static void test_gemm_computed_bias(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sy_graph *g = gb_new("Gemm with a computed C");
        int a = gb_input(g, DIMS(1, 6)), c = gb_input(g, DIMS(5));
        gb_fixed(g, c);
        int b = gb_constant(g, "b", DIMS(6, 5), &seed, -0.5, 0.5);
        gb_output(g, gb_node(g, SY_OP_GEMM, INPUTS(a, b, c), DIMS(1, 5)));
        gb_float(g, "alpha", 0.7f);
        gb_float(g, "beta", i ? 0.3f : 1);
        if (i == 2)
            gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(g->outputs[0]), DIMS(1, 5)));
        check(g, i == 2);
    }
}

/* Both matrices are computed. */
static void test_gemm_of_computed(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        bool ta = i & 1, tb = i & 2;
        struct sy_graph *g = gb_new("Gemm of two inputs");
        int a = gb_input(g, 2, ta ? (int64_t[]){7, 4} : (int64_t[]){4, 7});
        int b = gb_input(g, 2, tb ? (int64_t[]){5, 7} : (int64_t[]){7, 5});
        int c = gb_constant(g, "c", DIMS(5), &seed, -1, 1);
        gb_fixed(g, a);
        gb_fixed(g, b);
        int y = gb_node(g, SY_OP_GEMM, INPUTS(a, b, c), DIMS(4, 5));
        gb_fixed(g, y);
        gb_int(g, "transA", ta);
        gb_int(g, "transB", tb);
        gb_float(g, "alpha", i >= 4 ? 0.5f : 1);
        gb_float(g, "beta", i >= 4 ? -2 : 1);
        gb_output(g, y);
        check(g, false);
    }
}

/* ---- MatMul ------------------------------------------------------------------------------------- */

/* What may follow a product: scale, bias, activation, residual. */
static int follow(struct sy_graph *g, int y, int n, const int64_t *dims, int what)
{
    if (what & 1) {
        int scale = gb_constant(g, "scale", DIMS(1), &seed, 0.3, 2);
        y = gb_node(g, SY_OP_MUL, INPUTS(y, scale), n, dims);
    }
    if (what & 2) {
        int bias = gb_constant(g, "bias", 1, &dims[n - 1], &seed, -1, 1);
        y = gb_node(g, SY_OP_ADD, INPUTS(y, bias), n, dims);
    }
    if (what & 4)
        y = gb_node(g, what & 8 ? SY_OP_GELU : SY_OP_RELU, INPUTS(y), n, dims);
    return y;
}

/* x [N, ..., k] times constant w [k, n]: what a linear layer is. */
static void test_linear_layers(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        int rank = 2 + i % 3;
        int64_t dims[4] = {1, 3, 5, 0}, k = rig_int(&seed, 1, 70), n = rig_int(&seed, 1, 70);
        struct sy_graph *g = gb_new("MatMul with constant weights");
        dims[rank - 1] = k;
        int x = gb_input(g, rank, dims);
        int w = gb_constant(g, "w", DIMS(k, n), &seed, -0.5, 0.5);
        dims[rank - 1] = n;
        int y = gb_node(g, SY_OP_MATMUL, INPUTS(x, w), rank, dims);
        gb_output(g, follow(g, y, rank, dims, i & 15));
        check(g, i & 16);
        if (i % 16 == 15 && i < 16)
            continue;
    }
}

/* Batch dimensions of a and b, which are broadcast against each other; 0 is N. */
static const struct {
    int a_rank, b_rank;
    int64_t a[4], b[4];
} pairs[] = {{3, 3, {0, 4, 7}, {0, 7, 5}},       {4, 4, {0, 3, 4, 8}, {0, 3, 8, 6}},
             {4, 4, {0, 3, 4, 8}, {0, 1, 8, 6}}, {4, 4, {0, 1, 4, 8}, {0, 3, 8, 6}},
             {4, 3, {0, 3, 4, 8}, {3, 8, 6}},    {4, 2, {0, 3, 4, 8}, {8, 6}},
             {3, 4, {3, 4, 8}, {0, 3, 8, 6}},    {2, 3, {4, 8}, {0, 8, 6}},
             {3, 3, {1, 4, 8}, {0, 8, 6}},       {3, 3, {0, 4, 8}, {1, 8, 6}},
             {4, 4, {0, 2, 1, 9}, {0, 2, 9, 1}}, {3, 3, {0, 17, 33}, {0, 33, 16}}};

static int operand(struct sy_graph *g, int rank, const int64_t *shape, bool constant)
{
    int64_t dims[4];
    for (int i = 0; i < rank; i++)
        dims[i] = shape[i] ? shape[i] : 1;
    if (constant)
        return gb_constant(g, "operand", rank, dims, &seed, -0.5, 0.5);
    int t = gb_input(g, rank, dims);
    if (shape[0])
        gb_fixed(g, t);
    return t;
}

/* `constant`: that operand (0, 1, or -1) is, if it does not depend on N. */
static struct sy_graph *product(size_t pair, int constant, int what)
{
    char name[64];
    const int64_t *pa = pairs[pair].a, *pb = pairs[pair].b;
    int ra = pairs[pair].a_rank, rb = pairs[pair].b_rank, rank = ra > rb ? ra : rb;
    int64_t dims[4] = {1, 1, 1, 1};
    snprintf(name, sizeof name, "MatMul pair %zu constant %d then %d", pair, constant, what);
    struct sy_graph *g = gb_new(name);
    int a = operand(g, ra, pa, constant == 0 && pa[0]),
        b = operand(g, rb, pb, constant == 1 && pb[0]);
    for (int i = 1; i < rank - 2; i++) {
        int64_t x = i - (rank - ra) >= 0 ? pa[i - (rank - ra)] : 1,
                y = i - (rank - rb) >= 0 ? pb[i - (rank - rb)] : 1;
        dims[i] = x > y ? x : y;
    }
    dims[rank - 2] = pa[ra - 2];
    dims[rank - 1] = pb[rb - 1];
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(a, b), rank, dims);
    gb_output(g, follow(g, y, rank, dims, what));
    return g;
}

static void test_batched_products(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (int constant = -1; constant < 2; constant++) {
            check(product(p, constant, 0), false);
            check(product(p, constant, 1), true);
        }
}

/* Scale, bias and activation behind products of computed matrices. */
static void test_batched_products_fused(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p += 2)
        for (int what = 1; what < 16; what += 2)
            check(product(p, p & 2 ? 1 : -1, what), true);
}

/* ---- softmax, norms, reductions ----------------------------------------------------------------- */

static int random_dims(int low_rank, int high_rank, int64_t *dims)
{
    int rank = (int)rig_int(&seed, low_rank, high_rank);
    dims[0] = 1;
    for (int i = 1; i < rank; i++)
        dims[i] = rig_int(&seed, 1, rank > 4 ? 4 : 19);
    return rank;
}

static void test_softmax(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t dims[6];
        int rank = random_dims(1, 5, dims);
        struct sy_graph *g = gb_new("softmax");
        int x = gb_input(g, rank, dims);
        gb_output(g, gb_node(g, i & 1 ? SY_OP_SOFTMAX : SY_OP_LOG_SOFTMAX, INPUTS(x), rank, dims));
        gb_int(g, "axis", rig_int(&seed, 0, rank - 1));
        struct engine_case c = {.graph = g, .low = -9, .high = 9};
        rig_check(&c, &seed);
    }
}

static void test_layer_norm(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t dims[6];
        int rank = random_dims(2, 4, dims), axis = (int)rig_int(&seed, 1, rank - 1);
        struct sy_graph *g = gb_new("LayerNormalization");
        int x = gb_input(g, rank, dims);
        if (i & 1) {
            int y = gb_input(g, rank, dims);
            x = gb_node(g, SY_OP_ADD, INPUTS(x, y), rank, dims);
            if (i % 4 == 3)
                gb_output(g, x);
        }
        int scale = gb_constant(g, "scale", rank - axis, dims + axis, &seed, 0.5, 2);
        int bias = gb_constant(g, "bias", rank - axis, dims + axis, &seed, -1, 1);
        gb_output(g,
                  gb_node(g, SY_OP_LAYER_NORM, i % 3 ? 3 : 2, (int[]){x, scale, bias}, rank, dims));
        gb_int(g, "axis", axis);
        gb_float(g, "epsilon", 1e-3f);
        check(g, i & 2);
    }
}

static void test_batch_norm(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        int64_t dims[6];
        int rank = random_dims(2, 5, dims);
        struct sy_graph *g = gb_new("BatchNormalization");
        int x = gb_input(g, rank, dims);
        int inputs[5] = {x, gb_constant(g, "scale", 1, &dims[1], &seed, 0.5, 2),
                         gb_constant(g, "shift", 1, &dims[1], &seed, -1, 1),
                         gb_constant(g, "mean", 1, &dims[1], &seed, -1, 1),
                         gb_constant(g, "variance", 1, &dims[1], &seed, 0.2, 2)};
        gb_output(g, gb_node(g, SY_OP_BATCH_NORM, 5, inputs, rank, dims));
        gb_float(g, "epsilon", 1e-3f);
        check(g, i & 1);
    }
}

/* Groups of channels, scale and bias per channel or per group; every eighth picture is larger than a stretch of one float sum. */
static void test_group_norm(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        bool instance = i % 4 == 0;
        int64_t groups = rig_int(&seed, 1, 4), each = instance ? 1 : rig_int(&seed, 1, 3);
        int64_t channels = groups * each, n = i % 4 == 1 ? groups : channels;
        int64_t dims[5] = {1, channels, rig_int(&seed, 1, 6),
                           i % 8 == 7 ? 5000 : rig_int(&seed, 1, 7), rig_int(&seed, 1, 3)};
        int rank = (int)rig_int(&seed, 3, 5);
        struct sy_graph *g = gb_new(instance ? "InstanceNormalization" : "GroupNormalization");
        int x = gb_input(g, rank, dims), scale = gb_constant(g, "scale", 1, &n, &seed, 0.5, 2),
            bias = gb_constant(g, "bias", 1, &n, &seed, -1, 1);
        gb_output(g, gb_node(g, instance ? SY_OP_INSTANCE_NORM : SY_OP_GROUP_NORM,
                             INPUTS(x, scale, bias), rank, dims));
        gb_float(g, "epsilon", 1e-3f);
        if (!instance)
            gb_int(g, "num_groups", groups);
        check(g, i & 1);
    }
}

/* Of whole rows, of one image or all; of dimensions that are no rows; by default of all but the channels. */
static void test_mean_variance(void **state)
{
    (void)state;
    static const int64_t axes[][4] = {{0, 2, 3}, {2, 3}, {1, 2, 3}, {3},
                                      {0, 3},    {1},    {0, 1},    {0, 2}};
    static const int counts[] = {3, 2, 3, 1, 2, 1, 2, 2};
    for (int i = 0; i <= 8; i++) {
        int64_t dims[4] = {2, rig_int(&seed, 1, 3), rig_int(&seed, 2, 5), rig_int(&seed, 3, 7)};
        struct sy_graph *g = gb_new("MeanVarianceNormalization");
        int x = gb_input(g, 4, dims);
        gb_fixed(g, x);
        int y = gb_node(g, SY_OP_MEAN_VARIANCE_NORM, INPUTS(x), 4, dims);
        g->tensors[y].shape = g->tensors[x].shape;
        if (i < 8)
            gb_ints(g, "axes", counts[i], axes[i]);
        gb_output(g, y);
        check(g, false);
    }
}

/* Mean and variance of what is normalised, as standardised weights are exported. */
static void test_batch_norm_by_batch(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        int64_t dims[6];
        int rank = random_dims(2, 5, dims);
        struct sy_graph *g = gb_new("BatchNormalization with training_mode");
        int x = gb_input(g, rank, dims);
        int inputs[5] = {x, gb_constant(g, "scale", 1, &dims[1], &seed, 0.5, 2),
                         gb_constant(g, "shift", 1, &dims[1], &seed, -1, 1),
                         gb_constant(g, "mean", 1, &dims[1], &seed, -1, 1),
                         gb_constant(g, "variance", 1, &dims[1], &seed, 0.2, 2)};
        int y = gb_node(g, SY_OP_BATCH_NORM, 5, inputs, rank, dims);
        gb_output(g, y);
        gb_float(g, "epsilon", 1e-2f);
        gb_float(g, "momentum", 0.25f);
        gb_int(g, "training_mode", 1);
        check(g, i & 1);
    }
}

static void test_reductions(void **state)
{
    static const enum sy_op ops[] = {SY_OP_REDUCE_SUM,  SY_OP_REDUCE_MEAN,      SY_OP_REDUCE_MAX,
                                     SY_OP_REDUCE_MIN,  SY_OP_REDUCE_L1,        SY_OP_REDUCE_L2,
                                     SY_OP_REDUCE_PROD, SY_OP_REDUCE_SUM_SQUARE};
    (void)state;
    for (int i = 0; i < 64; i++) {
        int64_t dims[6], out[6], axes[6];
        int rank = random_dims(1, 5, dims), n_axes = 0, n = 0;
        bool keep = i & 1, with_batch = i % 4 == 3;
        for (int d = 0; d < rank; d++) {
            bool reduced = d == 0 ? with_batch : rig_int(&seed, 0, 1);
            if (reduced)
                axes[n_axes++] = d;
            if (!reduced || keep)
                out[n++] = reduced ? 1 : dims[d];
        }
        struct sy_graph *g = gb_new("reduction");
        int x = gb_input(g, rank, dims);
        int y = gb_node(g, ops[i / 4 % 8], INPUTS(x), n, out);
        if (with_batch && n > 0)
            gb_fixed(g, y);
        gb_ints(g, "axes", n_axes, axes);
        gb_int(g, "keepdims", keep);
        gb_output(g, y);
        check(g, false);
    }
}

/* Softmax down more rows and over more columns than are taken together. */
static void test_wide_softmax(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sy_graph *g = gb_new("wide softmax");
        int x = gb_input(g, DIMS(1, 150, 300));
        gb_output(g,
                  gb_node(g, i ? SY_OP_SOFTMAX : SY_OP_LOG_SOFTMAX, INPUTS(x), DIMS(1, 150, 300)));
        gb_int(g, "axis", 1);
        struct engine_case c = {.graph = g, .low = -9, .high = 9};
        rig_check(&c, &seed);
    }
}

/* Largest, smallest, sum, place of the largest and of the smallest: of [1, 3, 4] along `axis`, of 4 or 3 results. */
static void check_odd_numbers(const float *x, int axis, const double (*expected)[4])
{
    static const enum sy_op ops[] = {SY_OP_REDUCE_MAX, SY_OP_REDUCE_MIN, SY_OP_REDUCE_SUM,
                                     SY_OP_ARG_MAX, SY_OP_ARG_MIN};
    int64_t n = axis == 1 ? 4 : 3;
    struct sy_graph *g = gb_new("odd numbers");
    struct engine_rig rig;
    struct rig_tensors inputs, outputs;
    int in = gb_input(g, DIMS(1, 3, 4));
    for (int i = 0; i < 5; i++) {
        int y = gb_node(g, ops[i], INPUTS(in), DIMS(1, n));
        g->tensors[y].dtype = i < 3 ? SY_DTYPE_F32 : SY_DTYPE_I64;
        gb_output(g, y);
        gb_int(g, "keepdims", 0);
        if (i < 3)
            gb_ints(g, "axes", 1, (const int64_t[]){axis});
        else
            gb_int(g, "axis", axis);
    }
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 1, 1, 0, &inputs);
    rig_take(&rig, g->outputs, 5, 1, 0xff, &outputs);
    memcpy(inputs.data[0], x, 12 * sizeof *x);
    assert_int_equal(rig_run(&rig, program, &inputs, &outputs, 0xff, NULL), SY_OK);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < n; k++) {
            double got = i < 3 ? (double)((const float *)outputs.data[i])[k]
                               : (double)((const int64_t *)outputs.data[i])[k];
            assert_true(isnan(expected[i][k]) ? isnan(got) : got == expected[i][k]);
        }
    rig_drop(&inputs);
    rig_drop(&outputs);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(g);
}

/* What is no number makes a reduction none; a place of the largest passes it over unless it comes first. */
static void test_odd_numbers(void **state)
{
    (void)state;
    static const float columns[] = {NAN,       1, -INFINITY, INFINITY, 2,         NAN,
                                    -INFINITY, 5, 3,         7,        -INFINITY, INFINITY};
    static const float rows[] = {NAN, 1, 2, 3, 4, NAN, 9, -INFINITY, 6, INFINITY, 6, INFINITY};
    static const double by_column[][4] = {{NAN, NAN, -INFINITY, INFINITY},
                                          {NAN, NAN, -INFINITY, 5},
                                          {NAN, NAN, -INFINITY, INFINITY},
                                          {0, 2, 0, 0},
                                          {0, 0, 0, 1}};
    static const double by_row[][4] = {
        {NAN, NAN, INFINITY}, {NAN, NAN, 6}, {NAN, NAN, INFINITY}, {0, 2, 1}, {0, 3, 0}};
    check_odd_numbers(columns, 1, by_column);
    check_odd_numbers(rows, 2, by_row);
}

/* ---- refused ------------------------------------------------------------------------------------ */

static void test_refused(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("softmax of integers");
    int a = gb_input_of(g, SY_DTYPE_I64, DIMS(1, 4));
    gb_output(g, gb_node(g, SY_OP_SOFTMAX, INPUTS(a), DIMS(1, 4)));
    gb_int(g, "axis", 1);
    rig_refused(g, false, 0, "INT64");

    g = gb_new("a bias of another size");
    a = gb_input(g, DIMS(1, 8));
    int b = gb_constant(g, "scale", DIMS(8), &seed, -1, 1);
    int c = gb_constant(g, "bias", DIMS(3), &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_LAYER_NORM, INPUTS(a, b, c), DIMS(1, 8)));
    rig_refused(g, false, 0, "bias");

    g = gb_new("as many scales as there are not channels");
    a = gb_input(g, DIMS(1, 8, 2));
    b = gb_constant(g, "scale", DIMS(8), &seed, -1, 1);
    c = gb_constant(g, "few", DIMS(2), &seed, 1, 2);
    gb_output(g, gb_node(g, SY_OP_BATCH_NORM, INPUTS(a, b, b, b, c), DIMS(1, 8, 2)));
    rig_refused(g, false, 0, "channel");

    g = gb_new("bytes times floats");
    a = gb_input_of(g, SY_DTYPE_U8, DIMS(4, 10));
    b = gb_constant(g, "weights", DIMS(10, 8), &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_GEMM, INPUTS(a, b), DIMS(4, 8)));
    rig_refused(g, false, 0, "different element types");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_gemm_other_biases),
        cmocka_unit_test(test_gemm_computed_bias),
        cmocka_unit_test(test_gemm_of_computed),
        cmocka_unit_test(test_linear_layers),
        cmocka_unit_test(test_batched_products),
        cmocka_unit_test(test_batched_products_fused),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_batch_norm_by_batch),
        cmocka_unit_test(test_group_norm),
        cmocka_unit_test(test_mean_variance),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_wide_softmax),
        cmocka_unit_test(test_odd_numbers),
        cmocka_unit_test(test_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Graphs in bf16: results near those of float32, half the bytes, and everything that must hold of every graph. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

static bool has(enum sy_precision precision)
{
    return rig_engine.ops->check_precision && rig_engine.ops->check_precision(precision) == SY_OK;
}

static bool has_bf16(void)
{
    return has(SY_PRECISION_BF16);
}

static void check_in(enum sy_precision precision, struct sy_graph *graph, double tolerance)
{
    struct engine_case c = {
        .graph = graph, .optimize = true, .tolerance = tolerance, .int_high = 39};
    graph->precision = precision;
    rig_check(&c, &seed);
}

static void check(struct sy_graph *graph, double tolerance)
{
    check_in(SY_PRECISION_BF16, graph, tolerance);
}

static int weight(struct sy_graph *g, int n, const int64_t *dims, int64_t sum_of)
{
    double bound = 1.7 / sqrt((double)sum_of);
    return gb_constant(g, "w", n, dims, &seed, -bound, bound);
}

static int conv(struct sy_graph *g, int x, int64_t in, int64_t out, int64_t size, int64_t kernel)
{
    int64_t pad = kernel / 2;
    int w = weight(g, DIMS(out, in, kernel, kernel), in * kernel * kernel);
    int b = gb_constant(g, "b", DIMS(out), &seed, -0.3, 0.3);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w, b), DIMS(1, out, size, size));
    gb_ints(g, "kernel_shape", DIMS(kernel, kernel));
    gb_ints(g, "strides", DIMS(1, 1));
    gb_ints(g, "pads", DIMS(pad, pad, pad, pad));
    gb_int(g, "group", 1);
    return y;
}

/* A residual block, its end read by a pool, a linear layer behind. */
static struct sy_graph *residual_graph(int64_t channels)
{
    struct sy_graph *g = gb_new("residual block");
    int x = gb_input(g, DIMS(1, 3, 9, 9)), stem = conv(g, x, 3, channels, 9, 3), y;
    stem = gb_node(g, SY_OP_RELU, INPUTS(stem), DIMS(1, channels, 9, 9));
    y = conv(g, stem, channels, channels, 9, 1);
    y = gb_node(g, SY_OP_RELU, INPUTS(y), DIMS(1, channels, 9, 9));
    y = conv(g, y, channels, channels, 9, 3);
    y = gb_node(g, SY_OP_ADD, INPUTS(y, stem), DIMS(1, channels, 9, 9));
    y = gb_node(g, SY_OP_RELU, INPUTS(y), DIMS(1, channels, 9, 9));
    y = gb_node(g, SY_OP_GLOBAL_AVERAGE_POOL, INPUTS(y), DIMS(1, channels, 1, 1));
    y = gb_node(g, SY_OP_FLATTEN, INPUTS(y), DIMS(1, channels));
    int w = weight(g, DIMS(10, channels), channels),
        b = gb_constant(g, "b", DIMS(10), &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_GEMM, INPUTS(y, w, b), DIMS(1, 10)));
    gb_int(g, "transB", 1);
    return g;
}

static void test_residual_block(void **state)
{
    (void)state;
    if (!has_bf16())
        skip();
    check(residual_graph(16), 0.03);
    check(residual_graph(40), 0.03);
    check(residual_graph(13), 0.03);
}

static int linear(struct sy_graph *g, int x, int64_t rows, int64_t in, int64_t out)
{
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(x, weight(g, DIMS(in, out), in)), DIMS(1, rows, out));
    int b = gb_constant(g, "b", DIMS(out), &seed, -0.2, 0.2);
    return gb_node(g, SY_OP_ADD, INPUTS(y, b), DIMS(1, rows, out));
}

static int heads(struct sy_graph *g, int x, int64_t rows, int64_t n, int64_t width, bool transposed)
{
    int y = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, rows, n, width));
    y = transposed ? gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, n, width, rows))
                   : gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, n, rows, width));
    int64_t perm[4] = {0, 2, transposed ? 3 : 1, transposed ? 1 : 3};
    gb_ints(g, "perm", 4, perm);
    return y;
}

static int normalised(struct sy_graph *g, int a, int b, int64_t rows, int64_t width)
{
    int y = gb_node(g, SY_OP_ADD, INPUTS(a, b), DIMS(1, rows, width));
    int scale = gb_constant(g, "scale", DIMS(width), &seed, 0.5, 1.5),
        bias = gb_constant(g, "bias", DIMS(width), &seed, -0.3, 0.3);
    y = gb_node(g, SY_OP_LAYER_NORM, INPUTS(y, scale, bias), DIMS(1, rows, width));
    gb_int(g, "axis", 2);
    gb_float(g, "epsilon", 1e-3f);
    return y;
}

/* Embedding, attention with scores from two computed sides, a feed-forward part. */
static struct sy_graph *transformer_graph(int64_t rows, int64_t n_heads, int64_t width)
{
    struct sy_graph *g = gb_new("transformer");
    int64_t model = n_heads * width;
    int ids = gb_input_of(g, SY_DTYPE_I64, DIMS(1, rows));
    int table = gb_constant(g, "table", DIMS(40, model), &seed, -1, 1);
    int x = gb_node(g, SY_OP_GATHER, INPUTS(table, ids), DIMS(1, rows, model));
    gb_int(g, "axis", 0);
    int q = heads(g, linear(g, x, rows, model, model), rows, n_heads, width, false);
    int k = heads(g, linear(g, x, rows, model, model), rows, n_heads, width, true);
    int v = heads(g, linear(g, x, rows, model, model), rows, n_heads, width, false);
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), DIMS(1, n_heads, rows, rows));
    y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), DIMS(1, n_heads, rows, rows));
    gb_int(g, "axis", 3);
    y = gb_node(g, SY_OP_MATMUL, INPUTS(y, v), DIMS(1, n_heads, rows, width));
    y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, rows, n_heads, width));
    gb_ints(g, "perm", DIMS(0, 2, 1, 3));
    y = gb_node(g, SY_OP_RESHAPE, INPUTS(y), DIMS(1, rows, model));
    x = normalised(g, linear(g, y, rows, model, model), x, rows, model);
    y = linear(g, x, rows, model, 2 * model);
    y = gb_node(g, SY_OP_GELU, INPUTS(y), DIMS(1, rows, 2 * model));
    y = linear(g, y, rows, 2 * model, model);
    gb_output(g, normalised(g, y, x, rows, model));
    gb_output(g, x);
    return g;
}

static void test_transformer(void **state)
{
    (void)state;
    if (!has_bf16())
        skip();
    check(transformer_graph(20, 2, 64), 0.05);
    check(transformer_graph(17, 3, 24), 0.05);
    check(transformer_graph(1, 1, 128), 0.05);
}

/* Eleven bits instead of eight: eight times nearer. */
static void test_f16(void **state)
{
    (void)state;
    if (!has(SY_PRECISION_F16))
        skip();
    check_in(SY_PRECISION_F16, residual_graph(16), 0.004);
    check_in(SY_PRECISION_F16, residual_graph(13), 0.004);
    check_in(SY_PRECISION_F16, transformer_graph(20, 2, 64), 0.007);
    check_in(SY_PRECISION_F16, transformer_graph(17, 3, 24), 0.007);
}

static uint64_t packed_bytes(enum sy_precision precision)
{
    struct sy_graph *g = transformer_graph(20, 2, 64);
    g->precision = precision;
    return rig_packed_bytes(g);
}

static void test_half_the_bytes(void **state)
{
    (void)state;
    if (!has_bf16())
        skip();
    double ratio = (double)packed_bytes(SY_PRECISION_BF16) / (double)packed_bytes(SY_PRECISION_F32);
    assert_true(ratio > 0.49 && ratio < 0.53); /* biases and scales stay as they are */
}

/* Short rows may be coordinates: they keep all their bits. */
static void test_coordinates_stay_exact(void **state)
{
    (void)state;
    if (!has_bf16())
        skip();
    struct sy_graph *g = gb_new("coordinates");
    int ids = gb_input_of(g, SY_DTYPE_I64, DIMS(1, 5));
    int table = gb_constant(g, "table", DIMS(3000, 4), &seed, 0, 640);
    int y = gb_node(g, SY_OP_GATHER, INPUTS(table, ids), DIMS(1, 5, 4));
    gb_int(g, "axis", 0);
    gb_output(g, y);
    check(g, 1e-6);
}

/* ---- float16 and bfloat16 as storage types -------------------------------------------------------- */

static float widened(enum sy_dtype dtype, uint16_t bits)
{
    return dtype == SY_DTYPE_F16 ? sy_half_to_float(bits) : sy_bf16_to_float(bits);
}

static uint16_t halved(enum sy_dtype dtype, float value)
{
    return dtype == SY_DTYPE_F16 ? sy_float_to_half(value) : sy_float_to_bf16(value);
}

/* Every float32 tensor becomes `dtype`; with `round_only` it stays float32, with numbers that `dtype` can hold. */
static void store_as(struct sy_graph *g, enum sy_dtype dtype, bool round_only)
{
    for (int t = 0; t < g->n_tensors; t++) {
        struct sy_tensor *tensor = &g->tensors[t];
        float *floats = tensor->data;
        uint16_t *halves = tensor->data;
        if (tensor->dtype != SY_DTYPE_F32)
            continue;
        for (size_t i = 0; floats && i < tensor->data_bytes / sizeof *floats; i++) {
            uint16_t bits = halved(dtype, floats[i]);
            if (round_only)
                floats[i] = widened(dtype, bits);
            else
                memcpy(&halves[i], &bits, sizeof bits);
        }
        if (round_only)
            continue;
        tensor->dtype = dtype;
        tensor->data_bytes /= 2;
    }
}

static void run_graph(struct sy_graph *g, const struct rig_tensors *in, struct rig_tensors *out,
                      struct engine_rig *rig)
{
    assert_int_equal(rig_open(rig, g, true), SY_OK);
    struct sy_program *program = rig_program(rig, 2);
    rig_take(rig, rig->graph->outputs, rig->graph->n_outputs, 2, 0, out);
    assert_int_equal(rig_run(rig, program, in, out, 0xff, NULL), SY_OK);
    rig_engine.ops->program_destroy(program);
}

static void check_halves(enum sy_dtype dtype, double tolerance)
{
    uint64_t same = seed;
    struct sy_graph *wide = residual_graph(16), *half;
    seed = same;
    half = residual_graph(16);
    store_as(wide, dtype, true);
    store_as(half, dtype, false);
    enum { N = 2 * 3 * 9 * 9 };
    float floats[N];
    uint16_t halves[N];
    for (int i = 0; i < N; i++) {
        halves[i] = halved(dtype, (float)gb_uniform(&seed, -1, 1));
        floats[i] = widened(dtype, halves[i]);
    }
    struct engine_rig a, b;
    struct rig_tensors want, got, in_a = {.n = 1, .data = (void *[]){floats}},
                                  in_b = {.n = 1, .data = (void *[]){halves}};
    run_graph(wide, &in_a, &want, &a);
    run_graph(half, &in_b, &got, &b);
    assert_int_equal(b.graph->tensors[b.graph->inputs[0]].dtype, dtype);
    assert_int_equal(b.graph->tensors[b.graph->outputs[0]].dtype, dtype);
    assert_int_equal(b.graph->n_nodes,
                     a.graph->n_nodes + 2); /* computed as float32 is, between two Casts */
    for (int i = 0; i < 20; i++) {
        double x = (double)((float *)want.data[0])[i],
               y = (double)widened(dtype, ((uint16_t *)got.data[0])[i]);
        if (fabs(x - y) > tolerance * (1 + fabs(x)))
            fail_msg("[%d] is %g, not %g", i, y, x);
    }
    rig_drop(&want);
    rig_drop(&got);
    rig_close(&a);
    rig_close(&b);
    sy_graph_free(wide);
    sy_graph_free(half);
}

static void test_halves_as_storage(void **state)
{
    (void)state;
    check_halves(SY_DTYPE_F16, 1e-3);
    check_halves(SY_DTYPE_BF16, 8e-3);
}

/* ---- quantised models ------------------------------------------------------------------------------ */

static int whole_constant(struct sy_graph *g, enum sy_dtype dtype, int n, const int64_t *dims)
{
    int64_t values[8192], count = 1;
    for (int i = 0; i < n; i++)
        count *= dims[i];
    assert_in_range(count, 1, 8192);
    for (int64_t i = 0; i < count; i++)
        values[i] = dtype == SY_DTYPE_I8 ? rig_int(&seed, -128, 127) : rig_int(&seed, 0, 255);
    return gb_constant_of(g, dtype, n, dims, values);
}

static void scalar(struct sy_graph *g, int tensor)
{
    g->tensors[tensor].shape.rank = 0;
}

/* QLinearConv and QLinearMatMul in turns; types, zero points and the number of scales by chance. */
static struct sy_graph *quantized_graph(bool conv)
{
    struct sy_graph *g = gb_new(conv ? "QLinearConv" : "QLinearMatMul");
    enum sy_dtype a_type = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8,
                  b_type = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8,
                  y_type = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8;
    int64_t in = rig_int(&seed, 1, 20), out = rig_int(&seed, 1, 40),
            each = rig_int(&seed, 0, 1) ? out : 1;
    int inputs[9];
    inputs[0] =
        conv ? gb_input_of(g, a_type, DIMS(1, in, 7, 7)) : gb_input_of(g, a_type, DIMS(1, 5, in));
    inputs[1] = gb_constant(g, "a_scale", DIMS(1), &seed, 0.01, 0.05);
    inputs[2] = whole_constant(g, a_type, DIMS(1));
    inputs[3] = conv ? whole_constant(g, b_type, DIMS(out, in, 3, 3))
                     : whole_constant(g, b_type, DIMS(in, out));
    inputs[4] = gb_constant(g, "b_scale", DIMS(each), &seed, 0.01, 0.05);
    inputs[5] = whole_constant(g, b_type, DIMS(each));
    inputs[6] = gb_constant(g, "y_scale", DIMS(1), &seed, 0.2, 2);
    inputs[7] = whole_constant(g, y_type, DIMS(1));
    const int scalars[] = {1, 2, 6, 7};
    for (int i = 0; i < 4; i++)
        scalar(g, inputs[scalars[i]]);
    int64_t bias[40];
    for (int64_t i = 0; i < out; i++)
        bias[i] = rig_int(&seed, -5000, 5000);
    inputs[8] = gb_constant_of(g, SY_DTYPE_I32, DIMS(out), bias);
    int y = conv ? gb_node(g, SY_OP_QLINEAR_CONV, 9, inputs, DIMS(1, out, 7, 7))
                 : gb_node(g, SY_OP_QLINEAR_MATMUL, 8, inputs, DIMS(1, 5, out));
    gb_type(g, y, y_type);
    if (conv) {
        gb_ints(g, "kernel_shape", DIMS(3, 3));
        gb_ints(g, "strides", DIMS(1, 1));
        gb_ints(g, "dilations", DIMS(1, 1));
        gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    }
    gb_int(g, "group", 1);
    gb_output(g, y);
    return g;
}

static void run_whole(struct sy_graph *g, bool optimize, struct rig_tensors *in,
                      struct rig_tensors *out, struct engine_rig *rig)
{
    if (rig_open(rig, g, optimize) < 0)
        fail_msg("%s: %s", g->name, sy_error_text());
    struct sy_program *program = rig_program(rig, 3);
    if (!in->data) {
        rig_take(rig, rig->graph->inputs, 1, 3, 0, in);
        for (uint64_t i = 0; i < in->bytes[0]; i++)
            ((uint8_t *)in->data[0])[i] = (uint8_t)rig_int(&seed, 0, 255);
    }
    rig_take(rig, rig->graph->outputs, 1, 3, 0, out);
    assert_int_equal(rig_run(rig, program, in, out, 0xff, NULL), SY_OK);
    rig_engine.ops->program_destroy(program);
}

/* As products of floats the same, within one step, as in whole numbers: how the kernels compute what no pass has touched. */
static void test_quantized_products(void **state)
{
    (void)state;
    if (rig_engine.lacks_operators)
        skip();
    for (int i = 0; i < 40; i++) {
        struct sy_graph *g = quantized_graph(i & 1);
        bool is_signed = g->tensors[g->outputs[0]].dtype == SY_DTYPE_I8;
        struct engine_rig whole, floats;
        struct rig_tensors in = {0}, want, got;
        run_whole(g, false, &in, &want, &whole);
        run_whole(g, true, &in, &got, &floats);
        assert_int_not_equal(floats.graph->nodes[floats.graph->n_nodes - 1].op,
                             whole.graph->nodes[0].op);
        for (uint64_t k = 0; k < want.bytes[0]; k++) {
            int x = ((uint8_t *)want.data[0])[k], y = ((uint8_t *)got.data[0])[k];
            if (is_signed) {
                x = (int8_t)x;
                y = (int8_t)y;
            }
            if (abs(x - y) > 1)
                fail_msg("%s %d: [%llu] is %d, not %d", g->name, i, (unsigned long long)k, y, x);
        }
        rig_drop(&in);
        rig_drop(&want);
        rig_drop(&got);
        rig_close(&whole);
        rig_close(&floats);
        sy_graph_free(g);
    }
}

static void check_stored(struct sy_graph *narrow, struct sy_graph *wide, void *input)
{
    struct engine_rig a, b;
    struct rig_tensors in = {.n = 1, .data = &input}, want, got;
    gb_round_weights(wide);
    narrow->precision = SY_PRECISION_BF16;
    run_graph(wide, &in, &want, &a);
    run_graph(narrow, &in, &got, &b);
    for (int i = 0; i < want.n; i++)
        assert_memory_equal(got.data[i], want.data[i], want.bytes[i]);
    rig_drop(&want);
    rig_drop(&got);
    rig_close(&a);
    rig_close(&b);
    sy_graph_free(narrow);
    sy_graph_free(wide);
}

/* A CPU without instructions for bf16 computes in float32 with weights that are stored as bf16: these bits and no others. */
static void test_stored_and_widened(void **state)
{
    (void)state;
    enum { ROWS = 17 };
    float pixels[2 * 3 * 9 * 9];
    int64_t ids[2 * ROWS];
    if (!rig_only_stores_bf16())
        skip();
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        pixels[i] = (float)gb_uniform(&seed, -1, 1);
    for (int i = 0; i < 2 * ROWS; i++)
        ids[i] = i % 40;
    uint64_t same = seed;
    struct sy_graph *narrow = residual_graph(13);
    seed = same;
    check_stored(narrow, residual_graph(13), pixels);
    same = seed;
    narrow = transformer_graph(ROWS, 3, 40);
    seed = same;
    check_stored(narrow, transformer_graph(ROWS, 3, 40), ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_residual_block),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_half_the_bytes),
        cmocka_unit_test(test_coordinates_stay_exact),
        cmocka_unit_test(test_stored_and_widened),
        cmocka_unit_test(test_halves_as_storage),
        cmocka_unit_test(test_quantized_products),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Products of 8 bits against the same graph as it is written, which plain loops compute: within one step, as both round. Shapes, types, zero
 * points, padding and numbers of scales by chance. */
#include "tests/rigs/engine_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"

static uint64_t seed;

static bool has_int8(void)
{
    return rig_engine.ops->fuses && rig_engine.ops->fuses(SY_OP_QUANTIZED_CONV, 0);
}

static int whole(struct sy_graph *g, enum sy_dtype dtype, int64_t low, int64_t high, int n,
                 const int64_t *dims)
{
    int64_t values[20000], count = 1;
    for (int i = 0; i < n; i++)
        count *= dims[i];
    assert_in_range(count, 1, 20000);
    for (int64_t i = 0; i < count; i++)
        values[i] = rig_int(&seed, low, high);
    return gb_constant_of(g, dtype, n, dims, values);
}

static int scalar_scale(struct sy_graph *g, double low, double high)
{
    int t = gb_constant(g, "scale", DIMS(1), &seed, low, high);
    g->tensors[t].shape.rank = 0;
    return t;
}

static int scalar_zero(struct sy_graph *g, enum sy_dtype dtype)
{
    bool none = rig_int(&seed, 0, 2) == 0, sign = dtype == SY_DTYPE_I8;
    int t = whole(g, dtype, none ? 0 : sign ? -100 : 0, none ? 0 : sign ? 100 : 255, DIMS(1));
    g->tensors[t].shape.rank = 0;
    return t;
}

static int dequantize(struct sy_graph *g, int x, int scale, int zero, int n, const int64_t *dims,
                      int axis)
{
    int y = gb_node(g, SY_OP_DEQUANTIZE_LINEAR, 3, (const int[]){x, scale, zero}, n, dims);
    gb_int(g, "axis", axis);
    return y;
}

static int quantize(struct sy_graph *g, int x, enum sy_dtype dtype, int scale, int zero, int n,
                    const int64_t *dims)
{
    int y = gb_node(g, SY_OP_QUANTIZE_LINEAR, 3, (const int[]){x, scale, zero}, n, dims);
    gb_type(g, y, dtype);
    return y;
}

static void run(struct sy_graph *g, bool optimize, struct rig_tensors *in, struct rig_tensors *out,
                struct engine_rig *rig)
{
    if (rig_open(rig, g, optimize) < 0)
        fail_msg("%s: %s", g->name, sy_error_text());
    struct sy_program *program = rig_program(rig, 3);
    if (!in->data) {
        rig_take(rig, rig->graph->inputs, rig->graph->n_inputs, 3, 0, in);
        for (int i = 0; i < in->n; i++) {
            bool floats = rig->graph->tensors[rig->graph->inputs[i]].dtype == SY_DTYPE_F32;
            for (uint64_t k = 0; floats && k < in->bytes[i] / sizeof(float); k++)
                ((float *)in->data[i])[k] = (float)gb_uniform(&seed, -2, 3);
            for (uint64_t k = 0; !floats && k < in->bytes[i]; k++)
                ((uint8_t *)in->data[i])[k] = (uint8_t)rig_int(&seed, 0, 255);
        }
    }
    rig_take(rig, rig->graph->outputs, rig->graph->n_outputs, 3, 0, out);
    assert_int_equal(rig_run(rig, program, in, out, 0xff, NULL), SY_OK);
    rig_engine.ops->program_destroy(program);
}

static bool has_op(const struct sy_graph *g, enum sy_op op)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op)
            return true;
    return false;
}

static void compare(const struct sy_graph *g, const struct rig_tensors *want,
                    const struct rig_tensors *got, int steps)
{
    enum sy_dtype dtype = g->tensors[g->outputs[0]].dtype;
    uint64_t n = want->bytes[0] / sy_dtype_bytes(dtype);
    double largest = 0;
    for (uint64_t k = 0; dtype == SY_DTYPE_F32 && k < n; k++)
        largest = fmax(largest, fabs((double)((float *)want->data[0])[k]));
    for (uint64_t k = 0; k < n; k++) {
        double x = 0, y = 0, room = steps;
        if (dtype == SY_DTYPE_F32) {
            x = (double)((float *)want->data[0])[k];
            y = (double)((float *)got->data[0])[k];
            room = 2e-5 * largest;
        } else if (dtype == SY_DTYPE_I8) {
            x = ((int8_t *)want->data[0])[k];
            y = ((int8_t *)got->data[0])[k];
        } else {
            x = ((uint8_t *)want->data[0])[k];
            y = ((uint8_t *)got->data[0])[k];
        }
        if (!(fabs(x - y) <= room))
            fail_msg("%s: [%llu] is %g, not %g", g->name, (unsigned long long)k, y, x);
    }
}

/* Takes the graph. Where the engine has them, it must run it with `op`. */
static void check(struct sy_graph *g, enum sy_op op, int steps)
{
    struct engine_rig written, fused;
    struct rig_tensors in = {0}, want, got;
    run(g, false, &in, &want, &written);
    run(g, true, &in, &got, &fused);
    if (has_int8())
        assert_true(has_op(fused.graph, op));
    compare(g, &want, &got, steps);
    rig_drop(&in);
    rig_drop(&want);
    rig_drop(&got);
    rig_close(&written);
    rig_close(&fused);
    sy_graph_free(g);
}

/* ---- convolutions ---------------------------------------------------------------------------------- */

struct conv {
    enum sy_dtype x, y;
    int spatial;
    int64_t in, out, group, size, kernel, stride, before, after, dilation;
    int64_t x_dims[5], w_dims[5], y_dims[5];
};

static struct conv random_conv(void)
{
    struct conv c = {.x = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8,
                     .y = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8,
                     .spatial = (int)rig_int(&seed, 1, 3),
                     .kernel = rig_int(&seed, 1, 3),
                     .stride = rig_int(&seed, 1, 2),
                     .before = rig_int(&seed, 0, 1),
                     .after = rig_int(&seed, 0, 2),
                     .dilation = rig_int(&seed, 1, 2),
                     .size = rig_int(&seed, 5, 9)};
    c.group = rig_int(&seed, 0, 2) ? 1 : rig_int(&seed, 2, 6);
    bool depthwise = rig_int(&seed, 0, 3) == 0;
    int64_t each = rig_int(&seed, 1, c.group > 1 ? 3 : 20);
    if (depthwise) {
        c.group = rig_int(&seed, 2, 40);
        each = 1;
    }
    c.in = each * c.group;
    c.out = (depthwise ? 1 : rig_int(&seed, 1, c.group > 1 ? 3 : 40)) * c.group;
    int64_t to = (c.size + c.before + c.after - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
    c.x_dims[0] = c.y_dims[0] = 1;
    c.x_dims[1] = c.in;
    c.y_dims[1] = c.w_dims[0] = c.out;
    c.w_dims[1] = each;
    for (int i = 0; i < c.spatial; i++) {
        c.x_dims[2 + i] = c.size;
        c.w_dims[2 + i] = c.kernel;
        c.y_dims[2 + i] = to;
    }
    return c;
}

static void conv_attributes(struct sy_graph *g, const struct conv *c)
{
    const int64_t kernel[] = {c->kernel, c->kernel, c->kernel},
                  strides[] = {c->stride, c->stride, c->stride},
                  dilations[] = {c->dilation, c->dilation, c->dilation};
    int64_t pads[6];
    for (int i = 0; i < c->spatial; i++) {
        pads[i] = c->before;
        pads[c->spatial + i] = c->after;
    }
    gb_ints(g, "kernel_shape", c->spatial, kernel);
    gb_ints(g, "strides", c->spatial, strides);
    gb_ints(g, "dilations", c->spatial, dilations);
    gb_ints(g, "pads", 2 * c->spatial, pads);
    gb_int(g, "group", c->group);
}

static void test_qlinear_conv(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct conv c = random_conv();
        struct sy_graph *g = gb_new("QLinearConv");
        int64_t each = rig_int(&seed, 0, 1) ? c.out : 1;
        int inputs[9];
        inputs[0] = gb_input_of(g, c.x, c.spatial + 2, c.x_dims);
        inputs[1] = scalar_scale(g, 0.01, 0.05);
        inputs[2] = scalar_zero(g, c.x);
        inputs[3] = whole(g, SY_DTYPE_I8, -127, 127, c.spatial + 2, c.w_dims);
        inputs[4] = gb_constant(g, "b_scale", DIMS(each), &seed, 0.01, 0.05);
        inputs[5] = whole(g, SY_DTYPE_I8, 0, 0, DIMS(each));
        inputs[6] = scalar_scale(g, 0.2, 2);
        inputs[7] = scalar_zero(g, c.y);
        inputs[8] = whole(g, SY_DTYPE_I32, -5000, 5000, DIMS(c.out));
        int y = gb_node(g, SY_OP_QLINEAR_CONV, rig_int(&seed, 0, 1) ? 9 : 8, inputs, c.spatial + 2,
                        c.y_dims);
        gb_type(g, y, c.y);
        conv_attributes(g, &c);
        gb_output(g, y);
        check(g, SY_OP_QUANTIZED_CONV, 1);
    }
}

/* DequantizeLinear -> Conv -> Relu, Clip, Sigmoid, times a constant or nothing -> QuantizeLinear or nothing. */
static void test_conv_between(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct conv c = random_conv();
        struct sy_graph *g = gb_new("conv between");
        static const enum sy_op after[] = {SY_OP_RELU, SY_OP_CLIP, SY_OP_SIGMOID};
        int n = c.spatial + 2, kind = (int)rig_int(&seed, 0, 4);
        int64_t each = rig_int(&seed, 0, 1) ? c.out : 1;
        int x8 = gb_input_of(g, c.x, n, c.x_dims),
            x = dequantize(g, x8, scalar_scale(g, 0.01, 0.05), scalar_zero(g, c.x), n, c.x_dims, 1);
        int w8 = whole(g, SY_DTYPE_I8, -128, 127, n, c.w_dims),
            w = dequantize(g, w8, gb_constant(g, "w_scale", DIMS(each), &seed, 0.01, 0.05),
                           whole(g, SY_DTYPE_I8, 0, 0, DIMS(each)), n, c.w_dims, 0);
        gb_fixed(g, w);
        int bias = gb_constant(g, "bias", DIMS(c.out), &seed, -2, 2),
            y = gb_node(g, SY_OP_CONV, 3, (const int[]){x, w, bias}, n, c.y_dims);
        conv_attributes(g, &c);
        if (kind < 3) {
            y = gb_node(g, after[kind], 1, &y, n, c.y_dims);
            gb_float(g, "min", -0.5f);
            gb_float(g, "max", 3);
        }
        if (kind == 4)
            y = gb_node(g, SY_OP_MUL, 2, (const int[]){y, scalar_scale(g, 0.3, 3)}, n, c.y_dims);
        if (rig_int(&seed, 0, 3))
            y = quantize(g, y, c.y, scalar_scale(g, 0.02, 0.2), scalar_zero(g, c.y), n, c.y_dims);
        gb_output(g, y);
        check(g, SY_OP_QUANTIZED_CONV, 1);
    }
}

/* ---- products of matrices -------------------------------------------------------------------------- */

static void test_matmul_between(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct sy_graph *g = gb_new("matmul between");
        bool gemm = rig_int(&seed, 0, 1) != 0, transposed = gemm && rig_int(&seed, 0, 1);
        enum sy_dtype type = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8;
        int64_t in = rig_int(&seed, 1, 70), out = rig_int(&seed, 1, 70),
                each = rig_int(&seed, 0, 1) ? out : 1;
        const int64_t x_dims[] = {1, 5, in}, y_dims[] = {1, 5, out}, flat[] = {1, in};
        const int64_t w_dims[] = {transposed ? out : in, transposed ? in : out};
        int x8 = gemm ? gb_input_of(g, type, 2, flat) : gb_input_of(g, type, 3, x_dims),
            x = dequantize(g, x8, scalar_scale(g, 0.01, 0.05), scalar_zero(g, type), gemm ? 2 : 3,
                           gemm ? flat : x_dims, 1);
        int w8 = whole(g, SY_DTYPE_I8, -127, 127, 2, w_dims),
            w = dequantize(g, w8, gb_constant(g, "w_scale", DIMS(each), &seed, 0.01, 0.05),
                           whole(g, SY_DTYPE_I8, 0, 0, DIMS(each)), 2, w_dims, transposed ? 0 : 1);
        gb_fixed(g, w);
        int bias = gb_constant(g, "bias", DIMS(out), &seed, -2, 2), y;
        if (gemm) {
            y = gb_node(g, SY_OP_GEMM, 3, (const int[]){x, w, bias}, DIMS(1, out));
            gb_int(g, "transB", transposed);
        } else {
            y = gb_node(g, SY_OP_MATMUL, 2, (const int[]){x, w}, 3, y_dims);
            y = gb_node(g, SY_OP_ADD, 2, (const int[]){y, bias}, 3, y_dims);
        }
        if (rig_int(&seed, 0, 1))
            y = quantize(g, y, type, scalar_scale(g, 0.05, 0.3), scalar_zero(g, type), gemm ? 2 : 3,
                         gemm ? (const int64_t[]){1, out} : y_dims);
        gb_output(g, y);
        check(g, SY_OP_QUANTIZED_MATMUL, 1);
    }
}

/* One more result of the node that was added last. */
static int another_number(struct sy_graph *g, enum sy_dtype dtype)
{
    const struct sy_shape scalar = {.rank = 0};
    struct sy_node *node = &g->nodes[g->n_nodes - 1];
    int t, *outputs = realloc(node->outputs, ((size_t)node->n_outputs + 1) * sizeof *outputs);
    assert_non_null(outputs);
    assert_int_equal(sy_graph_add_tensor(g, "number", dtype, &scalar, &t), SY_OK);
    node->outputs = outputs;
    node->outputs[node->n_outputs++] = t;
    return t;
}

/* As ONNX Runtime quantises in the run: DynamicQuantizeLinear, MatMulInteger, Cast, Mul, Add, Relu. */
static void test_quantised_in_the_run(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct sy_graph *g = gb_new("in the run");
        int64_t in = rig_int(&seed, 1, 70), out = rig_int(&seed, 1, 70),
                each = rig_int(&seed, 0, 1) ? out : 1;
        int x = gb_input_of(g, SY_DTYPE_F32, DIMS(1, 5, in)), made[3];
        made[0] = gb_node(g, SY_OP_DYNAMIC_QUANTIZE_LINEAR, 1, &x, DIMS(1, 5, in));
        gb_type(g, made[0], SY_DTYPE_U8);
        made[1] = another_number(g, SY_DTYPE_F32);
        made[2] = another_number(g, SY_DTYPE_U8);
        int w = whole(g, SY_DTYPE_I8, -127, 127, DIMS(in, out)),
            w_zero = whole(g, SY_DTYPE_I8, 0, 0, DIMS(1)),
            w_scale = gb_constant(g, "w_scale", DIMS(each), &seed, 0.01, 0.05);
        int scale = gb_node(g, SY_OP_MUL, 2, (const int[]){made[1], w_scale}, DIMS(each));
        gb_fixed(g, scale);
        int y = gb_node(g, SY_OP_MATMUL_INTEGER, 4, (const int[]){made[0], w, made[2], w_zero},
                        DIMS(1, 5, out));
        gb_type(g, y, SY_DTYPE_I32);
        y = gb_node(g, SY_OP_CAST, 1, &y, DIMS(1, 5, out));
        gb_int(g, "to", 1);
        y = gb_node(g, SY_OP_MUL, 2, (const int[]){y, scale}, DIMS(1, 5, out));
        if (rig_int(&seed, 0, 1)) {
            int bias = gb_constant(g, "bias", DIMS(out), &seed, -2, 2);
            y = gb_node(g, SY_OP_ADD, 2, (const int[]){bias, y}, DIMS(1, 5, out));
        }
        if (rig_int(&seed, 0, 1))
            y = gb_node(g, SY_OP_RELU, 1, &y, DIMS(1, 5, out));
        gb_output(g, y);
        check(g, SY_OP_QUANTIZED_MATMUL, 1);
    }
}

/* ---- between products ------------------------------------------------------------------------------ */

/* Two branches, added or joined, pooled; in one scale, or each in its own. */
static void test_between_products(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct sy_graph *g = gb_new("branches");
        enum sy_dtype type = rig_int(&seed, 0, 1) ? SY_DTYPE_I8 : SY_DTYPE_U8;
        int kind = (int)rig_int(&seed, 0, 2), parts[2];
        bool one = rig_int(&seed, 0, 1) != 0;
        int scale = scalar_scale(g, 0.01, 0.05), zero = scalar_zero(g, type);
        for (int k = 0; k < 2; k++)
            parts[k] = dequantize(g, gb_input_of(g, type, DIMS(1, 6, 5, 5)),
                                  one ? scale : scalar_scale(g, 0.01, 0.05),
                                  one ? zero : scalar_zero(g, type), DIMS(1, 6, 5, 5), 1);
        static const enum sy_op ops[] = {SY_OP_ADD, SY_OP_MUL, SY_OP_CONCAT};
        int64_t channels = kind == 2 ? 12 : 6;
        int y = gb_node(g, ops[kind], 2, parts, DIMS(1, channels, 5, 5));
        gb_int(g, "axis", 1);
        if (kind < 2 && rig_int(&seed, 0, 1))
            y = gb_node(g, SY_OP_RELU, 1, &y, DIMS(1, channels, 5, 5));
        y = quantize(g, y, type, scale, zero, DIMS(1, channels, 5, 5));
        y = dequantize(g, y, scale, zero, DIMS(1, channels, 5, 5), 1);
        y = gb_node(g, SY_OP_MAX_POOL, 1, &y, DIMS(1, channels, 3, 3));
        gb_ints(g, "kernel_shape", DIMS(3, 3));
        gb_ints(g, "strides", DIMS(2, 2));
        gb_ints(g, "dilations", DIMS(1, 1));
        gb_ints(g, "pads", DIMS(1, 1, 1, 1));
        y = quantize(g, y, type, scale, zero, DIMS(1, channels, 3, 3));
        gb_output(g, y);
        check(g, kind == 2 ? SY_OP_MAX_POOL : SY_OP_QUANTIZED_SUM, 1);
    }
}

/* What does not fit 8 bits with a sign stays a product of floats. */
static void test_what_does_not_fit(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("wide weights");
    int x = dequantize(g, gb_input_of(g, SY_DTYPE_U8, DIMS(1, 8)), scalar_scale(g, 0.01, 0.05),
                       scalar_zero(g, SY_DTYPE_U8), DIMS(1, 8), 1);
    int64_t values[8 * 4];
    for (int i = 0; i < 32; i++)
        values[i] = i == 0 ? 255 : i == 1 ? 0 : rig_int(&seed, 0, 255);
    int zeros[1] = {whole(g, SY_DTYPE_U8, 100, 100, DIMS(1))};
    int w =
        dequantize(g, gb_constant_of(g, SY_DTYPE_U8, DIMS(8, 4), values),
                   gb_constant(g, "w_scale", DIMS(1), &seed, 0.01, 0.05), zeros[0], DIMS(8, 4), 1);
    gb_fixed(g, w);
    int y = gb_node(g, SY_OP_MATMUL, 2, (const int[]){x, w}, DIMS(1, 4));
    gb_output(g, y);
    check(g, SY_OP_MATMUL, 1);
}

/* Both sides computed: floats, exact. */
static void test_computed_matrices(void **state)
{
    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        struct sy_graph *g = gb_new("two computed matrices");
        int a = gb_input_of(g, SY_DTYPE_U8, DIMS(1, 5, 12)),
            b = gb_input_of(g, SY_DTYPE_U8, DIMS(1, 12, 7));
        const int inputs[] = {a,
                              scalar_scale(g, 0.01, 0.05),
                              scalar_zero(g, SY_DTYPE_U8),
                              b,
                              scalar_scale(g, 0.01, 0.05),
                              scalar_zero(g, SY_DTYPE_U8),
                              scalar_scale(g, 0.1, 0.4),
                              scalar_zero(g, SY_DTYPE_U8)};
        int y = gb_node(g, SY_OP_QLINEAR_MATMUL, 8, inputs, DIMS(1, 5, 7));
        gb_type(g, y, SY_DTYPE_U8);
        gb_output(g, y);
        check(g, SY_OP_MATMUL, 1);
    }
}

/* A bias of int32 before the sums become floats. */
static void test_early_bias(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("a bias of int32");
    int x = gb_input_of(g, SY_DTYPE_U8, DIMS(1, 9)),
        w = whole(g, SY_DTYPE_I8, -127, 127, DIMS(9, 6));
    gb_fixed(g, w);
    int zero = scalar_zero(g, SY_DTYPE_U8), bias = whole(g, SY_DTYPE_I32, -999, 999, DIMS(6));
    gb_fixed(g, bias);
    int sums = gb_node(g, SY_OP_MATMUL_INTEGER, 3, (const int[]){x, w, zero}, DIMS(1, 6));
    gb_type(g, sums, SY_DTYPE_I32);
    int all = gb_node(g, SY_OP_ADD, 2, (const int[]){sums, bias}, DIMS(1, 6));
    gb_type(g, all, SY_DTYPE_I32);
    gb_output(g, gb_node(g, SY_OP_CAST, 1, &all, DIMS(1, 6)));
    check(g, SY_OP_QUANTIZED_MATMUL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qlinear_conv),      cmocka_unit_test(test_conv_between),
        cmocka_unit_test(test_matmul_between),    cmocka_unit_test(test_quantised_in_the_run),
        cmocka_unit_test(test_between_products),  cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_computed_matrices), cmocka_unit_test(test_early_bias),
    };
    seed = rig_start();
    if (rig_engine.lacks_operators)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

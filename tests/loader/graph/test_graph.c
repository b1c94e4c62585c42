/* Graphs: shape arithmetic, inference, the passes, the codec. Values come from brute force over batch sizes and closed forms. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/shape/graph_infer.h"
#include "onnx.pb-c.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/seed.h"

static struct ob graph, node;

static void add(void)
{
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void add_node(const char *op, const char *const *inputs, const char *output)
{
    ob_node(&node, op, inputs, NAMES(output));
    add();
}

static void add_float(const char *name, float value)
{
    ob_initializer(&graph, name, 1, 0, NULL, &value, sizeof value);
}

static void add_vector(const char *name, int n, const float *values)
{
    ob_initializer(&graph, name, 1, 1, (const int64_t[]){n}, values, (size_t)n * sizeof *values);
}

static struct sy_graph *read_graph(int opset)
{
    struct sy_graph *g = NULL;
    ob_save(ob_path, &graph, opset);
    if (sy_onnx_read(ob_path, &g) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static struct sy_graph *infer(int opset)
{
    struct sy_graph *g = read_graph(opset);
    if (sy_graph_infer(g) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static struct sy_graph *optimize(int opset)
{
    struct sy_graph *g = infer(opset);
    if (sy_graph_optimize(g) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static void expect_shape(const struct sy_graph *g, int tensor, const char *want)
{
    char text[160];
    assert_string_equal(sy_shape_text(&g->tensors[tensor].shape, text, sizeof text), want);
}

/* ---- types and shapes ------------------------------------------------------------------------- */

static void test_types(void **state)
{
    (void)state;
    assert_int_equal(sy_dtype_bytes(SY_DTYPE_BF16), 2);
    assert_int_equal(sy_dtype_bytes((enum sy_dtype)99), 0);
    assert_string_equal(sy_dtype_wire_name(SY_DTYPE_I64), "INT64");
    assert_int_equal(sy_dtype_from_wire_name("UINT8"), SY_DTYPE_U8);
    assert_int_equal(sy_dtype_from_wire_name("fp32"), SY_DTYPE_NONE);
    enum sy_op op;
    assert_int_equal(sy_op_from_name("GlobalAveragePool", &op), SY_OK);
    assert_int_equal(op, SY_OP_GLOBAL_AVERAGE_POOL);
    assert_int_equal(sy_op_from_name("Nonsense", &op), SY_EUNSUPPORTED);
}

static void test_shapes(void **state)
{
    (void)state;
    char text[160];
    struct sy_shape shape = {4, {{0, 1}, {3, 0}, {0, 2}, {-1, 4}}};
    assert_string_equal(sy_shape_text(&shape, text, sizeof text), "[N, 3, 2N, 4N-1]");
    assert_string_equal(sy_shape_text(&shape, text, 6), "[N, 3");
    assert_int_equal(sy_shape_elements(&shape, 2), 2 * 3 * 4 * 7);
    assert_int_equal(sy_shape_elements(&shape, 0), -1); /* the last would be -1 */
    assert_int_equal(sy_shape_elements(&shape, INT64_MAX), -1);
    struct sy_shape scalar = {.rank = 0};
    assert_int_equal(sy_shape_elements(&scalar, 5), 1);
}

/* Each operation on a + b*N agrees with the operation on numbers, for every N that is tried. */
static void test_linear_arithmetic(void **state)
{
    (void)state;
    uint64_t random = seed_of_run(77);
    int divided = 0;
    for (int round = 0; round < 20000; round++) {
        struct sy_dim x[2], sum, product, quotient;
        for (int i = 0; i < 2; i++)
            x[i] = (struct sy_dim){(int64_t)(seed_next(&random) % 13) - 6,
                                   (int64_t)(seed_next(&random) % 5) - 2};
        int multiplied = sy_dim_mul(x[0], x[1], &product),
            parted = sy_dim_div(x[0], x[1], &quotient);
        assert_int_equal(sy_dim_add(x[0], x[1], &sum), SY_OK);
        assert_int_equal(multiplied, x[0].per_batch && x[1].per_batch ? SY_EUNSUPPORTED : SY_OK);
        divided += parted == SY_OK;
        for (int64_t n = 1; n <= 9; n++) {
            int64_t a = sy_dim_at(x[0], n), b = sy_dim_at(x[1], n);
            assert_int_equal(sy_dim_at(sum, n), a + b);
            if (multiplied == SY_OK)
                assert_int_equal(sy_dim_at(product, n), a * b);
            if (parted == SY_OK && b != 0)
                assert_int_equal(sy_dim_at(quotient, n), a / b);
        }
    }
    assert_true(divided > 1000);
    struct sy_dim out;
    assert_int_equal(sy_dim_mul((struct sy_dim){INT64_MAX, 0}, (struct sy_dim){2, 0}, &out),
                     SY_EUNSUPPORTED);
    assert_int_equal(sy_dim_div((struct sy_dim){INT64_MIN, 0}, (struct sy_dim){-1, 0}, &out),
                     SY_EUNSUPPORTED);
}

/* ---- inference -------------------------------------------------------------------------------- */

/* x.view(x.size(0), x.size(1), 2, -1), and back to x.size(0) * x.size(1) rows. */
static void test_exported_view(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 5, 8));
    ob_input(&graph, OB_GRAPH_OUTPUT, "heads", 1, DIMS(-1, 5, 2, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "rows", 1, DIMS(-1, 8));
    ob_int64s(&graph, "i0", 0, (const int64_t[]){0});
    ob_int64s(&graph, "i1", 0, (const int64_t[]){1});
    ob_int64s(&graph, "axis0", 1, (const int64_t[]){0});
    ob_int64s(&graph, "tail", 2, (const int64_t[]){2, -1});
    ob_int64s(&graph, "minus", 1, (const int64_t[]){-1});
    add_node("Shape", NAMES("x"), "s");
    add_node("Gather", NAMES("s", "i0"), "b");
    add_node("Gather", NAMES("s", "i1"), "q");
    add_node("Unsqueeze", NAMES("b", "axis0"), "b1");
    add_node("Unsqueeze", NAMES("q", "axis0"), "q1");
    ob_node(&node, "Concat", NAMES("b1", "q1", "tail"), NAMES("target"));
    ob_attr_int(&node, "axis", 0);
    add();
    add_node("Reshape", NAMES("x", "target"), "heads");
    add_node("Mul", NAMES("b", "q"), "product");
    add_node("Unsqueeze", NAMES("product", "axis0"), "product1");
    ob_node(&node, "Concat", NAMES("product1", "minus"), NAMES("flat"));
    ob_attr_int(&node, "axis", 0);
    add();
    add_node("Reshape", NAMES("heads", "flat"), "rows");
    struct sy_graph *g = infer(13);
    expect_shape(g, g->outputs[0], "[N, 5, 2, 4]");
    expect_shape(g, g->outputs[1], "[5N, 8]");
    assert_int_equal(g->n_nodes, 2);
    assert_int_equal(g->nodes[0].n_inputs, 1);
    sy_graph_free(g);
}

/* expand(-1, 3) as exported: Where(Equal(target, -1), ones, target). */
static void test_exported_expand(void **state)
{
    (void)state;
    static const int64_t one = 1;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 1));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 3));
    ob_int64s(&graph, "i0", 0, (const int64_t[]){0});
    ob_int64s(&graph, "axis0", 1, (const int64_t[]){0});
    ob_int64s(&graph, "three", 1, (const int64_t[]){3});
    ob_int64s(&graph, "two", 1, (const int64_t[]){2});
    ob_int64s(&graph, "minus", 1, (const int64_t[]){-1});
    ob_int64s(&graph, "one", 1, &one);
    add_node("Shape", NAMES("x"), "s");
    add_node("Gather", NAMES("s", "axis0"), "b");
    ob_node(&node, "Concat", NAMES("b", "three"), NAMES("target"));
    ob_attr_int(&node, "axis", 0);
    add();
    add_node("ConstantOfShape", NAMES("two"), "zeros");
    ob_node(&node, "Cast", NAMES("zeros"), NAMES("zeros64"));
    ob_attr_int(&node, "to", 7);
    add();
    add_node("Add", NAMES("zeros64", "one"), "ones");
    add_node("Equal", NAMES("target", "minus"), "open");
    add_node("Where", NAMES("open", "ones", "target"), "size");
    add_node("Expand", NAMES("x", "size"), "y");
    struct sy_graph *g = infer(13);
    expect_shape(g, g->outputs[0], "[N, 3]");
    assert_int_equal(g->n_nodes, 1);
    sy_graph_free(g);
}

/* A batch of 1 that is written into the model: no other is possible. */
static void test_batch_of_one(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(1, 4));
    ob_int64s(&graph, "shape", 2, (const int64_t[]){1, 4});
    add_node("Reshape", NAMES("x", "shape"), "y");
    struct sy_graph *g = infer(13);
    expect_shape(g, g->inputs[0], "[1, 4]");
    expect_shape(g, g->outputs[0], "[1, 4]");
    assert_int_equal(g->n_symbols, 0);
    sy_graph_free(g);
}

static void test_infer_refusals(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(1, 3));
    ob_int64s(&graph, "shape", 2, (const int64_t[]){1, 3});
    add_node("Reshape", NAMES("x", "shape"), "y");
    struct sy_graph *g = read_graph(13);
    assert_int_equal(sy_graph_infer(g), SY_EUNSUPPORTED);
    if (!strstr(sy_error_text(), "node 'y' (Reshape, opset 13): cannot reshape [N, 4] to [1, 3]"))
        fail_msg("%s", sy_error_text());
    sy_graph_free(g);
}

/* Operands as inputs and as attributes end in one form. */
static void test_one_form(void **state)
{
    (void)state;
    for (int opset = 10; opset <= 13; opset += 3) {
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4, 6));
        ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 1, 4));
        ob_int64s(&graph, "axes", 1, (const int64_t[]){-1});
        ob_node(&node, "ReduceSum", opset < 13 ? NAMES("x") : NAMES("x", "axes"), NAMES("r"));
        ob_attr_int(&node, "keepdims", 0);
        if (opset < 13)
            ob_attr_ints(&node, "axes", DIMS(-1));
        add();
        ob_int64s(&graph, "axis1", 1, (const int64_t[]){1});
        ob_node(&node, "Unsqueeze", opset < 13 ? NAMES("r") : NAMES("r", "axis1"), NAMES("y"));
        if (opset < 13)
            ob_attr_ints(&node, "axes", DIMS(1));
        add();
        struct sy_graph *g = infer(opset);
        expect_shape(g, g->outputs[0], "[N, 1, 4]");
        const struct sy_attr *axes = sy_node_attr(&g->nodes[0], "axes");
        assert_int_equal(axes->n, 1);
        assert_int_equal(axes->ints[0], 2);
        assert_int_equal(g->nodes[0].n_inputs, 1);
        assert_int_equal(g->nodes[1].n_inputs, 1);
        sy_graph_free(g);
    }
}

/* ---- passes ----------------------------------------------------------------------------------- */

static void add_random(const char *name, uint64_t *random, int rank, const int64_t *dims, float low,
                       float high)
{
    float values[512];
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    assert_true(n <= SY_ARRAY_LEN(values));
    for (size_t i = 0; i < n; i++)
        values[i] = low + (high - low) * (float)(seed_next(random) % 1000) / 1000;
    ob_initializer(&graph, name, 1, rank, dims, values, n * sizeof *values);
}

static const float *floats_named(const struct sy_graph *g, const char *name)
{
    for (int t = 0; t < g->n_tensors; t++)
        if (strcmp(g->tensors[t].name, name) == 0)
            return g->tensors[t].data;
    return NULL;
}

/* relu(bn(conv(x)) + x): one node; its weights by the closed form. */
static void residual_block(uint64_t *random, bool second_reader)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4, 5, 5));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4, 5, 5));
    if (second_reader)
        ob_input(&graph, OB_GRAPH_OUTPUT, "c", 1, DIMS(-1, 4, 5, 5));
    add_random("w", random, DIMS(4, 4, 3, 3), -1, 1);
    add_random("b", random, DIMS(4), -1, 1);
    add_random("gamma", random, DIMS(4), 0.5f, 2);
    add_random("beta", random, DIMS(4), -1, 1);
    add_random("mean", random, DIMS(4), -1, 1);
    add_random("var", random, DIMS(4), 0.5f, 2);
    ob_node(&node, "Conv", NAMES("x", "w", "b"), NAMES("c"));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    add();
    add_node("BatchNormalization", NAMES("c", "gamma", "beta", "mean", "var"), "n");
    add_node("Add", NAMES("x", "n"), "s");
    add_node("Relu", NAMES("s"), "y");
}

static void test_conv_fusion(void **state)
{
    (void)state;
    uint64_t random = 5;
    residual_block(&random, false);
    struct sy_graph *before = infer(13), *g = optimize(13);
    const float *w = floats_named(before, "w"), *b = floats_named(before, "b");
    const float *gamma = floats_named(before, "gamma"), *beta = floats_named(before, "beta");
    const float *mean = floats_named(before, "mean"), *var = floats_named(before, "var");
    assert_int_equal(g->n_nodes, 1);
    const struct sy_node *conv = &g->nodes[0];
    assert_int_equal(conv->op, SY_OP_CONV);
    assert_int_equal(conv->activation, SY_ACT_RELU);
    assert_int_equal(conv->residual_input, 3);
    assert_int_equal(conv->bias_input, 2);
    assert_int_equal(conv->inputs[3], g->inputs[0]);
    assert_int_equal(conv->outputs[0], g->outputs[0]);
    const float *to = g->tensors[conv->inputs[1]].data, *bias = g->tensors[conv->inputs[2]].data;
    for (int c = 0; c < 4; c++) {
        double scale = gamma[c] / sqrt(var[c] + 1e-5);
        assert_true(fabs(bias[c] - ((b[c] - mean[c]) * scale + beta[c])) < 1e-6);
        for (int i = 0; i < 36; i++)
            assert_true(fabs(to[c * 36 + i] - w[c * 36 + i] * scale) < 1e-6);
    }
    sy_graph_free(before);
    sy_graph_free(g);
    residual_block(
        &random, true); /* the convolution's own result is wanted: nothing may be folded into it */
    g = optimize(13);
    assert_int_equal(g->n_nodes, 4);
    assert_int_equal(g->nodes[0].op, SY_OP_CONV);
    assert_int_equal(g->nodes[0].activation, SY_ACT_NONE);
    sy_graph_free(g);
}

/* The residual is made after the convolution: the fused node must come after it. */
static void test_residual_order(void **state)
{
    (void)state;
    uint64_t random = 6;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4, 5, 5));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4, 5, 5));
    add_random("w", &random, DIMS(4, 4, 1, 1), -1, 1);
    add_node("Conv", NAMES("x", "w"), "c");
    add_node("Tanh", NAMES("x"), "t");
    add_node("Add", NAMES("c", "t"), "y");
    struct sy_graph *g = optimize(13);
    assert_int_equal(g->n_nodes, 2);
    assert_int_equal(g->nodes[0].op, SY_OP_TANH);
    assert_int_equal(g->nodes[1].op, SY_OP_CONV);
    assert_int_equal(g->nodes[1].inputs[2], -1);
    assert_int_equal(g->nodes[1].bias_input, -1);
    assert_int_equal(g->nodes[1].inputs[3], g->nodes[0].outputs[0]);
    sy_graph_free(g);
}

static void test_pad_folding(void **state)
{
    (void)state;
    uint64_t random = 7;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 2, 7, 7));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 2, 8, 9));
    ob_int64s(&graph, "pads", 8, (const int64_t[]){0, 0, 1, 2, 0, 0, 2, 2});
    add_random("w", &random, DIMS(2, 2, 3, 3), -1, 1);
    add_node("Pad", NAMES("x", "pads"), "p");
    add_node("Conv", NAMES("p", "w"), "y");
    struct sy_graph *g = optimize(13);
    assert_int_equal(g->n_nodes, 1);
    const struct sy_attr *pads = sy_node_attr(&g->nodes[0], "pads");
    assert_memory_equal(pads->ints, ((const int64_t[]){1, 2, 2, 2}), 4 * sizeof(int64_t));
    expect_shape(g, g->outputs[0], "[N, 2, 8, 9]");
    sy_graph_free(g);
}

static void add_layer_norm(const char *x, const char *y)
{
    ob_node(&node, "ReduceMean", NAMES(x), NAMES("mean"));
    ob_attr_ints(&node, "axes", DIMS(-1));
    add();
    add_node("Sub", NAMES(x, "mean"), "centred");
    add_node("Pow", NAMES("centred", "two"), "square");
    ob_node(&node, "ReduceMean", NAMES("square"), NAMES("variance"));
    ob_attr_ints(&node, "axes", DIMS(-1));
    add();
    add_node("Add", NAMES("variance", "epsilon"), "sum");
    add_node("Sqrt", NAMES("sum"), "deviation");
    add_node("Div", NAMES("centred", "deviation"), "normal");
    add_node("Mul", NAMES("normal", "gamma"), "scaled");
    add_node("Add", NAMES("scaled", "beta"), y);
}

/* layer_norm(gelu(x * W / 2 + b) + x) */
static void transformer_piece(const char *product)
{
    uint64_t random = 8;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 3, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 3, 4));
    add_random("w", &random, DIMS(4, 4), -1, 1);
    add_random("b", &random, DIMS(4), -1, 1);
    add_vector("gamma", 4, (const float[]){1, 2, 3, 4});
    add_vector("beta", 4, (const float[]){4, 3, 2, 1});
    add_float("two", 2);
    add_float("one", 1);
    add_float("half", 0.5f);
    add_float("root", 1.41421354f);
    add_float("epsilon", 1e-6f);
    add_node("MatMul", NAMES("x", "w"), "m");
    add_node("Div", NAMES("m", "two"), "m2");
    add_node("Add", NAMES("b", "m2"), "h");
    add_node("Div", NAMES("h", "root"), "d");
    add_node("Erf", NAMES("d"), "e");
    add_node("Add", NAMES("e", "one"), "e1");
    add_node("Mul", NAMES("h", "e1"), "he");
    add_node("Mul", NAMES("he", "half"), product);
    add_node("Add", NAMES(product, "x"), "skip");
    add_layer_norm("skip", "y");
}

static void test_transformer_fusion(void **state)
{
    (void)state;
    transformer_piece("g");
    struct sy_graph *g = optimize(13);
    assert_int_equal(g->n_nodes, 2);
    const struct sy_node *matmul = &g->nodes[0], *norm = &g->nodes[1];
    assert_int_equal(matmul->op, SY_OP_MATMUL);
    assert_int_equal(matmul->activation, SY_ACT_GELU_ERF);
    assert_int_equal(matmul->bias_input, 2);
    assert_true(sy_node_float(matmul, "alpha", 1) == 0.5f);
    assert_int_equal(norm->op, SY_OP_SKIP_LAYER_NORM);
    assert_int_equal(norm->n_inputs, 4);
    assert_int_equal(norm->inputs[0], matmul->outputs[0]);
    assert_int_equal(norm->inputs[1], g->inputs[0]);
    assert_true(sy_node_float(norm, "epsilon", 0) == 1e-6f);
    assert_int_equal(sy_node_int(norm, "axis", 0), 2);
    assert_int_equal(norm->outputs[0], g->outputs[0]);
    sy_graph_free(g);
}

/* Identity from an input to an output stays, one in between goes. */
static void test_identities(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "copy", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    add_node("Identity", NAMES("x"), "copy");
    add_node("Dropout", NAMES("x"), "d");
    add_node("Tanh", NAMES("d"), "t");
    add_node("Identity", NAMES("t"), "y");
    struct sy_graph *g = optimize(13);
    assert_int_equal(g->n_nodes, 2);
    assert_string_equal(g->tensors[g->outputs[0]].name, "copy");
    assert_string_equal(g->tensors[g->outputs[1]].name, "y");
    assert_int_equal(g->nodes[1].op, SY_OP_TANH);
    assert_int_equal(g->nodes[1].inputs[0], g->inputs[0]);
    assert_int_equal(g->nodes[1].outputs[0], g->outputs[1]);
    sy_graph_free(g);
}

/* ---- codec ------------------------------------------------------------------------------------ */

static bool *all_data(const struct sy_graph *g)
{
    bool *keep = malloc((size_t)g->n_tensors);
    memset(keep, 1, (size_t)g->n_tensors);
    return keep;
}

static void test_codec(void **state)
{
    (void)state;
    void *bytes, *again;
    size_t n, m;
    transformer_piece("g");
    struct sy_graph *g = optimize(13), *copy;
    bool *keep = all_data(g);
    assert_int_equal(sy_graph_encode(g, keep, &bytes, &n), SY_OK);
    assert_int_equal(sy_graph_decode(bytes, n, &copy), SY_OK);
    assert_int_equal(sy_graph_encode(copy, keep, &again, &m), SY_OK);
    assert_int_equal(n, m);
    assert_memory_equal(bytes, again, n);
    assert_int_equal(copy->nodes[0].activation, SY_ACT_GELU_ERF);
    assert_memory_equal(copy->tensors[copy->nodes[0].inputs[1]].data,
                        g->tensors[g->nodes[0].inputs[1]].data, 64);
    sy_graph_free(copy);
    free(again);
    free(bytes);
    assert_int_equal(sy_graph_encode(g, NULL, &bytes, &m), SY_OK);
    assert_true(m < n);
    assert_int_equal(sy_graph_decode(bytes, m, &copy), SY_OK);
    assert_null(copy->tensors[copy->nodes[0].inputs[1]].data);
    for (size_t cut = 0; cut < m; cut++) {
        struct sy_graph *none;
        assert_int_equal(sy_graph_decode(bytes, cut, &none), SY_ECORRUPT);
    }
    sy_graph_free(copy);
    free(bytes);
    free(keep);
    sy_graph_free(g);
}

static void test_mutated_codec(void **state)
{
    (void)state;
    uint64_t random = seed_of_run(77);
    unsigned char *bytes, *mutant;
    size_t n;
    int decoded = 0;
    transformer_piece("g");
    struct sy_graph *g = optimize(13);
    bool *keep = all_data(g);
    assert_int_equal(sy_graph_encode(g, keep, (void **)&bytes, &n), SY_OK);
    mutant = malloc(n);
    for (int round = 0; round < 10000; round++) {
        struct sy_graph *out = NULL;
        memcpy(mutant, bytes, n);
        for (int i = 0, flips = 1 + (int)(seed_next(&random) % 3); i < flips; i++)
            mutant[seed_next(&random) % n] = (unsigned char)seed_next(&random);
        int status = sy_graph_decode(mutant, n, &out);
        assert_true(status == SY_OK || status == SY_ECORRUPT || status == SY_EUNSUPPORTED);
        decoded += status == SY_OK;
        sy_graph_free(out);
    }
    print_message("%d of 10000 still decoded\n", decoded);
    free(mutant);
    free(bytes);
    free(keep);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_linear_arithmetic),
        cmocka_unit_test(test_exported_view),
        cmocka_unit_test(test_exported_expand),
        cmocka_unit_test(test_batch_of_one),
        cmocka_unit_test(test_infer_refusals),
        cmocka_unit_test(test_one_form),
        cmocka_unit_test(test_conv_fusion),
        cmocka_unit_test(test_residual_order),
        cmocka_unit_test(test_pad_folding),
        cmocka_unit_test(test_transformer_fusion),
        cmocka_unit_test(test_identities),
        cmocka_unit_test(test_codec),
        cmocka_unit_test(test_mutated_codec),
    };
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

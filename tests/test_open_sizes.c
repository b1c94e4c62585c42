/* Graphs with open sizes: bound to numbers they are the graphs that inference with those numbers gives, in shapes and in what the engine computes, from
 * one laying out of the weights; conditions, solving, the codec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/graph_bind.h"
#include "loader/size_expr.h"
#include "runtime/base/status.h"
#include "tests/engine_rig.h"
#include "tests/onnx_bytes.h"

static struct ob graph, node;
static uint64_t seed;

/* ---- building ----------------------------------------------------------------------------------- */

#define N (-1) /* the dimension's name is N; S, T: others */
#define S (-2)
#define T (-3)
#define P (-4)

static void in(const char *name, int type, int n, const int64_t *dims)
{
    ob_input(&graph, OB_GRAPH_INPUT, name, type, n, dims);
}

static void out(const char *name)
{
    ob_input(&graph, OB_GRAPH_OUTPUT, name, 1, 0, NULL);
}

static void weights(const char *name, int n, const int64_t *dims)
{
    float values[4096];
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= dims[i];
    assert_in_range(count, 1, 4096);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)gb_uniform(&seed, -0.5, 0.5);
    ob_initializer(&graph, name, 1, n, dims, values, (size_t)count * sizeof *values);
}

static void numbers(const char *name, int n, const int64_t *values)
{
    ob_int64s(&graph, name, n, values);
}

static void add(const char *op, const char *const *inputs, const char *output)
{
    ob_node(&node, op, inputs, NAMES(output));
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void add_with(const char *op, const char *const *inputs, const char *output,
                     const char *attr, int n, const int64_t *values)
{
    ob_node(&node, op, inputs, NAMES(output));
    if (n == 0)
        ob_attr_int(&node, attr, values[0]);
    else
        ob_attr_ints(&node, attr, n, values);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* ---- models ------------------------------------------------------------------------------------- */

/* Tokens, 24 learned positions of which the first S are taken, attention of two heads with a causal mask made of sizes. */
static void text_model(void)
{
    ob_graph(&graph);
    in("ids", 7, DIMS(N, S));
    weights("table", DIMS(20, 8));
    weights("positions", DIMS(1, 24, 8));
    const char *const products[] = {"wq", "wk", "wv", "wo"};
    for (int i = 0; i < 4; i++)
        weights(products[i], DIMS(8, 8));
    numbers("zero", DIMS(0));
    numbers("one", DIMS(1));
    numbers("tail", DIMS(2, 4));
    numbers("width", DIMS(8));
    numbers("scalar0", 0, (const int64_t[]){0});
    numbers("scalar1", 0, (const int64_t[]){1});
    float low = -1e9f, none = 0;
    ob_initializer(&graph, "low", 1, 0, NULL, &low, sizeof low);
    ob_initializer(&graph, "none", 1, 0, NULL, &none, sizeof none);
    add("Shape", NAMES("ids"), "shape");
    add("Gather", NAMES("shape", "one"), "length");
    add("Gather", NAMES("shape", "zero"), "batch");
    add("Gather", NAMES("shape", "scalar1"), "count");
    add("Gather", NAMES("table", "ids"), "rows");
    add("Slice", NAMES("positions", "zero", "length", "one"), "places");
    add("Add", NAMES("rows", "places"), "x");
    add_with("Concat", NAMES("batch", "length", "tail"), "split", "axis", 0, (const int64_t[]){0});
    for (int i = 0; i < 3; i++) {
        static const char *const made[] = {"q0", "k0", "v0", "q1", "k1", "v1", "q", "k", "v"};
        add("MatMul", NAMES("x", products[i]), made[i]);
        add("Reshape", NAMES(made[i], "split"), made[i + 3]);
        add_with("Transpose", NAMES(made[i + 3]), made[i + 6], "perm",
                 DIMS(0, 2, i == 1 ? 3 : 1, i == 1 ? 1 : 3));
    }
    add("MatMul", NAMES("q", "k"), "scores");
    add("Range", NAMES("scalar0", "count", "scalar1"), "steps");
    add("Unsqueeze", NAMES("steps", "one"), "column");
    add("LessOrEqual", NAMES("steps", "column"), "before");
    add("Where", NAMES("before", "none", "low"), "mask");
    add("Add", NAMES("scores", "mask"), "masked");
    add_with("Softmax", NAMES("masked"), "weights", "axis", 0, (const int64_t[]){-1});
    add("MatMul", NAMES("weights", "v"), "picked");
    add_with("Transpose", NAMES("picked"), "together", "perm", DIMS(0, 2, 1, 3));
    add_with("Concat", NAMES("batch", "length", "width"), "join", "axis", 0, (const int64_t[]){0});
    add("Reshape", NAMES("together", "join"), "joined");
    add("MatMul", NAMES("joined", "wo"), "y");
    out("y");
}

/* Strides, pooling that rounds up, padding that keeps sizes, and back to the size of a tensor before. */
static void image_model(void)
{
    ob_graph(&graph);
    in("x", 1, DIMS(N, 3, S, T));
    weights("w0", DIMS(8, 3, 3, 3));
    weights("w1", DIMS(8, 8, 3, 3));
    weights("w2", DIMS(4, 16, 1, 1));
    numbers("two", DIMS(2));
    numbers("four", DIMS(4));
    numbers("zero", DIMS(0));
    ob_node(&node, "Conv", NAMES("x", "w0"), NAMES("a"));
    ob_attr_ints(&node, "strides", DIMS(2, 2));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "MaxPool", NAMES("a"), NAMES("b"));
    ob_attr_ints(&node, "kernel_shape", DIMS(3, 3));
    ob_attr_ints(&node, "strides", DIMS(2, 2));
    ob_attr_int(&node, "ceil_mode", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "Conv", NAMES("b", "w1"), NAMES("c"));
    ob_attr_ints(&node, "strides", DIMS(2, 2));
    ob_attr_text(&node, "auto_pad", "SAME_UPPER");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Relu", NAMES("c"), "d");
    add("Shape", NAMES("a"), "of_a");
    add("Shape", NAMES("d"), "of_d");
    add("Slice", NAMES("of_a", "two", "four", "zero"), "area");
    add("Slice", NAMES("of_d", "zero", "two", "zero"), "front");
    add_with("Concat", NAMES("front", "area"), "target", "axis", 0, (const int64_t[]){0});
    ob_node(&node, "Resize", NAMES("d", "", "", "target"), NAMES("e"));
    ob_attr_text(&node, "mode", "linear");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add_with("Concat", NAMES("a", "e"), "f", "axis", 0, (const int64_t[]){1});
    add("Conv", NAMES("f", "w2"), "map");
    add("GlobalAveragePool", NAMES("map"), "pooled");
    out("map");
    out("pooled");
}

/* A step with what came before: keys of P + S, of which the last S are cut out again; a mask whose length has a name of its own. */
static void cache_model(void)
{
    ob_graph(&graph);
    in("x", 1, DIMS(N, S, 8));
    in("past", 1, DIMS(N, P, 8));
    in("mask", 1, DIMS(N, T));
    weights("w", DIMS(8, 8));
    numbers("one", DIMS(1));
    numbers("end", DIMS(INT64_MAX));
    add("MatMul", NAMES("x", "w"), "new");
    add_with("Concat", NAMES("past", "new"), "keys", "axis", 0, (const int64_t[]){1});
    add_with("Transpose", NAMES("keys"), "turned", "perm", DIMS(0, 2, 1));
    add("MatMul", NAMES("x", "turned"), "scores");
    add("Unsqueeze", NAMES("mask", "one"), "wide");
    add("Add", NAMES("scores", "wide"), "masked");
    add_with("Softmax", NAMES("masked"), "weights", "axis", 0, (const int64_t[]){-1});
    add("MatMul", NAMES("weights", "keys"), "y");
    add("Shape", NAMES("past"), "of_past");
    add("Gather", NAMES("of_past", "one"), "n_past");
    add("Slice", NAMES("keys", "n_past", "end", "one"), "last");
    add("Add", NAMES("last", "new"), "twice");
    out("y");
    out("keys");
    out("twice");
}

/* One token behind what is past: its position is a row of a table, picked by a length. */
static void position_model(void)
{
    ob_graph(&graph);
    in("past", 1, DIMS(N, S, 8));
    weights("positions", DIMS(24, 8));
    numbers("one", DIMS(1));
    add("Shape", NAMES("past"), "shape");
    add("Gather", NAMES("shape", "one"), "length");
    add("Gather", NAMES("positions", "length"), "row");
    add("Add", NAMES("past", "row"), "y");
    out("y");
}

/* Ends of slices that count from behind, steps backwards, halves. */
static void slice_model(void)
{
    ob_graph(&graph);
    in("x", 1, DIMS(N, S, 4));
    numbers("one", DIMS(1));
    numbers("minus", DIMS(-1));
    numbers("three", DIMS(-3));
    numbers("two", DIMS(2));
    numbers("end", DIMS(INT64_MAX));
    numbers("start", DIMS(-INT64_MAX));
    add("Slice", NAMES("x", "one", "minus", "one"), "inner");
    add("Slice", NAMES("x", "three", "end", "one"), "last");
    add("Slice", NAMES("x", "minus", "start", "one", "minus"), "turned");
    add("Slice", NAMES("x", "one", "end", "one", "two"), "odd");
    ob_node(&node, "Split", NAMES("x"), NAMES("left", "right"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add_with("Concat", NAMES("inner", "last", "turned", "odd", "right", "left"), "y", "axis", 0,
             (const int64_t[]){1});
    out("y");
}

/* Sizes that are worked out in floats: factors of images, positions that count up and down; a remainder, a part that is cut out of the middle, the
 * first of a list beside what it is taken from. No node waits for the run. */
static void float_model(void)
{
    static const float factors[] = {1.5f, 0.7f}, scales[] = {1, 1, 0.3f, 2}, floats[] = {0, 1, -1};
    ob_graph(&graph);
    in("x", 1, DIMS(N, 3, S, T));
    ob_initializer(&graph, "factors", 1, DIMS(2), factors, sizeof factors);
    ob_initializer(&graph, "scales", 1, DIMS(4), scales, sizeof scales);
    for (int i = 0; i < 3; i++)
        ob_initializer(&graph, ((const char *const[]){"f0", "f1", "f-1"})[i], 1, 0, NULL,
                       &floats[i], sizeof(float));
    numbers("zero", DIMS(0));
    numbers("one", DIMS(1));
    numbers("two", DIMS(2));
    numbers("three", DIMS(3));
    numbers("four", DIMS(4));
    numbers("six", DIMS(6));
    numbers("i2", 0, (const int64_t[]){2});
    numbers("minus", DIMS(-1));
    add("Shape", NAMES("x"), "shape");
    add("Slice", NAMES("shape", "zero", "two"), "front");
    add("Slice", NAMES("shape", "two", "four"), "area");
    add("Slice", NAMES("shape", "two", "three"), "height");
    add_with("Cast", NAMES("area"), "wide", "to", 0, (const int64_t[]){1});
    add("Mul", NAMES("wide", "factors"), "product");
    add("Floor", NAMES("product"), "floor");
    add_with("Cast", NAMES("floor"), "whole", "to", 0, (const int64_t[]){7});
    add_with("Concat", NAMES("front", "whole"), "sizes", "axis", 0, (const int64_t[]){0});
    add("Resize", NAMES("x", "", "", "sizes"), "y");
    add("Resize", NAMES("x", "", "scales"), "scaled");
    add("Gather", NAMES("wide", "zero"), "wide1");
    add("Squeeze", NAMES("wide1"), "limit");
    add("Range", NAMES("f0", "limit", "f1"), "up");
    add("Range", NAMES("limit", "f0", "f-1"), "down");
    add("Add", NAMES("up", "down"), "steps");
    add("Sub", NAMES("height", "six"), "rest");
    add("Div", NAMES("rest", "two"), "first");
    add("Add", NAMES("first", "six"), "last");
    add("Slice", NAMES("x", "first", "last", "two"), "middle");
    add("Mul", NAMES("height", "minus"), "below");
    add("Mod", NAMES("below", "four"), "pad");
    add_with("Concat", NAMES("zero", "zero", "zero", "zero", "zero", "zero", "pad", "zero"), "pads",
             "axis", 0, (const int64_t[]){0});
    add("Pad", NAMES("x", "pads"), "padded");
    add("Slice", NAMES("x", "zero", "one", "three"), "column");
    add("Sub", NAMES("x", "column"), "beside");
    out("y");
    out("scaled");
    out("steps");
    out("middle");
    out("padded");
    out("beside");
}

/* ---- checks ------------------------------------------------------------------------------------- */

static struct sy_graph *read_open(void)
{
    struct sy_graph *g;
    ob_save(ob_path, &graph, 17);
    if (sy_onnx_read(ob_path, &g) < 0 || sy_graph_infer(g) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static struct sy_graph *optimized(struct sy_graph *g)
{
    if (sy_graph_optimize(g) < 0 || sy_graph_fuse(g, rig_engine.ops->fuses) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static struct sy_graph *read_sized(const char *const *names, const int64_t *values, int n)
{
    struct sy_onnx_dim dims[8];
    struct sy_graph *g;
    for (int i = 0; i < n; i++)
        dims[i] = (struct sy_onnx_dim){names[i], values[i]};
    if (sy_onnx_read_sized(ob_path, dims, n, &g) < 0 || sy_graph_infer(g) < 0)
        fail_msg("%s", sy_error_text());
    return optimized(g);
}

static void same_ends(const struct sy_graph *a, const struct sy_graph *b)
{
    char x[160], y[160];
    assert_int_equal(a->n_outputs, b->n_outputs);
    for (int i = 0; i < a->n_outputs; i++)
        assert_string_equal(sy_shape_text(&a->tensors[a->outputs[i]].shape, x, sizeof x),
                            sy_shape_text(&b->tensors[b->outputs[i]].shape, y, sizeof y));
    for (int i = 0; i < a->n_inputs; i++)
        assert_string_equal(sy_shape_text(&a->tensors[a->inputs[i]].shape, x, sizeof x),
                            sy_shape_text(&b->tensors[b->inputs[i]].shape, y, sizeof y));
}

static void run(struct engine_rig *rig, const struct rig_tensors *inputs, int64_t batch,
                struct rig_tensors *outputs)
{
    struct sy_program *program = rig_program(rig, batch);
    rig_take(rig, rig->graph->outputs, rig->graph->n_outputs, batch, 0xff, outputs);
    if (rig_run(rig, program, inputs, outputs, 0xff, NULL) < 0)
        fail_msg("%s", sy_error_text());
    rig_engine.ops->program_destroy(program);
}

/* `open` laid out once, bound to the sizes; beside the graph that was read with them. */
static void same_results(struct engine_rig *open, struct sy_graph *bound, struct sy_graph *sized,
                         int64_t batch)
{
    struct engine_case c = {.int_low = 0, .int_high = 19};
    struct sy_graph *laid_out = open->graph;
    struct engine_rig own;
    struct rig_tensors inputs, mine, its;
    if (rig_open(&own, sized, false) < 0)
        fail_msg("%s", sy_error_text());
    rig_take(&own, sized->inputs, sized->n_inputs, batch, 0, &inputs);
    rig_fill(&own, &c, &inputs, &seed);
    run(&own, &inputs, batch, &its);
    open->graph = bound;
    run(open, &inputs, batch, &mine);
    open->graph = laid_out;
    for (int i = 0; i < sized->n_outputs; i++) {
        assert_int_equal(mine.bytes[i], its.bytes[i]);
        for (uint64_t k = 0; k < mine.bytes[i] / sizeof(float); k++) {
            float a = ((float *)mine.data[i])[k], b = ((float *)its.data[i])[k];
            if (!(a - b <= 1e-4f && b - a <= 1e-4f))
                fail_msg("output %d, element %llu: %g, not %g", i, (unsigned long long)k, (double)a,
                         (double)b);
        }
    }
    rig_drop(&inputs);
    rig_drop(&mine);
    rig_drop(&its);
    rig_close(&own);
}

/* Through the codec, as a package keeps it. */
static struct sy_graph *coded(struct sy_graph *g)
{
    bool *all = calloc((size_t)g->n_tensors, sizeof *all);
    struct sy_graph *copy;
    void *bytes;
    size_t n;
    memset(all, true, (size_t)g->n_tensors);
    assert_int_equal(sy_graph_encode(g, all, &bytes, &n), SY_OK);
    if (sy_graph_decode(bytes, n, &copy) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_free(g);
    free(all);
    free(bytes);
    return copy;
}

/* names: of the file. given: their sizes, n at a time, as often as there are. */
static void check_model(const char *const *names, int n, const int64_t *given, int n_given)
{
    struct sy_graph *open = coded(optimized(read_open())), *usual;
    struct sy_sizes sizes;
    struct engine_rig rig;
    sy_graph_usual_sizes(open, &sizes);
    assert_int_equal(sy_graph_bind(open, &sizes, &usual), SY_OK);
    if (rig_open(&rig, usual, false) < 0)
        fail_msg("%s", sy_error_text());
    for (int at = 0; at + n <= n_given; at += n) {
        struct sy_graph *bound, *sized = read_sized(names, given + at, n);
        struct sy_given_input inputs[8];
        int64_t dims[8][SY_MAX_RANK], batch;
        for (int i = 0; i < sized->n_inputs; i++) {
            const struct sy_shape *shape = &sized->tensors[sized->inputs[i]].shape;
            inputs[i] = (struct sy_given_input){i, shape->rank, dims[i]};
            for (int d = 0; d < shape->rank; d++)
                dims[i][d] = sy_dim_at(shape->dims[d], 3);
        }
        if (sy_graph_solve(open, sized->n_inputs, inputs, &batch, &sizes) < 0 ||
            sy_graph_bind(open, &sizes, &bound) < 0)
            fail_msg("%s", sy_error_text());
        assert_int_equal(batch, 3);
        assert_int_equal(bound->n_nodes, open->n_nodes);
        same_ends(bound, sized);
        same_results(&rig, bound, sized, batch);
        sy_graph_free(bound);
        sy_graph_free(sized);
    }
    rig_close(&rig);
    sy_graph_free(usual);
    sy_graph_free(open);
}

static void test_text(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 24};
    text_model();
    check_model(NAMES("L2"), 1, lengths, 4);
    struct sy_graph *g = optimized(read_open()), *bound;
    assert_int_equal(g->n_symbols, 1);
    assert_string_equal(g->symbols[0].name, "L2");
    assert_int_equal(g->symbols[0].usual, 24); /* as many positions as there are */
    int n_attention = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n_attention += g->nodes[i].op == SY_OP_ATTENTION;
    assert_int_equal(n_attention, 1);
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{25}}, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'x'"));
    assert_non_null(strstr(sy_error_text(), "L2 is at most 24; here that is 25 and 24"));
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{-1}}, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'L2' is -1"));
    sy_graph_free(g);
}

static void test_image(void **state)
{
    (void)state;
    static const int64_t sizes[] = {32, 32, 17, 40, 9, 5, 63, 2 * 13};
    image_model();
    check_model(NAMES("L2", "L3"), 2, sizes, 8);
    struct sy_graph *g = read_open(), *bound;
    struct sy_sizes small = {{2, 30}};
    assert_int_equal(sy_graph_bind(g, &small, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'b'"));
    sy_graph_free(g);
}

static void test_cache(void **state)
{
    (void)state;
    /* L2, L4, L3: the mask is as long as both together */
    static const int64_t sizes[] = {1, 4, 5, 3, 1, 4, 2, 9, 11, 2, 0, 2};
    cache_model();
    check_model(NAMES("L2", "L4", "L3"), 3, sizes, 12);
    struct sy_graph *g = read_open();
    assert_int_equal(g->n_symbols, 2); /* the third follows */
    int64_t x[] = {2, 3, 8}, past[] = {2, 5, 8}, mask[] = {2, 8}, batch;
    struct sy_given_input inputs[] = {{0, 3, x}, {1, 3, past}, {2, 2, mask}};
    struct sy_sizes found;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_OK);
    assert_int_equal(batch, 2);
    mask[1] = 9;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "input"));
    mask[1] = 8;
    past[0] = 3;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    past[0] = 2;
    x[2] = 7;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    inputs[0].rank = 2;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'x' has 2 dimensions"));
    /* the past may be given alone: x follows from the rest */
    struct sy_given_input two[] = {{1, 3, past}, {2, 2, mask}};
    assert_int_equal(sy_graph_solve(g, 2, two, &batch, &found), SY_OK);
    assert_int_equal(batch, 2);
    sy_graph_free(g);
}

static void test_position(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 7, 23};
    position_model();
    check_model(NAMES("L2"), 1, lengths, 3);
}

static void test_slices(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2, 8, 30, 4};
    slice_model();
    check_model(NAMES("L2"), 1, lengths, 4);
}

static void test_floats(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 10, 33, 57, 6, 1, 20, 100};
    float_model();
    check_model(NAMES("L2", "L3"), 2, sizes, 8);
    struct sy_graph *g = optimized(read_open()), *bound;
    char text[160];
    for (int i = 0; i < g->n_nodes; i++)
        assert_int_not_equal(g->nodes[i].op, SY_OP_AT_RUN);
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{10, 10}}, &bound), SY_OK);
    /* as a float32 product is: 10 * 0.7f is 7, though 0.7f is less than 0.7 */
    assert_string_equal(sy_shape_text(&bound->tensors[bound->outputs[0]].shape, text, sizeof text),
                        "[N, 3, 15, 7]");
    sy_graph_free(bound);
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{5, 9}}, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'first'")); /* cut out of more than there is */
    sy_graph_free(g);
}

/* What is left of a size that a table limits; of one that no division tells it is left to the run, or refused, never taken for a wrong one. */
static void test_left_over(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 5, 24};
    for (int k = 0; k < 2; k++) {
        ob_graph(&graph);
        in("x", 1, DIMS(N, S, 4));
        weights("table", DIMS(24, 4));
        numbers("zero", DIMS(0));
        numbers("one", DIMS(1));
        numbers("minus", DIMS(-1));
        numbers("three", DIMS(3));
        add("Shape", NAMES("x"), "shape");
        add("Gather", NAMES("shape", "one"), "length");
        add("Slice", NAMES("table", "zero", "length"), "rows");
        add("Add", NAMES("length", "three"), "more");
        add_with("Concat", NAMES(k == 0 ? "length" : "more", "minus"), "target", "axis", 0,
                 (const int64_t[]){0});
        add("Reshape", NAMES("rows", "target"), "left");
        add("Add", NAMES("x", "left"), "y");
        out("y");
        if (k == 0) {
            check_model(NAMES("L2"), 1, lengths, 3);
            continue;
        }
        struct sy_graph *g;
        ob_save(ob_path, &graph, 17);
        assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
        int status = sy_graph_infer(g);
        assert_true(status == SY_OK || status == SY_EUNSUPPORTED);
        sy_graph_free(g);
    }
}

/* Texts and images, as many as there are of each: a product of all with all. Of sizes that meet, one is the other. */
static void test_two_batches(void **state)
{
    (void)state;
    struct sy_graph *g;
    int64_t x[] = {2, 8}, y[] = {5, 8}, batch;
    struct sy_given_input inputs[] = {{0, 2, x}, {1, 2, y}};
    struct sy_sizes sizes;
    char text[160];
    for (int meets = 0; meets < 2; meets++) {
        ob_graph(&graph);
        in("x", 1, DIMS(N, 8));
        in("y", 1, DIMS(S, 8));
        add_with("Transpose", NAMES("y"), "turned", "perm", DIMS(1, 0));
        add("MatMul", NAMES("x", "turned"), "all");
        out("all");
        if (meets) {
            add("Add", NAMES("x", "y"), "both");
            out("both");
        }
        g = optimized(read_open());
        int status = sy_graph_solve(g, 2, inputs, &batch, &sizes);
        assert_int_equal(status, meets ? SY_EARG : SY_OK);
        assert_int_equal(g->n_symbols, meets ? 0 : 1);
        if (!meets)
            assert_string_equal(sy_shape_text(&g->tensors[g->outputs[0]].shape, text, sizeof text),
                                "[N, L2]");
        sy_graph_free(g);
    }
}

/* First states whose first size is open too, as exporters write them: it can only be the number of directions. */
static void test_first_states(void **state)
{
    (void)state;
    static const int64_t sizes[] = {5, 1, 9, 1};
    ob_graph(&graph);
    in("x", 1, DIMS(N, S, 4));
    in("h0", 1, DIMS(T, N, 8));
    in("c0", 1, DIMS(T, N, 8));
    weights("w", DIMS(1, 32, 4));
    weights("r", DIMS(1, 32, 8));
    add_with("Transpose", NAMES("x"), "turned", "perm", DIMS(1, 0, 2));
    add_with("LSTM", NAMES("turned", "w", "r", "", "", "h0", "c0"), "y", "hidden_size", 0,
             (const int64_t[]){8});
    out("y");
    check_model(NAMES("L2", "L3"), 2, sizes, 4);
    struct sy_graph *g = optimized(read_open());
    assert_int_equal(g->n_symbols, 1);
    sy_graph_free(g);
}

/* Indices have sizes of their own, up to the data's; more are refused by the node's name. */
static void test_elements_by_index(void **state)
{
    (void)state;
    static const int64_t sizes[] = {20, 7, 3, 25, 2, 4};
    struct sy_sizes given;
    int64_t x[] = {3, 20, 4}, at[] = {3, 7, 5}, batch;
    struct sy_given_input inputs[] = {{0, 3, x}, {1, 3, at}};
    ob_graph(&graph);
    in("x", 1, DIMS(N, S, 4));
    in("at", 7, DIMS(N, T, P));
    add_with("GatherElements", NAMES("x", "at"), "y", "axis", 0, (const int64_t[]){1});
    out("y");
    check_model(NAMES("L2", "L3", "L4"), 3, sizes, 6);
    struct sy_graph *g = optimized(read_open()), *bound;
    assert_int_equal(sy_graph_solve(g, 2, inputs, &batch, &given), SY_OK);
    assert_int_equal(sy_graph_bind(g, &given, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'y'"));
    sy_graph_free(g);
}

/* As many rows as a mask is longer than what is past: the usual sizes give some, so that a layout can be chosen. */
static void test_usual_rows(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 7, 9, 2};
    ob_graph(&graph);
    in("mask", 1, DIMS(N, T, 8));
    in("past", 1, DIMS(N, P, 8));
    weights("w", DIMS(8, 8));
    numbers("one", DIMS(1));
    numbers("end", DIMS(INT64_MAX));
    numbers("flat", DIMS(-1, 8));
    add("Shape", NAMES("past"), "of_past");
    add("Slice", NAMES("of_past", "one", "two"), "n_past");
    numbers("two", DIMS(2));
    add("Slice", NAMES("mask", "n_past", "end", "one"), "rest");
    add("Reshape", NAMES("rest", "flat"), "rows");
    add("Gemm", NAMES("rows", "w"), "y");
    out("y");
    check_model(NAMES("L3", "L4"), 2, sizes, 4);
}

/* Of three factors those two go first whose result is smallest with the usual sizes: [N, L, 6, 5] is never made. */
static void test_einsum(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 4, 9};
    ob_graph(&graph);
    in("a", 1, DIMS(N, S, 6));
    in("c", 1, DIMS(N, S, 5));
    weights("b", DIMS(6, 5));
    ob_node(&node, "Einsum", NAMES("a", "b", "c"), NAMES("y"));
    ob_attr_text(&node, "equation", "bld,dn,bln->bdn");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    out("y");
    check_model(NAMES("L2"), 1, sizes, 3);
    struct sy_graph *g = optimized(read_open());
    for (int t = 0; t < g->n_tensors; t++)
        assert_in_range(g->tensors[t].shape.rank, 0, 3);
    sy_graph_free(g);
}

/* All inputs must have a number for what a job trains. */
static void test_training(void **state)
{
    (void)state;
    struct sy_graph *g;
    text_model();
    ob_save(ob_path, &graph, 17);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer_training(g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "--dim L2=SIZE"));
    sy_graph_free(g);
}

/* Bytes of a graph with sizes, changed at random: refused, or a graph that binds or refuses to. */
static void test_mutated(void **state)
{
    (void)state;
    cache_model();
    struct sy_graph *g = optimized(read_open()), *copy, *bound;
    void *bytes;
    size_t n;
    bool *none = calloc((size_t)g->n_tensors, sizeof *none);
    assert_int_equal(sy_graph_encode(g, none, &bytes, &n), SY_OK);
    unsigned char *changed = malloc(n);
    for (int i = 0; i < 20000; i++) {
        memcpy(changed, bytes, n);
        for (int k = 0; k < 1 + i % 3; k++)
            changed[rig_int(&seed, 0, (int64_t)n - 1)] = (unsigned char)rig_int(&seed, 0, 255);
        if (sy_graph_decode(changed, n, &copy) < 0)
            continue;
        if (sy_graph_bind(copy, &(struct sy_sizes){{3, 5}}, &bound) == SY_OK)
            sy_graph_free(bound);
        sy_graph_free(copy);
    }
    free(changed);
    free(bytes);
    free(none);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_image),
        cmocka_unit_test(test_cache),        cmocka_unit_test(test_position),
        cmocka_unit_test(test_slices),       cmocka_unit_test(test_training),
        cmocka_unit_test(test_mutated),      cmocka_unit_test(test_floats),
        cmocka_unit_test(test_left_over),    cmocka_unit_test(test_two_batches),
        cmocka_unit_test(test_first_states), cmocka_unit_test(test_elements_by_index),
        cmocka_unit_test(test_usual_rows),   cmocka_unit_test(test_einsum),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

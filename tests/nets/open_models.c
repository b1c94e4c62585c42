#include "tests/nets/open_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/rigs/engine_rig.h"

struct ob open_graph, open_node;
uint64_t open_seed;

/* ---- building ----------------------------------------------------------------------------------- */

void open_in(const char *name, int type, int n, const int64_t *dims)
{
    ob_input(&open_graph, OB_GRAPH_INPUT, name, type, n, dims);
}

void open_out(const char *name)
{
    ob_input(&open_graph, OB_GRAPH_OUTPUT, name, 1, 0, NULL);
}

void open_weights(const char *name, int n, const int64_t *dims)
{
    float values[4096];
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= dims[i];
    assert_in_range(count, 1, 4096);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)gb_uniform(&open_seed, -0.5, 0.5);
    ob_initializer(&open_graph, name, 1, n, dims, values, (size_t)count * sizeof *values);
}

void open_numbers(const char *name, int n, const int64_t *values)
{
    ob_int64s(&open_graph, name, n, values);
}

void open_add(const char *op, const char *const *inputs, const char *output)
{
    ob_node(&open_node, op, inputs, NAMES(output));
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
}

void open_add_with(const char *op, const char *const *inputs, const char *output, const char *attr,
                   int n, const int64_t *values)
{
    ob_node(&open_node, op, inputs, NAMES(output));
    if (n == 0)
        ob_attr_int(&open_node, attr, values[0]);
    else
        ob_attr_ints(&open_node, attr, n, values);
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
}

/* ---- models ------------------------------------------------------------------------------------- */

void open_text_model(void)
{
    ob_graph(&open_graph);
    open_in("ids", 7, DIMS(N, S));
    open_weights("table", DIMS(20, 8));
    open_weights("positions", DIMS(1, 24, 8));
    const char *const products[] = {"wq", "wk", "wv", "wo"};
    for (int i = 0; i < 4; i++)
        open_weights(products[i], DIMS(8, 8));
    open_numbers("zero", DIMS(0));
    open_numbers("one", DIMS(1));
    open_numbers("tail", DIMS(2, 4));
    open_numbers("width", DIMS(8));
    open_numbers("scalar0", 0, (const int64_t[]){0});
    open_numbers("scalar1", 0, (const int64_t[]){1});
    float low = -1e9f, none = 0;
    ob_initializer(&open_graph, "low", 1, 0, NULL, &low, sizeof low);
    ob_initializer(&open_graph, "none", 1, 0, NULL, &none, sizeof none);
    open_add("Shape", NAMES("ids"), "shape");
    open_add("Gather", NAMES("shape", "one"), "length");
    open_add("Gather", NAMES("shape", "zero"), "batch");
    open_add("Gather", NAMES("shape", "scalar1"), "count");
    open_add("Gather", NAMES("table", "ids"), "rows");
    open_add("Slice", NAMES("positions", "zero", "length", "one"), "places");
    open_add("Add", NAMES("rows", "places"), "x");
    open_add_with("Concat", NAMES("batch", "length", "tail"), "split", "axis", 0,
                  (const int64_t[]){0});
    for (int i = 0; i < 3; i++) {
        static const char *const made[] = {"q0", "k0", "v0", "q1", "k1", "v1", "q", "k", "v"};
        open_add("MatMul", NAMES("x", products[i]), made[i]);
        open_add("Reshape", NAMES(made[i], "split"), made[i + 3]);
        open_add_with("Transpose", NAMES(made[i + 3]), made[i + 6], "perm",
                      DIMS(0, 2, i == 1 ? 3 : 1, i == 1 ? 1 : 3));
    }
    open_add("MatMul", NAMES("q", "k"), "scores");
    open_add("Range", NAMES("scalar0", "count", "scalar1"), "steps");
    open_add("Unsqueeze", NAMES("steps", "one"), "column");
    open_add("LessOrEqual", NAMES("steps", "column"), "before");
    open_add("Where", NAMES("before", "none", "low"), "mask");
    open_add("Add", NAMES("scores", "mask"), "masked");
    open_add_with("Softmax", NAMES("masked"), "weights", "axis", 0, (const int64_t[]){-1});
    open_add("MatMul", NAMES("weights", "v"), "picked");
    open_add_with("Transpose", NAMES("picked"), "together", "perm", DIMS(0, 2, 1, 3));
    open_add_with("Concat", NAMES("batch", "length", "width"), "join", "axis", 0,
                  (const int64_t[]){0});
    open_add("Reshape", NAMES("together", "join"), "joined");
    open_add("MatMul", NAMES("joined", "wo"), "y");
    open_out("y");
}

void open_image_model(void)
{
    ob_graph(&open_graph);
    open_in("x", 1, DIMS(N, 3, S, T));
    open_weights("w0", DIMS(8, 3, 3, 3));
    open_weights("w1", DIMS(8, 8, 3, 3));
    open_weights("w2", DIMS(4, 16, 1, 1));
    open_numbers("two", DIMS(2));
    open_numbers("four", DIMS(4));
    open_numbers("zero", DIMS(0));
    ob_node(&open_node, "Conv", NAMES("x", "w0"), NAMES("a"));
    ob_attr_ints(&open_node, "strides", DIMS(2, 2));
    ob_attr_ints(&open_node, "pads", DIMS(1, 1, 1, 1));
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
    ob_node(&open_node, "MaxPool", NAMES("a"), NAMES("b"));
    ob_attr_ints(&open_node, "kernel_shape", DIMS(3, 3));
    ob_attr_ints(&open_node, "strides", DIMS(2, 2));
    ob_attr_int(&open_node, "ceil_mode", 1);
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
    ob_node(&open_node, "Conv", NAMES("b", "w1"), NAMES("c"));
    ob_attr_ints(&open_node, "strides", DIMS(2, 2));
    ob_attr_text(&open_node, "auto_pad", "SAME_UPPER");
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
    open_add("Relu", NAMES("c"), "d");
    open_add("Shape", NAMES("a"), "of_a");
    open_add("Shape", NAMES("d"), "of_d");
    open_add("Slice", NAMES("of_a", "two", "four", "zero"), "area");
    open_add("Slice", NAMES("of_d", "zero", "two", "zero"), "front");
    open_add_with("Concat", NAMES("front", "area"), "target", "axis", 0, (const int64_t[]){0});
    ob_node(&open_node, "Resize", NAMES("d", "", "", "target"), NAMES("e"));
    ob_attr_text(&open_node, "mode", "linear");
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
    open_add_with("Concat", NAMES("a", "e"), "f", "axis", 0, (const int64_t[]){1});
    open_add("Conv", NAMES("f", "w2"), "map");
    open_add("GlobalAveragePool", NAMES("map"), "pooled");
    open_out("map");
    open_out("pooled");
}

void open_cache_model(void)
{
    ob_graph(&open_graph);
    open_in("x", 1, DIMS(N, S, 8));
    open_in("past", 1, DIMS(N, P, 8));
    open_in("mask", 1, DIMS(N, T));
    open_weights("w", DIMS(8, 8));
    open_numbers("one", DIMS(1));
    open_numbers("end", DIMS(INT64_MAX));
    open_add("MatMul", NAMES("x", "w"), "new");
    open_add_with("Concat", NAMES("past", "new"), "keys", "axis", 0, (const int64_t[]){1});
    open_add_with("Transpose", NAMES("keys"), "turned", "perm", DIMS(0, 2, 1));
    open_add("MatMul", NAMES("x", "turned"), "scores");
    open_add("Unsqueeze", NAMES("mask", "one"), "wide");
    open_add("Add", NAMES("scores", "wide"), "masked");
    open_add_with("Softmax", NAMES("masked"), "weights", "axis", 0, (const int64_t[]){-1});
    open_add("MatMul", NAMES("weights", "keys"), "y");
    open_add("Shape", NAMES("past"), "of_past");
    open_add("Gather", NAMES("of_past", "one"), "n_past");
    open_add("Slice", NAMES("keys", "n_past", "end", "one"), "last");
    open_add("Add", NAMES("last", "new"), "twice");
    open_out("y");
    open_out("keys");
    open_out("twice");
}

void open_position_model(void)
{
    ob_graph(&open_graph);
    open_in("past", 1, DIMS(N, S, 8));
    open_weights("positions", DIMS(24, 8));
    open_numbers("one", DIMS(1));
    open_add("Shape", NAMES("past"), "shape");
    open_add("Gather", NAMES("shape", "one"), "length");
    open_add("Gather", NAMES("positions", "length"), "row");
    open_add("Add", NAMES("past", "row"), "y");
    open_out("y");
}

void open_slice_model(void)
{
    ob_graph(&open_graph);
    open_in("x", 1, DIMS(N, S, 4));
    open_numbers("one", DIMS(1));
    open_numbers("minus", DIMS(-1));
    open_numbers("three", DIMS(-3));
    open_numbers("two", DIMS(2));
    open_numbers("end", DIMS(INT64_MAX));
    open_numbers("start", DIMS(-INT64_MAX));
    open_add("Slice", NAMES("x", "one", "minus", "one"), "inner");
    open_add("Slice", NAMES("x", "three", "end", "one"), "last");
    open_add("Slice", NAMES("x", "minus", "start", "one", "minus"), "turned");
    open_add("Slice", NAMES("x", "one", "end", "one", "two"), "odd");
    ob_node(&open_node, "Split", NAMES("x"), NAMES("left", "right"));
    ob_attr_int(&open_node, "axis", 1);
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
    open_add_with("Concat", NAMES("inner", "last", "turned", "odd", "right", "left"), "y", "axis",
                  0, (const int64_t[]){1});
    open_out("y");
}

void open_float_model(void)
{
    static const float factors[] = {1.5f, 0.7f}, scales[] = {1, 1, 0.3f, 2}, floats[] = {0, 1, -1};
    ob_graph(&open_graph);
    open_in("x", 1, DIMS(N, 3, S, T));
    ob_initializer(&open_graph, "factors", 1, DIMS(2), factors, sizeof factors);
    ob_initializer(&open_graph, "scales", 1, DIMS(4), scales, sizeof scales);
    for (int i = 0; i < 3; i++)
        ob_initializer(&open_graph, ((const char *const[]){"f0", "f1", "f-1"})[i], 1, 0, NULL,
                       &floats[i], sizeof(float));
    open_numbers("zero", DIMS(0));
    open_numbers("one", DIMS(1));
    open_numbers("two", DIMS(2));
    open_numbers("three", DIMS(3));
    open_numbers("four", DIMS(4));
    open_numbers("six", DIMS(6));
    open_numbers("i2", 0, (const int64_t[]){2});
    open_numbers("minus", DIMS(-1));
    open_add("Shape", NAMES("x"), "shape");
    open_add("Slice", NAMES("shape", "zero", "two"), "front");
    open_add("Slice", NAMES("shape", "two", "four"), "area");
    open_add("Slice", NAMES("shape", "two", "three"), "height");
    open_add_with("Cast", NAMES("area"), "wide", "to", 0, (const int64_t[]){1});
    open_add("Mul", NAMES("wide", "factors"), "product");
    open_add("Floor", NAMES("product"), "floor");
    open_add_with("Cast", NAMES("floor"), "whole", "to", 0, (const int64_t[]){7});
    open_add_with("Concat", NAMES("front", "whole"), "sizes", "axis", 0, (const int64_t[]){0});
    open_add("Resize", NAMES("x", "", "", "sizes"), "y");
    open_add("Resize", NAMES("x", "", "scales"), "scaled");
    open_add("Gather", NAMES("wide", "zero"), "wide1");
    open_add("Squeeze", NAMES("wide1"), "limit");
    open_add("Range", NAMES("f0", "limit", "f1"), "up");
    open_add("Range", NAMES("limit", "f0", "f-1"), "down");
    open_add("Add", NAMES("up", "down"), "steps");
    open_add("Sub", NAMES("height", "six"), "rest");
    open_add("Div", NAMES("rest", "two"), "first");
    open_add("Add", NAMES("first", "six"), "last");
    open_add("Slice", NAMES("x", "first", "last", "two"), "middle");
    open_add("Mul", NAMES("height", "minus"), "below");
    open_add("Mod", NAMES("below", "four"), "pad");
    open_add_with("Concat", NAMES("zero", "zero", "zero", "zero", "zero", "zero", "pad", "zero"),
                  "pads", "axis", 0, (const int64_t[]){0});
    open_add("Pad", NAMES("x", "pads"), "padded");
    open_add("Slice", NAMES("x", "zero", "one", "three"), "column");
    open_add("Sub", NAMES("x", "column"), "beside");
    open_out("y");
    open_out("scaled");
    open_out("steps");
    open_out("middle");
    open_out("padded");
    open_out("beside");
}

/* Sizes as exporters write them, from ONNX files through the engine: negative ones, such without names, first dimensions that are lengths, ends far
 * behind everything, weights that a body gives their shape; and arithmetic on sizes against the same in C. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/infer/explain.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/sized_run.h"

enum { FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9, MOST = 4096 };

static struct ob graph, node;
static uint64_t seed;
static float data[MOST];

static void input(const char *name, int type, int rank, const int64_t *dims)
{
    ob_input(&graph, OB_GRAPH_INPUT, name, type, rank, dims);
}

/* All its dimensions are symbolic. */
static void output(const char *name, int type, int rank)
{
    ob_input(&graph, OB_GRAPH_OUTPUT, name, type, rank, (const int64_t[]){-1, -1, -1, -1});
}

static void numbers(const char *name, int n, const int64_t *values)
{
    ob_int64s(&graph, name, n, values);
}

/* A node of the graph `to` with an attribute of integers; n 0: of one. */
static void add_with(struct ob *to, const char *op, const char *const *inputs, const char *out,
                     const char *attr, int n, const int64_t *values)
{
    ob_node(&node, op, inputs, NAMES(out));
    if (n == 0)
        ob_attr_int(&node, attr, values[0]);
    else
        ob_attr_ints(&node, attr, n, values);
    ob_message(to, OB_GRAPH_NODE, &node);
}

static struct sy_graph *import(void)
{
    ob_save(ob_path, &graph, 14);
    return sized_import(ob_path);
}

static const float *random_data(size_t n)
{
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)gb_uniform(&seed, -1, 1);
    return data;
}

/* One input of floats; the result has these dimensions. */
static struct sized_output run_floats(const struct sy_graph *g, int rank, const int64_t *dims,
                                      int out_rank, const int64_t *out_dims)
{
    struct sized_input in = {.rank = rank};
    struct sized_output out;
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    in.data = random_data(n);
    memcpy(in.dims, dims, (size_t)rank * sizeof *dims);
    if (sized_run(g, 1, &in, &out) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(out.shape.rank, out_rank);
    for (int i = 0; i < out_rank; i++)
        assert_int_equal(out.shape.dims[i].fixed, out_dims[i]);
    return out;
}

/* ---- dimensions --------------------------------------------------------------------------------- */

/* In an input, a declared output and in between; the first is N, as if it had no number. */
static void test_negative_dimensions(void **state)
{
    (void)state;
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-7, 3, -9));
    ob_input(&graph, 13, "z", FLOAT, DIMS(-7, 3, -9)); /* value_info */
    ob_add(&graph, "Relu", NAMES("x"), NAMES("z"));
    ob_add(&graph, "Neg", NAMES("z"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-7, 3, -9));
    struct sy_graph *g = import();
    assert_int_equal(g->tensors[g->inputs[0]].shape.dims[0].per_batch, 1);
    assert_int_equal(g->n_symbols, 1);
    assert_string_equal(g->symbols[0].name, "x.2");
    for (int64_t n = 1; n <= 3; n++) {
        struct sized_output out = run_floats(g, DIMS(n, 3, 2 * n), DIMS(n, 3, 2 * n));
        for (int64_t i = 0; i < 6 * n * n; i++)
            assert_true(((float *)out.data)[i] == -fmaxf(data[i], 0));
        free(out.data);
    }
    sy_graph_free(g);
}

static float convolved(const float *x, const float *k, int64_t length, int64_t row, int64_t at)
{
    float sum = 0;
    for (int64_t c = 0; c < 4; c++)
        for (int64_t t = 0; t < 3; t++)
            if (at + t - 1 >= 0 && at + t - 1 < length)
                sum += x[(at + t - 1) * 4 + c] * k[(row * 4 + c) * 3 + t];
    return sum;
}

/* The open first dimension is a length: Transpose moves it to the end, a Conv runs along it. */
static void test_first_is_a_length(void **state)
{
    (void)state;
    static float k[5 * 4 * 3];
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-2, 4));
    ob_uniform(&graph, "k", k, DIMS(5, 4, 3), &seed);
    numbers("axis0", 1, (const int64_t[]){0});
    add_with(&graph, "Transpose", NAMES("x"), "t", "perm", DIMS(1, 0));
    ob_add(&graph, "Unsqueeze", NAMES("t", "axis0"), NAMES("u"));
    add_with(&graph, "Conv", NAMES("u", "k"), "y", "pads", DIMS(1, 1));
    output("y", FLOAT, 3);
    struct sy_graph *g = import();
    assert_int_equal(sized_at_run(g), 0);
    assert_string_equal(g->symbols[0].name, "L2");
    for (int64_t length = 1; length <= 30; length += 7) {
        struct sized_output out = run_floats(g, DIMS(length, 4), DIMS(1, 5, length));
        for (int64_t i = 0; i < 5 * length; i++)
            assert_true(fabsf(((float *)out.data)[i] -
                              convolved(data, k, length, i / length, i % length)) < 1e-5f);
        free(out.data);
    }
    sy_graph_free(g);
}

/* The first half of the rows, and x turned upside down. */
static void test_part_of_the_rows(void **state)
{
    (void)state;
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, 2));
    numbers("zero", 1, (const int64_t[]){0});
    numbers("one", 1, (const int64_t[]){1});
    numbers("two", 1, (const int64_t[]){2});
    numbers("minus", 1, (const int64_t[]){-1});
    numbers("far", 1, (const int64_t[]){INT64_MIN});
    ob_add(&graph, "Shape", NAMES("x"), NAMES("shape"));
    ob_add(&graph, "Slice", NAMES("shape", "zero", "one"), NAMES("n"));
    ob_add(&graph, "Div", NAMES("n", "two"), NAMES("half"));
    ob_add(&graph, "Slice", NAMES("x", "minus", "far", "zero", "minus"), NAMES("turned"));
    ob_add(&graph, "Slice", NAMES("turned", "zero", "half", "zero"), NAMES("y"));
    output("y", FLOAT, 2);
    struct sy_graph *g = import();
    assert_int_equal(sized_at_run(g), 0);
    for (int64_t n = 2; n <= 5; n++) {
        struct sized_output out = run_floats(g, DIMS(n, 2), DIMS(n / 2, 2));
        for (int64_t i = 0; i < n / 2 * 2; i++)
            assert_true(((float *)out.data)[i] == data[(n - 1 - i / 2) * 2 + i % 2]);
        free(out.data);
    }
    sy_graph_free(g);
}

/* n * n - n more columns: not linear in the number of rows. */
static void test_square_of_the_rows(void **state)
{
    (void)state;
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, 3));
    numbers("zero", 1, (const int64_t[]){0});
    numbers("one", 1, (const int64_t[]){1});
    numbers("front", 3, (const int64_t[]){0, 0, 0});
    ob_add(&graph, "Shape", NAMES("x"), NAMES("shape"));
    ob_add(&graph, "Slice", NAMES("shape", "zero", "one"), NAMES("n"));
    ob_add(&graph, "Mul", NAMES("n", "n"), NAMES("more"));
    ob_add(&graph, "Sub", NAMES("more", "n"), NAMES("pad"));
    add_with(&graph, "Concat", NAMES("front", "pad"), "pads", "axis", 0, (const int64_t[]){0});
    ob_add(&graph, "Pad", NAMES("x", "pads"), NAMES("y"));
    output("y", FLOAT, 2);
    struct sy_graph *g = import();
    assert_int_equal(sized_at_run(g), 0);
    for (int64_t n = 1; n <= 4; n++) {
        int64_t width = 3 + n * n - n;
        struct sized_output out = run_floats(g, DIMS(n, 3), DIMS(n, width));
        for (int64_t i = 0; i < n * width; i++)
            assert_true(((float *)out.data)[i] ==
                        (i % width < 3 ? data[i / width * 3 + i % width] : 0));
        free(out.data);
    }
    sy_graph_free(g);
}

/* ---- ends of slices ----------------------------------------------------------------------------- */

/* x[from:end] of the rows, or of the columns. */
static struct sy_graph *sliced(int64_t from, int64_t end, int64_t axis)
{
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, -2));
    numbers("from", 1, &from);
    numbers("end", 1, &end);
    numbers("axis", 1, &axis);
    ob_add(&graph, "Slice", NAMES("x", "from", "end", "axis"), NAMES("part"));
    ob_add(&graph, "Neg", NAMES("part"), NAMES("y"));
    output("y", FLOAT, 2);
    return import();
}

static int64_t row_of(int64_t bound, int64_t n)
{
    bound += bound < 0 ? n : 0;
    return SY_MIN(SY_MAX(bound, 0), n);
}

static void test_ends(void **state)
{
    (void)state;
    static const int64_t ends[] = {1000000000, INT32_MAX, INT64_MAX, 10000000, 100000, 5, -1};
    for (size_t e = 0; e < SY_ARRAY_LEN(ends); e++)
        for (int64_t from = -3; from <= 2; from++)
            for (int64_t axis = 0; axis < 2; axis++) {
                struct sy_graph *g = sliced(from, ends[e], axis);
                assert_int_equal(sized_at_run(g), 0);
                for (int64_t n = 4; n <= 8; n += 2) {
                    int64_t dims[2] = {3, 3}, size, first = row_of(from, n);
                    dims[axis] = n;
                    size = SY_MAX(row_of(ends[e], n) - first, 0);
                    struct sized_output out =
                        run_floats(g, 2, dims, DIMS(axis ? 3 : size, axis ? size : 3));
                    for (int64_t i = 0; i < 3 * size; i++) {
                        int64_t row = axis ? i / size : first + i / 3,
                                column = axis ? first + i % size : i % 3;
                        assert_true(((float *)out.data)[i] == -data[row * dims[1] + column]);
                    }
                    free(out.data);
                }
                sy_graph_free(g);
            }
}

/* To an end that no number of rows reaches they stay N: requests are computed together. */
static void test_rows_to_the_end(void **state)
{
    (void)state;
    for (int64_t end = 1000000000; end > 0 && end <= INT64_MAX; end *= 1000) {
        struct sy_graph *g = sliced(0, end, 0);
        assert_int_equal(g->tensors[g->inputs[0]].shape.dims[0].per_batch, 1);
        assert_int_equal(g->tensors[g->outputs[0]].shape.dims[0].per_batch, 1);
        sy_graph_free(g);
        if (end > INT64_MAX / 1000)
            break;
    }
}

/* ---- arithmetic --------------------------------------------------------------------------------- */

struct arithmetic {
    const char *ops[8][5]; /* operator, result, operands */
    int64_t (*in_c)(int64_t n);
};

static int64_t clamped(int64_t n)
{
    return SY_MIN(SY_MAX(n, 2), 5);
}

static int64_t other_than_five(int64_t n)
{
    return n == 5 ? 2 : n;
}

static int64_t outside(int64_t n)
{
    return n < 5 || n >= 9 ? n + 1 : 2;
}

static int64_t distance(int64_t n)
{
    return llabs(n - 5) + 1;
}

static int64_t one_of_both(int64_t n)
{
    return (n > 2) != (n >= 9) ? 5 : 1;
}

static int64_t rounded_up(int64_t n)
{
    return n + (5 - n % 5) % 5;
}

static int64_t squared(int64_t n)
{
    return SY_MIN(n * n, 9);
}

static int64_t without_five(int64_t n)
{
    return n != 5 ? 9 : 1;
}

static const struct arithmetic arithmetics[] = {
    {{{"Max", "a", "n", "two"}, {"Min", "k", "a", "five", "nine"}}, clamped},
    {{{"Clip", "k", "n", "two_s", "five_s"}}, clamped},
    {{{"Equal", "e", "n", "five"}, {"Where", "k", "e", "two", "n"}}, other_than_five},
    {{{"Less", "a", "n", "five"},
      {"GreaterOrEqual", "b", "n", "nine"},
      {"Or", "c", "a", "b"},
      {"Add", "d", "n", "one"},
      {"Where", "k", "c", "d", "two"}},
     outside},
    {{{"Sub", "a", "n", "five"}, {"Abs", "b", "a"}, {"Add", "k", "b", "one"}}, distance},
    {{{"Greater", "a", "n", "two"},
      {"LessOrEqual", "b", "nine", "n"},
      {"Xor", "c", "a", "b"},
      {"Not", "d", "c"},
      {"Where", "k", "d", "one", "five"}},
     one_of_both},
    {{{"Mod", "a", "n", "five"},
      {"Sub", "b", "five", "a"},
      {"Mod", "c", "b", "five"},
      {"Add", "k", "n", "c"}},
     rounded_up},
    {{{"Pow", "a", "n", "two"}, {"Min", "k", "a", "nine"}}, squared},
    {{{"Sub", "a", "n", "five"}, {"CastToBool", "b", "a"}, {"Where", "k", "b", "nine", "one"}},
     without_five},
};

static void add_arithmetic(const struct arithmetic *a)
{
    for (int i = 0; a->ops[i][0]; i++) {
        const char *const *op = a->ops[i], *operands[4] = {op[2], op[3], op[4], NULL};
        if (strcmp(op[0], "CastToBool") == 0)
            add_with(&graph, "Cast", operands, op[1], "to", 0, (const int64_t[]){BOOL});
        else
            ob_add(&graph, op[0], operands, NAMES(op[1]));
    }
}

/* k is made of the size of x along `axis`; the result has k elements. */
static struct sy_graph *sized_by(const struct arithmetic *a, int64_t axis)
{
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, -2));
    numbers("axis", 1, &axis);
    numbers("one", 1, (const int64_t[]){1});
    numbers("two", 1, (const int64_t[]){2});
    numbers("two_s", 0, (const int64_t[]){2});
    numbers("five", 1, (const int64_t[]){5});
    numbers("five_s", 0, (const int64_t[]){5});
    numbers("nine", 1, (const int64_t[]){9});
    ob_initializer(&graph, "zero", FLOAT, 0, NULL, &(float){0}, sizeof(float));
    ob_add(&graph, "Shape", NAMES("x"), NAMES("shape"));
    ob_add(&graph, "Gather", NAMES("shape", "axis"), NAMES("n"));
    add_arithmetic(a);
    ob_add(&graph, "Expand", NAMES("zero", "k"), NAMES("zeros"));
    ob_add(&graph, "Exp", NAMES("zeros"), NAMES("y"));
    output("y", FLOAT, 1);
    return import();
}

static void test_arithmetic(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(arithmetics); i++)
        for (int64_t axis = 0; axis < 2; axis++) {
            struct sy_graph *g = sized_by(&arithmetics[i], axis);
            assert_int_equal(sized_at_run(g), 0);
            for (int64_t n = 1; n <= 11; n++) {
                struct sized_output out =
                    run_floats(g, DIMS(axis ? 2 : n, axis ? n : 2), DIMS(arithmetics[i].in_c(n)));
                assert_true(((float *)out.data)[0] == 1);
                free(out.data);
            }
            sy_graph_free(g);
        }
}

/* A shape is taken apart by Split, changed by ScatterND, and read by GatherElements and GatherND. */
static void test_taken_apart(void **state)
{
    (void)state;
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, -2, 4));
    numbers("zero", 1, (const int64_t[]){0});
    numbers("two", 1, (const int64_t[]){2});
    ob_initializer(&graph, "place", INT64, DIMS(1, 1), (const int64_t[]){1}, sizeof(int64_t));
    ob_add(&graph, "Shape", NAMES("x"), NAMES("shape"));
    ob_node(&node, "Split", NAMES("shape"), NAMES("n", "t", "four"));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Mul", NAMES("t", "four"), NAMES("flat"));
    add_with(&graph, "Concat", NAMES("n", "flat"), "rows", "axis", 0, (const int64_t[]){0});
    ob_add(&graph, "Reshape", NAMES("x", "rows"), NAMES("x2"));
    ob_add(&graph, "ScatterND", NAMES("rows", "place", "two"), NAMES("narrow"));
    ob_add(&graph, "GatherElements", NAMES("narrow", "zero"), NAMES("n2"));
    ob_add(&graph, "GatherND", NAMES("narrow", "place"), NAMES("w2"));
    add_with(&graph, "Concat", NAMES("n2", "w2"), "extra", "axis", 0, (const int64_t[]){0});
    ob_add(&graph, "ConstantOfShape", NAMES("extra"), NAMES("zeros"));
    add_with(&graph, "Concat", NAMES("x2", "zeros"), "y", "axis", 0, (const int64_t[]){1});
    output("y", FLOAT, 2);
    struct sy_graph *g = import();
    assert_int_equal(sized_at_run(g), 0);
    for (int64_t n = 1; n <= 3; n++) {
        int64_t width = 8 * n + 2;
        struct sized_output out = run_floats(g, DIMS(n, 2 * n, 4), DIMS(n, width));
        for (int64_t i = 0; i < n * width; i++)
            assert_true(((float *)out.data)[i] ==
                        (i % width < 8 * n ? data[i / width * 8 * n + i % width] : 0));
        free(out.data);
    }
    sy_graph_free(g);
}

/* ---- branches that sizes decide on -------------------------------------------------------------- */

/* A squeeze of an open dimension, as PyTorch exports it: whether it is 1 is asked first. What follows may take both results, or one only. */
static struct sy_graph *squeezed(bool takes_both)
{
    static struct ob branches[2];
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, -2, 4));
    numbers("one", 1, (const int64_t[]){1});
    numbers("one_s", 0, (const int64_t[]){1});
    ob_initializer(&graph, "two", FLOAT, DIMS(4, 4),
                   (const float[]){2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2},
                   16 * sizeof(float));
    ob_add(&graph, "Shape", NAMES("x"), NAMES("shape"));
    ob_add(&graph, "Gather", NAMES("shape", "one_s"), NAMES("length"));
    ob_add(&graph, "Equal", NAMES("length", "one_s"), NAMES("is_one"));
    for (int i = 0; i < 2; i++) {
        ob_graph(&branches[i]);
        if (i)
            ob_add(&branches[i], "Squeeze", NAMES("x", "one"), NAMES("part"));
        else
            ob_add(&branches[i], "Identity", NAMES("x"), NAMES("part"));
        ob_input(&branches[i], OB_GRAPH_OUTPUT, "part", FLOAT, DIMS(OB_NAMELESS));
    }
    ob_node(&node, "If", NAMES("is_one"), NAMES("flat"));
    ob_attr_graph(&node, "then_branch", &branches[1]);
    ob_attr_graph(&node, "else_branch", &branches[0]);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, takes_both ? "MatMul" : "Gemm", NAMES("flat", "two"), NAMES("y"));
    output("y", FLOAT, 2);
    return import();
}

static void expect_doubled(const struct sy_graph *g, int64_t rows, int64_t length, int rank)
{
    const int64_t dims[3] = {rows, rank == 2 ? 4 : length, 4};
    struct sized_output out = run_floats(g, DIMS(rows, length, 4), rank, dims);
    for (int64_t i = 0; i < rows * length * 4; i++)
        assert_true(((float *)out.data)[i] == 2 * data[i]);
    free(out.data);
}

static void test_branches_by_size(void **state)
{
    (void)state;
    struct sized_output out;
    struct sy_graph *g = squeezed(false); /* Gemm takes two dimensions */
    assert_int_equal(sized_at_run(g), 0);
    for (int64_t rows = 1; rows <= 3; rows++)
        expect_doubled(g, rows, 1, 2);
    const struct sized_input longer = {data, 3, {1, 2, 4}};
    assert_int_equal(sized_run(g, 1, &longer, &out), SY_EARG);
    sy_graph_free(g);
    g = squeezed(true); /* the run decides */
    assert_int_equal(sized_at_run(g), 2);
    for (int64_t rows = 1; rows <= 3; rows++) {
        expect_doubled(g, rows, 1, 2);
        expect_doubled(g, rows, rows + 1, 3);
    }
    sy_graph_free(g);
}

/* ---- what is told ------------------------------------------------------------------------------- */

static void expect_told(const struct sy_graph *g, const char *const *parts)
{
    char *text;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    assert_int_equal(sy_explain_print(g, to), SY_OK);
    fclose(to);
    for (; *parts; parts++)
        if (!strstr(text, *parts))
            fail_msg("'%s' is not in:\n%s", *parts, text);
    free(text);
}

static void test_explained(void **state)
{
    (void)state;
    struct sy_graph *g = sliced(1, INT64_MAX, 0);
    expect_told(g, NAMES("nothing is sized at run\n"));
    sy_graph_free(g);
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, 4));
    numbers("sum", 1, (const int64_t[]){1});
    ob_add(&graph, "Relu", NAMES("x"), NAMES("z"));
    ob_add(&graph, "NonZero", NAMES("z"), NAMES("places"));
    ob_add(&graph, "ReduceSum", NAMES("places", "sum"), NAMES("y"));
    output("y", INT64, 2);
    g = import();
    expect_told(g, NAMES("2 of 3 nodes are sized at run", "(NonZero, opset 14)",
                         "decided by 'z', made by node", "(Relu, opset 14)",
                         "2 nodes:", "1 ReduceSum", "outputs: 'y'"));
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negative_dimensions),
        cmocka_unit_test(test_first_is_a_length),
        cmocka_unit_test(test_part_of_the_rows),
        cmocka_unit_test(test_square_of_the_rows),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_rows_to_the_end),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_taken_apart),
        cmocka_unit_test(test_branches_by_size),
        cmocka_unit_test(test_explained),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* First dimensions of several inputs: a size of its own for each that has another name or none, one size where the graph ties them; indices of fewer rows
 * than the data has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

#define OPEN OB_NAMELESS

static struct ob graph, node;

static void in(const char *name, int type, int n, const int64_t *dims)
{
    ob_input(&graph, OB_GRAPH_INPUT, name, type, n, dims);
}

static void add(const char *op, const char *const *inputs, const char *output)
{
    ob_node(&node, op, inputs, NAMES(output));
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static struct sy_graph *read_graph(const char *output)
{
    ob_input(&graph, OB_GRAPH_OUTPUT, output, 1, 0, NULL);
    ob_save(ob_path, &graph, 17);
    return onnx_optimized(ob_path);
}

/* What a request of two inputs of these shapes comes to; `bound` NULL: it is only asked. */
static int ask(const struct sy_graph *g, int x_rank, const int64_t *x, int y_rank, const int64_t *y,
               int64_t *batch, struct sy_graph **bound)
{
    struct sy_given_input inputs[] = {{0, x_rank, x}, {1, y_rank, y}};
    struct sy_sizes sizes;
    SY_TRY(sy_graph_solve(g, 2, inputs, batch, &sizes));
    return bound ? sy_graph_bind(g, &sizes, bound) : SY_OK;
}

static void check_output(const struct sy_graph *g, int64_t batch, int64_t rows, int64_t columns)
{
    const struct sy_shape *shape = &g->tensors[g->outputs[0]].shape;
    assert_int_equal(shape->rank, 2);
    assert_int_equal(sy_dim_at(shape->dims[0], batch), rows);
    assert_int_equal(sy_dim_at(shape->dims[1], batch), columns);
}

/* All with all: as many of each as there are. */
static void test_apart(void **state)
{
    (void)state;
    int64_t batch;
    struct sy_graph *bound;
    ob_graph(&graph);
    in("x", 1, DIMS(OPEN, 8));
    in("y", 1, DIMS(OPEN, 8));
    ob_node(&node, "Transpose", NAMES("y"), NAMES("turned"));
    ob_attr_ints(&node, "perm", DIMS(1, 0));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("MatMul", NAMES("x", "turned"), "all");
    struct sy_graph *g = read_graph("all");
    if (ask(g, DIMS(2, 8), DIMS(5, 8), &batch, &bound) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(batch, 2);
    check_output(bound, batch, 2, 5);
    sy_graph_free(bound);
    sy_graph_free(g);
}

/* Rows that are added, or whose elements are as many, are of one batch. */
static void test_tied(void **state)
{
    (void)state;
    int64_t batch;
    for (int by_elements = 0; by_elements < 2; by_elements++) {
        ob_graph(&graph);
        in("x", 1, DIMS(OPEN, OPEN, 4));
        in("y", 1, DIMS(OPEN, OPEN, 4));
        ob_int64s(&graph, "flat", DIMS(-1, 4));
        add("Reshape", NAMES("x", "flat"), "rows_x");
        add("Reshape", NAMES("y", "flat"), "rows_y");
        add("Add", by_elements ? NAMES("rows_x", "rows_y") : NAMES("x", "y"), "z");
        struct sy_graph *g = read_graph("z");
        assert_int_equal(g->n_symbols, 1); /* the length */
        assert_int_equal(ask(g, DIMS(3, 5, 4), DIMS(3, 5, 4), &batch, NULL), SY_OK);
        assert_int_equal(batch, 3);
        assert_int_equal(ask(g, DIMS(3, 5, 4), DIMS(5, 3, 4), &batch, NULL), SY_EARG);
        sy_graph_free(g);
    }
}

static void run_elements(struct engine_rig *rig, struct sy_graph *bound, int64_t batch)
{
    float x[4][5], y[3][2];
    int64_t at[3][2] = {{4, 0}, {1, -1}, {2, 2}};
    void *given[] = {x, at}, *taken[] = {y};
    uint64_t bytes[] = {sizeof x, sizeof at}, out_bytes[] = {sizeof y};
    struct rig_tensors inputs = {2, given, bytes}, outputs = {1, taken, out_bytes};
    struct sy_graph *laid_out = rig->graph;
    for (int i = 0; i < 20; i++)
        x[i / 5][i % 5] = (float)(i * i);
    rig->graph = bound;
    struct sy_program *program = rig_program(rig, batch);
    assert_int_equal(rig_run(rig, program, &inputs, &outputs, 0xff, NULL), SY_OK);
    rig_engine.ops->program_destroy(program);
    rig->graph = laid_out;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            assert_true(y[i][j] == x[i][(at[i][j] + 5) % 5]);
}

/* Fewer rows of indices than of data; more are refused, with the numbers. Laid out with the usual sizes, run with others. */
static void test_fewer_rows(void **state)
{
    (void)state;
    int64_t batch;
    struct sy_sizes sizes;
    struct sy_graph *usual, *bound;
    struct engine_rig rig;
    ob_graph(&graph);
    in("x", 1, DIMS(-1, 5));
    in("at", 7, DIMS(-2, 2));
    ob_node(&node, "GatherElements", NAMES("x", "at"), NAMES("y"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    struct sy_graph *g = read_graph("y");
    assert_int_equal(ask(g, DIMS(2, 5), DIMS(3, 2), &batch, NULL), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "L2 is at most N; here that is 3 and 2"));
    sy_graph_usual_sizes(g, &sizes);
    assert_int_equal(sy_graph_bind(g, &sizes, &usual), SY_OK);
    if (rig_open(&rig, usual, false) < 0 || ask(g, DIMS(4, 5), DIMS(3, 2), &batch, &bound) < 0)
        fail_msg("%s", sy_error_text());
    check_output(bound, batch, 3, 2);
    run_elements(&rig, bound, batch);
    rig_close(&rig);
    sy_graph_free(bound);
    sy_graph_free(usual);
    sy_graph_free(g);
}

/* The indices come first, so that their rows are N: no number of rows is at least each N but N itself. */
static void test_indices_first(void **state)
{
    (void)state;
    int64_t batch;
    struct sy_graph *bound;
    ob_graph(&graph);
    in("at", 7, DIMS(OPEN, 2));
    in("x", 1, DIMS(OPEN, 5));
    ob_node(&node, "GatherElements", NAMES("x", "at"), NAMES("y"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    struct sy_graph *g = read_graph("y");
    if (ask(g, DIMS(3, 2), DIMS(3, 5), &batch, &bound) < 0)
        fail_msg("%s", sy_error_text());
    check_output(bound, batch, 3, 2);
    assert_int_equal(ask(g, DIMS(3, 2), DIMS(4, 5), &batch, NULL), SY_EARG);
    sy_graph_free(bound);
    sy_graph_free(g);
}

/* y.view(x.size(0), -1): y's rows are x's. */
static void test_rows_by_shape(void **state)
{
    (void)state;
    ob_graph(&graph);
    in("x", 1, DIMS(OPEN, 8));
    in("y", 1, DIMS(OPEN, 3));
    ob_int64s(&graph, "zero", DIMS(0));
    ob_int64s(&graph, "rest", DIMS(-1));
    add("Shape", NAMES("x"), "shape");
    add("Gather", NAMES("shape", "zero"), "rows");
    ob_node(&node, "Concat", NAMES("rows", "rest"), NAMES("wanted"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Reshape", NAMES("y", "wanted"), "flat");
    ob_node(&node, "Concat", NAMES("x", "flat"), NAMES("both"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    struct sy_graph *g = read_graph("both");
    assert_int_equal(g->n_symbols, 0);
    check_output(g, 7, 7, 11);
    sy_graph_free(g);
}

/* Laid out for few rows, as N is; a step of training has one batch. */
static void test_usual_rows_and_training(void **state)
{
    (void)state;
    struct sy_graph *g;
    ob_graph(&graph);
    in("x", 1, DIMS(OPEN, 8));
    in("y", 1, DIMS(OPEN, 8));
    add("Relu", NAMES("y"), "positive");
    ob_node(&node, "Concat", NAMES("x", "positive"), NAMES("rows"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    g = read_graph("rows");
    assert_int_equal(g->n_symbols, 1);
    assert_int_equal(g->symbols[0].usual, 1);
    sy_graph_free(g);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    if (sy_graph_infer_training(g) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(g->n_symbols, 0);
    check_output(g, 3, 6, 8);
    sy_graph_free(g);
}

/* Too many sizes if each first one were another: then they are all N, as they have always been. */
static void test_too_many_sizes(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    ob_graph(&graph);
    for (int i = 0; i < 4; i++)
        in(names[i], 1, DIMS(OPEN, OPEN, OPEN));
    add("Relu", NAMES("a"), "y");
    struct sy_graph *g = read_graph("y");
    assert_int_equal(g->n_symbols, 8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(g->tensors[g->inputs[i]].shape.dims[0].per_batch, 1);
    sy_graph_free(g);
}

/* More sizes than a request may choose: those that the graph ties are one; of those that stay, the number and the limit are said. */
static void test_many_sizes(void **state)
{
    (void)state;
    enum { MANY = 20 };
    for (int is_tied = 0; is_tied < 2; is_tied++) {
        char names[MANY][8], results[MANY][8];
        struct sy_graph *g;
        ob_graph(&graph);
        for (int i = 0; i < MANY; i++) {
            snprintf(names[i], sizeof names[i], "x%d", i);
            snprintf(results[i], sizeof results[i], "y%d", i);
            in(names[i], 1, DIMS(2, OPEN));
            if (is_tied)
                add("Add", NAMES(names[i], i ? results[i - 1] : names[i]), results[i]);
            else
                add("Relu", NAMES(names[i]), results[i]);
            if (!is_tied || i == MANY - 1)
                ob_input(&graph, OB_GRAPH_OUTPUT, results[i], 1, 0, NULL);
        }
        ob_save(ob_path, &graph, 17);
        assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
        assert_int_equal(g->n_symbols, MANY);
        assert_int_equal(sy_graph_infer(g), is_tied ? SY_OK : SY_EUNSUPPORTED);
        if (is_tied)
            assert_int_equal(g->n_symbols, 1);
        else
            assert_non_null(
                strstr(sy_error_text(), "20 sizes are open, from x0.1 to x19.1; at most 16"));
        sy_graph_free(g);
    }
}

/* The first N of rows without a name, put beside N rows: they are of one batch. Of rows with a name of their own, or that nothing of N rows meets, the
 * run says how many there are. */
static void test_first_rows(void **state)
{
    (void)state;
    static const char *const ways[] = {"Add", "Concat", "Relu"};
    int64_t batch;
    for (int way = 0; way < 3; way++) {
        ob_graph(&graph);
        in("x", 1, DIMS(OPEN, 4));
        in("y", 1, DIMS(OPEN, 4));
        ob_int64s(&graph, "zero", DIMS(0));
        ob_add(&graph, "Shape", NAMES("x"), NAMES("shape"));
        ob_add(&graph, "Gather", NAMES("shape", "zero"), NAMES("rows"));
        ob_add(&graph, "Slice", NAMES("y", "zero", "rows", "zero"), NAMES("first"));
        ob_node(&node, ways[way], way == 2 ? NAMES("first") : NAMES("x", "first"), NAMES("z"));
        if (way == 1)
            ob_attr_int(&node, "axis", 1);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        struct sy_graph *g = read_graph("z");
        assert_int_equal(g->n_symbols, way == 2 ? 2 : 0); /* its rows, and room for the result */
        assert_int_equal(ask(g, DIMS(3, 4), DIMS(5, 4), &batch, NULL), way == 2 ? SY_OK : SY_EARG);
        assert_int_equal(ask(g, DIMS(3, 4), DIMS(3, 4), &batch, NULL), SY_OK);
        if (way < 2)
            check_output(g, 3, 3, way == 1 ? 8 : 4);
        sy_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_first_rows),
        cmocka_unit_test(test_fewer_rows),
        cmocka_unit_test(test_indices_first),
        cmocka_unit_test(test_rows_by_shape),
        cmocka_unit_test(test_usual_rows_and_training),
        cmocka_unit_test(test_too_many_sizes),
        cmocka_unit_test(test_many_sizes),
    };
    (void)rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

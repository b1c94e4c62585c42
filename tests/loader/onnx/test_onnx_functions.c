/* A file's own functions: their bodies take the calls' places, or they are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/graph/graph.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"

enum { FLOAT = 1, DOMAIN = 7 };

static char path[64];
static struct ob graph, body, node;

/* FunctionProto's fields, and the model's for functions. */
enum {
    F_NAME = 1,
    F_INPUT = 4,
    F_OUTPUT = 5,
    F_NODE = 7,
    F_OPSET = 9,
    F_DOMAIN = 10,
    M_FUNCTION = 25,
    OPSET_VERSION = 2
};

static void function(struct ob *f, const char *name, const char *input, const char *output)
{
    f->n = 0;
    ob_text(f, F_NAME, name);
    ob_text(f, F_INPUT, input);
    ob_text(f, F_OUTPUT, output);
    ob_text(f, F_DOMAIN, "own");
}

static void call(struct ob *to, int field, const char *name, const char *const *inputs,
                 const char *const *outputs)
{
    ob_node(&node, name, inputs, outputs);
    ob_text(&node, DOMAIN, "own");
    ob_message(to, field, &node);
}

/* y = twice(twice(x)), in a file with this function behind the graph. */
static int read_calls(const struct ob *f, struct sy_graph **g)
{
    static struct ob tail;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 5));
    call(&graph, OB_GRAPH_NODE, "twice", NAMES("x"), NAMES("t"));
    call(&graph, OB_GRAPH_NODE, "twice", NAMES("t"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(path, &graph, 13);
    tail.n = 0;
    ob_message(&tail, M_FUNCTION, f);
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(tail.bytes, 1, tail.n, file), tail.n);
    assert_int_equal(fclose(file), 0);
    return sy_onnx_read(path, g);
}

/* What a function names is not what its caller names so. */
static void test_bodies_take_the_place_of_calls(void **state)
{
    (void)state;
    struct sy_graph *g;
    function(&body, "twice", "x", "t");
    ob_node(&node, "Add", NAMES("x", "x"), NAMES("y")); /* names of the caller's, here others */
    ob_message(&body, F_NODE, &node);
    ob_node(&node, "Relu", NAMES("y"), NAMES("t"));
    ob_message(&body, F_NODE, &node);
    assert_int_equal(read_calls(&body, &g), SY_OK);
    assert_int_equal(g->n_nodes, 4);
    assert_int_equal(sy_graph_infer(g), SY_OK);
    assert_int_equal(g->nodes[3].outputs[0], g->outputs[0]);
    assert_int_equal(g->nodes[2].inputs[0], g->nodes[1].outputs[0]);
    sy_graph_free(g);
}

static void test_a_function_of_itself_is_refused(void **state)
{
    (void)state;
    struct sy_graph *g;
    function(&body, "twice", "x", "t");
    call(&body, F_NODE, "twice", NAMES("x"), NAMES("a"));
    call(&body, F_NODE, "twice", NAMES("a"), NAMES("t"));
    assert_int_equal(read_calls(&body, &g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "deeper than 16"));
}

static void test_a_function_that_is_its_input_is_a_copy(void **state)
{
    (void)state;
    struct sy_graph *g;
    function(&body, "twice", "x", "x");
    assert_int_equal(read_calls(&body, &g), SY_OK);
    assert_int_equal(g->n_nodes, 2);
    assert_int_equal(g->nodes[0].op, SY_OP_IDENTITY);
    assert_int_equal(g->nodes[0].inputs[0], g->inputs[0]);
    assert_int_equal(g->nodes[1].outputs[0], g->outputs[0]);
    sy_graph_free(g);
}

/* Softmax over the last axis is one of opset 13; in opset 12 it is one over all from axis 1 on. */
static void test_nodes_have_the_opset_of_their_function(void **state)
{
    (void)state;
    struct sy_graph *g;
    static struct ob import;
    function(&body, "twice", "x", "t");
    import.n = 0;
    ob_varint(&import, OPSET_VERSION, 12);
    ob_message(&body, F_OPSET, &import);
    ob_node(&node, "Softmax", NAMES("x"), NAMES("t"));
    ob_message(&body, F_NODE, &node);
    assert_int_equal(read_calls(&body, &g), SY_OK);
    assert_int_equal(g->n_nodes, 2);
    assert_int_equal(g->nodes[0].opset, 12);
    assert_int_equal(g->nodes[1].opset, 12);
    sy_graph_free(g);
}

static void test_a_function_of_an_unread_opset_is_refused(void **state)
{
    (void)state;
    struct sy_graph *g;
    static struct ob import;
    function(&body, "twice", "x", "t");
    import.n = 0;
    ob_varint(&import, OPSET_VERSION, 99);
    ob_message(&body, F_OPSET, &import);
    ob_node(&node, "Relu", NAMES("x"), NAMES("t"));
    ob_message(&body, F_NODE, &node);
    assert_int_equal(read_calls(&body, &g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "'twice' is of opset 99; 6 to 28 are read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_take_the_place_of_calls),
        cmocka_unit_test(test_a_function_of_itself_is_refused),
        cmocka_unit_test(test_a_function_that_is_its_input_is_a_copy),
        cmocka_unit_test(test_nodes_have_the_opset_of_their_function),
        cmocka_unit_test(test_a_function_of_an_unread_opset_is_refused),
    };
    snprintf(path, sizeof path, "/tmp/sy-functions-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

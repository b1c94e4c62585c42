/* Sequences that leave a graph: an output for each tensor. Results against what was put in. */
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

enum { FLOAT = 1, WIDTH = 5, ROWS = 2 };

static struct ob graph, node;

/* [N, 5] in parts of 2, 2 and 1. */
static void cut(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_int64s(&graph, "two", 0, (const int64_t[]){2});
    ob_node(&node, "SplitToSequence", NAMES("x", "two"), NAMES("parts"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void output(const char *name)
{
    ob_input(&graph, OB_GRAPH_OUTPUT, name, FLOAT, 0, NULL);
}

static int read_graph(struct sy_graph **g)
{
    ob_save(ob_path, &graph, 17);
    return onnx_try_optimized(ob_path, g);
}

static void run(struct sy_graph *g, const float *x, struct rig_tensors *out)
{
    struct engine_rig rig;
    struct rig_tensors in;
    struct sy_sizes sizes;
    struct sy_graph *open = g;
    sy_graph_usual_sizes(open, &sizes);
    if (sy_graph_bind(open, &sizes, &g) < 0)
        fail_msg("%s", sy_error_text());
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, ROWS);
    rig_take(&rig, g->inputs, g->n_inputs, ROWS, 0, &in);
    memcpy(in.data[0], x, in.bytes[0]);
    rig_take(&rig, g->outputs, g->n_outputs, ROWS, 0xff, out);
    if (rig_run(&rig, program, &in, out, 0xff, NULL) < 0)
        fail_msg("%s", sy_error_text());
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_close(&rig);
    sy_graph_free(g);
}

/* The tensor between two others keeps its place; each has its name. */
static void test_parts(void **state)
{
    (void)state;
    static const char *const names[] = {"y", "parts[0]", "parts[1]", "parts[2]", "z"};
    static const int from[] = {0, 0, 2, 4, 0}, width[] = {5, 2, 2, 1, 5};
    float x[ROWS * WIDTH];
    struct rig_tensors out;
    struct sy_graph *g;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i + 1);
    cut();
    ob_add(&graph, "Relu", NAMES("x"), NAMES("y"));
    ob_add(&graph, "Abs", NAMES("x"), NAMES("z"));
    output("y");
    output("parts");
    output("z");
    if (read_graph(&g) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(g->n_outputs, 5);
    run(g, x, &out);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(g->tensors[g->outputs[i]].name, names[i]);
        assert_int_equal(out.bytes[i], (size_t)(ROWS * width[i]) * sizeof(float));
        for (int k = 0; k < ROWS * width[i]; k++)
            assert_true(((float *)out.data[i])[k] ==
                        x[k / width[i] * WIDTH + from[i] + k % width[i]]);
    }
    rig_drop(&out);
    sy_graph_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    struct sy_graph *g;
    cut();
    ob_add(&graph, "Relu", NAMES("x"), NAMES("parts[1]"));
    output("parts");
    output("parts[1]");
    assert_int_equal(read_graph(&g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "there is an output 'parts[1]'"));
    cut();
    ob_add(&graph, "SequenceEmpty", (const char *const[]){NULL}, NAMES("none"));
    output("none");
    assert_int_equal(read_graph(&g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "sequences of no tensors"));
}

/* As many tensors as a model may have outputs; one more is refused at import. */
static void test_how_many(void **state)
{
    (void)state;
    struct sy_graph *g;
    for (int more = 0; more < 2; more++) {
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, SY_MAX_ENDS + more));
        ob_node(&node, "SplitToSequence", NAMES("x"), NAMES("parts"));
        ob_attr_int(&node, "axis", 1);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        output("parts");
        int status = read_graph(&g);
        assert_int_equal(status, more ? SY_EUNSUPPORTED : SY_OK);
        if (more)
            assert_non_null(strstr(sy_error_text(), "257 outputs"));
        else
            sy_graph_free(g);
    }
}

/* Each part, squared, and added to its sum with what the body reads of the graph around it: two sequences. */
static void test_map(void **state)
{
    (void)state;
    static struct ob body, map;
    static const int from[] = {0, 2, 4}, width[] = {2, 2, 1};
    float x[ROWS * WIDTH];
    struct rig_tensors out;
    struct sy_graph *g;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i + 1);
    cut();
    ob_add(&graph, "Relu", NAMES("x"), NAMES("all"));
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "part", FLOAT, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "rest", FLOAT, 0, NULL);
    ob_node(&node, "ReduceSum", NAMES("all"), NAMES("sum"));
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Mul", NAMES("part", "part"), NAMES("square"));
    ob_add(&body, "Add", NAMES("rest", "sum"), NAMES("shifted"));
    ob_input(&body, OB_GRAPH_OUTPUT, "square", FLOAT, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "shifted", FLOAT, 0, NULL);
    ob_add(&graph, "Optional", NAMES("parts"), NAMES("perhaps"));
    ob_add(&graph, "OptionalGetElement", NAMES("perhaps"), NAMES("there"));
    ob_node(&map, "SequenceMap", NAMES("parts", "there"), NAMES("squares", "sums"));
    ob_attr_graph(&map, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &map);
    output("squares");
    output("sums");
    if (read_graph(&g) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(g->n_outputs, 6);
    run(g, x, &out);
    for (int o = 0; o < 6; o++)
        for (int i = 0; i < ROWS * width[o % 3]; i++) {
            float own = x[i / width[o % 3] * WIDTH + from[o % 3] + i % width[o % 3]];
            assert_true(((const float *)out.data[o])[i] == (o < 3 ? own * own : own + 55));
        }
    rig_drop(&out);
    sy_graph_free(g);
}

static void add_branch(struct ob *to)
{
    char from[16] = "part", name[16];
    ob_graph(to);
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "n%d", i);
        ob_add(to, "Neg", NAMES(from), NAMES(name));
        memcpy(from, name, sizeof from);
    }
    ob_input(to, OB_GRAPH_OUTPUT, from, FLOAT, 0, NULL);
}

/* Nodes of bodies within the body count: 300 times 801 are too many, though each copy is one node of the graph. */
static void test_too_many_nodes(void **state)
{
    (void)state;
    static struct ob body, branch, map;
    struct sy_graph *g;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 300));
    ob_input(&graph, OB_GRAPH_INPUT, "which", 9, 0, NULL);
    ob_int64s(&graph, "one", 0, (const int64_t[]){1});
    ob_node(&node, "SplitToSequence", NAMES("x", "one"), NAMES("parts"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "part", FLOAT, 0, NULL);
    add_branch(&branch);
    ob_node(&node, "If", NAMES("which"), NAMES("either"));
    ob_attr_graph(&node, "then_branch", &branch);
    ob_attr_graph(&node, "else_branch", &branch);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_input(&body, OB_GRAPH_OUTPUT, "either", FLOAT, 0, NULL);
    ob_node(&map, "SequenceMap", NAMES("parts"), NAMES("eithers"));
    ob_attr_graph(&map, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &map);
    output("eithers");
    assert_int_equal(read_graph(&g), SY_EUNSUPPORTED);
    if (!strstr(sy_error_text(), "200000"))
        fail_msg("%s", sy_error_text());
}

/* An optional says whether it holds a tensor. */
static void test_optional(void **state)
{
    (void)state;
    float x[ROWS * WIDTH] = {1};
    struct rig_tensors out;
    struct sy_graph *g;
    for (int holds = 0; holds < 2; holds++) {
        cut();
        ob_node(&node, "Optional", holds ? NAMES("x") : NAMES(NULL), NAMES("perhaps"));
        ob_message(&graph, OB_GRAPH_NODE, &node);
        ob_add(&graph, "OptionalHasElement", NAMES("perhaps"), NAMES("has"));
        ob_input(&graph, OB_GRAPH_OUTPUT, "has", 9, 0, NULL);
        assert_int_equal(read_graph(&g), SY_OK);
        run(g, x, &out);
        assert_int_equal(*(const unsigned char *)out.data[0], holds);
        rig_drop(&out);
        sy_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_how_many), cmocka_unit_test(test_map),
        cmocka_unit_test(test_optional), cmocka_unit_test(test_too_many_nodes),
    };
    (void)rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

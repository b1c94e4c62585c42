/* Sequences that leave a graph: an output for each tensor. Results against what was put in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/engine_rig.h"
#include "tests/onnx_bytes.h"

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
    int status = sy_onnx_read(ob_path, g);
    if (status == SY_OK &&
        ((status = sy_graph_infer(*g)) < 0 || (status = sy_graph_optimize(*g)) < 0))
        sy_graph_free(*g);
    return status;
}

static void run(struct sy_graph *g, const float *x, struct rig_tensors *out)
{
    struct engine_rig rig;
    struct rig_tensors in;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refused),
    };
    (void)rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

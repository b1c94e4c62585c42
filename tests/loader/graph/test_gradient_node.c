/* Gradient, the operator: what it writes out beside central differences of the model that it stands in. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/seed.h"

enum { FLOAT = 1, ROWS = 3, IN = 4, OUT = 5, SIZES = 3, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };

static struct ob graph, node, attr;
static uint64_t seed, chance;
static const int sizes[SIZES] = {ROWS * IN, IN *OUT, OUT};

static void gradient_of(const char *y)
{
    ob_node(&node, "Gradient", NAMES("x", "w", "b"), NAMES("dx", "dw", "db"));
    ob_text(&node, NODE_DOMAIN, "ai.onnx.preview.training");
    ob_attr_text(&node, "y", y);
    memset(&attr, 0, sizeof attr);
    ob_text(&attr, 1, "xs");
    ob_varint(&attr, 20, 8); /* strings */
    ob_text(&attr, 9, "x");
    ob_text(&attr, 9, "w");
    ob_text(&attr, 9, "b");
    ob_message(&node, NODE_ATTRIBUTE, &attr);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void inputs(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(ROWS, IN));
    ob_input(&graph, OB_GRAPH_INPUT, "w", FLOAT, DIMS(IN, OUT));
    ob_input(&graph, OB_GRAPH_INPUT, "b", FLOAT, DIMS(OUT));
}

static void outputs(void)
{
    static const char *const names[] = {"y", "dx", "dw", "db"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ob_input(&graph, OB_GRAPH_OUTPUT, names[i], FLOAT, 0, NULL);
}

/* mean over rows of (tanh(x w + b) * sigmoid(b) / sqrt(exp(x w) + 1) - b^3), summed: operators of all kinds, broadcast both ways. */
static void network(void)
{
    static const float one = 1, three = 3;
    inputs();
    ob_initializer(&graph, "one", FLOAT, 0, NULL, &one, sizeof one);
    ob_initializer(&graph, "three", FLOAT, 0, NULL, &three, sizeof three);
    ob_int64s(&graph, "rows", 1, (const int64_t[]){0});
    ob_add(&graph, "MatMul", NAMES("x", "w"), NAMES("xw"));
    ob_add(&graph, "Add", NAMES("xw", "b"), NAMES("sum"));
    ob_add(&graph, "Tanh", NAMES("sum"), NAMES("t"));
    ob_add(&graph, "Sigmoid", NAMES("b"), NAMES("s"));
    ob_add(&graph, "Mul", NAMES("s", "t"), NAMES("st"));
    ob_add(&graph, "Exp", NAMES("xw"), NAMES("e"));
    ob_add(&graph, "Add", NAMES("e", "one"), NAMES("e1"));
    ob_add(&graph, "Sqrt", NAMES("e1"), NAMES("root"));
    ob_add(&graph, "Div", NAMES("st", "root"), NAMES("q"));
    ob_add(&graph, "Pow", NAMES("b", "three"), NAMES("p"));
    ob_add(&graph, "Sub", NAMES("q", "p"), NAMES("d"));
    ob_node(&node, "ReduceMean", NAMES("d"), NAMES("mean"));
    ob_attr_ints(&node, "axes", DIMS(0));
    ob_attr_int(&node, "keepdims", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "ReduceSum", NAMES("mean", "rows"), NAMES("y"));
    ob_attr_int(&node, "keepdims", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static int read_graph(struct sy_graph **g)
{
    ob_save(ob_path, &graph, 17);
    return onnx_try_optimized(ob_path, g);
}

static void test_differences(void **state)
{
    (void)state;
    const float step = 1.0f / 64;
    struct engine_rig rig;
    struct rig_tensors in, out, near;
    struct sy_graph *g;
    network();
    gradient_of("y");
    outputs();
    if (read_graph(&g) < 0 || rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, g->n_inputs, 1, 0, &in);
    rig_take(&rig, g->outputs, g->n_outputs, 1, 0xff, &out);
    rig_take(&rig, g->outputs, g->n_outputs, 1, 0xff, &near);
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < sizes[i]; k++)
            ((float *)in.data[i])[k] = (float)seed_below(&chance, 2001) / 1000 - 1;
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < sizes[i]; k++) {
            float *x = (float *)in.data[i] + k, was = *x;
            double ends[2];
            for (int side = 0; side < 2; side++) {
                *x = was + (side ? step : -step);
                assert_int_equal(rig_run(&rig, program, &in, &near, 0xff, &seed), SY_OK);
                ends[side] = (double)*(float *)near.data[0];
            }
            *x = was;
            double got = (double)((float *)out.data[1 + i])[k],
                   want = (ends[1] - ends[0]) / (2 * (double)step);
            if (!(fabs(got - want) <= 2e-3 + 2e-3 * fabs(want)))
                fail_msg("input %d, element %d: %g, not %g", i, k, got, want);
        }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_drop(&near);
    rig_close(&rig);
    sy_graph_free(g);
}

/* An operator without a slope is refused by name, as is one input in the place of another. */
static void test_refused(void **state)
{
    (void)state;
    struct sy_graph *g;
    inputs();
    ob_add(&graph, "MatMul", NAMES("x", "w"), NAMES("xw"));
    ob_add(&graph, "Softmax", NAMES("xw"), NAMES("y"));
    gradient_of("y");
    outputs();
    assert_int_equal(read_graph(&g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "Softmax"));
    inputs();
    ob_add(&graph, "MatMul", NAMES("x", "w"), NAMES("y"));
    gradient_of("nobody");
    outputs();
    assert_int_equal(read_graph(&g), SY_ECORRUPT);
}

int main(void)
{
    chance = seed_of_run(7);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_refused)};
    (void)rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

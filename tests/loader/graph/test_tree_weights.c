/* Ensembles of trees whose leaves have several weights of one target: of one target in all the first of a leaf counts, of several their sum (as in ONNX
 * Runtime). skl2onnx writes the number of a classifier's leaf once for each class. */
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

enum { FLOAT = 1, DOMAIN = 7, FLOATS = 6, STRINGS = 8, ROWS = 2, NODES = 3, WEIGHTS = 4 };

static struct ob graph, node;

static void floats(const char *name, int n, const float *values)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        ob_float(&attr, 7, values[i]);
    ob_varint(&attr, 20, FLOATS);
    ob_message(&node, 5, &attr);
}

static void texts(const char *name, int n, const char *const *values)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        ob_text(&attr, 9, values[i]);
    ob_varint(&attr, 20, STRINGS);
    ob_message(&node, 5, &attr);
}

/* One tree: 5 where x <= 0, else 7; then 50 and 70, for the same target. */
static struct sy_graph *tree(int64_t n_targets)
{
    static const char *const modes[] = {"BRANCH_LEQ", "LEAF", "LEAF"};
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1));
    ob_node(&node, "TreeEnsembleRegressor", NAMES("x"), NAMES("y"));
    ob_text(&node, DOMAIN, "ai.onnx.ml");
    ob_attr_int(&node, "n_targets", n_targets);
    ob_attr_ints(&node, "nodes_treeids", DIMS(0, 0, 0));
    ob_attr_ints(&node, "nodes_nodeids", DIMS(0, 1, 2));
    ob_attr_ints(&node, "nodes_featureids", DIMS(0, 0, 0));
    ob_attr_ints(&node, "nodes_truenodeids", DIMS(1, 0, 0));
    ob_attr_ints(&node, "nodes_falsenodeids", DIMS(2, 0, 0));
    floats("nodes_values", NODES, (const float[]){0, 0, 0});
    texts("nodes_modes", NODES, modes);
    ob_attr_ints(&node, "target_treeids", DIMS(0, 0, 0, 0));
    ob_attr_ints(&node, "target_nodeids", DIMS(1, 2, 1, 2));
    ob_attr_ints(&node, "target_ids", DIMS(0, 0, 0, 0));
    floats("target_weights", WEIGHTS, (const float[]){5, 7, 50, 70});
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, n_targets));
    ob_save(ob_path, &graph, 17);
    return onnx_optimized(ob_path);
}

static void assert_gives(int64_t n_targets, const float *want)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *g = tree(n_targets);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, ROWS);
    rig_take(&rig, rig.graph->inputs, 1, ROWS, 0, &in);
    rig_take(&rig, rig.graph->outputs, 1, ROWS, 0xff, &out);
    memcpy(in.data[0], (const float[]){-1, 1}, ROWS * sizeof(float));
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, NULL), SY_OK);
    assert_memory_equal(out.data[0], want, (size_t)(ROWS * n_targets) * sizeof *want);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_one_target(void **state)
{
    (void)state;
    assert_gives(1, (const float[]){5, 7});
}

static void test_several_targets(void **state)
{
    (void)state;
    assert_gives(2, (const float[]){55, 0, 77, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_target),
        cmocka_unit_test(test_several_targets),
    };
    rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

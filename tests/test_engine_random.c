/* Numbers that a node draws: normal, the same in each run and in each row of a batch, others of another seed or node. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/engine_rig.h"
#include "tests/onnx_bytes.h"

enum { FLOAT = 1, INT32 = 6, COUNT = 20000 };

static struct ob graph, node;
static uint64_t seed;

static void draw(const char *op, const char *const *inputs, const char *name, float mean,
                 float scale)
{
    ob_node(&node, op, inputs, NAMES(name));
    ob_attr_float(&node, "mean", mean);
    ob_attr_float(&node, "scale", scale);
}

/* x [N, COUNT]: noise like x of two nodes, one of them with a seed; numbers [COUNT] of the same seed. */
static void noise_graph(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, COUNT));
    draw("RandomNormalLike", NAMES("x"), "a", 0, 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    draw("RandomNormalLike", NAMES("x"), "b", 3, 2);
    ob_attr_float(&node, "seed", 7);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    draw("RandomNormal", NAMES(NULL), "c", 3, 2);
    ob_attr_ints(&node, "shape", DIMS(COUNT));
    ob_attr_float(&node, "seed", 7);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "a", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "b", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "c", FLOAT, 0, NULL);
}

static struct sy_graph *read_noise(void)
{
    struct sy_graph *g;
    noise_graph();
    ob_save(ob_path, &graph, 15);
    if (sy_onnx_read(ob_path, &g) < 0 || sy_graph_infer(g) < 0 || sy_graph_optimize(g) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static void run(struct engine_rig *rig, int64_t batch, struct rig_tensors *out)
{
    struct rig_tensors in;
    struct sy_program *program = rig_program(rig, batch);
    rig_take(rig, rig->graph->inputs, rig->graph->n_inputs, batch, 0, &in);
    rig_take(rig, rig->graph->outputs, rig->graph->n_outputs, batch, 0xff, out);
    assert_int_equal(rig_run(rig, program, &in, out, 0xff, &seed), SY_OK);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
}

/* The first four moments of n numbers, within five of their deviations. */
static void assert_normal(const float *x, int n, double mean, double scale)
{
    static const double wanted[] = {0, 1, 0, 3}, deviation[] = {1, 1.42, 3.88, 9.8};
    double sums[4] = {0};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 4; k++)
            sums[k] += pow(((double)x[i] - mean) / scale, k + 1) / n;
    for (int k = 0; k < 4; k++)
        assert_true(fabs(sums[k] - wanted[k]) < 5 * deviation[k] / sqrt(n));
}

static void test_numbers(void **state)
{
    (void)state;
    struct engine_rig rig;
    struct rig_tensors one, again, three;
    struct sy_graph *g = read_noise();
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    run(&rig, 1, &one);
    run(&rig, 1, &again);
    run(&rig, 3, &three);
    const float *a = one.data[0], *b = one.data[1];
    size_t bytes = COUNT * sizeof(float);
    assert_normal(a, COUNT, 0, 1);
    assert_normal(b, COUNT, 3, 2);
    double product = 0; /* nothing in common */
    for (int i = 0; i < COUNT; i++)
        product += (double)a[i] * ((double)b[i] - 3) / 2 / COUNT;
    assert_true(fabs(product) < 5 / sqrt(COUNT));
    assert_memory_equal(one.data[1], one.data[2], bytes);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(one.data[i], again.data[i], bytes);
        for (int row = 0; row < 3; row++)
            assert_memory_equal((const char *)three.data[i] + (size_t)row * bytes, one.data[i],
                                bytes);
    }
    rig_drop(&one);
    rig_drop(&again);
    rig_drop(&three);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_whole_numbers_are_refused(void **state)
{
    (void)state;
    struct sy_graph *g;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    ob_node(&node, "RandomNormalLike", NAMES("x"), NAMES("y"));
    ob_attr_int(&node, "dtype", INT32);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", INT32, 0, NULL);
    ob_save(ob_path, &graph, 15);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "RandomNormalLike"));
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_whole_numbers_are_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* Numbers that a node draws: normal, the same in each run and in each row of a batch, others of another seed or node. */
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

enum { FLOAT = 1, INT32 = 6, BOOL = 9, COUNT = 20000 };

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
    noise_graph();
    ob_save(ob_path, &graph, 15);
    return onnx_optimized(ob_path);
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

/* u [COUNT] in [-2, 3); coins [N, COUNT] of the probabilities x; choices [3, COUNT] of the logarithms c. */
static void draws_graph(void)
{
    static const float classes[3][4] = {{0, 0, 0, 0}, {-1, 2, -50, 0}, {5, 5, 6, 4}};
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, COUNT));
    ob_initializer(&graph, "c", FLOAT, DIMS(3, 4), classes, sizeof classes);
    ob_node(&node, "RandomUniform", NAMES(NULL), NAMES("u"));
    ob_attr_ints(&node, "shape", DIMS(COUNT));
    ob_attr_float(&node, "low", -2);
    ob_attr_float(&node, "high", 3);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Bernoulli", NAMES("x"), NAMES("coins"));
    ob_node(&node, "Multinomial", NAMES("c"), NAMES("choices"));
    ob_attr_int(&node, "sample_size", COUNT);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "u", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "coins", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "choices", INT32, 0, NULL);
}

/* Moments of a uniform distribution, within five of their deviations. */
static void assert_uniform(const float *u)
{
    double sums[2] = {0};
    for (int i = 0; i < COUNT; i++) {
        double x = ((double)u[i] + 2) / 5;
        assert_true(u[i] >= -2 && u[i] < 3);
        sums[0] += x / COUNT;
        sums[1] += x * x / COUNT;
    }
    assert_true(fabs(sums[0] - 1. / 2) < 5 * sqrt(1. / 12 / COUNT));
    assert_true(fabs(sums[1] - 1. / 3) < 5 * sqrt(4. / 45 / COUNT));
}

/* How often each class is drawn, by the logarithms' exponentials. */
static void assert_choices(const int32_t *choices)
{
    static const double odds[3][4] = {
        {1, 1, 1, 1}, {0.36787944, 7.3890561, 0, 1}, {1, 1, 2.7182818, 0.36787944}};
    for (int row = 0; row < 3; row++) {
        double all = 0;
        int counts[4] = {0};
        for (int k = 0; k < 4; k++)
            all += odds[row][k];
        for (int i = 0; i < COUNT; i++) {
            assert_in_range(choices[row * COUNT + i], 0, 3);
            counts[choices[row * COUNT + i]]++;
        }
        for (int k = 0; k < 4; k++) {
            double p = odds[row][k] / all;
            assert_true(fabs((double)counts[k] / COUNT - p) <= 5 * sqrt(p * (1 - p) / COUNT));
        }
    }
}

/* x [COUNT] through Dropout: `on` and the ratio come with the data. */
static void dropout_graph(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(COUNT));
    ob_input(&graph, OB_GRAPH_INPUT, "ratio", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_INPUT, "on", BOOL, 0, NULL);
    ob_node(&node, "Dropout", NAMES("x", "ratio", "on"), NAMES("y", "kept"));
    ob_attr_int(&node, "seed", 11);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "kept", BOOL, 0, NULL);
}

static void check_dropped(const struct rig_tensors *in, const struct rig_tensors *out, float ratio,
                          bool on)
{
    const float *x = in->data[0], *y = out->data[0];
    const bool *kept = out->data[1];
    double share = 0, p = on ? (double)ratio : 0;
    for (int i = 0; i < COUNT; i++) {
        share += kept[i] ? 0 : 1. / COUNT;
        assert_true(kept[i] ? fabs((double)y[i] - (double)x[i] / (1 - p)) < 1e-5 : y[i] == 0);
    }
    assert_true(fabs(share - p) <= 5 * sqrt(p * (1 - p) / COUNT));
}

static void test_dropout(void **state)
{
    (void)state;
    static const float ratios[] = {0, 0.3f, 0.75f};
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *g;
    dropout_graph();
    ob_save(ob_path, &graph, 13);
    g = onnx_optimized(ob_path);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, g->n_inputs, 1, 0, &in);
    rig_take(&rig, g->outputs, g->n_outputs, 1, 0xff, &out);
    for (int i = 0; i < COUNT; i++)
        ((float *)in.data[0])[i] = 1 + (float)(i % 7);
    for (int k = 0; k < 6; k++) {
        *(float *)in.data[1] = ratios[k / 2];
        *(bool *)in.data[2] = k % 2;
        assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
        check_dropped(&in, &out, ratios[k / 2], k % 2);
    }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_drawn_of_probabilities(void **state)
{
    (void)state;
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *g;
    draws_graph();
    ob_save(ob_path, &graph, 15);
    g = onnx_optimized(ob_path);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, g->n_inputs, 1, 0, &in);
    rig_take(&rig, g->outputs, g->n_outputs, 1, 0xff, &out);
    float *p = in.data[0];
    for (int i = 0; i < COUNT; i++) /* never, always, and one in four */
        p[i] = i < 100 ? 0 : i < 200 ? 1 : 0.25f;
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    assert_uniform(out.data[0]);
    const float *coins = out.data[1];
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_true(coins[i] == 0 || coins[i] == 1);
        assert_true(i >= 200 || coins[i] == p[i]);
        sum += i < 200 ? 0 : (double)coins[i] / (COUNT - 200);
    }
    assert_true(fabs(sum - 0.25) < 5 * sqrt(0.25 * 0.75 / (COUNT - 200)));
    assert_choices(out.data[2]);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
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
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_drawn_of_probabilities),
        cmocka_unit_test(test_whole_numbers_are_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* Large products and convolutions of what only a run can size: the CUDA engine computes them for the host engine, on the fake mathematics; small
 * ones, and what has no room, stay where they are. Results beside the host engine's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/on_cpu/beside_host.h"
#include "tests/on_cpu/fake_math.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/host_ops.h"

enum { FLOAT = 1 };

static struct ob graph, node;
static uint64_t seed;

static float *random_floats(int64_t n, double most)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)gb_uniform(&seed, -most, most);
    return x;
}

/* The rows of x [rows, wide] whose first number is above 0, as `chosen`. */
static void open_graph(int64_t rows, int64_t wide)
{
    ob_graph(&graph);
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_int64s(&graph, "line", 1, (const int64_t[]){-1});
    ob_initializer(&graph, "nought", FLOAT, 0, NULL, &(float){0}, sizeof(float));
    ob_node(&node, "Gather", NAMES("x", "zero"), NAMES("column"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Greater", NAMES("column", "nought"), NAMES("above"));
    ob_add(&graph, "NonZero", NAMES("above"), NAMES("where"));
    ob_add(&graph, "Reshape", NAMES("where", "line"), NAMES("rows"));
    ob_add(&graph, "Gather", NAMES("x", "rows"), NAMES("chosen"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(rows, wide));
}

static struct sy_graph *import(void)
{
    ob_save(ob_path, &graph, 13);
    return rig_sized(onnx_inferred(ob_path));
}

/* One engine's program over all rounds; counts[r] rows are chosen in round r. */
struct side {
    struct engine_rig rig;
    struct sy_program *program;
    struct rig_tensors out;
};

static void side_open(struct side *s, const struct rig_engine *engine, const struct sy_graph *g)
{
    rig_engine = *engine;
    if (rig_open(&s->rig, g, true) < 0)
        fail_msg("%s", sy_error_text());
    s->program = rig_program(&s->rig, 1);
    rig_take(&s->rig, s->rig.graph->outputs, s->rig.graph->n_outputs, 1, 0, &s->out);
}

static void side_run(struct side *s, const struct rig_engine *engine, const struct rig_tensors *in)
{
    rig_engine = *engine;
    if (rig_run(&s->rig, s->program, in, &s->out, 0xff, &seed) < 0)
        fail_msg("%s", sy_error_text());
}

static void side_close(struct side *s, const struct rig_engine *engine)
{
    rig_engine = *engine;
    engine->ops->program_destroy(s->program);
    rig_drop(&s->out);
    rig_close(&s->rig);
}

static void same_results(const struct side *a, const struct side *b)
{
    struct sy_shape shapes[2];
    uint64_t bytes[2];
    const struct side *sides[2] = {a, b};
    for (int k = 0; k < 2; k++)
        assert_int_equal(sy_graph_output_shape(sides[k]->rig.graph, sides[k]->rig.graph->outputs[0],
                                               1, sides[k]->out.data[0], &shapes[k], &bytes[k]),
                         SY_OK);
    assert_int_equal(bytes[0], bytes[1]);
    assert_int_equal(shapes[0].dims[0].fixed, shapes[1].dims[0].fixed);
    const float *x = a->out.data[0], *y = b->out.data[0];
    for (uint64_t i = 0; i < bytes[0] / sizeof *x; i++)
        if (!(x[i] - y[i] < 1e-3f && y[i] - x[i] < 1e-3f))
            fail_msg("[%d] is %g, not %g", (int)i, (double)y[i], (double)x[i]);
}

/* Takes g. helped: whether plans of the device are kept for its nodes when so many rows were chosen. */
static void beside_the_host(struct sy_graph *g, int64_t rows, int64_t wide, const int64_t *counts,
                            const bool *helped, int n)
{
    struct side host, cuda;
    struct rig_tensors in;
    sy_cuda_host_engine_use(&sy_host_engine);
    beside_attach();
    side_open(&host, &beside_host, g);
    side_open(&cuda, &beside_cuda, g);
    rig_take(&cuda.rig, cuda.rig.graph->inputs, 1, 1, 0, &in);
    int own = fake_math_get_counts().plans;
    for (int r = 0; r < n; r++) {
        float *x = in.data[0];
        for (int64_t i = 0; i < rows * wide; i++)
            x[i] = (float)gb_uniform(&seed, -1, 1);
        for (int64_t i = 0; i < rows; i++)
            x[i * wide] = i * counts[r] / rows != (i + 1) * counts[r] / rows ? 0.5f : -0.5f;
        side_run(&host, &beside_host, &in);
        side_run(&cuda, &beside_cuda, &in);
        same_results(&host, &cuda);
        assert_int_equal(fake_math_get_counts().plans - own, helped[r]);
    }
    rig_drop(&in);
    side_close(&cuda, &beside_cuda);
    side_close(&host, &beside_host);
    sy_graph_free(g);
    struct fake_math_counts c = fake_math_get_counts();
    assert_int_equal(c.plans, 0);
    assert_int_equal(c.host_blocks, 0);
    sy_cuda_engine.detach();
    sy_cuda_host_engine_use(NULL);
}

static struct sy_graph *products_graph(int64_t rows, int64_t wide, int64_t out)
{
    float *w = random_floats(wide * out, 0.2), *b = random_floats(out, 1);
    open_graph(rows, wide);
    ob_initializer(&graph, "w", FLOAT, DIMS(wide, out), w, (size_t)(wide * out) * sizeof *w);
    ob_initializer(&graph, "b", FLOAT, DIMS(out), b, (size_t)out * sizeof *b);
    ob_add(&graph, "Gemm", NAMES("chosen", "w", "b"), NAMES("p"));
    ob_add(&graph, "Relu", NAMES("p"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-2, out));
    free(w);
    free(b);
    return import();
}

/* Another number of rows each time; weights that are packed once; nothing of it on the device where it is little. */
static void test_products(void **state)
{
    enum { ROWS = 400, WIDE = 112, OUT = 120 };
    const int64_t counts[] = {400, 400, 380, 3, 0, 399};
    const bool helped[] = {true, true, true, false, false, true};
    (void)state;
    beside_the_host(products_graph(ROWS, WIDE, OUT), ROWS, WIDE, counts, helped, 6);
}

/* The k-th call of the run fails: its error is the run's, and nothing is left. */
static void test_each_failing_call(void **state)
{
    enum { ROWS = 400, WIDE = 112, OUT = 120 };
    struct sy_graph *g = products_graph(ROWS, WIDE, OUT);
    bool failed = true;
    int n_failed = 0;
    (void)state;
    for (uint64_t k = 1; failed; k++) {
        struct side cuda;
        struct rig_tensors in;
        sy_cuda_host_engine_use(&sy_host_engine);
        beside_attach();
        side_open(&cuda, &beside_cuda, g);
        rig_take(&cuda.rig, cuda.rig.graph->inputs, 1, 1, 0, &in);
        for (int64_t i = 0; i < ROWS * WIDE; i++)
            ((float *)in.data[0])[i] = 0.5f;
        fake_math_fail(k);
        int status = rig_run(&cuda.rig, cuda.program, &in, &cuda.out, 0xff, &seed);
        failed = fake_math_get_counts().calls >= k;
        fake_math_fail(0);
        assert_int_equal(status, failed ? SY_EDEVICE : SY_OK);
        if (failed)
            assert_non_null(strstr(sy_error_text(), " fails"));
        n_failed += failed;
        rig_drop(&in);
        side_close(&cuda, &beside_cuda);
        struct fake_math_counts c = fake_math_get_counts();
        assert_int_equal(c.plans, 0);
        assert_int_equal(c.host_blocks, 0);
        sy_cuda_engine.detach();
        sy_cuda_host_engine_use(NULL);
    }
    assert_true(n_failed > 15);
    sy_graph_free(g);
}

static void test_convolutions(void **state)
{
    enum { ROWS = 24, CHANNELS = 16, SIDE = 8, OUT = 24, WIDE = CHANNELS * SIDE * SIDE };
    const int64_t counts[] = {24, 22, 1, 24};
    const bool helped[] = {true, true, false, true};
    float *w = random_floats(CHANNELS * OUT * 9, 0.2);
    (void)state;
    open_graph(ROWS, WIDE);
    ob_initializer(&graph, "w", FLOAT, DIMS(OUT, CHANNELS, 3, 3), w, 4 * CHANNELS * OUT * 9);
    ob_int64s(&graph, "image", 4, (const int64_t[]){-1, CHANNELS, SIDE, SIDE});
    ob_add(&graph, "Reshape", NAMES("chosen", "image"), NAMES("images"));
    ob_node(&node, "Conv", NAMES("images", "w"), NAMES("y"));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-2, OUT, SIDE, SIDE));
    beside_the_host(import(), ROWS, WIDE, counts, helped, 4);
    free(w);
}

/* 72 MB go in and out, there is room for 64 MiB and the weights: the host's. */
static void test_without_room(void **state)
{
    enum { ROWS = 75000, WIDE = 120, OUT = 120 };
    const int64_t counts[] = {75000, 2000};
    const bool helped[] = {false, true};
    float *w = random_floats(WIDE * OUT, 0.2);
    (void)state;
    open_graph(ROWS, WIDE);
    ob_initializer(&graph, "w", FLOAT, DIMS(WIDE, OUT), w, 4 * WIDE * OUT);
    ob_add(&graph, "MatMul", NAMES("chosen", "w"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-2, OUT));
    beside_the_host(import(), ROWS, WIDE, counts, helped, 2);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_each_failing_call),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_without_room),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* Stretches (workers/host/dynamic/dynamic_stretch.h) against the same nodes run one by one: several sizes in random order, whatever the cache holds. */
#include <math.h>
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
#include "tests/rigs/engine_rig.h"
#include "workers/host/dynamic/dynamic_stretch.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, ROWS = 640, WIDE = 16, MOST = ROWS * WIDE };

static struct ob graph, body, node;
static uint64_t seed;

static void weights(const char *name, int rank, const int64_t *dims)
{
    float values[512];
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    assert_true(n <= 512);
    for (int i = 0; i < n; i++)
        values[i] = (float)gb_uniform(&seed, 0.1, 0.4);
    ob_initializer(&graph, name, FLOAT, rank, dims, values, (size_t)n * sizeof *values);
}

/* The rows of x whose first number is above 0, as "rows". */
static void begin_with_rows(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(ROWS, WIDE));
    ob_initializer(&graph, "zero", FLOAT, 0, NULL, &(float){0}, 4);
    ob_int64s(&graph, "first", 0, (const int64_t[]){0});
    ob_int64s(&graph, "line", 1, (const int64_t[]){-1});
    ob_node(&node, "Gather", NAMES("x", "first"), NAMES("column"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Greater", NAMES("column", "zero"), NAMES("is"));
    ob_add(&graph, "NonZero", NAMES("is"), NAMES("at"));
    ob_add(&graph, "Reshape", NAMES("at", "line"), NAMES("which"));
    ob_add(&graph, "Gather", NAMES("x", "which"), NAMES("rows"));
}

static void end_with(const char *name)
{
    ob_input(&graph, OB_GRAPH_OUTPUT, name, FLOAT, DIMS(-1, -2));
}

/* Products with biases and activations, a residual, a softmax, norms of a batch behind a convolution; then fewer rows, and the like again. */
static void model_of_rows(void)
{
    begin_with_rows();
    weights("w1", DIMS(WIDE, 32));
    weights("b1", DIMS(32));
    weights("w2", DIMS(32, WIDE));
    weights("b2", DIMS(WIDE));
    weights("taps", DIMS(4, 1, 3));
    weights("scale", DIMS(4));
    weights("shift", DIMS(4));
    weights("mean", DIMS(4));
    weights("variance", DIMS(4));
    ob_int64s(&graph, "image", 3, (const int64_t[]){-1, 1, WIDE});
    ob_int64s(&graph, "flat", 2, (const int64_t[]){-1, 4 * (WIDE - 2)});
    ob_initializer(&graph, "limit", FLOAT, 0, NULL, &(float){0.02f}, 4);
    ob_add(&graph, "MatMul", NAMES("rows", "w1"), NAMES("m1"));
    ob_add(&graph, "Add", NAMES("m1", "b1"), NAMES("a1"));
    ob_add(&graph, "Relu", NAMES("a1"), NAMES("r1"));
    ob_add(&graph, "MatMul", NAMES("r1", "w2"), NAMES("m2"));
    ob_add(&graph, "Add", NAMES("m2", "b2"), NAMES("a2"));
    ob_add(&graph, "Add", NAMES("a2", "rows"), NAMES("sum"));
    ob_node(&node, "Softmax", NAMES("sum"), NAMES("soft"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Reshape", NAMES("soft", "image"), NAMES("lines"));
    ob_add(&graph, "Conv", NAMES("lines", "taps"), NAMES("conv"));
    ob_add(&graph, "BatchNormalization", NAMES("conv", "scale", "shift", "mean", "variance"),
           NAMES("norm"));
    ob_add(&graph, "Reshape", NAMES("norm", "flat"), NAMES("y"));
    ob_node(&node, "Gather", NAMES("soft", "first"), NAMES("column2"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Greater", NAMES("column2", "limit"), NAMES("is2"));
    ob_node(&node, "Compress", NAMES("y", "is2"), NAMES("fewer"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Sigmoid", NAMES("fewer"), NAMES("s"));
    ob_add(&graph, "Mul", NAMES("s", "fewer"), NAMES("z"));
    end_with("z");
}

/* Three turns of a product and what is added; rows as many as there are, or one more each turn. */
static void model_of_turns(bool grows)
{
    begin_with_rows();
    weights("w", DIMS(WIDE, WIDE));
    weights("one_row", DIMS(1, WIDE));
    ob_int64s(&graph, "turns", 0, (const int64_t[]){3});
    ob_initializer(&graph, "yes", BOOL, 0, NULL, &(unsigned char){1}, 1);
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "turn", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "on", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, DIMS(-1, WIDE));
    ob_add(&body, "MatMul", NAMES("h", "w"), NAMES("hw"));
    ob_add(&body, "Tanh", NAMES("hw"), NAMES("ht"));
    ob_add(&body, "Add", NAMES("ht", "h"), NAMES("ha"));
    ob_node(&node, "Concat", grows ? NAMES("ha", "one_row") : NAMES("ha"), NAMES("next"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Identity", NAMES("on"), NAMES("still"));
    ob_input(&body, OB_GRAPH_OUTPUT, "still", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next", FLOAT, DIMS(-1, WIDE));
    ob_node(&node, "Loop", NAMES("turns", "yes", "rows"), NAMES("last"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    end_with("last");
}

/* ---- a model that is there to be run ---------------------------------------------------------------- */

struct model {
    struct sy_graph *graph;
    struct engine_rig rig;
    struct sy_program *program;
    struct rig_tensors in, out;
};

struct result {
    struct sy_shape shape;
    uint64_t bytes;
    float *y;
};

static void open_model(struct model *m)
{
    ob_save(ob_path, &graph, 13);
    m->graph = onnx_optimized(ob_path);
    m->graph = rig_sized(m->graph);
    if (rig_open(&m->rig, m->graph, false) < 0)
        fail_msg("%s", sy_error_text());
    m->program = rig_program(&m->rig, 1);
    rig_take(&m->rig, m->graph->inputs, 1, 1, 0, &m->in);
    rig_take(&m->rig, m->graph->outputs, 1, 1, 0, &m->out);
}

static void close_model(struct model *m)
{
    rig_engine.ops->program_destroy(m->program);
    rig_drop(&m->in);
    rig_drop(&m->out);
    rig_close(&m->rig);
    sy_graph_free(m->graph);
    assert_int_equal(sy_at_stretches_n(), 0);
    assert_int_equal(sy_at_stretches_bytes(), 0);
}

/* With `n` rows chosen, which follow from `which`. */
static struct result run(struct model *m, int n, uint64_t which)
{
    struct result r;
    float *x = m->in.data[0];
    for (int i = 0; i < MOST; i++)
        x[i] = (float)gb_uniform(&which, 0.1, 1);
    for (int i = n; i < ROWS; i++)
        x[i * WIDE] = -1;
    if (rig_run(&m->rig, m->program, &m->in, &m->out, 0xff, &seed) < 0)
        fail_msg("%d rows: %s", n, sy_error_text());
    assert_int_equal(sy_graph_output_shape(m->graph, m->graph->outputs[0], 1, m->out.data[0],
                                           &r.shape, &r.bytes),
                     SY_OK);
    r.y = malloc(r.bytes + 1);
    memcpy(r.y, m->out.data[0], r.bytes);
    return r;
}

static struct result run_by_node(struct model *m, int n, uint64_t which)
{
    sy_at_stretches_use(false);
    struct result r = run(m, n, which);
    sy_at_stretches_use(true);
    return r;
}

static void check_near(const struct result *a, const struct result *b)
{
    char x[160], y[160];
    assert_string_equal(sy_shape_text(&a->shape, x, sizeof x),
                        sy_shape_text(&b->shape, y, sizeof y));
    assert_int_equal(a->bytes, b->bytes);
    for (uint64_t i = 0; i < a->bytes / sizeof(float); i++)
        if (!(fabsf(a->y[i] - b->y[i]) <= 1e-4f * (1 + fabsf(b->y[i]))))
            fail_msg("element %llu: %g and %g", (unsigned long long)i, (double)a->y[i],
                     (double)b->y[i]);
}

static void check_model(void)
{
    static const int sizes[] = {1, 2, 7, 64, 0, 33, 639, 640};
    struct model m;
    struct result first[8];
    open_model(&m);
    for (int i = 0; i < 8; i++)
        first[i] = run(&m, sizes[i], 100 + (uint64_t)i);
    if (rig_engine.ops == &sy_host_engine)
        assert_true(sy_at_stretches_n() > 0);
    for (int k = 0; k < 24; k++) {
        int i = (int)rig_int(&seed, 0, 7);
        struct result again = run(&m, sizes[i], 100 + (uint64_t)i),
                      plain = run_by_node(&m, sizes[i], 100 + (uint64_t)i);
        check_near(&again, &plain);
        assert_int_equal(again.bytes, first[i].bytes);
        assert_memory_equal(again.y, first[i].y, again.bytes); /* S1 */
        free(again.y);
        free(plain.y);
    }
    for (int i = 0; i < 8; i++)
        free(first[i].y);
    close_model(&m);
}

static void test_rows(void **state)
{
    (void)state;
    model_of_rows();
    check_model();
}

static void test_turns_of_one_shape(void **state)
{
    (void)state;
    model_of_turns(false);
    check_model();
}

static void test_turns_that_grow(void **state)
{
    (void)state;
    model_of_turns(true);
    check_model();
}

static void run_many(struct model *m, int n, uint64_t bytes)
{
    sy_at_stretches_limit(n, bytes);
    for (int rows = ROWS; rows > ROWS - 50; rows--) {
        free(run(m, rows, 7).y);
        assert_true(sy_at_stretches_n() <= n);
        assert_true(sy_at_stretches_bytes() <= bytes);
    }
}

/* S3, and the same bits from what was made anew. */
static void test_the_cache_is_bounded(void **state)
{
    (void)state;
    struct model m;
    model_of_rows();
    open_model(&m);
    struct result before = run(&m, 3, 5), after;
    run_many(&m, 20, UINT64_MAX);
    if (rig_engine.ops == &sy_host_engine)
        assert_int_equal(sy_at_stretches_n(), 20);
    run_many(&m, SY_STRETCHES_KEPT, 4 << 20);
    sy_at_stretches_limit(SY_STRETCHES_KEPT, SY_STRETCHES_MAX_BYTES);
    after = run(&m, 3, 5);
    assert_int_equal(before.bytes, after.bytes);
    assert_memory_equal(before.y, after.y, after.bytes);
    free(before.y);
    free(after.y);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_turns_of_one_shape),
        cmocka_unit_test(test_turns_that_grow),
        cmocka_unit_test(test_the_cache_is_bounded),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* A model whose file holds two networks, of which data chooses one, each for sizes of its own (as a voice detector for two sample rates): a network runs as one
 * program, and sizes that only the other one takes refuse no request. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/sized_run.h"
#include "workers/host/dynamic/dynamic.h"
#include "workers/host/dynamic/dynamic_stretch.h"

enum { FLOAT = 1, BOOL = 9, CHANNELS = 4, RESULTS = 3, MOST_WINDOW = 8, ROWS = 3 };

static struct ob graph, networks[2], parts[2], node;
static uint64_t seed;
static const int64_t windows[2] = {4, 8}; /* samples that each network takes */
static struct network {
    float taps[CHANNELS * MOST_WINDOW], columns[CHANNELS * RESULTS], bias[RESULTS];
} of[2];

static void weights(struct ob *to, const char *name, float *values, int rank, const int64_t *dims)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    for (size_t i = 0; i < n; i++)
        values[i] = (float)gb_uniform(&seed, -0.5, 0.5);
    ob_initializer(to, name, FLOAT, rank, dims, values, n * sizeof *values);
}

static void add_if(struct ob *to, const char *condition, const char *result, const struct ob *both)
{
    ob_node(&node, "If", NAMES(condition), NAMES(result));
    ob_attr_graph(&node, "then_branch", &both[1]);
    ob_attr_graph(&node, "else_branch", &both[0]);
    ob_message(to, OB_GRAPH_NODE, &node);
}

/* A window's convolution, its one position squeezed away as PyTorch exports it: only where there is one. Gemm takes nothing else. */
static void add_network(struct ob *to, int which)
{
    struct network *w = &of[which];
    ob_graph(to);
    weights(to, "taps", w->taps, 3, (const int64_t[]){CHANNELS, 1, windows[which]});
    weights(to, "columns", w->columns, 2, (const int64_t[]){CHANNELS, RESULTS});
    weights(to, "bias", w->bias, 1, (const int64_t[]){RESULTS});
    ob_int64s(to, "axis1", 1, (const int64_t[]){1});
    ob_int64s(to, "axis2", 1, (const int64_t[]){2});
    ob_int64s(to, "second", 0, (const int64_t[]){2});
    ob_int64s(to, "one", 0, (const int64_t[]){1});
    ob_add(to, "Unsqueeze", NAMES("x", "axis1"), NAMES("signal"));
    ob_node(&node, "Conv", NAMES("signal", "taps"), NAMES("conv"));
    ob_attr_ints(&node, "strides", 1, &windows[which]);
    ob_message(to, OB_GRAPH_NODE, &node);
    ob_add(to, "Relu", NAMES("conv"), NAMES("relu"));
    ob_add(to, "Shape", NAMES("relu"), NAMES("shape"));
    ob_add(to, "Gather", NAMES("shape", "second"), NAMES("length"));
    ob_add(to, "Equal", NAMES("length", "one"), NAMES("is_one"));
    for (int i = 0; i < 2; i++) {
        ob_graph(&parts[i]);
        ob_add(&parts[i], i ? "Squeeze" : "Identity", i ? NAMES("relu", "axis2") : NAMES("relu"),
               NAMES("part"));
        ob_input(&parts[i], OB_GRAPH_OUTPUT, "part", FLOAT, DIMS(OB_NAMELESS));
    }
    add_if(to, "is_one", "flat", parts);
    ob_add(to, "Gemm", NAMES("flat", "columns", "bias"), NAMES("y"));
    ob_input(to, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, RESULTS));
}

static struct sy_graph *two_networks(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, OB_NAMELESS));
    ob_input(&graph, OB_GRAPH_INPUT, "wide", BOOL, 0, NULL);
    for (int i = 0; i < 2; i++)
        add_network(&networks[i], i);
    add_if(&graph, "wide", "out", networks);
    ob_input(&graph, OB_GRAPH_OUTPUT, "out", FLOAT, DIMS(-1, RESULTS));
    ob_save(ob_path, &graph, 14);
    return sized_import(ob_path);
}

static void compute(int which, const float *x, float *y)
{
    const struct network *w = &of[which];
    int64_t n = windows[which];
    memcpy(y, w->bias, sizeof w->bias);
    for (int c = 0; c < CHANNELS; c++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += w->taps[c * n + k] * x[k];
        for (int r = 0; r < RESULTS; r++)
            y[r] += fmaxf(sum, 0) * w->columns[c * RESULTS + r];
    }
}

static int most_stretches;

static int count_stretches(void *ctx)
{
    (void)ctx;
    most_stretches = SY_MAX(most_stretches, sy_at_stretches_n());
    return SY_OK;
}

static int run(const struct sy_graph *g, int which, int64_t rows, int64_t length, const float *x,
               struct sized_output *out)
{
    const unsigned char wide = (unsigned char)which;
    const struct sized_input in[] = {{x, 2, {rows, length}}, {&wide, 0, {0}}};
    return sized_run(g, 2, in, out);
}

static void expect_network(const struct sy_graph *g, int which, int64_t rows)
{
    float x[ROWS * MOST_WINDOW], y[RESULTS];
    int64_t length = windows[which];
    struct sized_output out;
    for (int64_t i = 0; i < rows * length; i++)
        x[i] = (float)gb_uniform(&seed, -1, 1);
    if (run(g, which, rows, length, x, &out) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(out.bytes, (uint64_t)rows * sizeof y);
    for (int64_t row = 0; row < rows; row++) {
        compute(which, x + row * length, y);
        for (int r = 0; r < RESULTS; r++)
            assert_true(fabsf(((float *)out.data)[row * RESULTS + r] - y[r]) < 1e-5f);
    }
    free(out.data);
}

/* The branch is one stretch, with the branch of the If within that its sizes decide on. */
static void test_each_runs_whole(void **state)
{
    (void)state;
    struct sy_graph *g = two_networks();
    assert_true(sized_at_run(g) > 0);
    sy_dynamic_on_turn(count_stretches, NULL);
    for (int which = 0; which < 2; which++)
        for (int64_t rows = 1; rows <= ROWS; rows++) {
            most_stretches = 0;
            expect_network(g, which, rows);
            if (rig_engine.ops == &sy_host_engine)
                assert_int_equal(most_stretches, 1);
        }
    sy_dynamic_on_turn(NULL, NULL);
    sy_at_stretches_use(false);
    expect_network(g, 0, 2);
    sy_at_stretches_use(true);
    sy_graph_free(g);
}

/* 8 samples are two windows of the small network, 4 none of the wide one. */
static void test_other_sizes_are_refused(void **state)
{
    (void)state;
    float x[MOST_WINDOW] = {0};
    struct sized_output out;
    struct sy_graph *g = two_networks();
    for (int which = 0; which < 2; which++) {
        assert_int_equal(run(g, which, 1, windows[!which], x, &out), SY_EARG);
        assert_non_null(
            strstr(sy_error_text(), which ? "in the then branch" : "in the else branch"));
    }
    expect_network(g, 1, 1);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_runs_whole),
        cmocka_unit_test(test_other_sizes_are_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

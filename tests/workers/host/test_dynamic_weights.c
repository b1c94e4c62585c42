/* Weights that nodes of rows whose number only a run knows keep packed: runs with other numbers of rows, against loops here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1 };

static char path[64];
static struct ob graph, node;
static uint64_t seed;

enum { ROWS = 7, WIDE = 20, MIXED = 18, CHANNELS = 4, LONG = 5, FILTERS = 24, TAPS = 3 };

struct weights {
    float product[WIDE * MIXED], gemm[WIDE * MIXED], bias[WIDE], conv[FILTERS * CHANNELS * TAPS],
        spread[CHANNELS * FILTERS * TAPS];
};

/* Rows whose first element is above 0, through a product of each kind. */
static void weights_graph(struct weights *w)
{
    float *all = (float *)w;
    for (size_t i = 0; i < sizeof *w / sizeof *all; i++)
        all[i] = (float)gb_uniform(&seed, -1, 1);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(ROWS, WIDE));
    ob_initializer(&graph, "product", FLOAT, DIMS(WIDE, MIXED), w->product, sizeof w->product);
    ob_initializer(&graph, "gemm", FLOAT, DIMS(WIDE, MIXED), w->gemm, sizeof w->gemm);
    ob_initializer(&graph, "bias", FLOAT, DIMS(WIDE), w->bias, sizeof w->bias);
    ob_initializer(&graph, "conv", FLOAT, DIMS(FILTERS, CHANNELS, TAPS), w->conv, sizeof w->conv);
    ob_initializer(&graph, "spread", FLOAT, DIMS(CHANNELS, FILTERS, TAPS), w->spread,
                   sizeof w->spread);
    ob_initializer(&graph, "zero", FLOAT, 0, NULL, &(float){0}, 4);
    ob_int64s(&graph, "first", 1, (const int64_t[]){0});
    ob_int64s(&graph, "line", 1, (const int64_t[]){-1});
    ob_int64s(&graph, "image", 3, (const int64_t[]){-1, CHANNELS, LONG});
    ob_node(&node, "Gather", NAMES("x", "first"), NAMES("column"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Reshape", NAMES("column", "line"), NAMES("flat"));
    ob_add(&graph, "Greater", NAMES("flat", "zero"), NAMES("is"));
    ob_add(&graph, "NonZero", NAMES("is"), NAMES("at"));
    ob_add(&graph, "Reshape", NAMES("at", "line"), NAMES("which"));
    ob_add(&graph, "Gather", NAMES("x", "which"), NAMES("rows"));
    ob_add(&graph, "MatMul", NAMES("rows", "product"), NAMES("mixed"));
    ob_node(&node, "Gemm", NAMES("mixed", "gemm", "bias"), NAMES("back"));
    ob_attr_int(&node, "transB", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Reshape", NAMES("back", "image"), NAMES("signals"));
    ob_add(&graph, "Conv", NAMES("signals", "conv"), NAMES("filtered"));
    ob_add(&graph, "ConvTranspose", NAMES("signals", "spread"), NAMES("longer"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "filtered", FLOAT, DIMS(-1, -1, -1));
    ob_input(&graph, OB_GRAPH_OUTPUT, "longer", FLOAT, DIMS(-1, -1, -1));
}

/* One row by the definitions. */
static void naive_row(const struct weights *w, const float *x, float *filtered, float *longer)
{
    float mixed[MIXED] = {0}, back[WIDE];
    for (int k = 0; k < MIXED; k++)
        for (int i = 0; i < WIDE; i++)
            mixed[k] += x[i] * w->product[i * MIXED + k];
    for (int i = 0; i < WIDE; i++) {
        back[i] = w->bias[i];
        for (int k = 0; k < MIXED; k++)
            back[i] += mixed[k] * w->gemm[i * MIXED + k];
    }
    memset(filtered, 0, FILTERS * (LONG - TAPS + 1) * sizeof *filtered);
    memset(longer, 0, FILTERS * (LONG + TAPS - 1) * sizeof *longer);
    for (int f = 0; f < FILTERS; f++)
        for (int c = 0; c < CHANNELS; c++)
            for (int t = 0; t < TAPS; t++) {
                for (int i = 0; i < LONG - TAPS + 1; i++)
                    filtered[f * (LONG - TAPS + 1) + i] +=
                        back[c * LONG + i + t] * w->conv[(f * CHANNELS + c) * TAPS + t];
                for (int i = 0; i < LONG; i++)
                    longer[f * (LONG + TAPS - 1) + i + t] +=
                        back[c * LONG + i] * w->spread[(c * FILTERS + f) * TAPS + t];
            }
}

static void compare_rows(const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (fabsf(got[i] - want[i]) > 1e-3f * (1 + fabsf(want[i])))
            fail_msg("element %lld is %g, not %g", (long long)i, (double)got[i], (double)want[i]);
}

/* One program, run with one count of rows after the other, some of them again. */
static void test_weights_are_kept(void **state)
{
    (void)state;
    static const int counts[] = {3, 3, 5, 3, 0, 7, 1, 7};
    struct weights w;
    struct sy_graph *g;
    struct engine_rig rig;
    struct rig_tensors in, out;
    weights_graph(&w);
    ob_save(path, &graph, 13);
    g = rig_sized(onnx_optimized(path));
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 1, 1, 0, &in);
    rig_take(&rig, g->outputs, 2, 1, 0xff, &out);
    for (size_t r = 0; r < sizeof counts / sizeof *counts; r++) {
        float *x = in.data[0], filtered[FILTERS * LONG], longer[FILTERS * (LONG + TAPS)];
        for (int i = 0; i < ROWS * WIDE; i++)
            x[i] = (float)gb_uniform(&seed, -1, 1);
        for (int i = 0; i < ROWS; i++)
            x[i * WIDE] = (i * 3 + (int)r) % ROWS < counts[r] ? 0.5f : -0.5f;
        if (rig_run(&rig, program, &in, &out, 0xff, &seed) < 0)
            fail_msg("%s", sy_error_text());
        int64_t n = 0;
        for (int i = 0; i < ROWS; i++) {
            if (x[i * WIDE] < 0)
                continue;
            naive_row(&w, x + i * WIDE, filtered, longer);
            compare_rows((float *)out.data[0] + n * FILTERS * (LONG - TAPS + 1), filtered,
                         FILTERS * (LONG - TAPS + 1));
            compare_rows((float *)out.data[1] + n * FILTERS * (LONG + TAPS - 1), longer,
                         FILTERS * (LONG + TAPS - 1));
            n++;
        }
        struct sy_shape shape;
        uint64_t bytes;
        assert_int_equal(sy_graph_output_shape(g, g->outputs[0], 1, out.data[0], &shape, &bytes),
                         SY_OK);
        assert_int_equal(shape.dims[0].fixed, counts[r]);
        assert_int_equal(n, counts[r]);
    }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights_are_kept)};
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-at-run-weights-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

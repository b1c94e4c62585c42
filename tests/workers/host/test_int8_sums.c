/* u8 times s8 of large numbers: the sums are those of whole numbers. Summed in pairs of 16 bits, as CPUs without VNNI do it at once, they
 * would saturate: 255 * 127 twice is 64770. */
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

enum { UINT8 = 2, INT8 = 3, INT32 = 6, ROWS = 3, DEPTH = 256, WIDTH = 16, ZERO = 3 };

static struct ob graph;
static uint64_t seed;

/* Columns of one sign each, so that sums grow. */
static void fill(uint8_t x[ROWS][DEPTH], int8_t w[DEPTH][WIDTH])
{
    for (int i = 0; i < ROWS * DEPTH; i++)
        x[i / DEPTH][i % DEPTH] = (uint8_t)rig_int(&seed, 200, 255);
    for (int i = 0; i < DEPTH * WIDTH; i++)
        w[i / WIDTH][i % WIDTH] = (int8_t)(rig_int(&seed, 118, 127) * (i % 2 ? 1 : -1));
}

static struct sy_graph *product(int8_t w[DEPTH][WIDTH])
{
    struct sy_graph *g;
    uint8_t zero = ZERO;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", UINT8, DIMS(-1, DEPTH));
    ob_initializer(&graph, "w", INT8, DIMS(DEPTH, WIDTH), w, DEPTH * WIDTH);
    ob_initializer(&graph, "zero", UINT8, 0, NULL, &zero, 1);
    ob_add(&graph, "MatMulInteger", NAMES("x", "w", "zero"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", INT32, 0, NULL);
    ob_save(ob_path, &graph, 13);
    g = onnx_optimized(ob_path);
    if (sy_graph_fuse(g, rig_engine.ops->fuses) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static void test_exact(void **state)
{
    (void)state;
    static uint8_t x[ROWS][DEPTH];
    static int8_t w[DEPTH][WIDTH];
    struct engine_rig rig;
    struct rig_tensors in, out;
    fill(x, w);
    struct sy_graph *g = product(w);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, ROWS);
    rig_take(&rig, g->inputs, 1, ROWS, 0, &in);
    memcpy(in.data[0], x, sizeof x);
    rig_take(&rig, g->outputs, 1, ROWS, 0xff, &out);
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, NULL), SY_OK);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++) {
            int64_t sum = 0;
            for (int k = 0; k < DEPTH; k++)
                sum += ((int64_t)x[i][k] - ZERO) * w[k][j];
            assert_int_equal(((int32_t *)out.data[0])[i * WIDTH + j], sum);
        }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* An input that decides on sizes lies in memory that its client writes to while a run is made ready: what is kept for the elements that the run began with must
 * not be used for those that came meanwhile. */
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
#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, BEFORE = 3, AFTER = 5, MOST_CALLS = 1000 };

static float *limit; /* in the client's memory; NULL: it does not change */
static int calls_left;

/* Stands before the library's: the client writes at the k-th call. */
int sy_graph_alloc(size_t n, size_t bytes, void *out)
{
    void *block = calloc(n ? n : 1, bytes ? bytes : 1);
    assert_non_null(block);
    memcpy(out, &block, sizeof block);
    if (limit && --calls_left == 0)
        *limit = AFTER;
    return SY_OK;
}

static struct sy_graph *import_range(void)
{
    static struct ob graph;
    char path[64];
    snprintf(path, sizeof path, "/tmp/test_changing_sizes_%d.onnx", (int)getpid());
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "limit", FLOAT, 0, NULL);
    ob_initializer(&graph, "start", FLOAT, 0, NULL, &(float){0}, 4);
    ob_initializer(&graph, "step", FLOAT, 0, NULL, &(float){1}, 4);
    ob_add(&graph, "Range", NAMES("start", "limit", "step"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 1, (const int64_t[]){-1});
    ob_save(path, &graph, 13);
    struct sy_graph *sized = rig_sized(onnx_optimized(path));
    unlink(path);
    return sized;
}

/* Whether the client wrote in the first run, at its k-th call. The second one computes with what stands there then. */
static bool run_twice(struct engine_rig *rig, struct sy_graph *g, int k)
{
    struct rig_tensors in, out;
    struct sy_shape shape;
    uint64_t seed = 1, bytes;
    struct sy_program *program = rig_program(rig, 1);
    rig_take(rig, g->inputs, 1, 1, 0, &in);
    rig_take(rig, g->outputs, 1, 1, 0xff, &out);
    *(float *)in.data[0] = BEFORE;
    limit = in.data[0];
    calls_left = k;
    assert_int_equal(rig_run(rig, program, &in, &out, 0xff, &seed), SY_OK);
    bool wrote = calls_left <= 0;
    limit = NULL;
    *(float *)in.data[0] = AFTER;
    assert_int_equal(rig_run(rig, program, &in, &out, 0xff, &seed), SY_OK);
    assert_int_equal(sy_graph_output_shape(g, g->outputs[0], 1, out.data[0], &shape, &bytes),
                     SY_OK);
    assert_int_equal(bytes, AFTER * sizeof(float));
    for (int i = 0; i < AFTER; i++)
        assert_true(((const float *)out.data[0])[i] == (float)i);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    return wrote;
}

static void test_what_is_kept_is_of_its_elements(void **state)
{
    struct engine_rig rig;
    struct sy_graph *g = import_range();
    int k = 1;
    (void)state;
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    while (run_twice(&rig, g, k))
        assert_true(++k < MOST_CALLS);
    assert_true(k > 2); /* the run did call */
    rig_close(&rig);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_kept_is_of_its_elements)};
    (void)rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

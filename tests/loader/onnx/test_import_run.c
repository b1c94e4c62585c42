/* ONNX files through reader, inference, passes and the host engine: results that the file's nodes define. */
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

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

static char path[64];
static struct ob graph, node;
static uint64_t seed;

static void add(const char *op, const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, op, inputs, outputs);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static struct sy_graph *import(void)
{
    ob_save(path, &graph, 13);
    return onnx_inferred(path);
}

/* Runs `g` at `batch`; *out: its outputs, for rig_drop. */
static void run(const struct sy_graph *g, bool optimize, int64_t batch,
                const struct rig_tensors *inputs, struct rig_tensors *out)
{
    struct engine_rig rig;
    if (rig_open(&rig, g, optimize) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, batch);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, batch, 0xff, out);
    if (rig_run(&rig, program, inputs, out, 0xff, NULL) < 0)
        fail_msg("%s", sy_error_text());
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
}

static void take_inputs(const struct sy_graph *g, int64_t batch, struct rig_tensors *inputs)
{
    struct engine_rig rig;
    struct engine_case c = {.graph = NULL, .int_low = 0, .int_high = 3};
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, batch, 0, inputs);
    rig_fill(&rig, &c, inputs, &seed);
    rig_close(&rig);
}

/* The batch size as data: a shape that is a result, sums with it, a range as long as it. */
static void test_batch_size_as_a_number(void **state)
{
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_INPUT, "one", 7, DIMS(1));
    ob_input(&graph, OB_GRAPH_OUTPUT, "s", 7, DIMS(2));
    ob_input(&graph, OB_GRAPH_OUTPUT, "more", 7, DIMS(2));
    ob_input(&graph, OB_GRAPH_OUTPUT, "range", 7, DIMS(-1));
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_int64s(&graph, "step", 0, (const int64_t[]){1});
    add("Shape", NAMES("x"), NAMES("s"));
    add("Add", NAMES("s", "one"), NAMES("more"));
    add("Gather", NAMES("s", "zero"), NAMES("n"));
    add("Range", NAMES("zero", "n", "step"), NAMES("range"));
    struct sy_graph *g = import();
    for (int64_t batch = 1; batch <= 5; batch += 2) {
        struct rig_tensors in, out;
        take_inputs(g, batch, &in);
        run(g, true, batch, &in, &out);
        int64_t one = *(int64_t *)in.data[1];
        assert_memory_equal(out.data[0], ((int64_t[]){batch, 4}), 16);
        assert_memory_equal(out.data[1], ((int64_t[]){batch + one, 4 + one}), 16);
        assert_int_equal(out.bytes[2], (uint64_t)batch * 8);
        for (int64_t i = 0; i < batch; i++)
            assert_int_equal(((int64_t *)out.data[2])[i], i);
        rig_drop(&in);
        rig_drop(&out);
    }
    sy_graph_free(g);
}

/* Einsum as products gives what its definition gives. Dimensions of an operand end with 0; `left`: Einsums that are still there. */
static void check_einsum(const char *equation, int n, const int64_t (*dims)[5], int left)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", NULL};
    const char *given[7] = {NULL};
    int einsums = 0;
    ob_graph(&graph);
    for (int i = 0; i < n; i++) {
        int rank = 0;
        while (dims[i][rank])
            rank++;
        given[i] = names[i];
        ob_input(&graph, OB_GRAPH_INPUT, names[i], 1, rank, dims[i]);
    }
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, 0, NULL);
    ob_node(&node, "Einsum", given, NAMES("y"));
    ob_attr_text(&node, "equation", equation);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    struct sy_graph *g = import();
    struct rig_tensors in, plain, fast;
    take_inputs(g, 3, &in);
    run(g, false, 3, &in, &plain);
    run(g, true, 3, &in, &fast);
    assert_int_equal(plain.bytes[0], fast.bytes[0]);
    for (size_t i = 0; i < plain.bytes[0] / sizeof(float); i++)
        assert_true(fabsf(((float *)plain.data[0])[i] - ((float *)fast.data[0])[i]) < 1e-4f);
    rig_drop(&in);
    rig_drop(&plain);
    rig_drop(&fast);
    assert_int_equal(sy_graph_optimize(g), SY_OK);
    for (int i = 0; i < g->n_nodes; i++) {
        einsums += g->nodes[i].op == SY_OP_EINSUM;
        assert_true(g->nodes[i].op != SY_OP_EINSUM || g->nodes[i].n_inputs == 2);
    }
    assert_int_equal(einsums, left);
    sy_graph_free(g);
}

#define EINSUM(equation, left, ...)                                                            \
    check_einsum(equation, (int)(sizeof((int64_t[][5]){__VA_ARGS__}) / (5 * sizeof(int64_t))), \
                 (const int64_t[][5]){__VA_ARGS__}, left)
static void test_einsums(void **state)
{
    (void)state;
    EINSUM("bhid,bhjd->bhij", 0, {-1, 2, 5, 3}, {-1, 2, 7, 3});
    EINSUM("bhij, bhjd -> bihd", 0, {-1, 2, 5, 3}, {-1, 2, 3, 4});
    EINSUM("bij,jk->bik", 0, {-1, 5, 3}, {3, 4});
    EINSUM("bijk,jkl->bil", 0, {-1, 5, 3, 2}, {3, 2, 4});
    EINSUM("bi,bi->b", 0, {-1, 5}, {-1, 5});
    EINSUM("ijk,ki->ji", 0, {4, 5, 3}, {3, 4});
}

/* Two at a time: chains of matrices, elements, one that is repeated, a diagonal, what is summed in one operand alone. */
static void test_einsums_of_many(void **state)
{
    (void)state;
    EINSUM("bij,jk,kl->bil", 0, {-1, 5, 3}, {3, 4}, {4, 2});
    EINSUM("bi,bi,bi,bi,bi->bi", 4, {-1, 5}, {-1, 5}, {-1, 5}, {-1, 5}, {-1, 5});
    EINSUM("bij,jk,kl,lm,mn,in->b", 0, {-1, 5, 3}, {3, 4}, {4, 2}, {2, 7}, {7, 6}, {5, 6});
    EINSUM("bi,ij,j->bj", 1, {-1, 5}, {5, 4}, {4});
    EINSUM("bi,jj,ij,k->b", 2, {-1, 5}, {3, 3}, {5, 3}, {4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_size_as_a_number),
        cmocka_unit_test(test_einsums),
        cmocka_unit_test(test_einsums_of_many),
    };
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-import-run-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

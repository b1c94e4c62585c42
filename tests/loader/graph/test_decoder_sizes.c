/* Sizes of decoders that keep keys and values, as exporters write them: a mask that is cut to the length of the keys, and one file for the first
 * step and those after it, whose branches give results of other sizes. */
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

enum { FLOAT = 1, BOOL = 9, MOST = 256 };

static struct ob graph, branch, node;

/* ---- a mask that is cut to the keys' length ------------------------------------------------------ */

/* y = mask[:, :S] + keys, S the length of past and x together; twice, as a mask is cut again where it is added. */
static struct sy_graph *cut_mask(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1, -2, 1));
    ob_input(&graph, OB_GRAPH_INPUT, "past", FLOAT, DIMS(-1, 1, -3, 1));
    ob_input(&graph, OB_GRAPH_INPUT, "mask", FLOAT, DIMS(-1, -4));
    ob_int64s(&graph, "zero", 1, (const int64_t[]){0});
    ob_int64s(&graph, "one", 1, (const int64_t[]){1});
    ob_int64s(&graph, "ends", 2, (const int64_t[]){1, 3});
    ob_int64s(&graph, "second", 0, (const int64_t[]){1});
    ob_node(&node, "Concat", NAMES("past", "x"), NAMES("heads"));
    ob_attr_int(&node, "axis", 2);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Squeeze", NAMES("heads", "ends"), NAMES("keys"));
    ob_add(&graph, "Shape", NAMES("keys"), NAMES("shape"));
    ob_add(&graph, "Gather", NAMES("shape", "second"), NAMES("length"));
    ob_add(&graph, "Unsqueeze", NAMES("length", "zero"), NAMES("end"));
    ob_add(&graph, "Slice", NAMES("mask", "zero", "end", "one"), NAMES("cut"));
    ob_add(&graph, "Slice", NAMES("cut", "zero", "end", "one"), NAMES("again"));
    ob_add(&graph, "Add", NAMES("keys", "again"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, -5));
    ob_save(ob_path, &graph, 14);
    return sized_import(ob_path);
}

static int run_cut(const struct sy_graph *g, const int64_t *of, struct sized_output *out)
{
    static float x[MOST];
    for (int i = 0; i < MOST; i++)
        x[i] = (float)i;
    const struct sized_input in[] = {
        {x, 4, {of[0], 1, of[1], 1}}, {x, 4, {of[0], 1, of[2], 1}}, {x, 2, {of[0], of[3]}}};
    return sized_run(g, 3, in, out);
}

/* A mask may be longer than the keys, and not shorter. */
static void test_cut_mask(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {/* rows, x, past, mask */
                                       {1, 2, 3, 5},
                                       {3, 1, 9, 10},
                                       {2, 2, 3, 7},
                                       {2, 4, 0, 4}};
    struct sy_graph *g = cut_mask();
    struct sized_output out;
    assert_int_equal(sized_at_run(g), 0);
    for (size_t k = 0; k < SY_ARRAY_LEN(sizes); k++) {
        const int64_t *of = sizes[k], all = of[1] + of[2];
        if (run_cut(g, of, &out) < 0)
            fail_msg("%s", sy_error_text());
        assert_int_equal(out.bytes, (uint64_t)(of[0] * all) * sizeof(float));
        for (int64_t row = 0; row < of[0]; row++)
            for (int64_t i = 0; i < all; i++) {
                int64_t key = i < of[2] ? row * of[2] + i : row * of[1] + i - of[2];
                assert_true(((float *)out.data)[row * all + i] == (float)(key + row * of[3] + i));
            }
        free(out.data);
    }
    assert_int_equal(run_cut(g, (const int64_t[]){1, 2, 3, 4}, &out), SY_EARG);
    sy_graph_free(g);
}

/* ---- one file for the first step and the others -------------------------------------------------- */

static void end_branch(const char *op, const char *from)
{
    ob_add(&branch, op, NAMES(from), NAMES("made"));
    ob_input(&branch, OB_GRAPH_OUTPUT, "made", FLOAT, DIMS(-1, 2, -2));
}

/* kept: what is computed of x and, where the cache is used, an empty tensor in its place. */
static struct sy_graph *merged(void)
{
    static struct ob without;
    ob_graph(&branch);
    end_branch("Neg", "x");
    without = branch;
    ob_graph(&branch);
    ob_initializer(&branch, "none", FLOAT, DIMS(0, 2, 1), NULL, 0);
    end_branch("Identity", "none");
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 2, -2));
    ob_input(&graph, OB_GRAPH_INPUT, "use_cache", BOOL, DIMS(1));
    ob_node(&node, "If", NAMES("use_cache"), NAMES("kept"));
    ob_attr_graph(&node, "then_branch", &branch);
    ob_attr_graph(&node, "else_branch", &without);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "kept", FLOAT, DIMS(-1, 2, -2));
    ob_save(ob_path, &graph, 14);
    return sized_import(ob_path);
}

static void test_merged(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 3}, {3, 7}, {2, 1}, {4, 16}};
    float x[MOST];
    struct sized_output out;
    struct sy_graph *g = merged();
    for (int i = 0; i < MOST; i++)
        x[i] = (float)i;
    for (size_t k = 0; k < SY_ARRAY_LEN(sizes); k++)
        for (unsigned char use = 0; use < 2; use++) {
            const struct sized_input in[] = {{x, 3, {sizes[k][0], 2, sizes[k][1]}}, {&use, 1, {1}}};
            int64_t n = use ? 0 : sizes[k][0] * 2 * sizes[k][1];
            if (sized_run(g, 2, in, &out) < 0)
                fail_msg("%s", sy_error_text());
            assert_int_equal(out.bytes, (uint64_t)n * sizeof(float));
            assert_int_equal(out.shape.dims[2].fixed, use ? 1 : sizes[k][1]);
            for (int64_t i = 0; i < n; i++)
                assert_true(((float *)out.data)[i] == -x[i]);
            free(out.data);
        }
    sy_graph_free(g);
}

/* y = mask + x, or where the cache is used mask + past and x in a row: the mask is as long as what the branch reads, whatever the other one needs. */
static struct sy_graph *two_lengths(void)
{
    static struct ob without;
    ob_graph(&branch);
    ob_add(&branch, "Add", NAMES("x", "mask"), NAMES("made"));
    ob_input(&branch, OB_GRAPH_OUTPUT, "made", FLOAT, DIMS(-1, -2));
    without = branch;
    ob_graph(&branch);
    ob_node(&node, "Concat", NAMES("past", "x"), NAMES("keys"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&branch, OB_GRAPH_NODE, &node);
    ob_add(&branch, "Add", NAMES("keys", "mask"), NAMES("made"));
    ob_input(&branch, OB_GRAPH_OUTPUT, "made", FLOAT, DIMS(-1, -5));
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, -2));
    ob_input(&graph, OB_GRAPH_INPUT, "past", FLOAT, DIMS(-1, -3));
    ob_input(&graph, OB_GRAPH_INPUT, "mask", FLOAT, DIMS(-1, -4));
    ob_input(&graph, OB_GRAPH_INPUT, "use_cache", BOOL, DIMS(1));
    ob_node(&node, "If", NAMES("use_cache"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &branch);
    ob_attr_graph(&node, "else_branch", &without);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, -5));
    ob_save(ob_path, &graph, 14);
    return sized_import(ob_path);
}

static int run_lengths(const struct sy_graph *g, const int64_t *of, struct sized_output *out)
{
    static float x[MOST];
    unsigned char use = of[4] != 0;
    for (int i = 0; i < MOST; i++)
        x[i] = (float)i;
    const struct sized_input in[] = {
        {x, 2, {of[0], of[1]}}, {x, 2, {of[0], of[2]}}, {x, 2, {of[0], of[3]}}, {&use, 1, {1}}};
    return sized_run(g, 4, in, out);
}

static void test_two_lengths(void **state)
{
    (void)state;
    static const int64_t sizes[][5] = {/* rows, x, past, mask, whether the cache is used */
                                       {1, 5, 1, 5, 0}, {3, 4, 0, 4, 0}, {2, 1, 6, 7, 1},
                                       {3, 2, 3, 5, 1}, {2, 6, 9, 6, 0}, {1, 1, 1, 2, 1}};
    struct sy_graph *g = two_lengths();
    struct sized_output out;
    for (size_t k = 0; k < SY_ARRAY_LEN(sizes); k++) {
        const int64_t *of = sizes[k], past = of[4] ? of[2] : 0, all = past + of[1];
        if (run_lengths(g, of, &out) < 0)
            fail_msg("%s", sy_error_text());
        assert_int_equal(out.bytes, (uint64_t)(of[0] * all) * sizeof(float));
        for (int64_t row = 0; row < of[0]; row++)
            for (int64_t i = 0; i < all; i++) {
                int64_t key = i < past ? row * past + i : row * of[1] + i - past;
                assert_true(((float *)out.data)[row * all + i] == (float)(key + row * all + i));
            }
        free(out.data);
    }
    assert_int_equal(run_lengths(g, (const int64_t[]){1, 3, 2, 4, 1}, &out), SY_EARG);
    assert_int_equal(run_lengths(g, (const int64_t[]){1, 3, 2, 5, 0}, &out), SY_EARG);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_mask),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_two_lengths),
    };
    (void)rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

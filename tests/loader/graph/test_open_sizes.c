/* Graphs with open sizes: bound to numbers they are the graphs that inference with those numbers gives, in shapes and in what the engine computes, from
 * one laying out of the weights; conditions, solving, the codec. */
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
#include "loader/graph/size_expr.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_import.h"
#include "tests/nets/open_models.h"
#include "tests/rigs/engine_rig.h"

/* ---- checks ------------------------------------------------------------------------------------- */

static struct sy_graph *read_open(void)
{
    ob_save(ob_path, &open_graph, 17);
    return onnx_inferred(ob_path);
}

static struct sy_graph *optimized(struct sy_graph *g)
{
    if (sy_graph_optimize(g) < 0 || sy_graph_fuse(g, rig_engine.ops->fuses) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

static struct sy_graph *read_sized(const char *const *names, const int64_t *values, int n)
{
    struct sy_onnx_dim dims[8];
    struct sy_graph *g;
    for (int i = 0; i < n; i++)
        dims[i] = (struct sy_onnx_dim){names[i], values[i]};
    if (sy_onnx_read_sized(ob_path, dims, n, &g) < 0 || sy_graph_infer(g) < 0)
        fail_msg("%s", sy_error_text());
    return optimized(g);
}

static void same_ends(const struct sy_graph *a, const struct sy_graph *b)
{
    char x[160], y[160];
    assert_int_equal(a->n_outputs, b->n_outputs);
    for (int i = 0; i < a->n_outputs; i++)
        assert_string_equal(sy_shape_text(&a->tensors[a->outputs[i]].shape, x, sizeof x),
                            sy_shape_text(&b->tensors[b->outputs[i]].shape, y, sizeof y));
    for (int i = 0; i < a->n_inputs; i++)
        assert_string_equal(sy_shape_text(&a->tensors[a->inputs[i]].shape, x, sizeof x),
                            sy_shape_text(&b->tensors[b->inputs[i]].shape, y, sizeof y));
}

static void run(struct engine_rig *rig, const struct rig_tensors *inputs, int64_t batch,
                struct rig_tensors *outputs)
{
    struct sy_program *program = rig_program(rig, batch);
    rig_take(rig, rig->graph->outputs, rig->graph->n_outputs, batch, 0xff, outputs);
    if (rig_run(rig, program, inputs, outputs, 0xff, NULL) < 0)
        fail_msg("%s", sy_error_text());
    rig_engine.ops->program_destroy(program);
}

/* `open` laid out once, bound to the sizes; beside the graph that was read with them. */
static void same_results(struct engine_rig *open, struct sy_graph *bound, struct sy_graph *sized,
                         int64_t batch)
{
    struct engine_case c = {.int_low = 0, .int_high = 19};
    struct sy_graph *laid_out = open->graph;
    struct engine_rig own;
    struct rig_tensors inputs, mine, its;
    if (rig_open(&own, sized, false) < 0)
        fail_msg("%s", sy_error_text());
    rig_take(&own, sized->inputs, sized->n_inputs, batch, 0, &inputs);
    rig_fill(&own, &c, &inputs, &open_seed);
    run(&own, &inputs, batch, &its);
    open->graph = bound;
    run(open, &inputs, batch, &mine);
    open->graph = laid_out;
    for (int i = 0; i < sized->n_outputs; i++) {
        assert_int_equal(mine.bytes[i], its.bytes[i]);
        for (uint64_t k = 0; k < mine.bytes[i] / sizeof(float); k++) {
            float a = ((float *)mine.data[i])[k], b = ((float *)its.data[i])[k];
            if (!(a - b <= 1e-4f && b - a <= 1e-4f))
                fail_msg("output %d, element %llu: %g, not %g", i, (unsigned long long)k, (double)a,
                         (double)b);
        }
    }
    rig_drop(&inputs);
    rig_drop(&mine);
    rig_drop(&its);
    rig_close(&own);
}

/* Through the codec, as a package keeps it. */
static struct sy_graph *coded(struct sy_graph *g)
{
    bool *all = calloc((size_t)g->n_tensors, sizeof *all);
    struct sy_graph *copy;
    void *bytes;
    size_t n;
    memset(all, true, (size_t)g->n_tensors);
    assert_int_equal(sy_graph_encode(g, all, &bytes, &n), SY_OK);
    if (sy_graph_decode(bytes, n, &copy) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_free(g);
    free(all);
    free(bytes);
    return copy;
}

/* names: of the file. given: their sizes, n at a time, as often as there are. */
static void check_model(const char *const *names, int n, const int64_t *given, int n_given)
{
    struct sy_graph *open = coded(optimized(read_open())), *usual;
    struct sy_sizes sizes;
    struct engine_rig rig;
    sy_graph_usual_sizes(open, &sizes);
    assert_int_equal(sy_graph_bind(open, &sizes, &usual), SY_OK);
    if (rig_open(&rig, usual, false) < 0)
        fail_msg("%s", sy_error_text());
    for (int at = 0; at + n <= n_given; at += n) {
        struct sy_graph *bound, *sized = read_sized(names, given + at, n);
        struct sy_given_input inputs[8];
        int64_t dims[8][SY_MAX_RANK], batch;
        for (int i = 0; i < sized->n_inputs; i++) {
            const struct sy_shape *shape = &sized->tensors[sized->inputs[i]].shape;
            inputs[i] = (struct sy_given_input){i, shape->rank, dims[i]};
            for (int d = 0; d < shape->rank; d++)
                dims[i][d] = sy_dim_at(shape->dims[d], 3);
        }
        if (sy_graph_solve(open, sized->n_inputs, inputs, &batch, &sizes) < 0 ||
            sy_graph_bind(open, &sizes, &bound) < 0)
            fail_msg("%s", sy_error_text());
        assert_int_equal(batch, 3);
        assert_int_equal(bound->n_nodes, open->n_nodes);
        same_ends(bound, sized);
        same_results(&rig, bound, sized, batch);
        sy_graph_free(bound);
        sy_graph_free(sized);
    }
    rig_close(&rig);
    sy_graph_free(usual);
    sy_graph_free(open);
}

static void test_text(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 24};
    open_text_model();
    check_model(NAMES("L2"), 1, lengths, 4);
    struct sy_graph *g = optimized(read_open()), *bound;
    assert_int_equal(g->n_symbols, 1);
    assert_string_equal(g->symbols[0].name, "L2");
    assert_int_equal(g->symbols[0].usual, 24); /* as many positions as there are */
    int n_attention = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n_attention += g->nodes[i].op == SY_OP_ATTENTION;
    assert_int_equal(n_attention, 1);
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{25}}, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'x'"));
    assert_non_null(strstr(sy_error_text(), "L2 is at most 24; here that is 25 and 24"));
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{-1}}, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'L2' is -1"));
    sy_graph_free(g);
}

static void test_image(void **state)
{
    (void)state;
    static const int64_t sizes[] = {32, 32, 17, 40, 9, 5, 63, 2 * 13};
    open_image_model();
    check_model(NAMES("L2", "L3"), 2, sizes, 8);
    struct sy_graph *g = read_open(), *bound;
    struct sy_sizes small = {{2, 30}};
    assert_int_equal(sy_graph_bind(g, &small, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'b'"));
    sy_graph_free(g);
}

static void test_cache(void **state)
{
    (void)state;
    /* L2, L4, L3: the mask is as long as both together */
    static const int64_t sizes[] = {1, 4, 5, 3, 1, 4, 2, 9, 11, 2, 0, 2};
    open_cache_model();
    check_model(NAMES("L2", "L4", "L3"), 3, sizes, 12);
    struct sy_graph *g = read_open();
    assert_int_equal(g->n_symbols, 2); /* the third follows */
    int64_t x[] = {2, 3, 8}, past[] = {2, 5, 8}, mask[] = {2, 8}, batch;
    struct sy_given_input inputs[] = {{0, 3, x}, {1, 3, past}, {2, 2, mask}};
    struct sy_sizes found;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_OK);
    assert_int_equal(batch, 2);
    mask[1] = 9;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "input"));
    mask[1] = 8;
    past[0] = 3;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    past[0] = 2;
    x[2] = 7;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    inputs[0].rank = 2;
    assert_int_equal(sy_graph_solve(g, 3, inputs, &batch, &found), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'x' has 2 dimensions"));
    /* the past may be given alone: x follows from the rest */
    struct sy_given_input two[] = {{1, 3, past}, {2, 2, mask}};
    assert_int_equal(sy_graph_solve(g, 2, two, &batch, &found), SY_OK);
    assert_int_equal(batch, 2);
    sy_graph_free(g);
}

static void test_position(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 7, 23};
    open_position_model();
    check_model(NAMES("L2"), 1, lengths, 3);
}

static void test_slices(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2, 8, 30, 4};
    open_slice_model();
    check_model(NAMES("L2"), 1, lengths, 4);
}

static void test_floats(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 10, 33, 57, 6, 1, 20, 100};
    open_float_model();
    check_model(NAMES("L2", "L3"), 2, sizes, 8);
    struct sy_graph *g = optimized(read_open()), *bound;
    char text[160];
    for (int i = 0; i < g->n_nodes; i++)
        assert_int_not_equal(g->nodes[i].op, SY_OP_DYNAMIC);
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{10, 10}}, &bound), SY_OK);
    /* as a float32 product is: 10 * 0.7f is 7, though 0.7f is less than 0.7 */
    assert_string_equal(sy_shape_text(&bound->tensors[bound->outputs[0]].shape, text, sizeof text),
                        "[N, 3, 15, 7]");
    sy_graph_free(bound);
    assert_int_equal(sy_graph_bind(g, &(struct sy_sizes){{5, 9}}, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'first'")); /* cut out of more than there is */
    sy_graph_free(g);
}

/* What is left of a size that a table limits; of one that no division tells it is left to the run, or refused, never taken for a wrong one. */
static void test_left_over(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 5, 24};
    for (int k = 0; k < 2; k++) {
        ob_graph(&open_graph);
        open_in("x", 1, DIMS(N, S, 4));
        open_weights("table", DIMS(24, 4));
        open_numbers("zero", DIMS(0));
        open_numbers("one", DIMS(1));
        open_numbers("minus", DIMS(-1));
        open_numbers("three", DIMS(3));
        open_add("Shape", NAMES("x"), "shape");
        open_add("Gather", NAMES("shape", "one"), "length");
        open_add("Slice", NAMES("table", "zero", "length"), "rows");
        open_add("Add", NAMES("length", "three"), "more");
        open_add_with("Concat", NAMES(k == 0 ? "length" : "more", "minus"), "target", "axis", 0,
                      (const int64_t[]){0});
        open_add("Reshape", NAMES("rows", "target"), "left");
        open_add("Add", NAMES("x", "left"), "y");
        open_out("y");
        if (k == 0) {
            check_model(NAMES("L2"), 1, lengths, 3);
            continue;
        }
        struct sy_graph *g;
        ob_save(ob_path, &open_graph, 17);
        assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
        int status = sy_graph_infer(g);
        assert_true(status == SY_OK || status == SY_EUNSUPPORTED);
        sy_graph_free(g);
    }
}

/* Texts and images, as many as there are of each: a product of all with all. Of sizes that meet, one is the other. */
static void test_two_batches(void **state)
{
    (void)state;
    struct sy_graph *g;
    int64_t x[] = {2, 8}, y[] = {5, 8}, batch;
    struct sy_given_input inputs[] = {{0, 2, x}, {1, 2, y}};
    struct sy_sizes sizes;
    char text[160];
    for (int meets = 0; meets < 2; meets++) {
        ob_graph(&open_graph);
        open_in("x", 1, DIMS(N, 8));
        open_in("y", 1, DIMS(S, 8));
        open_add_with("Transpose", NAMES("y"), "turned", "perm", DIMS(1, 0));
        open_add("MatMul", NAMES("x", "turned"), "all");
        open_out("all");
        if (meets) {
            open_add("Add", NAMES("x", "y"), "both");
            open_out("both");
        }
        g = optimized(read_open());
        int status = sy_graph_solve(g, 2, inputs, &batch, &sizes);
        assert_int_equal(status, meets ? SY_EARG : SY_OK);
        assert_int_equal(g->n_symbols, meets ? 0 : 1);
        if (!meets)
            assert_string_equal(sy_shape_text(&g->tensors[g->outputs[0]].shape, text, sizeof text),
                                "[N, L2]");
        sy_graph_free(g);
    }
}

/* First states whose first size is open too, as exporters write them: it can only be the number of directions. */
static void test_first_states(void **state)
{
    (void)state;
    static const int64_t sizes[] = {5, 1, 9, 1};
    ob_graph(&open_graph);
    open_in("x", 1, DIMS(N, S, 4));
    open_in("h0", 1, DIMS(T, N, 8));
    open_in("c0", 1, DIMS(T, N, 8));
    open_weights("w", DIMS(1, 32, 4));
    open_weights("r", DIMS(1, 32, 8));
    open_add_with("Transpose", NAMES("x"), "turned", "perm", DIMS(1, 0, 2));
    open_add_with("LSTM", NAMES("turned", "w", "r", "", "", "h0", "c0"), "y", "hidden_size", 0,
                  (const int64_t[]){8});
    open_out("y");
    check_model(NAMES("L2", "L3"), 2, sizes, 4);
    struct sy_graph *g = optimized(read_open());
    assert_int_equal(g->n_symbols, 1);
    sy_graph_free(g);
}

/* Indices have sizes of their own, up to the data's; more are refused by the node's name. */
static void test_elements_by_index(void **state)
{
    (void)state;
    static const int64_t sizes[] = {20, 7, 3, 25, 2, 4};
    struct sy_sizes given;
    int64_t x[] = {3, 20, 4}, at[] = {3, 7, 5}, batch;
    struct sy_given_input inputs[] = {{0, 3, x}, {1, 3, at}};
    ob_graph(&open_graph);
    open_in("x", 1, DIMS(N, S, 4));
    open_in("at", 7, DIMS(N, T, P));
    open_add_with("GatherElements", NAMES("x", "at"), "y", "axis", 0, (const int64_t[]){1});
    open_out("y");
    check_model(NAMES("L2", "L3", "L4"), 3, sizes, 6);
    struct sy_graph *g = optimized(read_open()), *bound;
    assert_int_equal(sy_graph_solve(g, 2, inputs, &batch, &given), SY_OK);
    assert_int_equal(sy_graph_bind(g, &given, &bound), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "node 'y'"));
    sy_graph_free(g);
}

/* As many rows as a mask is longer than what is past: the usual sizes give some, so that a layout can be chosen. */
static void test_usual_rows(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 7, 9, 2};
    ob_graph(&open_graph);
    open_in("mask", 1, DIMS(N, T, 8));
    open_in("past", 1, DIMS(N, P, 8));
    open_weights("w", DIMS(8, 8));
    open_numbers("one", DIMS(1));
    open_numbers("end", DIMS(INT64_MAX));
    open_numbers("flat", DIMS(-1, 8));
    open_add("Shape", NAMES("past"), "of_past");
    open_add("Slice", NAMES("of_past", "one", "two"), "n_past");
    open_numbers("two", DIMS(2));
    open_add("Slice", NAMES("mask", "n_past", "end", "one"), "rest");
    open_add("Reshape", NAMES("rest", "flat"), "rows");
    open_add("Gemm", NAMES("rows", "w"), "y");
    open_out("y");
    check_model(NAMES("L3", "L4"), 2, sizes, 4);
}

/* Of three factors those two go first whose result is smallest with the usual sizes: [N, L, 6, 5] is never made. */
static void test_einsum(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 4, 9};
    ob_graph(&open_graph);
    open_in("a", 1, DIMS(N, S, 6));
    open_in("c", 1, DIMS(N, S, 5));
    open_weights("b", DIMS(6, 5));
    ob_node(&open_node, "Einsum", NAMES("a", "b", "c"), NAMES("y"));
    ob_attr_text(&open_node, "equation", "bld,dn,bln->bdn");
    ob_message(&open_graph, OB_GRAPH_NODE, &open_node);
    open_out("y");
    check_model(NAMES("L2"), 1, sizes, 3);
    struct sy_graph *g = optimized(read_open());
    for (int t = 0; t < g->n_tensors; t++)
        assert_in_range(g->tensors[t].shape.rank, 0, 3);
    sy_graph_free(g);
}

/* All inputs must have a number for what a job trains. */
static void test_training(void **state)
{
    (void)state;
    struct sy_graph *g;
    open_text_model();
    ob_save(ob_path, &open_graph, 17);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(sy_graph_infer_training(g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "--dim L2=SIZE"));
    sy_graph_free(g);
}

/* Bytes of a graph with sizes, changed at random: refused, or a graph that binds or refuses to. */
static void test_mutated(void **state)
{
    (void)state;
    open_cache_model();
    struct sy_graph *g = optimized(read_open()), *copy, *bound;
    void *bytes;
    size_t n;
    bool *none = calloc((size_t)g->n_tensors, sizeof *none);
    assert_int_equal(sy_graph_encode(g, none, &bytes, &n), SY_OK);
    unsigned char *changed = malloc(n);
    for (int i = 0; i < 20000; i++) {
        memcpy(changed, bytes, n);
        for (int k = 0; k < 1 + i % 3; k++)
            changed[rig_int(&open_seed, 0, (int64_t)n - 1)] =
                (unsigned char)rig_int(&open_seed, 0, 255);
        if (sy_graph_decode(changed, n, &copy) < 0)
            continue;
        if (sy_graph_bind(copy, &(struct sy_sizes){{3, 5}}, &bound) == SY_OK)
            sy_graph_free(bound);
        sy_graph_free(copy);
    }
    free(changed);
    free(bytes);
    free(none);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_image),
        cmocka_unit_test(test_cache),        cmocka_unit_test(test_position),
        cmocka_unit_test(test_slices),       cmocka_unit_test(test_training),
        cmocka_unit_test(test_mutated),      cmocka_unit_test(test_floats),
        cmocka_unit_test(test_left_over),    cmocka_unit_test(test_two_batches),
        cmocka_unit_test(test_first_states), cmocka_unit_test(test_elements_by_index),
        cmocka_unit_test(test_usual_rows),   cmocka_unit_test(test_einsum),
    };
    open_seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

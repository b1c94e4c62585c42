/* Models whose sizes only a run knows, from ONNX files through import, package and engine: results and dimensions against loops here. */
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

enum { FLOAT = 1, INT64 = 7, BOOL = 9 };

static char path[64];
static struct ob graph, body, other, node;
static uint64_t seed;

static void input(const char *name, int type, int rank, const int64_t *dims)
{
    ob_input(&graph, OB_GRAPH_INPUT, name, type, rank, dims);
}

/* All its dimensions are symbolic. */
static void output(const char *name, int type, int rank)
{
    ob_input(&graph, OB_GRAPH_OUTPUT, name, type, rank,
             (const int64_t[]){-1, -1, -1, -1, -1, -1, -1, -1});
}

struct ran {
    struct sy_graph *graph;
    struct rig_tensors out;
    int64_t dims[8][SY_MAX_RANK];
    int rank[8];
    uint64_t bytes[8];
    int status;
};

static struct sy_graph *import(void)
{
    ob_save(path, &graph, 13);
    return rig_sized(onnx_optimized(path));
}

/* Of `g`, with one input of `bytes`; *needs: what the first output takes, wherever it is. */
static int run_sized(struct sy_graph *g, const void *x, size_t bytes, struct sy_shape *shape,
                     uint64_t *needs, float *last)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 1, 1, 0, &in);
    assert_int_equal(in.bytes[0], bytes);
    memcpy(in.data[0], x, bytes);
    rig_take(&rig, g->outputs, 1, 1, 0xff, &out);
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    int status = sy_graph_output_shape(g, g->outputs[0], 1, out.data[0], shape, needs);
    if (status == SY_OK)
        *last = ((const float *)out.data[0])[*needs / sizeof(float) - 1];
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    return status;
}

/* Twice, so that what a node keeps between runs is used. */
static struct ran run(int64_t batch, const void *const *inputs)
{
    struct engine_rig rig;
    struct rig_tensors in;
    struct ran r = {.graph = import()};
    if (rig_open(&rig, r.graph, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, batch);
    rig_take(&rig, r.graph->inputs, r.graph->n_inputs, batch, 0, &in);
    for (int i = 0; i < in.n; i++)
        memcpy(in.data[i], inputs[i], in.bytes[i]);
    rig_take(&rig, r.graph->outputs, r.graph->n_outputs, batch, 0xff, &r.out);
    for (int k = 0; k < 2; k++)
        r.status = rig_run(&rig, program, &in, &r.out, 0xff, &seed);
    for (int i = 0; r.status == SY_OK && i < r.graph->n_outputs; i++) {
        struct sy_shape shape;
        assert_int_equal(sy_graph_output_shape(r.graph, r.graph->outputs[i], batch, r.out.data[i],
                                               &shape, &r.bytes[i]),
                         SY_OK);
        r.rank[i] = shape.rank;
        for (int d = 0; d < shape.rank; d++)
            r.dims[i][d] = shape.dims[d].fixed;
    }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_close(&rig);
    return r;
}

static void assert_ran(const struct ran *r)
{
    if (r->status < 0)
        fail_msg("%s", sy_error_text());
}

static void drop(struct ran *r)
{
    rig_drop(&r->out);
    sy_graph_free(r->graph);
}

/* ---- counting -------------------------------------------------------------------------------------- */

/* Where x > 0, those elements, their sum and half of them, for any number of them, none too. */
static void test_non_zero(void **state)
{
    (void)state;
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, 5));
    ob_initializer(&graph, "zero", FLOAT, 0, NULL, &(float){0}, 4);
    ob_initializer(&graph, "w", FLOAT, DIMS(1, 3), (float[]){1, 2, 3}, 12);
    ob_int64s(&graph, "column", 2, (const int64_t[]){-1, 1});
    ob_add(&graph, "Greater", NAMES("x", "zero"), NAMES("is"));
    ob_add(&graph, "NonZero", NAMES("is"), NAMES("at"));
    ob_node(&node, "Transpose", NAMES("at"), NAMES("rows"));
    ob_attr_ints(&node, "perm", 2, (const int64_t[]){1, 0});
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "GatherND", NAMES("x", "rows"), NAMES("found"));
    ob_add(&graph, "Reshape", NAMES("found", "column"), NAMES("tall"));
    ob_add(&graph, "MatMul", NAMES("tall", "w"), NAMES("product"));
    output("at", INT64, 2);
    output("product", FLOAT, 2);
    for (int64_t batch = 1; batch <= 4; batch++) {
        float x[20];
        for (int i = 0; i < 20; i++)
            x[i] = batch == 2 ? -1 : (float)gb_uniform(&seed, -1, 1);
        struct ran r = run(batch, (const void *[]){x});
        assert_ran(&r);
        int64_t n = 0, found = r.dims[0][1];
        const int64_t *at = r.out.data[0];
        const float *product = r.out.data[1];
        for (int64_t i = 0; i < batch * 5; i++) {
            if (x[i] <= 0)
                continue;
            assert_true(n < found);
            assert_int_equal(at[n] * 5 + at[found + n], i);
            for (int k = 0; k < 3; k++)
                assert_true(fabsf(product[n * 3 + k] - x[i] * (float)(k + 1)) < 1e-5f);
            n++;
        }
        assert_int_equal(n, found);
        assert_int_equal(r.dims[1][0], n);
        assert_int_equal(r.dims[1][1], 3);
        assert_int_equal(r.bytes[1], (uint64_t)n * 12);
        drop(&r);
    }
}

static bool overlap(const float *a, const float *b)
{
    float h = fminf(a[2], b[2]) - fmaxf(a[0], b[0]), w = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);
    float common = h > 0 && w > 0 ? h * w : 0;
    return common > 0.5f * ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common);
}

/* Boxes that are left, by the definition: the best one, without what overlaps it, and so on. */
static int naive_nms(int n, const float (*boxes)[4], const float *scores, int *kept)
{
    bool gone[64] = {false};
    int n_kept = 0;
    for (;;) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!gone[i] && scores[i] > 0.3f && (best < 0 || scores[i] > scores[best]))
                best = i;
        if (best < 0)
            return n_kept;
        kept[n_kept++] = best;
        for (int i = 0; i < n; i++)
            gone[i] = gone[i] || i == best || overlap(boxes[best], boxes[i]);
    }
}

/* As detectors end: boxes that are left, their scores, at most 4. */
static void test_detection(void **state)
{
    (void)state;
    enum { N = 40 };
    float boxes[N][4], scores[N];
    ob_graph(&graph);
    input("boxes", FLOAT, DIMS(-1, N, 4));
    input("scores", FLOAT, DIMS(-1, 1, N));
    ob_int64s(&graph, "many", 1, (const int64_t[]){1000});
    ob_int64s(&graph, "four", 1, (const int64_t[]){4});
    ob_int64s(&graph, "axis", 1, (const int64_t[]){0});
    ob_int64s(&graph, "two", 1, (const int64_t[]){2});
    ob_int64s(&graph, "flat", 2, (const int64_t[]){-1, 4});
    ob_initializer(&graph, "iou", FLOAT, DIMS(1), &(float){0.5f}, 4);
    ob_initializer(&graph, "least", FLOAT, DIMS(1), &(float){0.3f}, 4);
    ob_add(&graph, "NonMaxSuppression", NAMES("boxes", "scores", "many", "iou", "least"),
           NAMES("left"));
    ob_node(&node, "Gather", NAMES("left", "two"), NAMES("at"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_int64s(&graph, "line", 1, (const int64_t[]){-1});
    ob_add(&graph, "Reshape", NAMES("at", "line"), NAMES("which"));
    ob_add(&graph, "Shape", NAMES("which"), NAMES("count"));
    ob_add(&graph, "Min", NAMES("count", "four"), NAMES("most"));
    ob_add(&graph, "Slice", NAMES("which", "axis", "most", "axis"), NAMES("best"));
    ob_add(&graph, "Reshape", NAMES("boxes", "flat"), NAMES("rows"));
    ob_add(&graph, "Gather", NAMES("rows", "best"), NAMES("found"));
    output("found", FLOAT, 2);
    output("count", INT64, 1);
    for (int round = 0; round < 5; round++) {
        int kept[N];
        for (int i = 0; i < N; i++) {
            float y = (float)gb_uniform(&seed, 0, 1), x = (float)gb_uniform(&seed, 0, 1);
            memcpy(boxes[i], (float[]){y, x, y + 0.4f, x + 0.4f}, 16);
            scores[i] = round == 0 ? 0 : (float)gb_uniform(&seed, 0, 1);
        }
        int n = naive_nms(N, boxes, scores, kept), best = n < 4 ? n : 4;
        struct ran r = run(1, (const void *[]){boxes, scores});
        assert_ran(&r);
        assert_int_equal(*(int64_t *)r.out.data[1], n);
        assert_int_equal(r.dims[0][0], best);
        for (int i = 0; i < best; i++)
            assert_memory_equal((float(*)[4])r.out.data[0] + i, boxes[kept[i]], 16);
        drop(&r);
    }
}

/* Two boxes that share exactly the limit are both kept; 0.7 as float32 is a little less than 0.7. */
static void test_overlap_at_limit(void **state)
{
    (void)state;
    const float boxes[] = {0, 0, 10, 10, 0, 0, 7, 10}, scores[] = {0.9f, 0.8f};
    ob_graph(&graph);
    input("boxes", FLOAT, DIMS(-1, 2, 4));
    input("scores", FLOAT, DIMS(-1, 1, 2));
    ob_int64s(&graph, "many", 1, (const int64_t[]){1000});
    ob_initializer(&graph, "iou", FLOAT, DIMS(1), &(float){0.7f}, 4);
    ob_add(&graph, "NonMaxSuppression", NAMES("boxes", "scores", "many", "iou"), NAMES("left"));
    output("left", INT64, 2);
    struct ran r = run(1, (const void *[]){boxes, scores});
    assert_ran(&r);
    assert_int_equal(r.dims[0][0], 2);
    assert_memory_equal(r.out.data[0], ((const int64_t[]){0, 0, 0, 0, 0, 1}), 48);
    drop(&r);
}

/* ---- control --------------------------------------------------------------------------------------- */

/* Branches with results of other shapes. */
static void test_branches(void **state)
{
    (void)state;
    ob_graph(&body);
    ob_node(&node, "Concat", NAMES("x", "x"), NAMES("twice"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_input(&body, OB_GRAPH_OUTPUT, "twice", FLOAT, DIMS(-1, -1));
    ob_graph(&other);
    ob_add(&other, "Neg", NAMES("x"), NAMES("minus"));
    ob_input(&other, OB_GRAPH_OUTPUT, "minus", FLOAT, DIMS(-1, -1));
    ob_graph(&graph);
    input("x", FLOAT, DIMS(-1, 3));
    input("flag", BOOL, 0, NULL);
    ob_node(&node, "If", NAMES("flag"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &other);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Abs", NAMES("y"), NAMES("z"));
    output("z", FLOAT, 2);
    const float x[6] = {1, -2, 3, -4, 5, -6};
    for (unsigned char flag = 0; flag < 2; flag++) {
        struct ran r = run(2, (const void *[]){x, &flag});
        assert_ran(&r);
        assert_int_equal(r.dims[0][0], 2);
        assert_int_equal(r.dims[0][1], flag ? 6 : 3);
        for (int i = 0; i < (flag ? 12 : 6); i++)
            assert_true(((float *)r.out.data[0])[i] == fabsf(flag ? x[i / 6 * 3 + i % 3] : x[i]));
        drop(&r);
    }
}

static void start_loop_body(void)
{
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
}

static void end_loop(const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, "Loop", inputs, outputs);
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* As decoders do: what is carried grows by a row each turn, as often as an input says; each turn's sum is scanned. */
static void test_growing_loop(void **state)
{
    (void)state;
    start_loop_body();
    ob_input(&body, OB_GRAPH_INPUT, "rows", FLOAT, DIMS(-1, -1));
    ob_node(&node, "ReduceSum", NAMES("rows"), NAMES("sum"));
    ob_attr_int(&node, "keepdims", 0);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_node(&node, "Concat", NAMES("rows", "x"), NAMES("next"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    ob_input(&body, OB_GRAPH_OUTPUT, "go", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next", FLOAT, DIMS(-1, -1));
    ob_input(&body, OB_GRAPH_OUTPUT, "sum", FLOAT, 0, NULL);
    ob_graph(&graph);
    input("x", FLOAT, DIMS(1, 3));
    input("count", INT64, 0, NULL);
    end_loop(NAMES("count", "", "x"), NAMES("all", "sums"));
    output("all", FLOAT, 2);
    output("sums", FLOAT, 1);
    const float x[3] = {1, 2, 4};
    for (int64_t count = 0; count < 6; count++) {
        struct ran r = run(1, (const void *[]){x, &count});
        assert_ran(&r);
        assert_int_equal(r.dims[0][0], count + 1);
        assert_int_equal(r.dims[1][0], count);
        for (int64_t i = 0; i <= count; i++)
            assert_memory_equal((float *)r.out.data[0] + 3 * i, x, sizeof x);
        for (int64_t i = 0; i < count; i++)
            assert_true(((float *)r.out.data[1])[i] == 7.0f * (float)(i + 1));
        drop(&r);
    }
}

/* What is carried begins as a constant and is computed from then on; shapes stay, so that what was made for one turn serves the next. */
static void test_turns_alike(void **state)
{
    (void)state;
    start_loop_body();
    ob_input(&body, OB_GRAPH_INPUT, "n", INT64, 0, NULL);
    ob_add(&body, "Add", NAMES("n", "two"), NAMES("more_n"));
    ob_add(&body, "Less", NAMES("more_n", "limit"), NAMES("go"));
    ob_input(&body, OB_GRAPH_OUTPUT, "go", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "more_n", INT64, 0, NULL);
    ob_add(&body, "Identity", NAMES("more_n"), NAMES("each"));
    ob_input(&body, OB_GRAPH_OUTPUT, "each", INT64, 0, NULL);
    ob_graph(&graph);
    input("limit", INT64, 0, NULL);
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_int64s(&graph, "two", 0, (const int64_t[]){2});
    end_loop(NAMES("", "", "zero"), NAMES("last", "all"));
    output("all", INT64, 1);
    for (int64_t limit = 1; limit < 12; limit += 5) {
        struct ran r = run(1, (const void *[]){&limit});
        assert_ran(&r);
        assert_int_equal(r.dims[0][0], (limit + 1) / 2);
        for (int64_t i = 0; i < r.dims[0][0]; i++)
            assert_int_equal(((int64_t *)r.out.data[0])[i], 2 * (i + 1));
        drop(&r);
    }
}

/* A list that a loop fills, as long as an input says, put together behind it. */
static void test_lists(void **state)
{
    (void)state;
    start_loop_body();
    ob_input(&body, OB_GRAPH_INPUT, "list", FLOAT, 0, NULL);
    ob_node(&node, "Cast", NAMES("i"), NAMES("f"));
    ob_attr_int(&node, "to", FLOAT);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Mul", NAMES("x", "f"), NAMES("row"));
    ob_add(&body, "SequenceInsert", NAMES("list", "row"), NAMES("next"));
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    ob_input(&body, OB_GRAPH_OUTPUT, "go", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next", FLOAT, 0, NULL);
    ob_graph(&graph);
    input("x", FLOAT, DIMS(2));
    input("count", INT64, 0, NULL);
    ob_add(&graph, "SequenceConstruct", NAMES("x"), NAMES("first"));
    end_loop(NAMES("count", "", "first"), NAMES("filled"));
    ob_node(&node, "ConcatFromSequence", NAMES("filled"), NAMES("y"));
    ob_attr_int(&node, "axis", 0);
    ob_attr_int(&node, "new_axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "SequenceLength", NAMES("filled"), NAMES("length"));
    output("y", FLOAT, 2);
    output("length", INT64, 0);
    const float x[2] = {3, -5};
    for (int64_t count = 0; count < 4; count++) {
        struct ran r = run(1, (const void *[]){x, &count});
        assert_ran(&r);
        assert_int_equal(r.dims[0][0], count + 1);
        assert_int_equal(*(int64_t *)r.out.data[1], count + 1);
        for (int64_t i = 0; i <= count; i++)
            for (int k = 0; k < 2; k++)
                assert_true(((float *)r.out.data[0])[2 * i + k] ==
                            (i == 0 ? x[k] : x[k] * (float)(i - 1)));
        drop(&r);
    }
}

/* ---- sizes ----------------------------------------------------------------------------------------- */

/* A size that is an input: any up to the room, refused beyond it and where it is no size, and the program goes on. */
static void test_too_large(void **state)
{
    (void)state;
    ob_graph(&graph);
    input("sizes", INT64, DIMS(2));
    ob_initializer(&graph, "x", FLOAT, 0, NULL, &(float){2.5f}, 4);
    ob_add(&graph, "Expand", NAMES("x", "sizes"), NAMES("y"));
    output("y", FLOAT, 2);
    const int64_t sizes[][2] = {
        {3, 4}, {1 << 20, 1 << 10}, {1ll << 40, 1ll << 40}, {-3, 2}, {0, 7}};
    for (int i = 0; i < 5; i++) {
        struct ran r = run(1, (const void *[]){sizes[i]});
        bool fine = i == 0 || i == 4;
        assert_true(fine ? r.status == SY_OK : r.status < 0);
        assert_true(fine || *sy_error_text());
        if (fine)
            assert_memory_equal(r.dims[0], sizes[i], sizeof sizes[i]);
        drop(&r);
    }
}

/* What does not fit says how much it needs, and fits when its room was made so large. */
static void test_room_grows(void **state)
{
    (void)state;
    const int64_t sizes[] = {2500, 1024};
    const uint64_t wanted = 2500ull * 1024 * sizeof(float);
    struct sy_graph *open, *bound;
    struct sy_sizes room;
    struct sy_shape shape;
    uint64_t needs;
    float last = 0;
    ob_graph(&graph);
    input("sizes", INT64, DIMS(2));
    ob_initializer(&graph, "x", FLOAT, 0, NULL, &(float){2.5f}, 4);
    ob_add(&graph, "Expand", NAMES("x", "sizes"), NAMES("y"));
    output("y", FLOAT, 2);
    ob_save(path, &graph, 13);
    open = onnx_inferred(path);
    sy_graph_usual_sizes(open, &room);
    assert_int_equal(sy_graph_bind(open, &room, &bound), SY_OK);
    uint64_t has = (uint64_t)sy_shape_elements(&bound->tensors[bound->outputs[0]].shape, 1) * 4;
    assert_true(has < wanted);
    assert_int_equal(run_sized(bound, sizes, sizeof sizes, &shape, &needs, &last), SY_ENOMEM_HOST);
    assert_int_equal(needs, wanted);
    assert_true(sy_graph_grow_room(open, has, needs, &room));
    sy_graph_free(bound);
    assert_int_equal(sy_graph_bind(open, &room, &bound), SY_OK);
    assert_int_equal(run_sized(bound, sizes, sizeof sizes, &shape, &needs, &last), SY_OK);
    assert_int_equal(needs, wanted);
    assert_true(last == 2.5f && shape.dims[0].fixed == 2500 && shape.dims[1].fixed == 1024);
    assert_false(sy_graph_grow_room(open, 4, UINT64_MAX, &room));
    sy_graph_free(bound);
    sy_graph_free(open);
}

/* ---- between nodes --------------------------------------------------------------------------------- */

static int nodes_left;

static int stop_after(void *ctx)
{
    (void)ctx;
    return nodes_left-- > 0 ? SY_OK : sy_error_set(SY_ECANCELED, "something more urgent");
}

/* A run may be stopped in front of any node; the next run is right. */
static void test_stopped_between_nodes(void **state)
{
    const float x[4] = {1, -2, 3, 4};
    (void)state;
    ob_graph(&graph);
    ob_int64s(&graph, "line", 1, (const int64_t[]){-1});
    input("x", FLOAT, DIMS(4));
    ob_add(&graph, "Relu", NAMES("x"), NAMES("above"));
    ob_add(&graph, "NonZero", NAMES("above"), NAMES("where"));
    ob_add(&graph, "Reshape", NAMES("where", "line"), NAMES("rows"));
    ob_add(&graph, "Gather", NAMES("x", "rows"), NAMES("chosen"));
    output("chosen", FLOAT, 1);
    rig_engine.ops->on_turn(stop_after, NULL);
    for (int n = 0; n < 3; n++) {
        nodes_left = n;
        struct ran r = run(1, (const void *[]){x});
        assert_int_equal(r.status, SY_ECANCELED);
        drop(&r);
        nodes_left = 1000;
        r = run(1, (const void *[]){x});
        assert_ran(&r);
        assert_int_equal(r.dims[0][0], 3);
        assert_memory_equal(r.out.data[0], ((float[]){1, 3, 4}), 3 * sizeof(float));
        drop(&r);
    }
    rig_engine.ops->on_turn(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_non_zero),
        cmocka_unit_test(test_detection),
        cmocka_unit_test(test_overlap_at_limit),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_turns_alike),
        cmocka_unit_test(test_growing_loop),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_room_grows),
        cmocka_unit_test(test_stopped_between_nodes),
    };
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-at-run-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

/* If and Loop as other nodes (loader/fuse/write_out.c), on an engine that may have no bodies: results by closed forms, what must not end a run, and
 * what must. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, WIDTH = 4 };

static struct ob graph, body, other, inner, node;
static uint64_t seed;

static void result(struct ob *to, const char *name, int type)
{
    ob_input(to, OB_GRAPH_OUTPUT, name, type, 0, NULL);
}

static void cast_to(struct ob *to, const char *from, const char *name, int type)
{
    ob_node(&node, "Cast", NAMES(from), NAMES(name));
    ob_attr_int(&node, "to", type);
    ob_message(to, OB_GRAPH_NODE, &node);
}

static bool has(const struct sy_graph *g, enum sy_op op)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == op)
            return true;
    return false;
}

/* Takes what stands in `graph`. No If and no Loop is left in it, unless `stays`. */
static struct sy_graph *written_out(bool stays)
{
    struct sy_graph *g;
    bool changed = false;
    ob_save(ob_path, &graph, 13);
    g = onnx_optimized(ob_path);
    if (sy_graph_write_out(g, &changed) < 0 || sy_graph_check(g) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(changed, !stays);
    assert_int_equal(has(g, SY_OP_IF) || has(g, SY_OP_LOOP), stays);
    return g;
}

/* Of batch size 3; the status of the run, and the first result. */
static int run(const struct sy_graph *g, void *const *inputs, float *out, size_t bytes)
{
    struct engine_rig rig;
    struct rig_tensors in, got;
    if (rig_open(&rig, g, true) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 3);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 3, 0, &in);
    for (int i = 0; i < in.n; i++)
        memcpy(in.data[i], inputs[i], in.bytes[i]);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 3, 0xff, &got);
    int status = rig_run(&rig, program, &in, &got, 0xff, &seed);
    assert_int_equal(got.bytes[0], bytes);
    memcpy(out, got.data[0], bytes);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&got);
    rig_close(&rig);
    return status;
}

static void random_floats(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)gb_uniform(&seed, -1, 1);
}

static void assert_floats(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) < 1e-5f))
            fail_msg("[%d] is %g, not %g", i, (double)got[i], (double)want[i]);
}

static void add_if(struct ob *to, const char *flag, const char *y, const struct ob *then_branch,
                   const struct ob *else_branch)
{
    ob_node(&node, "If", NAMES(flag), NAMES(y));
    ob_attr_graph(&node, "then_branch", then_branch);
    ob_attr_graph(&node, "else_branch", else_branch);
    ob_message(to, OB_GRAPH_NODE, &node);
}

/* ---- If ------------------------------------------------------------------------------------------------- */

/* if flag: log(x) picked by an index, else -x: what the other branch makes of x, NaN or an index outside, is nothing. */
static void test_the_branch_that_counts(void **state)
{
    const int64_t indices[3] = {2, -3, 4}; /* of 4 */
    float x[3 * WIDTH], want[3 * WIDTH], got[3 * WIDTH];
    (void)state;
    ob_graph(&body);
    ob_add(&body, "Log", NAMES("x"), NAMES("l"));
    ob_node(&node, "Gather", NAMES("l", "at"), NAMES("picked"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Add", NAMES("picked", "x"), NAMES("t"));
    result(&body, "t", FLOAT);
    ob_graph(&other);
    ob_add(&other, "Neg", NAMES("x"), NAMES("e"));
    result(&other, "e", FLOAT);
    ob_graph(&graph);
    add_if(&graph, "flag", "y", &body, &other);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, DIMS(1));
    ob_input(&graph, OB_GRAPH_INPUT, "at", INT64, DIMS(1));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    struct sy_graph *g = written_out(false);
    for (int round = 0; round < 6; round++) {
        unsigned char flag = round % 2;
        int64_t at = indices[round / 2];
        random_floats(x, 3 * WIDTH);
        for (int i = 0; i < 3 * WIDTH; i++)
            x[i] = flag ? fabsf(x[i]) + 0.1f : x[i];
        for (int i = 0; i < 3 * WIDTH; i++)
            want[i] = flag ? logf(x[i / WIDTH * WIDTH + (at + WIDTH) % WIDTH]) + x[i] : -x[i];
        int status = run(g, (void *[]){x, &flag, &at}, got, sizeof got);
        assert_int_equal(status, flag && at == 4 ? SY_EARG : SY_OK);
        if (status == SY_OK)
            assert_floats(got, want, 3 * WIDTH);
    }
    sy_graph_free(g);
}

/* What compares data with a shape would refuse a run where it does not count. */
static void test_branches_that_stay(void **state)
{
    (void)state;
    ob_graph(&body);
    ob_add(&body, "Reshape", NAMES("x", "to"), NAMES("t"));
    ob_input(&body, OB_GRAPH_OUTPUT, "t", FLOAT, DIMS(2, 6));
    ob_graph(&other);
    ob_int64s(&other, "fixed", 2, (const int64_t[]){2, 6});
    ob_add(&other, "Reshape", NAMES("x", "fixed"), NAMES("e"));
    result(&other, "e", FLOAT);
    ob_graph(&graph);
    add_if(&graph, "flag", "y", &body, &other);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(3, WIDTH));
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, DIMS(1));
    ob_input(&graph, OB_GRAPH_INPUT, "to", INT64, DIMS(2));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(2, 6));
    sy_graph_free(written_out(true));
}

/* ---- Loop ----------------------------------------------------------------------------------------------- */

static void open_body(void)
{
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, 0, NULL);
}

static void add_loop(const char *count, const char *condition, int64_t batch, bool with_scan)
{
    ob_node(&node, "Loop", NAMES(count, condition, "x"),
            with_scan ? NAMES("all", "rows") : NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(batch, WIDTH));
}

/* for i < 9 while i < stop: h = h + table[i]; there are 5 numbers in the table. */
static void test_turns_behind_the_end(void **state)
{
    static const float table[5] = {1, 10, 100, 1000, 10000};
    float x[3 * WIDTH], want[3 * WIDTH], got[3 * WIDTH];
    (void)state;
    open_body();
    ob_add(&body, "Gather", NAMES("table", "i"), NAMES("t"));
    ob_add(&body, "Add", NAMES("h", "t"), NAMES("next"));
    ob_add(&body, "Less", NAMES("i", "stop"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_initializer(&graph, "table", FLOAT, DIMS(5), table, sizeof table);
    ob_int64s(&graph, "count", 0, (const int64_t[]){9});
    add_loop("count", "", -1, false);
    ob_input(&graph, OB_GRAPH_INPUT, "stop", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    struct sy_graph *g = written_out(false);
    for (int64_t stop = -1; stop < 6; stop++) {
        random_floats(x, 3 * WIDTH);
        for (int k = 0; k < 3 * WIDTH; k++) {
            want[k] = x[k];
            for (int i = 0; i < 5 && i <= SY_MAX(stop, 0); i++)
                want[k] += table[i];
        }
        int status = run(g, (void *[]){x, &stop}, got, sizeof got);
        assert_int_equal(status, stop > 4 ? SY_EARG : SY_OK); /* table[5] */
        if (status == SY_OK)
            assert_floats(got, want, 3 * WIDTH);
    }
    sy_graph_free(g);
}

/* Five rows are declared: it must run five times, by its count and its condition. */
static void test_results_of_all_turns(void **state)
{
    float x[3 * WIDTH], got[5 * 3 * WIDTH];
    (void)state;
    open_body();
    cast_to(&body, "i", "f", FLOAT);
    ob_add(&body, "Add", NAMES("h", "f"), NAMES("next"));
    ob_add(&body, "Less", NAMES("i", "stop"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    add_loop("count", "start", 3, true);
    ob_input(&graph, OB_GRAPH_INPUT, "count", INT64, DIMS(1));
    ob_input(&graph, OB_GRAPH_INPUT, "start", BOOL, 0, NULL);
    ob_input(&graph, OB_GRAPH_INPUT, "stop", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "rows", FLOAT, DIMS(5, 3, WIDTH));
    struct sy_graph *g = written_out(false);
    for (int64_t count = 4; count < 7; count++)
        for (int64_t stop = 2; stop < 7; stop++)
            for (unsigned char start = 0; start < 2; start++) {
                int64_t turns = start ? SY_MIN(count, stop + 1) : 0;
                random_floats(x, 3 * WIDTH);
                int status = run(g, (void *[]){x, &count, &start, &stop}, got, sizeof got);
                assert_int_equal(status, turns == 5 ? SY_OK : SY_EARG);
                for (int k = 0; status == SY_OK && k < 5 * 3 * WIDTH; k++) {
                    int turn = k / (3 * WIDTH);
                    float want = x[k % (3 * WIDTH)] + (float)(turn * (turn + 1)) / 2;
                    assert_floats(&got[k], &want, 1);
                }
            }
    sy_graph_free(g);
}

/* As Keras writes it: k counts from 3 to 8, compared as a float, and the condition is that it has not. How often is known, so how many rows. */
static void test_a_counter_in_the_condition(void **state)
{
    static const float end = 8;
    float x[3 * WIDTH], got[5 * 3 * WIDTH];
    (void)state;
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "k", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, 0, NULL);
    ob_int64s(&body, "one", 0, (const int64_t[]){1});
    ob_int64s(&body, "eight", 0, (const int64_t[]){8});
    ob_initializer(&body, "end", FLOAT, 0, NULL, &end, sizeof end);
    ob_add(&body, "Add", NAMES("k", "one"), NAMES("next_k"));
    cast_to(&body, "next_k", "as_float", FLOAT);
    ob_add(&body, "Less", NAMES("as_float", "end"), NAMES("before_end"));
    ob_add(&body, "Less", NAMES("i", "eight"), NAMES("bounded"));
    ob_add(&body, "And", NAMES("before_end", "bounded"), NAMES("go"));
    ob_add(&body, "Add", NAMES("h", "h"), NAMES("next"));
    result(&body, "go", BOOL);
    result(&body, "next_k", INT64);
    result(&body, "next", FLOAT);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_int64s(&graph, "count", 0, (const int64_t[]){100});
    ob_int64s(&graph, "three", 0, (const int64_t[]){3});
    ob_node(&node, "Loop", NAMES("count", "", "three", "x"), NAMES("k", "y", "rows"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_input(&graph, OB_GRAPH_OUTPUT, "rows", FLOAT, DIMS(-2, -1, WIDTH));
    struct sy_graph *g = written_out(false);
    random_floats(x, 3 * WIDTH);
    assert_int_equal(run(g, (void *[]){x}, got, sizeof got), SY_OK);
    for (int k = 0; k < 5 * 3 * WIDTH; k++) {
        float want = x[k % (3 * WIDTH)] * (float)(2 << k / (3 * WIDTH));
        assert_floats(&got[k], &want, 1);
    }
    sy_graph_free(g);
}

/* What ends a Loop is data, but no later than a counter has it: double until the largest number reaches `limit`, six times at most, and no more
 * often than an input says. */
static void test_data_and_a_counter(void **state)
{
    float x[3 * WIDTH], want[3 * WIDTH], got[3 * WIDTH];
    (void)state;
    for (int with_count = 0; with_count < 2; with_count++) {
        open_body();
        ob_int64s(&body, "five", 0, (const int64_t[]){5});
        ob_add(&body, "Add", NAMES("h", "h"), NAMES("next"));
        ob_node(&node, "ReduceMax", NAMES("next"), NAMES("top"));
        ob_attr_int(&node, "keepdims", 0);
        ob_message(&body, OB_GRAPH_NODE, &node);
        ob_add(&body, "Less", NAMES("top", "limit"), NAMES("below"));
        ob_add(&body, "Less", NAMES("i", "five"), NAMES("bounded"));
        ob_add(&body, "And", NAMES("below", "bounded"), NAMES("go"));
        result(&body, "go", BOOL);
        result(&body, "next", FLOAT);
        ob_graph(&graph);
        add_loop(with_count ? "count" : "", "", -1, false);
        ob_input(&graph, OB_GRAPH_INPUT, "limit", FLOAT, 0, NULL);
        if (with_count)
            ob_input(&graph, OB_GRAPH_INPUT, "count", INT64, 0, NULL);
        ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
        struct sy_graph *g = written_out(false);
        for (int round = 0; round < 24; round++) {
            const float limits[] = {1e-9f, 3, 11, 1e9f};
            float limit = limits[round % 4], top = 0;
            int64_t count = round / 4 * 2; /* 0 to 10 */
            random_floats(x, 3 * WIDTH);
            x[1] = 0.9f;
            memcpy(want, x, sizeof x);
            for (int64_t i = 0; (i == 0 || (top < limit && i <= 5)) && (!with_count || i < count);
                 i++) {
                top = -INFINITY;
                for (int k = 0; k < 3 * WIDTH; k++) {
                    want[k] += want[k];
                    top = want[k] > top ? want[k] : top;
                }
            }
            assert_int_equal(run(g, (void *[]){x, &limit, &count}, got, sizeof got), SY_OK);
            assert_floats(got, want, 3 * WIDTH);
        }
        sy_graph_free(g);
    }
}

/* An If in a Loop: x, x + x, and so on, doubled only in turns below 2. */
static void test_bodies_in_bodies(void **state)
{
    float x[3 * WIDTH], want[3 * WIDTH], got[3 * WIDTH];
    (void)state;
    ob_graph(&inner);
    ob_add(&inner, "Add", NAMES("h", "h"), NAMES("double"));
    result(&inner, "double", FLOAT);
    ob_graph(&other);
    ob_add(&other, "Add", NAMES("h", "x"), NAMES("more_x"));
    result(&other, "more_x", FLOAT);
    open_body();
    ob_int64s(&body, "two", 0, (const int64_t[]){2});
    ob_add(&body, "Less", NAMES("i", "two"), NAMES("early"));
    add_if(&body, "early", "next", &inner, &other);
    result(&body, "more", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_int64s(&graph, "count", 0, (const int64_t[]){5});
    add_loop("count", "", -1, false);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    struct sy_graph *g = written_out(false);
    random_floats(x, 3 * WIDTH);
    for (int k = 0; k < 3 * WIDTH; k++)
        want[k] = 7 * x[k];
    assert_int_equal(run(g, (void *[]){x}, got, sizeof got), SY_OK);
    assert_floats(got, want, 3 * WIDTH);
    sy_graph_free(g);
}

/* Nothing bounds how often. */
static void test_a_loop_that_stays(void **state)
{
    (void)state;
    open_body();
    ob_add(&body, "Add", NAMES("h", "h"), NAMES("next"));
    ob_add(&body, "Less", NAMES("i", "stop"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    add_loop("", "", -1, false);
    ob_input(&graph, OB_GRAPH_INPUT, "stop", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    sy_graph_free(written_out(true));
    ob_graph(&graph);
    ob_int64s(&graph, "count", 0, (const int64_t[]){100000});
    add_loop("count", "", -1, false);
    ob_input(&graph, OB_GRAPH_INPUT, "stop", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    sy_graph_free(written_out(true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_branch_that_counts),
        cmocka_unit_test(test_branches_that_stay),
        cmocka_unit_test(test_turns_behind_the_end),
        cmocka_unit_test(test_results_of_all_turns),
        cmocka_unit_test(test_bodies_in_bodies),
        cmocka_unit_test(test_a_counter_in_the_condition),
        cmocka_unit_test(test_data_and_a_counter),
        cmocka_unit_test(test_a_loop_that_stays),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

/* If and Loop that no import writes out (loader/fuse/write_out.c): how often they turn is what the run says. Results by loops here; what must end a run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, BATCH = 3, WIDTH = 4, N = BATCH * WIDTH };

static struct ob graph, body, other, inner, node;
static uint64_t seed;

static void result(struct ob *to, const char *name, int type)
{
    ob_input(to, OB_GRAPH_OUTPUT, name, type, 0, NULL);
}

static void input(const char *name, int type, int rank, const int64_t *dims)
{
    ob_input(&graph, OB_GRAPH_INPUT, name, type, rank, dims);
}

/* A body with a turn, a condition and one float tensor that is carried. */
static void open_body(struct ob *to, const char *turn, const char *more, const char *carried)
{
    ob_graph(to);
    ob_input(to, OB_GRAPH_INPUT, turn, INT64, 0, NULL);
    ob_input(to, OB_GRAPH_INPUT, more, BOOL, 0, NULL);
    ob_input(to, OB_GRAPH_INPUT, carried, FLOAT, 0, NULL);
}

static void add_loop(struct ob *to, const struct ob *of, const char *const *inputs,
                     const char *const *outputs)
{
    ob_node(&node, "Loop", inputs, outputs);
    ob_attr_graph(&node, "body", of);
    ob_message(to, OB_GRAPH_NODE, &node);
}

/* The largest element of `from`, without dimensions. */
static void add_largest(struct ob *to, const char *from, const char *name)
{
    ob_node(&node, "ReduceMax", NAMES(from), NAMES(name));
    ob_attr_int(&node, "keepdims", 0);
    ob_message(to, OB_GRAPH_NODE, &node);
}

static struct sy_graph *import(void)
{
    ob_save(ob_path, &graph, 13);
    return onnx_inferred(ob_path);
}

/* A program at a batch size, run with what its inputs are. */
struct model {
    struct engine_rig rig;
    struct sy_program *program;
    int64_t batch;
};

static void model_open(struct model *m, int64_t batch)
{
    struct sy_graph *g = import();
    if (rig_open(&m->rig, g, true) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_free(g);
    m->batch = batch;
    m->program = rig_program(&m->rig, batch);
}

static void model_close(struct model *m)
{
    rig_engine.ops->program_destroy(m->program);
    rig_close(&m->rig);
}

/* Layers in calls of their own; the first result, of `bytes`. */
static int run(struct model *m, void *const *inputs, float *out, size_t bytes)
{
    struct rig_tensors in, got;
    const struct sy_graph *g = m->rig.graph;
    rig_take(&m->rig, g->inputs, g->n_inputs, m->batch, 0, &in);
    for (int i = 0; i < in.n; i++)
        memcpy(in.data[i], inputs[i], in.bytes[i]);
    rig_take(&m->rig, g->outputs, g->n_outputs, m->batch, 0xff, &got);
    int status = rig_run(&m->rig, m->program, &in, &got, 0xff, &seed);
    assert_int_equal(got.bytes[0], bytes);
    memcpy(out, got.data[0], bytes);
    rig_drop(&in);
    rig_drop(&got);
    return status;
}

static void must(int status)
{
    if (status < 0)
        fail_msg("%s", sy_error_text());
}

static void random_floats(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)gb_uniform(&seed, -1, 1);
}

static void assert_floats(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i]))))
            fail_msg("[%d] is %g, not %g", i, (double)got[i], (double)want[i]);
}

static float largest(const float *x, int n)
{
    float most = -INFINITY;
    for (int i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* ---- data ends it ------------------------------------------------------------------------------------ */

/* h = h w + b while the largest is below `limit`, at most `count` times, if `start`; behind it relu(y v), which reads what came out. */
static void add_products(float *w, float *b, float *v)
{
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        w[i] = (float)gb_uniform(&seed, 0, 0.6); /* rows grow */
        v[i] = (float)gb_uniform(&seed, -1, 1);
    }
    random_floats(b, WIDTH);
    open_body(&body, "i", "more", "h");
    ob_add(&body, "MatMul", NAMES("h", "w"), NAMES("product"));
    ob_initializer(&body, "b", FLOAT, DIMS(WIDTH), b, WIDTH * sizeof *b);
    ob_add(&body, "Add", NAMES("product", "b"), NAMES("next"));
    add_largest(&body, "next", "top");
    ob_add(&body, "Less", NAMES("top", "limit"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_initializer(&graph, "w", FLOAT, DIMS(WIDTH, WIDTH), w, WIDTH * WIDTH * sizeof *w);
    ob_initializer(&graph, "v", FLOAT, DIMS(WIDTH, WIDTH), v, WIDTH * WIDTH * sizeof *v);
    add_loop(&graph, &body, NAMES("count", "start", "x"), NAMES("h_end"));
    ob_add(&graph, "MatMul", NAMES("h_end", "v"), NAMES("p"));
    ob_add(&graph, "Relu", NAMES("p"), NAMES("y"));
    input("x", FLOAT, DIMS(-1, WIDTH));
    input("count", INT64, 0, NULL);
    input("start", BOOL, 0, NULL);
    input("limit", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
}

static void times(const float *x, const float *w, int rows, float *out)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < WIDTH; c++) {
            double sum = 0;
            for (int k = 0; k < WIDTH; k++)
                sum += (double)(x[r * WIDTH + k] * w[k * WIDTH + c]);
            out[r * WIDTH + c] = (float)sum;
        }
}

/* How often it turned. */
static int naive_products(const float *x, const float *w, const float *b, const float *v, int rows,
                          int64_t count, bool start, float limit, float *y)
{
    float h[N], next[N];
    int turn = 0;
    memcpy(h, x, (size_t)(rows * WIDTH) * sizeof *h);
    for (bool more = start; more && turn < count; turn++) {
        times(h, w, rows, next);
        for (int i = 0; i < rows * WIDTH; i++)
            h[i] = next[i] + b[i % WIDTH];
        more = largest(h, rows * WIDTH) < limit;
    }
    times(h, v, rows, y);
    for (int i = 0; i < rows * WIDTH; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
    return turn;
}

static void test_data_ends_it(void **state)
{
    float w[WIDTH * WIDTH], b[WIDTH], v[WIDTH * WIDTH], x[N], want[N], got[N];
    const int64_t counts[] = {0, -3, 1, 2, 30};
    (void)state;
    add_products(w, b, v);
    for (int rows = 1; rows <= BATCH; rows += 2) {
        struct model m;
        int n_turns = 0;
        model_open(&m, rows);
        for (int round = 0; round < 20; round++) {
            int64_t count = counts[round % 5];
            unsigned char start = round % 7 != 6;
            float limit = (float)gb_uniform(&seed, -1, 4);
            random_floats(x, rows * WIDTH);
            n_turns += naive_products(x, w, b, v, rows, count, start, limit, want);
            must(run(&m, (void *[]){x, &count, &start, &limit}, got,
                     (size_t)(rows * WIDTH) * sizeof *got));
            assert_floats(got, want, rows * WIDTH);
        }
        assert_true(n_turns > 10);
        model_close(&m);
    }
}

/* ---- bodies in bodies -------------------------------------------------------------------------------- */

/* `count` turns: in the odd ones another Loop adds x as often as the turn says; in the others h changes its sign. */
static void add_nested(void)
{
    open_body(&inner, "k", "also", "g");
    ob_add(&inner, "Add", NAMES("g", "x"), NAMES("g_next"));
    ob_add(&inner, "Identity", NAMES("also"), NAMES("also_next"));
    result(&inner, "also_next", BOOL);
    result(&inner, "g_next", FLOAT);
    ob_graph(&other);
    add_loop(&other, &inner, NAMES("i", "", "h"), NAMES("added"));
    result(&other, "added", FLOAT);
    open_body(&body, "i", "more", "h");
    ob_int64s(&body, "two", 0, (const int64_t[]){2});
    ob_int64s(&body, "one", 0, (const int64_t[]){1});
    ob_add(&body, "Mod", NAMES("i", "two"), NAMES("rest"));
    ob_add(&body, "Equal", NAMES("rest", "one"), NAMES("odd"));
    ob_graph(&inner);
    ob_add(&inner, "Neg", NAMES("h"), NAMES("minus"));
    result(&inner, "minus", FLOAT);
    ob_node(&node, "If", NAMES("odd"), NAMES("next"));
    ob_attr_graph(&node, "then_branch", &other);
    ob_attr_graph(&node, "else_branch", &inner);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
}

static void test_an_if_and_a_loop_in_a_loop(void **state)
{
    float x[N], want[N], got[N];
    struct model m;
    (void)state;
    add_nested();
    ob_graph(&graph);
    add_loop(&graph, &body, NAMES("count", "", "x"), NAMES("y"));
    input("x", FLOAT, DIMS(-1, WIDTH));
    input("count", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    model_open(&m, BATCH);
    for (int64_t count = 0; count < 9; count++) {
        float of_x = 1;
        for (int64_t i = 0; i < count; i++)
            of_x = i % 2 ? of_x + (float)i : -of_x;
        random_floats(x, N);
        for (int k = 0; k < N; k++)
            want[k] = of_x * x[k];
        must(run(&m, (void *[]){x, &count}, got, sizeof got));
        assert_floats(got, want, N);
    }
    model_close(&m);
}

/* What is carried changes places each turn: (a, b) becomes (b, a), and the captured x stays as it is. */
static void test_what_is_carried_changes_places(void **state)
{
    float x[N], want[N], got[N];
    struct model m;
    (void)state;
    open_body(&body, "i", "more", "a");
    ob_input(&body, OB_GRAPH_INPUT, "b", FLOAT, 0, NULL);
    ob_add(&body, "Less", NAMES("i", "stop"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "b", FLOAT);
    result(&body, "a", FLOAT);
    ob_graph(&graph);
    ob_add(&graph, "Neg", NAMES("x"), NAMES("minus"));
    add_loop(&graph, &body, NAMES("", "", "x", "minus"), NAMES("p", "q"));
    ob_add(&graph, "Sub", NAMES("p", "x"), NAMES("y"));
    input("x", FLOAT, DIMS(-1, WIDTH));
    input("stop", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    model_open(&m, BATCH);
    for (int64_t stop = 0; stop < 5; stop++) {
        random_floats(x, N);
        for (int k = 0; k < N; k++) /* stop + 1 turns */
            want[k] = stop % 2 ? 0 : -2 * x[k];
        must(run(&m, (void *[]){x, &stop}, got, sizeof got));
        assert_floats(got, want, N);
    }
    model_close(&m);
}

/* ---- images ------------------------------------------------------------------------------------------ */

enum { SIDE = 5, CHANNELS = 2, IMAGE = CHANNELS * SIDE * SIDE };

/* Each pixel's four neighbours, in its own channel, a quarter each. */
static void blur(const float *x, float *y)
{
    for (int i = 0; i < IMAGE; i++) {
        int row = i / SIDE % SIDE, column = i % SIDE;
        y[i] = (row > 0 ? x[i - SIDE] : 0) + (row < SIDE - 1 ? x[i + SIDE] : 0) +
               (column > 0 ? x[i - 1] : 0) + (column < SIDE - 1 ? x[i + 1] : 0);
        y[i] /= 4;
    }
}

/* A convolution in the body, one of its results, and one behind it. */
static void test_convolutions_within_and_behind(void **state)
{
    float w[CHANNELS * CHANNELS * 9] = {0}, x[BATCH * IMAGE], want[BATCH * IMAGE],
                                  got[BATCH * IMAGE], next[IMAGE];
    struct model m;
    (void)state;
    for (int c = 0; c < CHANNELS; c++)
        for (int k = 1; k < 9; k += 2)
            w[(c * CHANNELS + c) * 9 + k] = 0.25f;
    open_body(&body, "i", "more", "h");
    ob_initializer(&body, "inside", FLOAT, DIMS(CHANNELS, CHANNELS, 3, 3), w, sizeof w);
    ob_node(&node, "Conv", NAMES("h", "inside"), NAMES("next"));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Less", NAMES("i", "stop"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_initializer(&graph, "behind", FLOAT, DIMS(CHANNELS, CHANNELS, 3, 3), w, sizeof w);
    add_loop(&graph, &body, NAMES("", "", "x"), NAMES("h_end"));
    ob_node(&node, "Conv", NAMES("h_end", "behind"), NAMES("y"));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    input("x", FLOAT, DIMS(-1, CHANNELS, SIDE, SIDE));
    input("stop", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, CHANNELS, SIDE, SIDE));
    model_open(&m, BATCH);
    for (int64_t stop = 0; stop < 4; stop++) {
        random_floats(x, BATCH * IMAGE);
        memcpy(want, x, sizeof x);
        for (int image = 0; image < BATCH; image++)
            for (int64_t i = 0; i < stop + 2; i++) {
                blur(want + image * IMAGE, next);
                memcpy(want + image * IMAGE, next, sizeof next);
            }
        must(run(&m, (void *[]){x, &stop}, got, sizeof got));
        assert_floats(got, want, BATCH * IMAGE);
    }
    model_close(&m);
}

/* ---- what must end a run ----------------------------------------------------------------------------- */

/* table[i] in each turn: of 3. A run that failed leaves nothing that the next one would see. */
static void test_an_index_outside_in_a_turn(void **state)
{
    static const float table[3] = {1, 10, 100};
    float x[N], want[N], got[N];
    struct model m;
    (void)state;
    open_body(&body, "i", "more", "h");
    ob_initializer(&body, "table", FLOAT, DIMS(3), table, sizeof table);
    ob_node(&node, "Gather", NAMES("table", "i"), NAMES("t"));
    ob_text(&node, 3, "picks");
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Add", NAMES("h", "t"), NAMES("next"));
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    add_loop(&graph, &body, NAMES("count", "", "x"), NAMES("y"));
    input("x", FLOAT, DIMS(-1, WIDTH));
    input("count", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    model_open(&m, BATCH);
    for (int64_t count = 0; count < 16; count++) {
        int64_t turns = count % 5;
        random_floats(x, N);
        for (int k = 0; k < N; k++) {
            want[k] = x[k];
            for (int64_t i = 0; i < turns && i < 3; i++)
                want[k] += table[i];
        }
        int status = run(&m, (void *[]){x, &turns}, got, sizeof got);
        assert_int_equal(status, turns > 3 ? SY_EARG : SY_OK);
        if (status == SY_OK)
            assert_floats(got, want, N);
        else
            assert_non_null(strstr(sy_error_text(), "picks"));
    }
    model_close(&m);
}

static int turns_left;

static int stop_after(void *ctx)
{
    (void)ctx;
    return turns_left-- > 0 ? SY_OK : sy_error_set(SY_ECANCELED, "something more urgent");
}

/* Between any two turns; the next run is right. */
static void test_stopped_between_turns(void **state)
{
    float x[N], want[N], got[N];
    int64_t turns = 6;
    struct model m;
    (void)state;
    open_body(&body, "i", "more", "h");
    ob_add(&body, "Add", NAMES("h", "x"), NAMES("next"));
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    add_loop(&graph, &body, NAMES("count", "", "x"), NAMES("y"));
    input("x", FLOAT, DIMS(-1, WIDTH));
    input("count", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    model_open(&m, BATCH);
    rig_engine.ops->on_turn(stop_after, NULL);
    random_floats(x, N);
    for (int k = 0; k < N; k++)
        want[k] = 7 * x[k];
    for (int n = 0; n < 5; n++) {
        turns_left = n;
        assert_int_equal(run(&m, (void *[]){x, &turns}, got, sizeof got), SY_ECANCELED);
        assert_int_equal(turns_left, -1);
        turns_left = 100;
        must(run(&m, (void *[]){x, &turns}, got, sizeof got));
        assert_floats(got, want, N);
    }
    rig_engine.ops->on_turn(NULL, NULL);
    model_close(&m);
}

/* Three rows are declared, and the body has a Loop: none of them can be written out. */
static void test_as_many_rows_as_are_declared(void **state)
{
    float x[N], got[3 * N];
    struct model m;
    (void)state;
    add_nested();
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    add_loop(&graph, &body, NAMES("count", "", "x"), NAMES("last", "rows"));
    input("x", FLOAT, DIMS(BATCH, WIDTH));
    input("count", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "rows", FLOAT, DIMS(3, BATCH, WIDTH));
    model_open(&m, 1);
    for (int64_t count = 0; count < 6; count++) {
        static const float of_x[3] = {-1, 0, 0};
        random_floats(x, N);
        int status = run(&m, (void *[]){x, &count}, got, sizeof got);
        assert_int_equal(status, count == 3 ? SY_OK : SY_EARG);
        for (int k = 0; status == SY_OK && k < 3 * N; k++) {
            float want = of_x[k / N] * x[k % N];
            assert_floats(&got[k], &want, 1);
        }
    }
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_ends_it),
        cmocka_unit_test(test_an_if_and_a_loop_in_a_loop),
        cmocka_unit_test(test_what_is_carried_changes_places),
        cmocka_unit_test(test_convolutions_within_and_behind),
        cmocka_unit_test(test_an_index_outside_in_a_turn),
        cmocka_unit_test(test_stopped_between_turns),
        cmocka_unit_test(test_as_many_rows_as_are_declared),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

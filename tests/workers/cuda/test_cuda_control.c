/* If, Loop and what only a run can size, as the CUDA engine runs them on the fake mathematics: what of a Loop is recorded, where it can be
 * stopped, what is left after the k-th call fails, and which layers the host engine computes without being asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/on_cpu/beside_host.h"
#include "tests/on_cpu/fake_math.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/cuda_run.h"
#include "workers/cuda/program/host_ops.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, WIDTH = 4, N = 3 * WIDTH, WIDE = 80, MAX_CALLS = 2000 };

static struct ob graph, body, node;
static uint64_t seed;

static void result(struct ob *to, const char *name, int type)
{
    ob_input(to, OB_GRAPH_OUTPUT, name, type, 0, NULL);
}

static struct sy_graph *import(void)
{
    ob_save(ob_path, &graph, 13);
    return onnx_inferred(ob_path);
}

/* Tanh in front, `count` turns of h = h + one + one, Exp behind; a Gather in front whose index is an input. */
static struct sy_graph *adding_graph(void)
{
    static const float one[WIDTH] = {1, 1, 1, 1}, row[2] = {0, 0};
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "i", INT64, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "more", BOOL, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "h", FLOAT, 0, NULL);
    ob_initializer(&body, "one", FLOAT, DIMS(WIDTH), one, sizeof one);
    ob_add(&body, "Add", NAMES("h", "one"), NAMES("once"));
    ob_add(&body, "Sqrt", NAMES("one"), NAMES("root"));
    ob_add(&body, "Max", NAMES("once", "h"), NAMES("most"));
    ob_add(&body, "Add", NAMES("most", "root"), NAMES("next"));
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    result(&body, "go", BOOL);
    result(&body, "next", FLOAT);
    ob_graph(&graph);
    ob_initializer(&graph, "row", FLOAT, DIMS(2), row, sizeof row);
    ob_node(&node, "Gather", NAMES("row", "at"), NAMES("zero"));
    ob_text(&node, 3, "in front");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Add", NAMES("x", "zero"), NAMES("t"));
    ob_node(&node, "Loop", NAMES("count", "", "t"), NAMES("l"));
    ob_attr_graph(&node, "body", &body);
    ob_text(&node, 3, "the loop");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "Neg", NAMES("l"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_input(&graph, OB_GRAPH_INPUT, "count", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_INPUT, "at", INT64, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, WIDTH));
    return import();
}

/* ---- one program whose memory stays where it is ------------------------------------------------------- */

struct life {
    struct engine_rig rig;
    struct rig_tensors in, out;
    unsigned char *workspace, **params;
    struct sy_program *program;
};

/* Takes the graph. */
static void life_lay_out(struct life *l, struct sy_graph *g)
{
    *l = (struct life){0};
    rig_engine = beside_cuda;
    if (rig_open(&l->rig, g, true) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_free(g);
    rig_take(&l->rig, l->rig.graph->inputs, l->rig.graph->n_inputs, 3, 0, &l->in);
    rig_take(&l->rig, l->rig.graph->outputs, l->rig.graph->n_outputs, 3, 0, &l->out);
    l->params = calloc((size_t)l->rig.n_layers + 1, sizeof *l->params);
    assert_non_null(l->params);
    for (int i = 0; i < l->rig.n_layers; i++)
        l->params[i] = fake_math_device(l->rig.params[i]);
}

static int life_begin(struct life *l)
{
    int status =
        sy_cuda_engine.program_create(l->rig.graph, l->rig.layers, l->rig.n_layers, 3, &l->program);
    if (status < 0)
        return status;
    l->workspace =
        aligned_alloc(4096, (sy_cuda_engine.program_workspace_bytes(l->program) | 4095) + 1);
    assert_non_null(l->workspace);
    return SY_OK;
}

static void life_end(struct life *l)
{
    sy_cuda_engine.program_destroy(l->program);
    free(l->workspace);
    l->program = NULL;
    l->workspace = NULL;
}

static void life_finish(struct life *l)
{
    life_end(l);
    rig_drop(&l->in);
    rig_drop(&l->out);
    rig_close(&l->rig);
    free(l->params);
}

static int run(struct life *l)
{
    struct sy_binding binding = {.layer_params = l->params,
                                 .workspace = fake_math_device(l->workspace),
                                 .inputs = (const void *const *)l->in.data,
                                 .outputs = l->out.data};
    int status = sy_cuda_engine.program_run(l->program, &binding, 0, l->rig.n_layers);
    fake_math_synchronize();
    return status == SY_OK ? sy_cuda_engine.program_finish(l->program) : status;
}

static void set_adding(struct life *l, int64_t count, int64_t at)
{
    for (int i = 0; i < N; i++)
        ((float *)l->in.data[0])[i] = (float)gb_uniform(&seed, -1, 1);
    memcpy(l->in.data[1], &count, sizeof count);
    memcpy(l->in.data[2], &at, sizeof at);
}

static void added(const struct life *l, int64_t count)
{
    for (int i = 0; i < N; i++) {
        float want = -((float *)l->in.data[0])[i] - 2 * (float)count,
              got = ((float *)l->out.data[0])[i];
        if (!(got - want < 1e-5f && want - got < 1e-5f))
            fail_msg("[%d] is %g, not %g", i, (double)got, (double)want);
    }
}

/* ---- Loops -------------------------------------------------------------------------------------------- */

/* A turn is recorded once, and launched whole from then on, in other runs too. */
static void test_a_turn_is_recorded_once(void **state)
{
    struct life l;
    (void)state;
    beside_attach();
    life_lay_out(&l, adding_graph());
    assert_int_equal(life_begin(&l), SY_OK);
    set_adding(&l, 10, 0);
    assert_int_equal(run(&l), SY_OK);
    added(&l, 10);
    struct sy_cuda_run_counts first = sy_cuda_run_get_counts();
    assert_int_equal(first.captures, 1);
    assert_int_equal(first.launches, 8); /* what stands around it was run once only */
    for (int i = 0; i < 3; i++) {
        set_adding(&l, i, 0);
        assert_int_equal(run(&l), SY_OK);
        added(&l, i);
    }
    struct sy_cuda_run_counts then = sy_cuda_run_get_counts();
    assert_int_equal(fake_math_get_counts().graphs, then.captures);
    assert_true(then.captures <= 3); /* in front, behind, the turn */
    life_finish(&l);
    assert_int_equal(fake_math_get_counts().graphs, 0);
    sy_cuda_engine.detach();
}

/* The index in front is what ends the run, whatever the Loop would make of it. */
static void test_what_failed_in_front_is_named(void **state)
{
    struct life l;
    (void)state;
    beside_attach();
    life_lay_out(&l, adding_graph());
    assert_int_equal(life_begin(&l), SY_OK);
    for (int round = 0; round < 4; round++) {
        set_adding(&l, 3, round % 2 ? 7 : 1);
        int status = run(&l);
        assert_int_equal(status, round % 2 ? SY_EARG : SY_OK);
        if (status == SY_OK)
            added(&l, 3);
        else
            assert_non_null(strstr(sy_error_text(), "in front"));
    }
    life_finish(&l);
    sy_cuda_engine.detach();
}

static int turns_left;

static int stop_after(void *ctx)
{
    (void)ctx;
    return turns_left-- > 0 ? SY_OK : sy_error_set(SY_ECANCELED, "something more urgent");
}

/* Between any two turns; the run is none, the next one is right. At most a turn is in flight. */
static void test_stopped_between_turns(void **state)
{
    struct life l;
    (void)state;
    beside_attach();
    sy_cuda_engine.on_turn(stop_after, NULL);
    life_lay_out(&l, adding_graph());
    assert_int_equal(life_begin(&l), SY_OK);
    for (int n = 0; n < 5; n++) {
        turns_left = n;
        set_adding(&l, 6, 0);
        assert_int_equal(run(&l), SY_ECANCELED);
        assert_non_null(strstr(sy_error_text(), "more urgent"));
        assert_int_equal(turns_left, -1);
        turns_left = 100;
        assert_int_equal(run(&l), SY_OK);
        assert_int_equal(turns_left, 100 - 1 - 6); /* before the first, and behind each */
        added(&l, 6);
    }
    sy_cuda_engine.on_turn(NULL, NULL);
    life_finish(&l);
    sy_cuda_engine.detach();
}

/* ---- failing calls ------------------------------------------------------------------------------------ */

static int live(struct life *l)
{
    int status = sy_cuda_engine.attach(NULL, NULL);
    if (status == SY_OK)
        status = life_begin(l);
    for (int i = 0; i < 3 && status == SY_OK; i++)
        status = run(l);
    life_end(l);
    return status;
}

static void test_each_failing_call_is_named_and_leaves_nothing(void **state)
{
    struct life l;
    int n_failed = 0;
    bool failed = true;
    (void)state;
    sy_cuda_engine_use(&fake_math);
    life_lay_out(&l, adding_graph());
    set_adding(&l, 3, 0);
    for (uint64_t k = 1; failed && k < MAX_CALLS; k++) {
        fake_math_fail(k);
        int status = live(&l);
        struct fake_math_counts c = fake_math_get_counts();
        failed = c.calls >= k;
        if (status < 0) {
            assert_int_equal(status, SY_EDEVICE);
            assert_non_null(strstr(sy_error_text(), " fails"));
            n_failed++;
        }
        assert_int_equal(c.plans, 0);
        assert_int_equal(c.host_blocks, 0);
        assert_int_equal(c.graphs, 0);
        sy_cuda_engine.detach();
        assert_int_equal(fake_math_get_counts().maths, 0);
    }
    assert_false(failed);
    assert_true(n_failed > 40);
    fake_math_fail(0);
    life_finish(&l);
}

/* ---- what only a run can size ------------------------------------------------------------------------- */

/* relu(x w), then its rows where the first number is above 0, by another matrix. */
static struct sy_graph *chosen_rows_graph(float *w, float *v)
{
    for (int i = 0; i < WIDTH * WIDTH; i++)
        w[i] = (float)gb_uniform(&seed, -1, 1);
    for (int i = 0; i < WIDTH * WIDE; i++)
        v[i] = (float)gb_uniform(&seed, -1, 1);
    ob_graph(&graph);
    ob_initializer(&graph, "w", FLOAT, DIMS(WIDTH, WIDTH), w, WIDTH * WIDTH * sizeof *w);
    ob_initializer(&graph, "v", FLOAT, DIMS(WIDTH, WIDE), v, WIDTH * WIDE * sizeof *v);
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_int64s(&graph, "line", 1, (const int64_t[]){-1});
    ob_add(&graph, "MatMul", NAMES("x", "w"), NAMES("p"));
    ob_add(&graph, "Relu", NAMES("p"), NAMES("h"));
    ob_node(&node, "Gather", NAMES("x", "zero"), NAMES("column"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_initializer(&graph, "nought", FLOAT, 0, NULL, &(float){0}, sizeof(float));
    ob_add(&graph, "Greater", NAMES("column", "nought"), NAMES("above"));
    ob_add(&graph, "NonZero", NAMES("above"), NAMES("where"));
    ob_add(&graph, "Reshape", NAMES("where", "line"), NAMES("rows"));
    ob_add(&graph, "Gather", NAMES("h", "rows"), NAMES("chosen"));
    ob_add(&graph, "MatMul", NAMES("chosen", "v"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-2, WIDE));
    return import();
}

static void times(const float *x, const float *w, int columns, bool positive, float *y)
{
    for (int c = 0; c < columns; c++) {
        y[c] = 0;
        for (int k = 0; k < WIDTH; k++)
            y[c] += x[k] * w[k * columns + c];
        if (positive && y[c] < 0)
            y[c] = 0;
    }
}

static void chosen_rows(const struct life *l, const float *w, const float *v)
{
    const float *x = l->in.data[0], *got = l->out.data[0];
    float h[WIDTH], want[WIDE];
    int64_t said[1 + SY_MAX_RANK], rows = 0;
    for (int i = 0; i < 3; i++) {
        if (!(x[i * WIDTH] > 0))
            continue;
        times(x + i * WIDTH, w, WIDTH, true, h);
        times(h, v, WIDE, false, want);
        for (int c = 0; c < WIDE; c++)
            if (!(got[rows * WIDE + c] - want[c] < 1e-5f && want[c] - got[rows * WIDE + c] < 1e-5f))
                fail_msg("[%d][%d] is %g, not %g", i, c, (double)got[rows * WIDE + c],
                         (double)want[c]);
        rows++;
    }
    memcpy(said, (char *)l->out.data[0] + l->out.bytes[0] - sizeof said, sizeof said);
    assert_int_equal(said[0], 2);
    assert_int_equal(said[1], rows);
    assert_int_equal(said[2], WIDE);
}

/* The host engine is asked for that node alone, and has its weights after the first run. */
static void test_only_what_a_run_sizes_is_the_hosts(void **state)
{
    float w[WIDTH * WIDTH], v[WIDTH * WIDE];
    struct life l;
    int is_dynamic = -1;
    (void)state;
    beside_attach();
    sy_cuda_host_engine_use(&sy_host_engine);
    life_lay_out(&l, rig_sized(chosen_rows_graph(w, v)));
    for (int i = 0; i < l.rig.n_layers; i++) {
        bool is_host = sy_cuda_host_is_layer(&l.rig.layers[i]);
        assert_int_equal(is_host, l.rig.graph->nodes[l.rig.layers[i].node].op == SY_OP_DYNAMIC);
        is_dynamic = is_host ? i : is_dynamic;
    }
    assert_true(is_dynamic > 2);
    assert_int_equal(life_begin(&l), SY_OK);
    for (int round = 0; round < 8; round++) {
        float *x = l.in.data[0];
        for (int i = 0; i < N; i++)
            x[i] = (float)gb_uniform(&seed, -1, 1) - (round == 2 && i % WIDTH == 0 ? 2 : 0);
        assert_int_equal(run(&l), SY_OK);
        chosen_rows(&l, w, v);
        l.params[is_dynamic] = fake_math_device(l.rig.absent[is_dynamic]);
    }
    life_finish(&l);
    sy_cuda_host_engine_use(NULL);
    sy_cuda_engine.detach();
}

/* Nobody computes it where there is no host engine: refused, with the reason. */
static void test_refused_where_there_is_no_host_engine(void **state)
{
    float w[WIDTH * WIDTH], v[WIDTH * WIDE];
    struct engine_rig rig;
    (void)state;
    beside_attach();
    rig_engine = beside_cuda;
    struct sy_graph *g = rig_sized(chosen_rows_graph(w, v));
    assert_int_equal(rig_open(&rig, g, true), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "AtRun"));
    rig_close(&rig);
    sy_graph_free(g);
    sy_cuda_engine.detach();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_is_recorded_once),
        cmocka_unit_test(test_what_failed_in_front_is_named),
        cmocka_unit_test(test_stopped_between_turns),
        cmocka_unit_test(test_each_failing_call_is_named_and_leaves_nothing),
        cmocka_unit_test(test_only_what_a_run_sizes_is_the_hosts),
        cmocka_unit_test(test_refused_where_there_is_no_host_engine),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

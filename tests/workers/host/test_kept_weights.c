/* Weights in another layout than the package's: moved once, shared by programs, bounded. The package is packed for long signals, and programs are for short
 * ones, of which one is looked for whose convolution wants another layout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/base/cpu_class.h"
#include "workers/host/program/kept_weights.h"

enum { CHANNELS = 192, KERNEL = 5, USUAL = 1000, LONGEST = 96 };

static uint64_t first_seed;
static int64_t found; /* a length that wants another layout; 0: none */

static struct sy_graph *make_graph(int64_t length)
{
    uint64_t seed = first_seed;
    struct sy_graph *g = gb_new("signal");
    int64_t dims[] = {1, CHANNELS, 1, length};
    int x = gb_input(g, 4, dims);
    int w = gb_constant(g, "w", 4, (int64_t[]){CHANNELS, CHANNELS, 1, KERNEL}, &seed, -0.1, 0.1);
    int y = gb_node(g, SY_OP_CONV, 2, (int[]){x, w}, 4, dims);
    gb_ints(g, "pads", 4, (int64_t[]){0, KERNEL / 2, 0, KERNEL / 2});
    gb_output(g, y);
    return g;
}

/* A package of the usual length. */
static void open_package(struct engine_rig *rig)
{
    struct sy_graph *g = make_graph(USUAL);
    assert_int_equal(rig_open(rig, g, false), SY_OK);
    sy_graph_free(g);
}

static struct sy_program *program_for(const struct engine_rig *rig, const struct sy_graph *g,
                                      int64_t batch)
{
    struct sy_program *p;
    if (sy_host_engine.program_create(g, rig->layers, rig->n_layers, batch, &p) < 0)
        fail_msg("%s", sy_error_text());
    return p;
}

static float *run(struct sy_program *p, int64_t length, unsigned char **params)
{
    size_t n = (size_t)(CHANNELS * length), room = sy_host_engine.program_workspace_bytes(p);
    float *x = malloc(n * sizeof *x), *y = calloc(n, sizeof *y);
    void *workspace = aligned_alloc(SY_PARAM_ALIGN, room + SY_PARAM_ALIGN - room % SY_PARAM_ALIGN);
    assert_true(x && y && workspace);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((int)(i * 7 % 23) - 11) / 8;
    const void *inputs[] = {x};
    void *outputs[] = {y};
    const struct sy_binding binding = {params, workspace, inputs, outputs};
    assert_int_equal(sy_host_engine.program_run(p, &binding, 0, 1), SY_OK);
    free(workspace);
    free(x);
    return y;
}

/* By a package of that very length. */
static float *expected(int64_t length)
{
    struct engine_rig rig;
    struct sy_graph *g = make_graph(length);
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *p = program_for(&rig, rig.graph, 1);
    float *y = run(p, length, rig.params);
    sy_host_engine.program_destroy(p);
    rig_close(&rig);
    sy_graph_free(g);
    return y;
}

static void assert_near(const float *y, const float *want, int64_t length)
{
    for (int64_t i = 0; i < CHANNELS * length; i++)
        if (!(y[i] - want[i] < 1e-3f && want[i] - y[i] < 1e-3f))
            fail_msg("element %lld is %g, not %g", (long long)i, (double)y[i], (double)want[i]);
}

static int find_length(void **state)
{
    struct engine_rig rig;
    (void)state;
    open_package(&rig);
    for (int64_t length = 1; found == 0 && length <= LONGEST; length++) {
        struct sy_graph *g = make_graph(length);
        struct sy_program *p = program_for(&rig, g, 1);
        found = sy_kept_weights_bytes() > 0 ? length : 0;
        sy_host_engine.program_destroy(p);
        sy_graph_free(g);
    }
    rig_close(&rig);
    if (found == 0)
        printf("skip: oneDNN has code for the packed layout at all lengths on this CPU\n");
    return 0;
}

/* A graph of the length that was found, and a package for it; skips the test where there is none. */
static struct sy_graph *begin(struct engine_rig *rig)
{
    if (found == 0)
        skip();
    open_package(rig);
    return make_graph(found);
}

static void test_a_second_run_does_not_read_the_package(void **state)
{
    struct engine_rig rig;
    (void)state;
    struct sy_graph *g = begin(&rig);
    struct sy_program *p = program_for(&rig, g, 1);
    float *want = expected(found), *first = run(p, found, rig.params),
          *second = run(p, found, rig.absent);
    assert_near(first, want, found);
    assert_memory_equal(first, second, (size_t)(CHANNELS * found) * sizeof *first);
    sy_host_engine.program_destroy(p);
    assert_int_equal(sy_kept_weights_bytes(), 0);
    sy_graph_free(g);
    rig_close(&rig);
    free(want);
    free(first);
    free(second);
}

static void test_programs_of_a_package_share(void **state)
{
    struct engine_rig rig;
    (void)state;
    struct sy_graph *g = begin(&rig);
    struct sy_program *a = program_for(&rig, g, 1);
    uint64_t bytes = sy_kept_weights_bytes();
    free(run(a, found, rig.params));
    struct sy_program *b = program_for(&rig, g, 1);
    assert_int_equal(sy_kept_weights_bytes(), bytes);
    sy_host_engine.program_destroy(a);
    assert_int_equal(sy_kept_weights_bytes(), bytes);
    float *want = expected(found), *y = run(b, found, rig.absent);
    assert_near(y, want, found);
    sy_host_engine.program_destroy(b);
    assert_int_equal(sy_kept_weights_bytes(), 0);
    sy_graph_free(g);
    rig_close(&rig);
    free(want);
    free(y);
}

static void test_packages_do_not_share(void **state)
{
    struct engine_rig rigs[2];
    struct sy_program *p[2];
    (void)state;
    if (found == 0)
        skip();
    struct sy_graph *g = make_graph(found);
    for (int i = 0; i < 2; i++) {
        open_package(&rigs[i]);
        p[i] = program_for(&rigs[i], g, 1);
    }
    uint64_t both = sy_kept_weights_bytes();
    sy_host_engine.program_destroy(p[0]);
    assert_int_equal(2 * sy_kept_weights_bytes(), both);
    sy_host_engine.program_destroy(p[1]);
    for (int i = 0; i < 2; i++)
        rig_close(&rigs[i]);
    sy_graph_free(g);
}

static void test_bounds(void **state)
{
    struct engine_rig rig;
    (void)state;
    struct sy_graph *g = begin(&rig);
    struct sy_program *many = program_for(&rig, g, SY_KEPT_MOST_ROWS / found + 1);
    assert_int_equal(sy_kept_weights_bytes(), 0); /* a hundredth of its time */
    sy_host_engine.program_destroy(many);
    sy_kept_weights_limit(sizeof(float) * CHANNELS * CHANNELS);
    struct sy_program *p = program_for(&rig, g, 1);
    assert_int_equal(sy_kept_weights_bytes(), 0);
    float *want = expected(found), *y = run(p, found, rig.params);
    assert_near(y, want, found);
    sy_host_engine.program_destroy(p);
    sy_kept_weights_limit(SY_KEPT_MOST_BYTES);
    sy_graph_free(g);
    rig_close(&rig);
    free(want);
    free(y);
}

/* ---- bodies --------------------------------------------------------------------------------------------- */

enum { FLOAT = 1, BOOL = 9, OUTER = 8, INNER = 32, SQUARE = 16, TIED = 32, TAPS = 3, TIMES = 8 };

static float branch_weights[2][INNER * OUTER * TAPS];

static void add_branch(struct ob *branch, const char *op, const char *weights, const char *result,
                       int results, int groups)
{
    static struct ob node;
    ob_graph(branch);
    ob_node(&node, op, NAMES("x", weights), NAMES(result));
    ob_attr_int(&node, "group", groups);
    ob_attr_ints(&node, "pads", 2, (int64_t[]){1, 1});
    ob_message(branch, OB_GRAPH_NODE, &node);
    ob_input(branch, OB_GRAPH_OUTPUT, result, FLOAT, DIMS(1, results, TIMES));
}

/* Adds an If of x, [1, channels, TIMES], to [1, results, TIMES], and reads the graph. */
static struct sy_graph *read_branches(struct ob *graph, const struct ob *branches, int channels,
                                      int results)
{
    static struct ob node;
    struct sy_graph *g;
    ob_node(&node, "If", NAMES("flag"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &branches[0]);
    ob_attr_graph(&node, "else_branch", &branches[1]);
    ob_message(graph, OB_GRAPH_NODE, &node);
    ob_input(graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(1, channels, TIMES));
    ob_input(graph, OB_GRAPH_INPUT, "flag", BOOL, DIMS(1));
    ob_input(graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(1, results, TIMES));
    ob_save(ob_path, graph, 13);
    if (sy_onnx_read(ob_path, &g) < 0 || sy_graph_infer(g) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

/* if flag: Conv(x, w0), else Conv(x, w1): weights of the graph around the branches. */
static struct sy_graph *make_branches(void)
{
    static const char *names[] = {"w0", "w1"};
    static struct ob graph, branches[2];
    ob_graph(&graph);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < INNER * OUTER * TAPS; i++)
            branch_weights[k][i] = (float)gb_uniform(&first_seed, -0.1, 0.1);
        ob_initializer(&graph, names[k], FLOAT, 3, (int64_t[]){INNER, OUTER, TAPS},
                       branch_weights[k], sizeof branch_weights[k]);
    }
    add_branch(&branches[0], "Conv", "w0", "then", INNER, 1);
    add_branch(&branches[1], "Conv", "w1", "else", INNER, 1);
    return read_branches(&graph, branches, OUTER, INNER);
}

static float convolved(const float *x, const float *w, int channel, int time)
{
    float sum = 0;
    for (int c = 0; c < OUTER; c++)
        for (int k = 0; k < TAPS; k++)
            if (time + k >= 1 && time + k <= TIMES)
                sum += x[c * TIMES + time + k - 1] * w[(channel * OUTER + c) * TAPS + k];
    return sum;
}

static void run_branch(const struct engine_rig *rig, struct sy_program *p, unsigned char flag,
                       struct rig_tensors *in, struct rig_tensors *out)
{
    float *x = in->data[0];
    for (int i = 0; i < OUTER * TIMES; i++)
        x[i] = (float)((i * 7 + flag) % 23 - 11) / 8;
    *(unsigned char *)in->data[1] = flag;
    assert_int_equal(rig_run(rig, p, in, out, 0xff, NULL), SY_OK);
    for (int i = 0; i < INNER * TIMES; i++) {
        float got = ((float *)out->data[0])[i],
              want = convolved(x, branch_weights[!flag], i / TIMES, i % TIMES);
        if (!(got - want < 1e-3f && want - got < 1e-3f))
            fail_msg("branch %d: element %d is %g, not %g", flag, i, (double)got, (double)want);
    }
}

/* Weights that branches capture are moved in a branch's first run and not read again. */
static void test_captured_weights_are_moved_once(void **state)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    (void)state;
    struct sy_graph *g = make_branches();
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    struct sy_program *p = rig_program(&rig, 1);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 1, 0, &in);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 1, 0xff, &out);
    bool are_kept = sy_kept_weights_bytes() >= sizeof branch_weights;
    assert_true(are_kept || !sy_dnnl_has_avx512());
    for (unsigned char flag = 0; flag < 2; flag++)
        run_branch(&rig, p, flag, &in, &out);
    struct engine_rig gone = rig;
    gone.params = rig.absent;
    for (unsigned char flag = 0; are_kept && flag < 2; flag++)
        run_branch(&gone, p, flag, &in, &out);
    sy_host_engine.program_destroy(p);
    assert_int_equal(sy_kept_weights_bytes(), 0);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
    if (!are_kept) /* oneDNN computes with plain weights on this CPU */
        skip();
}

static float tied_weights[TIED * SQUARE * TAPS];

/* if flag: Conv(x, w), else ConvTranspose(x, w), in two groups: one weight, whose first dimension is the results' and the inputs'. In blocks of 16 channels
 * both want the same layout. */
static struct sy_graph *make_tied(void)
{
    static struct ob graph, branches[2];
    ob_graph(&graph);
    for (int i = 0; i < TIED * SQUARE * TAPS; i++)
        tied_weights[i] = (float)gb_uniform(&first_seed, -0.1, 0.1);
    ob_initializer(&graph, "w", FLOAT, 3, (int64_t[]){TIED, SQUARE, TAPS}, tied_weights,
                   sizeof tied_weights);
    add_branch(&branches[0], "Conv", "w", "then", TIED, TIED / SQUARE);
    add_branch(&branches[1], "ConvTranspose", "w", "else", TIED, TIED / SQUARE);
    return read_branches(&graph, branches, TIED, TIED);
}

/* Result `i` of a branch: a transposed convolution reads the taps backwards. */
static float tied(const float *x, bool transposed, int i)
{
    float sum = 0;
    int y = i / TIMES, time = i % TIMES, first = y / SQUARE * SQUARE;
    for (int c = 0; c < SQUARE; c++)
        for (int k = 0; k < TAPS; k++) {
            int at = transposed ? time + 1 - k : time + k - 1,
                row = transposed ? (first + c) * SQUARE + y - first : y * SQUARE + c;
            if (at >= 0 && at < TIMES)
                sum += x[(first + c) * TIMES + at] * tied_weights[row * TAPS + k];
        }
    return sum;
}

/* Nodes that read one captured weight in other orders of its dimensions do not share what they moved. */
static void test_one_weight_in_two_orders(void **state)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    (void)state;
    struct sy_graph *g = make_tied();
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    struct sy_program *p = rig_program(&rig, 1);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 1, 0, &in);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 1, 0xff, &out);
    float *x = in.data[0];
    for (int i = 0; i < TIED * TIMES; i++)
        x[i] = (float)(i * 7 % 23 - 11) / 8;
    for (unsigned char flag = 0; flag < 2; flag++) {
        *(unsigned char *)in.data[1] = flag;
        assert_int_equal(rig_run(&rig, p, &in, &out, 0xff, NULL), SY_OK);
        for (int i = 0; i < TIED * TIMES; i++) {
            float got = ((float *)out.data[0])[i], want = tied(x, !flag, i);
            if (!(got - want < 1e-3f && want - got < 1e-3f))
                fail_msg("branch %d: element %d is %g, not %g", flag, i, (double)got, (double)want);
        }
    }
    sy_host_engine.program_destroy(p);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_run_does_not_read_the_package),
        cmocka_unit_test(test_programs_of_a_package_share),
        cmocka_unit_test(test_packages_do_not_share),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test_setup(test_captured_weights_are_moved_once, ob_open_folder),
        cmocka_unit_test_teardown(test_one_weight_in_two_orders, ob_close_folder),
    };
    first_seed = rig_start();
    return cmocka_run_group_tests(tests, find_length, NULL);
}

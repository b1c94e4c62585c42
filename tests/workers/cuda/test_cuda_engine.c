/* The CUDA engine on the fake mathematics: how often graphs are captured, what is left after the k-th call of the table fails, and float16
 * and bfloat16 beside the host engine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/beside_host.h"
#include "tests/on_cpu/fake_math.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/cuda_run.h"

#define MAX_CALLS 2000 /* of the table in one life; far above what these graphs need */

static uint64_t seed;

/* ---- graphs ------------------------------------------------------------------------------------------- */

static int weight(struct sy_graph *g, int n, const int64_t *dims, int64_t sum_of)
{
    double bound = 1.7 / sqrt((double)sum_of);
    return gb_constant(g, "w", n, dims, &seed, -bound, bound);
}

static int conv(struct sy_graph *g, int x, int64_t in, int64_t out, int64_t groups, int64_t end)
{
    int w = weight(g, DIMS(out, in / groups, 3, 3), in / groups * 9);
    int b = gb_constant(g, "b", DIMS(out), &seed, -0.3, 0.3);
    int64_t size = 7 + end; /* padding on one side more or less */
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w, b), DIMS(1, out, size, size));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "strides", DIMS(1, 1));
    gb_ints(g, "pads", DIMS(1, 1, 1 + end, 1 + end));
    gb_int(g, "group", groups);
    return y;
}

static int linear(struct sy_graph *g, int x, int64_t rows, int64_t in, int64_t out)
{
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(x, weight(g, DIMS(in, out), in)), DIMS(1, rows, out));
    int b = gb_constant(g, "b", DIMS(out), &seed, -0.2, 0.2);
    return gb_node(g, SY_OP_ADD, INPUTS(y, b), DIMS(1, rows, out));
}

/* Convolutions with what stands around them: padding that is not the same on both sides, groups, a residual, a concat, pools. */
static struct sy_graph *windows_graph(void)
{
    struct sy_graph *g = gb_new("windows");
    int x = gb_input(g, DIMS(1, 3, 7, 7));
    int a = gb_node(g, SY_OP_RELU, INPUTS(conv(g, x, 3, 16, 1, 0)), DIMS(1, 16, 7, 7));
    int b = gb_node(g, SY_OP_RELU, INPUTS(conv(g, a, 16, 16, 8, 0)), DIMS(1, 16, 7, 7));
    b = conv(g, b, 16, 16, 1, 0);
    b = gb_node(g, SY_OP_ADD, INPUTS(b, a), DIMS(1, 16, 7, 7));
    b = gb_node(g, SY_OP_RELU, INPUTS(b), DIMS(1, 16, 7, 7));
    int both = gb_node(g, SY_OP_CONCAT, INPUTS(b, a), DIMS(1, 32, 7, 7));
    gb_int(g, "axis", 1);
    int y = conv(g, both, 32, 24, 1, 1);
    y = gb_node(g, SY_OP_MAX_POOL, INPUTS(y), DIMS(1, 24, 4, 4));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    gb_ints(g, "strides", DIMS(2, 2));
    y = gb_node(g, SY_OP_GLOBAL_AVERAGE_POOL, INPUTS(y), DIMS(1, 24, 1, 1));
    y = gb_node(g, SY_OP_FLATTEN, INPUTS(y), DIMS(1, 24));
    int w = weight(g, DIMS(10, 24), 24), bias = gb_constant(g, "b", DIMS(10), &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_GEMM, INPUTS(y, w, bias), DIMS(1, 10)));
    gb_int(g, "transB", 1);
    return g;
}

static int heads(struct sy_graph *g, int x, int64_t rows, bool transposed)
{
    int y = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, rows, 2, 16));
    y = transposed ? gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, 2, 16, rows))
                   : gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, 2, rows, 16));
    int64_t perm[4] = {0, 2, transposed ? 3 : 1, transposed ? 1 : 3};
    gb_ints(g, "perm", 4, perm);
    return y;
}

/* Attention whose input is read by products and by a sum, a norm behind, an activation between two products. */
static struct sy_graph *attention_graph(void)
{
    struct sy_graph *g = gb_new("attention");
    const int64_t rows = 18, width = 32;
    int ids = gb_input_of(g, SY_DTYPE_I64, DIMS(1, rows));
    int table = gb_constant(g, "table", DIMS(40, width), &seed, -1, 1);
    int x = gb_node(g, SY_OP_GATHER, INPUTS(table, ids), DIMS(1, rows, width));
    gb_int(g, "axis", 0);
    int q = heads(g, linear(g, x, rows, width, width), rows, false);
    int k = heads(g, linear(g, x, rows, width, width), rows, true);
    int v = heads(g, linear(g, x, rows, width, width), rows, false);
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(q, k), DIMS(1, 2, rows, rows));
    y = gb_node(g, SY_OP_SOFTMAX, INPUTS(y), DIMS(1, 2, rows, rows));
    gb_int(g, "axis", 3);
    y = gb_node(g, SY_OP_MATMUL, INPUTS(y, v), DIMS(1, 2, rows, 16));
    y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, rows, 2, 16));
    gb_ints(g, "perm", DIMS(0, 2, 1, 3));
    y = gb_node(g, SY_OP_RESHAPE, INPUTS(y), DIMS(1, rows, width));
    y = gb_node(g, SY_OP_ADD, INPUTS(linear(g, y, rows, width, width), x), DIMS(1, rows, width));
    int scale = gb_constant(g, "scale", DIMS(width), &seed, 0.5, 1.5),
        bias = gb_constant(g, "bias", DIMS(width), &seed, -0.3, 0.3);
    y = gb_node(g, SY_OP_LAYER_NORM, INPUTS(y, scale, bias), DIMS(1, rows, width));
    gb_int(g, "axis", 2);
    y = linear(g, y, rows, width, 48);
    y = gb_node(g, SY_OP_GELU, INPUTS(y), DIMS(1, rows, 48));
    gb_output(g, linear(g, y, rows, 48, 20));
    return g;
}

/* ---- captured graphs ---------------------------------------------------------------------------------- */

struct life {
    struct engine_rig rig;
    struct rig_tensors in, out;
    unsigned char *workspace, **params;
    uint64_t workspace_bytes;
};

/* Memory for one program, which stays where it is. */
static void life_init(struct life *l, struct sy_graph *g, int64_t batch)
{
    *l = (struct life){0};
    rig_engine = beside_cuda;
    if (rig_open(&l->rig, g, true) < 0)
        fail_msg("%s: %s", g->name, sy_error_text());
    sy_graph_free(g);
    rig_take(&l->rig, l->rig.graph->inputs, l->rig.graph->n_inputs, batch, 0, &l->in);
    rig_take(&l->rig, l->rig.graph->outputs, l->rig.graph->n_outputs, batch, 0, &l->out);
    l->workspace_bytes = 1 << 20;
    l->workspace = aligned_alloc(4096, l->workspace_bytes);
    l->params = calloc((size_t)l->rig.n_layers + 1, sizeof *l->params);
    assert_true(l->workspace && l->params);
    for (int i = 0; i < l->rig.n_layers; i++)
        l->params[i] = fake_math_device(l->rig.params[i]);
}

static void life_finish(struct life *l)
{
    rig_drop(&l->in);
    rig_drop(&l->out);
    rig_close(&l->rig);
    free(l->workspace);
    free(l->params);
}

/* Layers [first, first + n), 0: all of them. */
static int run_part(struct life *l, struct sy_program *p, unsigned char *workspace, int first,
                    int n)
{
    struct sy_binding binding = {l->params, fake_math_device(workspace),
                                 (const void *const *)l->in.data, l->out.data};
    int status = sy_cuda_engine.program_run(p, &binding, first, n ? n : l->rig.n_layers - first);
    fake_math_synchronize();
    return status == SY_OK ? sy_cuda_engine.program_finish(p) : status;
}

static int run(struct life *l, struct sy_program *p)
{
    return run_part(l, p, l->workspace, 0, 0);
}

static struct sy_program *new_program(struct life *l, int64_t batch)
{
    struct sy_program *p = rig_program(&l->rig, batch);
    assert_in_range(sy_cuda_engine.program_workspace_bytes(p), 1, l->workspace_bytes);
    return p;
}

static void counted(uint64_t eager, uint64_t captures, uint64_t launches)
{
    struct sy_cuda_run_counts c = sy_cuda_run_get_counts();
    assert_int_equal(c.eager, eager);
    assert_int_equal(c.captures, captures);
    assert_int_equal(c.launches, launches);
}

static void test_captured_once_per_model_and_batch(void **state)
{
    (void)state;
    struct life l;
    beside_attach();
    life_init(&l, windows_graph(), 4);
    struct sy_program *one = new_program(&l, 1), *four = new_program(&l, 4);
    for (int i = 0; i < 10; i++)
        assert_int_equal(run(&l, one), SY_OK);
    counted(1, 1, 8);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(run(&l, four), SY_OK);
        assert_int_equal(run(&l, one), SY_OK);
    }
    counted(2, 2, 8 + 8 + 10);
    assert_int_equal(fake_math_get_counts().graphs, 2);
    sy_cuda_engine.program_destroy(four);
    assert_int_equal(fake_math_get_counts().graphs, 1);
    sy_cuda_engine.program_destroy(one);
    assert_int_equal(fake_math_get_counts().graphs, 0);
    life_finish(&l);
    sy_cuda_engine.detach();
}

static void test_captured_again_when_the_placement_changed(void **state)
{
    (void)state;
    struct life l;
    beside_attach();
    life_init(&l, windows_graph(), 1);
    struct sy_program *p = new_program(&l, 1);
    unsigned char *other = aligned_alloc(4096, l.workspace_bytes);
    assert_non_null(other);
    for (int i = 0; i < 4; i++)
        assert_int_equal(run(&l, p), SY_OK);
    counted(1, 1, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(run_part(&l, p, other, 0, 0), SY_OK);
    counted(2, 2, 4);
    assert_int_equal(run(&l, p), SY_OK); /* back: its graph is still there */
    counted(2, 2, 5);
    int moved = 0;
    while (!l.rig.layers[moved].bytes)
        moved++;
    unsigned char *was = l.params[moved], *copy = aligned_alloc(4096, l.rig.layers[moved].bytes);
    assert_non_null(copy);
    memcpy(copy, l.rig.params[moved], l.rig.layers[moved].bytes);
    l.params[moved] = fake_math_device(copy); /* a group that was evicted and came back elsewhere */
    for (int i = 0; i < 3; i++)
        assert_int_equal(run(&l, p), SY_OK);
    counted(3, 3, 6);
    l.params[moved] = was;
    assert_int_equal(run(&l, p), SY_OK);
    counted(3, 3, 7);
    sy_cuda_engine.program_destroy(p);
    free(copy);
    free(other);
    life_finish(&l);
    sy_cuda_engine.detach();
}

/* Each group is a graph of its own, and only those whose parameters moved are recorded again. */
static void test_groups_are_captured_apart(void **state)
{
    (void)state;
    struct life l;
    beside_attach();
    life_init(&l, attention_graph(), 1);
    struct sy_program *p = new_program(&l, 1);
    int half = l.rig.n_layers / 2, last = l.rig.n_layers - 1;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run_part(&l, p, l.workspace, 0, half), SY_OK);
        assert_int_equal(run_part(&l, p, l.workspace, half, 0), SY_OK);
    }
    counted(2, 2, 6);
    while (!l.rig.layers[last].bytes)
        last--;
    unsigned char *copy = aligned_alloc(4096, l.rig.layers[last].bytes);
    assert_non_null(copy);
    memcpy(copy, l.rig.params[last], l.rig.layers[last].bytes);
    l.params[last] = fake_math_device(copy);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_part(&l, p, l.workspace, 0, half), SY_OK);
        assert_int_equal(run_part(&l, p, l.workspace, half, 0), SY_OK);
    }
    counted(3, 3, 8);
    sy_cuda_engine.program_destroy(p);
    free(copy);
    life_finish(&l);
    sy_cuda_engine.detach();
}

/* Two groups that begin alike, of which one has a layer more, and no parameter more: each has a graph of its own. */
static void test_groups_of_other_lengths(void **state)
{
    (void)state;
    struct life l;
    int n = 0;
    beside_attach();
    life_init(&l, attention_graph(), 1);
    struct sy_program *p = new_program(&l, 1);
    while (n < l.rig.n_layers && l.rig.graph->nodes[l.rig.layers[n].node].op != SY_OP_ATTENTION)
        n++;
    assert_true(n < l.rig.n_layers && l.rig.layers[n].bytes == 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_part(&l, p, l.workspace, 0, n), SY_OK);
    counted(1, 1, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_part(&l, p, l.workspace, 0, n + 1), SY_OK);
    counted(2, 2, 2);
    sy_cuda_engine.program_destroy(p);
    life_finish(&l);
    sy_cuda_engine.detach();
}

/* What could not be recorded is not recorded again: it runs step by step from then on, wherever its memory lies. */
static void test_what_cannot_be_recorded_is_left(void **state)
{
    int n_left = 0;
    bool failed = true;
    (void)state;
    for (uint64_t k = 1; failed; k++) {
        struct life l;
        beside_attach();
        life_init(&l, windows_graph(), 1);
        struct sy_program *p = new_program(&l, 1);
        assert_int_equal(run(&l, p), SY_OK);
        fake_math_fail(k);
        int status = run(&l, p);
        failed = fake_math_get_counts().calls >= k;
        fake_math_fail(0);
        if (failed && status == SY_OK) {
            unsigned char *other = aligned_alloc(4096, l.workspace_bytes);
            assert_non_null(other);
            for (int i = 0; i < 3; i++)
                assert_int_equal(run(&l, p), SY_OK);
            for (int i = 0; i < 3; i++)
                assert_int_equal(run_part(&l, p, other, 0, 0), SY_OK);
            counted(1 + 3 + 3, 1, 0);
            free(other);
            n_left++;
        }
        sy_cuda_engine.program_destroy(p);
        life_finish(&l);
        sy_cuda_engine.detach();
    }
    assert_true(n_left > 3);
}

/* ---- failing calls ------------------------------------------------------------------------------------ */

/* One life: attach, a program, three runs (eager, captured, launched). The first failure ends it. */
static int live(struct life *l)
{
    struct sy_program *p = NULL;
    int status = sy_cuda_engine.attach(NULL, NULL);
    if (status == SY_OK)
        status = sy_cuda_engine.program_create(l->rig.graph, l->rig.layers, l->rig.n_layers, 2, &p);
    bool made = status == SY_OK;
    for (int i = 0; i < 3 && status == SY_OK; i++)
        status = run(l, p);
    if (made)
        sy_cuda_engine.program_destroy(p);
    return status;
}

static void fails_at_each_call(struct sy_graph *g)
{
    struct life l;
    int n_failed = 0, n_passed_over = 0;
    bool failed = true;
    sy_cuda_engine_use(&fake_math);
    life_init(&l, g, 2);
    for (uint64_t k = 1; failed && k < MAX_CALLS; k++) {
        fake_math_fail(k);
        int status = live(&l);
        struct fake_math_counts c = fake_math_get_counts();
        failed = c.calls >= k;
        if (status ==
            SY_OK) { /* at recording, which is done without then; or there was no call left to fail */
            n_passed_over += failed;
        } else {
            assert_int_equal(status, SY_EDEVICE);
            if (!strstr(sy_error_text(), "fake ") || !strstr(sy_error_text(), " fails"))
                fail_msg("call %d: \"%s\" does not name what failed", (int)k, sy_error_text());
            n_failed++;
        }
        assert_int_equal(c.plans, 0);
        assert_int_equal(c.host_blocks, 0);
        assert_int_equal(c.graphs, 0); /* with the program */
        sy_cuda_engine.detach();
        assert_int_equal(fake_math_get_counts().maths, 0);
    }
    assert_false(failed);
    assert_true(n_failed > 20 && n_passed_over > 5 && n_passed_over < n_failed);
    fake_math_fail(0);
    life_finish(&l);
}

static void test_each_failing_call_is_named_and_leaves_nothing(void **state)
{
    (void)state;
    fails_at_each_call(windows_graph());
    fails_at_each_call(attention_graph());
    struct sy_graph *g = attention_graph();
    g->precision = SY_PRECISION_BF16;
    fails_at_each_call(g);
}

/* What fails once is no fault of what comes after. */
static void test_the_run_after_a_failure_is_right(void **state)
{
    (void)state;
    struct life l;
    beside_attach();
    life_init(&l, windows_graph(), 1);
    struct sy_program *p = new_program(&l, 1);
    for (uint64_t i = 0; i < l.in.bytes[0] / sizeof(float); i++)
        ((float *)l.in.data[0])[i] = (float)gb_uniform(&seed, -1, 1);
    assert_int_equal(run(&l, p), SY_OK);
    float want[10];
    memcpy(want, l.out.data[0], sizeof want);
    for (uint64_t k = 1; k < 12; k++) {
        fake_math_fail(k);
        (void)run(&l, p);
        fake_math_fail(0);
        memset(l.out.data[0], 0xff, sizeof want);
        assert_int_equal(run(&l, p), SY_OK);
        assert_memory_equal(l.out.data[0], want, sizeof want);
    }
    sy_cuda_engine.program_destroy(p);
    life_finish(&l);
    sy_cuda_engine.detach();
}

/* ---- float16 and bfloat16 ----------------------------------------------------------------------------- */

/* Against the host engine in float32, and in bf16 where the CPU has it: both round, not at all the same places. */
static void beside_the_host(struct sy_graph *g, enum sy_precision precision, double tolerance)
{
    struct engine_rig rig;
    struct engine_case c = {.graph = g, .int_high = 39};
    struct rig_tensors in, want, got;
    rig_engine = beside_host;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 3, 0, &in);
    rig_fill(&rig, &c, &in, &seed);
    rig_close(&rig);
    g->precision = precision;
    beside_results(&beside_cuda, g, &in, &got);
    bool has_it = sy_host_engine.check_precision(precision) == SY_OK;
    for (int narrow = 0; narrow <= has_it; narrow++) {
        g->precision = narrow ? precision : SY_PRECISION_F32;
        beside_results(&beside_host, g, &in, &want);
        double off = beside_distance(&want, &got);
        if (!(off <= tolerance))
            fail_msg("%s: %g from the host engine in %s", g->name, off,
                     sy_precision_name(g->precision));
        if (!narrow) /* something was rounded */
            assert_true(off > tolerance / 300);
        rig_drop(&want);
    }
    rig_drop(&in);
    rig_drop(&got);
    sy_graph_free(g);
}

/* Weights that are computed are float32, and the product too; the bias is packed as other biases are. */
static struct sy_graph *computed_weights_graph(void)
{
    struct sy_graph *g = gb_new("computed weights");
    int x = gb_input(g, DIMS(1, 3, 7, 7)), b = gb_constant(g, "b", DIMS(8), &seed, -0.3, 0.3);
    int mean = gb_node(g, SY_OP_REDUCE_MEAN, INPUTS(x), DIMS(1, 1, 1, 1));
    gb_ints(g, "axes", DIMS(0, 1, 2, 3));
    gb_int(g, "keepdims", 1);
    gb_fixed(g, mean);
    int w = gb_node(g, SY_OP_ADD, INPUTS(weight(g, DIMS(8, 3, 3, 3), 27), mean), DIMS(8, 3, 3, 3));
    gb_fixed(g, w);
    gb_output(g, gb_node(g, SY_OP_CONV, INPUTS(x, w, b), DIMS(1, 8, 5, 5)));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "strides", DIMS(1, 1));
    gb_ints(g, "pads", DIMS(0, 0, 0, 0));
    return g;
}

static void test_narrow_beside_the_host_engine(void **state)
{
    (void)state;
    beside_attach();
    for (int i = 0; i < 4; i++) {
        beside_the_host(windows_graph(), SY_PRECISION_BF16, 0.01);
        beside_the_host(attention_graph(), SY_PRECISION_BF16, 0.015);
        beside_the_host(computed_weights_graph(), SY_PRECISION_BF16, 0.01);
        beside_the_host(windows_graph(), SY_PRECISION_F16, 0.00125);
        beside_the_host(attention_graph(), SY_PRECISION_F16, 0.002);
    }
    sy_cuda_engine.detach();
}

/* Which bytes are halved does not depend on the narrow type. */
static uint64_t packed_bytes(enum sy_precision precision)
{
    struct sy_graph *g = attention_graph();
    g->precision = precision;
    rig_engine = beside_cuda;
    return rig_packed_bytes(g);
}

static void test_half_the_bytes(void **state)
{
    (void)state;
    double ratio = (double)packed_bytes(SY_PRECISION_BF16) / (double)packed_bytes(SY_PRECISION_F32);
    assert_true(ratio > 0.49 && ratio < 0.54); /* biases and scales stay as they are */
    assert_int_equal(packed_bytes(SY_PRECISION_BF16), packed_bytes(SY_PRECISION_F16));
}

/* Weights that were stored narrow are packed with the very same bits. */
static void test_narrow_weights_keep_their_bits(void **state)
{
    (void)state;
    static const enum sy_dtype types[] = {SY_DTYPE_BF16, SY_DTYPE_F16};
    static const enum sy_precision precisions[] = {SY_PRECISION_BF16, SY_PRECISION_F16};
    for (int i = 0; i < 2; i++) {
        enum { N = 16 * 24 };
        uint16_t stored[N];
        struct engine_rig rig;
        struct sy_graph *g = gb_new("stored narrow");
        int x = gb_input(g, DIMS(1, 16)), w = gb_constant(g, "w", DIMS(16, 24), &seed, -1, 1);
        gb_type(g, x, types[i]);
        gb_type(g, w, types[i]);
        for (int k = 0; k < N; k++) {
            float v = ((float *)g->tensors[w].data)[k];
            stored[k] = i ? sy_float_to_half(v) : sy_float_to_bf16(v);
        }
        memcpy(g->tensors[w].data, stored, sizeof stored);
        g->tensors[w].data_bytes = sizeof stored;
        int y = gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, 24));
        gb_type(g, y, types[i]);
        gb_output(g, y);
        g->precision = precisions[i];
        rig_engine = beside_cuda;
        if (rig_open(&rig, g, true) < 0)
            fail_msg("%s", sy_error_text());
        int product = 0;
        while (rig.graph->nodes[rig.layers[product].node].op != SY_OP_MATMUL)
            product++;
        assert_int_equal(rig.layers[product].params[0].bytes, sizeof stored);
        assert_memory_equal(rig.packed[product], stored, sizeof stored);
        rig_close(&rig);
        sy_graph_free(g);
    }
}

static void test_a_weight_beyond_float16_is_refused_by_name(void **state)
{
    (void)state;
    struct engine_rig rig;
    struct sy_graph *g = gb_new("large weight");
    int x = gb_input(g, DIMS(1, 16)), w = gb_constant(g, "w", DIMS(16, 24), &seed, -1, 1);
    ((float *)g->tensors[w].data)[77] = 70000;
    gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, 24)));
    rig_engine = beside_cuda;
    g->precision = SY_PRECISION_BF16;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    rig_close(&rig);
    g->precision = SY_PRECISION_F16;
    assert_int_equal(rig_open(&rig, g, true), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), g->nodes[0].name));
    assert_non_null(strstr(sy_error_text(), "70000"));
    rig_close(&rig);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_once_per_model_and_batch),
        cmocka_unit_test(test_captured_again_when_the_placement_changed),
        cmocka_unit_test(test_groups_are_captured_apart),
        cmocka_unit_test(test_groups_of_other_lengths),
        cmocka_unit_test(test_what_cannot_be_recorded_is_left),
        cmocka_unit_test(test_each_failing_call_is_named_and_leaves_nothing),
        cmocka_unit_test(test_the_run_after_a_failure_is_right),
        cmocka_unit_test(test_narrow_beside_the_host_engine),
        cmocka_unit_test(test_half_the_bytes),
        cmocka_unit_test(test_narrow_weights_keep_their_bits),
        cmocka_unit_test(test_a_weight_beyond_float16_is_refused_by_name),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which pools and recurrent layers a library is asked for, what is measured of it and kept, and when our own kernels are taken all the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/beside_host.h"
#include "tests/on_cpu/fake_math.h"
#include "workers/cuda/math/library_pool.h"
#include "workers/cuda/math/library_recurrence.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/trial_data.h"

#define MAX_CALLS 400 /* of the table in one life of these graphs */

static uint64_t seed;

/* ---- what cuDNN has ----------------------------------------------------------------------------------- */

/* 3x3 over 8x8, stride 2, padding 1, channels last. */
static struct sy_math_pool usual_pool(void)
{
    return (struct sy_math_pool){.max = true,
                                 .batch = 2,
                                 .channels = 5,
                                 .in = {8, 8, 1},
                                 .out = {4, 4, 1},
                                 .kernel = {3, 3, 1},
                                 .strides = {2, 2, 1},
                                 .dilations = {1, 1, 1},
                                 .pads = {1, 1, 0},
                                 .in_strides = {320, 1, 40, 5, 0},
                                 .out_strides = {80, 1, 20, 5, 0}};
}

static void test_what_cudnn_has(void **state)
{
    (void)state;
    struct sy_library_pool s;
    struct sy_math_pool p = usual_pool();
    assert_true(sy_library_pool_of(&p, &s));
    assert_int_equal(s.spatial, 2);
    assert_memory_equal(s.x_dims, ((int[]){2, 5, 8, 8}), 4 * sizeof(int));
    assert_memory_equal(s.x_strides, ((int[]){320, 1, 40, 5}), 4 * sizeof(int));
    assert_memory_equal(s.y_strides, ((int[]){80, 1, 20, 5}), 4 * sizeof(int));
    assert_memory_equal(s.window, ((int[]){3, 3}), 2 * sizeof(int));
    assert_memory_equal(s.pads, ((int[]){1, 1}), 2 * sizeof(int));
    assert_memory_equal(s.strides, ((int[]){2, 2}), 2 * sizeof(int));
    memcpy(p.in_strides, ((int64_t[]){320, 64, 8, 1, 0}), sizeof p.in_strides); /* row-major */
    memcpy(p.out_strides, ((int64_t[]){80, 16, 4, 1, 0}), sizeof p.out_strides);
    assert_true(sy_library_pool_of(&p, &s));
    assert_memory_equal(s.x_strides, ((int[]){320, 64, 8, 1}), 4 * sizeof(int));
    memcpy(p.kernel, ((int64_t[]){8, 8, 1}), sizeof p.kernel); /* all of it */
    memset(p.pads, 0, sizeof p.pads);
    memcpy(p.out, ((int64_t[]){1, 1, 1}), sizeof p.out);
    memcpy(p.out_strides, ((int64_t[]){5, 1, 1, 1, 0}), sizeof p.out_strides);
    assert_true(sy_library_pool_of(&p, &s));
    assert_memory_equal(s.y_strides, ((int[]){5, 1, 1, 1}), 4 * sizeof(int));
    memcpy(p.in_strides, ((int64_t[]){320, 1, 40, 5, 0}), sizeof p.in_strides);
    assert_true(sy_library_pool_of(&p, &s)); /* one element lies either way: as those of x */
    assert_memory_equal(s.y_strides, ((int[]){5, 1, 5, 5}), 4 * sizeof(int));
}

static void test_what_cudnn_has_not(void **state)
{
    (void)state;
    struct sy_library_pool s;
    struct sy_math_pool p = usual_pool();
    p.dilations[0] = 2;
    assert_false(sy_library_pool_of(&p, &s));
    p = usual_pool(); /* a result more than fits between equal paddings: ceil_mode, or more behind */
    p.out[1] = 5;
    assert_false(sy_library_pool_of(&p, &s));
    p = usual_pool(); /* windows that lie in the padding */
    p.pads[0] = 3;
    p.out[0] = 6;
    assert_false(sy_library_pool_of(&p, &s));
    p = usual_pool(); /* rows with a gap */
    p.in_strides[2] = 48;
    assert_false(sy_library_pool_of(&p, &s));
    p = usual_pool();
    p.batch = 1ll << 31;
    assert_false(sy_library_pool_of(&p, &s));
}

/* Words differ wherever pools do, but for the batch size in its word only. */
static void test_words(void **state)
{
    (void)state;
    struct sy_library_pool a, b;
    struct sy_math_pool p = usual_pool();
    assert_true(sy_library_pool_of(&p, &a));
    p.batch = 7;
    assert_true(sy_library_pool_of(&p, &b));
    assert_int_equal(b.words[SY_LIBRARY_BATCH_WORD], 7);
    b.words[SY_LIBRARY_BATCH_WORD] = a.words[SY_LIBRARY_BATCH_WORD];
    assert_memory_equal(a.words, b.words, sizeof a.words);
    p.max = false;
    assert_true(sy_library_pool_of(&p, &b));
    assert_int_not_equal(sy_choices_key(a.words, SY_CHOICE_WORDS),
                         sy_choices_key(b.words, SY_CHOICE_WORDS));
    p.count_padding = true;
    assert_true(sy_library_pool_of(&p, &a));
    assert_int_not_equal(sy_choices_key(a.words, SY_CHOICE_WORDS),
                         sy_choices_key(b.words, SY_CHOICE_WORDS));
}

/* Of an LSTM in both directions: each gate of ONNX's i o f c where cuDNN's i f c o lie, W's biases apart from R's. */
static void test_gates_in_the_librarys_order(void **state)
{
    (void)state;
    enum { HIDDEN = 3, INPUT = 2 };
    struct sy_math_recurrence r = {.op = SY_OP_LSTM,
                                   .has_bias = true,
                                   .hidden = HIDDEN,
                                   .input = INPUT,
                                   .gates = 4,
                                   .directions = 2};
    struct sy_library_places places;
    struct sy_library_parts parts;
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 8; k++) {
            places.matrix[d][k] = 100 * (8 * d + k);
            places.bias[d][k] = 100 * (8 * d + k) + 50;
        }
    sy_library_recurrence_parts(&r, &places, &parts);
    assert_int_equal(parts.n, 32);
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 8; k++) {
            static const int onnx_of[] = {0 /* i */, 2 /* f */, 3 /* c */, 1 /* o */};
            const struct sy_library_part *matrix = &parts.list[2 * (8 * d + k)], *bias = matrix + 1;
            int columns = k < 4 ? INPUT : HIDDEN, gate = onnx_of[k % 4];
            assert_int_equal(matrix->role, k < 4 ? SY_RECURRENCE_W : SY_RECURRENCE_R);
            assert_int_equal(matrix->to, places.matrix[d][k]);
            assert_int_equal(matrix->from, (4 * d + gate) * HIDDEN * columns);
            assert_int_equal(matrix->n, HIDDEN * columns);
            assert_int_equal(bias->role, SY_RECURRENCE_BIAS);
            assert_int_equal(bias->to, places.bias[d][k]);
            assert_int_equal(bias->from, (8 * d + (k < 4 ? 0 : 4) + gate) * HIDDEN);
            assert_int_equal(bias->n, HIDDEN);
        }
}

static void test_room_in_the_scratch(void **state)
{
    (void)state;
    struct sy_math_recurrence r = {
        .has_y = true, .steps = 10, .batch = 2, .hidden = 8, .directions = 1};
    struct sy_library_room room;
    sy_library_recurrence_room(&r, 1000, 77, &room);
    assert_false(room.keeps_y);
    assert_int_equal(room.work, 1024);
    assert_int_equal(room.bytes, 1024 + 77);
    r.directions = 2; /* y as the library writes it has another order */
    sy_library_recurrence_room(&r, 1000, 77, &room);
    assert_true(room.keeps_y);
    assert_int_equal(room.work, 1024 + 10 * 2 * 2 * 8 * sizeof(float));
    r.directions = 1; /* it writes y in any case */
    r.has_y = false;
    sy_library_recurrence_room(&r, 1000, 77, &room);
    assert_true(room.keeps_y);
}

/* ---- numbers ------------------------------------------------------------------------------------------ */

static void test_trial_numbers(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float a[N], b[N];
    int nans = 0, infinities = 0, finite = 0;
    double off;
    sy_trial_fill(SY_DTYPE_F32, 0.5f, true, 7, N, a);
    for (int i = 0; i < N; i++) {
        if (i < N / 8)
            assert_true(isinf(a[i]) && a[i] < 0);
        nans += isnan(a[i]);
        infinities += isinf(a[i]) && a[i] > 0;
        finite += isfinite(a[i]);
        assert_true(!isfinite(a[i]) || fabsf(a[i]) <= 0.5f);
    }
    assert_true(nans > 0 && infinities > 0 && finite > N / 2);
    memcpy(b, a, sizeof b);
    assert_true(sy_trial_agrees(SY_DTYPE_F32, 0, N, a, b, &off) && off == 0);
    int at = N - 1;
    while (!isfinite(a[at]))
        at--;
    b[at] += 1e-3f;
    assert_false(sy_trial_agrees(SY_DTYPE_F32, 0, N, a, b, &off));
    assert_true(sy_trial_agrees(SY_DTYPE_F32, 2e-3, N, a, b, &off) && off > 0);
    b[at] = NAN;
    assert_false(sy_trial_agrees(SY_DTYPE_F32, 1e9, N, a, b, &off));
    const uint16_t half[2] = {sy_float_to_half(1), sy_float_to_half(1.001f)};
    assert_true(sy_trial_agrees(SY_DTYPE_F16, 0x1p-10, 1, half, half + 1, &off) && off > 0);
}

/* ---- programs ----------------------------------------------------------------------------------------- */

/* What an LSTM of 4 makes of rows that lie one behind the other; with lengths, as no library computes it. */
static int add_lstm(struct sy_graph *g, int x, int64_t steps, int64_t input, bool lengths)
{
    int w = gb_constant(g, "w", DIMS(2, 16, input), &seed, -1, 1),
        r = gb_constant(g, "r", DIMS(2, 16, 4), &seed, -1, 1),
        b = gb_constant(g, "b", DIMS(2, 32), &seed, -1, 1), n = -1;
    if (lengths)
        n = gb_input_of(g, SY_DTYPE_I32, DIMS(1));
    x = gb_node(g, SY_OP_LSTM, INPUTS(x, w, r, b, n), DIMS(1, steps, 2, 4));
    gb_int(g, "hidden_size", 4);
    gb_int(g, "layout", 1);
    gb_string(g, "direction", "bidirectional");
    return x;
}

/* Two pools and an LSTM that cuDNN has, behind a convolution, a pool and an LSTM that it has not. */
static struct sy_graph *candidates_graph(void)
{
    struct sy_graph *g = gb_new("candidates");
    int x = gb_input(g, DIMS(1, 3, 9, 9)), w = gb_constant(g, "w", DIMS(6, 3, 1, 1), &seed, -1, 1);
    x = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, 6, 9, 9));
    gb_ints(g, "kernel_shape", DIMS(1, 1));
    x = gb_node(g, SY_OP_MAX_POOL, INPUTS(x), DIMS(1, 6, 7, 7)); /* dilated */
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    gb_ints(g, "dilations", DIMS(2, 2));
    x = gb_node(g, SY_OP_MAX_POOL, INPUTS(x), DIMS(1, 6, 4, 4));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "strides", DIMS(2, 2));
    gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    x = gb_node(g, SY_OP_AVERAGE_POOL, INPUTS(x), DIMS(1, 6, 3, 3));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    x = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, 6, 9));
    x = add_lstm(g, x, 6, 9, false);
    x = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(1, 6, 8));
    gb_output(g, add_lstm(g, x, 6, 8, true));
    return g;
}

#define N_CANDIDATES 3 /* of candidates_graph */
#define N_POOLS      2 /* of them */

/* How often the library runs in one run of a program at batch size 3, made as the engine stands. */
static int library_runs(const struct sy_graph *g)
{
    struct engine_rig rig;
    struct engine_case c = {0};
    struct rig_tensors in, out;
    rig_engine = beside_cuda;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    struct sy_program *p = rig_program(&rig, 3);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 3, 0, &in);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 3, 0, &out);
    rig_fill(&rig, &c, &in, &seed);
    int before = fake_library_state.runs;
    assert_int_equal(rig_run(&rig, p, &in, &out, 0xff, NULL), SY_OK);
    int runs = fake_library_state.runs - before;
    sy_cuda_engine.program_destroy(p);
    assert_int_equal(fake_library_state.plans, 0);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    return runs;
}

/* What is kept of a tuned program. */
static char *measured(const struct sy_graph *g)
{
    char *text;
    sy_cuda_engine.tune(true);
    (void)library_runs(g);
    sy_cuda_engine.tune(false);
    assert_int_equal(sy_cuda_engine.choices(&text), SY_OK);
    return text;
}

static void begin(void)
{
    fake_library_reset();
    beside_attach();
}

/* What a library is asked for, or not, of one layer. */
static int layer_runs(enum sy_op op, int64_t gates, const char *direction, bool bias,
                      const char *name, int64_t value)
{
    int64_t d = strcmp(direction, "bidirectional") ? 1 : 2;
    struct sy_graph *g = gb_new(direction);
    int x = gb_input(g, DIMS(1, 5, 6)), b = -1;
    int w = gb_constant(g, "w", DIMS(d, gates * 7, 6), &seed, -1, 1),
        r = gb_constant(g, "r", DIMS(d, gates * 7, 7), &seed, -1, 1);
    if (bias)
        b = gb_constant(g, "b", DIMS(d, 2 * gates * 7), &seed, -1, 1);
    gb_output(g, gb_node(g, op, INPUTS(x, w, r, b), DIMS(1, 5, d, 7)));
    gb_int(g, "hidden_size", 7);
    gb_int(g, "layout", 1);
    gb_string(g, "direction", direction);
    if (name && value)
        gb_int(g, name, value);
    else if (name)
        gb_string(g, "activations", name);
    begin();
    free(measured(g));
    int runs = library_runs(g);
    sy_cuda_engine.detach();
    sy_graph_free(g);
    return runs;
}

/* Taken: it gave what our own kernels give. */
static void test_recurrent_layers_that_cudnn_has(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *way = i & 1 ? "bidirectional" : "forward";
        bool bias = i & 2;
        assert_int_equal(layer_runs(SY_OP_LSTM, 4, way, bias, NULL, 0), 1);
        assert_int_equal(layer_runs(SY_OP_GRU, 3, way, bias, "linear_before_reset", 1), 1);
        assert_int_equal(layer_runs(SY_OP_RNN, 1, way, bias, NULL, 0), 1);
        assert_int_equal(layer_runs(SY_OP_RNN, 1, way, bias, i & 1 ? "Relu,Relu" : "Relu", 0), 1);
    }
}

static void test_recurrent_layers_that_cudnn_has_not(void **state)
{
    (void)state;
    assert_int_equal(layer_runs(SY_OP_LSTM, 4, "reverse", true, NULL, 0), 0);
    assert_int_equal(layer_runs(SY_OP_GRU, 3, "forward", true, NULL, 0), 0); /* resets in front */
    assert_int_equal(layer_runs(SY_OP_LSTM, 4, "forward", true, "input_forget", 1), 0);
    assert_int_equal(layer_runs(SY_OP_LSTM, 4, "forward", true, "HardSigmoid,Tanh,Tanh", 0), 0);
    assert_int_equal(layer_runs(SY_OP_RNN, 1, "bidirectional", true, "Relu,Tanh", 0), 0);
}

static void test_ours_unless_measured(void **state)
{
    (void)state;
    struct sy_graph *g = candidates_graph();
    begin();
    assert_int_equal(library_runs(g), 0);
    char *text = measured(g);
    assert_int_equal(library_runs(g), N_CANDIDATES);
    sy_cuda_engine.detach();
    begin(); /* another process */
    assert_int_equal(library_runs(g), 0);
    assert_int_equal(sy_cuda_engine.use_choices(text), SY_OK);
    assert_int_equal(library_runs(g), N_CANDIDATES);
    sy_cuda_engine.detach();
    begin(); /* a package that was measured before there were candidates */
    *(strchr(text, '\n') + 1) = 0;
    assert_int_equal(sy_cuda_engine.use_choices(text), SY_OK);
    assert_int_equal(library_runs(g), 0);
    assert_int_equal(sy_cuda_engine.use_choices("another device\n"), SY_OK); /* ignored */
    assert_int_equal(library_runs(g), 0);
    sy_cuda_engine.detach();
    free(text);
    sy_graph_free(g);
}

static void test_what_is_slow_or_wrong_is_not_taken(void **state)
{
    (void)state;
    struct sy_graph *g = candidates_graph();
    for (int i = 0; i < 3; i++) {
        begin();
        fake_library_state.is_slow = i == 0;
        fake_library_state.is_wrong = i == 1;
        fake_library_state.has_no_memory = i == 2;
        free(measured(g));
        assert_int_equal(library_runs(g), 0);
        sy_cuda_engine.detach();
    }
    begin(); /* slower, if not than ours was on a device that had rested */
    struct sy_graph *one = gb_new("one");
    int x = gb_input(one, DIMS(1, 3, 9, 9));
    gb_output(one, gb_node(one, SY_OP_GLOBAL_MAX_POOL, INPUTS(x), DIMS(1, 3, 1, 1)));
    fake_library_state.is_slow = fake_library_state.is_at_rest = true;
    free(measured(one));
    assert_int_equal(library_runs(one), 0);
    sy_cuda_engine.detach();
    sy_graph_free(one);
    begin(); /* what fails when it is first run */
    free(measured(g));
    fake_library_state.fails_at_first = true;
    assert_int_equal(library_runs(g), 0);
    assert_int_equal(library_runs(g), 0);
    sy_cuda_engine.detach();
    begin(); /* once taken, it stays: memory for its first run does not decide */
    free(measured(g));
    fake_library_state.has_no_memory = true;
    assert_int_equal(library_runs(g), N_CANDIDATES);
    sy_cuda_engine.detach();
    sy_graph_free(g);
}

/* Windows so large that each holds some of the trial's NaN and infinities, whose mean says nothing of the sum. */
static void test_what_is_wrong_in_large_windows_is_not_taken(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("large windows");
    int x = gb_input(g, DIMS(1, 5, 60, 60)),
        w = gb_constant(g, "w", DIMS(6, 5, 1, 1), &seed, -1, 1);
    x = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, 6, 60, 60));
    gb_ints(g, "kernel_shape", DIMS(1, 1));
    gb_output(g, gb_node(g, SY_OP_GLOBAL_AVERAGE_POOL, INPUTS(x), DIMS(1, 6, 1, 1)));
    for (int wrong = 0; wrong < 2; wrong++) {
        begin();
        fake_library_state.is_wrong = wrong;
        free(measured(g));
        assert_int_equal(library_runs(g), !wrong);
        sy_cuda_engine.detach();
    }
    sy_graph_free(g);
}

/* For tests on a device: whatever agrees. */
static void test_preferred(void **state)
{
    (void)state;
    struct sy_graph *g = candidates_graph();
    assert_int_equal(setenv("SY_CUDA_PREFER_CUDNN", "1", 1), 0);
    for (int wrong = 0; wrong < 2; wrong++) {
        begin();
        fake_library_state.is_slow = true;
        fake_library_state.is_wrong = wrong;
        free(measured(g));
        assert_int_equal(library_runs(g), wrong ? 0 : N_CANDIDATES);
        sy_cuda_engine.detach();
    }
    assert_int_equal(unsetenv("SY_CUDA_PREFER_CUDNN"), 0);
    sy_graph_free(g);
}

/* Neither tried nor taken; set again as it was, what was measured counts. */
static void test_left_out(void **state)
{
    (void)state;
    struct sy_graph *g = candidates_graph();
    begin();
    free(measured(g));
    assert_int_equal(setenv("SY_CUDA_PREFER_CUDNN", "0", 1), 0);
    assert_int_equal(library_runs(g), 0);
    int runs = fake_library_state.runs;
    free(measured(g));
    assert_int_equal(fake_library_state.runs, runs);
    assert_int_equal(unsetenv("SY_CUDA_PREFER_CUDNN"), 0);
    assert_int_equal(library_runs(g), N_CANDIDATES);
    sy_cuda_engine.detach();
    sy_graph_free(g);
}

static void test_the_same_workspace_both_ways(void **state)
{
    (void)state;
    struct sy_graph *g = candidates_graph();
    uint64_t bytes[2];
    begin();
    for (int tuned = 0; tuned < 2; tuned++) { /* E4 */
        struct engine_rig rig;
        sy_cuda_engine.tune(tuned);
        rig_engine = beside_cuda;
        assert_int_equal(rig_open(&rig, g, true), SY_OK);
        struct sy_program *p = rig_program(&rig, 2);
        bytes[tuned] = sy_cuda_engine.program_workspace_bytes(p);
        sy_cuda_engine.program_destroy(p);
        rig_close(&rig);
    }
    assert_int_equal(bytes[0], bytes[1]);
    sy_cuda_engine.tune(false);
    sy_cuda_engine.detach();
    sy_graph_free(g);
}

/* In float16 and bfloat16 the library reads and writes those; it would keep states so, which ours does not. */
static void test_narrow(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sy_graph *g = candidates_graph();
        g->precision = i ? SY_PRECISION_BF16 : SY_PRECISION_F16;
        begin();
        free(measured(g));
        assert_int_equal(library_runs(g), N_POOLS);
        sy_cuda_engine.detach();
        sy_graph_free(g);
    }
}

/* ---- failing calls ------------------------------------------------------------------------------------ */

/* Attach, measure, one program that takes what was measured; the first failure ends it. */
static int live(const struct engine_rig *rig)
{
    struct sy_program *p = NULL;
    int status = sy_cuda_engine.attach(NULL, NULL);
    for (int tuned = 1; tuned >= 0 && status == SY_OK; tuned--) {
        sy_cuda_engine.tune(tuned);
        status = sy_cuda_engine.program_create(rig->graph, rig->layers, rig->n_layers, 2, &p);
        if (status == SY_OK)
            sy_cuda_engine.program_destroy(p);
    }
    return status;
}

static void test_each_failing_call_is_named_and_leaves_nothing(void **state)
{
    (void)state;
    struct sy_graph *g = candidates_graph();
    struct engine_rig rig;
    int n_failed = 0;
    bool failed = true;
    sy_cuda_engine_use(&fake_math);
    rig_engine = beside_cuda;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    for (uint64_t k = 1; failed && k < MAX_CALLS; k++) {
        fake_library_reset();
        fake_math_fail(k);
        int status = live(&rig);
        struct fake_math_counts c = fake_math_get_counts();
        failed = c.calls >= k;
        if (failed) {
            assert_int_equal(status, SY_EDEVICE);
            if (!strstr(sy_error_text(), "fake ") || !strstr(sy_error_text(), " fails"))
                fail_msg("call %d: \"%s\" does not name what failed", (int)k, sy_error_text());
            if (strstr(sy_error_text(), "fake time ") &&
                !strstr(sy_error_text(), "SY_CUDA_PREFER_CUDNN=0"))
                fail_msg("call %d: \"%s\" does not say what to try", (int)k, sy_error_text());
            n_failed++;
        }
        assert_int_equal(c.plans, 0);
        assert_int_equal(c.host_blocks, 0);
        assert_int_equal(c.graphs, 0);
        assert_int_equal(fake_library_state.plans, 0);
        sy_cuda_engine.detach();
    }
    assert_false(failed);
    assert_true(n_failed > 20);
    fake_math_fail(0);
    rig_close(&rig);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cudnn_has),
        cmocka_unit_test(test_what_cudnn_has_not),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_gates_in_the_librarys_order),
        cmocka_unit_test(test_room_in_the_scratch),
        cmocka_unit_test(test_trial_numbers),
        cmocka_unit_test(test_recurrent_layers_that_cudnn_has),
        cmocka_unit_test(test_recurrent_layers_that_cudnn_has_not),
        cmocka_unit_test(test_ours_unless_measured),
        cmocka_unit_test(test_what_is_slow_or_wrong_is_not_taken),
        cmocka_unit_test(test_what_is_wrong_in_large_windows_is_not_taken),
        cmocka_unit_test(test_preferred),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_the_same_workspace_both_ways),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_each_failing_call_is_named_and_leaves_nothing),
    };
    seed = rig_start();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_library_reset();
    return failed;
}

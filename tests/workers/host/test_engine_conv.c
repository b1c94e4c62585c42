/* The host engine's convolutions and pools: random shapes and attributes against their definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

struct window {
    int spatial;
    bool weights_computed;
    int64_t in_channels, out_channels, group;
    int64_t size[3], kernel[3], strides[3], dilations[3], pads[6];
    int64_t out[3];
};

/* Sizes of the output as ONNX defines them; false if there would be none. */
static bool fit(struct window *w, bool ceil_mode)
{
    for (int d = 0; d < w->spatial; d++) {
        int64_t extent = (w->kernel[d] - 1) * w->dilations[d] + 1;
        int64_t room = w->size[d] + w->pads[d] + w->pads[w->spatial + d] - extent;
        if (room < 0)
            return false;
        w->out[d] = room / w->strides[d] + 1;
        /* One window more over the rest, if it begins inside the input or the padding before it. */
        if (ceil_mode && room % w->strides[d] &&
            w->out[d] * w->strides[d] < w->size[d] + w->pads[d])
            w->out[d]++;
    }
    return true;
}

static void window_attributes(struct sy_graph *g, const struct window *w)
{
    gb_ints(g, "kernel_shape", w->spatial, w->kernel);
    gb_ints(g, "strides", w->spatial, w->strides);
    gb_ints(g, "dilations", w->spatial, w->dilations);
    gb_ints(g, "pads", 2 * w->spatial, w->pads);
}

/* [batch, channels, spatial ...] */
static int with_channels(const struct window *w, int64_t channels, const int64_t *spatial,
                         int64_t *dims)
{
    dims[0] = 1;
    dims[1] = channels;
    for (int d = 0; d < w->spatial; d++)
        dims[2 + d] = spatial[d];
    return 2 + w->spatial;
}

static int add_conv(struct sy_graph *g, const struct window *w, int x, bool bias)
{
    int64_t dims[5];
    int n = with_channels(w, w->in_channels / w->group, w->kernel, dims);
    dims[0] = w->out_channels;
    int inputs[3] = {x, gb_constant(g, "w", n, dims, &seed, -0.5, 0.5), -1};
    if (w->weights_computed)
        inputs[1] = gb_doubled(g, inputs[1]);
    if (bias)
        inputs[2] = gb_constant(g, "b", 1, &w->out_channels, &seed, -0.5, 0.5);
    n = with_channels(w, w->out_channels, w->out, dims);
    int y = gb_node(g, SY_OP_CONV, bias ? 3 : 2, inputs, n, dims);
    window_attributes(g, w);
    gb_int(g, "group", w->group);
    return y;
}

static struct sy_graph *conv_graph(const struct window *w, bool bias)
{
    static char name[160];
    int64_t dims[5];
    snprintf(name, sizeof name, "conv %lld->%lld g%lld size %lldx%lld k %lldx%lld s %lld d %lld",
             (long long)w->in_channels, (long long)w->out_channels, (long long)w->group,
             (long long)w->size[0], (long long)w->size[1], (long long)w->kernel[0],
             (long long)w->kernel[1], (long long)w->strides[0], (long long)w->dilations[0]);
    struct sy_graph *g = gb_new(name);
    int n = with_channels(w, w->in_channels, w->size, dims);
    int x = gb_input(g, n, dims);
    gb_output(g, add_conv(g, w, x, bias));
    return g;
}

static void check_conv(const struct window *w, bool bias)
{
    struct engine_case c = {.graph = conv_graph(w, bias)};
    rig_check(&c, &seed);
}

/* A square one in two dimensions without padding, to start from. */
static struct window plain_window(int64_t in, int64_t out, int64_t size, int64_t kernel)
{
    struct window w = {.spatial = 2,
                       .in_channels = in,
                       .out_channels = out,
                       .group = 1,
                       .size = {size, size, 1},
                       .kernel = {kernel, kernel, 1},
                       .strides = {1, 1, 1},
                       .dilations = {1, 1, 1}};
    assert_true(fit(&w, false));
    return w;
}

static struct window random_window(int spatial, int64_t max_stride)
{
    struct window w;
    do {
        w = (struct window){.spatial = spatial, .group = 1};
        for (int d = 0; d < spatial; d++) {
            w.size[d] = rig_int(&seed, 1, spatial == 3 ? 6 : 11);
            w.kernel[d] = rig_int(&seed, 1, 4);
            w.strides[d] = rig_int(&seed, 1, max_stride);
            w.dilations[d] = rig_int(&seed, 1, 2);
            w.pads[d] = rig_int(&seed, 0, w.kernel[d] - 1);
            w.pads[spatial + d] = rig_int(&seed, 0, w.kernel[d] - 1);
        }
    } while (!fit(&w, false));
    return w;
}

static void test_random_convolutions(void **state)
{
    (void)state;
    static const int64_t channels[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 40};
    for (int i = 0; i < 60; i++) {
        struct window w = random_window(i % 6 == 0 ? 1 : i % 6 == 1 ? 3 : 2, 3);
        w.in_channels = channels[rig_int(&seed, 0, w.spatial == 3 ? 6 : 10)];
        w.out_channels = channels[rig_int(&seed, 0, 10)];
        check_conv(&w, i % 3 != 0);
    }
}

/* 1x1, with channel counts around what a vector register holds, and strides. */
static void test_pointwise(void **state)
{
    (void)state;
    static const int64_t channels[] = {1, 7, 16, 33, 64, 192};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k += 1 + (i & 1)) {
            struct window w = plain_window(channels[i], channels[k], 5, 1);
            check_conv(&w, true);
            w.strides[0] = w.strides[1] = 2;
            fit(&w, false);
            check_conv(&w, false);
        }
}

static void test_groups_and_depthwise(void **state)
{
    (void)state;
    static const int64_t counts[][3] = {/* group, channels in and out of each */
                                        {2, 3, 5}, {4, 8, 4},  {3, 16, 16}, {2, 17, 1}, {1, 1, 1},
                                        {5, 1, 1}, {16, 1, 1}, {33, 1, 1},  {8, 1, 2},  {32, 4, 4}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int k = 0; k < 2; k++) {
            struct window w = random_window(2, 2);
            w.group = counts[i][0];
            w.in_channels = w.group * counts[i][1];
            w.out_channels = w.group * counts[i][2];
            check_conv(&w, k);
        }
}

/* Rank of the first convolution's input after the passes. */
static int optimized_rank(const struct sy_graph *graph)
{
    struct sy_graph *g;
    int rank = 0;
    assert_int_equal(sy_graph_clone(graph, &g), SY_OK);
    assert_int_equal(sy_graph_optimize(g), SY_OK);
    assert_int_equal(sy_graph_fuse(g, rig_engine.ops->fuses), SY_OK);
    for (int n = 0; n < g->n_nodes && rank == 0; n++)
        if (g->nodes[n].op == SY_OP_CONV)
            rank = g->tensors[g->nodes[n].inputs[0]].shape.rank;
    sy_graph_free(g);
    return rank;
}

/* Along one dimension: they become two-dimensional, with what was fused to them; others stay. */
static void test_depthwise_lines(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        struct window w = random_window(1, 3);
        w.in_channels = w.group = rig_int(&seed, 1, 40);
        w.out_channels = i % 8 == 7 ? 2 * w.group : w.group;
        struct sy_graph *g = conv_graph(&w, i % 3 != 0);
        int y = g->outputs[0];
        int64_t dims[3] = {1, w.out_channels, w.out[0]};
        if (i & 1) {
            int other = gb_input(g, 3, dims);
            y = gb_node(g, SY_OP_ADD, INPUTS(y, other), 3, dims);
        }
        if (i & 2)
            y = gb_node(g, SY_OP_RELU, INPUTS(y), 3, dims);
        g->outputs[0] = y;
        assert_int_equal(optimized_rank(g), w.group > 1 && w.out_channels == w.group ? 4 : 3);
        rig_check(&(struct engine_case){.graph = g, .optimize = true}, &seed);
    }
}

/* Signals written as images of one column, as TensorFlow has them, or of one column and one row: computed with the last dimensions first. */
static void test_columns(void **state)
{
    (void)state;
    static const int64_t counts[][3] = {{1, 3, 5}, {1, 16, 64}, {2, 8, 16}, {17, 1, 1}};
    for (int i = 0; i < 48; i++) {
        struct window w = random_window(2 + (i & 1), 3);
        const int64_t *count = counts[i % 4];
        for (int d = 1 + (i % 4 == 1); d < w.spatial; d++) {
            w.size[d] = w.kernel[d] = 1;
            w.pads[d] = w.pads[w.spatial + d] = i % 16 == 9; /* padded ones stay as they are */
        }
        w.weights_computed = i % 12 == 5;
        w.group = count[0];
        w.in_channels = count[0] * count[1];
        w.out_channels = count[0] * count[2];
        fit(&w, false);
        check_conv(&w, i % 3 != 0);
    }
}

/* A node's result in another shape. */
static int reshaped(struct sy_graph *g, int x, int rank, const int64_t *dims)
{
    return gb_node(g, SY_OP_RESHAPE, INPUTS(x), rank, dims);
}

/* Conv1D as TensorFlow writes it: a convolution of images, squeezed, a bias and an activation of the line, and unsqueezed for the next one. */
static struct sy_graph *lines_as_images(bool upright, enum sy_op activation, bool has_norm)
{
    const int64_t length = 11, channels = 20, line[] = {1, channels, length};
    const int64_t image[] = {1, channels, upright ? length : 1, upright ? 1 : length};
    struct window w = {.spatial = 2,
                       .in_channels = channels,
                       .out_channels = channels,
                       .group = 1,
                       .size = {image[2], image[3]},
                       .kernel = {upright ? 3 : 1, upright ? 1 : 3},
                       .strides = {1, 1},
                       .dilations = {1, 1},
                       .pads = {upright, !upright, upright, !upright}};
    struct sy_graph *g = gb_new("lines");
    assert_true(fit(&w, false));
    int x = reshaped(g, gb_input(g, 3, line), 4, image);
    for (int i = 0; i < 3; i++) {
        const int64_t each[] = {1, channels, 1};
        x = reshaped(g, add_conv(g, &w, x, false), 3, line);
        int bias = gb_constant(g, "bias", i == 1 ? 0 : 3, each, &seed, -0.5, 0.5);
        const int pair[] = {i == 1 ? bias : x, i == 1 ? x : bias};
        x = gb_node(g, i == 2 ? SY_OP_MUL : SY_OP_ADD, 2, pair, 3, line);
        if (has_norm) {
            int of[4];
            for (int k = 0; k < 4; k++)
                of[k] = gb_constant(g, "norm", 1, &channels, &seed, 0.5, 1.5);
            x = gb_node(g, SY_OP_BATCH_NORM, INPUTS(x, of[0], of[1], of[2], of[3]), 3, line);
        }
        x = gb_node(g, activation, INPUTS(x), 3, line);
        if (i < 2)
            x = reshaped(g, x, 4, image);
    }
    gb_output(g, x);
    return g;
}

static int count_nodes(const struct sy_graph *graph)
{
    struct sy_graph *g;
    assert_int_equal(sy_graph_clone(graph, &g), SY_OK);
    assert_int_equal(sy_graph_optimize(g), SY_OK);
    if (rig_engine.ops->fuses)
        assert_int_equal(sy_graph_fuse(g, rig_engine.ops->fuses), SY_OK);
    int n = g->n_nodes;
    sy_graph_free(g);
    return n;
}

/* Three convolutions are left, with one reshape before and one behind them. */
static void test_lines_as_images(void **state)
{
    (void)state;
    static const enum sy_op activations[] = {SY_OP_RELU, SY_OP_TANH, SY_OP_GELU, SY_OP_SIGMOID};
    for (int i = 0; i < 16; i++) {
        struct sy_graph *g = lines_as_images(i & 1, activations[i >> 2], i & 2);
        assert_int_equal(count_nodes(g), 5);
        rig_check(&(struct engine_case){.graph = g, .optimize = true}, &seed);
    }
}

static void test_computed_weights(void **state)
{
    (void)state;
    static const int64_t counts[][3] = {{1, 3, 5}, {1, 16, 64}, {2, 8, 16}, {3, 17, 1}, {16, 1, 1}};
    for (int i = 0; i < 15; i++) {
        struct window w = random_window(1 + i % 3, 2);
        const int64_t *count = counts[i / 3];
        w.weights_computed = true;
        w.group = count[0];
        w.in_channels = count[0] * count[1];
        w.out_channels = count[0] * count[2];
        check_conv(&w, i & 1);
    }
}

/* More on one side than on the other; with the rest that a stride leaves on the right. */
static void test_asymmetric_pads(void **state)
{
    (void)state;
    static const int64_t pads[][4] = {{0, 0, 1, 1}, {1, 1, 0, 0}, {2, 0, 1, 2}, {0, 1, 2, 0}};
    for (int i = 0; i < 4; i++)
        for (int64_t stride = 1; stride <= 3; stride++) {
            struct window w = plain_window(6, 18, 8, 3);
            for (int d = 0; d < 4; d++)
                w.pads[d] = pads[i][d];
            w.strides[0] = stride;
            w.strides[1] = 4 - stride;
            fit(&w, false);
            check_conv(&w, true);
        }
}

/* ---- fused: conv, batch norm, residual, activation ---------------------------------------------- */

static int add_batch_norm(struct sy_graph *g, int x, int64_t channels, int n, const int64_t *dims)
{
    int inputs[5] = {x, gb_constant(g, "scale", 1, &channels, &seed, 0.5, 1.5),
                     gb_constant(g, "shift", 1, &channels, &seed, -0.5, 0.5),
                     gb_constant(g, "mean", 1, &channels, &seed, -0.5, 0.5),
                     gb_constant(g, "variance", 1, &channels, &seed, 0.3, 2)};
    int y = gb_node(g, SY_OP_BATCH_NORM, 5, inputs, n, dims);
    gb_float(g, "epsilon", 1e-3f);
    return y;
}

static int add_activation(struct sy_graph *g, enum sy_op op, int x, int n, const int64_t *dims)
{
    int y = gb_node(g, op, 1, &x, n, dims);
    if (op == SY_OP_CLIP) {
        gb_float(g, "min", -0.3f);
        gb_float(g, "max", 0.6f);
    }
    return y;
}

/* x -> conv -> batch norm -> + residual -> activation. `what` says whose: a second convolution's, the input's,
 * one that is read again afterwards, one that is the convolution's own input. */
enum residual { OF_CONV, OF_INPUT, READ_AGAIN, OWN_INPUT };

static void check_fused(int64_t channels, enum sy_op activation, enum residual what, bool optimize)
{
    struct window w = plain_window(channels, channels, 5, 3);
    w.pads[0] = w.pads[1] = w.pads[2] = w.pads[3] = 1;
    fit(&w, false);
    struct sy_graph *g = gb_new("conv + bn + residual + activation");
    const int64_t dims[] = {1, channels, 5, 5};
    int x = gb_input(g, 4, dims), side = gb_input(g, 4, dims);
    if (what == OWN_INPUT)
        x = side = add_activation(g, SY_OP_RELU, add_conv(g, &w, x, false), 4, dims);
    else if (what != OF_INPUT)
        side = add_conv(g, &w, side, true);
    int y = add_batch_norm(g, add_conv(g, &w, x, channels % 2), channels, 4, dims);
    y = gb_node(g, SY_OP_ADD, INPUTS(y, side), 4, dims);
    y = add_activation(g, activation, y, 4, dims);
    if (what == READ_AGAIN)
        y = gb_node(g, SY_OP_SUB, INPUTS(y, side), 4, dims);
    gb_output(g, y);
    struct engine_case c = {.graph = g, .optimize = optimize};
    rig_check(&c, &seed);
}

static void test_fused_blocks(void **state)
{
    (void)state;
    static const enum sy_op activations[] = {SY_OP_RELU, SY_OP_CLIP, SY_OP_TANH, SY_OP_SIGMOID,
                                             SY_OP_GELU};
    static const int64_t channels[] = {3, 16, 21};
    for (size_t a = 0; a < sizeof activations / sizeof *activations; a++)
        for (int c = 0; c < 3; c++)
            check_fused(channels[c], activations[a], (enum residual)((a + (size_t)c) % 4), true);
    for (int what = OF_CONV; what <= OWN_INPUT; what++)
        for (int c = 0; c < 3; c++) {
            check_fused(channels[c], SY_OP_RELU, (enum residual)what, true);
            check_fused(channels[c], SY_OP_RELU, (enum residual)what, false);
        }
}

/* ---- pools -------------------------------------------------------------------------------------- */

/* Behind a convolution (pooled in the layout that oneDNN likes) or at the input (row-major). */
static void check_pool(struct window *w, enum sy_op op, bool behind_conv, bool ceil_mode,
                       bool include_pad)
{
    char name[120];
    int64_t dims[5];
    snprintf(name, sizeof name, "%s %lld channels size %lld k %lld s %lld ceil %d include %d",
             sy_op_name(op), (long long)w->in_channels, (long long)w->size[0],
             (long long)w->kernel[0], (long long)w->strides[0], ceil_mode, include_pad);
    struct sy_graph *g = gb_new(name);
    int n = with_channels(w, w->in_channels, w->size, dims);
    int x = gb_input(g, n, dims);
    if (behind_conv) {
        struct window conv = *w;
        for (int d = 0; d < 3; d++) {
            conv.kernel[d] = conv.strides[d] = conv.dilations[d] = 1;
            conv.pads[d] = conv.pads[3 + d] = 0;
            conv.out[d] = conv.size[d];
        }
        conv.out_channels = w->in_channels;
        x = add_conv(g, &conv, x, true);
    }
    n = with_channels(w, w->in_channels, w->out, dims);
    int y = gb_node(g, op, 1, &x, n, dims);
    if (op == SY_OP_MAX_POOL || op == SY_OP_AVERAGE_POOL) {
        window_attributes(g, w);
        gb_int(g, "ceil_mode", ceil_mode);
    }
    if (op == SY_OP_AVERAGE_POOL)
        gb_int(g, "count_include_pad", include_pad);
    gb_output(g, y);
    struct engine_case c = {.graph = g};
    rig_check(&c, &seed);
}

static void test_random_pools(void **state)
{
    (void)state;
    static const int64_t channels[] = {1, 3, 16, 19, 32};
    for (int i = 0; i < 48; i++) {
        bool ceil_mode = i % 4 == 3, average = i & 1;
        struct window w;
        do {
            w = random_window(i % 8 == 0 ? 1 : i % 8 == 1 ? 3 : 2, 3);
            for (int d = 0; d < w.spatial && average; d++)
                w.dilations[d] = 1;
        } while (!fit(&w, ceil_mode));
        w.in_channels = channels[rig_int(&seed, 0, 4)];
        check_pool(&w, average ? SY_OP_AVERAGE_POOL : SY_OP_MAX_POOL, i % 3 == 0, ceil_mode,
                   average && !ceil_mode && i % 8 < 4);
    }
}

static void test_global_pools(void **state)
{
    (void)state;
    for (int spatial = 1; spatial <= 3; spatial++)
        for (int i = 0; i < 4; i++) {
            struct window w = random_window(spatial, 1);
            w.in_channels = i < 2 ? 16 : 13;
            for (int d = 0; d < spatial; d++)
                w.out[d] = 1;
            check_pool(&w, i & 1 ? SY_OP_GLOBAL_MAX_POOL : SY_OP_GLOBAL_AVERAGE_POOL, i >= 2, false,
                       false);
        }
}

/* ---- refused ------------------------------------------------------------------------------------ */

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g};
    rig_check(&c, &seed);
}

/* What oneDNN does not take: weights that are computed, integers, many dimensions, padding that is counted. */
static void test_plain_loops(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("weights that are an input");
    int x = gb_input(g, DIMS(1, 2, 4, 4)), w = gb_input(g, DIMS(2, 2, 1, 1));
    gb_fixed(g, w);
    gb_output(g, gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, 2, 4, 4)));
    check(g);

    g = gb_new("four spatial dimensions");
    x = gb_input(g, DIMS(1, 2, 2, 2, 2, 2));
    gb_output(g, gb_node(g, SY_OP_GLOBAL_MAX_POOL, INPUTS(x), DIMS(1, 2, 1, 1, 1, 1)));
    check(g);
}

/* Long windows over one channel (op_windows.c), within the signal, over its ends, and longer than it. */
static void test_long_windows(void **state)
{
    (void)state;
    static const int64_t cases[][6] = {/* length, taps, stride, pads, filters */
                                       {600, 64, 32, 64, 64, 130}, {400, 25, 10, 0, 0, 33},
                                       {9, 8, 1, 7, 7, 16},        {5, 12, 3, 8, 9, 40},
                                       {100, 16, 8, 0, 3, 16},     {70, 10, 5, 2, 0, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *n = cases[i];
        struct window w = {.spatial = 1,
                           .in_channels = 1,
                           .out_channels = n[5],
                           .group = 1,
                           .size = {n[0]},
                           .kernel = {n[1]},
                           .strides = {n[2]},
                           .dilations = {1},
                           .pads = {n[3], n[4]}};
        assert_true(fit(&w, false));
        check_conv(&w, i % 2 == 0);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("integers");
    int x = gb_input_of(g, SY_DTYPE_I32, DIMS(1, 2, 4, 4));
    gb_output(g, gb_node(g, SY_OP_AVERAGE_POOL, INPUTS(x), DIMS(1, 2, 2, 2)));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    gb_ints(g, "strides", DIMS(2, 2));
    rig_refused(g, false, 0, "INT32");

    g = gb_new("a window of no size");
    x = gb_input(g, DIMS(1, 2, 6));
    int v = gb_input(g, DIMS(2, 2, 3));
    gb_fixed(g, v);
    gb_output(g, gb_node(g, SY_OP_CONV, INPUTS(x, v), DIMS(1, 2, 3)));
    gb_ints(g, "strides", DIMS(0));
    rig_refused(g, false, 0, "window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_convolutions),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_groups_and_depthwise),
        cmocka_unit_test(test_depthwise_lines),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_lines_as_images),
        cmocka_unit_test(test_computed_weights),
        cmocka_unit_test(test_asymmetric_pads),
        cmocka_unit_test(test_fused_blocks),
        cmocka_unit_test(test_random_pools),
        cmocka_unit_test(test_global_pools),
        cmocka_unit_test(test_plain_loops),
        cmocka_unit_test(test_long_windows),
        cmocka_unit_test(test_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

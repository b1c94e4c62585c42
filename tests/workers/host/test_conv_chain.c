/* Chains of convolutions: random ones, in small buffers, against the definition of each convolution. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <omp.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/operators/conv_chain.h"

static uint64_t seed;

/* An image as the graph has it so far. */
struct image {
    int tensor;
    int64_t channels, height, width;
};

static int64_t out_size(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                        const int64_t *pads)
{
    int64_t room = size + pads[0] + pads[2] - (kernel - 1) * dilation - 1;
    return room < 0 ? 0 : room / stride + 1;
}

struct window {
    int64_t kernel[2], strides[2], dilations[2], pads[4];
};

/* Keeps the size if `same`. False: nothing would be left. */
static bool random_window(const struct image *x, bool pointwise, bool same, struct window *w,
                          struct image *y)
{
    int64_t least = pointwise ? 1 : 2;
    for (int d = 0; d < 2; d++) {
        w->kernel[d] = same ? (pointwise ? 1 : 3) : rig_int(&seed, least, pointwise ? 1 : 4);
        w->strides[d] = same || pointwise ? 1 : rig_int(&seed, 1, 3);
        w->dilations[d] = same ? 1 : rig_int(&seed, 1, 2);
        w->pads[d] = same ? w->kernel[d] / 2 : rig_int(&seed, 0, w->kernel[d] - 1);
        w->pads[2 + d] = same ? w->kernel[d] / 2 : rig_int(&seed, 0, w->kernel[d] - 1);
    }
    y->height = out_size(x->height, w->kernel[0], w->strides[0], w->dilations[0], &w->pads[0]);
    y->width = out_size(x->width, w->kernel[1], w->strides[1], w->dilations[1], &w->pads[1]);
    return y->height > 0 && y->width > 0;
}

static void add_conv(struct sy_graph *g, struct image *x, int64_t channels, bool depthwise,
                     bool same)
{
    struct window w;
    struct image y = {.channels = depthwise ? x->channels : channels};
    bool pointwise = !depthwise && rig_int(&seed, 0, 2) > 0;
    if (!random_window(x, pointwise, same, &w, &y))
        return;
    const int64_t weights[] = {y.channels, depthwise ? 1 : x->channels, w.kernel[0], w.kernel[1]};
    const int64_t dims[] = {1, y.channels, y.height, y.width};
    int inputs[3] = {x->tensor, gb_constant(g, "w", 4, weights, &seed, -0.5, 0.5), -1};
    bool bias = rig_int(&seed, 0, 1);
    if (bias)
        inputs[2] = gb_constant(g, "b", 1, &y.channels, &seed, -0.5, 0.5);
    y.tensor = gb_node(g, SY_OP_CONV, bias ? 3 : 2, inputs, 4, dims);
    gb_ints(g, "kernel_shape", 2, w.kernel);
    gb_ints(g, "strides", 2, w.strides);
    gb_ints(g, "dilations", 2, w.dilations);
    gb_ints(g, "pads", 4, w.pads);
    gb_int(g, "group", depthwise ? x->channels : 1);
    if (rig_int(&seed, 0, 1)) {
        y.tensor = gb_node(g, SY_OP_RELU, 1, &y.tensor, 4, dims);
    }
    *x = y;
}

/* How many steps a program for `batch` images has, and how many of them are chains. */
static int n_steps(const struct sy_graph *graph, int64_t batch, int *chains)
{
    struct engine_rig rig;
    struct sy_program *p;
    int n;
    *chains = 0;
    assert_int_equal(rig_open(&rig, graph, true), SY_OK);
    assert_int_equal(sy_host_engine.program_create(rig.graph, rig.layers, rig.n_layers, batch, &p),
                     SY_OK);
    for (int s = 0; s < p->n_steps; s++)
        *chains += sy_step_is_chain(&p->steps[s]);
    n = p->n_steps;
    sy_host_engine.program_destroy(p);
    rig_close(&rig);
    return n;
}

static int n_chains(const struct sy_graph *graph, int64_t batch)
{
    int chains;
    n_steps(graph, batch, &chains);
    return chains;
}

enum residual { NONE, OF_INPUT, READ_AGAIN };

/* x -> relu -> convolutions -> (+ relu's result) -> result. */
static struct sy_graph *random_chain(int n, enum residual residual)
{
    struct sy_graph *g = gb_new("chain");
    struct image x = {.channels = rig_int(&seed, 1, 3) * 8,
                      .height = rig_int(&seed, 1, 17),
                      .width = rig_int(&seed, 1, 12)};
    int64_t dims[] = {1, x.channels, x.height, x.width}, channels = x.channels;
    x.tensor = gb_input(g, 4, dims);
    x.tensor = gb_node(g, SY_OP_SIGMOID, 1, &x.tensor, 4, dims);
    int before = x.tensor;
    for (int i = 0; i < n; i++)
        add_conv(g, &x, i + 1 == n ? channels : rig_int(&seed, 1, 5) * 16, i % 2, residual != NONE);
    if (residual != NONE && x.channels == channels)
        x.tensor = gb_node(g, SY_OP_ADD, INPUTS(x.tensor, before), 4, dims);
    if (residual == READ_AGAIN)
        x.tensor = gb_node(g, SY_OP_MUL, INPUTS(x.tensor, before), 4, dims);
    gb_output(g, x.tensor);
    return g;
}

static void test_random_chains(void **state)
{
    static const int64_t buffers[] = {1, 4000, 20000, 1 << 20};
    int chained = 0;
    (void)state;
    for (int i = 0; i < 60; i++) {
        enum residual residual = (enum residual)(i % 3);
        struct sy_graph *g = random_chain(residual == NONE ? 2 + i % 4 : 3, residual);
        sy_chain_limits.buffer_bytes = buffers[i / 3 % 4];
        chained += n_chains(g, 2) > 0;
        struct engine_case c = {.graph = g, .optimize = true};
        rig_check(&c, &seed);
    }
    assert_true(chained > 30);
}

/* Weights in bf16: each is made wide once, where in float32 all but the last layer's are copied. */
static void test_stored_as_bf16(void **state)
{
    (void)state;
    if (!rig_only_stores_bf16())
        skip();
    for (int i = 0; i < 20; i++) {
        struct sy_graph *g = random_chain(3, i % 2 ? OF_INPUT : READ_AGAIN);
        int chains, wide = n_steps(g, 2, &chains), convolutions = 0;
        gb_round_weights(g);
        g->precision = SY_PRECISION_BF16;
        for (int n = 0; n < g->n_nodes; n++)
            convolutions += g->nodes[n].op == SY_OP_CONV;
        if (chains == 1 && convolutions == 3)
            assert_true(n_steps(g, 2, &chains) <= wide + 1);
        struct engine_case c = {.graph = g, .optimize = true};
        rig_check(&c, &seed);
    }
}

/* What lies between is small: layer by layer, as before. */
static void test_small_ones_stay_apart(void **state)
{
    (void)state;
    struct sy_chain_limits limits = sy_chain_limits;
    struct sy_graph *g = random_chain(3, OF_INPUT);
    for (int i = 0; i < 40 && n_chains(g, 2) != 1; i++) {
        sy_graph_free(g);
        g = random_chain(3, OF_INPUT);
    }
    assert_int_equal(n_chains(g, 2), 1);
    sy_chain_limits.least_bytes = 1 << 20;
    assert_int_equal(n_chains(g, 2), 0);
    sy_chain_limits = limits;
    sy_chain_limits.weights_bytes = 100;
    assert_int_equal(n_chains(g, 2), 0);
    sy_chain_limits = limits;
    sy_graph_free(g);
}

/* The threads of a program's one chain that takes in the last layer; 0: there is none. */
static int threads_of_last_chain(const struct engine_rig *rig)
{
    struct sy_program *p;
    int threads = 0, chains = 0, last = rig->n_layers - 1;
    assert_int_equal(sy_host_engine.program_create(rig->graph, rig->layers, rig->n_layers, 2, &p),
                     SY_OK);
    for (int s = 0; s < p->n_steps; s++)
        if (sy_step_is_chain(&p->steps[s])) {
            chains++;
            threads = p->layer_steps[last] <= s ? p->steps[s].threads : 0;
        }
    sy_host_engine.program_destroy(p);
    return chains == 1 ? threads : 0;
}

/* A chain's time is its last layer's, and so are its threads; which layers are chained depends on neither. */
static void test_threads_are_the_last_layers(void **state)
{
    int before = omp_get_max_threads(), n_tried = 0;
    (void)state;
    omp_set_num_threads(2);
    for (int i = 0; i < 40; i++) {
        struct sy_graph *g = random_chain(3, OF_INPUT);
        struct engine_rig rig;
        assert_int_equal(rig_open(&rig, g, true), SY_OK);
        bool chained = threads_of_last_chain(&rig) != 0;
        for (unsigned solo = 0; solo < 4 && chained; solo++) {
            for (int l = 0; l < rig.n_layers; l++)
                rig.layers[l].solo_batches = solo >> (l == rig.n_layers - 1) & 1 ? UINT32_MAX : 0;
            assert_int_equal(threads_of_last_chain(&rig), solo >> 1 ? 1 : 2);
            assert_int_equal(omp_get_max_threads(), 2);
        }
        n_tried += chained;
        rig_close(&rig);
        sy_graph_free(g);
    }
    assert_true(n_tried > 5);
    omp_set_num_threads(before);
}

int main(void)
{
    seed = rig_start();
    sy_chain_limits = (struct sy_chain_limits){.macs_a_byte = INT32_MAX,
                                               .macs = INT64_MAX,
                                               .weights_bytes = INT64_MAX,
                                               .buffer_bytes = 4000};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains),
        cmocka_unit_test(test_stored_as_bf16),
        cmocka_unit_test(test_small_ones_stay_apart),
        cmocka_unit_test(test_threads_are_the_last_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a library may compute in the place of an engine's own kernels, while the engine measures which is the faster: pools and recurrent
 * layers, in all the ways that a library has, and in some that it has not. On a GPU, SY_CUDA_PREFER_CUDNN=1 takes cuDNN wherever its results agree. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

#ifdef SY_SANITIZED
#define N_POOLS 24
#else
#define N_POOLS 96
#endif

static uint64_t seed;

static void tune(bool on)
{
    if (rig_engine.ops->tune)
        rig_engine.ops->tune(on);
}

/* ---- pools -------------------------------------------------------------------------------------------- */

struct pool {
    enum sy_op op;
    int spatial;
    int64_t channels, in[3], out[3], kernel[3], strides[3], pads[6];
    bool ceil_mode, count_padding;
};

/* The last window of a ceil_mode begins inside the input or the padding in front (ONNX, MaxPool). */
static int64_t outputs(const struct pool *p, int d)
{
    int64_t room = p->in[d] + p->pads[d] + p->pads[p->spatial + d] - p->kernel[d],
            s = p->strides[d];
    int64_t n = (room + (p->ceil_mode ? s - 1 : 0)) / s + 1;
    return (n - 1) * s >= p->in[d] + p->pads[d] ? n - 1 : n;
}

static struct pool random_pool(int i)
{
    struct pool p = {.op = i & 1 ? SY_OP_AVERAGE_POOL : SY_OP_MAX_POOL,
                     .spatial = i % 8 < 2   ? 1
                                : i % 8 < 4 ? 3
                                            : 2,
                     .channels = rig_int(&seed, 1, 20),
                     .ceil_mode = i % 5 == 4};
    p.count_padding = p.op == SY_OP_AVERAGE_POOL && !p.ceil_mode && i % 4 == 1;
    for (int d = 0; d < p.spatial; d++) {
        p.kernel[d] = rig_int(&seed, 1, 4);
        p.in[d] = rig_int(&seed, p.kernel[d], p.spatial == 3 ? 6 : 11);
        p.strides[d] = rig_int(&seed, 1, 3);
        p.pads[d] = rig_int(&seed, 0, p.kernel[d] - 1);
        p.pads[p.spatial + d] = i % 6 == 5 ? rig_int(&seed, 0, p.kernel[d] - 1) : p.pads[d];
        p.out[d] = outputs(&p, d);
    }
    return p;
}

static int dims_of(const struct pool *p, const int64_t *sizes, int64_t *out)
{
    out[0] = 1;
    out[1] = p->channels;
    memcpy(out + 2, sizes, (size_t)p->spatial * sizeof *sizes);
    return 2 + p->spatial;
}

/* Behind a convolution of one element, whose result is channels last, or at the input. */
static struct sy_graph *pool_graph(const struct pool *p, bool behind_conv)
{
    const int64_t ones[] = {1, 1, 1}, weights[] = {p->channels, p->channels, 1, 1, 1};
    int64_t dims[5];
    struct sy_graph *g = gb_new("pool");
    int n = dims_of(p, p->in, dims), x = gb_input(g, n, dims);
    if (behind_conv) {
        int w = gb_constant(g, "w", n, weights, &seed, -1, 1);
        x = gb_node(g, SY_OP_CONV, INPUTS(x, w), n, dims);
        gb_ints(g, "kernel_shape", p->spatial, ones);
    }
    int y = gb_node(g, p->op, 1, &x, dims_of(p, p->out, dims), dims);
    if (p->op == SY_OP_MAX_POOL || p->op == SY_OP_AVERAGE_POOL) {
        gb_ints(g, "kernel_shape", p->spatial, p->kernel);
        gb_ints(g, "strides", p->spatial, p->strides);
        gb_ints(g, "pads", 2 * p->spatial, p->pads);
        gb_int(g, "ceil_mode", p->ceil_mode);
    }
    if (p->op == SY_OP_AVERAGE_POOL)
        gb_int(g, "count_include_pad", p->count_padding);
    gb_output(g, y);
    return g;
}

static void test_random_pools(void **state)
{
    (void)state;
    for (int i = 0; i < N_POOLS; i++) {
        struct pool p = random_pool(i);
        struct engine_case c = {.graph = pool_graph(&p, i % 3 > 0)};
        rig_check(&c, &seed);
    }
}

static void test_global_pools(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct pool p = {.op = i & 1 ? SY_OP_GLOBAL_AVERAGE_POOL : SY_OP_GLOBAL_MAX_POOL,
                         .spatial = 1 + i % 3,
                         .channels = rig_int(&seed, 1, 33),
                         .out = {1, 1, 1}};
        for (int d = 0; d < p.spatial; d++)
            p.in[d] = rig_int(&seed, 1, 7);
        struct engine_case c = {.graph = pool_graph(&p, i >= 6)};
        rig_check(&c, &seed);
    }
}

/* ---- recurrent layers --------------------------------------------------------------------------------- */

#define BATCH  3
#define STEPS  5
#define INPUT  6
#define HIDDEN 7

struct layer {
    enum sy_op op;
    int64_t gates, directions;
    const char *direction;
    bool bias, initial, early, relu;
    int wanted; /* 1: Y, 2: Y_h, 4: Y_c */
};

static struct layer layer_of(int i)
{
    static const enum sy_op ops[] = {SY_OP_LSTM, SY_OP_GRU, SY_OP_RNN};
    static const char *const ways[] = {"forward", "bidirectional", "reverse"};
    struct layer l = {.op = ops[i % 3],
                      .gates = i % 3 == 0   ? 4
                               : i % 3 == 1 ? 3
                                            : 1,
                      .directions = 1 + (i / 3 % 3 == 1),
                      .direction = ways[i / 3 % 3],
                      .bias = i & 1,
                      .initial = i / 2 % 2,
                      .early = i % 7 == 6,
                      .relu = i % 3 == 2 && i / 9 % 2};
    l.wanted = (int)rig_int(&seed, 1, l.op == SY_OP_LSTM ? 7 : 3);
    return l;
}

/* Another output of the node that was added last; -1: left out. */
static int add_output(struct sy_graph *g, bool wanted, int64_t directions)
{
    struct sy_node *node = &g->nodes[g->n_nodes - 1];
    int out = wanted ? gb_input(g, DIMS(1, directions, HIDDEN)) : -1;
    g->n_inputs -= wanted;
    node->outputs = realloc(node->outputs, (size_t)(node->n_outputs + 1) * sizeof(int));
    assert_non_null(node->outputs);
    node->outputs[node->n_outputs++] = out;
    return out;
}

/* The batch in front. */
static struct sy_graph *layer_graph(const struct layer *l)
{
    struct sy_graph *g = gb_new(l->direction);
    int64_t d = l->directions, rows = l->gates * HIDDEN;
    bool lstm = l->op == SY_OP_LSTM;
    int x = gb_input(g, DIMS(1, STEPS, INPUT)), h = -1, c = -1, b = -1, out[3];
    int w = gb_constant(g, "w", DIMS(d, rows, INPUT), &seed, -1, 1),
        r = gb_constant(g, "r", DIMS(d, rows, HIDDEN), &seed, -1, 1);
    if (l->bias)
        b = gb_constant(g, "b", DIMS(d, 2 * rows), &seed, -1, 1);
    if (l->initial)
        h = gb_input(g, DIMS(1, d, HIDDEN));
    if (l->initial && lstm)
        c = gb_input(g, DIMS(1, d, HIDDEN));
    out[0] = lstm ? gb_node(g, l->op, INPUTS(x, w, r, b, -1, h, c), DIMS(1, STEPS, d, HIDDEN))
                  : gb_node(g, l->op, INPUTS(x, w, r, b, -1, h), DIMS(1, STEPS, d, HIDDEN));
    gb_int(g, "hidden_size", HIDDEN);
    gb_int(g, "linear_before_reset", !l->early);
    gb_int(g, "layout", 1);
    gb_string(g, "direction", l->direction);
    if (l->relu)
        gb_string(g, "activations", d > 1 ? "Relu,Relu" : "Relu");
    out[1] = add_output(g, l->wanted & 2, d);
    out[2] = lstm ? add_output(g, l->wanted & 4, d) : -1;
    if (!(l->wanted & 1))
        g->nodes[g->n_nodes - 1].outputs[0] = -1;
    for (int i = 0; i < 3; i++)
        if (out[i] >= 0 && l->wanted >> i & 1)
            gb_output(g, out[i]);
    return g;
}

/* Of this engine, of inputs that begin with these numbers; all results one behind the other. Returns how many. */
static int64_t results_of(const struct rig_engine *engine, const struct sy_graph *g,
                          const float *numbers, float *out)
{
    struct engine_rig rig;
    struct rig_tensors in, results;
    int64_t n = 0;
    rig_engine = *engine;
    if (rig_open(&rig, g, true) < 0)
        fail_msg("%s: %s", g->name, sy_error_text());
    struct sy_program *p = rig_program(&rig, BATCH);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, BATCH, 0, &in);
    rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, BATCH, 0xff, &results);
    for (int i = 0; i < in.n; i++)
        memcpy(in.data[i], numbers, in.bytes[i]);
    assert_int_equal(rig_run(&rig, p, &in, &results, 0xff, NULL), SY_OK);
    for (int i = 0; i < results.n; i++) {
        memcpy(out + n, results.data[i], results.bytes[i]);
        n += (int64_t)(results.bytes[i] / sizeof(float));
    }
    rig_engine.ops->program_destroy(p);
    rig_drop(&in);
    rig_drop(&results);
    rig_close(&rig);
    return n;
}

/* Beside the host engine, whose recurrent layers test_recurrence has. */
static void test_recurrent_layers(void **state)
{
    (void)state;
    enum { MOST = BATCH * STEPS * 2 * HIDDEN };
    const struct rig_engine host = {.ops = &sy_host_engine}, chosen = rig_engine;
    float numbers[MOST], want[3 * MOST], got[3 * MOST];
    for (int i = 0; i < 54; i++) {
        struct layer l = layer_of(i);
        struct sy_graph *g = layer_graph(&l);
        for (int k = 0; k < MOST; k++)
            numbers[k] = (float)gb_uniform(&seed, -1, 1);
        int64_t n = results_of(&host, g, numbers, want);
        assert_int_equal(results_of(&chosen, g, numbers, got), n);
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(got[k] - want[k]) <= 2e-5f * (1 + fabsf(want[k]))))
                fail_msg("%s %s (%d): element %d is %.9g, not %.9g", l.direction, sy_op_name(l.op),
                         i, (int)k, (double)got[k], (double)want[k]);
        sy_graph_free(g);
    }
    rig_engine = chosen;
}

/* How often the library was taken, as the engine's text has it: way 1 of each line. */
static int print_choices(void **state)
{
    char *text = NULL;
    int n = 0, taken = 0;
    (void)state;
    if (!rig_engine.ops->choices || rig_engine.ops->choices(&text) < 0 || !text)
        return 0;
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        int way = -1;
        n += sscanf(line + 1, "%*x %d", &way) == 1;
        taken += way == 1;
    }
    printf("choices: %d, of them the library's: %d\n", n, taken);
    free(text);
    tune(false);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pools),
        cmocka_unit_test(test_global_pools),
        cmocka_unit_test(test_recurrent_layers),
    };
    seed = rig_start();
    tune(true);
    return cmocka_run_group_tests(tests, NULL, print_choices);
}

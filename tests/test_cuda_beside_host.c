/* Operators that the CUDA engine makes of several steps, beside the host engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/engine_rig.h"
#include "tests/on_cpu/beside_host.h"
#include "workers/cuda/cuda_engine.h"

static uint64_t seed;

static void both_engines(struct sy_graph *g)
{
    struct engine_rig rig;
    struct engine_case c = {.graph = g};
    struct rig_tensors in, want, got;
    rig_engine = beside_host;
    if (rig_open(&rig, g, true) < 0)
        fail_msg("%s: %s", g->name, sy_error_text());
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 3, 0, &in);
    rig_fill(&rig, &c, &in, &seed);
    rig_close(&rig);
    beside_results(&beside_host, g, &in, &want);
    beside_results(&beside_cuda, g, &in, &got);
    if (!(beside_distance(&want, &got) < 1e-5))
        fail_msg("%s: %g from the host engine", g->name, beside_distance(&want, &got));
    rig_drop(&want);
    rig_drop(&in);
    rig_drop(&got);
    sy_graph_free(g);
}

/* ---- recurrences -------------------------------------------------------------------------------------- */

/* Of per-batch number `at`. */
static int shaped(struct sy_graph *g, int tensor, int at)
{
    struct sy_shape *shape = &g->tensors[tensor].shape;
    shape->dims[0] = (struct sy_dim){.fixed = shape->dims[0].per_batch};
    shape->dims[at] = (struct sy_dim){.per_batch = 1};
    return tensor;
}

static struct sy_graph *recurrent_graph(enum sy_op op, int64_t gates, const char *direction,
                                        bool bias, bool initial, bool late)
{
    struct sy_graph *g = gb_new(direction);
    int64_t d = strcmp(direction, "bidirectional") ? 1 : 2;
    int x = gb_input(g, DIMS(1, 5, 6)), b = -1, h = -1, c = -1;
    int t = shaped(g, gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), DIMS(5, 1, 6)), 1);
    gb_ints(g, "perm", DIMS(1, 0, 2));
    int w = gb_constant(g, "w", DIMS(d, gates * 7, 6), &seed, -1, 1),
        r = gb_constant(g, "r", DIMS(d, gates * 7, 7), &seed, -1, 1);
    if (bias)
        b = gb_constant(g, "b", DIMS(d, 2 * gates * 7), &seed, -1, 1);
    if (initial) {
        h = shaped(g, gb_node(g, SY_OP_SLICE, INPUTS(t), DIMS(d, 1, 6)), 1);
        gb_ints(g, "starts", DIMS(0, 0, 0));
        gb_ints(g, "steps", DIMS(1, 1, 1));
        h = shaped(g, gb_node(g, SY_OP_PAD, INPUTS(h), DIMS(d, 1, 7)), 1);
        gb_ints(g, "pads", DIMS(0, 0, 0, 0, 0, 1));
        if (op == SY_OP_LSTM)
            c = h;
    }
    int y = op == SY_OP_LSTM ? gb_node(g, op, INPUTS(t, w, r, b, -1, h, c), DIMS(5, d, 1, 7))
                             : gb_node(g, op, INPUTS(t, w, r, b, -1, h), DIMS(5, d, 1, 7));
    shaped(g, y, 2);
    gb_int(g, "hidden_size", 7);
    gb_int(g, "linear_before_reset", late);
    gb_string(g, "direction", direction);
    y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, 5, d, 7));
    gb_ints(g, "perm", DIMS(2, 0, 1, 3));
    gb_output(g, y);
    return g;
}

static void test_recurrences_beside_the_host_engine(void **state)
{
    (void)state;
    static const struct {
        enum sy_op op;
        int64_t gates;
    } ops[] = {{SY_OP_LSTM, 4}, {SY_OP_GRU, 3}, {SY_OP_RNN, 1}};
    static const char *const ways[] = {"forward", "reverse", "bidirectional"};
    beside_attach();
    for (int i = 0; i < 36; i++) {
        both_engines(recurrent_graph(ops[i % 3].op, ops[i % 3].gates, ways[i / 3 % 3], i / 9 % 2,
                                     i % 2, i < 18));
    }
    sy_cuda_engine.detach();
}

/* The bytes of the packed weights. */
static uint64_t packed_bytes(const struct sy_graph *g)
{
    struct engine_rig rig;
    uint64_t bytes = 0;
    rig_engine = beside_cuda;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    for (int i = 0; i < rig.n_layers; i++)
        for (int k = 0; k < rig.layers[i].n_params; k++)
            bytes += rig.layers[i].params[k].input < 3 ? rig.layers[i].params[k].bytes : 0;
    rig_close(&rig);
    return bytes;
}

/* Both matrices of weights, and what is multiplied with them, are rounded; the host engine computes in float32. */
static void narrow_beside_the_host(struct sy_graph *g, enum sy_precision precision,
                                   double tolerance)
{
    struct engine_rig rig;
    struct engine_case c = {.graph = g};
    struct rig_tensors in, want, got;
    rig_engine = beside_host;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 3, 0, &in);
    rig_fill(&rig, &c, &in, &seed);
    rig_close(&rig);
    beside_results(&beside_host, g, &in, &want);
    uint64_t wide = packed_bytes(g);
    g->precision = precision;
    assert_int_equal(2 * packed_bytes(g), wide);
    beside_results(&beside_cuda, g, &in, &got);
    double off = beside_distance(&want, &got);
    if (!(off < tolerance && off > tolerance / 100))
        fail_msg("%s: %g from the host engine", g->name, off);
    rig_drop(&want);
    rig_drop(&in);
    rig_drop(&got);
    sy_graph_free(g);
}

static void test_narrow_recurrences_beside_the_host_engine(void **state)
{
    (void)state;
    beside_attach();
    for (int i = 0; i < 16; i++) {
        bool half = i / 8;
        enum sy_op op = i % 4 == 0 ? SY_OP_LSTM : i % 4 == 3 ? SY_OP_RNN : SY_OP_GRU;
        int64_t gates = op == SY_OP_LSTM ? 4 : op == SY_OP_GRU ? 3 : 1;
        narrow_beside_the_host(recurrent_graph(op, gates, i / 4 % 2 ? "bidirectional" : "forward",
                                               i % 2, i / 4 % 2, i % 4 == 1),
                               half ? SY_PRECISION_F16 : SY_PRECISION_BF16, half ? 0.002 : 0.016);
    }
    sy_cuda_engine.detach();
}

/* Of [1, 8, 4, 6], through one operator with these attributes (0: left out). */
static struct sy_graph *through(enum sy_op op, const int64_t *dims, int rank)
{
    struct sy_graph *g = gb_new(sy_op_name(op));
    gb_output(g, gb_node(g, op, INPUTS(gb_input(g, DIMS(1, 8, 4, 6))), rank, dims));
    return g;
}

static void test_more_operators_beside_the_host_engine(void **state)
{
    (void)state;
    static const enum sy_op curves[] = {SY_OP_SELU, SY_OP_SOFTPLUS, SY_OP_SOFTSIGN, SY_OP_MISH,
                                        SY_OP_SIN,  SY_OP_COS,      SY_OP_ATAN,     SY_OP_SINH};
    static const enum sy_op folds[] = {SY_OP_REDUCE_MAX,         SY_OP_REDUCE_MIN,
                                       SY_OP_REDUCE_L1,          SY_OP_REDUCE_L2,
                                       SY_OP_REDUCE_LOG_SUM_EXP, SY_OP_REDUCE_SUM_SQUARE};
    static const enum sy_op norms[] = {SY_OP_INSTANCE_NORM, SY_OP_GROUP_NORM, SY_OP_RMS_NORM};
    struct sy_graph *g;
    beside_attach();
    for (size_t i = 0; i < SY_ARRAY_LEN(curves); i++)
        both_engines(through(curves[i], (int64_t[]){1, 8, 4, 6}, 4));
    for (size_t i = 0; i < SY_ARRAY_LEN(folds); i++) {
        g = through(folds[i], (int64_t[]){1, 8, 1, 6}, 4);
        gb_ints(g, "axes", DIMS(2));
        gb_int(g, "keepdims", 1);
        both_engines(g);
    }
    for (int crd = 0; crd < 2; crd++) {
        g = through(SY_OP_DEPTH_TO_SPACE, (int64_t[]){1, 2, 8, 12}, 4);
        gb_int(g, "blocksize", 2);
        gb_string(g, "mode", crd ? "CRD" : "DCR");
        both_engines(g);
    }
    g = through(SY_OP_SPACE_TO_DEPTH, (int64_t[]){1, 32, 2, 3}, 4);
    gb_int(g, "blocksize", 2);
    both_engines(g);
    for (size_t i = 0; i < SY_ARRAY_LEN(norms); i++) {
        int64_t n = norms[i] == SY_OP_RMS_NORM ? 6 : 8;
        g = gb_new(sy_op_name(norms[i]));
        int x = gb_input(g, DIMS(1, 8, 4, 6)), scale = gb_constant(g, "s", 1, &n, &seed, 0.5, 2),
            bias = gb_constant(g, "b", 1, &n, &seed, -1, 1);
        gb_output(g, norms[i] == SY_OP_RMS_NORM
                         ? gb_node(g, norms[i], INPUTS(x, scale), DIMS(1, 8, 4, 6))
                         : gb_node(g, norms[i], INPUTS(x, scale, bias), DIMS(1, 8, 4, 6)));
        if (norms[i] == SY_OP_GROUP_NORM)
            gb_int(g, "num_groups", 4);
        both_engines(g);
    }
    sy_cuda_engine.detach();
}

static void test_transposed_convolutions_beside_the_host_engine(void **state)
{
    (void)state;
    beside_attach();
    for (int i = 0; i < 4; i++) {
        bool uneven = i & 1, groups = i & 2;
        struct sy_graph *g = gb_new("ConvTranspose");
        int64_t outs = groups ? 6 : 3, rows = uneven ? 8 : 7, columns = 13;
        int x = gb_input(g, DIMS(1, 8, 4, 6));
        int w = gb_constant(g, "w", DIMS(8, 3, 3, 3), &seed, -1, 1),
            b = gb_constant(g, "b", DIMS(outs), &seed, -1, 1);
        gb_output(g,
                  gb_node(g, SY_OP_CONV_TRANSPOSE, INPUTS(x, w, b), DIMS(1, outs, rows, columns)));
        gb_ints(g, "kernel_shape", DIMS(3, 3));
        gb_ints(g, "strides", DIMS(2, 2));
        gb_ints(g, "pads", DIMS(1, 0, uneven ? 0 : 1, 0));
        gb_int(g, "group", groups ? 2 : 1);
        both_engines(g);
    }
    sy_cuda_engine.detach();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recurrences_beside_the_host_engine),
        cmocka_unit_test(test_narrow_recurrences_beside_the_host_engine),
        cmocka_unit_test(test_more_operators_beside_the_host_engine),
        cmocka_unit_test(test_transposed_convolutions_beside_the_host_engine),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

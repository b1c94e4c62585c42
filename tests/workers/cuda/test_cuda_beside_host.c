/* Operators that the CUDA engine makes of several steps, beside the host engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/beside_host.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/program/cuda_engine.h"

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

/* What a recurrence may have beside the usual. */
struct odd {
    const char *activations; /* of one direction */
    float clip;              /* 0: none */
    bool couples, peeps, batch_first;
    int alphas; /* parameters that are given */
};

static void set_odd(struct sy_graph *g, const struct odd *odd, bool both_ways)
{
    char list[128];
    both_ways = both_ways && odd->couples; /* else the names of one direction serve both */
    snprintf(list, sizeof list, "%s%s%s", odd->activations, both_ways ? "," : "",
             both_ways ? odd->activations : "");
    gb_string(g, "activations", list);
    gb_int(g, "input_forget", odd->couples);
    gb_int(g, "layout", odd->batch_first);
    if (odd->alphas > 0) {
        const float alphas[6] = {0.3f, 0.4f, 1.5f, 0.7f, 0.2f, 0.9f};
        assert_int_equal(
            sy_node_set_floats(&g->nodes[g->n_nodes - 1], "activation_alpha", odd->alphas, alphas),
            SY_OK);
    }
    if (odd->clip > 0)
        gb_float(g, "clip", odd->clip);
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

/* Of a batch in front, or behind time; all three results. */
static struct sy_graph *odd_graph(enum sy_op op, int64_t gates, bool both_ways,
                                  const struct odd *odd, bool late)
{
    struct sy_graph *g = gb_new(odd->activations);
    int64_t d = both_ways ? 2 : 1;
    int x = gb_input(g, DIMS(1, 5, 6)), p = -1;
    if (!odd->batch_first) {
        x = shaped(g, gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), DIMS(5, 1, 6)), 1);
        gb_ints(g, "perm", DIMS(1, 0, 2));
    }
    int w = gb_constant(g, "w", DIMS(d, gates * 7, 6), &seed, -1, 1),
        r = gb_constant(g, "r", DIMS(d, gates * 7, 7), &seed, -1, 1),
        b = gb_constant(g, "b", DIMS(d, 2 * gates * 7), &seed, -1, 1);
    if (odd->peeps)
        p = gb_constant(g, "p", DIMS(d, 21), &seed, -1, 1);
    int y = odd->batch_first
                ? gb_node(g, op, INPUTS(x, w, r, b, -1, -1, -1, p), DIMS(1, 5, d, 7))
                : shaped(g, gb_node(g, op, INPUTS(x, w, r, b, -1, -1, -1, p), DIMS(5, d, 1, 7)), 2);
    gb_int(g, "hidden_size", 7);
    gb_int(g, "linear_before_reset", late);
    gb_string(g, "direction", both_ways ? "bidirectional" : "reverse");
    set_odd(g, odd, both_ways);
    if (!odd->batch_first) {
        y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, 5, d, 7));
        gb_ints(g, "perm", DIMS(2, 0, 1, 3));
    }
    gb_output(g, y);
    return g;
}

static void test_odd_recurrences_beside_the_host_engine(void **state)
{
    static const struct odd lstms[] = {{"Sigmoid,Tanh,Tanh", 0.5f, false, true, false, 0},
                                       {"HardSigmoid,Relu,Softsign", 2, false, true, true, 1},
                                       {"ScaledTanh,Elu,LeakyRelu", 0, true, false, false, 5},
                                       {"Sigmoid,Softplus,Tanh", 0, true, true, true, 0}},
                            others[] = {{"Sigmoid,Tanh", 0.5f, false, false, true, 0},
                                        {"HardSigmoid,ThresholdedRelu", 0, false, false, false, 4},
                                        {"Tanh,Affine", 1, false, false, true, 0}};
    (void)state;
    beside_attach();
    for (size_t i = 0; i < SY_ARRAY_LEN(lstms); i++)
        for (int both = 0; both < 2; both++)
            both_engines(odd_graph(SY_OP_LSTM, 4, both, &lstms[i], false));
    for (size_t i = 0; i < SY_ARRAY_LEN(others); i++)
        for (int late = 0; late < 2; late++)
            both_engines(odd_graph(SY_OP_GRU, 3, late, &others[i], late));
    for (size_t i = 0; i < SY_ARRAY_LEN(others); i++) {
        struct odd odd = others[i];
        odd.activations = strchr(odd.activations, ',') + 1;
        both_engines(odd_graph(SY_OP_RNN, 1, i % 2, &odd, false));
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

/* ---- lists that travel with the kernels' arguments ------------------------------------------------------ */

/* Grams of one, two and three numbers, more than one kernel has room for. */
static struct sy_graph *grams_graph(const char *mode, int64_t skips)
{
    struct sy_graph *g = gb_new(mode);
    int64_t counts[3] = {0, 40, 120}, pool[210], indexes[110], columns = 120;
    float weights[110];
    for (int i = 0; i < 210; i++)
        pool[i] = (int64_t)gb_uniform(&seed, 0, 5);
    for (int i = 0; i < 110; i++) {
        indexes[i] = (i * 37) % 115; /* two columns have none, some two */
        weights[i] = (float)gb_uniform(&seed, 0, 2);
    }
    int x = gb_input(g, DIMS(1, 30)), zero = gb_constant(g, "s", DIMS(1), &seed, 5, 5.0001);
    x = gb_node(g, SY_OP_ABS, INPUTS(x), DIMS(1, 30));
    x = gb_node(g, SY_OP_MUL, INPUTS(x, zero), DIMS(1, 30));
    x = gb_node(g, SY_OP_CAST, INPUTS(x), DIMS(1, 30));
    g->tensors[x].dtype = SY_DTYPE_I64;
    x = gb_node(g, SY_OP_TF_IDF, INPUTS(x), DIMS(1, columns));
    gb_string(g, "mode", mode);
    gb_ints(g, "ngram_counts", 3, counts);
    gb_ints(g, "pool_int64s", 210, pool);
    gb_ints(g, "ngram_indexes", 110, indexes);
    assert_int_equal(sy_node_set_floats(&g->nodes[g->n_nodes - 1], "weights", 110, weights), SY_OK);
    gb_int(g, "min_gram_length", 1);
    gb_int(g, "max_gram_length", skips ? 3 : 2);
    gb_int(g, "max_skip_count", skips);
    gb_output(g, x);
    return g;
}

/* 3 N + 2, N - 1, 3 N + 4, N - 3 and so on, added to what comes. */
static struct sy_graph *numbers_graph(int64_t count)
{
    struct sy_graph *g = gb_new("numbers");
    int64_t fixed[300], per_batch[300];
    for (int64_t i = 0; i < count; i++) {
        fixed[i] = i % 2 ? -i : 2 + i;
        per_batch[i] = i % 2 ? 1 : 3;
    }
    int x = gb_input(g, DIMS(1, count)), n = gb_node(g, SY_OP_NUMBERS, 0, NULL, 1, &count);
    g->tensors[n].dtype = SY_DTYPE_I64;
    g->tensors[n].shape.dims[0] = (struct sy_dim){.fixed = count};
    gb_ints(g, "fixed", (int)count, fixed);
    gb_ints(g, "per_batch", (int)count, per_batch);
    n = gb_node(g, SY_OP_CAST, INPUTS(n), 1, &count);
    g->tensors[n].shape.dims[0] = (struct sy_dim){.fixed = count};
    gb_output(g, gb_node(g, SY_OP_ADD, INPUTS(x, n), DIMS(1, count)));
    return g;
}

static void test_lists_beside_the_host_engine(void **state)
{
    static const char *const modes[] = {"TF", "IDF", "TFIDF"};
    (void)state;
    beside_attach();
    for (int i = 0; i < 6; i++)
        both_engines(grams_graph(modes[i % 3], i / 3 * 2));
    both_engines(numbers_graph(2));
    both_engines(numbers_graph(300)); /* more than a step's arguments have room for */
    sy_cuda_engine.detach();
}

/* ---- more than one kernel takes ------------------------------------------------------------------------ */

enum { PARTS = 7 };

/* Each part less half of itself, joined again; the sizes are data. */
static struct sy_graph *parts_graph(const int64_t *declared, const int64_t *given)
{
    struct sy_graph *g = gb_new("parts");
    int parts[PARTS], x = gb_input(g, DIMS(1, 16, 3));
    int sizes = gb_constant_of(g, SY_DTYPE_I64, DIMS(PARTS), given);
    x = gb_node(g, SY_OP_TANH, INPUTS(x), DIMS(1, 16, 3));
    parts[0] = gb_node(g, SY_OP_RUN_SPLIT, INPUTS(x, sizes), DIMS(1, declared[0], 3));
    gb_int(g, "axis", 1);
    struct sy_node *node = &g->nodes[g->n_nodes - 1];
    node->outputs = realloc(node->outputs, PARTS * sizeof *node->outputs);
    assert_non_null(node->outputs);
    node->n_outputs = PARTS;
    for (int i = 1; i < PARTS; i++) {
        struct sy_shape shape = g->tensors[x].shape;
        shape.dims[1] = (struct sy_dim){.fixed = declared[i]};
        assert_int_equal(sy_graph_add_tensor(g, "part", SY_DTYPE_F32, &shape, &parts[i]), SY_OK);
        node->outputs[i] = parts[i];
    }
    for (int i = 0; i < PARTS; i += 2)
        parts[i] = gb_node(g, SY_OP_ADD, INPUTS(parts[i], parts[i]), DIMS(1, declared[i], 3));
    gb_output(g, gb_node(g, SY_OP_CONCAT, PARTS, parts, DIMS(1, 16, 3)));
    gb_int(g, "axis", 1);
    return g;
}

static void test_parts_beside_the_host_engine(void **state)
{
    static const int64_t parts[PARTS] = {1, 3, 2, 1, 4, 2, 3},
                         others[PARTS] = {1, 3, 2, 1, 4, 3, 2};
    (void)state;
    beside_attach();
    both_engines(parts_graph(parts, parts));
    struct sy_graph *g = parts_graph(parts, others);
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct engine_case c = {0};
    rig_engine = beside_cuda;
    assert_int_equal(rig_open(&rig, g, true), SY_OK);
    struct sy_program *p = rig_program(&rig, 2);
    rig_take(&rig, rig.graph->inputs, 1, 2, 0, &in);
    rig_take(&rig, rig.graph->outputs, 1, 2, 0, &out);
    rig_fill(&rig, &c, &in, &seed);
    assert_int_equal(rig_run(&rig, p, &in, &out, 0xff, NULL), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "RunSplit"));
    rig_drop(&in);
    rig_drop(&out);
    rig_engine.ops->program_destroy(p);
    rig_close(&rig);
    sy_graph_free(g);
    sy_cuda_engine.detach();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_beside_the_host_engine),
        cmocka_unit_test(test_recurrences_beside_the_host_engine),
        cmocka_unit_test(test_odd_recurrences_beside_the_host_engine),
        cmocka_unit_test(test_narrow_recurrences_beside_the_host_engine),
        cmocka_unit_test(test_lists_beside_the_host_engine),
        cmocka_unit_test(test_more_operators_beside_the_host_engine),
        cmocka_unit_test(test_transposed_convolutions_beside_the_host_engine),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

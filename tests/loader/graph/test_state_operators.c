/* Operators with a state of fixed size (opset 27), against their definitions, token by token: CausalConvWithState and LinearAttention. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, OPSET = 27, BATCH = 2, CHANNELS = 3, MOST_WIDTH = 5 };
enum { QUERIES = 4, HEADS = 2, GROUPS = QUERIES / HEADS, SIZE = 3, VALUES = 5 };

static char path[64];
static struct ob graph, node;
static uint64_t seed;

static void fill(struct rig_tensors *t)
{
    for (int i = 0; i < t->n; i++)
        for (uint64_t k = 0; k < t->bytes[i] / sizeof(float); k++)
            ((float *)t->data[i])[k] = (float)gb_uniform(&seed, -1, 1);
}

static void assert_near(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) < 2e-5f))
            fail_msg("number %d is %g, not %g", i, (double)got[i], (double)want[i]);
}

/* Runs `graph` on random numbers; the caller drops in and out. */
static void run(struct rig_tensors *in, struct rig_tensors *out)
{
    struct engine_rig rig;
    struct sy_graph *g;
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "state", FLOAT, 0, NULL);
    ob_save(path, &graph, OPSET);
    g = onnx_optimized(path);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, BATCH);
    rig_take(&rig, g->inputs, g->n_inputs, BATCH, 0, in);
    fill(in);
    rig_take(&rig, g->outputs, g->n_outputs, BATCH, 0xff, out);
    assert_int_equal(rig_run(&rig, program, in, out, 0xff, &seed), SY_OK);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(g);
}

/* ---- CausalConvWithState ---- */

static void convolve(int length, int width, bool has_past)
{
    float weights[CHANNELS * MOST_WIDTH], bias[CHANNELS], want[BATCH * CHANNELS * 16];
    float padded[MOST_WIDTH + 16] = {0}, kept[BATCH * CHANNELS * MOST_WIDTH];
    struct rig_tensors in, out;
    int before = width - 1;
    for (int i = 0; i < CHANNELS * width; i++)
        weights[i] = (float)gb_uniform(&seed, -1, 1);
    for (int i = 0; i < CHANNELS; i++)
        bias[i] = (float)gb_uniform(&seed, -1, 1);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, CHANNELS, length));
    if (has_past)
        ob_input(&graph, OB_GRAPH_INPUT, "past", FLOAT, DIMS(-1, CHANNELS, before));
    ob_initializer(&graph, "w", FLOAT, DIMS(CHANNELS, 1, width), weights,
                   sizeof *weights * (size_t)(CHANNELS * width));
    ob_initializer(&graph, "b", FLOAT, DIMS(CHANNELS), bias, sizeof bias);
    ob_node(&node, "CausalConvWithState", NAMES("x", "w", "b", has_past ? "past" : ""),
            NAMES("y", "state"));
    ob_attr_text(&node, "activation", "silu");
    run(&in, &out);
    for (int row = 0; row < BATCH * CHANNELS; row++) {
        if (has_past)
            memcpy(padded, (float *)in.data[1] + row * before, sizeof(float) * (size_t)before);
        memcpy(padded + before, (float *)in.data[0] + row * length, sizeof(float) * (size_t)length);
        for (int t = 0; t < length; t++) {
            float sum = bias[row % CHANNELS];
            for (int k = 0; k < width; k++)
                sum += padded[t + k] * weights[row % CHANNELS * width + k];
            want[row * length + t] = sum / (1 + expf(-sum));
        }
        memcpy(kept + row * before, padded + length, sizeof(float) * (size_t)before);
    }
    assert_near(out.data[0], want, BATCH * CHANNELS * length);
    assert_near(out.data[1], kept, BATCH * CHANNELS * before);
    rig_drop(&in);
    rig_drop(&out);
}

static void test_causal_conv(void **state)
{
    (void)state;
    convolve(7, 4, true);
    convolve(7, 4, false);
    convolve(1, 3, true);  /* one token of a decoder */
    convolve(2, 5, false); /* shorter than what is kept */
    convolve(3, 1, false); /* keeps nothing */
}

/* ---- LinearAttention ---- */

struct rule {
    const char *name;
    bool is_gated, is_delta;
};

/* Inputs in the order of the model: query, key, value, past state, then decay and beta where the rule has them. */
struct operands {
    const float *q, *k, *v, *decay, *beta;
    float *state; /* [batch, HEADS, SIZE, VALUES], changed */
    int length;
};

static void attend_token(const struct rule *rule, const struct operands *o, int row, int t,
                         int head, float *y)
{
    int at = row * o->length + t;
    float *state = o->state + (row * HEADS + head) * SIZE * VALUES;
    const float *key = o->k + (at * HEADS + head) * SIZE;
    for (int i = 0; rule->is_gated && i < SIZE; i++)
        for (int j = 0; j < VALUES; j++)
            state[i * VALUES + j] *= expf(o->decay[(at * HEADS + head) * SIZE + i]);
    for (int j = 0; j < VALUES; j++) {
        float value = o->v[(at * HEADS + head) * VALUES + j], known = 0;
        for (int i = 0; i < SIZE; i++)
            known += key[i] * state[i * VALUES + j];
        if (rule->is_delta)
            value = (value - known) * o->beta[at * HEADS + head];
        for (int i = 0; i < SIZE; i++)
            state[i * VALUES + j] += key[i] * value;
    }
    for (int g = 0; g < GROUPS; g++)
        for (int j = 0; j < VALUES; j++) {
            int query = at * QUERIES + head * GROUPS + g;
            float sum = 0;
            for (int i = 0; i < SIZE; i++)
                sum += o->q[query * SIZE + i] * state[i * VALUES + j];
            y[query * VALUES + j] = sum / sqrtf(SIZE);
        }
}

static void attend(const struct rule *rule, int length)
{
    float want[BATCH * 8 * QUERIES * VALUES];
    struct rig_tensors in, out;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "q", FLOAT, DIMS(-1, length, QUERIES * SIZE));
    ob_input(&graph, OB_GRAPH_INPUT, "k", FLOAT, DIMS(-1, length, HEADS * SIZE));
    ob_input(&graph, OB_GRAPH_INPUT, "v", FLOAT, DIMS(-1, length, HEADS * VALUES));
    ob_input(&graph, OB_GRAPH_INPUT, "past", FLOAT, DIMS(-1, HEADS, SIZE, VALUES));
    if (rule->is_gated)
        ob_input(&graph, OB_GRAPH_INPUT, "decay", FLOAT, DIMS(-1, length, HEADS * SIZE));
    if (rule->is_delta)
        ob_input(&graph, OB_GRAPH_INPUT, "beta", FLOAT, DIMS(-1, length, HEADS));
    ob_node(
        &node, "LinearAttention",
        NAMES("q", "k", "v", "past", rule->is_gated ? "decay" : "", rule->is_delta ? "beta" : ""),
        NAMES("y", "state"));
    ob_attr_text(&node, "update_rule", rule->name);
    ob_attr_int(&node, "q_num_heads", QUERIES);
    ob_attr_int(&node, "kv_num_heads", HEADS);
    run(&in, &out);
    struct operands o = {in.data[0],
                         in.data[1],
                         in.data[2],
                         in.data[rule->is_gated ? 4 : 0],
                         in.data[rule->is_delta ? in.n - 1 : 0],
                         in.data[3],
                         length};
    for (int row = 0; row < BATCH; row++)
        for (int t = 0; t < length; t++)
            for (int head = 0; head < HEADS; head++)
                attend_token(rule, &o, row, t, head, want);
    assert_near(out.data[0], want, BATCH * length * QUERIES * VALUES);
    assert_near(out.data[1], o.state, BATCH * HEADS * SIZE * VALUES);
    rig_drop(&in);
    rig_drop(&out);
}

static void test_linear_attention(void **state)
{
    static const struct rule rules[] = {{"linear", false, false},
                                        {"gated", true, false},
                                        {"delta", false, true},
                                        {"gated_delta", true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        attend(&rules[i], 6);
        attend(&rules[i], 1); /* one token of a decoder */
    }
}

static void test_refused(void **state)
{
    struct sy_graph *g;
    (void)state;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "q", FLOAT, DIMS(-1, 2, 12));
    ob_node(&node, "LinearAttention", NAMES("q", "q", "q"), NAMES("y", "state"));
    ob_attr_text(&node, "update_rule", "delta");
    ob_attr_int(&node, "q_num_heads", 2);
    ob_attr_int(&node, "kv_num_heads", 2);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(path, &graph, OPSET);
    assert_int_equal(sy_onnx_read(path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "without its beta"));
    sy_graph_free(g);
}

/* `node`, its inputs known to `graph`. */
static void assert_refused(const char *why)
{
    struct sy_graph *g;
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(path, &graph, OPSET);
    assert_int_equal(sy_onnx_read(path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_ECORRUPT);
    if (!strstr(sy_error_text(), why))
        fail_msg("'%s' does not say: %s", sy_error_text(), why);
    sy_graph_free(g);
}

static void linear_of(int width, int n_past, const int64_t *past)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "q", FLOAT, DIMS(-1, 2, width));
    ob_input(&graph, OB_GRAPH_INPUT, "past", FLOAT, n_past, past);
    ob_node(&node, "LinearAttention", NAMES("q", "q", "q", "past"), NAMES("y", "state"));
    ob_attr_text(&node, "update_rule", "linear");
    ob_attr_int(&node, "q_num_heads", 2);
    ob_attr_int(&node, "kv_num_heads", 2);
}

/* Sizes that would be broadcast, or would make outputs of other sizes than they should be. */
static void test_wrong_sizes_are_refused(void **state)
{
    static const float weights[CHANNELS * 4];
    (void)state;
    linear_of(12, DIMS(2, 6, 6));
    assert_refused("other than 4 dimensions");
    linear_of(0, DIMS(-1, 2, 0, 0));
    assert_refused("heads of queries");
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, CHANNELS, 7));
    ob_input(&graph, OB_GRAPH_INPUT, "past", FLOAT, DIMS(-1, CHANNELS, 2));
    ob_initializer(&graph, "w", FLOAT, DIMS(CHANNELS, 1, 4), weights, sizeof weights);
    ob_node(&node, "CausalConvWithState", NAMES("x", "w", "", "past"), NAMES("y", "state"));
    assert_refused("[batch, channels, 3]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal_conv),
        cmocka_unit_test(test_linear_attention),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_wrong_sizes_are_refused),
    };
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-state-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

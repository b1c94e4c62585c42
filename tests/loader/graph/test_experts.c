/* What language models of ONNX Runtime have besides: mixtures of experts, attention whose weights sum to less than 1, products whose weights are 4 bits that
 * name a float. Against their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum {
    FLOAT = 1,
    UINT8 = 2,
    INT32 = 6,
    DOMAIN = 7,
    TOKENS = 2,
    HIDDEN = 4,
    MIDDLE = 6,
    EXPERTS = 3,
    USED = 2
};

static char path[64];
static struct ob graph, node;
static uint64_t seed;

static void random_floats(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)gb_uniform(&seed, -1, 1);
}

/* Runs the graph on x; its first output must be `want`. */
static void assert_gives(const float *x, const float *want, int n)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *g;
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(path, &graph, 13);
    g = onnx_optimized(path);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, TOKENS);
    rig_take(&rig, g->inputs, g->n_inputs, TOKENS, 0, &in);
    memcpy(in.data[0], x, in.bytes[0]);
    rig_take(&rig, g->outputs, g->n_outputs, TOKENS, 0xff, &out);
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    assert_int_equal(out.bytes[0], (size_t)n * sizeof *want);
    for (int i = 0; i < n; i++)
        if (fabsf(((const float *)out.data[0])[i] - want[i]) > 1e-5f)
            fail_msg("element %d is %g, not %g", i, (double)((const float *)out.data[0])[i],
                     (double)want[i]);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

/* ---- experts -------------------------------------------------------------------------------------- */

struct mixture {
    float router[HIDDEN][EXPERTS];
    float w1[EXPERTS][2 * MIDDLE][HIDDEN], b1[EXPERTS][2 * MIDDLE], w2[EXPERTS][HIDDEN][MIDDLE],
        w3[EXPERTS][MIDDLE][HIDDEN];
    int rows; /* of w1 that count */
};

static float silu(float x)
{
    return x / (1 + expf(-x));
}

static float row_of(const float *w, const float *x)
{
    float sum = 0;
    for (int i = 0; i < HIDDEN; i++)
        sum += w[i] * x[i];
    return sum;
}

/* silu(x w1 + b1), times x w3 or the second half of the rows. */
static float expert_middle(const struct mixture *m, int e, int i, const float *x)
{
    float gate = silu(row_of(m->w1[e][i], x) + m->b1[e][i]);
    if (m->rows > MIDDLE)
        return gate * (row_of(m->w1[e][i + MIDDLE], x) + m->b1[e][i + MIDDLE]);
    return gate * row_of(m->w3[e][i], x);
}

/* The two experts of three that are ranked highest, their probabilities made to sum to 1. */
static void mix(const struct mixture *m, const float *x, float *y)
{
    float rank[EXPERTS] = {0}, sum = 0;
    int least = 0;
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < HIDDEN; i++)
            rank[e] += x[i] * m->router[i][e];
        least = rank[e] < rank[least] ? e : least;
    }
    for (int e = 0; e < EXPERTS; e++)
        sum += e == least ? 0 : expf(rank[e]);
    memset(y, 0, HIDDEN * sizeof *y);
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; e != least && i < HIDDEN; i++)
            for (int k = 0; k < MIDDLE; k++)
                y[i] += expf(rank[e]) / sum * m->w2[e][i][k] * expert_middle(m, e, k, x);
}

static void begin(const struct mixture *m)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, HIDDEN));
    ob_initializer(&graph, "r", FLOAT, DIMS(HIDDEN, EXPERTS), m->router, sizeof m->router);
    ob_add(&graph, "MatMul", NAMES("x", "r"), NAMES("p"));
}

static void end(const char *activation)
{
    ob_text(&node, DOMAIN, "com.microsoft");
    ob_attr_text(&node, "activation_type", activation);
    ob_attr_int(&node, "k", USED);
    ob_attr_int(&node, "normalize_routing_weights", 1);
}

static void assert_mixes(const struct mixture *m)
{
    float x[TOKENS * HIDDEN], want[TOKENS * HIDDEN];
    random_floats(x, TOKENS * HIDDEN);
    for (int i = 0; i < TOKENS; i++)
        mix(m, x + i * HIDDEN, want + i * HIDDEN);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    assert_gives(x, want, TOKENS * HIDDEN);
}

static void random_mixture(struct mixture *m, int rows)
{
    random_floats(m->router[0], HIDDEN * EXPERTS);
    random_floats(m->w1[0][0], EXPERTS * 2 * MIDDLE * HIDDEN);
    random_floats(m->b1[0], EXPERTS * 2 * MIDDLE);
    random_floats(m->w2[0][0], EXPERTS * HIDDEN * MIDDLE);
    random_floats(m->w3[0][0], EXPERTS * MIDDLE * HIDDEN);
    m->rows = rows;
}

static void test_third_layer(void **state)
{
    (void)state;
    struct mixture m;
    float w1[EXPERTS][MIDDLE][HIDDEN], b1[EXPERTS][MIDDLE];
    random_mixture(&m, MIDDLE);
    for (int e = 0; e < EXPERTS; e++) {
        memcpy(w1[e], m.w1[e], sizeof w1[e]);
        memcpy(b1[e], m.b1[e], sizeof b1[e]);
    }
    begin(&m);
    ob_initializer(&graph, "w1", FLOAT, DIMS(EXPERTS, MIDDLE, HIDDEN), w1, sizeof w1);
    ob_initializer(&graph, "b1", FLOAT, DIMS(EXPERTS, MIDDLE), b1, sizeof b1);
    ob_initializer(&graph, "w2", FLOAT, DIMS(EXPERTS, HIDDEN, MIDDLE), m.w2, sizeof m.w2);
    ob_initializer(&graph, "w3", FLOAT, DIMS(EXPERTS, MIDDLE, HIDDEN), m.w3, sizeof m.w3);
    ob_node(&node, "MoE", NAMES("x", "p", "w1", "b1", "w2", "", "w3"), NAMES("y"));
    end("silu");
    assert_mixes(&m);
}

/* SwiGLU of the two halves of the first layer's results; weights of 8 bits with a scale and a zero for each row. */
static void test_halves_of_eight_bits(void **state)
{
    (void)state;
    static struct mixture m;
    static uint8_t q1[EXPERTS][2 * MIDDLE][HIDDEN], q2[EXPERTS][HIDDEN][MIDDLE],
        z1[EXPERTS][2 * MIDDLE];
    static float s1[EXPERTS][2 * MIDDLE], s2[EXPERTS][HIDDEN];
    random_mixture(&m, 2 * MIDDLE);
    for (int e = 0; e < EXPERTS; e++)
        for (int r = 0; r < 2 * MIDDLE; r++) {
            s1[e][r] = (float)gb_uniform(&seed, 0.001, 0.01);
            z1[e][r] = (uint8_t)gb_uniform(&seed, 90, 160);
            for (int k = 0; k < HIDDEN; k++) {
                q1[e][r][k] = (uint8_t)gb_uniform(&seed, 0, 256);
                m.w1[e][r][k] = (float)(q1[e][r][k] - z1[e][r]) * s1[e][r];
            }
        }
    for (int e = 0; e < EXPERTS; e++)
        for (int r = 0; r < HIDDEN; r++) {
            s2[e][r] = (float)gb_uniform(&seed, 0.001, 0.01);
            for (int k = 0; k < MIDDLE; k++) {
                q2[e][r][k] = (uint8_t)gb_uniform(&seed, 0, 256);
                m.w2[e][r][k] = (float)(q2[e][r][k] - 128) * s2[e][r];
            }
        }
    begin(&m);
    ob_initializer(&graph, "q1", UINT8, DIMS(EXPERTS, 2 * MIDDLE, HIDDEN), q1, sizeof q1);
    ob_initializer(&graph, "s1", FLOAT, DIMS(EXPERTS, 2 * MIDDLE), s1, sizeof s1);
    ob_initializer(&graph, "b1", FLOAT, DIMS(EXPERTS, 2 * MIDDLE), m.b1, sizeof m.b1);
    ob_initializer(&graph, "q2", UINT8, DIMS(EXPERTS, HIDDEN, MIDDLE), q2, sizeof q2);
    ob_initializer(&graph, "s2", FLOAT, DIMS(EXPERTS, HIDDEN), s2, sizeof s2);
    ob_initializer(&graph, "z1", UINT8, DIMS(EXPERTS, 2 * MIDDLE), z1, sizeof z1);
    ob_node(&node, "QMoE", NAMES("x", "p", "q1", "s1", "b1", "q2", "s2", "", "", "", "", "z1"),
            NAMES("y"));
    end("swiglu");
    ob_attr_int(&node, "swiglu_fusion", 2);
    ob_attr_int(&node, "expert_weight_bits", 8);
    assert_mixes(&m);
}

/* ---- attention ------------------------------------------------------------------------------------ */

/* One head of `SIZE` numbers, two tokens; the sum of each softmax has one more number, that of a score of 0 or of the head's sink. The last time the second
 * token does not see the first, by a bias of -infinity. */
static void test_smooth_softmax(void **state)
{
    (void)state;
    enum { SIZE = 4, LENGTH = 2, WIDTH = 3 * SIZE };
    float x[TOKENS][LENGTH][WIDTH], want[TOKENS][LENGTH][SIZE];
    random_floats(x[0][0], TOKENS * LENGTH * WIDTH);
    for (int trial = 0; trial < 3; trial++) {
        const bool has_sink = trial > 0, is_masked = trial == 2;
        const float sink = has_sink ? 1.5f : 0;
        const float bias[LENGTH][LENGTH] = {{0, 0}, {is_masked ? -INFINITY : 0, 0}};
        for (int b = 0; b < TOKENS; b++)
            for (int t = 0; t < LENGTH; t++) {
                float sum = expf(sink), y[SIZE] = {0};
                for (int k = is_masked ? t : 0; k <= t; k++) {
                    float weight = expf(row_of(x[b][t], x[b][k] + SIZE) / 2); /* sqrt(SIZE) */
                    sum += weight;
                    for (int i = 0; i < SIZE; i++)
                        y[i] += weight * x[b][k][2 * SIZE + i];
                }
                for (int i = 0; i < SIZE; i++)
                    want[b][t][i] = y[i] / sum;
            }
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, LENGTH, WIDTH));
        ob_initializer(&graph, "ends", INT32, DIMS(TOKENS), (const int32_t[]){1, 1}, 8);
        ob_initializer(&graph, "total", INT32, 0, NULL, &(int32_t){LENGTH}, 4);
        ob_initializer(&graph, "sink", FLOAT, DIMS(1), &sink, sizeof sink);
        ob_initializer(&graph, "bias", FLOAT, DIMS(1, 1, LENGTH, LENGTH), bias, sizeof bias);
        ob_node(&node, "GroupQueryAttention",
                has_sink ? NAMES("x", "", "", "", "", "ends", "total", "", "", "", "bias", "sink")
                         : NAMES("x", "", "", "", "", "ends", "total"),
                NAMES("y"));
        ob_text(&node, DOMAIN, "com.microsoft");
        ob_attr_int(&node, "num_heads", 1);
        ob_attr_int(&node, "kv_num_heads", 1);
        ob_attr_int(&node, "smooth_softmax", !has_sink);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        assert_gives(x[0][0], want[0][0], TOKENS * LENGTH * SIZE);
    }
}

/* ---- MatMulBnb4 ----------------------------------------------------------------------------------- */

/* One row of 16 numbers, the 16 codes in order, times 2: a sign and shares for FP4, quantiles for NF4. */
static void test_named_floats(void **state)
{
    (void)state;
    enum { N = 16 };
    static const float fp4[8] = {0,           0.0052083333f, 0.6666667f,  1,
                                 0.33333333f, 0.5f,          0.16666667f, 0.25f};
    static const float nf4[N] = {-1,           -0.69619280f, -0.52507305f, -0.39491749f,
                                 -0.28444138f, -0.18477343f, -0.09105004f, 0,
                                 0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                                 0.44070983f,  0.56261700f,  0.72295684f,  1};
    uint8_t codes[N / 2];
    float x[TOKENS] = {1, -0.5f}, want[TOKENS * N];
    for (int i = 0; i < N / 2; i++)
        codes[i] = (uint8_t)(2 * i << 4 | (2 * i + 1));
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < TOKENS * N; i++) {
            float share = kind ? nf4[i % N] : i % N < 8 ? fp4[i % N] : -fp4[i % N - 8];
            want[i] = x[i / N] * 2 * share;
        }
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1));
        ob_initializer(&graph, "b", UINT8, DIMS(N / 2), codes, sizeof codes);
        ob_initializer(&graph, "most", FLOAT, DIMS(1), &(float){2}, sizeof(float));
        ob_node(&node, "MatMulBnb4", NAMES("x", "b", "most"), NAMES("y"));
        ob_text(&node, DOMAIN, "com.microsoft");
        ob_attr_int(&node, "K", 1);
        ob_attr_int(&node, "N", N);
        ob_attr_int(&node, "block_size", 16);
        ob_attr_int(&node, "quant_type", kind);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        assert_gives(x, want, TOKENS * N);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_third_layer), cmocka_unit_test(test_halves_of_eight_bits),
        cmocka_unit_test(test_smooth_softmax), cmocka_unit_test(test_named_floats)};
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-experts-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

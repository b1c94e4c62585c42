/* Recurrences within If and Loop whose weights get their shape there, of inputs whose dimensions have neither name nor number: against loops here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/sized_run.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, HIDDEN = 6, FEATURES = 3, MOST = 512 };

static struct ob graph, outer, inner[2], node;
static uint64_t seed;
static float w[4 * HIDDEN * FEATURES], r[4 * HIDDEN * HIDDEN], b[8 * HIDDEN];

static void nameless(struct ob *to, int field, const char *name)
{
    ob_input(to, field, name, FLOAT, DIMS(OB_NAMELESS, OB_NAMELESS, OB_NAMELESS));
}

/* y = gain * the last state of an LSTM over x3; its weights get a dimension more in this body. */
static void add_branch(struct ob *body, const char *gain, bool flat)
{
    ob_graph(body);
    if (flat) { /* the weights as one row, turned */
        ob_add(body, "Reshape", NAMES("w_flat", "w_dims"), NAMES("w1"));
    } else {
        ob_add(body, "Unsqueeze", NAMES("w", "axis0"), NAMES("w1"));
    }
    ob_add(body, "Unsqueeze", NAMES("r", "axis0"), NAMES("r1"));
    ob_add(body, "Unsqueeze", NAMES("b", "axis0"), NAMES("b1"));
    ob_node(&node, "LSTM", NAMES("x3", "w1", "r1", "b1"), NAMES("", "last"));
    ob_attr_int(&node, "hidden_size", HIDDEN);
    ob_message(body, OB_GRAPH_NODE, &node);
    ob_add(body, "Mul", NAMES("last", gain), NAMES("y"));
    nameless(body, OB_GRAPH_OUTPUT, "y");
}

static void add_if(struct ob *to, const char *condition, const char *result, const struct ob *then,
                   const struct ob *otherwise)
{
    ob_node(&node, "If", NAMES(condition), NAMES(result));
    ob_attr_graph(&node, "then_branch", then);
    ob_attr_graph(&node, "else_branch", otherwise);
    ob_message(to, OB_GRAPH_NODE, &node);
}

static void open_graph(void)
{
    ob_graph(&graph);
    ob_uniform(&graph, "w", w, DIMS(4 * HIDDEN, FEATURES), &seed);
    ob_uniform(&graph, "r", r, DIMS(4 * HIDDEN, HIDDEN), &seed);
    ob_uniform(&graph, "b", b, DIMS(8 * HIDDEN), &seed);
    ob_initializer(&graph, "w_flat", FLOAT, DIMS(4 * HIDDEN * FEATURES), w, sizeof w);
    ob_int64s(&graph, "w_dims", 3, (const int64_t[]){1, 4 * HIDDEN, FEATURES});
    ob_int64s(&graph, "axis0", 1, (const int64_t[]){0});
    ob_initializer(&graph, "once", FLOAT, 0, NULL, &(float){1}, sizeof(float));
    ob_initializer(&graph, "twice", FLOAT, 0, NULL, &(float){2}, sizeof(float));
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* The last hidden state of one row over `steps` of `rows`; gates in ONNX's order: input, output, forget, cell. */
static void last_state(const float *x, int64_t steps, int64_t rows, int64_t row, float *hidden)
{
    float cell[HIDDEN] = {0}, gates[4 * HIDDEN];
    memset(hidden, 0, HIDDEN * sizeof *hidden);
    for (int64_t t = 0; t < steps; t++) {
        for (int g = 0; g < 4 * HIDDEN; g++) {
            gates[g] = b[g] + b[4 * HIDDEN + g];
            for (int i = 0; i < FEATURES; i++)
                gates[g] += w[g * FEATURES + i] * x[(t * rows + row) * FEATURES + i];
            for (int i = 0; i < HIDDEN; i++)
                gates[g] += r[g * HIDDEN + i] * hidden[i];
        }
        for (int i = 0; i < HIDDEN; i++) {
            cell[i] = sigmoid(gates[2 * HIDDEN + i]) * cell[i] +
                      sigmoid(gates[i]) * tanhf(gates[3 * HIDDEN + i]);
            hidden[i] = sigmoid(gates[HIDDEN + i]) * tanhf(cell[i]);
        }
    }
}

static void expect_states(const struct sized_output *out, const float *x, int64_t steps,
                          int64_t rows, float gain)
{
    float hidden[HIDDEN];
    assert_int_equal(out->shape.rank, 3);
    assert_int_equal(out->bytes, (uint64_t)rows * sizeof hidden);
    for (int64_t row = 0; row < rows; row++) {
        last_state(x, steps, rows, row, hidden);
        for (int i = 0; i < HIDDEN; i++)
            assert_true(fabsf(((float *)out->data)[row * HIDDEN + i] - gain * hidden[i]) < 1e-5f);
    }
}

static const float *random_steps(int64_t n)
{
    static float x[MOST];
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)gb_uniform(&seed, -1, 1);
    return x;
}

/* Bodies compute nothing of constants alone: what they capture beside x3 is constant, and of their own nodes LSTM and Mul are left. */
static void expect_constant_weights(const struct sy_graph *g)
{
    int n_constants = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct sy_node *own = &g->nodes[n];
        for (int i = 0; i < own->n_attrs; i++)
            if (own->attrs[i].graph)
                assert_int_equal(own->attrs[i].graph->n_nodes, 2);
        for (int i = 1; own->op == SY_OP_IF && i < own->n_inputs; i++)
            n_constants += g->tensors[own->inputs[i]].data && g->tensors[own->inputs[i]].shape.rank;
    }
    assert_true(n_constants >= 3);
}

/* Which branch runs is known at run only. */
static void test_either_branch(void **state)
{
    (void)state;
    open_graph();
    nameless(&graph, OB_GRAPH_INPUT, "x");
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, 0, NULL);
    ob_add(&graph, "Identity", NAMES("x"), NAMES("x3"));
    add_branch(&inner[0], "once", false);
    add_branch(&inner[1], "twice", true);
    add_if(&graph, "flag", "out", &inner[0], &inner[1]);
    nameless(&graph, OB_GRAPH_OUTPUT, "out");
    ob_save(ob_path, &graph, 14);
    struct sy_graph *g = sized_import(ob_path);
    assert_int_equal(sized_at_run(g), 0);
    expect_constant_weights(g);
    for (int64_t k = 1; k <= 3; k++)
        for (unsigned char flag = 0; flag < 2; flag++) {
            struct sized_output out;
            const float *x = random_steps(2 * k * k * FEATURES);
            const struct sized_input in[] = {{x, 3, {2 * k, k, FEATURES}}, {&flag, 0, {0}}};
            if (sized_run(g, 2, in, &out) < 0)
                fail_msg("%s", sy_error_text());
            expect_states(&out, x, 2 * k, k, flag ? 1 : 2);
            free(out.data);
        }
    sy_graph_free(g);
}

/* o = x (c + c) with c = w + w: c is also what the body hands out, so it is made there, and so is what reads it. */
static void add_handing_out(struct ob *body)
{
    ob_graph(body);
    ob_add(body, "Add", NAMES("w3", "w3"), NAMES("c"));
    ob_add(body, "Add", NAMES("c", "c"), NAMES("d"));
    ob_add(body, "Mul", NAMES("x", "d"), NAMES("o"));
    ob_input(body, OB_GRAPH_OUTPUT, "o", FLOAT, DIMS(-1, 3));
    ob_input(body, OB_GRAPH_OUTPUT, "c", FLOAT, DIMS(3));
}

static void test_constant_handed_out(void **state)
{
    (void)state;
    float w3[] = {1, 2, 3}, x[] = {1, 1, 1, 2, 2, 2};
    unsigned char flag = 1;
    struct sized_output out;
    ob_graph(&graph);
    ob_initializer(&graph, "w3", FLOAT, DIMS(3), w3, sizeof w3);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 3));
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, 0, NULL);
    add_handing_out(&inner[0]);
    add_handing_out(&inner[1]);
    ob_node(&node, "If", NAMES("flag"), NAMES("y", "z"));
    ob_attr_graph(&node, "then_branch", &inner[0]);
    ob_attr_graph(&node, "else_branch", &inner[1]);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, 3));
    ob_input(&graph, OB_GRAPH_OUTPUT, "z", FLOAT, DIMS(3));
    ob_save(ob_path, &graph, 14);
    struct sy_graph *g = sized_import(ob_path);
    if (sized_run(g, 2, (struct sized_input[]){{x, 2, {2, 3}}, {&flag, 0, {0}}}, &out) < 0)
        fail_msg("%s", sy_error_text());
    for (int k = 0; k < 6; k++)
        assert_true(((float *)out.data)[k] == 4 * w3[k % 3] * x[k]);
    free(out.data);
    sy_graph_free(g);
}

/* Two levels of If: the inner condition is a constant, the outer one the request's. The other branch gives another shape, and takes any number of
 * features: what the first one needs of x must not be asked of it. */
static void open_levels(void)
{
    open_graph();
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(OB_NAMELESS, OB_NAMELESS));
    ob_input(&graph, OB_GRAPH_INPUT, "rate", INT64, 0, NULL);
    ob_int64s(&graph, "wanted", 0, (const int64_t[]){16000});
    ob_initializer(&graph, "known", BOOL, 0, NULL, &(unsigned char){1}, 1);
    ob_add(&graph, "Equal", NAMES("rate", "wanted"), NAMES("is_rate"));
    add_branch(&inner[0], "once", false);
    add_branch(&inner[1], "twice", false);
    ob_graph(&outer);
    ob_add(&outer, "Unsqueeze", NAMES("x", "axis0"), NAMES("x3"));
    add_if(&outer, "known", "deep", &inner[0], &inner[1]);
    ob_add(&outer, "Identity", NAMES("deep"), NAMES("o1"));
    nameless(&outer, OB_GRAPH_OUTPUT, "o1");
    ob_graph(&inner[0]);
    ob_add(&inner[0], "Unsqueeze", NAMES("x", "axis0"), NAMES("o2"));
    nameless(&inner[0], OB_GRAPH_OUTPUT, "o2");
    add_if(&graph, "is_rate", "y", &outer, &inner[0]);
    nameless(&graph, OB_GRAPH_OUTPUT, "y");
    ob_save(ob_path, &graph, 14);
}

static void test_two_levels(void **state)
{
    (void)state;
    int64_t rate = 16000, other = 8000;
    struct sized_output out;
    open_levels();
    struct sy_graph *g = sized_import(ob_path);
    for (int64_t rows = 1; rows <= 3; rows++) {
        const float *x = random_steps(rows * FEATURES);
        const struct sized_input in[] = {{x, 2, {rows, FEATURES}}, {&rate, 0, {0}}};
        if (sized_run(g, 2, in, &out) < 0)
            fail_msg("%s", sy_error_text());
        expect_states(&out, x, 1, rows, 1);
        free(out.data);
    }
    const float *x = random_steps(2 * 5);
    const struct sized_input wide[] = {{x, 2, {2, 5}}, {&other, 0, {0}}};
    if (sized_run(g, 2, wide, &out) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(out.bytes, 2 * 5 * sizeof(float));
    assert_memory_equal(out.data, x, out.bytes);
    free(out.data);
    sy_graph_free(g);
}

/* Weights of 4 bits that lie outside of the branches that unpack them, as tools quantise a decoder of two branches: one block a column, zeros of 8. Smaller
 * ones are copied into the branches. */
enum { BITS_K = 64, BITS_N = 64, UINT8 = 2, NODE_DOMAIN = 7 };

static void add_four_bits(struct ob *body, const char *then)
{
    ob_graph(body);
    ob_node(&node, "MatMulNBits", NAMES("x", "q", "s"), NAMES("p"));
    ob_text(&node, NODE_DOMAIN, "com.microsoft");
    ob_attr_int(&node, "K", BITS_K);
    ob_attr_int(&node, "N", BITS_N);
    ob_attr_int(&node, "bits", 4);
    ob_attr_int(&node, "block_size", BITS_K);
    ob_message(body, OB_GRAPH_NODE, &node);
    ob_add(body, then, NAMES("p"), NAMES("o"));
    ob_input(body, OB_GRAPH_OUTPUT, "o", FLOAT, DIMS(-1, BITS_N));
}

static void test_four_bits(void **state)
{
    (void)state;
    float scales[BITS_N];
    unsigned char q[BITS_N * BITS_K / 2];
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (unsigned char)(i * 37 + i / 64 * 11);
    for (int n = 0; n < BITS_N; n++)
        scales[n] = 0.5f + (float)n / BITS_N;
    ob_graph(&graph);
    ob_initializer(&graph, "q", UINT8, DIMS(BITS_N, 1, BITS_K / 2), q, sizeof q);
    ob_initializer(&graph, "s", FLOAT, DIMS(BITS_N), scales, sizeof scales);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, BITS_K));
    ob_input(&graph, OB_GRAPH_INPUT, "flag", BOOL, 0, NULL);
    add_four_bits(&inner[0], "Identity");
    add_four_bits(&inner[1], "Neg");
    add_if(&graph, "flag", "out", &inner[0], &inner[1]);
    ob_input(&graph, OB_GRAPH_OUTPUT, "out", FLOAT, DIMS(-1, BITS_N));
    ob_save(ob_path, &graph, 14);
    struct sy_graph *g = sized_import(ob_path);
    for (int64_t rows = 1; rows <= 3; rows++)
        for (unsigned char flag = 0; flag < 2; flag++) {
            struct sized_output out;
            const float *x = random_steps(rows * BITS_K);
            const struct sized_input in[] = {{x, 2, {rows, BITS_K}}, {&flag, 0, {0}}};
            if (sized_run(g, 2, in, &out) < 0)
                fail_msg("%s", sy_error_text());
            assert_int_equal(out.bytes, (uint64_t)rows * sizeof scales);
            for (int64_t i = 0; i < rows * BITS_N; i++) {
                int64_t row = i / BITS_N, n = i % BITS_N;
                float sum = 0;
                for (int64_t k = 0; k < BITS_K; k++) {
                    int value = q[(n * BITS_K + k) / 2] >> (k % 2 ? 4 : 0) & 15;
                    sum += x[row * BITS_K + k] * scales[n] * (float)(value - 8);
                }
                assert_true(fabsf(((float *)out.data)[i] - (flag ? sum : -sum)) < 1e-3f);
            }
            free(out.data);
        }
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_either_branch),
        cmocka_unit_test(test_constant_handed_out),
        cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_four_bits),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}

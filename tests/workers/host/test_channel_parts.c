/* Gated convolutions: what reads some channels of a convolution's result where they lie, against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "tests/rigs/engine_rig.h"

enum { IN = 20 };

static uint64_t seed;
static int64_t length;

static int line(struct sy_graph *g, enum sy_op op, int n_inputs, const int *inputs,
                int64_t channels)
{
    return gb_node(g, op, n_inputs, inputs, DIMS(1, channels, length));
}

static int conv(struct sy_graph *g, int x, int64_t in, int64_t channels)
{
    int w = gb_constant(g, "w", DIMS(channels, in, 3), &seed, -0.4, 0.4);
    int y = line(g, SY_OP_CONV, INPUTS(x, w), channels);
    gb_ints(g, "kernel_shape", 1, (int64_t[]){3});
    gb_ints(g, "pads", 2, (int64_t[]){2, 2});
    gb_ints(g, "dilations", 1, (int64_t[]){2});
    return y;
}

static int slice(struct sy_graph *g, int x, int64_t first, int64_t n)
{
    int y = line(g, SY_OP_SLICE, INPUTS(x), n);
    gb_ints(g, "starts", 3, (int64_t[]){0, first, 0});
    gb_ints(g, "steps", 3, (int64_t[]){1, 1, 1});
    return y;
}

/* Two parts, the second one in *other: by Split, or by slices, as a chunk of a tensor with open sizes is exported. */
static int parts_of(struct sy_graph *g, bool slices, int x, int64_t a, int64_t b, int *other)
{
    if (slices) {
        *other = slice(g, x, a, b);
        return slice(g, x, 0, a);
    }
    int first = line(g, SY_OP_SPLIT, INPUTS(x), a);
    struct sy_node *node = &g->nodes[g->n_nodes - 1];
    gb_int(g, "axis", 1);
    gb_ints(g, "split", 2, (int64_t[]){a, b});
    *other = gb_input(g, DIMS(1, b, length));
    g->n_inputs--; /* it is the node's */
    node->outputs = realloc(node->outputs, 2 * sizeof *node->outputs);
    assert_non_null(node->outputs);
    node->outputs[node->n_outputs++] = *other;
    return first;
}

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .optimize = true, .tolerance = 2e-4};
    rig_check(&c, &seed);
}

/* As WaveNet has them: tanh(a) * sigmoid(b), a product, and sums with one part each. Lengths below and above what the threads share. */
static void test_gated_layer(void **state)
{
    static const int64_t lengths[] = {1, 21, 700}, widths[] = {16, 48, 21};
    (void)state;
    for (int i = 0; i < 18; i++) {
        int64_t w = widths[i % 3];
        bool slices = i >= 9;
        int b, right;
        struct sy_graph *g = gb_new("gated");
        length = lengths[i / 3 % 3];
        int x = gb_input(g, DIMS(1, IN, length)), y = gb_input(g, DIMS(1, w, length));
        int a = parts_of(g, slices, conv(g, x, IN, 2 * w), w, w, &b);
        int z = line(
            g, SY_OP_MUL,
            INPUTS(line(g, SY_OP_TANH, INPUTS(a), w), line(g, SY_OP_SIGMOID, INPUTS(b), w)), w);
        int left = parts_of(g, slices, conv(g, z, w, 2 * w), w, w, &right);
        int sum = line(g, SY_OP_ADD, INPUTS(conv(g, y, w, w), left), w);
        gb_output(g, conv(g, line(g, SY_OP_NEG, INPUTS(sum), w), w, 16));
        gb_output(g, line(g, SY_OP_SUB, INPUTS(right, left), w));
        check(g);
    }
}

/* Parts of unequal size; one that is read twice, and one that is an output too. */
static void test_other_readers(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct sy_graph *g = gb_new("readers");
        int b;
        length = 33;
        int whole = conv(g, gb_input(g, DIMS(1, IN, length)), IN, 48);
        int a = parts_of(g, i >= 8, whole, 16, 32, &b);
        gb_output(g, line(g, SY_OP_MUL, INPUTS(a, a), 16));
        gb_output(g, line(g, SY_OP_RELU, INPUTS(b), 32));
        if (i & 1)
            gb_output(g, b);
        if (i & 2)
            gb_output(g, line(g, SY_OP_ADD, INPUTS(a, gb_input(g, DIMS(1, 16, length))), 16));
        if (i & 4)
            gb_output(g, line(g, SY_OP_ELU, INPUTS(a), 16));
        if (i >= 12) /* some channels of the middle, some of which other slices have too */
            gb_output(g, line(g, SY_OP_TANH, INPUTS(slice(g, whole, 5, 23)), 23));
        check(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gated_layer),
        cmocka_unit_test(test_other_readers),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

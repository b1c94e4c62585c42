#include "tests/nets/small_nets.h"

#include "tests/nets/graph_builder.h"
#include "tests/rigs/lists.h"

static void ends(struct sy_graph *g, int x, int64_t features, uint64_t *seed)
{
    int w = gb_constant(g, "end.weight", DIMS(5, features), seed, -0.4, 0.4);
    int b = gb_constant(g, "end.bias", DIMS(5), seed, -0.4, 0.4);
    int flat = gb_node(g, SY_OP_FLATTEN, INPUTS(x), DIMS(1, features));
    int y = gb_node(g, SY_OP_GEMM, INPUTS(flat, w, b), DIMS(1, 5));
    gb_int(g, "transB", 1);
    gb_output(g, y);
}

struct sy_graph *small_net_conv_relu(uint64_t *seed)
{
    struct sy_graph *g = gb_new("conv_relu");
    int x = gb_input(g, DIMS(1, 2, 6, 5));
    int w = gb_constant(g, "w", DIMS(4, 2, 3, 3), seed, -0.5, 0.5),
        b = gb_constant(g, "b", DIMS(4), seed, -0.5, 0.5);
    int w2 = gb_constant(g, "w2", DIMS(3, 4, 2, 2), seed, -0.5, 0.5);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w, b), DIMS(1, 4, 3, 3));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "strides", DIMS(2, 2));
    gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    y = gb_node(g, SY_OP_RELU, INPUTS(y), DIMS(1, 4, 3, 3));
    y = gb_node(g, SY_OP_CONV, INPUTS(y, w2), DIMS(1, 3, 2, 2));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    ends(g, y, 12, seed);
    return g;
}

struct sy_graph *small_net_groups(uint64_t *seed)
{
    struct sy_graph *g = gb_new("groups");
    int x = gb_input(g, DIMS(1, 3, 6, 6));
    int w0 = gb_constant(g, "w0", DIMS(4, 3, 1, 1), seed, -0.7, 0.7);
    int w = gb_constant(g, "w", DIMS(6, 2, 3, 3), seed, -0.5, 0.5),
        b = gb_constant(g, "b", DIMS(6), seed, -0.5, 0.5);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w0), DIMS(1, 4, 6, 6));
    gb_ints(g, "kernel_shape", DIMS(1, 1));
    y = gb_node(g, SY_OP_SIGMOID, INPUTS(y), DIMS(1, 4, 6, 6));
    y = gb_node(g, SY_OP_CONV, INPUTS(y, w, b), DIMS(1, 6, 4, 4));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "dilations", DIMS(2, 2));
    gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    gb_int(g, "group", 2);
    y = gb_node(g, SY_OP_AVERAGE_POOL, INPUTS(y), DIMS(1, 6, 2, 2));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    gb_ints(g, "strides", DIMS(2, 2));
    ends(g, y, 24, seed);
    return g;
}

static struct sy_graph *net_max_pool(uint64_t *seed)
{
    struct sy_graph *g = gb_new("max_pool");
    int x = gb_input(g, DIMS(1, 1, 7, 7));
    int w = gb_constant(g, "w", DIMS(3, 1, 2, 2), seed, -0.7, 0.7),
        b = gb_constant(g, "b", DIMS(3), seed, -0.5, 0.5);
    int y = gb_node(g, SY_OP_CONV, INPUTS(x, w, b), DIMS(1, 3, 6, 6));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    y = gb_node(g, SY_OP_MAX_POOL, INPUTS(y), DIMS(1, 3, 3, 3));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "strides", DIMS(2, 2));
    gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    y = gb_node(g, SY_OP_LEAKY_RELU, INPUTS(y), DIMS(1, 3, 3, 3));
    gb_float(g, "alpha", 0.2f);
    y = gb_node(g, SY_OP_AVERAGE_POOL, INPUTS(y), DIMS(1, 3, 2, 2));
    gb_ints(g, "kernel_shape", DIMS(2, 2));
    gb_ints(g, "strides", DIMS(2, 2));
    gb_ints(g, "pads", DIMS(1, 1, 0, 0));
    gb_int(g, "count_include_pad", 1);
    ends(g, y, 12, seed);
    return g;
}

struct sy_graph *small_net_residual(uint64_t *seed)
{
    struct sy_graph *g = gb_new("residual");
    int x = gb_input(g, DIMS(1, 2, 4, 4));
    int w = gb_constant(g, "w", DIMS(3, 2, 3, 3), seed, -0.5, 0.5),
        w2 = gb_constant(g, "w2", DIMS(3, 3, 3, 3), seed, -0.5, 0.5);
    int s = gb_constant(g, "scale", DIMS(3), seed, 0.5, 1.5),
        h = gb_constant(g, "shift", DIMS(3), seed, -0.5, 0.5);
    int m = gb_constant(g, "mean", DIMS(3), seed, -0.5, 0.5),
        v = gb_constant(g, "variance", DIMS(3), seed, 0.5, 1.5);
    int a = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, 3, 4, 4));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    int n = gb_node(g, SY_OP_BATCH_NORM, INPUTS(a, s, h, m, v), DIMS(1, 3, 4, 4));
    gb_float(g, "epsilon", 1e-3f);
    gb_float(g, "momentum", 0.8f);
    int t = gb_node(g, SY_OP_TANH, INPUTS(n), DIMS(1, 3, 4, 4));
    int c = gb_node(g, SY_OP_CONV, INPUTS(t, w2), DIMS(1, 3, 4, 4));
    gb_ints(g, "kernel_shape", DIMS(3, 3));
    gb_ints(g, "pads", DIMS(1, 1, 1, 1));
    int sum = gb_node(g, SY_OP_ADD, INPUTS(c, t), DIMS(1, 3, 4, 4));
    sum = gb_node(g, SY_OP_ADD, INPUTS(sum, t), DIMS(1, 3, 4, 4));
    int r = gb_node(g, SY_OP_RELU, INPUTS(sum), DIMS(1, 3, 4, 4));
    int p = gb_node(g, SY_OP_GLOBAL_AVERAGE_POOL, INPUTS(r), DIMS(1, 3, 1, 1));
    ends(g, p, 3, seed);
    return g;
}

/* MatMul over rank 3 with a bias row behind it; the same weights twice. */
static struct sy_graph *net_matmul(uint64_t *seed)
{
    struct sy_graph *g = gb_new("matmul");
    int x = gb_input(g, DIMS(1, 2, 4));
    int w = gb_constant(g, "w", DIMS(4, 4), seed, -0.5, 0.5),
        b = gb_constant(g, "b", DIMS(4), seed, -0.5, 0.5);
    int y = gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, 2, 4));
    y = gb_node(g, SY_OP_ADD, INPUTS(y, b), DIMS(1, 2, 4));
    y = gb_node(g, SY_OP_TANH, INPUTS(y), DIMS(1, 2, 4));
    y = gb_node(g, SY_OP_MATMUL, INPUTS(y, w), DIMS(1, 2, 4));
    y = gb_node(g, SY_OP_SIGMOID, INPUTS(y), DIMS(1, 2, 4));
    gb_output(g, y);
    return g;
}

const struct small_net small_nets[SMALL_NETS] = {
    {small_net_conv_relu, SY_LOSS_SOFTMAX_CROSS_ENTROPY},
    {small_net_groups, SY_LOSS_SOFTMAX_CROSS_ENTROPY},
    {net_max_pool, SY_LOSS_MSE},
    {small_net_residual, SY_LOSS_SOFTMAX_CROSS_ENTROPY},
    {net_matmul, SY_LOSS_MSE},
};

/* Networks whose gradients pass through masks, triangles and mirrored edges, or end at what has none; and whose shapes are at an edge themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/nets/graph_builder.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/gradient_rig.h"

static int bools(struct sy_graph *g, enum sy_op op, int n_in, const int *in)
{
    int y = gradient_node(g, op, n_in, in, LIST(-1, 4, 6));
    gb_type(g, y, SY_DTYPE_BOOL);
    return y;
}

/* Everything that a mask is made of: (x > 0 and not x > 0.3) xor x < -0.4, or a NaN or infinity. */
int gradient_net_masked(struct sy_graph *g)
{
    int x = gradient_start(g), y = gradient_node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    int zero = gb_constant(g, "zero", LIST(1), &gradient_seed, 0, 0),
        high = gb_constant(g, "high", LIST(1), &gradient_seed, 0.3, 0.3),
        low = gb_constant(g, "low", LIST(1), &gradient_seed, -0.4, -0.4);
    int above = bools(g, SY_OP_GREATER, IN(x, zero)), far = bools(g, SY_OP_GREATER, IN(x, high)),
        below = bools(g, SY_OP_LESS_OR_EQUAL, IN(x, low));
    int mask = bools(g, SY_OP_AND, IN(above, bools(g, SY_OP_NOT, IN(far))));
    mask = bools(g, SY_OP_XOR, IN(mask, below));
    mask = bools(g, SY_OP_OR, IN(mask, bools(g, SY_OP_IS_NAN, IN(x))));
    mask = bools(g, SY_OP_OR, IN(mask, bools(g, SY_OP_IS_INF, IN(x))));
    return gradient_node(g, SY_OP_WHERE, IN(mask, y, gradient_weight(g, "other", LIST(6))),
                         LIST(-1, 4, 6));
}

static int triangle(struct sy_graph *g, int64_t upper, int64_t k)
{
    int y = gradient_node(g, SY_OP_TRILU,
                          IN(gradient_start(g), gb_constant_of(g, SY_DTYPE_I64, LIST(1), &k)),
                          LIST(-1, 4, 6));
    gb_int(g, "upper", upper);
    return gradient_node(g, SY_OP_TANH, IN(y), LIST(-1, 4, 6));
}

int gradient_net_lower(struct sy_graph *g)
{
    return triangle(g, 0, 1);
}

int gradient_net_upper(struct sy_graph *g)
{
    return triangle(g, 1, -1);
}

/* x + floor(3 x) + ... : the steps have no gradient, x beside them has. */
int gradient_net_steps(struct sy_graph *g)
{
    static const enum sy_op ops[] = {SY_OP_FLOOR, SY_OP_CEIL, SY_OP_ROUND, SY_OP_SIGN};
    int x = gradient_start(g), y = x;
    int three = gb_constant(g, "three", LIST(1), &gradient_seed, 3.1, 3.1);
    int wide = gradient_node(g, SY_OP_MUL, IN(x, three), LIST(-1, 4, 6));
    for (int i = 0; i < 4; i++)
        y = gradient_node(g, SY_OP_ADD, IN(y, gradient_node(g, ops[i], IN(wide), LIST(-1, 4, 6))),
                          LIST(-1, 4, 6));
    return gradient_node(g, SY_OP_SIGMOID, IN(y), LIST(-1, 4, 6));
}

/* Where the largest is, as a row of ones and zeros, times what it was taken from. */
int gradient_net_choice(struct sy_graph *g)
{
    static const int64_t depth = 6;
    int x = gradient_start(g);
    int at = gradient_node(g, SY_OP_ARG_MAX, IN(x), LIST(-1, 4));
    gb_int(g, "axis", 2);
    gb_int(g, "keepdims", 0);
    gb_type(g, at, SY_DTYPE_I64);
    int values = gb_constant(g, "values", LIST(2), &gradient_seed, 0.25, 1.0);
    int hot = gradient_node(g, SY_OP_ONE_HOT,
                            IN(at, gb_constant_of(g, SY_DTYPE_I64, LIST(1), &depth), values),
                            LIST(-1, 4, 6));
    gb_int(g, "axis", -1);
    return gradient_node(g, SY_OP_MUL, IN(x, hot), LIST(-1, 4, 6));
}

static int padded(struct sy_graph *g, const char *mode)
{
    int y = gradient_node(g, SY_OP_PAD, IN(gradient_start(g)), LIST(-1, 7, 9));
    gb_ints(g, "pads", LIST(0, 1, 3, 0, 2, 0));
    gb_string(g, "mode", mode);
    return gradient_node(g, SY_OP_TANH, IN(y), LIST(-1, 7, 9));
}

int gradient_net_mirrored(struct sy_graph *g)
{
    return padded(g, "reflect");
}

int gradient_net_edged(struct sy_graph *g)
{
    return padded(g, "edge");
}

/* Cut off on one side, zeros on the other. */
int gradient_net_cut(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_PAD, IN(gradient_start(g)), LIST(-1, 3, 7));
    gb_ints(g, "pads", LIST(0, -1, 2, 0, 0, -1));
    return y;
}

/* The first node bends what the graph is given: nobody computes that, so nothing is there to fuse it into. */
int gradient_net_bent_input(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_TANH, IN(gb_input(g, LIST(1, 4, 6))), LIST(-1, 4, 6));
    return gradient_node(g, SY_OP_MATMUL, IN(x, gradient_weight(g, "first", LIST(6, 6))),
                         LIST(-1, 4, 6));
}

/* Scaled, transposed, and of one number a sample. */
int gradient_net_thin_gemm(struct sy_graph *g)
{
    int x = gb_input(g, LIST(1, 24));
    x = gradient_node(g, SY_OP_MATMUL, IN(x, gradient_weight(g, "first", LIST(24, 1))),
                      LIST(-1, 1));
    int y = gradient_node(
        g, SY_OP_GEMM,
        IN(x, gradient_weight(g, "wide", LIST(8, 1)), gradient_weight(g, "bias", LIST(8))),
        LIST(-1, 8));
    gb_int(g, "transB", 1);
    gb_float(g, "alpha", 0.5f);
    return y;
}

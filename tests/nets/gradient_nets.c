/* The networks of gradient_rig.h. */
#include "tests/rigs/gradient_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/graph_builder.h"
#include "tests/rigs/engine_rig.h"

/* ---- building: -1 in a shape is the batch ------------------------------------------------------- */

int gradient_node(struct sy_graph *g, enum sy_op op, int n_in, const int *in, int rank,
                  int64_t *dims)
{
    int out = gb_node(g, op, n_in, in, rank, dims);
    struct sy_shape *shape = &g->tensors[out].shape;
    shape->rank = rank;
    for (int i = 0; i < rank; i++)
        shape->dims[i] = dims[i] < 0 ? (struct sy_dim){0, 1} : (struct sy_dim){dims[i], 0};
    return out;
}

static int more_output(struct sy_graph *g, int rank, int64_t *dims)
{
    struct sy_node *last = &g->nodes[g->n_nodes - 1];
    int out = gradient_node(g, SY_OP_IDENTITY, 0, NULL, rank, dims);
    struct sy_node *extra = &g->nodes[--g->n_nodes];
    free(extra->name);
    free(extra->inputs);
    free(extra->outputs);
    last = &g->nodes[g->n_nodes - 1];
    last->outputs = realloc(last->outputs, (size_t)(last->n_outputs + 1) * sizeof(int));
    last->outputs[last->n_outputs++] = out;
    return out;
}

int gradient_weight(struct sy_graph *g, const char *name, int rank, int64_t *dims)
{
    return gb_constant(g, name, rank, dims, &gradient_seed, -0.6, 0.6);
}

int gradient_positive(struct sy_graph *g, const char *name, int rank, int64_t *dims)
{
    return gb_constant(g, name, rank, dims, &gradient_seed, 0.6, 1.4);
}

/* [batch, 4, 6], computed from trained weights. */
int gradient_start(struct sy_graph *g)
{
    int x = gb_input(g, LIST(1, 4, 6));
    return gradient_node(g, SY_OP_MATMUL, IN(x, gradient_weight(g, "first", LIST(6, 6))),
                         LIST(-1, 4, 6));
}

/* ---- nets ---------------------------------------------------------------------------------------- */

static int unary(struct sy_graph *g, enum sy_op op)
{
    return gradient_node(g, op, IN(gradient_start(g)), LIST(-1, 4, 6));
}

/* Between a and 1: for curves that are not everywhere. */
static int unary_within(struct sy_graph *g, enum sy_op op, float low)
{
    int x = gradient_node(g, SY_OP_SIGMOID, IN(gradient_start(g)), LIST(-1, 4, 6));
    int base = gb_constant(g, "base", LIST(1), &gradient_seed, (double)low, (double)low + 1e-6);
    x = gradient_node(g, SY_OP_ADD, IN(x, base), LIST(-1, 4, 6));
    return gradient_node(g, op, IN(x), LIST(-1, 4, 6));
}

static int pair_with(struct sy_graph *g, enum sy_op op, int rank, int64_t *dims)
{
    return gradient_node(g, op, IN(gradient_start(g), gradient_positive(g, "other", rank, dims)),
                         LIST(-1, 4, 6));
}

static int reduce(struct sy_graph *g, enum sy_op op)
{
    int x = gradient_node(g, SY_OP_SIGMOID, IN(gradient_start(g)), LIST(-1, 4, 6));
    int y = gradient_node(g, op, IN(x), LIST(-1, 1, 6));
    gb_ints(g, "axes", LIST(1));
    gb_int(g, "keepdims", 1);
    return y;
}

static int net_add_row(struct sy_graph *g)
{
    return pair_with(g, SY_OP_ADD, LIST(6));
}
static int net_sub_column(struct sy_graph *g)
{
    return gradient_node(g, SY_OP_SUB,
                         IN(gradient_positive(g, "other", LIST(4, 1)), gradient_start(g)),
                         LIST(-1, 4, 6));
}
static int net_mul_middle(struct sy_graph *g)
{
    return pair_with(g, SY_OP_MUL, LIST(1, 4, 1));
}
static int net_div(struct sy_graph *g)
{
    return pair_with(g, SY_OP_DIV, LIST(4, 6));
}
static int net_square(struct sy_graph *g)
{
    int x = gradient_start(g);
    return gradient_node(g, SY_OP_MUL, IN(x, x), LIST(-1, 4, 6));
}
static int net_grow(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 24, 1));
    int y = gradient_node(g, SY_OP_MUL, IN(x, gradient_positive(g, "other", LIST(1, 5))),
                          LIST(-1, 24, 5));
    return y;
}
static int net_pow(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_EXP, IN(gradient_start(g)), LIST(-1, 4, 6));
    int two = gb_constant(g, "two", LIST(1), &gradient_seed, 1.7, 1.7);
    return gradient_node(g, SY_OP_POW, IN(x, two), LIST(-1, 4, 6));
}
static int net_max(struct sy_graph *g)
{
    int x = gradient_start(g), y = gradient_node(g, SY_OP_SIGMOID, IN(x), LIST(-1, 4, 6));
    return gradient_node(g, SY_OP_MAX, IN(x, y), LIST(-1, 4, 6));
}
static int net_min(struct sy_graph *g)
{
    int x = gradient_start(g), y = gradient_node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    return gradient_node(g, SY_OP_MIN, IN(x, y), LIST(-1, 4, 6));
}
static int net_prelu(struct sy_graph *g)
{
    return pair_with(g, SY_OP_PRELU, LIST(4, 1));
}
static int net_where(struct sy_graph *g)
{
    int x = gradient_start(g), y = gradient_node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    int zero = gb_constant(g, "zero", LIST(1), &gradient_seed, 0, 0);
    int c = gradient_node(g, SY_OP_GREATER, IN(x, zero), LIST(-1, 4, 6));
    g->tensors[c].dtype = SY_DTYPE_BOOL;
    return gradient_node(g, SY_OP_WHERE, IN(c, y, gradient_weight(g, "other", LIST(6))),
                         LIST(-1, 4, 6));
}
static int net_softmax(struct sy_graph *g)
{
    int y = unary(g, SY_OP_SOFTMAX);
    gb_int(g, "axis", 1);
    return y;
}
static int net_log_softmax(struct sy_graph *g)
{
    int y = unary(g, SY_OP_LOG_SOFTMAX);
    gb_int(g, "axis", 2);
    return y;
}
static int net_layer_norm(struct sy_graph *g)
{
    int s = gradient_positive(g, "scale", LIST(6)), b = gradient_weight(g, "shift", LIST(6));
    int y = gradient_node(g, SY_OP_LAYER_NORM, IN(gradient_start(g), s, b), LIST(-1, 4, 6));
    gb_int(g, "axis", 2);
    return y;
}
/* As exporters wrote it before there was an operator. */
static int net_layer_norm_apart(struct sy_graph *g)
{
    int x = gradient_start(g), two = gb_constant(g, "two", LIST(1), &gradient_seed, 2, 2),
        epsilon = gb_constant(g, "epsilon", LIST(1), &gradient_seed, 1e-5, 1e-5);
    int mean = gradient_node(g, SY_OP_REDUCE_MEAN, IN(x), LIST(-1, 4, 1));
    gb_ints(g, "axes", LIST(2));
    int d = gradient_node(g, SY_OP_SUB, IN(x, mean), LIST(-1, 4, 6));
    int square = gradient_node(g, SY_OP_POW, IN(d, two), LIST(-1, 4, 6));
    int v = gradient_node(g, SY_OP_REDUCE_MEAN, IN(square), LIST(-1, 4, 1));
    gb_ints(g, "axes", LIST(2));
    v = gradient_node(g, SY_OP_SQRT,
                      IN(gradient_node(g, SY_OP_ADD, IN(v, epsilon), LIST(-1, 4, 1))),
                      LIST(-1, 4, 1));
    int y = gradient_node(g, SY_OP_DIV, IN(d, v), LIST(-1, 4, 6));
    y = gradient_node(g, SY_OP_MUL, IN(y, gradient_positive(g, "scale", LIST(6))), LIST(-1, 4, 6));
    return gradient_node(g, SY_OP_ADD, IN(y, gradient_weight(g, "shift", LIST(6))), LIST(-1, 4, 6));
}
static int net_rms_norm(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_RMS_NORM,
                          IN(gradient_start(g), gradient_positive(g, "scale", LIST(6))),
                          LIST(-1, 4, 6));
    gb_int(g, "axis", 2);
    return y;
}
static int net_instance_norm(struct sy_graph *g)
{
    int s = gradient_positive(g, "scale", LIST(4)), b = gradient_weight(g, "shift", LIST(4));
    return gradient_node(g, SY_OP_INSTANCE_NORM, IN(gradient_start(g), s, b), LIST(-1, 4, 6));
}
static int net_group_norm(struct sy_graph *g)
{
    int s = gradient_positive(g, "scale", LIST(4)), b = gradient_weight(g, "shift", LIST(4));
    int y = gradient_node(g, SY_OP_GROUP_NORM, IN(gradient_start(g), s, b), LIST(-1, 4, 6));
    gb_int(g, "num_groups", 2);
    return y;
}
static int net_transpose(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_TRANSPOSE, IN(gradient_start(g)), LIST(-1, 6, 4));
    gb_ints(g, "perm", LIST(0, 2, 1));
    return gradient_node(g, SY_OP_TANH, IN(y), LIST(-1, 6, 4));
}
static int net_slice(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_SLICE, IN(gradient_start(g)), LIST(-1, 2, 3));
    gb_ints(g, "axes", LIST(1, 2));
    gb_ints(g, "starts", LIST(3, 1));
    gb_ints(g, "steps", LIST(-2, 2));
    return y;
}
static int net_split_concat(struct sy_graph *g)
{
    int a = gradient_node(g, SY_OP_SPLIT, IN(gradient_start(g)), LIST(-1, 1, 6));
    gb_int(g, "axis", 1);
    int unused = more_output(g, LIST(-1, 1, 6)), b = more_output(g, LIST(-1, 2, 6));
    (void)unused;
    int row = gradient_node(g, SY_OP_EXPAND, IN(gradient_weight(g, "token", LIST(1, 1, 6))),
                            LIST(-1, 1, 6));
    int y = gradient_node(g, SY_OP_CONCAT, IN(b, row, a, a), LIST(-1, 5, 6));
    gb_int(g, "axis", 1);
    return gradient_node(g, SY_OP_SIGMOID, IN(y), LIST(-1, 5, 6));
}
static int net_pad(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_PAD, IN(gradient_start(g)), LIST(-1, 6, 9));
    gb_ints(g, "pads", LIST(0, 1, 2, 0, 1, 1));
    gb_float(g, "value", 0.5f);
    return y;
}
static int net_tile(struct sy_graph *g)
{
    return gradient_node(g, SY_OP_TILE, IN(gradient_start(g)), LIST(-1, 8, 18));
}
static int net_batched_matmul(struct sy_graph *g)
{
    int x = gradient_start(g), y = gradient_node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    y = gradient_node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 6, 4));
    gb_ints(g, "perm", LIST(0, 2, 1));
    return gradient_node(g, SY_OP_MATMUL, IN(x, y), LIST(-1, 4, 4));
}
static int net_spread_matmul(struct sy_graph *g)
{
    int x = gradient_start(g);
    int w = gradient_node(g, SY_OP_TANH, IN(gradient_weight(g, "left", LIST(2, 1, 5, 4))),
                          LIST(2, 1, 5, 4));
    int y = gradient_node(g, SY_OP_MATMUL, IN(w, x), LIST(2, -1, 5, 6));
    int back = gradient_node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 2, 5, 6));
    gb_ints(g, "perm", LIST(1, 0, 2, 3));
    return back;
}
static int net_gemm(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_FLATTEN, IN(gradient_start(g)), LIST(-1, 24));
    int y = gradient_node(g, SY_OP_TRANSPOSE, IN(x), LIST(24, -1));
    gb_ints(g, "perm", LIST(1, 0));
    y = gradient_node(g, SY_OP_GEMM,
                      IN(y, gradient_weight(g, "w", LIST(5, 24)), gradient_weight(g, "c", LIST(1))),
                      LIST(-1, 5));
    gb_int(g, "transA", 1);
    gb_int(g, "transB", 1);
    gb_float(g, "alpha", 0.7f);
    return y;
}
/* As the loader fuses it. */
static int net_biased_matmul(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_MATMUL,
                          IN(gradient_start(g), gradient_weight(g, "w", LIST(6, 5)),
                             gradient_weight(g, "b", LIST(5))),
                          LIST(-1, 4, 5));
    g->nodes[g->n_nodes - 1].bias_input = 2;
    return y;
}
/* A vector on each side. */
static int net_vector_matmul(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_MATMUL,
                          IN(gradient_start(g), gradient_weight(g, "right", LIST(6))), LIST(-1, 4));
    y = gradient_node(g, SY_OP_TANH, IN(y), LIST(-1, 4));
    y = gradient_node(g, SY_OP_TRANSPOSE, IN(y), LIST(4, -1));
    gb_ints(g, "perm", LIST(1, 0));
    y = gradient_node(g, SY_OP_MATMUL, IN(gradient_weight(g, "left", LIST(4)), y), LIST(-1));
    return gradient_node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 1));
}
static int net_gather(struct sy_graph *g)
{
    int x = gradient_start(g), table = gradient_weight(g, "table", LIST(5, 6));
    int indices = gb_constant(g, "indices", LIST(4), &gradient_seed, 0, 1);
    const int32_t rows[] = {3, 0, -2, 3};
    memcpy(g->tensors[indices].data, rows, sizeof rows);
    g->tensors[indices].dtype = SY_DTYPE_I32;
    int y = gradient_node(g, SY_OP_GATHER, IN(table, indices), LIST(4, 6));
    gb_int(g, "axis", 0);
    return gradient_node(g, SY_OP_MUL, IN(x, y), LIST(-1, 4, 6));
}
/* One table for both ends, as language models have it. */
static int net_tied(struct sy_graph *g)
{
    int x = gradient_start(g), table = gradient_weight(g, "table", LIST(5, 6));
    int t = gradient_node(g, SY_OP_TRANSPOSE, IN(table), LIST(6, 5));
    gb_ints(g, "perm", LIST(1, 0));
    int y = gradient_node(g, SY_OP_MATMUL, IN(x, t), LIST(-1, 4, 5));
    y = gradient_node(g, SY_OP_MATMUL, IN(y, table), LIST(-1, 4, 6));
    return y;
}
static int recurrent(struct sy_graph *g, enum sy_op op, int64_t gates, const char *direction,
                     bool has_lengths, bool is_late)
{
    int64_t d = strcmp(direction, "bidirectional") ? 1 : 2;
    int x = gradient_node(g, SY_OP_TRANSPOSE, IN(gradient_start(g)), LIST(4, -1, 6));
    gb_ints(g, "perm", LIST(1, 0, 2));
    int w = gradient_weight(g, "w", LIST(d, gates * 5, 6)),
        r = gradient_weight(g, "r", LIST(d, gates * 5, 5)),
        b = gradient_weight(g, "b", LIST(d, gates * 10)), lengths = -1;
    if (has_lengths) {
        const int32_t n[BATCH] = {2, 4, 3};
        lengths = gb_constant(g, "lengths", LIST(BATCH), &gradient_seed, 0, 1);
        memcpy(g->tensors[lengths].data, n, sizeof n);
        g->tensors[lengths].dtype = SY_DTYPE_I32;
    }
    int h = gradient_weight(g, "h", LIST(d, BATCH, 5)), c = -1;
    h = gradient_node(g, SY_OP_TANH, IN(h), LIST(d, BATCH, 5));
    if (op == SY_OP_LSTM)
        c = gradient_node(g, SY_OP_TANH, IN(gradient_weight(g, "c", LIST(d, BATCH, 5))),
                          LIST(d, BATCH, 5));
    int y = op == SY_OP_LSTM
                ? gradient_node(g, op, IN(x, w, r, b, lengths, h, c), LIST(4, d, -1, 5))
                : gradient_node(g, op, IN(x, w, r, b, lengths, h), LIST(4, d, -1, 5));
    struct sy_attr *attr;
    gb_int(g, "hidden_size", 5);
    gb_int(g, "linear_before_reset", is_late);
    gb_int(g, "direction", 0);
    attr = &g->nodes[g->n_nodes - 1].attrs[2];
    attr->kind = SY_ATTR_STRING;
    attr->s = strdup(direction);
    int last = more_output(g, LIST(d, -1, 5));
    y = gradient_node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 4, d, 5));
    gb_ints(g, "perm", LIST(2, 0, 1, 3));
    y = gradient_node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 4 * d, 5));
    last = gradient_node(g, SY_OP_TRANSPOSE, IN(last), LIST(-1, d, 5));
    gb_ints(g, "perm", LIST(1, 0, 2));
    y = gradient_node(g, SY_OP_CONCAT, IN(y, last), LIST(-1, 5 * d, 5));
    gb_int(g, "axis", 1);
    return y;
}
static int net_lstm(struct sy_graph *g)
{
    return recurrent(g, SY_OP_LSTM, 4, "forward", false, false);
}
static int net_lstm_both(struct sy_graph *g)
{
    return recurrent(g, SY_OP_LSTM, 4, "bidirectional", true, false);
}
static int net_gru_late(struct sy_graph *g)
{
    return recurrent(g, SY_OP_GRU, 3, "bidirectional", true, true);
}
static int net_gru_early(struct sy_graph *g)
{
    return recurrent(g, SY_OP_GRU, 3, "reverse", true, false);
}
static int net_rnn(struct sy_graph *g)
{
    return recurrent(g, SY_OP_RNN, 1, "bidirectional", false, false);
}
static int net_deconv(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 4, 2, 3));
    int y = gradient_node(
        g, SY_OP_CONV_TRANSPOSE,
        IN(x, gradient_weight(g, "w", LIST(4, 3, 3, 2)), gradient_weight(g, "b", LIST(6))),
        LIST(-1, 6, 4, 6));
    gb_ints(g, "kernel_shape", LIST(3, 2));
    gb_ints(g, "strides", LIST(2, 2));
    gb_ints(g, "pads", LIST(1, 0, 0, 0));
    gb_int(g, "group", 2);
    return y;
}
/* One dimension, and room behind the last window. */
static int net_deconv_line(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 4, 6));
    int y = gradient_node(g, SY_OP_CONV_TRANSPOSE, IN(x, gradient_weight(g, "w", LIST(4, 3, 2))),
                          LIST(-1, 3, 18));
    gb_ints(g, "kernel_shape", LIST(2));
    gb_ints(g, "strides", LIST(3));
    gb_ints(g, "output_padding", LIST(1));
    return y;
}
static int net_blocks(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 4, 3, 2));
    int y = gradient_node(g, SY_OP_DEPTH_TO_SPACE, IN(x), LIST(-1, 1, 6, 4));
    gb_int(g, "blocksize", 2);
    y = gradient_node(g, SY_OP_MUL, IN(y, gradient_weight(g, "w", LIST(6, 4))), LIST(-1, 1, 6, 4));
    y = gradient_node(g, SY_OP_SPACE_TO_DEPTH, IN(y), LIST(-1, 4, 3, 2));
    gb_int(g, "blocksize", 2);
    y = gradient_node(g, SY_OP_MUL, IN(y, gradient_weight(g, "v", LIST(4, 1, 2))),
                      LIST(-1, 4, 3, 2));
    y = gradient_node(g, SY_OP_DEPTH_TO_SPACE, IN(y), LIST(-1, 1, 6, 4));
    gb_int(g, "blocksize", 2);
    gb_string(g, "mode", "CRD");
    return y;
}
static int net_depthwise(struct sy_graph *g)
{
    int x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 4, 2, 3));
    int y = gradient_node(
        g, SY_OP_CONV,
        IN(x, gradient_weight(g, "w", LIST(8, 1, 3, 3)), gradient_weight(g, "b", LIST(8))),
        LIST(-1, 8, 2, 3));
    gb_ints(g, "kernel_shape", LIST(3, 3));
    gb_ints(g, "pads", LIST(1, 1, 1, 1));
    gb_int(g, "group", 4);
    y = gradient_node(g, SY_OP_GELU, IN(y), LIST(-1, 8, 2, 3));
    return gradient_node(g, SY_OP_GLOBAL_MAX_POOL, IN(y), LIST(-1, 8, 1, 1));
}
static int net_dropout(struct sy_graph *g)
{
    int y = gradient_node(g, SY_OP_DROPOUT, IN(gradient_start(g)), LIST(-1, 4, 6));
    gb_float(g, "ratio", 0.4f);
    return gradient_node(g, SY_OP_TANH, IN(y), LIST(-1, 4, 6));
}

#define UNARY(name, op)                       \
    static int net_##name(struct sy_graph *g) \
    {                                         \
        return unary(g, op);                  \
    }
#define WITHIN(name, op, low)                 \
    static int net_##name(struct sy_graph *g) \
    {                                         \
        return unary_within(g, op, low);      \
    }
#define REDUCE(name, op)                      \
    static int net_##name(struct sy_graph *g) \
    {                                         \
        return reduce(g, op);                 \
    }
UNARY(relu, SY_OP_RELU)
UNARY(leaky, SY_OP_LEAKY_RELU)
UNARY(elu, SY_OP_ELU)
UNARY(celu, SY_OP_CELU)
UNARY(selu, SY_OP_SELU)
UNARY(gelu, SY_OP_GELU)
UNARY(hard_swish, SY_OP_HARD_SWISH)
UNARY(hard_sigmoid, SY_OP_HARD_SIGMOID)
UNARY(softplus, SY_OP_SOFTPLUS)
UNARY(softsign, SY_OP_SOFTSIGN)
UNARY(mish, SY_OP_MISH)
UNARY(erf, SY_OP_ERF)
UNARY(exp, SY_OP_EXP)
UNARY(neg, SY_OP_NEG)
UNARY(abs, SY_OP_ABS)
UNARY(sin, SY_OP_SIN)
UNARY(cos, SY_OP_COS)
UNARY(atan, SY_OP_ATAN)
UNARY(sinh, SY_OP_SINH)
UNARY(cosh, SY_OP_COSH)
UNARY(asinh, SY_OP_ASINH)
UNARY(shrink, SY_OP_SHRINK)
WITHIN(log, SY_OP_LOG, 0.5f)
WITHIN(sqrt, SY_OP_SQRT, 0.5f)
WITHIN(reciprocal, SY_OP_RECIPROCAL, 0.5f)
WITHIN(tan, SY_OP_TAN, -0.5f)
WITHIN(asin, SY_OP_ASIN, -0.5f)
WITHIN(acos, SY_OP_ACOS, -0.5f)
WITHIN(atanh, SY_OP_ATANH, -0.5f)
WITHIN(acosh, SY_OP_ACOSH, 1.5f)
REDUCE(sum, SY_OP_REDUCE_SUM)
REDUCE(mean, SY_OP_REDUCE_MEAN)
REDUCE(reduce_max, SY_OP_REDUCE_MAX)
REDUCE(reduce_min, SY_OP_REDUCE_MIN)
REDUCE(prod, SY_OP_REDUCE_PROD)
REDUCE(l1, SY_OP_REDUCE_L1)
REDUCE(l2, SY_OP_REDUCE_L2)
REDUCE(log_sum, SY_OP_REDUCE_LOG_SUM)
REDUCE(log_sum_exp, SY_OP_REDUCE_LOG_SUM_EXP)
REDUCE(sum_square, SY_OP_REDUCE_SUM_SQUARE)

#define NET(name)         \
    {                     \
#name, net_##name \
    }
const struct gradient_net gradient_nets[] = {
    NET(relu),
    NET(leaky),
    NET(elu),
    NET(celu),
    NET(selu),
    NET(gelu),
    NET(hard_swish),
    NET(hard_sigmoid),
    NET(softplus),
    NET(softsign),
    NET(mish),
    NET(erf),
    NET(exp),
    NET(neg),
    NET(abs),
    NET(sin),
    NET(cos),
    NET(atan),
    NET(sinh),
    NET(cosh),
    NET(asinh),
    NET(shrink),
    NET(log),
    NET(sqrt),
    NET(reciprocal),
    NET(tan),
    NET(asin),
    NET(acos),
    NET(atanh),
    NET(acosh),
    NET(sum),
    NET(mean),
    NET(reduce_max),
    NET(reduce_min),
    NET(prod),
    NET(l1),
    NET(l2),
    NET(log_sum),
    NET(log_sum_exp),
    NET(sum_square),
    NET(add_row),
    NET(sub_column),
    NET(mul_middle),
    NET(div),
    NET(square),
    NET(grow),
    NET(pow),
    NET(max),
    NET(min),
    NET(prelu),
    NET(where),
    NET(softmax),
    NET(log_softmax),
    NET(layer_norm),
    NET(layer_norm_apart),
    NET(rms_norm),
    NET(instance_norm),
    NET(group_norm),
    NET(transpose),
    NET(slice),
    NET(split_concat),
    NET(pad),
    NET(tile),
    NET(batched_matmul),
    NET(spread_matmul),
    NET(gemm),
    NET(biased_matmul),
    NET(vector_matmul),
    NET(gather),
    NET(tied),
    NET(lstm),
    NET(lstm_both),
    NET(gru_late),
    NET(gru_early),
    NET(rnn),
    NET(deconv),
    NET(deconv_line),
    NET(blocks),
    NET(depthwise),
    NET(dropout),
    {"masked", gradient_net_masked},
    {"lower", gradient_net_lower},
    {"upper", gradient_net_upper},
    {"steps", gradient_net_steps},
    {"choice", gradient_net_choice},
    {"mirrored", gradient_net_mirrored},
    {"edged", gradient_net_edged},
    {"cut", gradient_net_cut},
    {"bent_input", gradient_net_bent_input},
    {"thin_gemm", gradient_net_thin_gemm},
    {"attention", gradient_net_attention},
    {"attention_masked", gradient_net_attention_masked},
    {"attention_dead_rows", gradient_net_attention_dead_rows},
    {"attention_grouped", gradient_net_attention_grouped},
    {"attention_shared", gradient_net_attention_shared},
    {"attention_learned", gradient_net_attention_learned},
    {"attention_of_one", gradient_net_attention_of_one},
    {"attention_long", gradient_net_attention_long},
    {"attention_wide", gradient_net_attention_wide},
    {"attention_dropped", gradient_net_attention_dropped},
    {"apart_attention_dropped_inside", gradient_net_attention_dropped_inside},
    {"apart_attention_trained_mask", gradient_net_attention_trained_mask}};
const int n_gradient_nets = (int)(sizeof gradient_nets / sizeof *gradient_nets);

/* Every operator that can be trained: its gradient against central differences of the trainer's own loss, which
 * bench/train.py compares with PyTorch's. */
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
#include "tests/engine_rig.h"
#include "tests/graph_builder.h"
#include "workers/host/train_recurrent.h"
#include "workers/trainer.h"

#define BATCH    3
#define ROOM     8192
#define MAX_SEEN 12 /* elements of a parameter that are changed */
#define LIST(...)                                                          \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
#define IN(...)                                                      \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) \
    {                                                                \
        __VA_ARGS__                                                  \
    }

/* The host trainer, unless the binary is linked with a rig_choose_trainer (tests/on_fake_cuda/) that puts another here. */
static const struct sy_trainer_ops *ops = &sy_host_trainer;
static void *(*device_view)(void *memory); /* of what is bound; NULL: the pointer itself */
void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory))
    __attribute__((weak));
void *rig_take_memory(uint64_t bytes)
    __attribute__((weak)); /* that the device sees too, 4096-aligned */
void rig_drop_memory(void *memory) __attribute__((weak));
static uint64_t seed;

/* ---- building: -1 in a shape is the batch ------------------------------------------------------- */

static int node(struct sy_graph *g, enum sy_op op, int n_in, const int *in, int rank, int64_t *dims)
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
    int out = node(g, SY_OP_IDENTITY, 0, NULL, rank, dims);
    struct sy_node *extra = &g->nodes[--g->n_nodes];
    free(extra->name);
    free(extra->inputs);
    free(extra->outputs);
    last = &g->nodes[g->n_nodes - 1];
    last->outputs = realloc(last->outputs, (size_t)(last->n_outputs + 1) * sizeof(int));
    last->outputs[last->n_outputs++] = out;
    return out;
}

static int weight(struct sy_graph *g, const char *name, int rank, int64_t *dims)
{
    return gb_constant(g, name, rank, dims, &seed, -0.6, 0.6);
}

static int positive(struct sy_graph *g, const char *name, int rank, int64_t *dims)
{
    return gb_constant(g, name, rank, dims, &seed, 0.6, 1.4);
}

/* [batch, 4, 6], computed from trained weights. */
static int start(struct sy_graph *g)
{
    int x = gb_input(g, LIST(1, 4, 6));
    return node(g, SY_OP_MATMUL, IN(x, weight(g, "first", LIST(6, 6))), LIST(-1, 4, 6));
}

/* ---- nets ---------------------------------------------------------------------------------------- */

static int unary(struct sy_graph *g, enum sy_op op)
{
    return node(g, op, IN(start(g)), LIST(-1, 4, 6));
}

/* Between a and 1: for curves that are not everywhere. */
static int unary_within(struct sy_graph *g, enum sy_op op, float low)
{
    int x = node(g, SY_OP_SIGMOID, IN(start(g)), LIST(-1, 4, 6));
    int base = gb_constant(g, "base", LIST(1), &seed, (double)low, (double)low + 1e-6);
    x = node(g, SY_OP_ADD, IN(x, base), LIST(-1, 4, 6));
    return node(g, op, IN(x), LIST(-1, 4, 6));
}

static int pair_with(struct sy_graph *g, enum sy_op op, int rank, int64_t *dims)
{
    return node(g, op, IN(start(g), positive(g, "other", rank, dims)), LIST(-1, 4, 6));
}

static int reduce(struct sy_graph *g, enum sy_op op)
{
    int x = node(g, SY_OP_SIGMOID, IN(start(g)), LIST(-1, 4, 6));
    int y = node(g, op, IN(x), LIST(-1, 1, 6));
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
    return node(g, SY_OP_SUB, IN(positive(g, "other", LIST(4, 1)), start(g)), LIST(-1, 4, 6));
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
    int x = start(g);
    return node(g, SY_OP_MUL, IN(x, x), LIST(-1, 4, 6));
}
static int net_grow(struct sy_graph *g)
{
    int x = node(g, SY_OP_RESHAPE, IN(start(g)), LIST(-1, 24, 1));
    int y = node(g, SY_OP_MUL, IN(x, positive(g, "other", LIST(1, 5))), LIST(-1, 24, 5));
    return y;
}
static int net_pow(struct sy_graph *g)
{
    int x = node(g, SY_OP_EXP, IN(start(g)), LIST(-1, 4, 6));
    int two = gb_constant(g, "two", LIST(1), &seed, 1.7, 1.7);
    return node(g, SY_OP_POW, IN(x, two), LIST(-1, 4, 6));
}
static int net_max(struct sy_graph *g)
{
    int x = start(g), y = node(g, SY_OP_SIGMOID, IN(x), LIST(-1, 4, 6));
    return node(g, SY_OP_MAX, IN(x, y), LIST(-1, 4, 6));
}
static int net_min(struct sy_graph *g)
{
    int x = start(g), y = node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    return node(g, SY_OP_MIN, IN(x, y), LIST(-1, 4, 6));
}
static int net_prelu(struct sy_graph *g)
{
    return pair_with(g, SY_OP_PRELU, LIST(4, 1));
}
static int net_where(struct sy_graph *g)
{
    int x = start(g), y = node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    int zero = gb_constant(g, "zero", LIST(1), &seed, 0, 0);
    int c = node(g, SY_OP_GREATER, IN(x, zero), LIST(-1, 4, 6));
    g->tensors[c].dtype = SY_DTYPE_BOOL;
    return node(g, SY_OP_WHERE, IN(c, y, weight(g, "other", LIST(6))), LIST(-1, 4, 6));
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
    int s = positive(g, "scale", LIST(6)), b = weight(g, "shift", LIST(6));
    int y = node(g, SY_OP_LAYER_NORM, IN(start(g), s, b), LIST(-1, 4, 6));
    gb_int(g, "axis", 2);
    return y;
}
/* As exporters wrote it before there was an operator. */
static int net_layer_norm_apart(struct sy_graph *g)
{
    int x = start(g), two = gb_constant(g, "two", LIST(1), &seed, 2, 2),
        epsilon = gb_constant(g, "epsilon", LIST(1), &seed, 1e-5, 1e-5);
    int mean = node(g, SY_OP_REDUCE_MEAN, IN(x), LIST(-1, 4, 1));
    gb_ints(g, "axes", LIST(2));
    int d = node(g, SY_OP_SUB, IN(x, mean), LIST(-1, 4, 6));
    int square = node(g, SY_OP_POW, IN(d, two), LIST(-1, 4, 6));
    int v = node(g, SY_OP_REDUCE_MEAN, IN(square), LIST(-1, 4, 1));
    gb_ints(g, "axes", LIST(2));
    v = node(g, SY_OP_SQRT, IN(node(g, SY_OP_ADD, IN(v, epsilon), LIST(-1, 4, 1))), LIST(-1, 4, 1));
    int y = node(g, SY_OP_DIV, IN(d, v), LIST(-1, 4, 6));
    y = node(g, SY_OP_MUL, IN(y, positive(g, "scale", LIST(6))), LIST(-1, 4, 6));
    return node(g, SY_OP_ADD, IN(y, weight(g, "shift", LIST(6))), LIST(-1, 4, 6));
}
static int net_rms_norm(struct sy_graph *g)
{
    int y = node(g, SY_OP_RMS_NORM, IN(start(g), positive(g, "scale", LIST(6))), LIST(-1, 4, 6));
    gb_int(g, "axis", 2);
    return y;
}
static int net_instance_norm(struct sy_graph *g)
{
    int s = positive(g, "scale", LIST(4)), b = weight(g, "shift", LIST(4));
    return node(g, SY_OP_INSTANCE_NORM, IN(start(g), s, b), LIST(-1, 4, 6));
}
static int net_group_norm(struct sy_graph *g)
{
    int s = positive(g, "scale", LIST(4)), b = weight(g, "shift", LIST(4));
    int y = node(g, SY_OP_GROUP_NORM, IN(start(g), s, b), LIST(-1, 4, 6));
    gb_int(g, "num_groups", 2);
    return y;
}
static int net_transpose(struct sy_graph *g)
{
    int y = node(g, SY_OP_TRANSPOSE, IN(start(g)), LIST(-1, 6, 4));
    gb_ints(g, "perm", LIST(0, 2, 1));
    return node(g, SY_OP_TANH, IN(y), LIST(-1, 6, 4));
}
static int net_slice(struct sy_graph *g)
{
    int y = node(g, SY_OP_SLICE, IN(start(g)), LIST(-1, 2, 3));
    gb_ints(g, "axes", LIST(1, 2));
    gb_ints(g, "starts", LIST(3, 1));
    gb_ints(g, "steps", LIST(-2, 2));
    return y;
}
static int net_split_concat(struct sy_graph *g)
{
    int a = node(g, SY_OP_SPLIT, IN(start(g)), LIST(-1, 1, 6));
    gb_int(g, "axis", 1);
    int unused = more_output(g, LIST(-1, 1, 6)), b = more_output(g, LIST(-1, 2, 6));
    (void)unused;
    int row = node(g, SY_OP_EXPAND, IN(weight(g, "token", LIST(1, 1, 6))), LIST(-1, 1, 6));
    int y = node(g, SY_OP_CONCAT, IN(b, row, a, a), LIST(-1, 5, 6));
    gb_int(g, "axis", 1);
    return node(g, SY_OP_SIGMOID, IN(y), LIST(-1, 5, 6));
}
static int net_pad(struct sy_graph *g)
{
    int y = node(g, SY_OP_PAD, IN(start(g)), LIST(-1, 6, 9));
    gb_ints(g, "pads", LIST(0, 1, 2, 0, 1, 1));
    gb_float(g, "value", 0.5f);
    return y;
}
static int net_tile(struct sy_graph *g)
{
    return node(g, SY_OP_TILE, IN(start(g)), LIST(-1, 8, 18));
}
static int net_batched_matmul(struct sy_graph *g)
{
    int x = start(g), y = node(g, SY_OP_TANH, IN(x), LIST(-1, 4, 6));
    y = node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 6, 4));
    gb_ints(g, "perm", LIST(0, 2, 1));
    return node(g, SY_OP_MATMUL, IN(x, y), LIST(-1, 4, 4));
}
static int net_spread_matmul(struct sy_graph *g)
{
    int x = start(g);
    int w = node(g, SY_OP_TANH, IN(weight(g, "left", LIST(2, 1, 5, 4))), LIST(2, 1, 5, 4));
    int y = node(g, SY_OP_MATMUL, IN(w, x), LIST(2, -1, 5, 6));
    int back = node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 2, 5, 6));
    gb_ints(g, "perm", LIST(1, 0, 2, 3));
    return back;
}
static int net_gemm(struct sy_graph *g)
{
    int x = node(g, SY_OP_FLATTEN, IN(start(g)), LIST(-1, 24));
    int y = node(g, SY_OP_TRANSPOSE, IN(x), LIST(24, -1));
    gb_ints(g, "perm", LIST(1, 0));
    y = node(g, SY_OP_GEMM, IN(y, weight(g, "w", LIST(5, 24)), weight(g, "c", LIST(1))),
             LIST(-1, 5));
    gb_int(g, "transA", 1);
    gb_int(g, "transB", 1);
    gb_float(g, "alpha", 0.7f);
    return y;
}
/* As the loader fuses it. */
static int net_biased_matmul(struct sy_graph *g)
{
    int y = node(g, SY_OP_MATMUL, IN(start(g), weight(g, "w", LIST(6, 5)), weight(g, "b", LIST(5))),
                 LIST(-1, 4, 5));
    g->nodes[g->n_nodes - 1].bias_input = 2;
    return y;
}
/* A vector on each side. */
static int net_vector_matmul(struct sy_graph *g)
{
    int y = node(g, SY_OP_MATMUL, IN(start(g), weight(g, "right", LIST(6))), LIST(-1, 4));
    y = node(g, SY_OP_TANH, IN(y), LIST(-1, 4));
    y = node(g, SY_OP_TRANSPOSE, IN(y), LIST(4, -1));
    gb_ints(g, "perm", LIST(1, 0));
    y = node(g, SY_OP_MATMUL, IN(weight(g, "left", LIST(4)), y), LIST(-1));
    return node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 1));
}
static int net_gather(struct sy_graph *g)
{
    int x = start(g), table = weight(g, "table", LIST(5, 6));
    int indices = gb_constant(g, "indices", LIST(4), &seed, 0, 1);
    const int32_t rows[] = {3, 0, -2, 3};
    memcpy(g->tensors[indices].data, rows, sizeof rows);
    g->tensors[indices].dtype = SY_DTYPE_I32;
    int y = node(g, SY_OP_GATHER, IN(table, indices), LIST(4, 6));
    gb_int(g, "axis", 0);
    return node(g, SY_OP_MUL, IN(x, y), LIST(-1, 4, 6));
}
/* One table for both ends, as language models have it. */
static int net_tied(struct sy_graph *g)
{
    int x = start(g), table = weight(g, "table", LIST(5, 6));
    int t = node(g, SY_OP_TRANSPOSE, IN(table), LIST(6, 5));
    gb_ints(g, "perm", LIST(1, 0));
    int y = node(g, SY_OP_MATMUL, IN(x, t), LIST(-1, 4, 5));
    y = node(g, SY_OP_MATMUL, IN(y, table), LIST(-1, 4, 6));
    return y;
}
static int net_attention(struct sy_graph *g)
{
    int x = start(g), heads[3];
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        int y = node(g, SY_OP_MATMUL, IN(x, weight(g, name, LIST(6, 6))), LIST(-1, 4, 6));
        y = node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 4, 2, 3));
        bool is_key = i == 1;
        heads[i] = is_key ? node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 2, 3, 4))
                          : node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 2, 4, 3));
        if (is_key)
            gb_ints(g, "perm", LIST(0, 2, 3, 1));
        else
            gb_ints(g, "perm", LIST(0, 2, 1, 3));
    }
    int scores = node(g, SY_OP_MATMUL, IN(heads[0], heads[1]), LIST(-1, 2, 4, 4));
    int root = gb_constant(g, "root", LIST(1), &seed, 1.7, 1.7);
    scores = node(g, SY_OP_DIV, IN(scores, root), LIST(-1, 2, 4, 4));
    scores = node(g, SY_OP_SOFTMAX, IN(scores), LIST(-1, 2, 4, 4));
    gb_int(g, "axis", 3);
    int y = node(g, SY_OP_MATMUL, IN(scores, heads[2]), LIST(-1, 2, 4, 3));
    y = node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 4, 2, 3));
    gb_ints(g, "perm", LIST(0, 2, 1, 3));
    y = node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 4, 6));
    return node(g, SY_OP_ADD, IN(x, y), LIST(-1, 4, 6));
}

static int recurrent(struct sy_graph *g, enum sy_op op, int64_t gates, const char *direction,
                     bool has_lengths, bool is_late)
{
    int64_t d = strcmp(direction, "bidirectional") ? 1 : 2;
    int x = node(g, SY_OP_TRANSPOSE, IN(start(g)), LIST(4, -1, 6));
    gb_ints(g, "perm", LIST(1, 0, 2));
    int w = weight(g, "w", LIST(d, gates * 5, 6)), r = weight(g, "r", LIST(d, gates * 5, 5)),
        b = weight(g, "b", LIST(d, gates * 10)), lengths = -1;
    if (has_lengths) {
        const int32_t n[BATCH] = {2, 4, 3};
        lengths = gb_constant(g, "lengths", LIST(BATCH), &seed, 0, 1);
        memcpy(g->tensors[lengths].data, n, sizeof n);
        g->tensors[lengths].dtype = SY_DTYPE_I32;
    }
    int h = weight(g, "h", LIST(d, BATCH, 5)), c = -1;
    h = node(g, SY_OP_TANH, IN(h), LIST(d, BATCH, 5));
    if (op == SY_OP_LSTM)
        c = node(g, SY_OP_TANH, IN(weight(g, "c", LIST(d, BATCH, 5))), LIST(d, BATCH, 5));
    int y = op == SY_OP_LSTM ? node(g, op, IN(x, w, r, b, lengths, h, c), LIST(4, d, -1, 5))
                             : node(g, op, IN(x, w, r, b, lengths, h), LIST(4, d, -1, 5));
    struct sy_attr *attr;
    gb_int(g, "hidden_size", 5);
    gb_int(g, "linear_before_reset", is_late);
    gb_int(g, "direction", 0);
    attr = &g->nodes[g->n_nodes - 1].attrs[2];
    attr->kind = SY_ATTR_STRING;
    attr->s = strdup(direction);
    int last = more_output(g, LIST(d, -1, 5));
    y = node(g, SY_OP_TRANSPOSE, IN(y), LIST(-1, 4, d, 5));
    gb_ints(g, "perm", LIST(2, 0, 1, 3));
    y = node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 4 * d, 5));
    last = node(g, SY_OP_TRANSPOSE, IN(last), LIST(-1, d, 5));
    gb_ints(g, "perm", LIST(1, 0, 2));
    y = node(g, SY_OP_CONCAT, IN(y, last), LIST(-1, 5 * d, 5));
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
    int x = node(g, SY_OP_RESHAPE, IN(start(g)), LIST(-1, 4, 2, 3));
    int y =
        node(g, SY_OP_CONV_TRANSPOSE,
             IN(x, weight(g, "w", LIST(4, 3, 3, 2)), weight(g, "b", LIST(6))), LIST(-1, 6, 4, 6));
    gb_ints(g, "kernel_shape", LIST(3, 2));
    gb_ints(g, "strides", LIST(2, 2));
    gb_ints(g, "pads", LIST(1, 0, 0, 0));
    gb_int(g, "group", 2);
    return y;
}
/* One dimension, and room behind the last window. */
static int net_deconv_line(struct sy_graph *g)
{
    int x = node(g, SY_OP_RESHAPE, IN(start(g)), LIST(-1, 4, 6));
    int y = node(g, SY_OP_CONV_TRANSPOSE, IN(x, weight(g, "w", LIST(4, 3, 2))), LIST(-1, 3, 18));
    gb_ints(g, "kernel_shape", LIST(2));
    gb_ints(g, "strides", LIST(3));
    gb_ints(g, "output_padding", LIST(1));
    return y;
}
static int net_blocks(struct sy_graph *g)
{
    int x = node(g, SY_OP_RESHAPE, IN(start(g)), LIST(-1, 4, 3, 2));
    int y = node(g, SY_OP_DEPTH_TO_SPACE, IN(x), LIST(-1, 1, 6, 4));
    gb_int(g, "blocksize", 2);
    y = node(g, SY_OP_MUL, IN(y, weight(g, "w", LIST(6, 4))), LIST(-1, 1, 6, 4));
    y = node(g, SY_OP_SPACE_TO_DEPTH, IN(y), LIST(-1, 4, 3, 2));
    gb_int(g, "blocksize", 2);
    y = node(g, SY_OP_MUL, IN(y, weight(g, "v", LIST(4, 1, 2))), LIST(-1, 4, 3, 2));
    y = node(g, SY_OP_DEPTH_TO_SPACE, IN(y), LIST(-1, 1, 6, 4));
    gb_int(g, "blocksize", 2);
    gb_string(g, "mode", "CRD");
    return y;
}
static int net_depthwise(struct sy_graph *g)
{
    int x = node(g, SY_OP_RESHAPE, IN(start(g)), LIST(-1, 4, 2, 3));
    int y = node(g, SY_OP_CONV, IN(x, weight(g, "w", LIST(8, 1, 3, 3)), weight(g, "b", LIST(8))),
                 LIST(-1, 8, 2, 3));
    gb_ints(g, "kernel_shape", LIST(3, 3));
    gb_ints(g, "pads", LIST(1, 1, 1, 1));
    gb_int(g, "group", 4);
    y = node(g, SY_OP_GELU, IN(y), LIST(-1, 8, 2, 3));
    return node(g, SY_OP_GLOBAL_MAX_POOL, IN(y), LIST(-1, 8, 1, 1));
}
static int net_dropout(struct sy_graph *g)
{
    int y = node(g, SY_OP_DROPOUT, IN(start(g)), LIST(-1, 4, 6));
    gb_float(g, "ratio", 0.4f);
    return node(g, SY_OP_TANH, IN(y), LIST(-1, 4, 6));
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
static const struct {
    const char *name;
    int (*make)(struct sy_graph *g);
} nets[] = {NET(relu),
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
            NET(attention),
            NET(lstm),
            NET(lstm_both),
            NET(gru_late),
            NET(gru_early),
            NET(rnn),
            NET(deconv),
            NET(deconv_line),
            NET(blocks),
            NET(depthwise),
            NET(dropout)};

/* ---- the check ------------------------------------------------------------------------------------ */

struct rig {
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    void *persistent, *ephemeral;
    float input[BATCH * 24], wanted[ROOM];
    int64_t n_wanted;
};

static bool recomputes;
static enum sy_train_precision precision;

/* In memory of NaN. */
static void bind_rig(struct rig *r)
{
    size_t p = (ops->persistent_bytes(r->trainer) + 4095) / 4096 * 4096,
           e = (ops->ephemeral_bytes(r->trainer) + 4095) / 4096 * 4096;
    r->persistent = rig_take_memory ? rig_take_memory(p) : aligned_alloc(4096, p);
    r->ephemeral = rig_take_memory ? rig_take_memory(e) : aligned_alloc(4096, e);
    assert_non_null(r->persistent);
    assert_non_null(r->ephemeral);
    memset(r->persistent, 0xff, p);
    memset(r->ephemeral, 0xff, e);
    ops->bind(r->trainer, device_view ? device_view(r->persistent) : r->persistent,
              device_view ? device_view(r->ephemeral) : r->ephemeral);
    assert_int_equal(ops->init_state(r->trainer), SY_OK);
}

/* False: this trainer says that it lacks the operator. */
static bool open_with(struct rig *r, size_t which, const struct sy_train_options *o)
{
    r->graph = gb_new(nets[which].name);
    gb_output(r->graph, nets[which].make(r->graph));
    int status = ops->create(r->graph, o, &r->trainer);
    if (status < 0)
        fail_msg("%s: %s", nets[which].name, sy_error_text());
    bind_rig(r);
    r->n_wanted = sy_shape_elements(&r->graph->tensors[r->graph->outputs[0]].shape, BATCH);
    assert_true(r->n_wanted <= ROOM);
    for (int i = 0; i < BATCH * 24; i++)
        r->input[i] = (float)gb_uniform(&seed, -1, 1);
    for (int64_t i = 0; i < r->n_wanted; i++)
        r->wanted[i] = (float)gb_uniform(&seed, -1, 1);
    return true;
}

static bool open_rig(struct rig *r, size_t which)
{
    struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                 .optimizer = SY_OPTIMIZER_SGD,
                                 .learning_rate = 0.0,
                                 .momentum = 0.5,
                                 .batch = BATCH,
                                 .seed = 7,
                                 .precision = precision,
                                 .recomputes = recomputes};
    return open_with(r, which, &o);
}

static void drop_memory(void *memory, bool is_device)
{
    if (is_device)
        rig_drop_memory(memory);
    else
        free(memory);
}

static void close_rig(struct rig *r)
{
    bool is_device = rig_drop_memory != NULL;
    ops->destroy(r->trainer);
    sy_graph_free(r->graph);
    drop_memory(r->persistent, is_device);
    drop_memory(r->ephemeral, is_device);
}

static double loss_of(struct rig *r)
{
    memcpy(ops->batch_input(r->trainer, 0), r->input, sizeof r->input);
    memcpy(ops->batch_labels(r->trainer), r->wanted, (size_t)r->n_wanted * sizeof *r->wanted);
    ops->begin_batch(r->trainer, 5);
    for (int s = 0; s < ops->n_gradient_steps(r->trainer); s++)
        if (ops->run_gradient_step(r->trainer, s) < 0)
            fail_msg("%s: %s", r->graph->name, sy_error_text());
    return ops->loss(r->trainer);
}

static void settle(struct rig *r)
{
    if (ops->settle)
        assert_int_equal(ops->settle(r->trainer), SY_OK);
}

static double difference(struct rig *r, int state, float *values, int64_t at, float h)
{
    const float before = values[at];
    values[at] = before + h;
    ops->set_state(r->trainer, state, values);
    double up = loss_of(r);
    values[at] = before - h;
    ops->set_state(r->trainer, state, values);
    double down = loss_of(r);
    double width = (double)(before + h) - (double)(before - h);
    values[at] = before;
    ops->set_state(r->trainer, state, values);
    return (up - down) / width;
}

static void check_parameter(struct rig *r, int state)
{
    struct sy_state_tensor tensor, momentum;
    ops->state_tensor(r->trainer, state, &tensor);
    ops->state_tensor(r->trainer, state + 1, &momentum);
    float *values = malloc(tensor.bytes), *gradient = malloc(tensor.bytes);
    ops->get_state(r->trainer, state, values);
    ops->get_state(r->trainer, state + 1, gradient);
    int64_t n = (int64_t)(tensor.bytes / sizeof *values), stride = (n + MAX_SEEN - 1) / MAX_SEEN;
    for (int64_t i = 0; i < n; i += stride) {
        double wanted = difference(r, state, values, i, 4e-3f), slack = 2e-4;
        if (!(fabs((double)gradient[i] - wanted) <= slack + 1e-2 * fabs(wanted))) {
            wanted = difference(r, state, values, i, 4e-4f); /* a curve's corner was between */
            slack = 1e-3;
        }
        if (!(fabs((double)gradient[i] - wanted) <= slack + 1e-2 * fabs(wanted)))
            fail_msg("%s: %s[%d]: gradient %g, difference %g", r->graph->name, tensor.name, (int)i,
                     (double)gradient[i], wanted);
    }
    free(values);
    free(gradient);
}

static void test_gradients(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct rig r;
        int n_checked = 0;
        if (!open_rig(&r, n))
            continue;
        loss_of(&r);
        for (int s = 0; s < ops->n_update_steps(r.trainer); s++)
            ops->run_update_step(r.trainer, s, 1);
        for (int s = 0; s + 1 < ops->n_state_tensors(r.trainer); s += 2, n_checked++)
            check_parameter(&r, s);
        assert_true(n_checked > 0);
        close_rig(&r);
    }
}

/* What was run before, and where the memory is, decides nothing. */
static void test_same_bits(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct rig r;
        if (!open_rig(&r, n))
            continue;
        size_t bytes = ops->persistent_bytes(r.trainer);
        loss_of(&r);
        double before = ops->loss(r.trainer);
        settle(&r);
        void *copy = malloc(bytes);
        memcpy(copy, r.persistent, bytes);
        ops->begin_batch(r.trainer, 6);
        for (int s = 0; s < ops->n_gradient_steps(r.trainer) / 2; s++)
            ops->run_gradient_step(r.trainer, s);
        settle(&r);
        memset(r.ephemeral, 0xff, ops->ephemeral_bytes(r.trainer));
        assert_true(loss_of(&r) == before);
        settle(&r);
        if (memcmp(copy, r.persistent, bytes))
            fail_msg("%s: other bits in the second run", nets[n].name);
        free(copy);
        close_rig(&r);
    }
}

static void test_dropout(void **unused)
{
    (void)unused;
    struct rig r;
    size_t which = 0;
    while (strcmp(nets[which].name, "dropout"))
        which++;
    assert_true(open_rig(&r, which));
    double first = loss_of(&r);
    ops->begin_batch(r.trainer, 6);
    for (int s = 0; s < ops->n_gradient_steps(r.trainer); s++)
        ops->run_gradient_step(r.trainer, s);
    assert_true(ops->loss(r.trainer) != first);
    assert_true(loss_of(&r) == first);
    close_rig(&r);
}

static void read_gradients(struct rig *r, float *to)
{
    for (int s = 0; s < ops->n_update_steps(r->trainer); s++)
        ops->run_update_step(r->trainer, s, 1);
    for (int s = 0; s < ops->n_state_tensors(r->trainer); s++) {
        struct sy_state_tensor tensor;
        ops->state_tensor(r->trainer, s, &tensor);
        ops->get_state(r->trainer, s, to);
        to += tensor.bytes / sizeof *to;
    }
}

/* Made again: the same bits, and never more memory to speak of. */
static void test_recompute(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct rig a, b;
        static float x[ROOM], y[ROOM];
        uint64_t before = seed;
        if (!open_rig(&a, n))
            continue;
        seed = before;
        recomputes = true;
        open_rig(&b, n);
        recomputes = false;
        assert_true(loss_of(&a) == loss_of(&b));
        read_gradients(&a, x);
        read_gradients(&b, y);
        if (memcmp(x, y, sizeof x))
            fail_msg("%s: other gradients", nets[n].name);
        close_rig(&a);
        close_rig(&b);
    }
}

/* Products in bfloat16: gradients near those of float32, of a network with all that has a bfloat16 form. */
static void test_bf16(void **unused)
{
    (void)unused;
    float *state[2] = {NULL, NULL};
    double losses[2];
    uint64_t before = seed;
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                     .optimizer = SY_OPTIMIZER_SGD,
                                     .momentum = 0.5,
                                     .batch = BATCH,
                                     .precision = i ? SY_TRAIN_BF16 : SY_TRAIN_F32};
        struct rig r = {.graph = gb_new("bf16")};
        struct sy_graph *g = r.graph;
        seed = before;
        int x = node(g, SY_OP_RESHAPE, IN(start(g)), LIST(-1, 4, 2, 3));
        int y = node(g, SY_OP_CONV, IN(x, weight(g, "c1", LIST(16, 4, 3, 3))), LIST(-1, 16, 2, 3));
        gb_ints(g, "kernel_shape", LIST(3, 3));
        gb_ints(g, "pads", LIST(1, 1, 1, 1));
        y = node(g, SY_OP_BATCH_NORM,
                 IN(y, positive(g, "s", LIST(16)), weight(g, "b", LIST(16)),
                    weight(g, "m", LIST(16)), positive(g, "v", LIST(16))),
                 LIST(-1, 16, 2, 3));
        y = node(g, SY_OP_RELU, IN(y), LIST(-1, 16, 2, 3));
        int z = node(g, SY_OP_CONV, IN(y, weight(g, "c2", LIST(16, 16, 1, 1))), LIST(-1, 16, 2, 3));
        gb_ints(g, "kernel_shape", LIST(1, 1));
        y = node(g, SY_OP_ADD, IN(y, z), LIST(-1, 16, 2, 3));
        y = node(g, SY_OP_GELU, IN(y), LIST(-1, 16, 2, 3));
        y = node(g, SY_OP_GLOBAL_AVERAGE_POOL, IN(y), LIST(-1, 16, 1, 1));
        y = node(g, SY_OP_FLATTEN, IN(y), LIST(-1, 16));
        gb_output(g, node(g, SY_OP_MATMUL, IN(y, weight(g, "w", LIST(16, 4))), LIST(-1, 4)));
        int status = ops->create(g, &o, &r.trainer);
        if (status == SY_EUNSUPPORTED) {
            print_message("no bfloat16 here: %s\n", sy_error_text());
            sy_graph_free(g);
            free(state[0]);
            skip();
        }
        assert_int_equal(status, SY_OK);
        bind_rig(&r);
        r.n_wanted = BATCH * 4;
        for (int k = 0; k < BATCH * 24; k++)
            r.input[k] = (float)(k % 13) / 6.0f - 1.0f;
        for (int k = 0; k < BATCH * 4; k++)
            r.wanted[k] = (float)(k % 3);
        losses[i] = loss_of(&r);
        state[i] = calloc(ROOM, sizeof(float));
        read_gradients(&r, state[i]);
        n = (int64_t)(ops->persistent_bytes(r.trainer) / sizeof(float));
        close_rig(&r);
    }
    double dot = 0, a = 0, b = 0;
    for (int64_t i = 0; i < n && i < ROOM; i++) {
        dot += (double)state[0][i] * (double)state[1][i];
        a += (double)state[0][i] * (double)state[0][i];
        b += (double)state[1][i] * (double)state[1][i];
    }
    assert_true(fabs(losses[0] - losses[1]) < 0.02 * fabs(losses[0]));
    assert_true(losses[0] != losses[1]);
    assert_true(dot / sqrt(a * b) > 0.999);
    free(state[0]);
    free(state[1]);
}

/* Another trainer than the host's computes all networks in bfloat16: their gradients point where those of float32 do. The corners of curves
 * bend some of them a little. */
static void test_bf16_everywhere(void **unused)
{
    (void)unused;
    static float state[2][ROOM];
    if (ops == &sy_host_trainer)
        skip();
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        double losses[2], dot = 0, a = 0, b = 0;
        uint64_t before = seed;
        memset(state, 0, sizeof state);
        for (int i = 0; i < 2; i++) {
            struct rig r;
            seed = before;
            precision = i ? SY_TRAIN_BF16 : SY_TRAIN_F32;
            recomputes = i == 1;
            assert_true(open_rig(&r, n));
            losses[i] = loss_of(&r);
            read_gradients(&r, state[i]);
            close_rig(&r);
        }
        precision = SY_TRAIN_F32;
        recomputes = false;
        for (int i = 0; i < ROOM; i++) {
            dot += (double)state[0][i] * (double)state[1][i];
            a += (double)state[0][i] * (double)state[0][i];
            b += (double)state[1][i] * (double)state[1][i];
        }
        if (!(fabs(losses[0] - losses[1]) <= 0.05 * fabs(losses[0]) && dot > 0.98 * sqrt(a * b)))
            fail_msg("%s: losses %g and %g, cosine %g", nets[n].name, losses[0], losses[1],
                     dot / sqrt(a * b));
    }
}

/* Sixteen layers in a row: what is kept shrinks to a part. */
static void test_recompute_shrinks(void **unused)
{
    (void)unused;
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct sy_train_options o = {
            .loss = SY_LOSS_MSE, .optimizer = SY_OPTIMIZER_SGD, .batch = 64, .recomputes = i == 1};
        struct sy_graph *g = gb_new("deep");
        struct sy_trainer *t;
        int x = gb_input(g, LIST(1, 64));
        for (int layer = 0; layer < 16; layer++) {
            char name[16];
            snprintf(name, sizeof name, "w%d", layer);
            x = node(g, SY_OP_MATMUL, IN(x, weight(g, name, LIST(64, 64))), LIST(-1, 64));
            x = node(g, SY_OP_GELU, IN(x), LIST(-1, 64));
        }
        gb_output(g, x);
        assert_int_equal(ops->create(g, &o, &t), SY_OK);
        bytes[i] = ops->ephemeral_bytes(t);
        ops->destroy(t);
        sy_graph_free(g);
    }
    assert_true(bytes[1] < bytes[0] * 2 / 3);
}

/* ---- against the host ------------------------------------------------------------------------------ */

/* From the batch's number alone. Labels of classes: some rows have none. */
static void fill_batch(struct rig *r, const struct sy_train_options *o, uint64_t batch)
{
    const struct sy_shape *shape = &r->graph->tensors[r->graph->outputs[0]].shape;
    int64_t classes = sy_dim_at(shape->dims[shape->rank - 1], BATCH);
    float *x = ops->batch_input(r->trainer, 0);
    void *labels = ops->batch_labels(r->trainer);
    for (int i = 0; i < BATCH * 24; i++)
        x[i] = (float)((int)(batch * 31 + (uint64_t)i * 7) % 23 - 11) / 12.0f;
    if (o->loss != SY_LOSS_SOFTMAX_CROSS_ENTROPY)
        memcpy(labels, r->wanted, (size_t)r->n_wanted * sizeof *r->wanted);
    for (int64_t i = 0; o->loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY && i < r->n_wanted / classes; i++)
        ((int32_t *)labels)[i] = (int32_t)(((int64_t)batch + 3 * i) % (classes + 1)) - 1;
    ops->begin_batch(r->trainer, batch);
}

/* Three iterations of two phases each: losses, then weights, the optimizer's state, and how many are right in an evaluation. */
static int train_a_little(struct rig *r, const struct sy_train_options *o, double *losses,
                          float *to)
{
    int n = 1;
    for (uint64_t batch = 0; batch < 6; batch++) {
        fill_batch(r, o, batch);
        for (int s = 0; s < ops->n_gradient_steps(r->trainer); s++)
            if (ops->run_gradient_step(r->trainer, s) < 0)
                fail_msg("%s: %s", r->graph->name, sy_error_text());
        losses[batch] = ops->loss(r->trainer);
        for (int s = 0; batch % 2 && s < ops->n_update_steps(r->trainer); s++)
            assert_int_equal(ops->run_update_step(r->trainer, s, batch / 2 + 1), SY_OK);
    }
    fill_batch(r, o, 6);
    for (int s = 0; s < ops->n_forward_steps(r->trainer); s++)
        assert_int_equal(ops->run_forward_step(r->trainer, s), SY_OK);
    to[0] = (float)ops->count_correct(r->trainer, BATCH);
    for (int s = 0; s < ops->n_state_tensors(r->trainer); s++) {
        struct sy_state_tensor tensor;
        ops->state_tensor(r->trainer, s, &tensor);
        assert_true(n + (int)(tensor.bytes / sizeof *to) <= ROOM);
        assert_int_equal(ops->get_state(r->trainer, s, to + n), SY_OK);
        n += (int)(tensor.bytes / sizeof *to);
    }
    return n;
}

/* A step of time a piece against all in one: a pause may come between any two. */
static void check_pieces(size_t which, const struct sy_train_options *o)
{
    static float state[2][ROOM];
    double losses[2][6], whole = sy_tr_recurrent_piece_flops;
    int n[2], n_steps[2];
    uint64_t before = seed;
    for (int i = 0; i < 2; i++) {
        struct rig r;
        sy_tr_recurrent_piece_flops = i ? 1.0 : whole;
        seed = before;
        assert_true(open_with(&r, which, o));
        n_steps[i] = ops->n_gradient_steps(r.trainer);
        n[i] = train_a_little(&r, o, losses[i], state[i]);
        close_rig(&r);
    }
    sy_tr_recurrent_piece_flops = whole;
    assert_int_equal(n[0], n[1]);
    assert_true(n_steps[1] >= n_steps[0] + 6); /* four steps of time, forward and backward */
    for (int i = 0; i < n[0]; i++)
        if (!(fabsf(state[0][i] - state[1][i]) <= 1e-6f + 1e-5f * fabsf(state[0][i])))
            fail_msg("%s: state %d: %g in pieces, %g in one", nets[which].name, i,
                     (double)state[1][i], (double)state[0][i]);
}

static void test_recurrences_in_pieces(void **unused)
{
    (void)unused;
    const char *const names[] = {"lstm", "lstm_both", "gru_late", "gru_early", "rnn"};
    struct sy_train_options o = {.loss = SY_LOSS_MSE,
                                 .optimizer = SY_OPTIMIZER_SGD,
                                 .learning_rate = 0.05,
                                 .momentum = 0.5,
                                 .accumulate = 2,
                                 .batch = BATCH,
                                 .seed = 7};
    for (size_t n = 0; ops == &sy_host_trainer && n < sizeof nets / sizeof *nets; n++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(nets[n].name, names[k]))
                check_pieces(n, &o);
}

static void compare_with_host(size_t which, const struct sy_train_options *o)
{
    const struct sy_trainer_ops *other = ops;
    void *(*view)(void *memory) = device_view;
    static float state[2][ROOM];
    double losses[2][6];
    int n[2] = {0, 0};
    uint64_t before = seed;
    for (int i = 0; i < 2; i++) {
        struct rig r;
        ops = i ? other : &sy_host_trainer;
        device_view = i ? view : NULL;
        seed = before;
        if (!open_with(&r, which, o))
            return;
        n[i] = train_a_little(&r, o, losses[i], state[i]);
        close_rig(&r);
    }
    assert_int_equal(n[0], n[1]);
    for (int b = 0; b < 6; b++)
        if (!(fabs(losses[0][b] - losses[1][b]) <= 1e-5 + 1e-4 * fabs(losses[0][b])))
            fail_msg("%s: batch %d: loss %g, the host's %g", nets[which].name, b, losses[1][b],
                     losses[0][b]);
    for (int i = 0; i < n[0]; i++)
        if (!(fabsf(state[0][i] - state[1][i]) <= 1e-4f + 1e-3f * fabsf(state[0][i])))
            fail_msg("%s: state %d: %g, the host's %g", nets[which].name, i, (double)state[1][i],
                     (double)state[0][i]);
}

static void test_as_the_host(void **unused)
{
    (void)unused;
    struct sy_train_options adamw = {.loss = SY_LOSS_MSE,
                                     .optimizer = SY_OPTIMIZER_ADAMW,
                                     .learning_rate = 0.01,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .epsilon = 1e-3,
                                     .weight_decay = 0.1,
                                     .spares_vectors = true,
                                     .clip_norm = 0.3,
                                     .accumulate = 2,
                                     .schedule = {.kind = SY_SCHEDULE_COSINE,
                                                  .warmup_steps = 2,
                                                  .steps = 5,
                                                  .final_rate = 0.001},
                                     .batch = BATCH,
                                     .seed = 11};
    struct sy_train_options sgd = adamw;
    sgd.optimizer = SY_OPTIMIZER_SGD;
    sgd.momentum = 0.9;
    sgd.is_nesterov = true;
    sgd.loss = SY_LOSS_BCE;
    sgd.clip_norm = 100;
    struct sy_train_options classes = sgd;
    classes.loss = SY_LOSS_SOFTMAX_CROSS_ENTROPY;
    classes.clip_norm = classes.momentum = 0;
    classes.is_nesterov = false;
    if (ops == &sy_host_trainer)
        skip();
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        compare_with_host(n, &adamw);
        compare_with_host(n, &sgd);
        compare_with_host(n, &classes);
    }
}

/* ---- what the batch can do wrong -------------------------------------------------------------------- */

static int run_phase(struct rig *r)
{
    int status = SY_OK;
    for (int s = 0; s < ops->n_gradient_steps(r->trainer) && status == SY_OK; s++)
        status = ops->run_gradient_step(r->trainer, s);
    return status;
}

/* Rows of a table by numbers that come with the batch: the gradient of one that is read twice, and a number that has no row. */
static void test_embedding(void **unused)
{
    (void)unused;
    struct sy_train_options o = {.loss = SY_LOSS_MSE, .learning_rate = 1.0, .batch = BATCH};
    struct rig r = {.graph = gb_new("embedding")};
    struct sy_graph *g = r.graph;
    const int64_t rows[BATCH * 2] = {4, 0, 4, 4, -5, 2}, outside[BATCH * 2] = {0, 1, 5, 0, 0, 0};
    float before[10], after[10], wanted[BATCH * 4];
    int x = gb_input(g, LIST(1, 2));
    g->tensors[x].dtype = SY_DTYPE_I64;
    int y = node(g, SY_OP_GATHER, IN(weight(g, "table", LIST(5, 2)), x), LIST(-1, 2, 2));
    gb_int(g, "axis", 0);
    gb_output(g, y);
    assert_int_equal(ops->create(g, &o, &r.trainer), SY_OK);
    bind_rig(&r);
    assert_int_equal(ops->get_state(r.trainer, 0, before), SY_OK);
    for (int i = 0; i < BATCH * 4; i++)
        wanted[i] = (float)i;
    memcpy(ops->batch_input(r.trainer, 0), rows, sizeof rows);
    memcpy(ops->batch_labels(r.trainer), wanted, sizeof wanted);
    assert_int_equal(run_phase(&r), SY_OK);
    for (int s = 0; s < ops->n_update_steps(r.trainer); s++)
        assert_int_equal(ops->run_update_step(r.trainer, s, 1), SY_OK);
    assert_int_equal(ops->get_state(r.trainer, 0, after), SY_OK);
    for (int i = 0; i < 10; i++) {
        float gradient = 0;
        for (int k = 0; k < BATCH * 2; k++)
            if ((rows[k] + 5) % 5 == i / 2)
                gradient += 2.0f * (before[i] - wanted[2 * k + i % 2]) / (BATCH * 4);
        assert_true(fabsf(before[i] - gradient - after[i]) < 1e-5f);
    }
    memcpy(ops->batch_input(r.trainer, 0), outside, sizeof outside);
    memcpy(ops->batch_labels(r.trainer), wanted, sizeof wanted);
    assert_int_equal(run_phase(&r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "index 5"));
    close_rig(&r);
}

static void test_two_inputs(void **unused)
{
    (void)unused;
    struct sy_train_options o = {.loss = SY_LOSS_MSE, .batch = BATCH};
    struct rig r = {.graph = gb_new("inputs")};
    struct sy_graph *g = r.graph;
    float a[BATCH * 2], table[4];
    const int64_t b[BATCH] = {1, 0, 1};
    double wanted = 0;
    int x = gb_input(g, LIST(1, 2)), ids = gb_input(g, LIST(1));
    g->tensors[ids].dtype = SY_DTYPE_I64;
    int y = node(g, SY_OP_GATHER, IN(weight(g, "table", LIST(2, 2)), ids), LIST(-1, 2));
    gb_int(g, "axis", 0);
    gb_output(g, node(g, SY_OP_MUL, IN(x, y), LIST(-1, 2)));
    assert_int_equal(ops->create(g, &o, &r.trainer), SY_OK);
    bind_rig(&r);
    assert_int_equal(ops->get_state(r.trainer, 0, table), SY_OK);
    for (int i = 0; i < BATCH * 2; i++) {
        a[i] = (float)i - 2.5f;
        double product = (double)a[i] * (double)table[2 * b[i / 2] + i % 2];
        wanted += product * product / (BATCH * 2);
    }
    memcpy(ops->batch_input(r.trainer, 0), a, sizeof a);
    memcpy(ops->batch_input(r.trainer, 1), b, sizeof b);
    memset(ops->batch_labels(r.trainer), 0, sizeof a);
    assert_int_equal(run_phase(&r), SY_OK);
    assert_true(fabs(ops->loss(r.trainer) - wanted) < 1e-5 * wanted);
    close_rig(&r);
}

/* The job must end before such a gradient is in a snapshot: at once, or one iteration later with nothing updated. */
static void test_not_finite(void **unused)
{
    (void)unused;
    struct sy_train_options o = {
        .loss = SY_LOSS_MSE, .learning_rate = 1.0, .momentum = 0.5, .batch = BATCH};
    struct rig r;
    float state[36];
    int status = SY_OK;
    assert_true(open_with(&r, 0, &o));
    for (uint64_t i = 0; i < 2 && status == SY_OK; i++) {
        float *x = ops->batch_input(r.trainer, 0);
        for (int k = 0; k < BATCH * 24; k++)
            x[k] = i == 0 ? 1e25f : 0.0f;
        memcpy(ops->batch_labels(r.trainer), r.wanted, (size_t)r.n_wanted * sizeof *r.wanted);
        ops->begin_batch(r.trainer, i);
        status = run_phase(&r);
        for (int s = 0; status == SY_OK && s < ops->n_update_steps(r.trainer); s++)
            assert_int_equal(ops->run_update_step(r.trainer, s, i + 1), SY_OK);
        if (status == SY_OK)
            assert_int_equal(ops->get_state(r.trainer, 0, state), SY_EARG);
    }
    assert_int_equal(status, SY_EARG);
    assert_non_null(strstr(sy_error_text(), "gradient"));
    close_rig(&r);
}

int main(void)
{
    const char *text = getenv("SY_SEED");
    seed = text ? strtoull(text, NULL, 0) : 20240607;
    printf("SY_SEED=%llu\n", (unsigned long long)seed);
    if (rig_choose_trainer)
        rig_choose_trainer(&ops, &device_view);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_as_the_host),
                                       cmocka_unit_test(test_recurrences_in_pieces),
                                       cmocka_unit_test(test_embedding),
                                       cmocka_unit_test(test_two_inputs),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_recompute),
                                       cmocka_unit_test(test_recompute_shrinks),
                                       cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_bf16_everywhere),
                                       cmocka_unit_test(test_dropout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Networks with attention as exporters write it: products, scales, masks, softmax, with heads side by side. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/nets/graph_builder.h"
#include "tests/rigs/engine_rig.h"
#include "tests/rigs/gradient_rig.h"

static int moved(struct sy_graph *g, int x, int n, int64_t *perm, int rank, int64_t *dims)
{
    int y = gradient_node(g, SY_OP_TRANSPOSE, IN(x), rank, dims);
    gb_ints(g, "perm", n, perm);
    return y;
}

/* x by a weight, as so many heads of 3 numbers: [batch, heads, 4, 3]. */
static int heads_of(struct sy_graph *g, int x, const char *name, int64_t heads)
{
    int y = gradient_node(g, SY_OP_MATMUL, IN(x, gradient_weight(g, name, LIST(6, 3 * heads))),
                          LIST(-1, 4, 3 * heads));
    y = gradient_node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 4, heads, 3));
    return moved(g, y, LIST(0, 2, 1, 3), LIST(-1, heads, 4, 3));
}

static int turned(struct sy_graph *g, int x, int64_t heads)
{
    return moved(g, x, LIST(0, 1, 3, 2), LIST(-1, heads, 3, 4));
}

/* q k / 1.7, [batch, 2, 4, 4] */
static int scores_of(struct sy_graph *g, int q, int k)
{
    int scores = gradient_node(g, SY_OP_MATMUL, IN(q, k), LIST(-1, 2, 4, 4));
    int root = gb_constant(g, "root", LIST(1), &gradient_seed, 1.7, 1.7);
    return gradient_node(g, SY_OP_DIV, IN(scores, root), LIST(-1, 2, 4, 4));
}

static int softened(struct sy_graph *g, int scores)
{
    int p = gradient_node(g, SY_OP_SOFTMAX, IN(scores), LIST(-1, 2, 4, 4));
    gb_int(g, "axis", 3);
    return p;
}

/* p v with the heads side by side again, beside x. */
static int joined(struct sy_graph *g, int p, int v, int x)
{
    int y = gradient_node(g, SY_OP_MATMUL, IN(p, v), LIST(-1, 2, 4, 3));
    y = moved(g, y, LIST(0, 2, 1, 3), LIST(-1, 4, 2, 3));
    y = gradient_node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 4, 6));
    return gradient_node(g, SY_OP_ADD, IN(x, y), LIST(-1, 4, 6));
}

int gradient_net_attention(struct sy_graph *g)
{
    int x = gradient_start(g), q = heads_of(g, x, "q", 2), k = heads_of(g, x, "k", 2);
    int scores = scores_of(g, q, turned(g, k, 2));
    return joined(g, softened(g, scores), heads_of(g, x, "v", 2), x);
}

/* Constants of the graph, no parameters; the numbers where `left` is 0. */
static int added_mask(struct sy_graph *g, const int64_t *left, float gone)
{
    int mask = gb_constant(g, "added", LIST(4, 4), &gradient_seed, -0.5, 0.5);
    float *x = g->tensors[mask].data;
    g->tensors[mask].is_derived = true;
    for (int i = 0; i < 16; i++)
        x[i] = left[i] ? x[i] : gone;
    return mask;
}

static int bool_mask(struct sy_graph *g, const int64_t *left)
{
    return gb_constant_of(g, SY_DTYPE_BOOL, LIST(4, 4), left);
}

/* A causal mask that is added, and one that writes a number of its own. */
int gradient_net_attention_masked(struct sy_graph *g)
{
    static const int64_t causal[] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1},
                         kept[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1};
    int x = gradient_start(g), q = heads_of(g, x, "q", 2), k = heads_of(g, x, "k", 2);
    int scores = scores_of(g, q, turned(g, k, 2));
    int low = gb_constant(g, "low", LIST(1), &gradient_seed, -0.3, -0.3);
    scores = gradient_node(g, SY_OP_WHERE, IN(bool_mask(g, kept), scores, low), LIST(-1, 2, 4, 4));
    scores = gradient_node(g, SY_OP_ADD, IN(scores, added_mask(g, causal, -INFINITY)),
                           LIST(-1, 2, 4, 4));
    return joined(g, softened(g, scores), heads_of(g, x, "v", 2), x);
}

/* Rows of which nothing is left are zeros, and learn nothing. */
int gradient_net_attention_dead_rows(struct sy_graph *g)
{
    static const int64_t gone[] = {0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1};
    int x = gradient_start(g), q = heads_of(g, x, "q", 2), k = heads_of(g, x, "k", 2);
    int scores = scores_of(g, q, turned(g, k, 2));
    int least = gb_constant(g, "least", LIST(1), &gradient_seed, -INFINITY, -INFINITY),
        zero = gb_constant(g, "zero", LIST(1), &gradient_seed, 0, 0);
    ((float *)g->tensors[least].data)[0] = -INFINITY;
    scores =
        gradient_node(g, SY_OP_WHERE, IN(bool_mask(g, gone), least, scores), LIST(-1, 2, 4, 4));
    int p = softened(g, scores), is_nan = gradient_node(g, SY_OP_IS_NAN, IN(p), LIST(-1, 2, 4, 4));
    gb_type(g, is_nan, SY_DTYPE_BOOL);
    p = gradient_node(g, SY_OP_WHERE, IN(is_nan, zero, p), LIST(-1, 2, 4, 4));
    return joined(g, p, heads_of(g, x, "v", 2), x);
}

/* One head, repeated for each of two. */
static int repeated(struct sy_graph *g, int x)
{
    int y = gradient_node(g, SY_OP_UNSQUEEZE, IN(x), LIST(-1, 1, 1, 4, 3));
    gb_ints(g, "axes", LIST(2));
    y = gradient_node(g, SY_OP_EXPAND, IN(y), LIST(-1, 1, 2, 4, 3));
    return gradient_node(g, SY_OP_RESHAPE, IN(y), LIST(-1, 2, 4, 3));
}

int gradient_net_attention_grouped(struct sy_graph *g)
{
    int x = gradient_start(g), q = heads_of(g, x, "q", 2), k = repeated(g, heads_of(g, x, "k", 1));
    int scores = scores_of(g, q, turned(g, k, 2));
    return joined(g, softened(g, scores), repeated(g, heads_of(g, x, "v", 1)), x);
}

/* One head of k and v for all, without being repeated. */
int gradient_net_attention_shared(struct sy_graph *g)
{
    int x = gradient_start(g), q = heads_of(g, x, "q", 2);
    int scores = scores_of(g, q, turned(g, heads_of(g, x, "k", 1), 1));
    return joined(g, softened(g, scores), heads_of(g, x, "v", 1), x);
}

/* Queries that are learned, the same for each sample. */
int gradient_net_attention_learned(struct sy_graph *g)
{
    int x = gradient_start(g), q = gradient_weight(g, "queries", LIST(1, 2, 4, 3));
    int k = turned(g, heads_of(g, x, "k", 2), 2), v = heads_of(g, x, "v", 2);
    return joined(g, softened(g, scores_of(g, q, k)), v, x);
}

/* All three are one tensor. */
int gradient_net_attention_of_one(struct sy_graph *g)
{
    int x = gradient_start(g), y = heads_of(g, x, "q", 2);
    return joined(g, softened(g, scores_of(g, y, turned(g, y, 2))), y, x);
}

/* Positions that are learned are added to the scores. */
int gradient_net_attention_trained_mask(struct sy_graph *g)
{
    int x = gradient_start(g), q = heads_of(g, x, "q", 2), k = heads_of(g, x, "k", 2);
    int scores = scores_of(g, q, turned(g, k, 2));
    scores = gradient_node(g, SY_OP_ADD, IN(scores, gradient_weight(g, "bias", LIST(2, 4, 4))),
                           LIST(-1, 2, 4, 4));
    return joined(g, softened(g, scores), heads_of(g, x, "v", 2), x);
}

static int dropped(struct sy_graph *g, int x, int rank, int64_t *dims)
{
    int y = gradient_node(g, SY_OP_DROPOUT, IN(x), rank, dims);
    gb_float(g, "ratio", 0.4f);
    return y;
}

/* What is dropped does not depend on how many nodes there are before it. */
int gradient_net_attention_dropped(struct sy_graph *g)
{
    int y = gradient_net_attention(g);
    return gradient_node(g, SY_OP_TANH, IN(dropped(g, y, LIST(-1, 4, 6))), LIST(-1, 4, 6));
}

/* Between softmax and product. */
int gradient_net_attention_dropped_inside(struct sy_graph *g)
{
    int x = gradient_start(g), q = heads_of(g, x, "q", 2), k = heads_of(g, x, "k", 2);
    int p = dropped(g, softened(g, scores_of(g, q, turned(g, k, 2))), LIST(-1, 2, 4, 4));
    return joined(g, p, heads_of(g, x, "v", 2), x);
}

/* More rows than a tile, or wider heads: one head of x times a number a column, causal, and its mean. */
static int large(struct sy_graph *g, int64_t rows, int64_t width)
{
    int operands[3], x = gradient_node(g, SY_OP_RESHAPE, IN(gradient_start(g)), LIST(-1, 24, 1));
    x = gradient_node(g, SY_OP_MUL, IN(x, gradient_weight(g, "spread", LIST(rows * width / 24))),
                      LIST(-1, 24, rows * width / 24));
    x = gradient_node(g, SY_OP_RESHAPE, IN(x), LIST(-1, rows, width));
    for (int i = 0; i < 3; i++)
        operands[i] = gradient_node(
            g, SY_OP_MUL,
            IN(x, gradient_weight(g, (const char *[]){"q", "k", "v"}[i], LIST(width))),
            LIST(-1, rows, width));
    int k = moved(g, operands[1], LIST(0, 2, 1), LIST(-1, width, rows));
    int scores = gradient_node(g, SY_OP_MATMUL, IN(operands[0], k), LIST(-1, rows, rows));
    int mask = gb_constant(g, "causal", LIST(rows, rows), &gradient_seed, 0, 0);
    g->tensors[mask].is_derived = true;
    for (int64_t i = 0; i < rows * rows; i++)
        ((float *)g->tensors[mask].data)[i] = i % rows > i / rows ? -INFINITY : 0;
    scores = gradient_node(g, SY_OP_ADD, IN(scores, mask), LIST(-1, rows, rows));
    scores = gradient_node(g, SY_OP_SOFTMAX, IN(scores), LIST(-1, rows, rows));
    gb_int(g, "axis", 2);
    int y = gradient_node(g, SY_OP_MATMUL, IN(scores, operands[2]), LIST(-1, rows, width));
    y = gradient_node(g, SY_OP_REDUCE_MEAN, IN(y), LIST(-1, 1, width));
    gb_ints(g, "axes", LIST(1));
    gb_int(g, "keepdims", 1);
    return y;
}

int gradient_net_attention_long(struct sy_graph *g)
{
    return large(g, 72, 40);
}

int gradient_net_attention_wide(struct sy_graph *g)
{
    return large(g, 20, 96);
}

/* ONNX Runtime's attention operators as products, sums and a softmax; the passes for attention see those.
 *
 *   q, k, v [batch, heads, length, size]     softmax(scale q k' + mask + bias) v     T keys, of which P are from before */
#include <math.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct heads {
    int64_t n, size; /* of q and k */
    int q, k, v;     /* tensors */
    struct sy_dim batch, queries, keys;
    enum sy_dtype dtype;
    int mask, bias; /* inputs of the node */
};

/* [batch, length, heads * size] -> [batch, length, heads, size] */
static int cut_heads(struct sy_expand *e, int x, int64_t n)
{
    const int64_t dims[] = {0, 0, n, -1};
    return sy_expand_reshape(e, x, dims, 4);
}

static int count_up(struct sy_expand *e, const struct heads *h, bool keys)
{
    int end = keys ? sy_expand_size(e, h->keys, h->k, 2) : sy_expand_size(e, h->queries, h->q, 2);
    return sy_expand_count(e, end);
}

/* The mask of the keys that count, broadcastable to [batch, heads, queries, keys]. */
static int keys_that_count(struct sy_expand *e, const struct heads *h)
{
    const struct sy_tensor *t = sy_expand_tensor(e, h->mask);
    const struct sy_dim *dims = t->shape.dims;
    int x = sy_expand_input(e, h->mask), rank = t->shape.rank;
    struct sy_dim batch = h->batch, keys = h->keys, queries = h->queries;
    bool fits = rank >= 1 && rank <= 3 && sy_dtype_is_integer(t->dtype) &&
                sy_infer_same_size(e->in, e->node, &batch, dims[0]) &&
                (rank == 1 || sy_infer_same_size(e->in, e->node, &keys, dims[rank - 1])) &&
                (rank < 3 || sy_infer_same_size(e->in, e->node, &queries, dims[1]));
    if (!fits) {
        char text[160];
        sy_expand_fail(e, SY_EUNSUPPORTED, "a mask of shape %s",
                       sy_shape_text(&t->shape, text, sizeof text));
        return -1;
    }
    if (rank == 1) { /* how many count */
        x = sy_expand_unsqueeze(e, sy_expand_cast(e, x, SY_DTYPE_I64), 1);
        x = SY_EXPAND(e, LESS, count_up(e, h, true), x);
    } else
        x = SY_EXPAND(e, GREATER, sy_expand_cast(e, x, SY_DTYPE_I64), sy_expand_int(e, 0));
    x = sy_expand_unsqueeze(e, x, 1);
    return rank < 3 ? sy_expand_unsqueeze(e, x, 1) : x;
}

/* Key t counts for query s if t <= s + (keys - queries). */
static int keys_before(struct sy_expand *e, const struct heads *h)
{
    int rows = count_up(e, h, false), columns = count_up(e, h, true);
    struct sy_dim before;
    if (sy_dim_sub(h->keys, h->queries, &before) < 0 ||
        (!sy_dim_is_number(before) && !sy_dim_is_expr(before)))
        sy_expand_fail(e, SY_EUNSUPPORTED, "lengths that depend on the batch size");
    else if (sy_dim_is_expr(before))
        rows = SY_EXPAND(e, ADD, rows,
                         SY_EXPAND(e, SUB, sy_expand_size(e, h->keys, h->k, 2),
                                   sy_expand_size(e, h->queries, h->q, 2)));
    else if (before.fixed != 0)
        rows = SY_EXPAND(e, ADD, rows, sy_expand_int(e, before.fixed));
    return SY_EXPAND(e, LESS_OR_EQUAL, columns, sy_expand_unsqueeze(e, rows, 1));
}

static int attend(struct sy_expand *e, const struct heads *h)
{
    static const int64_t swap[] = {0, 1, 3, 2}, join[] = {0, 0, -1};
    float filter = sy_node_float(e->node, "mask_filter_value", -10000);
    double scale = (double)sy_node_float(e->node, "scale", 0),
           least = h->dtype == SY_DTYPE_F16 ? -65504.0 : -3.4e38;
    int scores = SY_EXPAND(e, MATMUL, h->q, sy_expand_transpose(e, h->k, swap, 4));
    scale = scale == 0 ? 1 / sqrt((double)h->size) : scale;
    scores = SY_EXPAND(e, MUL, scores, sy_expand_number(e, h->dtype, scale));
    if (sy_expand_input(e, h->mask) >= 0) {
        int counts = keys_that_count(e, h), none = sy_expand_number(e, h->dtype, (double)filter);
        int add = SY_EXPAND(e, WHERE, counts, sy_expand_number(e, h->dtype, 0), none);
        scores = SY_EXPAND(e, ADD, scores, add);
    }
    if (sy_expand_input(e, h->bias) >= 0)
        scores = SY_EXPAND(e, ADD, scores, sy_expand_input(e, h->bias));
    if (sy_node_int(e->node, "unidirectional", 0) != 0)
        scores =
            SY_EXPAND(e, WHERE, keys_before(e, h), scores, sy_expand_number(e, h->dtype, least));
    int weights = SY_EXPAND(e, SOFTMAX, scores);
    sy_expand_set_int(e, "axis", -1);
    return sy_expand_reshape(e, sy_expand_heads_first(e, SY_EXPAND(e, MATMUL, weights, h->v)), join,
                             3);
}

static int head_count(struct sy_expand *e, int64_t hidden, struct heads *h)
{
    h->n = sy_node_int(e->node, "num_heads", 0);
    if (h->n < 1 || hidden < 1 || hidden % h->n != 0)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld heads for %lld numbers", (long long)h->n,
                              (long long)hidden);
    h->size = hidden / h->n;
    if (sy_node_int(e->node, "do_rotary", 0) != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "rotary embedding inside");
    if (sy_node_int(e->node, "past_present_share_buffer", 0) != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "past and present in one buffer");
    return e->status;
}

/* ---- Attention, QAttention: one product for q, k and v ---------------------------------------- */

/* Widths of q, k and v in the product. */
static int three_widths(struct sy_expand *e, int64_t *widths)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *w = sy_expand_tensor(e, 1);
    const struct sy_attr *sizes = sy_node_attr(e->node, "qkv_hidden_sizes");
    int64_t all;
    if (!x || !w || x->shape.rank != 3 || w->shape.rank != 2)
        return sy_expand_fail(e, SY_ECORRUPT, "an input of not 3 dimensions, or weights of not 2");
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 1, &all));
    for (int i = 0; i < 3; i++)
        widths[i] =
            sizes && sizes->kind == SY_ATTR_INTS && sizes->n == 3 ? sizes->ints[i] : all / 3;
    if (widths[0] != widths[1] || widths[0] < 1 || widths[2] < 1 ||
        widths[0] + widths[1] + widths[2] != all)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld columns of weights", (long long)all);
    return SY_OK;
}

/* Concatenates the past [2, batch, heads, length, size] in front of k and v; the result is also the present. */
static void use_past(struct sy_expand *e, int past, struct heads *h)
{
    const struct sy_tensor *t = sy_expand_tensor(e, past);
    if (t && (t->shape.rank != 5 || sy_dim_add(h->keys, t->shape.dims[3], &h->keys) < 0))
        sy_expand_fail(e, SY_EUNSUPPORTED, "a past of %d dimensions", t->shape.rank);
    if (t) {
        int x = sy_expand_input(e, past);
        h->k = sy_expand_join(e, SY_EXPAND(e, GATHER, x, sy_expand_int(e, 0)), h->k, 2);
        h->v = sy_expand_join(e, SY_EXPAND(e, GATHER, x, sy_expand_int(e, 1)), h->v, 2);
    }
    if (sy_expand_wanted(e, 1))
        sy_expand_result(
            e, 1,
            sy_expand_join(e, sy_expand_unsqueeze(e, h->k, 0), sy_expand_unsqueeze(e, h->v, 0), 0));
}

static int attend_to_self(struct sy_expand *e, int (*product)(struct sy_expand *e), int mask,
                          int past, int bias)
{
    int64_t widths[3];
    int part[3];
    SY_TRY(three_widths(e, widths));
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    struct heads h = {.batch = x->shape.dims[0],
                      .queries = x->shape.dims[1],
                      .keys = x->shape.dims[1],
                      .dtype = sy_dtype_bytes(x->dtype) == 1 ? SY_DTYPE_F32 : x->dtype,
                      .mask = mask,
                      .bias = bias};
    SY_TRY(head_count(e, widths[0], &h));
    if (widths[2] % h.n != 0)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld heads for %lld numbers", (long long)h.n,
                              (long long)widths[2]);
    int all = product(e), lengths = sy_expand_ints(e, widths, 3);
    sy_expand_op_many(e, SY_OP_SPLIT, (const int[]){all, lengths}, 2, part, 3);
    sy_expand_set_int(e, "axis", 2);
    h.q = sy_expand_heads_first(e, cut_heads(e, part[0], h.n));
    h.k = sy_expand_heads_first(e, cut_heads(e, part[1], h.n));
    h.v = sy_expand_heads_first(e, cut_heads(e, part[2], h.n));
    use_past(e, past, &h);
    if (e->status == SY_OK)
        sy_expand_result(e, 0, attend(e, &h));
    return e->status;
}

static int float_product(struct sy_expand *e)
{
    int y = SY_EXPAND(e, MATMUL, sy_expand_input(e, 0), sy_expand_input(e, 1));
    return sy_expand_input(e, 2) < 0 ? y : SY_EXPAND(e, ADD, y, sy_expand_input(e, 2));
}

static int whole_product(struct sy_expand *e)
{
    struct sy_whole_product p = {.a = sy_expand_input(e, 0),
                                 .b = sy_expand_input(e, 1),
                                 .bias = sy_expand_input(e, 2),
                                 .a_scale = sy_expand_input(e, 3),
                                 .b_scale = sy_expand_input(e, 4),
                                 .a_zero = sy_expand_input(e, 6),
                                 .b_zero = sy_expand_input(e, 7)};
    return sy_expand_integer_product(e, &p);
}

static int expand_attention(struct sy_expand *e)
{
    return attend_to_self(e, float_product, 3, 4, 5);
}

static int expand_quantized_attention(struct sy_expand *e)
{
    enum { NO_BIAS = 9 };
    return attend_to_self(e, whole_product, 5, 8, NO_BIAS);
}

/* ---- MultiHeadAttention: q, k and v are there ------------------------------------------------- */

enum { QUERY, KEY, VALUE, BIAS, MASK, SCORE_BIAS, PAST_KEY, PAST_VALUE };

/* Numbers [first, first + n) of the bias are added to x, whose last dimension they are, or last two. */
static int add_bias(struct sy_expand *e, int x, int64_t first, int64_t n, int64_t heads)
{
    const int64_t dims[] = {heads, -1};
    if (sy_expand_input(e, BIAS) < 0)
        return x;
    int part = sy_expand_slice(e, sy_expand_input(e, BIAS), 0, first, first + n);
    return SY_EXPAND(e, ADD, x, heads > 0 ? sy_expand_reshape(e, part, dims, 2) : part);
}

static int picked(struct sy_expand *e, int x, int i)
{
    int one = SY_EXPAND(e, GATHER, x, sy_expand_int(e, i));
    sy_expand_set_int(e, "axis", 3);
    return one;
}

/* q, k and v in one tensor [batch, length, heads, 3, size], or k and v in one. */
static int from_packed(struct sy_expand *e, struct heads *h, int n_packed)
{
    int x = sy_expand_input(e, n_packed == 3 ? QUERY : KEY);
    int64_t width = h->n * h->size;
    int first = n_packed == 3 ? 0 : 1, *to[] = {&h->q, &h->k, &h->v};
    for (int i = first; i < 3; i++)
        *to[i] =
            sy_expand_heads_first(e, add_bias(e, picked(e, x, i - first), i * width, width, h->n));
    return e->status;
}

static int from_rows(struct sy_expand *e, int input, int64_t first, int64_t width, int64_t n)
{
    const struct sy_tensor *t = sy_expand_tensor(e, input);
    if (t && t->shape.rank == 4 && sy_expand_input(e, BIAS) < 0)
        return sy_expand_input(e, input); /* has its heads first already */
    if (!t || t->shape.rank != 3) {
        sy_expand_fail(e, SY_EUNSUPPORTED, "input %d of %d dimensions", input,
                       t ? t->shape.rank : 0);
        return -1;
    }
    return sy_expand_heads_first(
        e, cut_heads(e, add_bias(e, sy_expand_input(e, input), first, width, 0), n));
}

static int rows_of(struct sy_expand *e, struct heads *h)
{
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY), *k = sy_expand_tensor(e, KEY),
                           *v = sy_expand_tensor(e, VALUE);
    int64_t hidden, values = 0;
    if (!v || !k || k->shape.rank < 3 || k->shape.rank > 4)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "keys or values of another form");
    h->keys = k->shape.dims[k->shape.rank == 4 ? 2 : 1];
    SY_TRY(sy_infer_fixed(e->in, e->node, &q->shape, 2, &hidden));
    SY_TRY(head_count(e, hidden, h));
    if (v->shape.rank == 3)
        SY_TRY(sy_infer_fixed(e->in, e->node, &v->shape, 2, &values));
    if (values % h->n != 0)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld heads for %lld numbers", (long long)h->n,
                              (long long)values);
    h->q = from_rows(e, QUERY, 0, hidden, h->n);
    h->k = from_rows(e, KEY, hidden, hidden, h->n);
    h->v = from_rows(e, VALUE, 2 * hidden, values, h->n);
    return e->status;
}

/* q as rows, k and v in one [batch, length, heads, 2, size]; or all three in one. */
static int packed_of(struct sy_expand *e, struct heads *h, int n_packed)
{
    const struct sy_tensor *x = sy_expand_tensor(e, n_packed == 3 ? QUERY : KEY);
    int64_t heads, size;
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 2, &heads));
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 4, &size));
    h->keys = x->shape.dims[1];
    SY_TRY(head_count(e, heads * size, h));
    if (h->n != heads)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld heads, and %lld in the shape", (long long)h->n,
                              (long long)heads);
    SY_TRY(from_packed(e, h, n_packed));
    if (n_packed == 2)
        h->q = from_rows(e, QUERY, 0, heads * size, heads);
    return e->status;
}

static int expand_multi_head(struct sy_expand *e)
{
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY), *k = sy_expand_tensor(e, KEY);
    if (!q || (q->shape.rank != 3 && q->shape.rank != 5))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a query of %d dimensions",
                              q ? q->shape.rank : 0);
    struct heads h = {.batch = q->shape.dims[0],
                      .queries = q->shape.dims[1],
                      .dtype = q->dtype,
                      .mask = MASK,
                      .bias = SCORE_BIAS};
    if (q->shape.rank == 5)
        SY_TRY(packed_of(e, &h, 3));
    else if (k && k->shape.rank == 5)
        SY_TRY(packed_of(e, &h, 2));
    else
        SY_TRY(rows_of(e, &h));
    const struct sy_tensor *past = sy_expand_tensor(e, PAST_KEY);
    if (past) {
        if (past->shape.rank != 4 || sy_dim_add(h.keys, past->shape.dims[2], &h.keys) < 0)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "a past of %d dimensions", past->shape.rank);
        h.k = sy_expand_join(e, sy_expand_input(e, PAST_KEY), h.k, 2);
        h.v = sy_expand_join(e, sy_expand_input(e, PAST_VALUE), h.v, 2);
    }
    if (sy_expand_wanted(e, 1))
        sy_expand_result(e, 1, h.k);
    if (sy_expand_wanted(e, 2))
        sy_expand_result(e, 2, h.v);
    if (e->status == SY_OK)
        sy_expand_result(e, 0, attend(e, &h));
    return e->status;
}

const struct sy_expander_line sy_expanders_attention[] = {
    {SY_OP_MS_ATTENTION, expand_attention},
    {SY_OP_MS_QATTENTION, expand_quantized_attention},
    {SY_OP_MS_MULTI_HEAD_ATTENTION, expand_multi_head},
    {0}};

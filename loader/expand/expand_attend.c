/* ONNX's Attention (opset 23 on), written out as the products, masks and Softmax that fuse_attention.c knows, and TensorScatter, which keeps the
 * keys and values of the turns before. */
#include <math.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { QUERY, KEY, VALUE, MASK, PAST_KEY, PAST_VALUE, VALID };
enum { OF_PRODUCT, OF_CAP, OF_MASKS, OF_SOFTMAX }; /* qk_matmul_output_mode */

struct attend {
    int q, k, v; /* [batch, heads, length, size] */
    bool rows;   /* q came as [batch, length, heads * size] */
    int64_t heads, groups, size, value_size;
    struct sy_dim queries, keys; /* keys: with those of the past */
    int allowed;                 /* mask of the keys that count, bool; -1: all */
    bool may_be_none;            /* some rows may have no key that counts: their result is 0 */
    enum sy_dtype dtype;
};

/* ---- operands --------------------------------------------------------------------------------- */

static int check_attend(struct sy_expand *e)
{
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY), *k = sy_expand_tensor(e, KEY),
                           *v = sy_expand_tensor(e, VALUE), *valid = sy_expand_tensor(e, VALID);
    int64_t precision = sy_node_int(e->node, "softmax_precision", SY_DTYPE_F32);
    bool past = sy_expand_tensor(e, PAST_KEY) != NULL;
    if (!q || !k || !v || (q->shape.rank != 3 && q->shape.rank != 4) ||
        k->shape.rank != q->shape.rank || v->shape.rank != q->shape.rank)
        return sy_expand_fail(e, SY_ECORRUPT, "q, k and v of other dimensions");
    if (past != (sy_expand_tensor(e, PAST_VALUE) != NULL) || (past && valid) ||
        (past && (sy_expand_tensor(e, PAST_KEY)->shape.rank != 4 ||
                  sy_expand_tensor(e, PAST_VALUE)->shape.rank != 4)) ||
        (valid && valid->shape.rank != 1))
        return sy_expand_fail(e, SY_ECORRUPT, "a past of another form");
    if (precision != SY_DTYPE_F32 && precision != SY_DTYPE_F64 && precision != SY_DTYPE_F16 &&
        precision != SY_DTYPE_BF16)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a softmax in element type %lld",
                              (long long)precision);
    return SY_OK;
}

/* Input i transposed to heads first; *size: of one head. */
static int with_heads(struct sy_expand *e, int i, const char *count, int64_t *heads, int64_t *size)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    bool rows = t->shape.rank == 3;
    *heads = sy_node_int(e->node, count, 0);
    e->status = sy_infer_fixed(e->in, e->node, &t->shape, rows ? 2 : 3, size);
    if (e->status == SY_OK && !rows)
        e->status = sy_infer_fixed(e->in, e->node, &t->shape, 1, heads);
    if (e->status < 0)
        return -1;
    if (*heads < 1 || *size < 1 || (rows && *size % *heads != 0)) {
        sy_expand_fail(e, SY_ECORRUPT, "%lld heads for %lld numbers", (long long)*heads,
                       (long long)*size);
        return -1;
    }
    if (!rows)
        return sy_expand_input(e, i);
    *size /= *heads;
    const int64_t cut[] = {0, 0, *heads, *size};
    return sy_expand_heads_first(e, sy_expand_reshape(e, sy_expand_input(e, i), cut, 4));
}

static int find_operands(struct sy_expand *e, struct attend *a)
{
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY), *k = sy_expand_tensor(e, KEY),
                           *past = sy_expand_tensor(e, PAST_KEY);
    int64_t groups = 0, size = 0;
    a->rows = q->shape.rank == 3;
    a->dtype = q->dtype;
    a->queries = q->shape.dims[a->rows ? 1 : 2];
    a->keys = k->shape.dims[a->rows ? 1 : 2];
    if (past && sy_dim_add(a->keys, past->shape.dims[2], &a->keys) < 0)
        return sy_expand_defer(e, "a length of keys that is not linear in the batch size");
    a->q = with_heads(e, QUERY, "q_num_heads", &a->heads, &a->size);
    if (e->status == SY_OK)
        a->k = with_heads(e, KEY, "kv_num_heads", &a->groups, &size);
    if (e->status == SY_OK)
        a->v = with_heads(e, VALUE, "kv_num_heads", &groups, &a->value_size);
    if (e->status == SY_OK && (size != a->size || groups != a->groups || a->heads % a->groups != 0))
        return sy_expand_fail(e, SY_ECORRUPT, "%lld heads of %lld, keys %lld of %lld, values %lld",
                              (long long)a->heads, (long long)a->size, (long long)a->groups,
                              (long long)size, (long long)groups);
    if (e->status == SY_OK && sy_expand_input(e, PAST_KEY) >= 0) {
        a->k = sy_expand_join(e, sy_expand_input(e, PAST_KEY), a->k, 2);
        a->v = sy_expand_join(e, sy_expand_input(e, PAST_VALUE), a->v, 2);
    }
    if (sy_expand_wanted(e, 1))
        sy_expand_result(e, 1, a->k);
    if (sy_expand_wanted(e, 2))
        sy_expand_result(e, 2, a->v);
    return e->status;
}

/* Repeats each head of keys or values for all queries' heads that share it. */
static int repeated(struct sy_expand *e, const struct attend *a, int x, int64_t size)
{
    const int64_t times[] = {1, 1, a->heads / a->groups, 1, 1}, flat[] = {0, a->heads, -1, size};
    if (a->heads == a->groups)
        return x;
    int many = SY_EXPAND(e, EXPAND, sy_expand_unsqueeze(e, x, 2), sy_expand_ints(e, times, 5));
    return sy_expand_reshape(e, many, flat, 4);
}

/* ---- which keys count ------------------------------------------------------------------------- */

static void allow(struct sy_expand *e, struct attend *a, int which)
{
    a->allowed = a->allowed < 0 ? which : SY_EXPAND(e, AND, a->allowed, which);
}

/* Position of each query among the keys: [queries, 1], or [batch, 1, queries, 1]. */
static int places(struct sy_expand *e, struct attend *a)
{
    const struct sy_tensor *past = sy_expand_tensor(e, PAST_KEY);
    static const int64_t column[] = {-1, 1, 1, 1};
    bool has_past = past != NULL;
    struct sy_dim keys = has_past ? past->shape.dims[2] : (struct sy_dim){0}; /* tensors move */
    int length = sy_expand_size(e, a->queries, a->q, 2);
    int rows = sy_expand_unsqueeze(e, sy_expand_count(e, length), 1);
    if (has_past)
        return SY_EXPAND(e, ADD, rows, sy_expand_size(e, keys, sy_expand_input(e, PAST_KEY), 2));
    if (sy_expand_input(e, VALID) < 0)
        return rows;
    int before = SY_EXPAND(e, SUB, sy_expand_input(e, VALID), length);
    return SY_EXPAND(e, ADD, rows, sy_expand_reshape(e, before, column, 4));
}

/* Restricts the keys by position: causal, window, and filled length. */
static void allow_by_place(struct sy_expand *e, struct attend *a)
{
    static const int64_t column[] = {-1, 1, 1, 1};
    bool causal = sy_node_int(e->node, "is_causal", 0) != 0;
    int64_t left = sy_node_int(e->node, "left_window_size", -1),
            right = sy_node_int(e->node, "right_window_size", -1);
    int valid = sy_expand_input(e, VALID);
    if (left < -1 || right < -1)
        sy_expand_fail(e, SY_ECORRUPT, "a window of %lld and %lld", (long long)left,
                       (long long)right);
    if (!causal && left < 0 && right < 0 && valid < 0)
        return;
    int columns = sy_expand_count(e, sy_expand_size(e, a->keys, a->k, 2));
    if (causal || left >= 0 || right >= 0) {
        int rows = places(e, a);
        if (causal)
            allow(e, a, SY_EXPAND(e, LESS_OR_EQUAL, columns, rows));
        if (left >= 0)
            allow(e, a,
                  SY_EXPAND(e, GREATER_OR_EQUAL, columns,
                            SY_EXPAND(e, SUB, rows, sy_expand_int(e, left))));
        if (right >= 0)
            allow(e, a,
                  SY_EXPAND(e, LESS_OR_EQUAL, columns,
                            SY_EXPAND(e, ADD, rows, sy_expand_int(e, right))));
    }
    if (valid >= 0)
        allow(e, a, SY_EXPAND(e, LESS, columns, sy_expand_reshape(e, valid, column, 4)));
    a->may_be_none = a->may_be_none || left >= 0 || right >= 0 || valid >= 0;
}

/* The mask, padded with columns that do not count where it is narrower than the keys. */
static int whole_mask(struct sy_expand *e, const struct attend *a)
{
    const struct sy_tensor *t = sy_expand_tensor(e, MASK);
    int rank = t->shape.rank, mask = sy_expand_input(e, MASK);
    struct sy_dim columns = rank > 0 ? t->shape.dims[rank - 1] : (struct sy_dim){0};
    enum sy_dtype dtype = t->dtype;
    if (rank < 1 || rank > 4 || (dtype != SY_DTYPE_BOOL && dtype != a->dtype)) {
        sy_expand_fail(e, SY_ECORRUPT, "a mask of %d dimensions, element type %d", rank,
                       (int)dtype);
        return -1;
    }
    if (!sy_dim_is_number(columns) || !sy_dim_is_number(a->keys) || columns.fixed >= a->keys.fixed)
        return mask;
    int64_t pads[8] = {0};
    pads[2 * rank - 1] = a->keys.fixed - columns.fixed;
    bool numbers = dtype != SY_DTYPE_BOOL;
    enum sy_dtype as = numbers ? dtype : SY_DTYPE_F32;
    int x = numbers ? mask : sy_expand_cast(e, mask, as);
    x = SY_EXPAND(e, PAD, x, sy_expand_ints(e, pads, 2 * rank),
                  sy_expand_number(e, as, numbers ? -INFINITY : 0));
    return numbers ? x : sy_expand_cast(e, x, SY_DTYPE_BOOL);
}

/* ---- the whole -------------------------------------------------------------------------------- */

static void show(struct sy_expand *e, int mode, int tensor)
{
    if (sy_expand_wanted(e, 3) && sy_node_int(e->node, "qk_matmul_output_mode", 0) == mode)
        sy_expand_result(e, 3, tensor);
}

static int scores_of(struct sy_expand *e, const struct attend *a, int k)
{
    static const int64_t swap[] = {0, 1, 3, 2};
    double scale = (double)sy_node_float(e->node, "scale", 0),
           cap = (double)sy_node_float(e->node, "softcap", 0);
    if (!sy_node_attr(e->node, "scale"))
        scale = 1 / sqrt((double)a->size);
    int scores = SY_EXPAND(e, MATMUL, a->q, sy_expand_transpose(e, k, swap, 4));
    scores = SY_EXPAND(e, MUL, scores, sy_expand_number(e, a->dtype, scale));
    show(e, OF_PRODUCT, scores);
    if (cap > 0) {
        int limit = sy_expand_number(e, a->dtype, cap);
        scores = SY_EXPAND(e, MUL, SY_EXPAND(e, TANH, SY_EXPAND(e, DIV, scores, limit)), limit);
    }
    show(e, OF_CAP, scores);
    return scores;
}

static int weights_of(struct sy_expand *e, struct attend *a, int scores)
{
    int mask = sy_expand_input(e, MASK) < 0 ? -1 : whole_mask(e, a);
    bool numbers = mask >= 0 && sy_expand_dtype(e, MASK) != SY_DTYPE_BOOL;
    a->may_be_none = mask >= 0;
    allow_by_place(e, a);
    if (mask >= 0 && !numbers)
        allow(e, a, mask);
    if (numbers)
        scores = SY_EXPAND(e, ADD, scores, mask);
    if (a->allowed >= 0)
        scores = SY_EXPAND(e, WHERE, a->allowed, scores, sy_expand_number(e, a->dtype, -INFINITY));
    show(e, OF_MASKS, scores);
    int weights = SY_EXPAND(e, SOFTMAX, scores);
    sy_expand_set_int(e, "axis", -1);
    if (a->may_be_none)
        weights = SY_EXPAND(e, WHERE, SY_EXPAND(e, IS_NAN, weights),
                            sy_expand_number(e, a->dtype, 0), weights);
    show(e, OF_SOFTMAX, weights);
    return weights;
}

static int expand_attend(struct sy_expand *e)
{
    struct attend a = {.allowed = -1};
    static const int64_t join[] = {0, 0, -1};
    SY_TRY(check_attend(e));
    SY_TRY(find_operands(e, &a));
    int scores = scores_of(e, &a, repeated(e, &a, a.k, a.size));
    int y = SY_EXPAND(e, MATMUL, weights_of(e, &a, scores), repeated(e, &a, a.v, a.value_size));
    if (a.rows)
        y = sy_expand_reshape(e, sy_expand_heads_first(e, y), join, 3);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- TensorScatter ---------------------------------------------------------------------------- */

/* Row i of the update is written at index `first + i` of its axis; `first` may differ between parts of the batch. */
static int expand_tensor_scatter(struct sy_expand *e)
{
    const struct sy_tensor *past = sy_expand_tensor(e, 0), *update = sy_expand_tensor(e, 1);
    const struct sy_attr *mode = sy_node_attr(e->node, "mode");
    int64_t column[SY_MAX_RANK] = {-1}, row[SY_MAX_RANK] = {0};
    int axis;
    if (!past || !update || past->shape.rank != update->shape.rank || past->shape.rank < 2)
        return sy_expand_fail(e, SY_ECORRUPT, "a cache and an update of other dimensions");
    int rank = past->shape.rank;
    SY_TRY(sy_infer_axis(e->node, sy_node_int(e->node, "axis", -2), rank, &axis));
    if (axis == 0)
        return sy_expand_fail(e, SY_ECORRUPT, "its axis is the batch's");
    for (int i = 0; i < rank; i++) {
        row[i] = i == axis ? -1 : 1;
        column[i] = i == 0 ? -1 : 1;
    }
    struct sy_dim length = update->shape.dims[axis], most = past->shape.dims[axis];
    int to = sy_expand_input(e, 0), from = sy_expand_input(e, 1), first = sy_expand_input(e, 2);
    int place =
        sy_expand_reshape(e, sy_expand_count(e, sy_expand_size(e, length, from, axis)), row, rank);
    if (first >= 0)
        place = SY_EXPAND(e, ADD, place, sy_expand_reshape(e, first, column, rank));
    if (mode && mode->kind == SY_ATTR_STRING && strcmp(mode->s, "circular") == 0)
        place = SY_EXPAND(e, MOD, place, sy_expand_size(e, most, to, axis));
    place = SY_EXPAND(e, EXPAND, place, SY_EXPAND(e, SHAPE, from));
    int y = SY_EXPAND(e, SCATTER_ELEMENTS, to, place, from);
    sy_expand_set_int(e, "axis", axis);
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_swiglu(struct sy_expand *e)
{
    int gate = SY_EXPAND(e, SWISH, sy_expand_input(e, 0));
    sy_expand_pass(e, "alpha");
    sy_expand_result(e, 0, SY_EXPAND(e, MUL, gate, sy_expand_input(e, 1)));
    return e->status;
}

const struct sy_expander_line sy_expanders_attend[] = {
    {SY_OP_SWIGLU, expand_swiglu},
    {SY_OP_ONNX_ATTENTION, expand_attend},
    {SY_OP_TENSOR_SCATTER, expand_tensor_scatter},
    {0}};

/* Operators that exporters of language models write: rotary embedding, attention with fewer keys than queries and a past. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- rotary embedding ------------------------------------------------------------------------- */

struct rotation {
    int cosines, sines; /* broadcastable to half of the rotated part */
    int64_t heads, size, turned;
    bool interleaved;
};

static int picked(struct sy_expand *e, int x, int i)
{
    int one = SY_EXPAND(e, GATHER, x, sy_expand_int(e, i));
    sy_expand_set_int(e, "axis", -1);
    return one;
}

/* Rotates x [_, _, _, size]: pairs of its first `turned` numbers, by their angles. */
static int rotate(struct sy_expand *e, const struct rotation *r, int x)
{
    const int64_t half = r->turned / 2;
    int a, b, y, turned = x;
    if (r->turned < r->size)
        turned = sy_expand_slice(e, x, 3, 0, r->turned);
    if (r->interleaved) {
        const int64_t pairs[] = {0, 0, 0, half, 2};
        int both = sy_expand_reshape(e, turned, pairs, 5);
        a = picked(e, both, 0);
        b = picked(e, both, 1);
    } else {
        a = sy_expand_slice(e, turned, 3, 0, half);
        b = sy_expand_slice(e, turned, 3, half, r->turned);
    }
    int first = SY_EXPAND(e, SUB, SY_EXPAND(e, MUL, a, r->cosines), SY_EXPAND(e, MUL, b, r->sines)),
        second =
            SY_EXPAND(e, ADD, SY_EXPAND(e, MUL, a, r->sines), SY_EXPAND(e, MUL, b, r->cosines));
    if (r->interleaved) {
        const int64_t flat[] = {0, 0, 0, r->turned};
        y = sy_expand_reshape(e,
                              sy_expand_join(e, sy_expand_unsqueeze(e, first, 4),
                                             sy_expand_unsqueeze(e, second, 4), 4),
                              flat, 4);
    } else
        y = sy_expand_join(e, first, second, 3);
    return r->turned < r->size
               ? sy_expand_join(e, y, sy_expand_slice(e, x, 3, r->turned, r->size), 3)
               : y;
}

/* Angles of the positions [batch, length], with a dimension of 1 where the heads are. */
static int angles(struct sy_expand *e, int cache, int positions, int heads_axis)
{
    int rows = SY_EXPAND(e, GATHER, sy_expand_input(e, cache), positions);
    sy_expand_set_int(e, "axis", 0);
    return sy_expand_unsqueeze(e, rows, heads_axis);
}

/* How x, [batch, length, heads * size] if `rows`, else [batch, heads, length, size], is rotated by a cache of cosines. */
static int measure_rotation(struct sy_expand *e, const struct sy_tensor *cache, bool *rows,
                            int64_t *width, struct rotation *r)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    r->interleaved = sy_node_int(e->node, "interleaved", 0) != 0;
    r->heads = sy_node_int(e->node, "num_heads", 0);
    *rows = x->shape.rank == 3;
    SY_TRY(sy_infer_fixed(e->in, e->node, &cache->shape, cache->shape.rank - 1, &r->turned));
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, *rows ? 2 : 3, width));
    r->turned *= 2;
    if (*rows && r->heads == 0 && r->turned > 0)
        r->heads = *width / r->turned;
    r->size = *rows && r->heads > 0 ? *width / r->heads : *width;
    if (r->turned < 2 || r->turned > r->size || (*rows && r->heads * r->size != *width))
        return sy_expand_fail(e, SY_ECORRUPT, "%lld of %lld numbers are to be turned",
                              (long long)r->turned, (long long)r->size);
    return SY_OK;
}

static int turn_input(struct sy_expand *e, const struct rotation *r, bool rows, int64_t width)
{
    const int64_t cut[] = {0, 0, r->heads, r->size}, join[] = {0, 0, width};
    int x = sy_expand_input(e, 0);
    int y = rotate(e, r, rows ? sy_expand_reshape(e, x, cut, 4) : x);
    sy_expand_result(e, 0, rows ? sy_expand_reshape(e, y, join, 3) : y);
    return e->status;
}

/* ONNX Runtime's: x, positions, cosines, sines. */
static int expand_rotary(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *at = sy_expand_tensor(e, 1),
                           *cache = sy_expand_tensor(e, 2);
    struct rotation r = {0};
    int64_t width;
    bool rows;
    if (!x || !at || !cache || (x->shape.rank != 3 && x->shape.rank != 4) ||
        cache->shape.rank != 2 || sy_node_float(e->node, "scale", 1) != 1.0f ||
        sy_node_int(e->node, "is_packed_batching", 0) != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "inputs of this form, a scale or packed batches");
    bool each = at->shape.rank == 2;
    SY_TRY(measure_rotation(e, cache, &rows, &width, &r));
    struct sy_dim length = x->shape.dims[rows ? 1 : 2];
    int positions = sy_expand_input(e, 1);
    if (!each) {
        int count =
            sy_expand_count(e, sy_expand_size(e, length, sy_expand_input(e, 0), rows ? 1 : 2));
        positions = sy_expand_unsqueeze(e, SY_EXPAND(e, ADD, positions, count), 0);
    }
    r.cosines = angles(e, 2, positions, rows ? 2 : 1);
    r.sines = angles(e, 3, positions, rows ? 2 : 1);
    return turn_input(e, &r, rows, width);
}

/* Which of the three streams of positions (time, row, column) turns each of the `half` pairs: as places in their angles beside each other. */
static int streams_of(struct sy_expand *e, int64_t half, int64_t *places)
{
    const struct sy_attr *parts = sy_node_attr(e->node, "mrope_section");
    int64_t layout = sy_node_int(e->node, "mrope_layout", 0), at = 0;
    if (!parts || parts->kind != SY_ATTR_INTS || parts->n != 3 || layout < 0 || layout > 1)
        return sy_expand_fail(e, SY_ECORRUPT, "sections of three streams in layout %lld",
                              (long long)layout);
    for (int64_t i = 0; i < half; i++)
        places[i] = i;
    for (int s = 0; s < 3; s++) {
        int64_t n = parts->ints[s];
        if (n < 0 || n > half || (layout == 0 && n > half - at))
            return sy_expand_fail(e, SY_ECORRUPT, "a section of %lld of %lld pairs", (long long)n,
                                  (long long)half);
        for (int64_t i = layout == 0 ? 0 : s;
             layout == 0 ? i < n : s > 0 && i < SY_MIN(3 * n, half); i += layout == 0 ? 1 : 3)
            places[at + i] = s * half + at + i;
        at += layout == 0 ? n : 0;
    }
    return layout == 1 || at == half
               ? SY_OK
               : sy_expand_fail(e, SY_ECORRUPT, "sections of %lld of %lld pairs", (long long)at,
                                (long long)half);
}

/* The cache's rows of three streams, [3, batch, length, half], each pair's from its own: [batch, length, half], and a 1 where the heads are. */
static int mixed_angles(struct sy_expand *e, int cache, int64_t half, int places, bool rows)
{
    static const int64_t perm[] = {1, 2, 0, 3};
    const int64_t flat[] = {0, 0, 3 * half};
    int all = SY_EXPAND(e, GATHER, sy_expand_input(e, cache), sy_expand_input(e, 1));
    sy_expand_set_int(e, "axis", 0);
    all = sy_expand_reshape(e, sy_expand_transpose(e, all, perm, 4), flat, 3);
    all = SY_EXPAND(e, GATHER, all, places);
    sy_expand_set_int(e, "axis", 2);
    return sy_expand_unsqueeze(e, all, rows ? 2 : 1);
}

/* Rotary embedding of images in texts: a position in time, one of the row and one of the column; x, positions [3, batch, length], cosines, sines. */
static int expand_three_rotary(struct sy_expand *e)
{
    enum { MOST_PAIRS = 1024 };
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *at = sy_expand_tensor(e, 1),
                           *cache = sy_expand_tensor(e, 2);
    struct rotation r = {0};
    int64_t width, places[MOST_PAIRS];
    bool rows;
    if (!x || !at || !cache || (x->shape.rank != 3 && x->shape.rank != 4) ||
        cache->shape.rank != 2 || at->shape.rank != 3 ||
        sy_node_float(e->node, "scale", 1) != 1.0f ||
        sy_node_int(e->node, "is_packed_batching", 0) != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "inputs of this form, a scale or packed batches");
    SY_TRY(measure_rotation(e, cache, &rows, &width, &r));
    int64_t half = r.turned / 2;
    if (half > MOST_PAIRS)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld pairs", (long long)half);
    SY_TRY(streams_of(e, half, places));
    int picked_places = sy_expand_ints(e, places, (int)half);
    r.cosines = mixed_angles(e, 2, half, picked_places, rows);
    r.sines = mixed_angles(e, 3, half, picked_places, rows);
    return turn_input(e, &r, rows, width);
}

/* ONNX's: x, cosines, sines, positions; without positions cosines and sines are those of each row. */
static int expand_onnx_rotary(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *cosines = sy_expand_tensor(e, 1),
                           *sines = sy_expand_tensor(e, 2), *at = sy_expand_tensor(e, 3);
    struct rotation r = {0};
    int64_t width, turned = sy_node_int(e->node, "rotary_embedding_dim", 0);
    bool rows;
    if (!x || !cosines || !sines || (x->shape.rank != 3 && x->shape.rank != 4) ||
        cosines->shape.rank != (at ? 2 : 3) || sines->shape.rank != cosines->shape.rank ||
        (at && at->shape.rank != 2))
        return sy_expand_fail(e, SY_ECORRUPT, "inputs of other dimensions");
    SY_TRY(measure_rotation(e, cosines, &rows, &width, &r));
    if (r.turned != (turned != 0 ? turned : r.size))
        return sy_expand_fail(e, SY_ECORRUPT, "cosines for %lld of %lld numbers",
                              (long long)r.turned, (long long)(turned != 0 ? turned : r.size));
    int axis = rows ? 2 : 1, positions = sy_expand_input(e, 3);
    r.cosines = positions >= 0 ? angles(e, 1, positions, axis)
                               : sy_expand_unsqueeze(e, sy_expand_input(e, 1), axis);
    r.sines = positions >= 0 ? angles(e, 2, positions, axis)
                             : sy_expand_unsqueeze(e, sy_expand_input(e, 2), axis);
    return turn_input(e, &r, rows, width);
}

/* ---- GroupQueryAttention ---------------------------------------------------------------------- */

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    ENDS,
    TOTAL,
    COSINES,
    SINES,
    POSITIONS,
    BIAS,
    SINKS
};

struct group_query {
    int64_t heads, groups, size; /* of queries, of keys, numbers each */
    struct sy_dim length, past;  /* length: new rows; past: keys passed in */
    bool is_first;               /* known to be the first call: the past is not read */
    int q, k, v;                 /* [batch, length, heads, size] */
    int rows, there, total;      /* one int64 each: new rows, past rows, and keys returned */
    int before;                  /* [batch, 1]: number of keys before the new ones */
    int positions;               /* [batch, length], or [1, length] */
};

/* Rejects forms that are not lowered: these attributes must have their defaults. */
static int check_group_query(struct sy_expand *e)
{
    static const struct {
        const char *name;
        int64_t usual;
    } others[] = {
        {"causal", 1}, {"kv_cache_bit_width", 0}, {"sliding_window_cache", 0}, {"qk_output", 0}};
    for (size_t i = 0; i < SY_ARRAY_LEN(others); i++)
        if (sy_node_int(e->node, others[i].name, others[i].usual) != others[i].usual)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "attribute '%s'", others[i].name);
    for (int i = SINKS + 1; i < e->node->n_inputs; i++)
        if (sy_expand_input(e, i) >= 0)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "input %d", i);
    if (sy_expand_wanted(e, 3))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "scores as a result");
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY), *ends = sy_expand_tensor(e, ENDS),
                           *past = sy_expand_tensor(e, PAST_KEY);
    if (!q || q->shape.rank != 3 || !ends || !sy_expand_tensor(e, TOTAL) ||
        (past && past->shape.rank != 4) || !past != !sy_expand_tensor(e, PAST_VALUE) ||
        !sy_expand_tensor(e, KEY) != !sy_expand_tensor(e, VALUE))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "inputs of another form");
    return SY_OK;
}

/* q, k and v with a dimension of heads, from one packed tensor or three. */
static int cut_group_query(struct sy_expand *e, struct group_query *g)
{
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY);
    bool packed = sy_expand_input(e, KEY) < 0;
    int64_t width, all;
    g->heads = sy_node_int(e->node, "num_heads", 0);
    g->groups = sy_node_int(e->node, "kv_num_heads", 0);
    g->length = q->shape.dims[1];
    SY_TRY(sy_infer_fixed(e->in, e->node, &q->shape, 2, &width));
    all = g->heads + (packed ? 2 * g->groups : 0);
    if (g->heads < 1 || g->groups < 1 || g->heads > 1 << 20 || g->groups > g->heads ||
        g->heads % g->groups != 0 || width % all != 0)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld heads, %lld of keys, for %lld numbers",
                              (long long)g->heads, (long long)g->groups, (long long)width);
    g->size = width / all;
    int parts[3] = {sy_expand_input(e, QUERY), sy_expand_input(e, KEY), sy_expand_input(e, VALUE)};
    const int64_t widths[] = {g->heads * g->size, g->groups * g->size, g->groups * g->size};
    if (packed) {
        sy_expand_op_many(e, SY_OP_SPLIT, (const int[]){parts[0], sy_expand_ints(e, widths, 3)}, 2,
                          parts, 3);
        sy_expand_set_int(e, "axis", 2);
    }
    int *const to[] = {&g->q, &g->k, &g->v};
    for (int i = 0; i < 3; i++) {
        const int64_t cut[] = {0, 0, i == 0 ? g->heads : g->groups, g->size};
        *to[i] = sy_expand_reshape(e, parts[i], cut, 4);
    }
    return e->status;
}

/* Total number of keys where all sizes are numbers: *total, which a buffer of the past may exceed. */
static int measure_numbers(struct sy_expand *e, struct group_query *g, int64_t *total)
{
    int64_t length = g->length.fixed, past = g->past.fixed;
    if (*total < length || *total > INT32_MAX || *total > past + length)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld keys in all, %lld and %lld are there",
                              (long long)*total, (long long)past, (long long)length);
    g->is_first = *total == length;
    *total = SY_MAX(*total, past);
    return SY_OK;
}

/* Open sizes: the total number of keys is past plus new ones. */
static int measure_open(struct sy_expand *e, struct group_query *g, struct sy_dim total)
{
    struct sy_dim sum;
    if ((!sy_dim_is_number(g->length) && !sy_dim_is_expr(g->length)) ||
        (!sy_dim_is_number(g->past) && !sy_dim_is_expr(g->past)) ||
        sy_dim_add(g->past, g->length, &sum) < 0)
        return sy_expand_defer(e, "a length that depends on the batch size");
    if (!sy_infer_same_size(e->in, e->node, &sum, total))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "keys in all other than the past's and the new ones");
    g->is_first = sy_dim_is(g->past, 0);
    return SY_OK;
}

static int past_of(struct sy_expand *e, int input, const struct group_query *g)
{
    return sy_expand_input(e, input) < 0 ? sy_expand_int(e, 0)
                                         : sy_expand_size(e, g->past, sy_expand_input(e, input), 2);
}

/* Number of keys before this call's, per row of the batch; 0 in the first call, even if fewer rows count. */
static int keys_before(struct sy_expand *e, const struct group_query *g)
{
    static const int64_t column[] = {-1, 1};
    const int64_t none = 0;
    if (g->is_first)
        return sy_expand_unsqueeze(e, sy_expand_ints(e, &none, 1), 0);
    int ends =
        sy_expand_reshape(e, sy_expand_cast(e, sy_expand_input(e, ENDS), SY_DTYPE_I64), column, 2);
    int before = SY_EXPAND(e, ADD, ends, SY_EXPAND(e, SUB, sy_expand_int(e, 1), g->rows));
    if (sy_dim_is_number(g->past))
        return before;
    int is_first = SY_EXPAND(e, EQUAL, g->there, sy_expand_int(e, 0));
    return SY_EXPAND(e, WHERE, is_first, sy_expand_int(e, 0), before);
}

/* Sizes that operands pass as values: read at run if import does not know them. */
static int measure_past(struct sy_expand *e, struct group_query *g)
{
    const struct sy_tensor *past = sy_expand_tensor(e, PAST_KEY);
    struct sy_dim *said;
    int64_t total = 0;
    int n;
    SY_TRY(sy_infer_dims(e->in, e->node, TOTAL, "", &n, &said));
    struct sy_dim all = n == 1 ? said[0] : (struct sy_dim){-1, 0};
    free(said);
    if (past)
        g->past = past->shape.dims[2];
    bool numbers =
        sy_dim_is_number(all) && sy_dim_is_number(g->past) && sy_dim_is_number(g->length);
    total = all.fixed;
    SY_TRY(numbers ? measure_numbers(e, g, &total) : measure_open(e, g, all));
    g->rows = sy_expand_size(e, g->length, g->q, 1);
    g->there = past_of(e, PAST_KEY, g);
    g->total = numbers ? sy_expand_int(e, total) : SY_EXPAND(e, ADD, g->there, g->rows);
    g->before = keys_before(e, g);
    g->positions = sy_expand_input(e, POSITIONS);
    if (g->positions < 0)
        g->positions =
            SY_EXPAND(e, ADD, sy_expand_unsqueeze(e, sy_expand_count(e, g->rows), 0), g->before);
    return e->status;
}

static int turn_group_query(struct sy_expand *e, struct group_query *g)
{
    const struct sy_tensor *cache = sy_expand_tensor(e, COSINES);
    struct rotation r = {.heads = g->heads,
                         .size = g->size,
                         .interleaved = sy_node_int(e->node, "rotary_interleaved", 0) != 0};
    if (sy_node_int(e->node, "do_rotary", 0) == 0)
        return SY_OK;
    if (!cache || !sy_expand_tensor(e, SINES) || cache->shape.rank != 2)
        return sy_expand_fail(e, SY_ECORRUPT, "no cosines or sines");
    SY_TRY(sy_infer_fixed(e->in, e->node, &cache->shape, 1, &r.turned));
    r.turned *= 2;
    if (r.turned < 2 || r.turned > g->size)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld of %lld numbers are to be turned",
                              (long long)r.turned, (long long)g->size);
    r.cosines = angles(e, COSINES, g->positions, 2);
    r.sines = angles(e, SINES, g->positions, 2);
    g->q = rotate(e, &r, g->q);
    g->k = rotate(e, &r, g->k);
    return e->status;
}

/* The present: row j is from the past, or from `before` on from the new rows. */
static int present(struct sy_expand *e, const struct group_query *g, int past, int fresh)
{
    int64_t batch = 0, one = 1;
    if (g->is_first && sy_dim_is(g->past, 0))
        return fresh;
    int there = past_of(e, past, g), zero = sy_expand_int(e, 0);
    int j = sy_expand_unsqueeze(e, sy_expand_count(e, g->total), 0);
    int since = SY_EXPAND(e, SUB, j, g->before);
    int is_new = SY_EXPAND(e, AND, SY_EXPAND(e, GREATER_OR_EQUAL, since, zero),
                           SY_EXPAND(e, LESS, since, g->rows));
    int last = SY_EXPAND(e, MAX, SY_EXPAND(e, SUB, there, sy_expand_int(e, 1)), zero);
    int row =
        SY_EXPAND(e, WHERE, is_new, SY_EXPAND(e, ADD, since, there), SY_EXPAND(e, MIN, j, last));
    int all =
        sy_expand_tensor(e, past) ? sy_expand_join(e, sy_expand_input(e, past), fresh, 2) : fresh;
    /* as many indices as numbers: [batch, groups, total, size] */
    row = sy_expand_unsqueeze(e, sy_expand_unsqueeze(e, row, 1), 3);
    int grown = SY_EXPAND(e, GATHER, SY_EXPAND(e, SHAPE, all), sy_expand_ints(e, &batch, 1));
    int groups = sy_expand_ints(e, &g->groups, 1), size = sy_expand_ints(e, &g->size, 1),
        rows = SY_EXPAND(e, RESHAPE, g->total, sy_expand_ints(e, &one, 1));
    int shape = SY_EXPAND(e, CONCAT, grown, groups, rows, size);
    sy_expand_set_int(e, "axis", 0);
    int picked_rows = SY_EXPAND(e, GATHER_ELEMENTS, all, SY_EXPAND(e, EXPAND, row, shape));
    sy_expand_set_int(e, "axis", 2);
    return picked_rows;
}

/* Returns the present with zeros behind the last key that counts, like ONNX Runtime. */
static void show_present(struct sy_expand *e, const struct group_query *g, int i, int all)
{
    if (!sy_expand_wanted(e, i))
        return;
    if (!g->is_first || !sy_dim_is(g->past, 0)) {
        int end = SY_EXPAND(e, ADD, g->before, g->rows);
        int counts =
            SY_EXPAND(e, LESS, sy_expand_unsqueeze(e, sy_expand_count(e, g->total), 0), end);
        counts = sy_expand_unsqueeze(e, sy_expand_unsqueeze(e, counts, 1), 3);
        all = SY_EXPAND(e, WHERE, counts, all, sy_expand_number(e, sy_expand_dtype(e, QUERY), 0));
    }
    sy_expand_result(e, i, all);
}

/* [batch, 1, 1, length, total]: which keys count. */
static int which_count(struct sy_expand *e, const struct group_query *g)
{
    int64_t window = sy_node_int(e->node, "local_window_size", -1);
    int i = sy_expand_unsqueeze(e, sy_expand_count(e, g->rows), 1),
        j = sy_expand_count(e, g->total);
    int last = SY_EXPAND(e, ADD, sy_expand_unsqueeze(e, g->before, 1), i); /* [batch, length, 1] */
    int counts = SY_EXPAND(e, LESS_OR_EQUAL, j, last);
    if (window >= 0) {
        int oldest = SY_EXPAND(e, SUB, last, sy_expand_int(e, window));
        counts = SY_EXPAND(e, AND, counts, SY_EXPAND(e, GREATER, j, oldest));
    }
    return sy_expand_unsqueeze(e, sy_expand_unsqueeze(e, counts, 1), 1);
}

/* Softmax of the scores [batch, groups, heads of a group, length, total], perhaps with one more in each sum: 0, or the head's sink. */
static int weigh_keys(struct sy_expand *e, const struct group_query *g, int scores)
{
    const int64_t each[] = {1, g->groups, g->heads / g->groups, 1, 1};
    enum sy_dtype dtype = sy_expand_dtype(e, QUERY);
    bool has_sinks = sy_expand_input(e, SINKS) >= 0,
         has_more = has_sinks || sy_node_int(e->node, "smooth_softmax", 0) > 0;
    if (has_more) {
        int first =
            sy_expand_slice(e, scores, 4, 0, 1); /* may be -infinity: times 0 would be NaN */
        int more = sy_expand_cast(e, SY_EXPAND(e, LESS, first, first), dtype);
        if (has_sinks)
            more =
                SY_EXPAND(e, ADD, more, sy_expand_reshape(e, sy_expand_input(e, SINKS), each, 5));
        scores = sy_expand_join(e, scores, more, 4);
    }
    int weights = SY_EXPAND(e, SOFTMAX, scores);
    sy_expand_set_int(e, "axis", -1);
    return has_more ? sy_expand_slice(e, weights, 4, 0, -1) : weights;
}

static int attend_groups(struct sy_expand *e, const struct group_query *g, int k, int v)
{
    static const int64_t swap[] = {0, 1, 2, 4, 3}, flat[] = {0, 0, -1};
    const int64_t grouped[] = {0, g->groups, g->heads / g->groups, -1, g->size},
                  apart[] = {0, g->heads, -1, g->size};
    enum sy_dtype dtype = sy_expand_dtype(e, QUERY);
    double scale = (double)sy_node_float(e->node, "scale", 0),
           cap = (double)sy_node_float(e->node, "softcap", 0),
           least = dtype == SY_DTYPE_F16 ? -65504.0 : -3.38e38; /* bfloat16 has it, too */
    int q = sy_expand_reshape(e, sy_expand_heads_first(e, g->q), grouped, 5);
    int scores =
        SY_EXPAND(e, MATMUL, q, sy_expand_transpose(e, sy_expand_unsqueeze(e, k, 2), swap, 5));
    scale = scale == 0 ? 1 / sqrt((double)g->size) : scale;
    scores = SY_EXPAND(e, MUL, scores, sy_expand_number(e, dtype, scale));
    if (cap > 0) {
        int bent = SY_EXPAND(e, TANH, SY_EXPAND(e, DIV, scores, sy_expand_number(e, dtype, cap)));
        scores = SY_EXPAND(e, MUL, bent, sy_expand_number(e, dtype, cap));
    }
    if (sy_expand_input(e, BIAS) >= 0) {
        const struct sy_tensor *bias = sy_expand_tensor(e, BIAS);
        if (bias->shape.rank != 4 || !sy_dim_is(bias->shape.dims[1], 1))
            return sy_expand_fail(e, SY_EUNSUPPORTED, "a bias of each head");
        scores = SY_EXPAND(e, ADD, scores, sy_expand_unsqueeze(e, sy_expand_input(e, BIAS), 1));
    }
    scores = SY_EXPAND(e, WHERE, which_count(e, g), scores, sy_expand_number(e, dtype, least));
    int weights = weigh_keys(e, g, scores);
    int y = SY_EXPAND(e, MATMUL, weights, sy_expand_unsqueeze(e, v, 2));
    return sy_expand_reshape(e, sy_expand_heads_first(e, sy_expand_reshape(e, y, apart, 4)), flat,
                             3);
}

static int expand_group_query(struct sy_expand *e)
{
    struct group_query g = {0};
    SY_TRY(check_group_query(e));
    SY_TRY(cut_group_query(e, &g));
    SY_TRY(measure_past(e, &g));
    SY_TRY(turn_group_query(e, &g));
    int k = present(e, &g, PAST_KEY, sy_expand_heads_first(e, g.k)),
        v = present(e, &g, PAST_VALUE, sy_expand_heads_first(e, g.v));
    show_present(e, &g, 1, k);
    show_present(e, &g, 2, v);
    int y = attend_groups(e, &g, k, v);
    if (e->status == SY_OK)
        sy_expand_result(e, 0, y);
    return e->status;
}

const struct sy_expander_line sy_expanders_decoder[] = {
    {SY_OP_MS_ROTARY_EMBEDDING, expand_rotary},
    {SY_OP_MS_MROTARY, expand_three_rotary},
    {SY_OP_ROTARY_EMBEDDING, expand_onnx_rotary},
    {SY_OP_MS_GROUP_QUERY_ATTENTION, expand_group_query},
    {0}};

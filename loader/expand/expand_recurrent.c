/* Operators of language models with a state of fixed size (opset 27): CausalConvWithState as a padded Conv, LinearAttention as a Scan over the tokens. */
#include <math.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A string attribute; absent: `usual`. */
static const char *text_of(const struct sy_expand *e, const char *name, const char *usual)
{
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    return attr && attr->kind == SY_ATTR_STRING ? attr->s : usual;
}

/* A tensor of zeros; sizes: one int64 each. */
static int zeros(struct sy_expand *e, enum sy_dtype dtype, const int *sizes, int n)
{
    return SY_EXPAND(e, EXPAND, sy_expand_number(e, dtype, 0), sy_expand_shape(e, sizes, n));
}

/* ---- CausalConvWithState ---------------------------------------------------------------------- */

enum { CONV_INPUT, CONV_WEIGHT, CONV_BIAS, CONV_PAST };

static int read_conv(struct sy_expand *e, int64_t *channels, int64_t *width, bool *is_swish)
{
    const struct sy_tensor *x = sy_expand_tensor(e, CONV_INPUT),
                           *w = sy_expand_tensor(e, CONV_WEIGHT),
                           *past = sy_expand_tensor(e, CONV_PAST);
    struct sy_dim kept = {0};
    const char *activation = text_of(e, "activation", "none");
    if (!x || !w || x->shape.rank != 3 || w->shape.rank != 3)
        return sy_expand_fail(e, SY_ECORRUPT, "operands of other than 3 dimensions");
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 0, channels));
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 2, width));
    if (*width < 1 || !sy_dim_is(w->shape.dims[1], 1))
        return sy_expand_fail(e, SY_ECORRUPT, "weights that are not [channels, 1, width]");
    if (past && past->shape.rank == 3)
        kept = past->shape.dims[2];
    if (past && (past->shape.rank != 3 ||
                 !sy_infer_same_size(e->in, e->node, &kept, (struct sy_dim){*width - 1, 0})))
        return sy_expand_fail(e, SY_ECORRUPT, "a past that is not [batch, channels, %lld]",
                              (long long)*width - 1);
    *is_swish = strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0;
    if (!*is_swish && strcmp(activation, "none") != 0)
        return sy_expand_fail(e, SY_ECORRUPT, "the activation '%.40s'; silu, swish and none exist",
                              activation);
    return SY_OK;
}

/* The state before the first position: [batch, channels, width - 1]. */
static int past_of(struct sy_expand *e, int64_t channels, int64_t width)
{
    int past = sy_expand_input(e, CONV_PAST);
    const struct sy_tensor *x = sy_expand_tensor(e, CONV_INPUT);
    struct sy_dim batch = x->shape.dims[0];
    enum sy_dtype dtype = x->dtype;
    if (past >= 0)
        return past;
    int rows = sy_expand_size(e, batch, sy_expand_input(e, CONV_INPUT), 0);
    return zeros(e, dtype,
                 (const int[]){rows, sy_expand_int(e, channels), sy_expand_int(e, width - 1)}, 3);
}

static int expand_causal_conv(struct sy_expand *e)
{
    int64_t channels, width;
    bool is_swish;
    SY_TRY(read_conv(e, &channels, &width, &is_swish));
    int x = sy_expand_input(e, CONV_INPUT), bias = sy_expand_input(e, CONV_BIAS);
    int all = width > 1 ? sy_expand_join(e, past_of(e, channels, width), x, 2) : x;
    const int operands[] = {all, sy_expand_input(e, CONV_WEIGHT), bias};
    int y = sy_expand_op(e, SY_OP_CONV, operands, bias >= 0 ? 3 : 2);
    sy_expand_set_int(e, "group", channels);
    if (is_swish)
        y = SY_EXPAND(e, MUL, y, SY_EXPAND(e, SIGMOID, y));
    sy_expand_result(e, 0, y);
    if (sy_expand_wanted(e, 1)) /* width 1 keeps nothing */
        sy_expand_result(e, 1,
                         width > 1 ? sy_expand_slice(e, all, 2, 1 - width, INT64_MAX)
                                   : sy_expand_slice(e, x, 2, 0, 0));
    return e->status;
}

/* ---- LinearAttention -------------------------------------------------------------------------- */

enum { QUERY, KEY, VALUE, PAST_STATE, DECAY, BETA };
enum { MOST_SCANNED = 5 }; /* query, key, value, decay, beta */

struct linear {
    struct sy_expand *e;
    bool is_gated, is_delta;
    int64_t heads, groups, size, value_size; /* of keys and values: heads; queries of one: groups */
    enum sy_dtype dtype, state_dtype, as;    /* of the operands, of the state, computed in */
    int scanned[MOST_SCANNED], n_scanned;    /* [batch, heads, length, ...] */
};

static int read_rule(struct linear *l)
{
    struct sy_expand *e = l->e;
    const char *rule = text_of(e, "update_rule", "gated_delta");
    l->is_gated = strcmp(rule, "gated") == 0 || strcmp(rule, "gated_delta") == 0;
    l->is_delta = strcmp(rule, "delta") == 0 || strcmp(rule, "gated_delta") == 0;
    if (!l->is_gated && !l->is_delta && strcmp(rule, "linear") != 0)
        return sy_expand_fail(e, SY_ECORRUPT,
                              "the rule '%.40s'; linear, gated, delta and gated_delta exist", rule);
    if ((l->is_gated && sy_expand_input(e, DECAY) < 0) ||
        (l->is_delta && sy_expand_input(e, BETA) < 0))
        return sy_expand_fail(e, SY_ECORRUPT, "the rule '%.40s' without its %s", rule,
                              l->is_gated && sy_expand_input(e, DECAY) < 0 ? "decay" : "beta");
    return SY_OK;
}

static int read_linear(struct linear *l)
{
    struct sy_expand *e = l->e;
    const struct sy_tensor *past = sy_expand_tensor(e, PAST_STATE);
    int64_t queries = sy_node_int(e->node, "q_num_heads", 0), width[3];
    l->heads = sy_node_int(e->node, "kv_num_heads", 0);
    for (int i = QUERY; i <= VALUE; i++) {
        const struct sy_tensor *t = sy_expand_tensor(e, i);
        if (!t || t->shape.rank != 3)
            return sy_expand_fail(e, SY_ECORRUPT, "operands of other than 3 dimensions");
        SY_TRY(sy_infer_fixed(e->in, e->node, &t->shape, 2, &width[i]));
    }
    if (past && past->shape.rank != 4)
        return sy_expand_fail(e, SY_ECORRUPT, "a past state of other than 4 dimensions");
    if (l->heads < 1 || queries < 1 || width[QUERY] < 1 || width[VALUE] < 1 ||
        queries % l->heads != 0 || width[QUERY] % queries != 0 || width[VALUE] % l->heads != 0 ||
        width[QUERY] / queries * l->heads != width[KEY])
        return sy_expand_fail(e, SY_ECORRUPT,
                              "%lld heads of queries and %lld of keys for %lld, %lld, %lld numbers",
                              (long long)queries, (long long)l->heads, (long long)width[QUERY],
                              (long long)width[KEY], (long long)width[VALUE]);
    l->groups = queries / l->heads;
    l->size = width[QUERY] / queries;
    l->value_size = width[VALUE] / l->heads;
    l->dtype = sy_expand_dtype(e, QUERY);
    l->state_dtype = past ? past->dtype : l->dtype;
    l->as =
        l->dtype == SY_DTYPE_F64 || l->state_dtype == SY_DTYPE_F64 ? SY_DTYPE_F64 : SY_DTYPE_F32;
    return read_rule(l);
}

static int number_in(struct sy_expand *e, int x, enum sy_dtype from, enum sy_dtype to)
{
    return from == to ? x : sy_expand_cast(e, x, to);
}

/* Input i as [batch, heads, length, ...]: `n` sizes behind the length; heads 0: as many as there are. */
static int by_head(struct linear *l, int i, int64_t heads, const int64_t *sizes, int n)
{
    static const int64_t perms[][5] = {{0, 2, 1, 3}, {0, 2, 1, 3, 4}};
    struct sy_expand *e = l->e;
    int64_t dims[5] = {0, 0, heads};
    for (int k = 0; k < n; k++)
        dims[3 + k] = sizes[k];
    int x = number_in(e, sy_expand_input(e, i), sy_expand_dtype(e, i), l->as);
    return sy_expand_transpose(e, sy_expand_reshape(e, x, dims, 3 + n), perms[n - 1], 3 + n);
}

/* Decay or beta: one number a head, or one for all; a decay also one for each number of a key. */
static int factor(struct linear *l, int i)
{
    const struct sy_tensor *t = sy_expand_tensor(l->e, i);
    int64_t width;
    if (t->shape.rank != 3)
        return sy_expand_fail(l->e, SY_ECORRUPT, "a decay or beta of other than 3 dimensions");
    SY_TRY(sy_infer_fixed(l->e->in, l->e->node, &t->shape, 2, &width));
    bool by_key = i == DECAY && l->size > 1 && width == l->heads * l->size;
    bool for_all = i == BETA && width == 1;
    if (!by_key && !for_all && width != l->heads)
        return sy_expand_fail(l->e, SY_ECORRUPT, "%lld decays or betas for %lld heads",
                              (long long)width, (long long)l->heads);
    const int64_t size = by_key ? l->size : 1;
    int x = by_head(l, i, for_all ? 1 : l->heads, &size, 1);
    l->scanned[l->n_scanned++] = i == DECAY ? SY_EXPAND(l->e, EXP, x) : x;
    return l->e->status;
}

static int take_operands(struct linear *l)
{
    struct sy_expand *e = l->e;
    float given = sy_node_float(e->node, "scale", 0);
    double scale = given != 0 ? given : 1 / sqrt((double)l->size);
    int q = by_head(l, QUERY, l->heads, (const int64_t[]){l->groups, l->size}, 2);
    l->scanned[l->n_scanned++] = SY_EXPAND(e, MUL, q, sy_expand_number(e, l->as, scale));
    l->scanned[l->n_scanned++] = by_head(l, KEY, l->heads, &l->size, 1);
    l->scanned[l->n_scanned++] = by_head(l, VALUE, l->heads, &l->value_size, 1);
    if (l->is_gated)
        SY_TRY(factor(l, DECAY));
    if (l->is_delta)
        SY_TRY(factor(l, BETA));
    return e->status;
}

static int first_state(struct linear *l)
{
    struct sy_expand *e = l->e;
    int past = sy_expand_input(e, PAST_STATE);
    if (past >= 0)
        return number_in(e, past, l->state_dtype, l->as);
    struct sy_dim batch = sy_expand_tensor(e, QUERY)->shape.dims[0];
    int rows = sy_expand_size(e, batch, sy_expand_input(e, QUERY), 0);
    return zeros(e, l->as,
                 (const int[]){rows, sy_expand_int(e, l->heads), sy_expand_int(e, l->size),
                               sy_expand_int(e, l->value_size)},
                 4);
}

/* The step of one token. given: the state, then a slice of each operand; results: the state after it, and [batch, heads, groups, value size]. */
static void step(const struct linear *l, struct sy_expand *e, const int *given, int *results)
{
    int state = given[0], q = given[1 + QUERY], k = given[1 + KEY];
    int value = sy_expand_unsqueeze(e, given[1 + VALUE], 2);
    int decay_at = 1 + VALUE + 1, beta_at = decay_at + l->is_gated;
    if (l->is_gated)
        state = SY_EXPAND(e, MUL, state, sy_expand_unsqueeze(e, given[decay_at], 3));
    if (l->is_delta) {
        int known = SY_EXPAND(e, MATMUL, sy_expand_unsqueeze(e, k, 2), state);
        int rate = sy_expand_unsqueeze(e, given[beta_at], 3);
        value = SY_EXPAND(e, MUL, SY_EXPAND(e, SUB, value, known), rate);
    }
    results[0] = SY_EXPAND(e, ADD, state, SY_EXPAND(e, MUL, sy_expand_unsqueeze(e, k, 3), value));
    results[1] = SY_EXPAND(e, MATMUL, q, results[0]);
}

/* The step as a graph of its own. Caller frees. */
static int make_body(const struct linear *l, struct sy_graph **out)
{
    const char *name = l->e->node->name;
    int n = 1 + l->n_scanned;
    SY_TRY(sy_graph_create(name, out));
    struct sy_graph *body = *out;
    struct sy_expand inside = {.in = l->e->in, .graph = body, .node = l->e->node};
    int status = sy_graph_alloc((size_t)n, sizeof *body->inputs, &body->inputs);
    if (status == SY_OK)
        status = sy_graph_alloc(2, sizeof *body->outputs, &body->outputs);
    for (; status == SY_OK && body->n_inputs < n; body->n_inputs++)
        status =
            sy_graph_add_tensor(body, name, SY_DTYPE_NONE, NULL, &body->inputs[body->n_inputs]);
    if (status == SY_OK) {
        step(l, &inside, body->inputs, body->outputs);
        body->n_outputs = 2;
        status = inside.status;
    }
    if (status < 0) {
        sy_graph_free(body);
        *out = NULL;
    }
    return status;
}

static void scan(struct linear *l, struct sy_graph *body, const int *given, int *results)
{
    static const int64_t axes[MOST_SCANNED] = {2, 2, 2, 2, 2};
    struct sy_expand *e = l->e;
    struct sy_attr *attr;
    sy_expand_op_many(e, SY_OP_SCAN, given, 1 + l->n_scanned, results, 2);
    sy_expand_set_int(e, "num_scan_inputs", l->n_scanned);
    if (e->status < 0) {
        sy_graph_free(body);
        return;
    }
    struct sy_node *node = &e->graph->nodes[e->graph->n_nodes - 1];
    e->status = sy_node_set_ints(node, "scan_input_axes", l->n_scanned, axes);
    if (e->status == SY_OK)
        e->status = sy_node_set_ints(node, "scan_output_axes", 1, axes);
    if (e->status == SY_OK)
        e->status = sy_node_attr_slot(node, "body", &attr);
    if (e->status < 0) {
        sy_graph_free(body);
        return;
    }
    attr->kind = SY_ATTR_GRAPH;
    attr->graph = body;
}

/* A single token, as decoders send it, needs no loop. */
static void single(struct linear *l, const int *given, int *results)
{
    struct sy_expand *e = l->e;
    int64_t axis = 2;
    int slices[1 + MOST_SCANNED] = {given[0]};
    for (int i = 1; i <= l->n_scanned; i++)
        slices[i] = SY_EXPAND(e, SQUEEZE, given[i], sy_expand_ints(e, &axis, 1));
    step(l, e, slices, results);
    results[1] = sy_expand_unsqueeze(e, results[1], 2);
}

static int expand_linear(struct sy_expand *e)
{
    static const int64_t rows_first[] = {0, 2, 1, 3, 4};
    struct linear l = {.e = e};
    struct sy_graph *body;
    int given[1 + MOST_SCANNED], results[2];
    SY_TRY(read_linear(&l));
    bool is_single = sy_dim_is(sy_expand_tensor(e, QUERY)->shape.dims[1], 1);
    SY_TRY(take_operands(&l));
    given[0] = first_state(&l);
    memcpy(given + 1, l.scanned, sizeof l.scanned);
    SY_TRY(e->status);
    if (is_single) {
        single(&l, given, results);
    } else {
        SY_TRY(make_body(&l, &body));
        scan(&l, body, given, results);
    }
    const int64_t flat[] = {
        0, 0, l.heads * l.groups * l.value_size}; /* -1 would be ambiguous without tokens */
    int y = sy_expand_reshape(e, sy_expand_transpose(e, results[1], rows_first, 5), flat, 3);
    sy_expand_result(e, 0, number_in(e, y, l.as, l.dtype));
    if (sy_expand_wanted(e, 1))
        sy_expand_result(e, 1, number_in(e, results[0], l.as, l.state_dtype));
    return e->status;
}

const struct sy_expander_line sy_expanders_recurrent[] = {
    {SY_OP_CAUSAL_CONV, expand_causal_conv}, {SY_OP_LINEAR_ATTENTION, expand_linear}, {0}};

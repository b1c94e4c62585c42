/* Sequences: lists of tensors whose length is known at import. They exist here only; what remains are their tensors. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_LENGTH = 4096 };

/* A sequence of n tensors, to be filled in by the caller, as the node's k-th result. NULL: it failed, or the result is unused. */
static struct sy_sequence *new_result(struct sy_expand *e, int k, int n)
{
    struct sy_sequence *s = NULL;
    int out = e->node->outputs[k];
    if (e->status < 0 || out < 0)
        return NULL;
    if (n > MAX_LENGTH) {
        sy_expand_fail(e, SY_EUNSUPPORTED, "a sequence of %d tensors, at most %d", n, MAX_LENGTH);
        return NULL;
    }
    e->status = sy_graph_alloc(1, sizeof *s, &s);
    if (e->status == SY_OK)
        e->status = sy_graph_alloc((size_t)n, sizeof *s->tensors, &s->tensors);
    if (e->status < 0) {
        free(s);
        return NULL;
    }
    s->n = n;
    sy_sequence_free(e->in->sequences[out]);
    e->in->sequences[out] = s;
    return s;
}

static struct sy_sequence *new_sequence(struct sy_expand *e, int n)
{
    return new_result(e, 0, n);
}

static const struct sy_sequence *sequence_of(struct sy_expand *e, int i)
{
    int tensor = sy_expand_input(e, i);
    const struct sy_sequence *s = tensor < 0 ? NULL : e->in->sequences[tensor];
    if (!s)
        sy_expand_fail(e, SY_EUNSUPPORTED,
                       "input %d is not a sequence whose length is known at import", i);
    return s;
}

/* An index into the sequence, `otherwise` if it is left out; the length itself is allowed when an element is appended. */
static int place_of(struct sy_expand *e, int i, int length, int highest, int otherwise)
{
    int64_t at;
    int n;
    if (e->status < 0 || sy_expand_input(e, i) < 0)
        return otherwise;
    e->status = sy_infer_ints(e->in, e->node, i, "position", 1, &n, &at);
    if (e->status < 0)
        return 0;
    at = at < 0 ? at + length : at;
    if (n != 1 || at < 0 || at > highest) {
        sy_expand_fail(e, SY_EARG, "a place outside of its sequence of %d", length);
        return 0;
    }
    return (int)at;
}

static int expand_empty(struct sy_expand *e)
{
    new_sequence(e, 0);
    return e->status;
}

static int expand_construct(struct sy_expand *e)
{
    struct sy_sequence *s = new_sequence(e, e->node->n_inputs);
    for (int i = 0; s && i < s->n; i++) {
        s->tensors[i] = e->node->inputs[i];
        if (s->tensors[i] < 0 || e->in->sequences[s->tensors[i]])
            return sy_expand_fail(e, SY_EUNSUPPORTED, "input %d is not a tensor", i);
    }
    return e->status;
}

static int expand_copy(struct sy_expand *e)
{
    const struct sy_sequence *from = sequence_of(e, 0);
    struct sy_sequence *s = from ? new_sequence(e, from->n) : NULL;
    if (s && s->n > 0)
        memcpy(s->tensors, from->tensors, (size_t)s->n * sizeof *s->tensors);
    return e->status;
}

static int expand_insert(struct sy_expand *e)
{
    const struct sy_sequence *from = sequence_of(e, 0);
    int x = sy_expand_input(e, 1);
    if (!from || x < 0 || e->in->sequences[x])
        return sy_expand_fail(e, SY_EUNSUPPORTED, "input 1 is not a tensor");
    int at = place_of(e, 2, from->n, from->n, from->n);
    struct sy_sequence *s = new_sequence(e, from->n + 1);
    for (int i = 0; s && i < s->n; i++)
        s->tensors[i] = i == at ? x : from->tensors[i - (i > at)];
    return e->status;
}

static int expand_erase(struct sy_expand *e)
{
    const struct sy_sequence *from = sequence_of(e, 0);
    if (!from || from->n == 0)
        return sy_expand_fail(e, SY_EARG, "an empty sequence");
    int at = place_of(e, 1, from->n, from->n - 1, from->n - 1);
    struct sy_sequence *s = new_sequence(e, from->n - 1);
    for (int i = 0; s && i < s->n; i++)
        s->tensors[i] = from->tensors[i + (i >= at)];
    return e->status;
}

static int expand_at(struct sy_expand *e)
{
    const struct sy_sequence *from = sequence_of(e, 0);
    int at = from ? place_of(e, 1, from->n, from->n - 1, from->n - 1) : 0;
    if (e->status == SY_OK && from->n == 0)
        return sy_expand_fail(e, SY_EARG, "an empty sequence");
    if (e->status == SY_OK)
        sy_expand_result(e, 0, from->tensors[at]);
    return e->status;
}

static int expand_length(struct sy_expand *e)
{
    const struct sy_sequence *from = sequence_of(e, 0);
    if (from)
        sy_expand_result(e, 0, sy_expand_int(e, from->n));
    return e->status;
}

static int expand_concat(struct sy_expand *e)
{
    const struct sy_sequence *from = sequence_of(e, 0);
    int64_t axis = sy_node_int(e->node, "axis", 0);
    bool stacks = sy_node_int(e->node, "new_axis", 0) != 0;
    int *parts;
    if (!from || from->n == 0)
        return sy_expand_fail(e, SY_EARG, "an empty sequence");
    e->status = sy_graph_alloc((size_t)from->n, sizeof *parts, &parts);
    if (e->status < 0)
        return e->status;
    int place = stacks ? sy_expand_ints(e, &axis, 1) : -1;
    for (int i = 0; i < from->n; i++)
        parts[i] = stacks ? SY_EXPAND(e, UNSQUEEZE, from->tensors[i], place) : from->tensors[i];
    int all = sy_expand_op(e, SY_OP_CONCAT, parts, from->n);
    sy_expand_set_int(e, "axis", axis);
    sy_expand_result(e, 0, all);
    free(parts);
    return e->status;
}

/* ---- SplitToSequence -------------------------------------------------------------------------- */

struct cut {
    int axis, n;
    bool squeezes;
    int64_t *lengths;
};

/* Parts of `each`, the last one smaller. */
static int even_cut(struct sy_expand *e, int64_t extent, int64_t each, struct cut *c)
{
    if (each < 1 || extent < 1 || (extent + each - 1) / each > MAX_LENGTH)
        return sy_expand_defer(e, "%lld elements in parts of %lld", (long long)extent,
                               (long long)each);
    c->n = (int)((extent + each - 1) / each);
    SY_TRY(sy_graph_alloc((size_t)c->n, sizeof *c->lengths, &c->lengths));
    for (int i = 0; i < c->n; i++)
        c->lengths[i] = SY_MIN(each, extent - i * each);
    return SY_OK;
}

static int find_cut(struct sy_expand *e, struct cut *c)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *split = sy_expand_tensor(e, 1);
    int64_t extent, each = 1;
    if (!x || e->in->sequences[sy_expand_input(e, 0)])
        return sy_expand_fail(e, SY_ECORRUPT, "input 0 is not a tensor");
    SY_TRY(sy_infer_axis(e->node, sy_node_int(e->node, "axis", 0), x->shape.rank, &c->axis));
    c->squeezes = !split && sy_node_int(e->node, "keepdims", 1) == 0;
    if (split && split->shape.rank == 1) {
        SY_TRY(sy_graph_alloc(MAX_LENGTH, sizeof *c->lengths, &c->lengths));
        return sy_infer_ints(e->in, e->node, 1, "split", MAX_LENGTH, &c->n, c->lengths);
    }
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, c->axis, &extent));
    if (split)
        SY_TRY(sy_infer_ints(e->in, e->node, 1, "split", 1, &c->n, &each));
    return even_cut(e, extent, each, c);
}

static void add_cut(struct sy_expand *e, const struct cut *c)
{
    struct sy_sequence *s = new_sequence(e, c->n);
    int64_t axis = c->axis;
    if (!s)
        return;
    int list = sy_expand_ints(e, c->lengths, c->n);
    sy_expand_op_many(e, SY_OP_SPLIT, (const int[]){sy_expand_input(e, 0), list}, 2, s->tensors,
                      s->n);
    sy_expand_set_int(e, "axis", axis);
    int place = c->squeezes ? sy_expand_ints(e, &axis, 1) : -1;
    for (int i = 0; c->squeezes && i < s->n; i++)
        s->tensors[i] = SY_EXPAND(e, SQUEEZE, s->tensors[i], place);
}

static int expand_split(struct sy_expand *e)
{
    struct cut c = {0};
    int status = find_cut(e, &c);
    if (status == SY_OK)
        add_cut(e, &c);
    free(c.lengths);
    return status < 0 ? status : e->status;
}

/* ---- SequenceMap, Optional ---------------------------------------------------------------------- */

/* The body's inputs for element i: of sequences that element, tensors as they are. */
static void give(struct sy_expand *e, int length, int i, int *given)
{
    int formal = (int)sy_node_int(e->node, "formal", e->node->n_inputs);
    for (int k = 0; k < e->node->n_inputs && e->status == SY_OK; k++) {
        int tensor = e->node->inputs[k];
        const struct sy_sequence *s = tensor < 0 ? NULL : e->in->sequences[tensor];
        if (tensor < 0 || (k >= formal && s))
            sy_expand_fail(e, SY_EUNSUPPORTED, "input %d is not a tensor", k);
        else if (s && s->n != length)
            sy_expand_fail(e, SY_EARG, "sequences of %d and %d tensors", length, s->n);
        else
            given[k] = s ? s->tensors[i] : tensor;
    }
}

static void map_each(struct sy_expand *e, const struct sy_graph *body, int length, int *given,
                     int *results)
{
    for (int k = 0; k < e->node->n_outputs; k++)
        new_result(e, k, length);
    for (int i = 0; i < length && e->status == SY_OK; i++) {
        give(e, length, i, given);
        sy_expand_body(e, body, given, NULL, results);
        for (int k = 0; k < e->node->n_outputs && e->status == SY_OK; k++)
            if (e->node->outputs[k] >= 0)
                e->in->sequences[e->node->outputs[k]]->tensors[i] = results[k];
    }
}

static int expand_map(struct sy_expand *e)
{
    const struct sy_attr *attr = sy_node_attr(e->node, "body");
    const struct sy_graph *body = attr && attr->kind == SY_ATTR_GRAPH ? attr->graph : NULL;
    const struct sy_sequence *first = sequence_of(e, 0);
    int *ids;
    if (!first)
        return e->status;
    if (!body || body->n_inputs != e->node->n_inputs || body->n_outputs != e->node->n_outputs)
        return sy_expand_fail(e, SY_ECORRUPT, "a body with other inputs or results");
    SY_TRY(sy_expand_room_for(e, body, first->n));
    SY_TRY(sy_graph_alloc((size_t)(body->n_inputs + body->n_outputs), sizeof *ids, &ids));
    map_each(e, body, first->n, ids, ids + body->n_inputs);
    free(ids);
    return e->status;
}

/* An optional that is known to hold a value is replaced by that value. */
static int expand_optional(struct sy_expand *e)
{
    int tensor = sy_expand_input(e, 0);
    if (tensor < 0)
        return sy_expand_defer(e, "an optional that holds nothing");
    if (e->in->sequences[tensor])
        return expand_copy(e);
    sy_expand_result(e, 0, tensor);
    return e->status;
}

static int expand_has_element(struct sy_expand *e)
{
    int one = sy_expand_int(e, 1), other = sy_expand_int(e, sy_expand_input(e, 0) >= 0);
    sy_expand_result(e, 0, SY_EXPAND(e, EQUAL, one, other));
    return e->status;
}

/* ---- inputs and outputs (list_ends.h) ------------------------------------------------------------ */

static int expand_list(struct sy_expand *e)
{
    return sy_expand_defer(e, "how many tensors input '%.80s' has is the request's", e->node->name);
}

/* A list that import knows, or a tensor that an optional holds, is its own output (LE2): the other parts are none. */
static int expand_parts(struct sy_expand *e)
{
    int list = sy_expand_input(e, 0);
    if (list < 0)
        return sy_expand_fail(e, SY_ECORRUPT, "no input");
    bool is_tensor = !e->in->sequences[list];
    if (is_tensor && sy_node_int(e->node, "sequence", 0))
        return sy_expand_fail(
            e, SY_ECORRUPT, "output '%.80s' is declared a sequence and is a tensor", e->node->name);
    for (int k = 1; k < e->node->n_outputs; k++)
        new_result(e, k, 0);
    if (!is_tensor)
        return expand_copy(e);
    sy_expand_result(e, 0, list);
    return e->status;
}

const struct sy_expander_line sy_expanders_sequence[] = {
    {SY_OP_LIST_OF_PARTS, expand_list},
    {SY_OP_PARTS_OF_LIST, expand_parts},
    {SY_OP_SEQUENCE_EMPTY, expand_empty},
    {SY_OP_SEQUENCE_CONSTRUCT, expand_construct},
    {SY_OP_SEQUENCE_INSERT, expand_insert},
    {SY_OP_SEQUENCE_ERASE, expand_erase},
    {SY_OP_SEQUENCE_AT, expand_at},
    {SY_OP_SEQUENCE_LENGTH, expand_length},
    {SY_OP_CONCAT_FROM_SEQUENCE, expand_concat},
    {SY_OP_SPLIT_TO_SEQUENCE, expand_split},
    {SY_OP_IDENTITY, expand_copy},
    {SY_OP_SEQUENCE_MAP, expand_map},
    {SY_OP_OPTIONAL, expand_optional},
    {SY_OP_OPTIONAL_GET_ELEMENT, expand_optional},
    {SY_OP_OPTIONAL_HAS_ELEMENT, expand_has_element},
    {0}};

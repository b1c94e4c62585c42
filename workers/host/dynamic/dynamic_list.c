/* Operators on lists of tensors (ONNX's sequences), and concatenation. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic_internal.h"

enum { MOST_ITEMS = 1 << 20 };

static bool is_optional(enum sy_op op)
{
    return op == SY_OP_OPTIONAL || op == SY_OP_OPTIONAL_HAS_ELEMENT ||
           op == SY_OP_OPTIONAL_GET_ELEMENT;
}

bool sy_at_is_of_lists(enum sy_op op)
{
    return op == SY_OP_SEQUENCE_EMPTY || op == SY_OP_SEQUENCE_CONSTRUCT ||
           op == SY_OP_SEQUENCE_INSERT || op == SY_OP_SEQUENCE_ERASE || op == SY_OP_SEQUENCE_AT ||
           op == SY_OP_SEQUENCE_LENGTH || op == SY_OP_CONCAT_FROM_SEQUENCE ||
           op == SY_OP_SPLIT_TO_SEQUENCE || op == SY_OP_LIST_OF_PARTS ||
           op == SY_OP_PARTS_OF_LIST || is_optional(op);
}

/* ---- putting together --------------------------------------------------------------------------- */

static int check_alike(const struct sy_node *node, struct sy_at_value *const *items, int n,
                       int64_t axis, bool stacked)
{
    const struct sy_array *first = &items[0]->a;
    for (int i = 0; i < n; i++) {
        const struct sy_array *a = &items[i]->a;
        bool alike = !items[i]->is_list && a->dtype == first->dtype && a->rank == first->rank;
        for (int d = 0; alike && d < a->rank; d++)
            alike = a->dims[d] == first->dims[d] || (d == axis && !stacked);
        if (!alike)
            return sy_at_fail(node, "tensor %d has another type or shape than the first", i);
    }
    return SY_OK;
}

bool sy_at_joins_rows(struct sy_at_value *const *items, int n)
{
    const int64_t few = 4096, row_bytes = 64;
    int64_t elements = 0;
    bool long_rows = true;
    for (int i = 0; i < n; i++) {
        if (!items[i] || items[i]->is_list || items[i]->a.rank < 1)
            return false;
        const struct sy_array *a = &items[i]->a;
        elements += a->n;
        long_rows =
            long_rows && a->dims[a->rank - 1] * (int64_t)sy_dtype_bytes(a->dtype) >= row_bytes;
    }
    return n > 0 && (long_rows || elements <= few);
}

int sy_at_concat(struct sy_at_state *state, const struct sy_node *node,
                 struct sy_at_value *const *items, int n, int64_t axis, bool stacked,
                 struct sy_at_value **out)
{
    int64_t dims[SY_MAX_RANK + 1], at = 0;
    if (n == 0)
        return sy_at_fail(node, "no tensors to put together");
    const struct sy_array *first = &items[0]->a;
    int rank = first->rank + stacked;
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank || rank > SY_MAX_RANK)
        return sy_at_fail(node, "axis %lld of %d dimensions", (long long)axis, rank);
    SY_TRY(check_alike(node, items, n, axis, stacked));
    for (int d = 0; d < rank; d++)
        dims[d] = d < axis ? first->dims[d] : d > axis ? first->dims[d - stacked] : 0;
    for (int i = 0; i < n; i++)
        dims[axis] += stacked ? 1 : items[i]->a.dims[axis];
    SY_TRY(sy_at_value_new(state, first->dtype, rank, dims, out));
    size_t each = sy_dtype_bytes(first->dtype);
    int64_t outer = sy_array_extent(&(*out)->a, 0, (int)axis),
            row = sy_array_extent(&(*out)->a, (int)axis, rank);
    for (int i = 0; i < n; i++) {
        int64_t part = outer > 0 ? items[i]->a.n / outer : 0;
        for (int64_t o = 0; o < outer && part > 0; o++)
            memcpy((char *)(*out)->a.data + (size_t)(o * row + at) * each,
                   (const char *)items[i]->a.data + (size_t)(o * part) * each, (size_t)part * each);
        at += part;
    }
    return SY_OK;
}

/* ---- taking apart ------------------------------------------------------------------------------- */

/* x[first, first + length) along the axis; without the axis if `dropped`. */
static int take_part(struct sy_at_state *state, const struct sy_array *x, int axis, int64_t first,
                     int64_t length, bool dropped, struct sy_at_value **out)
{
    int64_t dims[SY_MAX_RANK];
    size_t each = sy_dtype_bytes(x->dtype);
    for (int d = 0; d < x->rank; d++)
        dims[d] = d == axis ? length : x->dims[d];
    SY_TRY(sy_at_value_new(state, x->dtype, x->rank, dims, out));
    int64_t outer = sy_array_extent(x, 0, axis), inner = sy_array_extent(x, axis + 1, x->rank);
    size_t part = (size_t)(length * inner) * each;
    for (int64_t o = 0; o < outer && part > 0; o++)
        memcpy((char *)(*out)->a.data + (size_t)o * part,
               (const char *)x->data + (size_t)((o * x->dims[axis] + first) * inner) * each, part);
    if (!dropped)
        return SY_OK;
    for (int d = axis; d + 1 < x->rank; d++)
        (*out)->a.dims[d] = x->dims[d + 1];
    (*out)->a.rank--;
    return SY_OK;
}

/* Length of part i; 0 behind the last one. */
static int64_t part_length(const struct sy_at_value *split, int64_t i, int64_t left)
{
    if (!split)
        return SY_MIN(left, 1);
    if (split->a.rank == 0)
        return SY_MIN(left, sy_get_int(&split->a, 0));
    return i < split->a.n ? sy_get_int(&split->a, i) : 0;
}

static int split_list(struct sy_at_state *state, const struct sy_node *node,
                      struct sy_at_value *const *in, struct sy_at_value **out)
{
    const struct sy_array *x = &in[0]->a;
    const struct sy_at_value *split = node->n_inputs > 1 ? in[1] : NULL;
    int64_t axis = sy_node_int(node, "axis", 0), at = 0;
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis >= x->rank)
        return sy_at_fail(node, "axis %lld of %d dimensions", (long long)axis, x->rank);
    bool dropped = !split && sy_node_int(node, "keepdims", 1) == 0;
    SY_TRY(sy_at_value_new_list(NULL, 0, out));
    while (at < x->dims[axis]) {
        struct sy_at_value *list = *out, *part;
        int64_t length = part_length(split, list->n_items, x->dims[axis] - at);
        if (length < 1 || length > x->dims[axis] - at || list->n_items == MOST_ITEMS)
            return sy_at_fail(node, "parts that do not fit %lld", (long long)x->dims[axis]);
        SY_TRY(take_part(state, x, (int)axis, at, length, dropped, &part));
        int status = sy_at_value_append(list, part);
        if (status < 0) {
            sy_at_value_drop(state, part);
            return status;
        }
        at += length;
    }
    return SY_OK;
}

/* ---- lists -------------------------------------------------------------------------------------- */

static int position(const struct sy_node *node, const struct sy_at_value *list,
                    const struct sy_at_value *at, int64_t otherwise, int64_t end, int64_t *out)
{
    SY_TRY(sy_at_value_integer(node, at, otherwise, out));
    *out += *out < 0 ? list->n_items : 0;
    if (*out < 0 || *out >= end)
        return sy_at_fail(node, "position %lld in a list of %d", (long long)*out, list->n_items);
    return SY_OK;
}

static int insert(const struct sy_node *node, struct sy_at_value *const *in,
                  struct sy_at_value **out)
{
    struct sy_at_value *list = in[0];
    int64_t at;
    if (!in[1] || list->n_items == MOST_ITEMS)
        return sy_at_fail(node, "nothing to insert, or a list of %d", list->n_items);
    SY_TRY(position(node, list, node->n_inputs > 2 ? in[2] : NULL, list->n_items, list->n_items + 1,
                    &at));
    SY_TRY(sy_at_value_new_list(list->items, list->n_items, out)); /* has room for one more */
    struct sy_at_value **items = (*out)->items;
    memmove(items + at + 1, items + at, (size_t)((*out)->n_items - at) * sizeof *items);
    items[at] = sy_at_value_ref(in[1]);
    (*out)->n_items++;
    return SY_OK;
}

static int erase(struct sy_at_state *state, const struct sy_node *node,
                 struct sy_at_value *const *in, struct sy_at_value **out)
{
    struct sy_at_value *list = in[0];
    int64_t at;
    SY_TRY(position(node, list, node->n_inputs > 1 ? in[1] : NULL, list->n_items - 1, list->n_items,
                    &at));
    SY_TRY(sy_at_value_new_list(list->items, list->n_items, out));
    struct sy_at_value **items = (*out)->items;
    sy_at_value_drop(state, items[at]);
    (*out)->n_items--;
    memmove(items + at, items + at + 1, (size_t)((*out)->n_items - at) * sizeof *items);
    return SY_OK;
}

static int length(struct sy_at_state *state, const struct sy_at_value *list,
                  struct sy_at_value **out)
{
    SY_TRY(sy_at_value_new(state, SY_DTYPE_I64, 0, NULL, out));
    sy_put_int(&(*out)->a, 0, list->n_items);
    return SY_OK;
}

static int run_optional(struct sy_at_state *state, const struct sy_node *node,
                        struct sy_at_value *const *in, struct sy_at_value **out)
{
    struct sy_at_value *held = node->n_inputs > 0 ? in[0] : NULL;
    if (node->op == SY_OP_OPTIONAL_HAS_ELEMENT) {
        SY_TRY(sy_at_value_new(state, SY_DTYPE_BOOL, 0, NULL, out));
        sy_put_int(&(*out)->a, 0, held && !held->is_none);
        return SY_OK;
    }
    if (!held && node->op == SY_OP_OPTIONAL)
        return sy_at_value_new_none(out);
    if (!held || (held->is_none && node->op == SY_OP_OPTIONAL_GET_ELEMENT))
        return sy_at_fail(node, "an optional that holds nothing");
    *out = sy_at_value_ref(held);
    return SY_OK;
}

static int check_operands(const struct sy_node *node, struct sy_at_value *const *in)
{
    bool of_tensors = node->op == SY_OP_SEQUENCE_CONSTRUCT || node->op == SY_OP_SPLIT_TO_SEQUENCE ||
                      node->op == SY_OP_LIST_OF_PARTS;
    for (int i = 0; i < node->n_inputs; i++)
        if ((i == 0 || of_tensors) && (!in[i] || in[i]->is_list == of_tensors || in[i]->is_none))
            return sy_at_fail(node, "input %d is %s", i, of_tensors ? "a list" : "no list");
    return SY_OK;
}

int sy_at_list_run(struct sy_at_state *state, const struct sy_node *node,
                   struct sy_at_value *const *in, struct sy_at_value **out)
{
    int64_t at;
    if (is_optional(node->op))
        return run_optional(state, node, in, out);
    if (node->op == SY_OP_PARTS_OF_LIST)
        return sy_at_parts_of_list(state, node, in[0], out);
    SY_TRY(check_operands(node, in));
    switch (node->op) {
    case SY_OP_LIST_OF_PARTS:
        return sy_at_list_of_parts(state, node, in, out);
    case SY_OP_SEQUENCE_EMPTY:
    case SY_OP_SEQUENCE_CONSTRUCT:
        return sy_at_value_new_list(in, node->n_inputs, out);
    case SY_OP_SEQUENCE_INSERT:
        return insert(node, in, out);
    case SY_OP_SEQUENCE_ERASE:
        return erase(state, node, in, out);
    case SY_OP_SEQUENCE_LENGTH:
        return length(state, in[0], out);
    case SY_OP_SEQUENCE_AT:
        SY_TRY(position(node, in[0], node->n_inputs > 1 ? in[1] : NULL, 0, in[0]->n_items, &at));
        *out = sy_at_value_ref(in[0]->items[at]);
        return SY_OK;
    case SY_OP_CONCAT_FROM_SEQUENCE:
        return sy_at_concat(state, node, in[0]->items, in[0]->n_items, sy_node_int(node, "axis", 0),
                            sy_node_int(node, "new_axis", 0) != 0, out);
    default:
        return split_list(state, node, in, out);
    }
}

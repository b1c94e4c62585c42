/* Converts between lists and the tensors that represent them outside (loader/graph/list_ends.h). */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic_internal.h"

enum { MOST_ITEMS = 1 << 20 };

/* ---- in ------------------------------------------------------------------------------------------ */

/* Reads the dimensions of tensor i, up to the first -1, and its number of elements. EARG names the error. */
static int read_shape(const struct sy_node *node, const struct sy_array *shapes, int64_t i,
                      int64_t *dims, int *rank, int64_t *n)
{
    const struct sy_attr *declared = sy_node_attr(node, "dims");
    int64_t most = shapes->dims[1];
    *rank = 0;
    *n = 1;
    while (*rank < most && sy_get_int(shapes, i * most + *rank) >= 0) {
        dims[*rank] = sy_get_int(shapes, i * most + *rank);
        if (__builtin_mul_overflow(*n, dims[*rank], n))
            return sy_at_fail(node, "tensor %lld has too many elements", (long long)i);
        (*rank)++;
    }
    for (int64_t d = *rank; d < most; d++)
        if (sy_get_int(shapes, i * most + d) != -1)
            return sy_at_fail(node, "tensor %lld has a dimension of %lld", (long long)i,
                              (long long)sy_get_int(shapes, i * most + d));
    if (declared && declared->n != *rank)
        return sy_at_fail(node, "tensor %lld has %d dimensions, declared %d", (long long)i, *rank,
                          declared->n);
    for (int d = 0; declared && d < *rank; d++)
        if (declared->ints[d] >= 0 && declared->ints[d] != dims[d])
            return sy_at_fail(node, "tensor %lld: dimension %d is %lld, declared %lld",
                              (long long)i, d, (long long)dims[d], (long long)declared->ints[d]);
    return SY_OK;
}

/* Reads the next tensor, whose elements begin at *at. */
static int take_item(struct sy_at_state *state, const struct sy_node *node,
                     const struct sy_array *all, const struct sy_array *shapes, int64_t i,
                     int64_t *at, struct sy_at_value **out)
{
    int64_t dims[SY_MAX_RANK], n;
    int rank;
    size_t each = sy_dtype_bytes(all->dtype);
    SY_TRY(read_shape(node, shapes, i, dims, &rank, &n));
    if (n > all->n - *at)
        return sy_at_fail(node, "tensor %lld has %lld elements, %lld are left of %lld",
                          (long long)i, (long long)n, (long long)(all->n - *at), (long long)all->n);
    SY_TRY(sy_at_value_new(state, all->dtype, rank, dims, out));
    if (n > 0)
        memcpy((*out)->a.data, (const char *)all->data + (size_t)*at * each, (size_t)n * each);
    *at += n;
    return SY_OK;
}

static int take_items(struct sy_at_state *state, const struct sy_node *node,
                      const struct sy_array *all, const struct sy_array *shapes,
                      struct sy_at_value *list)
{
    int64_t at = 0;
    if (shapes->dtype != SY_DTYPE_I64 || shapes->rank != 2 || shapes->dims[1] > SY_MAX_RANK ||
        shapes->dims[0] > MOST_ITEMS)
        return sy_at_fail(node, "more than %d tensors, or than %d dimensions of each", MOST_ITEMS,
                          SY_MAX_RANK);
    for (int64_t i = 0; i < shapes->dims[0]; i++) {
        struct sy_at_value *item;
        SY_TRY(take_item(state, node, all, shapes, i, &at, &item));
        int status = sy_at_value_append(list, item);
        if (status < 0) {
            sy_at_value_drop(state, item);
            return status;
        }
    }
    if (at != all->n)
        return sy_at_fail(node, "%lld elements, its shapes are of %lld", (long long)all->n,
                          (long long)at);
    return SY_OK;
}

/* Makes the element of an optional, in place of a list. */
static int make_optional(struct sy_at_state *state, const struct sy_node *node,
                         struct sy_at_value *const *in, struct sy_at_value **out)
{
    struct sy_at_value *list = *out, *held = NULL;
    bool is_sequence = sy_node_int(node, "sequence", 0) != 0;
    bool has = is_sequence ? sy_get_int(&in[2]->a, 0) != 0 : list->n_items > 0;
    if (list->n_items > 0 && (!has || (!is_sequence && list->n_items > 1)))
        return sy_at_fail(node, "an optional of %d tensors", list->n_items);
    if (has && is_sequence)
        return SY_OK;
    if (has)
        held = sy_at_value_ref(list->items[0]);
    else
        SY_TRY(sy_at_value_new_none(&held));
    sy_at_value_drop(state, list);
    *out = held;
    return SY_OK;
}

int sy_at_list_of_parts(struct sy_at_state *state, const struct sy_node *node,
                        struct sy_at_value *const *in, struct sy_at_value **out)
{
    bool has_flag = sy_node_int(node, "optional", 0) && sy_node_int(node, "sequence", 0);
    if (node->n_inputs != 2 + has_flag || (has_flag && in[2]->a.n != 1))
        return sy_at_fail(node, "%d inputs", node->n_inputs);
    SY_TRY(sy_at_value_new_list(NULL, 0, out));
    SY_TRY(take_items(state, node, &in[0]->a, &in[1]->a, *out));
    return sy_node_int(node, "optional", 0) ? make_optional(state, node, in, out) : SY_OK;
}

/* ---- out ----------------------------------------------------------------------------------------- */

/* Sums the elements and finds the greatest rank of all tensors, which have one type. */
static int measure(const struct sy_node *node, struct sy_at_value *const *items, int n,
                   int64_t *elements, int *rank)
{
    *elements = 0;
    *rank = 0;
    for (int i = 0; i < n; i++) {
        if (items[i]->is_list || items[i]->a.dtype != items[0]->a.dtype)
            return sy_at_fail(node, "tensor %d is a list, or of another type than the first", i);
        *rank = SY_MAX(*rank, items[i]->a.rank);
        if (__builtin_add_overflow(*elements, items[i]->a.n, elements))
            return sy_at_fail(node, "too many elements");
    }
    return SY_OK;
}

static int give_elements(struct sy_at_state *state, struct sy_at_value *const *items, int n,
                         enum sy_dtype dtype, int64_t elements, struct sy_at_value **out)
{
    size_t at = 0;
    SY_TRY(sy_at_value_new(state, dtype, 1, &elements, out));
    for (int i = 0; i < n; i++) {
        size_t bytes = sy_at_value_size(items[i]);
        if (bytes > 0)
            memcpy((char *)(*out)->a.data + at, items[i]->a.data, bytes);
        at += bytes;
    }
    return SY_OK;
}

static int give_shapes(struct sy_at_state *state, struct sy_at_value *const *items, int n, int rank,
                       struct sy_at_value **out)
{
    SY_TRY(sy_at_value_new(state, SY_DTYPE_I64, 2, (const int64_t[]){n, rank}, out));
    for (int i = 0; i < n; i++)
        for (int d = 0; d < rank; d++)
            sy_put_int(&(*out)->a, (int64_t)i * rank + d,
                       d < items[i]->a.rank ? items[i]->a.dims[d] : -1);
    return SY_OK;
}

int sy_at_parts_of_list(struct sy_at_state *state, const struct sy_node *node,
                        const struct sy_at_value *list, struct sy_at_value **out)
{
    static const int64_t one = 1;
    struct sy_at_value *held = (struct sy_at_value *)list;
    if (node->n_outputs < 2 || !list || (sy_node_int(node, "sequence", 0) && !list->is_list))
        return sy_at_fail(node, "an input declared as a sequence is not one");
    struct sy_at_value *const *items = list->is_list ? list->items : &held;
    int n = list->is_list ? list->n_items : 1, rank;
    int64_t elements;
    SY_TRY(measure(node, items, n, &elements, &rank));
    enum sy_dtype dtype =
        n > 0 ? items[0]->a.dtype : (enum sy_dtype)sy_node_int(node, "dtype", SY_DTYPE_F32);
    SY_TRY(give_elements(state, items, n, dtype, elements, &out[0]));
    SY_TRY(give_shapes(state, items, n, rank, &out[1]));
    if (node->n_outputs < 3)
        return SY_OK;
    SY_TRY(sy_at_value_new(state, SY_DTYPE_BOOL, 1, &one, &out[2]));
    sy_put_int(&out[2]->a, 0, !list->is_none);
    return SY_OK;
}

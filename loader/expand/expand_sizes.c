/* Split of a list of open sizes, as it takes a shape apart: Slices, each of which is folded. */
#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_PARTS = 64 };

bool sy_expand_splits_sizes(const struct sy_infer *in, const struct sy_node *node)
{
    int x = sy_node_input(node, 0);
    return x >= 0 && in->values[x] && sy_infer_is_known(in, node, 1) &&
           node->n_outputs <= MOST_PARTS;
}

/* The sizes that the node lists, or equal parts of which the last may be smaller. */
static int read_parts(struct sy_expand *e, int64_t size, int64_t *parts)
{
    int n, n_parts = e->node->n_outputs;
    SY_TRY(sy_infer_ints(e->in, e->node, 1, "split", MOST_PARTS, &n, parts));
    if (n >= 0 && n != n_parts)
        return sy_expand_fail(e, SY_ECORRUPT, "%d sizes for %d outputs", n, n_parts);
    int64_t each = (size + n_parts - 1) / n_parts;
    for (int i = 0; n < 0 && i < n_parts; i++) {
        parts[i] = SY_MIN(each, size);
        size -= parts[i];
    }
    return SY_OK;
}

static int expand_split(struct sy_expand *e)
{
    int64_t parts[MOST_PARTS], size, at = 0;
    int axis;
    const struct sy_shape *shape = &sy_expand_tensor(e, 0)->shape;
    SY_TRY(sy_infer_axis(e->node, sy_node_int(e->node, "axis", 0), shape->rank, &axis));
    SY_TRY(sy_infer_fixed(e->in, e->node, shape, axis, &size));
    SY_TRY(read_parts(e, size, parts));
    for (int i = 0; i < e->node->n_outputs; i++) {
        if (parts[i] < 0 || parts[i] > size - at)
            return sy_expand_fail(e, SY_ECORRUPT, "part %d of %lld", i, (long long)parts[i]);
        if (sy_expand_wanted(e, i))
            sy_expand_result(e, i,
                             sy_expand_slice(e, sy_expand_input(e, 0), axis, at, at + parts[i]));
        at += parts[i];
    }
    if (at != size)
        return sy_expand_fail(e, SY_ECORRUPT, "parts of %lld are together %lld", (long long)size,
                              (long long)at);
    return e->status;
}

const struct sy_expander_line sy_expanders_sizes[] = {{SY_OP_SPLIT, expand_split}, {0}};

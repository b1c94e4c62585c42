/* Folding of operators that pick or write elements at known places: of small tensors, as shapes are. */
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/status.h"

/* How far apart neighbours along dimension d lie. */
static int64_t stride_of(const struct sy_block *block, int d)
{
    int64_t stride = 1;
    for (int i = d + 1; i < block->rank; i++)
        stride *= block->dims[i];
    return stride;
}

/* Element `i` of `block` as coordinates, to its offset in `to` with coordinate `axis` replaced. -1: outside. */
static int64_t offset_along(const struct sy_block *block, int64_t i, const struct sy_block *to,
                            int axis, int64_t index)
{
    int64_t offset = 0, size = to->dims[axis];
    index += index < 0 ? size : 0;
    if (index < 0 || index >= size)
        return -1;
    for (int d = 0; d < to->rank; d++) {
        int64_t at = i / stride_of(block, d) % block->dims[d];
        offset = offset * to->dims[d] + (d == axis ? index : at);
    }
    return offset;
}

/* The last dimension of the indices addresses a part of x by its first dimensions: the offset of that part. -1: outside. */
static int64_t offset_of_place(const struct sy_block *x, const int64_t *place, int64_t n)
{
    int64_t offset = 0;
    for (int64_t d = 0; d < n; d++) {
        int64_t at = place[d] + (place[d] < 0 ? x->dims[d] : 0);
        if (at < 0 || at >= x->dims[d])
            return -1;
        offset += at * stride_of(x, (int)d);
    }
    return offset;
}

static int elements(const struct sy_node *node, const struct sy_block *inputs,
                    const int64_t *indices, size_t bytes, unsigned char *to)
{
    const struct sy_block *x = &inputs[0], *at = &inputs[1];
    bool scatters = node->op == SY_OP_SCATTER_ELEMENTS;
    int64_t axis = sy_node_int(node, "axis", 0);
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis >= x->rank || at->rank != x->rank || (scatters && inputs[2].n != at->n))
        return SY_EUNSUPPORTED;
    if (scatters)
        memcpy(to, x->data, (size_t)x->n * bytes);
    for (int64_t i = 0; i < at->n; i++) {
        int64_t k = offset_along(at, i, x, (int)axis, indices[i]);
        if (k < 0 || k >= x->n)
            return SY_EUNSUPPORTED;
        if (scatters)
            memcpy(to + (size_t)k * bytes, inputs[2].data + (size_t)i * bytes, bytes);
        else
            memcpy(to + (size_t)i * bytes, x->data + (size_t)k * bytes, bytes);
    }
    return SY_OK;
}

static int places(const struct sy_node *node, const struct sy_block *inputs, const int64_t *indices,
                  size_t bytes, unsigned char *to)
{
    const struct sy_block *x = &inputs[0], *at = &inputs[1];
    bool scatters = node->op == SY_OP_SCATTER_ND;
    int64_t n = at->rank > 0 ? at->dims[at->rank - 1] : 0;
    if (n < 1 || n > x->rank)
        return SY_EUNSUPPORTED;
    int64_t each = stride_of(x, (int)n - 1);
    if (scatters && inputs[2].n != at->n / n * each)
        return SY_EUNSUPPORTED;
    if (scatters)
        memcpy(to, x->data, (size_t)x->n * bytes);
    for (int64_t i = 0; i < at->n / n; i++) {
        int64_t k = offset_of_place(x, indices + i * n, n);
        if (k < 0)
            return SY_EUNSUPPORTED;
        size_t moved = (size_t)each * bytes;
        if (scatters)
            memcpy(to + (size_t)k * bytes, inputs[2].data + (size_t)i * moved, moved);
        else
            memcpy(to + (size_t)i * moved, x->data + (size_t)k * bytes, moved);
    }
    return SY_OK;
}

static int tile(const struct sy_block *x, size_t bytes, const struct sy_block *out,
                unsigned char *to)
{
    if (x->rank != out->rank || x->n == 0)
        return SY_EUNSUPPORTED;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t from = 0;
        for (int d = 0; d < x->rank; d++)
            from = from * x->dims[d] + i / stride_of(out, d) % out->dims[d] % x->dims[d];
        memcpy(to + (size_t)i * bytes, x->data + (size_t)from * bytes, bytes);
    }
    return SY_OK;
}

int sy_fold_index(const struct sy_node *node, const struct sy_block *inputs, const int64_t *indices,
                  size_t bytes, const struct sy_block *out, unsigned char *to)
{
    const char *reduction = sy_infer_text(node, "reduction", "none");
    if (strcmp(reduction, "none") != 0 || sy_node_int(node, "batch_dims", 0) != 0 || out->n == 0)
        return SY_EUNSUPPORTED;
    switch (node->op) {
    case SY_OP_GATHER_ELEMENTS:
    case SY_OP_SCATTER_ELEMENTS:
        return elements(node, inputs, indices, bytes, to);
    case SY_OP_GATHER_ND:
    case SY_OP_SCATTER_ND:
        return places(node, inputs, indices, bytes, to);
    case SY_OP_TILE:
        return tile(&inputs[0], bytes, out, to);
    default:
        return SY_EUNSUPPORTED;
    }
}

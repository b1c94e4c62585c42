/* Folding of operators that only move elements. */
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static void move(unsigned char *to, int64_t i, const struct sy_block *from, int64_t k, size_t bytes)
{
    memcpy(to + (size_t)i * bytes, from->data + (size_t)k * bytes, bytes);
}

static int expand(const struct sy_block *x, size_t bytes, const struct sy_block *out,
                  unsigned char *to)
{
    for (int64_t i = 0; i < out->n; i++)
        move(to, i, x, sy_block_offset(out, i, x), bytes);
    return SY_OK;
}

static int transpose(const struct sy_node *node, const struct sy_block *x, size_t bytes,
                     const struct sy_block *out, unsigned char *to)
{
    const int64_t *perm = sy_node_attr(node, "perm")->ints;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t at[SY_MAX_RANK], from[SY_MAX_RANK];
        sy_block_coordinates(out, i, at);
        for (int k = 0; k < out->rank; k++)
            from[perm[k]] = at[k];
        move(to, i, x, sy_block_offset_at(x, from), bytes);
    }
    return SY_OK;
}

static int slice(const struct sy_node *node, const struct sy_block *x, size_t bytes,
                 const struct sy_block *out, unsigned char *to)
{
    const int64_t *starts = sy_node_attr(node, "starts")->ints,
                  *steps = sy_node_attr(node, "steps")->ints;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t at[SY_MAX_RANK];
        sy_block_coordinates(out, i, at);
        for (int k = 0; k < out->rank; k++)
            at[k] = starts[k] + at[k] * steps[k];
        move(to, i, x, sy_block_offset_at(x, at), bytes);
    }
    return SY_OK;
}

static int gather(const struct sy_node *node, const struct sy_block *x,
                  const struct sy_block *where, const int64_t *indices, size_t bytes,
                  unsigned char *to)
{
    int axis = (int)sy_node_int(node, "axis", 0);
    int64_t outer = 1, inner = 1, size = x->dims[axis];
    for (int i = 0; i < axis; i++)
        outer *= x->dims[i];
    for (int i = axis + 1; i < x->rank; i++)
        inner *= x->dims[i];
    size_t run = (size_t)inner * bytes;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t k = 0; k < where->n; k++) {
            int64_t index = indices[k] < 0 ? indices[k] + size : indices[k];
            if (index < 0 || index >= size)
                return sy_infer_fail(node, SY_ECORRUPT, "index %lld of %lld", (long long)indices[k],
                                     (long long)size);
            memcpy(to + (size_t)(o * where->n + k) * run,
                   x->data + (size_t)(o * size + index) * run, run);
        }
    }
    return SY_OK;
}

static int concat(const struct sy_node *node, const struct sy_block *inputs, size_t bytes,
                  const struct sy_block *out, unsigned char *to)
{
    int axis = (int)sy_node_int(node, "axis", 0);
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; i++)
        outer *= out->dims[i];
    for (int i = axis + 1; i < out->rank; i++)
        inner *= out->dims[i];
    for (int64_t o = 0; o < outer; o++) {
        for (int i = 0; i < node->n_inputs; i++) {
            size_t run = (size_t)(inputs[i].dims[axis] * inner) * bytes;
            memcpy(to, inputs[i].data + (size_t)o * run, run);
            to += run;
        }
    }
    return SY_OK;
}

int sy_fold_move(const struct sy_node *node, const struct sy_block *inputs, const int64_t *indices,
                 size_t bytes, const struct sy_block *out, unsigned char *to)
{
    if (out->n == 0 && node->op != SY_OP_CONCAT)
        return SY_OK;
    if (sy_op_facts(node->op)->fold == SY_FOLD_VIEW) {
        memcpy(to, inputs[0].data, (size_t)out->n * bytes);
        return SY_OK;
    }
    switch (node->op) {
    case SY_OP_EXPAND:
        return expand(&inputs[0], bytes, out, to);
    case SY_OP_TRANSPOSE:
        return transpose(node, &inputs[0], bytes, out, to);
    case SY_OP_SLICE:
        return slice(node, &inputs[0], bytes, out, to);
    case SY_OP_GATHER:
        return gather(node, &inputs[0], &inputs[1], indices, bytes, to);
    case SY_OP_CONCAT:
        return concat(node, inputs, bytes, out, to);
    default:
        return SY_EUNSUPPORTED;
    }
}

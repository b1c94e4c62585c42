#include "workers/engine/attention_node.h"

#include <string.h>

#include "runtime/base/status.h"

struct reader {
    const struct sy_graph *graph;
    const struct sy_node *node;
    int64_t batch, group; /* of heads that share k and v, one after another; 1: none do */
    int group_axis;
};

static int unsupported(const struct sy_node *node, const char *what)
{
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s", node->name,
                        sy_op_name(node->op), node->opset, what);
}

/* The axes of operand `i`, or of the result (3), which is transposed when it is made. */
static int axes_of(const struct sy_node *node, int i, int rank, int64_t *axes)
{
    static const char *const names[] = {"q_perm", "k_perm", "v_perm", "y_perm"};
    const struct sy_attr *perm = sy_node_attr(node, names[i]);
    if (!perm || perm->kind != SY_ATTR_INTS || perm->n != rank)
        return sy_error_set(SY_ECORRUPT, "node %s: %s does not fit", node->name, names[i]);
    for (int k = 0; k < rank; k++)
        axes[k] = i < 3 ? perm->ints[k] : -1;
    for (int k = 0; k < rank && i == 3; k++)
        if (perm->ints[k] >= 0 && perm->ints[k] < rank)
            axes[perm->ints[k]] = k;
    return SY_OK;
}

/* The tensor as a matrix per head, as the axes say: axis i of the matrix is the tensor's axis axes[i]. */
static int view_of(const struct reader *r, int tensor, const int64_t *axes, int64_t *dims,
                   int64_t *strides)
{
    const struct sy_shape *shape = &r->graph->tensors[tensor].shape;
    int64_t own[SY_MAX_RANK], stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        own[i] = stride;
        stride *= sy_dim_at(shape->dims[i], r->batch);
    }
    for (int i = 0; i < shape->rank; i++) {
        if (axes[i] < 0 || axes[i] >= shape->rank)
            return sy_error_set(SY_ECORRUPT, "node %s: axis %lld of %d", r->node->name,
                                (long long)axes[i], shape->rank);
        dims[i] = sy_dim_at(shape->dims[axes[i]], r->batch);
        strides[i] = own[axes[i]];
    }
    return SY_OK;
}

/* Leading extents of 1 are repeated over the heads. */
static int set_view(const struct sy_node *node, const struct sy_attention *a, const int64_t *dims,
                    const int64_t *strides, struct sy_attention_view *view)
{
    for (int i = 0; i < a->head_rank; i++) {
        if (dims[i] != a->head_dims[i] && dims[i] != 1)
            return unsupported(node, "operands that cannot be broadcast");
        view->heads[i] = dims[i] == 1 ? 0 : strides[i];
    }
    view->row = strides[a->head_rank];
    view->column = strides[a->head_rank + 1];
    return SY_OK;
}

/* Axis group_axis becomes two, of the groups and within one; what is the same for all of a group has no extent there. */
static int split_axis(const struct reader *r, bool shared, int rank, int64_t *dims,
                      int64_t *strides)
{
    int at = r->group_axis;
    int64_t each = shared || dims[at] == 1 ? 1 : r->group;
    if (r->group == 1)
        return SY_OK;
    if (dims[at] % each != 0)
        return unsupported(r->node, "heads that are not so many groups");
    for (int i = rank; i > at + 1; i--) {
        dims[i] = dims[i - 1];
        strides[i] = strides[i - 1];
    }
    dims[at] /= each;
    dims[at + 1] = each;
    strides[at + 1] = each == 1 ? 0 : strides[at];
    strides[at] *= each;
    return SY_OK;
}

static int set_matrices(const struct reader *r, struct sy_attention *a)
{
    struct sy_attention_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    const struct sy_node *node = r->node;
    int tensors[] = {node->inputs[0], node->inputs[1], node->inputs[2], node->outputs[0]};
    int64_t dims[4][SY_MAX_RANK], strides[4][SY_MAX_RANK], axes[SY_MAX_RANK];
    int rank = r->graph->tensors[tensors[3]].shape.rank;
    if (rank < 2)
        return unsupported(node, "operands that are not matrices");
    for (int i = 0; i < 4; i++) {
        if (r->graph->tensors[tensors[i]].shape.rank != rank)
            return unsupported(node, "operands of different ranks");
        SY_TRY(axes_of(node, i, rank, axes));
        SY_TRY(view_of(r, tensors[i], axes, dims[i], strides[i]));
    }
    if (r->group != 1 &&
        (r->group < 1 || r->group_axis < 0 || r->group_axis >= rank - 2 || rank == SY_MAX_RANK))
        return sy_error_set(SY_ECORRUPT, "node %s: group does not fit", node->name);
    for (int i = 0; i < 4; i++)
        SY_TRY(split_axis(r, i == 1 || i == 2, rank, dims[i], strides[i]));
    rank += r->group > 1;
    a->head_rank = rank - 2;
    memcpy(a->head_dims, dims[3], sizeof a->head_dims);
    a->rows = dims[0][rank - 2];
    a->depth = dims[0][rank - 1];
    a->columns = dims[1][rank - 1];
    a->width = dims[2][rank - 1];
    for (int i = 0; i < 4; i++)
        SY_TRY(set_view(node, a, dims[i], strides[i], views[i]));
    if (dims[1][rank - 2] != a->depth || dims[2][rank - 2] != a->columns ||
        dims[3][rank - 2] != a->rows || dims[3][rank - 1] != a->width)
        return unsupported(node, "operands that do not fit each other");
    return SY_OK;
}

/* Numpy's rule: strides of mask `m` seen as the scores, 0 where it is repeated. */
static int set_mask(const struct reader *r, int m, struct sy_attention *a)
{
    const struct sy_node *node = r->node;
    const struct sy_tensor *t = &r->graph->tensors[node->inputs[3 + m]];
    const struct sy_attr *kinds = sy_node_attr(node, "mask_kinds"),
                         *fills = sy_node_attr(node, "mask_fills"),
                         *causal = sy_node_attr(node, "mask_causal");
    int rank = a->head_rank + 2 - (r->group > 1), own = t->shape.rank;
    int64_t strides[SY_MAX_RANK] = {0}, dims[SY_MAX_RANK] = {0}, stride = 1;
    if (!kinds || !fills || m >= kinds->n || m >= fills->n || kinds->ints[m] < SY_MASK_ADD ||
        kinds->ints[m] > SY_MASK_DROP || own > rank)
        return sy_error_set(SY_ECORRUPT, "node %s: mask %d does not fit", node->name, m);
    a->kinds[m] = (enum sy_attention_mask)kinds->ints[m];
    a->fills[m] = fills->floats[m];
    /* rows that join_shared_heads made have no number in the file */
    if (causal && causal->kind == SY_ATTR_INTS && m < causal->n && a->rows > 1)
        a->causal[m] = causal->ints[m];
    if (t->dtype != (a->kinds[m] == SY_MASK_ADD ? SY_DTYPE_F32 : SY_DTYPE_BOOL))
        return unsupported(node, "a mask of this element type");
    for (int i = 0; i < rank; i++)
        dims[i] = i < rank - own ? 1 : sy_dim_at(t->shape.dims[i - (rank - own)], r->batch);
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = dims[i] == 1 ? 0 : stride;
        stride *= dims[i];
    }
    SY_TRY(split_axis(r, false, rank, dims, strides));
    rank = a->head_rank + 2;
    if ((dims[rank - 2] != 1 && dims[rank - 2] != a->rows) ||
        (dims[rank - 1] != 1 && dims[rank - 1] != a->columns))
        return unsupported(node, "a mask that does not fit the scores");
    /* engines go by it, and do not read the mask */
    if (a->causal[m] < 0 || a->causal[m] > a->columns ||
        (a->causal[m] > 0 && (dims[rank - 2] != a->rows || dims[rank - 1] != a->columns)))
        return sy_error_set(SY_ECORRUPT, "node %s: mask %d of %lld columns is causal from %lld on",
                            node->name, m, (long long)a->columns, (long long)a->causal[m]);
    return set_view(node, a, dims, strides, &a->masks[m]);
}

static bool joins_rows(const struct sy_attention *a, const struct sy_attention_view *view)
{
    return a->rows == 1 || view->heads[a->head_rank - 1] == a->rows * view->row;
}

/* Heads that share k and v, and whose rows lie as one head's would, are rows of one head. */
static void join_shared_heads(struct sy_attention *a)
{
    struct sy_attention_view *views[2 + SY_ATTENTION_MASKS] = {&a->q, &a->y};
    int n_views = 2 + a->n_masks;
    for (int m = 0; m < a->n_masks; m++)
        views[2 + m] = &a->masks[m];
    while (a->head_rank > 0) {
        int last = a->head_rank - 1;
        bool joins = a->k.heads[last] == 0 && a->v.heads[last] == 0 && a->q.column == 1;
        for (int i = 0; i < n_views; i++)
            joins = joins && joins_rows(a, views[i]);
        if (!joins && a->head_dims[last] != 1)
            return;
        for (int i = 0; i < n_views; i++)
            if (a->head_dims[last] != 1 && a->rows == 1)
                views[i]->row = views[i]->heads[last];
        a->rows *= a->head_dims[last];
        a->head_rank--;
    }
}

int sy_attention_read(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                      struct sy_attention *out)
{
    const struct reader r = {graph, node, batch, sy_node_int(node, "group", 1),
                             (int)sy_node_int(node, "group_axis", 0)};
    *out = (struct sy_attention){0};
    if (node->n_inputs < 3 || node->n_inputs > 3 + SY_ATTENTION_MASKS || node->n_outputs < 1 ||
        node->outputs[0] < 0)
        return sy_error_set(SY_ECORRUPT, "node %s: attention of %d inputs", node->name,
                            node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] < 0)
            return sy_error_set(SY_ECORRUPT, "node %s: attention without its input %d", node->name,
                                i);
    for (int i = 0; i < 3; i++)
        if (graph->tensors[node->inputs[i]].dtype != SY_DTYPE_F32)
            return unsupported(node, "only float32");
    out->n_masks = node->n_inputs - 3;
    out->scale = sy_node_float(node, "scale", 1);
    out->zero_nan = sy_node_int(node, "zero_nan", 0) != 0;
    SY_TRY(set_matrices(&r, out));
    for (int m = 0; m < out->n_masks; m++)
        SY_TRY(set_mask(&r, m, out));
    join_shared_heads(out);
    return SY_OK;
}

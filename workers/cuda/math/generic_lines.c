#include "workers/cuda/math/generic_forms.h"

#include "runtime/base/status.h"

int sy_generic_fill_line(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0];
    bool flat = sy_node_int(node, "flat", 0) != 0;
    int axis = (int)e->axis;
    e->as.line.length = flat ? sy_generic_extent(x, axis, x->rank) : x->dims[axis];
    e->as.line.inner = flat ? 1 : sy_generic_extent(x, axis + 1, x->rank);
    e->as.line.p = sy_node_int(node, "p", 2);
    e->as.line.takes_last = sy_node_int(node, "select_last_index", 0) != 0;
    e->items = e->as.line.length ? x->n / e->as.line.length : 0;
    return SY_OK;
}

static bool is_reduced(const struct sy_node *node, int rank, int d)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    bool found = false;
    if (!axes)
        return node->op != SY_OP_MEAN_VARIANCE_NORM || d != 1;
    for (int i = 0; i < axes->n; i++)
        found = found || axes->ints[i] == d || axes->ints[i] + rank == d;
    return found;
}

int sy_generic_fill_reduction(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0], *y = &e->at[SY_GENERIC_IN];
    struct sy_generic_dims *kept = &e->as.reduction.kept, *reduced = &e->as.reduction.reduced;
    int64_t each = 1, n_kept = 1;
    e->as.reduction.is_dynamic = sy_generic_input(e, 1) != NULL;
    if (e->as.reduction.is_dynamic) { /* one item more looks at the shape */
        e->as.reduction.keeps = sy_node_int(node, "keepdims", 1) != 0;
        e->as.reduction.none_is_all = sy_node_int(node, "noop_with_empty_axes", 0) == 0;
        e->items = y->n + 1;
        return SY_OK;
    }
    for (int d = x->rank - 1; d >= 0; d--) {
        bool folds = is_reduced(node, x->rank, d);
        struct sy_generic_dims *of = folds ? reduced : kept;
        of->sizes[of->n] = x->dims[d];
        of->strides[of->n++] = x->strides[d];
        *(folds ? &each : &n_kept) *= x->dims[d];
    }
    if (n_kept != y->n && node->op != SY_OP_MEAN_VARIANCE_NORM)
        return sy_generic_refuse(node, "a result of another size");
    e->as.reduction.length = each;
    e->items = n_kept;
    return SY_OK;
}

int sy_generic_fill_batch(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.norm.epsilon = (double)sy_node_float(node, "epsilon", 1e-5f);
    e->as.norm.momentum = (double)sy_node_float(node, "momentum", 0.9f);
    e->items = e->at[0].dims[1];
    if (sy_node_int(node, "training_mode", 0) == 0)
        return sy_generic_refuse(node, "of another type than float32");
    return SY_OK;
}

/* LayerNormalization with its second and third result. */
int sy_generic_fill_norm(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0]; /* scale and bias are repeated as it has them */
    for (int i = 1; i < e->n_in; i++)
        if (sy_generic_input(e, i)) {
            struct sy_math_generic one = {.at = {e->at[i]}};
            one.at[SY_GENERIC_IN] = *x;
            SY_TRY(sy_generic_spread(node, &one, 1));
            e->at[i] = one.at[0];
        }
    e->as.norm.epsilon = (double)sy_node_float(node, "epsilon", 1e-5f);
    e->as.norm.length = sy_generic_extent(x, (int)e->axis, x->rank);
    e->items = e->as.norm.length ? x->n / e->as.norm.length : 0;
    return SY_OK;
}

int sy_generic_fill_neighbours(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.neighbours.size = sy_node_int(node, "size", 1);
    e->as.neighbours.alpha = (double)sy_node_float(node, "alpha", 1e-4f);
    e->as.neighbours.beta = (double)sy_node_float(node, "beta", 0.75f);
    e->as.neighbours.bias = (double)sy_node_float(node, "bias", 1);
    return SY_OK;
}

/* One block for all targets: sums are of one order. */
int sy_generic_fill_loss(const struct sy_node *node, struct sy_math_generic *e)
{
    static const char *const ways[] = {"mean", "sum", "none", NULL};
    int total;
    SY_TRY(sy_generic_choose(node, "reduction", ways, &total));
    e->as.loss.total = (enum sy_generic_total)total;
    e->as.loss.has_ignored = sy_node_attr(node, "ignore_index") != NULL;
    e->as.loss.ignored = sy_node_int(node, "ignore_index", 0);
    e->items = 1;
    return SY_OK;
}

int sy_generic_fill_dynamic(const struct sy_node *node, struct sy_math_generic *e)
{
    (void)node;
    e->items = 1;
    return SY_OK;
}

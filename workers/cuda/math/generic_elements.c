#include "workers/cuda/math/generic_forms.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"

#define SCATTER_PARTS 8192 /* threads of a scatter that has few columns */

/* ---- elements ----------------------------------------------------------------------------------------- */

int sy_generic_fill_one(const struct sy_node *node, struct sy_math_generic *e)
{
    sy_curve_read(node, &e->as.one.curve);
    e->as.one.positive = sy_node_int(node, "detect_positive", 1) != 0;
    e->as.one.negative = sy_node_int(node, "detect_negative", 1) != 0;
    return SY_OK;
}

int sy_generic_fill_pair(const struct sy_node *node, struct sy_math_generic *e)
{
    static const char *const ways[] = {"RIGHT", "LEFT", NULL};
    int way;
    SY_TRY(sy_generic_choose(node, "direction", ways, &way));
    e->as.pair.c_rule = sy_node_int(node, "fmod", 0) != 0;
    e->as.pair.is_left = way == 1;
    return sy_generic_spread(node, e, e->n_in);
}

int sy_generic_fill_where(const struct sy_node *node, struct sy_math_generic *e)
{
    return sy_generic_spread(node, e, 3);
}

/* The diagonal of EyeLike; the mask of a Dropout that drops nothing. */
int sy_generic_fill_fill(const struct sy_node *node, struct sy_math_generic *e)
{
    bool masks = node->op == SY_OP_DROPOUT;
    e->as.fill.result = masks;
    e->as.fill.is_diagonal = !masks;
    e->as.fill.diagonal = sy_node_int(node, "k", 0);
    if (masks && e->n_out != 2)
        return sy_generic_refuse(node, "without a mask");
    e->items = e->at[SY_GENERIC_IN + masks].n;
    return SY_OK;
}

/* ---- by index ----------------------------------------------------------------------------------------- */

int sy_generic_fill_triangle(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.triangle.is_upper = sy_node_int(node, "upper", 1) != 0;
    return SY_OK;
}

int sy_generic_fill_reverse(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.reverse.batch_axis = (int)sy_node_int(node, "batch_axis", 1);
    e->axis = sy_node_int(node, "time_axis", 0);
    return SY_OK;
}

int sy_generic_fill_random(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *y = &e->at[SY_GENERIC_IN];
    e->as.random = sy_random_draw(node, y->dims, y->n);
    return SY_OK;
}

static int set_mode(const struct sy_node *node, struct sy_math_generic *e)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap", NULL};
    int mode;
    SY_TRY(sy_generic_choose(node, "mode", modes, &mode));
    e->as.pad.mode = (enum sy_generic_padding)mode;
    e->as.pad.value = (double)sy_node_float(node, "value", 0);
    return SY_OK;
}

int sy_generic_fill_pad(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_attr *pads = sy_node_attr(node, "pads");
    const struct sy_generic_array *x = &e->at[0], *y = &e->at[SY_GENERIC_IN];
    if (!pads || pads->kind != SY_ATTR_INTS || pads->n != 2 * x->rank)
        return sy_generic_refuse(node, "without pads of every dimension");
    for (int d = 0; d < x->rank; d++) {
        e->as.pad.before[d] = pads->ints[d];
        if (x->dims[d] + pads->ints[d] + pads->ints[d + x->rank] != y->dims[d])
            return sy_generic_refuse(node,
                                     "pads that lead to another shape than the file declares");
    }
    return set_mode(node, e);
}

/* Pads as data. */
int sy_generic_fill_run_pad(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *pads = sy_generic_input(e, 1), *axes = sy_generic_input(e, 3);
    if (!pads || pads->n != 2 * (axes ? axes->n : e->at[0].rank))
        return sy_generic_refuse(node, "pads that do not fit its dimensions");
    e->items = e->at[SY_GENERIC_IN].n + 1;
    return set_mode(node, e);
}

int sy_generic_fill_running_sum(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.running_sum.excludes = sy_node_int(node, "exclusive", 0) != 0;
    e->as.running_sum.backward = sy_node_int(node, "reverse", 0) != 0;
    return SY_OK;
}

/* A thread for each element of the input: its place in the order of its line. */
int sy_generic_fill_top(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.top.largest = sy_node_int(node, "largest", 1) != 0;
    e->items = e->at[0].n;
    return SY_OK;
}

int sy_generic_fill_gather_tuples(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0], *indices = &e->at[1];
    int64_t batch = sy_node_int(node, "batch_dims", 0), depth = indices->dims[indices->rank - 1];
    e->as.indices.first = (int)batch;
    e->as.indices.depth = (int)depth;
    e->as.indices.run = sy_generic_extent(x, (int)(batch + depth), x->rank);
    e->as.indices.block = sy_generic_extent(x, (int)batch, x->rank);
    e->as.indices.tuples = sy_generic_extent(indices, (int)batch, indices->rank - 1);
    return SY_OK;
}

static int set_reduction(const struct sy_node *node, struct sy_math_generic *e)
{
    static const char *const reductions[] = {"none", "add", "mul", "max", "min", NULL};
    int which;
    SY_TRY(sy_generic_choose(node, "reduction", reductions, &which));
    e->as.indices.reduction = (enum sy_generic_combine)which;
    return SY_OK;
}

/* What may meet at one place of the result is one thread's, in the order of the indices; columns never meet. Where they are few, several
 * threads share one, each with the places of its own. */
static void share_out(struct sy_math_generic *e, int64_t columns, int64_t updates)
{
    int64_t parts = columns > 0 && columns < SCATTER_PARTS ? SCATTER_PARTS / columns : 1;
    e->as.indices.parts = SY_MAX(SY_MIN(parts, updates), 1);
    e->items = columns * e->as.indices.parts;
}

int sy_generic_fill_scatter_along(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *indices = &e->at[1];
    int64_t rows = indices->dims[e->axis];
    SY_TRY(set_reduction(node, e));
    share_out(e, rows ? indices->n / rows : 0, rows);
    return SY_OK;
}

int sy_generic_fill_scatter_tuples(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0], *indices = &e->at[1];
    int64_t depth = indices->dims[indices->rank - 1],
            run = sy_generic_extent(x, (int)depth, x->rank);
    SY_TRY(set_reduction(node, e));
    e->as.indices.depth = (int)depth;
    e->as.indices.run = run;
    share_out(e, run, indices->n / depth);
    return SY_OK;
}

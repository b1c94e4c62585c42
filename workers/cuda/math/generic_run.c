/* Forms whose sizes, places and axes are data: what of them is known when the program is made. */
#include "workers/cuda/math/generic_forms.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* One more work item than elements: it checks the shape. */
static int with_a_look(struct sy_math_generic *e, int64_t elements)
{
    e->items = elements + 1;
    return SY_OK;
}

int sy_generic_fill_view(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.view.keeps_zero = sy_node_int(node, "allowzero", 0) != 0;
    if (node->op == SY_OP_RUN_RESHAPE && e->at[1].n != e->at[SY_GENERIC_IN].rank)
        return sy_generic_refuse(node,
                                 "a result that is declared with other dimensions than it gets");
    return with_a_look(e, e->at[SY_GENERIC_IN].n);
}

int sy_generic_fill_expand(const struct sy_node *node, struct sy_math_generic *e)
{
    struct sy_generic_array *x = &e->at[0], *y = &e->at[SY_GENERIC_IN];
    bool fills = x->n == 1 && x->rank <= 1;
    if (e->n_in != 2 || e->at[1].n > y->rank)
        return sy_generic_refuse(node,
                                 "a result that is declared with fewer dimensions than it gets");
    for (int d = 0; fills && d < SY_MAX_RANK; d++)
        x->strides[d] = 0;
    if (!fills)
        SY_TRY(sy_generic_spread(node, e, 1));
    return with_a_look(e, y->n);
}

int sy_generic_fill_tile(const struct sy_node *node, struct sy_math_generic *e)
{
    if (e->n_in != 2 || e->at[1].n != e->at[0].rank)
        return sy_generic_refuse(node, "repeats of other dimensions than the input has");
    return with_a_look(e, e->at[SY_GENERIC_IN].n);
}

int sy_generic_fill_slice(const struct sy_node *node, struct sy_math_generic *e)
{
    for (int i = 2; i < e->n_in; i++)
        if (sy_generic_input(e, i) && e->at[i].n != e->at[1].n)
            return sy_generic_refuse(node, "starts, ends, axes and steps that differ in length");
    return with_a_look(e, e->at[SY_GENERIC_IN].n);
}

int sy_generic_fill_split(const struct sy_node *node, struct sy_math_generic *e)
{
    struct sy_generic_split *s = &e->as.split;
    if (s->parts == 0)
        *s = (struct sy_generic_split){.parts = e->n_out};
    if (e->at[1].n != s->parts)
        return sy_generic_refuse(node, "other parts than results");
    for (int o = 0; o < e->n_out; o++)
        if (e->at[SY_GENERIC_IN + o].dtype == SY_DTYPE_NONE)
            return sy_generic_refuse(node, "a result that is left out");
    return with_a_look(e, e->at[0].n);
}

/* ---- what is counted: one block ------------------------------------------------------------------------- */

/* Slices along the axis, or elements where there is none. */
static void set_slices(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0];
    struct sy_generic_counted *s = &e->as.counted;
    int axis = (int)e->axis;
    *s = (struct sy_generic_counted){1, x->n, 1, sy_node_int(node, "sorted", 1) != 0};
    if (sy_node_attr(node, "axis")) {
        s->outer = sy_generic_extent(x, 0, axis);
        s->length = x->dims[axis];
        s->inner = sy_generic_extent(x, axis + 1, x->rank);
    }
    e->items = 1;
}

int sy_generic_fill_non_zero(const struct sy_node *node, struct sy_math_generic *e)
{
    (void)node;
    e->items = 1;
    return SY_OK;
}

int sy_generic_fill_compress(const struct sy_node *node, struct sy_math_generic *e)
{
    set_slices(node, e);
    return SY_OK;
}

int sy_generic_fill_unique(const struct sy_node *node, struct sy_math_generic *e)
{
    set_slices(node, e);
    const struct sy_generic_counted *s = &e->as.counted;
    int64_t each = s->outer * s->inner, n = each ? e->at[SY_GENERIC_IN].n / each : 0;
    for (int o = 1; o < e->n_out; o++) {
        const struct sy_generic_array *list = &e->at[SY_GENERIC_IN + o];
        if (list->dtype != SY_DTYPE_NONE && list->n != (o == 2 ? s->length : n))
            return sy_generic_refuse(node, "a list that is declared with another size");
    }
    if (each < 1)
        return sy_generic_refuse(node, "slices of nothing");
    sy_generic_take_room(e, 2 * s->length);
    return SY_OK;
}

int sy_generic_fill_suppress(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.suppress.has_centers = sy_node_int(node, "center_point_box", 0) != 0;
    e->items = 1;
    sy_generic_take_room(e, SY_MAX(e->at[1].dims[2], 1));
    return SY_OK;
}

/* Forms of signals, of determinants, of MaxUnpool: what the kernels take from the nodes. */
#include "workers/cuda/math/generic_forms.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define UNPOOL_PARTS 8192 /* threads that share the result's places */

/* One more work item checks the length. */
int sy_generic_fill_taper(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.taper.periodic = sy_node_int(node, "periodic", 1) != 0;
    e->items = e->at[SY_GENERIC_IN].n + 1;
    return SY_OK;
}

int sy_generic_fill_dft(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0], *y = &e->at[SY_GENERIC_IN];
    struct sy_generic_dft *d = &e->as.dft;
    bool onesided = sy_node_int(node, "onesided", 0) != 0;
    int axis = (int)e->axis;
    d->bins = x->dims[axis];
    d->n = y->dims[axis];
    d->inner = sy_generic_extent(x, axis + 1, x->rank - 1);
    d->inverse = sy_node_int(node, "inverse", 0) != 0;
    d->from_half = onesided && d->inverse;
    if (onesided && !d->inverse)
        d->n = sy_generic_input(e, 1) ? 0 : d->bins;
    e->items = y->n / y->dims[y->rank - 1];
    return SY_OK;
}

/* A block each. */
int sy_generic_fill_det(const struct sy_node *node, struct sy_math_generic *e)
{
    (void)node;
    e->items = e->at[SY_GENERIC_IN].n;
    sy_generic_take_room(e, SY_MAX(e->at[0].n, 1));
    return SY_OK;
}

/* `kernel` has the spatial dimensions that the pool had, as inference knows them without output_shape. */
int sy_generic_fill_unpool(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0];
    int n = x->rank - 2;
    for (int i = 0; i < n; i++) {
        int64_t kernel = sy_node_int_at(node, "kernel_shape", i, 1),
                stride = sy_node_int_at(node, "strides", i, 1),
                pads = sy_node_int_at(node, "pads", i, 0) + sy_node_int_at(node, "pads", n + i, 0);
        e->as.window.kernel[i] = (x->dims[i + 2] - 1) * stride + kernel - pads;
    }
    e->items = SY_MAX(SY_MIN(e->at[SY_GENERIC_IN].n, UNPOOL_PARTS), 1);
    return SY_OK;
}

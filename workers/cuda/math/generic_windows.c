#include "workers/cuda/math/generic_forms.h"

#include <string.h>

#include "runtime/base/status.h"
#include "workers/host/reference/kernel_product.h"

/* ---- resizing ----------------------------------------------------------------------------------------- */

/* The index of a dimension among the axes, which says where its scale and region are; -1: none. */
static void set_axes(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    int rank = e->at[0].rank;
    e->as.resize.n_axes = axes ? axes->n : rank;
    for (int d = 0; d < rank; d++) {
        e->as.resize.axes[d] = axes ? -1 : d;
        for (int i = 0; axes && i < axes->n; i++)
            if (axes->ints[i] == d)
                e->as.resize.axes[d] = i;
    }
}

int sy_generic_fill_resize(const struct sy_node *node, struct sy_math_generic *e)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL},
                             *const roundings[] = {"round_prefer_floor", "round_prefer_ceil",
                                                   "floor", "ceil", NULL},
                             *const places[] = {"half_pixel",           "pytorch_half_pixel",
                                                "align_corners",        "asymmetric",
                                                "tf_half_pixel_for_nn", "tf_crop_and_resize",
                                                "half_pixel_symmetric", NULL};
    const struct sy_attr *scales = sy_node_attr(node, "scales");
    const struct sy_generic_array *sizes = sy_generic_input(e, 3), *given = sy_generic_input(e, 2),
                                  *roi = sy_generic_input(e, 1);
    struct sy_generic_resize *r = &e->as.resize;
    bool old = sy_node_int(node, "asymmetric", 0) != 0, by_sizes = sizes && sizes->n > 0;
    int mode, rounding, place;
    SY_TRY(sy_generic_choose(node, "mode", modes, &mode));
    SY_TRY(sy_generic_choose(node, "nearest_mode", roundings, &rounding));
    SY_TRY(sy_generic_choose(node, "coordinate_transformation_mode", places, &place));
    r->mode = (enum sy_generic_interpolation)mode;
    r->rounding = old ? SY_GENERIC_FLOOR : (enum sy_generic_rounding)rounding;
    r->place = old ? SY_GENERIC_ASYMMETRIC : (enum sy_generic_place)place;
    r->excludes = sy_node_int(node, "exclude_outside", 0) != 0;
    r->cubic = (double)sy_node_float(node, "cubic_coeff_a", -0.75f);
    r->outside = (double)sy_node_float(node, "extrapolation_value", 0);
    set_axes(node, e);
    r->has_roi = roi && roi->n == 2 * r->n_axes;
    r->scales_given = !by_sizes && given && given->n > 0;
    if (by_sizes ? sizes->n != r->n_axes : r->scales_given && given->n != r->n_axes)
        return sy_generic_refuse(node, "other scales or sizes than it has axes");
    for (int d = 0; d < e->at[0].rank; d++) {
        int i = r->axes[d];
        bool has = !by_sizes && i >= 0 && scales && scales->kind == SY_ATTR_FLOATS && i < scales->n;
        r->scales[d] =
            has ? scales->floats[i] : (float)e->at[SY_GENERIC_IN].dims[d] / (float)e->at[0].dims[d];
    }
    return SY_OK;
}

/* ---- products ----------------------------------------------------------------------------------------- */

/* A factor's strides by its labels, of which it has no more than dimensions. */
static void set_factor(struct sy_math_generic *e, int array, int n_labels, const int64_t *strides)
{
    int64_t *to = e->at[array].strides;
    int n = 0;
    memset(to, 0, sizeof e->at[array].strides);
    for (int l = 0; l < n_labels; l++)
        if (strides[l] != 0) {
            e->as.product.labels[array][n] = (uint8_t)l;
            to[n++] = strides[l];
        }
}

/* Operands as the product of all labels: results first, then what is summed over. */
int sy_generic_fill_einsum(const struct sy_node *node, struct sy_math_generic *e)
{
    struct sy_call call = {.node = node, .n_in = e->n_in, .n_out = 1};
    struct sy_einsum f;
    for (int k = 0; k < e->n_in; k++)
        call.in[k] =
            (struct sy_array){.dtype = e->at[k].dtype, .rank = e->at[k].rank, .n = e->at[k].n};
    for (int k = 0; k < e->n_in; k++)
        memcpy(call.in[k].dims, e->at[k].dims, sizeof call.in[k].dims);
    call.out[0] =
        (struct sy_array){.dtype = e->at[SY_GENERIC_IN].dtype, .rank = e->at[SY_GENERIC_IN].rank};
    memcpy(call.out[0].dims, e->at[SY_GENERIC_IN].dims, sizeof call.out[0].dims);
    if (!sy_einsum_read(&call, &f))
        return sy_generic_refuse(node, "this equation");
    e->as.product.n_labels = f.n;
    e->as.product.n_result = f.n_out;
    memcpy(e->as.product.sizes, f.sizes, (size_t)f.n * sizeof *f.sizes);
    for (int k = 0; k < e->n_in; k++)
        set_factor(e, k, f.n, f.strides[k]);
    return SY_OK;
}

/* As a product over the labels of the result and the depth; vectors have no row, or no column. */
int sy_generic_fill_matmul(const struct sy_node *node, struct sy_math_generic *e)
{
    int at_b = node->op == SY_OP_QLINEAR_MATMUL ? 3 : 1;
    const struct sy_generic_array *a = &e->at[0], *y = &e->at[SY_GENERIC_IN], *b = &e->at[at_b];
    int rows = a->rank > 1, columns = b->rank > 1, batches = y->rank - rows - columns;
    int64_t left[SY_MAX_RANK + 1] = {0}, right[SY_MAX_RANK + 1] = {0};
    for (int d = 0; d < y->rank; d++)
        e->as.product.sizes[d] = y->dims[d];
    for (int d = 0; d < batches; d++) {
        int i = d - (batches - (a->rank - 2)), k = d - (batches - (b->rank - 2));
        left[d] = rows && i >= 0 && a->dims[i] != 1 ? a->strides[i] : 0;
        right[d] = columns && k >= 0 && b->dims[k] != 1 ? b->strides[k] : 0;
    }
    if (rows)
        left[batches] = a->strides[a->rank - 2];
    if (columns)
        right[batches + rows] = 1;
    left[y->rank] = 1;
    right[y->rank] = columns ? b->strides[b->rank - 2] : 1;
    e->as.product.sizes[y->rank] = a->dims[a->rank - 1];
    e->as.product.n_labels = y->rank + 1;
    e->as.product.n_result = y->rank;
    e->as.product.row_label = rows ? batches : -1;
    e->as.product.column_label = columns ? batches + rows : -1;
    set_factor(e, 0, y->rank + 1, left);
    set_factor(e, at_b, y->rank + 1, right);
    e->as.product.alpha = (double)sy_node_float(node, "alpha", 1);
    return SY_OK;
}

int sy_generic_fill_quantize(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0];
    bool one = e->at[1].n == 1;
    e->as.quantize.length = one ? 1 : x->dims[e->axis];
    e->as.quantize.inner = one ? 1 : sy_generic_extent(x, (int)e->axis + 1, x->rank);
    (void)node;
    return SY_OK;
}

/* ---- windows ------------------------------------------------------------------------------------------ */

int sy_generic_fill_window(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_generic_array *x = &e->at[0];
    bool global = node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL ||
                  node->op == SY_OP_GLOBAL_LP_POOL;
    bool pools = global || node->op == SY_OP_MAX_POOL || node->op == SY_OP_AVERAGE_POOL ||
                 node->op == SY_OP_LP_POOL;
    const struct sy_generic_array *w = &e->at[node->op == SY_OP_QLINEAR_CONV ? 3 : 1];
    int n = x->rank - 2;
    e->as.window.size = 1;
    for (int i = 0; i < n; i++) {
        e->as.window.kernel[i] = global  ? x->dims[i + 2]
                                 : pools ? sy_node_int_at(node, "kernel_shape", i, 1)
                                         : w->dims[i + 2];
        e->as.window.strides[i] = sy_node_int_at(node, "strides", i, 1);
        e->as.window.dilations[i] = sy_node_int_at(node, "dilations", i, 1);
        e->as.window.pads[i] = sy_node_int_at(node, "pads", i, 0);
        e->as.window.pads_behind[i] = sy_node_int_at(node, "pads", n + i, 0);
        e->as.window.size *= e->as.window.kernel[i];
    }
    e->as.window.p = sy_node_int(node, "p", 2);
    e->as.window.counts_padding = sy_node_int(node, "count_include_pad", 0) != 0;
    e->as.window.turns = sy_node_int(node, "storage_order", 0) != 0;
    e->as.window.groups = sy_node_int(node, "group", 1);
    return SY_OK;
}

int sy_generic_fill_sample(const struct sy_node *node, struct sy_math_generic *e)
{
    static const char *const modes[] = {"bilinear", "linear", "nearest", "bicubic", "cubic", NULL},
                             *const paddings[] = {"zeros", "border", "reflection", NULL};
    static const int taps[] = {2, 2, 1, 4, 4};
    int mode, padding;
    SY_TRY(sy_generic_choose(node, "mode", modes, &mode));
    SY_TRY(sy_generic_choose(node, "padding_mode", paddings, &padding));
    e->as.sample.taps = taps[mode];
    e->as.sample.padding = (enum sy_generic_border)padding;
    e->as.sample.aligns = sy_node_int(node, "align_corners", 0) != 0;
    return SY_OK;
}

int sy_generic_fill_region(const struct sy_node *node, struct sy_math_generic *e)
{
    const struct sy_attr *mode = sy_node_attr(node, "coordinate_transformation_mode"),
                         *pooled = sy_node_attr(node, "mode");
    e->as.region.is_half = mode && mode->s ? strcmp(mode->s, "half_pixel") == 0 : node->opset >= 16;
    e->as.region.is_max = pooled && pooled->s && strcmp(pooled->s, "max") == 0;
    e->as.region.samples = sy_node_int(node, "sampling_ratio", 0);
    e->as.region.scale = (double)sy_node_float(node, "spatial_scale", 1);
    return SY_OK;
}

int sy_generic_fill_pixel_region(const struct sy_node *node, struct sy_math_generic *e)
{
    e->as.pixel_region.scale = sy_node_float(node, "spatial_scale", 1);
    return SY_OK;
}

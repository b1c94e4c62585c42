/* Shape rules: operators on images and sequences that are not plain windows: transposed convolution, resizing, regions, boxes,
 * recurrences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { NO_INPUT = 1 << 20 }; /* for lists that are attributes only */

/* The attribute's n numbers, all at least `least`; `otherwise` each if it is not there. */
static int numbers(struct sy_infer *in, const struct sy_node *node, const char *name, int n,
                   int64_t otherwise, int64_t least, int64_t *out)
{
    int count;
    SY_TRY(sy_infer_ints(in, node, NO_INPUT, name, n, &count, out));
    if (count >= 0 && count != n)
        return sy_infer_fail(node, SY_ECORRUPT, "'%s' needs %d numbers", name, n);
    for (int i = 0; i < n; i++) {
        out[i] = count < 0 ? otherwise : out[i];
        if (out[i] < least || out[i] > INT32_MAX)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "'%s' has the value %lld", name,
                                 (long long)out[i]);
    }
    return SY_OK;
}

/* ---- transposed windows ------------------------------------------------------------------------- */

struct spread {
    int n;
    int64_t kernel[SY_MAX_RANK], strides[SY_MAX_RANK], dilations[SY_MAX_RANK], extra[SY_MAX_RANK],
        pads[2 * SY_MAX_RANK], wanted[SY_MAX_RANK];
    bool is_wanted;
};

static int read_spread(struct sy_infer *in, struct sy_node *node, struct spread *s)
{
    int n = s->n;
    s->is_wanted = sy_node_attr(node, "output_shape") != NULL;
    SY_TRY(numbers(in, node, "strides", n, 1, 1, s->strides));
    SY_TRY(numbers(in, node, "dilations", n, 1, 1, s->dilations));
    SY_TRY(numbers(in, node, "output_padding", n, 0, 0, s->extra));
    SY_TRY(numbers(in, node, "pads", 2 * n, 0, 0, s->pads));
    if (s->is_wanted)
        SY_TRY(numbers(in, node, "output_shape", n, 0, 1, s->wanted));
    return SY_OK;
}

/* Size `i` of the result; padding that follows from a wanted size is filled in. */
static int64_t spread_size(struct spread *s, const char *auto_pad, int i, int64_t size)
{
    int64_t full =
        s->strides[i] * (size - 1) + s->extra[i] + (s->kernel[i] - 1) * s->dilations[i] + 1;
    bool same = strncmp(auto_pad, "SAME", 4) == 0, upper = strcmp(auto_pad, "SAME_UPPER") == 0;
    if (s->is_wanted || same) {
        int64_t wanted = s->is_wanted ? s->wanted[i] : size * s->strides[i];
        int64_t total = SY_MAX(full - wanted, 0);
        s->pads[i] = upper ? total / 2 : total - total / 2;
        s->pads[i + s->n] = total - s->pads[i];
        return wanted;
    }
    return full - s->pads[i] - s->pads[i + s->n];
}

/* For an open size, with explicit pads. */
static int spread_open(const struct sy_infer *in, const struct sy_node *node,
                       const struct spread *s, const char *auto_pad, int i, struct sy_dim *size)
{
    struct sy_dim steps, stride = {s->strides[i], 0},
                         rest = {s->extra[i] + (s->kernel[i] - 1) * s->dilations[i] + 1 -
                                     s->pads[i] - s->pads[i + s->n],
                                 0};
    if (s->is_wanted || strncmp(auto_pad, "SAME", 4) == 0)
        return sy_infer_defer(in, node, "padding of an open size");
    if (sy_size_sub(*size, (struct sy_dim){1, 0}, &steps) < 0 ||
        sy_size_mul(steps, stride, &steps) < 0 || sy_size_add(steps, rest, size) < 0)
        return sy_infer_defer(in, node, "an open size");
    return SY_OK;
}

static int spread_shape(struct sy_infer *in, struct sy_node *node, struct spread *s,
                        struct sy_shape *shape)
{
    const char *auto_pad = sy_infer_text(node, "auto_pad", "NOTSET");
    SY_TRY(read_spread(in, node, s));
    for (int i = 0; i < s->n; i++) {
        int64_t size;
        if (sy_dim_is_expr(shape->dims[i + 2])) {
            SY_TRY(spread_open(in, node, s, auto_pad, i, &shape->dims[i + 2]));
            continue;
        }
        SY_TRY(sy_infer_fixed(in, node, shape, i + 2, &size));
        size = spread_size(s, auto_pad, i, size);
        if (size < 0)
            return sy_infer_fail(node, SY_ECORRUPT, "dimension %d of the result is %lld", i + 2,
                                 (long long)size);
        shape->dims[i + 2] = (struct sy_dim){size, 0};
    }
    SY_TRY(sy_node_set_ints(node, "kernel_shape", s->n, s->kernel));
    SY_TRY(sy_node_set_ints(node, "strides", s->n, s->strides));
    SY_TRY(sy_node_set_ints(node, "dilations", s->n, s->dilations));
    return sy_node_set_ints(node, "pads", 2 * s->n, s->pads);
}

/* Afterwards strides, dilations and pads are set; padding follows from the result's size. */
int sy_rule_conv_transpose(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *w;
    int64_t group = sy_node_int(node, "group", 1), channels, rows, columns;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &w));
    if (x->shape.rank < 3 || w->shape.rank != x->shape.rank)
        return sy_infer_fail(node, SY_ECORRUPT, "weights of %d dimensions for an input of %d",
                             w->shape.rank, x->shape.rank);
    SY_TRY(sy_infer_fixed(in, node, &w->shape, 0, &rows));
    struct sy_shape shape = x->shape; /* open channels are as many as the weights have */
    if (sy_dim_is_expr(shape.dims[1]))
        sy_infer_same_size(in, node, &shape.dims[1], (struct sy_dim){rows, 0});
    SY_TRY(sy_infer_fixed(in, node, &shape, 1, &channels));
    SY_TRY(sy_infer_fixed(in, node, &w->shape, 1, &columns));
    if (rows != channels || group < 1 || group > channels || channels % group != 0)
        return sy_infer_fail(node, SY_ECORRUPT, "%lld channels, weights for %lld, %lld groups",
                             (long long)channels, (long long)rows, (long long)group);
    struct spread s = {.n = x->shape.rank - 2};
    for (int i = 0; i < s.n; i++)
        SY_TRY(sy_infer_fixed(in, node, &w->shape, i + 2, &s.kernel[i]));
    enum sy_dtype dtype = x->dtype;
    shape.dims[1] = (struct sy_dim){columns * group, 0};
    SY_TRY(spread_shape(in, node, &s, &shape));
    SY_TRY(sy_node_set_int(node, "group", group));
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

/* Input 2 holds the shape, of as many dimensions. */
static int given_shape(const struct sy_infer *in, const struct sy_node *node,
                       struct sy_shape *shape)
{
    struct sy_dim *dims;
    int n, status = SY_OK;
    SY_TRY(sy_infer_dims(in, node, 2, "output_shape", &n, &dims));
    if (n != shape->rank)
        status =
            sy_infer_fail(node, SY_ECORRUPT, "a result of %d dimensions from %d", n, shape->rank);
    for (int i = 0; status == SY_OK && i < n; i++)
        shape->dims[i] = dims[i];
    free(dims);
    return status;
}

int sy_rule_max_unpool(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *indices;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &indices));
    struct sy_shape shape = x->shape;
    enum sy_dtype dtype = x->dtype;
    if (shape.rank < 3 || !sy_infer_same_shape(in, node, &shape, &indices->shape))
        return sy_infer_fail(node, SY_ECORRUPT, "indices do not fit");
    struct spread s = {.n = shape.rank - 2};
    SY_TRY(numbers(in, node, "kernel_shape", s.n, 1, 1, s.kernel));
    if (sy_node_input(node, 2) < 0)
        SY_TRY(spread_shape(in, node, &s, &shape));
    else if (sy_infer_is_known(in, node, 2))
        SY_TRY(given_shape(in, node, &shape));
    else
        SY_TRY(sy_infer_declared(in, node, 0, &shape));
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

/* ---- Resize ------------------------------------------------------------------------------------- */

static int resize_refusals(const struct sy_node *node)
{
    if (sy_node_int(node, "antialias", 0) != 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "antialias");
    return SY_OK;
}

/* The axes that scales and sizes are for: all of them without the attribute. Left in the attribute, not negative. */
static int resize_axes(struct sy_infer *in, struct sy_node *node, int rank, int *n, int64_t *axes)
{
    SY_TRY(sy_infer_ints(in, node, NO_INPUT, "axes", SY_MAX_RANK, n, axes));
    if (*n < 0) {
        *n = rank;
        for (int i = 0; i < rank; i++)
            axes[i] = i;
        return SY_OK;
    }
    for (int i = 0; i < *n; i++) {
        int axis;
        SY_TRY(sy_infer_axis(node, axes[i], rank, &axis));
        axes[i] = axis;
    }
    return sy_node_set_ints(node, "axes", *n, axes);
}

static bool is_empty(const struct sy_infer *in, const struct sy_node *node, int i)
{
    return sy_node_input(node, i) < 0 ||
           sy_shape_elements(&in->graph->tensors[node->inputs[i]].shape, 1) == 0;
}

struct axes {
    int n;
    int64_t at[SY_MAX_RANK];
};

/* floor(size * scale) */
static int scale_by(struct sy_fraction scale, struct sy_dim *dim)
{
    struct sy_fraction size = {*dim, {1, 0}, false, true, false};
    SY_TRY(sy_fraction_mul(size, scale, &size));
    return sy_fraction_floor(size, false, dim);
}

static int scale_open(const struct sy_infer *in, const struct sy_node *node, float scale,
                      struct sy_dim *dim)
{
    struct sy_fraction fraction;
    if (scale > 0 && sy_fraction_of((double)scale, &fraction) && scale_by(fraction, dim) == SY_OK)
        return SY_OK;
    return sy_infer_defer(in, node, "scale %g of an open size", (double)scale);
}

/* Scales that are made of open sizes. */
static int scale_by_sizes(const struct sy_infer *in, const struct sy_node *node,
                          const struct axes *axes, struct sy_shape *shape)
{
    struct sy_fraction scale;
    for (int i = 0; i < axes->n; i++)
        if (!sy_fraction_read(in, node->inputs[2], i, &scale) ||
            (!(sy_dim_is(scale.over, 1) && sy_dim_is(scale.under, 1)) &&
             scale_by(scale, &shape->dims[axes->at[i]]) < 0))
            return sy_infer_declared(in, node, 0, shape);
    return SY_OK;
}

static int scale_shape(const struct sy_infer *in, const struct sy_node *node, const float *scales,
                       int n, const struct axes *axes, struct sy_shape *shape)
{
    if (n != axes->n)
        return sy_infer_fail(node, SY_ECORRUPT, "%d scales for %d dimensions", n, axes->n);
    for (int i = 0; i < n; i++) {
        struct sy_dim *dim = &shape->dims[axes->at[i]];
        double size = floor((double)((float)dim->fixed * scales[i])); /* rounded before floor */
        if (sy_dim_is_expr(*dim)) {
            SY_TRY(scale_open(in, node, scales[i], dim));
            continue;
        }
        if (dim->per_batch != 0 && scales[i] != 1)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "the batch is scaled");
        if (!(size >= 0 && size <= INT32_MAX))
            return sy_infer_fail(node, SY_ECORRUPT, "scale %g", (double)scales[i]);
        if (dim->per_batch == 0)
            dim->fixed = (int64_t)size;
    }
    return SY_OK;
}

/* One scale for all axes, so that none is larger (or smaller) than its size. */
static int keep_aspect(const struct sy_infer *in, const struct sy_node *node,
                       const struct axes *axes, bool larger, const struct sy_shape *x,
                       int64_t *sizes)
{
    double scale = larger ? 0 : INFINITY;
    for (int i = 0; i < axes->n; i++) {
        int64_t from;
        SY_TRY(sy_infer_fixed(in, node, x, (int)axes->at[i], &from));
        double own = (double)sizes[i] / (double)from;
        scale = larger ? fmax(scale, own) : fmin(scale, own);
    }
    for (int i = 0; i < axes->n; i++) {
        double size = floor(scale * (double)x->dims[axes->at[i]].fixed + 0.5);
        if (!(size >= 0 && size <= INT32_MAX))
            return sy_infer_fail(node, SY_ECORRUPT, "sizes that do not fit");
        sizes[i] = (int64_t)size;
    }
    return SY_OK;
}

static int resized_by_sizes(struct sy_infer *in, struct sy_node *node, const struct axes *axes,
                            struct sy_shape *shape)
{
    const char *policy = sy_infer_text(node, "keep_aspect_ratio_policy", "stretch");
    struct sy_dim *sizes;
    int64_t kept[SY_MAX_RANK];
    int n, status = SY_OK;
    if (!sy_infer_is_known(in, node, 3))
        return sy_infer_declared(in, node, 0, shape);
    if (strcmp(policy, "stretch") != 0) {
        SY_TRY(sy_infer_ints(in, node, 3, "sizes", SY_MAX_RANK, &n, kept));
        if (n != axes->n || (strcmp(policy, "not_larger") && strcmp(policy, "not_smaller")))
            return sy_infer_fail(node, SY_ECORRUPT, "%d sizes, policy '%.40s'", n, policy);
        SY_TRY(keep_aspect(in, node, axes, strcmp(policy, "not_smaller") == 0, shape, kept));
        for (int i = 0; i < n; i++)
            shape->dims[axes->at[i]] = (struct sy_dim){kept[i], 0};
        return SY_OK;
    }
    SY_TRY(sy_infer_dims(in, node, 3, "sizes", &n, &sizes));
    if (n != axes->n)
        status = sy_infer_fail(node, SY_ECORRUPT, "%d sizes for %d dimensions", n, axes->n);
    for (int i = 0; status == SY_OK && i < n; i++)
        shape->dims[axes->at[i]] = sizes[i];
    free(sizes);
    return status;
}

/* Upsample and the Resize of opset 10 become Resize with inputs x, roi, scales, sizes; old scales stay an attribute. */
static int normalise_resize(struct sy_node *node)
{
    bool old = node->op == SY_OP_UPSAMPLE || node->opset < 11;
    if (!old)
        return SY_OK;
    SY_TRY(sy_node_set_int(node, "asymmetric", 1));
    node->op = SY_OP_RESIZE;
    if (node->n_inputs > 1) {
        SY_TRY(sy_node_add_input(node, node->inputs[1]));
        node->inputs[1] = -1;
    }
    return SY_OK;
}

int sy_rule_resize(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *scales;
    SY_TRY(resize_refusals(node));
    SY_TRY(normalise_resize(node));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    struct axes axes;
    SY_TRY(resize_axes(in, node, shape.rank, &axes.n, axes.at));
    const struct sy_attr *attr = sy_node_attr(node, "scales");
    if (!is_empty(in, node, 3)) {
        SY_TRY(resized_by_sizes(in, node, &axes, &shape));
    } else if (!is_empty(in, node, 2)) {
        SY_TRY(sy_infer_need(in, node, 2, &scales));
        if (!scales->data)
            SY_TRY(scale_by_sizes(in, node, &axes, &shape));
        else if (scales->dtype == SY_DTYPE_F32)
            SY_TRY(scale_shape(in, node, scales->data, (int)(scales->data_bytes / sizeof(float)),
                               &axes, &shape));
        else
            return sy_infer_fail(node, SY_EUNSUPPORTED, "scales that are not float32");
    } else if (attr && attr->kind == SY_ATTR_FLOATS) {
        SY_TRY(scale_shape(in, node, attr->floats, attr->n, &axes, &shape));
    } else {
        return sy_infer_fail(node, SY_EUNSUPPORTED, "neither scales nor sizes");
    }
    if (shape.rank != x->shape.rank)
        return sy_infer_fail(node, SY_ECORRUPT, "a result of %d dimensions", shape.rank);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* ---- blocks, grids, boxes ----------------------------------------------------------------------- */

int sy_rule_depth_to_space(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int64_t size = sy_node_int(node, "blocksize", 0), depth;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_fixed(in, node, &x->shape, 1, &depth));
    if (x->shape.rank != 4 || size < 1 || size > INT16_MAX || depth % (size * size) != 0)
        return sy_infer_fail(node, SY_ECORRUPT, "blocks of %lld do not fit", (long long)size);
    struct sy_shape shape = {.rank = 4, .dims = {x->shape.dims[0], {depth / (size * size), 0}}};
    for (int i = 2; i < 4; i++)
        if (sy_dim_mul(x->shape.dims[i], (struct sy_dim){size, 0}, &shape.dims[i]) < 0)
            return sy_infer_fail(node, SY_ECORRUPT, "dimension %d is too large", i);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_space_to_depth(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    int64_t size = sy_node_int(node, "blocksize", 0), depth;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_fixed(in, node, &x->shape, 1, &depth));
    if (x->shape.rank != 4 || size < 1 || size > INT16_MAX)
        return sy_infer_fail(node, SY_ECORRUPT, "blocks of %lld do not fit", (long long)size);
    struct sy_dim block = {size, 0}, back;
    struct sy_shape shape = {.rank = 4, .dims = {x->shape.dims[0], {depth * size * size, 0}}};
    for (int i = 2; i < 4; i++)
        if (sy_dim_floor_div(x->shape.dims[i], block, &shape.dims[i]) < 0 ||
            sy_dim_mul(shape.dims[i], block, &back) < 0 ||
            !sy_infer_same_size(in, node, &back, x->shape.dims[i]))
            return sy_infer_fail(node, SY_ECORRUPT, "blocks of %lld do not fit", (long long)size);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_grid_sample(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *grid;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &grid));
    struct sy_dim first = x->shape.dims[0];
    int rank = x->shape.rank;
    if ((rank != 4 && rank != 5) || grid->shape.rank != rank ||
        !sy_dim_is(grid->shape.dims[rank - 1], rank - 2) ||
        !sy_infer_same_size(in, node, &first, grid->shape.dims[0]))
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "input and grid other than of images or volumes");
    struct sy_shape shape = x->shape;
    for (int d = 2; d < rank; d++)
        shape.dims[d] = grid->shape.dims[d - 1];
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_roi_align(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *rois, *batch;
    int64_t height = sy_node_int(node, "output_height", 1),
            width = sy_node_int(node, "output_width", 1);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &rois));
    SY_TRY(sy_infer_need(in, node, 2, &batch));
    struct sy_dim n_rois = rois->shape.dims[0];
    if (x->shape.rank != 4 || rois->shape.rank != 2 || !sy_dim_is(rois->shape.dims[1], 4) ||
        batch->shape.rank != 1 || !sy_infer_same_size(in, node, &n_rois, batch->shape.dims[0]) ||
        height < 1 || width < 1 || height > INT16_MAX || width > INT16_MAX)
        return sy_infer_fail(node, SY_ECORRUPT, "regions do not fit");
    struct sy_shape shape = {
        .rank = 4, .dims = {rois->shape.dims[0], x->shape.dims[1], {height, 0}, {width, 0}}};
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_max_roi_pool(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *rois;
    const struct sy_attr *pooled = sy_node_attr(node, "pooled_shape");
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &rois));
    if (x->shape.rank != 4 || rois->shape.rank != 2 || !sy_dim_is(rois->shape.dims[1], 5) ||
        !pooled || pooled->kind != SY_ATTR_INTS || pooled->n != 2 || pooled->ints[0] < 1 ||
        pooled->ints[1] < 1 || pooled->ints[0] > INT16_MAX || pooled->ints[1] > INT16_MAX)
        return sy_infer_fail(node, SY_ECORRUPT, "regions do not fit");
    struct sy_shape shape = {
        .rank = 4,
        .dims = {
            rois->shape.dims[0], x->shape.dims[1], {pooled->ints[0], 0}, {pooled->ints[1], 0}}};
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* The most boxes that are left: all of them, or as many as the node lets stay, of each class in each image. */
static int bound_nms(struct sy_infer *in, struct sy_node *node, const struct sy_shape *boxes,
                     const struct sy_shape *scores)
{
    struct sy_dim n, each = boxes->dims[1];
    int64_t most;
    int known = -1;
    if (sy_infer_ints(in, node, 2, "", 1, &known, &most) == SY_OK && known == 1 &&
        each.per_batch == 0 && most >= 0 && most < each.fixed)
        each.fixed = most;
    if (sy_dim_mul(boxes->dims[0], scores->dims[1], &n) < 0 || sy_dim_mul(n, each, &n) < 0)
        return sy_infer_defer(in, node, "a size that is not linear in the batch size");
    sy_infer_set(in, node, 0, SY_DTYPE_I64, &(struct sy_shape){.rank = 2, .dims = {n, {3, 0}}});
    return SY_OK;
}

/* The most boxes and the two thresholds are one number each; what a request sends must be declared so. */
static int check_limits(const struct sy_infer *in, const struct sy_node *node)
{
    const struct sy_graph *g = in->graph;
    for (int i = 2; i < node->n_inputs; i++)
        for (int k = 0; k < g->n_inputs && node->inputs[i] >= 0; k++) {
            const struct sy_shape *shape = &g->tensors[node->inputs[i]].shape;
            for (int d = 0; g->inputs[k] == node->inputs[i] && d < shape->rank; d++)
                if (!sy_dim_is(shape->dims[d], 1))
                    return sy_infer_fail(node, SY_EUNSUPPORTED,
                                         "limits that are not one number each");
        }
    return SY_OK;
}

int sy_rule_nms(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *boxes, *scores;
    struct sy_shape shape;
    SY_TRY(check_limits(in, node));
    SY_TRY(sy_infer_need(in, node, 0, &boxes));
    SY_TRY(sy_infer_need(in, node, 1, &scores));
    if (in->is_bound && boxes->shape.rank == 3 && scores->shape.rank == 3)
        return bound_nms(in, node, &boxes->shape, &scores->shape);
    SY_TRY(sy_infer_declared(in, node, 0, &shape));
    struct sy_dim n_images = boxes->shape.dims[0], n_boxes = boxes->shape.dims[1];
    if (boxes->shape.rank != 3 || scores->shape.rank != 3 || !sy_dim_is(boxes->shape.dims[2], 4) ||
        !sy_infer_same_size(in, node, &n_boxes, scores->shape.dims[2]) ||
        !sy_infer_same_size(in, node, &n_images, scores->shape.dims[0]))
        return sy_infer_fail(node, SY_ECORRUPT, "boxes and scores do not fit");
    sy_infer_set(in, node, 0, SY_DTYPE_I64, &shape);
    return SY_OK;
}

/* ---- recurrences -------------------------------------------------------------------------------- */

/* The first states, if there are any, are like the last: what is open of them is that. Sizes that are numbers are the engine's to look at. */
static int meet_first_states(struct sy_infer *in, const struct sy_node *node,
                             const struct sy_shape *last)
{
    for (int i = 5; i < node->n_inputs && i < 7 && in->facts; i++) {
        if (node->inputs[i] < 0)
            continue;
        struct sy_shape first = in->graph->tensors[node->inputs[i]].shape;
        for (int d = 0; first.rank == last->rank && d < last->rank; d++)
            if ((sy_dim_is_expr(first.dims[d]) || sy_dim_is_expr(last->dims[d])) &&
                !sy_infer_same_size(in, node, &first.dims[d], last->dims[d]))
                return sy_infer_fail(node, SY_ECORRUPT, "a first state of another size");
    }
    return SY_OK;
}

/* An open number of features is what the weights are for. */
static int meet_weights(struct sy_infer *in, const struct sy_node *node, struct sy_dim features,
                        struct sy_dim wanted)
{
    bool is_open = sy_dim_is_expr(features) || sy_dim_is_expr(wanted);
    if (is_open && in->facts && !sy_infer_same_size(in, node, &features, wanted))
        return sy_infer_fail(node, SY_ECORRUPT, "weights for another number of features");
    return SY_OK;
}

/* LSTM, GRU, RNN: y, the last state, and LSTM's last cell. */
int sy_rule_recurrent(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *w, *r;
    int64_t directions, hidden;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &w));
    SY_TRY(sy_infer_need(in, node, 2, &r));
    if (x->shape.rank != 3 || w->shape.rank != 3 || r->shape.rank != 3)
        return sy_infer_fail(node, SY_ECORRUPT, "inputs that have not three dimensions");
    SY_TRY(sy_infer_fixed(in, node, &w->shape, 0, &directions));
    SY_TRY(sy_infer_fixed(in, node, &r->shape, 2, &hidden));
    SY_TRY(meet_weights(in, node, x->shape.dims[2], w->shape.dims[2]));
    bool batch_first = sy_node_int(node, "layout", 0) != 0;
    struct sy_dim steps = x->shape.dims[batch_first], batch = x->shape.dims[!batch_first],
                  d = {directions, 0}, h = {hidden, 0};
    struct sy_shape y = {.rank = 4, .dims = {steps, d, batch, h}},
                    last = {.rank = 3, .dims = {d, batch, h}};
    if (batch_first) {
        y = (struct sy_shape){.rank = 4, .dims = {batch, steps, d, h}};
        last = (struct sy_shape){.rank = 3, .dims = {batch, d, h}};
    }
    SY_TRY(meet_first_states(in, node, &last));
    SY_TRY(sy_node_set_int(node, "hidden_size", hidden));
    sy_infer_set(in, node, 0, x->dtype, &y);
    for (int i = 1; i < node->n_outputs; i++)
        sy_infer_set(in, node, i, x->dtype, &last);
    return SY_OK;
}

/* Resize with antialias: along each of the last two axes a product with a matrix of weights, which are known here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_WEIGHTS = 1 << 24 };

struct filter {
    bool cubic, exclude_outside, align_corners, asymmetric;
    double a; /* of the cubic one */
    int64_t from, to;
    double scale;
};

static double weigh(const struct filter *f, double x)
{
    x = fabs(x);
    if (!f->cubic)
        return x < 1 ? 1 - x : 0;
    if (x <= 1)
        return ((f->a + 2) * x - (f->a + 3)) * x * x + 1;
    return x < 2 ? ((f->a * x - 5 * f->a) * x + 8 * f->a) * x - 4 * f->a : 0;
}

static double place(const struct filter *f, int64_t at)
{
    double x = (double)at;
    if (f->asymmetric)
        return x / f->scale;
    if (f->align_corners)
        return f->to > 1 ? x * (double)(f->from - 1) / (double)(f->to - 1) : 0;
    return (x + 0.5) / f->scale - 0.5;
}

/* Weights of the inputs for result `at`, into w[k * step]: a filter that is as much wider as the result is smaller. What lies outside counts for
 * the edge, or not at all. */
static void fill_weights(const struct filter *f, int64_t at, float *w, int64_t step)
{
    double x = place(f, at), narrow = fmin(f->scale, 1), sum = 0;
    double reach = (f->cubic ? 2 : 1) / narrow;
    int64_t first = (int64_t)floor(x - reach), last = (int64_t)ceil(x + reach);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = first; i <= last; i++) {
            double each = weigh(f, ((double)i - x) * narrow);
            bool outside = i < 0 || i >= f->from;
            if (outside && f->exclude_outside)
                continue;
            if (pass == 0)
                sum += each;
            else
                w[(i < 0 ? 0 : i >= f->from ? f->from - 1 : i) * step] += (float)(each / sum);
        }
}

/* The product along axis rank - 1 - behind. */
static int resize_axis(struct sy_expand *e, const struct filter *f, int x, int behind)
{
    struct sy_shape shape = {.rank = 2};
    float *w;
    int weights;
    shape.dims[0].fixed = behind ? f->to : f->from;
    shape.dims[1].fixed = behind ? f->from : f->to;
    e->status = sy_graph_alloc((size_t)(f->from * f->to), sizeof *w, &w);
    if (e->status < 0)
        return -1;
    for (int64_t i = 0; i < f->to; i++)
        fill_weights(f, i, w + i * (behind ? f->from : 1), behind ? 1 : f->to);
    e->status = sy_graph_add_constant(e->graph, e->node->name, SY_DTYPE_F32, &shape, w,
                                      (size_t)(f->from * f->to) * sizeof *w, &weights);
    return behind ? SY_EXPAND(e, MATMUL, weights, x) : SY_EXPAND(e, MATMUL, x, weights);
}

/* Scales and sizes of all axes; `n` of each are given, for the axes that the node names. */
static int read_sizes(struct sy_expand *e, const struct sy_tensor *x, double *scales, int64_t *to)
{
    int64_t axes[SY_MAX_RANK], sizes[SY_MAX_RANK];
    int n_axes, n_sizes = -1, axis, rank = x->shape.rank;
    SY_TRY(sy_infer_ints(e->in, e->node, e->node->n_inputs, "axes", SY_MAX_RANK, &n_axes, axes));
    const struct sy_tensor *given = sy_expand_tensor(e, 2);
    bool by_scales = given && sy_shape_elements(&given->shape, 1) > 0;
    if (by_scales && (!given->data || given->dtype != SY_DTYPE_F32))
        return sy_expand_defer(e, "scales that are computed");
    if (!by_scales)
        SY_TRY(sy_infer_ints(e->in, e->node, 3, "sizes", SY_MAX_RANK, &n_sizes, sizes));
    int n = by_scales ? (int)(given->data_bytes / sizeof(float)) : n_sizes;
    if (n != (n_axes >= 0 ? n_axes : rank))
        return sy_expand_fail(e, SY_ECORRUPT, "%d scales or sizes", n);
    for (int d = 0; d < rank; d++) {
        to[d] = x->shape.dims[d].per_batch ? -1 : x->shape.dims[d].fixed;
        scales[d] = 1;
    }
    for (int i = 0; i < n; i++) {
        SY_TRY(sy_infer_axis(e->node, n_axes >= 0 ? axes[i] : i, rank, &axis));
        int64_t from = x->shape.dims[axis].fixed;
        scales[axis] = by_scales ? (double)((const float *)given->data)[i]
                                 : (double)sizes[i] / (double)SY_MAX(from, 1);
        if (axis < rank - 2 &&
            (by_scales ? scales[axis] != 1 : to[axis] >= 0 && sizes[i] != to[axis]))
            return sy_expand_fail(e, SY_EUNSUPPORTED,
                                  "antialias along other axes than the last two");
        if (axis >= rank - 2)
            to[axis] = by_scales ? (int64_t)floorf((float)from * (float)scales[axis]) : sizes[i];
    }
    return SY_OK;
}

static int read_filter(struct sy_expand *e, struct filter *f)
{
    const char *mode = sy_infer_text(e->node, "mode", "nearest"),
               *places = sy_infer_text(e->node, "coordinate_transformation_mode", "half_pixel"),
               *policy = sy_infer_text(e->node, "keep_aspect_ratio_policy", "stretch");
    *f = (struct filter){.cubic = strcmp(mode, "cubic") == 0,
                         .exclude_outside = sy_node_int(e->node, "exclude_outside", 0) != 0,
                         .align_corners = strcmp(places, "align_corners") == 0,
                         .asymmetric = strcmp(places, "asymmetric") == 0,
                         .a = (double)sy_node_float(e->node, "cubic_coeff_a", -0.75f)};
    bool usual = f->align_corners || f->asymmetric || strcmp(places, "half_pixel") == 0 ||
                 strcmp(places, "pytorch_half_pixel") == 0;
    if ((!f->cubic && strcmp(mode, "linear") != 0) || !usual || strcmp(policy, "stretch") != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "antialias with mode %.20s, %.40s, %.20s", mode,
                              places, policy);
    return SY_OK;
}

static int expand_antialias(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    struct filter f;
    double scales[SY_MAX_RANK];
    int64_t to[SY_MAX_RANK];
    if (!x || x->shape.rank < 2 || x->dtype != SY_DTYPE_F32)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "antialias of other than images of float32");
    SY_TRY(read_filter(e, &f));
    SY_TRY(read_sizes(e, x, scales, to));
    int y = sy_expand_input(e, 0), rank = x->shape.rank;
    for (int behind = 0; behind < 2; behind++) {
        int axis = rank - 1 - behind;
        x = sy_expand_tensor(e, 0);
        f.from = x->shape.dims[axis].fixed;
        f.to = to[axis];
        f.scale = scales[axis];
        if (sy_dim_is_expr(x->shape.dims[axis]))
            return sy_expand_defer(e, "antialias of an open size");
        if (x->shape.dims[axis].per_batch != 0 || f.from < 1 || f.to < 1 || !(f.scale > 0) ||
            f.to > MOST_WEIGHTS || f.from > MOST_WEIGHTS / f.to)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "antialias from %lld to %lld",
                                  (long long)f.from, (long long)f.to);
        if (f.from != f.to || f.scale != 1)
            y = resize_axis(e, &f, y, behind);
        SY_TRY(e->status);
    }
    if (y == sy_expand_input(e, 0))
        y = SY_EXPAND(e, IDENTITY, y);
    sy_expand_result(e, 0, y);
    return e->status;
}

const struct sy_expander_line sy_expanders_resize[] = {{SY_OP_RESIZE, expand_antialias}, {0}};

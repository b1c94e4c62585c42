/* DeformConv: each point of the window is sampled at its offset (GridSample), followed by one product with the weights. CenterCropPad. */
#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_POINTS = 1024 };

struct deform {
    struct sy_expand *e;
    enum sy_dtype dtype;
    int64_t channels, results, group, offset_group, points;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int in[2], out[2]; /* heights and widths, one int64 each */
};

static bool is_divided(int64_t n, int64_t by)
{
    return n > 0 && by > 0 && n % by == 0;
}

static int read_channels(struct deform *d)
{
    struct sy_expand *e = d->e;
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *w = sy_expand_tensor(e, 1),
                           *offset = sy_expand_tensor(e, 2);
    if (!x || !w || !offset || x->shape.rank != 4 || w->shape.rank != 4 || offset->shape.rank != 4)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "other operands than of images");
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 1, &d->channels));
    SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 0, &d->results));
    d->group = sy_node_int(e->node, "group", 1);
    d->offset_group = sy_node_int(e->node, "offset_group", 1);
    for (int i = 0; i < 2; i++) {
        SY_TRY(sy_infer_fixed(e->in, e->node, &w->shape, 2 + i, &d->kernel[i]));
        d->stride[i] = sy_node_int_at(e->node, "strides", i, 1);
        d->dilation[i] = sy_node_int_at(e->node, "dilations", i, 1);
        d->pad[i] = sy_node_int_at(e->node, "pads", i, 0);
    }
    d->dtype = x->dtype;
    bool is_window =
        d->kernel[0] > 0 && d->kernel[1] > 0 && d->kernel[0] <= MOST_POINTS / d->kernel[1];
    d->points = is_window ? d->kernel[0] * d->kernel[1] : 0;
    if (!is_window || !is_divided(d->channels, d->group) || !is_divided(d->results, d->group) ||
        !is_divided(d->channels, d->offset_group) ||
        !sy_dim_is(w->shape.dims[1], d->channels / d->group) ||
        !sy_dim_is(offset->shape.dims[1], 2 * d->points * d->offset_group))
        return sy_expand_fail(e, SY_ECORRUPT, "channels, groups or offsets that do not fit");
    return SY_OK;
}

/* After the shapes were read: tensors move when one is added. */
static void read_sizes(struct deform *d)
{
    struct sy_expand *e = d->e;
    for (int i = 0; i < 2; i++) {
        struct sy_dim in = sy_expand_tensor(e, 0)->shape.dims[2 + i],
                      out = sy_expand_tensor(e, 2)->shape.dims[2 + i];
        d->in[i] = sy_expand_size(e, in, sy_expand_input(e, 0), 2 + i);
        d->out[i] = sy_expand_size(e, out, sy_expand_input(e, 2), 2 + i);
    }
}

/* x in the shape of these sizes, one int64 each. */
static int reshape(struct deform *d, int x, const int *sizes, int n)
{
    return SY_EXPAND(d->e, RESHAPE, x, sy_expand_shape(d->e, sizes, n));
}

static int times(struct deform *d, int a, int64_t b)
{
    return SY_EXPAND(d->e, MUL, a, sy_expand_int(d->e, b));
}

static int number(struct deform *d, double value)
{
    return sy_expand_number(d->e, d->dtype, value);
}

/* Sampling positions along `axis` of each point of each window, as GridSample counts: [rows, points, height, width], rows those of offsets. */
static int places(struct deform *d, int offsets, int axis)
{
    struct sy_expand *e = d->e;
    float first[MOST_POINTS];
    int64_t drop = 2, lines[] = {-1, 1};
    for (int64_t k = 0; k < d->points; k++) {
        int64_t at = axis == 0 ? k / d->kernel[1] : k % d->kernel[1];
        first[k] = (float)(at * d->dilation[axis] - d->pad[axis]);
    }
    int own = SY_EXPAND(e, SQUEEZE, sy_expand_slice(e, offsets, 2, axis, axis + 1),
                        sy_expand_ints(e, &drop, 1));
    int begin = sy_expand_reshape(e, sy_expand_floats(e, first, (int)d->points),
                                  (const int64_t[]){d->points, 1, 1}, 3);
    int step =
        sy_expand_cast(e, times(d, sy_expand_count(e, d->out[axis]), d->stride[axis]), d->dtype);
    if (axis == 0)
        step = sy_expand_reshape(e, step, lines, 2);
    int at = SY_EXPAND(e, ADD, SY_EXPAND(e, ADD, own, sy_expand_cast(e, begin, d->dtype)), step);
    int over = SY_EXPAND(e, ADD, SY_EXPAND(e, MUL, at, number(d, 2)), number(d, 1));
    int size = sy_expand_cast(e, d->in[axis], d->dtype);
    return sy_expand_unsqueeze(e, SY_EXPAND(e, SUB, SY_EXPAND(e, DIV, over, size), number(d, 1)),
                               4);
}

/* [images * offset groups, channels of one, points * height, width] */
static int sample(struct deform *d)
{
    struct sy_expand *e = d->e;
    int rest = sy_expand_int(e, -1), two = sy_expand_int(e, 2);
    int points = sy_expand_int(e, d->points);
    int lines = times(d, d->out[0], d->points);
    int offsets = reshape(d, sy_expand_input(e, 2),
                          (const int[]){rest, points, two, d->out[0], d->out[1]}, 5);
    int y = places(d, offsets, 0), x = places(d, offsets, 1);
    int grid =
        reshape(d, sy_expand_join(e, x, y, 4), (const int[]){rest, lines, d->out[1], two}, 4);
    int each = sy_expand_int(e, d->channels / d->offset_group);
    int image = reshape(d, sy_expand_input(e, 0), (const int[]){rest, each, d->in[0], d->in[1]}, 4);
    int sampled = SY_EXPAND(e, GRID_SAMPLE, image, grid);
    sy_expand_set_text(e, "mode", "linear");
    if (sy_expand_input(e, 4) < 0)
        return sampled;
    int mask = reshape(d, sy_expand_input(e, 4),
                       (const int[]){rest, sy_expand_int(e, 1), lines, d->out[1]}, 4);
    return SY_EXPAND(e, MUL, sampled, mask);
}

static int expand_deform(struct sy_expand *e)
{
    struct deform d = {.e = e};
    SY_TRY(read_channels(&d));
    read_sizes(&d);
    int64_t each = d.channels / d.group * d.points;
    int rest = sy_expand_int(e, -1), pixels = SY_EXPAND(e, MUL, d.out[0], d.out[1]);
    int columns =
        reshape(&d, sample(&d),
                (const int[]){rest, sy_expand_int(e, d.group), sy_expand_int(e, each), pixels}, 4);
    int w = sy_expand_reshape(e, sy_expand_input(e, 1),
                              (const int64_t[]){d.group, d.results / d.group, each}, 3);
    int y = reshape(&d, SY_EXPAND(e, MATMUL, w, columns),
                    (const int[]){rest, sy_expand_int(e, d.results), d.out[0], d.out[1]}, 4);
    if (sy_expand_input(e, 3) >= 0)
        y = SY_EXPAND(
            e, ADD, y,
            sy_expand_reshape(e, sy_expand_input(e, 3), (const int64_t[]){d.results, 1, 1}, 3));
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- CenterCropPad ------------------------------------------------------------------------------ */

static int expand_crop(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    const struct sy_attr *axes = sy_node_attr(e->node, "axes");
    int64_t want[SY_MAX_RANK], pads[2 * SY_MAX_RANK] = {0}, have[SY_MAX_RANK];
    int n, rank = x ? x->shape.rank : 0, axis[SY_MAX_RANK], y = sy_expand_input(e, 0);
    SY_TRY(sy_infer_ints(e->in, e->node, 1, "shape", SY_MAX_RANK, &n, want));
    if (n < 0 || n > rank || n != (axes ? axes->n : rank))
        return sy_expand_fail(e, SY_ECORRUPT, "%d sizes for %d dimensions", n, rank);
    for (int i = 0; i < n; i++) {
        SY_TRY(sy_infer_axis(e->node, axes ? axes->ints[i] : i, rank, &axis[i]));
        SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, axis[i], &have[i]));
        if (want[i] < 0)
            return sy_expand_fail(e, SY_EARG, "a size of %lld", (long long)want[i]);
    }
    for (int i = 0; i < n; i++) {
        int64_t first = (have[i] - want[i]) / 2, more = want[i] - have[i];
        if (more < 0)
            y = sy_expand_slice(e, y, axis[i], first, first + want[i]);
        if (more > 0) {
            pads[axis[i]] = more / 2;
            pads[rank + axis[i]] = more - more / 2;
        }
    }
    sy_expand_result(e, 0, SY_EXPAND(e, PAD, y, sy_expand_ints(e, pads, 2 * rank)));
    return e->status;
}

const struct sy_expander_line sy_expanders_deform[] = {
    {SY_OP_DEFORM_CONV, expand_deform}, {SY_OP_CENTER_CROP_PAD, expand_crop}, {0}};

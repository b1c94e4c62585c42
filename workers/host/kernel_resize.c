/* Resize: nearest, linear and cubic in any number of dimensions, one result at a time. */
#include "runtime/base/status.h"
#include "workers/host/kernel.h"

enum { TAPS = 4 };

struct resize {
    const char *mode, *nearest, *place;
    double cubic;
    bool exclude_outside, old;
    double scales[SY_MAX_RANK], roi_start[SY_MAX_RANK], roi_end[SY_MAX_RANK];
};

static const char *text_of(const struct sy_node *node, const char *name, const char *otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_STRING && attr->s ? attr->s : otherwise;
}

/* Which of the scales, sizes and regions is for dimension d: all have one unless the node names axes. -1: none. */
static int index_of_axis(const struct sy_node *node, int d)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    for (int i = 0; axes && axes->kind == SY_ATTR_INTS && i < axes->n; i++)
        if (axes->ints[i] == d)
            return i;
    return axes ? -1 : d;
}

static int count_axes(const struct sy_call *call)
{
    const struct sy_attr *axes = sy_node_attr(call->node, "axes");
    return axes && axes->kind == SY_ATTR_INTS ? axes->n : call->in[0].rank;
}

/* The scale that all dimensions share under a policy that keeps the aspect. */
static double common_scale(const struct sy_call *call, bool larger)
{
    const struct sy_array *x = &call->in[0], *sizes = &call->in[3];
    double scale = larger ? 0 : INFINITY;
    for (int d = 0; d < x->rank; d++) {
        int i = index_of_axis(call->node, d);
        if (i < 0)
            continue;
        double own = (double)sy_get_int(sizes, i) / (double)x->dims[d];
        scale = larger ? fmax(scale, own) : fmin(scale, own);
    }
    return scale;
}

/* Where a policy keeps the aspect, the result's size is rounded from it and the scale is their quotient. */
static int64_t wanted_size(const struct sy_call *call, int d, int i)
{
    const char *policy = text_of(call->node, "keep_aspect_ratio_policy", "stretch");
    if (strcmp(policy, "stretch") == 0)
        return sy_get_int(&call->in[3], i);
    double scale = common_scale(call, strcmp(policy, "not_smaller") == 0);
    return (int64_t)floor(scale * (double)call->in[0].dims[d] + 0.5);
}

/* From scales (input 2 or the attribute), or the quotient of the sizes. */
static int read_scales(const struct sy_call *call, struct resize *r)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *scales = sy_call_in(call, 2),
                          *sizes = sy_call_in(call, 3);
    const struct sy_attr *attr = sy_node_attr(call->node, "scales");
    bool by_sizes = sizes && sizes->n > 0, by_input = !by_sizes && scales && scales->n > 0;
    int n = count_axes(call);
    if ((by_sizes && sizes->n != n) || (by_input && scales->n != n))
        return sy_kernel_fail(call, "other than %d scales or sizes", n);
    for (int d = 0; d < x->rank; d++) {
        int i = index_of_axis(call->node, d);
        r->scales[d] = (double)y->dims[d] / (double)x->dims[d];
        if (i >= 0 && by_sizes && wanted_size(call, d, i) != y->dims[d])
            return sy_kernel_fail(call, "its sizes are not what the file declares");
        if (i >= 0 && by_input)
            r->scales[d] = sy_get(scales, i);
        else if (i >= 0 && !by_sizes && attr && attr->kind == SY_ATTR_FLOATS && i < attr->n)
            r->scales[d] = (double)attr->floats[i];
        if (!by_sizes && floor((double)x->dims[d] * r->scales[d]) != (double)y->dims[d])
            return sy_kernel_fail(call, "its scales are not what the file declares");
    }
    return SY_OK;
}

static int read_resize(const struct sy_call *call, struct resize *r)
{
    const struct sy_node *node = call->node;
    const struct sy_array *roi = sy_call_in(call, 1);
    int rank = call->in[0].rank, n = count_axes(call);
    *r = (struct resize){.mode = text_of(node, "mode", "nearest"),
                         .nearest = text_of(node, "nearest_mode", "round_prefer_floor"),
                         .place = text_of(node, "coordinate_transformation_mode", "half_pixel"),
                         .cubic = (double)sy_node_float(node, "cubic_coeff_a", -0.75f),
                         .exclude_outside = sy_node_int(node, "exclude_outside", 0) != 0,
                         .old = sy_node_int(node, "asymmetric", 0) != 0};
    if (r->old) {
        r->place = "asymmetric";
        r->nearest = "floor";
    }
    for (int d = 0; d < rank; d++) {
        int i = index_of_axis(call->node, d);
        r->roi_end[d] = 1;
        if (roi && i >= 0 && roi->n == 2 * n) {
            r->roi_start[d] = sy_get(roi, i);
            r->roi_end[d] = sy_get(roi, i + n);
        }
    }
    return read_scales(call, r);
}

/* Where position `at` of the result's dimension d lies in the input. */
static double place(const struct resize *r, int d, int64_t at, int64_t n_in, int64_t n_out)
{
    double x = (double)at, scale = r->scales[d];
    if (strcmp(r->place, "asymmetric") == 0)
        return x / scale;
    if (strcmp(r->place, "align_corners") == 0)
        return n_out > 1 ? x * (double)(n_in - 1) / (scale * (double)n_in - 1) : 0;
    if (strcmp(r->place, "pytorch_half_pixel") == 0)
        return n_out > 1 ? (x + 0.5) / scale - 0.5 : 0;
    if (strcmp(r->place, "tf_half_pixel_for_nn") == 0)
        return (x + 0.5) / scale;
    if (strcmp(r->place, "half_pixel_symmetric") == 0) {
        double adjust = (double)n_out / (scale * (double)n_in), center = (double)n_in / 2;
        return center * (1 - adjust) + (x + 0.5) / scale - 0.5;
    }
    if (strcmp(r->place, "tf_crop_and_resize") == 0) {
        double start = r->roi_start[d], end = r->roi_end[d], last = (double)(n_in - 1);
        return n_out > 1 ? start * last + x * (end - start) * last / (double)(n_out - 1)
                         : 0.5 * (start + end) * last;
    }
    return (x + 0.5) / scale - 0.5;
}

static int64_t nearest(const struct resize *r, double x)
{
    if (strcmp(r->nearest, "floor") == 0)
        return (int64_t)floor(x);
    if (strcmp(r->nearest, "ceil") == 0)
        return (int64_t)ceil(x);
    if (strcmp(r->nearest, "round_prefer_ceil") == 0)
        return (int64_t)floor(x + 0.5);
    return (int64_t)ceil(x - 0.5);
}

static void cubic_weights(double a, double t, double *w)
{
    w[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    w[2] = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1;
    w[3] = ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a;
}

/* The input positions that count, clamped to it, and their weights. Returns how many. */
static int find_taps(const struct resize *r, double x, int64_t n, int64_t *at, double *w)
{
    int count = 1;
    int64_t first = (int64_t)floor(x);
    double t = x - (double)first, sum = 0;
    w[0] = 1;
    if (strcmp(r->mode, "nearest") == 0) {
        first = nearest(r, x);
    } else if (strcmp(r->mode, "linear") == 0) {
        count = 2;
        w[0] = 1 - t;
        w[1] = t;
    } else {
        count = TAPS;
        first--;
        cubic_weights(r->cubic, t, w);
    }
    for (int i = 0; i < count; i++) {
        bool outside = first + i < 0 || first + i >= n;
        if (outside && r->exclude_outside)
            w[i] = 0;
        at[i] = first + i < 0 ? 0 : first + i >= n ? n - 1 : first + i;
        sum += w[i];
    }
    for (int i = 0; r->exclude_outside && i < count; i++)
        w[i] /= sum;
    return count;
}

struct taps {
    int count;
    int64_t at[TAPS];
    double weights[TAPS];
};

/* Every choice of one tap a dimension, its weights multiplied. */
static double mix(const struct sy_array *x, const struct taps *taps, const int64_t *strides)
{
    int64_t combinations = 1;
    double sum = 0;
    for (int d = 0; d < x->rank; d++)
        combinations *= taps[d].count;
    for (int64_t k = 0; k < combinations; k++) {
        int64_t left = k, offset = 0;
        double weight = 1;
        for (int d = 0; d < x->rank; d++) {
            int64_t i = left % taps[d].count;
            left /= taps[d].count;
            weight *= taps[d].weights[i];
            offset += taps[d].at[i] * strides[d];
        }
        if (weight != 0)
            sum += weight * sy_get(x, offset);
    }
    return sum;
}

/* Fills in the taps of one result; true if it lies outside the region of tf_crop_and_resize. */
static bool place_taps(const struct resize *r, const struct sy_array *x, const struct sy_array *y,
                       int64_t i, struct taps *taps)
{
    int64_t at[SY_MAX_RANK];
    bool outside = false;
    sy_array_at(y, i, at);
    for (int d = 0; d < x->rank; d++) {
        bool untouched = x->dims[d] == y->dims[d] && r->scales[d] == 1 &&
                         strcmp(r->place, "tf_crop_and_resize") != 0;
        taps[d] = (struct taps){1, {at[d]}, {1}};
        if (untouched)
            continue;
        double from = place(r, d, at[d], x->dims[d], y->dims[d]);
        outside = outside || from < 0 || from > (double)(x->dims[d] - 1);
        taps[d].count = find_taps(r, from, x->dims[d], taps[d].at, taps[d].weights);
    }
    return outside && strcmp(r->place, "tf_crop_and_resize") == 0;
}

static int run_resize(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    double fill = (double)sy_node_float(call->node, "extrapolation_value", 0);
    struct taps taps[SY_MAX_RANK];
    int64_t strides[SY_MAX_RANK];
    struct resize r;
    SY_TRY(read_resize(call, &r));
    sy_array_strides(x, strides);
    for (int64_t i = 0; i < y->n; i++) {
        bool outside = place_taps(&r, x, y, i, taps);
        sy_put(y, i, outside ? fill : mix(x, taps, strides));
    }
    return SY_OK;
}

static bool is_one_of(const char *text, const char *const *list)
{
    while (*list && strcmp(text, *list) != 0)
        list++;
    return *list != NULL;
}

static int check_resize(const struct sy_call *call)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL},
                             *const rounding[] = {"round_prefer_floor", "round_prefer_ceil",
                                                  "floor", "ceil", NULL},
                             *const places[] = {"half_pixel",           "pytorch_half_pixel",
                                                "align_corners",        "asymmetric",
                                                "tf_half_pixel_for_nn", "tf_crop_and_resize",
                                                "half_pixel_symmetric", NULL};
    const struct sy_node *node = call->node;
    if (!is_one_of(text_of(node, "mode", "nearest"), modes) ||
        !is_one_of(text_of(node, "nearest_mode", "floor"), rounding) ||
        !is_one_of(text_of(node, "coordinate_transformation_mode", "half_pixel"), places))
        return sy_kernel_refuse(call, "this mode");
    bool fits = call->in[0].rank == call->out[0].rank && call->in[0].dtype == call->out[0].dtype;
    for (int d = 0; fits && d < call->in[0].rank; d++)
        fits = call->in[0].dims[d] > 0;
    return fits ? SY_OK : sy_kernel_refuse(call, "a result that does not fit");
}

const struct sy_kernel sy_kernels_resize[] = {
    {SY_OP_RESIZE,
     run_resize,
     {SY_ANY_NUMBER, SY_ANY_FLOAT, SY_ANY_FLOAT, SY_ANY_INDEX},
     check_resize,
     NULL},
    {0}};

/* Resize: nearest, linear and cubic in any number of dimensions, by rows of the result. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/resize_rows.h"

enum {
    TAPS = SY_ROW_TAPS,
    MOST_SOURCES = 1 << 14, /* TAPS in each dimension but the last */
    MOST_MIXED = 4096,      /* of a row: its sum fits the stack */
    PARALLEL_FROM = 16384
};

struct resize {
    const char *mode, *nearest, *place;
    double cubic;
    bool exclude_outside, old;
    float scales[SY_MAX_RANK];
    double roi_start[SY_MAX_RANK], roi_end[SY_MAX_RANK];
};

static const char *text_of(const struct sy_node *node, const char *name, const char *otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_STRING && attr->s ? attr->s : otherwise;
}

/* The node's axis that dimension d of the arrays is. */
static int axis_of(const struct sy_call *call, int d)
{
    bool moved = call->channels_last && d > 0;
    return !moved ? d : d + 1 < call->in[0].rank ? d + 1 : 1;
}

/* Which of the scales, sizes and regions is for dimension d: all have one unless the node names axes. -1: none. */
static int index_of_axis(const struct sy_call *call, int d)
{
    const struct sy_attr *axes = sy_node_attr(call->node, "axes");
    d = axis_of(call, d);
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
        int i = index_of_axis(call, d);
        if (i < 0)
            continue;
        double own = (double)sy_get_int(sizes, i) / (double)x->dims[d];
        scale = larger ? fmax(scale, own) : fmin(scale, own);
    }
    return scale;
}

/* If a policy keeps the aspect, it gives the result's size, rounded; the scale is their quotient. */
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
        int i = index_of_axis(call, d);
        r->scales[d] = (float)y->dims[d] / (float)x->dims[d];
        if (i >= 0 && by_sizes && wanted_size(call, d, i) != y->dims[d])
            return sy_kernel_fail(call, "its sizes are not what the file declares");
        if (i >= 0 && by_input)
            r->scales[d] = (float)sy_get(scales, i);
        else if (i >= 0 && !by_sizes && attr && attr->kind == SY_ATTR_FLOATS && i < attr->n)
            r->scales[d] = attr->floats[i];
        if (!by_sizes && floorf((float)x->dims[d] * r->scales[d]) != (float)y->dims[d])
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
        int i = index_of_axis(call, d);
        r->roi_end[d] = 1;
        if (roi && i >= 0 && roi->n == 2 * n) {
            r->roi_start[d] = sy_get(roi, i);
            r->roi_end[d] = sy_get(roi, i + n);
        }
    }
    return read_scales(call, r);
}

/* Coordinate in the input of position `at` of the result's dimension d. In float32: a quotient that is whole but for the scale's own rounding becomes
 * whole, on which the nearest position depends. */
static double place(const struct resize *r, int d, int64_t at, int64_t n_in, int64_t n_out)
{
    float x = (float)at, scale = r->scales[d];
    if (strcmp(r->place, "asymmetric") == 0)
        return (double)(x / scale);
    if (strcmp(r->place, "align_corners") == 0)
        return n_out > 1 ? (double)at * (double)(n_in - 1) / (double)(n_out - 1) : 0;
    if (strcmp(r->place, "pytorch_half_pixel") == 0)
        return n_out > 1 ? (double)((x + 0.5f) / scale - 0.5f) : 0;
    if (strcmp(r->place, "tf_half_pixel_for_nn") == 0)
        return (double)((x + 0.5f) / scale);
    if (strcmp(r->place, "half_pixel_symmetric") == 0) {
        float adjust = (float)n_out / (scale * (float)n_in), center = (float)n_in / 2;
        return (double)(center * (1 - adjust) + (x + 0.5f) / scale - 0.5f);
    }
    if (strcmp(r->place, "tf_crop_and_resize") == 0) {
        float start = (float)r->roi_start[d], end = (float)r->roi_end[d], last = (float)(n_in - 1);
        return n_out > 1 ? (double)(start * last + x * (end - start) * last / (float)(n_out - 1))
                         : 0.5 * (double)(start + end) * (double)last;
    }
    return (double)((x + 0.5f) / scale - 0.5f);
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
    bool outside; /* the region of tf_crop_and_resize */
    int64_t at[TAPS];
    double weights[TAPS];
};

/* Taps of every position of the result's dimension d. */
static void place_taps(const struct resize *r, const struct sy_array *x, const struct sy_array *y,
                       int d, struct taps *taps)
{
    bool crops = strcmp(r->place, "tf_crop_and_resize") == 0;
    bool untouched = x->dims[d] == y->dims[d] && r->scales[d] == 1 && !crops;
    for (int64_t i = 0; i < y->dims[d]; i++) {
        taps[i] = (struct taps){.count = 1, .at = {i}, .weights = {1}};
        if (untouched)
            continue;
        double from = place(r, d, i, x->dims[d], y->dims[d]);
        taps[i].outside = crops && (from < 0 || from > (double)(x->dims[d] - 1));
        int n = find_taps(r, from, x->dims[d], taps[i].at, taps[i].weights);
        taps[i].count = 0;
        for (int k = 0; k < n; k++) { /* what weighs nothing is not read: it may be infinite */
            if (taps[i].weights[k] == 0)
                continue;
            taps[i].at[taps[i].count] = taps[i].at[k];
            taps[i].weights[taps[i].count++] = taps[i].weights[k];
        }
    }
}

struct resizing {
    const struct sy_array *x, *y;
    const struct taps *taps[SY_MAX_RANK];
    int64_t strides[SY_MAX_RANK];
    double fill;
    bool is_copied; /* along the last dimension: one tap each, that weighs 1 */
    bool crops;     /* a tap is outside */
    bool is_whole;  /* and it is the element itself */
    bool by_pixels; /* float32 with channels last, of two taps at most: rows of pixels */
    struct sy_row_taps
        row; /* of float32: the last dimension's once more, or that of the pixels in a row */
};

/* Every choice of one tap in each of the first `n_dims` dimensions, their weights multiplied; -1: the row is outside. */
static int find_sources(const struct resizing *s, int n_dims, int64_t row,
                        struct sy_row_source *out)
{
    int n = 1;
    bool outside = false;
    out[0] = (struct sy_row_source){0, 1};
    for (int d = n_dims - 1; d >= 0; d--) {
        const struct taps *t = &s->taps[d][row % s->y->dims[d]];
        row /= s->y->dims[d];
        outside = outside || t->outside;
        for (int i = t->count - 1; i >= 0; i--)
            for (int k = 0; k < n; k++)
                out[i * n + k] = (struct sy_row_source){out[k].offset + t->at[i] * s->strides[d],
                                                        out[k].weight * t->weights[i]};
        n *= t->count;
    }
    return outside ? -1 : n;
}

/* A row of float32. Sources are summed first where that is less work than every pair of a source and a tap. */
static void mix_floats(const struct resizing *s, const struct sy_row_source *sources, int n,
                       float *to)
{
    const float *from = s->x->data;
    int64_t width = s->x->dims[s->x->rank - 1];
    float mixed[MOST_MIXED];
    if (s->is_whole) {
        sy_row_mix(s->row.length, from, sources, n, to);
    } else if (n == 1 && sources[0].weight == 1) {
        sy_row_spread(&s->row, from + sources[0].offset, to);
    } else if (width <= MOST_MIXED && width <= 2 * s->row.length) {
        sy_row_mix(width, from, sources, n, mixed);
        sy_row_spread(&s->row, mixed, to);
    } else {
        memset(to, 0, (size_t)s->row.length * sizeof *to);
        for (int k = 0; k < n; k++)
            sy_row_spread_add(&s->row, from + sources[k].offset, (float)sources[k].weight, to);
    }
}

/* The region of tf_crop_and_resize. */
static void fill_outside(const struct resizing *s, float *to)
{
    const struct taps *taps = s->taps[s->y->rank - 1];
    for (int64_t i = 0; i < s->row.length; i++)
        to[i] = taps[i].outside ? (float)s->fill : to[i];
}

/* One tap: its value as it is, even an infinite one times 1. */
static void copy_row(const struct resizing *s, int64_t offset, int64_t first)
{
    const struct taps *taps = s->taps[s->y->rank - 1];
    size_t each = sy_dtype_bytes(s->y->dtype);
    if (s->is_whole) {
        memcpy((char *)s->y->data + (size_t)first * each,
               (const char *)s->x->data + (size_t)offset * each,
               (size_t)s->y->dims[s->y->rank - 1] * each);
        return;
    }
    for (int64_t i = 0; i < s->y->dims[s->y->rank - 1]; i++) {
        if (taps[i].outside)
            sy_put(s->y, first + i, s->fill);
        else
            sy_array_copy(s->y, first + i, s->x, offset + taps[i].at[0]);
    }
}

static void mix_any(const struct resizing *s, const struct sy_row_source *sources, int n,
                    int64_t first)
{
    const struct taps *taps = s->taps[s->y->rank - 1];
    for (int64_t i = 0; i < s->y->dims[s->y->rank - 1]; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++)
            for (int t = 0; t < taps[i].count; t++)
                sum += sources[k].weight * taps[i].weights[t] *
                       sy_get(s->x, sources[k].offset + taps[i].at[t]);
        sy_put(s->y, first + i, taps[i].outside ? s->fill : sum);
    }
}

static void look_along_rows(struct resizing *s)
{
    int last = s->y->rank - 1;
    const struct taps *taps = s->taps[last];
    s->is_copied = true;
    s->is_whole = s->x->dims[last] == s->y->dims[last];
    for (int64_t i = 0; i < s->y->dims[last] && s->is_copied; i++) {
        s->is_copied = taps[i].count == 1 && taps[i].weights[0] == 1;
        s->is_whole = s->is_whole && s->is_copied && !taps[i].outside && taps[i].at[0] == i;
    }
}

/* Two lines and two taps at most, and whole pixels. */
static bool goes_by_pixels(const struct resizing *s, bool channels_last)
{
    int rank = s->y->rank;
    if (!channels_last || s->x->dtype != SY_DTYPE_F32 || rank < 3 || rank > 4 || !s->is_whole)
        return false;
    for (int d = 0; d < rank - 1; d++)
        for (int64_t i = 0; i < s->y->dims[d]; i++)
            if (s->taps[d][i].outside ||
                s->taps[d][i].count > (d == rank - 2 || (d == 1 && rank == 4) ? 2 : 1))
                return false;
    return true;
}

/* Taps as sy_row_spread reads them, at `at`: the last dimension's, or of the pixels in a row. None: of other types, and of rows whose places int32
 * does not hold. */
static void lay_out_taps(struct resizing *s, void *at)
{
    int last = s->y->rank - 1 - s->by_pixels;
    int64_t length = s->y->dims[last];
    const struct taps *taps = s->taps[last];
    if (s->x->dtype != SY_DTYPE_F32 || s->x->dims[last] > INT32_MAX)
        return;
    s->row = (struct sy_row_taps){.length = length, .n = 1};
    for (int k = 0; k < TAPS; k++) {
        s->row.at[k] = (int32_t *)at + k * length;
        s->row.weights[k] = (float *)at + (TAPS + k) * length;
    }
    for (int64_t i = 0; i < length; i++) {
        s->row.n = SY_MAX(s->row.n, taps[i].count);
        s->crops = s->crops || taps[i].outside;
        for (int k = 0; k < TAPS; k++) {
            s->row.at[k][i] = k < taps[i].count ? (int32_t)taps[i].at[k] : 0;
            s->row.weights[k][i] = k < taps[i].count ? (float)taps[i].weights[k] : 0;
        }
    }
    sy_row_find_pairs(&s->row);
}

static void resize_row(const struct resizing *s, int64_t row)
{
    struct sy_row_source sources[MOST_SOURCES];
    int64_t length = s->y->dims[s->y->rank - 1], first = row * length;
    int n = find_sources(s, s->y->rank - 1, row, sources);
    for (int64_t i = 0; n < 0 && i < length; i++)
        sy_put(s->y, first + i, s->fill);
    if (n < 0)
        return;
    bool copied = s->is_copied && n == 1 && sources[0].weight == 1;
    if (copied && (s->is_whole || s->row.length == 0)) {
        copy_row(s, sources[0].offset, first);
    } else if (s->row.length > 0) {
        mix_floats(s, sources, n, (float *)s->y->data + first);
        if (s->crops)
            fill_outside(s, (float *)s->y->data + first);
    } else {
        mix_any(s, sources, n, first);
    }
}

static void resize_pixels(const struct resizing *s, int64_t row)
{
    struct sy_row_source lines[2];
    int rank = s->y->rank, n = find_sources(s, rank - 2, row, lines);
    int64_t channels = s->y->dims[rank - 1];
    sy_row_mix_pixels(&s->row, channels, s->x->data, lines, n,
                      (float *)s->y->data + row * s->row.length * channels);
}

static void resize_rows(const struct resizing *s)
{
    int64_t rows = s->y->n / s->y->dims[s->y->rank - 1] / (s->by_pixels ? s->row.length : 1);
#pragma omp parallel for schedule(static) if (s->y->n > PARALLEL_FROM)
    for (int64_t row = 0; row < rows; row++)
        if (s->by_pixels)
            resize_pixels(s, row);
        else
            resize_row(s, row);
}

static int run_resize(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct resizing s = {
        .x = x, .y = y, .fill = (double)sy_node_float(call->node, "extrapolation_value", 0)};
    struct taps *taps = call->scratch;
    struct resize r;
    SY_TRY(read_resize(call, &r));
    sy_array_strides(x, s.strides);
    for (int d = 0; d < x->rank; d++) {
        place_taps(&r, x, y, d, taps);
        s.taps[d] = taps;
        taps += y->dims[d];
    }
    if (y->n == 0)
        return SY_OK;
    if (y->rank == 0) {
        sy_array_copy(y, 0, x, 0);
        return SY_OK;
    }
    look_along_rows(&s);
    s.by_pixels = goes_by_pixels(&s, call->channels_last);
    lay_out_taps(&s, taps);
    s.by_pixels = s.by_pixels && s.row.length > 0;
    resize_rows(&s);
    return SY_OK;
}

static int64_t scratch_resize(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    int64_t n = 1, last = y->rank ? y->dims[y->rank - 1] : 0;
    if (y->rank > 1)
        last = SY_MAX(last, y->dims[y->rank - 2]);
    for (int d = 0; d < y->rank; d++)
        n += y->dims[d];
    return n * (int64_t)sizeof(struct taps) +
           last * TAPS * (int64_t)(sizeof(int32_t) + sizeof(float));
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
     {SY_ANY_NUMBER | SY_LAST_TOO, SY_ANY_FLOAT, SY_ANY_FLOAT, SY_ANY_INDEX},
     check_resize,
     scratch_resize},
    {0}};

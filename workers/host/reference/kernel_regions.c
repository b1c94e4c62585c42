/* RoiAlign and MaxRoiPool: each region by itself, in parallel. RoiAlign of many regions all channels at once, from a copy of the image whose channels lie
 * side by side. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/reference/kernel.h"

enum {
    MOST_SAMPLES = 512,
    /* along a side of a region: kept on the stack */ PARALLEL_FROM = 16384
};

struct region {
    double top, left, bin_height, bin_width;
    int64_t rows, columns; /* samples in each bin */
    bool is_max;           /* of a bin, the largest of its samples; else their mean */
};

static bool takes_largest(const struct sy_node *node)
{
    const struct sy_attr *mode = sy_node_attr(node, "mode");
    return mode && mode->s && strcmp(mode->s, "max") == 0;
}

static struct region region_at(const struct sy_call *call, int64_t i)
{
    const struct sy_node *node = call->node;
    const struct sy_attr *mode = sy_node_attr(node, "coordinate_transformation_mode");
    bool half = mode && mode->s ? strcmp(mode->s, "half_pixel") == 0 : node->opset >= 16;
    double scale = (double)sy_node_float(node, "spatial_scale", 1), shift = half ? 0.5 : 0, v[4];
    for (int k = 0; k < 4; k++)
        v[k] = sy_get(&call->in[1], i * 4 + k) * scale - shift;
    double width = v[2] - v[0], height = v[3] - v[1];
    width = half ? width : fmax(width, 1);
    height = half ? height : fmax(height, 1);
    int64_t ratio = sy_node_int(node, "sampling_ratio", 0);
    struct region r = {v[1],
                       v[0],
                       height / (double)call->out[0].dims[2],
                       width / (double)call->out[0].dims[3],
                       ratio,
                       ratio,
                       takes_largest(node)};
    if (ratio <= 0) { /* regions of absurd size get as many samples as the image has pixels */
        r.rows = (int64_t)fmin(fmax(ceil(r.bin_height), 1), (double)call->in[0].dims[2]);
        r.columns = (int64_t)fmin(fmax(ceil(r.bin_width), 1), (double)call->in[0].dims[3]);
    }
    return r;
}

/* Between two pixels; nothing outside by more than one, the edge within one. */
struct sample {
    int64_t low, high;
    double at_low, at_high;
};

static struct sample sample_at(double v, int64_t n)
{
    if (!(v >= -1 && v <= (double)n))
        return (struct sample){0, 0, 0, 0};
    v = fmin(fmax(v, 0), (double)(n - 1));
    int64_t low = (int64_t)v;
    double past = v - (double)low;
    return (struct sample){low, low + 1 < n ? low + 1 : low, 1 - past, past};
}

/* Sample i of `each` in bin `bin`, from `start`. */
static double place(double start, double size, int64_t bin, int64_t i, int64_t each)
{
    return start + ((double)bin + ((double)i + 0.5) / (double)each) * size;
}

/* The samples of a row of bins, side by side, as long as there is room for them. */
static bool place_all(double start, double size, int64_t bins, int64_t each, int64_t n,
                      struct sample *out)
{
    if (bins * each > MOST_SAMPLES)
        return false;
    for (int64_t i = 0; i < bins * each; i++)
        out[i] = sample_at(place(start, size, i / each, i % each, each), n);
    return true;
}

static double mix(const struct sy_array *x, int64_t base, const struct sample *row,
                  const struct sample *column)
{
    int64_t low = base + row->low * x->dims[3], high = base + row->high * x->dims[3];
    if ((row->at_low == 0 && row->at_high == 0) || (column->at_low == 0 && column->at_high == 0))
        return 0;
    return row->at_low * (column->at_low * sy_get(x, low + column->low) +
                          column->at_high * sy_get(x, low + column->high)) +
           row->at_high * (column->at_low * sy_get(x, high + column->low) +
                           column->at_high * sy_get(x, high + column->high));
}

/* ONNX: the largest of the four pixels, each times its weight; not of what is between them. */
static double largest(const struct sy_array *x, int64_t base, const struct sample *row,
                      const struct sample *column)
{
    int64_t low = base + row->low * x->dims[3], high = base + row->high * x->dims[3];
    return fmax(fmax(row->at_low * column->at_low * sy_get(x, low + column->low),
                     row->at_low * column->at_high * sy_get(x, low + column->high)),
                fmax(row->at_high * column->at_low * sy_get(x, high + column->low),
                     row->at_high * column->at_high * sy_get(x, high + column->high)));
}

/* rows, columns: of the bin; NULL: there are too many to be kept. */
static double bin_of(const struct sy_array *x, const struct region *r, int64_t base, int64_t row,
                     int64_t column, const struct sample *rows, const struct sample *columns)
{
    double sum = 0, most = -INFINITY;
    for (int64_t i = 0; i < r->rows; i++) {
        struct sample y =
            rows ? rows[i] : sample_at(place(r->top, r->bin_height, row, i, r->rows), x->dims[2]);
        for (int64_t k = 0; k < r->columns; k++) {
            struct sample z =
                columns
                    ? columns[k]
                    : sample_at(place(r->left, r->bin_width, column, k, r->columns), x->dims[3]);
            if (r->is_max)
                most = fmax(most, largest(x, base, &y, &z));
            else
                sum += mix(x, base, &y, &z);
        }
    }
    return r->is_max ? most : sum / (double)(r->rows * r->columns);
}

static void align_region(const struct sy_call *call, int64_t i)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct sample rows[MOST_SAMPLES], columns[MOST_SAMPLES];
    struct region r = region_at(call, i);
    int64_t image = sy_get_int(&call->in[2], i), height = y->dims[2], width = y->dims[3],
            at = i * y->dims[1] * height * width;
    bool keeps_rows = place_all(r.top, r.bin_height, height, r.rows, x->dims[2], rows),
         keeps_columns = place_all(r.left, r.bin_width, width, r.columns, x->dims[3], columns);
    for (int64_t c = 0; c < y->dims[1]; c++) {
        int64_t base = (image * x->dims[1] + c) * x->dims[2] * x->dims[3];
        for (int64_t row = 0; row < height; row++)
            for (int64_t column = 0; column < width; column++)
                sy_put(y, at++,
                       bin_of(x, &r, base, row, column, keeps_rows ? rows + row * r.rows : NULL,
                              keeps_columns ? columns + column * r.columns : NULL));
    }
}

/* ---- channels side by side -------------------------------------------------------------------------- */

enum { CHANNELS = 256, BINS = 32, /* of a row, at once: on the stack */ TILE = 16 };

/* Whether copying the image costs little beside the regions' samples. */
static bool is_copied(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    return !takes_largest(call->node) && x->dtype == SY_DTYPE_F32 && x->rank == 4 && y->rank == 4 &&
           y->dims[3] <= BINS && x->dims[1] >= TILE && y->n >= x->n / 8;
}

/* A row of pixels, tile by tile: whole lines of the cache on both sides. */
static void copy_row(const float *from, int64_t plane, int64_t channels, int64_t width, float *to)
{
    for (int64_t c = 0; c < channels; c += TILE)
        for (int64_t w = 0; w < width; w += TILE)
            for (int64_t k = w; k < SY_MIN(w + TILE, width); k++)
                for (int64_t d = c; d < SY_MIN(c + TILE, channels); d++)
                    to[k * channels + d] = from[d * plane + k];
}

static void copy_pixels(const struct sy_array *x, float *to)
{
    int64_t channels = x->dims[1], height = x->dims[2], width = x->dims[3];
#pragma omp parallel for if (x->n > PARALLEL_FROM)
    for (int64_t row = 0; row < x->dims[0] * height; row++)
        copy_row((const float *)x->data + (row / height * channels * height + row % height) * width,
                 height * width, channels, width, to + row * width * channels);
}

SY_CLONES static void add_four(float *to, const float *const *from, const float *weights, int64_t n)
{
    const float *a = from[0], *b = from[1], *c = from[2], *d = from[3];
    float p = weights[0], q = weights[1], r = weights[2], s = weights[3];
    for (int64_t i = 0; i < n; i++)
        to[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i]);
}

/* Adds a sample of `n` channels; pixels: the image's, from the first of these channels. */
static void add_sample(const struct sy_array *x, const float *pixels, const struct sample *row,
                       const struct sample *column, int64_t n, float *to)
{
    int64_t channels = x->dims[1], low = row->low * x->dims[3], high = row->high * x->dims[3];
    if ((row->at_low == 0 && row->at_high == 0) || (column->at_low == 0 && column->at_high == 0))
        return;
    const float *const from[4] = {
        pixels + (low + column->low) * channels, pixels + (low + column->high) * channels,
        pixels + (high + column->low) * channels, pixels + (high + column->high) * channels};
    const float weights[4] = {
        (float)(row->at_low * column->at_low), (float)(row->at_low * column->at_high),
        (float)(row->at_high * column->at_low), (float)(row->at_high * column->at_high)};
    add_four(to, from, weights, n);
}

/* A row of bins of channels [first, first + n). */
static void align_bins(const struct sy_call *call, const struct region *r, const float *pixels,
                       const struct sample *rows, const struct sample *columns, int64_t n,
                       float *out)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    float bins[BINS][CHANNELS], scale = 1.0f / (float)(r->rows * r->columns);
    int64_t width = y->dims[3], plane = y->dims[2] * width;
    for (int64_t bin = 0; bin < width; bin++) {
        for (int64_t c = 0; c < n; c++)
            bins[bin][c] = 0;
        for (int64_t i = 0; i < r->rows; i++)
            for (int64_t k = 0; k < r->columns; k++)
                add_sample(x, pixels, &rows[i], &columns[bin * r->columns + k], n, bins[bin]);
    }
    for (int64_t c = 0; c < n; c++)
        for (int64_t bin = 0; bin < width; bin++)
            out[c * plane + bin] = bins[bin][c] * scale;
}

/* False: too many samples to keep. */
static bool align_channels(const struct sy_call *call, int64_t i, const float *pixels)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct sample rows[MOST_SAMPLES], columns[MOST_SAMPLES];
    struct region r = region_at(call, i);
    int64_t channels = y->dims[1], height = y->dims[2], width = y->dims[3],
            image = sy_get_int(&call->in[2], i);
    if (!place_all(r.top, r.bin_height, height, r.rows, x->dims[2], rows) ||
        !place_all(r.left, r.bin_width, width, r.columns, x->dims[3], columns))
        return false;
    pixels += image * x->dims[1] * x->dims[2] * x->dims[3];
    for (int64_t c = 0; c < channels; c += CHANNELS)
        for (int64_t row = 0; row < height; row++)
            align_bins(call, &r, pixels + c, rows + row * r.rows, columns,
                       SY_MIN(channels - c, CHANNELS),
                       (float *)y->data + ((i * channels + c) * height + row) * width);
    return true;
}

static int64_t scratch_roi_align(const struct sy_call *call)
{
    return is_copied(call) ? call->in[0].n * (int64_t)sizeof(float) : 0;
}

/* ---- the operator ------------------------------------------------------------------------------------ */

static int run_roi_align(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        int64_t image = sy_get_int(&call->in[2], i);
        if (image < 0 || image >= x->dims[0])
            return sy_kernel_fail(call, "image %lld of %lld", (long long)image,
                                  (long long)x->dims[0]);
    }
    float *pixels = is_copied(call) ? call->scratch : NULL;
    if (pixels)
        copy_pixels(x, pixels);
#pragma omp parallel for schedule(dynamic, 4) if (y->n > PARALLEL_FROM)
    for (int64_t i = 0; i < y->dims[0]; i++)
        if (!pixels || !align_channels(call, i, pixels))
            align_region(call, i);
    return SY_OK;
}

static int check_roi_align(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    int64_t ratio = sy_node_int(call->node, "sampling_ratio", 0);
    if (call->n_in != 3 || x->rank != 4 || y->rank != 4 || call->in[1].n != y->dims[0] * 4 ||
        call->in[2].n != y->dims[0] || y->dims[1] != x->dims[1] || x->dims[2] < 1 ||
        x->dims[3] < 1 || ratio > 1024)
        return sy_kernel_refuse(call, "regions that do not fit");
    return SY_OK;
}

/* ---- MaxRoiPool: whole pixels --------------------------------------------------------------------------- */

struct bins {
    float first, size; /* of the region, in pixels; of a bin */
    int64_t n;
};

/* A region's extent along one dimension, in float32: rounding depends on it. */
static struct bins bins_of(const struct sy_call *call, int64_t region, int column, int64_t n)
{
    float scale = sy_node_float(call->node, "spatial_scale", 1);
    float first = roundf((float)sy_get(&call->in[1], region * 5 + column) * scale),
          last = roundf((float)sy_get(&call->in[1], region * 5 + column + 2) * scale);
    return (struct bins){first, fmaxf(last - first + 1, 1) / (float)n, n};
}

/* The pixels [*from, *end) of bin i, those of `extent` that there are. */
static void pixels_of(const struct bins *b, int64_t i, int64_t extent, int64_t *from, int64_t *end)
{
    float low = floorf((float)i * b->size) + b->first,
          high = ceilf((float)(i + 1) * b->size) + b->first;
    *from = (int64_t)fminf(fmaxf(low, 0), (float)extent);
    *end = (int64_t)fminf(fmaxf(high, 0), (float)extent);
}

/* 0 where a bin holds no pixel. */
static double largest_in(const struct sy_array *x, int64_t plane, int64_t top, int64_t bottom,
                         int64_t left, int64_t right)
{
    bool is_empty = top >= bottom || left >= right;
    double most = is_empty ? 0 : -INFINITY;
    for (int64_t h = top; h < bottom; h++)
        for (int64_t w = left; w < right; w++) {
            double v = sy_get(x, (plane * x->dims[2] + h) * x->dims[3] + w);
            most = v > most || isnan(v) ? v : most; /* a NaN stays */
        }
    return most;
}

static void pool_region(const struct sy_call *call, int64_t region)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct bins rows = bins_of(call, region, 2, y->dims[2]),
                columns = bins_of(call, region, 1, y->dims[3]);
    int64_t image = (int64_t)sy_get(&call->in[1], region * 5), top, bottom, left, right;
    for (int64_t i = 0; i < rows.n * columns.n; i++) {
        pixels_of(&rows, i / columns.n, x->dims[2], &top, &bottom);
        pixels_of(&columns, i % columns.n, x->dims[3], &left, &right);
        for (int64_t c = 0; c < x->dims[1]; c++)
            sy_put(y, (region * x->dims[1] + c) * rows.n * columns.n + i,
                   largest_in(x, image * x->dims[1] + c, top, bottom, left, right));
    }
}

static int run_max_roi_pool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        double image = sy_get(&call->in[1], i * 5);
        if (!(image >= 0 && image < (double)x->dims[0]))
            return sy_kernel_fail(call, "image %g of %lld", image, (long long)x->dims[0]);
        for (int k = 1; k < 5; k++)
            if (!isfinite(sy_get(&call->in[1], i * 5 + k)))
                return sy_kernel_fail(call, "a region at %g", sy_get(&call->in[1], i * 5 + k));
    }
#pragma omp parallel for schedule(dynamic, 4) if (y->n > PARALLEL_FROM)
    for (int64_t i = 0; i < y->dims[0]; i++)
        pool_region(call, i);
    return SY_OK;
}

static int check_max_roi_pool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    if (call->n_in != 2 || x->rank != 4 || y->rank != 4 || call->in[1].n != y->dims[0] * 5 ||
        y->dims[1] != x->dims[1])
        return sy_kernel_refuse(call, "regions that do not fit");
    return SY_OK;
}

const struct sy_kernel sy_kernels_regions[] = {
    {SY_OP_ROI_ALIGN,
     run_roi_align,
     {SY_ANY_FLOAT, SY_AS_FIRST, SY_ANY_INDEX},
     check_roi_align,
     scratch_roi_align},
    {SY_OP_MAX_ROI_POOL, run_max_roi_pool, {SY_ANY_FLOAT, SY_AS_FIRST}, check_max_roi_pool, NULL},
    {0}};

/* Samples between places, an element of the result a thread: Resize, GridSample, RoiAlign; MaxRoiPool's whole pixels. */
#include "workers/cuda/kernels/generic_arrays.cuh"

SY_KERNEL_FILE(each_sample)

/* ---- Resize ------------------------------------------------------------------------------------------- */

__device__ static void cubic_weights(double a, double t, double *w)
{
    w[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    w[2] = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1;
    w[3] = ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a;
}

struct resize {
    struct taps {
        int count;
        bool outside;
        int64_t at[4];
        double weights[4];
    };
    __device__ static float scale_of(const each &c, int d)
    {
        int i = c.e.as.resize.axes[d];
        if (!c.e.as.resize.scales_given || i < 0)
            return c.e.as.resize.scales[d];
        float scale = (float)c.get(2, i);
        if (floorf((float)c.array(0).dims[d] * scale) != (float)c.array(GENERIC_OUT).dims[d])
            c.tell(d);
        return scale;
    }
    /* In float32 step by step, the sum too (float64 rounds a sum of two floats to the same): the nearest position depends on what is whole. */
    __device__ static double crop(float x, float start, float end, float last, float steps)
    {
        float first = start * last, way = x * (end - start) * last / steps;
        return (double)(float)((double)first + (double)way);
    }
    /* The input position of position `at` of the result's dimension d; in float32, as on the host. */
    __device__ static double source(const each &c, int d, int64_t at, float scale)
    {
        int64_t n_in = c.array(0).dims[d], n_out = c.array(GENERIC_OUT).dims[d];
        int axis = c.e.as.resize.axes[d], axes = c.e.as.resize.n_axes;
        bool region = c.e.as.resize.has_roi && axis >= 0;
        double start = region ? c.get(1, axis) : 0, end = region ? c.get(1, axis + axes) : 1;
        double last = (double)(n_in - 1);
        float x = (float)at, center = (float)n_in / 2;
        switch (c.e.as.resize.place) {
        case SY_GENERIC_PYTORCH_HALF_PIXEL:
            return n_out > 1 ? (double)((x + 0.5f) / scale - 0.5f) : 0;
        case SY_GENERIC_ALIGN_CORNERS:
            return n_out > 1 ? (double)at * last / (double)(n_out - 1) : 0;
        case SY_GENERIC_ASYMMETRIC:
            return (double)(x / scale);
        case SY_GENERIC_TF_HALF_PIXEL:
            return (double)((x + 0.5f) / scale);
        case SY_GENERIC_TF_CROP:
            return n_out > 1 ? crop(x, (float)start, (float)end, (float)last, (float)(n_out - 1))
                             : 0.5 * (start + end) * last;
        case SY_GENERIC_HALF_PIXEL_SYMMETRIC:
            return (double)(center * (1 - (float)n_out / (scale * (float)n_in)) +
                            (x + 0.5f) / scale - 0.5f);
        default:
            return (double)((x + 0.5f) / scale - 0.5f);
        }
    }
    __device__ static int64_t nearest(const each &c, double x)
    {
        switch (c.e.as.resize.rounding) {
        case SY_GENERIC_HALF_UP:
            return (int64_t)floor(x + 0.5);
        case SY_GENERIC_FLOOR:
            return (int64_t)floor(x);
        case SY_GENERIC_CEIL:
            return (int64_t)ceil(x);
        default:
            return (int64_t)ceil(x - 0.5);
        }
    }
    /* The input positions that count, clamped to it, and their weights. */
    __device__ static void find(const each &c, double x, int64_t n, taps *t)
    {
        int count = 1;
        int64_t first = (int64_t)floor(x);
        double past = x - (double)first, sum = 0, w[4] = {1, 0, 0, 0};
        if (c.e.as.resize.mode == SY_GENERIC_NEAREST) {
            first = nearest(c, x);
        } else if (c.e.as.resize.mode == SY_GENERIC_LINEAR) {
            count = 2;
            w[0] = 1 - past;
            w[1] = past;
        } else {
            count = 4;
            first--;
            cubic_weights(c.e.as.resize.cubic, past, w);
        }
        t->count = 0;
        for (int i = 0; i < count; i++) {
            bool outside = first + i < 0 || first + i >= n;
            w[i] = outside && c.e.as.resize.excludes ? 0 : w[i];
            sum += w[i];
        }
        for (int i = 0; i < count; i++) {
            double weight = c.e.as.resize.excludes ? w[i] / sum : w[i];
            if (weight == 0) /* what weighs nothing is not read: it may be infinite */
                continue;
            t->at[t->count] = first + i < 0 ? 0 : first + i >= n ? n - 1 : first + i;
            t->weights[t->count++] = weight;
        }
    }
    __device__ static taps place(const each &c, int d, int64_t at)
    {
        int64_t n_in = c.array(0).dims[d];
        bool crops = c.e.as.resize.place == SY_GENERIC_TF_CROP;
        float scale = scale_of(c, d);
        taps t = {1, false, {at}, {1}};
        if (n_in == c.array(GENERIC_OUT).dims[d] && scale == 1 && !crops)
            return t;
        double from = source(c, d, at, scale);
        t.outside = crops && (from < 0 || from > (double)(n_in - 1));
        find(c, from, n_in, &t);
        return t;
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        taps t[SY_MAX_RANK];
        int64_t choices = 1, left = i, last = 0;
        bool outside = false;
        double sum = 0, last_weight = 1;
        for (int d = x.rank - 1; d >= 0; d--) {
            t[d] = place(c, d, left % y.dims[d]);
            left /= y.dims[d];
            choices *= t[d].count;
            outside = outside || t[d].outside;
        }
        for (int64_t k = 0; k < choices; k++) {
            int64_t from = 0, which = k;
            double weight = 1;
            for (int d = x.rank - 1; d >= 0; d--) {
                int w = (int)(which % t[d].count);
                which /= t[d].count;
                from += t[d].at[w] * x.strides[d];
                weight *= t[d].weights[w];
            }
            last = from;
            last_weight = weight;
            sum += weight * c.get(0, from);
        }
        if (outside)
            c.put(GENERIC_OUT, i, c.e.as.resize.outside);
        else if (choices == 1 && last_weight == 1) /* as it is, infinite or wide too */
            c.copy(GENERIC_OUT, i, 0, last);
        else
            c.put(GENERIC_OUT, i, sum);
    }
};

/* ---- GridSample --------------------------------------------------------------------------------------- */

struct sample {
    /* Folds v back into [low, high]. */
    __device__ static double reflect(double v, double low, double high)
    {
        double span = high - low;
        if (span <= 0)
            return low;
        v = fabs(v - low);
        double turns = floor(v / span), rest = v - turns * span;
        return fmod(turns, 2.0) == 0 ? low + rest : high - rest;
    }
    /* padding: zeros, border, reflection */
    __device__ static double fold_back(const each &c, double v, int64_t n)
    {
        bool zeros = c.e.as.sample.padding == SY_GENERIC_ZEROS, aligns = c.e.as.sample.aligns;
        if (c.e.as.sample.padding == SY_GENERIC_REFLECTION)
            v = reflect(v, aligns ? 0 : -0.5, aligns ? (double)(n - 1) : (double)n - 0.5);
        return zeros ? fmin(fmax(v, -10.0), (double)n + 10) : fmin(fmax(v, 0.0), (double)(n - 1));
    }
    /* What a point takes along one dimension; weight 0: nothing. */
    struct side {
        int64_t at[4];
        double weights[4];
    };
    __device__ static void find_side(const each &c, double v, int64_t n, side *to)
    {
        int taps = c.e.as.sample.taps;
        if (taps < 4) /* cubic folds each place that it takes instead */
            v = fold_back(c, v, n);
        double first = taps == 1 ? nearbyint(v) : floor(v), *w = to->weights;
        w[0] = 1;
        if (taps == 2) {
            w[1] = v - first;
            w[0] = 1 - w[1];
        } else if (taps == 4) {
            cubic_weights(-0.75, v - first, w);
            first--;
        }
        for (int i = 0; i < taps; i++) {
            double place = fold_back(c, first + i, n);
            bool outside = place < 0 || (int64_t)place >= n;
            to->at[i] = outside ? 0 : (int64_t)place;
            w[i] = outside ? 0 : w[i];
        }
    }
    /* Every choice of one place in each of n dimensions, the last one's first. */
    __device__ static double between(const each &c, int64_t base, const side *sides, int n)
    {
        int taps = c.e.as.sample.taps, choices = 1;
        double sum = 0;
        for (int d = 0; d < n; d++)
            choices *= taps;
        for (int k = 0; k < choices; k++) {
            int64_t at = base, stride = 1;
            double weight = 1;
            for (int d = n - 1, left = k; d >= 0; d--, left /= taps) {
                weight *= sides[d].weights[left % taps];
                at += sides[d].at[left % taps] * stride;
                stride *= c.array(0).dims[d + 2];
            }
            if (weight != 0) /* what weighs nothing is not read: it may be infinite */
                sum += weight * c.get(0, at);
        }
        return sum;
    }
    /* From [-1, 1] to positions. NaN, and what is beyond int64, is the lower edge. */
    __device__ static double denormalise(double v, int64_t n, bool aligns)
    {
        double at = aligns ? (v + 1) / 2 * (double)(n - 1) : ((v + 1) * (double)n - 1) / 2;
        return fabs(at) < 0x1p63 ? at : aligns ? 0 : -0.5;
    }
    /* The grid names its last dimension first. */
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int n = x.rank - 2;
        int64_t outer = c.extent(GENERIC_OUT, 2, y.rank), plane = i / outer;
        int64_t point = (plane / y.dims[1] * outer + i % outer) * n;
        side sides[3];
        for (int d = 0; d < n; d++) {
            int64_t size = x.dims[d + 2];
            double v = denormalise(c.get(1, point + n - 1 - d), size, c.e.as.sample.aligns);
            find_side(c, v, size, &sides[d]);
        }
        c.put(GENERIC_OUT, i, between(c, plane * c.extent(0, 2, x.rank), sides, n));
    }
};

/* ---- RoiAlign ----------------------------------------------------------------------------------------- */

struct region {
    /* Between two pixels; nothing outside by more than one, the edge within one. */
    struct mark {
        int64_t low, high;
        double at_low, at_high;
    };
    __device__ static mark mark_at(double v, int64_t n)
    {
        mark none = {0, 0, 0, 0};
        if (!(v >= -1 && v <= (double)n))
            return none;
        v = fmin(fmax(v, 0.0), (double)(n - 1));
        int64_t low = (int64_t)v;
        double past = v - (double)low;
        mark m = {low, low + 1 < n ? low + 1 : low, 1 - past, past};
        return m;
    }
    __device__ static int64_t samples(const each &c, double bin, int64_t n)
    {
        int64_t ratio = c.e.as.region.samples;
        return ratio > 0 ? ratio : (int64_t)fmin(fmax(ceil(bin), 1.0), (double)n);
    }
    __device__ static double mix(const each &c, int64_t base, const mark &y, const mark &x)
    {
        int64_t low = base + y.low * c.array(0).dims[3], high = base + y.high * c.array(0).dims[3];
        if ((y.at_low == 0 && y.at_high == 0) || (x.at_low == 0 && x.at_high == 0))
            return 0;
        return y.at_low * (x.at_low * c.get(0, low + x.low) + x.at_high * c.get(0, low + x.high)) +
               y.at_high *
                   (x.at_low * c.get(0, high + x.low) + x.at_high * c.get(0, high + x.high));
    }
    __device__ static double largest(const each &c, int64_t base, const mark &y, const mark &x)
    {
        int64_t low = base + y.low * c.array(0).dims[3], high = base + y.high * c.array(0).dims[3];
        return fmax(fmax(y.at_low * x.at_low * c.get(0, low + x.low),
                         y.at_low * x.at_high * c.get(0, low + x.high)),
                    fmax(y.at_high * x.at_low * c.get(0, high + x.low),
                         y.at_high * x.at_high * c.get(0, high + x.high)));
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int64_t column = i % y.dims[3], row = i / y.dims[3] % y.dims[2],
                channel = i / y.dims[3] / y.dims[2] % y.dims[1], which = i / (y.n / y.dims[0]);
        bool half = c.e.as.region.is_half;
        double shift = half ? 0.5 : 0, v[4], sum = 0, most = -INFINITY;
        for (int k = 0; k < 4; k++)
            v[k] = c.get(1, which * 4 + k) * c.e.as.region.scale - shift;
        double width = half ? v[2] - v[0] : fmax(v[2] - v[0], 1.0),
               height = half ? v[3] - v[1] : fmax(v[3] - v[1], 1.0);
        double bin_height = height / (double)y.dims[2], bin_width = width / (double)y.dims[3];
        int64_t rows = samples(c, bin_height, x.dims[2]),
                columns = samples(c, bin_width, x.dims[3]);
        int64_t image = c.get_int(2, which);
        if (image < 0 || image >= x.dims[0]) {
            c.tell(image);
            image = 0;
        }
        int64_t base = (image * x.dims[1] + channel) * x.dims[2] * x.dims[3];
        for (int64_t r = 0; r < rows; r++) {
            mark at_row = mark_at(
                v[1] + ((double)row + ((double)r + 0.5) / (double)rows) * bin_height, x.dims[2]);
            for (int64_t k = 0; k < columns; k++) {
                mark at_column = mark_at(
                    v[0] + ((double)column + ((double)k + 0.5) / (double)columns) * bin_width,
                    x.dims[3]);
                if (c.e.as.region.is_max)
                    most = fmax(most, largest(c, base, at_row, at_column));
                else
                    sum += mix(c, base, at_row, at_column);
            }
        }
        c.put(GENERIC_OUT, i, c.e.as.region.is_max ? most : sum / (double)(rows * columns));
    }
};

/* ---- MaxRoiPool --------------------------------------------------------------------------------------- */

struct pixel_region {
    struct span {
        int64_t from, end;
    };
    /* The pixels of bin `at` of n, between columns k and k + 2 of region `which`; in float32 as the host has it. */
    __device__ static span bin(const each &c, int64_t which, int k, int64_t at, int64_t n,
                               int64_t extent)
    {
        double ends[2];
        for (int i = 0; i < 2; i++) {
            ends[i] = c.get(1, which * 5 + k + 2 * i);
            if (!isfinite(ends[i])) {
                c.tell(which);
                ends[i] = 0;
            }
        }
        float first = roundf((float)ends[0] * c.e.as.pixel_region.scale),
              last = roundf((float)ends[1] * c.e.as.pixel_region.scale);
        float size = fmaxf(last - first + 1, 1) / (float)n;
        float low = floorf((float)at * size) + first, high = ceilf((float)(at + 1) * size) + first;
        span s = {(int64_t)fminf(fmaxf(low, 0), (float)extent),
                  (int64_t)fminf(fmaxf(high, 0), (float)extent)};
        return s;
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int64_t column = i % y.dims[3], row = i / y.dims[3] % y.dims[2],
                channel = i / y.dims[3] / y.dims[2] % y.dims[1], which = i / (y.n / y.dims[0]);
        span rows = bin(c, which, 2, row, y.dims[2], x.dims[2]),
             columns = bin(c, which, 1, column, y.dims[3], x.dims[3]);
        double image = c.get(1, which * 5);
        if (!(image >= 0 && image < (double)x.dims[0])) {
            c.tell(isfinite(image) ? (int64_t)image : -1);
            image = 0;
        }
        int64_t base = ((int64_t)image * x.dims[1] + channel) * x.dims[2] * x.dims[3];
        bool is_empty = rows.from >= rows.end || columns.from >= columns.end;
        double most = is_empty ? 0 : -INFINITY;
        for (int64_t h = rows.from; h < rows.end; h++)
            for (int64_t w = columns.from; w < columns.end; w++) {
                double v = c.get(0, base + h * x.dims[3] + w);
                most = v > most || isnan(v) ? v : most; /* a NaN stays */
            }
        c.put(GENERIC_OUT, i, most);
    }
};

int sy_kernel_each_sample(struct CUstream_st *stream, const struct sy_math_generic *e, void *const *at,
                          struct sy_math_fault *fault)
{
    switch (e->kind) {
    case SY_GENERIC_RESIZE:
        return generic_launch<resize>(stream, e, at, fault);
    case SY_GENERIC_SAMPLE:
        return generic_launch<sample>(stream, e, at, fault);
    case SY_GENERIC_REGION:
        return generic_launch<region>(stream, e, at, fault);
    case SY_GENERIC_PIXEL_REGION:
        return generic_launch<pixel_region>(stream, e, at, fault);
    default:
        return -1;
    }
}

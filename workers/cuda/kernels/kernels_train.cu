/* Training: gradients of convolutions and pools, sums over columns, losses, optimizers. No atomics: equal bits each time. */
#include "workers/cuda/kernels/kernel_common.cuh"

SY_KERNEL_FILE(train)

/* ---- convolutions, where cuDNN has nothing ------------------------------------------------------------ */

/* One element of dx a thread. */
template <typename T>
__global__ static void conv_data(const __grid_constant__ sy_math_conv c, const T *dy, const T *w,
                                 T *dx, int64_t n)
{
    int64_t ins = c.in_channels / c.groups, outs = c.out_channels / c.groups;
    int64_t area = c.kernel[0] * c.kernel[1] * c.kernel[2];
    SY_GENERIC (i, n) {
        int64_t channel = i % c.in_channels, k = i / c.in_channels;
        int64_t i2 = k % c.in[2], i1 = k / c.in[2] % c.in[1], i0 = k / c.in[2] / c.in[1] % c.in[0];
        int64_t sample = k / c.in[2] / c.in[1] / c.in[0], first = channel / ins * outs;
        float sum = 0;
        for (int64_t e = 0; e < area; e++) {
            int64_t o0 = sy_reader(c, 0, i0, e / c.kernel[2] / c.kernel[1]);
            int64_t o1 = sy_reader(c, 1, i1, e / c.kernel[2] % c.kernel[1]);
            int64_t o2 = sy_reader(c, 2, i2, e % c.kernel[2]);
            if (o0 < 0 || o1 < 0 || o2 < 0)
                continue;
            const T *from =
                dy + (((sample * c.out[0] + o0) * c.out[1] + o1) * c.out[2] + o2) * c.out_channels +
                first;
            for (int64_t o = 0; o < outs; o++)
                sum +=
                    sy_wide(from[o]) * sy_wide(w[((first + o) * area + e) * ins + channel % ins]);
        }
        dx[i] = sy_store<T>::of(sum);
    }
}

/* One element of dw a block: [out, kernel..., in / groups]. */
template <typename T>
__global__ static void conv_weights(const __grid_constant__ sy_math_conv c, const T *x, const T *dy,
                                    T *dw, int64_t n)
{
    int64_t ins = c.in_channels / c.groups, outs = c.out_channels / c.groups;
    int64_t area = c.kernel[0] * c.kernel[1] * c.kernel[2];
    int64_t rows = c.batch * c.out[0] * c.out[1] * c.out[2];
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        int64_t e = i / ins % area, out = i / ins / area;
        int64_t channel = out / outs * ins + i % ins;
        int64_t k0 = e / c.kernel[2] / c.kernel[1], k1 = e / c.kernel[2] % c.kernel[1],
                k2 = e % c.kernel[2];
        double sum = 0;
        for (int64_t r = threadIdx.x; r < rows; r += SY_KERNEL_THREADS) {
            int64_t a =
                r / c.out[2] / c.out[1] % c.out[0] * c.strides[0] - c.pads[0] + k0 * c.dilations[0];
            int64_t b = r / c.out[2] % c.out[1] * c.strides[1] - c.pads[1] + k1 * c.dilations[1];
            int64_t d = r % c.out[2] * c.strides[2] - c.pads[2] + k2 * c.dilations[2];
            if (a < 0 || b < 0 || d < 0 || a >= c.in[0] || b >= c.in[1] || d >= c.in[2])
                continue;
            int64_t sample = r / c.out[2] / c.out[1] / c.out[0];
            int64_t at = ((sample * c.in[0] + a) * c.in[1] + b) * c.in[2] + d;
            sum += (double)sy_wide(x[at * c.in_channels + channel]) *
                   sy_wide(dy[r * c.out_channels + out]);
        }
        sum = sy_block_reduce<sy_add>(sum);
        if (threadIdx.x == 0)
            dw[i] = sy_store<T>::of((float)sum);
    }
}

int sy_kernel_conv_gradient(struct CUstream_st *stream, const struct sy_math_conv *c, const void *a,
                            const void *b, void *y)
{
    int64_t inputs = c->batch * c->in_channels * c->in[0] * c->in[1] * c->in[2];
    int64_t weights =
        c->out_channels * (c->in_channels / c->groups) * c->kernel[0] * c->kernel[1] * c->kernel[2];
    if (inputs == 0 || weights == 0)
        return 0;
    if (c->direction == SY_MATH_DATA)
        SY_WITH_FLOAT(c->type, T,
                      return sy_launch(conv_data<T>, sy_blocks(inputs), stream, *c, (const T *)a,
                                       (const T *)b, (T *)y, inputs));
    else
        SY_WITH_FLOAT(c->type, T,
                      return sy_launch(conv_weights<T>, sy_row_blocks(weights), stream, *c,
                                       (const T *)a, (const T *)b, (T *)y, weights));
}

/* ---- columns ------------------------------------------------------------------------------------------ */

#define TILE  32 /* columns a block; its lines of threads walk the rows of the block's part */
#define LINES (SY_KERNEL_THREADS / TILE)

/* Line 0 gets the sums of all lines, in their order, and true. */
__device__ static bool add_lines(int lane, int line, double *first, double *second)
{
    SY_SHARED(double, room, [2][LINES][TILE]);
    room[0][line][lane] = *first;
    room[1][line][lane] = *second;
    __syncthreads();
    for (int l = 1; l < LINES && line == 0; l++) {
        *first += room[0][l][lane];
        *second += room[1][l][lane];
    }
    return line == 0;
}

/* What one element adds to the two sums. */
__device__ static void column_terms(const sy_math_columns &c, float a, float x, float mean,
                                    float rate, double *first, double *second)
{
    *first += a;
    if (c.kind == SY_COLUMNS_MOMENTS)
        *second += (double)a * a;
    else if (c.kind == SY_COLUMNS_NORM)
        *second += (double)a * ((x - mean) * rate);
}

/* partial[2][parts][columns]. Part p takes rows p, p + parts, ... in steps of 8 threads. */
template <typename A, typename X>
__global__ static void column_parts(const __grid_constant__ sy_math_columns c, const A *a,
                                    const X *x, const float *moments, double *partial,
                                    int64_t parts)
{
    int lane = threadIdx.x % TILE, line = threadIdx.x / TILE, lines = LINES;
    int64_t column = (int64_t)blockIdx.x * TILE + lane, part = blockIdx.y;
    double first = 0, second = 0;
    if (column < c.columns) {
        bool norm = c.kind == SY_COLUMNS_NORM;
        float mean = norm ? moments[column] : 0;
        float rate = norm ? 1 / sqrtf(moments[c.columns + column] + c.epsilon) : 0;
        for (int64_t r = part * lines + line; r < c.rows; r += parts * lines)
            column_terms(c, sy_wide(a[r * c.columns + column]),
                         norm ? sy_wide(x[r * c.columns + column]) : 0, mean, rate, &first,
                         &second);
    }
    if (!add_lines(lane, line, &first, &second) || column >= c.columns)
        return;
    partial[part * c.columns + column] = first;
    partial[(parts + part) * c.columns + column] = second;
}

/* The parts of a tile of columns, each line of threads its own, then the lines: one order. */
__global__ static void column_ends(const __grid_constant__ sy_math_columns c, const double *partial,
                                   float *out, int64_t parts)
{
    int lane = threadIdx.x % TILE, line = threadIdx.x / TILE, lines = LINES;
    int64_t column = (int64_t)blockIdx.x * TILE + lane;
    double first = 0, second = 0;
    for (int64_t p = line; column < c.columns && p < parts; p += lines) {
        first += partial[p * c.columns + column];
        second += partial[(parts + p) * c.columns + column];
    }
    if (!add_lines(lane, line, &first, &second) || column >= c.columns)
        return;
    if (c.kind == SY_COLUMNS_MOMENTS) {
        first /= (double)c.rows;
        second = second / (double)c.rows - first * first;
        second = second > 0 ? second : 0; /* rounding */
    }
    out[column] = (float)first;
    if (c.kind != SY_COLUMNS_SUM)
        out[c.columns + column] = (float)second;
}

int sy_kernel_columns(struct CUstream_st *stream, const struct sy_math_columns *c, const void *a,
                      const void *x, const void *moments, void *out, void *scratch,
                      uint64_t scratch_bytes)
{
    if (c->columns == 0)
        return 0;
    int64_t tiles = (c->columns + TILE - 1) / TILE;
    int64_t room = (int64_t)(scratch_bytes / (2 * sizeof(double)) / (uint64_t)c->columns);
    int64_t parts = (c->rows + 127) / 128, wanted = 1024 / tiles + 1;
    parts = parts < wanted ? parts : wanted;
    parts = parts < room ? parts : room;
    if (parts < 1 || tiles > 0x7fffffff)
        return c->rows == 0 ? 0 : (int)cudaErrorInvalidValue;
    parts = parts < 65535 ? parts : 65535;
    int error = 0;
    SY_WITH_FLOAT(
        c->a_type, A,
        SY_WITH_FLOAT(c->x_type, X,
                      error = sy_launch(column_parts<A, X>, dim3((unsigned)tiles, (unsigned)parts),
                                        stream, *c, (const A *)a, (const X *)x,
                                        (const float *)moments, (double *)scratch, parts)));
    return error ? error
                 : sy_launch(column_ends, (unsigned)tiles, stream, *c, (const double *)scratch,
                             (float *)out, parts);
}

template <typename A, typename X>
__global__ static void norm_gradient(const __grid_constant__ sy_math_columns c, const A *dy,
                                     const X *x, const float *moments, const float *sums,
                                     const float *scale, X *dx, int64_t n)
{
    float share = 1 / (float)c.rows;
    SY_GENERIC (i, n) {
        int64_t column =
            n < SY_KERNEL_WIDE ? (int64_t)((uint32_t)i % (uint32_t)c.columns) : i % c.columns;
        float rate = 1 / sqrtf(moments[c.columns + column] + c.epsilon);
        float unit = (sy_wide(x[i]) - moments[column]) * rate;
        dx[i] = sy_store<X>::of(
            scale[column] * rate *
            (sy_wide(dy[i]) - share * (sums[column] + unit * sums[c.columns + column])));
    }
}

int sy_kernel_norm_gradient(struct CUstream_st *stream, const struct sy_math_columns *c,
                            const void *dy, const void *x, const void *moments, const void *sums,
                            const void *scale, void *dx)
{
    int64_t n = c->rows * c->columns;
    if (n == 0)
        return 0;
    SY_WITH_FLOAT(
        c->a_type, A,
        SY_WITH_FLOAT(c->x_type, X,
                      return sy_launch(norm_gradient<A, X>, sy_blocks(n), stream, *c, (const A *)dy,
                                       (const X *)x, (const float *)moments, (const float *)sums,
                                       (const float *)scale, (X *)dx, n)));
}

/* ---- pools -------------------------------------------------------------------------------------------- */

/* N: 32 bits where they do, since division by 64 is slow and there is much of it. */
template <typename N> struct pool_sizes {
    N channels, in[3], out[3], kernel[3], strides[3], dilations[3], pads[3];
};

template <typename N> struct pool_window {
    N first[3], end[3]; /* of window elements inside the input */
    N start[3];
};

template <typename N>
__device__ static pool_window<N> window_at(const pool_sizes<N> &p, const N *o)
{
    pool_window<N> w;
    for (int d = 0; d < 3; d++) {
        N start = o[d] * p.strides[d] - p.pads[d], dilation = p.dilations[d];
        N room = p.in[d] - start, most = room <= 0 ? 0 : (room + dilation - 1) / dilation;
        w.start[d] = start;
        w.first[d] = start < 0 ? (-start + dilation - 1) / dilation : 0;
        w.end[d] = most < p.kernel[d] ? most : p.kernel[d];
    }
    return w;
}

/* The window that has input `in` as its element k; -1: none. */
template <typename N> __device__ static N reader_of(const pool_sizes<N> &p, int d, N in, N k)
{
    N at = in + p.pads[d] - k * p.dilations[d], o = at / p.strides[d];
    return at < 0 || o * p.strides[d] != at || o >= p.out[d] ? -1 : o;
}

/* Whether input `in` is the first of the largest in the window. NaN is never larger, as forward. */
template <typename T, typename N>
__device__ static bool is_first_largest(const pool_sizes<N> &p, const int64_t *strides, const T *x,
                                        const pool_window<N> &w, const N *in)
{
    float largest = -INFINITY;
    N best[3] = {-1, -1, -1};
    for (N a = w.first[0]; a < w.end[0]; a++)
        for (N b = w.first[1]; b < w.end[1]; b++)
            for (N c = w.first[2]; c < w.end[2]; c++) {
                N at[3] = {w.start[0] + a * p.dilations[0], w.start[1] + b * p.dilations[1],
                           w.start[2] + c * p.dilations[2]};
                float v = sy_wide(x[at[0] * strides[2] + at[1] * strides[3] + at[2] * strides[4]]);
                if (best[0] < 0 || v > largest || (v != v && largest == largest)) {
                    largest = v;
                    best[0] = at[0];
                    best[1] = at[1];
                    best[2] = at[2];
                }
            }
    return best[0] == in[0] && best[1] == in[1] && best[2] == in[2];
}

/* The share of output `o`'s gradient g that goes to `in`, an input of its window. */
template <typename T, typename N>
__device__ static float pool_share(const sy_math_pool &p, const pool_sizes<N> &sizes, const T *x,
                                   float g, const N *o, const N *in)
{
    pool_window<N> w = window_at(sizes, o);
    if (p.max)
        return is_first_largest(sizes, p.in_strides, x, w, in) ? g : 0;
    int64_t n = 1;
    for (int d = 0; d < 3; d++)
        n *= p.count_padding ? sizes.kernel[d] : w.end[d] - w.first[d];
    return g / (float)n;
}

/* The sum of the shares of all windows that contain input `in`. */
template <typename T, typename N>
__device__ static float pool_gain(const sy_math_pool &p, const pool_sizes<N> &sizes, const T *x,
                                  const T *dy, const N *in)
{
    float sum = 0;
    N o[3];
    for (N a = 0; a < sizes.kernel[0]; a++) {
        if ((o[0] = reader_of(sizes, 0, in[0], a)) < 0)
            continue;
        for (N b = 0; b < sizes.kernel[1]; b++) {
            if ((o[1] = reader_of(sizes, 1, in[1], b)) < 0)
                continue;
            for (N c = 0; c < sizes.kernel[2]; c++) {
                if ((o[2] = reader_of(sizes, 2, in[2], c)) < 0)
                    continue;
                float g = sy_wide(dy[o[0] * p.out_strides[2] + o[1] * p.out_strides[3] +
                                     o[2] * p.out_strides[4]]);
                sum += pool_share(p, sizes, x, g, o, in);
            }
        }
    }
    return sum;
}

template <typename T, typename N>
__global__ static void pool_gradient(const __grid_constant__ sy_math_pool p,
                                     const __grid_constant__ pool_sizes<N> sizes, const T *x,
                                     const T *dy, T *dx, int64_t n)
{
    bool last = p.in_strides[1] == 1 && p.channels > 1;
    N area = sizes.in[0] * sizes.in[1] * sizes.in[2], channels = sizes.channels;
    SY_GENERIC (i, n) {
        N outer = (N)i / (last ? channels : area), inner = (N)i - outer * (last ? channels : area);
        N channel = last ? inner : outer % channels, k = last ? outer % area : inner;
        N sample = outer / (last ? area : channels), line = k / sizes.in[2];
        N in[3] = {line / sizes.in[1], line % sizes.in[1], k - line * sizes.in[2]};
        int64_t from = sample * p.in_strides[0] + channel * p.in_strides[1];
        float sum = pool_gain(p, sizes, x + from,
                              dy + sample * p.out_strides[0] + channel * p.out_strides[1], in);
        dx[from + in[0] * p.in_strides[2] + in[1] * p.in_strides[3] + in[2] * p.in_strides[4]] =
            sy_store<T>::of(sum);
    }
}

#define NARROW_MOST (1 << 14) /* of each size: products of two of them are summed */

/* False: a size is too large for N. */
template <typename N>
static bool take_sizes(const sy_math_pool &p, int64_t most, pool_sizes<N> *out)
{
    bool fits = true;
    out->channels = (N)p.channels;
    for (int d = 0; d < 3; d++) {
        const int64_t from[] = {p.in[d],      p.out[d],       p.kernel[d],
                                p.strides[d], p.dilations[d], p.pads[d]};
        N *const to[] = {&out->in[d],      &out->out[d],       &out->kernel[d],
                         &out->strides[d], &out->dilations[d], &out->pads[d]};
        for (int k = 0; k < 6; k++) {
            fits = fits && from[k] <= most && from[k] >= -most;
            *to[k] = (N)from[k];
        }
    }
    return fits;
}

template <typename N>
static int launch_pool_gradient(cudaStream_t stream, const sy_math_pool &p,
                                const pool_sizes<N> &sizes, const void *x, const void *dy, void *dx,
                                int64_t n)
{
    SY_WITH_FLOAT(p.type, T,
                  return sy_launch(pool_gradient<T, N>, sy_blocks(n), stream, p, sizes,
                                   (const T *)x, (const T *)dy, (T *)dx, n));
}

int sy_kernel_pool_gradient(struct CUstream_st *stream, const struct sy_math_pool *p, const void *x,
                            const void *dy, void *dx)
{
    int64_t n = p->batch * p->channels * p->in[0] * p->in[1] * p->in[2];
    pool_sizes<int32_t> narrow;
    pool_sizes<int64_t> wide;
    if (n == 0)
        return 0;
    if (take_sizes(*p, NARROW_MOST, &narrow) && n < SY_KERNEL_WIDE)
        return launch_pool_gradient(stream, *p, narrow, x, dy, dx, n);
    take_sizes(*p, INT64_MAX, &wide);
    return launch_pool_gradient(stream, *p, wide, x, dy, dx, n);
}

/* ---- losses ------------------------------------------------------------------------------------------- */

/* A row a block. In double: exp must not overflow, and rows are short. A row without a label gives nothing. */
__global__ static void cross_entropy(const __grid_constant__ sy_math_loss l, const float *x,
                                     const int32_t *labels, float *diff, double *losses)
{
    for (int64_t row = blockIdx.x; row < l.rows; row += gridDim.x) {
        const float *from = x + row * l.columns;
        int label = labels[row];
        float largest = -INFINITY;
        for (int64_t i = threadIdx.x; i < l.columns; i += SY_KERNEL_THREADS)
            largest = sy_larger::of(largest, from[i]);
        double top = sy_block_reduce<sy_larger>(largest), sum = 0;
        for (int64_t i = threadIdx.x; i < l.columns; i += SY_KERNEL_THREADS)
            sum += exp((double)from[i] - top);
        sum = sy_block_reduce<sy_add>(sum);
        for (int64_t i = threadIdx.x; i < l.columns; i += SY_KERNEL_THREADS) {
            double d = exp((double)from[i] - top) / sum - (i == label ? 1.0 : 0.0);
            diff[row * l.columns + i] = label < 0 ? 0.0f : (float)(d / (double)l.counted);
        }
        if (threadIdx.x == 0)
            losses[row] = label < 0 ? 0.0 : log(sum) + top - (double)from[label];
    }
}

/* log(1 + exp(-|x|)) + max(x, 0) - x * wanted, which does not overflow. */
__device__ static double logit_loss(double x, double wanted, double *slope)
{
    double small = exp(-fabs(x));
    *slope = (x > 0 ? 1 / (1 + small) : small / (1 + small)) - wanted;
    return log1p(small) + (x > 0 ? x : 0) - x * wanted;
}

/* Squares, or the binary cross entropy of logits: the sum of a row. */
__global__ static void element_losses(const __grid_constant__ sy_math_loss l, const float *x,
                                      const float *wanted, float *diff, double *losses)
{
    double all = (double)l.rows * (double)l.columns;
    for (int64_t row = blockIdx.x; row < l.rows; row += gridDim.x) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < l.columns; i += SY_KERNEL_THREADS) {
            int64_t at = row * l.columns + i;
            double d = (double)x[at] - (double)wanted[at], slope = 2 * d;
            sum += l.kind == sy_math_loss::SY_MATH_LOGITS
                       ? logit_loss((double)x[at], (double)wanted[at], &slope)
                       : d * d;
            diff[at] = (float)(slope / all);
        }
        sum = sy_block_reduce<sy_add>(sum);
        if (threadIdx.x == 0)
            losses[row] = sum;
    }
}

__global__ static void sum_of_rows(const double *losses, int64_t rows, double divisor, float *out)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += SY_KERNEL_THREADS)
        sum += losses[i];
    sum = sy_block_reduce<sy_add>(sum);
    if (threadIdx.x == 0)
        *out = (float)(sum / divisor);
}

int sy_kernel_loss(struct CUstream_st *stream, const struct sy_math_loss *l, const void *x,
                   const void *wanted, void *diff, void *out, void *scratch)
{
    bool classes = l->kind == sy_math_loss::SY_MATH_CLASSES;
    if (l->rows * l->columns == 0)
        return 0;
    int error;
    if (classes)
        error = sy_launch(cross_entropy, sy_row_blocks(l->rows), stream, *l, (const float *)x,
                          (const int32_t *)wanted, (float *)diff, (double *)scratch);
    else
        error = sy_launch(element_losses, sy_row_blocks(l->rows), stream, *l, (const float *)x,
                          (const float *)wanted, (float *)diff, (double *)scratch);
    if (error)
        return error;
    return sy_launch(sum_of_rows, 1, stream, (const double *)scratch, l->rows,
                     classes ? (double)l->counted : (double)l->rows * (double)l->columns,
                     (float *)out);
}

/* ---- optimizers --------------------------------------------------------------------------------------- */

/* Of the gradient: the mean over phases, and clipping. False: its norm is not finite, and nothing changes. */
__device__ static bool gradient_scale(const sy_math_update &u, const double *norm_square,
                                      float *scale)
{
    double norm = sqrt(*norm_square) * u.mean;
    *scale = (float)(u.limit > 0 && norm > u.limit ? u.mean * u.limit / (norm + 1e-6) : u.mean);
    return isfinite(*norm_square);
}

__global__ static void follow_kernel(const __grid_constant__ sy_math_update u, float *w,
                                     const float *g)
{
    SY_GENERIC (i, u.n)
        w[i] = u.kind == sy_math_update::SY_UPDATE_SUM ? w[i] + g[i]
                                                       : u.rule.momentum * w[i] + u.rule.rest1 * g[i];
}

__global__ static void update_kernel(const __grid_constant__ sy_math_update u, float *w,
                                     const float *g, float *m, float *v, const double *norm_square)
{
    float scale;
    if (!gradient_scale(u, norm_square, &scale))
        return;
    SY_GENERIC (i, u.n) {
        float d = g[i] * scale + u.rule.decay * w[i];
        switch (u.kind) {
        case sy_math_update::SY_UPDATE_SGD:
            w[i] -= u.rule.rate * d;
            break;
        case sy_math_update::SY_UPDATE_MOMENTUM:
            m[i] = u.rule.momentum * m[i] + d;
            w[i] -= u.rule.rate * m[i];
            break;
        case sy_math_update::SY_UPDATE_NESTEROV:
            m[i] = u.rule.momentum * m[i] + d;
            w[i] -= u.rule.rate * (d + u.rule.momentum * m[i]);
            break;
        default: /* Adam */
            m[i] = u.rule.beta1 * m[i] + u.rule.rest1 * d;
            v[i] = u.rule.beta2 * v[i] + u.rule.rest2 * d * d;
            w[i] = w[i] * u.rule.shrink - u.rule.rate * m[i] / (sqrtf(v[i]) * u.rule.correct2 + u.rule.epsilon);
        }
    }
}

int sy_kernel_update(struct CUstream_st *stream, const struct sy_math_update *u, void *w,
                     const void *g, void *m, void *v, const void *norm_square)
{
    if (u->n == 0)
        return 0;
    if (u->kind == sy_math_update::SY_UPDATE_STATISTIC || u->kind == sy_math_update::SY_UPDATE_SUM)
        return sy_launch(follow_kernel, sy_blocks(u->n), stream, *u, (float *)w, (const float *)g);
    else
        return sy_launch(update_kernel, sy_blocks(u->n), stream, *u, (float *)w, (const float *)g,
                         (float *)m, (float *)v, (const double *)norm_square);
}

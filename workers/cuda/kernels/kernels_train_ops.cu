/* Training: elementwise operators and their slopes, rows, embeddings, dropout, norms. No atomics: equal bits each time. */
#include "workers/cuda/kernels/kernel_common.cuh"
#include "workers/cuda/kernels/kernels_columns.h"
#include "workers/cuda/kernels/kernels_train_ops.h"
#include "workers/engine/pair_formulas.h"
#include "workers/engine/train_philox.h"

SY_KERNEL_FILE(train_ops)

/* ---- elements ----------------------------------------------------------------------------------------- */

__global__ static void curve_kernel(const __grid_constant__ sy_math_curve c, const float *x,
                                    float *y)
{
    SY_GENERIC (i, c.n)
        y[i] = sy_curve_of(&c.of, x[i]);
}

__global__ static void curve_slopes(const __grid_constant__ sy_math_curve c, const float *x,
                                    const float *y, const float *dy, float *dx)
{
    SY_GENERIC (i, c.n)
        dx[i] = dy[i] * sy_curve_slope(&c.of, x[i], y[i]);
}

int sy_kernel_curve(struct CUstream_st *stream, const struct sy_math_curve *c, const void *x,
                    void *y)
{
    if (c->n == 0)
        return 0;
    return sy_launch(curve_kernel, sy_blocks(c->n), stream, *c, (const float *)x, (float *)y);
}

int sy_kernel_curve_gradient(struct CUstream_st *stream, const struct sy_math_curve *c,
                             const void *x, const void *y, const void *dy, void *dx)
{
    if (c->n == 0)
        return 0;
    return sy_launch(curve_slopes, sy_blocks(c->n), stream, *c, (const float *)x, (const float *)y,
                     (const float *)dy, (float *)dx);
}

/* dy NULL: the result; else dy times the slope in operand `which`. I: 32 bits where they do. */
template <typename I>
__global__ static void pair_kernel(const __grid_constant__ sy_math_pair p, int which,
                                   const float *a, const float *b, const float *dy, float *to,
                                   int64_t n)
{
    const int64_t *strides[2] = {p.a_strides, p.b_strides};
    SY_GENERIC (i, n) {
        int64_t at[2];
        sy_offsets<I, 2>((I)i, p.rank, p.dims, strides, at);
        float x = a[at[0]], y = b[at[1]];
        to[i] = dy ? dy[i] * sy_pair_slope(p.op, which, x, y) : sy_pair_of(p.op, x, y);
    }
}

int sy_kernel_pair(struct CUstream_st *stream, const struct sy_math_pair *p, int which,
                   const void *a, const void *b, const void *dy, void *to)
{
    int64_t n = sy_elements(p->rank, p->dims);
    if (n == 0)
        return 0;
    if (n < SY_KERNEL_WIDE)
        return sy_launch(pair_kernel<uint32_t>, sy_blocks(n), stream, *p, which, (const float *)a,
                         (const float *)b, (const float *)dy, (float *)to, n);
    else
        return sy_launch(pair_kernel<uint64_t>, sy_blocks(n), stream, *p, which, (const float *)a,
                         (const float *)b, (const float *)dy, (float *)to, n);
}

__global__ static void compare_kernel(const __grid_constant__ sy_math_pair p, const float *a,
                                      const float *b, uint8_t *y, int64_t n)
{
    const int64_t *strides[2] = {p.a_strides, p.b_strides};
    SY_GENERIC (i, n) {
        int64_t at[2];
        sy_offsets<uint64_t, 2>((uint64_t)i, p.rank, p.dims, strides, at);
        float x = a[at[0]], z = b[at[1]];
        y[i] = sy_pair_holds(p.op, x < z, x == z, x > z);
    }
}

int sy_kernel_compare(struct CUstream_st *stream, const struct sy_math_pair *p, const void *a,
                      const void *b, void *y)
{
    int64_t n = sy_elements(p->rank, p->dims);
    if (n == 0)
        return 0;
    return sy_launch(compare_kernel, sy_blocks(n), stream, *p, (const float *)a, (const float *)b,
                     (uint8_t *)y, n);
}

__global__ static void drop_kernel(const __grid_constant__ sy_math_drop d, uint32_t limit,
                                   float scale, const float *x, float *y)
{
    SY_GENERIC (i, d.n)
        y[i] =
            sy_philox_element(d.seed, d.batch, d.node, (uint64_t)i) < limit ? 0.0f : x[i] * scale;
}

int sy_kernel_drop(struct CUstream_st *stream, const struct sy_math_drop *d, const void *x, void *y)
{
    uint32_t limit = (uint32_t)((double)d->ratio * 4294967296.0);
    if (d->n == 0)
        return 0;
    return sy_launch(drop_kernel, sy_blocks(d->n), stream, *d, limit, 1.0f / (1.0f - d->ratio),
                     (const float *)x, (float *)y);
}

/* ---- rows --------------------------------------------------------------------------------------------- */

/* A line a block: its elements are `inner` apart. */
__global__ static void softmax_slopes(const __grid_constant__ sy_math_softmax s, const float *y,
                                      const float *dy, float *dx, int64_t lines)
{
    for (int64_t k = blockIdx.x; k < lines; k += gridDim.x) {
        int64_t first = k / s.inner * s.extent * s.inner + k % s.inner;
        float sum = 0;
        for (int64_t i = threadIdx.x; i < s.extent; i += SY_KERNEL_THREADS) {
            int64_t at = first + i * s.inner;
            sum += s.logarithm ? dy[at] : dy[at] * y[at];
        }
        sum = sy_block_reduce<sy_add>(sum);
        for (int64_t i = threadIdx.x; i < s.extent; i += SY_KERNEL_THREADS) {
            int64_t at = first + i * s.inner;
            dx[at] = s.logarithm ? dy[at] - expf(y[at]) * sum : y[at] * (dy[at] - sum);
        }
    }
}

int sy_kernel_softmax_gradient(struct CUstream_st *stream, const struct sy_math_softmax *s,
                               const void *y, const void *dy, void *dx)
{
    int64_t lines = s->outer * s->inner;
    if (lines * s->extent == 0)
        return 0;
    return sy_launch(softmax_slopes, sy_row_blocks(lines), stream, *s, (const float *)y,
                     (const float *)dy, (float *)dx, lines);
}

/* A row a block. */
__global__ static void row_moments(const __grid_constant__ sy_math_rows r, const float *x,
                                   float *mean, float *rate)
{
    for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
        const float *from = x + row * r.columns;
        float sum = 0, squares = 0;
        for (int64_t i = threadIdx.x; i < r.columns && !r.is_rms; i += SY_KERNEL_THREADS)
            sum += from[i];
        float m = sy_block_reduce<sy_add>(sum) / (float)r.columns;
        for (int64_t i = threadIdx.x; i < r.columns; i += SY_KERNEL_THREADS)
            squares += (from[i] - m) * (from[i] - m);
        float variance = sy_block_reduce<sy_add>(squares) / (float)r.columns;
        if (threadIdx.x == 0) {
            mean[row] = m;
            rate[row] = 1 / sqrtf(variance + r.epsilon);
        }
    }
}

int sy_kernel_row_moments(struct CUstream_st *stream, const struct sy_math_rows *r, const void *x,
                          void *mean, void *rate)
{
    if (r->rows * r->columns == 0)
        return 0;
    return sy_launch(row_moments, sy_row_blocks(r->rows), stream, *r, (const float *)x,
                     (float *)mean, (float *)rate);
}

/* dx = rate (g - mean of g - unit * mean of (g unit)), unit = (x - mean) rate. dx may be g: each thread reads its own elements first. */
__global__ static void row_slopes(const __grid_constant__ sy_math_rows r, const float *x,
                                  const float *g, const float *mean, const float *rate, float *dx)
{
    for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
        int64_t first = row * r.columns;
        float m = mean[row], k = rate[row], of_g = 0, of_gx = 0;
        for (int64_t i = first + threadIdx.x; i < first + r.columns; i += SY_KERNEL_THREADS) {
            of_g += g[i];
            of_gx += g[i] * (x[i] - m) * k;
        }
        of_g = sy_block_reduce<sy_add>(of_g) / (float)r.columns;
        of_gx = sy_block_reduce<sy_add>(of_gx) / (float)r.columns;
        of_g = r.is_rms ? 0 : of_g;
        for (int64_t i = first + threadIdx.x; i < first + r.columns; i += SY_KERNEL_THREADS)
            dx[i] = k * (g[i] - of_g - (x[i] - m) * k * of_gx);
    }
}

int sy_kernel_row_gradient(struct CUstream_st *stream, const struct sy_math_rows *r, const void *x,
                           const void *g, const void *mean, const void *rate, void *dx)
{
    if (r->rows * r->columns == 0)
        return 0;
    return sy_launch(row_slopes, sy_row_blocks(r->rows), stream, *r, (const float *)x,
                     (const float *)g, (const float *)mean, (const float *)rate, (float *)dx);
}

/* ---- embeddings --------------------------------------------------------------------------------------- */

/* The row that index k names; -1: none. */
__device__ static int64_t row_of(const sy_math_gather &g, const void *indices, int64_t k)
{
    int64_t index = g.wide ? ((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
    index += index < 0 ? g.extent : 0;
    return index < 0 || index >= g.extent ? -1 : index;
}

/* Adds what indices [first, first + THREADS) give to `row`, in their order. */
__device__ static void add_matches(const sy_math_gather &g, const float *dy, const void *indices,
                                   float *to, int64_t inner, int64_t row, int64_t first)
{
    SY_SHARED(uint8_t, matches, [SY_KERNEL_THREADS]);
    int64_t e = first + threadIdx.x;
    int is_match = e < g.n_indices && row_of(g, indices, e) == row;
    matches[threadIdx.x] = (uint8_t)is_match;
    if (!__syncthreads_or(is_match))
        return;
    for (int64_t i = threadIdx.x; i < g.outer * inner; i += SY_KERNEL_THREADS) {
        int64_t outer = i / inner, at = i % inner;
        float *sum = to + (outer * g.extent + row) * inner + at;
        for (int m = 0; m < SY_KERNEL_THREADS; m++)
            if (matches[m])
                *sum += dy[(outer * g.n_indices + first + m) * inner + at];
    }
    __syncthreads(); /* matches are read */
}

/* A block an index: the first that names a row adds up all that do, in their order; the others do nothing. With n indices that is n * n
 * comparisons, whatever the size of the table, by all threads of a block. `to` is zero. */
__global__ static void scatter_kernel(const __grid_constant__ sy_math_gather g, const float *dy,
                                      const void *indices, float *to, int64_t inner)
{
    for (int64_t k = blockIdx.x; k < g.n_indices; k += gridDim.x) {
        int64_t row = row_of(g, indices, k);
        int earlier = row < 0;
        for (int64_t e = threadIdx.x; e < k && !earlier; e += SY_KERNEL_THREADS)
            earlier = row_of(g, indices, e) == row;
        if (__syncthreads_or(earlier))
            continue;
        for (int64_t first = k; first < g.n_indices; first += SY_KERNEL_THREADS)
            add_matches(g, dy, indices, to, inner, row, first);
    }
}

int sy_kernel_scatter(struct CUstream_st *stream, const struct sy_math_gather *g, const void *dy,
                      const void *indices, void *to)
{
    int64_t inner = g->inner_bytes / (int64_t)sizeof(float), all = g->outer * g->extent * inner;
    if (all == 0)
        return 0;
    int error = sy_kernel_fill(stream, to, all, 0);
    if (error || g->n_indices == 0)
        return error;
    return sy_launch(scatter_kernel, sy_row_blocks(g->n_indices), stream, *g, (const float *)dy,
                     indices, (float *)to, inner);
}

/* ---- reductions --------------------------------------------------------------------------------------- */

/* A result a thread. */
__global__ static void reduction_kernel(const __grid_constant__ sy_train_reduction f, const float *x, float *y)
{
    SY_GENERIC (o, f.n_out)
        y[o] = sy_reduction_of(&f, x + sy_reduction_offset(o, f.n_kept, f.kept, f.kept_strides));
}

__global__ static void reduction_slopes(const __grid_constant__ sy_train_reduction f, const float *x,
                                   const float *y, const float *dy, float *dx)
{
    SY_GENERIC (o, f.n_out) {
        int64_t at = sy_reduction_offset(o, f.n_kept, f.kept, f.kept_strides);
        sy_reduction_back(&f, x + at, y[o], dy[o], dx + at);
    }
}

int sy_kernel_train_reduction(struct CUstream_st *stream, const struct sy_train_reduction *f, const void *x, void *y)
{
    if (f->n_out == 0)
        return 0;
    return sy_launch(reduction_kernel, sy_blocks(f->n_out), stream, *f, (const float *)x, (float *)y);
}

int sy_kernel_train_reduction_gradient(struct CUstream_st *stream, const struct sy_train_reduction *f, const void *x,
                            const void *y, const void *dy, void *dx)
{
    if (f->n_out == 0)
        return 0;
    return sy_launch(reduction_slopes, sy_blocks(f->n_out), stream, *f, (const float *)x,
                     (const float *)y, (const float *)dy, (float *)dx);
}

/* ---- the gradient's norm ------------------------------------------------------------------------------ */

#define NORM_BLOCKS 1024

__global__ static void square_parts(const float *x, int64_t n, double *parts)
{
    double sum = 0;
    SY_GENERIC (i, n)
        sum += (double)x[i] * x[i];
    sum = sy_block_reduce<sy_add>(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ static void square_end(const double *parts, int n, bool adds, double *out)
{
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += SY_KERNEL_THREADS)
        sum += parts[i];
    sum = sy_block_reduce<sy_add>(sum);
    if (threadIdx.x == 0)
        *out = adds ? *out + sum : sum;
}

int sy_kernel_square_sum(struct CUstream_st *stream, int64_t n, const void *x, bool adds, void *out,
                         void *scratch)
{
    unsigned blocks = sy_blocks(n);
    blocks = blocks < NORM_BLOCKS ? blocks : NORM_BLOCKS;
    if (n == 0)
        return 0;
    int error = sy_launch(square_parts, blocks, stream, (const float *)x, n, (double *)scratch);
    return error ? error
                 : sy_launch(square_end, 1, stream, (const double *)scratch, (int)blocks, adds,
                             (double *)out);
}

/* ---- convolutions as products ------------------------------------------------------------------------- */

struct position {
    uint32_t image, at[3];
};

__device__ static position position_of(uint32_t k, const int64_t *dims)
{
    uint32_t d0 = (uint32_t)dims[0], d1 = (uint32_t)dims[1], d2 = (uint32_t)dims[2];
    uint32_t line = k / d2, plane = line / d1;
    return {plane / d0, {plane % d0, line % d1, k % d2}};
}

/* A unit is an element, or the 8 bytes of several channels: row_units a row of u, `channels` a position of x. */
template <typename U>
__global__ static void unroll(const __grid_constant__ sy_math_conv c, const U *x, U *u, int64_t n,
                              uint32_t row_units, uint32_t channels)
{
    uint32_t area = (uint32_t)(c.kernel[0] * c.kernel[1] * c.kernel[2]);
    SY_GENERIC (i, n) {
        uint32_t row = (uint32_t)i / row_units, left = (uint32_t)i - row * row_units;
        uint32_t e = left / channels;
        position o = position_of(row, c.out), k = position_of(e, c.kernel);
        bool inside = e < area;
        int64_t at = o.image;
        for (int d = 0; d < 3; d++) {
            int64_t in = o.at[d] * c.strides[d] - c.pads[d] + k.at[d] * c.dilations[d];
            inside = inside && in >= 0 && in < c.in[d];
            at = at * c.in[d] + in;
        }
        u[i] = inside ? x[at * channels + (left - e * channels)] : U{};
    }
}

template <typename U>
static int launch_unroll(cudaStream_t stream, const sy_math_conv &c, int64_t rows,
                         int64_t row_units, int64_t channels, const void *x, void *u)
{
    return sy_launch(unroll<U>, sy_blocks(rows * row_units), stream, c, (const U *)x, (U *)u,
                     rows * row_units, (uint32_t)row_units, (uint32_t)channels);
}

int sy_kernel_unroll(struct CUstream_st *stream, const struct sy_math_conv *c, int64_t images,
                     int64_t columns, const void *x, void *u)
{
    int64_t rows = images * c->out[0] * c->out[1] * c->out[2], channels = c->in_channels;
    int64_t bytes = sy_math_float_bytes(c->type);
    if (rows * columns == 0)
        return 0;
    if (channels * bytes % 8 == 0 && columns * bytes % 8 == 0 && (uintptr_t)x % 8 == 0)
        return launch_unroll<uint2>(stream, *c, rows, columns * bytes / 8, channels * bytes / 8, x,
                                    u);
    if (bytes == 2)
        return launch_unroll<uint16_t>(stream, *c, rows, columns, channels, x, u);
    return launch_unroll<uint32_t>(stream, *c, rows, columns, channels, x, u);
}

/* Which output has the input as element k of its window; -1: none. */
__device__ static int32_t reader(const sy_math_conv &c, int d, int32_t in, int32_t k)
{
    int32_t at = in + (int32_t)c.pads[d] - k * (int32_t)c.dilations[d],
            stride = (int32_t)c.strides[d], o = at / stride;
    return at < 0 || o * stride != at || o >= (int32_t)c.out[d] ? -1 : o;
}

/* V channels of an input a thread, tap after tap: one order. */
template <typename T, int V>
__global__ static void roll(const __grid_constant__ sy_math_conv c, const float *u, T *dx,
                            int64_t n)
{
    int64_t channels = c.in_channels, columns = c.kernel[0] * c.kernel[1] * c.kernel[2] * channels;
    uint32_t strips = (uint32_t)(channels / V);
    SY_GENERIC (i, n) {
        uint32_t at = (uint32_t)i / strips;
        position p = position_of(at, c.in);
        int64_t channel = ((uint32_t)i - at * strips) * V, e = 0;
        float sum[V] = {};
        for (int32_t k0 = 0; k0 < c.kernel[0]; k0++) {
            int32_t o0 = reader(c, 0, (int32_t)p.at[0], k0);
            for (int32_t k1 = 0; k1 < c.kernel[1]; k1++) {
                int32_t o1 = reader(c, 1, (int32_t)p.at[1], k1);
                for (int32_t k2 = 0; k2 < c.kernel[2]; k2++, e++) {
                    int32_t o2 = reader(c, 2, (int32_t)p.at[2], k2);
                    if (o0 < 0 || o1 < 0 || o2 < 0)
                        continue;
                    int64_t row = ((p.image * c.out[0] + o0) * c.out[1] + o1) * c.out[2] + o2;
                    const float *from = u + row * columns + e * channels + channel;
                    for (int v = 0; v < V; v++)
                        sum[v] += from[v];
                }
            }
        }
        for (int v = 0; v < V; v++)
            dx[i * V + v] = sy_store<T>::of(sum[v]);
    }
}

int sy_kernel_roll(struct CUstream_st *stream, const struct sy_math_conv *c, int64_t images,
                   const void *u, void *dx)
{
    int64_t n = images * c->in_channels * c->in[0] * c->in[1] * c->in[2];
    if (n == 0)
        return 0;
    SY_WITH_FLOAT(c->type, T, {
        if (c->in_channels % 4 == 0)
            return sy_launch(roll<T, 4>, sy_blocks(n / 4), stream, *c, (const float *)u, (T *)dx,
                             n / 4);
        return sy_launch(roll<T, 1>, sy_blocks(n), stream, *c, (const float *)u, (T *)dx, n);
    });
}

template <typename T>
__global__ static void add_parts(const float *from, T *dw, int64_t n, int64_t kept, int64_t columns,
                                 int64_t parts, int64_t part)
{
    SY_GENERIC (i, n) {
        const float *at = from + i / kept * columns + i % kept;
        float sum = 0;
        for (int64_t p = 0; p < parts; p++)
            sum += at[p * part];
        dw[i] = sy_store<T>::of(sum);
    }
}

int sy_kernel_add_parts(struct CUstream_st *stream, const struct sy_math_conv *c, int64_t parts,
                        int64_t columns, const void *from, void *dw)
{
    int64_t kept = c->in_channels * c->kernel[0] * c->kernel[1] * c->kernel[2],
            n = c->out_channels * kept;
    if (n == 0)
        return 0;
    SY_WITH_FLOAT(c->type, T,
                  return sy_launch(add_parts<T>, sy_blocks(n), stream, (const float *)from, (T *)dw,
                                   n, kept, columns, parts, c->out_channels * columns));
}

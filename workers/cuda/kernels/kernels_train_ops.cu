/* Training: elementwise operators and their slopes, rows, embeddings, dropout, norms. No atomics: equal bits each time. */
#include "workers/cuda/kernels/kernel_common.cuh"
#include "workers/cuda/kernels/kernels_train_ops.h"
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
        y[i] = sy_pair_holds(p.op, a[at[0]], b[at[1]]);
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

/* A block an index: the first that names a row adds up all that do, in their order; the others do nothing. With n indices that is n * n
 * comparisons, whatever the size of the table. */
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
        for (int64_t i = threadIdx.x; i < g.outer * inner; i += SY_KERNEL_THREADS) {
            int64_t outer = i / inner, at = i % inner;
            float sum = 0;
            for (int64_t e = k; e < g.n_indices; e++)
                if (row_of(g, indices, e) == row)
                    sum += dy[(outer * g.n_indices + e) * inner + at];
            to[(outer * g.extent + row) * inner + at] = sum;
        }
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

/* Windows (pools, convolutions that cuDNN lacks) and rows (softmax, layer norm, reductions). */
#include "workers/cuda/kernels/kernel_common.cuh"

SY_KERNEL_FILE(rows)

/* ---- windows ----------------------------------------------------------------------------------------- */

struct pool_at {
    int64_t n, channel, o[3];
};

/* Neighbouring threads write neighbouring elements, in either layout. */
__device__ static pool_at pool_position(const sy_math_pool &p, int64_t i)
{
    pool_at at;
    int64_t area = p.out[0] * p.out[1] * p.out[2], k;
    if (p.out_strides[1] == 1) {
        at.channel = i % p.channels;
        k = i / p.channels % area;
        at.n = i / p.channels / area;
    } else {
        k = i % area;
        at.channel = i / area % p.channels;
        at.n = i / area / p.channels;
    }
    at.o[2] = k % p.out[2];
    at.o[1] = k / p.out[2] % p.out[1];
    at.o[0] = k / p.out[2] / p.out[1];
    return at;
}

/* The lowest finite number of a type: the largest of a window that lies in the padding, as the host has it. */
template <typename T> struct lowest {
    __device__ static float of()
    {
        return -3.402823466e38f;
    }
};
template <> struct lowest<__half> {
    __device__ static float of()
    {
        return -65504.0f;
    }
};
template <> struct lowest<__nv_bfloat16> {
    __device__ static float of()
    {
        return -3.38953139e38f;
    }
};

template <typename T>
__global__ static void pool_kernel(const __grid_constant__ sy_math_pool p, const T *x, T *y,
                                   int64_t n)
{
    SY_GENERIC (i, n) {
        pool_at at = pool_position(p, i);
        int64_t start[3], first[3], end[3],
            to = at.n * p.out_strides[0] + at.channel * p.out_strides[1], inside = 1, all = 1;
        const T *from = x + at.n * p.in_strides[0] + at.channel * p.in_strides[1];
        for (int d = 0; d < 3; d++) {
            start[d] = sy_clip_window(p, d, at.o[d], &first[d], &end[d]);
            inside *= end[d] > first[d] ? end[d] - first[d] : 0;
            all *= p.kernel[d];
            to += at.o[d] * p.out_strides[2 + d];
        }
        float sum = 0, largest = -INFINITY;
        for (int64_t a = first[0]; a < end[0]; a++)
            for (int64_t b = first[1]; b < end[1]; b++)
                for (int64_t c = first[2]; c < end[2]; c++) {
                    float v = sy_wide(from[(start[0] + a * p.dilations[0]) * p.in_strides[2] +
                                           (start[1] + b * p.dilations[1]) * p.in_strides[3] +
                                           (start[2] + c * p.dilations[2]) * p.in_strides[4]]);
                    sum += v;
                    largest = v > largest || v != v ? v : largest; /* a NaN stays */
                }
        float mean = inside == 0 ? 0 : sum / (float)(p.count_padding ? all : inside);
        y[to] = sy_store<T>::of(!p.max ? mean : inside == 0 ? lowest<T>::of() : largest);
    }
}

int sy_kernel_pool(struct CUstream_st *stream, const struct sy_math_pool *p, const void *x, void *y)
{
    int64_t n = p->batch * p->channels * p->out[0] * p->out[1] * p->out[2];
    if (n == 0)
        return 0;
    SY_WITH_FLOAT(
        p->type, T,
        return sy_launch(pool_kernel<T>, sy_blocks(n), stream, *p, (const T *)x, (T *)y, n));
}

/* One output a thread: reads of the weights are scattered, those of the input shared by the neighbours. */
template <typename T, typename B>
__global__ static void conv_kernel(const __grid_constant__ sy_math_conv c, const T *x, const T *w,
                                   const B *bias, const T *residual, T *y, int64_t n)
{
    int64_t ins = c.in_channels / c.groups, outs = c.out_channels / c.groups;
    SY_GENERIC (i, n) {
        int64_t channel = i % c.out_channels, k = i / c.out_channels;
        int64_t o2 = k % c.out[2], o1 = k / c.out[2] % c.out[1];
        int64_t o0 = k / c.out[2] / c.out[1] % c.out[0],
                sample = k / c.out[2] / c.out[1] / c.out[0];
        const T *wk = w + channel * c.kernel[0] * c.kernel[1] * c.kernel[2] * ins;
        float sum = 0;
        for (int64_t a = 0; a < c.kernel[0]; a++) {
            int64_t ia = o0 * c.strides[0] - c.pads[0] + a * c.dilations[0];
            for (int64_t b = 0; b < c.kernel[1]; b++) {
                int64_t ib = o1 * c.strides[1] - c.pads[1] + b * c.dilations[1];
                for (int64_t d = 0; d < c.kernel[2]; d++, wk += ins) {
                    int64_t id = o2 * c.strides[2] - c.pads[2] + d * c.dilations[2];
                    if (ia < 0 || ia >= c.in[0] || ib < 0 || ib >= c.in[1] || id < 0 ||
                        id >= c.in[2])
                        continue;
                    const T *from =
                        x +
                        (((sample * c.in[0] + ia) * c.in[1] + ib) * c.in[2] + id) * c.in_channels +
                        channel / outs * ins;
                    for (int64_t e = 0; e < ins; e++)
                        sum += sy_wide(from[e]) * sy_wide(wk[e]);
                }
            }
        }
        sum += bias ? sy_wide(bias[channel]) : 0;
        sum += residual ? sy_wide(residual[i]) : 0;
        y[i] = sy_store<T>::of(sy_activate(sum, c.activation, c.act_alpha, c.act_beta));
    }
}

int sy_kernel_conv(struct CUstream_st *stream, const struct sy_math_conv *c, const void *x,
                   const void *w, const void *bias, const void *residual, void *y)
{
    if (c->direction != SY_MATH_FORWARD)
        return sy_kernel_conv_gradient(stream, c, x, w, y);
    int64_t n = c->batch * c->out_channels * c->out[0] * c->out[1] * c->out[2];
    if (n == 0)
        return 0;
    if (sy_math_is_narrow(c->bias_type))
        SY_WITH_FLOAT(c->type, T,
                      return sy_launch(conv_kernel<T, T>, sy_blocks(n), stream, *c, (const T *)x,
                                       (const T *)w, (const T *)bias, (const T *)residual, (T *)y,
                                       n));
    SY_WITH_FLOAT(c->type, T,
                  return sy_launch(conv_kernel<T, float>, sy_blocks(n), stream, *c, (const T *)x,
                                   (const T *)w, (const float *)bias, (const T *)residual, (T *)y,
                                   n));
}

/* ---- rows -------------------------------------------------------------------------------------------- */

/* A row a block. x may be y (T float): each thread writes only what it alone reads. */
template <typename T>
__global__ static void softmax_rows(const float *x, T *y, int64_t rows, int64_t extent,
                                    bool logarithm)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *from = x + row * extent;
        T *to = y + row * extent;
        float largest = -INFINITY, sum = 0;
        for (int64_t i = threadIdx.x; i < extent; i += SY_KERNEL_THREADS)
            largest = sy_larger::of(largest, from[i]);
        largest = sy_block_reduce<sy_larger>(largest);
        for (int64_t i = threadIdx.x; i < extent; i += SY_KERNEL_THREADS)
            sum += expf(from[i] - largest);
        sum = sy_block_reduce<sy_add>(sum);
        float shift = logf(sum);
        for (int64_t i = threadIdx.x; i < extent; i += SY_KERNEL_THREADS) {
            float v = from[i] - largest;
            to[i] = sy_store<T>::of(logarithm ? v - shift : expf(v) / sum);
        }
    }
}

/* A column a thread: rows that are short, or do not lie side by side. */
template <typename T>
__global__ static void softmax_columns(const __grid_constant__ sy_math_softmax s, const float *x,
                                       T *y, int64_t n)
{
    SY_GENERIC (k, n) {
        int64_t first = k / s.inner * s.extent * s.inner + k % s.inner;
        const float *from = x + first;
        T *to = y + first;
        float largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < s.extent; i++)
            largest = sy_larger::of(largest, from[i * s.inner]);
        for (int64_t i = 0; i < s.extent; i++)
            sum += expf(from[i * s.inner] - largest);
        float shift = logf(sum);
        for (int64_t i = 0; i < s.extent; i++) {
            float v = from[i * s.inner] - largest;
            to[i * s.inner] = sy_store<T>::of(s.logarithm ? v - shift : expf(v) / sum);
        }
    }
}

int sy_kernel_softmax(struct CUstream_st *stream, const struct sy_math_softmax *s, const void *x,
                      void *y)
{
    int64_t n = s->outer * s->inner;
    if (n * s->extent == 0)
        return 0;
    if (s->inner == 1 && s->extent >= 32)
        SY_WITH_FLOAT(s->out_type, T,
                      return sy_launch(softmax_rows<T>, sy_row_blocks(n), stream, (const float *)x,
                                       (T *)y, n, s->extent, s->logarithm));
    else
        SY_WITH_FLOAT(s->out_type, T,
                      return sy_launch(softmax_columns<T>, sy_blocks(n), stream, *s,
                                       (const float *)x, (T *)y, n));
}

/* A row a block. Each thread comes back to its own elements: in `out` where that is float32, else they are added once more. */
template <typename T>
__global__ static void layer_norm_kernel(const __grid_constant__ sy_math_layer_norm norm,
                                         const float *x, const float *skip, const float *scale,
                                         const float *bias, T *out, float *sums)
{
    int64_t n = norm.columns;
    for (int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
        const float *from = x + row * n, *over = skip ? skip + row * n : NULL;
        T *to = out + row * n;
        float sum = 0, squares = 0;
        auto again = [&](int64_t i) -> float {
            if constexpr (sizeof(T) == sizeof(float))
                return to[i];
            else
                return from[i] + (over ? over[i] : 0);
        };
        for (int64_t i = threadIdx.x; i < n; i += SY_KERNEL_THREADS) {
            float v = from[i] + (over ? over[i] : 0);
            if (sums)
                sums[row * n + i] = v;
            if constexpr (sizeof(T) == sizeof(float))
                to[i] = v;
            sum += v;
        }
        float mean = sy_block_reduce<sy_add>(sum) / (float)n;
        for (int64_t i = threadIdx.x; i < n; i += SY_KERNEL_THREADS) {
            float v = again(i) - mean;
            squares += v * v;
        }
        float rate = 1 / sqrtf(sy_block_reduce<sy_add>(squares) / (float)n + norm.epsilon);
        for (int64_t i = threadIdx.x; i < n; i += SY_KERNEL_THREADS)
            to[i] = sy_store<T>::of((again(i) - mean) * rate * scale[i] + (bias ? bias[i] : 0));
    }
}

int sy_kernel_layer_norm(struct CUstream_st *stream, const struct sy_math_layer_norm *norm,
                         const void *x, const void *skip, const void *scale, const void *bias,
                         void *out, void *sum)
{
    if (norm->rows * norm->columns == 0)
        return 0;
    SY_WITH_FLOAT(norm->out_type, T,
                  return sy_launch(layer_norm_kernel<T>, sy_row_blocks(norm->rows), stream, *norm,
                                   (const float *)x, (const float *)skip, (const float *)scale,
                                   (const float *)bias, (T *)out, (float *)sum));
}

/* ---- reductions -------------------------------------------------------------------------------------- */

/* The dimensions that are kept and those that are not, each as one walk. */
struct reduce_walk {
    int rank[2];
    int64_t dims[2][SY_MAX_RANK], strides[2][SY_MAX_RANK], n[2];
};

__device__ static int64_t walk(const reduce_walk &r, int which, int64_t k)
{
    int64_t at;
    const int64_t *strides[1] = {r.strides[which]};
    sy_offsets<int64_t, 1>(k, r.rank[which], r.dims[which], strides, &at);
    return at;
}

__global__ static void reduce_threads(const __grid_constant__ reduce_walk r, const float *x,
                                      float *y, float scale)
{
    SY_GENERIC (o, r.n[0]) {
        const float *from = x + walk(r, 0, o);
        float sum = 0;
        for (int64_t k = 0; k < r.n[1]; k++)
            sum += from[walk(r, 1, k)];
        y[o] = sum * scale;
    }
}

__global__ static void reduce_blocks(const __grid_constant__ reduce_walk r, const float *x,
                                     float *y, float scale)
{
    for (int64_t o = blockIdx.x; o < r.n[0]; o += gridDim.x) {
        const float *from = x + walk(r, 0, o);
        float sum = 0;
        for (int64_t k = threadIdx.x; k < r.n[1]; k += SY_KERNEL_THREADS)
            sum += from[walk(r, 1, k)];
        sum = sy_block_reduce<sy_add>(sum);
        if (threadIdx.x == 0)
            y[o] = sum * scale;
    }
}

int sy_kernel_reduce(struct CUstream_st *stream, const struct sy_math_reduce *reduce, const void *x,
                     void *y)
{
    reduce_walk r = {};
    r.n[0] = r.n[1] = 1;
    for (int d = 0; d < reduce->rank; d++) {
        int which = reduce->reduced[d] ? 1 : 0, at = r.rank[which]++;
        r.dims[which][at] = reduce->dims[d];
        r.strides[which][at] = reduce->strides[d];
        r.n[which] *= reduce->dims[d];
    }
    if (r.n[0] == 0)
        return 0;
    float scale = reduce->mean ? 1 / (float)r.n[1] : 1;
    if (r.n[1] < 64)
        return sy_launch(reduce_threads, sy_blocks(r.n[0]), stream, r, (const float *)x, (float *)y,
                         scale);
    else
        return sy_launch(reduce_blocks, sy_row_blocks(r.n[0]), stream, r, (const float *)x,
                         (float *)y, scale);
}

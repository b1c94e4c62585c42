/* Choices, casts, moves, gather. */
#include "workers/cuda/kernels/kernel_common.cuh"

SY_KERNEL_FILE(elements)

/* ---- choices ----------------------------------------------------------------------------------------- */

template <typename I, typename T>
__global__ static void where_kernel(const __grid_constant__ sy_math_choice c, const uint8_t *pick,
                                    const T *a, const T *b, T *out, int64_t n)
{
    const int64_t *strides[4] = {c.out_strides, c.in_strides[0], c.in_strides[1], c.in_strides[2]};
    SY_GENERIC (i, n) {
        int64_t at[4];
        sy_offsets<I, 4>((I)i, c.rank, c.dims, strides, at);
        out[at[0]] = pick[at[1]] ? a[at[2]] : b[at[3]];
    }
}

template <typename T>
static int launch_where(cudaStream_t stream, const sy_math_choice &c, const void *pick,
                        const void *a, const void *b, void *out, int64_t n)
{
    if (n < SY_KERNEL_WIDE)
        return sy_launch(where_kernel<uint32_t, T>, sy_blocks(n), stream, c, (const uint8_t *)pick,
                         (const T *)a, (const T *)b, (T *)out, n);
    else
        return sy_launch(where_kernel<uint64_t, T>, sy_blocks(n), stream, c, (const uint8_t *)pick,
                         (const T *)a, (const T *)b, (T *)out, n);
}

int sy_kernel_where(struct CUstream_st *stream, const struct sy_math_choice *c, const void *pick,
                    const void *a, const void *b, void *out)
{
    int64_t n = sy_elements(c->rank, c->dims);
    if (n == 0)
        return 0;
    switch (c->dtype) {
    case SY_DTYPE_U8:
    case SY_DTYPE_I8:
    case SY_DTYPE_BOOL:
        return launch_where<uint8_t>(stream, *c, pick, a, b, out, n);
    case SY_DTYPE_F16:
    case SY_DTYPE_BF16:
        return launch_where<uint16_t>(stream, *c, pick, a, b, out, n);
    case SY_DTYPE_I64:
    case SY_DTYPE_F64:
        return launch_where<uint64_t>(stream, *c, pick, a, b, out, n);
    default:
        return launch_where<uint32_t>(stream, *c, pick, a, b, out, n);
    }
}

template <typename T>
__global__ static void equal_kernel(const __grid_constant__ sy_math_choice c, const T *a,
                                    const T *b, uint8_t *out, int64_t n)
{
    const int64_t *strides[3] = {c.out_strides, c.in_strides[1], c.in_strides[2]};
    SY_GENERIC (i, n) {
        int64_t at[3];
        sy_offsets<uint64_t, 3>((uint64_t)i, c.rank, c.dims, strides, at);
        out[at[0]] = a[at[1]] == b[at[2]];
    }
}

template <typename T>
static int launch_equal(cudaStream_t stream, const sy_math_choice &c, const void *a, const void *b,
                        void *out, int64_t n)
{
    return sy_launch(equal_kernel<T>, sy_blocks(n), stream, c, (const T *)a, (const T *)b,
                     (uint8_t *)out, n);
}

int sy_kernel_equal(struct CUstream_st *stream, const struct sy_math_choice *c, const void *a,
                    const void *b, void *out)
{
    int64_t n = sy_elements(c->rank, c->dims);
    if (n == 0)
        return 0;
    if (c->dtype == SY_DTYPE_F32)
        return launch_equal<float>(stream, *c, a, b, out, n);
    else if (c->dtype == SY_DTYPE_I32)
        return launch_equal<int32_t>(stream, *c, a, b, out, n);
    else if (c->dtype == SY_DTYPE_I64)
        return launch_equal<int64_t>(stream, *c, a, b, out, n);
    else
        return launch_equal<uint8_t>(stream, *c, a, b, out, n);
}

/* ---- casts ------------------------------------------------------------------------------------------- */

/* As the host engine: a float outside the integer's range gives 0; bool is "not zero". */
template <typename From, typename To> struct cast_one {
    __device__ static To of(From x)
    {
        return (To)x;
    }
};
template <typename To> struct cast_one<float, To> {
    __device__ static To of(float x)
    {
        return x > -9.2e18f && x < 9.2e18f ? (To)(int64_t)x : (To)0;
    }
};
template <> struct cast_one<float, float> {
    __device__ static float of(float x)
    {
        return x;
    }
};

template <typename T> __device__ static T plain(T x)
{
    return x;
}
__device__ static float plain(__half x)
{
    return sy_wide(x);
}
__device__ static float plain(__nv_bfloat16 x)
{
    return sy_wide(x);
}

template <typename From, typename To>
__global__ static void cast_kernel(const From *from, To *to, int64_t n, bool to_bool)
{
    SY_GENERIC (i, n) {
        auto x = plain(from[i]);
        to[i] = to_bool ? (To)(x != 0) : cast_one<decltype(x), To>::of(x);
    }
}

/* To a narrow type: through float32. */
template <typename From, typename To>
__global__ static void narrow_kernel(const From *from, To *to, int64_t n)
{
    SY_GENERIC (i, n)
        to[i] = sy_store<To>::of((float)plain(from[i]));
}

template <typename From>
static int launch_cast(cudaStream_t stream, enum sy_dtype to_type, int64_t n, const void *from,
                       void *to)
{
    const From *in = (const From *)from;
    unsigned blocks = sy_blocks(n);
    if (to_type == SY_DTYPE_F32)
        return sy_launch(cast_kernel<From, float>, blocks, stream, in, (float *)to, n, false);
    else if (to_type == SY_DTYPE_F16)
        return sy_launch(narrow_kernel<From, __half>, blocks, stream, in, (__half *)to, n);
    else if (to_type == SY_DTYPE_BF16)
        return sy_launch(narrow_kernel<From, __nv_bfloat16>, blocks, stream, in,
                         (__nv_bfloat16 *)to, n);
    else if (to_type == SY_DTYPE_I32)
        return sy_launch(cast_kernel<From, int32_t>, blocks, stream, in, (int32_t *)to, n, false);
    else if (to_type == SY_DTYPE_I64)
        return sy_launch(cast_kernel<From, int64_t>, blocks, stream, in, (int64_t *)to, n, false);
    else
        return sy_launch(cast_kernel<From, uint8_t>, blocks, stream, in, (uint8_t *)to, n, true);
}

int sy_kernel_cast(struct CUstream_st *stream, enum sy_dtype from_type, enum sy_dtype to_type,
                   int64_t n, const void *from, void *to)
{
    if (n == 0)
        return 0;
    if (from_type == SY_DTYPE_F32)
        return launch_cast<float>(stream, to_type, n, from, to);
    else if (from_type == SY_DTYPE_F16)
        return launch_cast<__half>(stream, to_type, n, from, to);
    else if (from_type == SY_DTYPE_BF16)
        return launch_cast<__nv_bfloat16>(stream, to_type, n, from, to);
    else if (from_type == SY_DTYPE_I32)
        return launch_cast<int32_t>(stream, to_type, n, from, to);
    else if (from_type == SY_DTYPE_I64)
        return launch_cast<int64_t>(stream, to_type, n, from, to);
    else
        return launch_cast<uint8_t>(stream, to_type, n, from, to);
}

/* ---- moves ------------------------------------------------------------------------------------------- */

template <typename I, typename T>
__global__ static void move_kernel(const __grid_constant__ sy_math_move m, const T *from, T *to,
                                   int64_t n)
{
    const int64_t *strides[2] = {m.from_strides, m.to_strides};
    SY_GENERIC (i, n) {
        int64_t at[2];
        sy_offsets<I, 2>((I)i, m.rank, m.dims, strides, at);
        to[m.to_offset + at[1]] = from[m.from_offset + at[0]];
    }
}

template <typename T>
static int launch_move(cudaStream_t stream, const sy_math_move &m, const void *from, void *to)
{
    int64_t n = sy_elements(m.rank, m.dims);
    if (n < SY_KERNEL_WIDE)
        return sy_launch(move_kernel<uint32_t, T>, sy_blocks(n), stream, m, (const T *)from,
                         (T *)to, n);
    else
        return sy_launch(move_kernel<uint64_t, T>, sy_blocks(n), stream, m, (const T *)from,
                         (T *)to, n);
}

/* Pairs of elements as one of twice the size, if they lie side by side on both ends. */
static bool widen(sy_math_move *m)
{
    int last = m->rank - 1;
    if (m->rank < 1 || m->element_bytes >= 16 || m->from_strides[last] != 1 ||
        m->to_strides[last] != 1 || m->dims[last] % 2 || m->from_offset % 2 || m->to_offset % 2)
        return false;
    for (int d = 0; d < last; d++)
        if (m->from_strides[d] % 2 || m->to_strides[d] % 2)
            return false;
    for (int d = 0; d < last; d++) {
        m->from_strides[d] /= 2;
        m->to_strides[d] /= 2;
    }
    m->dims[last] /= 2;
    m->from_offset /= 2;
    m->to_offset /= 2;
    m->element_bytes *= 2;
    return true;
}

int sy_kernel_move(struct CUstream_st *stream, const struct sy_math_move *move, const void *from,
                   void *to)
{
    sy_math_move m = *move;
    if (sy_elements(m.rank, m.dims) == 0)
        return 0;
    while (widen(&m))
        continue;
    switch (m.element_bytes) {
    case 1:
        return launch_move<uint8_t>(stream, m, from, to);
    case 2:
        return launch_move<uint16_t>(stream, m, from, to);
    case 4:
        return launch_move<uint32_t>(stream, m, from, to);
    case 8:
        return launch_move<uint2>(stream, m, from, to);
    default:
        return launch_move<uint4>(stream, m, from, to);
    }
}

__global__ static void fill_kernel(float *to, int64_t n, float value)
{
    SY_GENERIC (i, n)
        to[i] = value;
}

int sy_kernel_fill(struct CUstream_st *stream, void *to, int64_t n, float value)
{
    if (n == 0)
        return 0;
    return sy_launch(fill_kernel, sy_blocks(n), stream, (float *)to, n, value);
}

/* T: the largest piece that divides a row. A bad index is told, and row 0 read instead. */
template <typename T>
__global__ static void gather_kernel(const __grid_constant__ sy_math_gather g, const T *from,
                                     const void *indices, T *to, sy_math_fault *fault,
                                     int64_t inner, int64_t n)
{
    SY_GENERIC (i, n) {
        int64_t row = i / inner, k = row % g.n_indices, outer = row / g.n_indices;
        int64_t index = g.wide ? ((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
        if (index < -g.extent || index >= g.extent) {
            fault->index = index;
            fault->step = g.step;
            index = 0;
        }
        index += index < 0 ? g.extent : 0;
        to[i] = from[(outer * g.extent + index) * inner + i % inner];
    }
}

template <typename T>
static int launch_gather(cudaStream_t stream, const sy_math_gather &g, const void *from,
                         const void *indices, void *to, sy_math_fault *fault)
{
    int64_t inner = g.inner_bytes / (int64_t)sizeof(T), n = g.outer * g.n_indices * inner;
    return sy_launch(gather_kernel<T>, sy_blocks(n), stream, g, (const T *)from, indices, (T *)to,
                     fault, inner, n);
}

int sy_kernel_gather(struct CUstream_st *stream, const struct sy_math_gather *g, const void *from,
                     const void *indices, void *to, struct sy_math_fault *fault)
{
    if (g->outer * g->n_indices * g->inner_bytes == 0 || g->extent == 0)
        return 0;
    if (g->inner_bytes % 16 == 0)
        return launch_gather<uint4>(stream, *g, from, indices, to, fault);
    else if (g->inner_bytes % 4 == 0)
        return launch_gather<uint32_t>(stream, *g, from, indices, to, fault);
    else
        return launch_gather<uint8_t>(stream, *g, from, indices, to, fault);
}

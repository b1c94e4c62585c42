/* What the kernels' files share: index arithmetic, launches, sums over a block in one fixed order.
 *
 * Of CUDA the kernels use blocks, threads, shared memory, barriers and the two narrow float types, no more: the tests compile them for
 * the CPU with a cuda_on_cpu.cuh that has these, sy_launch and SY_SHARED. */
#ifndef SY_WORKERS_CUDA_KERNEL_COMMON_CUH
#define SY_WORKERS_CUDA_KERNEL_COMMON_CUH

#ifndef SY_KERNEL_THREADS /* a power of two; the tests take fewer, too */
#define SY_KERNEL_THREADS 256
#endif
#define SY_KERNEL_BLOCKS (1 << 20) /* further elements are the loops' */
#define SY_KERNEL_WIDE   (1ll << 31)

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <cuda_on_cpu.cuh>
#endif

#include "workers/cuda/kernels/kernels.h"

/* The k-th index tuple's offset through each of N arrays of strides. I: 32 bits where they do, since division by 64 is slow. */
template <typename I, int N>
__device__ void sy_offsets(I k, int rank, const int64_t *dims, const int64_t *const *strides,
                           int64_t *out)
{
    for (int a = 0; a < N; a++)
        out[a] = 0;
    for (int d = rank - 1; d > 0; d--) {
        I extent = (I)dims[d], left = k / extent, index = k - left * extent;
        for (int a = 0; a < N; a++)
            out[a] += (int64_t)index * strides[a][d];
        k = left;
    }
    if (rank > 0)
        for (int a = 0; a < N; a++)
            out[a] += (int64_t)k * strides[a][0];
}

static inline int64_t sy_elements(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dims[d];
    return n;
}

/* For a block a row. */
static inline unsigned sy_row_blocks(int64_t rows)
{
    return (unsigned)(rows < SY_KERNEL_BLOCKS ? rows : SY_KERNEL_BLOCKS);
}

/* For a thread an element. */
static inline unsigned sy_blocks(int64_t n)
{
    return sy_row_blocks((n + SY_KERNEL_THREADS - 1) / SY_KERNEL_THREADS);
}

#ifdef __CUDACC__
#define SY_SHARED(type, name, dims) __shared__ type name dims

/* Once in each file, whose kernels are then loaded when the device is opened (math_warm.c). */
#define SY_KERNEL_FILE(name)                   \
    __global__ static void file_mark()         \
    {                                          \
    }                                          \
    const void *sy_kernel_file_##name(void)    \
    {                                          \
        return (const void *)file_mark;        \
    }

/* Of SY_KERNEL_THREADS threads a block; CUDA's error number. */
template <typename... P, typename... A>
static inline int sy_launch(void (*kernel)(P...), dim3 blocks, cudaStream_t stream, A... arguments)
{
    kernel<<<blocks, SY_KERNEL_THREADS, 0, stream>>>(arguments...);
    return (int)cudaGetLastError();
}

/* With other threads a block, and `shared_bytes` that each has besides what it names (sy_launched_room). */
template <typename... P, typename... A>
static inline int sy_launch_shared(void (*kernel)(P...), dim3 blocks, unsigned threads,
                                   size_t shared_bytes, cudaStream_t stream, A... arguments)
{
    const size_t unasked = 48 << 10;
    cudaError_t error = cudaSuccess;
    if (shared_bytes > unasked)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes);
    if (error != cudaSuccess)
        return (int)error;
    kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...);
    return (int)cudaGetLastError();
}
#else
#define SY_KERNEL_FILE(name)
#endif

#define SY_GENERIC(i, n)                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

/* What lies in memory as float32, and back, rounded to nearest even. */
__device__ inline float sy_wide(float x)
{
    return x;
}
__device__ inline float sy_wide(__half x)
{
    return __half2float(x);
}
__device__ inline float sy_wide(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> struct sy_store {
    __device__ static T of(float x)
    {
        return x;
    }
};
template <> struct sy_store<__half> {
    __device__ static __half of(float x)
    {
        return __float2half_rn(x);
    }
};
template <> struct sy_store<__nv_bfloat16> {
    __device__ static __nv_bfloat16 of(float x)
    {
        return __float2bfloat16_rn(x);
    }
};

/* The statement with T the C++ type of a float type. */
#define SY_WITH_FLOAT(type, T, ...)           \
    do {                                      \
        if ((type) == SY_DTYPE_F16) {         \
            using T = __half;                 \
            __VA_ARGS__;                      \
        } else if ((type) == SY_DTYPE_BF16) { \
            using T = __nv_bfloat16;          \
            __VA_ARGS__;                      \
        } else {                              \
            using T = float;                  \
            __VA_ARGS__;                      \
        }                                     \
    } while (0)

struct sy_add {
    template <typename V> __device__ static V of(V a, V b)
    {
        return a + b;
    }
};
struct sy_larger {
    template <typename V> __device__ static V of(V a, V b)
    {
        return a > b ? a : b;
    }
};

/* Of all SY_KERNEL_THREADS threads of the block, the same for each; a tree, so the same bits each time. */
template <typename Op, typename V> __device__ V sy_block_reduce(V value)
{
    SY_SHARED(V, room, [SY_KERNEL_THREADS]);
    __syncthreads(); /* the reduction before is read */
    room[threadIdx.x] = value;
    __syncthreads();
    for (int half = SY_KERNEL_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            room[threadIdx.x] = Op::of(room[threadIdx.x], room[threadIdx.x + half]);
        __syncthreads();
    }
    return room[0];
}

/* Pointers among a kernel's arguments that are not arguments of their own. */
template <int N> struct sy_pointers {
    void *at[N];
};

/* ---- windows: p is a struct sy_math_pool or sy_math_conv, d one of its dimensions ---- */

/* Where window number `out` begins in the input, its first element that lies inside, and one past its last. */
template <typename Window>
__device__ int64_t sy_clip_window(const Window &p, int d, int64_t out, int64_t *first, int64_t *end)
{
    int64_t start = out * p.strides[d] - p.pads[d], dilation = p.dilations[d];
    int64_t room = p.in[d] - start; /* from the window's start on */
    int64_t most = room <= 0 ? 0 : (room + dilation - 1) / dilation;
    *first = start < 0 ? (-start + dilation - 1) / dilation : 0;
    *end = most < p.kernel[d] ? most : p.kernel[d];
    return start;
}

/* The window that has input `in` as its element k; -1: none. */
template <typename Window>
__device__ int64_t sy_reader(const Window &p, int d, int64_t in, int64_t k)
{
    int64_t at = in + p.pads[d] - k * p.dilations[d];
    return at < 0 || at % p.strides[d] || at / p.strides[d] >= p.out[d] ? -1 : at / p.strides[d];
}

__device__ inline float sy_activate(float x, int activation, float alpha, float beta)
{
    switch (activation) {
    case SY_ACT_RELU:
        return x < 0 ? 0.0f : x;
    case SY_ACT_GELU_ERF:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case SY_ACT_TANH:
        return tanhf(x);
    case SY_ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case SY_ACT_CLIP:
        return x < alpha ? alpha : x > beta ? beta : x;
    default:
        return x;
    }
}

#endif

/* What the kernels' files share: index arithmetic, launches, sums over a block in one fixed order. */
#ifndef SY_WORKERS_CUDA_KERNEL_COMMON_CUH
#define SY_WORKERS_CUDA_KERNEL_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "workers/cuda/kernels.h"

#define SY_KERNEL_THREADS 256
#define SY_KERNEL_BLOCKS  (1 << 20) /* further elements are the loops' */
#define SY_KERNEL_WIDE    (1ll << 31)

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

static inline unsigned sy_blocks(int64_t n)
{
    int64_t blocks = (n + SY_KERNEL_THREADS - 1) / SY_KERNEL_THREADS;
    return (unsigned)(blocks < SY_KERNEL_BLOCKS ? blocks : SY_KERNEL_BLOCKS);
}

#define SY_EACH(i, n)                                                                     \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);              \
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

template <typename T>
struct sy_store {
    __device__ static T of(float x)
    {
        return x;
    }
};
template <>
struct sy_store<__half> {
    __device__ static __half of(float x)
    {
        return __float2half_rn(x);
    }
};
template <>
struct sy_store<__nv_bfloat16> {
    __device__ static __nv_bfloat16 of(float x)
    {
        return __float2bfloat16_rn(x);
    }
};

/* The statement with T the C++ type of a float type. */
#define SY_WITH_FLOAT(type, T, ...)    \
    do {                               \
        if ((type) == SY_DTYPE_F16) {  \
            using T = __half;          \
            __VA_ARGS__;               \
        } else if ((type) == SY_DTYPE_BF16) { \
            using T = __nv_bfloat16;   \
            __VA_ARGS__;               \
        } else {                       \
            using T = float;           \
            __VA_ARGS__;               \
        }                              \
    } while (0)

struct sy_add {
    __device__ static float of(float a, float b)
    {
        return a + b;
    }
};
struct sy_larger {
    __device__ static float of(float a, float b)
    {
        return a > b ? a : b;
    }
};

/* Of all SY_KERNEL_THREADS threads of the block, the same for each; a tree, so the same bits each time. */
template <typename Op>
__device__ float sy_block_fold(float value)
{
    __shared__ float room[SY_KERNEL_THREADS];
    __syncthreads(); /* the fold before is read */
    room[threadIdx.x] = value;
    __syncthreads();
    for (int half = SY_KERNEL_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            room[threadIdx.x] = Op::of(room[threadIdx.x], room[threadIdx.x + half]);
        __syncthreads();
    }
    return room[0];
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

/* Sums over ranks, in their order: what MPI's ranks compute on the host, bit for bit. */
#include "workers/cuda/kernels/kernels_ranks.h"

#include "workers/cuda/kernels/kernel_common.cuh"

__global__ static void add_parts(int n_parts, int64_t n, const float *from, float *to)
{
    SY_GENERIC(i, n)
    {
        float sum = from[i];
        for (int p = 1; p < n_parts; p++)
            sum += from[p * n + i];
        to[i] = sum;
    }
}

__global__ static void scale(int64_t n, float share, const float *from, float *to)
{
    SY_GENERIC(i, n)
    to[i] = from[i] * share;
}

int sy_kernel_add_ranks(struct CUstream_st *stream, int n_parts, int64_t n, const float *from,
                        float *to)
{
    return n ? sy_launch(add_parts, sy_blocks(n), stream, n_parts, n, from, to) : 0;
}

int sy_kernel_scale(struct CUstream_st *stream, int64_t n, float share, const float *from,
                    float *to)
{
    return n ? sy_launch(scale, sy_blocks(n), stream, n, share, from, to) : 0;
}

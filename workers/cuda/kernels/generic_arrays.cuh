/* What the kernels of generic.h share: elements of any type by number, and one launch for all of them. */
#ifndef SY_WORKERS_CUDA_GENERIC_ARRAYS_CUH
#define SY_WORKERS_CUDA_GENERIC_ARRAYS_CUH

#include "workers/cuda/kernels/kernel_common.cuh"
#include "workers/cuda/kernels/kernels_generic.h"

#define GENERIC_OUT SY_GENERIC_IN /* the first result among the arrays */

struct each {
    const sy_math_generic &e;
    const sy_pointers<SY_GENERIC_ARRAYS> &p;
    sy_math_fault *fault;

    __device__ const sy_generic_array &array(int a) const
    {
        return e.at[a];
    }
    __device__ bool has(int a) const
    {
        return e.at[a].dtype != SY_DTYPE_NONE;
    }
    __device__ bool is_float(int a) const
    {
        enum sy_dtype t = e.at[a].dtype;
        return t == SY_DTYPE_F32 || t == SY_DTYPE_F64 || t == SY_DTYPE_F16 || t == SY_DTYPE_BF16;
    }
    /* uint64, which only pairs have, as the same 64 bits. */
    __device__ int64_t get_int(int a, int64_t i) const
    {
        switch (e.at[a].dtype) {
        case SY_DTYPE_I64:
        case SY_DTYPE_U64:
            return ((const int64_t *)p.at[a])[i];
        case SY_DTYPE_I32:
            return ((const int32_t *)p.at[a])[i];
        case SY_DTYPE_U32:
            return ((const uint32_t *)p.at[a])[i];
        case SY_DTYPE_I16:
            return ((const int16_t *)p.at[a])[i];
        case SY_DTYPE_U16:
            return ((const uint16_t *)p.at[a])[i];
        case SY_DTYPE_I8:
            return ((const int8_t *)p.at[a])[i];
        default:
            return ((const uint8_t *)p.at[a])[i];
        }
    }
    __device__ double get(int a, int64_t i) const
    {
        switch (e.at[a].dtype) {
        case SY_DTYPE_F32:
            return (double)((const float *)p.at[a])[i];
        case SY_DTYPE_F64:
            return ((const double *)p.at[a])[i];
        case SY_DTYPE_F16:
            return (double)sy_wide(((const __half *)p.at[a])[i]);
        case SY_DTYPE_BF16:
            return (double)sy_wide(((const __nv_bfloat16 *)p.at[a])[i]);
        default:
            return (double)get_int(a, i);
        }
    }
    /* Integers wrap around. */
    __device__ void put_int(int a, int64_t i, int64_t value) const
    {
        switch (e.at[a].dtype) {
        case SY_DTYPE_I64:
        case SY_DTYPE_U64:
            ((int64_t *)p.at[a])[i] = value;
            break;
        case SY_DTYPE_I32:
            ((int32_t *)p.at[a])[i] = (int32_t)value;
            break;
        case SY_DTYPE_U32:
            ((uint32_t *)p.at[a])[i] = (uint32_t)value;
            break;
        case SY_DTYPE_I16:
        case SY_DTYPE_U16:
            ((uint16_t *)p.at[a])[i] = (uint16_t)value;
            break;
        case SY_DTYPE_BOOL:
            ((uint8_t *)p.at[a])[i] = value != 0;
            break;
        default:
            ((uint8_t *)p.at[a])[i] = (uint8_t)value;
            break;
        }
    }
    /* Toward zero for integers; outside int64 it is 0. */
    __device__ void put(int a, int64_t i, double value) const
    {
        switch (e.at[a].dtype) {
        case SY_DTYPE_F32:
            ((float *)p.at[a])[i] = (float)value;
            break;
        case SY_DTYPE_F64:
            ((double *)p.at[a])[i] = value;
            break;
        case SY_DTYPE_F16:
            ((__half *)p.at[a])[i] = sy_store<__half>::of((float)value);
            break;
        case SY_DTYPE_BF16:
            ((__nv_bfloat16 *)p.at[a])[i] = sy_store<__nv_bfloat16>::of((float)value);
            break;
        case SY_DTYPE_BOOL:
            ((uint8_t *)p.at[a])[i] = value != 0;
            break;
        default:
            put_int(a, i, value > -9.2e18 && value < 9.2e18 ? (int64_t)value : 0);
            break;
        }
    }
    __device__ double rounded(int a, double value) const
    {
        switch (e.at[a].dtype) {
        case SY_DTYPE_F32:
            return (double)(float)value;
        case SY_DTYPE_F16:
            return (double)sy_wide(sy_store<__half>::of((float)value));
        case SY_DTYPE_BF16:
            return (double)sy_wide(sy_store<__nv_bfloat16>::of((float)value));
        default:
            return value;
        }
    }
    __device__ void copy(int to, int64_t i, int from, int64_t k) const
    {
        switch (e.at[from].dtype) {
        case SY_DTYPE_I64:
        case SY_DTYPE_F64:
            ((uint64_t *)p.at[to])[i] = ((const uint64_t *)p.at[from])[k];
            break;
        case SY_DTYPE_I32:
        case SY_DTYPE_U32:
        case SY_DTYPE_F32:
            ((uint32_t *)p.at[to])[i] = ((const uint32_t *)p.at[from])[k];
            break;
        case SY_DTYPE_I16:
        case SY_DTYPE_U16:
        case SY_DTYPE_F16:
        case SY_DTYPE_BF16:
            ((uint16_t *)p.at[to])[i] = ((const uint16_t *)p.at[from])[k];
            break;
        default:
            ((uint8_t *)p.at[to])[i] = ((const uint8_t *)p.at[from])[k];
            break;
        }
    }
    /* The element of array a that belongs to element i of the first result (broadcast). */
    __device__ int64_t seen(int a, int64_t i) const
    {
        const sy_generic_array &y = e.at[GENERIC_OUT];
        int64_t at = 0;
        for (int d = y.rank - 1; d >= 0; d--) {
            at += i % y.dims[d] * e.at[a].strides[d];
            i /= y.dims[d];
        }
        return at;
    }
    /* The product of dims [first, end). */
    __device__ int64_t extent(int a, int first, int end) const
    {
        int64_t n = 1;
        for (int d = first; d < end; d++)
            n *= e.at[a].dims[d];
        return n;
    }
    /* The run is refused; it goes on with something that is there. */
    __device__ void tell(int64_t index) const
    {
        fault->index = index;
        fault->step = e.step;
    }
    __device__ int64_t checked(int64_t index, int64_t extent) const
    {
        if (index < -extent || index >= extent) {
            tell(index);
            index = 0;
        }
        return index < 0 ? index + extent : index;
    }
};

template <typename F>
__global__ static void each_kernel(const __grid_constant__ sy_math_generic e,
                                   const __grid_constant__ sy_pointers<SY_GENERIC_ARRAYS> p,
                                   sy_math_fault *fault)
{
    const each call = {e, p, fault};
    SY_GENERIC (i, e.items)
        F::of(call, i);
}

/* A block for each item. */
template <typename F>
__global__ static void each_block_kernel(const __grid_constant__ sy_math_generic e,
                                         const __grid_constant__ sy_pointers<SY_GENERIC_ARRAYS> p,
                                   sy_math_fault *fault)
{
    const each call = {e, p, fault};
    for (int64_t i = blockIdx.x; i < e.items; i += gridDim.x)
        F::of(call, i);
}

template <typename F>
static int generic_launch(cudaStream_t stream, const sy_math_generic *e, void *const *at,
                       sy_math_fault *fault)
{
    sy_pointers<SY_GENERIC_ARRAYS> p;
    for (int i = 0; i < SY_GENERIC_ARRAYS; i++)
        p.at[i] = at[i];
    return sy_launch(each_kernel<F>, sy_blocks(e->items), stream, *e, p, fault);
}

template <typename F>
static int generic_launch_blocks(cudaStream_t stream, const sy_math_generic *e, void *const *at,
                              sy_math_fault *fault)
{
    sy_pointers<SY_GENERIC_ARRAYS> p;
    for (int i = 0; i < SY_GENERIC_ARRAYS; i++)
        p.at[i] = at[i];
    return sy_launch(each_block_kernel<F>, sy_row_blocks(e->items), stream, *e, p, fault);
}

#endif

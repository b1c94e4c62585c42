/* What a warp does as one: products of small tiles on tensor cores, loads of their operands out of shared memory, exchange between lanes;
 * and copies from global to shared memory that go on meanwhile. Each function is called by all 32 lanes, but for the copies. The tests
 * have the same functions for the CPU (tests/on_cpu/warp_on_cpu.cuh).
 *
 * A lane's part of a tile of the result, [16, 8]: rows lane / 4 and lane / 4 + 8, columns lane % 4 * 2 and the one behind; c has them in this
 * order, row after row. Of the left operand, [16, 16] of 16 bits: a pair of columns, as above, in the four quarters of 8 by 8, down first. Of
 * the right one, [16, 8]: pairs of rows lane % 4 * 2 and 8 more, of column lane / 4. */
#ifndef SY_WORKERS_CUDA_WARP_CUH
#define SY_WORKERS_CUDA_WARP_CUH

#include "workers/cuda/kernels/kernel_common.cuh"

#define SY_WARP 32

#ifdef __CUDACC__

/* ---- shared memory ---- */

/* The block's dynamic shared memory (sy_launch_shared), aligned to 16 bytes. */
__device__ inline unsigned char *sy_launched_room()
{
    extern __shared__ __align__(16) unsigned char sy_room[];
    return sy_room;
}

/* 16 bytes to `shared`, the first `bytes` of them from `from`, zeros behind; both aligned to 16. There after commit and wait. */
__device__ inline void sy_copy_async(void *shared, const void *from, int bytes)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}

/* The thread's copies so far are one group. */
__device__ inline void sy_copy_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Until all of the thread's groups are there; what other threads copied, after a barrier. */
__device__ inline void sy_copy_wait()
{
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}

/* ---- between lanes ---- */

__device__ inline float sy_lane_xor(float value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

__device__ inline void sy_warp_barrier()
{
    __syncwarp();
}

/* 2^x; less than 2^-126 is 0. */
__device__ inline float sy_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* ---- tiles ---- */

/* Four matrices of 8 by 8 elements of 16 bits: `row`: of lanes 0 to 7 the rows of the first, and so on, aligned to 16 bytes. Each lane gets of
 * each the pair at row lane / 4, columns lane % 4 * 2 and the one behind. */
__device__ inline void sy_load_tiles(uint32_t (&to)[4], const void *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* Of each matrix transposed. */
__device__ inline void sy_load_tiles_transposed(uint32_t (&to)[4], const void *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* c += a b, of [16, 16] and [16, 8]; summed in float32. */
template <typename T>
__device__ inline void sy_tile_product(float &c0, float &c1, float &c2, float &c3,
                                       const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void sy_tile_product<__half>(float &c0, float &c1, float &c2, float &c3,
                                               const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void sy_tile_product<__nv_bfloat16>(float &c0, float &c1, float &c2, float &c3,
                                                      const uint32_t (&a)[4], uint32_t b0,
                                                      uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Rounded to TF32, to nearest. */
__device__ inline uint32_t sy_tf32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(x));
    return bits;
}

/* c += a b, of [16, 8] and [8, 8] of TF32: a holds rows lane / 4 and 8 more of column lane % 4, then of the column 4 more; b rows lane % 4 and 4
 * more of column lane / 4. */
__device__ inline void sy_tile_product_tf32(float &c0, float &c1, float &c2, float &c3,
                                            const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else
#include <warp_on_cpu.cuh>
#endif

/* Two numbers rounded to T, the first in the low half. */
template <typename T> __device__ inline uint32_t sy_pair(float low, float high)
{
    T both[2] = {sy_store<T>::of(low), sy_store<T>::of(high)};
    uint32_t bits;
    memcpy(&bits, both, sizeof bits);
    return bits;
}

#endif

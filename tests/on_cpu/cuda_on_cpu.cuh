/* What the kernels use of CUDA, for the CPU: a launch is a loop over blocks, a block's threads run one after another, as fibers if they
 * meet at barriers. What CUDA leaves open is made unpleasant: shared memory begins as NaN, blocks and threads run in an order that
 * a test can choose. What CUDA forbids ends the process with a line that says what: a barrier that not all threads reach, or not
 * the same, a grid out of range, a kernel that is given memory of the host. */
#ifndef SY_TESTS_CUDA_ON_CPU_CUH
#define SY_TESTS_CUDA_ON_CPU_CUH

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

extern "C" {
#include "runtime/base/half.h"
}
#include "tests/on_cpu/cpu_launch.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)

using std::isfinite;
using std::isnan;

/* ---- where a thread is ---- */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define threadIdx cpu_position.thread
#define blockIdx  cpu_position.block
#define blockDim  cpu_position.threads
#define gridDim   cpu_position.blocks

#define __syncthreads()        ((void)cpu_barrier(__FILE__, __LINE__, 0))
#define __syncthreads_or(flag) cpu_barrier(__FILE__, __LINE__, (flag))

#define SY_SHARED(type, name, dims) \
    static type name dims;          \
    cpu_shared(&name, sizeof name)

/* ---- types ---- */

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __half2float(__half x)
{
    return sy_half_to_float(x.bits);
}
static inline __half __float2half_rn(float x)
{
    return {sy_float_to_half(x)};
}
static inline __half __ushort_as_half(uint16_t bits)
{
    return {bits};
}
static inline uint16_t __half_as_ushort(__half x)
{
    return x.bits;
}
static inline float __bfloat162float(__nv_bfloat16 x)
{
    return sy_bf16_to_float(x.bits);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {sy_float_to_bf16(x)};
}
static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}
static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- launches ---- */

typedef struct CUstream_st *cudaStream_t;
enum { cudaErrorInvalidValue = 1 };

/* Device pointers are no addresses here (cpu_launch.h). */
template <typename T> T cpu_seen(T argument)
{
    return argument;
}
template <typename T> T *cpu_seen(T *device)
{
    return (T *)cpu_address((const void *)device);
}
template <int N> struct sy_pointers;
template <int N> sy_pointers<N> cpu_seen(sy_pointers<N> pointers)
{
    for (int i = 0; i < N; i++)
        pointers.at[i] = cpu_address(pointers.at[i]);
    return pointers;
}

template <typename T> struct cpu_same {
    using type = T;
};

template <typename Body> void cpu_call(const void *body)
{
    (*(const Body *)body)();
}

/* The arguments are copied, as CUDA does; the kernel runs when the stream does. */
template <typename... P>
int sy_launch_shared(void (*kernel)(P...), dim3 blocks, unsigned threads, size_t shared_bytes,
                     cudaStream_t stream, typename cpu_same<P>::type... arguments)
{
    auto body = [=] { kernel(cpu_seen(arguments)...); };
    static_assert(std::is_trivially_copyable_v<decltype(body)>, "a kernel's arguments are bytes");
    static_assert(sizeof body <= 32764, "CUDA takes so many bytes of arguments, from sm_70 on");
    cpu_work work = {{blocks.x, blocks.y, blocks.z}, threads,     (unsigned)shared_bytes,
                     cpu_call<decltype(body)>,       sizeof body, &body};
    return cpu_launch(stream, &work);
}

template <typename... P>
int sy_launch(void (*kernel)(P...), dim3 blocks, cudaStream_t stream,
              typename cpu_same<P>::type... arguments)
{
    return sy_launch_shared(kernel, blocks, SY_KERNEL_THREADS, 0, stream, arguments...);
}

#endif

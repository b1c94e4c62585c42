/* Elementwise chains. */
#include "workers/cuda/kernels/kernel_common.cuh"

SY_KERNEL_FILE(chains)

/* ---- chains ------------------------------------------------------------------------------------------ */

using chain_inputs = sy_pointers<SY_MATH_CHAIN_IN>;

__device__ static float unary(const sy_math_chain_step &s, float x)
{
    switch (s.code) {
    case SY_CHAIN_LEAKY:
        return x < 0 ? (s.alpha == 0 ? 0.0f : s.alpha * x) : x; /* relu of -inf is 0 */
    case SY_CHAIN_SIGMOID:
        return 1 / (1 + expf(-x));
    case SY_CHAIN_TANH:
        return tanhf(x);
    case SY_CHAIN_CLIP:
        x = x < s.alpha ? s.alpha : x;
        return x > s.beta ? s.beta : x;
    case SY_CHAIN_ELU:
        return x < 0 ? s.alpha * expm1f(x) : x;
    case SY_CHAIN_EXP:
        return expf(x);
    case SY_CHAIN_LOG:
        return logf(x);
    case SY_CHAIN_SQRT:
        return sqrtf(x);
    case SY_CHAIN_ABS:
        return fabsf(x);
    case SY_CHAIN_LINEAR:
        return s.alpha * x + s.beta;
    case SY_CHAIN_RECIPROCAL:
        return 1 / x;
    case SY_CHAIN_GELU_ERF:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case SY_CHAIN_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case SY_CHAIN_ERF:
        return erff(x);
    case SY_CHAIN_HARD_SIGMOID:
        return fmaxf(0.0f, fminf(1.0f, s.alpha * x + s.beta));
    case SY_CHAIN_HARD_SWISH:
        return x * fmaxf(0.0f, fminf(1.0f, x / 6 + 0.5f));
    default:
        return x;
    }
}

/* d (x cdf(x)) / dx = cdf(x) + x pdf(x); by tanh: the derivative of that formula. */
__device__ static float gelu_slope(float x, bool by_tanh)
{
    if (!by_tanh)
        return 0.5f * (1 + erff(x * 0.70710678118654752f)) +
               x * 0.39894228040143268f * expf(-0.5f * x * x);
    float t = tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) +
           0.5f * x * (1 - t * t) * 0.79788456080286536f * (1 + 3 * 0.044715f * x * x);
}

/* x times the derivative, y: the result or the input of the forward. */
__device__ static float slope(const sy_math_chain_step &s, float x, float y)
{
    switch (s.code) {
    case SY_CHAIN_GRAD_LEAKY:
        return y > 0 ? x : s.alpha * x;
    case SY_CHAIN_GRAD_SIGMOID:
        return x * y * (1 - y);
    case SY_CHAIN_GRAD_TANH:
        return x * (1 - y * y);
    case SY_CHAIN_GRAD_ELU:
        return y > 0 ? x : x * (y + s.alpha);
    case SY_CHAIN_GRAD_GELU_ERF:
        return x * gelu_slope(y, false);
    case SY_CHAIN_GRAD_GELU_TANH:
        return x * gelu_slope(y, true);
    case SY_CHAIN_GRAD_HARD_SWISH:
        return y <= -3 ? 0.0f : y >= 3 ? x : x * (y / 3 + 0.5f);
    case SY_CHAIN_GRAD_CLIP:
        return y > s.alpha && y < s.beta ? x : 0.0f;
    default:
        return x;
    }
}

__device__ static float step(const sy_math_chain_step &s, float x, float y)
{
    if (s.code > SY_CHAIN_MUL_RSQRT && s.code <= SY_CHAIN_LAST_OPERAND)
        return slope(s, x, y);
    switch (s.code) {
    case SY_CHAIN_LOAD:
        return y;
    case SY_CHAIN_ADD:
        return x + y;
    case SY_CHAIN_SUB:
        return x - y;
    case SY_CHAIN_MUL:
        return x * y;
    case SY_CHAIN_DIV:
        return x / y;
    case SY_CHAIN_POW:
        return y == 2 ? x * x : powf(x, y);
    case SY_CHAIN_MAX:
        return isnan(x) || x > y ? x : y;
    case SY_CHAIN_MIN:
        return isnan(x) || x < y ? x : y;
    case SY_CHAIN_MUL_RSQRT:
        return x / sqrtf(y + s.alpha);
    default:
        return unary(s, x);
    }
}

/* Wraps around; a negative exponent gives 1 / x^-y, rounded toward zero. */
__device__ static int64_t power(int64_t x, int64_t y)
{
    uint64_t result = 1, factor = (uint64_t)x;
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    for (; y > 0; y >>= 1, factor *= factor)
        result *= y & 1 ? factor : 1;
    return (int64_t)result;
}

__device__ static int64_t step(const sy_math_chain_step &s, int64_t x, int64_t y)
{
    switch (s.code) {
    case SY_CHAIN_LOAD:
        return y;
    case SY_CHAIN_ADD:
        return (int64_t)((uint64_t)x + (uint64_t)y);
    case SY_CHAIN_SUB:
        return (int64_t)((uint64_t)x - (uint64_t)y);
    case SY_CHAIN_MUL:
        return (int64_t)((uint64_t)x * (uint64_t)y);
    case SY_CHAIN_DIV:
        return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
    case SY_CHAIN_POW:
        return power(x, y);
    case SY_CHAIN_MAX:
        return x > y ? x : y;
    case SY_CHAIN_MIN:
        return x < y ? x : y;
    default:
        return x;
    }
}

/* Which type is the same for all threads, so the branch costs little beside the memory. */
__device__ static float load_float(const void *at, enum sy_dtype type, int64_t i)
{
    if (type == SY_DTYPE_BF16)
        return sy_wide(((const __nv_bfloat16 *)at)[i]);
    if (type == SY_DTYPE_F16)
        return sy_wide(((const __half *)at)[i]);
    return ((const float *)at)[i];
}

__device__ static void store_float(void *at, enum sy_dtype type, int64_t i, float x)
{
    if (type == SY_DTYPE_BF16)
        ((__nv_bfloat16 *)at)[i] = sy_store<__nv_bfloat16>::of(x);
    else if (type == SY_DTYPE_F16)
        ((__half *)at)[i] = sy_store<__half>::of(x);
    else
        ((float *)at)[i] = x;
}

/* How elements lie in memory, and what is computed with. All of type T: */
template <typename T, typename V> struct of_type {
    using value = V;
    __device__ static V load(const void *at, enum sy_dtype, int64_t i)
    {
        return (V)((const T *)at)[i];
    }
    __device__ static void store(void *at, enum sy_dtype, int64_t i, V x)
    {
        ((T *)at)[i] = (T)x;
    }
};

/* Each array of its own float type: */
struct of_floats {
    using value = float;
    __device__ static float load(const void *at, enum sy_dtype type, int64_t i)
    {
        return load_float(at, type, i);
    }
    __device__ static void store(void *at, enum sy_dtype type, int64_t i, float x)
    {
        store_float(at, type, i, x);
    }
};

template <typename I, typename Memory>
__global__ static void chain_kernel(const __grid_constant__ sy_math_chain c,
                                    const __grid_constant__ chain_inputs inputs, void *out,
                                    int64_t n)
{
    using V = typename Memory::value;
    const int64_t *strides[1 + SY_MATH_CHAIN_IN] = {c.out_strides,   c.in_strides[0],
                                                    c.in_strides[1], c.in_strides[2],
                                                    c.in_strides[3], c.in_strides[4]};
    SY_GENERIC (i, n) {
        int64_t at[1 + SY_MATH_CHAIN_IN];
        V value = 0;
        sy_offsets<I, 1 + SY_MATH_CHAIN_IN>((I)i, c.rank, c.dims, strides, at);
        for (int s = 0; s < c.n_steps; s++) {
            V operand = 0;
            int k = c.steps[s].input;
            if (c.steps[s].code <= SY_CHAIN_LAST_OPERAND)
                operand = Memory::load(inputs.at[k], c.in_types[k], at[1 + k]);
            value = step(c.steps[s], value, operand);
        }
        Memory::store(out, c.out_type, at[0], value);
    }
}

template <typename Memory>
static int launch_chain(cudaStream_t stream, const sy_math_chain &c, const chain_inputs &in,
                        void *out, int64_t n)
{
    return n < SY_KERNEL_WIDE
               ? sy_launch(chain_kernel<uint32_t, Memory>, sy_blocks(n), stream, c, in, out, n)
               : sy_launch(chain_kernel<uint64_t, Memory>, sy_blocks(n), stream, c, in, out, n);
}

/* ---- chains, four elements a thread ----
 *
 * What nearly all chains are: rows of columns that lie side by side; an input is as the output, a row for all, or a number for each row. */

#define STRIP 4

struct strip_rows {
    int64_t stride[SY_MATH_CHAIN_IN];
    bool is_number[SY_MATH_CHAIN_IN]; /* of a row */
};

__device__ static void load_strip(const void *at, enum sy_dtype type, int64_t i, float *x)
{
    if (type == SY_DTYPE_BF16 || type == SY_DTYPE_F16) {
        uint2 raw = *(const uint2 *)((const uint16_t *)at + i);
        const uint16_t bits[STRIP] = {(uint16_t)(raw.x & 0xffff), (uint16_t)(raw.x >> 16),
                                      (uint16_t)(raw.y & 0xffff), (uint16_t)(raw.y >> 16)};
        for (int e = 0; e < STRIP; e++)
            x[e] = type == SY_DTYPE_BF16 ? __uint_as_float((uint32_t)bits[e] << 16)
                                         : __half2float(__ushort_as_half(bits[e]));
        return;
    }
    float4 v = *(const float4 *)((const float *)at + i);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}

__device__ static void store_strip(void *at, enum sy_dtype type, int64_t i, const float *x)
{
    if (type != SY_DTYPE_BF16 && type != SY_DTYPE_F16) {
        *(float4 *)((float *)at + i) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
    uint32_t bits[STRIP];
    for (int e = 0; e < STRIP; e++)
        bits[e] = type == SY_DTYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x[e]))
                                        : __half_as_ushort(__float2half_rn(x[e]));
    *(uint2 *)((uint16_t *)at + i) = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

/* n strips; `columns` strips a row. I: 32 bits where they do. */
template <typename I>
__global__ static void strip_kernel(const __grid_constant__ sy_math_chain c,
                                    const __grid_constant__ chain_inputs in,
                                    const __grid_constant__ strip_rows rows, void *out, int64_t n,
                                    int64_t columns)
{
    SY_GENERIC (k, n) {
        int64_t row = (int64_t)((I)k / (I)columns), column = (k - row * columns) * STRIP;
        float value[STRIP] = {0, 0, 0, 0};
        for (int s = 0; s < c.n_steps; s++) {
            float operand[STRIP] = {0, 0, 0, 0};
            int i = c.steps[s].input;
            if (c.steps[s].code <= SY_CHAIN_LAST_OPERAND && rows.is_number[i])
                operand[0] = operand[1] = operand[2] = operand[3] =
                    load_float(in.at[i], c.in_types[i], row * rows.stride[i]);
            else if (c.steps[s].code <= SY_CHAIN_LAST_OPERAND)
                load_strip(in.at[i], c.in_types[i], row * rows.stride[i] + column, operand);
            for (int e = 0; e < STRIP; e++)
                value[e] = step(c.steps[s], value[e], operand[e]);
        }
        store_strip(out, c.out_type, k * STRIP, value);
    }
}

static bool is_aligned(const void *at, enum sy_dtype type)
{
    return (uintptr_t)at % (STRIP * (size_t)sy_math_float_bytes(type)) == 0;
}

/* False: the chain is of another kind. */
static bool describe_strips(const sy_math_chain &c, const chain_inputs &in, const void *out,
                            strip_rows *strips)
{
    int64_t columns = c.rank > 0 ? c.dims[c.rank - 1] : 1, rows = c.rank > 1 ? c.dims[0] : 1;
    if (c.rank < 1 || c.rank > 2 || columns % STRIP || c.out_strides[c.rank - 1] != 1 ||
        (rows > 1 && c.out_strides[0] != columns) || !is_aligned(out, c.out_type))
        return false;
    for (int i = 0; i < c.n_inputs; i++) {
        int64_t stride = c.in_strides[i][c.rank - 1];
        strips->is_number[i] = stride == 0;
        strips->stride[i] = rows > 1 ? c.in_strides[i][0] : 0;
        if (stride == 0)
            continue;
        if (stride != 1 || strips->stride[i] % STRIP || !is_aligned(in.at[i], c.in_types[i]))
            return false;
    }
    return true;
}

static int launch_strips(cudaStream_t stream, const sy_math_chain &c, const chain_inputs &in,
                         const strip_rows &rows, void *out, int64_t n)
{
    int64_t columns = c.dims[c.rank - 1] / STRIP, strips = n / STRIP;
    return n < SY_KERNEL_WIDE ? sy_launch(strip_kernel<uint32_t>, sy_blocks(strips), stream, c, in,
                                          rows, out, strips, columns)
                              : sy_launch(strip_kernel<uint64_t>, sy_blocks(strips), stream, c, in,
                                          rows, out, strips, columns);
}

static bool is_mixed(const sy_math_chain &c)
{
    bool mixed = sy_math_is_narrow(c.out_type);
    for (int i = 0; i < c.n_inputs; i++)
        mixed = mixed || sy_math_is_narrow(c.in_types[i]);
    return mixed;
}

int sy_kernel_chain(struct CUstream_st *stream, const struct sy_math_chain *chain,
                    const void *const *in, void *out)
{
    chain_inputs inputs = {};
    strip_rows rows = {};
    int64_t n = sy_elements(chain->rank, chain->dims);
    for (int i = 0; i < chain->n_inputs; i++)
        inputs.at[i] = (void *)in[i];
    if (n == 0)
        return 0;
    if (chain->dtype == SY_DTYPE_I32)
        return launch_chain<of_type<int32_t, int64_t>>(stream, *chain, inputs, out, n);
    if (chain->dtype != SY_DTYPE_F32)
        return launch_chain<of_type<int64_t, int64_t>>(stream, *chain, inputs, out, n);
    if (describe_strips(*chain, inputs, out, &rows))
        return launch_strips(stream, *chain, inputs, rows, out, n);
    if (is_mixed(*chain))
        return launch_chain<of_floats>(stream, *chain, inputs, out, n);
    return launch_chain<of_type<float, float>>(stream, *chain, inputs, out, n);
}

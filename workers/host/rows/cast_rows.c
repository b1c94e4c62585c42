#include "workers/host/rows/cast_rows.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"

#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

/* As C converts; a float outside the integer's range gives 0, as nothing is defined for it. */
static int64_t to_integer(float x)
{
    return x > -9.2e18f && x < 9.2e18f ? (int64_t)x : 0;
}

static int64_t load_integer(enum sy_dtype dtype, const void *in, int64_t i)
{
    switch (dtype) {
    case SY_DTYPE_I64:
        return ((const int64_t *)in)[i];
    case SY_DTYPE_I32:
        return ((const int32_t *)in)[i];
    case SY_DTYPE_U32:
        return ((const uint32_t *)in)[i];
    case SY_DTYPE_I16:
        return ((const int16_t *)in)[i];
    case SY_DTYPE_U16:
        return ((const uint16_t *)in)[i];
    case SY_DTYPE_I8:
        return ((const int8_t *)in)[i];
    case SY_DTYPE_F32:
        return to_integer(((const float *)in)[i]);
    default:
        return ((const uint8_t *)in)[i];
    }
}

static int64_t double_to_integer(double x)
{
    return x > -9.2e18 && x < 9.2e18 ? (int64_t)x : 0;
}

static bool castable(enum sy_dtype dtype)
{
    switch (dtype) {
    case SY_DTYPE_F32:
    case SY_DTYPE_I64:
    case SY_DTYPE_I32:
    case SY_DTYPE_U32:
    case SY_DTYPE_I16:
    case SY_DTYPE_U16:
    case SY_DTYPE_I8:
    case SY_DTYPE_U8:
    case SY_DTYPE_BOOL:
        return true;
    default:
        return false;
    }
}

/* The pairs that models have on long tensors (samples, pixels, masks, indices), in loops of one type. */
#define CAST(name, type, result, value)                                                \
    SY_CLONES static void name(int64_t n, const void *restrict in, void *restrict out) \
    {                                                                                  \
        const type *x = in;                                                            \
        result *y = out;                                                               \
        for (int64_t i = 0; i < n; i++)                                                \
            y[i] = (result)(value);                                                    \
    }
CAST(f32_of_i64, int64_t, float, x[i])
CAST(f32_of_i32, int32_t, float, x[i])
CAST(f32_of_i16, int16_t, float, x[i])
CAST(f32_of_u16, uint16_t, float, x[i])
CAST(f32_of_i8, int8_t, float, x[i])
CAST(f32_of_u8, uint8_t, float, x[i])
CAST(i64_of_f32, float, int64_t, to_integer(x[i]))
CAST(i32_of_f32, float, int32_t, to_integer(x[i]))
CAST(bool_of_f32, float, uint8_t, x[i] != 0)
CAST(i64_of_i32, int32_t, int64_t, x[i])
CAST(i32_of_i64, int64_t, int32_t, x[i])
CAST(i64_of_u8, uint8_t, int64_t, x[i])
CAST(i32_of_u8, uint8_t, int32_t, x[i])
CAST(bool_of_i64, int64_t, uint8_t, x[i] != 0)
CAST(bool_of_i32, int32_t, uint8_t, x[i] != 0)
CAST(f64_of_f32, float, double, x[i])
CAST(f32_of_f64, double, float, x[i])
CAST(f64_of_i64, int64_t, double, x[i])
CAST(f64_of_i32, int32_t, double, x[i])
CAST(f64_of_u8, uint8_t, double, x[i])
CAST(i64_of_f64, double, int64_t, double_to_integer(x[i]))
CAST(i32_of_f64, double, int32_t, double_to_integer(x[i]))
CAST(bool_of_f64, double, uint8_t, x[i] != 0)
#ifdef __FLT16_MAX__ /* the compiler has the type */
CAST(f16_of_f32, float, _Float16, x[i])
CAST(f32_of_f16, _Float16, float, x[i])
#endif

static const struct fast_cast {
    enum sy_dtype from, to;
    void (*run)(int64_t n, const void *restrict in, void *restrict out);
} fast_casts[] = {
    {SY_DTYPE_I64, SY_DTYPE_F32, f32_of_i64},   {SY_DTYPE_I32, SY_DTYPE_F32, f32_of_i32},
    {SY_DTYPE_I16, SY_DTYPE_F32, f32_of_i16},   {SY_DTYPE_U16, SY_DTYPE_F32, f32_of_u16},
    {SY_DTYPE_I8, SY_DTYPE_F32, f32_of_i8},     {SY_DTYPE_U8, SY_DTYPE_F32, f32_of_u8},
    {SY_DTYPE_BOOL, SY_DTYPE_F32, f32_of_u8},   {SY_DTYPE_F32, SY_DTYPE_I64, i64_of_f32},
    {SY_DTYPE_F32, SY_DTYPE_I32, i32_of_f32},   {SY_DTYPE_F32, SY_DTYPE_BOOL, bool_of_f32},
    {SY_DTYPE_I32, SY_DTYPE_I64, i64_of_i32},   {SY_DTYPE_I64, SY_DTYPE_I32, i32_of_i64},
    {SY_DTYPE_U8, SY_DTYPE_I64, i64_of_u8},     {SY_DTYPE_BOOL, SY_DTYPE_I64, i64_of_u8},
    {SY_DTYPE_U8, SY_DTYPE_I32, i32_of_u8},     {SY_DTYPE_BOOL, SY_DTYPE_I32, i32_of_u8},
    {SY_DTYPE_F32, SY_DTYPE_F64, f64_of_f32},   {SY_DTYPE_F64, SY_DTYPE_F32, f32_of_f64},
    {SY_DTYPE_I64, SY_DTYPE_BOOL, bool_of_i64}, {SY_DTYPE_I32, SY_DTYPE_BOOL, bool_of_i32},
    {SY_DTYPE_I64, SY_DTYPE_F64, f64_of_i64},   {SY_DTYPE_I32, SY_DTYPE_F64, f64_of_i32},
    {SY_DTYPE_U8, SY_DTYPE_F64, f64_of_u8},     {SY_DTYPE_BOOL, SY_DTYPE_F64, f64_of_u8},
    {SY_DTYPE_F64, SY_DTYPE_I64, i64_of_f64},   {SY_DTYPE_F64, SY_DTYPE_I32, i32_of_f64},
    {SY_DTYPE_F64, SY_DTYPE_BOOL, bool_of_f64},
#ifdef __FLT16_MAX__
    {SY_DTYPE_F32, SY_DTYPE_F16, f16_of_f32},   {SY_DTYPE_F16, SY_DTYPE_F32, f32_of_f16},
#endif
};

static bool fast_cast(enum sy_dtype from, enum sy_dtype to, int64_t n, const void *in, void *out)
{
    for (size_t i = 0; i < sizeof fast_casts / sizeof *fast_casts; i++)
        if (fast_casts[i].from == from && fast_casts[i].to == to) {
            fast_casts[i].run(n, in, out);
            return true;
        }
    return false;
}

/* Integers keep their low bits. */
static void cast_block(enum sy_dtype from, enum sy_dtype to, int64_t n, const char *in, char *out)
{
    size_t bytes = sy_dtype_bytes(to);
    bool float_in = from == SY_DTYPE_F32;
    if (fast_cast(from, to, n, in, out))
        return;
    for (int64_t i = 0; i < n; i++) {
        float x = float_in ? ((const float *)(const void *)in)[i] : 0;
        int64_t whole = load_integer(from, in, i);
        float wide = float_in ? x : (float)whole;
        whole = to != SY_DTYPE_BOOL ? whole : float_in ? x != 0 : whole != 0;
        memcpy(out + (size_t)i * bytes,
               to == SY_DTYPE_F32 ? (const void *)&wide : (const void *)&whole, bytes);
    }
}

int sy_elementwise_cast(enum sy_dtype from, enum sy_dtype to, int64_t n, const void *in, void *out)
{
    if (!fast_cast(from, to, 0, in, out) && (!castable(from) || !castable(to)))
        return sy_error_set(SY_EUNSUPPORTED, "no cast between these types");
    int64_t block = PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += block)
        cast_block(from, to, SY_MIN(block, n - i),
                   (const char *)in + (size_t)i * sy_dtype_bytes(from),
                   (char *)out + (size_t)i * sy_dtype_bytes(to));
    return SY_OK;
}

/* Elements of constants: which types, as integers and as doubles, and where an element that is repeated lies. */
#include <math.h>
#include <string.h>

#include "loader/shape/graph_infer.h"

bool sy_dtype_is_integer(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_U8 || dtype == SY_DTYPE_I8 || dtype == SY_DTYPE_U16 ||
           dtype == SY_DTYPE_I16 || dtype == SY_DTYPE_I32 || dtype == SY_DTYPE_U32 ||
           dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_BOOL;
}

int64_t sy_load_integer(enum sy_dtype dtype, const void *from)
{
    int64_t i64 = 0;
    int32_t i32;
    int16_t i16;
    switch (dtype) {
    case SY_DTYPE_I32:
        memcpy(&i32, from, sizeof i32);
        return i32;
    case SY_DTYPE_I16:
        memcpy(&i16, from, sizeof i16);
        return i16;
    case SY_DTYPE_I64:
    case SY_DTYPE_U32:
    case SY_DTYPE_U16: /* little-endian: the low bytes come first */
        memcpy(&i64, from, sy_dtype_bytes(dtype));
        return i64;
    case SY_DTYPE_I8:
        return *(const signed char *)from;
    default:
        return *(const unsigned char *)from;
    }
}

void sy_store_integer(enum sy_dtype dtype, int64_t value, void *to)
{
    float f32 = (float)value;
    double f64 = (double)value;
    switch (dtype) {
    case SY_DTYPE_F32:
        memcpy(to, &f32, sizeof f32);
        break;
    case SY_DTYPE_F64:
        memcpy(to, &f64, sizeof f64);
        break;
    case SY_DTYPE_BOOL:
        *(unsigned char *)to = value != 0;
        break;
    default: /* little-endian: the low bytes come first */
        memcpy(to, &value, sy_dtype_bytes(dtype));
        break;
    }
}

double sy_load_double(enum sy_dtype dtype, const void *from)
{
    float f32;
    double f64;
    switch (dtype) {
    case SY_DTYPE_F32:
        memcpy(&f32, from, sizeof f32);
        return f32;
    case SY_DTYPE_F64:
        memcpy(&f64, from, sizeof f64);
        return f64;
    default:
        return (double)sy_load_integer(dtype, from);
    }
}

/* Out of range is unspecified in ONNX and undefined in C: it becomes the nearest end. */
static int64_t to_integer(double value)
{
    if (!(value > -9.2e18))
        return INT64_MIN;
    return value < 9.2e18 ? (int64_t)value : INT64_MAX;
}

void sy_store_double(enum sy_dtype dtype, double value, void *to)
{
    float f32 = (float)value;
    if (dtype == SY_DTYPE_F32)
        memcpy(to, &f32, sizeof f32);
    else if (dtype == SY_DTYPE_F64)
        memcpy(to, &value, sizeof value);
    else
        sy_store_integer(dtype, dtype == SY_DTYPE_BOOL ? value != 0 : to_integer(value), to);
}

bool sy_block_make(const struct sy_shape *shape, struct sy_block *block)
{
    *block = (struct sy_block){.rank = shape->rank, .n = sy_shape_elements(shape, 0)};
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i].per_batch != 0)
            return false;
        block->dims[i] = shape->dims[i].fixed;
    }
    return block->n >= 0;
}

void sy_block_coordinates(const struct sy_block *block, int64_t index, int64_t *at)
{
    for (int i = block->rank - 1; i >= 0; i--) {
        at[i] = index % block->dims[i];
        index /= block->dims[i];
    }
}

int64_t sy_block_offset_at(const struct sy_block *block, const int64_t *at)
{
    int64_t offset = 0;
    for (int i = 0; i < block->rank; i++)
        offset = offset * block->dims[i] + at[i];
    return offset;
}

int64_t sy_block_offset(const struct sy_block *out, int64_t index, const struct sy_block *block)
{
    int64_t at[SY_MAX_RANK], offset = 0;
    if (block->n == 1)
        return 0;
    sy_block_coordinates(out, index, at);
    for (int i = 0; i < block->rank; i++) {
        int64_t from = at[out->rank - block->rank + i];
        offset = offset * block->dims[i] + (block->dims[i] == 1 ? 0 : from);
    }
    return offset;
}

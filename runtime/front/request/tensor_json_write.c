/* Tensors as JSON's numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/front/request/number_text.h"
#include "runtime/front/request/tensor_json.h"

static int64_t int_at(enum sy_dtype dtype, const char *at)
{
    int16_t short_;
    int32_t wide;
    int64_t widest = 0;

    switch (dtype) {
    case SY_DTYPE_I8:
        return *(const int8_t *)at;
    case SY_DTYPE_I16:
        memcpy(&short_, at, sizeof(short_));
        return short_;
    case SY_DTYPE_U16:
    case SY_DTYPE_U32: /* little-endian: the low bytes come first */
        memcpy(&widest, at, sy_dtype_bytes(dtype));
        return widest;
    case SY_DTYPE_I32:
        memcpy(&wide, at, sizeof(wide));
        return wide;
    case SY_DTYPE_I64:
        memcpy(&widest, at, sizeof(widest));
        return widest;
    default:
        return *(const uint8_t *)at;
    }
}

static void add_unsigned(struct sy_text *text, const char *at)
{
    uint64_t value;
    char number[24];

    memcpy(&value, at, sizeof(value));
    sy_text_add(text, number, (size_t)snprintf(number, sizeof(number), "%" PRIu64, value));
}

static bool add_single(struct sy_text *text, float value)
{
    char *to = isfinite(value) ? sy_text_reserve(text, SY_NUMBER_TEXT_BYTES) : NULL;
    if (to)
        text->used += sy_number_text_f32(value, to);
    return isfinite(value);
}

static bool add_double(struct sy_text *text, double value)
{
    char *to = isfinite(value) ? sy_text_reserve(text, SY_NUMBER_TEXT_BYTES) : NULL;
    if (to)
        text->used += sy_number_text_f64(value, to);
    return isfinite(value);
}

/* False: not a number as JSON writes them. */
static bool add_float(struct sy_text *text, enum sy_dtype dtype, const char *at)
{
    double value;
    float single;
    uint16_t half;

    switch (dtype) {
    case SY_DTYPE_F64:
        memcpy(&value, at, sizeof(value));
        return add_double(text, value);
    case SY_DTYPE_F32:
        memcpy(&single, at, sizeof(single));
        return add_single(text, single);
    default:
        memcpy(&half, at, sizeof(half));
        return add_single(text,
                          dtype == SY_DTYPE_F16 ? sy_half_to_float(half) : sy_bf16_to_float(half));
    }
}

/* False: not a number as JSON writes them. */
static bool add_value(struct sy_text *text, enum sy_dtype dtype, const char *at)
{
    switch (dtype) {
    case SY_DTYPE_F64:
    case SY_DTYPE_F32:
    case SY_DTYPE_F16:
    case SY_DTYPE_BF16:
        return add_float(text, dtype, at);
    case SY_DTYPE_BOOL:
        sy_text_add_string(text, *at ? "true" : "false");
        return true;
    case SY_DTYPE_U64:
        add_unsigned(text, at);
        return true;
    default:
        sy_text_add_int(text, int_at(dtype, at));
        return true;
    }
}

int sy_tensor_to_json(struct sy_text *text, const char *name, enum sy_dtype dtype, const void *data,
                      uint64_t n)
{
    const char *at = data;
    size_t bytes = sy_dtype_bytes(dtype);

    sy_text_add(text, "[", 1);
    for (uint64_t i = 0; i < n; i++, at += bytes) {
        if (i > 0)
            sy_text_add(text, ",", 1);
        if (!add_value(text, dtype, at))
            return sy_error_set(SY_EARG,
                                "output \"%s\" has a value at element %" PRIu64
                                " that JSON has no number for (NaN or infinity): ask for it with "
                                "\"binary_data\": true",
                                name, i);
    }
    sy_text_add(text, "]", 1);
    return text->failed ? sy_error_set(SY_ENOMEM_HOST, "no memory for output \"%s\" as JSON", name)
                        : SY_OK;
}

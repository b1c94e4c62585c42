/* TensorProto files, and what of a model decides how its case is counted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/small_types.h"
#include "loader/graph/string_tensor.h"
#include "loader/package/file_bytes.h"
#include "onnx.pb-c.h"
#include "tests/onnx_data/onnx_case.h"

static float half_to_float(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    float sign = half >> 15 ? -1.0f : 1.0f;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(mantissa | 1024), exponent - 25)
                            : ldexpf((float)mantissa, -24));
}

static float bfloat_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static bool fill_typed(const Onnx__TensorProto *proto, struct onnx_array *out)
{
    size_t each = sy_dtype_bytes(out->dtype), n = out->bytes / each;
    switch (out->dtype) {
    case SY_DTYPE_F32:
        if (proto->n_float_data == n && n > 0)
            memcpy(out->data, proto->float_data, out->bytes);
        return proto->n_float_data == n;
    case SY_DTYPE_F64:
        if (proto->n_double_data == n && n > 0)
            memcpy(out->data, proto->double_data, out->bytes);
        return proto->n_double_data == n;
    case SY_DTYPE_U64:
        if (proto->n_uint64_data == n && n > 0)
            memcpy(out->data, proto->uint64_data, out->bytes);
        return proto->n_uint64_data == n;
    case SY_DTYPE_U32:
        for (size_t i = 0; i < n && proto->n_uint64_data == n; i++)
            memcpy((char *)out->data + i * each, &proto->uint64_data[i], each);
        return proto->n_uint64_data == n;
    case SY_DTYPE_I64:
        if (proto->n_int64_data == n && n > 0)
            memcpy(out->data, proto->int64_data, out->bytes);
        return proto->n_int64_data == n;
    default:
        for (size_t i = 0; i < n && proto->n_int32_data == n; i++)
            memcpy((char *)out->data + i * each, &proto->int32_data[i], each);
        return proto->n_int32_data == n;
    }
}

/* As a block (loader/graph/string_tensor.h). */
static bool take_strings(const Onnx__TensorProto *proto, int64_t n, struct onnx_array *out)
{
    uint64_t at = 0;
    out->bytes = SY_STRING_HEAD;
    for (size_t i = 0; i < proto->n_string_data; i++)
        out->bytes += sizeof(uint32_t) + proto->string_data[i].len;
    out->data = calloc(out->bytes + 1, 1);
    for (size_t i = 0; out->data && i < proto->n_string_data; i++) {
        uint32_t length = (uint32_t)proto->string_data[i].len;
        char *to = (char *)out->data + SY_STRING_HEAD + at;
        memcpy(to, &length, sizeof length);
        if (length > 0)
            memcpy(to + sizeof length, proto->string_data[i].data, length);
        at += sizeof length + length;
    }
    if (out->data)
        sy_string_block_end((char *)out->data + SY_STRING_HEAD, at);
    return out->data && proto->n_string_data == (size_t)n;
}

/* Numbers of a small type, in the type that carries them. */
static bool take_small(const Onnx__TensorProto *proto, int64_t n, struct onnx_array *out)
{
    size_t bits = (size_t)sy_small_bits(proto->data_type), in_byte = 8 / bits,
           bytes = ((size_t)n + in_byte - 1) / in_byte;
    out->bytes = (size_t)n * sy_dtype_bytes(out->dtype);
    out->data = calloc(out->bytes + 1, 1);
    if (!out->data || (proto->has_raw_data ? proto->raw_data.len : proto->n_int32_data) != bytes)
        return false;
    for (size_t i = 0; i < (size_t)n; i++) {
        unsigned byte = proto->has_raw_data ? proto->raw_data.data[i / in_byte]
                                            : (unsigned)proto->int32_data[i / in_byte];
        double value =
            sy_small_value(proto->data_type, byte >> (i % in_byte * bits) & ((1u << bits) - 1));
        if (out->dtype == SY_DTYPE_F32)
            ((float *)out->data)[i] = (float)value;
        else
            ((unsigned char *)out->data)[i] = (unsigned char)(int)value;
    }
    return true;
}

static bool take(const Onnx__TensorProto *proto, struct onnx_array *out)
{
    enum sy_dtype carrier = sy_small_carrier(proto->data_type);
    *out = (struct onnx_array){.dtype = carrier != SY_DTYPE_NONE ? carrier
                                                                 : (enum sy_dtype)proto->data_type};
    size_t each = sy_dtype_bytes(out->dtype);
    if (each == 0 || proto->n_dims > SY_MAX_RANK)
        return false;
    out->shape.rank = (int)proto->n_dims;
    for (size_t i = 0; i < proto->n_dims; i++)
        out->shape.dims[i].fixed = proto->dims[i];
    int64_t n = sy_shape_elements(&out->shape, 0);
    if (n < 0 || n > 1 << 28)
        return false;
    if (out->dtype == SY_DTYPE_STRING)
        return take_strings(proto, n, out);
    if (carrier != SY_DTYPE_NONE)
        return take_small(proto, n, out);
    out->bytes = (size_t)n * each;
    out->data = calloc(out->bytes + 1, 1);
    if (!out->data)
        return false;
    bool ok = proto->has_raw_data ? proto->raw_data.len == out->bytes : fill_typed(proto, out);
    if (ok && proto->has_raw_data && out->bytes > 0)
        memcpy(out->data, proto->raw_data.data, out->bytes);
    if (!ok)
        free(out->data);
    return ok;
}

static bool read_tensor(const unsigned char *bytes, size_t n, struct onnx_array *out)
{
    Onnx__TensorProto *proto = onnx__tensor_proto__unpack(NULL, n, bytes);
    bool ok = proto && take(proto, out);
    if (proto)
        onnx__tensor_proto__free_unpacked(proto, NULL);
    return ok;
}

static bool read_varint(const unsigned char *bytes, size_t n, size_t *at, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; *at < n && shift < 64; shift += 7) {
        unsigned char byte = bytes[(*at)++];
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* A SequenceProto or an OptionalProto: name 1, kind of elements 2, tensors 3, of an optional its sequence 5. The messages that the loader knows have
 * no such. *has: there is a sequence in the optional. */
static int read_list(const unsigned char *bytes, size_t n, struct onnx_array *out, int room,
                     bool *has)
{
    int count = 0;
    for (size_t at = 0; at < n;) {
        uint64_t key, value;
        if (!read_varint(bytes, n, &at, &key) || !read_varint(bytes, n, &at, &value))
            return -1;
        if ((key & 7) == 0)
            continue;
        if ((key & 7) != 2 || value > n - at)
            return -1;
        if (key >> 3 == 3 && (count == room || !read_tensor(bytes + at, value, &out[count++])))
            return -1;
        if (key >> 3 == 5) {
            *has = true;
            return read_list(bytes + at, value, out, room, &(bool){false});
        }
        at += value;
    }
    return count;
}

int onnx_array_read(const char *path, struct onnx_array *out, int room, char *text,
                    size_t text_bytes)
{
    unsigned char *bytes;
    size_t n;
    snprintf(text, text_bytes, "test data: %s is not a tensor of a known type", path);
    if (sy_file_read_range(path, 0, UINT64_MAX, &bytes, &n) < 0)
        return -1;
    int count =
        room > 0 && read_tensor(bytes, n, out) ? 1 : read_list(bytes, n, out, room, &(bool){false});
    free(bytes);
    return count;
}

/* The elements of n tensors one behind the other; strings as one block. */
static bool join(const struct onnx_array *items, int n, struct onnx_array *out)
{
    bool strings = out->dtype == SY_DTYPE_STRING;
    size_t head = strings ? SY_STRING_HEAD : 0, at = head;
    for (int i = 0; i < n; i++) {
        out->shape.dims[0].fixed += sy_shape_elements(&items[i].shape, 1);
        out->bytes += items[i].bytes - head;
    }
    out->bytes += head;
    out->data = calloc(out->bytes + 1, 1);
    for (int i = 0; out->data && i < n; i++) {
        size_t more = items[i].bytes - head;
        if (more > 0)
            memcpy((char *)out->data + at, (char *)items[i].data + head, more);
        at += more;
    }
    if (out->data && strings)
        sy_string_block_end((char *)out->data + head, at - head);
    return out->data;
}

static bool shapes_of(const struct onnx_array *items, int n, int least_rank, struct onnx_array *out)
{
    int rank = least_rank;
    for (int i = 0; i < n; i++)
        rank = items[i].shape.rank > rank ? items[i].shape.rank : rank;
    out->shape = (struct sy_shape){.rank = 2, .dims = {{n, 0}, {rank, 0}}};
    out->bytes = (size_t)n * (size_t)rank * sizeof(int64_t);
    int64_t *to = calloc(out->bytes + 1, 1);
    out->data = to;
    for (int i = 0; to && i < n; i++)
        for (int d = 0; d < rank; d++)
            *to++ = d < items[i].shape.rank ? items[i].shape.dims[d].fixed : -1;
    return out->data;
}

int onnx_parts_read(const char *path, enum sy_dtype dtype, int rank, struct onnx_array *out,
                    char *text, size_t text_bytes)
{
    enum { MOST = 256 };
    static struct onnx_array items[MOST];
    unsigned char *bytes;
    size_t n;
    bool has = false;
    snprintf(text, text_bytes, "test data: %s is no sequence of tensors of a known type", path);
    if (sy_file_read_range(path, 0, UINT64_MAX, &bytes, &n) < 0)
        return -1;
    int count = read_list(bytes, n, items, MOST, &has);
    free(bytes);
    if (count < 0)
        return -1;
    out[0] = (struct onnx_array){.dtype = dtype, .shape = {.rank = 1}};
    out[1] = (struct onnx_array){.dtype = SY_DTYPE_I64};
    out[2] = (struct onnx_array){
        .dtype = SY_DTYPE_BOOL, .shape = {.rank = 1, .dims = {{1, 0}}}, .bytes = 1};
    out[2].data = calloc(1, 1);
    bool ok = out[2].data && join(items, count, &out[0]) && shapes_of(items, count, rank, &out[1]);
    if (ok)
        *(bool *)out[2].data = has;
    for (int i = 0; i < count; i++)
        free(items[i].data);
    return ok ? 3 : -1;
}

/* ---- comparing ---------------------------------------------------------------------------------- */

static bool is_float(enum sy_dtype dtype, const void *data, size_t i, double *out)
{
    switch (dtype) {
    case SY_DTYPE_F32:
        *out = (double)((const float *)data)[i];
        return true;
    case SY_DTYPE_F64:
        *out = ((const double *)data)[i];
        return true;
    case SY_DTYPE_F16:
        *out = (double)half_to_float(((const uint16_t *)data)[i]);
        return true;
    case SY_DTYPE_BF16:
        *out = (double)bfloat_to_float(((const uint16_t *)data)[i]);
        return true;
    default:
        return false;
    }
}

/* bfloat16 within two units of its last place: ONNX 1.12 truncated where later versions round, and those round between the parts of
 * Attention, which are computed in float32 here. */
static bool is_close(enum sy_dtype dtype, double slack, double want, double got)
{
    double relative = dtype == SY_DTYPE_BF16 ? 1.0 / 64 : 1e-3;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    return want == got || fabs(got - want) <= 1e-5 + slack + relative * fabs(want);
}

static int64_t integer_at(const void *data, size_t i, size_t each)
{
    int64_t value = 0;
    memcpy(&value, (const char *)data + i * each, each);
    return value;
}

/* Numbers of 8 bits that are neighbours: sums of other order, rounded. */
static bool is_one_step(enum sy_dtype dtype, int64_t a, int64_t b)
{
    int64_t step = dtype == SY_DTYPE_I8 ? (int8_t)a - (int8_t)b : (uint8_t)a - (uint8_t)b;
    return step >= -1 && step <= 1;
}

/* The largest finite element. */
static double size_of(const struct onnx_array *array)
{
    double largest = 0, value;
    size_t each = sy_dtype_bytes(array->dtype);
    for (size_t i = 0; i < array->bytes / each; i++)
        if (is_float(array->dtype, array->data, i, &value) && isfinite(value))
            largest = fmax(largest, fabs(value));
    return largest;
}

/* Blocks of as many strings. */
static bool strings_match(const struct onnx_array *want, const void *got, char *text,
                          size_t text_bytes)
{
    uint64_t bytes, at = 0, own = 0;
    const char *a, *b;
    uint32_t n, m;
    memcpy(&bytes, want->data, sizeof bytes);
    for (int i = 0; at < bytes; i++) {
        bool both = sy_string_block_next(want->data, want->bytes, &at, &a, &n) &&
                    sy_string_block_next(got, UINT64_MAX, &own, &b, &m);
        if (both && n == m && memcmp(a, b, n) == 0)
            continue;
        snprintf(text, text_bytes, "string %d is '%.*s', not '%.*s'", i, both ? (int)m : 0, b,
                 (int)n, a);
        return false;
    }
    return true;
}

bool onnx_array_matches(const struct onnx_array *want, const void *got, double slack, char *text,
                        size_t text_bytes)
{
    size_t each = sy_dtype_bytes(want->dtype);
    bool rough = slack > 0;
    if (want->dtype == SY_DTYPE_STRING)
        return strings_match(want, got, text, text_bytes);
    slack = rough ? slack * size_of(want) : 0;
    for (size_t i = 0; i < want->bytes / each; i++) {
        double a, b;
        if (is_float(want->dtype, want->data, i, &a) && is_float(want->dtype, got, i, &b)) {
            if (is_close(want->dtype, slack, a, b))
                continue;
            snprintf(text, text_bytes, "element %zu is %.9g, not %.9g", i, b, a);
            return false;
        }
        int64_t wanted = integer_at(want->data, i, each), found = integer_at(got, i, each);
        bool rounded = rough && each == 1 && want->dtype != SY_DTYPE_BOOL &&
                       is_one_step(want->dtype, wanted, found);
        if (wanted == found || rounded)
            continue;
        snprintf(text, text_bytes, "element %zu is %lld, not %lld", i, (long long)found,
                 (long long)wanted);
        return false;
    }
    return true;
}

/* ---- models ------------------------------------------------------------------------------------- */

static bool is_plain_value(const Onnx__ValueInfoProto *info)
{
    if (!info->type || info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return false;
    int type = info->type->tensor_type->elem_type;
    return type == SY_DTYPE_F32 || type == SY_DTYPE_I64 || type == SY_DTYPE_I32 ||
           type == SY_DTYPE_BOOL;
}

static bool is_plain_graph(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++)
        if (!is_plain_value(graph->input[i]))
            return false;
    for (size_t i = 0; i < graph->n_output; i++)
        if (!is_plain_value(graph->output[i]))
            return false;
    for (size_t i = 0; i < graph->n_node; i++)
        if (graph->node[i]->domain && *graph->node[i]->domain)
            return false;
    return true;
}

bool onnx_model_is_plain(const char *folder)
{
    char path[4096];
    unsigned char *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (sy_file_read_range(path, 0, UINT64_MAX, &bytes, &n) < 0)
        return false;
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, n, bytes);
    free(bytes);
    bool plain = model && model->graph && is_plain_graph(model->graph);
    if (model)
        onnx__model_proto__free_unpacked(model, NULL);
    return plain;
}

/* Constants of ONNX files, external ones too: every size is checked against what is there. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/small_types.h"
#include "loader/graph/string_tensor.h"
#include "loader/onnx/onnx_internal.h"
#include "loader/package/file_bytes.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int tensor_shape(const Onnx__TensorProto *proto, struct sy_shape *shape,
                        size_t element_bytes, size_t *bytes)
{
    if (proto->n_dims > SY_MAX_RANK)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%.120s' has %zu dimensions, at most %d are supported",
                            sy_onnx_text(proto->name), proto->n_dims, SY_MAX_RANK);
    *shape = (struct sy_shape){.rank = (int)proto->n_dims};
    for (size_t i = 0; i < proto->n_dims; i++)
        shape->dims[i].fixed = proto->dims[i];
    int64_t n = sy_shape_elements(shape, 0);
    if (n < 0 || (uint64_t)n > PTRDIFF_MAX / element_bytes)
        return sy_error_set(SY_ECORRUPT, "tensor '%.120s' has a negative or too large dimension",
                            sy_onnx_text(proto->name));
    *bytes = (size_t)n * element_bytes;
    return SY_OK;
}

static int copy_field(const char *name, const void *from, size_t n, size_t bytes_each, size_t want,
                      void **out)
{
    if (n * bytes_each != want)
        return sy_error_set(SY_ECORRUPT,
                            "tensor '%.120s' has %zu bytes of data, its shape needs %zu", name,
                            n * bytes_each, want);
    SY_TRY(sy_graph_alloc(want, 1, out));
    if (want > 0)
        memcpy(*out, from, want);
    return SY_OK;
}

/* int32_data holds all types up to 32 bits, one an element. */
static int narrow_field(const Onnx__TensorProto *proto, size_t element_bytes, size_t want,
                        void **out)
{
    if (proto->n_int32_data != want / element_bytes)
        return sy_error_set(SY_ECORRUPT, "tensor '%.120s' has %zu elements, its shape needs %zu",
                            sy_onnx_text(proto->name), proto->n_int32_data, want / element_bytes);
    SY_TRY(sy_graph_alloc(want, 1, out));
    for (size_t i = 0; i < proto->n_int32_data; i++) /* little-endian: the low bytes come first */
        memcpy((char *)*out + i * element_bytes, &proto->int32_data[i], element_bytes);
    return SY_OK;
}

/* uint32 lies in uint64_data, too. */
static int unsigned_field(const Onnx__TensorProto *proto, size_t want, void **out)
{
    if (proto->n_uint64_data != want / sizeof(uint32_t))
        return sy_error_set(SY_ECORRUPT, "tensor '%.120s' has %zu elements, its shape needs %zu",
                            sy_onnx_text(proto->name), proto->n_uint64_data,
                            want / sizeof(uint32_t));
    SY_TRY(sy_graph_alloc(want, 1, out));
    for (size_t i = 0; i < proto->n_uint64_data; i++)
        ((uint32_t *)*out)[i] = (uint32_t)proto->uint64_data[i];
    return SY_OK;
}

static int typed_data(const Onnx__TensorProto *proto, enum sy_dtype dtype, size_t want, void **out)
{
    const char *name = sy_onnx_text(proto->name);
    switch (dtype) {
    case SY_DTYPE_F32:
        return copy_field(name, proto->float_data, proto->n_float_data, sizeof(float), want, out);
    case SY_DTYPE_F64:
        return copy_field(name, proto->double_data, proto->n_double_data, sizeof(double), want,
                          out);
    case SY_DTYPE_I64:
        return copy_field(name, proto->int64_data, proto->n_int64_data, sizeof(int64_t), want, out);
    case SY_DTYPE_U64:
        return copy_field(name, proto->uint64_data, proto->n_uint64_data, sizeof(uint64_t), want,
                          out);
    case SY_DTYPE_U32:
        return unsigned_field(proto, want, out);
    default:
        return narrow_field(proto, sy_dtype_bytes(dtype), want, out);
    }
}

/* Takes the buffer that protobuf-c allocated, so that large weights are not copied once more. */
static int raw_data(Onnx__TensorProto *proto, size_t want, void **out)
{
    if (proto->raw_data.len != want)
        return sy_error_set(SY_ECORRUPT,
                            "tensor '%.120s' has %zu bytes of raw data, its shape needs %zu",
                            sy_onnx_text(proto->name), proto->raw_data.len, want);
    if (want == 0)
        return sy_graph_alloc(1, 1, out);
    *out = proto->raw_data.data;
    proto->raw_data = (ProtobufCBinaryData){0};
    return SY_OK;
}

static int parse_number(const char *tensor, const char *value, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno || end == value || *end || *value == '-')
        return sy_error_set(SY_ECORRUPT, "tensor '%.100s': external data: '%.60s' is not a number",
                            tensor, value);
    *out = number;
    return SY_OK;
}

/* Names below the model's folder only: a model file must not be able to read /etc/shadow. */
static bool is_inside(const char *location)
{
    if (!*location || *location == '/')
        return false;
    for (const char *part = location; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    return true;
}

/* The file beside the model that `location` names, links followed: they must not lead outside either. `path` has PATH_MAX bytes. */
static int external_path(const struct sy_onnx_reader *r, const Onnx__TensorProto *proto,
                         const char *location, char *path)
{
    char folder[PATH_MAX], joined[PATH_MAX];
    const char *slash = strrchr(r->path, '/');
    int length = slash ? (int)(slash - r->path) + 1 : 0;
    if (snprintf(joined, sizeof joined, "%.*s%s", length, r->path, location) >=
            (int)sizeof joined ||
        snprintf(folder, sizeof folder, "%.*s.", length, r->path) >= (int)sizeof folder)
        return sy_error_set(SY_EARG, "tensor '%.100s': the path of its external data is too long",
                            sy_onnx_text(proto->name));
    char whole[PATH_MAX];
    if (!realpath(folder, whole) || !realpath(joined, path))
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO,
                            "tensor '%.100s': external data %s: %s", sy_onnx_text(proto->name),
                            joined, strerror(errno));
    size_t n = strlen(whole);
    if (n > 1 && (strncmp(path, whole, n) != 0 || path[n] != '/'))
        return sy_error_set(SY_ECORRUPT,
                            "tensor '%.100s': external data %s is a link out of the model's folder",
                            sy_onnx_text(proto->name), joined);
    return SY_OK;
}

static int external_data(const struct sy_onnx_reader *r, const Onnx__TensorProto *proto,
                         size_t want, void **out)
{
    const char *name = sy_onnx_text(proto->name), *location = "";
    uint64_t offset = 0, length = want;
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const char *key = sy_onnx_text(proto->external_data[i]->key),
                   *value = sy_onnx_text(proto->external_data[i]->value);
        if (strcmp(key, "location") == 0)
            location = value;
        else if (strcmp(key, "offset") == 0)
            SY_TRY(parse_number(name, value, &offset));
        else if (strcmp(key, "length") == 0)
            SY_TRY(parse_number(name, value, &length));
    }
    if (length != want || !is_inside(location))
        return sy_error_set(
            SY_ECORRUPT,
            "tensor '%.100s': external data '%.100s' of %llu bytes, %zu are needed, from "
            "a file next to the model",
            name, location, (unsigned long long)length, want);
    char path[PATH_MAX];
    size_t n;
    SY_TRY(external_path(r, proto, location, path));
    int status = sy_file_read_range(path, offset, want, (unsigned char **)out, &n);
    return status < 0 ? sy_error_prefix(status, "tensor '%.100s': external data", name) : SY_OK;
}

/* n numbers of a small type, the lower bits of a byte first, in the type that carries them. Takes `packed`. */
static int unpack_small(unsigned char *packed, size_t n, int type, void **out)
{
    enum sy_dtype carrier = sy_small_carrier(type);
    size_t each = (size_t)sy_small_bits(type), in_byte = 8 / each;
    int status = sy_graph_alloc(n, sy_dtype_bytes(carrier), out);
    for (size_t i = 0; status == SY_OK && i < n; i++) {
        unsigned bits = packed[i / in_byte] >> (i % in_byte * each) & ((1u << each) - 1);
        double value = sy_small_value(type, bits);
        if (carrier == SY_DTYPE_F32)
            ((float *)*out)[i] = (float)value;
        else
            ((unsigned char *)*out)[i] = (unsigned char)(int)value;
    }
    free(packed);
    return status;
}

static int read_data(const struct sy_onnx_reader *r, Onnx__TensorProto *proto, enum sy_dtype dtype,
                     size_t bytes, void **out)
{
    if (proto->has_data_location &&
        proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return external_data(r, proto, bytes, out);
    if (proto->has_raw_data)
        return raw_data(proto, bytes, out);
    return typed_data(proto, dtype, bytes, out);
}

/* A constant of a small type. */
static int read_small(struct sy_onnx_reader *r, Onnx__TensorProto *proto, const char *name,
                      int *out)
{
    int type = proto->data_type;
    enum sy_dtype carrier = sy_small_carrier(type);
    struct sy_shape shape;
    size_t bytes, bits = (size_t)sy_small_bits(type);
    void *data = NULL;
    SY_TRY(tensor_shape(proto, &shape, sy_dtype_bytes(carrier), &bytes));
    size_t n = bytes / sy_dtype_bytes(carrier), in_byte = 8 / bits;
    SY_TRY(read_data(r, proto, SY_DTYPE_U8, n / in_byte + (n % in_byte != 0), &data));
    SY_TRY(unpack_small(data, n, type, &data));
    SY_TRY(sy_graph_add_constant(r->graph, name, carrier, &shape, data, bytes, out));
    r->graph->tensors[*out].small_type = (unsigned char)type;
    return SY_OK;
}

/* As a block (string_tensor.h). */
static int read_string_block(const Onnx__TensorProto *proto, int64_t n, void **out, size_t *bytes)
{
    uint64_t all = 0;
    if (proto->n_string_data != (size_t)n)
        return sy_error_set(SY_ECORRUPT, "tensor '%.120s' has %zu strings, its shape needs %lld",
                            sy_onnx_text(proto->name), proto->n_string_data, (long long)n);
    for (int64_t i = 0; i < n; i++)
        all += sizeof(uint32_t) + proto->string_data[i].len;
    if (all > SY_STRING_MOST)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%.120s' has %llu bytes of strings, at most "
                            "%lld are supported",
                            sy_onnx_text(proto->name), (unsigned long long)all,
                            (long long)SY_STRING_MOST);
    *bytes = (size_t)(SY_STRING_HEAD + all);
    SY_TRY(sy_graph_alloc(*bytes, 1, out));
    char *to = (char *)*out + SY_STRING_HEAD;
    memcpy(*out, &all, sizeof all);
    for (int64_t i = 0; i < n; i++) {
        uint32_t length = (uint32_t)proto->string_data[i].len;
        memcpy(to, &length, sizeof length);
        if (length > 0)
            memcpy(to + sizeof length, proto->string_data[i].data, length);
        to += sizeof length + length;
    }
    return SY_OK;
}

/* Empties `proto` of its data. */
int sy_onnx_read_tensor(struct sy_onnx_reader *r, Onnx__TensorProto *proto, const char *name,
                        int *out)
{
    enum sy_dtype dtype = (enum sy_dtype)proto->data_type;
    bool is_small = sy_small_carrier(proto->data_type) != SY_DTYPE_NONE;
    struct sy_shape shape;
    size_t element_bytes = sy_dtype_bytes(dtype), bytes;
    void *data = NULL;
    if (element_bytes == 0 && !is_small)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%.120s' has element type %d, which is not supported", name,
                            proto->data_type);
    if (proto->segment)
        return sy_error_set(SY_EUNSUPPORTED, "tensor '%.120s' is stored in segments", name);
    if (is_small)
        return read_small(r, proto, name, out);
    SY_TRY(tensor_shape(proto, &shape, element_bytes, &bytes));
    if (dtype == SY_DTYPE_STRING) {
        SY_TRY(read_string_block(proto, (int64_t)(bytes / element_bytes), &data, &bytes));
        return sy_graph_add_constant(r->graph, name, dtype, &shape, data, bytes, out);
    }
    SY_TRY(read_data(r, proto, dtype, bytes, &data));
    return sy_graph_add_constant(r->graph, name, dtype, &shape, data, bytes, out);
}

/* ---- sparse tensors ------------------------------------------------------------------------------ */

/* Of all sparse tensors of a file: a short one may name any number, of any size. */
static const size_t most_dense_bytes = (size_t)1 << 30;

struct sparse {
    struct sy_shape shape; /* when it is dense */
    size_t bytes, each;    /* of the dense tensor; of one number */
    size_t n;              /* values */
    bool linear;           /* one index for each value; else one for each dimension */
    void *values;          /* owned, and so are the indices */
    int64_t *indices;
};

/* What is no tensor of `want` numbers of 64 bits is corrupt. */
static int read_indices(const struct sy_onnx_reader *r, Onnx__TensorProto *proto, size_t want,
                        int64_t **out)
{
    size_t n = 1;
    for (size_t i = 0; i < proto->n_dims; i++)
        if (proto->dims[i] < 0 ||
            __builtin_mul_overflow(n, (size_t)proto->dims[i], &n)) /* compared below */
            n = SIZE_MAX;
    if (proto->data_type != SY_DTYPE_I64 || n != want || proto->n_dims > 2)
        return sy_error_set(SY_ECORRUPT,
                            "a sparse tensor's indices have element type %d and %zu "
                            "elements, %zu of 64 bits are needed",
                            (int)proto->data_type, n, want);
    void *data;
    SY_TRY(read_data(r, proto, SY_DTYPE_I64, want * sizeof **out, &data));
    *out = data;
    return SY_OK;
}

/* Element k's place: of linear indices, or of one index for each dimension. -1: outside. */
static int64_t place_of(const int64_t *indices, bool linear, size_t k, const struct sy_shape *shape)
{
    int64_t at = 0, n = sy_shape_elements(shape, 0);
    if (linear)
        return indices[k] >= 0 && indices[k] < n ? indices[k] : -1;
    for (int d = 0; d < shape->rank; d++) {
        int64_t i = indices[k * (size_t)shape->rank + (size_t)d], size = shape->dims[d].fixed;
        if (i < 0 || i >= size)
            return -1;
        at = at * size + i;
    }
    return at;
}

static int scatter(const char *name, const struct sparse *s, char *to)
{
    for (size_t k = 0; k < s->n; k++) {
        int64_t at = place_of(s->indices, s->linear, k, &s->shape);
        if (at < 0)
            return sy_error_set(SY_ECORRUPT, "sparse tensor '%.120s': an index is outside of it",
                                name);
        memcpy(to + (size_t)at * s->each, (const char *)s->values + k * s->each, s->each);
    }
    return SY_OK;
}

/* The shape that it has when it is dense. */
static int dense_shape(const struct sy_onnx_reader *r, const Onnx__SparseTensorProto *proto,
                       const char *name, struct sparse *s)
{
    Onnx__TensorProto whole = ONNX__TENSOR_PROTO__INIT;
    s->each = proto->values ? sy_dtype_bytes((enum sy_dtype)proto->values->data_type) : 0;
    if (!proto->indices || s->each == 0 || proto->values->data_type == SY_DTYPE_STRING)
        return sy_error_set(SY_EUNSUPPORTED, "sparse tensor '%.120s' has no numbers or no indices",
                            name);
    whole.n_dims = proto->n_dims;
    whole.dims = proto->dims;
    SY_TRY(tensor_shape(&whole, &s->shape, s->each, &s->bytes));
    if (s->bytes > most_dense_bytes - *r->dense_bytes)
        return sy_error_set(SY_EUNSUPPORTED,
                            "sparse tensor '%.120s' has %zu bytes when it is dense, those before "
                            "it %zu; at most %zu are supported in all",
                            name, s->bytes, *r->dense_bytes, most_dense_bytes);
    *r->dense_bytes += s->bytes;
    return SY_OK;
}

/* A list of numbers. */
static int read_values(const struct sy_onnx_reader *r, Onnx__TensorProto *proto, const char *name,
                       struct sparse *s)
{
    struct sy_shape shape;
    size_t bytes;
    if (proto->segment)
        return sy_error_set(SY_EUNSUPPORTED, "tensor '%.120s' is stored in segments", name);
    SY_TRY(tensor_shape(proto, &shape, s->each, &bytes));
    if (shape.rank != 1)
        return sy_error_set(SY_ECORRUPT, "sparse tensor '%.120s': values of %d dimensions", name,
                            shape.rank);
    void *data;
    SY_TRY(read_data(r, proto, (enum sy_dtype)proto->data_type, bytes, &data));
    s->values = data;
    s->n = bytes / s->each;
    return SY_OK;
}

static int read_parts(const struct sy_onnx_reader *r, Onnx__SparseTensorProto *proto,
                      const char *name, struct sparse *s)
{
    SY_TRY(dense_shape(r, proto, name, s));
    SY_TRY(read_values(r, proto->values, name, s));
    s->linear = proto->indices->n_dims == 1;
    return read_indices(r, proto->indices, s->n * (s->linear ? 1 : (size_t)s->shape.rank),
                        &s->indices);
}

int sy_onnx_read_sparse(struct sy_onnx_reader *r, Onnx__SparseTensorProto *proto, const char *name,
                        int *out)
{
    struct sparse s = {0};
    void *data = NULL;
    int status = read_parts(r, proto, name, &s);
    if (status == SY_OK)
        status = sy_graph_alloc(s.bytes, 1, &data);
    if (status == SY_OK)
        status = scatter(name, &s, data);
    free(s.values);
    free(s.indices);
    if (status < 0) {
        free(data);
        return status;
    }
    return sy_graph_add_constant(r->graph, name, (enum sy_dtype)proto->values->data_type, &s.shape,
                                 data, s.bytes, out);
}

/* InferTensorContents: elements one by one, each in the list that its type has. */
#include <inttypes.h>
#include <string.h>

#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_infer_message.h"

/* Field numbers of InferTensorContents. */
enum list {
    NO_LIST,
    BOOL_LIST,
    INT_LIST,
    INT64_LIST,
    UINT_LIST,
    UINT64_LIST,
    FP32_LIST,
    FP64_LIST,
    BYTES_LIST
};

struct filler {
    const char *input;
    enum list list;
    size_t width; /* bytes of an element in the tensor */
    uint64_t n, filled;
    uint8_t *to;
};

/* By name, so that a dtype of 8, 16 or 32 bits needs no line of its own. */
static enum list list_of(enum sy_dtype dtype)
{
    const char *name = sy_dtype_wire_name(dtype);

    if (strcmp(name, "BOOL") == 0)
        return BOOL_LIST;
    if (strcmp(name, "INT64") == 0)
        return INT64_LIST;
    if (strcmp(name, "UINT64") == 0)
        return UINT64_LIST;
    if (strcmp(name, "FP32") == 0)
        return FP32_LIST;
    if (strcmp(name, "FP64") == 0)
        return FP64_LIST;
    if (strncmp(name, "INT", 3) == 0)
        return INT_LIST;
    if (strncmp(name, "UINT", 4) == 0)
        return UINT_LIST;
    return NO_LIST;
}

static bool fits(const struct filler *filler, uint64_t value)
{
    unsigned bits = (unsigned)(8 * filler->width);
    int64_t number = (int64_t)value;

    switch (filler->list) {
    case BOOL_LIST:
        return value <= 1;
    case INT_LIST:
        return number >= -(INT64_C(1) << (bits - 1)) && number < INT64_C(1) << (bits - 1);
    case UINT_LIST:
        return value < UINT64_C(1) << bits;
    default:
        return true;
    }
}

static int too_many(const struct filler *filler)
{
    return sy_error_set(SY_EARG,
                        "input \"%s\" has more contents than the %" PRIu64 " elements of its shape",
                        filler->input, filler->n);
}

static int add(struct filler *filler, uint64_t value)
{
    if (filler->filled == filler->n)
        return too_many(filler);
    if (!fits(filler, value))
        return sy_error_set(SY_EARG, "input \"%s\": element %" PRIu64 " is out of its type's range",
                            filler->input, filler->filled);
    memcpy(filler->to + filler->filled * filler->width, &value, filler->width);
    filler->filled++;
    return SY_OK;
}

static int bad_list(const struct filler *filler)
{
    return sy_error_set(SY_EARG, "input \"%s\": its contents end within an element", filler->input);
}

static int add_varints(struct filler *filler, struct sy_grpc_bytes bytes)
{
    uint64_t value;

    while (bytes.n > 0) {
        if (sy_grpc_wire_varint(&bytes, &value) != SY_GRPC_FIELD)
            return bad_list(filler);
        SY_TRY(add(filler, value));
    }
    return SY_OK;
}

/* Floats lie there as they are to lie in the tensor. */
static int add_floats(struct filler *filler, struct sy_grpc_bytes bytes)
{
    uint64_t n = bytes.n / filler->width;

    if (bytes.n % filler->width != 0)
        return bad_list(filler);
    if (n > filler->n - filler->filled)
        return too_many(filler);
    if (n > 0)
        memcpy(filler->to + filler->filled * filler->width, bytes.data, bytes.n);
    filler->filled += n;
    return SY_OK;
}

static int add_field(struct filler *filler, const struct sy_grpc_field *field)
{
    bool floats = filler->list == FP32_LIST || filler->list == FP64_LIST;
    enum sy_grpc_wire_type alone = filler->list == FP32_LIST   ? SY_GRPC_FIXED32
                                   : filler->list == FP64_LIST ? SY_GRPC_FIXED64
                                                               : SY_GRPC_VARINT;

    if (field->number != filler->list)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has contents of another type (field %" PRIu32
                            " of InferTensorContents; its datatype has field %d)",
                            filler->input, field->number, (int)filler->list);
    if (field->type == alone)
        return add(filler, field->value);
    if (field->type != SY_GRPC_BYTES)
        return bad_list(filler);
    return floats ? add_floats(filler, field->bytes) : add_varints(filler, field->bytes);
}

/* got: what the last field was. */
static int check_end(const struct filler *filler, int got)
{
    if (got != SY_GRPC_END)
        return bad_list(filler);
    if (filler->filled < filler->n)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has %" PRIu64 " elements in its contents; its shape has "
                            "%" PRIu64,
                            filler->input, filler->filled, filler->n);
    return SY_OK;
}

int sy_grpc_contents_read(struct sy_grpc_bytes contents, const char *input, enum sy_dtype dtype,
                          uint64_t n, void *to)
{
    struct filler filler = {
        .input = input, .list = list_of(dtype), .width = sy_dtype_bytes(dtype), .n = n, .to = to};
    struct sy_grpc_field field;
    int got;

    if (filler.list == NO_LIST)
        return sy_error_set(SY_EUNSUPPORTED,
                            "input \"%s\": %s has no field in InferTensorContents; send it in "
                            "raw_input_contents",
                            input, sy_dtype_wire_name(dtype));
    while ((got = sy_grpc_wire_next(&contents, &field)) == SY_GRPC_FIELD)
        SY_TRY(add_field(&filler, &field));
    return check_end(&filler, got);
}

uint64_t sy_grpc_contents_string_bytes(struct sy_grpc_bytes contents, uint64_t n)
{
    return contents.n + n * sizeof(uint32_t);
}

int sy_grpc_contents_strings(struct sy_grpc_bytes contents, const char *input, uint64_t n, void *to)
{
    struct filler filler = {.input = input, .list = BYTES_LIST, .n = n, .to = to};
    struct sy_grpc_field field;
    uint8_t *at = to;
    int got;

    while ((got = sy_grpc_wire_next(&contents, &field)) == SY_GRPC_FIELD) {
        uint32_t bytes = (uint32_t)field.bytes.n;

        if (field.number != BYTES_LIST || field.type != SY_GRPC_BYTES)
            return sy_error_set(SY_EARG,
                                "input \"%s\" has contents of another type (field %" PRIu32
                                " of InferTensorContents; its datatype has field %d)",
                                input, field.number, (int)BYTES_LIST);
        if (filler.filled++ == n)
            return too_many(&filler);
        memcpy(at, &bytes, sizeof bytes);
        if (bytes > 0)
            memcpy(at + sizeof bytes, field.bytes.data, bytes);
        at += sizeof bytes + bytes;
    }
    SY_TRY(check_end(&filler, got));
    sy_string_block_end(to, (uint64_t)(at - (uint8_t *)to));
    return SY_OK;
}

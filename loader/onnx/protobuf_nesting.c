#include "loader/onnx/protobuf_nesting.h"

#include <stdbool.h>

#include "runtime/base/status.h"

static int read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return SY_OK;
    }
    return SY_ECORRUPT;
}

/* The length of the value that follows a tag; the bytes of a length-delimited one start at *at. */
static int value_bytes(unsigned wire_type, const uint8_t **at, const uint8_t *end, uint64_t *bytes)
{
    uint64_t ignored;
    switch (wire_type) {
    case 0:
        *bytes = 0;
        return read_varint(at, end, &ignored);
    case 1:
        *bytes = 8;
        break;
    case 2:
        SY_TRY(read_varint(at, end, bytes));
        break;
    case 5:
        *bytes = 4;
        break;
    default:
        return SY_ECORRUPT;
    }
    return *bytes <= (uint64_t)(end - *at) ? SY_OK : SY_ECORRUPT;
}

/* Remaining limits. */
struct limits {
    size_t fields;
};

/* A message that may be there once comes again: merging them costs time that grows with the square of their number. */
static bool is_repeated_once(const ProtobufCFieldDescriptor *field, uint64_t *seen)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED || field->id >= 64)
        return false;
    bool again = *seen >> field->id & 1;
    *seen |= 1ull << field->id;
    return again;
}

static int check_nesting(const ProtobufCMessageDescriptor *type, const uint8_t *at,
                         const uint8_t *end, int depth, struct limits *limits)
{
    uint64_t seen = 0;
    if (depth < 0)
        return SY_EUNSUPPORTED;
    while (at < end) {
        uint64_t tag, bytes;
        if (limits->fields-- == 0)
            return SY_EUNSUPPORTED;
        SY_TRY(read_varint(&at, end, &tag));
        if (tag >> 3 == 0)
            return SY_ECORRUPT;
        SY_TRY(value_bytes(tag & 7, &at, end, &bytes));
        const ProtobufCFieldDescriptor *field =
            tag >> 3 <= UINT32_MAX
                ? protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3))
                : NULL;
        if ((tag & 7) == 2 && field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
            if (is_repeated_once(field, &seen))
                return SY_ECORRUPT;
            SY_TRY(check_nesting(field->descriptor, at, at + bytes, depth - 1, limits));
        }
        at += bytes;
    }
    return SY_OK;
}

int sy_protobuf_check_nesting(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                              size_t n, int most, size_t most_fields)
{
    struct limits limits = {.fields = most_fields};
    return check_nesting(type, bytes, bytes + n, most, &limits);
}

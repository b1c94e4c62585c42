#include "loader/protobuf_nesting.h"

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

/* protobuf-c unpacks nested messages by recursion without a limit; a few bytes a level would overflow the stack. */
static int check_nesting(const ProtobufCMessageDescriptor *type, const uint8_t *at,
                         const uint8_t *end, int depth)
{
    if (depth < 0)
        return SY_EUNSUPPORTED;
    while (at < end) {
        uint64_t tag, bytes;
        SY_TRY(read_varint(&at, end, &tag));
        SY_TRY(value_bytes(tag & 7, &at, end, &bytes));
        const ProtobufCFieldDescriptor *field =
            tag >> 3 <= UINT32_MAX
                ? protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3))
                : NULL;
        if ((tag & 7) == 2 && field && field->type == PROTOBUF_C_TYPE_MESSAGE)
            SY_TRY(check_nesting(field->descriptor, at, at + bytes, depth - 1));
        at += bytes;
    }
    return SY_OK;
}

int sy_protobuf_check_nesting(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                              size_t n, int most)
{
    return check_nesting(type, bytes, bytes + n, most);
}

#include "runtime/front/grpc/grpc_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

struct reader {
    int n_elements, depth;
};

static bool is_map(const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    size_t n;

    if (field->label != PROTOBUF_C_LABEL_REPEATED || field->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    n = strlen(entry->short_name);
    return entry->n_fields == 2 && n > 5 && strcmp(entry->short_name + n - 5, "Entry") == 0 &&
           strcmp(entry->fields[0].name, "key") == 0 && strcmp(entry->fields[1].name, "value") == 0;
}

static enum sy_grpc_wire_type wire_type(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return SY_GRPC_FIXED64;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return SY_GRPC_FIXED32;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return SY_GRPC_BYTES;
    default:
        return SY_GRPC_VARINT;
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static int read_message(struct reader *reader, const ProtobufCMessageDescriptor *type,
                        struct sy_grpc_bytes bytes, json_t **out);

static json_t *real_of(ProtobufCType type, uint64_t bits)
{
    float narrow;
    double wide;

    if (type == PROTOBUF_C_TYPE_DOUBLE) {
        memcpy(&wide, &bits, sizeof wide);
        return json_real(wide);
    }
    memcpy(&narrow, &bits, sizeof narrow);
    return json_real((double)narrow);
}

static json_t *enum_of(const ProtobufCEnumDescriptor *type, uint64_t value)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(type, (int)value);

    return found ? json_string(found->name) : json_integer((json_int_t)value);
}

static json_t *number_of(const ProtobufCFieldDescriptor *field, uint64_t value)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(value != 0);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_of(field->descriptor, value);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return real_of(field->type, value);
    case PROTOBUF_C_TYPE_INT32:
        return json_integer((int32_t)value);
    case PROTOBUF_C_TYPE_UINT32:
        return json_integer((uint32_t)value);
    case PROTOBUF_C_TYPE_UINT64: /* as JSON no more than an int64 */
        return value <= INT64_MAX ? json_integer((json_int_t)value) : NULL;
    default:
        return json_integer((json_int_t)value);
    }
}

static int read_value(struct reader *reader, const ProtobufCFieldDescriptor *field,
                      const struct sy_grpc_field *from, json_t **out)
{
    if (++reader->n_elements > SY_GRPC_JSON_ELEMENTS)
        return sy_error_set(SY_EARG, "a message of more than %d values", SY_GRPC_JSON_ELEMENTS);
    if (from->type != wire_type(field->type))
        return sy_error_set(SY_EARG, "field %s has the wire type %d", field->name, from->type);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return read_message(reader, field->descriptor, from->bytes, out);
    if (field->type == PROTOBUF_C_TYPE_STRING)
        *out = json_stringn((const char *)from->bytes.data, from->bytes.n);
    else if (field->type == PROTOBUF_C_TYPE_BYTES)
        *out = json_stringn_nocheck((const char *)from->bytes.data, from->bytes.n);
    else
        *out = number_of(field, from->value);
    return *out ? SY_OK
                : sy_error_set(SY_EARG, "field %s has a value that is no %s", field->name,
                               field->type == PROTOBUF_C_TYPE_STRING ? "UTF-8" : "int64");
}

static int append(json_t *object, const char *name, json_t *value)
{
    json_t *list = json_object_get(object, name);

    if (!list) {
        list = json_array();
        if (json_object_set_new(object, name, list)) {
            json_decref(value);
            return sy_error_set(SY_ENOMEM_HOST, "no memory for a message");
        }
    }
    return json_array_append_new(list, value)
               ? sy_error_set(SY_ENOMEM_HOST, "no memory for a message")
               : SY_OK;
}

/* An entry {key, value}; keys are strings or numbers. */
static int add_entry(json_t *object, const char *name, json_t *entry)
{
    json_t *map = json_object_get(object, name), *key = json_object_get(entry, "key"),
           *value = json_object_get(entry, "value");
    char number[24] = "";
    int failed;

    if (!map) {
        map = json_object();
        if (json_object_set_new(object, name, map))
            return sy_error_set(SY_ENOMEM_HOST, "no memory for a message");
    }
    if (json_is_integer(key))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(key));
    failed = json_object_set_new(map, json_is_string(key) ? json_string_value(key) : number,
                                 value ? json_incref(value) : json_null());
    return failed ? sy_error_set(SY_ENOMEM_HOST, "no memory for a message") : SY_OK;
}

static int read_packed(struct reader *reader, const ProtobufCFieldDescriptor *field,
                       struct sy_grpc_bytes bytes, json_t *object)
{
    enum sy_grpc_wire_type type = wire_type(field->type);
    size_t width = type == SY_GRPC_FIXED64 ? 8 : 4;

    while (bytes.n > 0) {
        struct sy_grpc_field one = {.type = type};
        json_t *value;

        if (type == SY_GRPC_VARINT) {
            if (sy_grpc_wire_varint(&bytes, &one.value) != SY_GRPC_FIELD)
                return sy_error_set(SY_EARG, "field %s ends within a number", field->name);
        } else if (bytes.n < width) {
            return sy_error_set(SY_EARG, "field %s ends within a number", field->name);
        } else {
            memcpy(&one.value, bytes.data, width);
            bytes.data += width;
            bytes.n -= width;
        }
        SY_TRY(read_value(reader, field, &one, &value));
        SY_TRY(append(object, field->name, value));
    }
    return SY_OK;
}

static int read_field(struct reader *reader, const ProtobufCFieldDescriptor *field,
                      const struct sy_grpc_field *from, json_t *object)
{
    bool repeats = field->label == PROTOBUF_C_LABEL_REPEATED;
    json_t *value;
    int status;

    if (repeats && from->type == SY_GRPC_BYTES && wire_type(field->type) != SY_GRPC_BYTES)
        return read_packed(reader, field, from->bytes, object);
    SY_TRY(read_value(reader, field, from, &value));
    if (is_map(field)) {
        status = add_entry(object, field->name, value);
        json_decref(value);
        return status;
    }
    if (repeats)
        return append(object, field->name, value);
    return json_object_set_new(object, field->name, value)
               ? sy_error_set(SY_ENOMEM_HOST, "no memory for a message")
               : SY_OK;
}

static int read_fields(struct reader *reader, const ProtobufCMessageDescriptor *type,
                       struct sy_grpc_bytes bytes, json_t *object)
{
    struct sy_grpc_field from;
    int got;

    while ((got = sy_grpc_wire_next(&bytes, &from)) == SY_GRPC_FIELD) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, from.number);

        if (field)
            SY_TRY(read_field(reader, field, &from, object));
    }
    return got == SY_GRPC_END
               ? SY_OK
               : sy_error_set(SY_EARG, "the bytes are no message of type %s", type->name);
}

static int read_message(struct reader *reader, const ProtobufCMessageDescriptor *type,
                        struct sy_grpc_bytes bytes, json_t **out)
{
    json_t *object;
    int status;

    if (reader->depth == SY_GRPC_JSON_DEPTH)
        return sy_error_set(SY_EARG, "a message that is nested deeper than %d", SY_GRPC_JSON_DEPTH);
    object = json_object();
    SY_TRY_ALLOC(object, "no memory for a message");
    reader->depth++;
    status = read_fields(reader, type, bytes, object);
    reader->depth--;
    if (status < 0)
        json_decref(object);
    else
        *out = object;
    return status;
}

int sy_grpc_json_read(const ProtobufCMessageDescriptor *type, struct sy_grpc_bytes message,
                      json_t **out)
{
    struct reader reader = {0};

    return read_message(&reader, type, message, out);
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static int misfit(const ProtobufCFieldDescriptor *field)
{
    return sy_error_set(SY_EARG, "field %s has a value of another type", field->name);
}

static int integer_of(const ProtobufCFieldDescriptor *field, const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    char *end;

    if (json_is_boolean(value) || json_is_integer(value)) {
        *out = json_is_integer(value) ? (uint64_t)json_integer_value(value) : json_is_true(value);
        return SY_OK;
    }
    if (!text || !*text)
        return misfit(field);
    errno = 0;
    *out = *text == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    return *end || errno ? misfit(field) : SY_OK;
}

static int enum_number(const ProtobufCFieldDescriptor *field, const json_t *value, uint64_t *out)
{
    const ProtobufCEnumValue *found;

    if (!json_is_string(value))
        return integer_of(field, value, out);
    found =
        protobuf_c_enum_descriptor_get_value_by_name(field->descriptor, json_string_value(value));
    if (!found)
        return misfit(field);
    *out = (uint64_t)found->value;
    return SY_OK;
}

static int number_bits(const ProtobufCFieldDescriptor *field, const json_t *value, uint64_t *out)
{
    double wide = json_number_value(value);
    float narrow = (float)wide;

    *out = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(out, &wide, sizeof wide);
        return json_is_number(value) ? SY_OK : misfit(field);
    case PROTOBUF_C_TYPE_FLOAT:
        memcpy(out, &narrow, sizeof narrow);
        return json_is_number(value) ? SY_OK : misfit(field);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_number(field, value, out);
    default:
        return integer_of(field, value, out);
    }
}

static void put_bits(struct sy_grpc_buffer *out, enum sy_grpc_wire_type type, uint64_t bits)
{
    size_t width = type == SY_GRPC_FIXED64 ? 8 : 4;
    uint8_t *at;

    if (type == SY_GRPC_VARINT) {
        sy_grpc_put_varint(out, bits);
        return;
    }
    at = sy_grpc_buffer_extend(out, width);
    if (at)
        memcpy(at, &bits, width);
}

static int write_value(const ProtobufCFieldDescriptor *field, const json_t *value,
                       struct sy_grpc_buffer *out)
{
    enum sy_grpc_wire_type type = wire_type(field->type);
    uint64_t bits;

    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        size_t start = sy_grpc_put_begin(out, field->id);

        SY_TRY(sy_grpc_json_write(field->descriptor, value, out));
        sy_grpc_put_end(out, start);
        return SY_OK;
    }
    if (type == SY_GRPC_BYTES) {
        if (!json_is_string(value))
            return misfit(field);
        sy_grpc_put_bytes(out, field->id, json_string_value(value), json_string_length(value));
        return SY_OK;
    }
    SY_TRY(number_bits(field, value, &bits));
    sy_grpc_put_tag(out, field->id, type);
    put_bits(out, type, bits);
    return SY_OK;
}

static int write_map(const ProtobufCFieldDescriptor *field, const json_t *map,
                     struct sy_grpc_buffer *out)
{
    const ProtobufCFieldDescriptor *fields =
        ((const ProtobufCMessageDescriptor *)field->descriptor)->fields;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        size_t start = sy_grpc_put_begin(out, field->id);
        json_t *name = json_string(key);
        int status = name ? write_value(&fields[0], name, out)
                          : sy_error_set(SY_ENOMEM_HOST, "no memory for a message");

        json_decref(name);
        SY_TRY(status);
        if (!json_is_null(value))
            SY_TRY(write_value(&fields[1], value, out));
        sy_grpc_put_end(out, start);
    }
    return SY_OK;
}

static int write_list(const ProtobufCFieldDescriptor *field, const json_t *list,
                      struct sy_grpc_buffer *out)
{
    enum sy_grpc_wire_type type = wire_type(field->type);
    size_t start, i;
    uint64_t bits;
    json_t *value;

    if (type == SY_GRPC_BYTES) {
        json_array_foreach(list, i, value) SY_TRY(write_value(field, value, out));
        return SY_OK;
    }
    start = sy_grpc_put_begin(out, field->id);
    json_array_foreach(list, i, value)
    {
        SY_TRY(number_bits(field, value, &bits));
        put_bits(out, type, bits);
    }
    sy_grpc_put_end(out, start);
    return SY_OK;
}

static int write_field(const ProtobufCFieldDescriptor *field, const json_t *value,
                       struct sy_grpc_buffer *out)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return write_value(field, value, out);
    if (is_map(field) && json_is_object(value))
        return write_map(field, value, out);
    if (!json_is_array(value))
        return misfit(field);
    return json_array_size(value) > 0 ? write_list(field, value, out) : SY_OK;
}

int sy_grpc_json_write(const ProtobufCMessageDescriptor *type, const json_t *value,
                       struct sy_grpc_buffer *out)
{
    if (!json_is_object(value))
        return sy_error_set(SY_EARG, "a %s is a JSON object", type->short_name);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const json_t *member = json_object_get(value, type->fields[i].name);

        if (member && !json_is_null(member))
            SY_TRY(write_field(&type->fields[i], member, out));
    }
    return out->is_broken ? sy_error_set(SY_ENOMEM_HOST, "no memory for a message") : SY_OK;
}

#include "runtime/client/json_msgpack.h"

#include <string.h>

#include "runtime/base/status.h"

static int pack_string(msgpack_packer *packer, const char *text, size_t n)
{
    return msgpack_pack_str(packer, n) || msgpack_pack_str_body(packer, text, n) ? -1 : 0;
}

static int pack_object(msgpack_packer *packer, const json_t *value)
{
    const char *key;
    json_t *item;

    if (msgpack_pack_map(packer, json_object_size(value)))
        return -1;
    json_object_foreach((json_t *)value, key, item)
    {
        if (pack_string(packer, key, strlen(key)) || sy_json_to_msgpack(packer, item))
            return -1;
    }
    return 0;
}

static int pack_array(msgpack_packer *packer, const json_t *value)
{
    if (msgpack_pack_array(packer, json_array_size(value)))
        return -1;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (sy_json_to_msgpack(packer, json_array_get(value, i)))
            return -1;
    return 0;
}

int sy_json_to_msgpack(msgpack_packer *packer, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return pack_object(packer, value);
    case JSON_ARRAY:
        return pack_array(packer, value);
    case JSON_STRING:
        return pack_string(packer, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        return msgpack_pack_int64(packer, json_integer_value(value));
    case JSON_REAL:
        return msgpack_pack_double(packer, json_real_value(value));
    case JSON_TRUE:
        return msgpack_pack_true(packer);
    case JSON_FALSE:
        return msgpack_pack_false(packer);
    case JSON_NULL:
        return msgpack_pack_nil(packer);
    }
    return -1;
}

static int from_array(const msgpack_object *object, json_t *array)
{
    for (uint32_t i = 0; i < object->via.array.size; i++) {
        json_t *item;

        SY_TRY(sy_json_from_msgpack(&object->via.array.ptr[i], &item));
        if (json_array_append_new(array, item))
            return sy_error_set(SY_ENOMEM_HOST, "no memory for a JSON array");
    }
    return SY_OK;
}

static int from_map(const msgpack_object *object, json_t *map)
{
    for (uint32_t i = 0; i < object->via.map.size; i++) {
        const msgpack_object_kv *pair = &object->via.map.ptr[i];
        char key[256];
        json_t *item;

        if (pair->key.type != MSGPACK_OBJECT_STR || pair->key.via.str.size >= sizeof(key))
            return sy_error_set(SY_EUNSUPPORTED,
                                "a map's keys must be strings of at most 255 bytes");
        memcpy(key, pair->key.via.str.ptr ? pair->key.via.str.ptr : "", pair->key.via.str.size);
        key[pair->key.via.str.size] = 0;
        SY_TRY(sy_json_from_msgpack(&pair->val, &item));
        if (json_object_set_new(map, key, item))
            return sy_error_set(SY_EARG, "a map's key is not UTF-8");
    }
    return SY_OK;
}

static json_t *from_scalar(const msgpack_object *object)
{
    switch (object->type) {
    case MSGPACK_OBJECT_NIL:
        return json_null();
    case MSGPACK_OBJECT_BOOLEAN:
        return json_boolean(object->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return object->via.u64 <= INT64_MAX ? json_integer((json_int_t)object->via.u64)
                                            : json_real((double)object->via.u64);
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        return json_integer(object->via.i64);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return json_real(object->via.f64); /* NULL for nan and infinity */
    case MSGPACK_OBJECT_STR:
        return json_stringn(object->via.str.ptr ? object->via.str.ptr : "", object->via.str.size);
    default:
        return NULL;
    }
}

static int no_json(const msgpack_object *object)
{
    switch (object->type) {
    case MSGPACK_OBJECT_STR:
        return sy_error_set(SY_EARG, "a string of %u bytes is not UTF-8", object->via.str.size);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return sy_error_set(SY_EARG, "a number is %g", object->via.f64);
    default:
        return sy_error_set(SY_EUNSUPPORTED, "%s has no place in a parameter",
                            object->type == MSGPACK_OBJECT_BIN ? "binary data"
                                                               : "an extension type");
    }
}

int sy_json_from_msgpack(const msgpack_object *object, json_t **out)
{
    int status = SY_OK;

    *out = object->type == MSGPACK_OBJECT_ARRAY ? json_array()
           : object->type == MSGPACK_OBJECT_MAP ? json_object()
                                                : from_scalar(object);
    if (!*out)
        return no_json(object);
    if (object->type == MSGPACK_OBJECT_ARRAY)
        status = from_array(object, *out);
    else if (object->type == MSGPACK_OBJECT_MAP)
        status = from_map(object, *out);
    if (status < 0) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

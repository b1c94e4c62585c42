/* Parameters of a message that are no JSON. */
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_internal.h"

const msgpack_object *sy_rpc_get(const msgpack_object *map, const char *key)
{
    size_t n = strlen(key);

    for (uint32_t i = 0; map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
        const msgpack_object_kv *pair = &map->via.map.ptr[i];

        if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size == n &&
            memcmp(pair->key.via.str.ptr, key, n) == 0)
            return &pair->val;
    }
    return NULL;
}

int sy_rpc_get_text(const msgpack_object *map, const char *key, char *to, size_t bytes)
{
    const msgpack_object *value = sy_rpc_get(map, key);

    if (!value || value->type != MSGPACK_OBJECT_STR || value->via.str.size >= bytes)
        return sy_error_set(SY_EARG, "\"%s\" is missing, no string, or longer than %zu bytes", key,
                            bytes - 1);
    if (value->via.str.size > 0 && memchr(value->via.str.ptr, 0, value->via.str.size))
        return sy_error_set(SY_EARG, "\"%s\" has a zero byte in it", key);
    memcpy(to, value->via.str.ptr ? value->via.str.ptr : "", value->via.str.size);
    to[value->via.str.size] = 0;
    return SY_OK;
}

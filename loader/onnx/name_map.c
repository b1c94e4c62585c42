#include "loader/onnx/name_map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"

int sy_name_map_init(struct sy_name_map *map, size_t n)
{
    map->capacity = 16;
    while (map->capacity < 2 * n + 2)
        map->capacity *= 2;
    SY_TRY(sy_graph_alloc(map->capacity, sizeof *map->names, &map->names));
    return sy_graph_alloc(map->capacity, sizeof *map->values, &map->values);
}

static size_t map_slot(const struct sy_name_map *map, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
    size_t slot = (size_t)(hash ^ hash >> 32) & (map->capacity - 1);
    while (map->names[slot] && strcmp(map->names[slot], name) != 0)
        slot = (slot + 1) & (map->capacity - 1);
    return slot;
}

static int grow(struct sy_name_map *map)
{
    struct sy_name_map larger = {0};
    int status = sy_name_map_init(&larger, map->capacity);
    if (status < 0) {
        sy_name_map_finish(&larger);
        return status;
    }
    for (size_t i = 0; i < map->capacity; i++)
        if (map->names[i])
            sy_name_map_set(&larger, map->names[i], map->values[i]);
    sy_name_map_finish(map);
    *map = larger;
    return SY_OK;
}

int sy_name_map_set(struct sy_name_map *map, const char *name, int value)
{
    if (2 * map->used >= map->capacity)
        SY_TRY(grow(map));
    size_t slot = map_slot(map, name);
    map->used += map->names[slot] == NULL;
    map->names[slot] = name;
    map->values[slot] = value;
    return SY_OK;
}

int sy_name_map_get(const struct sy_name_map *map, const char *name)
{
    size_t slot = map_slot(map, name);
    return map->names[slot] ? map->values[slot] : -1;
}

void sy_name_map_finish(struct sy_name_map *map)
{
    free(map->names);
    free(map->values);
    *map = (struct sy_name_map){0};
}

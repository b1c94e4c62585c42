#include "loader/name_map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph_internal.h"
#include "runtime/base/status.h"

int sy_name_map_init(struct sy_name_map *map, size_t n)
{
    map->capacity = 16;
    while (map->capacity < 2 * n)
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

void sy_name_map_set(struct sy_name_map *map, const char *name, int value)
{
    size_t slot = map_slot(map, name);
    map->names[slot] = name;
    map->values[slot] = value;
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

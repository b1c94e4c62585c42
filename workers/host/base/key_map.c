#include "workers/host/base/key_map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct slot {
    uint64_t hash, offset; /* of its bytes */
    uint32_t bytes;
    int32_t number; /* -1: free */
};

/* Open addressing, at most half full. */
struct sy_key_map {
    uint64_t mask, used, room;
    char *keys;
    struct slot slots[];
};

int sy_key_map_create(int64_t n, struct sy_key_map **out)
{
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    struct sy_key_map *map = malloc(sizeof *map + slots * sizeof *map->slots);
    SY_TRY_ALLOC(map, "no memory for a table of %lld keys", (long long)n);
    *map = (struct sy_key_map){.mask = slots - 1};
    for (uint64_t i = 0; i < slots; i++)
        map->slots[i].number = -1;
    *out = map;
    return SY_OK;
}

void sy_key_map_destroy(void *of)
{
    struct sy_key_map *map = of;
    if (map)
        free(map->keys);
    free(map);
}

/* The key's slot, or the free slot for it. */
static uint64_t find_slot(const struct sy_key_map *map, const void *key, uint32_t bytes,
                          uint64_t hash)
{
    uint64_t i = hash & map->mask;
    for (;; i = (i + 1) & map->mask) {
        const struct slot *s = &map->slots[i];
        if (s->number < 0 || (s->hash == hash && s->bytes == bytes &&
                              memcmp(map->keys + s->offset, key, bytes) == 0))
            return i;
    }
}

int sy_key_map_add(struct sy_key_map *map, const void *key, uint32_t bytes, int32_t number,
                   int32_t *out)
{
    uint64_t hash = XXH3_64bits(key, bytes), i = find_slot(map, key, bytes, hash);
    struct slot *s = &map->slots[i];
    *out = s->number;
    if (s->number >= 0)
        return SY_OK;
    if (map->used + bytes + 1 > map->room) {
        uint64_t room = SY_MAX(2 * map->room, map->used + bytes + 64);
        char *grown = realloc(map->keys, room);
        SY_TRY_ALLOC(grown, "no memory for keys of %llu bytes", (unsigned long long)room);
        map->keys = grown;
        map->room = room;
    }
    memcpy(map->keys + map->used, key, bytes);
    *s = (struct slot){hash, map->used, bytes, number};
    map->used += bytes;
    *out = number;
    return SY_OK;
}

int32_t sy_key_map_find(const struct sy_key_map *map, const void *key, uint32_t bytes)
{
    return map->slots[find_slot(map, key, bytes, XXH3_64bits(key, bytes))].number;
}

/* Hash table from names to numbers: open addressing, at most half full. Names are borrowed. */
#ifndef SY_LOADER_ONNX_NAME_MAP_H
#define SY_LOADER_ONNX_NAME_MAP_H

#include <stddef.h>

struct sy_name_map {
    const char **names;
    int *values;
    size_t capacity; /* power of two */
    size_t used;
};

/* Room for n names; sy_name_map_finish in any case. */
int sy_name_map_init(struct sy_name_map *map, size_t n);
void sy_name_map_finish(struct sy_name_map *map);
/* Sets or replaces. Fails (ENOMEM_HOST) beyond n different names only, when the map grows. */
int sy_name_map_set(struct sy_name_map *map, const char *name, int value);
int sy_name_map_get(const struct sy_name_map *map, const char *name); /* -1: not there */

#endif

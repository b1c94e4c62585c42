/* Keys of any bytes to numbers: a table for labels, categories and words, made once a program. */
#ifndef SY_WORKERS_HOST_BASE_KEY_MAP_H
#define SY_WORKERS_HOST_BASE_KEY_MAP_H

#include <stddef.h>
#include <stdint.h>

struct sy_key_map;

/* For at most n keys. */
int sy_key_map_create(int64_t n, struct sy_key_map **out);
void sy_key_map_destroy(void *map); /* NULL is fine */
/* The key is copied. Its number, which is an earlier one's if the key is there already; ENOMEM_HOST. */
int sy_key_map_add(struct sy_key_map *map, const void *key, uint32_t bytes, int32_t number,
                   int32_t *out);
/* -1: it is not there. */
int32_t sy_key_map_find(const struct sy_key_map *map, const void *key, uint32_t bytes);

#endif

#include "loader/graph/size_intern.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/base/status.h"

static int *find_slot(struct sy_intern *t, const void *bytes, size_t n)
{
    size_t mask = (size_t)t->n_slots - 1, i = (size_t)XXH3_64bits(bytes, n) & mask;
    for (;; i = (i + 1) & mask) {
        const struct sy_interned *item = t->slots[i] ? &t->items[t->slots[i] - 1] : NULL;
        if (!item || (item->n == n && memcmp(item->bytes, bytes, n) == 0))
            return &t->slots[i];
    }
}

/* Keeps at least half of the slots free. */
static bool grow(struct sy_intern *t)
{
    int capacity = t->capacity ? 2 * t->capacity : 64;
    struct sy_interned *items = realloc(t->items, (size_t)capacity * sizeof *items);
    int *slots = calloc((size_t)capacity * 2, sizeof *slots);
    if (items)
        t->items = items;
    if (!items || !slots) {
        free(slots);
        return false;
    }
    free(t->slots);
    t->slots = slots;
    t->n_slots = 2 * capacity;
    t->capacity = capacity;
    for (int i = 0; i < t->n; i++)
        *find_slot(t, t->items[i].bytes, t->items[i].n) = i + 1;
    return true;
}

static int put(struct sy_intern *t, const void *bytes, size_t n, int *out)
{
    int *slot = t->n_slots ? find_slot(t, bytes, n) : NULL;
    if (slot && *slot) {
        *out = *slot - 1;
        return SY_OK;
    }
    if (t->n >= t->most)
        return SY_EUNSUPPORTED;
    if (t->n == t->capacity && !grow(t))
        return SY_ENOMEM_HOST;
    void *copy = malloc(n ? n : 1);
    if (!copy)
        return SY_ENOMEM_HOST;
    memcpy(copy, bytes, n);
    *out = t->n;
    *find_slot(t, bytes, n) = t->n + 1;
    t->items[t->n++] = (struct sy_interned){copy, n};
    return SY_OK;
}

int sy_intern_put(struct sy_intern *table, const void *bytes, size_t n, int *out)
{
    pthread_mutex_lock(&table->lock);
    int status = put(table, bytes, n, out);
    pthread_mutex_unlock(&table->lock);
    if (status == SY_ENOMEM_HOST)
        return sy_error_set(status, "sizes: no memory");
    if (status < 0)
        return sy_error_set(status, "sizes: more than %d different ones", table->most);
    return SY_OK;
}

struct sy_interned sy_intern_get(struct sy_intern *table, int item)
{
    pthread_mutex_lock(&table->lock);
    struct sy_interned found = table->items[item];
    pthread_mutex_unlock(&table->lock);
    return found;
}

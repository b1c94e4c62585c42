#include "runtime/device/cuda/graph_cache.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define NONE SIZE_MAX

struct entry {
    bool used, refused; /* refused: of the key, at any placement */
    struct sy_graph_key key;
    uint64_t placement, last_use;
    void *graph;
    size_t next; /* in the bucket, which holds all placements of a key; NONE: last */
};

struct sy_graph_cache {
    void (*release)(void *ctx, void *graph);
    void *ctx;
    size_t capacity, n_buckets;
    uint64_t clock;
    struct sy_graph_counts counts;
    size_t *buckets;
    struct entry *entries;
};

/* ---- entries ----------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 32);
}

uint64_t sy_graph_placement(const uint64_t *offsets, size_t n)
{
    uint64_t hash = mix(0x5359, n);
    for (size_t i = 0; i < n; i++)
        hash = mix(hash, offsets[i]);
    return hash;
}

static size_t *bucket_of(struct sy_graph_cache *cache, struct sy_graph_key key)
{
    uint64_t hash = mix(mix(mix(0x4b, key.model), key.batch), key.group);
    return &cache->buckets[hash % cache->n_buckets];
}

static bool same_key(struct sy_graph_key a, struct sy_graph_key b)
{
    return a.model == b.model && a.batch == b.batch && a.group == b.group;
}

static struct entry *find(struct sy_graph_cache *cache, struct sy_graph_key key, uint64_t placement)
{
    for (size_t i = *bucket_of(cache, key); i != NONE; i = cache->entries[i].next) {
        struct entry *e = &cache->entries[i];
        if (same_key(e->key, key) && e->placement == placement)
            return e;
    }
    return NULL;
}

static void drop_graph(struct sy_graph_cache *cache, struct entry *e)
{
    if (!e->graph)
        return;
    cache->release(cache->ctx, e->graph);
    e->graph = NULL;
    cache->counts.graphs--;
}

static void remove_entry(struct sy_graph_cache *cache, struct entry *e)
{
    size_t *link = bucket_of(cache, e->key);
    while (*link != (size_t)(e - cache->entries))
        link = &cache->entries[*link].next;
    *link = e->next;
    drop_graph(cache, e);
    e->used = false;
    cache->counts.entries--;
}

/* The least recently used one of the key, if it has as many as it may; else NULL. */
static struct entry *key_victim(struct sy_graph_cache *cache, struct sy_graph_key key)
{
    struct entry *oldest = NULL;
    int n = 0;
    for (size_t i = *bucket_of(cache, key); i != NONE; i = cache->entries[i].next) {
        struct entry *e = &cache->entries[i];
        if (!same_key(e->key, key))
            continue;
        n++;
        if (!oldest || e->last_use < oldest->last_use)
            oldest = e;
    }
    return n >= SY_GRAPH_PLACEMENTS ? oldest : NULL;
}

/* A free entry, or the least recently used one of all. A scan: this is for a new placement only, next to which it is nothing. */
static struct entry *any_entry(struct sy_graph_cache *cache)
{
    struct entry *oldest = NULL;
    for (size_t i = 0; i < cache->capacity; i++) {
        struct entry *e = &cache->entries[i];
        if (!e->used)
            return e;
        if (!oldest || e->last_use < oldest->last_use)
            oldest = e;
    }
    return oldest;
}

static bool key_is_refused(struct sy_graph_cache *cache, struct sy_graph_key key)
{
    for (size_t i = *bucket_of(cache, key); i != NONE; i = cache->entries[i].next)
        if (same_key(cache->entries[i].key, key) && cache->entries[i].refused)
            return true;
    return false;
}

static struct entry *add_entry(struct sy_graph_cache *cache, struct sy_graph_key key,
                               uint64_t placement)
{
    bool refused = key_is_refused(cache, key);
    struct entry *e = key_victim(cache, key);
    if (!e)
        e = any_entry(cache);
    if (e->used)
        remove_entry(cache, e);
    size_t *bucket = bucket_of(cache, key);
    *e = (struct entry){.used = true,
                        .refused = refused,
                        .key = key,
                        .placement = placement,
                        .last_use = ++cache->clock,
                        .next = *bucket};
    *bucket = (size_t)(e - cache->entries);
    cache->counts.entries++;
    return e;
}

/* ---- the cache --------------------------------------------------------------------------------------- */

int sy_graph_cache_create(size_t capacity, void (*release)(void *ctx, void *graph), void *ctx,
                          struct sy_graph_cache **out)
{
    if (capacity == 0 || capacity > (1u << 20))
        return sy_error_set(SY_EARG, "a graph cache of %zu entries: 1 to %u", capacity, 1u << 20);
    struct sy_graph_cache *cache = calloc(1, sizeof *cache);
    size_t *buckets = calloc(capacity, sizeof *buckets);
    struct entry *entries = calloc(capacity, sizeof *entries);
    if (!cache || !buckets || !entries) {
        free(cache);
        free(buckets);
        free(entries);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a graph cache of %zu entries", capacity);
    }
    *cache = (struct sy_graph_cache){.release = release,
                                     .ctx = ctx,
                                     .capacity = capacity,
                                     .n_buckets = capacity,
                                     .buckets = buckets,
                                     .entries = entries};
    for (size_t i = 0; i < capacity; i++)
        buckets[i] = NONE;
    *out = cache;
    return SY_OK;
}

void sy_graph_cache_destroy(struct sy_graph_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->capacity; i++)
        if (cache->entries[i].used)
            remove_entry(cache, &cache->entries[i]);
    free(cache->buckets);
    free(cache->entries);
    free(cache);
}

enum sy_graph_answer sy_graph_cache_look(struct sy_graph_cache *cache, struct sy_graph_key key,
                                         uint64_t placement, void **out_graph)
{
    struct entry *e = find(cache, key, placement);
    bool first = !e;
    if (first)
        e = add_entry(cache, key, placement);
    e->last_use = ++cache->clock;
    if (first || e->refused) {
        cache->counts.eager++;
        return SY_GRAPH_EAGER;
    }
    if (!e->graph) {
        cache->counts.captures++;
        return SY_GRAPH_CAPTURE;
    }
    cache->counts.launches++;
    *out_graph = e->graph;
    return SY_GRAPH_LAUNCH;
}

void sy_graph_cache_put(struct sy_graph_cache *cache, struct sy_graph_key key, uint64_t placement,
                        void *graph)
{
    assert(graph);
    struct entry *e = find(cache, key, placement);
    if (!e) /* forgotten while it was captured */
        e = add_entry(cache, key, placement);
    drop_graph(cache, e);
    e->graph = graph;
    cache->counts.graphs++;
}

void sy_graph_cache_refuse(struct sy_graph_cache *cache, struct sy_graph_key key)
{
    for (size_t i = *bucket_of(cache, key); i != NONE; i = cache->entries[i].next) {
        if (!same_key(cache->entries[i].key, key))
            continue;
        cache->entries[i].refused = true;
        drop_graph(cache, &cache->entries[i]);
    }
}

void sy_graph_cache_forget(struct sy_graph_cache *cache, uint64_t model)
{
    for (size_t i = 0; i < cache->capacity; i++)
        if (cache->entries[i].used && cache->entries[i].key.model == model)
            remove_entry(cache, &cache->entries[i]);
}

struct sy_graph_counts sy_graph_cache_counts(const struct sy_graph_cache *cache)
{
    return cache->counts;
}

/* Which captured graphs there are, and when to capture again. Pure: a graph is an opaque pointer, the engine captures, launches and
 * releases.
 *
 * A graph holds addresses. So it is valid for one (model, batch size, group) at one placement: where the group's weights, the
 * workspace and the activations lie in the pool. Pools lie at one address for ever (D1), so a placement that comes back
 * brings its graphs back.
 *
 *   look ── first time here ──> EAGER     run kernel by kernel: libraries load and pick what they need, which no capture allows
 *     ├──── seen before, no graph ─> CAPTURE   capture, then put (or refuse, if it cannot be captured)
 *     └──── graph ────────────> LAUNCH
 *
 * A placement that is never seen twice is never captured: a capture costs more than one eager run. At most SY_GRAPH_PLACEMENTS
 * placements of one key are kept, and `capacity` entries in all; the least recently used goes first.
 * Not thread safe. */
#ifndef SY_DEVICE_CUDA_GRAPH_CACHE_H
#define SY_DEVICE_CUDA_GRAPH_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define SY_GRAPH_PLACEMENTS 4

struct sy_graph_cache;

struct sy_graph_key {
    uint64_t model;        /* the caller's number of the model, never used again for another */
    uint32_t batch, group; /* group: or any part that is launched whole */
};

enum sy_graph_answer { SY_GRAPH_EAGER, SY_GRAPH_CAPTURE, SY_GRAPH_LAUNCH };

struct sy_graph_counts {
    uint64_t eager, captures, launches; /* since create */
    size_t entries, graphs;             /* now */
};

/* `release` is called for each graph that the cache lets go (replaced, evicted, forgotten, destroyed); it may still be running on the
 * device. EARG on capacity 0; ENOMEM_HOST. */
int sy_graph_cache_create(size_t capacity, void (*release)(void *ctx, void *graph), void *ctx,
                          struct sy_graph_cache **out);
void sy_graph_cache_destroy(struct sy_graph_cache *cache); /* NULL is fine */

/* A number for a placement: the offsets, in an order that is always the same. */
uint64_t sy_graph_placement(const uint64_t *offsets, size_t n);

/* How to run the steps now. LAUNCH: *out_graph, the cache's, valid until the next call that is not look. */
enum sy_graph_answer sy_graph_cache_look(struct sy_graph_cache *cache, struct sy_graph_key key,
                                         uint64_t placement, void **out_graph);
/* Keeps `graph` (not NULL, now the cache's) for what look answered CAPTURE to. */
void sy_graph_cache_put(struct sy_graph_cache *cache, struct sy_graph_key key, uint64_t placement,
                        void *graph);
/* This key cannot be captured: EAGER from now on, at every placement, until it is forgotten. */
void sy_graph_cache_refuse(struct sy_graph_cache *cache, struct sy_graph_key key);
/* The model was unloaded. */
void sy_graph_cache_forget(struct sy_graph_cache *cache, uint64_t model);
struct sy_graph_counts sy_graph_cache_counts(const struct sy_graph_cache *cache);

#endif

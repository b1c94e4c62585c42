/* Which groups of which models are in a pool, and where. Pure: offsets and values only.
 *
 * Weights are read-only and the host image (or the package) is authoritative, so eviction drops and never
 * writes back. Nothing of a model that streams or runs (pinned) is evicted. Of a model the last group goes first, so that what
 * remains is a head, with which it starts at once.
 *
 * R1: the resident groups of an idle model are a prefix 0..k-1.
 * R2: a pinned model's groups are never evicted.
 * R3: a model larger than the room cycles: group j takes the place of an earlier group i of the
 *     same model, and says so in `after_group`; the reader of j waits until i was computed.
 * R4: tails, the groups behind a model's head as sy_residency_set_head gave it, go before all heads; among tails the
 *     least recently used model's goes first, among heads the one of least worth. */
#ifndef SY_ALLOCATOR_RESIDENCY_H
#define SY_ALLOCATOR_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/pool.h"
#include "allocator/residency_check.h"

struct sy_residency;

struct sy_group_place {
    uint64_t offset; /* in the pool */
    uint64_t bytes;
    bool resident; /* its bytes are there (or on their way) already: nothing to move */
    int32_t
        after_group; /* -1, or: move only after all groups <= this one of this run were computed (R3) */
};

#define SY_RESIDENCY_MAX_MODELS 1024

/* `pool` is borrowed and shared with lanes and training; it outlives the residency. ENOMEM_HOST.
 * All functions: one thread at a time, together with all other use of the pool. */
int sy_residency_new(struct sy_pool *pool, struct sy_residency **out);
void sy_residency_free(struct sy_residency *residency);

/* Model ids are small integers chosen by the caller (0..1023), each in use once. `group_bytes` is copied; a
 * group of 0 bytes is fine, takes no room and is always resident. EARG, EBUSY (id in use), ENOMEM_HOST. */
int sy_residency_add_model(struct sy_residency *r, int model, int n_groups,
                           const uint64_t *group_bytes);
/* Drops all its groups. EBUSY while pinned, ENOTFOUND. */
int sy_residency_remove_model(struct sy_residency *r, int model);

/* The group's bytes lie there already (a multiple of SY_POOL_ALIGN): it is placed there next if that place is still free. ENOTFOUND, EARG. */
int sy_residency_prefer(struct sy_residency *r, int model, int group, uint64_t offset);
/* The first n_head groups are worth keeping, `worth` a byte (any unit, >= 0); without this call a model has no head. ENOTFOUND, EARG. */
int sy_residency_set_head(struct sy_residency *r, int model, int n_head, double worth);
int sy_residency_n_head(const struct sy_residency *r, int model); /* 0 for an unknown model */
/* Evicts whole models, least recently used first: the baseline that heads are compared with. */
void sy_residency_whole_models(struct sy_residency *r, bool whole);

/* Makes room for the whole model and pins it (counted: place again while pinned returns the same
 * placement with resident=true, if it does not cycle; EBUSY if it does). `places` has n_groups entries. Evicts idle models
 * as needed; cycles if `may_cycle` and the room is too small (only if every group fits).
 * EBUSY: would fit (with `may_cycle` false or true: whole; if it never can: cycling) but for pinned
 * models. ENOMEM_DEVICE: can never fit beside what others hold in the pool, with the sizes. On
 * failure nothing changed, pins neither.
 * Cycling keeps a head where it is; the groups of the tail replace each other (allocator/cycle.h). */
int sy_residency_place(struct sy_residency *r, int model, bool may_cycle,
                       struct sy_group_place *places);
/* Prefetch: places as many head groups as fit without cycling, evicting idle models, and
 * pins the model. *n_placed groups are valid in `places`; it may be 0. A later sy_residency_place completes
 * it (same pin), and so does a later sy_residency_place_head as far as it fits; both show groups that
 * were placed before as resident (on their way). EBUSY if the model is pinned by sy_residency_place. */
int sy_residency_place_head(struct sy_residency *r, int model, struct sy_group_place *places,
                            int *n_placed);
/* The idle model whose head is worth most among those of which a part of the head is missing; -1: none. */
int sy_residency_next_fetch(const struct sy_residency *r);
/* As place_head, but no further than the model's head, and never at the cost of a head that is worth as much. */
int sy_residency_fetch_head(struct sy_residency *r, int model, struct sy_group_place *places,
                            int *n_placed);
/* The run is over (or was canceled): drops one pin, and groups that did not survive (`arrived` has n_groups flags: false, or
 * overwritten by cycling) are given back, at the last pin. After a cycling run the head that fits is not resident, except
 * groups whose place was not reused; R1 then decides what stays (the prefix). `arrived` NULL: all arrived. */
void sy_residency_unpin(struct sy_residency *r, int model, const bool *arrived);
/* Drops groups of idle models until `bytes` can be taken in one piece from the pool: where that costs the fewest bytes of heads, then of
 * tails. EBUSY or ENOMEM_DEVICE as above. */
int sy_residency_make_room(struct sy_residency *r, uint64_t bytes);

/* Groups 0..n-1 are in the pool or on their way and will still be there after the run; 0 for an unknown
 * model. The bytes are what these take in the pool. */
int sy_residency_n_resident(const struct sy_residency *r, int model);
uint64_t sy_residency_resident_bytes(const struct sy_residency *r, int model);
/* Shows each stretch of the pool that the model has, in the order of its groups; stretches that touch and are both of its head (the
 * groups that go last, R4), or both not, are shown as one. Of a model that cycles, the stretches that its groups share are shown as no head. */
void sy_residency_walk(const struct sy_residency *r, int model,
                       void (*see)(void *ctx, uint64_t offset, uint64_t bytes, bool is_head),
                       void *ctx);
/* Bytes behind the heads of idle models that were used longer ago: they are evicted before this model's own tail (R4). 0 for an unknown model. */
uint64_t sy_residency_older_tail_bytes(const struct sy_residency *r, int model);
/* Groups that idle models lost to others, since the start. */
uint64_t sy_residency_n_evicted(const struct sy_residency *r);

#endif

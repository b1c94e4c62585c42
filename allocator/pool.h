/* Offset allocator over a pool of bytes. Pure: knows offsets only, no memory, no device.
 *
 * Best fit with immediate coalescing; offsets and sizes are multiples of SY_POOL_ALIGN. */
#ifndef SY_ALLOCATOR_POOL_H
#define SY_ALLOCATOR_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define SY_POOL_ALIGN 4096u

struct sy_pool;

/* `n_bytes` is rounded down to SY_POOL_ALIGN. ENOMEM_HOST. */
int sy_pool_new(uint64_t n_bytes, struct sy_pool **out);
void sy_pool_free(struct sy_pool *pool); /* NULL is fine */

/* Takes a block of at least `bytes` (rounded up; 0 is EARG). From the low end (`from_top` false) or
 * the high end: weights grow up, lanes grow down, so that they do not fragment each other.
 * ENOMEM_DEVICE names the wish, what is free and the largest hole. */
int sy_pool_take(struct sy_pool *pool, uint64_t bytes, bool from_top, uint64_t *out_offset);
/* Takes exactly [offset, offset + bytes), both rounded to SY_POOL_ALIGN by the caller. Linear in the
 * number of extents. ENOMEM_DEVICE if any of it is in use. */
int sy_pool_take_at(struct sy_pool *pool, uint64_t offset, uint64_t bytes);
/* Gives back the block that starts at `offset`; anything else is a bug (assert). */
void sy_pool_give(struct sy_pool *pool, uint64_t offset);

/* Makes `to` equal to `from` (of the same capacity), so that a plan can be tried on a copy.
 * ENOMEM_HOST leaves `to` as it was. sy_pool_swap exchanges the contents of two pools; it cannot fail. */
int sy_pool_copy(struct sy_pool *to, const struct sy_pool *from);
void sy_pool_swap(struct sy_pool *a, struct sy_pool *b);

uint64_t sy_pool_capacity_bytes(const struct sy_pool *pool);
uint64_t sy_pool_free_bytes(const struct sy_pool *pool);
uint64_t sy_pool_largest_free_bytes(const struct sy_pool *pool); /* the largest hole */
unsigned sy_pool_n_blocks(const struct sy_pool *pool);           /* used ones */
/* Visits all extents in address order, used and free. */
void sy_pool_walk(const struct sy_pool *pool,
                  void (*visit)(void *ctx, uint64_t offset, uint64_t bytes, bool used), void *ctx);
/* The invariant walker: extents tile the pool, no two free neighbours, sums agree. */
bool sy_pool_is_valid(const struct sy_pool *pool);

#endif

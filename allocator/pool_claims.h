/* Owners of a pool's used blocks, for invariant walkers: each part claims its blocks; one that is not there, has another size or
 * is claimed twice is a broken invariant. The pool must not change meanwhile. */
#ifndef SY_ALLOCATOR_POOL_CLAIMS_H
#define SY_ALLOCATOR_POOL_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/pool.h"

struct sy_pool_claim {
    uint64_t offset, bytes;
    bool owned;
};

struct sy_pool_claims {
    struct sy_pool_claim *blocks; /* the used ones, by address */
    size_t n;
};

/* False: no memory, nothing to finish. */
bool sy_pool_claims_init(struct sy_pool_claims *claims, const struct sy_pool *pool);
void sy_pool_claims_finish(struct sy_pool_claims *claims);
/* Exactly this block is in use, and it is claimed for the first time. bytes: a multiple of SY_POOL_ALIGN. */
bool sy_pool_claim(struct sy_pool_claims *claims, uint64_t offset, uint64_t bytes);

#endif

#include "allocator/pool_claims.h"

#include <stdlib.h>

static void add_block(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct sy_pool_claims *claims = ctx;
    if (used)
        claims->blocks[claims->n++] = (struct sy_pool_claim){offset, bytes, false};
}

bool sy_pool_claims_init(struct sy_pool_claims *claims, const struct sy_pool *pool)
{
    claims->n = 0;
    claims->blocks = calloc((size_t)sy_pool_n_blocks(pool) + 1, sizeof *claims->blocks);
    if (!claims->blocks)
        return false;
    sy_pool_walk(pool, add_block, claims);
    return true;
}

void sy_pool_claims_finish(struct sy_pool_claims *claims)
{
    free(claims->blocks);
    claims->blocks = NULL;
}

static int compare(const void *key, const void *element)
{
    uint64_t offset = *(const uint64_t *)key;
    uint64_t at = ((const struct sy_pool_claim *)element)->offset;
    return (offset > at) - (offset < at);
}

bool sy_pool_claim(struct sy_pool_claims *claims, uint64_t offset, uint64_t bytes)
{
    struct sy_pool_claim *b =
        bsearch(&offset, claims->blocks, claims->n, sizeof *claims->blocks, compare);
    if (!b || b->owned || b->bytes != bytes)
        return false;
    b->owned = true;
    return true;
}

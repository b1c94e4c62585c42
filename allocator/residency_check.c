#include "allocator/residency_check.h"

#include <stdlib.h>

#include "allocator/residency_trial.h"
#include "runtime/base/assert.h"

/* The pool's used blocks in address order, each with whether a model said that it is its own. */
struct block {
    uint64_t offset;
    uint64_t bytes;
    bool owned;
};

struct block_list {
    struct block *blocks;
    size_t n;
};

static void add_block(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct block_list *list = ctx;
    if (used)
        list->blocks[list->n++] = (struct block){offset, bytes, false};
}

static int compare_block(const void *key, const void *element)
{
    uint64_t offset = *(const uint64_t *)key, at = ((const struct block *)element)->offset;
    return (offset > at) - (offset < at);
}

/* Exactly this block is in use in the pool, and nobody else claimed it. */
static bool claim(struct block_list *list, uint64_t offset, uint64_t bytes)
{
    struct block *b = bsearch(&offset, list->blocks, list->n, sizeof *list->blocks, compare_block);
    if (!b || b->owned || b->bytes != SY_ALIGN_UP(bytes, SY_POOL_ALIGN))
        return false;
    b->owned = true;
    return true;
}

static bool lies_in_regions(const struct sy_model_books *m, const struct sy_group_books *g)
{
    for (int i = 0; i < m->n_regions; i++)
        if (g->offset >= m->regions[i].offset &&
            g->offset + g->bytes <= m->regions[i].offset + m->regions[i].bytes)
            return true;
    return false;
}

static bool overlap(const struct sy_group_books *a, const struct sy_group_books *b)
{
    uint64_t a_end = a->offset + SY_ALIGN_UP(a->bytes, SY_POOL_ALIGN);
    uint64_t b_end = b->offset + SY_ALIGN_UP(b->bytes, SY_POOL_ALIGN);
    return a->bytes > 0 && b->bytes > 0 && a->offset < b_end && b->offset < a_end;
}

/* R3: who takes bytes of an earlier group waits for it. */
static bool cycling_is_valid(const struct sy_model_books *m, struct block_list *list)
{
    for (int i = 0; i < m->n_regions; i++)
        if (!claim(list, m->regions[i].offset, m->regions[i].bytes))
            return false;
    for (int j = 0; j < m->n_groups; j++) {
        const struct sy_group_books *g = &m->groups[j];
        if (g->bytes > 0 && !lies_in_regions(m, g))
            return false;
        for (int i = 0; i < j; i++)
            if (overlap(&m->groups[i], g) && (i > g->after_group || i < m->n_undisturbed))
                return false;
        if (g->after_group >= j)
            return false;
    }
    return m->pins == 1 && !m->head_only;
}

static bool model_is_valid(const struct sy_model_books *m, struct block_list *list)
{
    if (m->pins < 0 || m->n_placed < 0 || m->n_placed > m->n_groups)
        return false;
    if (m->cycles)
        return cycling_is_valid(m, list);
    for (int i = 0; i < m->n_placed; i++)
        if (m->groups[i].bytes > 0 && !claim(list, m->groups[i].offset, m->groups[i].bytes))
            return false;
    return m->pins == 0 || m->head_only || m->n_placed == m->n_groups;
}

bool sy_residency_is_valid(const struct sy_residency *r)
{
    struct block_list list = {0};
    bool valid = sy_pool_is_valid(r->pool);
    list.blocks = calloc((size_t)sy_pool_n_blocks(r->pool) + 1, sizeof *list.blocks);
    if (!valid || !list.blocks) {
        free(list.blocks);
        return valid;
    }
    sy_pool_walk(r->pool, add_block, &list);
    for (int i = 0; i < r->n_ids && valid; i++)
        valid = !r->models[i] || model_is_valid(r->models[i], &list);
    free(list.blocks);
    return valid;
}

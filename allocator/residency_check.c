#include "allocator/residency_check.h"

#include "allocator/pool_claims.h"
#include "allocator/residency_trial.h"
#include "runtime/base/assert.h"

static bool claim(struct sy_pool_claims *claims, uint64_t offset, uint64_t bytes)
{
    return sy_pool_claim(claims, offset, SY_ALIGN_UP(bytes, SY_POOL_ALIGN));
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

/* R3: a group that takes an earlier group's bytes waits for it. */
static bool cycling_is_valid(const struct sy_model_books *m, struct sy_pool_claims *claims)
{
    for (int i = 0; i < m->n_regions; i++)
        if (!claim(claims, m->regions[i].offset, m->regions[i].bytes))
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

static bool model_is_valid(const struct sy_model_books *m, struct sy_pool_claims *claims)
{
    if (m->pins < 0 || m->n_placed < 0 || m->n_placed > m->n_groups)
        return false;
    if (m->cycles)
        return cycling_is_valid(m, claims);
    for (int i = 0; i < m->n_placed; i++)
        if (m->groups[i].bytes > 0 && !claim(claims, m->groups[i].offset, m->groups[i].bytes))
            return false;
    return m->pins == 0 || m->head_only || m->n_placed == m->n_groups;
}

/* Without memory to look nothing is known to be broken. */
bool sy_residency_is_valid(const struct sy_residency *r)
{
    struct sy_pool_claims claims;
    bool valid = sy_pool_is_valid(r->pool);
    if (!valid || !sy_pool_claims_init(&claims, r->pool))
        return valid;
    for (int i = 0; i < r->n_ids && valid; i++)
        valid = !r->models[i] || model_is_valid(r->models[i], &claims);
    sy_pool_claims_finish(&claims);
    return valid;
}

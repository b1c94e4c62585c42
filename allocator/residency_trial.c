#include "allocator/residency_trial.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

uint64_t sy_model_block_bytes(const struct sy_model_books *m, int group)
{
    return SY_ALIGN_UP(m->groups[group].bytes, SY_POOL_ALIGN);
}

/* Gives back the blocks of groups keep..n_placed-1. */
void sy_model_give_groups(struct sy_pool *pool, const struct sy_model_books *m, int keep,
                          int n_placed)
{
    for (int i = n_placed - 1; i >= keep; i--)
        if (m->groups[i].bytes > 0)
            sy_pool_give(pool, m->groups[i].offset);
}

void sy_model_give_regions(struct sy_pool *pool, const struct sy_model_books *m)
{
    for (int i = 0; i < m->n_regions; i++)
        sy_pool_give(pool, m->regions[i].offset);
}

int sy_trial_begin(struct sy_residency *r)
{
    SY_TRY(sy_pool_copy(r->trial, r->pool));
    r->victim = NULL;
    for (int i = 0; i < r->n_ids; i++)
        if (r->models[i])
            r->models[i]->n_kept = r->models[i]->n_placed;
    return SY_OK;
}

/* Commits the trial; the caller updates `self` (may be NULL). */
void sy_trial_commit(struct sy_residency *r, const struct sy_model_books *self)
{
    sy_pool_swap(r->pool, r->trial);
    for (int i = 0; i < r->n_ids; i++) {
        struct sy_model_books *m = r->models[i];
        if (!m || m == self || m->pins > 0)
            continue;
        r->n_evicted += (uint64_t)(m->n_placed - m->n_kept);
        m->n_placed = m->n_kept;
    }
}

/* Evicts the last kept group of `m`, with groups of 0 bytes behind it. */
static void trial_drop_tail(struct sy_residency *r, struct sy_model_books *m)
{
    bool freed = false;
    while (m->n_kept > 0 && !freed) {
        m->n_kept--;
        freed = m->groups[m->n_kept].bytes > 0;
        if (freed)
            sy_pool_give(r->trial, m->groups[m->n_kept].offset);
    }
}

/* Whether a group of the first model is evicted before one of the second. */
static bool is_evicted_before(const struct sy_residency *r, const struct sy_model_books *a,
                              const struct sy_model_books *b)
{
    bool a_tail = a->n_kept > a->n_head, b_tail = b->n_kept > b->n_head;
    if (!r->whole_models && a_tail != b_tail)
        return a_tail;
    if (!r->whole_models && !a_tail && (a->worth < b->worth || a->worth > b->worth))
        return a->worth < b->worth;
    return a->last_used < b->last_used;
}

/* A victim stays the first to go as long as it gives tails, or heads: no other model changes within a trial. So a model of many groups
 * is looked for once or twice. */
static struct sy_model_books *find_victim(struct sy_residency *r, const struct sy_model_books *self)
{
    struct sy_model_books *victim = r->victim;
    if (victim && victim->n_kept > 0 && (victim->n_kept > victim->n_head) == r->victim_gives_tails)
        return victim;
    victim = NULL;
    for (int i = 0; i < r->n_ids; i++) {
        struct sy_model_books *m = r->models[i];
        if (!m || m == self || m->pins > 0 || m->n_kept == 0)
            continue;
        if (!victim || is_evicted_before(r, m, victim))
            victim = m;
    }
    r->victim = victim;
    r->victim_gives_tails = victim && victim->n_kept > victim->n_head;
    return victim;
}

static bool drop_from(struct sy_residency *r, struct sy_model_books *victim)
{
    do {
        trial_drop_tail(r, victim);
    } while (r->whole_models && victim->n_kept > 0);
    return true;
}

/* Evicts the next group of an idle model other than `self` (R4). False: none is left. */
static bool evict_next(struct sy_residency *r, const struct sy_model_books *self)
{
    struct sy_model_books *victim = find_victim(r, self);
    return victim && drop_from(r, victim);
}

bool sy_trial_evict_below(struct sy_residency *r, const struct sy_model_books *self, double worth)
{
    struct sy_model_books *victim = find_victim(r, self);
    bool may = victim && (victim->n_kept > victim->n_head || victim->worth < worth);
    return may && drop_from(r, victim);
}

void sy_trial_evict_all(struct sy_residency *r, const struct sy_model_books *self)
{
    while (evict_next(r, self))
        continue;
}

/* The pool as if no other model were there, pinned or not. */
void sy_trial_remove_others(struct sy_residency *r, const struct sy_model_books *self)
{
    sy_trial_evict_all(r, self);
    for (int i = 0; i < r->n_ids; i++) {
        struct sy_model_books *m = r->models[i];
        if (!m || m == self || m->pins == 0)
            continue;
        if (m->cycles)
            sy_model_give_regions(r->trial, m);
        else
            sy_model_give_groups(r->trial, m, 0, m->n_placed);
    }
}

int sy_trial_take_group(struct sy_residency *r, struct sy_model_books *m, int group)
{
    struct sy_group_books *g = &m->groups[group];
    if (g->has_wish &&
        sy_pool_take_at(r->trial, g->wish, sy_model_block_bytes(m, group)) == SY_OK) {
        g->trial_offset = g->wish;
        return SY_OK;
    }
    return sy_pool_take(r->trial, g->bytes, false, &g->trial_offset);
}

/* Takes a block for each group from n_kept on, and notes its place; all or none. */
static bool trial_take_rest(struct sy_residency *r, struct sy_model_books *m)
{
    int i = m->n_kept;
    for (; i < m->n_groups; i++) {
        struct sy_group_books *g = &m->groups[i];
        if (g->bytes > 0 && sy_trial_take_group(r, m, i) < 0)
            break;
    }
    if (i == m->n_groups)
        return true;
    while (--i >= m->n_kept)
        if (m->groups[i].bytes > 0)
            sy_pool_give(r->trial, m->groups[i].trial_offset);
    return false;
}

/* The bytes that the groups from n_kept on need. */
struct need {
    uint64_t bytes, largest;
};

static struct need need_of(const struct sy_model_books *m)
{
    struct need need = {0};
    for (int i = m->n_kept; i < m->n_groups; i++) {
        need.bytes += sy_model_block_bytes(m, i);
        need.largest = SY_MAX(need.largest, sy_model_block_bytes(m, i));
    }
    return need;
}

/* A cheap necessary condition, so that trial_take_rest is tried only where it may work. */
static bool may_fit(const struct sy_residency *r, struct need need)
{
    return need.bytes <= sy_pool_free_bytes(r->trial) &&
           need.largest <= sy_pool_largest_free_bytes(r->trial);
}

/* Heads that lie in the way are given up last: they may split the room into pieces too small. A head
 * that was placed by place_head is pinned (R2) and stays. */
bool sy_trial_fit_own(struct sy_residency *r, struct sy_model_books *m)
{
    for (;;) {
        if (may_fit(r, need_of(m)) && trial_take_rest(r, m))
            return true;
        if (m->pins > 0 || m->n_kept == 0)
            return false;
        trial_drop_tail(r, m);
    }
}

bool sy_trial_fit_whole(struct sy_residency *r, struct sy_model_books *m)
{
    struct need need = need_of(m);
    do {
        if (may_fit(r, need) && trial_take_rest(r, m))
            return true;
    } while (evict_next(r, m));
    return sy_trial_fit_own(r, m);
}

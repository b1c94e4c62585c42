/* Every change is tried on a copy of the pool (`trial`) first: blocks of victims are given back there and
 * the wanted ones taken, until all fit; then the two pools change places and the models' books follow.
 * So a failure needs no undoing, and "would it fit without the pinned models" is one more trial. A
 * pool of 500 extents is 24 KB to copy: microseconds, against milliseconds for moving one group. */
#include "allocator/residency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/cycle.h"
#include "allocator/residency_trial.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- models ----------------------------------------------------------------------------------- */

int sy_residency_new(struct sy_pool *pool, struct sy_residency **out)
{
    int status;
    struct sy_residency *r = calloc(1, sizeof *r);
    SY_TRY_ALLOC(r, "no memory for the residency's books");
    SY_TRY_GOTO(sy_pool_new(sy_pool_capacity_bytes(pool), &r->trial), free_r);
    r->pool = pool;
    *out = r;
    return SY_OK;

free_r:
    free(r);
    return status;
}

static void free_model(struct sy_model_books *m)
{
    if (!m)
        return;
    free(m->groups);
    free(m->regions);
    free(m);
}

void sy_residency_free(struct sy_residency *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_ids; i++)
        free_model(r->models[i]);
    sy_pool_free(r->trial);
    free(r);
}

static struct sy_model_books *find_model(const struct sy_residency *r, int model)
{
    return model >= 0 && model < r->n_ids ? r->models[model] : NULL;
}

static int get_model(const struct sy_residency *r, int model, struct sy_model_books **out)
{
    *out = find_model(r, model);
    return *out ? SY_OK : sy_error_set(SY_ENOTFOUND, "no model %d in the residency", model);
}

static int new_model(int n_groups, const uint64_t *group_bytes, struct sy_model_books **out)
{
    struct sy_model_books *m = calloc(1, sizeof *m);
    struct sy_group_books *groups = calloc((size_t)n_groups + 1, sizeof *groups);
    if (!m || !groups) {
        free(m);
        free(groups);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the books of %d groups", n_groups);
    }
    m->groups = groups;
    m->n_groups = n_groups;
    for (int i = 0; i < n_groups; i++)
        groups[i].bytes = group_bytes[i];
    *out = m;
    return SY_OK;
}

int sy_residency_add_model(struct sy_residency *r, int model, int n_groups,
                           const uint64_t *group_bytes)
{
    if (model < 0 || model >= SY_RESIDENCY_MAX_MODELS || n_groups < 0)
        return sy_error_set(SY_EARG, "model id %d with %d groups: ids are 0..%d", model, n_groups,
                            SY_RESIDENCY_MAX_MODELS - 1);
    if (find_model(r, model))
        return sy_error_set(SY_EBUSY, "model id %d is in use", model);
    for (int i = 0; i < n_groups; i++)
        if (group_bytes[i] > INT64_MAX / 2)
            return sy_error_set(SY_EARG, "group %d of model %d: %llu bytes", i, model,
                                (unsigned long long)group_bytes[i]);
    SY_TRY(new_model(n_groups, group_bytes, &r->models[model]));
    r->n_ids = SY_MAX(r->n_ids, model + 1);
    return SY_OK;
}

int sy_residency_remove_model(struct sy_residency *r, int model)
{
    struct sy_model_books *m;
    SY_TRY(get_model(r, model, &m));
    if (m->pins > 0)
        return sy_error_set(SY_EBUSY, "model %d is streaming or running", model);
    sy_model_give_groups(r->pool, m, 0, m->n_placed);
    free_model(m);
    r->models[model] = NULL;
    while (r->n_ids > 0 && !r->models[r->n_ids - 1])
        r->n_ids--;
    return SY_OK;
}

int sy_residency_set_head(struct sy_residency *r, int model, int n_head, double worth)
{
    struct sy_model_books *m;
    SY_TRY(get_model(r, model, &m));
    if (n_head < 0 || n_head > m->n_groups || !(worth >= 0))
        return sy_error_set(SY_EARG, "model %d: a head of %d groups of %d, worth %g", model, n_head,
                            m->n_groups, worth);
    m->n_head = n_head;
    m->worth = worth;
    return SY_OK;
}

int sy_residency_prefer(struct sy_residency *r, int model, int group, uint64_t offset)
{
    struct sy_model_books *m;
    SY_TRY(get_model(r, model, &m));
    if (group < 0 || group >= m->n_groups || offset % SY_POOL_ALIGN)
        return sy_error_set(SY_EARG, "model %d: group %d of %d cannot be at %llu", model, group,
                            m->n_groups, (unsigned long long)offset);
    m->groups[group].has_wish = true;
    m->groups[group].wish = offset;
    return SY_OK;
}

int sy_residency_n_head(const struct sy_residency *r, int model)
{
    const struct sy_model_books *m = find_model(r, model);
    return m ? m->n_head : 0;
}

void sy_residency_whole_models(struct sy_residency *r, bool whole)
{
    r->whole_models = whole;
}

/* ---- cycling (R3) ----------------------------------------------------------------------------- */

struct region_list {
    struct sy_cycle_region *regions;
    int n;
};

static void count_extent(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    (void)offset, (void)bytes, (void)used;
    ++*(int *)ctx;
}

static void add_region(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct region_list *list = ctx;
    if (!used)
        list->regions[list->n++] = (struct sy_cycle_region){offset, bytes};
}

static int list_free_regions(const struct sy_pool *pool, struct region_list *out)
{
    int n = 0;
    sy_pool_walk(pool, count_extent, &n);
    out->n = 0;
    out->regions = malloc(((size_t)n + 1) * sizeof *out->regions);
    SY_TRY_ALLOC(out->regions, "no memory to list %d pool extents", n);
    sy_pool_walk(pool, add_region, out);
    return SY_OK;
}

/* Shrinks each region to the part that groups lie in; regions without groups go. */
static void trim_regions(struct region_list *list, const struct sy_cycle_group *groups,
                         int n_groups)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        struct sy_cycle_region whole = list->regions[i];
        uint64_t from = UINT64_MAX, to = 0;
        for (int g = 0; g < n_groups; g++) {
            uint64_t at = groups[g].offset;
            if (groups[g].bytes == 0 || at < whole.offset || at >= whole.offset + whole.bytes)
                continue;
            from = SY_MIN(from, at);
            to = SY_MAX(to, at + groups[g].bytes);
        }
        if (from < to)
            list->regions[n++] = (struct sy_cycle_region){from, to - from};
    }
    list->n = n;
}

static int plan_groups(const struct sy_model_books *m, const struct region_list *room,
                       struct sy_cycle_group **out)
{
    struct sy_cycle_group *groups = calloc((size_t)m->n_groups + 1, sizeof *groups);
    SY_TRY_ALLOC(groups, "no memory to place %d groups", m->n_groups);
    for (int i = 0; i < m->n_groups; i++)
        groups[i] = (struct sy_cycle_group){sy_model_block_bytes(m, i), m->groups[i].offset, -1};
    int status = sy_cycle_plan(room->regions, room->n, groups, m->n_groups, m->n_kept);
    if (status < 0)
        free(groups);
    else
        *out = groups;
    return status;
}

/* The number of head groups whose place no later group takes. */
static int count_undisturbed(const struct sy_cycle_group *groups, int n_groups)
{
    for (int i = 0; i < n_groups; i++)
        for (int j = i + 1; j < n_groups; j++)
            if (groups[i].bytes > 0 && groups[i].offset < groups[j].offset + groups[j].bytes &&
                groups[j].offset < groups[i].offset + groups[i].bytes)
                return i;
    return n_groups;
}

/* Plans the cycling in what the trial pool has free, the model's own blocks included, and takes it there.
 * On success `room` is what was taken (caller frees), on failure nothing is to be freed. */
static int trial_cycle(struct sy_residency *r, struct sy_model_books *m, struct region_list *room,
                       struct sy_cycle_group **out)
{
    int status;
    sy_model_give_groups(r->trial, m, 0, m->n_kept);
    SY_TRY(list_free_regions(r->trial, room));
    SY_TRY_GOTO(plan_groups(m, room, out), free_room);
    trim_regions(room, *out, m->n_groups);
    for (int i = 0; i < room->n; i++)
        SY_TRY_GOTO(sy_pool_take_at(r->trial, room->regions[i].offset, room->regions[i].bytes),
                    free_groups);
    return SY_OK;

free_groups:
    free(*out);
free_room:
    free(room->regions);
    return status;
}

static void commit_cycle(struct sy_residency *r, struct sy_model_books *m, struct region_list *room,
                         struct sy_cycle_group *groups)
{
    for (int i = 0; i < m->n_groups; i++) {
        m->groups[i].offset = groups[i].offset;
        m->groups[i].after_group = groups[i].after_group;
    }
    m->n_undisturbed = count_undisturbed(groups, m->n_groups);
    m->cycles = true;
    m->regions = room->regions;
    m->n_regions = room->n;
    sy_trial_commit(r, m);
    free(groups);
}

static int place_cycling(struct sy_residency *r, struct sy_model_books *m)
{
    struct region_list room;
    struct sy_cycle_group *groups;
    SY_TRY(sy_trial_begin(r));
    sy_trial_evict_all(r, m);
    int status = trial_cycle(r, m, &room, &groups);
    if (status < 0)
        return status;
    commit_cycle(r, m, &room, groups);
    return SY_OK;
}

/* ---- placing ---------------------------------------------------------------------------------- */

static void show_places(struct sy_model_books *m, int n_resident, int n,
                        struct sy_group_place *places)
{
    for (int i = 0; i < n; i++) {
        struct sy_group_books *g = &m->groups[i];
        bool resident = g->bytes == 0 || (i < n_resident && !g->lost);
        g->lost = false;
        places[i] = (struct sy_group_place){.offset = g->bytes > 0 ? g->offset : 0,
                                            .bytes = g->bytes,
                                            .resident = resident,
                                            .after_group = m->cycles ? g->after_group : -1};
    }
}

static void adopt_trial_places(struct sy_model_books *m, int n_placed)
{
    for (int i = m->n_kept; i < n_placed; i++) {
        m->groups[i].offset = m->groups[i].trial_offset;
        m->groups[i].has_wish = false;
    }
    m->n_placed = n_placed;
}

static int place_whole(struct sy_residency *r, struct sy_model_books *m)
{
    SY_TRY(sy_trial_begin(r));
    if (!sy_trial_fit_whole(r, m))
        return SY_ENOMEM_DEVICE;
    sy_trial_commit(r, m);
    adopt_trial_places(m, m->n_groups);
    return SY_OK;
}

static bool others_are_pinned(const struct sy_residency *r, const struct sy_model_books *self)
{
    for (int i = 0; i < r->n_ids; i++)
        if (r->models[i] && r->models[i] != self && r->models[i]->pins > 0)
            return true;
    return false;
}

/* 1: it would fit whole, were no other model pinned; 0: not even then; or ENOMEM_HOST. */
static int would_fit_whole(struct sy_residency *r, struct sy_model_books *m)
{
    if (!others_are_pinned(r, m))
        return 0;
    SY_TRY(sy_trial_begin(r));
    sy_trial_remove_others(r, m);
    return sy_trial_fit_own(r, m);
}

/* As above, for cycling. */
static int would_cycle(struct sy_residency *r, struct sy_model_books *m)
{
    struct region_list room;
    struct sy_cycle_group *groups;
    if (!others_are_pinned(r, m))
        return 0;
    SY_TRY(sy_trial_begin(r));
    sy_trial_remove_others(r, m);
    int status = trial_cycle(r, m, &room, &groups);
    if (status == SY_ENOMEM_DEVICE)
        return 0;
    SY_TRY(status);
    free(room.regions);
    free(groups);
    return 1;
}

static int refuse_busy(const struct sy_residency *r)
{
    return sy_error_set(SY_EBUSY,
                        "it fits only when models that stream or run now have finished: "
                        "%llu of %llu pool bytes are free",
                        (unsigned long long)sy_pool_free_bytes(r->pool),
                        (unsigned long long)sy_pool_capacity_bytes(r->pool));
}

static int refuse_whole(const struct sy_residency *r, const struct sy_model_books *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < m->n_groups; i++)
        sum += sy_model_block_bytes(m, i);
    return sy_error_set(SY_ENOMEM_DEVICE,
                        "it needs %llu bytes in %d groups; the pool of %llu has not that "
                        "much room beside what else is in it; let it cycle or make the pool "
                        "larger (--pool-bytes)",
                        (unsigned long long)sum, m->n_groups,
                        (unsigned long long)sy_pool_capacity_bytes(r->pool));
}

/* The model did not fit beside what is pinned: cycles if nothing else is possible, else says whether it can ever fit. */
static int place_otherwise(struct sy_residency *r, struct sy_model_books *m, bool may_cycle)
{
    int whole = would_fit_whole(r, m);
    SY_TRY(whole);
    if (whole)
        return refuse_busy(r);
    if (!may_cycle)
        return refuse_whole(r, m);
    int status = place_cycling(r, m);
    if (status != SY_ENOMEM_DEVICE)
        return status;
    int later = would_cycle(r, m);
    SY_TRY(later);
    return later ? refuse_busy(r) : status;
}

int sy_residency_place(struct sy_residency *r, int model, bool may_cycle,
                       struct sy_group_place *places)
{
    struct sy_model_books *m;
    SY_TRY(get_model(r, model, &m));
    if (m->pins > 0 && m->cycles)
        return sy_error_set(SY_EBUSY, "model %d cycles: its run must end before the next", model);
    int n_before = m->n_placed;
    bool complete = m->pins > 0 && !m->head_only;
    if (!complete) {
        int status = place_whole(r, m);
        if (status == SY_ENOMEM_DEVICE)
            status = place_otherwise(r, m, may_cycle);
        SY_TRY(status);
        n_before = m->n_kept;
    }
    m->pins += !m->head_only;
    m->head_only = false;
    m->last_used = ++r->tick;
    show_places(m, n_before, m->n_groups, places);
    sy_assert_expensive(sy_residency_is_valid(r));
    return SY_OK;
}

/* Places group n_placed of m, evicting for it only if that helps, and no head worth `worth` or more. 1: placed, 0: does not fit. */
static int place_next(struct sy_residency *r, struct sy_model_books *m, double worth)
{
    struct sy_group_books *g = &m->groups[m->n_placed];
    g->lost = false;
    if (g->bytes == 0) {
        m->n_placed++;
        return 1;
    }
    SY_TRY(sy_trial_begin(r));
    int status;
    do {
        status = sy_trial_take_group(r, m, m->n_placed);
    } while (status == SY_ENOMEM_DEVICE && sy_trial_evict_below(r, m, worth));
    if (status < 0)
        return status == SY_ENOMEM_DEVICE ? 0 : status;
    sy_trial_commit(r, m);
    adopt_trial_places(m, m->n_placed + 1);
    return 1;
}

static int place_up_to(struct sy_residency *r, int model, int end, double worth,
                       struct sy_group_place *places, int *n_placed)
{
    struct sy_model_books *m = r->models[model];
    if (m->pins > 0 && !m->head_only)
        return sy_error_set(SY_EBUSY, "model %d is placed already", model);
    int n_before = m->n_placed, more = 1;
    while (more == 1 && m->n_placed < end)
        more = place_next(r, m, worth);
    if (more < 0 && m->n_placed == n_before)
        return more;
    m->pins = 1;
    m->head_only = true;
    show_places(m, n_before, m->n_placed, places);
    *n_placed = m->n_placed;
    sy_assert_expensive(sy_residency_is_valid(r));
    return SY_OK;
}

int sy_residency_place_head(struct sy_residency *r, int model, struct sy_group_place *places,
                            int *n_placed)
{
    struct sy_model_books *m;
    SY_TRY(get_model(r, model, &m));
    SY_TRY(place_up_to(r, model, m->n_groups, INFINITY, places, n_placed));
    m->last_used = ++r->tick;
    return SY_OK;
}

int sy_residency_next_fetch(const struct sy_residency *r)
{
    int best = -1;
    for (int i = 0; i < r->n_ids; i++) {
        const struct sy_model_books *m = r->models[i];
        if (!m || m->pins > 0 || m->n_placed >= m->n_head)
            continue;
        if (best < 0 || m->worth > r->models[best]->worth)
            best = i;
    }
    return best;
}

int sy_residency_fetch_head(struct sy_residency *r, int model, struct sy_group_place *places,
                            int *n_placed)
{
    struct sy_model_books *m;
    SY_TRY(get_model(r, model, &m));
    return place_up_to(r, model, m->n_head, m->worth, places, n_placed);
}

/* ---- the end of a run ------------------------------------------------------------------------- */

/* The cycled room is given back, but for the head, whose blocks become its own. If there is no memory
 * for the books of a block, the head ends there: it is only a cache. */
static void end_cycle(struct sy_residency *r, struct sy_model_books *m, int n_survivors)
{
    sy_model_give_regions(r->pool, m);
    free(m->regions);
    m->regions = NULL;
    m->n_regions = 0;
    m->cycles = false;
    m->n_placed = 0;
    while (m->n_placed < n_survivors) {
        int i = m->n_placed;
        if (m->groups[i].bytes > 0 &&
            sy_pool_take_at(r->pool, m->groups[i].offset, sy_model_block_bytes(m, i)) < 0)
            break;
        m->n_placed++;
    }
}

void sy_residency_unpin(struct sy_residency *r, int model, const bool *arrived)
{
    struct sy_model_books *m = find_model(r, model);
    assert(m && m->pins > 0);
    int n_placed = m->cycles ? m->n_undisturbed : m->n_placed;
    for (int i = 0; arrived && i < n_placed; i++)
        m->groups[i].lost |= !arrived[i] && m->groups[i].bytes > 0;
    if (!m->head_only) /* a fetch alone is not a use */
        m->last_used = ++r->tick;
    m->head_only = false;
    if (--m->pins > 0)
        return;
    int n_survivors = 0;
    while (n_survivors < n_placed && !m->groups[n_survivors].lost)
        n_survivors++;
    for (int i = 0; i < m->n_groups; i++)
        m->groups[i].lost = false;
    if (m->cycles) {
        end_cycle(r, m, n_survivors);
    } else {
        sy_model_give_groups(r->pool, m, n_survivors, m->n_placed);
        m->n_placed = n_survivors;
    }
    sy_assert_expensive(sy_residency_is_valid(r));
}

/* ---- reading ---------------------------------------------------------------------------------- */

int sy_residency_n_resident(const struct sy_residency *r, int model)
{
    const struct sy_model_books *m = find_model(r, model);
    return !m ? 0 : m->cycles ? m->n_undisturbed : m->n_placed;
}

uint64_t sy_residency_resident_bytes(const struct sy_residency *r, int model)
{
    uint64_t sum = 0;
    for (int i = 0; i < sy_residency_n_resident(r, model); i++)
        sum += sy_model_block_bytes(r->models[model], i);
    return sum;
}

static void walk_regions(const struct sy_model_books *m,
                         void (*see)(void *ctx, uint64_t offset, uint64_t bytes, bool is_head),
                         void *ctx)
{
    for (int i = 0; i < m->n_regions; i++)
        see(ctx, m->regions[i].offset, m->regions[i].bytes, false);
}

void sy_residency_walk(const struct sy_residency *r, int model,
                       void (*see)(void *ctx, uint64_t offset, uint64_t bytes, bool is_head),
                       void *ctx)
{
    const struct sy_model_books *m = find_model(r, model);
    uint64_t from = 0, to = 0;
    bool is_head = false;
    if (m && m->cycles)
        walk_regions(m, see, ctx);
    for (int i = 0; m && !m->cycles && i < m->n_placed; i++) {
        uint64_t offset = m->groups[i].offset, bytes = sy_model_block_bytes(m, i);
        if (bytes == 0)
            continue;
        if (to > from && (offset != to || (i < m->n_head) != is_head)) {
            see(ctx, from, to - from, is_head);
            from = to = 0;
        }
        from = to > from ? from : offset;
        to = offset + bytes;
        is_head = i < m->n_head;
    }
    if (to > from)
        see(ctx, from, to - from, is_head);
}

uint64_t sy_residency_older_tail_bytes(const struct sy_residency *r, int model)
{
    const struct sy_model_books *m = find_model(r, model);
    uint64_t sum = 0;
    for (int i = 0; m && i < r->n_ids; i++) {
        const struct sy_model_books *other = r->models[i];
        if (!other || other->pins > 0 || other->last_used >= m->last_used)
            continue;
        for (int g = r->whole_models ? 0 : other->n_head; g < other->n_placed; g++)
            sum += sy_model_block_bytes(other, g);
    }
    return sum;
}

uint64_t sy_residency_n_evicted(const struct sy_residency *r)
{
    return r->n_evicted;
}

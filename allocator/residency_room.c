/* Room in one piece: the stretch of the pool whose emptying costs least. Nothing is moved and nothing that is pinned is touched:
 * groups of idle models are dropped, and stream again when their model runs.
 *
 *   | lane | g0 | free | h1 | h2 | pinned | g1 | free |       wanted: 3 blocks
 *            ^---- drops g0, g1, h1, h2 (R1: and with them all groups behind)
 *                                           ^-- too short
 *
 * Every stretch that begins at an extent is looked at: some hundred extents, so a scan of each is microseconds. */
#include <stdlib.h>

#include "allocator/residency.h"
#include "allocator/residency_trial.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { FREE = -1, FIXED = -2 };

/* An extent of the pool, in address order. */
struct span {
    uint64_t offset, bytes;
    int model, group; /* model FREE, FIXED, or idle */
};

struct search {
    struct sy_residency *r;
    struct span *spans;
    int n_spans;
    int *keep; /* by model: groups that a stretch leaves */
    uint64_t wish;
};

/* Heads count before tails (R4). */
struct cost {
    uint64_t head_bytes, tail_bytes;
};

static bool cheaper(struct cost a, struct cost b)
{
    return a.head_bytes != b.head_bytes ? a.head_bytes < b.head_bytes : a.tail_bytes < b.tail_bytes;
}

static void add_span(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct search *s = ctx;
    s->spans[s->n_spans++] =
        (struct span){.offset = offset, .bytes = bytes, .model = used ? FIXED : FREE};
}

static int compare_span(const void *key, const void *element)
{
    uint64_t offset = *(const uint64_t *)key, at = ((const struct span *)element)->offset;
    return (offset > at) - (offset < at);
}

static void name_owners(struct search *s)
{
    for (int i = 0; i < s->r->n_ids; i++) {
        const struct sy_model_books *m = s->r->models[i];
        for (int g = 0; m && m->pins == 0 && g < m->n_placed; g++) {
            if (m->groups[g].bytes == 0)
                continue;
            struct span *span = bsearch(&m->groups[g].offset, s->spans, (size_t)s->n_spans,
                                        sizeof *s->spans, compare_span);
            sy_assert_internal(span && span->model == FIXED);
            span->model = i;
            span->group = g;
        }
    }
}

static int open_search(struct search *s, struct sy_residency *r, uint64_t wish)
{
    *s = (struct search){.r = r, .wish = wish};
    /* Between two used blocks lies at most one free extent. */
    size_t n = 2 * (size_t)sy_pool_n_blocks(r->pool) + 1;
    s->spans = calloc(n, sizeof *s->spans);
    s->keep = calloc((size_t)r->n_ids + 1, sizeof *s->keep);
    if (!s->spans || !s->keep) {
        free(s->spans);
        free(s->keep);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to look at %zu pool extents", n);
    }
    sy_pool_walk(r->pool, add_span, s);
    name_owners(s);
    return SY_OK;
}

static void close_search(struct search *s)
{
    free(s->spans);
    free(s->keep);
}

/* The end of the shortest stretch from span `first` on that is long enough; -1: there is none. */
static int find_end(const struct search *s, int first)
{
    uint64_t bytes = 0;
    for (int i = first; i < s->n_spans && s->spans[i].model != FIXED; i++) {
        bytes += s->spans[i].bytes;
        if (bytes >= s->wish)
            return i + 1;
    }
    return -1;
}

/* The number of groups that each model keeps when the stretch is emptied. */
static void note_kept(struct search *s, int first, int end)
{
    for (int i = 0; i < s->r->n_ids; i++)
        s->keep[i] = s->r->models[i] ? s->r->models[i]->n_placed : 0;
    for (int i = first; i < end; i++)
        if (s->spans[i].model >= 0)
            s->keep[s->spans[i].model] =
                s->r->whole_models ? 0 : SY_MIN(s->keep[s->spans[i].model], s->spans[i].group);
}

static struct cost cost_of(struct search *s, int first, int end)
{
    struct cost cost = {0};
    note_kept(s, first, end);
    for (int i = 0; i < s->r->n_ids; i++) {
        const struct sy_model_books *m = s->r->models[i];
        for (int g = s->keep[i]; m && g < m->n_placed; g++)
            *(g < m->n_head ? &cost.head_bytes : &cost.tail_bytes) += sy_model_block_bytes(m, g);
    }
    return cost;
}

static bool find_cheapest(struct search *s, int *first, int *end)
{
    struct cost best = {UINT64_MAX, UINT64_MAX};
    for (int i = 0; i < s->n_spans; i++) {
        int stop = find_end(s, i);
        if (stop < 0)
            continue;
        struct cost cost = cost_of(s, i, stop);
        if (!cheaper(cost, best))
            continue;
        best = cost;
        *first = i;
        *end = stop;
    }
    return best.tail_bytes != UINT64_MAX;
}

static int drop_stretch(struct search *s, int first, int end)
{
    SY_TRY(sy_trial_begin(s->r));
    note_kept(s, first, end);
    for (int i = 0; i < s->r->n_ids; i++) {
        struct sy_model_books *m = s->r->models[i];
        if (!m || m->pins > 0 || s->keep[i] >= m->n_placed)
            continue;
        sy_model_give_groups(s->r->trial, m, s->keep[i], m->n_placed);
        m->n_kept = s->keep[i];
    }
    sy_trial_commit(s->r, NULL);
    return SY_OK;
}

static int refuse(struct sy_residency *r, uint64_t bytes, uint64_t wish)
{
    SY_TRY(sy_trial_begin(r));
    sy_trial_remove_others(r, NULL);
    uint64_t largest = sy_pool_largest_free_bytes(r->trial);
    int status = largest >= wish ? SY_EBUSY : SY_ENOMEM_DEVICE;
    return sy_error_set(status, "no room for %llu bytes in one piece: %s%llu of %llu pool bytes",
                        (unsigned long long)bytes,
                        status == SY_EBUSY ? "once what streams or runs has finished, there are "
                                           : "without any model there are ",
                        (unsigned long long)largest,
                        (unsigned long long)sy_pool_capacity_bytes(r->pool));
}

int sy_residency_make_room(struct sy_residency *r, uint64_t bytes)
{
    struct search s;
    int first = 0, end = 0;
    uint64_t capacity = sy_pool_capacity_bytes(r->pool);
    uint64_t wish = bytes > capacity ? UINT64_MAX : SY_ALIGN_UP(bytes, SY_POOL_ALIGN);
    if (sy_pool_largest_free_bytes(r->pool) >= wish)
        return SY_OK;
    SY_TRY(open_search(&s, r, wish));
    int status =
        find_cheapest(&s, &first, &end) ? drop_stretch(&s, first, end) : refuse(r, bytes, wish);
    close_search(&s);
    sy_assert_expensive(sy_residency_is_valid(r));
    return status;
}

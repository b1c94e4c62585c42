/* The search for a job's place, and the moving of lanes' bounds. */
#include <string.h>

#include "allocator/lanes_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* The largest E in the lane. */
static uint64_t lane_bytes_needed(const struct sy_lanes *l, int lane)
{
    uint64_t need = 0;
    for (int i = 0; i < l->config.max_jobs; i++)
        if (l->jobs[i].used && l->jobs[i].lane == lane)
            need = SY_MAX(need, l->jobs[i].is.ephemeral_bytes);
    return need;
}

/* ---- the decision ---- */

static int best_match(const struct sy_lanes *l, uint64_t ephemeral)
{
    int best = -1;
    for (int i = 0; i < l->config.max_jobs; i++)
        if (l->lanes[i].n_jobs > 0 && l->lanes[i].bytes >= ephemeral &&
            (best < 0 || l->lanes[i].bytes < l->lanes[best].bytes))
            best = i;
    return best;
}

/* The smallest lane that may grow to `ephemeral` when all else takes `used`. */
static int growable(const struct sy_lanes *l, uint64_t used, uint64_t ephemeral)
{
    int best = -1;
    for (int i = 0; i < l->config.max_jobs; i++)
        if (l->lanes[i].n_jobs > 0 && l->lanes[i].bytes < ephemeral &&
            used - l->lanes[i].bytes + ephemeral <= l->config.capacity_bytes &&
            (best < 0 || l->lanes[i].bytes < l->lanes[best].bytes))
            best = i;
    return best;
}

static uint64_t largest_need(const struct sy_lanes *l)
{
    uint64_t need = 0;
    for (int i = 0; i < l->config.max_jobs; i++)
        if (l->jobs[i].used && l->jobs[i].lane >= 0)
            need = SY_MAX(need, l->jobs[i].is.ephemeral_bytes);
    return need;
}

struct lane_choice sy_lanes_choose(const struct sy_lanes *l, uint64_t persistent,
                                   uint64_t ephemeral)
{
    uint64_t capacity = l->config.capacity_bytes;
    uint64_t used = l->persistent_bytes + persistent + l->ephemeral_bytes;
    int lane;
    if (used + ephemeral <= capacity)
        return (struct lane_choice){STEP_NEW, -1};
    /* The paper's listing does not ask this again: P has come on top. */
    if (used <= capacity && (lane = best_match(l, ephemeral)) >= 0)
        return (struct lane_choice){STEP_JOIN, lane};
    if ((lane = growable(l, used, ephemeral)) >= 0)
        return (struct lane_choice){STEP_GROW, lane};
    if (l->config.regroup &&
        l->persistent_bytes + persistent + SY_MAX(largest_need(l), ephemeral) <= capacity)
        return (struct lane_choice){STEP_REGROUP, -1};
    return (struct lane_choice){STEP_NONE, -1};
}

/* ---- persistent parts ---- */

void sy_lanes_give_pieces(struct sy_pool *pool, struct job_books *j, int keep)
{
    while (j->n_pieces > keep)
        sy_pool_give(pool, j->pieces[--j->n_pieces].offset);
}

/* Takes `bytes` more for the job's persistent part. False: no room in that many pieces, nothing changed. */
static bool take_pieces(struct sy_pool *pool, struct job_books *j, uint64_t bytes)
{
    int before = j->n_pieces;
    while (bytes > 0) {
        uint64_t piece = SY_MIN(bytes, sy_pool_largest_free_bytes(pool)), offset;
        if (piece == 0 || j->n_pieces >= j->is.max_pieces ||
            (piece < bytes && j->n_pieces + 1 >= j->is.max_pieces) ||
            sy_pool_take(pool, piece, false, &offset) < 0) {
            sy_lanes_give_pieces(pool, j, before);
            return false;
        }
        j->pieces[j->n_pieces++] = (struct sy_lane_piece){offset, piece};
        bytes -= piece;
    }
    return true;
}

/* ---- one lane's bounds ---- */

struct span {
    uint64_t at, offset, bytes; /* the free extent that holds `at` */
};

static void find_span(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    struct span *span = ctx;
    if (!used && span->at >= offset && span->at < offset + bytes) {
        span->offset = offset;
        span->bytes = bytes;
    }
}

static void set_bounds(struct sy_lanes *l, int lane, uint64_t offset, uint64_t bytes)
{
    struct lane_books *lane_books = &l->lanes[lane];
    if (lane_books->n_jobs > 0 && lane_books->offset != offset && lane_books->bytes > 0) {
        l->counts.n_moves++;
        if (lane_books->running >= 0) /* L3 */
            l->counts.copied_bytes += lane_books->bytes;
    }
    l->hopeless = l->hopeless && lane_books->bytes == bytes;
    l->ephemeral_bytes += bytes - lane_books->bytes;
    lane_books->offset = offset;
    lane_books->bytes = bytes;
}

/* Slides up into the free memory above; else to any place in the pool that is large enough; else stays. */
/* Makes an empty lane `bytes` large, wherever there is room. False: there is none, nothing changed. */
static bool resize_lane(struct sy_lanes *l, int lane, uint64_t bytes)
{
    struct lane_books old = l->lanes[lane];
    struct span span = {.at = old.offset};
    uint64_t offset = 0;
    assert(old.running < 0);
    if (old.bytes > 0) {
        sy_pool_give(l->pool, old.offset);
        sy_pool_walk(l->pool, find_span, &span);
    }
    bool placed = bytes == 0;
    if (!placed && span.bytes >= bytes) {
        offset = span.offset + span.bytes - bytes;
        placed = sy_pool_take_at(l->pool, offset, bytes) == SY_OK;
    }
    if (!placed)
        placed = sy_pool_take(l->pool, bytes, true, &offset) == SY_OK;
    if (placed) {
        set_bounds(l, lane, offset, bytes);
        return true;
    }
    int back = old.bytes ? sy_pool_take_at(l->pool, old.offset, old.bytes) : SY_OK;
    assert(back == SY_OK);
    return false;
}

static bool has_higher(const struct sy_lanes *l, int a, int b)
{
    return l->lanes[a].offset > l->lanes[b].offset;
}

static int order_by_offset(struct sy_lanes *l)
{
    int n = 0;
    for (int i = 0; i < l->config.max_jobs; i++) {
        if (l->lanes[i].n_jobs == 0)
            continue;
        int at = n++;
        for (; at > 0 && has_higher(l, i, l->plan.order[at - 1]); at--)
            l->plan.order[at] = l->plan.order[at - 1];
        l->plan.order[at] = i;
    }
    return n;
}

void sy_lanes_shrink_empty(struct sy_lanes *l)
{
    if (!l->untidy)
        return;
    bool more = false;
    int n = order_by_offset(l);
    for (int i = 0; i < n; i++) {
        int lane = l->plan.order[i];
        if (l->lanes[lane].running >= 0) {
            more = true;
            continue;
        }
        bool placed = resize_lane(l, lane, lane_bytes_needed(l, lane));
        assert(placed); /* it had at least that much */
    }
    l->untidy = more;
}

/* ---- jobs and lanes ---- */

static void enter_lane(struct sy_lanes *l, int slot, int lane)
{
    struct job_books *j = &l->jobs[slot];
    l->n_lanes += l->lanes[lane].n_jobs++ == 0;
    l->improvable = true;
    l->hopeless = false;
    j->lane = lane;
    if (!j->announce) {
        j->announce = true;
        l->n_announce++;
    }
}

void sy_lanes_exit(struct sy_lanes *l, int slot)
{
    int lane = l->jobs[slot].lane;
    l->jobs[slot].lane = -1;
    l->untidy = l->improvable = true;
    l->hopeless = false;
    if (--l->lanes[lane].n_jobs > 0)
        return;
    l->n_lanes--;
    if (l->lanes[lane].bytes > 0)
        sy_pool_give(l->pool, l->lanes[lane].offset);
    set_bounds(l, lane, 0, 0);
}

/* Opens a lane for the job, which is in none. -1: no room. */
static int open_lane(struct sy_lanes *l, int slot)
{
    uint64_t bytes = l->jobs[slot].is.ephemeral_bytes, offset = 0;
    int lane = 0;
    while (l->lanes[lane].n_jobs > 0)
        lane++; /* there are as many as jobs, and this one has none */
    if (bytes > 0 && sy_pool_take(l->pool, bytes, true, &offset) < 0)
        return -1;
    l->lanes[lane] = (struct lane_books){0, -1, 0, 0};
    set_bounds(l, lane, offset, bytes);
    enter_lane(l, slot, lane);
    return lane;
}

static bool find_lane(struct sy_lanes *l, int slot, struct lane_choice choice)
{
    uint64_t ephemeral = l->jobs[slot].is.ephemeral_bytes;
    if (choice.step == STEP_NEW)
        return open_lane(l, slot) >= 0;
    if (choice.step == STEP_GROW &&
        (l->lanes[choice.lane].running >= 0 || !resize_lane(l, choice.lane, ephemeral)))
        return false;
    enter_lane(l, slot, choice.lane);
    return true;
}

bool sy_lanes_place(struct sy_lanes *l, int slot, struct lane_choice choice)
{
    struct job_books *j = &l->jobs[slot];
    if (choice.step == STEP_REGROUP || choice.step == STEP_NONE ||
        !take_pieces(l->pool, j, j->is.persistent_bytes))
        return false;
    if (find_lane(l, slot, choice))
        return true;
    sy_lanes_give_pieces(l->pool, j, 0);
    return false;
}

/* ---- all lanes anew ---- */

static int order_by_need(struct sy_lanes *l, int extra)
{
    int n = 0, *order = l->plan.order;
    for (int i = 0; i < l->config.max_jobs; i++) {
        if (!l->jobs[i].used || (l->jobs[i].lane < 0 && i != extra))
            continue;
        int at = n++;
        uint64_t need = l->jobs[i].is.ephemeral_bytes;
        for (; at > 0 && l->jobs[order[at - 1]].is.ephemeral_bytes < need; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

/* With k lanes the sum of their largest E is least when the k-1 smallest jobs have a lane each and all others share one; so
 * this makes as many lanes as the capacity allows. */
static int plan_regroup(struct sy_lanes *l, int slot)
{
    struct lane_plan *plan = &l->plan;
    int n = order_by_need(l, slot), n_lanes = 1;
    uint64_t used = l->persistent_bytes + (slot >= 0 ? l->jobs[slot].is.persistent_bytes : 0);
    used += plan->bytes[0] = l->jobs[plan->order[0]].is.ephemeral_bytes;
    for (int i = n - 1; i >= 0; i--) {
        int job = plan->order[i];
        uint64_t need = l->jobs[job].is.ephemeral_bytes;
        bool own = i > 0 && used + need <= l->config.capacity_bytes;
        plan->lane_of[job] = own ? n_lanes : 0;
        if (own) {
            plan->bytes[n_lanes++] = need;
            used += need;
        }
    }
    return n_lanes;
}

static void plan_as_chosen(struct sy_lanes *l, int slot, struct lane_choice choice)
{
    struct lane_plan *plan = &l->plan;
    int lane = choice.lane;
    for (int i = 0; i < l->config.max_jobs; i++) {
        plan->bytes[i] = l->lanes[i].n_jobs > 0 ? lane_bytes_needed(l, i) : 0;
        if (l->jobs[i].used && l->jobs[i].lane >= 0)
            plan->lane_of[i] = l->jobs[i].lane;
    }
    if (lane < 0)
        for (lane = 0; l->lanes[lane].n_jobs > 0;)
            lane++;
    plan->lane_of[slot] = lane;
    plan->bytes[lane] = SY_MAX(plan->bytes[lane], l->jobs[slot].is.ephemeral_bytes);
}

static int order_by_plan(struct sy_lanes *l)
{
    int n = 0, *order = l->plan.order;
    for (int i = 0; i < l->config.max_jobs; i++) {
        if (l->plan.bytes[i] == 0)
            continue;
        int at = n++;
        for (; at > 0 && l->plan.bytes[order[at - 1]] < l->plan.bytes[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

/* Largest first, from the pool's top; then the new job's persistent part into what is left. */
static bool try_plan(struct sy_lanes *l, int slot)
{
    if (sy_pool_copy(l->trial, l->pool) < 0)
        return false;
    for (int i = 0; i < l->config.max_jobs; i++)
        if (l->lanes[i].n_jobs > 0 && l->lanes[i].bytes > 0)
            sy_pool_give(l->trial, l->lanes[i].offset);
    int n = order_by_plan(l);
    for (int i = 0; i < n; i++) {
        int lane = l->plan.order[i];
        if (sy_pool_take(l->trial, l->plan.bytes[lane], true, &l->plan.offset[lane]) < 0)
            return false;
    }
    return slot < 0 || take_pieces(l->trial, &l->jobs[slot], l->jobs[slot].is.persistent_bytes);
}

static void commit_plan(struct sy_lanes *l, int slot)
{
    sy_pool_swap(l->pool, l->trial);
    for (int i = 0; i < l->config.max_jobs; i++)
        set_bounds(l, i, l->plan.offset[i], l->plan.bytes[i]);
    for (int i = 0; i < l->config.max_jobs; i++) {
        struct job_books *j = &l->jobs[i];
        if (!j->used || (j->lane < 0 && i != slot) || j->lane == l->plan.lane_of[i])
            continue;
        if (j->lane >= 0)
            l->n_lanes -= --l->lanes[j->lane].n_jobs == 0;
        enter_lane(l, i, l->plan.lane_of[i]);
        l->lanes[j->lane].running = -1;
    }
}

static void clear_plan(struct sy_lanes *l)
{
    size_t n = (size_t)l->config.max_jobs;
    assert(l->n_running == 0);
    memset(l->plan.bytes, 0, n * sizeof *l->plan.bytes);
    memset(l->plan.offset, 0, n * sizeof *l->plan.offset);
}

bool sy_lanes_rebuild(struct sy_lanes *l, int slot, struct lane_choice choice)
{
    clear_plan(l);
    if (choice.step == STEP_REGROUP)
        plan_regroup(l, slot);
    else
        plan_as_chosen(l, slot, choice);
    if (!try_plan(l, slot))
        return false;
    commit_plan(l, slot);
    l->counts.n_regrouped += choice.step == STEP_REGROUP;
    return true;
}

bool sy_lanes_compact(struct sy_lanes *l)
{
    if (l->n_running > 0)
        return false;
    clear_plan(l);
    for (int i = 0; i < l->config.max_jobs; i++) {
        l->plan.bytes[i] = l->lanes[i].n_jobs > 0 ? lane_bytes_needed(l, i) : 0;
        if (l->jobs[i].used && l->jobs[i].lane >= 0)
            l->plan.lane_of[i] = l->jobs[i].lane;
    }
    if (!try_plan(l, -1))
        return false;
    commit_plan(l, -1);
    return true;
}

bool sy_lanes_maximize(struct sy_lanes *l)
{
    if (!l->improvable || l->n_running > 0 || l->n_lanes == 0)
        return false;
    l->improvable = false;
    clear_plan(l);
    if (plan_regroup(l, -1) <= l->n_lanes || !try_plan(l, -1))
        return false;
    commit_plan(l, -1);
    l->counts.n_regrouped++;
    l->improvable = false;
    return true;
}

bool sy_lanes_spread(struct sy_lanes *l)
{
    uint64_t used = l->persistent_bytes + l->ephemeral_bytes;
    for (int i = 0; i < l->config.max_jobs; i++) {
        struct job_books *j = &l->jobs[i];
        if (!j->used || j->lane < 0 || l->lanes[j->lane].n_jobs < 2 ||
            l->lanes[j->lane].running >= 0 ||
            used + j->is.ephemeral_bytes > l->config.capacity_bytes)
            continue;
        int old = j->lane;
        if (open_lane(l, i) < 0)
            continue;
        l->lanes[old].n_jobs--; /* others are left in it */
        l->untidy = true;
        return true;
    }
    return false;
}

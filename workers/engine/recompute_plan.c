#include "workers/engine/recompute_plan.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/append.h"

#define MAX_SEGMENTS 24

/* ---- describing ------------------------------------------------------------------------------------- */

int sy_recompute_init(struct sy_recompute *r, int n_forward, int n_steps, int n_buffers)
{
    *r = (struct sy_recompute){.n_forward = n_forward, .n_buffers = n_buffers};
    r->steps = calloc((size_t)n_steps + 1, sizeof *r->steps);
    r->buffers = calloc((size_t)n_buffers + 1, sizeof *r->buffers);
    r->segments = calloc((size_t)n_forward + 1, sizeof *r->segments);
    SY_TRY_ALLOC(r->steps && r->buffers && r->segments, "no memory to plan recomputation");
    return SY_OK;
}

void sy_recompute_finish(struct sy_recompute *r)
{
    free(r->steps);
    free(r->buffers);
    free(r->uses);
    free(r->segments);
    free(r->turns);
}

void sy_recompute_add_step(struct sy_recompute *r, bool trains)
{
    r->steps[r->n_steps++] = (struct sy_recompute_step){trains, r->n_uses, r->n_uses};
}

int sy_recompute_add_use(struct sy_recompute *r, int buffer, bool is_written)
{
    struct sy_recompute_use *use = sy_append(&r->uses, &r->n_uses, sizeof *use);
    if (!use)
        return SY_ENOMEM_HOST;
    *use = (struct sy_recompute_use){buffer, is_written};
    r->steps[r->n_steps - 1].end_uses = r->n_uses;
    return SY_OK;
}

/* The buffer of use u. */
static struct sy_recompute_buffer *named(const struct sy_recompute *r, int u)
{
    return &r->buffers[r->uses[u].buffer];
}

/* ---- lives ------------------------------------------------------------------------------------------ */

static void find_makers(struct sy_recompute *r)
{
    for (int b = 0; b < r->n_buffers; b++)
        r->buffers[b].maker = r->buffers[b].last_reader = -1;
    for (int s = 0; s < r->n_forward; s++)
        for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++) {
            struct sy_recompute_buffer *b = named(r, u);
            if (!r->steps[s].trains)
                continue;
            if (r->uses[u].is_written && b->maker < 0)
                b->maker = s;
            b->last_reader = s;
        }
    for (int b = 0; b < r->n_buffers; b++)
        if (r->buffers[b].is_pinned)
            r->buffers[b].last_reader = r->n_forward;
}

static void mark_read(struct sy_recompute *r, int s)
{
    for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++)
        named(r, u)->is_read = true;
}

static void find_read(struct sy_recompute *r)
{
    for (int s = r->n_forward; s < r->n_steps; s++)
        mark_read(r, s);
    for (int s = r->n_forward - 1; s >= 0; s--) {
        bool makes = false;
        for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++)
            makes |= r->uses[u].is_written && named(r, u)->is_read;
        if (makes && r->steps[s].trains)
            mark_read(r, s);
    }
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

static bool is_kept(const struct sy_recompute *r, const struct sy_recompute_buffer *b)
{
    return b->maker < 0 || b->last_reader >= r->n_forward ||
           r->segments[b->last_reader] != r->segments[b->maker];
}

/* Segments of about the same bytes. */
static void cut(struct sy_recompute *r, int n_segments)
{
    uint64_t all = 0, sum = 0, most = (uint64_t)n_segments - 1;
    for (int b = 0; b < r->n_buffers; b++)
        all += r->buffers[b].maker >= 0 ? r->buffers[b].bytes : 0;
    for (int s = 0; s < r->n_forward; s++) {
        r->segments[s] = all ? (int)SY_MIN(sum * (uint64_t)n_segments / all, most) : 0;
        for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++)
            if (r->uses[u].is_written && named(r, u)->maker == s)
                sum += named(r, u)->bytes;
    }
}

/* Estimates the peak: tensors between segments, and the largest segment. Only buffers that backward reads count. */
static uint64_t cost(const struct sy_recompute *r, int n_segments)
{
    uint64_t kept = 0, inside[MAX_SEGMENTS] = {0}, most = 0;
    for (int i = 0; i < r->n_buffers; i++) {
        const struct sy_recompute_buffer *b = &r->buffers[i];
        if (b->maker < 0 || !b->is_read)
            continue;
        if (is_kept(r, b))
            kept += b->bytes;
        else
            inside[r->segments[b->maker]] += b->bytes;
    }
    for (int i = 0; i < n_segments; i++)
        most = SY_MAX(most, inside[i]);
    return kept + most;
}

static void choose_cut(struct sy_recompute *r)
{
    int best = 1;
    uint64_t least = UINT64_MAX;
    for (int n = 1; n <= MAX_SEGMENTS; n++) {
        cut(r, n);
        uint64_t peak = cost(r, n);
        if (peak < least) {
            least = peak;
            best = n;
        }
    }
    cut(r, best);
}

/* The last segment is never made again: its buffers count as kept. */
static int keep_last_segment(struct sy_recompute *r)
{
    int n_segments = r->n_forward ? r->segments[r->n_forward - 1] + 1 : 1;
    for (int i = 0; i < r->n_buffers; i++) {
        struct sy_recompute_buffer *b = &r->buffers[i];
        if (b->maker >= 0 && r->segments[b->maker] == n_segments - 1)
            b->last_reader = r->n_forward;
    }
    return n_segments;
}

/* The step's results, if one of them is kept. */
static bool keep_results(struct sy_recompute *r, int s)
{
    bool any = false, changed = false;
    for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++)
        any |= r->uses[u].is_written && is_kept(r, named(r, u));
    for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++) {
        struct sy_recompute_buffer *b = named(r, u);
        if (!any || !r->uses[u].is_written || is_kept(r, b))
            continue;
        b->last_reader = r->n_forward;
        changed = true;
    }
    return changed;
}

static void keep_together(struct sy_recompute *r)
{
    bool changed = r->keeps_together;
    while (changed) {
        changed = false;
        for (int s = 0; s < r->n_forward; s++)
            changed |= r->steps[s].trains && keep_results(r, s);
    }
}

/* ---- the order of execution ------------------------------------------------------------------------- */

static int add_turn(struct sy_recompute *r, int step, bool is_again)
{
    struct sy_recompute_turn *turn = sy_append(&r->turns, &r->n_turns, sizeof *turn);
    if (!turn)
        return SY_ENOMEM_HOST;
    *turn = (struct sy_recompute_turn){step, is_again};
    return SY_OK;
}

static int make_again(struct sy_recompute *r, int segment)
{
    for (int s = 0; s < r->n_forward; s++) {
        bool is_needed = false;
        for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++) {
            const struct sy_recompute_buffer *b = named(r, u);
            is_needed |= r->uses[u].is_written && b->is_forgotten && b->is_read;
        }
        if (r->segments[s] == segment && r->steps[s].trains && is_needed)
            SY_TRY(add_turn(r, s, true));
    }
    return SY_OK;
}

/* The segment that a backward step needs next and that is not present; -1: none. */
static int needs_segment(const struct sy_recompute *r, int s, const bool *is_made)
{
    int latest = -1;
    for (int u = r->steps[s].first_use; u < r->steps[s].end_uses; u++) {
        const struct sy_recompute_buffer *b = named(r, u);
        if (b->is_forgotten && !is_made[r->segments[b->maker]])
            latest = SY_MAX(latest, r->segments[b->maker]);
    }
    return latest;
}

int sy_recompute_plan(struct sy_recompute *r)
{
    bool is_made[MAX_SEGMENTS] = {false};
    find_makers(r);
    find_read(r);
    choose_cut(r);
    is_made[keep_last_segment(r) - 1] = true;
    keep_together(r);
    for (int b = 0; b < r->n_buffers; b++)
        r->buffers[b].is_forgotten = !is_kept(r, &r->buffers[b]);
    for (int s = 0; s < r->n_steps; s++) {
        for (int at; s >= r->n_forward && (at = needs_segment(r, s, is_made)) >= 0;) {
            is_made[at] = true;
            SY_TRY(make_again(r, at));
        }
        SY_TRY(add_turn(r, s, false));
    }
    return SY_OK;
}

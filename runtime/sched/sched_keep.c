/* Workspaces of interrupted requests (S8). */
#include "runtime/base/assert.h"
#include "runtime/sched/sched_internal.h"

void sy_sched_stopped_at(struct sy_sched *s, int worker, uint64_t run, int layer,
                         struct sy_duration left)
{
    struct request *r = NULL;
    for (struct slice *c = s->slices; c < s->slices + s->n_made && !r; c++)
        r = c->active && c->active->run == run ? c->active : NULL;
    if (!r || r->worker != worker || !r->interrupted || r->worker_through)
        return;
    r->next_layer = SY_MAX(layer, 0);
    r->left = left;
    r->lost_layer = r->lost_layer || r->next_layer <= r->first_layer;
}

void sy_sched_keep_workspace(struct sy_sched *s, struct request *r)
{
    struct slice *c = sy_sched_slice_of(s, r);
    if (r->next_layer == 0 || r->kept_bytes > 0)
        return;
    r->kept_offset = c->lane_offset;
    r->kept_bytes = c->lane_bytes;
    r->kept_at = ++s->last_kept;
    c->lane_bytes = 0;
}

/* The remaining time is estimated by layers, not by elapsed time: the request may have waited for its weights, or for a copy in flight. */
void sy_sched_leave_device(struct sy_sched *s, struct request *r)
{
    struct sy_duration left = r->next_layer > 0 ? r->left : r->duration;
    struct slice *c = sy_sched_slice_of(s, r);
    if (r->next_layer > 0 && !r->lost_layer)
        sy_admission_stopped(c->admission, left, s->now);
    else
        sy_admission_again(c->admission, left, s->now);
    sy_sched_keep_workspace(s, r);
}

/* Whether both requests' memory fits at once, beside jobs; then preempting loses nothing. */
bool sy_sched_would_keep(struct sy_sched *s, const struct request *urgent)
{
    const struct workspace *known = sy_sched_find_workspace(
        s, urgent->model, urgent->batch, urgent->sizes, sy_sched_slice_of(s, urgent)->team);
    uint64_t sum = sy_sched_lane_bytes(s) + sy_sched_kept_bytes(s) + sy_sched_job_bytes(s);
    const struct model *m = &s->models[urgent->model];
    for (int g = 0; g < m->n_groups; g++)
        sum += SY_ALIGN_UP(m->pool_bytes[g], SY_POOL_ALIGN);
    return !s->config.restarts &&
           sum + (known ? known->bytes : 0) <= sy_pool_capacity_bytes(s->pool);
}

void sy_sched_take_up_workspace(struct sy_sched *s, struct request *r)
{
    struct slice *c = sy_sched_slice_of(s, r);
    if (r->kept_bytes == 0)
        return;
    sy_sched_give_workspace_lane(s, c);
    c->lane_offset = r->kept_offset;
    c->lane_bytes = r->kept_bytes;
    r->kept_bytes = 0;
}

void sy_sched_forget_workspace(struct sy_sched *s, struct request *r)
{
    if (r->kept_bytes > 0)
        sy_pool_give(s->pool, r->kept_offset);
    r->kept_bytes = 0;
    r->next_layer = 0;
}

static struct request *earlier(struct request *a, struct request *b)
{
    if (!b || b->kept_bytes == 0)
        return a;
    return !a || b->kept_at < a->kept_at ? b : a;
}

/* With several slices, also frees the workspace of a slice where nothing has started. */
static bool give_idle_lane(struct sy_sched *s)
{
    for (struct slice *c = s->slices; s->n_made > 1 && c < s->slices + s->n_made; c++) {
        if (c->lane_bytes == 0 || c->active || c->next || c == s->placing)
            continue;
        sy_sched_give_workspace_lane(s, c);
        return true;
    }
    return false;
}

/* Drops the workspace of the request interrupted first, the least urgent one. It restarts from its beginning. */
bool sy_sched_release_workspace(struct sy_sched *s)
{
    struct request *first = NULL;
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        first = earlier(first, c->next);
    for (struct request *r = s->waiting; r; r = r->next)
        first = earlier(first, r);
    if (!first)
        return give_idle_lane(s);
    sy_sched_forget_workspace(s, first);
    sy_admission_revise(sy_sched_slice_of(s, first)->admission, first->id, first->duration);
    return true;
}

bool sy_sched_give_workspaces(struct sy_sched *s)
{
    bool any = sy_sched_lane_bytes(s) > 0;
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        sy_sched_give_workspace_lane(s, c);
    while (sy_sched_release_workspace(s))
        any = true;
    return any;
}

void sy_sched_give_workspace_lane(struct sy_sched *s, struct slice *c)
{
    if (c->lane_bytes)
        sy_pool_give(s->pool, c->lane_offset);
    c->lane_bytes = 0;
}

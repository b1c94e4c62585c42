/* The workspaces of requests that were interrupted (S8). */
#include "runtime/base/assert.h"
#include "runtime/sched/sched_internal.h"

void sy_sched_stopped_at(struct sy_sched *s, int worker, uint64_t run, int layer,
                         struct sy_duration left)
{
    struct request *r = s->active;
    if (!r || r->run != run || r->worker != worker || !r->interrupted || r->worker_through)
        return;
    r->next_layer = SY_MAX(layer, 0);
    r->left = left;
    r->lost_layer = r->lost_layer || r->next_layer <= r->first_layer;
}

void sy_sched_keep_workspace(struct sy_sched *s, struct request *r)
{
    if (r->next_layer == 0 || r->kept_bytes > 0)
        return;
    r->kept_offset = s->lane_offset;
    r->kept_bytes = s->lane_bytes;
    r->kept_at = ++s->last_kept;
    s->lane_bytes = 0;
}

/* What is left goes by the layers, not by the clock: until it stopped it may have waited for its weights, or for the copy under way. */
void sy_sched_leave_device(struct sy_sched *s, struct request *r)
{
    struct sy_duration left = r->next_layer > 0 ? r->left : r->duration;
    if (r->next_layer > 0 && !r->lost_layer)
        sy_admission_stopped(s->admission, left, s->now);
    else
        sy_admission_again(s->admission, left, s->now);
    sy_sched_keep_workspace(s, r);
}

/* Whether all that both need has room at once, beside jobs; so a request gives way at no loss. */
bool sy_sched_would_keep(struct sy_sched *s, const struct request *urgent)
{
    const struct workspace *known =
        sy_sched_find_workspace(s, urgent->model, urgent->batch, urgent->sizes);
    uint64_t sum = s->lane_bytes + sy_sched_kept_bytes(s) + sy_sched_job_bytes(s);
    const struct model *m = &s->models[urgent->model];
    for (int g = 0; g < m->n_groups; g++)
        sum += SY_ALIGN_UP(m->pool_bytes[g], SY_POOL_ALIGN);
    return !s->config.restarts &&
           sum + (known ? known->bytes : 0) <= sy_pool_capacity_bytes(s->pool);
}

void sy_sched_take_up_workspace(struct sy_sched *s, struct request *r)
{
    if (r->kept_bytes == 0)
        return;
    sy_sched_give_workspace_lane(s);
    s->lane_offset = r->kept_offset;
    s->lane_bytes = r->kept_bytes;
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

/* The one that was interrupted first is the least urgent of them. It starts over, which takes all of its time. */
bool sy_sched_release_workspace(struct sy_sched *s)
{
    struct request *first = earlier(NULL, s->next);
    for (struct request *r = s->waiting; r; r = r->next)
        first = earlier(first, r);
    if (!first)
        return false;
    sy_sched_forget_workspace(s, first);
    sy_admission_revise(s->admission, first->id, first->duration);
    return true;
}

bool sy_sched_give_workspaces(struct sy_sched *s)
{
    bool any = s->lane_bytes > 0;
    sy_sched_give_workspace_lane(s);
    while (sy_sched_release_workspace(s))
        any = true;
    return any;
}

uint64_t sy_sched_kept_bytes(const struct sy_sched *s)
{
    uint64_t sum = s->next ? s->next->kept_bytes : 0;
    for (const struct request *r = s->waiting; r; r = r->next)
        sum += r->kept_bytes;
    return sum;
}

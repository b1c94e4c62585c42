/* Puts a request's memory in place: workspace lane, image, pool. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

static int take_lane(struct sy_sched *s, struct slice *c, uint64_t bytes)
{
    SY_TRY(sy_residency_make_room(s->pool_residency, bytes));
    SY_TRY(sy_pool_take(s->pool, bytes, true, &c->lane_offset));
    c->lane_bytes = bytes;
    return SY_OK;
}

/* S7: only when nothing has started, or while there is no lane. */
static int set_lane(struct sy_sched *s, struct slice *c, uint64_t bytes)
{
    sy_sched_give_workspace_lane(s, c);
    if (bytes == 0)
        return SY_OK;
    int status = take_lane(s, c, bytes);
    while (status < 0 && sy_sched_release_workspace(s))
        status = take_lane(s, c, bytes);
    return status;
}

/* The workspace shrinks again after a large request: to the largest of the last runs. */
static int shrink_lane(struct sy_sched *s, struct slice *c, const struct request *r)
{
    uint64_t most = r->workspace_bytes;
    for (int i = 0; i < SY_SCHED_RECENT_RUNS; i++)
        most = SY_MAX(most, c->recent[i]);
    return c->lane_bytes > most && r->next_layer == 0 && !c->next ? set_lane(s, c, most) : SY_OK;
}

static bool lacks_room(int status)
{
    return status == SY_ENOMEM_DEVICE || status == SY_EBUSY;
}

/* A larger lane than needed stays, so that alternating sizes do not resize it, unless the model would then have to cycle. Workspaces of interrupted requests
 * stay likewise. A model that cycles starts with its first layer, since groups share places. */
static int place_in_pool(struct sy_sched *s, struct slice *c, struct request *r, uint64_t workspace)
{
    int status = sy_residency_place(s->pool_residency, r->model, false, r->places);
    while (lacks_room(status) && sy_sched_release_workspace(s))
        status = sy_residency_place(s->pool_residency, r->model, false, r->places);
    if (!lacks_room(status))
        return status;
    r->next_layer = 0;
    if (c->lane_bytes > workspace) {
        SY_TRY(set_lane(s, c, workspace));
        status = sy_residency_place(s->pool_residency, r->model, false, r->places);
    }
    if (!lacks_room(status))
        return status;
    return sy_residency_place(s->pool_residency, r->model, true, r->places);
}

/* A prefetched head must be completed without cycling, since cycling may move it. */
static bool fits_whole(const struct sy_sched *s, int model)
{
    const struct model *m = &s->models[model];
    uint64_t sum = sy_sched_lane_bytes(s) + sy_sched_kept_bytes(s);
    for (int g = 0; g < m->n_groups; g++)
        sum += SY_ALIGN_UP(m->pool_bytes[g], SY_POOL_ALIGN);
    return sum + sy_sched_job_bytes(s) <= sy_pool_capacity_bytes(s->pool);
}

static void note_arrived(const struct sy_group_place *places, bool *arrived, int from, int to)
{
    for (int g = from; g < to; g++)
        arrived[g] = places[g].resident;
}

static int place_in_image(struct sy_sched *s, struct request *r)
{
    int n = s->models[r->model].n_groups;
    bool whole = sy_residency_n_resident(s->pool_residency, r->model) == n;
    if (!s->image_residency || (whole && !s->models[r->model].has_direct))
        return SY_OK; /* nothing will be copied or read */
    SY_TRY(sy_residency_place(s->image_residency, r->model, false, r->image_places));
    r->image_pinned = true;
    note_arrived(r->image_places, r->image_arrived, 0, n);
    return SY_OK;
}

static void act_groups(struct sy_sched *s, struct request *r, enum sy_sched_kind kind, int from,
                       int to, bool preempts)
{
    struct sy_sched_action *a = sy_sched_act_run(s, kind, r);
    a->first_group = from;
    a->n_groups = to - from;
    a->places = r->places;
    a->image_places = r->image_pinned ? r->image_places : NULL;
    a->preempts = preempts;
    a->prefetch = r->prefetched;
}

static void act_read(struct sy_sched *s, struct request *r, const struct sy_group_place *places,
                     int from, int to)
{
    bool missing = false;
    for (int g = from; g < to; g++)
        missing |= !places[g].resident;
    if (!missing)
        return;
    act_groups(s, r, SY_DO_READ, from, to, false);
    r->n_reads++;
}

static int place(struct sy_sched *s, struct request *r, bool prefetch, int *n)
{
    struct slice *c = s->placing = sy_sched_slice_of(s, r);
    uint64_t workspace = r->workspace_bytes;
    if (prefetch && (workspace > SY_MAX(c->lane_bytes, r->kept_bytes) || !fits_whole(s, r->model)))
        return SY_EBUSY;
    if (!prefetch)
        sy_sched_take_up_workspace(s, r);
    if (!prefetch && workspace > c->lane_bytes)
        SY_TRY(set_lane(s, c, workspace));
    if (!prefetch)
        SY_TRY(shrink_lane(s, c, r));
    SY_TRY(place_in_image(s, r));
    *n = s->models[r->model].n_groups;
    int status = prefetch ? sy_residency_place_head(s->pool_residency, r->model, r->places, n)
                          : place_in_pool(s, c, r, workspace);
    r->pool_pinned = status == SY_OK;
    if (prefetch && status == SY_OK && *n == 0)
        status = SY_EBUSY; /* not even one group fits now: starting gains nothing */
    if (status < 0)
        sy_sched_unpin(s, r);
    return status;
}

int sy_sched_start(struct sy_sched *s, struct request *r, bool prefetch)
{
    bool ready;
    int n, status = place(s, r, prefetch, &n);
    if (status < 0) {
        if (!prefetch)
            sy_sched_keep_workspace(s, r);
        return status;
    }
    note_arrived(r->places, r->pool_arrived, 0, n);
    bool preempts = !prefetch && sy_sched_hold_training_for(s, r);
    r->run = ++s->last_run;
    r->worker = sy_sched_worker_for(s, r, &ready);
    s->workers[r->worker] = WORKER_REQUEST;
    r->n_loaded = n;
    r->prefetched = prefetch;
    act_groups(s, r, SY_DO_LOAD, 0, n, preempts);
    if (r->image_pinned)
        act_read(s, r, r->image_places, 0, s->models[r->model].n_groups);
    else if (!s->image_residency)
        act_read(s, r, r->places, 0, n);
    return SY_OK;
}

/* Places the groups that a prefetch left out. An intermediate request may have shrunk the lane below this one's workspace, or kept it. */
static int place_tail(struct sy_sched *s, struct request *r)
{
    struct slice *c = s->placing = sy_sched_slice_of(s, r);
    uint64_t workspace = r->workspace_bytes;
    sy_sched_take_up_workspace(s, r);
    if (workspace > c->lane_bytes && c->lane_bytes > 0)
        return SY_EBUSY;
    if (workspace > c->lane_bytes)
        SY_TRY(set_lane(s, c, workspace));
    if (r->n_loaded == s->models[r->model].n_groups)
        return SY_OK;
    int status = sy_residency_place(s->pool_residency, r->model, false, r->places);
    while (lacks_room(status) && sy_sched_release_workspace(s))
        status = sy_residency_place(s->pool_residency, r->model, false, r->places);
    return status;
}

void sy_sched_give_up_run(struct sy_sched *s, struct request *r)
{
    r->restarting = true;
    struct sy_sched_action *a = sy_sched_act(s, SY_DO_CANCEL);
    a->worker = r->worker;
    a->run = r->run;
}

/* Places the groups that a prefetch left out. If they do not fit, the worker drops the run and the request starts again. */
int sy_sched_complete(struct sy_sched *s, struct request *r)
{
    int n = s->models[r->model].n_groups, from = r->n_loaded;
    if (!r->prefetched)
        return SY_OK;
    r->prefetched = false;
    int status = place_tail(s, r);
    if (status < 0) {
        sy_sched_give_up_run(s, r);
        return status;
    }
    if (from == n)
        return SY_OK;
    note_arrived(r->places, r->pool_arrived, from, n);
    r->n_loaded = n;
    act_groups(s, r, SY_DO_LOAD, from, n, false);
    if (!s->image_residency)
        act_read(s, r, r->places, from, n);
    return SY_OK;
}

void sy_sched_unpin(struct sy_sched *s, struct request *r)
{
    if (r->pool_pinned)
        sy_residency_unpin(s->pool_residency, r->model, r->pool_arrived);
    if (r->image_pinned)
        sy_residency_unpin(s->image_residency, r->model, r->image_arrived);
    r->pool_pinned = r->image_pinned = false;
}

/* ---- heads that come while nothing else does (S9) --------------------------------------------------- */

static int place_fetch(struct sy_sched *s, struct request *r, int *n)
{
    int n_before = sy_residency_n_resident(s->pool_residency, r->model);
    SY_TRY(place_in_image(s, r));
    int status = sy_residency_fetch_head(s->pool_residency, r->model, r->places, n);
    r->pool_pinned = status == SY_OK;
    if (status == SY_OK)
        note_arrived(r->places, r->pool_arrived, 0, *n);
    if (status == SY_OK && *n <= n_before)
        status = SY_EBUSY; /* room would cost a more valuable group */
    if (status < 0)
        sy_sched_unpin(s, r);
    return status;
}

static int start_fetch(struct sy_sched *s, struct request *r)
{
    int n = 0;
    SY_TRY(place_fetch(s, r, &n));
    r->run = ++s->last_run;
    r->worker = sy_sched_idle_worker(s);
    s->workers[r->worker] = WORKER_REQUEST;
    r->n_loaded = n;
    r->prefetched = true;
    act_groups(s, r, SY_DO_LOAD, 0, n, false);
    if (r->image_pinned)
        act_read(s, r, r->image_places, 0, s->models[r->model].n_groups);
    else if (!s->image_residency)
        act_read(s, r, r->places, 0, n);
    act_groups(s, r, SY_DO_FETCH, 0, n, false);
    return SY_OK;
}

static void cancel_fetch(struct sy_sched *s)
{
    struct request *r = s->fetch;
    if (!r->restarting && !r->worker_through)
        sy_sched_give_up_run(s, r);
}

void sy_sched_step_fetch(struct sy_sched *s)
{
    bool quiet = !s->waiting && sy_sched_n_started(s) == 0 && !s->admitting;
    int worker = sy_sched_idle_worker(s);
    if (s->fetch && !quiet)
        cancel_fetch(s);
    if (s->fetch || !quiet || !s->config.fetch_heads || worker < 0 || s->n_loading[worker] > 0)
        return;
    struct sy_sched_request wants = {.model = sy_residency_next_fetch(s->pool_residency)};
    struct request *r;
    if (wants.model < 0 || sy_sched_make_request(s, &wants, &r) < 0)
        return;
    if (start_fetch(s, r) < 0)
        sy_sched_free_request(r); /* retried later */
    else
        s->fetch = r;
}

void sy_sched_drop_fetch(struct sy_sched *s, bool image_too)
{
    s->fetch->dropped = true;
    s->fetch->image_dropped |= image_too;
    cancel_fetch(s);
}

void sy_sched_end_fetch(struct sy_sched *s)
{
    size_t n = (size_t)s->models[s->fetch->model].n_groups * sizeof(bool);
    if (s->fetch->dropped)
        memset(s->fetch->pool_arrived, 0, n);
    if (s->fetch->image_dropped)
        memset(s->fetch->image_arrived, 0, n);
    sy_sched_unpin(s, s->fetch);
    sy_sched_free_request(s->fetch);
    s->fetch = NULL;
}

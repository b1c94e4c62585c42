/* Queries on the scheduler's state: which worker is free, which job waits for a worker or for memory. Nothing here changes the state. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

int sy_sched_idle_worker(const struct sy_sched *s)
{
    int loads = -1;
    for (int w = s->config.n_workers - 1; w >= 0; w--)
        loads = s->workers[w] == WORKER_IDLE ? w : loads;
    for (int w = 0; w < s->config.n_workers; w++)
        if (s->workers[w] == WORKER_IDLE && s->n_loading[w] == 0)
            return w;
    return loads;
}

struct job *sy_sched_job_by_id(const struct sy_sched *s, uint64_t id)
{
    struct job *j = s->jobs;
    while (j && j->id != id)
        j = j->next;
    return j;
}

bool sy_sched_training_is_ready(const struct sy_sched *s, const struct slice *c)
{
    return sy_policy_can_use(c->policy, s->now);
}

uint64_t sy_sched_job_bytes(const struct sy_sched *s)
{
    return sy_lanes_persistent_bytes(s->lanes) + sy_lanes_ephemeral_bytes(s->lanes);
}

/* Guaranteed jobs first. */
uint64_t sy_sched_job_rank(const struct job *j)
{
    return (uint64_t)((int64_t)j->priority - INT32_MIN) + (j->opportunistic ? 1ull << 40 : 0);
}

int sy_sched_find_job(struct sy_sched *s, int worker, uint64_t id, struct job **out)
{
    struct job *j = sy_sched_job_by_id(s, id);
    if (!j || j->worker != worker || j->state == JOB_QUEUED)
        return sy_error_set(SY_EPROTO, "worker %d speaks of job %llu, which it does not have",
                            worker, (unsigned long long)id);
    *out = j;
    return SY_OK;
}

uint64_t sy_sched_kept_bytes(const struct sy_sched *s)
{
    uint64_t sum = 0;
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        sum += c->next ? c->next->kept_bytes : 0;
    for (const struct request *r = s->waiting; r; r = r->next)
        sum += r->kept_bytes;
    return sum;
}

bool sy_sched_jobs_hold_workers(const struct sy_sched *s)
{
    int n = 0;
    for (int w = 0; w < s->config.n_workers; w++)
        n += s->workers[w] != WORKER_GONE && s->workers[w] != WORKER_JOB;
    return n < 2;
}

static bool lacks_worker(const struct sy_sched *s, const struct job *j)
{
    if (j->state != JOB_QUEUED)
        return false;
    return j->opportunistic ? sy_sched_may_be_spilled(j) && sy_sched_guaranteed_waits_for_memory(s)
                            : !j->suspended;
}

/* First guaranteed jobs with memory, then opportunistic jobs that can free memory, then guaranteed jobs without memory, then other opportunistic ones. */
static int worker_rank(const struct job *j)
{
    if (j->opportunistic)
        return sy_sched_may_be_spilled(j) ? 1 : 3;
    return j->admitted ? 0 : 2;
}

/* Among equal ranks: jobs with memory, then by priority, then by arrival. */
static bool has_worker_before(const struct job *a, const struct job *b)
{
    int rank_a = worker_rank(a), rank_b = worker_rank(b);
    if (rank_a != rank_b)
        return rank_a < rank_b;
    if (a->admitted != b->admitted)
        return a->admitted;
    return sy_sched_job_rank(a) < sy_sched_job_rank(b);
}

/* A suspended job needs a worker only to free memory. */
struct job *sy_sched_next_for_worker(const struct sy_sched *s)
{
    struct job *best = NULL;
    for (struct job *j = s->jobs; j; j = j->next)
        if (j->state == JOB_QUEUED && (!j->suspended || lacks_worker(s, j)) &&
            (!best || has_worker_before(j, best)))
            best = j;
    return best;
}

/* A job with state in the pool needs a prepared worker before it can be spilled. */
bool sy_sched_may_leave(const struct job *j)
{
    bool comes_back = j->state == JOB_PREPARED && j->in_memory && sy_sched_may_be_spilled(j);
    return j->opportunistic && !j->stop_wanted && !comes_back &&
           (j->state == JOB_PREPARED || j->state == JOB_RUNNING || j->state == JOB_SPILLED);
}

/* Number of workers that guaranteed jobs lack, including those needed to spill the jobs that free memory for them. */
int sy_sched_n_lacking(const struct sy_sched *s)
{
    int n = 0;
    if (!sy_sched_jobs_hold_workers(s))
        return 0;
    for (const struct job *j = s->jobs; j; j = j->next) {
        n += lacks_worker(s, j);
        n -= j->state == JOB_LEAVING || (j->stop_wanted && j->state != JOB_QUEUED);
    }
    return n;
}

bool sy_sched_worker_is_wanted(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (sy_sched_may_leave(j))
            return sy_sched_n_lacking(s) > 0;
    return false;
}

int sy_sched_slice_wanted(const struct job *j)
{
    return j->lent >= 0 ? j->lent : j->wanted_slice;
}

int sy_sched_n_started(const struct sy_sched *s)
{
    int n = 0;
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        n += (c->active != NULL) + (c->next != NULL);
    return n;
}

int sy_sched_computing_in(const struct slice *c)
{
    return c->active && c->active->run_sent && !c->active->worker_through ? c->active->worker : -1;
}

struct workspace *sy_sched_find_workspace(struct sy_sched *s, int model, int64_t batch,
                                          uint64_t sizes, int team)
{
    for (int i = 0; i < SY_SCHED_WORKSPACES; i++) {
        struct workspace *w = &s->models[model].workspaces[i];
        if (w->batch == batch && w->sizes == sizes && w->team == team)
            return w;
    }
    return NULL;
}

int sy_sched_worker_for(struct sy_sched *s, const struct request *r, bool *ready)
{
    const struct workspace *known =
        sy_sched_find_workspace(s, r->model, r->batch, r->sizes, r->team);
    int best = -1, best_rank = -1;
    for (int w = 0; w < s->config.n_workers; w++) {
        int rank =
            2 * (known && (known->workers >> w & 1)) + (s->n_preparing[w] + s->n_loading[w] == 0);
        if (s->workers[w] == WORKER_IDLE && rank > best_rank) {
            best = w;
            best_rank = rank;
        }
    }
    *ready = best_rank >= 2;
    return best;
}

int sy_sched_check_room(const struct sy_sched *s, const struct request *r)
{
    uint64_t pool = sy_pool_capacity_bytes(s->pool), group = s->models[r->model].largest_bytes;
    if (r->workspace_bytes <= pool && group <= pool - r->workspace_bytes)
        return SY_OK;
    return sy_error_set(
        SY_ENOMEM_DEVICE,
        "its workspace (%llu bytes) and its largest group (%llu bytes) do not fit into the pool of "
        "%llu bytes; make it larger (--pool-bytes), or the request smaller",
        (unsigned long long)r->workspace_bytes, (unsigned long long)group,
        (unsigned long long)pool);
}

uint64_t sy_sched_least_room(const struct sy_sched *s)
{
    uint64_t most = 0;
    for (int i = 0; i < SY_SCHED_MAX_MODELS; i++)
        if (s->models[i].used)
            most = SY_MAX(most, s->models[i].least_bytes);
    return most;
}

int sy_sched_open_slice(const struct sy_sched *s, int wanted)
{
    return wanted >= 0 && wanted < s->n_slices ? wanted : 0;
}

struct slice *sy_sched_slice_of(const struct sy_sched *s, const struct request *r)
{
    return (struct slice *)&s->slices[r->slice];
}

int sy_sched_team_of(const struct sy_sched *s, int model)
{
    return s->slices[sy_sched_open_slice(s, s->models[model].slice)].team;
}

uint64_t sy_sched_lane_bytes(const struct sy_sched *s)
{
    uint64_t sum = 0;
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        sum += c->lane_bytes;
    return sum;
}

bool sy_sched_others_started(const struct sy_sched *s, const struct slice *c)
{
    for (const struct slice *o = s->slices; o < s->slices + s->n_made; o++)
        if (o != c && (o->active || o->next))
            return true;
    return false;
}

bool sy_sched_slice_is_busy(const struct sy_sched *s, int slice)
{
    const struct slice *c = &s->slices[slice];
    bool busy = c->active || c->next;
    for (const struct request *r = s->waiting; r && !busy; r = r->next)
        busy = r->slice == slice;
    return busy;
}

bool sy_sched_are_exclusive(const struct sy_sched *s, int model, int other)
{
    return sy_sched_has_bit(s->models[model].apart, other);
}

bool sy_sched_lane_is_wanted(const struct sy_sched *s, const struct job *job)
{
    int lane = s->n_made > 1 ? sy_lanes_lane_of(s->lanes, job->id) : -1;
    for (const struct job *j = s->jobs; lane >= 0 && j; j = j->next)
        if (j->slice != job->slice && j->in_lanes && j->state == JOB_RUNNING && !j->suspended &&
            sy_lanes_lane_of(s->lanes, j->id) == lane)
            return true;
    return false;
}

bool sy_sched_trains_in(const struct sy_sched *s, const struct slice *c)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (&s->slices[j->slice] == c && j->has_turn && !(j->preempted && j->still))
            return true;
    return false;
}

bool sy_sched_guaranteed_waits_for_memory(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (!j->opportunistic && j->in_lanes && !j->admitted)
            return true;
    return false;
}

bool sy_sched_may_be_spilled(const struct job *j)
{
    return j->opportunistic && j->admitted && !j->stop_wanted && !j->cannot_spill;
}

bool sy_sched_trip_is_under_way(const struct sy_sched *s)
{
    for (const struct job *j = s->jobs; j; j = j->next)
        if (j->state == JOB_SPILLING || j->state == JOB_RETURNING)
            return true;
    return false;
}

#include "allocator/lanes.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/lanes_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_JOBS 4096

int sy_lanes_new(struct sy_pool *pool, struct sy_quotas *quotas,
                 const struct sy_lanes_config *config, struct sy_lanes **out)
{
    struct sy_lanes *l;
    size_t n = (size_t)config->max_jobs;
    *out = NULL;
    if (config->max_jobs < 1 || config->max_jobs > MAX_JOBS || config->max_overtakes < 0)
        return sy_error_set(SY_EARG, "%d jobs in lanes, %d overtakes: 1 to %d, at least 0",
                            config->max_jobs, config->max_overtakes, MAX_JOBS);
    l = calloc(1, sizeof *l);
    SY_TRY_ALLOC(l, "no memory for lanes");
    l->config = *config;
    l->pool = pool;
    l->quotas = quotas;
    l->jobs = calloc(n, sizeof *l->jobs);
    l->lanes = calloc(n, sizeof *l->lanes);
    l->queue = calloc(n, sizeof *l->queue);
    l->plan = (struct lane_plan){calloc(n, sizeof(int)), calloc(n, sizeof(uint64_t)),
                                 calloc(n, sizeof(uint64_t)), calloc(n, sizeof(int))};
    if (!l->jobs || !l->lanes || !l->queue || !l->plan.lane_of || !l->plan.bytes ||
        !l->plan.offset || !l->plan.order ||
        sy_pool_new(sy_pool_capacity_bytes(pool), &l->trial) < 0) {
        sy_lanes_free(l);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for lanes of %d jobs", config->max_jobs);
    }
    for (size_t i = 0; i < n; i++)
        l->lanes[i].running = -1;
    sy_lanes_set_capacity(l, config->capacity_bytes);
    *out = l;
    return SY_OK;
}

static uint64_t charge_of(const struct job_books *j)
{
    return j->is.persistent_bytes + j->is.ephemeral_bytes;
}

static void release(struct sy_lanes *l, const struct job_books *j)
{
    if (l->quotas)
        sy_quota_release(l->quotas, j->is.tenant, charge_of(j));
}

void sy_lanes_free(struct sy_lanes *l)
{
    if (!l)
        return;
    for (int i = 0; l->jobs && i < l->config.max_jobs; i++)
        if (l->jobs[i].used)
            sy_lanes_leave(l, l->jobs[i].is.id);
    sy_pool_free(l->trial);
    free(l->plan.lane_of);
    free(l->plan.bytes);
    free(l->plan.offset);
    free(l->plan.order);
    free(l->queue);
    free(l->lanes);
    free(l->jobs);
    free(l);
}

/* At most a few hundred jobs: a scan beats an index. */
static int find(const struct sy_lanes *l, uint64_t id)
{
    for (int i = 0; i < l->config.max_jobs; i++)
        if (l->jobs[i].used && l->jobs[i].is.id == id)
            return i;
    return -1;
}

/* ---- the queue ---- */

static bool is_ahead(const struct sy_lanes *l, int a, int b)
{
    const struct job_books *x = &l->jobs[a], *y = &l->jobs[b];
    return x->is.rank != y->is.rank ? x->is.rank < y->is.rank : x->arrival < y->arrival;
}

static void enqueue(struct sy_lanes *l, int slot)
{
    int at = l->n_waiting++;
    for (; at > 0 && is_ahead(l, slot, l->queue[at - 1]); at--)
        l->queue[at] = l->queue[at - 1];
    l->queue[at] = slot;
    l->hopeless = false;
}

static void dequeue(struct sy_lanes *l, int slot)
{
    int at = 0;
    while (l->queue[at] != slot)
        at++;
    for (l->n_waiting--; at < l->n_waiting; at++)
        l->queue[at] = l->queue[at + 1];
}

/* Something was freed: jobs that found no place may look again. */
static void reconsider(struct sy_lanes *l)
{
    l->stuck = l->hopeless = false;
    l->wanted_bytes = 0;
}

static int check_sizes(const struct sy_lanes *l, uint64_t id, uint64_t persistent,
                       uint64_t ephemeral)
{
    uint64_t capacity = l->most_bytes;
    if (persistent <= capacity && ephemeral <= capacity - persistent)
        return SY_OK;
    return sy_error_set(SY_ENOMEM_DEVICE,
                        "job %llu can never run: %llu bytes persistent and %llu in each iteration, "
                        "but jobs may have %llu bytes of the pool; use a smaller batch or model",
                        (unsigned long long)id, (unsigned long long)persistent,
                        (unsigned long long)ephemeral, (unsigned long long)capacity);
}

static uint64_t round_up(uint64_t bytes)
{
    return bytes > UINT64_MAX - SY_POOL_ALIGN ? UINT64_MAX / SY_POOL_ALIGN * SY_POOL_ALIGN
                                              : SY_ALIGN_UP(bytes, (uint64_t)SY_POOL_ALIGN);
}

int sy_lanes_join(struct sy_lanes *l, const struct sy_lane_job *job)
{
    struct job_books j = {.used = true, .is = *job, .lane = -1, .arrival = l->n_arrived};
    int slot = 0;
    if (job->max_pieces < 1 || job->max_pieces > SY_LANES_MAX_PIECES || find(l, job->id) >= 0)
        return sy_error_set(SY_EARG, "job %llu: its id is in use, or %d pieces are not 1 to %d",
                            (unsigned long long)job->id, job->max_pieces, SY_LANES_MAX_PIECES);
    j.is.persistent_bytes = round_up(job->persistent_bytes);
    j.is.ephemeral_bytes = round_up(job->ephemeral_bytes);
    if (!job->again)
        SY_TRY(check_sizes(l, job->id, j.is.persistent_bytes, j.is.ephemeral_bytes));
    while (slot < l->config.max_jobs && l->jobs[slot].used)
        slot++;
    if (slot == l->config.max_jobs)
        return sy_error_set(SY_EBUSY, "%d jobs wait or run already; try again when one has ended",
                            l->config.max_jobs);
    if (l->quotas && job->again)
        sy_quota_charge_again(l->quotas, job->tenant, charge_of(&j));
    else if (l->quotas)
        SY_TRY(sy_quota_charge(l->quotas, job->tenant, charge_of(&j), "the job"));
    l->jobs[slot] = j;
    l->n_arrived++;
    enqueue(l, slot);
    return SY_OK;
}

static void stand_still(struct sy_lanes *l, int slot)
{
    struct job_books *j = &l->jobs[slot];
    if (!j->running)
        return;
    j->running = false;
    l->lanes[j->lane].running = -1;
    l->n_running--;
}

int sy_lanes_leave(struct sy_lanes *l, uint64_t job)
{
    int slot = find(l, job);
    if (slot < 0)
        return sy_error_set(SY_ENOTFOUND, "no job %llu in the lanes", (unsigned long long)job);
    struct job_books *j = &l->jobs[slot];
    stand_still(l, slot);
    release(l, j);
    if (j->lane < 0) {
        dequeue(l, slot);
    } else {
        sy_lanes_give_pieces(l->pool, j, 0);
        l->persistent_bytes -= j->is.persistent_bytes;
        sy_lanes_exit(l, slot);
        l->n_announce -= j->announce;
    }
    *j = (struct job_books){.used = false};
    reconsider(l);
    sy_lanes_shrink_empty(l);
    return SY_OK;
}

/* ---- iterations ---- */

int sy_lanes_begin(struct sy_lanes *l, uint64_t job, uint64_t *ephemeral_offset)
{
    int slot = find(l, job);
    if (slot < 0 || l->jobs[slot].lane < 0)
        return sy_error_set(SY_ENOTFOUND, "job %llu is in no lane", (unsigned long long)job);
    struct lane_books *lane = &l->lanes[l->jobs[slot].lane];
    if (lane->running >= 0 || l->draining)
        return sy_error_set(SY_EBUSY, "job %llu: %s", (unsigned long long)job,
                            l->draining ? "lanes drain so that a job can be admitted"
                                        : "another job of its lane runs");
    lane->running = slot;
    l->jobs[slot].running = true;
    l->n_running++;
    *ephemeral_offset = lane->offset;
    return SY_OK;
}

int sy_lanes_end(struct sy_lanes *l, uint64_t job)
{
    int slot = find(l, job);
    if (slot < 0 || !l->jobs[slot].running)
        return sy_error_set(SY_EARG, "job %llu does not run", (unsigned long long)job);
    stand_still(l, slot);
    sy_lanes_shrink_empty(l);
    return SY_OK;
}

/* ---- what changes from outside ---- */

int sy_lanes_set_rank(struct sy_lanes *l, uint64_t job, uint64_t rank)
{
    int slot = find(l, job);
    if (slot < 0 || l->jobs[slot].lane >= 0)
        return sy_error_set(SY_ENOTFOUND, "job %llu does not wait", (unsigned long long)job);
    dequeue(l, slot);
    l->jobs[slot].is.rank = rank;
    enqueue(l, slot);
    return SY_OK;
}

void sy_lanes_set_capacity(struct sy_lanes *l, uint64_t capacity_bytes)
{
    l->config.capacity_bytes = SY_MIN(capacity_bytes, sy_pool_capacity_bytes(l->pool));
    l->most_bytes = l->config.capacity_bytes;
    reconsider(l);
}

void sy_lanes_set_most(struct sy_lanes *l, uint64_t most_bytes)
{
    uint64_t pool = sy_pool_capacity_bytes(l->pool);
    l->most_bytes = SY_MAX(l->config.capacity_bytes, SY_MIN(most_bytes, pool));
}

/* ---- letting jobs in ---- */

static void note_admission(struct sy_lanes *l, int slot, enum lane_step step)
{
    struct job_books *j = &l->jobs[slot];
    j->fresh = true;
    l->persistent_bytes += j->is.persistent_bytes;
    l->counts.n_admitted++;
    l->counts.n_new += step == STEP_NEW;
    l->counts.n_joined += step == STEP_JOIN;
    l->counts.n_grown += step == STEP_GROW;
}

/* The first in the queue that the sums allow may have all lanes emptied for it. */
static bool admit_by_barrier(struct sy_lanes *l, int slot, struct lane_choice choice)
{
    if (l->stuck)
        return false;
    if (l->n_running > 0) {
        l->draining = true;
        return false;
    }
    if (sy_lanes_rebuild(l, slot, choice))
        return true;
    l->stuck = true;
    l->wanted_bytes = SY_MAX(l->jobs[slot].is.persistent_bytes, l->jobs[slot].is.ephemeral_bytes);
    return false;
}

static bool admit_one(struct sy_lanes *l)
{
    bool was_draining = l->draining, first = true, any_fits = false;
    if (l->hopeless)
        return false;
    l->draining = false;
    for (int at = 0; at < l->n_waiting && !l->draining; at++) {
        int slot = l->queue[at];
        const struct job_books *j = &l->jobs[slot];
        struct lane_choice choice =
            sy_lanes_choose(l, j->is.persistent_bytes, j->is.ephemeral_bytes);
        bool fits = choice.step != STEP_NONE;
        if (fits &&
            (sy_lanes_place(l, slot, choice) || (first && admit_by_barrier(l, slot, choice)))) {
            note_admission(l, slot, choice.step);
            dequeue(l, slot);
            for (int i = 0; i < at; i++)
                l->jobs[l->queue[i]].overtaken++;
            return true;
        }
        first = first && !fits;
        any_fits = any_fits || fits;
        if (j->overtaken >= l->config.max_overtakes) /* L6 */
            break;
    }
    l->counts.n_barriers += l->draining && !was_draining;
    l->hopeless = !any_fits;
    return false;
}

bool sy_lanes_next(struct sy_lanes *l, struct sy_lanes_change *out)
{
    if (l->n_announce == 0 && !admit_one(l) && l->config.regroup && !sy_lanes_maximize(l) &&
        l->n_waiting == 0 && sy_lanes_spread(l))
        sy_lanes_shrink_empty(l);
    for (int i = 0; l->n_announce > 0 && i < l->config.max_jobs; i++) {
        struct job_books *j = &l->jobs[i];
        if (!j->announce)
            continue;
        *out = (struct sy_lanes_change){j->is.id, j->lane, j->fresh};
        j->announce = j->fresh = false;
        l->n_announce--;
        return true;
    }
    return false;
}

bool sy_lanes_could_admit(const struct sy_lanes *l)
{
    for (int at = 0; at < l->n_waiting && !l->hopeless; at++) {
        const struct sy_lane_job *j = &l->jobs[l->queue[at]].is;
        if (sy_lanes_choose(l, j->persistent_bytes, j->ephemeral_bytes).step != STEP_NONE)
            return true;
    }
    return false;
}

uint64_t sy_lanes_wanted_bytes(const struct sy_lanes *l)
{
    return l->wanted_bytes;
}

void sy_lanes_retry(struct sy_lanes *l)
{
    reconsider(l);
}

/* ---- looking ---- */

int sy_lanes_lane_of(const struct sy_lanes *l, uint64_t job)
{
    int slot = find(l, job);
    return slot < 0 ? -1 : l->jobs[slot].lane;
}

int sy_lanes_pieces(const struct sy_lanes *l, uint64_t job, struct sy_lane_piece *out)
{
    int slot = find(l, job), n = slot < 0 ? 0 : l->jobs[slot].n_pieces;
    for (int i = 0; i < n; i++)
        out[i] = l->jobs[slot].pieces[i];
    return n;
}

bool sy_lanes_bounds(const struct sy_lanes *l, int lane, uint64_t *offset, uint64_t *bytes,
                     int *n_jobs)
{
    if (lane < 0 || lane >= l->config.max_jobs || l->lanes[lane].n_jobs == 0)
        return false;
    *offset = l->lanes[lane].offset;
    *bytes = l->lanes[lane].bytes;
    *n_jobs = l->lanes[lane].n_jobs;
    return true;
}

int sy_lanes_n_lanes(const struct sy_lanes *l)
{
    return l->n_lanes;
}

int sy_lanes_n_waiting(const struct sy_lanes *l)
{
    return l->n_waiting;
}

bool sy_lanes_draining(const struct sy_lanes *l)
{
    return l->draining;
}

uint64_t sy_lanes_persistent_bytes(const struct sy_lanes *l)
{
    return l->persistent_bytes;
}

uint64_t sy_lanes_ephemeral_bytes(const struct sy_lanes *l)
{
    return l->ephemeral_bytes;
}

struct sy_lanes_counts sy_lanes_counts(const struct sy_lanes *l)
{
    return l->counts;
}

/* Training jobs: one after the other, each on a worker of its own, held while requests compute. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

#define MAX_DEATHS 3 /* of workers, in a row, without one finished iteration */

static bool on_worker(const struct job *j)
{
    return j && (j->state == JOB_STARTING || j->state == JOB_RUNNING);
}

bool sy_sched_training_still(const struct sy_sched *s)
{
    return !on_worker(s->jobs) || (s->jobs->preempted && s->jobs->still);
}

bool sy_sched_training_runs(const struct sy_sched *s)
{
    return !sy_sched_training_still(s);
}

static struct sy_sched_action *act_job(struct sy_sched *s, enum sy_sched_kind kind,
                                       const struct job *j)
{
    struct sy_sched_action *a = sy_sched_act(s, kind);
    a->worker = j->worker;
    a->job = j->id;
    return a;
}

bool sy_sched_hold_training(struct sy_sched *s, bool hold)
{
    struct job *j = s->jobs;
    if (!on_worker(j) || j->preempted == hold)
        return false;
    j->preempted = hold;
    j->still = false;
    act_job(s, hold ? SY_DO_PREEMPT : SY_DO_RESUME, j);
    return hold;
}

static void free_memory(struct sy_sched *s, struct job *j)
{
    if (!j->has_memory)
        return;
    sy_pool_give(s->pool, j->persistent_offset);
    sy_pool_give(s->pool, j->ephemeral_offset);
    j->has_memory = false;
}

static void remove_job(struct sy_sched *s, struct job *j)
{
    struct job **at = &s->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    free_memory(s, j);
    free(j);
}

static int take_block(struct sy_sched *s, uint64_t bytes, uint64_t *offset)
{
    SY_TRY(sy_residency_make_room(s->pool_residency, bytes));
    return sy_pool_take(s->pool, bytes, true, offset);
}

static int take_memory(struct sy_sched *s, struct job *j)
{
    SY_TRY(take_block(s, j->persistent_bytes, &j->persistent_offset));
    int status = take_block(s, j->ephemeral_bytes, &j->ephemeral_offset);
    if (status < 0)
        sy_pool_give(s->pool, j->persistent_offset);
    else
        j->has_memory = true;
    return status;
}

static uint64_t bytes_of(const struct job *j)
{
    return SY_ALIGN_UP(j->persistent_bytes, SY_POOL_ALIGN) +
           SY_ALIGN_UP(j->ephemeral_bytes, SY_POOL_ALIGN);
}

uint64_t sy_sched_job_bytes(const struct sy_sched *s)
{
    uint64_t sum = 0;
    for (const struct job *j = s->jobs; j; j = j->next)
        sum += j->has_memory ? bytes_of(j) : 0;
    return sum;
}

/* EBUSY: later. The workspace lane gives way once: it comes back with the next request. */
static int admit(struct sy_sched *s, struct job *j)
{
    if (j->has_memory)
        return SY_OK;
    uint64_t capacity = sy_pool_capacity_bytes(s->pool);
    if (j->persistent_bytes > capacity || j->ephemeral_bytes > capacity ||
        sy_sched_job_bytes(s) + bytes_of(j) + sy_sched_least_room(s) > capacity)
        return SY_ENOMEM_DEVICE; /* the caller says with which numbers */
    int status = take_memory(s, j);
    if (status != SY_ENOMEM_DEVICE)
        return status;
    if (s->active || s->next)
        return SY_EBUSY;
    if (s->lane_bytes == 0)
        return status;
    sy_pool_give(s->pool, s->lane_offset);
    s->lane_bytes = 0;
    return take_memory(s, j);
}

static void refuse(struct sy_sched *s, struct job *j, int status, const char *why)
{
    struct sy_sched_action *a = act_job(s, SY_DO_JOB_REFUSE, j);
    a->status = status;
    snprintf(a->why, sizeof a->why, "%s", why);
}

static void start_job(struct sy_sched *s, struct job *j)
{
    bool later =
        j->stop_wanted || sy_sched_computing(s) >= 0; /* S1: a start computes until it is held */
    int status = later ? SY_EBUSY : admit(s, j);
    if (status == SY_EBUSY)
        return;
    if (status < 0) {
        char why[256];
        snprintf(why, sizeof why,
                 "the job needs %llu bytes that last and %llu for an iteration, the loaded models "
                 "at least %llu; "
                 "the pool has %llu; make it larger (--pool-bytes) or the job's batch smaller",
                 (unsigned long long)j->persistent_bytes, (unsigned long long)j->ephemeral_bytes,
                 (unsigned long long)sy_sched_least_room(s),
                 (unsigned long long)sy_pool_capacity_bytes(s->pool));
        refuse(s, j, status, why);
        act_job(s, SY_DO_JOB_STOP, j); /* the worker forgets it and says so by JOB_ENDED */
        j->stop_wanted = true;
        return;
    }
    struct sy_sched_action *a = act_job(s, SY_DO_JOB_START, j);
    a->persistent_offset = j->persistent_offset;
    a->ephemeral_offset = j->ephemeral_offset;
    a->in_memory = j->in_memory;
    j->state = JOB_STARTING;
    j->preempted = j->still = false;
    sy_sched_hold_training(s, s->active != NULL);
}

/* The last worker is left to requests. */
static int worker_for_job(const struct sy_sched *s)
{
    int n = 0;
    for (int w = 0; w < s->config.n_workers; w++)
        n += s->workers[w] != WORKER_GONE;
    return n >= 2 ? sy_sched_idle_worker(s) : -1;
}

void sy_sched_step_job(struct sy_sched *s)
{
    struct job *j = s->jobs;
    if (!j)
        return;
    if (j->state == JOB_QUEUED && (j->worker = worker_for_job(s)) >= 0) {
        s->workers[j->worker] = WORKER_JOB;
        j->state = JOB_PREPARING;
        act_job(s, SY_DO_JOB_PREPARE, j);
    } else if (j->state == JOB_PREPARED) {
        start_job(s, j);
    }
}

int sy_sched_job_submit(struct sy_sched *s, uint64_t id)
{
    struct job **at = &s->jobs, *j = calloc(1, sizeof *j);
    if (!j)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    j->id = id;
    j->worker = -1;
    while (*at)
        at = &(*at)->next;
    *at = j;
    sy_sched_step(s);
    return SY_OK;
}

static int find_job(struct sy_sched *s, int worker, uint64_t id, struct job **out)
{
    if (!s->jobs || s->jobs->id != id || s->jobs->worker != worker || s->jobs->state == JOB_QUEUED)
        return sy_error_set(SY_EPROTO, "worker %d speaks of job %llu, which it does not have",
                            worker, (unsigned long long)id);
    *out = s->jobs;
    return SY_OK;
}

int sy_sched_job_prepared(struct sy_sched *s, int worker, uint64_t id, uint64_t persistent_bytes,
                          uint64_t ephemeral_bytes)
{
    struct job *j;
    SY_TRY(find_job(s, worker, id, &j));
    if (j->state != JOB_PREPARING || persistent_bytes == 0 || ephemeral_bytes == 0 ||
        (j->has_memory &&
         (persistent_bytes > j->persistent_bytes || ephemeral_bytes > j->ephemeral_bytes)))
        return sy_error_set(SY_EPROTO,
                            "job %llu: JOB_PREPARED out of turn, or of other sizes than before",
                            (unsigned long long)id);
    if (!j->has_memory) {
        j->persistent_bytes = persistent_bytes;
        j->ephemeral_bytes = ephemeral_bytes;
    }
    j->state = JOB_PREPARED;
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_started(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(find_job(s, worker, id, &j));
    if (j->state != JOB_STARTING)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_STARTED out of turn", (unsigned long long)id);
    j->state = JOB_RUNNING;
    if (j->stop_wanted)
        act_job(s, SY_DO_JOB_STOP, j);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_paused(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(find_job(s, worker, id, &j));
    if (!on_worker(j))
        return sy_error_set(SY_EPROTO, "job %llu: JOB_PAUSED out of turn", (unsigned long long)id);
    j->still = j->preempted;
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_stop(struct sy_sched *s, uint64_t id)
{
    struct job *j = s->jobs;
    while (j && j->id != id)
        j = j->next;
    if (!j || j->state == JOB_QUEUED) {
        if (j)
            remove_job(s, j);
        sy_sched_step(s);
        return sy_error_set(SY_EBUSY, "job %llu is on no worker", (unsigned long long)id);
    }
    if (!j->stop_wanted)
        act_job(s, SY_DO_JOB_STOP, j);
    j->stop_wanted = true;
    return SY_OK;
}

int sy_sched_job_ended(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(find_job(s, worker, id, &j));
    if (j->preempted)
        act_job(s, SY_DO_RESUME, j); /* the worker's next job shall not find an odd epoch */
    s->workers[worker] = WORKER_IDLE;
    remove_job(s, j);
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_job_lost(struct sy_sched *s, int worker, bool state_intact, bool progressed,
                       const char *why)
{
    struct job *j = s->jobs;
    if (!j || j->state == JOB_QUEUED || j->worker != worker)
        return;
    j->in_memory = j->has_memory && on_worker(j) && state_intact;
    j->state = JOB_QUEUED;
    j->worker = -1;
    j->preempted = j->still = false;
    j->deaths = progressed ? 1 : j->deaths + 1;
    if (j->deaths < MAX_DEATHS && !j->stop_wanted)
        return; /* S6 */
    refuse(s, j, SY_EPEER, why);
    remove_job(s, j);
}

/* ---- looking ---------------------------------------------------------------------------------- */

int sy_sched_n_waiting(const struct sy_sched *s)
{
    return s->n_waiting;
}

int sy_sched_n_started(const struct sy_sched *s)
{
    return (s->active != NULL) + (s->next != NULL);
}

int sy_sched_computing(const struct sy_sched *s)
{
    return s->active && s->active->run_sent && !s->active->worker_through ? s->active->worker : -1;
}

const struct sy_pool *sy_sched_pool(const struct sy_sched *s)
{
    return s->pool;
}

const struct sy_pool *sy_sched_image(const struct sy_sched *s)
{
    return s->image;
}

const struct sy_residency *sy_sched_residency(const struct sy_sched *s)
{
    return s->pool_residency;
}

uint64_t sy_sched_n_evicted(const struct sy_sched *s)
{
    return sy_residency_n_evicted(s->pool_residency);
}

static bool queue_is_valid(const struct sy_sched *s)
{
    int n = 0;
    const struct request *last = NULL;
    for (const struct request *r = s->first; r; r = r->next) {
        if (r->ended || r->pool_pinned || r->image_pinned || r->run_sent)
            return false;
        last = r;
        n++;
    }
    return n == s->n_waiting && last == s->last;
}

bool sy_sched_is_valid(const struct sy_sched *s)
{
    if (s->next && (!s->active || s->next->run_sent || s->next->worker == s->active->worker))
        return false;
    if (sy_sched_computing(s) >= 0 && !sy_sched_training_still(s))
        return false;
    if (s->active && !s->active->pool_pinned)
        return false;
    return queue_is_valid(s) && sy_residency_is_valid(s->pool_residency) &&
           (!s->image_residency || sy_residency_is_valid(s->image_residency));
}

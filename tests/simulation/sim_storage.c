/* In the place of the reader's thread (Y1 to Y5): jobs end after a drawn time, in a drawn order, and may fail. */
#include "runtime/core/storage/storage_thread.h"

#include <event2/event.h>
#include <stdlib.h>

#include "runtime/base/status.h"
#include "tests/simulation/sim_world.h"

struct sy_storage_thread {
    void (*done)(void *ctx, const struct sy_storage_job *job);
    void *ctx;
    struct event *event;
    int n_jobs;
    struct sy_storage_job *jobs; /* end_ns: when it ends, or looks again */
};

static struct sy_storage_thread *reader;

void sy_storage_job_free(struct sy_storage_job *job)
{
    if (job)
        free(job->groups);
    free(job);
}

static bool may_overwrite(const struct sy_storage_job *job, const struct sy_storage_group *g)
{
    uint64_t progress = atomic_load(&job->page->run_progress);
    return g->after_group < 0 ||
           (progress >> 16 == job->run && (int32_t)(progress & 0xffff) > g->after_group);
}

static void read_group(struct sy_storage_job *job, struct sy_storage_group *g)
{
    bool fails = !sim.calm && sim.fault_one_in && sim_draw(sim.fault_one_in * 40) == 0;
    if (fails && job->status == SY_OK) {
        job->status = SY_EIO;
        snprintf(job->error, sizeof job->error, "the storage fails");
        sim_say("storage: run %llu fails", (unsigned long long)job->run);
    }
    if (fails) {
        atomic_store(g->arrival, SY_ARRIVAL_FAILED);
        return;
    }
    if (job->pool)
        sy_pool_touch(job->pool, g->pool_offset, g->bytes);
    *(uint64_t *)g->to = sim_group_mark(job->model, g->group);
    job->bytes += g->bytes;
    atomic_store(g->arrival, SY_ARRIVAL_HERE);
}

/* One group, or the end. True: it is over. */
static bool advance(struct sy_storage_job *job)
{
    bool canceled = atomic_load(&job->cancel);
    struct sy_storage_group *g = &job->groups[job->at_group];
    if (!canceled && job->at_group < job->n_groups && !may_overwrite(job, g))
        return false;
    if (!canceled && job->at_group < job->n_groups) {
        read_group(job, g);
        job->at_group++;
    }
    if (!canceled && job->at_group < job->n_groups)
        return false;
    if (canceled && job->status == SY_OK)
        job->status = SY_ECANCELED;
    for (int i = 0; i < job->n_groups; i++)
        if (atomic_load(job->groups[i].arrival) == SY_ARRIVAL_COMING)
            atomic_store(job->groups[i].arrival, SY_ARRIVAL_FAILED);
    return true;
}

static struct sy_storage_job **next_job(void)
{
    struct sy_storage_job **first = NULL;
    for (struct sy_storage_job **at = reader ? &reader->jobs : NULL; at && *at; at = &(*at)->next)
        if (!first || (*at)->end_ns < (*first)->end_ns)
            first = at;
    return first;
}

sy_ns sim_storage_next(void)
{
    struct sy_storage_job **job = next_job();
    return job ? (*job)->end_ns : SIM_NEVER;
}

void sim_storage_happen(void)
{
    event_active(reader->event, EV_READ, 0);
}

static void on_time(int fd, short what, void *thread)
{
    struct sy_storage_thread *t = thread;
    struct sy_storage_job **at = next_job();
    (void)fd;
    (void)what;
    if (!at || (*at)->end_ns > sim_os_now())
        return;
    struct sy_storage_job *job = *at;
    job->end_ns = sim_os_now() + sim_time(30 * SY_NS_PER_US);
    if (!advance(job))
        return;
    *at = job->next;
    t->n_jobs--;
    t->done(t->ctx, job);
    sy_storage_job_free(job);
}

int sy_storage_thread_create(struct event_base *base,
                             void (*done)(void *ctx, const struct sy_storage_job *job), void *ctx,
                             struct sy_storage_thread **out)
{
    struct sy_storage_thread *t = calloc(1, sizeof *t);
    if (!t)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the simulated storage");
    *t = (struct sy_storage_thread){.done = done, .ctx = ctx};
    t->event = event_new(base, -1, 0, on_time, t);
    *out = reader = t;
    return SY_OK;
}

void sy_storage_thread_destroy(struct sy_storage_thread *t)
{
    while (t && t->jobs) {
        struct sy_storage_job *next = t->jobs->next;
        sy_storage_job_free(t->jobs);
        t->jobs = next;
    }
    if (t)
        event_free(t->event);
    free(t);
    reader = NULL;
}

int sy_storage_thread_add(struct sy_storage_thread *t, struct sy_storage_job *job)
{
    if (t->n_jobs >= SY_STORAGE_MAX_JOBS)
        return sy_error_set(SY_EBUSY, "%d reads are waiting already", t->n_jobs);
    t->n_jobs++;
    job->start_ns = sim_os_now();
    job->end_ns = job->start_ns + sim_time(60 * SY_NS_PER_US);
    job->next = t->jobs;
    t->jobs = job;
    return SY_OK;
}

void sy_storage_thread_promote(struct sy_storage_thread *t, uint64_t run)
{
    for (struct sy_storage_job *job = t->jobs; job; job = job->next)
        if (job->run == run)
            job->urgent = true;
}

void sy_storage_thread_cancel(struct sy_storage_thread *t, uint64_t run)
{
    for (struct sy_storage_job *job = t->jobs; job; job = job->next)
        if (job->run == run)
            atomic_store(&job->cancel, true);
}

void sy_storage_thread_arrived(struct sy_storage_thread *t)
{
    (void)t;
}

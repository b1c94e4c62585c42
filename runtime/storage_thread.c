#include "runtime/storage_thread.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loader/storage.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

struct sy_storage_thread {
    void (*done)(void *ctx, const struct sy_storage_job *job);
    void *ctx;
    struct sy_storage_reader *reader; /* the thread's alone */
    int event_fd;
    struct event *event;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    int n_jobs;                                     /* waiting or being read */
    struct sy_storage_job *first, *current, *ready; /* waiting; being read; read */
};

void sy_storage_job_free(struct sy_storage_job *job)
{
    if (!job)
        return;
    free(job->groups);
    free(job);
}

static void append(struct sy_storage_job **list, struct sy_storage_job *job)
{
    while (*list)
        list = &(*list)->next;
    job->next = NULL;
    *list = job;
}

/* ---- the thread ------------------------------------------------------------------------------- */

static void set_word(struct sy_storage_group *g, uint32_t value)
{
    atomic_store_explicit(g->arrival, value, memory_order_release);
    sy_futex_wake(g->arrival);
}

static void note_failure(struct sy_storage_job *job, int status)
{
    if (job->status < 0)
        return;
    job->status = status;
    snprintf(job->error, sizeof job->error, "%s", sy_error_text());
}

static int group_ready(void *ctx, int range)
{
    struct sy_storage_job *job = ctx;
    if (atomic_load_explicit(&job->cancel, memory_order_relaxed))
        return sy_error_set(SY_ECANCELED, "the run is over");
    int32_t after = job->groups[range].after_group;
    if (after < 0)
        return 1;
    uint64_t progress = atomic_load_explicit(&job->page->run_progress, memory_order_acquire);
    return progress >> 16 == job->run && (int32_t)(progress & 0xffff) > after;
}

static void group_done(void *ctx, int range, int status)
{
    struct sy_storage_job *job = ctx;
    struct sy_storage_group *g = &job->groups[range];
    if (status == SY_OK)
        status = sy_package_verify(job->package, g->first_layer, g->n_layers, g->to);
    if (status < 0)
        note_failure(job, status);
    else
        job->bytes += g->bytes;
    set_word(g, status < 0 ? SY_ARRIVAL_FAILED : SY_ARRIVAL_HERE);
}

static int read_groups(struct sy_storage_thread *t, struct sy_storage_job *job)
{
    struct sy_storage_result result = {0};
    struct sy_storage_callbacks callbacks = {.ready = group_ready, .done = group_done, .ctx = job};
    struct sy_storage_range *ranges = calloc((size_t)job->n_groups + 1, sizeof *ranges);
    if (!ranges)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to read %d groups", job->n_groups);
    for (int i = 0; i < job->n_groups; i++)
        ranges[i] = (struct sy_storage_range){.file_offset = job->groups[i].file_offset,
                                              .bytes = job->groups[i].bytes,
                                              .to = job->groups[i].to};
    int status =
        sy_storage_read(t->reader, job->package->path, ranges, job->n_groups, &callbacks, &result);
    free(ranges);
    return status;
}

static void run_job(struct sy_storage_thread *t, struct sy_storage_job *job)
{
    job->start_ns = sy_clock_now();
    int status = read_groups(t, job);
    if (status < 0)
        note_failure(job, status);
    job->end_ns = sy_clock_now();
    for (int i = 0; i < job->n_groups; i++) /* Y1 */
        if (atomic_load_explicit(job->groups[i].arrival, memory_order_relaxed) == SY_ARRIVAL_COMING)
            set_word(&job->groups[i], SY_ARRIVAL_FAILED);
}

static void *run_thread(void *thread)
{
    struct sy_storage_thread *t = thread;
    uint64_t one = 1;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (!t->first) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        struct sy_storage_job *job = t->current = t->first;
        t->first = job->next;
        pthread_mutex_unlock(&t->lock);
        run_job(t, job);
        pthread_mutex_lock(&t->lock);
        t->current = NULL;
        t->n_jobs--;
        append(&t->ready, job);
        if (write(t->event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
            sy_log_error("storage", "event=wake_failed why=\"%s\"", strerror(errno));
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- the loop's side -------------------------------------------------------------------------- */

static void on_done(int fd, short what, void *thread)
{
    struct sy_storage_thread *t = thread;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN)
        sy_log_error("storage", "event=eventfd_failed why=\"%s\"", strerror(errno));
    pthread_mutex_lock(&t->lock);
    struct sy_storage_job *job = t->ready;
    t->ready = NULL;
    pthread_mutex_unlock(&t->lock);
    while (job) {
        struct sy_storage_job *next = job->next;
        t->done(t->ctx, job);
        sy_storage_job_free(job);
        job = next;
    }
}

/* The thread takes no signals: they are the loop's. */
static int start_thread(struct sy_storage_thread *t)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run_thread, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start the storage thread: %s", strerror(error));
    t->has_thread = true;
    return SY_OK;
}

int sy_storage_thread_create(struct event_base *base,
                             void (*done)(void *ctx, const struct sy_storage_job *job), void *ctx,
                             struct sy_storage_thread **out)
{
    int status = SY_OK;
    struct sy_storage_thread *t = calloc(1, sizeof *t);
    if (!t)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the storage thread");
    t->done = done;
    t->ctx = ctx;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->event_fd >= 0)
        t->event = event_new(base, t->event_fd, EV_READ | EV_PERSIST, on_done, t);
    if (!t->event || event_add(t->event, NULL) < 0)
        status = sy_error_set(SY_ENOMEM_HOST, "no event for the storage thread");
    if (status == SY_OK)
        status = sy_storage_reader_create(0, 0, &t->reader);
    if (status == SY_OK)
        status = start_thread(t);
    if (status < 0) {
        sy_storage_thread_destroy(t);
        return status;
    }
    *out = t;
    return SY_OK;
}

static void free_list(struct sy_storage_job *job)
{
    while (job) {
        struct sy_storage_job *next = job->next;
        sy_storage_job_free(job);
        job = next;
    }
}

void sy_storage_thread_destroy(struct sy_storage_thread *t)
{
    if (!t)
        return;
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        if (t->current)
            atomic_store(&t->current->cancel, true);
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    if (t->event)
        event_free(t->event);
    if (t->event_fd >= 0)
        close(t->event_fd);
    free_list(t->first);
    free_list(t->ready);
    sy_storage_reader_destroy(t->reader);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

int sy_storage_thread_add(struct sy_storage_thread *t, struct sy_storage_job *job)
{
    int status = SY_OK;
    pthread_mutex_lock(&t->lock);
    if (t->n_jobs >= SY_STORAGE_MAX_JOBS) {
        status = sy_error_set(SY_EBUSY, "%d reads are waiting already", t->n_jobs);
    } else {
        t->n_jobs++;
        append(&t->first, job);
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

void sy_storage_thread_cancel(struct sy_storage_thread *t, uint64_t run)
{
    pthread_mutex_lock(&t->lock);
    if (t->current && t->current->run == run)
        atomic_store_explicit(&t->current->cancel, true, memory_order_relaxed);
    for (struct sy_storage_job *job = t->first; job; job = job->next)
        if (job->run == run)
            atomic_store_explicit(&job->cancel, true, memory_order_relaxed);
    pthread_mutex_unlock(&t->lock);
}

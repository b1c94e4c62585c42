#include "runtime/core/storage/storage_thread.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_cores.h"
#include "runtime/base/thread_start.h"
#include "runtime/device/device.h"
#include "runtime/wire/link_turn.h"

#define STORAGE_ALIGN 4096 /* alignment of offsets and lengths that the reader requires */

struct sy_storage_thread {
    void (*done)(void *ctx, const struct sy_storage_job *job);
    void *ctx;
    struct sy_storage_reader *reader; /* used by the thread only */
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

/* One call of the reader: ranges of consecutive groups; the first and last may be partial. */
struct piece {
    struct sy_storage_job *job;
    struct sy_storage_range *ranges;
    int first, n;        /* groups */
    uint64_t last_bytes; /* bytes of the last group up to this piece's end */
};

/* Y3 */
static bool may_overwrite(const struct sy_storage_job *job, int32_t after)
{
    if (after < 0)
        return true;
    uint64_t progress = atomic_load_explicit(&job->page->run_progress, memory_order_acquire);
    return progress >> 16 == job->run && (int32_t)(progress & 0xffff) > after;
}

static int group_ready(void *ctx, int range)
{
    const struct piece *piece = ctx;
    struct sy_storage_job *job = piece->job;
    if (atomic_load_explicit(&job->cancel, memory_order_relaxed))
        return sy_error_set(SY_ECANCELED, "the run is over");
    const struct sy_storage_group *g = &job->groups[piece->first + range];
    if (!may_overwrite(job, g->after_group))
        return 0;
    if (job->pool)
        sy_pool_touch(job->pool, g->pool_offset, g->bytes);
    return 1;
}

static void group_done(void *ctx, int range, int status)
{
    const struct piece *piece = ctx;
    struct sy_storage_job *job = piece->job;
    struct sy_storage_group *g = &job->groups[piece->first + range];
    bool whole = range < piece->n - 1 || piece->last_bytes == g->bytes;
    if (status == SY_OK && !whole)
        return;
    if (status == SY_OK)
        status = sy_package_verify(job->package, g->first_layer, g->n_layers, g->to);
    if (status < 0)
        note_failure(job, status);
    else
        job->bytes += g->bytes;
    set_word(g, status < 0 ? SY_ARRIVAL_FAILED : SY_ARRIVAL_HERE);
}

/* Y5: readable bytes of the job's next group from its position on, given the arrival. */
static uint64_t bytes_there(const struct sy_storage_job *job, int group, uint64_t skip)
{
    const struct sy_storage_group *g = &job->groups[group];
    uint64_t end = sy_arrival_bytes(job->package->arrival), at = g->file_offset + skip;
    uint64_t there = end > at ? (end - at) / STORAGE_ALIGN * STORAGE_ALIGN : 0;
    return SY_MIN(g->bytes - skip, there);
}

/* Collects ranges from the job's position on, within `budget` bytes and as far as bytes have arrived. */
static void cut_piece(struct piece *piece, uint64_t budget)
{
    const struct sy_storage_job *job = piece->job;
    uint64_t skip = job->at_bytes;
    piece->first = job->at_group;
    for (int i = job->at_group; i < job->n_to_read && budget > 0; i++) {
        const struct sy_storage_group *g = &job->groups[i];
        uint64_t there = bytes_there(job, i, skip), bytes = SY_MIN(there, budget);
        if (bytes == 0)
            break;
        piece->ranges[piece->n++] = (struct sy_storage_range){
            .file_offset = g->file_offset + skip, .bytes = bytes, .to = (char *)g->to + skip};
        piece->last_bytes = skip + bytes;
        budget -= bytes;
        if (bytes < g->bytes - skip)
            break;
        skip = 0;
    }
}

static void advance(struct sy_storage_job *job, const struct piece *piece)
{
    int last = piece->first + piece->n - 1;
    bool whole = piece->last_bytes == job->groups[last].bytes;
    job->at_group = whole ? last + 1 : last;
    job->at_bytes = whole ? 0 : piece->last_bytes;
}

static int read_piece(struct sy_storage_thread *t, struct sy_storage_job *job, uint64_t budget)
{
    struct sy_storage_result result = {0};
    struct piece piece = {.job = job};
    struct sy_storage_callbacks callbacks = {
        .ready = group_ready, .done = group_done, .ctx = &piece};
    piece.ranges = calloc((size_t)job->n_to_read + 1, sizeof *piece.ranges);
    SY_TRY_ALLOC(piece.ranges, "no memory to read %d groups", job->n_to_read);
    cut_piece(&piece, budget);
    int status = piece.n == 0
                     ? SY_OK
                     : sy_storage_read_file(t->reader, job->package->fd, job->package->path,
                                            piece.ranges, piece.n, &callbacks, &result);
    if (status == SY_OK && piece.n > 0)
        advance(job, &piece);
    free(piece.ranges);
    return status;
}

/* Verifies the next group that may be in place already; one that is not is moved forward, to be read. */
static void verify_kept(struct sy_storage_job *job)
{
    struct sy_storage_group *g = &job->groups[job->n_verified++], moved = *g;
    if (g->is_kept &&
        sy_package_verify(job->package, g->first_layer, g->n_layers, g->to) == SY_OK) {
        job->kept_bytes += g->bytes;
        set_word(g, SY_ARRIVAL_HERE);
        return;
    }
    *g = job->groups[job->n_to_read];
    job->groups[job->n_to_read++] = moved;
}

/* False: a more urgent job may go first (Y4). */
static bool verify_all(struct sy_storage_job *job)
{
    while (job->n_verified < job->n_groups &&
           !atomic_load_explicit(&job->cancel, memory_order_relaxed)) {
        bool was_hashed = job->groups[job->n_verified].is_kept;
        verify_kept(job);
        if (was_hashed && !job->urgent)
            return false;
    }
    return true;
}

/* Y5. A canceled job, or one whose arrival has failed, must reach its end. */
static bool can_go_on(const struct sy_storage_job *job)
{
    const struct sy_package_arrival *arrival = job->package->arrival;
    bool is_verified = job->n_verified == job->n_groups;
    return !arrival || !is_verified || job->at_group >= job->n_to_read ||
           atomic_load_explicit(&job->cancel, memory_order_relaxed) ||
           sy_arrival_state(arrival) == SY_ARRIVAL_IS_FAILED ||
           bytes_there(job, job->at_group, job->at_bytes) > 0;
}

static int check_arrival(const struct sy_storage_job *job)
{
    const struct sy_package_arrival *arrival = job->package->arrival;
    if (atomic_load_explicit(&job->cancel, memory_order_relaxed))
        return sy_error_set(SY_ECANCELED, "the run is over");
    if (arrival && sy_arrival_state(arrival) == SY_ARRIVAL_IS_FAILED)
        return sy_error_set(SY_EIO, "%s", arrival->why);
    return SY_OK;
}

/* True: the job has ended. */
static bool run_job(struct sy_storage_thread *t, struct sy_storage_job *job, uint64_t budget)
{
    job->start_ns = job->start_ns ? job->start_ns : sy_clock_now();
    int status = check_arrival(job);
    if (status == SY_OK && !verify_all(job))
        return false;
    if (status == SY_OK)
        status = read_piece(t, job, budget);
    if (status < 0)
        note_failure(job, status);
    job->end_ns = sy_clock_now();
    if (job->status == SY_OK && job->at_group < job->n_to_read)
        return false;
    for (int i = 0; i < job->n_groups; i++) /* Y1 */
        if (atomic_load_explicit(job->groups[i].arrival, memory_order_relaxed) == SY_ARRIVAL_COMING)
            set_word(&job->groups[i], SY_ARRIVAL_FAILED);
    return true;
}

static enum sy_link_class class_of(const struct sy_storage_job *job)
{
    return job->urgent ? SY_LINK_URGENT : SY_LINK_PREFETCH;
}

/* Y4. Removes the next job from the list and sets how many bytes it may read; NULL: all jobs wait for bytes to arrive. Called with the lock held. */
static struct sy_storage_job *take_turn(struct sy_storage_thread *t, uint64_t *budget)
{
    enum sy_link_class highest = SY_LINK_NONE;
    sy_ns now = sy_clock_now();
    for (const struct sy_storage_job *job = t->first; job; job = job->next)
        if (can_go_on(job))
            highest = SY_MAX(highest, class_of(job));
    for (struct sy_storage_job **at = &t->first; *at; at = &(*at)->next) {
        struct sy_storage_job *job = *at;
        *budget = can_go_on(job)
                      ? sy_link_turn(class_of(job), highest, UINT64_MAX, now - job->waits_since_ns)
                      : 0;
        if (*budget == 0)
            continue;
        *at = job->next;
        return job;
    }
    return NULL;
}

static void *run_thread(void *thread)
{
    struct sy_storage_thread *t = thread;
    uint64_t one = 1;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        uint64_t budget;
        struct sy_storage_job *job = t->current = take_turn(t, &budget);
        if (!job) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        bool over = run_job(t, job, budget);
        pthread_mutex_lock(&t->lock);
        t->current = NULL;
        job->waits_since_ns = sy_clock_now();
        if (!over) { /* at the front: it was the first of its class */
            job->next = t->first;
            t->first = job;
            continue;
        }
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

static int start_thread(struct sy_storage_thread *t)
{
    sy_thread_cores_widen();
    int error = sy_thread_start(&t->thread, run_thread, t);
    sy_thread_cores_narrow();
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
    SY_TRY_ALLOC(t, "no memory for the storage thread");
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
        job->waits_since_ns = sy_clock_now();
        append(&t->first, job);
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

void sy_storage_thread_promote(struct sy_storage_thread *t, uint64_t run)
{
    pthread_mutex_lock(&t->lock);
    if (t->current && t->current->run == run)
        t->current->urgent = true;
    for (struct sy_storage_job *job = t->first; job; job = job->next)
        if (job->run == run)
            job->urgent = true;
    pthread_mutex_unlock(&t->lock);
}

void sy_storage_thread_cancel(struct sy_storage_thread *t, uint64_t run)
{
    pthread_mutex_lock(&t->lock);
    if (t->current && t->current->run == run)
        atomic_store_explicit(&t->current->cancel, true, memory_order_relaxed);
    for (struct sy_storage_job *job = t->first; job; job = job->next)
        if (job->run == run)
            atomic_store_explicit(&job->cancel, true, memory_order_relaxed);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

void sy_storage_thread_arrived(struct sy_storage_thread *t)
{
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

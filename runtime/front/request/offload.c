/* Two queues under one lock: what waits for a thread, and what the loop is to be told. The loop is woken through an eventfd. */
#include "runtime/front/request/offload.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/base/thread_cores.h"

#define MAX_THREADS 16
#define NICENESS    10 /* the loop has priority on a shared core */

struct piece {
    struct piece *next;
    void (*work)(void *ctx);
    void (*done)(void *ctx);
    void *ctx;
};

struct queue {
    struct piece *first, **end;
};

struct sy_offload {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct queue waiting, over; /* under the lock, with n_waiting */
    int n_waiting, most_waiting, n_threads;
    int n_begun;        /* under the lock: `done` was not called yet */
    _Atomic bool stops; /* set under the lock, read by work without it */
    int wake_fd;
    struct event *wake_event;
    pthread_t threads[MAX_THREADS];
};

static void free_block(void *ctx)
{
    free(ctx);
}

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_add(struct queue *queue, struct piece *piece)
{
    piece->next = NULL;
    *queue->end = piece;
    queue->end = &piece->next;
}

static struct piece *queue_take(struct queue *queue)
{
    struct piece *piece = queue->first;

    if (!piece)
        return NULL;
    queue->first = piece->next;
    if (!queue->first)
        queue->end = &queue->first;
    return piece;
}

static void wake_loop(struct sy_offload *offload)
{
    uint64_t one = 1;

    (void)!write(offload->wake_fd, &one,
                 sizeof one); /* fails only while the counter is full: the loop is awake then */
}

/* With the lock held, and again on return. */
static void run_piece(struct sy_offload *offload, struct piece *piece)
{
    offload->n_waiting--;
    pthread_mutex_unlock(&offload->lock);
    piece->work(piece->ctx);
    pthread_mutex_lock(&offload->lock);
    queue_add(&offload->over, piece);
    wake_loop(offload);
}

static void *run_thread(void *ctx)
{
    struct sy_offload *offload = ctx;
    struct piece *piece;

    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS);
    pthread_mutex_lock(&offload->lock);
    while (!offload->stops) {
        piece = queue_take(&offload->waiting);
        if (piece)
            run_piece(offload, piece);
        else
            pthread_cond_wait(&offload->more, &offload->lock);
    }
    pthread_mutex_unlock(&offload->lock);
    return NULL;
}

static struct piece *take_over(struct sy_offload *offload)
{
    pthread_mutex_lock(&offload->lock);
    struct piece *piece = queue_take(&offload->over);
    offload->n_begun -= piece != NULL;
    pthread_mutex_unlock(&offload->lock);
    return piece;
}

static void tell_loop(struct sy_offload *offload)
{
    struct piece *piece;

    while ((piece = take_over(offload))) {
        piece->done(piece->ctx);
        free(piece);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    uint64_t n;

    (void)what;
    (void)!read(fd, &n, sizeof n);
    tell_loop(ctx);
}

static int start_threads(struct sy_offload *offload, int n_threads)
{
    for (; offload->n_threads < n_threads && offload->n_threads < MAX_THREADS;
         offload->n_threads++) {
        sy_thread_cores_widen();
        int error =
            pthread_create(&offload->threads[offload->n_threads], NULL, run_thread, offload);
        sy_thread_cores_narrow();

        if (error)
            return sy_error_set(SY_ENOMEM_HOST, "cannot start a thread: %s", strerror(error));
    }
    return SY_OK;
}

int sy_offload_create(struct event_base *base, int n_threads, int most_waiting,
                      struct sy_offload **out)
{
    struct sy_offload *offload = calloc(1, sizeof *offload);
    int status;

    SY_TRY_ALLOC(offload, "no memory for threads");
    pthread_mutex_init(&offload->lock, NULL);
    pthread_cond_init(&offload->more, NULL);
    queue_init(&offload->waiting);
    queue_init(&offload->over);
    offload->most_waiting = most_waiting;
    offload->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (offload->wake_fd >= 0)
        offload->wake_event =
            event_new(base, offload->wake_fd, EV_READ | EV_PERSIST, on_wake, offload);
    if (!offload->wake_event || event_add(offload->wake_event, NULL)) {
        status = sy_error_set(SY_ENOMEM_HOST, "cannot wake the loop: %s", strerror(errno));
        goto fail;
    }
    SY_TRY_GOTO(start_threads(offload, n_threads), fail);
    *out = offload;
    return SY_OK;
fail:
    sy_offload_destroy(offload);
    return status;
}

void sy_offload_destroy(struct sy_offload *offload)
{
    struct piece *piece;

    if (!offload)
        return;
    pthread_mutex_lock(&offload->lock);
    offload->stops = true;
    pthread_cond_broadcast(&offload->more);
    pthread_mutex_unlock(&offload->lock);
    for (int i = 0; i < offload->n_threads; i++)
        pthread_join(offload->threads[i], NULL);
    while ((piece = queue_take(&offload->waiting))) {
        if (piece->work == free_block)
            piece->work(piece->ctx);
        queue_add(&offload->over, piece);
    }
    tell_loop(offload);
    if (offload->wake_event)
        event_free(offload->wake_event);
    if (offload->wake_fd >= 0)
        close(offload->wake_fd);
    pthread_cond_destroy(&offload->more);
    pthread_mutex_destroy(&offload->lock);
    free(offload);
}

const _Atomic bool *sy_offload_stops(const struct sy_offload *offload)
{
    return &offload->stops;
}

int sy_offload_run(struct sy_offload *offload, void (*work)(void *ctx), void (*done)(void *ctx),
                   void *ctx)
{
    struct piece *piece = malloc(sizeof *piece);
    bool is_full;

    SY_TRY_ALLOC(piece, "no memory for work beside the loop");
    *piece = (struct piece){.work = work, .done = done, .ctx = ctx};
    pthread_mutex_lock(&offload->lock);
    is_full = offload->stops || offload->n_waiting >= offload->most_waiting;
    if (!is_full) {
        queue_add(&offload->waiting, piece);
        offload->n_waiting++;
        offload->n_begun++;
        pthread_cond_signal(&offload->more);
    }
    pthread_mutex_unlock(&offload->lock);
    if (!is_full)
        return SY_OK;
    free(piece);
    return sy_error_set(SY_EBUSY,
                        "%d large bodies wait to be read or written already; try again later",
                        offload->most_waiting);
}

bool sy_offload_is_idle(struct sy_offload *offload)
{
    pthread_mutex_lock(&offload->lock);
    bool idle = offload->n_begun == 0;
    pthread_mutex_unlock(&offload->lock);
    return idle;
}

#define LARGE_BLOCK (1u << 20)

static void no_op(void *ctx)
{
    (void)ctx;
}

void sy_offload_free(struct sy_offload *offload, void *block, size_t bytes)
{
    if (!offload || bytes < LARGE_BLOCK || sy_offload_run(offload, free_block, no_op, block) < 0)
        free(block);
}

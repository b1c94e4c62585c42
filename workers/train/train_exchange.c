#include "workers/train/train_exchange.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define BUCKET_FLOATS \
    (1u << 19) /* 2 MiB: some per cent of a step on one core, and far more than a message costs */

/* Parts [first, first + n) of `order`. */
struct bucket {
    int first, n, ready_step;
};

struct sy_exchange {
    const struct sy_ranks *ranks;
    const struct sy_trainer_ops *ops;
    struct sy_trainer *trainer;
    int n_parts, n_buckets, shared_by;
    int *order; /* of parts: as they are ready */
    struct bucket *buckets;
    float *values, *scratch; /* of the largest bucket; the thread's alone */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    int n_ready, n_done; /* buckets of this iteration */
    int status;
    char error[256];
};

/* ---- the thread ---------------------------------------------------------------------------------- */

static uint64_t copy_out(struct sy_exchange *x, const struct bucket *b)
{
    uint64_t at = 0;
    for (int i = b->first; i < b->first + b->n; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        memcpy(x->values + at, part.values, part.n * sizeof(float));
        at += part.n;
    }
    return at;
}

static void mean_back(struct sy_exchange *x, const struct bucket *b)
{
    float share = 1.0f / (float)x->ranks->n;
    uint64_t at = 0;
    for (int i = b->first; i < b->first + b->n; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        for (uint64_t k = 0; k < part.n; k++)
            part.values[k] = x->values[at + k] * share;
        at += part.n;
    }
}

/* RK4: behind a closed gate at most the bucket under way is added up, 2 MiB or one larger gradient. */
static int exchange_bucket(struct sy_exchange *x, const struct bucket *b)
{
    sy_ranks_enter(x->ranks);
    uint64_t n = copy_out(x, b);
    sy_ranks_leave(x->ranks);
    SY_TRY(x->ranks->ops->sum(x->values, x->scratch, n));
    sy_ranks_enter(x->ranks);
    mean_back(x, b);
    sy_ranks_leave(x->ranks);
    return SY_OK;
}

static void *run_thread(void *exchange)
{
    struct sy_exchange *x = exchange;
    pthread_mutex_lock(&x->lock);
    while (!x->stop) {
        if (x->n_done == x->n_ready || x->status < 0) {
            pthread_cond_wait(&x->changed, &x->lock);
            continue;
        }
        const struct bucket *b = &x->buckets[x->n_done];
        pthread_mutex_unlock(&x->lock);
        int status = exchange_bucket(x, b);
        pthread_mutex_lock(&x->lock);
        x->n_done++;
        x->status = status;
        if (status < 0)
            snprintf(x->error, sizeof x->error, "%s", sy_error_text());
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

static int start_thread(struct sy_exchange *x)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&x->thread, NULL, run_thread, x);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start the thread of the ranks: %s",
                            strerror(error));
    x->has_thread = true;
    return SY_OK;
}

/* ---- the plan ------------------------------------------------------------------------------------ */

static int ready_step(struct sy_exchange *x, int part)
{
    struct sy_shared_part p;
    x->ops->shared_part(x->trainer, part, &p);
    return p.ready_step;
}

/* As they are ready; of one step, by number. At most some hundred: insertion. */
static void put_in_order(struct sy_exchange *x)
{
    for (int i = 0; i < x->n_parts; i++) {
        int at = i;
        for (; at > 0 && ready_step(x, x->order[at - 1]) > ready_step(x, i); at--)
            x->order[at] = x->order[at - 1];
        x->order[at] = i;
    }
}

/* The size of the largest, in floats. */
static uint64_t cut_buckets(struct sy_exchange *x)
{
    uint64_t floats = 0, most = 0;
    for (int i = 0; i < x->n_parts; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        if (x->n_buckets == 0 || floats >= BUCKET_FLOATS) {
            x->buckets[x->n_buckets++] = (struct bucket){.first = i};
            floats = 0;
        }
        struct bucket *b = &x->buckets[x->n_buckets - 1];
        b->n++;
        b->ready_step = part.ready_step;
        floats += part.n;
        most = SY_MAX(most, floats);
    }
    return most;
}

int sy_exchange_create(const struct sy_ranks *ranks, const struct sy_trainer_ops *ops,
                       struct sy_trainer *trainer, struct sy_exchange **out)
{
    if (!ops->n_shared_parts)
        return sy_error_set(SY_EUNSUPPORTED, "the %s engine trains with one rank only", ops->name);
    struct sy_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for ranks");
    *x = (struct sy_exchange){.ranks = ranks, .ops = ops, .trainer = trainer};
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    x->n_parts = ops->n_shared_parts(trainer);
    x->shared_by = ops->shared_by_step(trainer);
    x->order = calloc((size_t)x->n_parts + 1, sizeof *x->order);
    x->buckets = calloc((size_t)x->n_parts + 1, sizeof *x->buckets);
    int status =
        x->order && x->buckets ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for ranks");
    if (status == SY_OK) {
        put_in_order(x);
        uint64_t most = cut_buckets(x) + (uint64_t)ranks->n;
        x->values = malloc(most * sizeof *x->values);
        x->scratch = malloc(2 * most * sizeof *x->scratch);
        if (!x->values || !x->scratch)
            status = sy_error_set(SY_ENOMEM_HOST, "no memory for buckets of %llu floats",
                                  (unsigned long long)most);
    }
    if (status == SY_OK)
        status = start_thread(x);
    if (status < 0) {
        sy_exchange_destroy(x);
        return status;
    }
    *out = x;
    return SY_OK;
}

void sy_exchange_destroy(struct sy_exchange *x)
{
    if (!x)
        return;
    if (x->has_thread) {
        pthread_mutex_lock(&x->lock);
        x->stop = true;
        pthread_cond_broadcast(&x->changed);
        pthread_mutex_unlock(&x->lock);
        pthread_join(x->thread, NULL);
    }
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x->order);
    free(x->buckets);
    free(x->values);
    free(x->scratch);
    free(x);
}

/* ---- the caller's side --------------------------------------------------------------------------- */

void sy_exchange_begin(struct sy_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->n_ready = x->n_done = 0;
    pthread_mutex_unlock(&x->lock);
}

int sy_exchange_before(struct sy_exchange *x, int step)
{
    int status = SY_OK;
    if (step != x->shared_by)
        return SY_OK;
    sy_ranks_leave(x->ranks);
    pthread_mutex_lock(&x->lock);
    while (x->n_done < x->n_buckets && x->status == SY_OK)
        pthread_cond_wait(&x->changed, &x->lock);
    if (x->status < 0)
        status = sy_error_set(x->status, "%s", x->error);
    pthread_mutex_unlock(&x->lock);
    sy_ranks_enter(x->ranks);
    return status;
}

void sy_exchange_after(struct sy_exchange *x, int step)
{
    pthread_mutex_lock(&x->lock);
    int before = x->n_ready;
    while (x->n_ready < x->n_buckets && x->buckets[x->n_ready].ready_step <= step)
        x->n_ready++;
    if (x->n_ready > before)
        pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

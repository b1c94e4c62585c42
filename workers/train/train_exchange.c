#include "workers/train/train_exchange.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_start.h"

/* 2 MiB: some per cent of a step on one core, and far more than a message costs. A device has its own */
#define BUCKET_FLOATS (1u << 19)

/* Parts [first, first + n) of `order`; where they lie among all. */
struct bucket {
    int first, n, ready_step;
    uint64_t at, n_floats;
};

/* The thread's next sum: a bucket, or numbers. */
struct sum {
    uint64_t at, n;  /* floats of `values`, or of the device's staging */
    unsigned mark;   /* behind them, on a device */
    double *numbers; /* NULL: floats */
};

struct sy_exchange {
    const struct sy_ranks *ranks;
    const struct sy_trainer_ops *ops;
    struct sy_trainer *trainer;
    int n_parts, n_buckets, shared_by, n_slots; /* staleness + 1 */
    int *order;                                 /* of parts: as they are ready */
    struct bucket *buckets;
    uint64_t n_floats;                 /* of all buckets */
    float *values;                     /* of each slot, one behind the other; NULL: on a device */
    float *scratch;                    /* as large as the largest bucket; used by the thread only */
    struct sy_device_exchange *device; /* NULL: parts lie in host memory */
    uint64_t iteration, n_agreements;  /* begun */
    int n_ready;                       /* buckets of this iteration */
    uint64_t slot_end[SY_EXCHANGE_STALENESS_MOST + 1]; /* n_done when its sums are there */
    uint64_t agreement_end[SY_EXCHANGE_STALENESS_MOST + 1];
    double numbers[SY_EXCHANGE_STALENESS_MOST + 1][SY_EXCHANGE_NUMBERS];
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sum *sums; /* a ring: what all slots may have under way */
    uint64_t most_sums, n_begun, n_done;
    bool stop;
    int status;
    char error[256];
};

/* ---- the thread ---------------------------------------------------------------------------------- */

static int add_up(struct sy_exchange *x, const struct sum *sum)
{
    if (sum->numbers)
        return x->ranks->ops->sum_doubles(sum->numbers, SY_EXCHANGE_NUMBERS);
    return x->device ? x->ops->exchange->sum(x->device, sum->mark, sum->at, sum->n)
                     : x->ranks->ops->sum(x->values + sum->at, x->scratch, sum->n);
}

static void *run_thread(void *exchange)
{
    struct sy_exchange *x = exchange;
    pthread_mutex_lock(&x->lock);
    while (x->status == SY_OK && !(x->stop && x->n_done == x->n_begun)) {
        if (x->n_done == x->n_begun) {
            pthread_cond_wait(&x->changed, &x->lock);
            continue;
        }
        const struct sum *sum = &x->sums[x->n_done % x->most_sums];
        pthread_mutex_unlock(&x->lock);
        int status = add_up(x, sum);
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
    int error = sy_thread_start(&x->thread, run_thread, x);
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
    uint64_t most = 0, full = x->ops->exchange ? x->ops->exchange->bucket_floats : BUCKET_FLOATS;
    for (int i = 0; i < x->n_parts; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        if (x->n_buckets == 0 || x->buckets[x->n_buckets - 1].n_floats >= full)
            x->buckets[x->n_buckets++] = (struct bucket){.first = i, .at = x->n_floats};
        struct bucket *b = &x->buckets[x->n_buckets - 1];
        b->n++;
        b->ready_step = part.ready_step;
        b->n_floats += part.n;
        x->n_floats += part.n;
        most = SY_MAX(most, b->n_floats);
    }
    return most;
}

static int take_host(struct sy_exchange *x, uint64_t most)
{
    uint64_t floats = (x->n_floats + 1) * (uint64_t)x->n_slots,
             room = 2 * (most + (uint64_t)x->ranks->n);
    x->values = malloc(floats * sizeof *x->values);
    x->scratch = malloc(room * sizeof *x->scratch);
    return x->values && x->scratch
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "no memory for ranks: %llu floats",
                              (unsigned long long)(floats + room));
}

static int open_device(struct sy_exchange *x, enum sy_exchange_way way, uint64_t most)
{
    const struct sy_ranks_ops *ranks = x->ranks->ops;
    struct sy_device_exchange_want want = {
        .wire = {x->ranks->rank, x->ranks->n, ranks->sum, ranks->sum_doubles, ranks->share},
        .way = way,
        .n_floats = x->n_floats * (uint64_t)x->n_slots,
        .most_floats = most,
        .n_marks = (unsigned)(x->n_slots * x->n_buckets)};
    return x->ops->exchange->open(&want, &x->device);
}

static int make_plan(struct sy_exchange *x, enum sy_exchange_way way)
{
    x->order = calloc((size_t)x->n_parts + 1, sizeof *x->order);
    x->buckets = calloc((size_t)x->n_parts + 1, sizeof *x->buckets);
    if (!x->order || !x->buckets)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for ranks");
    put_in_order(x);
    uint64_t most = cut_buckets(x);
    x->most_sums = (uint64_t)x->n_slots * ((uint64_t)x->n_buckets + 1);
    x->sums = calloc(x->most_sums, sizeof *x->sums);
    if (!x->sums)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for ranks");
    return x->ops->exchange ? open_device(x, way, most) : take_host(x, most);
}

uint64_t sy_exchange_bytes(int staleness, const struct sy_trainer_ops *ops,
                           const struct sy_trainer *trainer)
{
    uint64_t n = 0;
    for (int i = 0; ops->n_shared_parts && i < ops->n_shared_parts(trainer); i++) {
        struct sy_shared_part part;
        ops->shared_part(trainer, i, &part);
        n += part.n;
    }
    return n * sizeof(float) * ((uint64_t)staleness + 1);
}

int sy_exchange_create(const struct sy_ranks *ranks, int staleness, enum sy_exchange_way way,
                       const struct sy_trainer_ops *ops, struct sy_trainer *trainer,
                       struct sy_exchange **out)
{
    assert(staleness >= 0 && staleness <= SY_EXCHANGE_STALENESS_MOST);
    if (!ops->n_shared_parts)
        return sy_error_set(SY_EUNSUPPORTED, "the %s engine trains with one rank only", ops->name);
    struct sy_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for ranks");
    *x = (struct sy_exchange){
        .ranks = ranks, .ops = ops, .trainer = trainer, .n_slots = staleness + 1};
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    x->n_parts = ops->n_shared_parts(trainer);
    x->shared_by = ops->shared_by_step(trainer);
    int status = make_plan(x, way);
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
    if (x->device)
        x->ops->exchange->close(x->device);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x->order);
    free(x->buckets);
    free(x->values);
    free(x->scratch);
    free(x->sums);
    free(x);
}

/* ---- the caller's side --------------------------------------------------------------------------- */

/* The value of `n_done` once this sum is complete. A slot is always free: none is reused before its sums were waited for. */
static uint64_t begin_sum(struct sy_exchange *x, struct sum sum)
{
    pthread_mutex_lock(&x->lock);
    assert(x->n_begun - x->n_done < x->most_sums);
    x->sums[x->n_begun % x->most_sums] = sum;
    uint64_t end = ++x->n_begun;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    return end;
}

static bool is_there(struct sy_exchange *x, uint64_t end)
{
    pthread_mutex_lock(&x->lock);
    bool is = x->n_done >= end;
    pthread_mutex_unlock(&x->lock);
    return is;
}

static int sleep_until(struct sy_exchange *x, uint64_t end)
{
    int status = SY_OK;
    pthread_mutex_lock(&x->lock);
    while (x->n_done < end && x->status == SY_OK)
        pthread_cond_wait(&x->changed, &x->lock);
    if (x->status < 0)
        status = sy_error_set(x->status, "%s", x->error);
    pthread_mutex_unlock(&x->lock);
    return status;
}

/* Outside of the gate: there a device computes nothing either. */
static int wait_for(struct sy_exchange *x, uint64_t end)
{
    if (is_there(x, end))
        return sleep_until(x, end); /* for its error */
    if (x->device && x->ranks->gate && x->ops->settle)
        SY_TRY(x->ops->settle(x->trainer));
    sy_ranks_leave(x->ranks);
    int status = sleep_until(x, end);
    sy_ranks_enter(x->ranks);
    return status;
}

/* The first value of the slot of an iteration. */
static uint64_t slot_of(const struct sy_exchange *x, uint64_t iteration)
{
    return iteration % (uint64_t)x->n_slots * x->n_floats;
}

void sy_exchange_begin(struct sy_exchange *x)
{
    x->n_ready = 0;
    x->iteration++;
}

static int gather(struct sy_exchange *x, const struct sy_shared_part *part, uint64_t at)
{
    if (x->device)
        return x->ops->exchange->gather(x->device, part, at);
    memcpy(x->values + at, part->values, part->n * sizeof(float));
    return SY_OK;
}

static int send_bucket(struct sy_exchange *x, int number)
{
    const struct bucket *b = &x->buckets[number];
    struct sum sum = {.at = slot_of(x, x->iteration) + b->at, .n = b->n_floats};
    uint64_t at = sum.at, slot = x->iteration % (uint64_t)x->n_slots;
    for (int i = b->first; i < b->first + b->n; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        SY_TRY(gather(x, &part, at));
        at += part.n;
    }
    sum.mark = (unsigned)slot * (unsigned)x->n_buckets + (unsigned)number;
    if (x->device)
        SY_TRY(x->ops->exchange->mark(x->device, sum.mark));
    x->slot_end[slot] = begin_sum(x, sum);
    return SY_OK;
}

static int take(struct sy_exchange *x, const struct sy_shared_part *part, uint64_t at)
{
    float share = 1.0f / (float)x->ranks->n;
    if (x->device)
        return x->ops->exchange->take(x->device, part, at, share);
    for (uint64_t k = 0; k < part->n; k++)
        part->values[k] = x->values[at + k] * share;
    return SY_OK;
}

static int take_mean(struct sy_exchange *x, uint64_t at)
{
    for (int i = 0; i < x->n_parts; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        SY_TRY(take(x, &part, at));
        at += part.n;
    }
    return SY_OK;
}

static int clear(struct sy_exchange *x, const struct sy_shared_part *part)
{
    if (x->device)
        return x->ops->exchange->clear(x->device, part);
    memset(part->values, 0, part->n * sizeof(float));
    return SY_OK;
}

/* Nothing of the others is there yet. A statistic stays this rank's own: a running mean of zeros would be wrong. */
static int clear_gradients(struct sy_exchange *x)
{
    for (int i = 0; i < x->n_parts; i++) {
        struct sy_shared_part part;
        x->ops->shared_part(x->trainer, x->order[i], &part);
        if (part.is_gradient)
            SY_TRY(clear(x, &part));
    }
    return SY_OK;
}

int sy_exchange_before(struct sy_exchange *x, int step)
{
    uint64_t staleness = (uint64_t)x->n_slots - 1;
    if (step != x->shared_by)
        return SY_OK;
    if (x->iteration <= staleness)
        return clear_gradients(x);
    uint64_t taken = x->iteration - staleness;
    SY_TRY(wait_for(x, x->slot_end[taken % (uint64_t)x->n_slots]));
    return take_mean(x, slot_of(x, taken));
}

int sy_exchange_after(struct sy_exchange *x, int step)
{
    for (; x->n_ready < x->n_buckets && x->buckets[x->n_ready].ready_step <= step; x->n_ready++)
        SY_TRY(send_bucket(x, x->n_ready));
    return SY_OK;
}

int sy_exchange_agree(struct sy_exchange *x, double numbers[SY_EXCHANGE_NUMBERS], bool *is_there)
{
    uint64_t staleness = (uint64_t)x->n_slots - 1, mine = x->n_agreements++;
    int slot = (int)(mine % (uint64_t)x->n_slots);
    memcpy(x->numbers[slot], numbers, sizeof x->numbers[slot]);
    x->agreement_end[slot] = begin_sum(x, (struct sum){.numbers = x->numbers[slot]});
    *is_there = mine >= staleness;
    if (!*is_there)
        return SY_OK;
    slot = (int)((mine - staleness) % (uint64_t)x->n_slots);
    SY_TRY(wait_for(x, x->agreement_end[slot]));
    memcpy(numbers, x->numbers[slot], sizeof x->numbers[slot]);
    return SY_OK;
}

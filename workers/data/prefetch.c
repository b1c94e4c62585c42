#include "workers/data/prefetch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct slot {
    uint64_t index;
    bool is_full;
    int status;
    char error[512];
    struct sy_batch_place at;
};

struct sy_prefetch {
    const struct sy_train_data *data;
    const struct sy_data_want *want;
    int64_t rows;
    uint64_t label_bytes;
    pthread_t thread;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t changed;
    bool is_running, is_ending;
    bool is_test;                          /* the set that all slots are of */
    uint64_t next;                         /* position that the thread fills next */
    struct slot slots[SY_PREFETCH_PLACES]; /* batch i in slot i mod n_slots */
    int n_slots, held;                     /* -1: none is */
    bool owns_places;
};

static struct slot *slot_of(struct sy_prefetch *p, uint64_t index)
{
    return &p->slots[index % (uint64_t)p->n_slots];
}

/* Without the mutex: an empty slot is the thread's. */
static void fill(struct sy_prefetch *p, struct slot *slot, bool is_test, uint64_t index)
{
    slot->index = index;
    slot->status = sy_train_data_fill(p->data, p->want, index * (uint64_t)p->rows, is_test, p->rows,
                                      slot->at.inputs, slot->at.labels);
    if (slot->status < 0)
        snprintf(slot->error, sizeof slot->error, "%s", sy_error_text());
}

static void *thread_main(void *argument)
{
    struct sy_prefetch *p = argument;
    pthread_mutex_lock(&p->mutex);
    while (!p->is_ending) {
        uint64_t index = p->next;
        bool is_test = p->is_test;
        struct slot *slot = slot_of(p, index);
        if (slot->is_full) { /* P1 */
            pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        pthread_mutex_unlock(&p->mutex);
        fill(p, slot, is_test, index);
        pthread_mutex_lock(&p->mutex);
        if (p->next == index && p->is_test == is_test) { /* P2: else another one was asked for */
            slot->is_full = true;
            p->next++;
        }
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* ---- create ------------------------------------------------------------------------------------------ */

static uint64_t input_bytes(const struct sy_prefetch *p, int i)
{
    return (uint64_t)p->rows * sy_data_input_bytes(&p->want->inputs[i]);
}

static int make_slot(const struct sy_prefetch *p, struct slot *slot)
{
    slot->at.labels = malloc(p->label_bytes);
    bool is_made = slot->at.labels != NULL;
    for (int i = 0; i < p->want->n_inputs; i++) {
        slot->at.inputs[i] = malloc(input_bytes(p, i));
        is_made &= slot->at.inputs[i] != NULL;
    }
    return is_made ? SY_OK
                   : sy_error_set(SY_ENOMEM_HOST, "no room for %d batches of %lld samples ahead",
                                  SY_PREFETCH_DEPTH, (long long)p->rows);
}

/* Of its own places none stays held, so there is none for that. */
static int make_slots(struct sy_prefetch *p, const struct sy_batch_place *places)
{
    p->owns_places = places == NULL;
    p->n_slots = places ? SY_PREFETCH_PLACES : SY_PREFETCH_DEPTH;
    for (int i = 0; i < p->n_slots; i++)
        if (places)
            p->slots[i].at = places[i];
        else
            SY_TRY(make_slot(p, &p->slots[i]));
    return SY_OK;
}

int sy_prefetch_create(const struct sy_train_data *data, const struct sy_data_want *want,
                       int64_t rows, const struct sy_batch_place *places, struct sy_prefetch **out)
{
    pthread_condattr_t attr;
    struct sy_prefetch *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no room for batches ahead");
    p->data = data;
    p->want = want;
    p->rows = rows;
    p->held = -1;
    p->label_bytes = (uint64_t)rows * want->n_labels * 4;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    int status = make_slots(p, places);
    if (status < 0)
        sy_prefetch_destroy(p);
    else
        *out = p;
    return status;
}

void sy_prefetch_destroy(struct sy_prefetch *p)
{
    if (!p)
        return;
    if (p->is_running) {
        pthread_mutex_lock(&p->mutex);
        p->is_ending = true;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->mutex);
        pthread_join(p->thread, NULL);
    }
    for (int i = 0; p->owns_places && i < p->n_slots; i++) {
        for (int k = 0; k < SY_DATA_MAX_INPUTS; k++)
            free(p->slots[i].at.inputs[k]);
        free(p->slots[i].at.labels);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* ---- take -------------------------------------------------------------------------------------------- */

/* With the mutex: the thread makes batch `index` and those behind it. */
static int aim(struct sy_prefetch *p, bool is_test, uint64_t index)
{
    for (int i = 0; i < p->n_slots; i++)
        p->slots[i].is_full = false;
    p->next = index;
    p->is_test = is_test;
    if (!p->is_running && pthread_create(&p->thread, NULL, thread_main, p))
        return sy_error_set(SY_ENOMEM_HOST, "no thread for batches ahead");
    p->is_running = true;
    pthread_cond_broadcast(&p->changed);
    return SY_OK;
}

static bool is_coming(const struct sy_prefetch *p, bool is_test, uint64_t index)
{
    const struct slot *slot = &p->slots[index % (uint64_t)p->n_slots];
    return p->is_running && p->is_test == is_test &&
           (slot->is_full ? slot->index : p->next) == index;
}

static void wait_for(struct sy_prefetch *p, const struct slot *slot, int wait_us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    long ns = until.tv_nsec + (long)wait_us * 1000L;
    until.tv_sec += ns / 1000000000L;
    until.tv_nsec = ns % 1000000000L;
    while (!slot->is_full && pthread_cond_timedwait(&p->changed, &p->mutex, &until) == 0)
        continue;
}

int sy_prefetch_hold(struct sy_prefetch *p, bool is_test, uint64_t index, int wait_us, int *place)
{
    struct slot *slot = slot_of(p, index);
    sy_assert_internal(p->held < 0);
    pthread_mutex_lock(&p->mutex);
    int status = is_coming(p, is_test, index) ? SY_OK : aim(p, is_test, index);
    if (status == SY_OK)
        wait_for(p, slot, wait_us);
    bool is_here = status == SY_OK && slot->is_full;
    pthread_mutex_unlock(&p->mutex);
    if (status < 0 || !is_here)
        return status;
    if (slot->status < 0)
        return sy_error_set(slot->status, "%s", slot->error);
    p->held = *place = (int)(slot - p->slots); /* a full slot is ours (P3) */
    return 1;
}

void sy_prefetch_release(struct sy_prefetch *p)
{
    if (p->held < 0)
        return;
    pthread_mutex_lock(&p->mutex);
    p->slots[p->held].is_full = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    p->held = -1;
}

int sy_prefetch_take(struct sy_prefetch *p, bool is_test, uint64_t index, int wait_us,
                     void *const *inputs, void *labels)
{
    int place, got = sy_prefetch_hold(p, is_test, index, wait_us, &place);
    if (got != 1)
        return got;
    const struct sy_batch_place *at = &p->slots[place].at;
    for (int i = 0; i < p->want->n_inputs; i++)
        memcpy(inputs[i], at->inputs[i], input_bytes(p, i));
    memcpy(labels, at->labels, p->label_bytes);
    sy_prefetch_release(p);
    return 1;
}

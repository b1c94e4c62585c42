#include "workers/infer/transfer.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"

#define WAIT_SLICE_NS (50 * SY_NS_PER_MS)
#define TURN_SLICE_NS (5 * SY_NS_PER_MS)
/* 8 ms at 2 GB/s; 0.3 ms at 50 GB/s, in which the feeder wakes up several times over. */
#define MAX_AHEAD_BYTES (16ull << 20)

struct sy_transfer {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    bool unified;
    int link_core;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of the fields below */
    bool stop, abort, idle; /* idle: the feeder is not in the middle of a group */
    int n_groups, n_queued, n_computed;
    enum sy_link_class link_class;
    int status;
    char error[256];

    struct sy_link_board *board;
    int slot;
    bool shown;                 /* on the board; the feeder's alone */
    int last_copied;            /* the last group with a copy, -1; the feeder's alone */
    int oldest;                 /* X6: no copy before this group is under way; the feeder's alone */
    uint64_t under_way_bytes;   /* X6: of the groups from there on; the feeder's alone */
    struct sy_event *chunk_end; /* X5 */
    struct sy_stream *copies;   /* X1 */
    struct sy_transfer_group groups[SY_RUN_MAX_GROUPS];
    struct sy_event *arrived[SY_RUN_MAX_GROUPS]; /* created when first needed, kept */
    struct sy_event *computed[SY_RUN_MAX_GROUPS];
    sy_ns queued_ns[SY_RUN_MAX_GROUPS];
};

static void fail(struct sy_transfer *t, int status)
{
    pthread_mutex_lock(&t->lock);
    if (t->status == SY_OK) {
        t->status = status;
        strncpy(t->error, sy_error_text(), sizeof t->error - 1);
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static bool aborted(struct sy_transfer *t)
{
    pthread_mutex_lock(&t->lock);
    bool yes = t->abort || t->stop || t->status != SY_OK;
    pthread_mutex_unlock(&t->lock);
    return yes;
}

/* 1: here; 0: not within one slice; negative: it could not be read. */
static int check_arrival(_Atomic uint32_t *word, int group, uint64_t slice_ns)
{
    uint32_t seen = word ? atomic_load_explicit(word, memory_order_acquire) : SY_ARRIVAL_HERE;
    if (seen == SY_ARRIVAL_HERE)
        return 1;
    if (seen == SY_ARRIVAL_FAILED)
        return sy_error_set(SY_EIO, "group %d could not be read from storage", group);
    sy_futex_wait(word, seen, slice_ns);
    return 0;
}

static int ensure_event(struct sy_transfer *t, struct sy_event **event)
{
    return *event ? SY_OK : sy_event_create(t->device, event);
}

/* X3: behind the computation of the group whose place this one takes. */
static int wait_for_place(struct sy_transfer *t, int after)
{
    if (after < 0)
        return SY_OK;
    pthread_mutex_lock(&t->lock);
    while (t->n_computed <= after && !t->abort && !t->stop && t->status == SY_OK)
        pthread_cond_wait(&t->changed, &t->lock);
    bool go = t->n_computed > after;
    pthread_mutex_unlock(&t->lock);
    if (!go)
        return sy_error_set(SY_ECANCELED, "run ended before group %d was computed", after);
    return sy_stream_wait_event(t->copies, t->computed[after]);
}

static bool is_copied(const struct sy_transfer *t, int g)
{
    return !t->groups[g].resident && !t->groups[g].direct;
}

/* ---- the link's turn (X5) ------------------------------------------------------------------------- */

static enum sy_link_class class_of(struct sy_transfer *t)
{
    pthread_mutex_lock(&t->lock);
    enum sy_link_class c = t->link_class;
    pthread_mutex_unlock(&t->lock);
    return c;
}

static void show_class(struct sy_transfer *t, enum sy_link_class c)
{
    sy_link_board_set(t->board, t->slot, c);
    t->shown = t->board && c != SY_LINK_NONE;
}

/* Bytes that may be copied now, once there are any. */
static int wait_for_turn(struct sy_transfer *t, uint64_t left, uint64_t *bytes)
{
    sy_ns since = sy_clock_now();
    for (;;) {
        uint32_t seen = t->board ? atomic_load(&t->board->changed) : 0;
        enum sy_link_class own = class_of(t);
        show_class(t, own);
        *bytes = sy_link_turn(own, sy_link_board_others(t->board, t->slot), left,
                              sy_clock_now() - since);
        if (*bytes > 0)
            return SY_OK;
        if (aborted(t))
            return sy_error_set(SY_ECANCELED, "run ended while its copies waited for the link");
        sy_link_board_wait(t->board, seen, TURN_SLICE_NS);
    }
}

static int copy_group(struct sy_transfer *t, const struct sy_transfer_group *group)
{
    uint64_t bytes;
    for (uint64_t at = 0; at < group->bytes; at += bytes) {
        SY_TRY(wait_for_turn(t, group->bytes - at, &bytes));
        SY_TRY(sy_copy_h2d(t->copies, sy_pool_address(t->pool, group->pool_offset + at),
                           (const char *)group->image + at, bytes));
        if (class_of(t) == SY_LINK_URGENT)
            continue;
        SY_TRY(ensure_event(t, &t->chunk_end));
        SY_TRY(sy_event_record(t->chunk_end, t->copies));
        SY_TRY(sy_event_synchronize(t->chunk_end, UINT64_MAX));
        if (at + bytes < group->bytes && aborted(t))
            return sy_error_set(SY_ECANCELED, "run ended between two chunks");
    }
    return SY_OK;
}

/* All is queued: once it is copied too, others may have the link. Returns early when there is more to do. */
static void leave_link(struct sy_transfer *t)
{
    int status = SY_EDEADLINE;
    while (status == SY_EDEADLINE && t->last_copied >= 0) {
        status = sy_event_synchronize(t->arrived[t->last_copied], TURN_SLICE_NS);
        pthread_mutex_lock(&t->lock);
        bool more = t->n_queued < t->n_groups && t->status == SY_OK && !t->abort;
        pthread_mutex_unlock(&t->lock);
        if (more)
            return;
    }
    show_class(t, SY_LINK_NONE);
}

/* X6. */
static int wait_for_earlier(struct sy_transfer *t)
{
    while (t->under_way_bytes > MAX_AHEAD_BYTES && !aborted(t)) {
        int g = t->oldest;
        int status = is_copied(t, g) ? sy_event_synchronize(t->arrived[g], TURN_SLICE_NS) : SY_OK;
        if (status == SY_EDEADLINE)
            continue;
        SY_TRY(status);
        t->under_way_bytes -= is_copied(t, g) ? t->groups[g].bytes : 0;
        t->oldest++;
    }
    if (aborted(t))
        return sy_error_set(SY_ECANCELED, "run ended before the copy of group %d", t->n_queued);
    return SY_OK;
}

static int queue_copy(struct sy_transfer *t, int g)
{
    struct sy_transfer_group *group = &t->groups[g];
    SY_TRY(ensure_event(t, &t->arrived[g]));
    if (!is_copied(t, g))
        return SY_OK;
    for (int here = 0; !here;) {
        if (aborted(t))
            return sy_error_set(SY_ECANCELED, "run ended before group %d arrived", g);
        here = check_arrival(group->arrival, g, WAIT_SLICE_NS);
        if (here < 0)
            return here;
    }
    SY_TRY(wait_for_place(t, group->after_group));
    SY_TRY(wait_for_earlier(t));
    t->queued_ns[g] = sy_clock_now();
    sy_pool_touch(t->pool, group->pool_offset, group->bytes);
    SY_TRY(copy_group(t, group));
    SY_TRY(sy_event_record(t->arrived[g], t->copies));
    t->last_copied = g;
    t->under_way_bytes += group->bytes;
    return SY_OK;
}

static void pin_feeder(struct sy_transfer *t)
{
    if (t->link_core < 0)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(t->link_core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        sy_log_warn("transfer", "event=pin_failed core=%d", t->link_core);
}

static void *feeder(void *arg)
{
    struct sy_transfer *t = arg;
    pin_feeder(t);
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (t->abort || t->status != SY_OK || t->n_queued == t->n_groups) {
            if (t->shown) {
                pthread_mutex_unlock(&t->lock);
                leave_link(t);
                pthread_mutex_lock(&t->lock);
                continue;
            }
            t->idle = true;
            pthread_cond_broadcast(&t->changed);
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        int g = t->n_queued;
        t->idle = false;
        pthread_mutex_unlock(&t->lock);
        int status = queue_copy(t, g);
        if (status < 0)
            fail(t, status);
        pthread_mutex_lock(&t->lock);
        if (status == SY_OK)
            t->n_queued++;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int sy_transfer_create(struct sy_device *device, struct sy_pool_memory *pool, int link_core,
                       struct sy_transfer **out)
{
    int status = SY_OK;
    struct sy_transfer *t = calloc(1, sizeof *t);
    SY_TRY_ALLOC(t, "no memory for the transfer state");
    t->device = device;
    t->pool = pool;
    t->link_core = link_core;
    t->unified = sy_device_get_properties(device)->unified;
    t->idle = true;
    t->last_copied = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    if (!t->unified) {
        SY_TRY_GOTO(sy_stream_create(device, SY_STREAM_COPY_H2D, &t->copies), free_state);
        if (pthread_create(&t->thread, NULL, feeder, t) != 0) {
            status = sy_error_set(SY_ENOMEM_HOST, "cannot start the transfer thread");
            goto destroy_stream;
        }
    }
    *out = t;
    return SY_OK;

destroy_stream:
    sy_stream_destroy(t->copies);
free_state:
    free(t);
    return status;
}

void sy_transfer_destroy(struct sy_transfer *t)
{
    if (!t)
        return;
    if (!t->unified) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
        sy_stream_destroy(t->copies);
    }
    for (int i = 0; i < SY_RUN_MAX_GROUPS; i++) {
        sy_event_destroy(t->arrived[i]);
        sy_event_destroy(t->computed[i]);
    }
    sy_event_destroy(t->chunk_end);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void sy_transfer_set_board(struct sy_transfer *t, struct sy_link_board *board, int slot)
{
    t->board = board;
    t->slot = slot;
}

void sy_transfer_set_class(struct sy_transfer *t, enum sy_link_class link_class)
{
    pthread_mutex_lock(&t->lock);
    t->link_class = link_class;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

void sy_transfer_begin(struct sy_transfer *t)
{
    pthread_mutex_lock(&t->lock);
    assert(t->idle);
    t->n_groups = t->n_queued = t->n_computed = 0;
    t->link_class = SY_LINK_URGENT;
    t->last_copied = -1;
    t->oldest = 0;
    t->under_way_bytes = 0;
    t->status = SY_OK;
    t->abort = false;
    pthread_mutex_unlock(&t->lock);
}

int sy_transfer_add(struct sy_transfer *t, const struct sy_transfer_group *groups, int n)
{
    int status = SY_OK;
    pthread_mutex_lock(&t->lock);
    if (n < 0 || t->n_groups + n > SY_RUN_MAX_GROUPS) {
        status = sy_error_set(SY_EARG, "%d more groups after %d: at most %d in a run", n,
                              t->n_groups, SY_RUN_MAX_GROUPS);
    } else {
        memcpy(&t->groups[t->n_groups], groups, (size_t)n * sizeof *groups);
        memset(&t->queued_ns[t->n_groups], 0, (size_t)n * sizeof(sy_ns));
        t->n_groups += n;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

int sy_transfer_n_groups(const struct sy_transfer *t)
{
    return t->n_groups;
}

const struct sy_transfer_group *sy_transfer_group(const struct sy_transfer *t, int group)
{
    return &t->groups[group];
}

/* Waits for a group that is read in place: in the pool of a unified device, or in the image. */
static int wait_in_place(struct sy_transfer *t, int g, void (*beat)(void *ctx), void *ctx)
{
    for (;;) {
        int here = check_arrival(t->groups[g].arrival, g, WAIT_SLICE_NS);
        if (here != 0)
            return here < 0 ? here : SY_OK;
        beat(ctx);
    }
}

/* X2: until the feeder has queued group g. */
static int wait_queued(struct sy_transfer *t, int g, void (*beat)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&t->lock);
    while (t->n_queued <= g && t->status == SY_OK) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)WAIT_SLICE_NS;
        until.tv_sec += until.tv_nsec / (long)SY_NS_PER_S;
        until.tv_nsec %= (long)SY_NS_PER_S;
        pthread_cond_timedwait(&t->changed, &t->lock, &until);
        beat(ctx);
    }
    int status = t->n_queued > g ? SY_OK : sy_error_set(t->status, "%s", t->error);
    pthread_mutex_unlock(&t->lock);
    return status;
}

int sy_transfer_wait(struct sy_transfer *t, int g, struct sy_stream *compute,
                     void (*beat)(void *ctx), void *ctx)
{
    assert(g >= 0 && g < t->n_groups);
    if (t->unified || t->groups[g].direct)
        return wait_in_place(t, g, beat, ctx);
    SY_TRY(wait_queued(t, g, beat, ctx));
    if (t->groups[g].resident)
        return SY_OK;
    return sy_stream_wait_event(compute, t->arrived[g]);
}

int sy_transfer_computed(struct sy_transfer *t, int g, struct sy_stream *compute)
{
    if (t->unified)
        return SY_OK;
    SY_TRY(ensure_event(t, &t->computed[g]));
    SY_TRY(sy_event_record(t->computed[g], compute));
    pthread_mutex_lock(&t->lock);
    t->n_computed = g + 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return SY_OK;
}

void sy_transfer_computed_span(const struct sy_transfer *t, int g, sy_ns *arrived, sy_ns *computed)
{
    bool known = !t->unified && g < t->n_computed && t->computed[g];
    *computed = known ? sy_event_time(t->computed[g]) : 0;
    *arrived = known && is_copied(t, g) ? sy_event_time(t->arrived[g]) : 0;
}

int sy_transfer_status(struct sy_transfer *t)
{
    pthread_mutex_lock(&t->lock);
    int status = t->status == SY_OK ? SY_OK : sy_error_set(t->status, "%s", t->error);
    pthread_mutex_unlock(&t->lock);
    for (int g = 0; g < t->n_groups && status == SY_OK; g++) {
        _Atomic uint32_t *word = t->groups[g].arrival;
        if ((t->unified || t->groups[g].direct) && word && atomic_load(word) == SY_ARRIVAL_FAILED)
            status = sy_error_set(SY_EIO, "group %d could not be read from storage", g);
    }
    return status;
}

int sy_transfer_n_arrived(struct sy_transfer *t)
{
    int g = 0;
    pthread_mutex_lock(&t->lock);
    int n_queued = t->unified ? t->n_groups : t->n_queued;
    pthread_mutex_unlock(&t->lock);
    for (; g < n_queued; g++) {
        _Atomic uint32_t *word = t->groups[g].arrival;
        bool in_place = t->unified || t->groups[g].direct;
        if (t->groups[g].resident && !in_place)
            continue;
        if (in_place ? word && atomic_load(word) != SY_ARRIVAL_HERE
                     : sy_event_query(t->arrived[g]) != 1)
            break;
    }
    return g;
}

void sy_transfer_end(struct sy_transfer *t)
{
    if (t->unified)
        return;
    pthread_mutex_lock(&t->lock);
    t->abort = true;
    pthread_cond_broadcast(&t->changed);
    while (!t->idle)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    /* The feeder is parked, so its stream may be used here. */
    SY_CLEANUP(sy_stream_synchronize(t->copies));
}

void sy_transfer_span(const struct sy_transfer *t, int g, sy_ns *start, sy_ns *end)
{
    *start = *end = 0;
    if (t->unified || !is_copied(t, g) || t->queued_ns[g] == 0)
        return;
    *end = sy_event_time(t->arrived[g]);
    *start = t->queued_ns[g];
    /* A copy cannot begin before the one in front of it ended. */
    for (int before = g - 1; before >= 0; before--) {
        if (!is_copied(t, before))
            continue;
        *start = SY_MAX(*start, sy_event_time(t->arrived[before]));
        break;
    }
}

/* Streams, copies, events. */
#include <stdlib.h>
#include <sys/prctl.h>

#include "runtime/base/assert.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"
#include "runtime/device/cuda/queue_bound.h"

#define MIN_SLEEP_NS   (10 * SY_NS_PER_US)
#define MAX_SLEEP_NS   (500 * SY_NS_PER_US)
#define SLEEP_FRACTION 32 /* of the time waited so far: what a wait ends too late, at most */

struct cuda_stream {
    struct sy_stream base;
    struct sy_cuda_device *device;
    struct CUstream_st *handle;
    struct sy_cuda_slice slice;
    struct sy_cuda_kept_slices kept;
    int (*moved)(void *ctx, struct CUstream_st *handle);
    void *moved_ctx;
    struct sy_queue_bound bound;
    struct CUevent_st *marks[SY_QUEUE_MARKS];
};

struct cuda_event {
    struct sy_event base;
    struct sy_cuda_device *device;
    struct CUevent_st *handle;
    pthread_mutex_t lock; /* of what follows: any thread may ask */
    uint64_t n_records;
    bool done;         /* the last record was reached, or failed */
    int status;        /* of it */
    sy_ns recorded_ns; /* host time before the last record */
    sy_ns seen_ns;     /* when it was first seen done */
    sy_ns time;        /* 0: not asked for yet */
};

struct CUstream_st *sy_cuda_stream_handle(struct sy_stream *stream)
{
    assert(stream->device->ops->stream == &sy_cuda_stream_ops);
    return ((struct cuda_stream *)stream)->handle;
}

void sy_cuda_stream_on_move(struct sy_stream *stream,
                            int (*moved)(void *ctx, struct CUstream_st *handle), void *ctx)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    assert(stream->device->ops->stream == &sy_cuda_stream_ops);
    s->moved = moved;
    s->moved_ctx = ctx;
}

struct CUevent_st *sy_cuda_event_handle(struct sy_event *event)
{
    assert(event->device->ops->stream == &sy_cuda_stream_ops);
    return ((struct cuda_event *)event)->handle;
}

/* ---- events ------------------------------------------------------------------------------------------ */

static int event_create(struct sy_device *base, struct sy_event **out)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    SY_TRY(sy_cuda_device_enter(base));
    SY_TRY(sy_cuda_clock_open(device));
    struct cuda_event *event = calloc(1, sizeof *event);
    SY_TRY_ALLOC(event, "no memory for an event");
    *event = (struct cuda_event){.base = {.device = base}, .device = device};
    int status = sy_cuda_device_check(base, device->api->event_create(&event->handle, true),
                                      "cannot make an event");
    if (status < 0) {
        free(event);
        return status;
    }
    pthread_mutex_init(&event->lock, NULL);
    *out = &event->base;
    return SY_OK;
}

static void event_destroy(struct sy_event *base)
{
    struct cuda_event *event = (struct cuda_event *)base;
    (void)sy_cuda_device_enter(base->device);
    event->device->api->event_destroy(event->handle);
    event->device->api->error_clear();
    pthread_mutex_destroy(&event->lock);
    free(event);
}

/* With the event's lock held. */
static void settle(struct cuda_event *event, int status)
{
    event->done = true;
    event->status = status;
    event->seen_ns = sy_clock_now();
}

/* 1, 0 or the failure. With the event's lock held. */
static int query_locked(struct cuda_event *event)
{
    if (event->n_records == 0)
        return 0;
    if (!event->done) {
        int status = sy_cuda_device_enter(event->base.device);
        int error = status < 0 ? SY_CUDA_Success : event->device->api->event_query(event->handle);
        if (error == SY_CUDA_NotReady) {
            event->device->api->error_clear();
            return 0;
        }
        if (status == SY_OK)
            status = sy_cuda_device_check(event->base.device, error, "work in front of an event");
        settle(event, status);
    }
    if (event->status == SY_OK)
        return 1;
    SY_TRY(sy_cuda_device_failed(event->base.device));
    return sy_error_set(event->status, "the work in front of the event failed");
}

static int event_query(struct sy_event *base)
{
    struct cuda_event *event = (struct cuda_event *)base;
    pthread_mutex_lock(&event->lock);
    int answer = query_locked(event);
    pthread_mutex_unlock(&event->lock);
    return answer;
}

/* Sleeps in the driver until the record that is the last one now is reached. */
static int block(struct cuda_event *event)
{
    pthread_mutex_lock(&event->lock);
    uint64_t record = event->n_records;
    int answer = query_locked(event);
    pthread_mutex_unlock(&event->lock);
    if (answer != 0 || record == 0)
        return answer;
    int status = sy_cuda_device_check(event->base.device,
                                      event->device->api->event_synchronize(event->handle),
                                      "work in front of an event");
    pthread_mutex_lock(&event->lock);
    if (event->n_records == record && !event->done)
        settle(event, status);
    pthread_mutex_unlock(&event->lock);
    return status < 0 ? status : 1;
}

/* Linux lets an ordinary thread's sleeps end 50 us late. */
static void sleep_precisely(void)
{
    static _Thread_local bool told;
    if (!told)
        (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    told = true;
}

/* C5: CUDA has no wait with an end; so it is asked and slept, a little longer each time. */
static int poll_until(struct cuda_event *event, sy_ns deadline)
{
    sy_ns start = sy_clock_now();
    sleep_precisely();
    for (;;) {
        int answer = event_query(&event->base);
        sy_ns now = sy_clock_now();
        if (answer != 0 || now >= deadline)
            return answer;
        sy_ns sleep_ns = SY_MAX((now - start) / SLEEP_FRACTION, MIN_SLEEP_NS);
        sy_clock_sleep_until(SY_MIN(now + SY_MIN(sleep_ns, MAX_SLEEP_NS), deadline));
    }
}

static int event_synchronize(struct sy_event *base, sy_ns timeout_ns)
{
    struct cuda_event *event = (struct cuda_event *)base;
    sy_ns now = sy_clock_now();
    bool bounded = timeout_ns <= UINT64_MAX - now;
    pthread_mutex_lock(&event->lock);
    bool recorded = event->n_records > 0;
    pthread_mutex_unlock(&event->lock);
    if (!recorded)
        return SY_OK;
    int answer = bounded ? poll_until(event, now + timeout_ns) : block(event);
    if (answer == 0)
        return sy_error_set(SY_EDEADLINE, "the event was not signalled within %llu us",
                            (unsigned long long)(timeout_ns / 1000));
    return answer < 0 ? answer : SY_OK;
}

static sy_ns event_time(struct sy_event *base)
{
    struct cuda_event *event = (struct cuda_event *)base;
    pthread_mutex_lock(&event->lock);
    bool signalled = query_locked(event) == 1;
    if (signalled && event->time == 0)
        event->time =
            sy_cuda_clock_time(event->device, event->handle, event->recorded_ns, event->seen_ns);
    sy_ns time = signalled ? event->time : 0;
    pthread_mutex_unlock(&event->lock);
    return time;
}

/* ---- the queue --------------------------------------------------------------------------------------- */

/* Looks at marks until there is room for n entries. */
static int make_room(struct cuda_stream *s, unsigned n)
{
    while (!sy_queue_bound_has_room(&s->bound, n)) {
        int mark = sy_queue_bound_oldest(&s->bound);
        int error = mark < 0 ? SY_CUDA_NotReady : s->device->api->event_query(s->marks[mark]);
        if (error == SY_CUDA_NotReady) {
            s->device->api->error_clear();
            return sy_error_set(SY_EBUSY, "the stream holds %u entries already", SY_QUEUE_ENTRIES);
        }
        SY_TRY(sy_cuda_device_check(s->base.device, error, "work in the stream"));
        sy_queue_bound_pass(&s->bound);
    }
    return SY_OK;
}

static int begin_entry(struct cuda_stream *s)
{
    SY_TRY(sy_cuda_device_enter(s->base.device));
    return make_room(s, 1);
}

/* The entry is queued: counts it. A mark that cannot be recorded is made good by the next. */
static int end_entry(struct cuda_stream *s)
{
    int mark = sy_queue_bound_add(&s->bound);
    if (mark < 0)
        return SY_OK;
    int error = s->device->api->event_record(s->marks[mark], s->handle);
    if (error != SY_CUDA_Success)
        sy_queue_bound_unmark(&s->bound);
    return sy_cuda_device_check(s->base.device, error, "cannot mark the stream");
}

static int queue_copy(struct sy_cuda_device *device, struct CUstream_st *stream, void *host,
                      uint64_t address, uint64_t bytes, bool to_device)
{
    return sy_cuda_device_check(&device->base,
                                device->api->copy(stream, host, address, bytes, to_device),
                                "copy of %llu bytes %s 0x%llx", (unsigned long long)bytes,
                                to_device ? "to" : "from", (unsigned long long)address);
}

static int copy_piece(struct cuda_stream *s, void *host, uint64_t address, uint64_t bytes,
                      bool to_device)
{
    SY_TRY(make_room(s, 1)); /* there is, unless somebody registered memory since it was counted */
    SY_TRY(queue_copy(s->device, s->handle, host, address, bytes, to_device));
    return end_entry(s);
}

int sy_cuda_device_copy(struct sy_device *base, struct CUstream_st *stream, void *host,
                        uint64_t address, uint64_t bytes, bool to_device)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t piece = sy_cuda_copy_piece(device, (char *)host + at, bytes - at);
        SY_TRY(queue_copy(device, stream, (char *)host + at, address + at, piece, to_device));
        at += piece;
    }
    return SY_OK;
}

/* One copy, as a rule; two where it crosses from one pinned piece into the next. Room for all of them first, so that none is queued in
 * half. */
static int stream_copy(struct sy_stream *base, void *host, sy_device_address address,
                       uint64_t bytes, bool to_device)
{
    struct cuda_stream *s = (struct cuda_stream *)base;
    unsigned n_pieces = 0;
    SY_TRY(sy_cuda_device_enter(base->device));
    for (uint64_t at = 0; at < bytes; n_pieces++)
        at += sy_cuda_copy_piece(s->device, (char *)host + at, bytes - at);
    if (n_pieces > SY_QUEUE_ENTRIES)
        return sy_error_set(SY_ETOOBIG, "copy of %llu bytes: more than %u pinned pieces",
                            (unsigned long long)bytes, SY_QUEUE_ENTRIES);
    SY_TRY(make_room(s, n_pieces));
    int fault = sy_fault("copy_run");
    if (fault < 0) { /* as a device fails: the call is fine, what comes later is not */
        (void)sy_cuda_device_check(base->device, SY_CUDA_LaunchFailure, "%s", "SY_FAULT=copy_run");
        return SY_OK;
    }
    for (uint64_t at = 0; at < bytes;) {
        uint64_t piece = sy_cuda_copy_piece(s->device, (char *)host + at, bytes - at);
        SY_TRY(copy_piece(s, (char *)host + at, address.value + at, piece, to_device));
        at += piece;
    }
    return SY_OK;
}

static int stream_launch(struct sy_stream *base, void (*fn)(void *arg), void *arg)
{
    struct cuda_stream *s = (struct cuda_stream *)base;
    SY_TRY(begin_entry(s));
    SY_TRY(sy_cuda_device_check(base->device, s->device->api->launch_host(s->handle, fn, arg),
                                "cannot queue a function of the host"));
    return end_entry(s);
}

static int stream_wait_event(struct sy_stream *base, struct sy_event *base_event)
{
    struct cuda_stream *s = (struct cuda_stream *)base;
    struct cuda_event *event = (struct cuda_event *)base_event;
    SY_TRY(begin_entry(s));
    pthread_mutex_lock(&event->lock);
    bool recorded = event->n_records > 0;
    int status = event->done ? event->status : SY_OK;
    pthread_mutex_unlock(&event->lock);
    if (!recorded)
        return SY_OK;
    if (status < 0) /* D4: its record failed, CUDA knows nothing of it */
        return sy_error_set(status, "the work in front of the event failed");
    SY_TRY(sy_cuda_device_check(base->device, s->device->api->wait_event(s->handle, event->handle),
                                "cannot wait for an event in a stream"));
    return end_entry(s);
}

static int record(struct cuda_stream *s, struct cuda_event *event)
{
    SY_TRY(begin_entry(s));
    sy_cuda_clock_tick(s->device, sy_clock_now());
    SY_TRY(sy_cuda_device_check(s->base.device,
                                s->device->api->event_record(event->handle, s->handle),
                                "cannot record an event"));
    return end_entry(s);
}

static int event_record(struct sy_event *base, struct sy_stream *stream)
{
    struct cuda_event *event = (struct cuda_event *)base;
    pthread_mutex_lock(&event->lock);
    event->n_records++;
    event->done = false;
    event->status = SY_OK;
    event->time = 0;
    event->recorded_ns = sy_clock_now();
    int status = record((struct cuda_stream *)stream, event);
    if (status < 0) /* D4 */
        settle(event, status);
    pthread_mutex_unlock(&event->lock);
    return status;
}

/* ---- streams ----------------------------------------------------------------------------------------- */

static void drop_stream(struct cuda_stream *s)
{
    if (s->handle) /* first: it may have them queued */
        s->device->api->stream_destroy(s->handle);
    for (unsigned i = 0; i < SY_QUEUE_MARKS; i++)
        if (s->marks[i])
            s->device->api->event_destroy(s->marks[i]);
    sy_cuda_slice_close(s->device, &s->slice);
    sy_cuda_kept_finish(s->device, &s->kept);
    s->device->api->error_clear();
    free(s);
}

/* Kernels and what they wait for come first; spills have the lowest priority (C7). */
static int level_of(enum sy_stream_kind kind)
{
    return kind == SY_STREAM_COPY_D2H ? 0 : 1;
}

static int fill_stream(struct cuda_stream *s, enum sy_stream_kind kind)
{
    struct sy_device *device = s->base.device;
    SY_TRY(sy_cuda_slice_open(s->device, 0, level_of(kind), &s->slice, &s->handle));
    for (unsigned i = 0; i < SY_QUEUE_MARKS; i++)
        SY_TRY(sy_cuda_device_check(device, s->device->api->event_create(&s->marks[i], false),
                                    "cannot make a stream's marks"));
    return SY_OK;
}

static int stream_create(struct sy_device *device, enum sy_stream_kind kind, struct sy_stream **out)
{
    SY_TRY(sy_cuda_device_enter(device));
    struct cuda_stream *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no memory for a stream");
    s->base = (struct sy_stream){.device = device, .kind = kind};
    s->device = (struct sy_cuda_device *)device;
    int status = fill_stream(s, kind);
    if (status < 0) {
        drop_stream(s);
        return status;
    }
    *out = &s->base;
    return SY_OK;
}

static int stream_synchronize(struct sy_stream *base)
{
    struct cuda_stream *s = (struct cuda_stream *)base;
    SY_TRY(sy_cuda_device_enter(base->device));
    SY_TRY(sy_cuda_device_check(base->device, s->device->api->stream_synchronize(s->handle),
                                "work in the stream"));
    sy_queue_bound_clear(&s->bound);
    return SY_OK;
}

/* Another stream replaces this one once it has run empty, so that events keep their order (D2). */
static int move(struct cuda_stream *s, uint64_t parts)
{
    struct sy_cuda_slice slice, old = s->slice;
    struct CUstream_st *handle, *old_handle = s->handle;
    SY_TRY(stream_synchronize(&s->base));
    if (!sy_cuda_kept_take(&s->kept, parts, &slice, &handle))
        SY_TRY(sy_cuda_slice_open(s->device, parts, level_of(s->base.kind), &slice, &handle));
    int status = s->moved ? s->moved(s->moved_ctx, handle) : SY_OK;
    if (status < 0) { /* what could not follow stays where it was, and so does the stream */
        old = slice;
        old_handle = handle;
    } else {
        s->slice = slice;
        s->handle = handle;
    }
    sy_cuda_kept_put(s->device, &s->kept, &old, old_handle);
    s->device->api->error_clear();
    return status;
}

static int stream_confine(struct sy_stream *base, const int *parts, int n)
{
    struct cuda_stream *s = (struct cuda_stream *)base;
    uint64_t wanted;
    SY_TRY(sy_cuda_parts_read(s->device, parts, n, &wanted));
    if (wanted == s->slice.parts)
        return SY_OK;
    SY_TRY(sy_cuda_device_enter(base->device));
    return move(s, wanted);
}

int sy_cuda_stream_confine(struct sy_stream *stream, const int *parts, int n)
{
    if (!stream || stream->device->ops->stream != &sy_cuda_stream_ops)
        return n == 0 ? SY_OK : sy_error_set(SY_EUNSUPPORTED, "a device that has no parts");
    return stream_confine(stream, parts, n);
}

static void stream_destroy(struct sy_stream *base)
{
    struct cuda_stream *s = (struct cuda_stream *)base;
    (void)sy_cuda_device_enter(base->device);
    s->device->api->stream_synchronize(s->handle); /* what it finds, nobody can be told any more */
    drop_stream(s);
}

const struct sy_stream_ops sy_cuda_stream_ops = {
    .create = stream_create,
    .destroy = stream_destroy,
    .synchronize = stream_synchronize,
    .confine = stream_confine,
    .copy = stream_copy,
    .launch = stream_launch,
    .wait_event = stream_wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_time = event_time,
};

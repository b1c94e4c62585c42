#include "runtime/device/host_stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined __x86_64__
#include <emmintrin.h>
#endif

#include "runtime/base/assert.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"

/* A paced copy sleeps once a chunk. Each sleep costs the computing cores something too, so slots are long, within bounds that
 * keep two copies that share the link fair to each other. */
#define CHUNK_NS      (2 * SY_NS_PER_MS)
#define LEAST_CHUNK   (256u << 10)
#define LARGEST_CHUNK (1u << 20)
#define PAGE_BYTES    4096u
#define PAST_CACHES   (64u << 10)         /* copies to the device from this size on */
#define SPIN_NS       (60 * SY_NS_PER_US) /* upper bound of a sleep's delay */

struct host_event {
    struct sy_event base;
    pthread_mutex_t lock;
    pthread_cond_t signalled;
    uint64_t recorded, done; /* generations: of the last record, of the last that was reached */
    int status;
    sy_ns time;
};

enum entry_kind { ENTRY_COPY, ENTRY_RECORD, ENTRY_WAIT, ENTRY_LAUNCH };

struct entry {
    enum entry_kind kind;
    void *to;
    const void *from;
    uint64_t bytes;
    bool to_device;
    sy_ns queued_ns; /* of a copy */
    struct host_event *event;
    uint64_t generation;
    void (*fn)(void *arg);
    void *arg;
};

struct host_stream {
    struct sy_stream base;
    struct sy_host_device *device;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the ring is no longer empty, or empty now; or stop */
    int core;               /* core that the thread is pinned to; -1: any */
    bool stop;
    int status; /* D5 */
    unsigned head, n;
    sy_ns free_ns; /* when the last copy's slot ended, or the last wait; the thread's alone */
    pthread_t thread;
    struct entry *ring; /* SY_STREAM_RING of them; NULL on a COMPUTE stream */
};

/* ---- copies ------------------------------------------------------------------------------------------ */

static void cpu_pause(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void wait_for_slot(sy_ns end)
{
    if (end > sy_clock_now() + SPIN_NS)
        sy_clock_sleep_until(end - SPIN_NS);
    while (sy_clock_now() < end)
        cpu_pause();
}

/* As a copy engine writes device memory: not into this core's caches, which the computing cores would then have to ask for each line. */
static void write_past_caches(void *to, const void *from, uint64_t bytes)
{
    uint64_t done = 0;
#if defined __x86_64__
    if (bytes >= PAST_CACHES && (uintptr_t)to % sizeof(__m128i) == 0) {
        for (; done + 4 * sizeof(__m128i) <= bytes; done += 4 * sizeof(__m128i)) {
            const __m128i *in = (const __m128i *)((const char *)from + done);
            __m128i *out = (__m128i *)((char *)to + done);
            __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
            __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
            _mm_stream_si128(out, a);
            _mm_stream_si128(out + 1, b);
            _mm_stream_si128(out + 2, c);
            _mm_stream_si128(out + 3, d);
        }
        _mm_sfence(); /* before the event that says they are there */
    }
#endif
    memcpy((char *)to + done, (const char *)from + done, bytes - done);
}

/* One copy over the emulated link: alpha, then chunk after chunk, each done no earlier than its slot. The link begins with it at `start`, as
 * soon as it was queued and the one in front was over, however late this thread is: what waking up costs is not the link's. Returns the end. */
static sy_ns copy_paced(struct sy_host_device *device, const struct entry *e, sy_ns start)
{
    double gbps = device->base.spec.link_gbps;
    enum sy_link_direction direction = e->to_device ? SY_LINK_H2D : SY_LINK_D2H;
    uint64_t chunk = (uint64_t)SY_MIN((double)CHUNK_NS * gbps, (double)LARGEST_CHUNK);
    chunk =
        SY_MAX(chunk, (uint64_t)LEAST_CHUNK) / PAGE_BYTES * PAGE_BYTES; /* each begins aligned */
    sy_ns end =
        sy_link_clock_reserve(device->clock, direction, start, device->base.spec.link_alpha_ns);
    for (uint64_t at = 0; at < e->bytes; at += chunk) {
        uint64_t bytes = SY_MIN(chunk, e->bytes - at);
        /* Reserved from the last slot's end, not from now: what oversleeping lost is not lost to the link. */
        end = sy_link_clock_reserve(device->clock, direction, end, (sy_ns)((double)bytes / gbps));
        if (e->to_device)
            write_past_caches((char *)e->to + at, (const char *)e->from + at, bytes);
        else
            memcpy((char *)e->to + at, (const char *)e->from + at, bytes);
        wait_for_slot(end);
    }
    return end;
}

void sy_host_paced_read(struct sy_device *base, uint64_t bytes)
{
    struct sy_host_device *device = (struct sy_host_device *)base;
    sy_ns duration = base->spec.link_alpha_ns + (sy_ns)((double)bytes / base->spec.link_gbps);
    wait_for_slot(sy_link_clock_reserve(device->clock, SY_LINK_H2D, sy_clock_now(), duration));
}

static int copy_entry(struct host_stream *s, const struct entry *e)
{
    struct sy_host_device *device = s->device;
    int status = sy_fault("copy_run");
    if (status < 0) {
        int expected = SY_OK;
        atomic_compare_exchange_strong(&device->status, &expected, status);
        return status;
    }
    if (device->clock)
        s->free_ns = copy_paced(device, e, SY_MAX(e->queued_ns, s->free_ns));
    else
        memcpy(e->to, e->from, e->bytes);
    return SY_OK;
}

/* ---- events ------------------------------------------------------------------------------------------ */

static void signal_event(struct host_event *event, uint64_t generation, int status)
{
    pthread_mutex_lock(&event->lock);
    if (generation > event->done) {
        event->done = generation;
        event->status = status;
        event->time = sy_clock_now();
    }
    pthread_cond_broadcast(&event->signalled);
    pthread_mutex_unlock(&event->lock);
}

/* Waits until `generation` was reached; EDEADLINE after the monotonic time `deadline`. */
static int await_event(struct host_event *event, uint64_t generation, sy_ns deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / SY_NS_PER_S),
                             .tv_nsec = (long)(deadline % SY_NS_PER_S)};
    int timed_out = 0;
    pthread_mutex_lock(&event->lock);
    while (event->done < generation && !timed_out)
        timed_out = deadline == UINT64_MAX
                        ? pthread_cond_wait(&event->signalled, &event->lock)
                        : pthread_cond_timedwait(&event->signalled, &event->lock, &until);
    int status = event->done < generation ? SY_EDEADLINE : event->status;
    pthread_mutex_unlock(&event->lock);
    return status;
}

static uint64_t recorded_generation(struct host_event *event)
{
    pthread_mutex_lock(&event->lock);
    uint64_t generation = event->recorded;
    pthread_mutex_unlock(&event->lock);
    return generation;
}

static int event_create(struct sy_device *device, struct sy_event **out)
{
    pthread_condattr_t attr;
    struct host_event *event = calloc(1, sizeof *event);
    SY_TRY_ALLOC(event, "no memory for an event");
    event->base.device = device;
    pthread_mutex_init(&event->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&event->signalled, &attr);
    pthread_condattr_destroy(&attr);
    *out = &event->base;
    return SY_OK;
}

static void event_destroy(struct sy_event *base)
{
    struct host_event *event = (struct host_event *)base;
    pthread_cond_destroy(&event->signalled);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static int event_query(struct sy_event *base)
{
    struct host_event *event = (struct host_event *)base;
    pthread_mutex_lock(&event->lock);
    int answer = event->done < event->recorded || event->recorded == 0 ? 0
                 : event->status < 0                                   ? event->status
                                                                       : 1;
    pthread_mutex_unlock(&event->lock);
    return answer;
}

static int event_synchronize(struct sy_event *base, sy_ns timeout_ns)
{
    struct host_event *event = (struct host_event *)base;
    sy_ns now = sy_clock_now();
    sy_ns deadline = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    int status = await_event(event, recorded_generation(event), deadline);
    if (status == SY_EDEADLINE)
        return sy_error_set(status, "the event was not signalled within %llu us",
                            (unsigned long long)(timeout_ns / 1000));
    return status < 0 ? sy_error_set(status, "the work in front of the event failed") : SY_OK;
}

static sy_ns event_time(struct sy_event *base)
{
    struct host_event *event = (struct host_event *)base;
    pthread_mutex_lock(&event->lock);
    sy_ns time = event->recorded > 0 && event->done == event->recorded ? event->time : 0;
    pthread_mutex_unlock(&event->lock);
    return time;
}

/* ---- streams ----------------------------------------------------------------------------------------- */

/* Returns the stream's status after the entry. */
static int run_entry(struct host_stream *s, const struct entry *e, int status)
{
    switch (e->kind) {
    case ENTRY_COPY:
        return status < 0 ? status : copy_entry(s, e);
    case ENTRY_LAUNCH:
        if (status == SY_OK)
            e->fn(e->arg);
        s->free_ns = sy_clock_now();
        return status;
    case ENTRY_RECORD:
        signal_event(e->event, e->generation, status);
        return status;
    case ENTRY_WAIT: {
        int waited = await_event(e->event, e->generation, UINT64_MAX);
        s->free_ns = sy_clock_now();
        return status < 0 ? status : waited;
    }
    }
    return status;
}

static void pin_thread(int core)
{
    cpu_set_t set;
    if (core < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        sy_log_warn("device", "event=pin_failed core=%d", core);
}

static void *stream_main(void *arg)
{
    struct host_stream *s = arg;
    pin_thread(s->core);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->n == 0 && !s->stop)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->n == 0)
            break;
        struct entry e = s->ring[s->head];
        int status = s->status;
        pthread_mutex_unlock(&s->lock);
        status = run_entry(s, &e, status);
        pthread_mutex_lock(&s->lock);
        s->status = status;
        s->head = (s->head + 1) % SY_STREAM_RING;
        s->n--;
        if (s->n ==
            0) /* nobody waits for less, and each waking would take a core from the copies */
            pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int stream_create(struct sy_device *device, enum sy_stream_kind kind, struct sy_stream **out)
{
    struct host_stream *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no memory for a stream");
    s->base = (struct sy_stream){.device = device, .kind = kind};
    s->device = (struct sy_host_device *)device;
    s->core = s->device->link_core;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    *out = &s->base;
    if (kind == SY_STREAM_COMPUTE)
        return SY_OK;
    s->ring = calloc(SY_STREAM_RING, sizeof *s->ring);
    if (s->ring && pthread_create(&s->thread, NULL, stream_main, s) == 0)
        return SY_OK;
    free(s->ring);
    free(s);
    return sy_error_set(SY_ENOMEM_HOST, "cannot start a copy stream's thread");
}

static void stream_destroy(struct sy_stream *base)
{
    struct host_stream *s = (struct host_stream *)base;
    if (s->ring) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        free(s->ring);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int device_failed(struct sy_host_device *device)
{
    int status = atomic_load(&device->status);
    return status < 0 ? sy_error_set(status, "%s failed in this process; open it in a new one",
                                     device->base.properties.name)
                      : SY_OK;
}

static int stream_synchronize(struct sy_stream *base)
{
    struct host_stream *s = (struct host_stream *)base;
    pthread_mutex_lock(&s->lock);
    while (s->n > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    int status = s->status;
    pthread_mutex_unlock(&s->lock);
    return status < 0 ? sy_error_set(status, "work in the stream failed")
                      : device_failed(s->device);
}

/* Queues on a COPY stream, runs at once on a COMPUTE stream. */
static int put_entry(struct sy_stream *base, const struct entry *e)
{
    struct host_stream *s = (struct host_stream *)base;
    SY_TRY(device_failed(s->device));
    if (!s->ring) {
        s->status = run_entry(s, e, s->status);
        return s->status < 0 ? sy_error_set(s->status, "work in the stream failed") : SY_OK;
    }
    pthread_mutex_lock(&s->lock);
    bool full = s->n == SY_STREAM_RING;
    if (!full)
        s->ring[(s->head + s->n++) % SY_STREAM_RING] = *e;
    if (!full && s->n == 1)
        pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return full ? sy_error_set(SY_EBUSY, "the stream holds %d entries already", SY_STREAM_RING)
                : SY_OK;
}

static int stream_copy(struct sy_stream *stream, void *host, sy_device_address address,
                       uint64_t bytes, bool to_device)
{
    void *device = (void *)(uintptr_t)address.value;
    struct entry e = {.kind = ENTRY_COPY,
                      .to = to_device ? device : host,
                      .from = to_device ? host : device,
                      .bytes = bytes,
                      .to_device = to_device,
                      .queued_ns = sy_clock_now()};
    return put_entry(stream, &e);
}

static int stream_launch(struct sy_stream *stream, void (*fn)(void *arg), void *arg)
{
    struct entry e = {.kind = ENTRY_LAUNCH, .fn = fn, .arg = arg};
    return put_entry(stream, &e);
}

static int stream_wait_event(struct sy_stream *stream, struct sy_event *base)
{
    struct host_event *event = (struct host_event *)base;
    struct entry e = {.kind = ENTRY_WAIT, .event = event, .generation = recorded_generation(event)};
    return put_entry(stream, &e);
}

static int event_record(struct sy_event *base, struct sy_stream *stream)
{
    struct host_event *event = (struct host_event *)base;
    pthread_mutex_lock(&event->lock);
    uint64_t generation = ++event->recorded;
    pthread_mutex_unlock(&event->lock);
    struct entry e = {.kind = ENTRY_RECORD, .event = event, .generation = generation};
    int status = put_entry(stream, &e);
    if (status < 0) /* D4 */
        signal_event(event, generation, status);
    return status;
}

const struct sy_stream_ops sy_host_stream_ops = {
    .create = stream_create,
    .destroy = stream_destroy,
    .synchronize = stream_synchronize,
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

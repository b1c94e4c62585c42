/* The device's clock against the host's: a reference event on a stream that does nothing else. */
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"

#define SPIN_NS \
    (200 * SY_NS_PER_US) /* at the first reference, for a narrow guess: once per process */

void sy_cuda_clock_init(struct sy_cuda_clock *clock)
{
    *clock = (struct sy_cuda_clock){0};
    pthread_mutex_init(&clock->lock, NULL);
}

/* With the lock held. */
static void drop_handles(struct sy_cuda_device *device)
{
    struct sy_cuda_clock *c = &device->clock;
    if (c->stream) /* first: it may have them queued */
        device->api->stream_destroy(c->stream);
    if (c->next)
        device->api->event_destroy(c->next);
    if (c->reference)
        device->api->event_destroy(c->reference);
    c->next = c->reference = NULL;
    c->stream = NULL;
    device->api->error_clear();
}

void sy_cuda_clock_finish(struct sy_cuda_device *device)
{
    drop_handles(device);
    pthread_mutex_destroy(&device->clock.lock);
}

static int set_first(struct sy_cuda_device *device)
{
    const struct sy_cuda_api *api = device->api;
    struct sy_cuda_clock *c = &device->clock;
    sy_ns before = sy_clock_now();
    int error = api->event_record(c->reference, c->stream);
    if (error == SY_CUDA_Success)
        do
            error = api->event_query(c->reference);
        while (error == SY_CUDA_NotReady && sy_clock_now() < before + SPIN_NS);
    if (error == SY_CUDA_NotReady)
        error = api->event_synchronize(c->reference);
    sy_ns after = sy_clock_now();
    api->error_clear();
    SY_TRY(sy_cuda_device_check(&device->base, error, "cannot compare its clock with the host's"));
    sy_event_clock_set(&c->clock, before, after);
    sy_log_debug("device", "event=clock_compared device=cuda:%d error_ns=%llu",
                 device->base.spec.ordinal, (unsigned long long)sy_event_clock_error_ns(&c->clock));
    return SY_OK;
}

static int make_clock(struct sy_cuda_device *device)
{
    const struct sy_cuda_api *api = device->api;
    struct sy_cuda_clock *c = &device->clock;
    int error = api->stream_create(&c->stream, 1);
    if (error == SY_CUDA_Success)
        error = api->event_create(&c->reference, true);
    if (error == SY_CUDA_Success)
        error = api->event_create(&c->next, true);
    int status = sy_cuda_device_check(&device->base, error, "cannot make its clock's events");
    if (status == SY_OK)
        status = set_first(device);
    if (status < 0)
        drop_handles(device);
    return status;
}

int sy_cuda_clock_open(struct sy_cuda_device *device)
{
    pthread_mutex_lock(&device->clock.lock);
    int status = device->clock.stream ? SY_OK : make_clock(device);
    pthread_mutex_unlock(&device->clock.lock);
    return status;
}

void sy_cuda_clock_tick(struct sy_cuda_device *device, sy_ns now)
{
    struct sy_cuda_clock *c = &device->clock;
    pthread_mutex_lock(&c->lock);
    int64_t latest = c->next_pending ? (int64_t)c->next_before : c->clock.point;
    if ((int64_t)now - latest > (int64_t)SY_EVENT_CLOCK_SPAN_NS) {
        c->next_before = now;
        c->next_pending = device->api->event_record(c->next, c->stream) == SY_CUDA_Success;
        if (!c->next_pending)
            device->api->error_clear(); /* the record that comes after this one meets it too */
    }
    pthread_mutex_unlock(&c->lock);
}

static bool elapsed(struct sy_cuda_device *device, struct CUevent_st *event, int64_t *out_ns)
{
    float ms = 0;
    int error = device->api->event_elapsed(&ms, device->clock.reference, event);
    if (error != SY_CUDA_Success)
        device->api->error_clear();
    *out_ns = (int64_t)((double)ms * 1e6);
    return error == SY_CUDA_Success;
}

/* Takes the new reference when it is there. With the lock held. */
static void take_next(struct sy_cuda_device *device)
{
    struct sy_cuda_clock *c = &device->clock;
    int64_t ns;
    if (!c->next_pending)
        return;
    int error = device->api->event_query(c->next);
    if (error != SY_CUDA_Success) {
        device->api->error_clear();
        return;
    }
    c->next_pending = false;
    if (!elapsed(device, c->next, &ns))
        return;
    sy_ns after = sy_clock_now();
    /* Over a minute CUDA's float has steps of 4 us and more: the host's clock knows better. */
    if (ns > 60 * (int64_t)SY_NS_PER_S)
        sy_event_clock_set(&c->clock, c->next_before, after);
    else
        sy_event_clock_move(&c->clock, ns, c->next_before, after);
    struct CUevent_st *old = c->reference;
    c->reference = c->next;
    c->next = old;
}

sy_ns sy_cuda_clock_time(struct sy_cuda_device *device, struct CUevent_st *event, sy_ns recorded,
                         sy_ns seen)
{
    int64_t ns;
    pthread_mutex_lock(&device->clock.lock);
    take_next(device);
    sy_ns time = seen;
    if (elapsed(device, event, &ns))
        time = sy_event_clock_time(&device->clock.clock, ns, recorded, seen);
    pthread_mutex_unlock(&device->clock.lock);
    return time;
}

/* Host memory, pinned in the background. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"

void sy_cuda_registrar_init(struct sy_cuda_registrar *registrar)
{
    pthread_condattr_t attr;
    *registrar = (struct sy_cuda_registrar){0};
    pthread_mutex_init(&registrar->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&registrar->changed, &attr);
    pthread_condattr_destroy(&attr);
}

/* ---- the thread -------------------------------------------------------------------------------------- */

/* A range that the host maps read-only can be pinned as such only, and which it is nobody tells: so the ordinary way first. */
static int pin(struct sy_cuda_device *device, void *base, uint64_t bytes, bool *out_read_only)
{
    const struct sy_cuda_api *api = device->api;
    SY_TRY(sy_cuda_device_enter(&device->base));
    int error = api->host_register(base, bytes, false);
    *out_read_only = error && device->read_only_register && !sy_cuda_error_is_sticky(error) &&
                     error != SY_CUDA_MemoryAllocation;
    if (*out_read_only) {
        api->error_clear();
        error = api->host_register(base, bytes, true);
    }
    return sy_cuda_device_check(&device->base, error, "cannot pin %llu bytes at %p",
                                (unsigned long long)bytes, base);
}

/* With nothing locked. C6: says when it is done; a failure is told, and costs speed only. */
static int pin_and_tell(struct sy_cuda_device *device, void *base, uint64_t bytes)
{
    bool read_only = false;
    sy_ns start = sy_clock_now();
    int status = pin(device, base, bytes, &read_only);
    if (status == SY_OK)
        sy_log_info("device",
                    "event=host_registered device=cuda:%d bytes=%llu ms=%.1f read_only=%d",
                    device->base.spec.ordinal, (unsigned long long)bytes,
                    (double)(sy_clock_now() - start) / 1e6, (int)read_only);
    else
        sy_log_warn("device", "event=host_not_registered device=cuda:%d bytes=%llu why=\"%s\"",
                    device->base.spec.ordinal, (unsigned long long)bytes, sy_error_text());
    return status;
}

static struct sy_registered *first_queued(struct sy_cuda_registrar *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->ranges[i].state == SY_REGISTER_QUEUED)
            return &r->ranges[i];
    return NULL;
}

static struct sy_registered *find_range(struct sy_cuda_registrar *r, const void *base)
{
    for (int i = 0; i < r->n; i++)
        if (r->ranges[i].base == base)
            return &r->ranges[i];
    return NULL;
}

static void *registrar_main(void *arg)
{
    struct sy_cuda_device *device = arg;
    struct sy_cuda_registrar *r = &device->registrar;
    struct sy_registered *range;
    pthread_mutex_lock(&r->lock);
    while ((range = first_queued(r)) != NULL) {
        void *base = range->base;
        uint64_t bytes = range->bytes;
        range->state = SY_REGISTER_BUSY;
        pthread_mutex_unlock(&r->lock);
        int status = pin_and_tell(device, base, bytes);
        pthread_mutex_lock(&r->lock);
        range = find_range(r, base); /* others may have left the array; a busy one does not */
        range->state = SY_REGISTER_DONE;
        range->status = status;
        if (status < 0)
            snprintf(range->why, sizeof range->why, "%s", sy_error_text());
        pthread_cond_broadcast(&r->changed);
    }
    r->running = false;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* With the lock held. */
static int ensure_thread(struct sy_cuda_device *device)
{
    struct sy_cuda_registrar *r = &device->registrar;
    if (r->running)
        return SY_OK;
    if (r->has_thread)
        pthread_join(r->thread, NULL); /* at its end already: it takes no lock any more */
    r->has_thread = pthread_create(&r->thread, NULL, registrar_main, device) == 0;
    r->running = r->has_thread;
    return r->has_thread ? SY_OK
                         : sy_error_set(SY_ENOMEM_HOST, "cannot start the thread that pins memory");
}

/* ---- calls ------------------------------------------------------------------------------------------- */

/* With the lock held. Asking again for what is there is fine. */
static int add_range(struct sy_cuda_device *device, void *base, uint64_t bytes)
{
    struct sy_cuda_registrar *r = &device->registrar;
    struct sy_registered *there = find_range(r, base);
    if (there)
        return there->bytes == bytes
                   ? SY_OK
                   : sy_error_set(SY_EARG, "%p is registered already, with %llu bytes, not %llu",
                                  base, (unsigned long long)there->bytes,
                                  (unsigned long long)bytes);
    if (r->n == SY_CUDA_MAX_REGISTERED)
        return sy_error_set(SY_EBUSY, "%d ranges are registered already", SY_CUDA_MAX_REGISTERED);
    r->ranges[r->n++] = (struct sy_registered){.base = base, .bytes = bytes};
    int status = ensure_thread(device);
    if (status < 0)
        r->n--;
    return status;
}

int sy_cuda_host_register(struct sy_device *base_device, void *base, uint64_t bytes)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base_device;
    SY_TRY(sy_cuda_device_enter(base_device)); /* so that a missing context is told here */
    pthread_mutex_lock(&device->registrar.lock);
    int status = add_range(device, base, bytes);
    pthread_mutex_unlock(&device->registrar.lock);
    return status;
}

/* With the lock held; takes it out of the array. */
static struct sy_registered take_range(struct sy_cuda_registrar *r, struct sy_registered *range)
{
    struct sy_registered taken = *range;
    *range = r->ranges[--r->n];
    return taken;
}

int sy_cuda_host_unregister(struct sy_device *base_device, void *base)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base_device;
    struct sy_cuda_registrar *r = &device->registrar;
    struct sy_registered *range;
    pthread_mutex_lock(&r->lock);
    while ((range = find_range(r, base)) != NULL && range->state == SY_REGISTER_BUSY)
        pthread_cond_wait(&r->changed, &r->lock);
    struct sy_registered taken = range ? take_range(r, range) : (struct sy_registered){0};
    pthread_mutex_unlock(&r->lock);
    if (!range)
        return sy_error_set(SY_EARG, "%p is not registered", base);
    if (taken.state == SY_REGISTER_QUEUED || taken.status < 0)
        return SY_OK;
    if (sy_cuda_device_failed(base_device) == SY_OK)
        SY_TRY(sy_cuda_device_enter(base_device));
    return sy_cuda_device_check(base_device, device->api->host_unregister(base),
                                "cannot unpin %llu bytes at %p", (unsigned long long)taken.bytes,
                                base);
}

static bool all_done(const struct sy_cuda_registrar *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->ranges[i].state != SY_REGISTER_DONE)
            return false;
    return true;
}

int sy_cuda_host_register_wait(struct sy_device *base_device, sy_ns timeout_ns)
{
    struct sy_cuda_registrar *r = &((struct sy_cuda_device *)base_device)->registrar;
    sy_ns now = sy_clock_now();
    sy_ns deadline = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
    struct timespec until = {.tv_sec = (time_t)(deadline / SY_NS_PER_S),
                             .tv_nsec = (long)(deadline % SY_NS_PER_S)};
    int timed_out = 0, status = SY_OK;
    pthread_mutex_lock(&r->lock);
    while (!all_done(r) && !timed_out)
        timed_out = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    if (!all_done(r))
        status = sy_error_set(SY_EDEADLINE, "host memory is not pinned within %llu ms",
                              (unsigned long long)(timeout_ns / SY_NS_PER_MS));
    for (int i = 0; i < r->n && status == SY_OK; i++)
        if (r->ranges[i].status < 0)
            status = sy_error_set(r->ranges[i].status, "%s", r->ranges[i].why);
    pthread_mutex_unlock(&r->lock);
    return status;
}

void sy_cuda_registrar_finish(struct sy_cuda_device *device)
{
    struct sy_cuda_registrar *r = &device->registrar;
    pthread_mutex_lock(&r->lock);
    for (int i = r->n - 1; i >= 0; i--) /* what it has not begun, it need not begin */
        if (r->ranges[i].state == SY_REGISTER_QUEUED)
            take_range(r, &r->ranges[i]);
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    while (r->n > 0)
        SY_CLEANUP(sy_cuda_host_unregister(&device->base, r->ranges[0].base));
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

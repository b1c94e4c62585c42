/* Host memory, pinned in the background. */
#include <errno.h>
#include <inttypes.h>
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

/* ---- pieces ------------------------------------------------------------------------------------------ */

/* C6. One call pins one piece: the driver is free for others in between, and the first pieces are of use before the last are
 * pinned. Pieces end at multiples of this address, so that no page is in two. */
#define PIECE_BYTES (1ull << 30)

static uint64_t piece_at(const char *at, uint64_t left)
{
    uint64_t to_boundary = PIECE_BYTES - (uint64_t)(uintptr_t)at % PIECE_BYTES;
    return SY_MIN(left, to_boundary);
}

uint64_t sy_cuda_copy_piece(struct sy_cuda_device *device, const void *host, uint64_t bytes)
{
    struct sy_cuda_registrar *r = &device->registrar;
    const char *at = host;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n; i++) {
        const char *start = r->ranges[i].base, *end = start + r->ranges[i].bytes;
        if (at >= start && at < end) {
            uint64_t piece = piece_at(at, (uint64_t)(end - at));
            bytes = SY_MIN(bytes, piece);
        } else if (at < start && (uint64_t)(start - at) < bytes) {
            bytes = (uint64_t)(start - at);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

static struct sy_registered *find_range(struct sy_cuda_registrar *r, const void *base)
{
    for (int i = 0; i < r->n; i++)
        if (r->ranges[i].base == base)
            return &r->ranges[i];
    return NULL;
}

/* A busy range stays in the array, but may move in it. */
static bool note_pinned(struct sy_cuda_registrar *r, const void *base, uint64_t pinned_bytes)
{
    pthread_mutex_lock(&r->lock);
    struct sy_registered *range = find_range(r, base);
    range->pinned_bytes = pinned_bytes;
    bool cancel = range->cancel;
    pthread_mutex_unlock(&r->lock);
    return !cancel;
}

/* ---- the thread -------------------------------------------------------------------------------------- */

/* What the host maps read-only can be pinned as such only, and what the device writes must not be: so the kernel is asked which it is. What
 * it does not tell is taken as writable. */
static bool is_mapped_read_only(const void *place)
{
    uintptr_t at = (uintptr_t)place, start, end;
    char line[512], mode[8];
    bool read_only = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &start, &end, mode) == 3 && at >= start &&
            at < end) {
            read_only = mode[1] != 'w';
            break;
        }
    if (maps)
        fclose(maps);
    return read_only;
}

static int pin_piece(struct sy_cuda_device *device, void *at, uint64_t bytes, bool read_only)
{
    const struct sy_cuda_api *api = device->api;
    int error = api->host_register(at, bytes, read_only);
    if (error != SY_CUDA_MemoryAllocation)
        return sy_cuda_device_check(&device->base, error, "cannot pin %llu bytes at %p",
                                    (unsigned long long)bytes, at);
    api->error_clear();
    return sy_error_set(SY_ENOMEM_HOST,
                        "cuda:%d: cannot pin %llu bytes at %p: the host has no more memory to pin",
                        device->base.spec.ordinal, (unsigned long long)bytes, at);
}

static int pin(struct sy_cuda_device *device, void *base, uint64_t bytes, bool *out_read_only)
{
    uint64_t done = 0;
    *out_read_only = device->read_only_register && is_mapped_read_only(base);
    SY_TRY(sy_cuda_device_enter(&device->base));
    while (done < bytes) {
        char *at = (char *)base + done;
        uint64_t piece = piece_at(at, bytes - done);
        SY_TRY(pin_piece(device, at, piece, *out_read_only));
        done += piece;
        if (!note_pinned(&device->registrar, base, done) && done < bytes)
            return sy_error_set(SY_ECANCELED, "unregistered while it was being pinned");
    }
    return SY_OK;
}

/* With nothing locked. Says when it is done; a failure is told, and costs speed only. */
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
    else if (status != SY_ECANCELED)
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
        range = find_range(r, base);
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

/* The pieces that were pinned; the first failure, but goes on. */
static int unpin(struct sy_cuda_device *device, const struct sy_registered *range)
{
    int status = SY_OK;
    if (range->pinned_bytes > 0 && sy_cuda_device_failed(&device->base) == SY_OK)
        SY_TRY(sy_cuda_device_enter(&device->base));
    for (uint64_t done = 0; done < range->pinned_bytes;) {
        char *at = (char *)range->base + done;
        uint64_t piece = piece_at(at, range->bytes - done);
        int failure = sy_cuda_device_check(&device->base, device->api->host_unregister(at),
                                           "cannot unpin %llu bytes at %p",
                                           (unsigned long long)piece, (void *)at);
        status = status < 0 ? status : failure;
        done += piece;
    }
    return status;
}

int sy_cuda_host_unregister(struct sy_device *base_device, void *base)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base_device;
    struct sy_cuda_registrar *r = &device->registrar;
    struct sy_registered *range;
    pthread_mutex_lock(&r->lock);
    while ((range = find_range(r, base)) != NULL && range->state == SY_REGISTER_BUSY) {
        range->cancel = true;
        pthread_cond_wait(&r->changed, &r->lock);
    }
    struct sy_registered taken = range ? take_range(r, range) : (struct sy_registered){0};
    pthread_mutex_unlock(&r->lock);
    return range ? unpin(device, &taken) : sy_error_set(SY_EARG, "%p is not registered", base);
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
    for (int i = r->n - 1; i >= 0; i--) { /* what it has not begun, it need not begin */
        r->ranges[i].cancel = true;
        if (r->ranges[i].state == SY_REGISTER_QUEUED)
            take_range(r, &r->ranges[i]);
    }
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    while (r->n > 0)
        SY_CLEANUP(sy_cuda_host_unregister(&device->base, r->ranges[0].base));
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

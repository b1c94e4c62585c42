/* The process's context on a device: made when something first needs it, with the pools that wait for it (C1, C2). */
#include "runtime/base/assert.h"
#include "runtime/device/cuda/cuda_internal.h"

static _Atomic bool made_context; /* any device of this process */

bool sy_cuda_made_context(void)
{
    return atomic_load(&made_context);
}

/* With the lock held. C1: nothing before this made a context. */
static int open_context(struct sy_cuda_device *device)
{
    int ordinal = device->base.spec.ordinal;
    atomic_store(&made_context, true);
    SY_TRY(sy_cuda_device_check(&device->base, device->api->context_open(ordinal),
                                "cannot make a context"));
    SY_TRY(sy_cuda_device_check(&device->base, device->api->context_enter(ordinal),
                                "cannot enter its context"));
    for (struct sy_cuda_pool *pool = device->pools; pool; pool = pool->next)
        if (!pool->mapped)
            SY_TRY(sy_cuda_pool_map(device, pool));
    atomic_store(&device->has_context, true);
    return SY_OK;
}

int sy_cuda_device_enter(struct sy_device *base)
{
    static _Thread_local int current = -1; /* C2 */
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    SY_TRY(sy_cuda_device_failed(base));
    if (!atomic_load(&device->has_context)) {
        pthread_mutex_lock(&device->lock);
        bool open_now = !atomic_load(&device->has_context);
        int status = open_now ? open_context(device) : SY_OK;
        pthread_mutex_unlock(&device->lock);
        SY_TRY(status);
        if (open_now)
            current = base->spec.ordinal;
    }
    if (current != base->spec.ordinal)
        SY_TRY(sy_cuda_device_check(base, device->api->context_enter(base->spec.ordinal),
                                    "cannot enter its context"));
    current = base->spec.ordinal;
    return SY_OK;
}

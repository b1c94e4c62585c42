/* CUDA's errors as a status and a text; a sticky error is the device's from then on (D5). */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"

/* D5: the first one counts, and is told in the log. */
static void stick(struct sy_cuda_device *device, int status)
{
    pthread_mutex_lock(&device->failing);
    bool first = atomic_load(&device->status) == SY_OK;
    if (first) {
        snprintf(device->failed_why, sizeof device->failed_why, "%s", sy_error_text());
        atomic_store(&device->status, status);
    }
    pthread_mutex_unlock(&device->failing);
    if (first)
        sy_log_error("device", "event=device_failed device=cuda:%d why=\"%s\"",
                     device->base.spec.ordinal, device->failed_why);
}

int sy_cuda_device_set_text(struct sy_cuda_device *device, int error, const char *what)
{
    return sy_error_set(sy_cuda_error_status(error), "cuda:%d: %s: %s (%s)%s",
                        device->base.spec.ordinal, what, device->api->error_text(error),
                        device->api->error_name(error), sy_cuda_error_hint(error));
}

int sy_cuda_device_check(struct sy_device *base, int error, const char *format, ...)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    char what[200];
    va_list args;
    if (error == SY_CUDA_Success)
        return SY_OK;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    device->api->error_clear();
    int status = sy_cuda_device_set_text(device, error, what);
    if (sy_cuda_error_is_sticky(error))
        stick(device, status);
    return status;
}

int sy_cuda_device_failed(struct sy_device *base)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    int status = atomic_load(&device->status);
    return status < 0
               ? sy_error_set(status, "cuda:%d failed in this process; open it in a new one: %s",
                              base->spec.ordinal, device->failed_why)
               : SY_OK;
}

#include "runtime/device/link_memory.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"

#define HOST_ALIGN (2ull << 20)

int sy_link_host_take(struct sy_device *device, uint64_t bytes, void **out)
{
    void *host = aligned_alloc(HOST_ALIGN, SY_ALIGN_UP(bytes, HOST_ALIGN));
    SY_TRY_ALLOC(host, "no memory for %llu bytes to copy", (unsigned long long)bytes);
    memset(host, 1, bytes);
    int status = sy_device_host_register(device, host, bytes);
    if (status == SY_OK)
        status = sy_device_host_register_wait(device, 60 * SY_NS_PER_S);
    if (status < 0)
        sy_log_warn("device", "event=link_from_unpinned_memory why=\"%s\"", sy_error_text());
    *out = host;
    return SY_OK;
}

void sy_link_host_drop(struct sy_device *device, void *host)
{
    if (host)
        (void)sy_device_host_unregister(device, host); /* it may never have been */
    free(host);
}

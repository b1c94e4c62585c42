/* A pool's address range, and mapping it there (C3, C4). */
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"

static void tell_moved(const struct sy_cuda_device *device, uint64_t wish, uint64_t got)
{
    sy_log_info("device", "event=pool_moved device=cuda:%d wish=0x%llx address=0x%llx",
                device->base.spec.ordinal, (unsigned long long)wish, (unsigned long long)got);
}

/* C3, the maker's side: keeps the place from now on. If the driver would not have it there, the pool lies where the driver wants it, and the
 * ticket wishes that of all others. A driver that reserves nothing without a context is asked again when there is one. */
void sy_cuda_pool_reserve(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    uint64_t got = 0, wish = pool->base.base.value;
    int error = device->api->address_reserve(pool->base.bytes, 0, wish, &got);
    if (error != SY_CUDA_Success) {
        device->api->error_clear();
        return;
    }
    pool->reserved = true;
    pool->base.base.value = got;
    if (got != wish)
        tell_moved(device, wish, got);
}

/* If the driver refuses the wanted address, the pool lies at another address in this process (C3). */
static int reserve(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    uint64_t got = 0, wish = pool->base.base.value, bytes = pool->base.bytes;
    if (pool->reserved)
        return SY_OK;
    SY_TRY(sy_cuda_device_check(&device->base, device->api->address_reserve(bytes, 0, wish, &got),
                                "cannot reserve %llu bytes of addresses at 0x%llx",
                                (unsigned long long)bytes, (unsigned long long)wish));
    pool->reserved = true;
    pool->base.base.value = got;
    if (got != wish) {
        device->base.properties.own_addresses = true;
        tell_moved(device, wish, got);
    }
    return SY_OK;
}

static int map_by_fd(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    uint64_t bytes = pool->base.bytes;
    SY_TRY(reserve(device, pool));
    uint64_t at = pool->base.base.value;
    SY_TRY(sy_cuda_device_check(&device->base, device->api->mem_map(at, bytes, pool->memory),
                                "cannot map the pool of %llu bytes at 0x%llx",
                                (unsigned long long)bytes, (unsigned long long)at));
    int status = sy_cuda_device_check(
        &device->base, device->api->mem_access(at, bytes, device->base.spec.ordinal),
        "cannot get access to the pool of %llu bytes", (unsigned long long)bytes);
    if (status < 0) {
        device->api->mem_unmap(at, bytes);
        device->api->error_clear();
    }
    pool->mapped = status == SY_OK;
    return status;
}

/* C4: the address is this process's own. */
static int map_by_keeper(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    uint64_t address = 0;
    SY_TRY(sy_cuda_device_check(&device->base, device->api->ipc_open(pool->ipc, &address),
                                "cannot open the keeper's pool of %llu bytes",
                                (unsigned long long)pool->base.bytes));
    pool->base.base.value = address;
    pool->mapped = true;
    return SY_OK;
}

int sy_cuda_pool_map(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    return pool->way == SY_POOL_BY_FD ? map_by_fd(device, pool) : map_by_keeper(device, pool);
}

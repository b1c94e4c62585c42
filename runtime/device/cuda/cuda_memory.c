/* The pool: made in the runtime without a context, mapped where there is one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"
#include "runtime/device/cuda/cuda_place.h"
#include "runtime/device/cuda/pool_keeper.h"
#include "runtime/device/cuda/pool_ticket.h"

static pthread_mutex_t place_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sy_cuda_place place; /* of the process; base 0: not yet set up */

static struct sy_cuda_device *device_of(struct sy_cuda_pool *pool)
{
    return (struct sy_cuda_device *)pool->base.device;
}

/* ---- addresses --------------------------------------------------------------------------------------- */

static int ready_place(void)
{
    int status = place.base ? SY_OK : sy_cuda_place_init(&place, getenv("SY_CUDA_POOL_BASE"));
    if (status < 0)
        place.base = 0;
    return status;
}

/* `wish` 0: any. An address that is no slot of ours is the exporter's driver's choice, and wished for as it is. */
static int take_place(struct sy_cuda_pool *pool, uint64_t wish)
{
    pthread_mutex_lock(&place_lock);
    int status = ready_place();
    if (status == SY_OK && wish && !sy_cuda_place_is_slot(&place, wish)) {
        pool->base.base.value = wish;
    } else if (status == SY_OK) {
        status = sy_cuda_place_take(&place, wish, pool->base.bytes, &pool->slot);
        pool->base.base.value = pool->slot;
    }
    pthread_mutex_unlock(&place_lock);
    return status;
}

static void give_place(uint64_t slot)
{
    pthread_mutex_lock(&place_lock);
    sy_cuda_place_give(&place, slot);
    pthread_mutex_unlock(&place_lock);
}

/* With the device's lock held. Statuses while closing are ignored: nothing can be done about them. */
static void unmap(struct sy_cuda_pool *pool)
{
    const struct sy_cuda_api *api = device_of(pool)->api;
    if (!pool->mapped)
        return;
    if (pool->way == SY_POOL_BY_FD)
        api->mem_unmap(pool->base.base.value, pool->base.bytes);
    else
        api->ipc_close(pool->base.base.value);
    api->error_clear();
    pool->mapped = false;
}

/* ---- pools ------------------------------------------------------------------------------------------- */

static void free_pool(struct sy_cuda_pool *pool)
{
    const struct sy_cuda_api *api = device_of(pool)->api;
    if (pool->reserved)
        api->address_free(pool->base.base.value, pool->base.bytes);
    if (pool->slot)
        give_place(pool->slot);
    if (pool->memory)
        api->mem_release(pool->memory);
    api->error_clear();
    if (pool->keeper)
        sy_pool_keeper_stop(pool->keeper, pool->keeper_socket);
    free(pool);
}

static void pool_destroy(struct sy_pool_memory *base)
{
    struct sy_cuda_pool *pool = (struct sy_cuda_pool *)base;
    struct sy_cuda_device *device = device_of(pool);
    if (atomic_load(&device->has_context))
        (void)sy_cuda_device_enter(&device->base); /* of a failed device: the driver copes */
    pthread_mutex_lock(&device->lock);
    struct sy_cuda_pool **link = &device->pools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    unmap(pool);
    pthread_mutex_unlock(&device->lock);
    free_pool(pool);
}

/* Puts the pool into the device's list; maps it if there is a context, or else when there is one. */
static int add_pool(struct sy_cuda_pool *pool, struct sy_pool_memory **out)
{
    struct sy_cuda_device *device = device_of(pool);
    int status = SY_OK;
    bool has_context = atomic_load(&device->has_context);
    if (has_context)
        SY_TRY_GOTO(sy_cuda_device_enter(&device->base), undo);
    pthread_mutex_lock(&device->lock);
    if (has_context)
        status = sy_cuda_pool_map(device, pool);
    if (status == SY_OK) {
        pool->next = device->pools;
        device->pools = pool;
    }
    pthread_mutex_unlock(&device->lock);
    if (status < 0)
        goto undo;
    *out = &pool->base;
    return SY_OK;
undo:
    free_pool(pool);
    return status;
}

static struct sy_cuda_pool *new_pool(struct sy_cuda_device *device, enum sy_pool_way way,
                                     uint64_t bytes)
{
    struct sy_cuda_pool *pool = calloc(1, sizeof *pool);
    if (pool)
        *pool = (struct sy_cuda_pool){
            .base = {.device = &device->base, .bytes = bytes}, .way = way, .keeper_socket = -1};
    return pool;
}

/* The granularity of sizes. */
static int get_granule(struct sy_cuda_device *device, uint64_t *out)
{
    SY_TRY(sy_cuda_device_check(&device->base,
                                device->api->mem_granularity(device->base.spec.ordinal, out),
                                "cannot learn how memory is cut"));
    return *out > 0 ? SY_OK
                    : sy_error_set(SY_EDEVICE, "cuda:%d: memory comes in steps of 0 bytes",
                                   device->base.spec.ordinal);
}

/* ---- which way --------------------------------------------------------------------------------------- */

/* One block is made, exported and imported again; all is given back. Needs no context. */
static void try_once(struct sy_cuda_device *device, uint64_t bytes, struct sy_pool_probe *probe)
{
    const struct sy_cuda_api *api = device->api;
    uint64_t made = 0, imported = 0;
    int fd = -1;
    probe->call = "cuMemCreate";
    probe->error = api->mem_create(device->base.spec.ordinal, bytes, &made);
    if (probe->error)
        goto out;
    probe->call = "cuMemExportToShareableHandle";
    probe->error = api->mem_export(made, &fd);
    if (probe->error)
        goto release;
    probe->call = "cuMemImportFromShareableHandle";
    probe->error = api->mem_import(fd, &imported);
    if (!probe->error)
        api->mem_release(imported);
    close(fd);
release:
    api->mem_release(made);
out:
    api->error_clear();
}

/* Decided once per device and process, told once. */
static int choose_way(struct sy_cuda_device *device, uint64_t granule)
{
    struct sy_pool_probe probe = {.call = ""};
    int has_vmm = 0, has_fd = 0, ordinal = device->base.spec.ordinal;
    const char *why = "", *wanted = getenv("SY_CUDA_POOL");
    if (device->way_known)
        return SY_OK;
    SY_TRY(sy_cuda_device_check(&device->base,
                                device->api->device_attribute(ordinal, SY_CUDA_HAS_VMM, &has_vmm),
                                "cannot read its attributes"));
    SY_TRY(sy_cuda_device_check(&device->base,
                                device->api->device_attribute(ordinal, SY_CUDA_HAS_FD, &has_fd),
                                "cannot read its attributes"));
    probe.has_vmm = has_vmm != 0;
    probe.has_fd = has_fd != 0;
    if (probe.has_vmm && probe.has_fd && !(wanted && strcmp(wanted, "ipc") == 0))
        try_once(device, granule, &probe);
    int status = sy_pool_choose_way(&probe, wanted, &device->way, &why);
    if (status < 0)
        return sy_error_prefix(status, "cuda:%d", ordinal);
    device->way_known = true;
    if (device->way == SY_POOL_BY_KEEPER && !wanted)
        sy_log_warn(
            "device",
            "event=pool_fallback device=cuda:%d way=ipc why=\"%s\" error=%d; SY_CUDA_POOL=ipc "
            "silences this, SY_CUDA_POOL=fd forbids it",
            ordinal, why, probe.error);
    return SY_OK;
}

/* C1: should a driver make one by itself, it costs memory, and nothing else. */
static void check_no_context(struct sy_cuda_device *device)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    int active = 0, ordinal = device->base.spec.ordinal;
    if (sy_cuda_made_context() || device->api->context_active(ordinal, &active) != 0 || !active)
        return;
    if (!atomic_flag_test_and_set(&told))
        sy_log_warn("device", "event=context_without_need device=cuda:%d", ordinal);
}

/* ---- create, import, export -------------------------------------------------------------------------- */

static int fill_by_fd(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    uint64_t bytes = pool->base.bytes, memory = 0;
    SY_TRY(sy_cuda_device_check(
        &device->base, device->api->mem_create(device->base.spec.ordinal, bytes, &memory),
        "cannot take a pool of %llu bytes of %llu", (unsigned long long)bytes,
        (unsigned long long)device->base.properties.memory_bytes));
    pool->memory = memory;
    SY_TRY(take_place(pool, 0));
    sy_cuda_pool_reserve(device, pool);
    return SY_OK;
}

static int fill_by_keeper(struct sy_cuda_device *device, struct sy_cuda_pool *pool)
{
    int status = sy_pool_keeper_start(device->base.spec.ordinal, pool->base.bytes, &pool->keeper,
                                      &pool->keeper_socket, pool->ipc);
    device->base.properties.own_addresses = true;
    return status;
}

static int pool_create(struct sy_device *base, uint64_t wanted, struct sy_pool_memory **out)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    uint64_t bytes, granule;
    SY_TRY(sy_cuda_device_failed(base));
    SY_TRY(get_granule(device, &granule));
    SY_TRY(choose_way(device, granule));
    bytes = SY_ALIGN_UP(wanted, granule); /* at most the device's memory, the wrapper saw to it */
    struct sy_cuda_pool *pool = new_pool(device, device->way, bytes);
    SY_TRY_ALLOC(pool, "no memory for a pool");
    int status =
        pool->way == SY_POOL_BY_FD ? fill_by_fd(device, pool) : fill_by_keeper(device, pool);
    if (status < 0) {
        free_pool(pool);
        return status;
    }
    check_no_context(device);
    return add_pool(pool, out);
}

static int check_ticket(struct sy_cuda_device *device, const struct sy_pool_ticket *ticket,
                        uint64_t wanted)
{
    uint64_t granule;
    SY_TRY(get_granule(device, &granule));
    if (wanted > ticket->bytes || ticket->bytes != SY_ALIGN_UP(wanted, granule))
        return sy_error_set(SY_EARG, "the pool has %llu bytes, not %llu",
                            (unsigned long long)ticket->bytes, (unsigned long long)wanted);
    if (memcmp(ticket->uuid, device->uuid, sizeof device->uuid) != 0)
        return sy_error_set(SY_EARG,
                            "the pool lies on another GPU than cuda:%d: is "
                            "CUDA_VISIBLE_DEVICES the same in both processes?",
                            device->base.spec.ordinal);
    return SY_OK;
}

static int import_memory(struct sy_cuda_device *device, struct sy_cuda_pool *pool,
                         const struct sy_pool_ticket *ticket, int memory_fd)
{
    uint64_t memory = 0;
    if (pool->way == SY_POOL_BY_KEEPER) {
        memcpy(pool->ipc, ticket->ipc, sizeof pool->ipc);
        device->base.properties.own_addresses = true;
        return SY_OK;
    }
    if (memory_fd < 0)
        return sy_error_set(SY_EARG, "the pool came without its memory's descriptor");
    SY_TRY(sy_cuda_device_check(&device->base, device->api->mem_import(memory_fd, &memory),
                                "cannot import the pool of %llu bytes; SY_CUDA_POOL=ipc shares "
                                "it in another way",
                                (unsigned long long)pool->base.bytes));
    pool->memory = memory;
    return take_place(pool, ticket->address);
}

static int import_ticket(struct sy_cuda_device *device, const struct sy_pool_ticket *ticket,
                         int memory_fd, uint64_t wanted, struct sy_pool_memory **out)
{
    SY_TRY(check_ticket(device, ticket, wanted));
    SY_TRY(sy_cuda_device_enter(&device->base));
    struct sy_cuda_pool *pool = new_pool(device, ticket->way, ticket->bytes);
    SY_TRY_ALLOC(pool, "no memory for a pool");
    int status = import_memory(device, pool, ticket, memory_fd);
    if (status < 0) {
        free_pool(pool);
        return status;
    }
    return add_pool(pool, out);
}

static int pool_import(struct sy_device *base, int fd, uint64_t wanted, struct sy_pool_memory **out)
{
    struct sy_pool_ticket ticket;
    int memory_fd;
    SY_TRY(sy_cuda_device_failed(base));
    SY_TRY(sy_pool_ticket_read(fd, &ticket, &memory_fd));
    int status = import_ticket((struct sy_cuda_device *)base, &ticket, memory_fd, wanted, out);
    if (memory_fd >= 0)
        close(memory_fd); /* the driver has its own */
    return status;
}

static int pool_export(struct sy_pool_memory *base, int *out_fd)
{
    struct sy_cuda_pool *pool = (struct sy_cuda_pool *)base;
    struct sy_cuda_device *device = device_of(pool);
    struct sy_pool_ticket ticket = {.way = pool->way, .bytes = base->bytes};
    int memory_fd = -1;
    SY_TRY(sy_cuda_device_failed(&device->base));
    memcpy(ticket.uuid, device->uuid, sizeof ticket.uuid);
    memcpy(ticket.ipc, pool->ipc, sizeof ticket.ipc);
    ticket.address = pool->way == SY_POOL_BY_FD ? base->base.value : 0;
    if (pool->way == SY_POOL_BY_FD)
        SY_TRY(sy_cuda_device_check(&device->base,
                                    device->api->mem_export(pool->memory, &memory_fd),
                                    "cannot export the pool; SY_CUDA_POOL=ipc shares it in another "
                                    "way"));
    int status = sy_pool_ticket_make(&ticket, memory_fd, out_fd);
    if (memory_fd >= 0)
        close(memory_fd);
    return status;
}

const struct sy_memory_ops sy_cuda_memory_ops = {
    .pool_create = pool_create,
    .pool_import = pool_import,
    .pool_export = pool_export,
    .pool_destroy = pool_destroy,
    .host_register = sy_cuda_host_register,
    .host_unregister = sy_cuda_host_unregister,
    .host_register_wait = sy_cuda_host_register_wait,
};

/* The devices on this CPU: `host`, unified, and `emulated`, behind a paced link. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/device/host_pages.h"
#include "runtime/device/host_stream.h"

/* D1. High, where neither the loader nor mmap puts anything by itself. The thread sanitizer allows few ranges; this low
 * one is free in a position-independent program. */
#if defined __SANITIZE_THREAD__
#define POOL_BASE   0x1000000000ull
#define POOL_STRIDE 0x480000000ull /* 18 GiB; the range ends at 512 GiB */
#define POOL_SLOTS  24
#else
#define POOL_BASE   0x500000000000ull
#define POOL_STRIDE 0x10000000000ull /* 1 TiB */
#define POOL_SLOTS  64
#endif

struct host_pool {
    struct sy_pool_memory base;
    int fd, slot;
    uint64_t mapped_bytes; /* pool, the link clock's page, the bits of its blocks */
    struct sy_host_pages pages;
};

static uint64_t file_bytes(uint64_t pool_bytes, uint64_t page)
{
    return pool_bytes + page + SY_ALIGN_UP(sy_host_pages_bits_bytes(pool_bytes), page);
}

static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static bool slot_taken[POOL_SLOTS];

static int take_slot(void)
{
    int slot = -1;
    pthread_mutex_lock(&slots_lock);
    for (int i = 0; i < POOL_SLOTS && slot < 0; i++)
        if (!slot_taken[i])
            slot = i;
    if (slot >= 0)
        slot_taken[slot] = true;
    pthread_mutex_unlock(&slots_lock);
    return slot;
}

static void give_slot(int slot)
{
    pthread_mutex_lock(&slots_lock);
    slot_taken[slot] = false;
    pthread_mutex_unlock(&slots_lock);
}

/* Takes over the fd. */
static int map_pool(struct sy_device *device, int fd, uint64_t bytes, struct sy_pool_memory **out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct host_pool *pool = calloc(1, sizeof *pool);
    int slot = take_slot();
    if (!pool || slot < 0) {
        if (slot >= 0)
            give_slot(slot);
        free(pool);
        close(fd);
        return sy_error_set(SY_ENOMEM_HOST, "no room for another pool in this process (%d at most)",
                            POOL_SLOTS);
    }
    void *wish = (void *)(uintptr_t)(POOL_BASE + (uint64_t)slot * POOL_STRIDE);
    uint64_t mapped = file_bytes(bytes, page);
    void *base = mmap(wish, mapped, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0);
    if (base != wish) {
        int status = sy_error_set(SY_ENOMEM_DEVICE, "cannot map the pool of %llu bytes at %p: %s",
                                  (unsigned long long)bytes, wish, strerror(errno));
        if (base != MAP_FAILED)
            munmap(base, mapped);
        give_slot(slot);
        close(fd);
        free(pool);
        return status;
    }
    madvise(base, bytes, MADV_HUGEPAGE);
    *pool = (struct host_pool){
        .base = {.device = device, .bytes = bytes, .base = {(uint64_t)(uintptr_t)base}},
        .fd = fd,
        .slot = slot,
        .mapped_bytes = mapped,
        .pages = {.base = base,
                  .bytes = bytes,
                  .asked = (_Atomic uint64_t *)((char *)base + bytes + page)}};
    struct sy_host_device *host = (struct sy_host_device *)device;
    if (host->clock == &host->own_clock)
        host->clock = (struct sy_link_clock *)((char *)base + bytes);
    *out = &pool->base;
    return SY_OK;
}

static int pool_create(struct sy_device *device, uint64_t wanted, struct sy_pool_memory **out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = SY_ALIGN_UP(wanted, page);
    int fd = memfd_create("switchyard-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)file_bytes(bytes, page)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        int status = sy_error_set(SY_ENOMEM_DEVICE, "cannot take a pool of %llu bytes: %s",
                                  (unsigned long long)bytes, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    return map_pool(device, fd, bytes, out);
}

static int pool_import(struct sy_device *device, int fd, uint64_t wanted,
                       struct sy_pool_memory **out)
{
    struct stat st;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = SY_ALIGN_UP(wanted, page);
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != file_bytes(bytes, page))
        return sy_error_set(SY_EARG, "the file is not a pool of %llu bytes",
                            (unsigned long long)wanted);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot keep the pool's file: %s", strerror(errno));
    return map_pool(device, own, bytes, out);
}

static int pool_export(struct sy_pool_memory *base, int *out_fd)
{
    *out_fd = fcntl(((struct host_pool *)base)->fd, F_DUPFD_CLOEXEC, 0);
    return *out_fd >= 0
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "cannot export the pool: %s", strerror(errno));
}

static void pool_destroy(struct sy_pool_memory *base)
{
    struct host_pool *pool = (struct host_pool *)base;
    struct sy_host_device *device = (struct sy_host_device *)base->device;
    struct sy_link_clock *own = (struct sy_link_clock *)(uintptr_t)(base->base.value + base->bytes);
    if (device->clock == own)
        device->clock = &device->own_clock;
    munmap((void *)(uintptr_t)base->base.value, pool->mapped_bytes);
    close(pool->fd);
    give_slot(pool->slot);
    free(pool);
}

static void pool_touch(struct sy_pool_memory *base, uint64_t offset, uint64_t bytes)
{
    sy_host_pages_touch(&((struct host_pool *)base)->pages, offset, bytes);
}

static void *host_pointer(struct sy_device *device, sy_device_address address)
{
    (void)device;
    return (void *)(uintptr_t)address.value;
}

static const struct sy_memory_ops memory_ops = {
    .pool_create = pool_create,
    .pool_import = pool_import,
    .pool_export = pool_export,
    .pool_destroy = pool_destroy,
    .host_pointer = host_pointer,
    .pool_touch = pool_touch,
};

static const struct sy_memory_ops emulated_memory_ops = {
    .pool_create = pool_create,
    .pool_import = pool_import,
    .pool_export = pool_export,
    .pool_destroy = pool_destroy,
    .host_pointer = host_pointer,
    .host_read = sy_host_paced_read,
    .pool_touch = pool_touch,
};

/* ---- devices ----------------------------------------------------------------------------------------- */

static int open_with(const struct sy_device_ops *ops, const struct sy_device_spec *spec,
                     struct sy_device **out)
{
    struct sy_host_device *device = calloc(1, sizeof *device);
    SY_TRY_ALLOC(device, "no memory for the device");
    device->link_core = -1;
    device->base.ops = ops;
    device->base.spec = *spec;
    device->base.properties.queue_entries = SY_STREAM_RING;
    device->base.properties.numa_node = -1;
    device->base.properties.memory_bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *out = &device->base;
    return SY_OK;
}

static int open_host(const struct sy_device_spec *spec, struct sy_device **out)
{
    SY_TRY(open_with(&sy_device_host_ops, spec, out));
    struct sy_device_properties *p = &(*out)->properties;
    p->unified = true;
    snprintf(p->name, sizeof p->name, "host");
    return SY_OK;
}

static int open_emulated(const struct sy_device_spec *spec, struct sy_device **out)
{
    SY_TRY(open_with(&sy_device_emulated_ops, spec, out));
    struct sy_device_properties *p = &(*out)->properties;
    p->emulated = true;
    p->host_reads = true;
    ((struct sy_host_device *)*out)->clock = &((struct sy_host_device *)*out)->own_clock;
    p->link_gbps = spec->link_gbps;
    p->reserved_cores = 1;
    snprintf(p->name, sizeof p->name, "emulated (%.4g GB/s link)", spec->link_gbps);
    return SY_OK;
}

static void close_device(struct sy_device *device)
{
    free(device);
}

static int set_link_core(struct sy_device *device, int core)
{
    ((struct sy_host_device *)device)->link_core = core;
    return SY_OK;
}

const struct sy_device_ops sy_device_host_ops = {.kind = "host",
                                                 .open = open_host,
                                                 .close = close_device,
                                                 .memory = &memory_ops,
                                                 .stream = &sy_host_stream_ops};

const struct sy_device_ops sy_device_emulated_ops = {.kind = "emulated",
                                                     .open = open_emulated,
                                                     .close = close_device,
                                                     .set_link_core = set_link_core,
                                                     .memory = &emulated_memory_ops,
                                                     .stream = &sy_host_stream_ops};

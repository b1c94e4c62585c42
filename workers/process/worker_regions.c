#include "workers/process/worker_regions.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/device/device.h"
#include "runtime/wire/tensor_at.h"

/* What an access found that its file could not give. */
enum fault { NO_FAULT, FILE_CUT, FILE_FULL };

struct region {
    uint64_t id; /* 0: free */
    /* Read by the signal handler. base is set last, and cleared first. */
    _Atomic(unsigned char *) base; /* NULL: not mapped */
    uint64_t bytes;
    uint64_t file_end; /* the least size of its file */
    int fd;            /* of the file, owned; -1: sealed, or not mapped */
    bool sealed;
    _Atomic(enum fault) fault;
    bool pinned;
    int error; /* errno of mmap */
};

static struct region table[SY_MAX_REGIONS];
static uintptr_t page_bytes;
/* Counts the handler's ends: what it has read, in whichever thread, is changed only after it was read. */
static _Atomic unsigned n_handled;

/* ---- the fault handler: async-signal-safe calls only ------------------------------------------- */

static struct region *region_at(const unsigned char *address)
{
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++) {
        const unsigned char *base = atomic_load_explicit(&table[i].base, memory_order_acquire);
        if (base && address >= base && address < base + table[i].bytes)
            return &table[i];
    }
    return NULL;
}

/* A file that is as long as when it was registered most likely has no page to give: its file system is full. One that was truncated and extended again
 * before this looks the same, and so does a memory error (BUS_MCEERR_*). */
static enum fault fault_of(const struct region *r)
{
    struct stat file;
    return fstat(r->fd, &file) == 0 && (uint64_t)file.st_size >= r->file_end ? FILE_FULL : FILE_CUT;
}

/* E1. Maps zeros from the faulting page to the end of the region; pages before it stay shared with the client. */
static bool replace_rest(struct region *r, unsigned char *address)
{
    unsigned char *from = address - ((uintptr_t)address & (page_bytes - 1));
    size_t left = (size_t)(r->base + r->bytes - from);
    enum fault none = NO_FAULT;
    atomic_compare_exchange_strong(&r->fault, &none, fault_of(r));
    return mmap(from, left, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    int error = errno;
    struct region *r = info->si_code > 0 ? region_at(info->si_addr) : NULL;
    (void)context;
    if (!r || r->sealed || !replace_rest(r, info->si_addr)) {
        signal(signal_number, SIG_DFL); /* E2: a fault comes again on return */
        if (info->si_code <= 0)
            raise(signal_number);
    }
    atomic_fetch_add_explicit(&n_handled, 1, memory_order_release);
    errno = error;
}

int sy_worker_regions_start(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, NULL) < 0)
        return sy_error_set(SY_EIO, "sigaction of SIGBUS: %s", strerror(errno));
    return SY_OK;
}

/* ---- adding, dropping -------------------------------------------------------------------------- */

static void pin(struct sy_device *device, struct region *r)
{
    r->pinned = sy_device_host_register(device, r->base, r->bytes) == SY_OK;
    if (!r->pinned)
        sy_log_warn("worker", "event=region_not_pinned region=%llu bytes=%llu why=\"%s\"",
                    (unsigned long long)r->id, (unsigned long long)r->bytes, sy_error_text());
}

/* Keeps errno. */
static void close_file(struct region *r)
{
    int error = errno;
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    errno = error;
}

/* MAP_FAILED: errno says why. A file that may be cut stays open. */
static void *map(struct region *r, uint64_t offset, int fd)
{
    r->fd = r->sealed ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!r->sealed && r->fd < 0)
        return MAP_FAILED;
    void *base =
        mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    if (base == MAP_FAILED)
        close_file(r);
    return base;
}

int sy_worker_region_add(struct sy_device *device, const struct sy_msg_region_add *add, int fd)
{
    struct region *r = &table[sy_region_slot(add->region)];
    (void)atomic_load_explicit(&n_handled, memory_order_acquire);
    if (add->region == 0 || r->id != 0 || add->bytes == 0 || add->bytes >= SY_REGION_MAX_BYTES)
        return sy_error_set(SY_EPROTO,
                            "REGION_ADD of region %llu with %llu bytes, while its slot "
                            "has region %llu",
                            (unsigned long long)add->region, (unsigned long long)add->bytes,
                            (unsigned long long)r->id);
    *r = (struct region){.id = add->region,
                         .bytes = add->bytes,
                         .file_end = add->offset_bytes + add->bytes,
                         .fd = -1,
                         .sealed = add->sealed != 0};
    void *base = map(r, add->offset_bytes, fd);
    r->error = base == MAP_FAILED ? errno : 0;
    if (base == MAP_FAILED)
        return SY_OK;
    atomic_store_explicit(&r->base, base, memory_order_release);
    pin(device, r);
    return SY_OK;
}

void sy_worker_region_drop(struct sy_device *device, uint64_t region)
{
    struct region *r = &table[sy_region_slot(region)];
    unsigned char *base = r->base;
    (void)atomic_load_explicit(&n_handled, memory_order_acquire);
    if (region == 0 || r->id != region)
        return;
    if (r->pinned)
        SY_CLEANUP(sy_device_host_unregister(device, base));
    r->base = NULL;
    if (base)
        munmap(base, r->bytes);
    close_file(r);
    r->id = 0;
}

void sy_worker_regions_finish(struct sy_device *device)
{
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++)
        sy_worker_region_drop(device, table[i].id);
}

/* ---- runs -------------------------------------------------------------------------------------- */

static int check_whole(const struct region *r)
{
    if (r->error)
        return sy_error_set(SY_EIO, "shared memory region %llu of %llu bytes cannot be mapped: %s",
                            (unsigned long long)r->id, (unsigned long long)r->bytes,
                            strerror(r->error));
    switch (atomic_load(&r->fault)) {
    case NO_FAULT:
        return SY_OK;
    case FILE_FULL:
        return sy_error_set(
            SY_ENOMEM_HOST,
            "the file system of a shared memory region of %llu bytes has no room for its pages, or "
            "its file was truncated and extended again; free some there, or take the pages in "
            "advance with posix_fallocate, then register it again",
            (unsigned long long)r->bytes);
    case FILE_CUT:
        break;
    }
    return sy_error_set(SY_EARG,
                        "a shared memory region of %llu bytes was truncated by its owner while "
                        "it was registered; register it again",
                        (unsigned long long)r->bytes);
}

static int find(uint64_t at, struct region **out)
{
    *out = &table[sy_region_slot(sy_tensor_region(at))];
    if ((*out)->id == sy_tensor_region(at))
        return SY_OK;
    return sy_error_set(SY_EPROTO, "RUN with a tensor in region %llu, which does not exist",
                        (unsigned long long)sy_tensor_region(at));
}

int sy_worker_region_locate(uint64_t at, uint64_t bytes, const char *name, void **out)
{
    struct region *r;
    uint64_t offset = sy_tensor_offset(at);
    SY_TRY(find(at, &r));
    SY_TRY(check_whole(r));
    if (offset > r->bytes || bytes > r->bytes - offset)
        return sy_error_set(SY_EARG,
                            "tensor %s: %llu bytes at offset %llu do not lie in a shared memory "
                            "region of %llu bytes",
                            name, (unsigned long long)bytes, (unsigned long long)offset,
                            (unsigned long long)r->bytes);
    *out = r->base + offset;
    return SY_OK;
}

int sy_worker_regions_check(const struct sy_u64s *at)
{
    for (size_t i = 0; i < at->n; i++) {
        struct region *r;
        if (sy_tensor_region(at->v[i]) == 0)
            continue;
        SY_TRY(find(at->v[i], &r));
        SY_TRY(check_whole(r));
    }
    return SY_OK;
}

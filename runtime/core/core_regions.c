/* Memory that clients share (core.h): the table of regions, their users, and which worker maps which.
 *
 *   add ──> known to the core ──(first run on a worker that names it: REGION_ADD)──> mapped there
 *   drop ─> no new request may name it ──(the last request that does ends)──> closed ──(REGION_DROP, every worker)──> slot free
 *
 * A worker maps a region with its first run that names it: a new worker costs nothing for regions that it never sees, and no call sends a
 * burst of messages. Drops are gathered for DROP_DELAY_US, one message a worker, and wait for workers that do not read their socket soon (a
 * full socket would block the loop). */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"
#include "runtime/wire/tensor_at.h"

/* so that a worker which builds a program for 10 s finds 100 messages */
#define DROP_DELAY_US 100000
#define TENSOR_ALIGN  64
/* Of all regions: a worker may have to map each of them, and its address space is 128 TiB, which sparse files fill at no cost. */
#define ALL_REGIONS_BYTES SY_REGION_MAX_BYTES

_Static_assert(SY_CORE_REGION_SHIFT == SY_TENSOR_REGION_SHIFT, "one address");
_Static_assert(SY_CORE_MAX_REGIONS == SY_MAX_REGIONS, "one table");
_Static_assert(SY_CORE_MAX_WORKERS <= 64, "a bit a worker");

struct region {
    uint64_t id; /* 0: unused slot */
    int fd;      /* -1: dropped, and no request uses it */
    uint64_t offset_bytes, bytes;
    bool sealed, dropped;
    int n_users;       /* request tensors in it */
    uint64_t workers;  /* bit mask of the workers that map it */
    uint64_t n_before; /* times the slot was used before */
};

struct sy_core_regions {
    struct region slots[SY_MAX_REGIONS];
    unsigned next; /* slot at which the next search for a free one begins */
    struct event *drop_event;
};

static void on_drop(int fd, short what, void *core);

int sy_core_regions_create(struct sy_core *core)
{
    struct sy_core_regions *regions = calloc(1, sizeof *regions);
    core->regions = regions;
    if (regions)
        regions->drop_event = event_new(core->base, -1, 0, on_drop, core);
    SY_TRY_ALLOC(regions && regions->drop_event, "no memory for the table of regions");
    return SY_OK;
}

void sy_core_regions_destroy(struct sy_core *core)
{
    struct sy_core_regions *regions = core->regions;
    if (!regions)
        return;
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++)
        if (regions->slots[i].id && regions->slots[i].fd >= 0)
            close(regions->slots[i].fd);
    if (regions->drop_event)
        event_free(regions->drop_event);
    free(regions);
    core->regions = NULL;
}

/* ---- adding ----------------------------------------------------------------------------------- */

static struct region *find(const struct sy_core *core, uint64_t id)
{
    struct region *r = &core->regions->slots[sy_region_slot(id)];
    return id && r->id == id ? r : NULL;
}

/* A page fault must neither wait for a file system nor fail: files on disk, and huge pages (hugetlbfs), which can run out, are rejected. */
static int check_kind(int fd)
{
    struct statfs of;
    if (fstatfs(fd, &of) < 0)
        return sy_error_set(SY_EARG, "shared memory fd %d: %s", fd, strerror(errno));
    if (of.f_type != TMPFS_MAGIC)
        return sy_error_set(SY_EARG,
                            "shared memory fd %d is neither a memfd of ordinary pages nor POSIX "
                            "shared memory (shm_open)",
                            fd);
    return SY_OK;
}

static int check_range(int fd, uint64_t offset_bytes, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct stat file;
    if (fstat(fd, &file) < 0)
        return sy_error_set(SY_EARG, "shared memory fd %d: %s", fd, strerror(errno));
    if (!S_ISREG(file.st_mode))
        return sy_error_set(SY_EARG, "shared memory fd %d is not a file", fd);
    if (offset_bytes % page != 0)
        return sy_error_set(SY_EARG, "a region at offset %llu: a multiple of the page (%llu)",
                            (unsigned long long)offset_bytes, (unsigned long long)page);
    if (bytes == 0 || bytes >= SY_REGION_MAX_BYTES)
        return sy_error_set(SY_EARG, "a region of %llu bytes: 1 to %llu", (unsigned long long)bytes,
                            SY_REGION_MAX_BYTES - 1);
    if (offset_bytes > (uint64_t)file.st_size || bytes > (uint64_t)file.st_size - offset_bytes)
        return sy_error_set(SY_EARG,
                            "a region of %llu bytes at offset %llu does not lie in its file, which "
                            "has %lld bytes",
                            (unsigned long long)bytes, (unsigned long long)offset_bytes,
                            (long long)file.st_size);
    return SY_OK;
}

/* Maps it once as workers will, so that a read-only fd or a lack of address space fails here. */
static int check_mapping(int fd, uint64_t offset_bytes, uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                    (off_t)offset_bytes);
    if (at == MAP_FAILED)
        return sy_error_set(errno == ENOMEM ? SY_ENOMEM_HOST : SY_EARG,
                            "cannot map %llu bytes of shared memory to read and write: %s",
                            (unsigned long long)bytes, strerror(errno));
    munmap(at, bytes);
    return SY_OK;
}

/* Within the address space that all regions together may take. */
static int check_all(const struct sy_core_regions *regions, uint64_t bytes)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++)
        all += regions->slots[i].id ? regions->slots[i].bytes : 0;
    if (bytes <= ALL_REGIONS_BYTES - all)
        return SY_OK;
    return sy_error_set(SY_EBUSY,
                        "a region of %llu bytes: all regions of shared memory together have %llu "
                        "of at most %llu; drop some first",
                        (unsigned long long)bytes, (unsigned long long)all, ALL_REGIONS_BYTES);
}

static struct region *free_slot(struct sy_core_regions *regions)
{
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++) {
        struct region *r = &regions->slots[(regions->next + i) % SY_MAX_REGIONS];
        if (r->id != 0)
            continue;
        regions->next = (unsigned)(r - regions->slots) + 1;
        return r;
    }
    return NULL;
}

/* Sends pending drops to workers that will read soon; a slot that no worker maps becomes free. True: some drops are still pending. */
static bool tell_workers(struct sy_core *core);

static int take_slot(struct sy_core *core, struct region **out)
{
    *out = free_slot(core->regions);
    if (!*out) {
        (void)tell_workers(core);
        *out = free_slot(core->regions);
    }
    return *out ? SY_OK
                : sy_error_set(SY_EBUSY,
                               "%u regions of shared memory are there, which is all there can be; "
                               "drop some first",
                               SY_MAX_REGIONS);
}

/* The offset takes 44 bits, which leaves 20 for an id: the slot, and its use count modulo 1023, plus 1. */
static uint64_t next_id(const struct sy_core_regions *regions, struct region *r)
{
    uint64_t most = (1ull << (64 - SY_TENSOR_REGION_SHIFT)) / SY_MAX_REGIONS - 1;
    return (r->n_before++ % most + 1) * SY_MAX_REGIONS + (uint64_t)(r - regions->slots);
}

int sy_core_region_add(struct sy_core *core, int fd, uint64_t offset_bytes, uint64_t bytes,
                       bool is_sealed, uint64_t *out_region)
{
    struct region *r;
    SY_TRY(check_range(fd, offset_bytes, bytes));
    SY_TRY(check_kind(fd));
    SY_TRY(check_mapping(fd, offset_bytes, bytes));
    SY_TRY(check_all(core->regions, bytes));
    SY_TRY(take_slot(core, &r));
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), seals = fcntl(fd, F_GET_SEALS);
    if (own < 0)
        return sy_error_set(SY_ENOMEM_HOST, "no file descriptor for a region: %s; raise ulimit -n",
                            strerror(errno));
    *r = (struct region){.id = next_id(core->regions, r),
                         .fd = own,
                         .offset_bytes = offset_bytes,
                         .bytes = bytes,
                         .sealed = is_sealed && seals >= 0 && (seals & F_SEAL_SHRINK),
                         .n_before = r->n_before};
    *out_region = r->id;
    return SY_OK;
}

/* ---- dropping --------------------------------------------------------------------------------- */

static bool is_over(const struct region *r)
{
    return r->id && r->dropped && r->n_users == 0;
}

static void free_if_unmapped(struct region *r)
{
    if (is_over(r) && r->workers == 0)
        r->id = 0;
}

/* Called when no request uses the region any more. */
static void end_region(struct sy_core *core, struct region *r)
{
    struct timeval delay = {.tv_usec = DROP_DELAY_US};
    close(r->fd);
    r->fd = -1;
    free_if_unmapped(r);
    if (r->id && !event_pending(core->regions->drop_event, EV_TIMEOUT, NULL))
        event_add(core->regions->drop_event, &delay);
}

void sy_core_region_drop(struct sy_core *core, uint64_t region)
{
    struct region *r = find(core, region);
    if (!r || r->dropped)
        return;
    r->dropped = true;
    if (r->n_users == 0)
        end_region(core, r);
}

/* Whether the worker will read its socket within some milliseconds. */
static bool reads_soon(const struct sy_core *core, int worker)
{
    switch (sy_supervisor_state(core->supervisor, worker)) {
    case SY_WORKER_IDLE:
    case SY_WORKER_LOADED:
    case SY_WORKER_JOB_READY:
    case SY_WORKER_WAITING_TURN:
    case SY_WORKER_TRAINING:
    case SY_WORKER_PAUSED:
        return true;
    default:
        return false;
    }
}

static void send_drops(struct sy_core *core, int worker)
{
    uint64_t ids[SY_MAX_REGIONS];
    size_t n = 0;
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++) {
        struct region *r = &core->regions->slots[i];
        if (!is_over(r) || !(r->workers >> worker & 1))
            continue;
        ids[n++] = r->id;
        r->workers &= ~(1ull << worker);
        free_if_unmapped(r);
    }
    if (n == 0)
        return;
    struct sy_message message = {.id = SY_MSG_REGION_DROP, .region_drop = {.regions = {n, ids}}};
    (void)sy_supervisor_send(core->supervisor, worker, &message, NULL, 0);
}

static bool tell_workers(struct sy_core *core)
{
    bool left = false;
    for (int w = 0; w < core->n_workers && !core->stopping; w++)
        if (reads_soon(core, w))
            send_drops(core, w);
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++)
        left |= is_over(&core->regions->slots[i]);
    return left;
}

static void on_drop(int fd, short what, void *ctx)
{
    struct sy_core *core = ctx;
    struct timeval delay = {.tv_usec = DROP_DELAY_US};
    (void)fd;
    (void)what;
    if (tell_workers(core) && !core->stopping)
        event_add(core->regions->drop_event, &delay);
}

void sy_core_regions_worker_lost(struct sy_core *core, int worker)
{
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++) {
        core->regions->slots[i].workers &= ~(1ull << worker);
        free_if_unmapped(&core->regions->slots[i]);
    }
}

/* ---- requests --------------------------------------------------------------------------------- */

static struct region *region_of(const struct sy_core *core, uint64_t at)
{
    return sy_tensor_region(at) ? find(core, sy_tensor_region(at)) : NULL;
}

static int check_one(const struct sy_core *core, uint64_t at)
{
    uint64_t offset = sy_tensor_offset(at);
    const struct region *r = region_of(core, at);
    if (!r || r->dropped)
        return sy_error_set(SY_EARG, "a tensor in shared memory region %llu, which does not exist",
                            (unsigned long long)sy_tensor_region(at));
    if (offset >= r->bytes || offset % TENSOR_ALIGN != 0)
        return sy_error_set(SY_EARG,
                            "a tensor at offset %llu of a shared memory region of %llu bytes: a "
                            "multiple of %d within it",
                            (unsigned long long)offset, (unsigned long long)r->bytes, TENSOR_ALIGN);
    return SY_OK;
}

int sy_core_regions_check(const struct sy_core *core, const uint64_t *at, int n)
{
    for (int i = 0; i < n; i++)
        if (sy_tensor_region(at[i]) != 0)
            SY_TRY(check_one(core, at[i]));
    return SY_OK;
}

void sy_core_regions_hold(struct sy_core *core, const uint64_t *at, int n)
{
    for (int i = 0; i < n; i++) {
        struct region *r = region_of(core, at[i]);
        assert(r || sy_tensor_region(at[i]) == 0);
        if (r)
            r->n_users++;
    }
}

void sy_core_regions_release(struct sy_core *core, const uint64_t *at, int n)
{
    for (int i = 0; i < n; i++) {
        struct region *r = region_of(core, at[i]);
        if (!r)
            continue;
        assert(r->n_users > 0);
        if (--r->n_users == 0 && r->dropped)
            end_region(core, r);
    }
}

bool sy_core_regions_any(const uint64_t *at, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= sy_tensor_region(at[i]) != 0;
    return any;
}

void sy_core_regions_send(struct sy_core *core, int worker, const uint64_t *at, int n)
{
    for (int i = 0; i < n; i++) {
        struct region *r = region_of(core, at[i]);
        if (!r || (r->workers >> worker & 1))
            continue;
        struct sy_message message = {.id = SY_MSG_REGION_ADD};
        message.region_add = (struct sy_msg_region_add){.region = r->id,
                                                        .offset_bytes = r->offset_bytes,
                                                        .bytes = r->bytes,
                                                        .sealed = r->sealed};
        if (sy_supervisor_send(core->supervisor, worker, &message, &r->fd, 1) < 0)
            return; /* the worker was killed because of it */
        r->workers |= 1ull << worker;
    }
}

int sy_core_regions_n_mapped(const struct sy_core *core, int worker)
{
    int n = 0;
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++)
        n += core->regions->slots[i].id != 0 && (core->regions->slots[i].workers >> worker & 1);
    return n;
}

int sy_core_regions_n(const struct sy_core *core)
{
    int n = 0;
    for (unsigned i = 0; i < SY_MAX_REGIONS; i++)
        n += core->regions->slots[i].id != 0;
    return n;
}

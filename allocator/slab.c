/* jemalloc asks its extent hooks for page runs; here they come out of one shared memory:
 *
 *   shared memory  |####....##########.....|   a bit per page in `taken`; first fit
 *                   tensors  (jemalloc extents, split and merged as it likes)
 *   private        |base|                      jemalloc's own books: never where a worker can write
 *
 * Pages are cleared from the bitmap whatever extents they were handed out in, so splitting and
 * merging need no books at all. Decay is 0: what jemalloc frees comes back at once and coalesces. */
#include "allocator/slab.h"

#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "allocator/shared_memory.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define PAGE         4096u
#define TENSOR_ALIGN 64u
/* jemalloc asks for its own books in pieces aligned to this; for extents in pieces aligned to a page,
 * since nothing here allocates with a larger alignment than TENSOR_ALIGN. */
#define BOOKS_ALIGN (2u << 20)
/* How far jemalloc may grow a run beyond what is asked for. */
#define GROW_LIMIT_BYTES (64u << 10)

struct sy_slab {
    extent_hooks_t hooks; /* first: the hooks get its address */
    struct sy_shared_memory memory;
    pthread_mutex_t lock; /* of the three below; jemalloc calls the hooks from any thread */
    uint8_t *taken;       /* one byte a page */
    uint64_t n_pages;
    uint64_t first_free; /* no free page is below this one */
    unsigned arena;
    _Atomic uint64_t used_bytes;
};

/* ---- page runs -------------------------------------------------------------------------------- */

static void mark_pages(struct sy_slab *slab, uint64_t first, uint64_t n, bool taken)
{
    memset(slab->taken + first, taken, n);
}

/* The first run of n free pages that starts at a multiple of `align` pages; n_pages if there is none. */
static uint64_t find_run(const struct sy_slab *slab, uint64_t n, uint64_t align)
{
    uint64_t first = SY_ALIGN_UP(slab->first_free, align);
    while (n <= slab->n_pages && first <= slab->n_pages - n) {
        uint64_t length = 0;
        while (length < n && !slab->taken[first + length])
            length++;
        if (length == n)
            return first;
        first = SY_ALIGN_UP(first + length + 1, align);
    }
    return slab->n_pages;
}

static void *take_pages(struct sy_slab *slab, uint64_t bytes, uint64_t alignment)
{
    uint64_t n = bytes / PAGE;
    pthread_mutex_lock(&slab->lock);
    uint64_t first = find_run(slab, n, SY_MAX(alignment / PAGE, 1));
    bool found = first < slab->n_pages;
    if (found) {
        mark_pages(slab, first, n, true);
        while (slab->first_free < slab->n_pages && slab->taken[slab->first_free])
            slab->first_free++;
    }
    pthread_mutex_unlock(&slab->lock);
    return found ? (char *)slab->memory.base + first * PAGE : NULL;
}

static void give_pages(struct sy_slab *slab, void *address, uint64_t bytes)
{
    uint64_t first = (uint64_t)((char *)address - (char *)slab->memory.base) / PAGE;
    pthread_mutex_lock(&slab->lock);
    mark_pages(slab, first, bytes / PAGE, false);
    slab->first_free = SY_MIN(slab->first_free, first);
    pthread_mutex_unlock(&slab->lock);
}

/* ---- jemalloc's hooks ------------------------------------------------------------------------- */

static bool is_shared(const struct sy_slab *slab, const void *address)
{
    uintptr_t base = (uintptr_t)slab->memory.base;
    return (uintptr_t)address >= base && (uintptr_t)address - base < slab->memory.bytes;
}

/* Private pages at an aligned address: map more, cut both ends off. */
static void *map_books(size_t bytes, size_t alignment)
{
    char *p = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t head = (alignment - (uintptr_t)p % alignment) % alignment;
    if (head > 0)
        munmap(p, head);
    munmap(p + head + bytes, alignment - head);
    return p + head;
}

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena)
{
    struct sy_slab *slab = (struct sy_slab *)hooks;
    (void)arena;
    if (new_addr)
        return NULL;
    *commit = true;
    if (alignment >= BOOKS_ALIGN) {
        *zero = true;
        return map_books(size, alignment);
    }
    void *address = take_pages(slab, size, alignment);
    if (address && *zero)
        memset(address, 0, size);
    return address;
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                         unsigned arena)
{
    struct sy_slab *slab = (struct sy_slab *)hooks;
    (void)committed;
    (void)arena;
    if (is_shared(slab, address))
        give_pages(slab, address, size);
    else
        munmap(address, size);
}

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                        unsigned arena)
{
    hook_destroy(hooks, address, size, committed, arena);
    return false;
}

static bool hook_split(extent_hooks_t *hooks, void *address, size_t size, size_t size_a,
                       size_t size_b, bool committed, unsigned arena)
{
    (void)hooks, (void)address, (void)size, (void)size_a, (void)size_b, (void)committed;
    (void)arena;
    return false;
}

/* Books and tensors are never neighbours in jemalloc's eyes: only equals merge. */
static bool hook_merge(extent_hooks_t *hooks, void *a, size_t size_a, void *b, size_t size_b,
                       bool committed, unsigned arena)
{
    struct sy_slab *slab = (struct sy_slab *)hooks;
    (void)size_a, (void)size_b, (void)committed, (void)arena;
    return is_shared(slab, a) != is_shared(slab, b);
}

/* ---- the arena -------------------------------------------------------------------------------- */

static int set_arena(unsigned arena, const char *what, void *value, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", arena, what);
    int error = mallctl(name, NULL, NULL, value, size);
    if (error)
        return sy_error_set(SY_ENOMEM_HOST, "jemalloc refuses %s: %s", name, strerror(error));
    return SY_OK;
}

static void destroy_arena(unsigned arena)
{
    char name[64];
    snprintf(name, sizeof name, "arena.%u.destroy", arena);
    int error = mallctl(name, NULL, NULL, NULL, 0);
    assert(error == 0);
    (void)error;
}

static int create_arena(struct sy_slab *slab)
{
    int status;
    extent_hooks_t *hooks = &slab->hooks;
    size_t size = sizeof slab->arena, limit = GROW_LIMIT_BYTES;
    ssize_t at_once = 0;
    int error = mallctl("arenas.create", &slab->arena, &size, &hooks, sizeof hooks);
    if (error)
        return sy_error_set(SY_ENOMEM_HOST, "jemalloc makes no arena for the tensor slab: %s",
                            strerror(error));
    SY_TRY_GOTO(set_arena(slab->arena, "dirty_decay_ms", &at_once, sizeof at_once), destroy);
    SY_TRY_GOTO(set_arena(slab->arena, "muzzy_decay_ms", &at_once, sizeof at_once), destroy);
    SY_TRY_GOTO(set_arena(slab->arena, "retain_grow_limit", &limit, sizeof limit), destroy);
    return SY_OK;

destroy:
    destroy_arena(slab->arena);
    return status;
}

int sy_slab_create(uint64_t bytes, struct sy_slab **out)
{
    int status;
    struct sy_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the tensor slab's books");
    slab->hooks = (extent_hooks_t){.alloc = hook_alloc,
                                   .dalloc = hook_dalloc,
                                   .destroy = hook_destroy,
                                   .split = hook_split,
                                   .merge = hook_merge};
    SY_TRY_GOTO(sy_shared_memory_create(&slab->memory, "switchyard-slab", bytes), free_slab);
    slab->n_pages = slab->memory.bytes / PAGE;
    slab->taken = calloc(slab->n_pages, 1);
    if (!slab->taken) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the books of %llu slab pages",
                              (unsigned long long)slab->n_pages);
        goto finish_memory;
    }
    pthread_mutex_init(&slab->lock, NULL);
    SY_TRY_GOTO(create_arena(slab), destroy_lock);
    *out = slab;
    return SY_OK;

destroy_lock:
    pthread_mutex_destroy(&slab->lock);
    free(slab->taken);
finish_memory:
    sy_shared_memory_finish(&slab->memory);
free_slab:
    free(slab);
    return status;
}

void sy_slab_destroy(struct sy_slab *slab)
{
    if (!slab)
        return;
    destroy_arena(slab->arena);
    pthread_mutex_destroy(&slab->lock);
    sy_shared_memory_finish(&slab->memory);
    free(slab->taken);
    free(slab);
}

int sy_slab_fd(const struct sy_slab *slab)
{
    return slab->memory.fd;
}

uint64_t sy_slab_size(const struct sy_slab *slab)
{
    return slab->memory.bytes;
}

static int allocation_flags(const struct sy_slab *slab)
{
    return MALLOCX_ARENA(slab->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(TENSOR_ALIGN);
}

int sy_slab_alloc(struct sy_slab *slab, uint64_t bytes, uint64_t *out_offset)
{
    if (bytes == 0)
        return sy_error_set(SY_EARG, "a tensor of 0 bytes needs no slab memory");
    int flags = allocation_flags(slab);
    void *p = bytes <= slab->memory.bytes ? mallocx(bytes, flags) : NULL;
    if (!p)
        return sy_error_set(SY_ENOMEM_HOST,
                            "no room for %llu bytes in the tensor slab: %llu of %llu in use; wait "
                            "for requests to finish or make the slab larger (--slab-bytes)",
                            (unsigned long long)bytes, (unsigned long long)sy_slab_used_bytes(slab),
                            (unsigned long long)slab->memory.bytes);
    assert(is_shared(slab, p));
    atomic_fetch_add_explicit(&slab->used_bytes, sallocx(p, flags), memory_order_relaxed);
    *out_offset = (uint64_t)((char *)p - (char *)slab->memory.base);
    return SY_OK;
}

void sy_slab_release(struct sy_slab *slab, uint64_t offset)
{
    void *p = sy_slab_pointer(slab, offset);
    int flags = allocation_flags(slab);
    atomic_fetch_sub_explicit(&slab->used_bytes, sallocx(p, flags), memory_order_relaxed);
    dallocx(p, flags);
}

void *sy_slab_pointer(struct sy_slab *slab, uint64_t offset)
{
    assert(offset < slab->memory.bytes);
    return (char *)slab->memory.base + offset;
}

uint64_t sy_slab_used_bytes(const struct sy_slab *slab)
{
    return atomic_load_explicit(&slab->used_bytes, memory_order_relaxed);
}

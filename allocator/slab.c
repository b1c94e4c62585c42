/* jemalloc asks its extent hooks for pages; here they come out of one shared memory, all in one piece:
 *
 *   shared memory  |        one extent, which jemalloc splits and merges          |
 *   private        |base|   jemalloc's own books: never where a worker can write
 *
 * jemalloc merges only what came from one call of the hook. So the first call, which sy_slab_create
 * provokes by taking and releasing one tensor of the whole size, gets all there is, and later ones
 * get nothing: the slab is bounded, and what is released coalesces (decay is 0, and giving pages
 * back to the hook is refused, so that they stay jemalloc's). */
#include "allocator/slab.h"

#include <jemalloc/jemalloc.h>
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

struct sy_slab {
    extent_hooks_t hooks; /* first: the hooks get its address */
    struct sy_shared_memory memory;
    atomic_flag handed_out;
    unsigned arena;
    _Atomic uint64_t used_bytes;
};

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
    /* Fresh memory is zero already, whatever *zero wants. */
    bool fits = size <= slab->memory.bytes;
    return fits && !atomic_flag_test_and_set(&slab->handed_out) ? slab->memory.base : NULL;
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                         unsigned arena)
{
    struct sy_slab *slab = (struct sy_slab *)hooks;
    (void)committed;
    (void)arena;
    if (!is_shared(slab, address))
        munmap(address, size);
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

static int allocation_flags(const struct sy_slab *slab)
{
    return MALLOCX_ARENA(slab->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(TENSOR_ALIGN);
}

/* Provokes the one call of the hook for all of the memory (see the top). */
static int claim_memory(struct sy_slab *slab)
{
    int flags = allocation_flags(slab);
    void *all = mallocx(slab->memory.bytes - PAGE, flags);
    SY_TRY_ALLOC(all, "jemalloc cannot take the tensor slab's %llu bytes",
                 (unsigned long long)slab->memory.bytes);
    dallocx(all, flags);
    return SY_OK;
}

static int create_arena(struct sy_slab *slab)
{
    int status;
    extent_hooks_t *hooks = &slab->hooks;
    size_t size = sizeof slab->arena;
    ssize_t at_once = 0;
    int error = mallctl("arenas.create", &slab->arena, &size, &hooks, sizeof hooks);
    if (error)
        return sy_error_set(SY_ENOMEM_HOST, "jemalloc makes no arena for the tensor slab: %s",
                            strerror(error));
    SY_TRY_GOTO(set_arena(slab->arena, "dirty_decay_ms", &at_once, sizeof at_once), destroy);
    SY_TRY_GOTO(set_arena(slab->arena, "muzzy_decay_ms", &at_once, sizeof at_once), destroy);
    SY_TRY_GOTO(claim_memory(slab), destroy);
    return SY_OK;

destroy:
    destroy_arena(slab->arena);
    return status;
}

int sy_slab_create(uint64_t bytes, struct sy_slab **out)
{
    int status;
    if (bytes == 0 || bytes > INT64_MAX / 4)
        return sy_error_set(SY_EARG, "a tensor slab of %llu bytes", (unsigned long long)bytes);
    struct sy_slab *slab = calloc(1, sizeof *slab);
    SY_TRY_ALLOC(slab, "no memory for the tensor slab's books");
    slab->hooks = (extent_hooks_t){
        .alloc = hook_alloc, .destroy = hook_destroy, .split = hook_split, .merge = hook_merge};
    bytes = nallocx(bytes, MALLOCX_ALIGN(PAGE)) + PAGE;
    SY_TRY_GOTO(sy_shared_memory_create(&slab->memory, "switchyard-slab", bytes), free_slab);
    SY_TRY_GOTO(create_arena(slab), finish_memory);
    *out = slab;
    return SY_OK;

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
    sy_shared_memory_finish(&slab->memory);
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

int sy_slab_alloc(struct sy_slab *slab, uint64_t bytes, uint64_t *out_offset)
{
    if (bytes == 0)
        return sy_error_set(SY_EARG, "a tensor of 0 bytes needs no slab memory");
    int flags = allocation_flags(slab);
    void *p = bytes <= slab->memory.bytes ? mallocx(bytes, flags) : NULL;
    SY_TRY_ALLOC(p,
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

uint64_t sy_slab_piece_bytes(const struct sy_slab *slab, uint64_t offset)
{
    return sallocx((char *)slab->memory.base + offset, allocation_flags(slab));
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

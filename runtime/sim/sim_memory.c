#include "runtime/sim/sim_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"

#define HUGE_PAGE (2ull << 20)
#define LINE      64

static void *take_huge(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    bytes = SY_ALIGN_UP(bytes, HUGE_PAGE);
    void *memory = aligned_alloc(HUGE_PAGE, bytes);
    if (memory) /* best effort: without it everything is slower, not wrong */
        madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

void *sy_sim_zeroed(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    void *memory =
        bytes < HUGE_PAGE ? aligned_alloc(LINE, SY_ALIGN_UP(bytes + 1, LINE)) : take_huge(bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *sy_sim_grow(void *old, size_t old_bytes, size_t bytes)
{
    if (bytes < HUGE_PAGE)
        return realloc(old, bytes);
    void *memory = take_huge(bytes);
    if (!memory)
        return NULL;
    if (old_bytes > 0)
        memcpy(memory, old, old_bytes);
    free(old);
    return memory;
}

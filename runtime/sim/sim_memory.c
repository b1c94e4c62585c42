#include "runtime/sim/sim_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"

#define HUGE_PAGE (2ull << 20)

void *sy_sim_zeroed(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    if (bytes < HUGE_PAGE)
        return calloc(1, bytes + 1);
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    bytes = SY_ALIGN_UP(bytes, HUGE_PAGE);
    void *memory = aligned_alloc(HUGE_PAGE, bytes);
    if (!memory)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: without it all is as well, only slower */
    return memset(memory, 0, bytes);
}

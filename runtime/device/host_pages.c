#include "runtime/device/host_pages.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"

#define BLOCK ((uint64_t)2 << 20)

/* Linux's numbers, for C libraries that are older than they are. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

uint64_t sy_host_pages_bits_bytes(uint64_t bytes)
{
    return SY_ALIGN_UP(bytes / BLOCK + 1, 64u) / 8;
}

/* True for the first caller. */
static bool claim(const struct sy_host_pages *pages, uint64_t block)
{
    _Atomic uint64_t *word = &pages->asked[block / 64];
    uint64_t bit = (uint64_t)1 << block % 64;
    if (atomic_load_explicit(word, memory_order_relaxed) & bit)
        return false;
    return !(atomic_fetch_or_explicit(word, bit, memory_order_relaxed) & bit);
}

/* A block without any page is not collapsed: each gets one first. */
static void make_huge(const struct sy_host_pages *pages, uint64_t first, uint64_t n)
{
    unsigned char *at = pages->base + first * BLOCK;
    const uint64_t page = 4096;
    for (uint64_t i = 0; i < n; i++)
        (void)madvise(at + i * BLOCK, page, MADV_POPULATE_READ);
    if (n > 0)
        (void)madvise(at, n * BLOCK, MADV_COLLAPSE);
}

void sy_host_pages_touch(const struct sy_host_pages *pages, uint64_t offset, uint64_t bytes)
{
    if (bytes == 0)
        return;
    uint64_t whole = pages->bytes / BLOCK;
    uint64_t end = SY_MIN((offset + bytes - 1) / BLOCK + 1, whole), fresh = 0, block;
    for (block = offset / BLOCK; block < end; block++) {
        if (claim(pages, block)) {
            fresh++;
            continue;
        }
        make_huge(pages, block - fresh, fresh);
        fresh = 0;
    }
    make_huge(pages, block - fresh, fresh);
}

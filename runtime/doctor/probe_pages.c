/* Whether a pool gets pages of 2 MiB, as runtime/device/host_pages.h asks for them, and what that is worth: the same random reads in a test
 * pool without them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/shared_memory.h"
#include "runtime/base/assert.h"
#include "runtime/device/host_pages.h"
#include "runtime/doctor/doctor_file.h"
#include "runtime/doctor/doctor_parse.h"
#include "runtime/doctor/probe.h"
#include "runtime/doctor/read_rate.h"

#define BLOCK_BYTES ((uint64_t)2 << 20)
#define N_READS     (1u << 20)
#define N_ROUNDS    6 /* in turns, so that both meet the same machine */
#define SMAPS_BYTES (1u << 20)

/* A fresh memfd, mapped at a multiple of the block. NULL: no room. */
static char *map_pool(uint64_t bytes)
{
    int fd = sy_shared_memory_file("switchyard-doctor", bytes);
    if (fd < 0)
        return NULL;
    char *room = mmap(NULL, bytes + BLOCK_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *base =
        room == MAP_FAILED ? NULL : (char *)SY_ALIGN_UP((uintptr_t)room, (uintptr_t)BLOCK_BYTES);
    if (base && mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != base)
        base = NULL;
    close(fd);
    return base;
}

/* Blocks of the mapping that are one page each. NAN where the kernel does not say. */
static double count_huge(const char *base)
{
    char *text = malloc(SMAPS_BYTES), start[40];
    double bytes = NAN;
    snprintf(start, sizeof start, "%llx-", (unsigned long long)(uintptr_t)base);
    if (text && sy_doctor_read_file("/proc/self/smaps", text, SMAPS_BYTES)) {
        const char *at = strstr(text, start);
        bytes = at ? sy_parse_meminfo(at, "ShmemPmdMapped") : NAN;
    }
    free(text);
    return bytes / (double)BLOCK_BYTES;
}

static void ask_for_huge(char *base, uint64_t bytes)
{
    _Atomic uint64_t *asked = calloc(1, sy_host_pages_bits_bytes(bytes));
    struct sy_host_pages pages = {.base = (unsigned char *)base, .bytes = bytes, .asked = asked};
    madvise(base, bytes, MADV_HUGEPAGE);
    if (asked)
        sy_host_pages_touch(&pages, 0, bytes);
    free((void *)(uintptr_t)asked);
}

/* The best of either. */
static double gain_percent(const char *small, const char *huge, uint64_t bytes)
{
    double slow = 0, fast = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        slow = fmax(slow, sy_read_random_rate(small, bytes, N_READS, 1));
        fast = fmax(fast, sy_read_random_rate(huge, bytes, N_READS, 1));
    }
    return (fast / slow - 1) * 100;
}

void sy_probe_huge_pages(struct sy_doctor_facts *facts, uint64_t bytes)
{
    char *small = map_pool(bytes), *huge = map_pool(bytes);
    if (!small || !huge)
        return;
    madvise(small, bytes, MADV_NOHUGEPAGE);
    memset(small, 1, bytes);
    ask_for_huge(huge, bytes);
    memset(huge, 1, bytes);
    facts->huge_asked_blocks = (double)bytes / (double)BLOCK_BYTES;
    facts->huge_made_blocks = count_huge(huge);
    if (facts->huge_made_blocks > 0)
        facts->huge_gain_percent = gain_percent(small, huge, bytes);
    munmap(small, bytes);
    munmap(huge, bytes);
}

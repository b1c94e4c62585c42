/* Huge pages for a pool on this CPU.
 *
 * A pool is a memfd; its pages have 4 KiB, unless the administrator allows shared memory larger ones (shmem_enabled). Asked for a block of
 * 2 MiB by itself, Linux (6.1 and later) makes it one page even then: computing there has fewer TLB misses, and each
 * process that maps the pool meets one fault in place of 512.
 *
 *   file   | pool ............................. | link clock | asked: a bit for each block |
 *            block 0 | block 1 | ... | (the last, not whole, stays as it is)
 *
 * The bits are shared, so that each block is asked for once, by the process that is the first to use it. All of this is best effort: what the
 * kernel refuses stays as it was. */
#ifndef SY_DEVICE_HOST_PAGES_H
#define SY_DEVICE_HOST_PAGES_H

#include <stdatomic.h>
#include <stdint.h>

struct sy_host_pages {
    unsigned char *base; /* start of the pool; multiple of the block size */
    uint64_t bytes;
    _Atomic uint64_t *asked; /* in shared memory, zeroed at first */
};

/* Bytes of the bit map for a pool of `bytes`; multiple of 8. */
uint64_t sy_host_pages_bits_bytes(uint64_t bytes);

/* [offset, offset + bytes) of the pool is about to be used. Any thread of any process; what lies there stays. The first time it takes
 * about half a millisecond a block, later nothing. */
void sy_host_pages_touch(const struct sy_host_pages *pages, uint64_t offset, uint64_t bytes);

#endif

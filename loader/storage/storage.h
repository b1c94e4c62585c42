/* Storage reader: file ranges into memory with io_uring, deep queue, chunks handled as they complete.
 *
 * O_DIRECT for ranges that are not in the page cache, buffered reads for those that are (asked of the kernel:
 * cachestat(2), mincore(2) where that is missing), buffered where the file system refuses
 * O_DIRECT (logged once). One reader is used by one thread. */
#ifndef SY_LOADER_STORAGE_STORAGE_H
#define SY_LOADER_STORAGE_STORAGE_H

#include <stdint.h>

#include "runtime/base/clock.h"

struct sy_storage_reader;

/* Readers created from now on use pread without logging it: for sandboxes that forbid io_uring. */
void sy_storage_disable_ring(void);

/* queue_depth 0: default 16. chunk_bytes 0: default (1 MiB). Falls back to pread where io_uring is refused, saying so once. */
int sy_storage_reader_create(unsigned queue_depth, uint64_t chunk_bytes,
                             struct sy_storage_reader **out);
void sy_storage_reader_destroy(struct sy_storage_reader *reader);

struct sy_storage_range {
    uint64_t file_offset; /* multiple of 4096 */
    uint64_t bytes;       /* multiple of 4096 */
    void *to;             /* 4096-aligned */
};

/* Optional callbacks while reading. ready(ctx, i) before range i's first chunk is queued: 1 go on, 0 not yet (asked again when
 * something completes, or every 100 us), negative: stop with that status. done(ctx, i, status) once per range, in completion order,
 * which is normally the order given. */
struct sy_storage_callbacks {
    int (*ready)(void *ctx, int range);
    void (*done)(void *ctx, int range, int status);
    void *ctx;
};

struct sy_storage_result {
    uint64_t direct_bytes, cached_bytes;
    sy_ns start_ns, end_ns;
};

/* Reads all ranges of `path`, the queue kept full across ranges. Blocks until everything that was queued is finished. The first
 * failure stops the reading and is returned: ENOTFOUND, EIO, ECORRUPT for a short file, EARG for a range that is not aligned;
 * its text names the path and the offset. done() has told which ranges failed; those that were not begun fail with the
 * same status (only out of memory, ENOMEM_HOST, calls no done() at all). `callbacks` and `result` may be NULL. */
int sy_storage_read(struct sy_storage_reader *reader, const char *path,
                    const struct sy_storage_range *ranges, int n_ranges,
                    const struct sy_storage_callbacks *callbacks, struct sy_storage_result *result);
/* As sy_storage_read, from an open file (-1: the one at `path`), whatever lies at `path` by now; `path` is for error texts. */
int sy_storage_read_file(struct sy_storage_reader *reader, int fd, const char *path,
                         const struct sy_storage_range *ranges, int n_ranges,
                         const struct sy_storage_callbacks *callbacks,
                         struct sy_storage_result *result);
/* The fraction of [offset, offset+bytes) that is in the page cache, 0..1. EIO. */
int sy_storage_cached_share(const char *path, uint64_t offset, uint64_t bytes, double *out);
/* The rate (10^9 bytes a second) at which the first `max_bytes` of `path`, or all of it, are read from the storage, past the page
 * cache; from the page cache where the file system refuses that. Blocks. ENOTFOUND, EARG on a file of less than 4096
 * bytes, EIO. */
int sy_storage_measure(const char *path, uint64_t max_bytes, double *out_gbps);

#endif

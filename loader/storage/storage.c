#include "loader/storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define DEFAULT_DEPTH       16 /* R5 */
#define DEFAULT_CHUNK_BYTES (1024u * 1024u)
#define MAX_CHUNK_BYTES     (1024u * 1024u * 1024u) /* a single read moves at most 2 GiB */
#define MAX_TRIES           1000 /* repetitions of a read that the kernel asks to retry */
#define ASK_AGAIN_NS        (100 * SY_NS_PER_US)
#define SYS_CACHESTAT       451 /* since Linux 6.5; the C library does not name it yet */
#define ALIGN               4096u

struct sy_storage_reader {
    bool has_ring, always_direct; /* always_direct: even for ranges in the page cache */
    struct io_uring ring;
    unsigned depth;
    uint64_t chunk_bytes;
};

/* One chunk in flight; `left` shrinks when a read is short. */
struct chunk {
    int range;
    uint64_t offset, left;
    char *to;
    int tries;
    bool direct, busy;
};

struct file {
    const char *path;
    int given_fd;             /* the caller's; -1: open `path` */
    int cached_fd, direct_fd; /* direct_fd -1: the file system refuses O_DIRECT */
    uint64_t bytes;
};

/* One call of sy_storage_read. */
struct reading {
    struct sy_storage_reader *reader;
    struct file file;
    const struct sy_storage_range *ranges;
    const struct sy_storage_callbacks *callbacks;
    struct sy_storage_result *result;
    int n_ranges, next_range; /* next_range: the one that chunks are cut from */
    uint64_t next_offset;     /* in it */
    bool next_opened, next_direct;
    uint64_t *range_left; /* bytes still missing, per range */
    int *range_status;
    struct chunk *chunks; /* depth of them */
    unsigned n_busy;
    int status; /* the first failure */
    char error[256];
};

/* ---- page cache ---------------------------------------------------------------------------------------- */

struct cachestat_range {
    uint64_t offset, bytes;
};

struct cachestat_result {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static int cached_by_cachestat(int fd, uint64_t offset, uint64_t bytes, double *share)
{
    struct cachestat_range range = {offset, bytes};
    struct cachestat_result result;
    if (syscall(SYS_CACHESTAT, fd, &range, &result, 0) != 0)
        return -1;
    *share = (double)result.cached * (double)sysconf(_SC_PAGESIZE) / (double)bytes;
    return 0;
}

static int cached_by_mincore(int fd, uint64_t offset, uint64_t bytes, double *share)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = offset / page * page;
    uint64_t length = offset + bytes - start, n_pages = (length + page - 1) / page, n_cached = 0;
    unsigned char *seen = malloc(n_pages);
    void *view = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)start);
    int failed = !seen || view == MAP_FAILED || mincore(view, length, seen) != 0;
    for (uint64_t i = 0; !failed && i < n_pages; i++)
        n_cached += seen[i] & 1;
    if (view != MAP_FAILED)
        munmap(view, length);
    free(seen);
    *share = (double)n_cached / (double)n_pages;
    return failed ? -1 : 0;
}

static double cached_share(int fd, uint64_t offset, uint64_t bytes)
{
    double share = 0;
    if (bytes == 0)
        return 1;
    if (cached_by_cachestat(fd, offset, bytes, &share) != 0 &&
        cached_by_mincore(fd, offset, bytes, &share) != 0)
        share = 1; /* unknown: a buffered read is always correct */
    return SY_MIN(share, 1.0);
}

int sy_storage_cached_share(const char *path, uint64_t offset, uint64_t bytes, double *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot open %s: %s", path, strerror(errno));
    *out = cached_share(fd, offset, bytes);
    close(fd);
    return SY_OK;
}

/* ---- reader ---------------------------------------------------------------------------------------------- */

static atomic_bool without_ring;

void sy_storage_disable_ring(void)
{
    atomic_store(&without_ring, true);
}

int sy_storage_reader_create(unsigned queue_depth, uint64_t chunk_bytes,
                             struct sy_storage_reader **out)
{
    static atomic_bool said;
    struct sy_storage_reader *reader = calloc(1, sizeof *reader);
    SY_TRY_ALLOC(reader, "no memory for a storage reader");
    reader->depth = queue_depth ? queue_depth : DEFAULT_DEPTH;
    chunk_bytes =
        SY_MIN(chunk_bytes ? chunk_bytes : DEFAULT_CHUNK_BYTES, (uint64_t)MAX_CHUNK_BYTES);
    reader->chunk_bytes = SY_ALIGN_UP(chunk_bytes, (uint64_t)ALIGN);
    bool wanted = !atomic_load(&without_ring);
    int refused = wanted ? io_uring_queue_init(reader->depth, &reader->ring, 0) : 0;
    reader->has_ring = wanted && refused == 0;
    if (refused && !atomic_exchange(&said, true))
        sy_log_warn("storage", "event=no_io_uring why=\"%s\" instead=pread", strerror(-refused));
    *out = reader;
    return SY_OK;
}

void sy_storage_reader_destroy(struct sy_storage_reader *reader)
{
    if (!reader)
        return;
    if (reader->has_ring)
        io_uring_queue_exit(&reader->ring);
    free(reader);
}

/* Once per process, since the file system does not change. */
static void say_no_direct(const char *path, int why)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        sy_log_warn("storage", "event=no_direct_reads path=%s why=\"%s\" instead=buffered", path,
                    strerror(why));
}

static int open_file(const char *path, int given_fd, struct file *file)
{
    struct stat st;
    char given[32];
    const char *at = path;
    *file = (struct file){.path = path, .given_fd = given_fd, .direct_fd = -1};
    if (given_fd >= 0) { /* O_DIRECT needs an open file description of its own */
        snprintf(given, sizeof given, "/proc/self/fd/%d", given_fd);
        at = given;
    }
    file->cached_fd =
        given_fd >= 0 ? fcntl(given_fd, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
    if (file->cached_fd < 0)
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO, "cannot open %s: %s", path,
                            strerror(errno));
    if (fstat(file->cached_fd, &st) == 0)
        file->bytes = (uint64_t)st.st_size;
    file->direct_fd = open(at, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (file->direct_fd < 0)
        say_no_direct(path, errno);
    return SY_OK;
}

static void close_file(struct file *file)
{
    if (file->cached_fd >= 0)
        close(file->cached_fd);
    if (file->direct_fd >= 0)
        close(file->direct_fd);
}

/* ---- ranges ---------------------------------------------------------------------------------------------- */

static void fail(struct reading *r, int range, int status)
{
    r->range_status[range] = status;
    if (r->status == SY_OK) {
        r->status = status;
        strncpy(r->error, sy_error_text(), sizeof r->error - 1);
    }
}

static void tell_done(struct reading *r, int range)
{
    if (r->callbacks && r->callbacks->done)
        r->callbacks->done(r->callbacks->ctx, range, r->range_status[range]);
}

/* 1: chunks may be cut from the next range; 0: it is not ready; negative: stop. */
static int open_next_range(struct reading *r)
{
    const struct sy_storage_range *range = &r->ranges[r->next_range];
    if (r->next_opened)
        return 1;
    if (r->callbacks && r->callbacks->ready) {
        int ready = r->callbacks->ready(r->callbacks->ctx, r->next_range);
        if (ready <= 0)
            return ready;
    }
    if (range->file_offset % ALIGN || range->bytes % ALIGN || (uintptr_t)range->to % ALIGN)
        return sy_error_set(SY_EARG, "%s: range %d is not aligned to %u", r->file.path,
                            r->next_range, ALIGN);
    if (range->file_offset > r->file.bytes || range->bytes > r->file.bytes - range->file_offset)
        return sy_error_set(SY_ECORRUPT, "%s ends at byte %llu; %llu bytes at %llu are expected",
                            r->file.path, (unsigned long long)r->file.bytes,
                            (unsigned long long)range->bytes,
                            (unsigned long long)range->file_offset);
    if (sy_fault("storage_read") < 0)
        return sy_error_prefix(SY_EIO, "%s at byte %llu: ", r->file.path,
                               (unsigned long long)range->file_offset);
    /* Mostly in the page cache: copying from there is faster than the disk. */
    r->next_direct = r->file.direct_fd >= 0 &&
                     (r->reader->always_direct ||
                      cached_share(r->file.cached_fd, range->file_offset, range->bytes) < 0.5);
    r->range_left[r->next_range] = range->bytes;
    r->next_offset = 0;
    r->next_opened = true;
    return 1;
}

static void close_next_range(struct reading *r)
{
    r->next_range++;
    r->next_opened = false;
}

/* The next chunk to read, in order. 1: filled; 0: nothing now; negative: stop. */
static int cut_chunk(struct reading *r, struct chunk *chunk)
{
    while (r->next_range < r->n_ranges) {
        const struct sy_storage_range *range = &r->ranges[r->next_range];
        int ready = open_next_range(r);
        if (ready <= 0)
            return ready;
        if (r->next_offset == range->bytes) {
            if (range->bytes == 0)
                tell_done(r, r->next_range);
            close_next_range(r);
            continue;
        }
        uint64_t bytes = SY_MIN(r->reader->chunk_bytes, range->bytes - r->next_offset);
        *chunk = (struct chunk){.range = r->next_range,
                                .offset = range->file_offset + r->next_offset,
                                .left = bytes,
                                .to = (char *)range->to + r->next_offset,
                                .direct = r->next_direct,
                                .busy = true};
        r->next_offset += bytes;
        if (r->result)
            *(r->next_direct ? &r->result->direct_bytes : &r->result->cached_bytes) += bytes;
        return 1;
    }
    return 0;
}

static void chunk_over(struct reading *r, struct chunk *chunk, uint64_t bytes)
{
    chunk->busy = false;
    r->n_busy--;
    r->range_left[chunk->range] -= bytes;
    if (r->range_left[chunk->range] == 0)
        tell_done(r, chunk->range);
}

/* Handles a completed read: 0, or 1 if the rest of the chunk must be read again. */
static int chunk_arrived(struct reading *r, struct chunk *chunk, int got)
{
    if (got == -EINVAL &&
        chunk->direct) { /* rejected only now: this file is read through the cache */
        say_no_direct(r->file.path, EINVAL);
        chunk->direct = false;
        return 1;
    }
    if ((got == -EINTR || got == -EAGAIN) && ++chunk->tries < MAX_TRIES)
        return 1;
    if (got > 0 && (uint64_t)got < chunk->left) {
        chunk->offset += (uint64_t)got;
        chunk->to += got;
        chunk->left -= (uint64_t)got;
        r->range_left[chunk->range] -= (uint64_t)got;
        chunk->direct = chunk->direct && (uint64_t)got % ALIGN == 0;
        return 1;
    }
    if (got < 0)
        fail(r, chunk->range,
             sy_error_set(SY_EIO, "cannot read %s at byte %llu: %s", r->file.path,
                          (unsigned long long)chunk->offset, strerror(-got)));
    else if (got == 0)
        fail(r, chunk->range,
             sy_error_set(SY_ECORRUPT, "%s ends at byte %llu", r->file.path,
                          (unsigned long long)chunk->offset));
    chunk_over(r, chunk, chunk->left);
    return 0;
}

/* ---- io_uring -------------------------------------------------------------------------------------------- */

static void submit(struct reading *r, struct chunk *chunk)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->reader->ring);
    assert(sqe); /* the ring has an entry for each chunk */
    io_uring_prep_read(sqe, chunk->direct ? r->file.direct_fd : r->file.cached_fd, chunk->to,
                       (unsigned)chunk->left, chunk->offset);
    io_uring_sqe_set_data(sqe, chunk);
}

/* The reason why the queue was not filled further decides how to wait for completions. */
enum filled { FULL, HELD, READ_AT_ONCE };

/* Keeps the queue full. Negative: stop cutting. HELD: a range is not ready. READ_AT_ONCE: one chunk from the page cache was
 * added; its bytes are copied when it is submitted, by this thread, so what it completes is told before the next. */
static int fill_queue(struct reading *r, enum filled *filled)
{
    *filled = FULL;
    for (unsigned i = 0; i < r->reader->depth; i++) {
        struct chunk *chunk = &r->chunks[i];
        if (chunk->busy)
            continue;
        int cut = cut_chunk(r, chunk);
        if (cut <= 0) {
            if (cut == 0 && r->next_range < r->n_ranges)
                *filled = HELD;
            return cut;
        }
        r->n_busy++;
        submit(r, chunk);
        if (!chunk->direct) {
            *filled = READ_AT_ONCE;
            return SY_OK;
        }
    }
    return SY_OK;
}

/* Waits for a completion as `filled` demands. 0: there is one. */
static int wait_completion(struct io_uring *ring, enum filled filled, struct io_uring_cqe **cqe)
{
    struct __kernel_timespec soon = {.tv_nsec = ASK_AGAIN_NS};
    if (filled == READ_AT_ONCE)
        return io_uring_peek_cqe(ring, cqe);
    /* Entries that could not be submitted (EAGAIN, EBUSY) never complete: they are submitted again later. */
    if (filled == HELD || io_uring_sq_ready(ring) > 0)
        return io_uring_wait_cqe_timeout(ring, cqe, &soon);
    return io_uring_wait_cqe(ring, cqe);
}

static void reap(struct reading *r, enum filled filled)
{
    struct io_uring_cqe *cqe;
    io_uring_submit(&r->reader->ring);
    if (r->n_busy == 0)
        return;
    int got = wait_completion(&r->reader->ring, filled, &cqe);
    while (got == 0) {
        struct chunk *chunk = io_uring_cqe_get_data(cqe);
        int n = cqe->res;
        io_uring_cqe_seen(&r->reader->ring, cqe);
        if (chunk && chunk_arrived(r, chunk, n))
            submit(r, chunk);
        got = io_uring_peek_cqe(&r->reader->ring, &cqe);
    }
}

static void read_by_ring(struct reading *r)
{
    bool stop = false;
    while (!stop || r->n_busy > 0) {
        enum filled filled = FULL;
        int status = stop ? SY_OK : r->status < 0 ? r->status : fill_queue(r, &filled);
        if (status < 0 && r->status == SY_OK)
            fail(r, r->next_range, status);
        stop = stop || status < 0 || r->next_range == r->n_ranges;
        if (filled == HELD && r->n_busy == 0)
            sy_clock_sleep_until(sy_clock_now() + ASK_AGAIN_NS);
        else
            reap(r, filled);
    }
}

/* ---- without io_uring ------------------------------------------------------------------------------------ */

static void read_by_pread(struct reading *r)
{
    struct chunk *chunk = &r->chunks[0];
    while (r->status == SY_OK && r->next_range < r->n_ranges) {
        int cut = cut_chunk(r, chunk);
        if (cut < 0)
            fail(r, r->next_range, cut);
        if (cut == 0 && r->next_range < r->n_ranges)
            sy_clock_sleep_until(sy_clock_now() + ASK_AGAIN_NS);
        if (cut <= 0)
            continue;
        r->n_busy = 1;
        ssize_t got;
        do {
            got = pread(chunk->direct ? r->file.direct_fd : r->file.cached_fd, chunk->to,
                        chunk->left, (off_t)chunk->offset);
        } while (chunk_arrived(r, chunk, got < 0 ? -errno : (int)got));
    }
}

/* ---- call ------------------------------------------------------------------------------------------------ */

/* Fails the unfinished ranges with the status that stopped the reading. */
static void fail_the_rest(struct reading *r)
{
    for (int i = r->next_range; i < r->n_ranges; i++) {
        bool counted = i == r->next_range && r->next_opened;
        if (counted && r->range_left[i] == 0)
            continue; /* already reported */
        r->range_status[i] = r->status;
        tell_done(r, i);
    }
}

static int read_file(struct reading *r)
{
    int status = open_file(r->file.path, r->file.given_fd, &r->file);
    if (status < 0) {
        r->status = status;
        strncpy(r->error, sy_error_text(), sizeof r->error - 1);
    } else if (r->reader->has_ring) {
        read_by_ring(r);
    } else {
        read_by_pread(r);
    }
    if (r->status < 0)
        fail_the_rest(r);
    close_file(&r->file);
    return r->status < 0 ? sy_error_set(r->status, "%s", r->error) : SY_OK;
}

static int read_all(struct reading *r)
{
    size_t n = (size_t)SY_MAX(r->n_ranges, 1);
    uint64_t *range_left = calloc(n, sizeof *range_left);
    int *range_status = calloc(n, sizeof *range_status);
    struct chunk *chunks = calloc(r->reader->depth, sizeof *chunks);
    int status = SY_OK;
    if (!range_left || !range_status || !chunks || sy_fault("storage_memory") < 0) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory to read %s", r->file.path);
    } else {
        r->range_left = range_left;
        r->range_status = range_status;
        r->chunks = chunks;
        status = read_file(r);
    }
    free(range_left);
    free(range_status);
    free(chunks);
    return status;
}

int sy_storage_read(struct sy_storage_reader *reader, const char *path,
                    const struct sy_storage_range *ranges, int n_ranges,
                    const struct sy_storage_callbacks *callbacks, struct sy_storage_result *result)
{
    return sy_storage_read_file(reader, -1, path, ranges, n_ranges, callbacks, result);
}

int sy_storage_read_file(struct sy_storage_reader *reader, int fd, const char *path,
                         const struct sy_storage_range *ranges, int n_ranges,
                         const struct sy_storage_callbacks *callbacks,
                         struct sy_storage_result *result)
{
    struct reading r = {.reader = reader,
                        .file = {.path = path, .given_fd = fd, .cached_fd = -1, .direct_fd = -1},
                        .ranges = ranges,
                        .callbacks = callbacks,
                        .n_ranges = n_ranges,
                        .result = result};
    if (result)
        *result = (struct sy_storage_result){.start_ns = sy_clock_now()};
    int status = read_all(&r);
    if (result)
        result->end_ns = sy_clock_now();
    return status;
}

/* ---- rate ------------------------------------------------------------------------------------------------ */

#define SCRATCH_BYTES (8u * 1024u * 1024u)

/* All ranges are read into the same scratch memory: the bytes are not used. */
static int read_for_rate(const char *path, uint64_t bytes, void *scratch, double *out_gbps)
{
    struct sy_storage_reader *reader;
    struct sy_storage_result result;
    int n = (int)((bytes + SCRATCH_BYTES - 1) / SCRATCH_BYTES);
    struct sy_storage_range *ranges = calloc((size_t)n, sizeof *ranges);
    SY_TRY_ALLOC(ranges, "no memory to measure %s", path);
    for (int i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i * SCRATCH_BYTES;
        ranges[i] =
            (struct sy_storage_range){at, SY_MIN(bytes - at, (uint64_t)SCRATCH_BYTES), scratch};
    }
    int status = sy_storage_reader_create(0, 0, &reader);
    if (status == SY_OK) {
        reader->always_direct = true;
        status = sy_storage_read(reader, path, ranges, n, NULL, &result);
        sy_storage_reader_destroy(reader);
    }
    free(ranges);
    if (status == SY_OK)
        *out_gbps = (double)bytes / (double)SY_MAX(result.end_ns - result.start_ns, 1u);
    return status;
}

int sy_storage_measure(const char *path, uint64_t max_bytes, double *out_gbps)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO, "cannot open %s: %s", path,
                            strerror(errno));
    uint64_t bytes = SY_MIN(max_bytes, (uint64_t)st.st_size) / ALIGN * ALIGN;
    if (bytes == 0 || bytes / SCRATCH_BYTES >= INT_MAX)
        return sy_error_set(SY_EARG, "%s: cannot measure on %llu bytes", path,
                            (unsigned long long)bytes);
    void *scratch = aligned_alloc(ALIGN, SCRATCH_BYTES);
    SY_TRY_ALLOC(scratch, "no memory to measure %s", path);
    int status = read_for_rate(path, bytes, scratch, out_gbps);
    free(scratch);
    return status;
}

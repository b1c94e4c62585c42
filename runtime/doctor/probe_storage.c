/* Cost of reading a model from a folder. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/doctor/probe.h"

#define PIECE_BYTES (8ull << 20)
#define FIRST_BYTES (16ull << 20) /* read first, to know how much can be read in time */
#define READ_S      2.0
#define WRITE_NS    (3 * SY_NS_PER_S)
#define ALIGN       4096u

/* 0, or why a read with O_DIRECT fails. */
static int try_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT), why = 0;
    void *page = aligned_alloc(ALIGN, ALIGN);
    if (fd < 0 || !page || pread(fd, page, ALIGN, 0) < 0)
        why = errno;
    free(page);
    if (fd >= 0)
        close(fd);
    return why;
}

/* An unnamed file in the folder, or one whose name is gone. -1: errno. */
static int open_scratch(const char *folder)
{
    char path[4096];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "%s/.switchyard-doctor-XXXXXX", folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* Bytes that no file system packs smaller. */
static void fill(uint64_t *words, uint64_t n)
{
    uint64_t x = 88172645463325252u;
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
}

/* Writes up to max_bytes, for at most WRITE_NS, and waits until they are on the storage. Negative: EIO, ENOMEM_HOST. */
static int write_scratch(int fd, const char *folder, uint64_t max_bytes)
{
    uint64_t *piece = malloc(PIECE_BYTES), done = 0;
    sy_ns end = sy_clock_now() + WRITE_NS;
    bool written = piece != NULL;
    SY_TRY_ALLOC(piece, "no memory to write %s", folder);
    fill(piece, PIECE_BYTES / 8);
    for (; written && done < max_bytes && sy_clock_now() < end; done += PIECE_BYTES) {
        written = write(fd, piece, PIECE_BYTES) == (ssize_t)PIECE_BYTES &&
                  (done % FIRST_BYTES != 0 || fdatasync(fd) == 0); /* so that the clock counts */
    }
    written = written && fsync(fd) == 0;
    int status = written ? SY_OK
                         : sy_error_set(SY_EIO, "cannot write a scratch file in %s: %s", folder,
                                        strerror(errno));
    free(piece);
    return status;
}

/* A first part says how much of it can be read in time. */
static int read_rate(struct sy_doctor_facts *facts, const char *path, uint64_t max_bytes)
{
    struct stat st;
    double gbps;
    SY_TRY(sy_storage_measure(path, SY_MIN(FIRST_BYTES, max_bytes), &gbps));
    uint64_t bytes = SY_MIN(max_bytes, (uint64_t)(gbps * 1e9 * READ_S));
    bytes = SY_MAX(bytes, SY_MIN(FIRST_BYTES, max_bytes));
    SY_TRY(sy_storage_measure(path, bytes, &gbps));
    facts->storage_gbps = gbps;
    facts->storage_read_bytes =
        stat(path, &st) == 0 ? fmin((double)bytes, (double)st.st_size) : (double)bytes;
    return SY_OK;
}

static int measure_scratch(struct sy_doctor_facts *facts, const char *folder, uint64_t max_bytes)
{
    char path[64];
    int fd = open_scratch(folder);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot write a scratch file in %s: %s", folder,
                            strerror(errno));
    int status = write_scratch(fd, folder, max_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int why = status == SY_OK ? try_direct(path) : 0;
    if (why)
        sy_doctor_text(facts->direct_why, strerror(why));
    if (status == SY_OK)
        status = read_rate(facts, path, max_bytes);
    facts->storage_scratch = 1;
    close(fd);
    return status;
}

static int measure_sample(struct sy_doctor_facts *facts, const char *path, uint64_t max_bytes)
{
    int why = try_direct(path);
    if (why)
        sy_doctor_text(facts->direct_why, strerror(why));
    facts->storage_scratch = 0;
    return read_rate(facts, path, max_bytes);
}

void sy_probe_storage(struct sy_doctor_facts *facts, const char *folder, const char *sample,
                      uint64_t max_bytes)
{
    struct statvfs fs;
    sy_doctor_text(facts->folder, folder);
    if (statvfs(folder, &fs) == 0)
        facts->disk_free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    if (!sample && facts->disk_free_bytes < 4 * (double)max_bytes)
        max_bytes = SY_MAX((uint64_t)(facts->disk_free_bytes / 4) / PIECE_BYTES, 1u) * PIECE_BYTES;
    int status = sample ? measure_sample(facts, sample, max_bytes)
                        : measure_scratch(facts, folder, max_bytes);
    if (status < 0)
        sy_doctor_text(facts->storage_why, sy_error_text());
}

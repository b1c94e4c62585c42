#include "allocator/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static uint64_t round_to_page(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return SY_ALIGN_UP(bytes, page);
}

/* Fills in `m` and leaves it untouched on failure. */
static int map_fd(struct sy_shared_memory *m, int fd, uint64_t bytes, bool writable)
{
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void *base = mmap(NULL, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return sy_error_set(SY_ENOMEM_HOST,
                            "cannot map %llu bytes of shared memory: %s; ask for less or raise the "
                            "address space limit (ulimit -v)",
                            (unsigned long long)bytes, strerror(errno));
    /* Best effort: a kernel without huge pages for shared memory refuses, and nothing else changes. */
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    *m = (struct sy_shared_memory){.base = base, .bytes = bytes, .fd = fd, .writable = writable};
    return SY_OK;
}

/* SHRINK is sealed, so that no process can cut the file under another's mapping (SIGBUS). */
static int set_size(int fd, const char *name, uint64_t bytes)
{
    if (ftruncate(fd, (off_t)bytes) != 0)
        return sy_error_set(SY_ENOMEM_HOST,
                            "cannot size shared memory '%s' to %llu bytes: %s; ask for less", name,
                            (unsigned long long)bytes, strerror(errno));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot seal shared memory '%s': %s", name,
                            strerror(errno));
    return SY_OK;
}

int sy_shared_memory_file(const char *name, uint64_t bytes)
{
    if (bytes == 0 || bytes > INT64_MAX / 2)
        return sy_error_set(SY_EARG, "shared memory '%s' cannot have %llu bytes", name,
                            (unsigned long long)bytes);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot create shared memory '%s' of %llu bytes: %s",
                            name, (unsigned long long)bytes, strerror(errno));
    int status = set_size(fd, name, round_to_page(bytes));
    if (status < 0)
        close(fd);
    return status < 0 ? status : fd;
}

int sy_shared_memory_create(struct sy_shared_memory *m, const char *name, uint64_t bytes)
{
    int fd = sy_shared_memory_file(name, bytes);
    SY_TRY(fd);
    int status = map_fd(m, fd, round_to_page(bytes), true);
    if (status < 0)
        close(fd);
    return status;
}

int sy_shared_memory_map(struct sy_shared_memory *m, int fd, uint64_t bytes, bool writable)
{
    struct stat file;
    if (bytes == 0 || bytes > INT64_MAX / 2)
        return sy_error_set(SY_EARG, "cannot map %llu bytes of shared memory",
                            (unsigned long long)bytes);
    if (fstat(fd, &file) != 0)
        return sy_error_set(SY_EARG, "shared memory fd %d: %s", fd, strerror(errno));
    bytes = round_to_page(bytes);
    if ((uint64_t)file.st_size < bytes)
        return sy_error_set(SY_EARG, "shared memory fd %d has %lld bytes, %llu are needed", fd,
                            (long long)file.st_size, (unsigned long long)bytes);
    return map_fd(m, fd, bytes, writable);
}

void sy_shared_memory_finish(struct sy_shared_memory *m)
{
    if (!m->base)
        return;
    munmap(m->base, m->bytes);
    close(m->fd);
    memset(m, 0, sizeof *m);
    m->fd = -1;
}

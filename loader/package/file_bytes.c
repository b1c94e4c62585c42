#include "loader/package/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"

static int read_fully(int fd, const char *path, unsigned char *to, size_t bytes, off_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, to + done, bytes - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sy_error_set(SY_EIO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            return sy_error_set(SY_ECORRUPT, "%s ends at byte %lld, %zu bytes early", path,
                                (long long)offset + (long long)done, bytes - done);
        done += (size_t)n;
    }
    return SY_OK;
}

int sy_file_open(const char *path, int *fd, uint64_t *size)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (*fd < 0)
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO, "cannot open %s: %s", path,
                            strerror(errno));
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(*fd);
        return sy_error_set(SY_EARG, "%s is not a regular file", path);
    }
    *size = (uint64_t)info.st_size;
    return SY_OK;
}

int sy_file_read_range(const char *path, uint64_t offset, uint64_t bytes, unsigned char **out,
                       size_t *out_bytes)
{
    int fd;
    uint64_t size;
    unsigned char *data = NULL;
    SY_TRY(sy_file_open(path, &fd, &size));
    int status = SY_OK;
    if (offset > size || (bytes != UINT64_MAX && bytes > size - offset)) {
        status = sy_error_set(SY_ECORRUPT, "%s has %llu bytes, %llu from %llu on are wanted", path,
                              (unsigned long long)size, (unsigned long long)bytes,
                              (unsigned long long)offset);
        goto out;
    }
    size_t n = (size_t)(bytes == UINT64_MAX ? size - offset : bytes);
    SY_TRY_GOTO(sy_graph_alloc(n, 1, &data), out);
    SY_TRY_GOTO(read_fully(fd, path, data, n, (off_t)offset), out);
    *out = data;
    *out_bytes = n;
    data = NULL;
out:
    free(data);
    close(fd);
    return status;
}

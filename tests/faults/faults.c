/* LD_PRELOAD library of the tests: makes one call of the C library fail, and records what is written durably.
 *
 *   SY_FAULTS=CALL:N:WHAT   in each process that SY_FAULTS_IN names, the N-th CALL (from 1) fails with WHAT: an errno of the table below, or
 *                           SHORT (half of the bytes). CALL: one of the functions below
 *   SY_FAULTS_IN=serve      or worker: the command that the process runs; without it all
 *   SY_FAULTS_ARM=FILE      allocations fail as the test says while it runs (faults_memory.c)
 *   SY_FAULTS_LOG=FILE      appends each operation on a file below SY_FAULTS_UNDER: "OP PATH OFFSET BYTES\n" and, for a write, its bytes
 *
 * Descriptors' paths are read from /proc, so that no table of them is kept. Thread safe: the counter is atomic, records are single appends. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/faults/faults.h"

static const struct {
    const char *name;
    int value;
} errors[] = {{"EINTR", EINTR}, {"EAGAIN", EAGAIN}, {"ENOSPC", ENOSPC}, {"EMFILE", EMFILE},
              {"EIO", EIO},     {"ENOMEM", ENOMEM}, {"SHORT", -1}};

static char fault_call[32], under[PATH_MAX];
static long fault_at;
static int fault_error, log_fd = -1;
static atomic_long n_calls;

static bool is_meant(void)
{
    const char *in = getenv("SY_FAULTS_IN");
    char line[256] = "";
    int fd = in ? open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : 0;
    if (fd >= 0)
        close(fd);
    return !in || (n > 0 && strcmp(line + strlen(line) + 1, in) == 0);
}

__attribute__((constructor)) static void start(void)
{
    const char *what = getenv("SY_FAULTS"), *log = getenv("SY_FAULTS_LOG");
    const char *folder = getenv("SY_FAULTS_UNDER");
    char error[16] = "";
    if (log && folder) {
        snprintf(under, sizeof under, "%s", folder);
        log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    if (is_meant())
        faults_arm();
    if (!what || !is_meant() || sscanf(what, "%31[^:]:%ld:%15s", fault_call, &fault_at, error) != 3)
        fault_at = 0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, error) == 0)
            fault_error = errors[i].value;
}

/* 0: goes on. Else errno is set; -1 asks for half of the bytes. */
static int fails(const char *call)
{
    if (fault_at == 0 || strcmp(call, fault_call) != 0 ||
        atomic_fetch_add(&n_calls, 1) + 1 != fault_at)
        return 0;
    errno = fault_error > 0 ? fault_error : errno;
    return fault_error;
}

static void record(const char *op, const char *path, long offset, const void *bytes, size_t n)
{
    char head[2 * PATH_MAX];
    int error = errno;
    if (log_fd < 0 || strncmp(path, under, strlen(under)) != 0)
        return;
    int length = snprintf(head, sizeof head, "%s %s %ld %zu\n", op, path, offset, n);
    struct iovec parts[] = {{head, (size_t)length}, {(void *)bytes, bytes ? n : 0}};
    (void)!writev(log_fd, parts, 2);
    errno = error;
}

static const char *path_of(int fd, char *path)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = log_fd >= 0 ? readlink(link, path, PATH_MAX - 1) : 0;
    path[n > 0 ? n : 0] = 0;
    return path;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    if (fails("open"))
        return -1;
    int fd = REAL(open)(path, flags, mode);
    if (fd >= 0 && (flags & O_TRUNC))
        record("create", path, 0, NULL, 0);
    return fd;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    char path[PATH_MAX];
    int error = fails("pwrite");
    if (error > 0)
        return -1;
    ssize_t done = REAL(pwrite)(fd, bytes, error ? (n + 1) / 2 : n, offset);
    if (done > 0)
        record("write", path_of(fd, path), offset, bytes, (size_t)done);
    return done;
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset)
{
    int error = fails("pread");
    return error > 0 ? -1 : REAL(pread)(fd, bytes, error ? (n + 1) / 2 : n, offset);
}

ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
    int error = fails("recv");
    return error > 0 ? -1 : REAL(recv)(fd, bytes, error ? (n + 1) / 2 : n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return fails("sendmsg") ? -1 : REAL(sendmsg)(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    return fails("recvmsg") ? -1 : REAL(recvmsg)(fd, message, flags);
}

int socketpair(int domain, int type, int protocol, int pair[2])
{
    return fails("socketpair") ? -1 : REAL(socketpair)(domain, type, protocol, pair);
}

int memfd_create(const char *name, unsigned flags)
{
    return fails("memfd_create") || faults_no_memory(__builtin_return_address(0))
               ? -1
               : REAL(memfd_create)(name, flags);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return fails("mmap") || (fd < 0 && faults_no_memory(__builtin_return_address(0)))
               ? MAP_FAILED
               : REAL(mmap)(at, n, protection, flags, fd, offset);
}

int fsync(int fd)
{
    char path[PATH_MAX];
    if (fails("fsync"))
        return -1;
    int status = REAL(fsync)(fd);
    if (status == 0)
        record("fsync", path_of(fd, path), 0, NULL, 0);
    return status;
}

int rename(const char *from, const char *to)
{
    char both[2 * PATH_MAX];
    if (fails("rename"))
        return -1;
    int status = REAL(rename)(from, to);
    snprintf(both, sizeof both, "%s>%s", from, to);
    if (status == 0)
        record("rename", both, 0, NULL, 0);
    return status;
}

int unlink(const char *path)
{
    int status = REAL(unlink)(path);
    if (status == 0)
        record("unlink", path, 0, NULL, 0);
    return status;
}

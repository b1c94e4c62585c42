#include "runtime/base/durable_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/fault.h"
#include "runtime/base/status.h"

/* a writer that lives elsewhere (another container) has touched its file since */
#define LEFT_BEHIND_S 600

bool sy_durable_file_is_left_behind(const char *tail)
{
    char *end;
    long pid = strncmp(tail, ".tmp-", 5) == 0 ? strtol(tail + 5, &end, 10) : 0;
    return pid > 0 && !*end && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static bool is_left_behind(int folder, const char *name, const char *base)
{
    size_t n = strlen(base);
    struct stat info;
    if (strncmp(name, base, n) != 0 || !sy_durable_file_is_left_behind(name + n))
        return false;
    return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           time(NULL) - info.st_mtime > LEFT_BEHIND_S;
}

/* Removes files that killed writers of this file left. Best effort. */
static void remove_left_behind(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
    DIR *entries = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_left_behind(dirfd(entries), entry->d_name, base))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
    free(folder);
}

int sy_durable_file_create(const char *path, struct sy_durable_file *out)
{
    *out = (struct sy_durable_file){.fd = -1};
    SY_TRY(sy_fault("file_create"));
    *out = (struct sy_durable_file){.fd = -1, .path = strdup(path)};
    if (!out->path || asprintf(&out->temporary, "%s.tmp-%d", path, (int)getpid()) < 0) {
        free(out->path);
        *out = (struct sy_durable_file){.fd = -1};
        return sy_error_set(SY_ENOMEM_HOST, "no memory to write %s", path);
    }
    remove_left_behind(path);
    out->fd = open(out->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out->fd >= 0)
        return SY_OK;
    int status = sy_error_set(SY_EIO, "cannot create %s: %s", out->temporary, strerror(errno));
    free(out->path);
    free(out->temporary);
    *out = (struct sy_durable_file){.fd = -1};
    return status;
}

int sy_folder_sync(const char *path)
{
    SY_TRY(sy_fault("folder_sync"));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) != 0, error = errno;
    if (fd >= 0)
        close(fd);
    return failed ? sy_error_set(SY_EIO, "cannot sync the folder %s: %s", path, strerror(error))
                  : SY_OK;
}

const char *sy_path_relative_to(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (n == 0 || strncmp(path, folder, n) != 0 || path[n] != '/')
        return NULL;
    return path + n + strspn(path + n, "/");
}

/* Syncs the folder that holds `path`. */
static int sync_folder_of(const char *path)
{
    char *folder = strdup(path);
    SY_TRY_ALLOC(folder, "no memory to write %s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int status = sy_folder_sync(slash ? folder : ".");
    free(folder);
    return status;
}

static int sync_and_rename(const struct sy_durable_file *file)
{
    SY_TRY(sy_fault("file_sync"));
    if (fsync(file->fd) != 0)
        return sy_error_set(SY_EIO, "cannot write %s: %s", file->path, strerror(errno));
    SY_TRY(sy_fault("file_rename"));
    if (rename(file->temporary, file->path) != 0)
        return sy_error_set(SY_EIO, "cannot rename %s to %s: %s", file->temporary, file->path,
                            strerror(errno));
    return sync_folder_of(file->path);
}

int sy_durable_file_commit(struct sy_durable_file *file)
{
    int status = sync_and_rename(file);
    sy_durable_file_discard(file);
    return status;
}

void sy_durable_file_discard(struct sy_durable_file *file)
{
    if (!file->path)
        return;
    close(file->fd);
    unlink(file->temporary); /* gone already after a rename */
    free(file->path);
    free(file->temporary);
    *file = (struct sy_durable_file){.fd = -1};
}

int sy_write_fully(int fd, const char *path, const void *bytes, size_t n, uint64_t offset)
{
    const char *at = bytes;
    SY_TRY(sy_fault("file_write"));
    while (n > 0) {
        ssize_t done = pwrite(fd, at, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return sy_error_set(SY_EIO, "cannot write %zu bytes at %llu of %s: %s", n,
                                (unsigned long long)offset, path, strerror(errno));
        at += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return SY_OK;
}

int sy_read_fully(int fd, const char *path, void *bytes, size_t n, uint64_t offset)
{
    char *at = bytes;
    SY_TRY(sy_fault("file_read"));
    while (n > 0) {
        ssize_t done = pread(fd, at, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return sy_error_set(SY_EIO, "cannot read %zu bytes at %llu of %s: %s", n,
                                (unsigned long long)offset, path, strerror(errno));
        if (done == 0)
            return sy_error_set(SY_ECORRUPT, "%s ends at byte %llu, %zu bytes early", path,
                                (unsigned long long)offset, n);
        at += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return SY_OK;
}

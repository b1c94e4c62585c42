#include "runtime/front/access/path_below.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

static int denied(const char *path)
{
    return sy_error_set(SY_EDENIED,
                        "\"%.200s\" is not below the models' folder (serve --models); files "
                        "elsewhere need the right \"admin\"",
                        path);
}

/* The part of an absolute path below the folder; NULL: it is not below it. */
static const char *relative(const char *folder, const char *path)
{
    return *path == '/' ? sy_path_relative_to(folder, path) : path;
}

/* The path of an open descriptor. */
static int path_of(int fd, char out[SY_PATH_BYTES])
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, out, SY_PATH_BYTES - 1);
    if (n <= 0 || n >= SY_PATH_BYTES - 1)
        return sy_error_set(SY_EIO, "%s: %s", link, n < 0 ? strerror(errno) : "too long");
    out[n] = '\0';
    return SY_OK;
}

/* rest: of `path`, below the folder. */
static int open_below(const char *folder, const char *rest, const char *path, int *out)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), error;

    if (root < 0)
        return sy_error_set(SY_EIO, "the models' folder: %s", strerror(errno));
    *out = (int)syscall(SYS_openat2, root, rest, &how, sizeof how);
    error = errno;
    close(root);
    if (*out >= 0)
        return SY_OK;
    if (error == ENOENT || error == ENOTDIR)
        return sy_error_set(SY_ENOTFOUND,
                            "\"%.200s\": there is no such file below the models' folder", path);
    if (error == EXDEV || error == ELOOP || error == EACCES)
        return denied(path);
    return sy_error_set(SY_EIO, "\"%.200s\": %s", path, strerror(error));
}

int sy_path_below(const char *folder, const char *path, char out[SY_PATH_BYTES])
{
    char real[PATH_MAX];
    const char *rest = NULL;
    int fd, status;

    if (folder) /* as it was given, or as it lies */
        rest = relative(folder, path);
    if (folder && !rest && realpath(folder, real))
        rest = relative(real, path);
    if (!rest)
        return denied(path);
    SY_TRY(open_below(folder, *rest ? rest : ".", path, &fd));
    status = path_of(fd, out);
    close(fd);
    return status;
}

int sy_path_below_new(const char *folder, const char *path, char out[SY_PATH_BYTES])
{
    char parent[SY_PATH_BYTES];
    const char *slash;
    size_t n = strlen(path), used;
    int status = sy_path_below(folder, path, out);

    if (status != SY_ENOTFOUND)
        return status;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= sizeof parent)
        return sy_error_set(SY_EARG, "a path of %zu bytes", n);
    snprintf(parent, sizeof parent, "%.*s", (int)n, path);
    slash = strrchr(parent, '/');
    const char *name = slash ? path + (slash - parent) + 1 : path;
    size_t name_bytes = n - (size_t)(name - path);

    if (name_bytes == 0 || (name_bytes <= 2 && strncmp(name, "..", name_bytes) == 0))
        return denied(path);
    parent[slash ? (slash == parent ? 1 : slash - parent) : 0] = '\0';
    SY_TRY(sy_path_below(folder, *parent ? parent : ".", out));
    used = strlen(out);
    if (used + name_bytes + 2 > SY_PATH_BYTES)
        return sy_error_set(SY_EARG, "a path of %zu bytes", n);
    snprintf(out + used, SY_PATH_BYTES - used, "/%.*s", (int)name_bytes, name);
    return SY_OK;
}

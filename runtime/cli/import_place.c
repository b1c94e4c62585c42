#include "runtime/cli/import_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

/* Files only: an import cannot make folders. */
static void remove_folder(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_left_over(const char *around, const char *base)
{
    DIR *folder = opendir(around);
    size_t n = strlen(base);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, base, n) == 0 &&
            sy_durable_file_is_left_behind(entry->d_name + n))
            remove_folder(dirfd(folder), entry->d_name);
    closedir(folder);
}

/* The folder that `package` lies in; `base` points into `package`. */
static const char *split(const char *package, char around[PATH_MAX])
{
    const char *slash = strrchr(package, '/');
    snprintf(around, PATH_MAX, "%.*s", slash ? (int)(slash - package + 1) : 2,
             slash ? package : "./");
    return slash ? slash + 1 : package;
}

int sy_import_place_make(const char *package, struct sy_import_place *out)
{
    char around[PATH_MAX];
    const char *base = split(package, around);
    struct stat st;

    *out = (struct sy_import_place){.package = package};
    if (!*base || strlen(base) > 200 || strlen(package) > PATH_MAX - 32)
        return sy_error_set(SY_EARG, "'%.100s' is no name for a package", package);
    if (stat(package, &st) == 0 && S_ISDIR(st.st_mode))
        return sy_error_set(SY_EIO, "cannot write %s: it is a folder", package);
    remove_left_over(around, base);
    snprintf(out->folder, sizeof out->folder, "%s.tmp-%d", package, (int)getpid());
    snprintf(out->inside, sizeof out->inside, "%s/%s", out->folder, base);
    if (mkdir(out->folder, 0700) == 0)
        return SY_OK;
    int error = errno;
    *out->folder = '\0';
    return sy_error_set(SY_EIO, "cannot write %s: %s", package, strerror(error));
}

int sy_import_place_commit(const struct sy_import_place *place)
{
    char around[PATH_MAX];
    if (rename(place->inside, place->package) < 0)
        return sy_error_set(SY_EIO, "cannot write %s: %s", place->package, strerror(errno));
    split(place->package, around);
    return sy_folder_sync(around);
}

void sy_import_place_remove(const struct sy_import_place *place)
{
    if (*place->folder)
        remove_folder(AT_FDCWD, place->folder);
}

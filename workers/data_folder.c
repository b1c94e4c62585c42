#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/status.h"
#include "workers/data_internal.h"

char *sy_data_path(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int is_wanted(const char *folder, const char *name, bool wants_folders, bool *out)
{
    struct stat st;
    char *path = sy_data_path(folder, name);
    if (!path)
        return sy_error_set(SY_ENOMEM_HOST, "no room for a path in '%s'", folder);
    int status = stat(path, &st) == 0 ? SY_OK
                                      : sy_error_set(SY_ENOTFOUND, "'%s': %s", path,
                                                     strerror(errno)); /* a link to nowhere */
    *out = status == SY_OK && (wants_folders ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode));
    free(path);
    return status;
}

int sy_data_names_add(struct sy_data_names *list, const char *folder, const char *name)
{
    if (list->n == SY_DATA_MAX_FILES)
        return sy_error_set(SY_ETOOBIG, "'%s' has more than %u entries", folder, SY_DATA_MAX_FILES);
    if ((list->n & (list->n - 1)) == 0) { /* doubles */
        char **grown = realloc(list->names, (list->n ? 2 * list->n : 1) * sizeof *grown);
        if (!grown)
            return sy_error_set(SY_ENOMEM_HOST, "no room for the names in '%s'", folder);
        list->names = grown;
    }
    list->names[list->n] = strdup(name);
    if (!list->names[list->n])
        return sy_error_set(SY_ENOMEM_HOST, "no room for the names in '%s'", folder);
    list->n++;
    return SY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_entries(DIR *dir, const char *folder, bool wants_folders,
                        struct sy_data_names *list)
{
    for (struct dirent *entry; (errno = 0, entry = readdir(dir));) {
        bool wanted = false;
        if (entry->d_name[0] != '.')
            SY_TRY(is_wanted(folder, entry->d_name, wants_folders, &wanted));
        if (wanted)
            SY_TRY(sy_data_names_add(list, folder, entry->d_name));
    }
    return errno ? sy_error_set(SY_EIO, "folder '%s': %s", folder, strerror(errno)) : SY_OK;
}

int sy_data_list(const char *folder, bool wants_folders, struct sy_data_names *out)
{
    struct sy_data_names list = {0};
    DIR *dir = opendir(folder);
    if (!dir)
        return sy_error_set(SY_ENOTFOUND, "data folder '%s': %s", folder, strerror(errno));
    int status = read_entries(dir, folder, wants_folders, &list);
    closedir(dir);
    if (status < 0) {
        sy_data_names_free(&list);
        return status;
    }
    if (list.n)
        qsort(list.names, list.n, sizeof *list.names, by_name);
    *out = list;
    return SY_OK;
}

void sy_data_names_free(struct sy_data_names *list)
{
    for (uint64_t i = 0; i < list->n; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct sy_data_names){0};
}

int64_t sy_data_names_find(const struct sy_data_names *list, const char *name)
{
    for (uint64_t i = 0; i < list->n; i++)
        if (!strcmp(list->names[i], name))
            return (int64_t)i;
    return -1;
}

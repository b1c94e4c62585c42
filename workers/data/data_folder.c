#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/status.h"
#include "workers/data/data_internal.h"

char *sy_data_path(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

int sy_data_names_add(struct sy_data_names *list, const char *folder, const char *name)
{
    if (list->n == SY_DATA_MAX_FILES)
        return sy_error_set(SY_ETOOBIG, "'%s' has more than %u entries", folder, SY_DATA_MAX_FILES);
    if ((list->n & (list->n - 1)) == 0) { /* doubles */
        char **grown = realloc(list->names, (list->n ? 2 * list->n : 1) * sizeof *grown);
        SY_TRY_ALLOC(grown, "no room for the names in '%s'", folder);
        list->names = grown;
    }
    list->names[list->n] = strdup(name);
    SY_TRY_ALLOC(list->names[list->n], "no room for the names in '%s'", folder);
    list->n++;
    return SY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A folder that is being read, and where its entries go. */
struct listing {
    struct sy_data_names *list;
    const char *root, *prefix; /* prefix of the names: "sub/" for files in root/sub */
    enum sy_data_entries wanted;
    const struct listing *above;
    dev_t device;
    ino_t inode;
};

static int list_entries(struct listing *l, const struct stat *folder);

/* A link to a folder above would be listed for ever. */
static int list_below(const struct listing *above, const char *name, const struct stat *st)
{
    for (const struct listing *l = above; l; l = l->above)
        if (l->device == st->st_dev && l->inode == st->st_ino)
            return sy_error_set(SY_EARG, "'%s/%s' is a link to a folder that it is in", above->root,
                                name);
    char *prefix = NULL;
    if (asprintf(&prefix, "%s/", name) < 0)
        return sy_error_set(SY_ENOMEM_HOST, "no room for a path in '%s'", above->root);
    struct listing below = {.list = above->list,
                            .root = above->root,
                            .prefix = prefix,
                            .wanted = above->wanted,
                            .above = above};
    int status = list_entries(&below, st);
    free(prefix);
    return status;
}

static int list_entry(struct listing *l, const char *entry)
{
    struct stat st;
    char *path = NULL, *name = NULL;
    int status = SY_OK;
    if (asprintf(&name, "%s%s", l->prefix, entry) < 0 || !(path = sy_data_path(l->root, name)))
        status = sy_error_set(SY_ENOMEM_HOST, "no room for a path in '%s'", l->root);
    else if (stat(path, &st)) /* a link to nowhere */
        status = sy_error_set(SY_ENOTFOUND, "'%s': %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode) && l->wanted == SY_DATA_FILES_BELOW)
        status = list_below(l, name, &st);
    else if (l->wanted == SY_DATA_FOLDERS ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode))
        status = sy_data_names_add(l->list, l->root, name);
    free(name);
    free(path);
    return status;
}

static int list_entries(struct listing *l, const struct stat *folder)
{
    int status = SY_OK;
    char *path = sy_data_path(l->root, l->prefix);
    DIR *dir = path ? opendir(path) : NULL;
    if (!dir)
        status = sy_error_set(SY_ENOTFOUND, "data folder '%s': %s", path ? path : l->root,
                              strerror(errno));
    free(path);
    if (status < 0)
        return status;
    l->device = folder->st_dev;
    l->inode = folder->st_ino;
    for (struct dirent *entry; status == SY_OK && (errno = 0, entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            status = list_entry(l, entry->d_name);
    if (status == SY_OK && errno)
        status = sy_error_set(SY_EIO, "folder '%s/%s': %s", l->root, l->prefix, strerror(errno));
    closedir(dir);
    return status;
}

int sy_data_list(const char *folder, enum sy_data_entries wanted, struct sy_data_names *out)
{
    struct stat st;
    struct sy_data_names list = {0};
    struct listing top = {.list = &list, .root = folder, .prefix = "", .wanted = wanted};
    if (stat(folder, &st))
        return sy_error_set(SY_ENOTFOUND, "data folder '%s': %s", folder, strerror(errno));
    int status = list_entries(&top, &st);
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

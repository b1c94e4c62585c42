#include "runtime/job_store.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/durable_file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define PATH_BYTES 4096
#define MAX_JOBS   1024

struct sy_job_store {
    char *folder; /* NULL: keeps nothing */
};

int sy_job_store_open(const char *folder, struct sy_job_store **out)
{
    struct sy_job_store *store = calloc(1, sizeof *store);
    if (store && folder)
        store->folder = strdup(folder);
    if (!store || (folder && !store->folder)) {
        free(store);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the job store");
    }
    if (folder && mkdir(folder, 0755) < 0 && errno != EEXIST) {
        int error = errno;
        sy_job_store_close(store);
        return sy_error_set(SY_EIO, "cannot make the state folder %s: %s", folder, strerror(error));
    }
    *out = store;
    return SY_OK;
}

void sy_job_store_close(struct sy_job_store *store)
{
    if (!store)
        return;
    free(store->folder);
    free(store);
}

static int make_path(const struct sy_job_store *store, uint64_t job, char *path)
{
    int n = snprintf(path, PATH_BYTES, "%s/job-%llu.json", store->folder, (unsigned long long)job);
    return n < PATH_BYTES ? SY_OK : sy_error_set(SY_EARG, "the state folder's name is too long");
}

int sy_job_store_put(struct sy_job_store *store, uint64_t job, const char *text)
{
    char path[PATH_BYTES];
    struct sy_durable_file file;
    if (!store->folder)
        return SY_OK;
    SY_TRY(make_path(store, job, path));
    json_t *json = json_pack("{s:I, s:s}", "job", (json_int_t)job, "text", text);
    char *bytes = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!bytes)
        return sy_error_set(SY_EARG, "job %llu is not UTF-8 text", (unsigned long long)job);
    int status = sy_durable_file_create(path, &file);
    if (status == SY_OK) {
        status = sy_write_fully(file.fd, path, bytes, strlen(bytes), 0);
        if (status == SY_OK)
            status = sy_durable_file_commit(&file);
        else
            sy_durable_file_discard(&file);
    }
    free(bytes);
    return status;
}

void sy_job_store_remove(struct sy_job_store *store, uint64_t job)
{
    char path[PATH_BYTES];
    if (!store->folder || make_path(store, job, path) < 0)
        return;
    if (unlink(path) < 0 && errno != ENOENT)
        sy_log_warn("jobs", "event=remove_failed path=%s why=\"%s\"", path, strerror(errno));
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ids of the files there are, ascending. */
static int list_ids(const struct sy_job_store *store, uint64_t *ids)
{
    int n = 0;
    const struct dirent *entry;
    DIR *folder = opendir(store->folder);
    if (!folder)
        return sy_error_set(SY_EIO, "cannot read the state folder %s: %s", store->folder,
                            strerror(errno));
    while ((entry = readdir(folder)) && n < MAX_JOBS) {
        char end = 0, tail[6] = "";
        unsigned long long id;
        if (sscanf(entry->d_name, "job-%llu%5s%c", &id, tail, &end) == 2 && !strcmp(tail, ".json"))
            ids[n++] = id;
    }
    closedir(folder);
    qsort(ids, (size_t)n, sizeof *ids, compare_ids);
    return n;
}

int sy_job_store_load(struct sy_job_store *store,
                      int (*take)(void *ctx, uint64_t job, const char *text), void *ctx)
{
    uint64_t ids[MAX_JOBS];
    char path[PATH_BYTES];
    if (!store->folder)
        return SY_OK;
    int n = list_ids(store, ids);
    SY_TRY(n);
    for (int i = 0; i < n; i++) {
        json_error_t error = {.text = "no text in it"};
        SY_TRY(make_path(store, ids[i], path));
        json_t *json = json_load_file(path, 0, &error);
        const char *text = json_string_value(json_object_get(json, "text"));
        int status = SY_OK;
        if (text)
            status = take(ctx, ids[i], text);
        else
            sy_log_error("jobs", "event=unreadable path=%s why=\"%s\"", path, error.text);
        json_decref(json);
        SY_TRY(status);
    }
    return SY_OK;
}

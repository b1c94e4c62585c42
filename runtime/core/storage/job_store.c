#include "runtime/core/storage/job_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched.h"

#define PATH_BYTES    4096
#define LOCK_TRIES    100 /* LOCK_PAUSE_NS apart: a second in all */
#define LOCK_PAUSE_NS 10000000

struct sy_job_store {
    char *folder; /* NULL: keeps nothing */
    int lock_fd; /* the locked folder; -1: keeps nothing. The kernel releases the lock when the process ends */
};

/* Retries for a second: a killed server holds its lock until the kernel has freed its memory. errno as flock's. */
static bool lock_soon(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Without a lock, two runtimes on one folder would both train its jobs and overwrite each other's snapshots. */
static int lock_folder(struct sy_job_store *store)
{
    store->lock_fd = open(store->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->lock_fd < 0)
        return sy_error_set(SY_EIO, "cannot open the state folder %s: %s", store->folder,
                            strerror(errno));
    if (lock_soon(store->lock_fd))
        return SY_OK;
    if (errno == EWOULDBLOCK)
        return sy_error_set(SY_EBUSY, "another server has the state folder %s; give each its own",
                            store->folder);
    sy_log_warn("jobs", "event=not_locked folder=%s why=\"%s\"", store->folder, strerror(errno));
    return SY_OK; /* the file system does not support locks */
}

int sy_job_store_open(const char *folder, struct sy_job_store **out)
{
    struct sy_job_store *store = calloc(1, sizeof *store);
    if (store)
        store->lock_fd = -1;
    if (store && folder)
        store->folder = strdup(folder);
    if (!store || (folder && !store->folder)) {
        sy_job_store_close(store);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the job store");
    }
    if (folder && mkdir(folder, 0755) < 0 && errno != EEXIST) {
        int error = errno;
        sy_job_store_close(store);
        return sy_error_set(SY_EIO, "cannot make the state folder %s: %s", folder, strerror(error));
    }
    int status = folder ? lock_folder(store) : SY_OK;
    if (status < 0) {
        sy_job_store_close(store);
        return status;
    }
    *out = store;
    return SY_OK;
}

void sy_job_store_close(struct sy_job_store *store)
{
    if (!store)
        return;
    if (store->lock_fd >= 0)
        close(store->lock_fd);
    free(store->folder);
    free(store);
}

/* Consumes the reference. NULL: `what` could not be encoded as JSON. */
static int put_json(const char *path, json_t *json, const char *what)
{
    struct sy_durable_file file;
    char *bytes = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!bytes)
        return sy_error_set(SY_EARG, "%s is not UTF-8 text", what);
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

static int make_path(const struct sy_job_store *store, uint64_t job, char *path)
{
    int n = snprintf(path, PATH_BYTES, "%s/job-%llu.json", store->folder, (unsigned long long)job);
    return n < PATH_BYTES ? SY_OK : sy_error_set(SY_EARG, "the state folder's name is too long");
}

int sy_job_store_put(struct sy_job_store *store, uint64_t job, const char *text, json_t *set)
{
    char path[PATH_BYTES], what[32];
    if (!store->folder)
        return SY_OK;
    SY_TRY(make_path(store, job, path));
    json_t *json = json_pack("{s:I, s:s}", "job", (json_int_t)job, "text", text);
    if (json && set)
        json_object_set(json, "set", set);
    snprintf(what, sizeof what, "job %llu", (unsigned long long)job);
    return put_json(path, json, what);
}

int sy_job_store_remove(struct sy_job_store *store, uint64_t job)
{
    char path[PATH_BYTES];
    if (!store->folder)
        return SY_OK;
    SY_TRY(make_path(store, job, path));
    if (unlink(path) == 0 || errno == ENOENT)
        return SY_OK;
    return sy_error_set(SY_EIO, "cannot remove %s: %s; the next start would go on with job %llu",
                        path, strerror(errno), (unsigned long long)job);
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Whether a file of this name is a job's, and its id. */
static bool is_job_name(const char *name, uint64_t *id)
{
    char own[64];
    unsigned long long value;
    if (sscanf(name, "job-%llu", &value) != 1 || value >= INT64_MAX)
        return false;
    snprintf(own, sizeof own, "job-%llu.json", value);
    *id = value;
    return strcmp(name, own) == 0; /* rejects "job-007.json" */
}

/* Ids of the existing files, ascending. */
static int list_ids(const struct sy_job_store *store, uint64_t *ids, uint64_t *last)
{
    int n = 0;
    uint64_t id;
    const struct dirent *entry;
    DIR *folder = opendir(store->folder);
    if (!folder)
        return sy_error_set(SY_EIO, "cannot read the state folder %s: %s", store->folder,
                            strerror(errno));
    while ((entry = readdir(folder))) {
        if (!is_job_name(entry->d_name, &id))
            continue;
        *last = SY_MAX(*last, id);
        if (n < SY_SCHED_MAX_JOBS)
            ids[n++] = id;
        else
            sy_log_error("jobs", "event=not_resumed job=%llu why=\"more than %d\"",
                         (unsigned long long)id, n);
    }
    closedir(folder);
    qsort(ids, (size_t)n, sizeof *ids, compare_ids);
    return n;
}

int sy_job_store_load(struct sy_job_store *store,
                      int (*take)(void *ctx, uint64_t job, const char *text, const json_t *set),
                      void *ctx, uint64_t *last)
{
    uint64_t ids[SY_SCHED_MAX_JOBS];
    char path[PATH_BYTES];
    *last = 0;
    if (!store->folder)
        return SY_OK;
    int n = list_ids(store, ids, last);
    SY_TRY(n);
    for (int i = 0; i < n; i++) {
        json_error_t error;
        SY_TRY(make_path(store, ids[i], path));
        json_t *json = json_load_file(path, 0, &error);
        const char *text = json_string_value(json_object_get(json, "text"));
        int status = SY_OK;
        if (text)
            status = take(ctx, ids[i], text, json_object_get(json, "set"));
        else
            sy_log_error("jobs", "event=unreadable path=%s why=\"%s\"", path,
                         json ? "no text in it" : error.text);
        json_decref(json);
        SY_TRY(status);
    }
    return SY_OK;
}

static int rules_path(const struct sy_job_store *store, char *path)
{
    int n = snprintf(path, PATH_BYTES, "%s/rules.json", store->folder);
    return n < PATH_BYTES ? SY_OK : sy_error_set(SY_EARG, "the state folder's name is too long");
}

int sy_job_store_put_rules(struct sy_job_store *store, json_t *rules)
{
    char path[PATH_BYTES];
    if (!store->folder)
        return SY_OK;
    SY_TRY(rules_path(store, path));
    return put_json(path, json_incref(rules), "a rule");
}

json_t *sy_job_store_rules(struct sy_job_store *store)
{
    char path[PATH_BYTES];
    json_error_t error;
    if (!store->folder || rules_path(store, path) < 0 || access(path, F_OK) < 0)
        return NULL;
    json_t *rules = json_load_file(path, 0, &error);
    if (!rules)
        sy_log_error("jobs", "event=unreadable path=%s why=\"%s\"", path, error.text);
    return rules;
}

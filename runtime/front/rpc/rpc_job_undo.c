/* A job that came and was taken back: the folder that was made for it goes (M5). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_job.h"
#include "runtime/move/job_snapshot.h"

struct undo_work {
    struct sy_rpc_work work;
    char *folder, *state_folder;
    uint64_t job;
};

static void undo_release(struct sy_rpc_work *work)
{
    struct undo_work *w = (struct undo_work *)work;

    free(w->folder);
    free(w->state_folder);
    free(w);
}

/* The name below STATE/moved/ of a folder there; NULL: it is none, and somebody else's. */
static const char *name_in_moved(const char *moved, const char *folder)
{
    size_t n = strlen(moved);

    return strncmp(folder, moved, n) == 0 && folder[n] == '/' && folder[n + 1] &&
                   folder[n + 1] != '.' && !strchr(folder + n + 1, '/')
               ? folder + n + 1
               : NULL;
}

/* Files only: such a folder has no others. */
static int remove_folder(int moved, const char *name)
{
    int fd = openat(moved, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;

    if (!entries) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return error == ENOENT ? SY_OK : sy_error_set(SY_EIO, "%s: %s", name, strerror(error));
    }
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    closedir(entries);
    return unlinkat(moved, name, AT_REMOVEDIR) == 0
               ? SY_OK
               : sy_error_set(SY_EIO, "cannot remove %s: %s", name, strerror(errno));
}

/* A work. */
static int undo_run(struct sy_rpc_work *work)
{
    struct undo_work *w = (struct undo_work *)work;
    char moved[SY_JOB_SNAPSHOT_PATH_BYTES], real[SY_JOB_SNAPSHOT_PATH_BYTES];
    const char *name = NULL;

    if (realpath(w->state_folder, real) &&
        (size_t)snprintf(moved, sizeof moved, "%s/moved", real) < sizeof moved)
        name = name_in_moved(moved, w->folder);
    if (!name)
        return sy_error_set(SY_EARG, "job %llu did not come from another server",
                            (unsigned long long)w->job);
    int fd = open(moved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sy_error_set(SY_EIO, "%s: %s", moved, strerror(errno));
    int status = remove_folder(fd, name);
    close(fd);
    SY_TRY(status);
    sy_log_info("rpc", "event=job_undone job=%llu folder=%s", (unsigned long long)w->job, name);
    return SY_OK;
}

int sy_rpc_job_receive_undo(const struct sy_rpc_request *request, json_t *params)
{
    const struct sy_front *front = request->connection->server->front;
    json_t *job = json_object_get(params, "job");

    if (!json_is_integer(job) || json_integer_value(job) < 0)
        return sy_error_set(SY_EARG, "the parameter \"job\" is missing or no job's number");
    if (!front->state_folder)
        return sy_error_set(SY_EUNSUPPORTED, "this server keeps no jobs: serve --state");
    struct undo_work *w = calloc(1, sizeof *w);
    SY_TRY_ALLOC(w, "no memory for a job");
    w->job = (uint64_t)json_integer_value(job);
    w->work.run = undo_run;
    w->work.release = undo_release;
    w->state_folder = strdup(front->state_folder);
    int status = w->state_folder ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a path");
    if (status == SY_OK)
        status = sy_access_job(&request->connection->grant, front->handlers, front->core, w->job);
    if (status == SY_OK)
        status = front->handlers->job_folder(front->core, w->job, &w->folder);
    if (status == SY_OK)
        status = sy_rpc_work_start(request, &w->work);
    if (status < 0)
        undo_release(&w->work);
    return status;
}

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/rpc/rpc_job.h"
#include "runtime/front/rpc/rpc_receive.h"
#include "runtime/move/job_snapshot.h"
#include "runtime/move/job_state.h"
#include "runtime/net/base64.h"

/* ---- what is left of others (M3) ------------------------------------------------------------------- */

#define SNAPSHOT_END ".safetensors"

static bool is_dead_temporary(const char *name)
{
    const char *end = strstr(name, SNAPSHOT_END);

    return end && sy_durable_file_is_left_behind(end + strlen(SNAPSHOT_END));
}

static void sweep_folder(int moved, const char *name)
{
    int fd = openat(moved, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    bool was_left = false;

    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_dead_temporary(entry->d_name))
            was_left |= unlinkat(fd, entry->d_name, 0) == 0;
    if (was_left)
        unlinkat(moved, name, AT_REMOVEDIR); /* not if a snapshot is in it */
    if (entries)
        closedir(entries);
    else if (fd >= 0)
        close(fd);
}

static void sweep(const char *moved)
{
    DIR *entries = opendir(moved);

    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            sweep_folder(dirfd(entries), entry->d_name);
    if (entries)
        closedir(entries);
}

/* ---- its folder and file ---------------------------------------------------------------------------- */

static int make_folder(struct sy_rpc_receive *r)
{
    char moved[SY_JOB_SNAPSHOT_PATH_BYTES], real[SY_JOB_SNAPSHOT_PATH_BYTES];

    if (!realpath(r->state_folder, real))
        return sy_error_set(SY_EIO, "the state folder %s: %s", r->state_folder, strerror(errno));
    if ((size_t)snprintf(moved, sizeof moved, "%s/moved", real) >= sizeof moved ||
        (size_t)snprintf(r->folder, sizeof r->folder, "%s/%s-XXXXXX", moved, r->state.name) >=
            sizeof r->folder) {
        *r->folder = '\0';
        return sy_error_set(SY_EIO, "the state folder %s: its name is too long", r->state_folder);
    }
    int failed = mkdir(moved, 0700) != 0 && errno != EEXIST;
    if (!failed) {
        sweep(moved);
        failed = !mkdtemp(r->folder);
    }
    if (failed) {
        int error = errno;
        *r->folder = '\0';
        return sy_error_set(SY_EIO, "cannot make a folder in %s: %s", moved, strerror(error));
    }
    SY_TRY(sy_folder_sync(moved));
    return sy_folder_sync(real);
}

/* All of its room now: better no job than half a one. */
static int take_room(const struct sy_rpc_receive *r)
{
    struct statvfs fs;

    if (fallocate(r->file.fd, 0, 0, (off_t)r->state.bytes) == 0)
        return SY_OK;
    int error = errno;
    if (error == EOPNOTSUPP && fstatvfs(r->file.fd, &fs) == 0)
        error = (uint64_t)fs.f_bavail * fs.f_frsize >= r->state.bytes ? 0 : ENOSPC;
    return error ? sy_error_set(SY_EIO, "no room for a snapshot of %llu bytes in %s: %s",
                                (unsigned long long)r->state.bytes, r->folder, strerror(error))
                 : SY_OK;
}

static int make_file(struct sy_rpc_receive *r)
{
    if (r->state.bytes == 0)
        return SY_OK;
    SY_TRY(sy_job_snapshot_path(r->folder, r->state.name, r->state.step, r->path));
    SY_TRY(sy_durable_file_create(r->path, &r->file));
    return take_room(r);
}

/* ---- what the job says ------------------------------------------------------------------------------ */

struct resolve {
    const char *folder; /* NULL: there is none */
    int status;
};

static void resolve_path(json_t *object, const char *name, void *ctx)
{
    struct resolve *at = ctx;
    const char *path = json_string_value(json_object_get(object, name));
    char whole[SY_JOB_SNAPSHOT_PATH_BYTES], real[SY_JOB_SNAPSHOT_PATH_BYTES];

    if (!path || !*path || at->status < 0)
        return;
    int n = *path == '/'
                ? snprintf(whole, sizeof whole, "%s", path)
                : snprintf(whole, sizeof whole, "%s/%s", at->folder ? at->folder : ".", path);
    if (*path != '/' && !at->folder)
        at->status = sy_error_set(SY_ENOTFOUND,
                                  "\"%.200s\" is to be below the models' folder, and this server "
                                  "has none (serve --models)",
                                  path);
    else if (n >= (int)sizeof whole || !realpath(whole, real))
        at->status = sy_error_set(SY_ENOTFOUND,
                                  "\"%.200s\" is not on this server: the job's model and data are "
                                  "to be here before it comes",
                                  whole);
    else if (*path != '/') /* for rpc_access.c: as it lies, and so below the folder or refused */
        json_object_set_new(object, name, json_string(real));
}

/* Its paths, but the snapshots' folder, which is this server's choice. Owned by the caller. */
static int allow_text(const struct sy_rpc_connection *connection, json_t *job, char **out)
{
    const struct sy_front *front = connection->server->front;
    struct resolve at = {front->models_folder, SY_OK};
    char *text = json_dumps(job, JSON_COMPACT);
    int status = text ? sy_rpc_allow_job(connection, text, out)
                      : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");

    free(text);
    SY_TRY(status);
    json_t *allowed = json_loads(*out, 0, NULL);
    if (allowed && front->job_paths)
        front->job_paths(allowed, resolve_path, &at);
    free(*out);
    *out = allowed && at.status == SY_OK ? json_dumps(allowed, JSON_COMPACT) : NULL;
    json_decref(allowed);
    SY_TRY(at.status);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
}

/* A work. */
static int put_folder(struct sy_rpc_receive *r)
{
    json_t *job = json_loads(r->text, 0, NULL);
    int failed = json_object_set_new(r->snapshot, "folder", json_string(r->folder)) ||
                 json_object_set(job, "snapshot", r->snapshot);

    free(r->text);
    r->text = failed ? NULL : json_dumps(job, JSON_COMPACT);
    json_decref(job);
    return r->text ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
}

/* Checks that need no look at the state folder. */
static int check_job(const struct sy_rpc_connection *connection, json_t *job,
                     struct sy_rpc_receive *r)
{
    r->snapshot = json_incref(json_object_get(job, "snapshot"));
    if (!json_is_object(r->snapshot) || json_object_get(job, "script"))
        return sy_error_set(SY_EARG, "a job that moves has \"snapshot\", and is no script");
    json_object_del(job, "snapshot");
    r->state_folder = strdup(connection->server->front->state_folder);
    SY_TRY_ALLOC(r->state_folder, "no memory for a job");
    return allow_text(connection, job, &r->text);
}

/* ---- the methods ------------------------------------------------------------------------------------ */

static int check_may(const struct sy_rpc_connection *connection)
{
    if (!connection->server->front->state_folder)
        return sy_error_set(SY_EUNSUPPORTED,
                            "this server keeps no jobs, and takes none from others: serve --state");
    if (connection->receive)
        return sy_error_set(SY_EBUSY, "this connection receives a job already");
    if (connection->server->n_received >= SY_RPC_RECEIVED)
        return sy_error_set(SY_EBUSY, "%d jobs come at once already; try again", SY_RPC_RECEIVED);
    return SY_OK;
}

struct receive_work {
    struct sy_rpc_work work;
    struct sy_rpc_receive *receive;
    uint64_t offset; /* offset of a piece */
    size_t n;
    unsigned char *bytes;
};

static void receive_work_free(struct receive_work *w)
{
    free(w->bytes);
    free(w);
}

static void work_release(struct sy_rpc_work *work)
{
    struct receive_work *w = (struct receive_work *)work;

    sy_rpc_receive_work_ended(w->receive, work->status);
    receive_work_free(w);
}

/* Takes the work over, whatever becomes of it. */
static int start_work(const struct sy_rpc_request *request, struct sy_rpc_receive *r,
                      int (*run)(struct sy_rpc_work *), struct receive_work *w)
{
    w->receive = r;
    w->work.run = run;
    if (!w->work.release)
        w->work.release = work_release;
    sy_rpc_receive_work_begins(r);
    int status = sy_rpc_work_start(request, &w->work);
    if (status < 0) {
        w->work.status = status; /* it did not run, and is this function's: the file has a gap */
        w->work.release(&w->work);
    }
    return status;
}

/* A work. */
static int make_run(struct sy_rpc_work *work)
{
    struct sy_rpc_receive *r = ((struct receive_work *)work)->receive;

    SY_TRY(make_folder(r));
    SY_TRY(put_folder(r));
    SY_TRY(make_file(r));
    r->is_made = true;
    return SY_OK;
}

/* A receive that could not be started is dropped. */
static void make_release(struct sy_rpc_work *work)
{
    struct receive_work *w = (struct receive_work *)work;

    if (work->status < 0 && work->connection->receive == w->receive)
        sy_rpc_receive_drop(work->connection);
    work_release(work);
}

int sy_rpc_job_receive(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_connection *connection = request->connection;
    struct sy_rpc_receive *r;

    SY_TRY(check_may(connection));
    struct receive_work *w = calloc(1, sizeof *w);
    int status = w ? sy_rpc_receive_create(connection, &r)
                   : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    if (status < 0) {
        free(w);
        return status;
    }
    status = sy_job_state_parse(json_object_get(params, "state"), &r->state);
    if (status == SY_OK) {
        json_t *job = json_loads(r->state.text, 0, NULL);
        status = check_job(connection, job, r);
        json_decref(job);
    }
    if (status < 0) {
        free(w);
        sy_rpc_receive_release(r);
        return status;
    }
    connection->receive = r;
    w->work.release = make_release;
    return start_work(request, r, make_run, w);
}

/* A work. */
static int check_made(const struct sy_rpc_receive *r)
{
    return r->is_made ? SY_OK : sy_error_set(SY_ECANCELED, "the job's file could not be made");
}

/* A work. */
static int piece_run(struct sy_rpc_work *work)
{
    struct receive_work *w = (struct receive_work *)work;

    SY_TRY(check_made(w->receive));
    return sy_write_fully(w->receive->file.fd, w->receive->path, w->bytes, w->n, w->offset);
}

static int take_piece(const struct sy_rpc_receive *r, json_t *params, struct receive_work *w)
{
    json_t *offset = json_object_get(params, "offset");

    if (!r)
        return sy_error_set(SY_EARG, "this connection receives no job: job_receive comes first");
    if (r->status < 0)
        return sy_error_set(r->status, "a piece before this one was not written");
    SY_TRY(sy_base64_take(params, "data", SY_JOB_STATE_PIECE_BYTES, &w->bytes, &w->n));
    if (!json_is_integer(offset) || (uint64_t)json_integer_value(offset) != r->got)
        return sy_error_set(SY_EARG,
                            "the parameter \"offset\": pieces come in order, the next at "
                            "%llu",
                            (unsigned long long)r->got);
    if (w->n > r->state.bytes - r->got)
        return sy_error_set(SY_ETOOBIG, "more than the %llu bytes that the state says",
                            (unsigned long long)r->state.bytes);
    w->offset = r->got;
    return SY_OK;
}

int sy_rpc_job_receive_piece(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_receive *r = request->connection->receive;
    struct receive_work *w = calloc(1, sizeof *w);

    SY_TRY_ALLOC(w, "no memory for a piece");
    int status = take_piece(r, params, w);
    if (status < 0) {
        receive_work_free(w);
        return status;
    }
    r->got += w->n;
    sy_pace_add_bytes(&r->pace, w->n, r->server->front->least_bytes_per_s,
                      r->server->limits.receive_ns);
    return start_work(request, r, piece_run, w);
}

/* ---- the end ----------------------------------------------------------------------------------------- */

/* A work. */
static int end_run(struct sy_rpc_work *work)
{
    struct sy_rpc_receive *r = ((struct receive_work *)work)->receive;
    struct sy_job_snapshot snapshot = {0};

    SY_TRY(check_made(r));
    if (!r->file.path)
        return SY_OK;
    SY_TRY(sy_job_snapshot_check(r->file.temporary, r->state.name, r->state.step, work->stop,
                                 &snapshot));
    if (snapshot.bytes != r->state.bytes || snapshot.xxh3 != r->state.xxh3)
        return sy_error_set(SY_ECORRUPT,
                            "the snapshot came with %llu bytes of hash %016llx, the state says "
                            "%llu of %016llx",
                            (unsigned long long)snapshot.bytes, (unsigned long long)snapshot.xxh3,
                            (unsigned long long)r->state.bytes, (unsigned long long)r->state.xxh3);
    return sy_durable_file_commit(&r->file);
}

static int end_then(struct sy_rpc_work *work)
{
    struct sy_rpc_receive *r = ((struct receive_work *)work)->receive;
    const struct sy_front *front = work->connection->server->front;
    const struct sy_core_parked parked = {.text = r->text,
                                          .step = r->state.step,
                                          .total_steps = r->state.total_steps,
                                          .priority = r->state.priority,
                                          .priority_set = r->state.has_priority};
    uint64_t job;

    if (work->connection->fd < 0) /* no client to answer */
        return sy_error_set(SY_EPEER, "the client is gone");
    SY_TRY(front->handlers->job_receive(front->core, &parked, &job));
    r->taken = true;
    sy_log_info("rpc", "event=job_received job=%llu name=%s step=%llu bytes=%llu",
                (unsigned long long)job, r->state.name, (unsigned long long)r->state.step,
                (unsigned long long)r->state.bytes);
    work->answer = json_pack("{s:I}", "job", (json_int_t)job);
    return SY_OK;
}

static int check_whole(const struct sy_rpc_receive *r)
{
    if (!r)
        return sy_error_set(SY_EARG, "this connection receives no job: job_receive comes first");
    if (r->n_working > 0)
        return sy_error_set(SY_EBUSY, "%d pieces are being written", r->n_working);
    if (r->status < 0 || r->got != r->state.bytes)
        return sy_error_set(r->status < 0 ? r->status : SY_EARG,
                            "%llu of the snapshot's %llu bytes came and were written",
                            (unsigned long long)r->got, (unsigned long long)r->state.bytes);
    return SY_OK;
}

int sy_rpc_job_receive_end(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_receive *r = request->connection->receive;

    (void)params;
    SY_TRY(check_whole(r));
    struct receive_work *w = calloc(1, sizeof *w);
    SY_TRY_ALLOC(w, "no memory for a job");
    w->work.then = end_then;
    int status = start_work(request, r, end_run, w);
    sy_rpc_receive_drop(request->connection); /* it is the work's now, whatever becomes of it */
    return status;
}

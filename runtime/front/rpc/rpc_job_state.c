#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/rpc/rpc_job.h"
#include "runtime/move/job_snapshot.h"
#include "runtime/move/job_state.h"
#include "runtime/net/base64.h"

/* ---- work beside the loop ---------------------------------------------------------------------- */

static void work_run(void *ctx)
{
    struct sy_rpc_work *work = ctx;

    work->status = work->run(work);
    if (work->status < 0)
        snprintf(work->error, sizeof work->error, "%s", sy_error_text());
}

static void work_done(void *ctx)
{
    struct sy_rpc_work *work = ctx;
    struct sy_rpc_connection *connection = work->connection;

    if (work->status == SY_OK && work->then) {
        work->status = work->then(work);
        if (work->status < 0)
            snprintf(work->error, sizeof work->error, "%s", sy_error_text());
    }
    if (work->status < 0)
        sy_rpc_answer_error(connection, work->answers, work->id, work->status, work->error);
    else
        sy_rpc_answer_json(connection, work->answers, work->id,
                           work->answer ? json_incref(work->answer) : json_object());
    json_decref(work->answer);
    work->release(work);
    sy_rpc_connection_resume(connection);
    sy_rpc_connection_release(connection);
}

int sy_rpc_work_start(const struct sy_rpc_request *request, struct sy_rpc_work *work)
{
    struct sy_offload *moves = request->connection->server->front->moves;

    work->connection = request->connection;
    work->answers = request->answers;
    work->id = request->id;
    work->connection->refs++;
    work->stop = moves ? sy_offload_stops(moves) : NULL;
    /* Until it has run: what the end of the server keeps from running has not succeeded. */
    work->status = sy_error_set(SY_ECANCELED, "the server stops");
    snprintf(work->error, sizeof work->error, "%s", sy_error_text());
    if (!moves) {
        work_run(work);
        work_done(work);
        return SY_OK;
    }
    int status = sy_offload_run(moves, work_run, work_done, work);
    if (status < 0)
        sy_rpc_connection_release(work->connection);
    return status;
}

/* ---- which job ------------------------------------------------------------------------------------ */

static int read_count(json_t *params, const char *key, uint64_t *out)
{
    json_t *value = json_object_get(params, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return sy_error_set(SY_EARG, "the parameter \"%s\" is missing or no count", key);
    *out = (uint64_t)json_integer_value(value);
    return SY_OK;
}

/* The parked job that is asked for, which may be this client's. */
static int find_parked(const struct sy_rpc_request *request, json_t *params,
                       struct sy_core_parked *out)
{
    const struct sy_front *front = request->connection->server->front;
    uint64_t job;

    SY_TRY(read_count(params, "job", &job));
    SY_TRY(sy_access_job(&request->connection->grant, front->handlers, front->core, job));
    return front->handlers->job_parked(front->core, job, out);
}

struct folder_of {
    const char *given;
    char real[PATH_MAX]; /* "": there is none */
};

/* Below the models' folder here is below the models' folder there. */
static void make_relative(json_t *object, const char *name, void *ctx)
{
    const struct folder_of *folder = ctx;
    const char *path = json_string_value(json_object_get(object, name)), *rest = NULL;

    if (path && folder->given)
        rest = sy_path_relative_to(folder->given, path);
    if (path && !rest)
        rest = sy_path_relative_to(folder->real, path);
    if (rest && *rest)
        json_object_set_new(object, name, json_string(rest));
}

/* ---- job_state ------------------------------------------------------------------------------------ */

struct state_work {
    struct sy_rpc_work work;
    struct sy_job_state state;
    char folder[SY_JOB_SNAPSHOT_PATH_BYTES];
};

static void state_release(struct sy_rpc_work *work)
{
    struct state_work *w = (struct state_work *)work;

    sy_job_state_finish(&w->state);
    free(w);
}

static int state_run(struct sy_rpc_work *work)
{
    struct state_work *w = (struct state_work *)work;
    struct sy_job_snapshot snapshot = {0};
    int status = sy_job_snapshot_find(w->folder, w->state.name, work->stop, &snapshot);

    if (status == SY_ENOTFOUND && w->state.step == 0)
        status = SY_OK; /* it has not begun */
    if (status == SY_ENOTFOUND)
        return sy_error_prefix(SY_ECORRUPT, "the job is at step %llu",
                               (unsigned long long)w->state.step);
    SY_TRY(status);
    w->state.step = snapshot.step;
    w->state.bytes = snapshot.bytes;
    w->state.xxh3 = snapshot.xxh3;
    json_t *state = sy_job_state_json(&w->state);
    work->answer = state ? json_pack("{s:o}", "state", state) : NULL;
    return work->answer ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a job's state");
}

static int read_job(const struct sy_core_parked *parked, json_t *job, struct state_work *w)
{
    const char *folder =
        json_string_value(json_object_get(json_object_get(job, "snapshot"), "folder"));

    SY_TRY(sy_job_state_name(job, w->state.name));
    if (!folder || strlen(folder) >= sizeof w->folder)
        return sy_error_set(SY_EARG, "job: no snapshot folder, or a long one");
    strcpy(w->folder, folder);
    w->state.step = parked->step;
    w->state.total_steps = parked->total_steps;
    w->state.has_priority = parked->priority_set;
    w->state.priority = parked->priority;
    return SY_OK;
}

static int take_job(const struct sy_front *front, const struct sy_core_parked *parked,
                    struct state_work *w)
{
    struct folder_of models = {.given = front->models_folder};
    json_t *job = json_loads(parked->text, 0, NULL);
    int status = job ? read_job(parked, job, w) : sy_error_set(SY_EARG, "job: no JSON");

    if (models.given && !realpath(models.given, models.real))
        *models.real = '\0';
    if (status == SY_OK && front->job_paths)
        front->job_paths(job, make_relative, &models);
    if (status == SY_OK) {
        w->state.text = json_dumps(job, JSON_COMPACT);
        if (!w->state.text)
            status = sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    }
    json_decref(job);
    return status;
}

int sy_rpc_job_state(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_core_parked parked;

    SY_TRY(find_parked(request, params, &parked));
    struct state_work *w = calloc(1, sizeof *w);
    SY_TRY_ALLOC(w, "no memory for a job's state");
    w->work.run = state_run;
    w->work.release = state_release;
    int status = take_job(request->connection->server->front, &parked, w);
    if (status == SY_OK)
        status = sy_rpc_work_start(request, &w->work);
    if (status < 0)
        state_release(&w->work);
    return status;
}

/* ---- job_state_read ------------------------------------------------------------------------------- */

struct read_work {
    struct sy_rpc_work work;
    uint64_t offset;
    size_t n;
    char path[SY_JOB_SNAPSHOT_PATH_BYTES];
};

static void read_release(struct sy_rpc_work *work)
{
    free(work);
}

static int read_piece(const struct read_work *w, unsigned char *bytes)
{
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return sy_error_set(SY_EIO, "%s: %s", w->path, strerror(errno));
    int status = sy_read_fully(fd, w->path, bytes, w->n, w->offset);
    close(fd);
    return status;
}

static int read_run(struct sy_rpc_work *work)
{
    struct read_work *w = (struct read_work *)work;
    unsigned char *bytes = malloc(w->n);
    int status = bytes ? read_piece(w, bytes)
                       : sy_error_set(SY_ENOMEM_HOST, "no memory for %zu bytes", w->n);
    json_t *data = status == SY_OK ? sy_base64_json(bytes, w->n) : NULL;

    free(bytes);
    SY_TRY(status);
    work->answer = data ? json_pack("{s:o}", "data", data) : NULL;
    return work->answer ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
}

static int take_read(const struct sy_rpc_request *request, json_t *params, struct read_work *w)
{
    struct sy_core_parked parked;
    uint64_t step, n;
    char name[SY_JOB_STATE_NAME];

    SY_TRY(find_parked(request, params, &parked));
    SY_TRY(read_count(params, "step", &step));
    SY_TRY(read_count(params, "offset", &w->offset));
    SY_TRY(read_count(params, "bytes", &n));
    if (n == 0 || n > SY_JOB_STATE_PIECE_BYTES || w->offset > SY_JOB_STATE_MOST_BYTES)
        return sy_error_set(SY_EARG, "a piece of %llu bytes: 1 to %u, within the snapshot",
                            (unsigned long long)n, SY_JOB_STATE_PIECE_BYTES);
    w->n = (size_t)n;
    json_t *job = json_loads(parked.text, 0, NULL);
    const char *folder =
        json_string_value(json_object_get(json_object_get(job, "snapshot"), "folder"));
    int status =
        folder ? sy_job_state_name(job, name) : sy_error_set(SY_EARG, "job: no snapshot folder");
    if (status == SY_OK)
        status = sy_job_snapshot_path(folder, name, step, w->path);
    json_decref(job);
    return status;
}

int sy_rpc_job_state_read(const struct sy_rpc_request *request, json_t *params)
{
    struct read_work *w = calloc(1, sizeof *w);

    SY_TRY_ALLOC(w, "no memory for a piece");
    w->work.run = read_run;
    w->work.release = read_release;
    int status = take_read(request, params, w);
    if (status == SY_OK)
        status = sy_rpc_work_start(request, &w->work);
    if (status < 0)
        read_release(&w->work);
    return status;
}

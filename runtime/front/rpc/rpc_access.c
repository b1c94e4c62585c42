/* Rights of a connection's client, and the paths that it may name. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/access/path_below.h"
#include "runtime/front/rpc/rpc_internal.h"

/* The connection ends behind the answer: guessing costs a connection, and a handshake, each time. */
static int refuse_token(struct sy_rpc_connection *connection, int status)
{
    struct sy_rpc_server *server = connection->server;
    sy_ns now = sy_clock_now();

    if (now >= server->said_ns + SY_NS_PER_S)
        sy_log_warn("rpc", "event=token_refused why=\"%s\"", sy_error_text());
    server->said_ns = now;
    connection->closing = true;
    return status;
}

int sy_rpc_auth(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_connection *connection = request->connection;
    struct sy_access *access = connection->server->front->access;
    json_t *token = json_object_get(params, "token");
    struct sy_grant grant;
    json_t *answer;
    int status;

    if (!json_is_string(token))
        return sy_error_set(SY_EARG, "the parameter \"token\" is missing or not a string");
    status = sy_access_token(access, json_string_value(token), json_string_length(token), &grant);
    if (status < 0)
        return refuse_token(connection, status);
    connection->grant = grant;
    answer = json_pack(
        "{s:s, s:s, s:b, s:b, s:b, s:b}", "name", grant.name, "tenant", grant.tenant, "infer",
        (grant.rights & SY_RIGHT_INFER) != 0, "models", (grant.rights & SY_RIGHT_MODELS) != 0,
        "jobs", (grant.rights & SY_RIGHT_JOBS) != 0, "admin", (grant.rights & SY_RIGHT_PATHS) != 0);
    SY_TRY_ALLOC(answer, "no memory for the answer");
    sy_rpc_answer_json(connection, request->answers, request->id, answer);
    return SY_OK;
}

int sy_rpc_allow_path(const struct sy_rpc_connection *connection, const char *path, char **out)
{
    char real[SY_PATH_BYTES];
    bool anywhere = connection->grant.rights & SY_RIGHT_PATHS;

    if (!anywhere)
        SY_TRY(sy_path_below(connection->server->front->models_folder, path, real));
    *out = strdup(anywhere ? path : real);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a path");
}

struct path_check {
    const char *folder;
    int status;
};

/* Files must be there; the folder of snapshots may be made by the job. */
static void check_path(json_t *object, const char *name, void *ctx)
{
    struct path_check *check = ctx;
    const char *path = json_string_value(json_object_get(object, name));
    char real[SY_PATH_BYTES];

    if (!path || !*path || check->status < 0)
        return;
    check->status = strcmp(name, "folder") == 0 ? sy_path_below_new(check->folder, path, real)
                                                : sy_path_below(check->folder, path, real);
    if (check->status == SY_OK && json_object_set_new(object, name, json_string(real)))
        check->status = sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
}

/* A worker connects to the socket that the job names, and the script's process is one of this machine. */
static int check_script(const struct sy_rpc_connection *connection, const json_t *job)
{
    const char *name = json_string_value(json_object_get(job, "name"));

    if (connection->is_local || !json_object_get(job, "script"))
        return SY_OK;
    return sy_error_set(SY_EDENIED,
                        "job '%.100s' is a script ('switchyard run'), which runs beside the "
                        "server: such jobs come over its Unix socket only",
                        name ? name : "");
}

static int change_job(const struct sy_rpc_connection *connection, json_t *job)
{
    const struct sy_front *front = connection->server->front;
    struct path_check check = {front->models_folder, SY_OK};
    const char *tenant = json_string_value(json_object_get(job, "tenant"));

    SY_TRY(check_script(connection, job));
    SY_TRY(sy_access_tenant(&connection->grant, tenant, &tenant));
    if (*tenant)
        json_object_set_new(job, "tenant", json_string(tenant));
    if (connection->grant.rights & SY_RIGHT_PATHS)
        return SY_OK;
    if (!front->job_paths)
        return sy_error_set(SY_EDENIED, "jobs need the right \"admin\" here");
    front->job_paths(job, check_path, &check);
    return check.status;
}

int sy_rpc_allow_job(const struct sy_rpc_connection *connection, const char *text, char **out)
{
    bool as_it_is = connection->is_local && (connection->grant.rights & SY_RIGHT_PATHS) &&
                    !*connection->grant.tenant;
    json_error_t where;
    json_t *job = as_it_is ? NULL : json_loads(text, 0, &where);
    int status = SY_OK;

    if (!as_it_is && !json_is_object(job))
        status = sy_error_set(SY_EARG, "job: line %d: %s", job ? 1 : where.line,
                              job ? "must be an object in braces" : where.text);
    else if (job)
        status = change_job(connection, job);
    *out = status < 0 ? NULL : job ? json_dumps(job, JSON_COMPACT) : strdup(text);
    json_decref(job);
    if (status == SY_OK && !*out)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
    return status;
}

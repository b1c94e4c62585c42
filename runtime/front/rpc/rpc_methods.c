/* The table of methods, and those but infer that are of no model: small JSON values in and out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/front/rpc/rpc_job.h"
#include "runtime/front/rpc/rpc_methods.h"
#include "runtime/front/rpc/rpc_region.h"
#include "runtime/front/rpc/rpc_session.h"

#define DRAIN_GRACE_NS (30 * SY_NS_PER_S)
#define MOST_PRIORITY  1000

typedef int (*method)(const struct sy_rpc_request *request, json_t *params);

static void drain_done(void *ctx)
{
    sy_rpc_deferred_done(ctx, SY_OK, NULL);
}

/* ---- the methods ----------------------------------------------------------------------------------------- */

static int do_ping(const struct sy_rpc_request *request, json_t *params)
{
    (void)params;
    return sy_rpc_answer(request, json_string("pong"));
}

static int do_status(const struct sy_rpc_request *request, json_t *params)
{
    json_t *status;

    (void)params;
    SY_TRY(sy_rpc_handlers(request)->status(sy_rpc_core(request), &status));
    return sy_rpc_answer(request, status);
}

/* The answer carries the descriptor: without an answer there is nothing to make. */
static int do_region_create(const struct sy_rpc_request *request, json_t *params)
{
    json_t *bytes = json_object_get(params, "bytes"), *result;
    struct sy_rpc_region *region = NULL;
    int fd = -1;

    if (!request->answers)
        return sy_error_set(SY_EARG, "region_create needs an answer: call it, do not notify");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return sy_error_set(SY_EARG, "the parameter \"bytes\" is missing or not a number of bytes");
    SY_TRY(sy_rpc_region_create(request->connection, (uint64_t)json_integer_value(bytes), &region,
                                &fd));
    result = json_pack("{s:I, s:I}", "region", (json_int_t)region->id, "bytes",
                       (json_int_t)region->bytes);
    if (!result) {
        close(fd);
        sy_rpc_region_drop(region);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    }
    sy_rpc_answer_json_with_fd(request->connection, request->answers, request->id, result, fd);
    return SY_OK;
}

static int do_region_drop(const struct sy_rpc_request *request, json_t *params)
{
    json_t *id = json_object_get(params, "region");
    struct sy_rpc_region *region;

    if (!json_is_integer(id) || json_integer_value(id) < 0)
        return sy_error_set(SY_EARG, "the parameter \"region\" is missing or no region's number");
    region = sy_rpc_region_find(request->connection, (uint64_t)json_integer_value(id));
    if (!region)
        return sy_error_set(SY_ENOTFOUND, "this connection has no region %" JSON_INTEGER_FORMAT,
                            json_integer_value(id));
    sy_rpc_region_drop(region);
    return sy_rpc_answer(request, json_object());
}

static int do_train(const struct sy_rpc_request *request, json_t *params)
{
    const char *text;
    struct sy_rpc_deferred *deferred = NULL;
    char *allowed = NULL;
    int status;

    SY_TRY(sy_rpc_need_text(params, "text", &text));
    SY_TRY(sy_rpc_allow_job(request->connection, text, &allowed));
    status = sy_rpc_deferred_create(request, &deferred);
    if (status == SY_OK) {
        deferred->with_job = true;
        status = sy_rpc_handlers(request)->job_submit(
            sy_rpc_core(request), allowed, sy_rpc_deferred_done, deferred, &deferred->job);
    }
    if (status < 0 && deferred)
        sy_rpc_deferred_free(deferred);
    free(allowed);
    return status;
}

/* The job that is asked for, which this client may act on. */
static int need_job(const struct sy_rpc_request *request, json_t *params, uint64_t *out)
{
    json_t *job = json_object_get(params, "job");

    if (!json_is_integer(job) || json_integer_value(job) < 0)
        return sy_error_set(SY_EARG, "the parameter \"job\" is missing or no job's number");
    *out = (uint64_t)json_integer_value(job);
    return sy_access_job(&request->connection->grant, sy_rpc_handlers(request),
                         sy_rpc_core(request), *out);
}

static int do_job_pause(const struct sy_rpc_request *request, json_t *params)
{
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(sy_rpc_handlers(request)->job_suspend(sy_rpc_core(request), job, true));
    return sy_rpc_answer(request, json_object());
}

static int do_job_resume(const struct sy_rpc_request *request, json_t *params)
{
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    if (json_is_true(json_object_get(params, "paused")))
        SY_TRY(sy_rpc_handlers(request)->job_resume_paused(sy_rpc_core(request), job));
    else
        SY_TRY(sy_rpc_handlers(request)->job_suspend(sy_rpc_core(request), job, false));
    return sy_rpc_answer(request, json_object());
}

static int do_job_priority(const struct sy_rpc_request *request, json_t *params)
{
    json_t *priority = json_object_get(params, "priority");
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    if (!json_is_integer(priority) || json_integer_value(priority) < -MOST_PRIORITY ||
        json_integer_value(priority) > MOST_PRIORITY)
        return sy_error_set(SY_EARG, "the parameter \"priority\": a number from %d to %d",
                            -MOST_PRIORITY, MOST_PRIORITY);
    SY_TRY(sy_rpc_handlers(request)->job_set_priority(sy_rpc_core(request), job,
                                                      (int)json_integer_value(priority)));
    return sy_rpc_answer(request, json_object());
}

static int do_policy(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(sy_rpc_handlers(request)->policy_set(sy_rpc_core(request), params));
    return sy_rpc_answer(request, json_object());
}

static int do_tenant(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(sy_rpc_handlers(request)->tenant_set(sy_rpc_core(request), params));
    return sy_rpc_answer(request, json_object());
}

static int do_slices(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(sy_rpc_handlers(request)->slices_set(sy_rpc_core(request), params));
    return sy_rpc_answer(request, json_object());
}

static int do_train_stop(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_deferred *deferred = NULL;
    uint64_t job;
    int status;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(sy_rpc_deferred_create(request, &deferred));
    deferred->with_job = true;
    deferred->job = job;
    status = sy_rpc_handlers(request)->job_stop(sy_rpc_core(request), deferred->job,
                                                json_is_true(json_object_get(params, "evaluate")),
                                                sy_rpc_deferred_done, deferred);
    if (status < 0)
        sy_rpc_deferred_free(deferred);
    return status;
}

static int do_job_suspend(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_deferred *deferred = NULL;
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(sy_rpc_deferred_create(request, &deferred));
    deferred->with_job = true;
    deferred->job = job;
    int status = sy_rpc_handlers(request)->job_park(sy_rpc_core(request), job, sy_rpc_deferred_done,
                                                    deferred);
    if (status < 0)
        sy_rpc_deferred_free(deferred);
    return status;
}

static int do_trace(const struct sy_rpc_request *request, json_t *params)
{
    json_t *enable = json_object_get(params, "enable"), *trace;

    if (enable) {
        sy_rpc_handlers(request)->trace_enable(sy_rpc_core(request), json_is_true(enable));
        return sy_rpc_answer(request, json_object());
    }
    SY_TRY(sy_rpc_handlers(request)->trace_dump(sy_rpc_core(request), &trace));
    return sy_rpc_answer(request, trace);
}

static int do_sessions(const struct sy_rpc_request *request, json_t *params)
{
    json_t *list;

    (void)params;
    SY_TRY(sy_rpc_session_list(request->connection->server->front, &request->connection->grant,
                               &list));
    return sy_rpc_answer(request, list);
}

static int do_session_end(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(sy_rpc_session_end(request->connection->server->front, &request->connection->grant,
                              params));
    return sy_rpc_answer(request, json_object());
}

static int do_drain(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_deferred *deferred = NULL;

    (void)params;
    SY_TRY(sy_rpc_deferred_create(request, &deferred));
    int status =
        sy_rpc_handlers(request)->drain(sy_rpc_core(request), DRAIN_GRACE_NS, drain_done, deferred);
    if (status < 0)
        sy_rpc_deferred_free(deferred);
    return status;
}

static const struct {
    const char *name;
    method call;
    unsigned right; /* the right that a caller needs (access.h) */
} methods[] = {
    {"infer", NULL, SY_RIGHT_INFER}, /* sy_rpc_infer: its tensors are no JSON */
    {"ping", do_ping, SY_RIGHT_ANYBODY},
    {"auth", sy_rpc_auth, SY_RIGHT_ANYBODY},
    {"status", do_status, SY_RIGHT_READ},
    {"models", sy_rpc_models, SY_RIGHT_READ},
    {"model_load", sy_rpc_model_load, SY_RIGHT_MODELS},
    {"model_unload", sy_rpc_model_unload, SY_RIGHT_MODELS},
    {"evict", sy_rpc_evict, SY_RIGHT_MODELS},
    {"region_create", do_region_create, SY_RIGHT_INFER},
    {"region_drop", do_region_drop, SY_RIGHT_INFER},
    {"sessions", do_sessions, SY_RIGHT_INFER},
    {"session_end", do_session_end, SY_RIGHT_INFER},
    {"train", do_train, SY_RIGHT_JOBS},
    {"train_stop", do_train_stop, SY_RIGHT_JOBS},
    {"job_pause", do_job_pause, SY_RIGHT_JOBS},
    {"job_resume", do_job_resume, SY_RIGHT_JOBS},
    {"job_priority", do_job_priority, SY_RIGHT_JOBS},
    {"job_suspend", do_job_suspend, SY_RIGHT_JOBS},
    {"job_state", sy_rpc_job_state, SY_RIGHT_JOBS},
    {"job_state_read", sy_rpc_job_state_read, SY_RIGHT_JOBS},
    {"job_receive", sy_rpc_job_receive, SY_RIGHT_JOBS},
    {"job_receive_piece", sy_rpc_job_receive_piece, SY_RIGHT_JOBS},
    {"job_receive_end", sy_rpc_job_receive_end, SY_RIGHT_JOBS},
    {"job_receive_undo", sy_rpc_job_receive_undo, SY_RIGHT_JOBS},
    {"policy", do_policy, SY_RIGHT_SETTINGS},
    {"slices", do_slices, SY_RIGHT_SETTINGS},
    {"tenant", do_tenant, SY_RIGHT_SETTINGS},
    {"trace", do_trace, SY_RIGHT_SETTINGS},
    {"drain", do_drain, SY_RIGHT_SETTINGS},
};

static bool is_named(const msgpack_object *name, const char *text)
{
    return name->via.str.size == strlen(text) &&
           memcmp(name->via.str.ptr, text, name->via.str.size) == 0;
}

/* Parameters are an array with at most one map. */
static int params_json(const struct sy_rpc_request *request, json_t **out)
{
    const msgpack_object *params = request->params;

    if (params->via.array.size == 0) {
        *out = json_object();
        return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for parameters");
    }
    if (params->via.array.size > 1 || params->via.array.ptr[0].type != MSGPACK_OBJECT_MAP)
        return sy_error_set(SY_EARG, "parameters are an array that holds one map, or nothing");
    return sy_json_from_msgpack(&params->via.array.ptr[0], out);
}

static int unknown(const msgpack_object *name)
{
    char list[400];
    size_t n = 0;

    for (size_t i = 0; i < SY_ARRAY_LEN(methods) && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", methods[i].name);
    return sy_error_set(SY_ENOTFOUND, "unknown method \"%.*s\"; there are %s",
                        (int)SY_MIN(name->via.str.size, 64u),
                        name->via.str.ptr ? name->via.str.ptr : "", list);
}

static int call_method(const struct sy_rpc_request *request, const msgpack_object *name)
{
    json_t *params;
    int status;

    struct sy_grant *grant = &request->connection->grant;

    sy_access_refresh(request->connection->server->front->access, grant);
    for (size_t i = 0; i < SY_ARRAY_LEN(methods); i++) {
        if (!is_named(name, methods[i].name))
            continue;
        SY_TRY(sy_access_need(grant, methods[i].right));
        if (!methods[i].call)
            return sy_rpc_infer(request);
        SY_TRY(params_json(request, &params));
        status = methods[i].call(request, params);
        json_decref(params);
        return status;
    }
    return unknown(name);
}

static int bad_message(void)
{
    return sy_error_set(SY_EPROTO,
                        "a message is [0, id, method, [params]] or [2, method, [params]]");
}

int sy_rpc_dispatch(struct sy_rpc_connection *connection, const msgpack_object *message)
{
    const msgpack_object *item = message->via.array.ptr;
    struct sy_rpc_request request = {.connection = connection};
    uint32_t n = message->type == MSGPACK_OBJECT_ARRAY ? message->via.array.size : 0;
    int status;

    if (n < 3 || item[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return bad_message();
    request.answers = item[0].via.u64 == 0;
    if (request.answers ? n != 4 || item[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER
                        : n != 3 || item[0].via.u64 != 2)
        return bad_message();
    request.id = request.answers ? item[1].via.u64 : 0;
    if (item[n - 2].type != MSGPACK_OBJECT_STR || item[n - 1].type != MSGPACK_OBJECT_ARRAY)
        return bad_message();
    request.params = &item[n - 1];
    connection->n_outstanding++;
    status = call_method(&request, &item[n - 2]);
    if (status == SY_REPOSITORY_LOADS) {
        connection->n_outstanding--;
        return status;
    }
    if (status < 0)
        sy_rpc_answer_error(connection, request.answers, request.id, status, sy_error_text());
    return SY_OK;
}

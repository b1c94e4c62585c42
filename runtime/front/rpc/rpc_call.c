/* Replies of methods, immediate or deferred. */
#include <stdlib.h>

#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_methods.h"

void *sy_rpc_core(const struct sy_rpc_request *request)
{
    return request->connection->server->front->core;
}

const struct sy_core_handlers *sy_rpc_handlers(const struct sy_rpc_request *request)
{
    return request->connection->server->front->handlers;
}

int sy_rpc_answer(const struct sy_rpc_request *request, json_t *result)
{
    SY_TRY_ALLOC(result, "no memory for the answer");
    sy_rpc_answer_json(request->connection, request->answers, request->id, result);
    return SY_OK;
}

int sy_rpc_need_text(json_t *params, const char *key, const char **out)
{
    *out = json_string_value(json_object_get(params, key));
    return *out ? SY_OK
                : sy_error_set(SY_EARG, "the parameter \"%s\" is missing or not a string", key);
}

int sy_rpc_deferred_create(const struct sy_rpc_request *request, struct sy_rpc_deferred **out)
{
    struct sy_rpc_deferred *deferred = calloc(1, sizeof(*deferred));

    SY_TRY_ALLOC(deferred, "no memory for a request");
    *deferred = (struct sy_rpc_deferred){
        .connection = request->connection, .answers = request->answers, .id = request->id};
    request->connection->refs++;
    *out = deferred;
    return SY_OK;
}

void sy_rpc_deferred_free(struct sy_rpc_deferred *deferred)
{
    sy_rpc_connection_release(deferred->connection);
    free(deferred);
}

void sy_rpc_deferred_done(void *ctx, int status, const char *error)
{
    struct sy_rpc_deferred *deferred = ctx;
    struct sy_rpc_connection *connection = deferred->connection;

    if (status < 0)
        sy_rpc_answer_error(connection, deferred->answers, deferred->id, status, error);
    else
        sy_rpc_answer_json(connection, deferred->answers, deferred->id,
                           deferred->with_job ? json_pack("{s:I}", "job", (json_int_t)deferred->job)
                                              : json_object());
    sy_rpc_connection_resume(connection);
    sy_rpc_deferred_free(deferred);
}

#include "runtime/front/http/http_protocol.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_infer_internal.h"
#include "runtime/front/http/http_openapi.h"
#include "runtime/front/http/http_package.h"
#include "runtime/front/model_info.h"
#include "runtime/front/shared_regions.h"

/* A body, or why not. */
static void answer(struct sy_http_call *call, int status, json_t *body)
{
    if (status < 0)
        sy_http_reply_error(call, status, NULL);
    else
        sy_http_reply_json(call, 200, body);
}

/* Name and version of the path; false: the call is answered. */
static bool read_target(struct sy_http_call *call, const char **name, int64_t *version)
{
    int status = sy_http_read_version(sy_http_call_segment(call, 1), version);

    *name = sy_http_call_segment(call, 0);
    if (status < 0)
        sy_http_reply_error(call, status, NULL);
    return status == SY_OK;
}

/* ---- the server ---------------------------------------------------------------------------------------------- */

static void on_live(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    sy_http_reply(call, 200, NULL, NULL, 0);
}

static void on_ready(void *ctx, struct sy_http_call *call)
{
    const struct sy_front *front = ctx;

    sy_http_reply(call, front->is_ready ? 200 : 400, NULL, NULL, 0);
}

static void on_server(void *ctx, struct sy_http_call *call)
{
    json_t *body = NULL;
    int status = sy_model_info_server(ctx, &body);

    answer(call, status, body);
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

typedef int (*describe_model)(struct sy_front *front, const char *name, int64_t version,
                              json_t **body);

static void answer_model(void *ctx, struct sy_http_call *call, describe_model describe)
{
    const char *name;
    int64_t version;
    json_t *body = NULL;

    if (!read_target(call, &name, &version))
        return;
    int status = describe(ctx, name, version, &body);
    answer(call, status, body);
}

static void on_metadata(void *ctx, struct sy_http_call *call)
{
    answer_model(ctx, call, sy_model_info_metadata);
}

static void on_model_ready(void *ctx, struct sy_http_call *call)
{
    const char *name;
    int64_t version;

    if (!read_target(call, &name, &version))
        return;
    int status = sy_model_info_ready(ctx, name, version);
    if (status == SY_OK)
        sy_http_reply(call, 200, NULL, NULL, 0);
    else
        sy_http_reply_refuse(call, status == SY_ENOTFOUND ? 404 : 400, sy_error_text());
}

static void on_config(void *ctx, struct sy_http_call *call)
{
    answer_model(ctx, call, sy_model_info_config);
}

static void on_stats(void *ctx, struct sy_http_call *call)
{
    answer_model(ctx, call, sy_model_info_stats);
}

static void on_all_stats(void *ctx, struct sy_http_call *call)
{
    json_t *body = NULL;
    int status = sy_model_info_stats(ctx, NULL, 0, &body);

    answer(call, status, body);
}

/* ---- the repository -------------------------------------------------------------------------------------------- */

static int check_object(const json_t *body)
{
    const json_t *parameters = json_object_get(body, "parameters");

    if (!json_is_object(body))
        return sy_error_set(SY_EARG, "the body is not a JSON object");
    return !parameters || json_is_object(parameters)
               ? SY_OK
               : sy_error_set(SY_EARG, "\"parameters\" is not an object");
}

/* An object, or nothing. False: the call is answered. */
static bool read_object(struct sy_http_call *call, json_t **out)
{
    int status = sy_http_call_json(call, out);

    if (status == SY_OK) {
        status = check_object(*out);
        if (status == SY_OK)
            return true;
        json_decref(*out);
    }
    sy_http_reply_error(call, status, NULL);
    return false;
}

static void on_index(void *ctx, struct sy_http_call *call)
{
    json_t *params, *body = NULL;

    if (!read_object(call, &params))
        return;
    const json_t *ready = json_object_get(params, "ready");
    bool only_ready = json_is_true(ready);
    int status = ready && !json_is_boolean(ready)
                     ? sy_error_set(SY_EARG, "\"ready\" is neither true nor false")
                     : sy_model_info_index(ctx, only_ready, &body);
    json_decref(params);
    answer(call, status, body);
}

static void loaded(void *ctx, int status, const char *error)
{
    struct sy_http_call *call = ctx;

    if (status < 0)
        sy_http_reply_error(call, status, error);
    else
        sy_http_reply(call, 200, NULL, NULL, 0);
}

/* A client may pass a configuration, but no model files: those would be foreign code in this server's repository. */
static int check_load(const json_t *parameters)
{
    const char *key;
    const json_t *value;

    json_object_foreach((json_t *)(uintptr_t)parameters, key, value)
    {
        if (strncmp(key, "file:", 5) == 0)
            return sy_error_set(
                SY_EUNSUPPORTED,
                "load parameter '%.100s': model files are not taken from requests; put "
                "them into the model repository",
                key);
        if (strcmp(key, "config") != 0 || !json_is_string(value))
            return sy_error_set(
                SY_EARG, "load parameter '%.100s': only \"config\", a string, is understood", key);
    }
    return SY_OK;
}

static void on_load(void *ctx, struct sy_http_call *call)
{
    json_t *params;

    if (!read_object(call, &params))
        return;
    const json_t *parameters = json_object_get(params, "parameters");
    int status = check_load(parameters);
    if (status == SY_OK)
        status = sy_model_info_load(ctx, sy_http_call_segment(call, 0),
                                    json_string_value(json_object_get(parameters, "config")),
                                    loaded, call);
    json_decref(params);
    if (status < 0)
        sy_http_reply_error(call, status, NULL);
}

static void on_unload(void *ctx, struct sy_http_call *call)
{
    json_t *params;

    if (!read_object(call, &params))
        return;
    json_decref(params);
    loaded(call, sy_model_info_unload(ctx, sy_http_call_segment(call, 0)), sy_error_text());
}

/* ---- shared memory ---------------------------------------------------------------------------------------------- */

static bool has_regions(struct sy_front *front, struct sy_http_call *call)
{
    if (front->regions)
        return true;
    sy_error_set(SY_EUNSUPPORTED, "this server shares no memory with its clients");
    sy_http_reply_error(call, SY_EUNSUPPORTED, NULL);
    return false;
}

static void on_region_status(void *ctx, struct sy_http_call *call)
{
    struct sy_front *front = ctx;
    json_t *body = NULL;

    if (!has_regions(front, call))
        return;
    int status = sy_shared_regions_status(front->regions, sy_http_call_segment(call, 0), &body);
    answer(call, status, body);
}

static int read_region(const json_t *params, const char **key, uint64_t *offset, uint64_t *bytes)
{
    const json_t *from = json_object_get(params, "offset"),
                 *size = json_object_get(params, "byte_size");

    *key = json_string_value(json_object_get(params, "key"));
    if (!*key)
        return sy_error_set(SY_EARG, "\"key\" is missing or not a string");
    if ((from && !json_is_integer(from)) || json_integer_value(from) < 0 ||
        !json_is_integer(size) || json_integer_value(size) < 0)
        return sy_error_set(SY_EARG, "\"offset\" and \"byte_size\": whole numbers from 0 on");
    *offset = (uint64_t)json_integer_value(from);
    *bytes = (uint64_t)json_integer_value(size);
    return SY_OK;
}

static void on_region_register(void *ctx, struct sy_http_call *call)
{
    struct sy_front *front = ctx;
    json_t *params;
    const char *key;
    uint64_t offset, bytes;

    if (!has_regions(front, call) || !read_object(call, &params))
        return;
    int status = sy_shared_regions_check_client(sy_http_call_is_local(call));
    if (status == SY_OK)
        status = read_region(params, &key, &offset, &bytes);
    if (status == SY_OK)
        status = sy_shared_regions_register(front->regions, sy_http_call_segment(call, 0), key,
                                            offset, bytes);
    json_decref(params);
    loaded(call, status, sy_error_text());
}

static void on_region_unregister(void *ctx, struct sy_http_call *call)
{
    struct sy_front *front = ctx;

    if (!has_regions(front, call))
        return;
    sy_shared_regions_unregister(front->regions, sy_http_call_segment(call, 0));
    sy_http_reply(call, 200, NULL, NULL, 0);
}

static void on_cuda_status(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    sy_http_reply_json(call, 200, json_array());
}

static void on_cuda_register(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    sy_error_set(
        SY_EUNSUPPORTED,
        "CUDA shared memory is not supported: the server's process has no CUDA context; use "
        "system shared memory");
    sy_http_reply_error(call, SY_EUNSUPPORTED, NULL);
}

static void on_cuda_unregister(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    sy_http_reply(call, 200, NULL, NULL, 0); /* there is none */
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

#define MODEL   "/v2/models/{}"
#define VERSION "/v2/models/{}/versions/{}"
#define SYSTEM  "/v2/systemsharedmemory"
#define CUDA    "/v2/cudasharedmemory"

static const struct sy_http_route infer_routes[] = {
    {"POST", MODEL "/infer", SY_RIGHT_INFER, NULL},
    {"POST", VERSION "/infer", SY_RIGHT_INFER, NULL},
};

static const struct sy_http_route routes[] = {
    {"GET", "/v2", SY_RIGHT_READ, on_server},
    {"GET", "/v2/health/live", SY_RIGHT_ANYBODY, on_live},
    {"GET", "/v2/health/ready", SY_RIGHT_ANYBODY, on_ready},
    {"GET", "/v2/models/stats", SY_RIGHT_READ, on_all_stats},
    {"GET", MODEL, SY_RIGHT_READ, on_metadata},
    {"GET", VERSION, SY_RIGHT_READ, on_metadata},
    {"GET", MODEL "/ready", SY_RIGHT_READ, on_model_ready},
    {"GET", VERSION "/ready", SY_RIGHT_READ, on_model_ready},
    {"GET", MODEL "/config", SY_RIGHT_READ, on_config},
    {"GET", VERSION "/config", SY_RIGHT_READ, on_config},
    {"GET", MODEL "/stats", SY_RIGHT_READ, on_stats},
    {"GET", VERSION "/stats", SY_RIGHT_READ, on_stats},
    {"GET", MODEL "/package", SY_RIGHT_MODELS, sy_http_package_handle},
    {"GET", VERSION "/package", SY_RIGHT_MODELS, sy_http_package_handle},
    {"POST", "/v2/repository/index", SY_RIGHT_READ, on_index},
    {"POST", "/v2/repository/models/{}/load", SY_RIGHT_MODELS, on_load},
    {"POST", "/v2/repository/models/{}/unload", SY_RIGHT_MODELS, on_unload},
    {"GET", SYSTEM "/status", SY_RIGHT_READ, on_region_status},
    {"GET", SYSTEM "/region/{}/status", SY_RIGHT_READ, on_region_status},
    {"POST", SYSTEM "/region/{}/register", SY_RIGHT_INFER, on_region_register},
    {"POST", SYSTEM "/region/{}/unregister", SY_RIGHT_INFER, on_region_unregister},
    {"POST", SYSTEM "/unregister", SY_RIGHT_INFER, on_region_unregister},
    {"GET", CUDA "/status", SY_RIGHT_READ, on_cuda_status},
    {"GET", CUDA "/region/{}/status", SY_RIGHT_READ, on_cuda_status},
    {"POST", CUDA "/region/{}/register", SY_RIGHT_INFER, on_cuda_register},
    {"POST", CUDA "/region/{}/unregister", SY_RIGHT_INFER, on_cuda_unregister},
    {"POST", CUDA "/unregister", SY_RIGHT_INFER, on_cuda_unregister},
};

int sy_http_protocol_add(struct sy_http_server *server, struct sy_front *front)
{
    SY_TRY(sy_http_openapi_add(server));
    SY_TRY(sy_http_server_add_streamed(server, infer_routes, (int)SY_ARRAY_LEN(infer_routes),
                                       sy_http_infer_begin));
    return sy_http_server_add_routes(server, routes, (int)SY_ARRAY_LEN(routes), front);
}

#include "runtime/front/http/http_settings.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/log_settings.h"
#include "runtime/front/request/trace_settings.h"

static void reply(struct sy_http_call *call, int status, json_t *settings)
{
    if (status < 0)
        sy_http_reply_error(call, status, NULL);
    else
        sy_http_reply_json(call, 200, settings);
}

static void on_get_logging(void *ctx, struct sy_http_call *call)
{
    json_t *settings = NULL;
    int status = sy_log_settings_get(&settings);

    (void)ctx;
    reply(call, status, settings);
}

static void on_set_logging(void *ctx, struct sy_http_call *call)
{
    json_t *changes = NULL, *settings = NULL;
    int status = sy_http_call_json(call, &changes);

    (void)ctx;
    if (status == SY_OK)
        status = sy_log_settings_update(changes);
    if (status == SY_OK)
        status = sy_log_settings_get(&settings);
    json_decref(changes);
    reply(call, status, settings);
}

/* ENOTFOUND; also of one that the repository has and the core has not. */
static int check_model(const struct sy_front *front, const char *model)
{
    struct sy_core_model_ref *ref;

    SY_TRY(front->handlers->model_acquire(front->core, model, 0, &ref));
    front->handlers->model_release(front->core, ref);
    return SY_OK;
}

/* `model` NULL: the global ones. `changes` NULL: none. */
static int trace_settings(struct sy_front *front, const char *model, json_t *changes,
                          json_t **settings)
{
    if (model)
        SY_TRY(check_model(front, model));
    if (changes)
        SY_TRY(sy_trace_settings_update(front->trace_settings, model, changes));
    return sy_trace_settings_get(front->trace_settings, model, settings);
}

static void get_trace(struct sy_front *front, struct sy_http_call *call, const char *model)
{
    json_t *settings = NULL;
    int status = trace_settings(front, model, NULL, &settings);

    reply(call, status, settings);
}

static void set_trace(struct sy_front *front, struct sy_http_call *call, const char *model)
{
    json_t *changes = NULL, *settings = NULL;
    int status = sy_http_call_json(call, &changes);

    if (status == SY_OK)
        status = trace_settings(front, model, changes, &settings);
    json_decref(changes);
    reply(call, status, settings);
}

static void on_get_trace(void *front, struct sy_http_call *call)
{
    get_trace(front, call, NULL);
}

static void on_set_trace(void *front, struct sy_http_call *call)
{
    set_trace(front, call, NULL);
}

static void on_get_model_trace(void *front, struct sy_http_call *call)
{
    get_trace(front, call, sy_http_call_segment(call, 0));
}

static void on_set_model_trace(void *front, struct sy_http_call *call)
{
    set_trace(front, call, sy_http_call_segment(call, 0));
}

int sy_http_settings_add(struct sy_http_server *server, struct sy_front *front)
{
    static const struct sy_http_route routes[] = {
        {"GET", "/v2/logging", SY_RIGHT_READ, on_get_logging},
        {"POST", "/v2/logging", SY_RIGHT_SETTINGS, on_set_logging},
        {"GET", "/v2/trace/setting", SY_RIGHT_READ, on_get_trace},
        {"POST", "/v2/trace/setting", SY_RIGHT_SETTINGS, on_set_trace},
        {"GET", "/v2/models/{}/trace/setting", SY_RIGHT_READ, on_get_model_trace},
        {"POST", "/v2/models/{}/trace/setting", SY_RIGHT_SETTINGS, on_set_model_trace},
    };

    return sy_http_server_add_routes(server, routes, SY_ARRAY_LEN(routes), front);
}

/* Calls about the server itself: readiness, shared memory, settings. */
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/log_settings.h"
#include "runtime/front/model_info.h"
#include "runtime/front/request/trace_settings.h"
#include "runtime/front/shared_regions.h"
#include "runtime/front/tcp_listen.h"

static int packed(json_t *answer, json_t **out)
{
    *out = answer;
    return answer ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
}

int sy_grpc_call_ServerLive(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    (void)stream, (void)request;
    return packed(json_pack("{s:b}", "live", 1), out);
}

int sy_grpc_call_ServerReady(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    (void)request;
    return packed(json_pack("{s:b}", "ready", sy_grpc_server_is_ready(stream->connection->server)),
                  out);
}

int sy_grpc_call_ServerMetadata(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    (void)request;
    return sy_model_info_server(sy_grpc_front(stream), out);
}

/* ---- shared memory ------------------------------------------------------------------------------------------------- */

static int find_regions(const struct sy_grpc_stream *stream, struct sy_shared_regions **out)
{
    *out = sy_grpc_front(stream)->regions;
    return *out ? SY_OK
                : sy_error_set(SY_EUNSUPPORTED, "this server shares no memory with its clients");
}

/* [{"name", ...}] as {name: {"name", ...}} */
static json_t *by_name(const json_t *list)
{
    json_t *map = json_object(), *region;
    size_t i;

    json_array_foreach(list, i, region)
    {
        if (json_object_set(map, sy_grpc_text(region, "name"), region)) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

int sy_grpc_call_SystemSharedMemoryStatus(struct sy_grpc_stream *stream, const json_t *request,
                                          json_t **out)
{
    const char *name = sy_grpc_text(request, "name");
    struct sy_shared_regions *regions;
    json_t *list, *map;

    SY_TRY(find_regions(stream, &regions));
    SY_TRY(sy_shared_regions_status(regions, *name ? name : NULL, &list));
    map = by_name(list);
    json_decref(list);
    return packed(map ? json_pack("{s:o}", "regions", map) : NULL, out);
}

int sy_grpc_call_SystemSharedMemoryRegister(struct sy_grpc_stream *stream, const json_t *request,
                                            json_t **out)
{
    struct sy_shared_regions *regions;

    (void)out;
    SY_TRY(find_regions(stream, &regions));
    SY_TRY(sy_shared_regions_check_client(sy_tcp_is_local(stream->connection->fd)));
    return sy_shared_regions_register(
        regions, sy_grpc_text(request, "name"), sy_grpc_text(request, "key"),
        (uint64_t)json_integer_value(json_object_get(request, "offset")),
        (uint64_t)json_integer_value(json_object_get(request, "byte_size")));
}

int sy_grpc_call_SystemSharedMemoryUnregister(struct sy_grpc_stream *stream, const json_t *request,
                                              json_t **out)
{
    const char *name = sy_grpc_text(request, "name");
    struct sy_shared_regions *regions;

    (void)out;
    SY_TRY(find_regions(stream, &regions));
    sy_shared_regions_unregister(regions, *name ? name : NULL);
    return SY_OK;
}

int sy_grpc_call_CudaSharedMemoryStatus(struct sy_grpc_stream *stream, const json_t *request,
                                        json_t **out)
{
    (void)stream, (void)request;
    return packed(json_pack("{s:{}}", "regions"), out);
}

int sy_grpc_call_CudaSharedMemoryRegister(struct sy_grpc_stream *stream, const json_t *request,
                                          json_t **out)
{
    (void)stream, (void)request, (void)out;
    return sy_error_set(SY_EUNSUPPORTED, "device memory of clients is not shared; system shared "
                                         "memory is (SystemSharedMemoryRegister)");
}

/* There are none: nothing to do, as in Triton. */
int sy_grpc_call_CudaSharedMemoryUnregister(struct sy_grpc_stream *stream, const json_t *request,
                                            json_t **out)
{
    (void)stream, (void)request, (void)out;
    return SY_OK;
}

/* ---- settings ------------------------------------------------------------------------------------------------------ */

/* {name: {"value": [...]}} as {name: [...]}; without a value null, which gives a setting back. */
static json_t *trace_changes(json_t *settings)
{
    json_t *changes = json_object(), *setting;
    const char *key;

    json_object_foreach(settings, key, setting)
    {
        json_t *value = json_object_get(setting, "value");

        if (json_object_set_new(changes, key, value ? json_incref(value) : json_null())) {
            json_decref(changes);
            return NULL;
        }
    }
    return changes;
}

/* The other way round; a value is a string or a list of them. Steals. */
static json_t *trace_answer(json_t *values)
{
    json_t *settings = json_object(), *value;
    const char *key;
    int failed = 0;

    json_object_foreach(values, key, value)
    {
        json_t *list = json_is_array(value) ? json_incref(value) : json_pack("[O]", value);

        failed |= json_object_set_new(settings, key, json_pack("{s:o}", "value", list));
    }
    json_decref(values);
    if (failed) {
        json_decref(settings);
        return NULL;
    }
    return json_pack("{s:o}", "settings", settings);
}

static int update_trace(struct sy_front *front, const char *model, json_t *settings)
{
    json_t *changes;

    if (json_object_size(settings) == 0)
        return SY_OK;
    changes = trace_changes(settings);
    SY_TRY_ALLOC(changes, "no memory for settings");
    int status = sy_trace_settings_update(front->trace_settings, model, changes);
    json_decref(changes);
    return status;
}

int sy_grpc_call_TraceSetting(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    const char *name = sy_grpc_text(request, "model_name"), *model = *name ? name : NULL;
    struct sy_front *front = sy_grpc_front(stream);
    json_t *values;

    if (!front->trace_settings)
        return sy_error_set(SY_EUNSUPPORTED, "this server has no trace settings");
    if (model) {
        int ready = sy_model_info_ready(front, model, 0);

        if (ready == SY_ENOTFOUND)
            return ready;
    }
    SY_TRY(update_trace(front, model, json_object_get(request, "settings")));
    SY_TRY(sy_trace_settings_get(front->trace_settings, model, &values));
    return packed(trace_answer(values), out);
}

/* {name: {"bool_param": ...}} as {name: ...} */
static json_t *log_changes(json_t *settings)
{
    json_t *changes = json_object(), *setting, *value;
    const char *key, *kind;

    json_object_foreach(settings, key, setting)
    {
        json_object_foreach(setting, kind, value)
        {
            if (json_object_set(changes, key, value)) {
                json_decref(changes);
                return NULL;
            }
        }
    }
    return changes;
}

/* Steals. */
static json_t *log_answer(json_t *values)
{
    json_t *settings = json_object(), *value;
    const char *key;
    int failed = 0;

    json_object_foreach(values, key, value)
    {
        const char *kind = json_is_boolean(value)   ? "bool_param"
                           : json_is_integer(value) ? "uint32_param"
                                                    : "string_param";

        failed |= json_object_set_new(settings, key, json_pack("{s:O}", kind, value));
    }
    json_decref(values);
    if (failed) {
        json_decref(settings);
        return NULL;
    }
    return json_pack("{s:o}", "settings", settings);
}

int sy_grpc_call_LogSettings(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    json_t *changes = log_changes(json_object_get(request, "settings")), *values;
    int status;

    (void)stream;
    SY_TRY_ALLOC(changes, "no memory for settings");
    status = sy_log_settings_update(changes);
    json_decref(changes);
    SY_TRY(status);
    SY_TRY(sy_log_settings_get(&values));
    return packed(log_answer(values), out);
}

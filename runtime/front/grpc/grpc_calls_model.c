/* Calls about models: runtime/front/model_info.h in gRPC's messages. */
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/model_info.h"

/* "name" and "version" of most requests. */
static int read_model(const json_t *request, const char **name, int64_t *version)
{
    const char *text = sy_grpc_text(request, "version");

    *name = sy_grpc_text(request, "name");
    return sy_grpc_read_version((struct sy_grpc_bytes){(const uint8_t *)text, strlen(text)},
                                version);
}

static int no_memory(void)
{
    return sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
}

/* {key: value}; steals. */
static int wrap(const char *key, json_t *value, json_t **out)
{
    *out = json_pack("{s:o}", key, value);
    return *out ? SY_OK : no_memory();
}

/* Not an error where there is no such model: it is not ready. */
int sy_grpc_call_ModelReady(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    const char *name;
    int64_t version;

    SY_TRY(read_model(request, &name, &version));
    return wrap("ready",
                json_boolean(sy_model_info_ready(sy_grpc_front(stream), name, version) == SY_OK),
                out);
}

int sy_grpc_call_ModelMetadata(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    const char *name;
    int64_t version;

    SY_TRY(read_model(request, &name, &version));
    return sy_model_info_metadata(sy_grpc_front(stream), name, version, out);
}

int sy_grpc_call_ModelConfig(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    const char *name;
    int64_t version;
    json_t *config;

    SY_TRY(read_model(request, &name, &version));
    SY_TRY(sy_model_info_config(sy_grpc_front(stream), name, version, &config));
    return wrap("config", config, out);
}

int sy_grpc_call_ModelStatistics(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    const char *name;
    int64_t version;

    SY_TRY(read_model(request, &name, &version));
    return sy_model_info_stats(sy_grpc_front(stream), *name ? name : NULL, version, out);
}

static int check_repository(const json_t *request)
{
    const char *name = sy_grpc_text(request, "repository_name");

    return *name == '\0'
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED,
                              "repository \"%.100s\": this server has one, without a name", name);
}

int sy_grpc_call_RepositoryIndex(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    json_t *models;

    SY_TRY(check_repository(request));
    SY_TRY(sy_model_info_index(sy_grpc_front(stream),
                               json_is_true(json_object_get(request, "ready")), &models));
    return wrap("models", models, out);
}

/* The model configuration among the parameters, or NULL. */
static int read_load_parameters(const json_t *request, const char **config)
{
    json_t *parameters = json_object_get(request, "parameters"), *value;
    const char *key;

    *config = NULL;
    json_object_foreach(parameters, key, value)
    {
        if (strncmp(key, "file:", 5) == 0)
            return sy_error_set(SY_EUNSUPPORTED,
                                "parameter \"%.100s\": files of a model are read from the "
                                "repository's folder, not taken from a request",
                                key);
        if (strcmp(key, "config") != 0)
            continue;
        *config = json_string_value(json_object_get(value, "string_param"));
        if (!*config)
            return sy_error_set(SY_EARG, "parameter \"config\" is not a string");
    }
    return SY_OK;
}

int sy_grpc_call_RepositoryModelLoad(struct sy_grpc_stream *stream, const json_t *request,
                                     json_t **out)
{
    struct sy_grpc_deferred *deferred;
    const char *config;

    (void)out;
    SY_TRY(check_repository(request));
    SY_TRY(read_load_parameters(request, &config));
    deferred = sy_grpc_deferred_create(stream);
    if (!deferred)
        return SY_ENOMEM_HOST;
    int status = sy_model_info_load(sy_grpc_front(stream), sy_grpc_text(request, "model_name"),
                                    config, sy_grpc_deferred_done, deferred);
    if (status < 0) {
        sy_grpc_deferred_forget(deferred);
        return status;
    }
    return SY_GRPC_DEFERRED;
}

int sy_grpc_call_RepositoryModelUnload(struct sy_grpc_stream *stream, const json_t *request,
                                       json_t **out)
{
    (void)out;
    SY_TRY(check_repository(request));
    return sy_model_info_unload(sy_grpc_front(stream), sy_grpc_text(request, "model_name"));
}

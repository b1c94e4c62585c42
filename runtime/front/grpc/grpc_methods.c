/* The table of gRPC methods, and the generic handler for those that exchange JSON. */
#include <string.h>

#include "grpc_service.pb-c.h"
#include "health.pb-c.h"
#include "reflection_v1.pb-c.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_json.h"

static void call_json(struct sy_grpc_stream *stream, struct sy_grpc_bytes message)
{
    json_t *request = NULL, *answer = NULL;
    int status = sy_grpc_json_read(stream->method->request, message, &request);

    if (status == SY_OK)
        status = stream->method->call(stream, request, &answer);
    json_decref(request);
    if (status != SY_GRPC_DEFERRED)
        sy_grpc_stream_answer(stream, status, answer);
}

#define INFERENCE "/inference.GRPCInferenceService/"

/* protoc-c's names of descriptors, from "ServerLive" and "server_live". */
#define DESCRIPTORS(name)                                \
    .request = &inference__##name##_request__descriptor, \
    .response = &inference__##name##_response__descriptor
#define JSON_CALL(method, name, needs)                                        \
    {                                                                         \
        .path = INFERENCE #method, .right = (needs), .on_message = call_json, \
        .call = sy_grpc_call_##method, DESCRIPTORS(name)                      \
    }
#define REFLECTION(version)                                                                     \
    {                                                                                           \
        .path = "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo",           \
        .right = SY_RIGHT_ANYBODY, .is_stream = true, .on_message = sy_grpc_reflection_message, \
        .on_end = sy_grpc_reflection_end,                                                       \
        .request = &grpc__reflection__v1__server_reflection_request__descriptor,                \
        .response = &grpc__reflection__v1__server_reflection_response__descriptor               \
    }

/* Most frequently called first. */
static const struct sy_grpc_method methods[] = {
    {.path = INFERENCE "ModelInfer",
     .right = SY_RIGHT_INFER,
     .is_infer = true,
     .try_direct = sy_grpc_infer_try_direct,
     .direct = sy_grpc_infer_direct,
     .on_message = sy_grpc_infer_message},
    {.path = INFERENCE "ModelStreamInfer",
     .right = SY_RIGHT_INFER,
     .is_infer = true,
     .is_stream = true,
     .try_direct = sy_grpc_infer_try_direct,
     .direct = sy_grpc_infer_direct,
     .on_message = sy_grpc_infer_message,
     .on_end = sy_grpc_infer_end},
    JSON_CALL(ServerLive, server_live, SY_RIGHT_ANYBODY),
    JSON_CALL(ServerReady, server_ready, SY_RIGHT_ANYBODY),
    JSON_CALL(ServerMetadata, server_metadata, SY_RIGHT_READ),
    JSON_CALL(ModelReady, model_ready, SY_RIGHT_READ),
    JSON_CALL(ModelMetadata, model_metadata, SY_RIGHT_READ),
    JSON_CALL(ModelConfig, model_config, SY_RIGHT_READ),
    JSON_CALL(ModelStatistics, model_statistics, SY_RIGHT_READ),
    JSON_CALL(RepositoryIndex, repository_index, SY_RIGHT_READ),
    JSON_CALL(RepositoryModelLoad, repository_model_load, SY_RIGHT_MODELS),
    JSON_CALL(RepositoryModelUnload, repository_model_unload, SY_RIGHT_MODELS),
    JSON_CALL(SystemSharedMemoryStatus, system_shared_memory_status, SY_RIGHT_READ),
    JSON_CALL(SystemSharedMemoryRegister, system_shared_memory_register, SY_RIGHT_INFER),
    JSON_CALL(SystemSharedMemoryUnregister, system_shared_memory_unregister, SY_RIGHT_INFER),
    JSON_CALL(CudaSharedMemoryStatus, cuda_shared_memory_status, SY_RIGHT_READ),
    JSON_CALL(CudaSharedMemoryRegister, cuda_shared_memory_register, SY_RIGHT_INFER),
    JSON_CALL(CudaSharedMemoryUnregister, cuda_shared_memory_unregister, SY_RIGHT_INFER),
    JSON_CALL(TraceSetting, trace_setting, SY_RIGHT_SETTINGS),
    JSON_CALL(LogSettings, log_settings, SY_RIGHT_SETTINGS),
    {.path = "/grpc.health.v1.Health/Check",
     .right = SY_RIGHT_ANYBODY, /* asked by what starts and stops servers */
     .on_message = call_json,
     .call = sy_grpc_health_check,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .response = &grpc__health__v1__health_check_response__descriptor},
    {.path = "/grpc.health.v1.Health/Watch",
     .right = SY_RIGHT_ANYBODY,
     .on_message = sy_grpc_health_watch,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .response = &grpc__health__v1__health_check_response__descriptor},
    REFLECTION("v1"),
    REFLECTION("v1alpha"), /* the same messages under another name */
};

const struct sy_grpc_method *sy_grpc_method_find(const char *path, size_t n)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(methods); i++)
        if (strlen(methods[i].path) == n && memcmp(methods[i].path, path, n) == 0)
            return &methods[i];
    return NULL;
}

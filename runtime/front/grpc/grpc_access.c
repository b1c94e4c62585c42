/* Which right each method needs, and whether a call's client has it. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"

/* By the last part of the path; what is not here is read only. */
static unsigned right_of(const struct sy_grpc_method *method)
{
    static const struct {
        const char *name;
        unsigned right;
    } rows[] = {
        {"ServerLive", 0}, /* asked by what starts and stops servers */
        {"ServerReady", 0},
        {"Check", 0},
        {"Watch", 0},
        {"ServerReflectionInfo", 0},
        {"RepositoryModelLoad", SY_RIGHT_MODELS},
        {"RepositoryModelUnload", SY_RIGHT_MODELS},
        {"SystemSharedMemoryRegister", SY_RIGHT_INFER},
        {"SystemSharedMemoryUnregister", SY_RIGHT_INFER},
        {"CudaSharedMemoryRegister", SY_RIGHT_INFER},
        {"CudaSharedMemoryUnregister", SY_RIGHT_INFER},
        {"TraceSetting", SY_RIGHT_SETTINGS},
        {"LogSettings", SY_RIGHT_SETTINGS},
    };
    const char *name = strrchr(method->path, '/') + 1;

    if (method->is_infer)
        return SY_RIGHT_INFER;
    for (size_t i = 0; i < SY_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].right;
    return SY_RIGHT_READ;
}

static enum sy_grpc_code refusal(const struct sy_grpc_stream *stream)
{
    return *stream->grant.name && strcmp(stream->grant.name, "?") != 0 ? SY_GRPC_PERMISSION_DENIED
                                                                       : SY_GRPC_UNAUTHENTICATED;
}

enum sy_grpc_code sy_grpc_stream_allow(struct sy_grpc_stream *stream, const char **why)
{
    struct sy_access *access = stream->connection->server->front->access;
    unsigned right = stream->method ? right_of(stream->method) : SY_RIGHT_READ;
    int status = sy_access_header(access, stream->authorization, &stream->grant);

    if (right == 0)
        return SY_GRPC_OK;
    if (status == SY_OK)
        status = sy_access_need(&stream->grant, right);
    *why = sy_error_text();
    return status == SY_OK ? SY_GRPC_OK : refusal(stream);
}

bool sy_grpc_stream_is_still_allowed(struct sy_grpc_stream *stream)
{
    unsigned right = right_of(stream->method);

    sy_access_refresh(stream->connection->server->front->access, &stream->grant);
    if (right == 0 || sy_access_need(&stream->grant, right) == SY_OK)
        return true;
    sy_grpc_stream_finish(stream, refusal(stream), sy_error_text());
    return false;
}

/* Whether a call's client has the right that its method needs. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"

static enum sy_grpc_code refusal(const struct sy_grpc_stream *stream)
{
    return *stream->grant.name && !stream->grant.is_unknown ? SY_GRPC_PERMISSION_DENIED
                                                            : SY_GRPC_UNAUTHENTICATED;
}

enum sy_grpc_code sy_grpc_stream_allow(struct sy_grpc_stream *stream, const char **why)
{
    struct sy_access *access = stream->connection->server->front->access;
    unsigned right = stream->method ? stream->method->right : SY_RIGHT_READ;
    int status = sy_access_header(access, stream->authorization, &stream->grant);

    if (right == SY_RIGHT_ANYBODY)
        return SY_GRPC_OK;
    if (status == SY_OK)
        status = sy_access_need_header(&stream->grant, right);
    *why = sy_error_text();
    return status == SY_OK ? SY_GRPC_OK : refusal(stream);
}

enum sy_grpc_code sy_grpc_stream_look_up(struct sy_grpc_stream *stream)
{
    sy_access_refresh(stream->connection->server->front->access, &stream->grant);
    return sy_access_need_header(&stream->grant, stream->method->right) == SY_OK ? SY_GRPC_OK
                                                                                 : refusal(stream);
}

/* Helpers of methods: reading requests, deferred replies. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"

struct sy_grpc_deferred {
    struct sy_grpc_server *server;
    struct sy_grpc_stream *stream; /* NULL: the call has ended */
};

struct sy_front *sy_grpc_front(const struct sy_grpc_stream *stream)
{
    return stream->connection->server->front;
}

const char *sy_grpc_text(const json_t *request, const char *key)
{
    const char *text = json_string_value(json_object_get(request, key));

    return text ? text : "";
}

int sy_grpc_read_version(struct sy_grpc_bytes text, int64_t *out)
{
    char digits[20];

    *out = 0;
    if (text.n == 0)
        return SY_OK;
    if (!sy_grpc_bytes_copy(text, digits, sizeof digits - 1) ||
        strspn(digits, "0123456789") != text.n || (*out = atoll(digits)) < 1)
        return sy_error_set(SY_EARG,
                            "failed to get model version from specified version string '%.*s': a "
                            "whole number above 0",
                            (int)SY_MIN(text.n, (size_t)40), (const char *)text.data);
    return SY_OK;
}

struct sy_grpc_deferred *sy_grpc_deferred_create(struct sy_grpc_stream *stream)
{
    struct sy_grpc_deferred *deferred = malloc(sizeof *deferred);

    if (!deferred) {
        sy_error_set(SY_ENOMEM_HOST, "no memory for a call");
        return NULL;
    }
    *deferred = (struct sy_grpc_deferred){stream->connection->server, stream};
    deferred->server->base.refs++;
    stream->deferred = deferred;
    return deferred;
}

void sy_grpc_deferred_drop(struct sy_grpc_stream *stream)
{
    if (stream->deferred)
        stream->deferred->stream = NULL;
    stream->deferred = NULL;
}

void sy_grpc_deferred_forget(struct sy_grpc_deferred *deferred)
{
    if (deferred->stream)
        deferred->stream->deferred = NULL;
    sy_front_server_release(&deferred->server->base);
    free(deferred);
}

void sy_grpc_deferred_done(void *ctx, int status, const char *error)
{
    struct sy_grpc_deferred *deferred = ctx;
    struct sy_grpc_stream *stream = deferred->stream;

    sy_grpc_deferred_forget(deferred);
    if (!stream)
        return;
    if (status < 0)
        sy_error_set(status, "%s", error && *error ? error : sy_status_text(status));
    sy_grpc_stream_answer(stream, status, NULL);
}

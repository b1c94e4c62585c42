/* The standard health service: of the server ("") and of each service by its name. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_json.h"

/* HealthCheckResponse.ServingStatus */
enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

bool sy_grpc_server_is_ready(const struct sy_grpc_server *server)
{
    return server->front->is_ready && !server->is_draining;
}

static int state_of(const struct sy_grpc_server *server, const json_t *request)
{
    static const char *const services[] = {
        "",
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    };
    const char *name = json_string_value(json_object_get(request, "service"));

    for (size_t i = 0; i < SY_ARRAY_LEN(services); i++)
        if (strcmp(services[i], name ? name : "") == 0)
            return sy_grpc_server_is_ready(server) ? SERVING : NOT_SERVING;
    return SERVICE_UNKNOWN;
}

static int pack(int state, json_t **out)
{
    *out = json_pack("{s:i}", "status", state);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
}

int sy_grpc_health_check(struct sy_grpc_stream *stream, const json_t *request, json_t **out)
{
    int state = state_of(stream->connection->server, request);

    if (state == SERVICE_UNKNOWN)
        return sy_error_set(SY_ENOTFOUND, "there is no such service");
    return pack(state, out);
}

static void send_state(struct sy_grpc_stream *stream, int state)
{
    struct sy_grpc_buffer message = {0};

    stream->health = state;
    sy_grpc_buffer_extend(&message, SY_GRPC_PREFIX);
    sy_grpc_put_number(&message, 1, (uint64_t)state);
    sy_grpc_stream_send_buffer(stream, &message);
}

/* Stays until the client ends it. */
void sy_grpc_health_watch(struct sy_grpc_stream *stream, struct sy_grpc_bytes message)
{
    json_t *request;
    int status = sy_grpc_json_read(stream->method->request, message, &request);

    if (status < 0) {
        sy_grpc_stream_fail(stream, status);
        return;
    }
    stream->is_watching = true;
    send_state(stream, state_of(stream->connection->server, request));
    json_decref(request);
}

void sy_grpc_health_tick(struct sy_grpc_stream *stream)
{
    int state = sy_grpc_server_is_ready(stream->connection->server) ? SERVING : NOT_SERVING;

    if (stream->is_watching && stream->health != SERVICE_UNKNOWN && stream->health != state)
        send_state(stream, state);
}

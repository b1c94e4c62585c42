/* Keeps a message beyond the call that delivered it, and holds the stream's later messages meanwhile. */
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"

#define STEAL_FROM (64u << 10)

uint64_t sy_grpc_most_bytes(const struct sy_grpc_stream *stream)
{
    const struct sy_grpc_limits *limits = &stream->connection->server->limits;

    return stream->method->is_infer ? limits->message_bytes : limits->small_bytes;
}

void sy_grpc_incoming_hold(struct sy_grpc_stream *stream)
{
    stream->incoming.holds++;
}

static bool is_last_of(const struct sy_grpc_block *block, struct sy_grpc_bytes message)
{
    return block && message.n >= STEAL_FROM && message.data >= block->data &&
           message.data + message.n == block->data + block->n;
}

int sy_grpc_keep(struct sy_grpc_stream *stream, struct sy_grpc_bytes message,
                 struct sy_grpc_block *out, struct sy_grpc_bytes *view)
{
    struct sy_grpc_block *source = stream->incoming.source;

    *out = (struct sy_grpc_block){.budget = &stream->connection->server->budget};
    if (is_last_of(source, message)) {
        *out = *source;
        *source = (struct sy_grpc_block){.budget = out->budget};
        *view = message;
        return SY_OK;
    }
    SY_TRY(sy_grpc_block_append(out, message.data, message.n, message.n));
    *view = sy_grpc_block_bytes(out);
    return SY_OK;
}

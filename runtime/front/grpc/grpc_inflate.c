/* Compressed messages: small ones are inflated where they come, large ones on a thread while their stream holds. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/request/offload.h"

/* A millisecond inflates some 300 KB. */
#define HERE_COMPRESSED ((size_t)16 << 10)
#define HERE_INFLATED   ((uint64_t)256 << 10)

struct sy_grpc_inflate {
    struct sy_grpc_server *server;
    struct sy_grpc_stream *stream; /* NULL: the call has ended */
    struct sy_grpc_block kept, inflated;
    struct sy_grpc_bytes message; /* in kept */
    uint64_t most;
    void (*then)(struct sy_grpc_stream *stream);
    int status;
    char why[512];
};

static void job_free(struct sy_grpc_inflate *job)
{
    sy_grpc_block_free(&job->kept);
    sy_grpc_block_free(&job->inflated);
    sy_front_server_release(&job->server->base);
    free(job);
}

static void work(void *ctx)
{
    struct sy_grpc_inflate *job = ctx;

    job->status = sy_grpc_inflate(job->message, job->most, &job->inflated);
    if (job->status < 0)
        snprintf(job->why, sizeof job->why, "%s", sy_error_text());
}

/* The method sees it as it sees any message, and may keep it. */
static void hand_over(struct sy_grpc_stream *stream, struct sy_grpc_block *inflated)
{
    struct sy_grpc_block *source = stream->incoming.source;

    stream->incoming.source = inflated;
    stream->method->on_message(stream, sy_grpc_block_bytes(inflated));
    stream->incoming.source = source;
}

static void done(void *ctx)
{
    struct sy_grpc_inflate *job = ctx;
    struct sy_grpc_stream *stream = job->stream;

    if (stream) {
        stream->inflate = NULL;
        if (job->status < 0)
            sy_grpc_stream_fail(stream, sy_error_set(job->status, "%s", job->why));
        else
            hand_over(stream, &job->inflated);
        job->then(stream);
    }
    job_free(job);
}

static int start_job(struct sy_grpc_stream *stream, struct sy_grpc_bytes message,
                     void (*then)(struct sy_grpc_stream *stream))
{
    struct sy_grpc_server *server = stream->connection->server;
    struct sy_grpc_inflate *job = calloc(1, sizeof *job);
    int status;

    SY_TRY_ALLOC(job, "no memory to inflate a message");
    server->base.refs++;
    *job = (struct sy_grpc_inflate){.server = server,
                                    .stream = stream,
                                    .inflated.budget = &server->budget,
                                    .most = sy_grpc_most_bytes(stream),
                                    .then = then,
                                    .status = SY_EBUSY, /* unless the thread runs */
                                    .why = "the server stops"};
    SY_TRY_GOTO(sy_grpc_keep(stream, message, &job->kept, &job->message), fail);
    SY_TRY_GOTO(sy_offload_run(server->front->offload, work, done, job), fail);
    stream->inflate = job;
    sy_grpc_incoming_hold(stream);
    return SY_OK;
fail:
    job_free(job);
    return status;
}

void sy_grpc_inflate_message(struct sy_grpc_stream *stream, struct sy_grpc_bytes message,
                             void (*then)(struct sy_grpc_stream *stream))
{
    struct sy_grpc_server *server = stream->connection->server;
    struct sy_grpc_block inflated = {.budget = &server->budget};
    uint64_t most = sy_grpc_most_bytes(stream);
    bool alone = server->front->offload == NULL;
    int status = SY_ETOOBIG;

    if (alone || message.n <= HERE_COMPRESSED)
        status = sy_grpc_inflate(message, alone ? most : SY_MIN(most, HERE_INFLATED), &inflated);
    if (status == SY_OK)
        hand_over(stream, &inflated);
    sy_grpc_block_free(&inflated);
    if (status == SY_ETOOBIG && !alone)
        status = start_job(stream, message, then);
    if (status < 0)
        sy_grpc_stream_fail(stream, status);
}

void sy_grpc_inflate_drop(struct sy_grpc_stream *stream)
{
    if (stream->inflate)
        stream->inflate->stream = NULL;
    stream->inflate = NULL;
}

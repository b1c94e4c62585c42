/* ModelInfer and ModelStreamInfer: requests of a stream run side by side, their answers go out in the requests' order.
 *
 *   READING ─> (LOADING ─> READING) ─> COPYING* ─> RUNNING ─> BUILDING* ─> OVER, sent in order
 *      '─────> RECEIVING: tensors from the socket to the slab ──^
 *
 *   *: on an offload thread where it takes longer than ON_LOOP_NS */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_infer_internal.h"
#include "runtime/front/request/offload.h"

#define ON_LOOP_NS 300000u

/* Field numbers of ModelStreamInferResponse, and of the id in its response. */
enum { STREAM_ERROR = 1, STREAM_RESPONSE = 2, RESPONSE_ID = 3 };

static void begin(struct sy_grpc_infer *infer);

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void infer_free(void *ctx)
{
    struct sy_grpc_infer *infer = ctx;

    sy_repository_wait_cancel(&infer->wait);
    sy_front_infer_destroy(infer->request);
    for (int i = 0; i < infer->n_inputs; i++)
        sy_infer_region_close(&infer->inputs[i].place);
    for (int i = 0; i < infer->n_outputs; i++) {
        sy_infer_region_close(&infer->outputs[i].place);
        free(infer->outputs[i].region);
        sy_grpc_buffer_free(&infer->outputs[i].packed);
    }
    free(infer->inputs);
    sy_grpc_block_free(&infer->kept);
    free(infer->id);
    free(infer->why);
    sy_front_server_release(&infer->server->base);
    free(infer);
}

static void on_loaded(void *ctx)
{
    begin(ctx);
}

/* The last of its stream's. NULL: no memory, and the call has failed. */
static struct sy_grpc_infer *create(struct sy_grpc_stream *stream, struct sy_grpc_bytes message)
{
    struct sy_grpc_infer *infer = calloc(1, sizeof *infer);

    if (!infer) {
        sy_grpc_stream_finish(stream, SY_GRPC_RESOURCE_EXHAUSTED, "no memory for a request");
        return NULL;
    }
    infer->server = stream->connection->server;
    infer->server->base.refs++;
    infer->stream = stream;
    infer->message = message;
    infer->is_stream = stream->method->is_stream;
    infer->encoding = sy_grpc_stream_compresses(stream) ? stream->encoding : SY_GRPC_IDENTITY;
    infer->wait = (struct sy_repository_wait){.ready = on_loaded, .ctx = infer};
    *stream->infers_end = infer;
    stream->infers_end = &infer->next;
    stream->n_infers++;
    return infer;
}

/* Removes the request that was created last from its stream. */
static void undo(struct sy_grpc_infer *infer)
{
    struct sy_grpc_stream *stream = infer->stream;
    struct sy_grpc_infer **at = &stream->infers;

    while (*at != infer)
        at = &(*at)->next;
    *at = NULL;
    stream->infers_end = at;
    stream->n_infers--;
    infer_free(infer);
}

static struct sy_grpc_infer *take_first(struct sy_grpc_stream *stream)
{
    struct sy_grpc_infer *infer = stream->infers;

    stream->infers = infer->next;
    if (!stream->infers)
        stream->infers_end = &stream->infers;
    stream->n_infers--;
    return infer;
}

/* A request that a thread or the core still uses is freed by its callback. */
static void drop(struct sy_grpc_infer *infer)
{
    infer->stream = NULL;
    if (infer->on_thread)
        return;
    if (infer->phase == SY_GRPC_RUNNING)
        sy_front_infer_cancel(infer->request);
    else if (infer->reply)
        sy_grpc_reply_unref(infer->reply);
    else
        infer_free(infer);
}

void sy_grpc_infer_drop_all(struct sy_grpc_stream *stream)
{
    stream->receiving = NULL;
    while (stream->infers)
        drop(take_first(stream));
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void send_stream_error(struct sy_grpc_stream *stream, const struct sy_grpc_infer *infer)
{
    struct sy_grpc_buffer message = {0};
    size_t start;

    sy_grpc_buffer_extend(&message, SY_GRPC_PREFIX);
    sy_grpc_put_text(&message, STREAM_ERROR, infer->why);
    start = sy_grpc_put_begin(&message, STREAM_RESPONSE);
    if (infer->id && *infer->id)
        sy_grpc_put_text(&message, RESPONSE_ID, infer->id);
    sy_grpc_put_end(&message, start);
    sy_grpc_stream_send_buffer(stream, &message);
}

static void send_answer(struct sy_grpc_stream *stream, struct sy_grpc_infer *infer)
{
    if (infer->status == SY_OK) {
        sy_grpc_stream_send(stream, infer->reply); /* which owns the request */
        if (!stream->method->is_stream)
            sy_grpc_stream_finish(stream, SY_GRPC_OK, NULL);
        return;
    }
    if (stream->method->is_stream && !stream->wants_status)
        send_stream_error(stream, infer);
    else
        sy_grpc_stream_finish(stream, sy_grpc_code_of(infer->status), infer->why);
    infer_free(infer);
}

static void check_end(struct sy_grpc_stream *stream)
{
    if (stream->incoming.is_over && stream->n_infers == 0 && stream->method->is_stream)
        sy_grpc_stream_finish(stream, SY_GRPC_OK, NULL);
}

/* Sets status and why from the thread's error text. */
static void set_error(struct sy_grpc_infer *infer, int status)
{
    const char *text = sy_error_text();

    infer->status = status;
    infer->why = strdup(*text ? text : sy_status_text(status));
    if (!infer->why)
        infer->status = SY_ENOMEM_HOST;
}

/* The request is answered or failed; sent when all earlier ones of the stream are. */
static void finish(struct sy_grpc_infer *infer, int status)
{
    struct sy_grpc_stream *stream = infer->stream;

    infer->phase = SY_GRPC_OVER;
    sy_repository_wait_cancel(&infer->wait); /* a request that failed while it was parked */
    if (status < 0)
        set_error(infer, status);
    if (!stream) {
        if (infer->reply)
            sy_grpc_reply_unref(infer->reply);
        else
            infer_free(infer);
        return;
    }
    while (stream->infers && stream->infers->phase == SY_GRPC_OVER)
        send_answer(stream, take_first(stream));
}

/* finish, from a callback: may also end the stream, or resume reading it. */
static void finish_later(struct sy_grpc_infer *infer, int status)
{
    struct sy_grpc_stream *stream = infer->stream;

    finish(infer, status);
    if (!stream)
        return;
    sy_grpc_incoming_check_hold(stream);
    check_end(stream);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void thread_work(void *ctx)
{
    struct sy_grpc_infer *infer = ctx;
    infer->status = infer->work(infer);
    if (infer->status < 0)
        set_error(infer, infer->status);
}

static void thread_done(void *ctx)
{
    struct sy_grpc_infer *infer = ctx;
    int status = infer->status;

    infer->on_thread = false;
    if (status < 0) {
        sy_error_set(status, "%s", infer->why ? infer->why : sy_status_text(status));
        free(infer->why);
        infer->why = NULL;
        infer->status = SY_OK;
    }
    if (!infer->stream)
        drop(infer);
    else
        infer->after(infer, status);
}

static void run_work(struct sy_grpc_infer *infer, uint64_t ns,
                     int (*work)(struct sy_grpc_infer *infer),
                     void (*after)(struct sy_grpc_infer *infer, int status))
{
    struct sy_offload *offload = infer->server->front->offload;
    int status;

    if (ns < ON_LOOP_NS || !offload) {
        after(infer, work(infer));
        return;
    }
    infer->work = work;
    infer->after = after;
    infer->on_thread = true;
    infer->status = SY_EBUSY; /* unless it runs: the server stops */
    status = sy_offload_run(offload, thread_work, thread_done, infer);
    if (status == SY_OK)
        return;
    infer->on_thread = false;
    infer->status = SY_OK;
    after(infer, status);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The reply owns the request from now on. */
static int build(struct sy_grpc_infer *infer)
{
    SY_TRY(sy_grpc_infer_build(infer));
    infer->reply->release = infer_free;
    infer->reply->ctx = infer;
    return SY_OK;
}

static void core_done(void *ctx, int status, const char *error)
{
    struct sy_grpc_infer *infer = ctx;

    infer->phase = SY_GRPC_BUILDING;
    if (status < 0)
        sy_error_set(status, "%s", error && *error ? error : sy_status_text(status));
    if (status < 0 || !infer->stream)
        finish_later(infer, status);
    else
        run_work(infer, sy_grpc_infer_build_ns(infer), build, finish_later);
}

static void start(struct sy_grpc_infer *infer, int status)
{
    sy_grpc_block_free(&infer->kept);
    infer->message = (struct sy_grpc_bytes){NULL, 0};
    if (status == SY_OK)
        status = sy_front_infer_start(infer->request, core_done, infer);
    if (status < 0)
        finish_later(infer, status);
    else
        infer->phase = SY_GRPC_RUNNING;
}

/* ---- a whole message --------------------------------------------------------------------------------------------- */

/* The message stays valid after the callback that delivered it. */
static int keep(struct sy_grpc_infer *infer)
{
    struct sy_grpc_bytes view;

    if (infer->kept.data)
        return SY_OK;
    SY_TRY(sy_grpc_keep(infer->stream, infer->message, &infer->kept, &view));
    for (int i = 0; i < infer->n_inputs; i++)
        if (infer->inputs[i].from.data)
            infer->inputs[i].from.data =
                view.data + (infer->inputs[i].from.data - infer->message.data);
    infer->message = view;
    return SY_OK;
}

static void begin(struct sy_grpc_infer *infer)
{
    int status = sy_grpc_infer_read(infer, UINT64_MAX);
    uint64_t ns;

    infer->phase = status == SY_REPOSITORY_LOADS ? SY_GRPC_LOADING : SY_GRPC_COPYING;
    ns = status == SY_OK ? sy_grpc_infer_fill_ns(infer) : 0;
    if (status == SY_REPOSITORY_LOADS || ns >= ON_LOOP_NS) {
        int kept = keep(infer);

        status = kept < 0 ? kept : status;
    }
    if (status < 0)
        finish_later(infer, status);
    else if (status == SY_OK)
        run_work(infer, ns, sy_grpc_infer_fill, start);
}

void sy_grpc_infer_message(struct sy_grpc_stream *stream, struct sy_grpc_bytes message)
{
    struct sy_grpc_infer *infer = create(stream, message);

    if (!infer)
        return;
    begin(infer);
    sy_grpc_incoming_check_hold(stream);
}

void sy_grpc_infer_end(struct sy_grpc_stream *stream)
{
    check_end(stream);
}

/* ---- a message that comes ---------------------------------------------------------------------------------------- */

bool sy_grpc_infer_try_direct(struct sy_grpc_stream *stream, struct sy_grpc_bytes begun,
                              uint64_t bytes)
{
    struct sy_grpc_incoming *incoming = &stream->incoming;
    struct sy_grpc_infer *infer;
    int status;

    if (!sy_grpc_request_head(begun, &incoming->scanned))
        return false;
    infer = create(stream, (struct sy_grpc_bytes){begun.data, incoming->scanned});
    if (!infer)
        return false;
    status = sy_grpc_infer_read(infer, bytes - incoming->scanned);
    infer->phase = SY_GRPC_RECEIVING;
    infer->to_skip = incoming->scanned;
    if (status == SY_REPOSITORY_LOADS) { /* it is collected, and read again once it is whole */
        incoming->no_direct = true;
        undo(infer);
        return false;
    }
    if (status < 0)
        finish(infer, status); /* the rest of it is dropped as it comes */
    else
        stream->receiving = infer;
    return true;
}

void sy_grpc_infer_direct(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes, bool is_last)
{
    struct sy_grpc_infer *infer = stream->receiving;
    int status = infer ? sy_grpc_infer_place(infer, bytes) : SY_OK;

    if (infer && status == SY_OK && is_last)
        status = sy_grpc_infer_check_placed(infer);
    if (infer && (is_last || status < 0)) {
        stream->receiving = NULL;
        infer->phase = SY_GRPC_COPYING;
        if (status < 0)
            start(infer, status);
        else
            run_work(infer, sy_grpc_infer_fill_ns(infer), sy_grpc_infer_fill, start);
    }
    if (is_last)
        sy_grpc_incoming_check_hold(stream);
}

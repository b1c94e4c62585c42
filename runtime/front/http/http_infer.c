/* The infer route: a request's body becomes a request of the front end while it comes.
 *
 *   JSON ──whole──> parse ──> model held, inputs added, slab taken ──> numbers to the slab ──> tensors from the socket to the slab ──whole──> run ──> answer
 *  COLLECTING    PARSING*     (LOADING: the repository loads it)       CONVERTING*             STREAMING                                     RUNNING
 *
 *   *: on a thread where the JSON is larger than SMALL_JSON bytes; the socket is not read meanwhile.
 *
 * With Inference-Header-Content-Length: N the first N bytes are the JSON, and the tensors follow without gaps, in the order of the JSON; without it all is
 * JSON; with N = 0 all is the one input of the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_infer_internal.h"
#include "runtime/front/request/offload.h"

static void go(struct sy_http_infer *infer);

/* ---- life ------------------------------------------------------------------------------------------------- */

static void drop_text(struct sy_http_infer *infer)
{
    struct sy_offload *offload = infer->server->front->offload;

    infer->server->buffered_bytes -= infer->text.used + infer->late.used;
    sy_body_buffer_finish(&infer->text, offload);
    sy_body_buffer_finish(&infer->late, offload);
}

static void infer_free(struct sy_http_infer *infer)
{
    sy_repository_wait_cancel(&infer->wait);
    sy_request_json_finish(&infer->json);
    sy_front_infer_destroy(infer->request);
    sy_text_finish(&infer->answer);
    for (int i = 0; i < infer->n_inputs; i++)
        sy_infer_region_close(&infer->inputs[i].place);
    for (int i = 0; i < infer->n_outputs; i++) {
        free(infer->outputs[i].packed);
        sy_infer_region_close(&infer->outputs[i].place);
    }
    free(infer->inputs);
    drop_text(infer);
    sy_front_server_release(&infer->server->base);
    free(infer);
}

/* A request that a thread or the core still uses is freed by its callback. */
static bool is_elsewhere(const struct sy_http_infer *infer)
{
    return infer->on_thread || infer->phase == SY_HTTP_RUNNING;
}

static void drop(void *ctx)
{
    struct sy_http_infer *infer = ctx;

    infer->call = NULL;
    if (infer->phase == SY_HTTP_RUNNING && !infer->on_thread)
        sy_front_infer_cancel(infer->request);
    if (!is_elsewhere(infer))
        infer_free(infer);
}

/* Answers with the thread's error text. */
static void fail(struct sy_http_infer *infer, int status)
{
    struct sy_http_call *call = infer->call;

    if (call)
        sy_http_reply_error(call, status, NULL); /* which drops the request */
    else
        infer_free(infer);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

static void thread_work(void *ctx)
{
    struct sy_http_infer *infer = ctx;

    infer->status = infer->work(infer);
    if (infer->status < 0)
        strncpy(infer->why, sy_error_text(), sizeof(infer->why) - 1);
}

static void thread_done(void *ctx)
{
    struct sy_http_infer *infer = ctx;

    infer->on_thread = false;
    if (!infer->call) {
        infer_free(infer);
        return;
    }
    sy_error_set(infer->status, "%s", infer->why);
    infer->after(infer, infer->status);
}

/* Runs work here if it is short, else on an offload thread; then after(infer, its status). */
static void run_work(struct sy_http_infer *infer, uint64_t bytes,
                     int (*work)(struct sy_http_infer *infer),
                     void (*after)(struct sy_http_infer *infer, int status))
{
    struct sy_offload *offload = infer->server->front->offload;

    if (bytes <= SY_HTTP_SMALL_JSON || !offload) {
        after(infer, work(infer));
        return;
    }
    infer->work = work;
    infer->after = after;
    infer->on_thread = true;
    infer->status = SY_EBUSY; /* unless it runs */
    strcpy(infer->why, "the server stops");
    int status = sy_offload_run(offload, thread_work, thread_done, infer);
    if (status == SY_OK)
        return;
    infer->on_thread = false;
    after(infer, status);
}

/* ---- running ------------------------------------------------------------------------------------------------- */

static void release_answer(void *ctx)
{
    infer_free(ctx);
}

static void send_answer(struct sy_http_infer *infer, int status)
{
    struct sy_http_call *call = infer->call;
    char header[24];

    if (status < 0) {
        fail(infer, status);
        return;
    }
    if (infer->n_tensors > 0) {
        snprintf(header, sizeof(header), "%zu", infer->json_bytes);
        sy_http_call_add_header(call, "Inference-Header-Content-Length", header);
    }
    if (infer->coding != SY_HTTP_PLAIN)
        sy_http_call_add_header(call, "Content-Encoding", sy_http_coding_name(infer->coding));
    call->sink.drop = NULL;
    infer->call = NULL;
    infer->phase = SY_HTTP_ANSWERED;
    struct sy_text text = infer->answer;
    infer->answer = (struct sy_text){0};
    sy_http_reply_tensors(
        call, infer->n_tensors > 0 ? "application/octet-stream" : "application/json", &text,
        infer->tensors, infer->cuts, infer->coding == SY_HTTP_PLAIN ? infer->n_tensors : 0,
        release_answer, infer);
}

static void core_done(void *ctx, int status, const char *error)
{
    struct sy_http_infer *infer = ctx;

    infer->phase = SY_HTTP_ANSWERED;
    if (!infer->call) {
        infer_free(infer);
    } else if (status < 0) {
        sy_error_set(status, "%s", error && *error ? error : sy_status_text(status));
        fail(infer, status);
    } else {
        run_work(infer, sy_http_infer_answer_bytes(infer), sy_http_infer_build, send_answer);
    }
}

static void start(struct sy_http_infer *infer)
{
    int status = sy_front_infer_start(infer->request, core_done, infer);

    if (status < 0)
        fail(infer, status);
    else
        infer->phase = SY_HTTP_RUNNING;
}

/* ---- tensors from the socket ----------------------------------------------------------------------------------- */

/* Destination of the body's next bytes; 0: the body is complete. */
static uint64_t stream_room(struct sy_http_infer *infer, unsigned char **to)
{
    while (infer->streaming < infer->n_inputs) {
        const struct sy_http_infer_input *input = &infer->inputs[infer->streaming];
        uint64_t bytes = input->source == SY_HTTP_BINARY ? input->bytes : 0;

        if (infer->streamed < bytes) {
            *to = (unsigned char *)sy_front_infer_input_data(infer->request, input->index) +
                  infer->streamed;
            return bytes - infer->streamed;
        }
        infer->streaming++;
        infer->streamed = 0;
    }
    return 0;
}

static int stream(struct sy_http_infer *infer, const unsigned char *bytes, uint64_t n)
{
    while (n > 0) {
        unsigned char *to;
        uint64_t part = SY_MIN(stream_room(infer, &to), n);

        if (part == 0)
            return sy_error_set(
                SY_EARG,
                "the body is %llu bytes longer than its JSON and the binary data of its inputs",
                (unsigned long long)n);
        if (bytes != to) /* else it was received there */
            memcpy(to, bytes, part);
        infer->streamed += part;
        bytes += part;
        n -= part;
    }
    return SY_OK;
}

static int check_end(struct sy_http_infer *infer)
{
    unsigned char *to;
    uint64_t room = stream_room(infer, &to);

    if (room == 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "the body ends %llu bytes before the end of input \"%s\"%s",
                        (unsigned long long)room, infer->inputs[infer->streaming].name,
                        sy_http_call_header(infer->call, "inference-header-content-length")
                            ? ""
                            : "; its binary data follow the JSON, whose length the header line "
                              "Inference-Header-Content-Length says");
}

/* The JSON is converted: binary data received meanwhile is copied to the slab. */
static void begin_streaming(struct sy_http_infer *infer, int status)
{
    if (status == SY_OK) {
        infer->phase = SY_HTTP_STREAMING;
        if (infer->text.used > infer->header_bytes) /* without a body there is no text */
            status = stream(infer, infer->text.at + infer->header_bytes,
                            infer->text.used - infer->header_bytes);
    }
    if (status == SY_OK)
        status = stream(infer, infer->late.at, infer->late.used);
    if (status == SY_OK)
        drop_text(infer);
    if (status == SY_OK && infer->is_whole)
        status = check_end(infer);
    if (status < 0)
        fail(infer, status);
    else if (infer->is_whole)
        start(infer);
    else
        infer->call->connection->go_on(infer->call->connection);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static void on_loaded(void *ctx)
{
    go(ctx);
}

/* The JSON is read: the model, then the inputs' places. */
static void go(struct sy_http_infer *infer)
{
    int status = sy_front_acquire(infer->server->front, infer->model, infer->version, &infer->wait,
                                  &infer->request);

    infer->phase = SY_HTTP_LOADING;
    if (status == SY_REPOSITORY_LOADS)
        return; /* on_loaded */
    if (status == SY_OK)
        status = sy_http_infer_read(infer);
    infer->phase = SY_HTTP_CONVERTING;
    if (status < 0)
        fail(infer, status);
    else
        run_work(infer, sy_http_infer_convert_bytes(infer), sy_http_infer_convert, begin_streaming);
}

static void parsed(struct sy_http_infer *infer, int status)
{
    if (status < 0)
        fail(infer, status);
    else
        go(infer);
}

static int parse_json(struct sy_http_infer *infer)
{
    if (infer->is_raw)
        return SY_OK; /* the body is the one input */
    return sy_request_json_parse((const char *)infer->text.at, infer->header_bytes,
                                 infer->server->limits.json_depth, &infer->json);
}

static void begin_parsing(struct sy_http_infer *infer)
{
    infer->phase = SY_HTTP_PARSING;
    run_work(infer, infer->header_bytes, parse_json, parsed);
}

/* ---- the sink -------------------------------------------------------------------------------------------------- */

/* Expected bytes of text, from what the client announced; 0: unknown. */
static uint64_t expected_bytes(const struct sy_http_infer *infer)
{
    uint64_t announced = infer->call->has_inflate ? 0 : infer->call->announced_bytes;

    if (infer->header_bytes == UINT64_MAX)
        return announced;
    /* The piece that ends the JSON may bring binary data with it. */
    uint64_t expected = infer->header_bytes + SY_HTTP_READ_BYTES;
    return announced > 0 ? SY_MIN(expected, announced) : expected;
}

static int keep(struct sy_http_infer *infer, struct sy_body_buffer *buffer, uint64_t expected,
                const unsigned char *bytes, uint64_t n)
{
    struct sy_http_server *server = infer->server;

    if (server->buffered_bytes + n > server->limits.buffered_bytes)
        return sy_error_set(
            SY_EBUSY, "%llu bytes of unfinished requests are buffered already; try again later",
            (unsigned long long)server->buffered_bytes);
    SY_TRY(sy_body_buffer_room(buffer, n, expected));
    if (bytes != buffer->at + buffer->used) /* else it was received there */
        memcpy(buffer->at + buffer->used, bytes, n);
    buffer->used += n;
    server->buffered_bytes += n;
    return SY_OK;
}

/* Inflated data may still arrive while the sink waits. It goes to `late`: a thread may be reading the JSON in `text`, which must not move. */
static int take(void *ctx, const unsigned char *bytes, uint64_t n)
{
    struct sy_http_infer *infer = ctx;

    if (infer->phase == SY_HTTP_STREAMING)
        return stream(infer, bytes, n);
    if (infer->phase != SY_HTTP_COLLECTING)
        return keep(infer, &infer->late, 0, bytes, n);
    SY_TRY(keep(infer, &infer->text, expected_bytes(infer), bytes, n));
    if (infer->text.used >= infer->header_bytes)
        begin_parsing(infer);
    return SY_OK;
}

static uint64_t room(void *ctx, unsigned char **to)
{
    struct sy_http_infer *infer = ctx;
    struct sy_body_buffer *text = &infer->text;

    if (infer->phase == SY_HTTP_STREAMING)
        return stream_room(infer, to);
    if (infer->phase != SY_HTTP_COLLECTING)
        return 0;
    *to = text->at + text->used;
    return SY_MIN(text->size, infer->header_bytes) - text->used;
}

static bool waits(void *ctx)
{
    const struct sy_http_infer *infer = ctx;

    return infer->phase != SY_HTTP_COLLECTING && infer->phase != SY_HTTP_STREAMING;
}

static int read_target(struct sy_http_infer *infer, const struct sy_http_call *call)
{
    const char *name = sy_http_call_segment(call, 0), *version = sy_http_call_segment(call, 1);

    if (strlen(name) >= sizeof(infer->model))
        return sy_error_set(SY_ENOTFOUND, "there is no model '%.100s...'", name);
    strcpy(infer->model, name);
    return sy_http_read_version(version, &infer->version);
}

/* All of the body is there, and it is all JSON, or all tensor. */
static int end_text(struct sy_http_infer *infer)
{
    if (infer->header_bytes == UINT64_MAX && infer->is_raw) {
        infer->raw_bytes = infer->text.used;
        infer->header_bytes = 0;
    } else if (infer->header_bytes == UINT64_MAX) {
        infer->header_bytes = infer->text.used;
    }
    if (infer->header_bytes <= infer->text.used)
        return SY_OK;
    return sy_error_set(SY_EARG, "Inference-Header-Content-Length is %llu; the body has %llu bytes",
                        (unsigned long long)infer->header_bytes,
                        (unsigned long long)infer->text.used);
}

static void end(void *ctx)
{
    struct sy_http_infer *infer = ctx;
    int status = SY_OK;

    infer->is_whole = true;
    if (infer->phase == SY_HTTP_STREAMING)
        status = check_end(infer);
    else if (infer->phase == SY_HTTP_COLLECTING)
        status = end_text(infer);
    else
        return; /* on_loaded, or a thread, goes on */
    if (status < 0)
        fail(infer, status);
    else if (infer->phase == SY_HTTP_STREAMING)
        start(infer);
    else
        begin_parsing(infer);
}

int sy_http_infer_begin(struct sy_http_call *call, const char **why)
{
    struct sy_http_infer *infer = calloc(1, sizeof(*infer));
    uint64_t header = UINT64_MAX;

    *why = "no memory for a request";
    if (!infer)
        return 503;
    infer->server = call->server;
    infer->server->base.refs++;
    infer->received_ns = infer->server->front->otlp ? sy_clock_now() : 0;
    infer->wait = (struct sy_repository_wait){.ready = on_loaded, .ctx = infer};
    if (sy_http_call_number(call, "inference-header-content-length", &header) &&
        header > call->server->limits.body_bytes) {
        infer_free(infer);
        *why = "Inference-Header-Content-Length is not a number of bytes within the body";
        return 400;
    }
    infer->header_bytes = header;
    infer->coding = sy_http_accepted_coding(sy_http_call_header(call, "accept-encoding"));
    int status = read_target(infer, call);
    if (status < 0) {
        infer_free(infer);
        *why = sy_error_text();
        return sy_http_status_code(status);
    }
    infer->call = call;
    call->sink = (struct sy_http_sink){
        .take = take, .room = room, .waits = waits, .end = end, .drop = drop, .ctx = infer};
    if (header == 0)
        sy_http_infer_expect_raw(infer, call->has_inflate ? 0 : call->announced_bytes);
    return 0;
}

/* gRPC clients: nghttp2 makes their bytes and takes the server's. Each request is a call of its own. */
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grpc_service.pb-c.h"
#include "runtime/base/assert.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_wire.h"
#include "tests/simulation/sim_front.h"
#include "tests/simulation/sim_world.h"

#define MOST_FRAME         (17u << 10) /* with all heads: what nghttp2 hands out at a time */
#define PREFIX             5
#define HEAD_BYTES         9 /* of a frame */
#define MOST_CONTINUATIONS 4
#define MOST_IGNORED       8

/* A call: what it sends, what it was answered. */
struct sim_call_bytes {
    struct sy_grpc_buffer to_send;
    size_t sent;
    unsigned char got[1024];
    size_t n_got;
    size_t holds_at; /* it sends this much and no more until it is told to go on; 0: all */
    bool is_damaged; /* no answer but an error fits */
    int n_cut;       /* CONTINUATIONs of its header block */
    int status;      /* -1: none came */
};

/* ---- nghttp2 ------------------------------------------------------------------------------------ */

static struct sim_ask *ask_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct sim_call_bytes *call = source->ptr;
    size_t end = call->holds_at ? call->holds_at : call->to_send.n;
    size_t n = SY_MIN(room, end - call->sent);
    (void)session, (void)id, (void)ctx;
    if (n == 0 && call->holds_at)
        return NGHTTP2_ERR_DEFERRED;
    memcpy(to, call->to_send.data + call->sent, n);
    call->sent += n;
    if (call->sent == call->to_send.n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *ctx)
{
    struct sim_ask *ask = ask_of(session, frame->hd.stream_id);
    (void)flags, (void)ctx, (void)value_bytes;
    if (!ask || name_bytes != 11 || memcmp(name, "grpc-status", 11) != 0)
        return 0;
    SIM_CHECK(ask->call->status < 0, "request %llu: a second status", (unsigned long long)ask->id);
    ask->call->status = atoi((const char *)value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *ctx)
{
    struct sim_ask *ask = ask_of(session, id);
    (void)flags, (void)ctx;
    if (!ask)
        return 0;
    SIM_CHECK(n <= sizeof ask->call->got - ask->call->n_got, "request %llu: a long answer",
              (unsigned long long)ask->id);
    memcpy(ask->call->got + ask->call->n_got, data, n);
    ask->call->n_got += n;
    return 0;
}

static void read_output(const struct sim_ask *ask, float *y)
{
    const struct sim_call_bytes *call = ask->call;
    size_t bytes = (size_t)ask->rows * FAKE_ROW * sizeof *y;
    SIM_CHECK(call->n_got >= PREFIX, "request %llu: no message", (unsigned long long)ask->id);
    Inference__ModelInferResponse *got =
        inference__model_infer_response__unpack(NULL, call->n_got - PREFIX, call->got + PREFIX);
    SIM_CHECK(got && got->n_raw_output_contents == 1 && got->raw_output_contents[0].len == bytes,
              "request %llu: no output, or a short one", (unsigned long long)ask->id);
    memcpy(y, got->raw_output_contents[0].data, bytes);
    inference__model_infer_response__free_unpacked(got, NULL);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct sim_connection *c = ctx;
    struct sim_ask *ask = ask_of(session, id), **at = &c->asks;
    float y[SIM_ASK_ROWS * FAKE_ROW];
    if (!ask)
        return 0;
    bool is_ok = code == 0 && ask->call->status == 0;
    SIM_CHECK(!is_ok || !ask->call->is_damaged, "request %llu: a message cut short was taken",
              (unsigned long long)ask->id);
    if (is_ok && ask->rows)
        read_output(ask, y);
    if (ask->call->status >= 0)
        c->n_cut -= ask->call->n_cut;
    while (*at != ask)
        at = &(*at)->next;
    sim_front_answered(c, at, is_ok, y);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct sim_connection *c = ctx;
    (void)session;
    c->ends |= frame->hd.type == NGHTTP2_GOAWAY;
    return 0;
}

/* ---- connections -------------------------------------------------------------------------------- */

void sim_front_grpc_open(struct sim_connection *c)
{
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                           (uint32_t)(64 + sim_front_draw(1000))};
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    SIM_CHECK(nghttp2_session_client_new(&c->session, callbacks, c) == 0, "no memory");
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(c->session, 0, &window, 1);
}

void sim_front_grpc_free(struct sim_ask *ask)
{
    if (ask->call)
        sy_grpc_buffer_free(&ask->call->to_send);
    free(ask->call);
}

static void say(struct sim_connection *c, const uint8_t *bytes, size_t n)
{
    if (n > 0)
        memcpy(c->said + c->n_said, bytes, n);
    c->n_said += n;
}

/* HEADERS that END_HEADERS, without padding and priority. */
static bool is_whole_block(const uint8_t *frame, size_t n)
{
    return n > HEAD_BYTES && frame[3] == NGHTTP2_HEADERS &&
           (frame[4] & ~NGHTTP2_FLAG_END_STREAM) == NGHTTP2_FLAG_END_HEADERS;
}

/* libnghttp2 adds up the CONTINUATIONs of all blocks that it ignores, and ends the connection at the ninth: those of calls without an answer may have been. */
static bool may_be_cut(const struct sim_connection *c)
{
    return sim_front_is_fine() && c->n_cut + MOST_CONTINUATIONS <= MOST_IGNORED;
}

static struct sim_ask *ask_of_frame(const struct sim_connection *c, const uint8_t *frame)
{
    const uint8_t *id = frame + 5;
    return ask_of(c->session, (int32_t)id[0] << 24 | id[1] << 16 | id[2] << 8 | id[3]);
}

/* A call's last frame was said. */
static void check_end(struct sim_connection *c, const uint8_t *frame, size_t n)
{
    struct sim_ask *ask =
        n >= HEAD_BYTES && frame[3] == NGHTTP2_DATA && (frame[4] & NGHTTP2_FLAG_END_STREAM)
            ? ask_of_frame(c, frame)
            : NULL;
    if (ask)
        ask->end = c->n_sent + c->n_said;
}

/* The same header block in HEADERS and CONTINUATION, cut anywhere; some may be empty. */
static void say_in_frames(struct sim_connection *c, const uint8_t *frame, size_t n)
{
    struct sim_ask *ask = ask_of_frame(c, frame);
    size_t at = HEAD_BYTES;
    for (int left = (int)sim_front_draw(MOST_CONTINUATIONS + 1), k = 0; left >= 0; left--, k++) {
        size_t part = left ? sim_front_draw(n - at + 1) : n - at;
        uint8_t head[HEAD_BYTES] = {0, (uint8_t)(part >> 8), (uint8_t)part};
        head[3] = k ? NGHTTP2_CONTINUATION : NGHTTP2_HEADERS;
        head[4] = (uint8_t)((k ? 0 : frame[4] & NGHTTP2_FLAG_END_STREAM) |
                            (left ? 0 : NGHTTP2_FLAG_END_HEADERS));
        memcpy(head + 5, frame + 5, 4);
        say(c, head, sizeof head);
        say(c, frame + at, part);
        at += part;
        c->n_cut += k > 0;
        if (ask)
            ask->call->n_cut += k > 0;
        sim.n_front_continuations += k > 0;
    }
}

void sim_front_grpc_say(struct sim_connection *c)
{
    const uint8_t *bytes;
    ssize_t n = 1;
    while (c->session && !c->nonsense && n > 0 && sizeof c->said - c->n_said >= MOST_FRAME) {
        n = nghttp2_session_mem_send(c->session, &bytes);
        if (n > 0 && may_be_cut(c) && is_whole_block(bytes, (size_t)n))
            say_in_frames(c, bytes, (size_t)n);
        else if (n > 0)
            say(c, bytes, (size_t)n);
        if (n > 0)
            check_end(c, bytes, (size_t)n);
    }
}

void sim_front_grpc_take(struct sim_connection *c)
{
    ssize_t n = nghttp2_session_mem_recv(c->session, c->read, c->n_read);
    SIM_CHECK(n == (ssize_t)c->n_read, "connection %llu: no HTTP/2: %s",
              (unsigned long long)c->number, n < 0 ? nghttp2_strerror((int)n) : "not all taken");
    c->n_read = 0;
}

/* ---- calls -------------------------------------------------------------------------------------- */

static void put_request(struct sy_grpc_buffer *to, const struct sim_ask *ask, const char *model)
{
    sy_grpc_put_text(to, 1, model);
    size_t input = sy_grpc_put_begin(to, 5);
    sy_grpc_put_text(to, 1, "input");
    sy_grpc_put_text(to, 2, "FP32");
    sy_grpc_put_number(to, 3, (uint64_t)ask->rows);
    sy_grpc_put_number(to, 3, FAKE_ROW);
    sy_grpc_put_end(to, input);
    sy_grpc_put_bytes(to, 7, ask->x, (size_t)ask->rows * FAKE_ROW * sizeof *ask->x);
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* In the place of its message the beginning of what that is compressed. */
static void damage(struct sim_call_bytes *call)
{
    struct sy_grpc_buffer whole = {0};
    struct sy_grpc_bytes message = {call->to_send.data + PREFIX, call->to_send.n - PREFIX};
    SIM_CHECK(sy_grpc_deflate(&message, 1, SY_GRPC_GZIP, &whole) == SY_OK, "no memory");
    size_t n = (size_t)sim_front_draw(whole.n);
    call->to_send.n = PREFIX;
    memcpy(sy_grpc_buffer_extend(&call->to_send, n), whole.data, n);
    sy_grpc_buffer_free(&whole);
    call->is_damaged = true;
}

/* Of up to 999 letters: a header block that is worth cutting. */
static const char *some_text(void)
{
    static char text[1000];
    size_t n = (size_t)sim_front_draw(sizeof text);
    memset(text, 'a' + (int)sim_front_draw(26), n);
    text[n] = '\0';
    return text;
}

bool sim_front_grpc_ask(struct sim_connection *c, struct sim_ask *ask, const char *model)
{
    nghttp2_nv last =
        sim_front_is_fine() ? header("x-filler", some_text()) : header("te", "trailers");
    const nghttp2_nv headers[] = {
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":authority", "h"),
        header(":path", ask->rows ? "/inference.GRPCInferenceService/ModelInfer"
                                  : "/inference.GRPCInferenceService/ServerLive"),
        header("content-type", "application/grpc"),
        last,
        header("grpc-encoding", "gzip")};
    if (!nghttp2_session_check_request_allowed(c->session))
        return false;
    ask->call = calloc(1, sizeof *ask->call);
    SIM_CHECK(ask->call, "no memory");
    ask->call->status = -1;
    sy_grpc_buffer_extend(&ask->call->to_send, PREFIX);
    if (ask->rows)
        put_request(&ask->call->to_send, ask, model);
    bool is_wild = sim_front_is_wild();
    if (is_wild && ask->rows && sim_front_draw(8) == 0)
        damage(ask->call);
    memset(ask->call->to_send.data, 0, PREFIX - 1);
    ask->call->to_send.data[0] = ask->call->is_damaged;
    if (is_wild && sim_front_draw(8) == 0)
        ask->call->holds_at = 1 + (size_t)sim_front_draw(ask->call->to_send.n);
    ask->call->to_send.data[PREFIX - 1] = (uint8_t)(ask->call->to_send.n - PREFIX);
    SIM_CHECK(ask->call->to_send.n - PREFIX < 256, "a long request");
    nghttp2_data_provider provider = {.source.ptr = ask->call, .read_callback = on_read};
    int32_t id = nghttp2_submit_request(
        c->session, NULL, headers, SY_ARRAY_LEN(headers) - !ask->call->is_damaged, &provider, ask);
    SIM_CHECK(id > 0, "no call: %s", nghttp2_strerror(id));
    ask->stream = id;
    return true;
}

void sim_front_grpc_reset(struct sim_connection *c)
{
    if (!c->asks)
        return;
    sim_say("connection %llu: resets request %llu", (unsigned long long)c->number,
            (unsigned long long)c->asks->id);
    nghttp2_submit_rst_stream(c->session, 0, c->asks->stream, NGHTTP2_CANCEL);
}

/* ---- clients that keep to HTTP/2, and to little else ------------------------------------------------ */

static struct sim_ask *any_ask(const struct sim_connection *c)
{
    struct sim_ask *ask = c->asks;
    for (uint64_t k = sim_front_draw(8); ask && ask->next && k > 0; k--)
        ask = ask->next;
    return ask;
}

static void go_on(struct sim_connection *c, struct sim_ask *ask)
{
    ask->call->holds_at = 0;
    nghttp2_session_resume_data(c->session,
                                ask->stream); /* an error: it has said all, or nothing yet */
}

/* 0: the server may send headers, and no answer's bytes. */
static void set_window(struct sim_connection *c, uint32_t bytes)
{
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, bytes};
    nghttp2_submit_settings(c->session, 0, &window, 1);
}

void sim_front_grpc_misbehave(struct sim_connection *c)
{
    static const uint32_t codes[] = {NGHTTP2_NO_ERROR, NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR,
                                     NGHTTP2_REFUSED_STREAM, 0xffffffff};
    struct sim_ask *ask = any_ask(c);
    uint64_t what = sim_front_draw(5);
    if (what == 0 && sim_front_draw(4) == 0) {
        nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
        c->ends = true; /* the server need not wait for more */
    } else if (what <= 1) {
        set_window(c, what ? 0 : (uint32_t)(64 + sim_front_draw(1000)));
    } else if (what == 2 && ask) {
        nghttp2_submit_rst_stream(c->session, 0, ask->stream,
                                  codes[sim_front_draw(SY_ARRAY_LEN(codes))]);
    } else if (what == 3) {
        nghttp2_submit_ping(c->session, 0, NULL);
    } else if (ask) {
        go_on(c, ask);
    }
}

void sim_front_grpc_end(struct sim_connection *c)
{
    set_window(c, 1000);
    for (struct sim_ask *ask = c->asks; ask; ask = ask->next)
        go_on(c, ask);
}

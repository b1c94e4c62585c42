/* The gRPC server's side of a connection: frames arrive in pieces on a socket pair, a fake core answers from the event loop. Whatever came, what is answered
 * is HTTP/2, no stream is answered twice, and nothing stays behind when the client is gone.
 *
 * input = [flags] records, or bytes of the stream. Flags: 1..7: length of the pieces (0: all at once); 8: the client goes without reading; 16: the core
 * refuses; 32: long work goes to a thread; 64: in the end an hour passes; 128: bytes as they are. Else the preface stands in front, and each record is
 *
 *   [kind] [HTTP/2's flags] [stream] [n, 2 bytes, the low one first] n bytes      lengths are made right (Z3)
 *
 *   kind 0..31: a frame of this type    CALL: headers of a call: [path] [extras, a bit each] HPACK    MESSAGE: DATA of one gRPC message, [is compressed] bytes
 *   INFER: a ModelInferRequest of "o": [rows, 2 bytes] [parts of its tensor, a byte]    FILLER: n * 64 zeros as DATA */
#include <event2/event.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_front.h"

enum { FLAG_GOES = 8, FLAG_REFUSES = 16, FLAG_THREAD = 32, FLAG_LATE = 64, FLAG_RAW = 128 };
enum { CALL = 32, MESSAGE, INFER, FILLER, N_KINDS };

/* And empty settings, and an answer to the server's: from then on frames may be as large as these say. */
#define PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0"
#define FRAME_HEAD  9
#define MOST_STREAM 512
#define MOST_BYTES  (4u << 20) /* of what one input makes the client send */

static struct sy_grpc_server *server;
static unsigned flags;

static void set_up(void)
{
    const struct sy_grpc_config config = {.address = "127.0.0.1:0",
                                          .limits = {.message_bytes = 1 << 20,
                                                     .small_bytes = 1 << 16,
                                                     .buffered_bytes = 1 << 20,
                                                     .unsent_bytes = 1 << 20,
                                                     .header_bytes = 2048,
                                                     .max_streams = 16,
                                                     .max_outstanding = 3,
                                                     .pings_per_s = 50}};

    if (server)
        return;
    fuzz_front_open();
    FUZZ_CHECK(sy_grpc_server_create(&config, &fuzz_front.front, &server) == SY_OK);
}

/* At exit, for the leak checker. */
__attribute__((destructor)) static void tear_down(void)
{
    if (!server)
        return;
    fuzz_front_stop_threads();
    sy_grpc_server_destroy(server);
    fuzz_front_close();
}

/* ---- what the client says -------------------------------------------------------------------------------------------- */

static uint8_t stream[MOST_BYTES + (1 << 20)];
static size_t stream_bytes;

static void say(const void *bytes, size_t n)
{
    n = SY_MIN(n, sizeof stream - stream_bytes);
    memcpy(stream + stream_bytes, bytes, n);
    stream_bytes += n;
}

static void say_frame(unsigned type, uint8_t frame_flags, uint8_t id, const void *bytes, size_t n)
{
    const uint8_t head[FRAME_HEAD] = {
        (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, (uint8_t)type, frame_flags, 0, 0, 0, id};

    say(head, sizeof head);
    say(bytes, n);
}

/* A literal header field, never indexed: what one call says changes no other. */
static void put_header(struct sy_grpc_buffer *to, const char *name, const char *value)
{
    size_t n = strlen(name), m = strlen(value);
    uint8_t *at = sy_grpc_buffer_extend(to, 3 + n + m);

    FUZZ_CHECK(n < 127 && m < 127);
    at[0] = 0x10;
    at[1] = (uint8_t)n;
    memcpy(at + 2, name, n);
    at[2 + n] = (uint8_t)m;
    memcpy(at + 3 + n, value, m);
}

#define SERVICE "/inference.GRPCInferenceService/"
static const char *const paths[] = {
    SERVICE "ModelInfer",
    SERVICE "ModelStreamInfer",
    SERVICE "ServerLive",
    SERVICE "ServerReady",
    SERVICE "ModelMetadata",
    SERVICE "RepositoryModelLoad",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/none",
};

static const struct {
    const char *name, *value;
} extras[] = {
    {"grpc-encoding", "gzip"},
    {"grpc-accept-encoding", "identity,deflate,gzip"},
    {"grpc-timeout", "1n"},
    {"switchyard-tenant", "t"},
    {"triton_grpc_error", "true"},
    {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    {"tracestate", "a=b"},
    {"authorization", "Bearer t"},
};

static void say_call(uint8_t frame_flags, uint8_t id, const uint8_t *bytes, size_t n)
{
    struct sy_grpc_buffer headers = {0};

    if (n < 2)
        return;
    put_header(&headers, ":method", "POST");
    put_header(&headers, ":scheme", "http");
    put_header(&headers, ":authority", "h");
    put_header(&headers, ":path", paths[bytes[0] % SY_ARRAY_LEN(paths)]);
    put_header(&headers, "content-type", "application/grpc+proto;a=b");
    put_header(&headers, "te", "trailers");
    for (size_t i = 0; i < SY_ARRAY_LEN(extras); i++)
        if (bytes[1] & 1u << i)
            put_header(&headers, extras[i].name, extras[i].value);
    if (n > 2)
        memcpy(sy_grpc_buffer_extend(&headers, n - 2), bytes + 2, n - 2);
    say_frame(NGHTTP2_HEADERS, frame_flags, id, headers.data, headers.n);
    sy_grpc_buffer_free(&headers);
}

static void say_message(uint8_t frame_flags, uint8_t id, bool compressed, const uint8_t *bytes,
                        size_t n)
{
    struct sy_grpc_buffer message = {0};
    uint8_t *at = sy_grpc_buffer_extend(&message, SY_GRPC_PREFIX + n);

    sy_grpc_write_prefix(at, compressed, n);
    if (n > 0)
        memcpy(at + SY_GRPC_PREFIX, bytes, n);
    say_frame(NGHTTP2_DATA, frame_flags, id, message.data, message.n);
    sy_grpc_buffer_free(&message);
}

static void say_infer(uint8_t frame_flags, uint8_t id, const uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[65536 * 8];
    struct sy_grpc_buffer request = {0};
    size_t rows = n >= 2 ? bytes[0] | (size_t)bytes[1] << 8 : 1, input, whole = rows * 8;

    sy_grpc_put_text(&request, 1, "o");
    sy_grpc_put_text(&request, 3, "id");
    input = sy_grpc_put_begin(&request, 5);
    sy_grpc_put_text(&request, 1, "x");
    sy_grpc_put_text(&request, 2, "FP32");
    sy_grpc_put_number(&request, 3, rows);
    sy_grpc_put_number(&request, 3, 2);
    sy_grpc_put_end(&request, input);
    sy_grpc_put_bytes(&request, 7, zeros, whole - (n >= 3 ? SY_MIN(whole, (size_t)bytes[2]) : 0));
    say_message(frame_flags, id, false, request.data, request.n);
    sy_grpc_buffer_free(&request);
}

static void say_filler(uint8_t frame_flags, uint8_t id, size_t n)
{
    static const uint8_t zeros[65535 * 16];

    say_frame(NGHTTP2_DATA, frame_flags, id, zeros, SY_MIN(n * 64, sizeof zeros));
}

static void say_record(unsigned kind, uint8_t frame_flags, uint8_t id, const uint8_t *bytes,
                       size_t n)
{
    if (kind == CALL)
        say_call(frame_flags, id, bytes, n);
    else if (kind == MESSAGE)
        say_message(frame_flags, id, n > 0 && bytes[0] & 1, bytes + (n > 0), n - (n > 0));
    else if (kind == INFER)
        say_infer(frame_flags, id, bytes, n);
    else if (kind == FILLER)
        say_filler(frame_flags, id, n);
    else
        say_frame(kind, frame_flags, id, bytes, n);
}

static void say_all(const uint8_t *data, size_t size)
{
    stream_bytes = 0;
    if (flags & FLAG_RAW) {
        say(data, size);
        return;
    }
    say(PREFACE, sizeof PREFACE - 1);
    while (size >= 5 && stream_bytes < MOST_BYTES) {
        size_t n = SY_MIN(data[3] | (size_t)data[4] << 8, size - 5);

        if (data[0] % N_KINDS == FILLER) /* a length, and no bytes */
            say_filler(data[1], data[2], data[3] | (size_t)data[4] << 8), n = 0;
        else
            say_record(data[0] % N_KINDS, data[1], data[2], data + 5, n);
        data += 5 + n;
        size -= 5 + n;
    }
}

/* ---- what it is answered ------------------------------------------------------------------------------------------- */

/* Whole frames of known types; a stream ends once, and nothing but a reset follows its end. */
static void check_answers(void)
{
    static bool ended[MOST_STREAM];

    memset(ended, 0, sizeof ended);
    for (size_t at = 0; at < fuzz_answers.n;) {
        const uint8_t *head = fuzz_answers.bytes + at;

        FUZZ_CHECK(fuzz_answers.n - at >= FRAME_HEAD);
        size_t n = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        size_t id =
            (size_t)(head[5] & 0x7f) << 24 | (size_t)head[6] << 16 | (size_t)head[7] << 8 | head[8];
        bool speaks = head[3] == NGHTTP2_DATA || head[3] == NGHTTP2_HEADERS;
        FUZZ_CHECK(head[3] <= NGHTTP2_CONTINUATION && head[3] != NGHTTP2_PUSH_PROMISE);
        FUZZ_CHECK(n <= fuzz_answers.n - at - FRAME_HEAD);
        if (speaks && id < MOST_STREAM) {
            FUZZ_CHECK(id % 2 == 1 && !ended[id]);
            ended[id] = head[4] & NGHTTP2_FLAG_END_STREAM;
        }
        at += FRAME_HEAD + n;
    }
}

/* ---- an input ------------------------------------------------------------------------------------------------------ */

/* As the server's timer does. */
static void pass_an_hour(void)
{
    struct sy_grpc_connection *next;

    for (struct sy_grpc_connection *c = LIST_FIRST(&server->connections); c; c = next) {
        next = LIST_NEXT(c, link);
        sy_grpc_connection_tick(c, sy_clock_now() + 3600 * SY_NS_PER_S);
    }
}

/* The end of an hour, twice: what idles is told to leave, and closed then. */
static void end_late(int fd)
{
    for (int i = 0; i < 2; i++) {
        pass_an_hour();
        fuzz_front_settle(fd, flags & FLAG_THREAD);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    struct fuzz_sending sending;

    if (size < 2)
        return 0;
    set_up();
    flags = data[0];
    sending = (struct fuzz_sending){flags & 7, flags & FLAG_GOES, flags & FLAG_THREAD, NULL};
    fuzz_front.refuses = flags & FLAG_REFUSES;
    fuzz_front.front.offload = flags & FLAG_THREAD ? fuzz_front.offload : NULL;
    fuzz_answers.n = 0;
    say_all(data + 1, size - 1);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    FUZZ_CHECK(sy_grpc_connection_create(server, fds[0]) == SY_OK);
    fuzz_front_send(fds[1], stream, stream_bytes, &sending);
    if (flags & FLAG_LATE)
        end_late(flags & FLAG_GOES ? -1 : fds[1]);
    if (!(flags & FLAG_GOES)) {
        fuzz_front_settle(fds[1], flags & FLAG_THREAD);
        if (fuzz_answers.n < sizeof fuzz_answers.bytes)
            check_answers();
    }
    close(fds[1]);
    fuzz_front_settle(-1, flags & FLAG_THREAD);
    fuzz_front_wait_for_threads(&server->base);
    FUZZ_CHECK(sy_grpc_server_connections(server) == 0);
    FUZZ_CHECK(server->budget.used_bytes == 0 && server->base.refs == 1 && fuzz_front.n_refs == 0);
    FUZZ_CHECK(sy_slab_used_bytes(fuzz_front.slab) == 0);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------------ */

static size_t put_record(uint8_t *to, unsigned kind, uint8_t frame_flags, uint8_t id,
                         const void *bytes, size_t n)
{
    const uint8_t head[] = {(uint8_t)kind, frame_flags, id, (uint8_t)n, (uint8_t)(n >> 8)};

    memcpy(to, head, sizeof head);
    memcpy(to + sizeof head, bytes, n);
    return sizeof head + n;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const uint8_t flag_sets[] = {0, 1, FLAG_GOES, FLAG_REFUSES, FLAG_THREAD, FLAG_LATE};
    int n_paths = (int)SY_ARRAY_LEN(paths), n_flags = (int)sizeof flag_sets;
    size_t n = 1;

    if (i >= n_paths * n_flags || room < 64)
        return 0;
    to[0] = flag_sets[i % n_flags];
    n += put_record(to + n, CALL, NGHTTP2_FLAG_END_HEADERS, 1,
                    (uint8_t[]){(uint8_t)(i / n_flags), 0}, 2);
    if (i / n_flags < 2)
        n += put_record(to + n, INFER, NGHTTP2_FLAG_END_STREAM, 1, "\1\0\0", 3);
    else
        n += put_record(to + n, MESSAGE, NGHTTP2_FLAG_END_STREAM, 1, "\0\n\1m", 4);
    return n;
}

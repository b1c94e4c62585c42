/* Internals of the gRPC front end: server, connection, stream, reply. */
#ifndef SY_FRONT_GRPC_INTERNAL_H
#define SY_FRONT_GRPC_INTERNAL_H

#include <event2/event.h>
#include <jansson.h>
#include <nghttp2/nghttp2.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "runtime/front/access/access.h"
#include "runtime/front/front_acquire.h"
#include "runtime/front/front_server.h"
#include "runtime/front/grpc/grpc_block.h"
#include "runtime/front/grpc/grpc_server.h"
#include "runtime/front/grpc/grpc_status.h"
#include "runtime/front/least_rate.h"
#include "runtime/front/socket_events.h"
#include "runtime/net/tls.h"

#define SY_GRPC_READ_BYTES (256u << 10) /* of one recv */
/* Unread answers of a ModelStreamInfer, in the slab, above which its next request is not read. */
#define SY_GRPC_UNSENT_MOST (1u << 20)

struct sy_grpc_connection;
struct sy_grpc_infer;
struct sy_closed_watch;
struct sy_grpc_inflate;
struct sy_grpc_deferred;
struct sy_grpc_stream;

struct sy_grpc_server {
    struct sy_front_server base; /* first: front_server.h */
    struct sy_front *front;
    struct sy_grpc_limits limits;
    struct sy_grpc_budget budget;
    struct event *flush_event;
    struct sy_closed_watch *closed_watch;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options;
    LIST_HEAD(, sy_grpc_connection) connections;
    struct sy_grpc_connection *dirty, **dirty_end; /* first marked, first flushed */
    struct sy_grpc_out *spare_out;
    uint8_t *received; /* SY_GRPC_READ_BYTES: what was read last */
    bool is_draining;
};

/* The frame that is being received. nghttp2 says of a frame that it has begun, but not of every one that it ignores when it ends. */
struct sy_grpc_frame {
    uint8_t head[9]; /* length, type, flags, stream */
    uint32_t n_head; /* bytes of it that are there; 0: between two frames */
    uint32_t left;   /* of what follows the head, or of the preface */
    sy_ns begun_ns;
};

struct sy_grpc_connection {
    struct sy_grpc_server *server;
    LIST_ENTRY(sy_grpc_connection) link;
    struct sy_grpc_connection *next_dirty, **previous_dirty;
    nghttp2_session *session;
    int fd;
    struct sy_socket_events events; /* again: TLS bytes that were decrypted and not taken */
    struct sy_tls_stream *tls;      /* NULL: plain */
    LIST_HEAD(, sy_grpc_stream) streams;
    struct sy_grpc_out *out; /* output that the socket has not taken; NULL: none */
    uint64_t unsent_bytes;   /* replies of its streams */
    bool is_dirty;           /* in server->dirty */
    bool in_library;         /* nghttp2 is running: it must not be closed */
    bool closes;             /* when nghttp2 has returned */
    bool is_read;            /* a stream that holds has sent some of its answers */
    bool has_spoken, is_leaving;
    bool
        ended; /* the client sends no more: calls that were whole are answered, then it is closed */
    struct sy_grpc_frame frame;
    sy_ns opened_ns, active_ns;      /* when the last call began or ended */
    struct sy_transfer_pace written; /* pace at which the socket takes output */
    int n_pings;                     /* since the last tick */
};

/* A message that is being sent: segments of memory, and the owner to release afterwards. */
struct sy_grpc_reply {
    struct sy_grpc_reply *next;
    int refs; /* its stream's queue, and pieces that wait for the socket */
    int n_segments, at;
    struct sy_grpc_buffer head; /* freed with it */
    void (*release)(void *ctx); /* NULL: none */
    void *ctx;
    struct sy_grpc_bytes segments[];
};

/* A message that is being received; what follows a held one waits in `bytes`. */
struct sy_grpc_incoming {
    struct sy_grpc_block bytes;
    struct sy_grpc_block *source; /* the block that holds the current message, or NULL */
    size_t n_unread;              /* of bytes: the stream's window is not opened for them yet */
    uint64_t direct;              /* bytes of the message that go to the slab as they come */
    size_t scanned;               /* bytes of its head scanned by the method's try_direct */
    bool no_direct;
    bool ended;   /* the client has half-closed */
    bool is_over; /* the method was told so */
    int holds;    /* above 0: the next message waits */
    int n_messages;
};

struct sy_grpc_method {
    const char *path;
    unsigned right; /* the right that a caller needs (access.h) */
    bool is_stream; /* of requests */
    bool is_infer;  /* its messages may have message_bytes */
    /* Messages whose head says enough, of large ones: NULL, or see sy_grpc_infer_try_direct. */
    bool (*try_direct)(struct sy_grpc_stream *stream, struct sy_grpc_bytes begun, uint64_t bytes);
    void (*direct)(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes, bool is_last);
    /* A whole message, inflated: valid during the call, or see sy_grpc_keep. */
    void (*on_message)(struct sy_grpc_stream *stream, struct sy_grpc_bytes message);
    void (*on_end)(struct sy_grpc_stream *stream); /* no more messages; NULL: nothing to do */
    /* Calls whose messages pass as JSON (on_message is call_json). SY_OK: *out is the answer, NULL for an empty one. SY_GRPC_DEFERRED: see
     * sy_grpc_deferred_create. Else an error. */
    int (*call)(struct sy_grpc_stream *stream, const json_t *request, json_t **out);
    const ProtobufCMessageDescriptor *request, *response;
};
#define SY_GRPC_DEFERRED 1

struct sy_grpc_stream {
    struct sy_grpc_connection *connection;
    LIST_ENTRY(sy_grpc_stream) link;
    int32_t id;
    const struct sy_grpc_method *method; /* NULL: refused */
    /* of the request's headers */
    uint64_t header_bytes;
    bool is_post, is_grpc;
    bool has_headers;  /* all of them */
    bool wants_status; /* triton_grpc_error: an error ends its ModelStreamInfer */
    enum sy_grpc_encoding encoding;
    unsigned accepted; /* encodings, a bit each */
    sy_ns deadline_ns; /* when; 0: none */
    struct event *deadline_event;
    char tenant[SY_CORE_TENANT_NAME]; /* "": none */
    char *traceparent, *tracestate;   /* NULL: none */
    char *authorization;              /* NULL: none */
    struct sy_grant grant;            /* when all headers are there */
    enum sy_grpc_code refused;        /* for its headers; OK: not */
    const char *why;                  /* static; NULL: the headers are too large */
    struct sy_grpc_incoming incoming;
    /* to the client */
    struct sy_grpc_reply *replies, **end;
    uint64_t unsent_bytes;
    bool has_begun; /* response headers are out */
    bool is_done;   /* the status is final: no more messages */
    bool is_reset;
    enum sy_grpc_code code;
    char *message; /* NULL: none */
    sy_ns created_ns;
    struct sy_transfer_pace pace; /* pace of its messages and answers */
    /* of methods */
    struct sy_grpc_infer *infers, **infers_end; /* in the order of the requests */
    struct sy_grpc_infer *receiving;            /* its raw contents are being received */
    int n_infers;
    bool infers_hold;
    bool takes_no_more; /* its token is gone: its requests are answered, then it ends */
    struct sy_grpc_inflate *inflate;
    struct sy_grpc_deferred *deferred;
    bool is_watching;
    int health;
};

/* ---- grpc_mark.c ---- */
/* Checks the result of an nghttp2_submit call. Without memory the frame will never be sent, so the connection ends: its client must not wait for ever. */
void sy_grpc_connection_submitted(struct sy_grpc_connection *connection, int result);
/* There is something to be sent: at the end of this turn of the loop. */
void sy_grpc_connection_mark(struct sy_grpc_connection *connection);

/* ---- grpc_connection.c ---- */
int sy_grpc_connection_create(struct sy_grpc_server *server, int fd);
/* At once, or when nghttp2 has returned. */
void sy_grpc_connection_close(struct sy_grpc_connection *connection);
/* GR7: while its client sends no more. */
void sy_grpc_connection_gone(void *connection, bool is_gone);
void sy_grpc_connection_flush_all(struct sy_grpc_server *server);
void sy_grpc_connection_tick(struct sy_grpc_connection *connection, sy_ns now);
/* No new streams: GOAWAY. */
void sy_grpc_connection_leave(struct sy_grpc_connection *connection, uint32_t code);

/* ---- grpc_session.c: nghttp2's callbacks ---- */
int sy_grpc_session_set_up(struct sy_grpc_server *server);
int sy_grpc_session_create(struct sy_grpc_connection *connection);

/* ---- grpc_stream.c ---- */
struct sy_grpc_stream *sy_grpc_stream_create(struct sy_grpc_connection *connection, int32_t id);
/* The stream is over, for whatever reason: its requests are canceled. */
void sy_grpc_stream_destroy(struct sy_grpc_stream *stream);
/* All headers are there. */
void sy_grpc_stream_begin(struct sy_grpc_stream *stream);
void sy_grpc_stream_header(struct sy_grpc_stream *stream, const char *name, size_t name_bytes,
                           const char *value, size_t value_bytes);
void sy_grpc_stream_tick(struct sy_grpc_stream *stream, sy_ns now);

/* ---- grpc_access.c ---- */
/* All headers are there: OK, or the code to refuse with and *why, the thread's error text. */
enum sy_grpc_code sy_grpc_stream_allow(struct sy_grpc_stream *stream, const char **why);
/* Looks the stream's token up again: it may be gone or have fewer rights by now. The thread's error text says why. */
enum sy_grpc_code sy_grpc_stream_look_up(struct sy_grpc_stream *stream);

/* ---- grpc_incoming.c ---- */
void sy_grpc_incoming_data(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes);
void sy_grpc_incoming_end(struct sy_grpc_stream *stream);
/* A3: before each later message of its stream. False: its token is gone or has less rights now. The call
 * fails when the requests that came before are answered. */
bool sy_grpc_incoming_is_allowed(struct sy_grpc_stream *stream);
/* A stream with many requests is not read until one is answered, nor one whose client does not read the answers. */
void sy_grpc_incoming_check_hold(struct sy_grpc_stream *stream);
/* Ends one hold: messages are handled again after the last. */
void sy_grpc_incoming_go_on(struct sy_grpc_stream *stream);
void sy_grpc_incoming_finish(struct sy_grpc_stream *stream);

/* ---- grpc_keep.c ---- */
/* Later messages of the stream wait until sy_grpc_incoming_go_on; holds are counted. */
void sy_grpc_incoming_hold(struct sy_grpc_stream *stream);
/* The message that is being handled, for a method that needs it after its call: *out owns it then, *view is the message in it. Large ones are not copied. */
int sy_grpc_keep(struct sy_grpc_stream *stream, struct sy_grpc_bytes message,
                 struct sy_grpc_block *out, struct sy_grpc_bytes *view);
/* The most bytes that a message of this stream may have, inflated. */
uint64_t sy_grpc_most_bytes(const struct sy_grpc_stream *stream);

/* ---- grpc_inflate.c ---- */
/* A compressed message: handed to the method when it is inflated, here, or on a thread while the stream holds; then(stream) is called behind it then. */
void sy_grpc_inflate_message(struct sy_grpc_stream *stream, struct sy_grpc_bytes message,
                             void (*then)(struct sy_grpc_stream *stream));
void sy_grpc_inflate_drop(struct sy_grpc_stream *stream);

/* ---- grpc_reply.c ---- */
/* NULL: no memory. */
struct sy_grpc_reply *sy_grpc_reply_create(int n_segments);
void sy_grpc_reply_unref(struct sy_grpc_reply *reply);
/* Takes the reply over. A stream that is done drops it. */
void sy_grpc_stream_send(struct sy_grpc_stream *stream, struct sy_grpc_reply *reply);
/* Messages to this client are compressed, as its own are. */
bool sy_grpc_stream_compresses(const struct sy_grpc_stream *stream);
/* The gRPC prefix of a message of n bytes. */
void sy_grpc_write_prefix(uint8_t *to, bool is_compressed, uint64_t n);
/* Takes over `message`, whose first SY_GRPC_PREFIX bytes are reserved for the prefix. */
#define SY_GRPC_PREFIX 5
void sy_grpc_stream_send_buffer(struct sy_grpc_stream *stream, struct sy_grpc_buffer *message);
/* Ends the call with what was sent before. The first one counts. message NULL: none. */
void sy_grpc_stream_finish(struct sy_grpc_stream *stream, enum sy_grpc_code code,
                           const char *message);
/* With a status of ours, and the thread's error text. */
void sy_grpc_stream_fail(struct sy_grpc_stream *stream, int status);
/* An answer in JSON, and OK; or the status if it is negative. Steals. */
void sy_grpc_stream_answer(struct sy_grpc_stream *stream, int status, json_t *answer);
/* Hands on n bytes of the stream's replies, piece by piece. */
void sy_grpc_reply_take(struct sy_grpc_stream *stream, size_t n,
                        void (*piece)(void *ctx, const uint8_t *data, size_t n,
                                      struct sy_grpc_reply *reply),
                        void *ctx);

/* ---- grpc_methods.c ---- */
const struct sy_grpc_method *sy_grpc_method_find(const char *path, size_t n);

/* ---- grpc_call.c ---- */
struct sy_front *sy_grpc_front(const struct sy_grpc_stream *stream);
/* A member of a request; "": there is none. Lives as long as the request. */
const char *sy_grpc_text(const json_t *request, const char *key);
/* A version as a text; "": 0. EARG. */
int sy_grpc_read_version(struct sy_grpc_bytes text, int64_t *out);
/* A reply that is deferred until the core calls back. done(ctx, status, error) is as sy_core_done; it may come when the stream is gone. NULL: no memory. */
struct sy_grpc_deferred *sy_grpc_deferred_create(struct sy_grpc_stream *stream);
void sy_grpc_deferred_done(void *deferred, int status, const char *error);
void sy_grpc_deferred_drop(struct sy_grpc_stream *stream);
void sy_grpc_deferred_forget(struct sy_grpc_deferred *deferred); /* done will not be called */

/* ---- grpc_calls_model.c, grpc_calls_server.c: calls of the table in grpc_methods.c, each as `call` of struct sy_grpc_method ---- */
#define SY_GRPC_CALLS(X)            \
    X(ServerLive)                   \
    X(ServerReady)                  \
    X(ServerMetadata)               \
    X(ModelReady)                   \
    X(ModelMetadata)                \
    X(ModelConfig)                  \
    X(ModelStatistics)              \
    X(RepositoryIndex)              \
    X(RepositoryModelLoad)          \
    X(RepositoryModelUnload)        \
    X(SystemSharedMemoryStatus)     \
    X(SystemSharedMemoryRegister)   \
    X(SystemSharedMemoryUnregister) \
    X(CudaSharedMemoryStatus)       \
    X(CudaSharedMemoryRegister)     \
    X(CudaSharedMemoryUnregister)   \
    X(TraceSetting)                 \
    X(LogSettings)
#define X(name) int sy_grpc_call_##name(struct sy_grpc_stream *, const json_t *, json_t **);
SY_GRPC_CALLS(X)
#undef X

/* ---- grpc_infer.c ---- */
void sy_grpc_infer_message(struct sy_grpc_stream *stream, struct sy_grpc_bytes message);
void sy_grpc_infer_end(struct sy_grpc_stream *stream);
void sy_grpc_infer_drop_all(struct sy_grpc_stream *stream);
/* A message of `bytes` bytes of which these are there. True: from now on all of it comes by sy_grpc_infer_direct, these too. */
bool sy_grpc_infer_try_direct(struct sy_grpc_stream *stream, struct sy_grpc_bytes begun,
                              uint64_t bytes);
/* The next bytes of it. The last one ends the message. */
void sy_grpc_infer_direct(struct sy_grpc_stream *stream, struct sy_grpc_bytes bytes, bool is_last);

/* ---- grpc_health.c, grpc_reflection.c ---- */
bool sy_grpc_server_is_ready(const struct sy_grpc_server *server);
int sy_grpc_health_check(struct sy_grpc_stream *stream, const json_t *request, json_t **out);
void sy_grpc_health_watch(struct sy_grpc_stream *stream, struct sy_grpc_bytes message);
/* Tells those that watch, if it has changed. */
void sy_grpc_health_tick(struct sy_grpc_stream *stream);
void sy_grpc_reflection_message(struct sy_grpc_stream *stream, struct sy_grpc_bytes message);
void sy_grpc_reflection_end(struct sy_grpc_stream *stream);

#endif

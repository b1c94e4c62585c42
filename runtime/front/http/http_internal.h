/* Internals of the HTTP server: server, connection, call, reply.
 *
 *   socket ─ http_connection.c ─ http_parse.c ─> http_call.c (header lines), http_route.c ─> http_body.c (inflate) ─> sink
 *   socket <─ http_send.c <─ http_reply.c <────────────── segments: text, or tensors where they lie <──────── handler
 *
 * A connection has one call at a time; what a client sends behind it (pipelining) waits in `held`, at most SY_HTTP_HELD_BYTES, then the socket is not read. */
#ifndef SY_FRONT_HTTP_INTERNAL_H
#define SY_FRONT_HTTP_INTERNAL_H

#include <event2/event.h>
#include <http_parser.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <zlib.h>

#include "runtime/base/text_builder.h"
#include "runtime/front/access/access.h"
#include "runtime/front/closed_watch.h"
#include "runtime/front/front_server.h"
#include "runtime/front/http/http_server.h"
#include "runtime/front/least_rate.h"
#include "runtime/front/socket_events.h"
#include "runtime/net/tls.h"

/* Compressed bytes inflated at once: at most half a megabyte when inflated. */
#define SY_HTTP_INFLATE_BYTES 512u
/* Inflated in one turn of the loop, and one piece more. */
#define SY_HTTP_INFLATED_TURN (256u << 10)
/* Bytes of one recv: parsing and inflating them stays below a millisecond. */
#define SY_HTTP_READ_BYTES (64u << 10)
#define SY_HTTP_HELD_BYTES (64u << 10)
/* Unread answers of a client above which its next request is not read. */
#define SY_HTTP_UNSENT_MOST (256u << 10)
#define SY_HTTP_MAX_ROUTES  96
#define SY_HTTP_MAX_FIELDS  100 /* header lines of a request */
#define SY_HTTP_MAX_QUERIES 16
/* Bytes of a refused body that are read and dropped, so that the connection can continue. */
#define SY_HTTP_DISCARD_MOST (64ull << 20)
#define SY_HTTP_SMALL_JSON   (16u << 10)  /* is parsed on the loop: within 0.2 ms */
#define SY_HTTP_TURN_BYTES   (256u << 10) /* of one connection before the others get their turn */

/* Sets the sink of a call whose body is taken as it comes. The HTTP code to refuse with, or 0; *why says why. */
typedef int (*sy_http_begin)(struct sy_http_call *call, const char **why);

struct sy_http_route_entry {
    const struct sy_http_route *route;
    void *ctx;
    sy_http_begin begin; /* NULL: the body is collected, and handled when it is whole */
};

struct sy_http_server {
    struct sy_front_server base; /* first: front_server.h */
    struct sy_front *front;
    struct sy_http_limits limits;
    struct sy_closed_watch *closed_watch;
    LIST_HEAD(, sy_http_connection) connections;
    uint64_t buffered_bytes;
    struct sy_http_route_entry routes[SY_HTTP_MAX_ROUTES];
    int n_routes;
    int n_packages;             /* on their way out (http_package.c) */
    unsigned char *read_buffer; /* SY_HTTP_READ_BYTES, shared: valid during one callback */
};

/* ---- bodies ---- */

/* The consumer of a body's bytes. */
struct sy_http_sink {
    /* n bytes, inflated. SY_OK, or the status to answer with (the rest is discarded). */
    int (*take)(void *ctx, const unsigned char *bytes, uint64_t n);
    /* (optional) Where the next bytes may be received to at once; how many. 0: nowhere. What comes is given to take as well, which finds it there. */
    uint64_t (*room)(void *ctx, unsigned char **to);
    /* (optional) True: take no more until the connection's go_on. */
    bool (*waits)(void *ctx);
    /* (optional) The message is whole: in the place of the route's handler. */
    void (*end)(void *ctx);
    /* (optional) The client is gone, or the call was refused while its body came: called once, before the call is freed. NULL from the answer on. */
    void (*drop)(void *ctx);
    void *ctx;
};

/* ---- a call ---- */

struct sy_http_field {
    uint32_t name, value; /* in `text` */
};

struct sy_http_segment {
    const void *data;
    uint64_t bytes;
};

struct sy_http_call {
    struct sy_http_server *server;
    /* NULL: the client is gone, and the reply will be dropped */
    struct sy_http_connection *connection;
    /* the request */
    unsigned method, http_minor;
    bool keeps_alive, expects_continue, has_body, is_head;
    char *text; /* URL, then names (small letters) and values, each with its 0 */
    uint32_t text_used, text_size, url_bytes;
    struct sy_http_field fields[SY_HTTP_MAX_FIELDS];
    int n_fields;
    bool in_value;
    uint32_t path;
    struct sy_http_field queries[SY_HTTP_MAX_QUERIES]; /* decoded */
    int n_queries;
    uint32_t segments[SY_HTTP_MAX_SEGMENTS];
    int n_segments;
    const struct sy_http_route_entry *entry;
    struct sy_grant grant; /* rights of its client; set with the route */
    /* its body */
    struct sy_http_sink sink;
    uint64_t announced_bytes; /* Content-Length; 0: none or chunked */
    uint64_t taken_bytes;     /* inflated so far */
    bool discards;            /* the reply is decided already */
    bool is_whole;            /* the message has ended */
    bool has_inflate, inflate_ended;
    z_stream inflate;
    uint64_t discarded_bytes; /* after the reply */
    unsigned char *body;      /* of calls whose body is collected */
    uint64_t body_used, body_size;
    json_t *parsed; /* a long body that a thread has parsed; or why not */
    int parse_status;
    char *parse_why;
    /* the reply */
    bool replied;
    char *extra_headers; /* lines, or NULL */
    bool lacks_header;   /* no memory for one: the call has no reply, its connection ends */
};

/* ---- a reply ---- */

struct sy_http_reply {
    struct sy_http_reply *next;
    struct sy_http_server *server;
    struct sy_http_segment *segments; /* n_segments */
    int n_segments;
    uint64_t bytes, sent;
    char *head;                 /* owned: status line and header lines, and a short text */
    struct sy_text text;        /* owned: a long one */
    void (*release)(void *ctx); /* (optional) when it is sent or dropped */
    void *ctx;
};

struct sy_http_stream {
    struct sy_http_connection *connection;
    bool is_chunked, keeps_alive;
    void (*closed)(void *ctx);
    void *ctx;
};

/* ---- a connection ---- */

struct sy_http_connection {
    struct sy_http_server *server;
    LIST_ENTRY(sy_http_connection) link;
    int fd;   /* -1: closed */
    int refs; /* the server's list, a running callback */
    /* The call's sink takes bytes again, or its call was answered: parses on (http_connection.c, unknown to what answers). */
    void (*go_on)(struct sy_http_connection *connection);
    struct sy_socket_events events;
    uint64_t inflated_bytes; /* in this turn of the loop */
    bool in_parser;
    bool closing; /* when the replies are out; what comes is thrown away */
    bool lingers; /* they are: waits for the client to close */
    bool ended;   /* the client has said that it sends no more */
    bool probed;  /* and was asked whether it still reads */
    bool broken;  /* a reply could not be sent or made: closed as soon as the parser has returned */
    http_parser parser;
    struct sy_http_call *call; /* being received or answered */
    struct sy_http_stream *stream;
    unsigned char *held; /* received, not yet parsed */
    uint32_t held_at, held_used;
    struct sy_http_reply *first_reply, *last_reply;
    uint64_t begun_bytes; /* of the next reply, that were sent in advance (sy_http_reply_begin) */
    uint64_t unsent_bytes;
    struct sy_tls_stream *tls; /* NULL: plain */
    sy_ns opened_ns;
    struct sy_transfer_pace pace; /* of what comes or is sent */
    sy_ns begun_ns; /* the first byte of the request whose header lines are being read; 0: none */
};

/* ---- http_connection.c ---- */
int sy_http_connection_create(struct sy_http_server *server, int fd);
/* While it is not read: its peer sends no more, or is gone. */
void sy_http_connection_gone(void *connection, bool is_gone);
/* Looks at the limits of time; closes it, or answers 408. */
void sy_http_connection_look(struct sy_http_connection *connection, sy_ns now);

/* ---- http_close.c ---- */
/* Closing twice is fine. */
void sy_http_connection_close(struct sy_http_connection *connection);
void sy_http_connection_release(struct sy_http_connection *connection);
/* Without references, or not created wholly. */
void sy_http_connection_free(struct sy_http_connection *connection);

/* ---- http_server.c ---- */
/* As sy_http_server_add_routes, of routes that have no handler, but `begin`. */
int sy_http_server_add_streamed(struct sy_http_server *server, const struct sy_http_route *routes,
                                int n, sy_http_begin begin);

/* ---- http_access.c ---- */
/* Whether its client may call the route that was found. The HTTP code to refuse with (401, 403), or 0; *why says why. */
int sy_http_call_allow(struct sy_http_call *call, const char **why);

/* ---- http_parse.c ---- */
/* Whether the parser may go on: nothing is being answered, the sink takes bytes, the client reads its answers, and others had their turn. */
bool sy_http_takes_bytes(const struct sy_http_connection *connection);
/* Parses as far as it may; how many bytes. Those behind an error count as parsed. */
uint32_t sy_http_parse(struct sy_http_connection *connection, const unsigned char *bytes,
                       uint32_t n);
/* The client sends no more: a request that is not whole is refused. */
void sy_http_parse_end(struct sy_http_connection *connection);

/* ---- http_call.c ---- */
struct sy_http_call *sy_http_call_create(struct sy_http_connection *connection);
void sy_http_call_free(struct sy_http_call *call);
/* Header text as the parser gives it. ETOOBIG. */
int sy_http_call_add_url(struct sy_http_call *call, const char *at, size_t n);
int sy_http_call_add_field(struct sy_http_call *call, const char *at, size_t n, bool is_value);
/* Ends the text that was added last. */
void sy_http_call_end_text(struct sy_http_call *call);
/* Value of a whole number in a header. False: the header is absent. *out is UINT64_MAX if the value is not a number. */
bool sy_http_call_number(const struct sy_http_call *call, const char *name, uint64_t *out);
/* Its sink takes no more. */
static inline void sy_http_sink_drop(struct sy_http_call *call)
{
    void (*drop)(void *ctx) = call->sink.drop;

    call->sink.drop = NULL;
    call->sink.end = NULL;
    if (drop)
        drop(call->sink.ctx);
}

/* ---- http_route.c ---- */
/* All header lines are there: finds the route. The HTTP code to refuse with, or 0; *why says why. */
int sy_http_call_route(struct sy_http_call *call, const char **why);

/* ---- http_body.c ---- */
/* Sets the sink and what inflates in front of it. The HTTP code to refuse with, or 0. */
int sy_http_body_begin(struct sy_http_call *call, const char **why);
/* Bytes as they came. SY_OK, or what to answer with. */
int sy_http_body_take(struct sy_http_call *call, const unsigned char *bytes, uint64_t n);
int sy_http_body_end(struct sy_http_call *call); /* ECORRUPT: the compressed stream has no end */
/* The message is whole: calls the route's handler; behind a thread that parses the body, where it is long. */
void sy_http_body_handle(struct sy_http_call *call);

/* ---- http_reply.c ---- */
/* Frees the call: header lines, then `text` (the reply's from now on), cut by tensors: `tensors[i]` comes behind the first `cuts[i]` bytes of the text.
 * release(ctx) is called once. */
void sy_http_reply_tensors(struct sy_http_call *call, const char *type, struct sy_text *text,
                           const struct sy_http_segment *tensors, const uint64_t *cuts,
                           int n_tensors, void (*release)(void *ctx), void *ctx);
/* An error answer of the server itself, in words; takes the call. */
void sy_http_reply_refuse(struct sy_http_call *call, int code, const char *why);
/* "100 Continue" to a client that waits for it before its body. Not behind other replies: clients go on after a timeout without it. */
void sy_http_reply_continue(struct sy_http_connection *connection);
/* The bytes that every reply begins with, in advance of the next one. Not behind other replies. */
#define SY_HTTP_BEGIN "HTTP/1.1 "
void sy_http_reply_begin(struct sy_http_connection *connection);
/* Says why to a socket that is no connection yet, if it takes that at once. */
void sy_http_refuse(int fd, int code, const char *why);
int sy_http_status_code(int status); /* of an error: 400, 404, ... */

/* ---- http_send.c ---- */
/* A reply of `head`, which is owned from now on, with room for more segments. NULL: no memory, and head is freed. */
struct sy_http_reply *sy_http_reply_create(struct sy_http_server *server, char *head,
                                           uint64_t bytes, int more_segments);
void sy_http_reply_free(struct sy_http_reply *reply);
void sy_http_reply_add(struct sy_http_reply *reply, const void *data, uint64_t bytes);
/* Takes the reply over. NULL: the client cannot be answered, so the connection goes. */
void sy_http_reply_send(struct sy_http_connection *connection, struct sy_http_reply *reply);
/* Writes what the socket takes; false: the connection is broken. */
bool sy_http_reply_flush(struct sy_http_connection *connection);
void sy_http_reply_drop_all(struct sy_http_connection *connection);

#endif

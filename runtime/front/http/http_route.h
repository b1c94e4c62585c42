/* HTTP requests as handlers see them: a table of routes, and the call to answer.
 *
 *   static const struct sy_http_route routes[] = {
 *       {"GET", "/v2/models/{}/ready", SY_RIGHT_READ, on_ready},          {} is one segment, percent-decoded
 *       {"POST", "/v2/repository/index", SY_RIGHT_READ, on_index},
 *   };
 *   sy_http_server_add_routes(server, routes, SY_ARRAY_LEN(routes), ctx);
 *
 * H1: a handler answers with exactly one sy_http_reply*, at once or later; the call is the handler's until then, also when its client is gone (the
 *     reply is dropped then).
 * H2: a handler does not hold the loop: what takes longer than a millisecond goes to sy_offload.
 * H3: GET routes answer HEAD too. A path that no route has is 404, a method that a path does not have 405 with Allow.
 *
 * One thread, the event loop's. */
#ifndef SY_FRONT_HTTP_ROUTE_H
#define SY_FRONT_HTTP_ROUTE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/front/access/access.h"

struct sy_http_server;
struct sy_http_call;

/* The body, if there is one, is whole and inflated (at most the server's limit for bodies that are no tensors). */
typedef void (*sy_http_handler)(void *ctx, struct sy_http_call *call);

struct sy_http_route {
    const char *method;  /* "GET", "POST", ... */
    const char *pattern; /* at most SY_HTTP_MAX_SEGMENTS {} */
    unsigned right;      /* the right that a caller needs (access.h) */
    sy_http_handler handle;
};
#define SY_HTTP_MAX_SEGMENTS 4

/* `routes` and the strings in it outlive the server. ENOMEM_HOST. */
int sy_http_server_add_routes(struct sy_http_server *server, const struct sy_http_route *routes,
                              int n, void *ctx);

/* ---- the request ---- all are valid until the reply */
/* value of the index-th {} */
const char *sy_http_call_segment(const struct sy_http_call *call, int index);
/* The value of a query parameter, decoded; "" for one without a value; NULL: there is none. */
const char *sy_http_call_query(const struct sy_http_call *call, const char *name);
const char *sy_http_call_header(const struct sy_http_call *call, const char *name); /* NULL: none */
/* The client is on this machine (tcp_listen.h). False also where it is gone. */
bool sy_http_call_is_local(const struct sy_http_call *call);
/* Its client showed a token of this server (which has the right that the route needs). */
bool sy_http_call_has_token(const struct sy_http_call *call);
/* Its client's rights; valid until the reply. */
const struct sy_grant *sy_http_call_grant(const struct sy_http_call *call);
/* The body as JSON, the caller's reference. EARG says where it is none; an empty body gives an empty object. */
int sy_http_call_json(const struct sy_http_call *call, json_t **out);

/* ---- the reply ---- each ends the call */
/* `type` may be NULL for no body. The body is copied. */
void sy_http_reply(struct sy_http_call *call, int code, const char *type, const void *body,
                   size_t bytes);
void sy_http_reply_json(struct sy_http_call *call, int code, json_t *body); /* steals */
/* {"error": message} with the code that belongs to the status (400, 404, 503 ...); message NULL: the thread's error text. */
void sy_http_reply_error(struct sy_http_call *call, int status, const char *message);
/* Before the reply: one more header line. Neither may have control characters. */
void sy_http_call_add_header(struct sy_http_call *call, const char *name, const char *value);

/* ---- replies without an end (server-sent events) ---- */
struct sy_http_stream;
/* Ends the call: from now on it is the stream. closed(ctx) is called once, when the client is gone or the server ends it; the stream is gone then. NULL: the
 * client is gone already, or asked for the header lines only (HEAD); closed is not called. */
struct sy_http_stream *sy_http_stream_begin(struct sy_http_call *call, const char *type,
                                            void (*closed)(void *ctx), void *ctx);
/* Copies. False: the client does not read and has `unsent` bytes or more waiting already (then nothing is added), so skip this one.
 * False too where the client is found gone; closed is called from the loop then, never from inside. */
bool sy_http_stream_write(struct sy_http_stream *stream, const void *data, size_t bytes);
/* As sy_http_stream_begin, for a body of known length in blocks that are not copied (sy_http_stream_give). code, length: the answer's. The caller gives all
 * of it before the end. */
struct sy_http_stream *sy_http_stream_begin_sized(struct sy_http_call *call, int code,
                                                  const char *type, uint64_t length,
                                                  void (*closed)(void *ctx), void *ctx);
/* Sends from where it lies; release(ctx) is called once, when it is sent or dropped, perhaps from inside, and calls nothing of the stream. Only of a stream of known length. */
void sy_http_stream_give(struct sy_http_stream *stream, const void *data, size_t bytes,
                         void (*release)(void *ctx), void *ctx);
/* The announced body cannot be sent: ends the connection, and the stream with it; closed is called from the loop. */
void sy_http_stream_fail(struct sy_http_stream *stream);
void sy_http_stream_end(struct sy_http_stream *stream); /* closed is not called */

#endif

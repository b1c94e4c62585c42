/* The HTTP/1.1 server: connections, limits, routes.
 *
 * The parser is http-parser (Debian). Bodies of tensors do not pass here as one piece: the infer route takes them as they come (http_infer.h).
 *
 * One thread, the event loop's. */
#ifndef SY_FRONT_HTTP_SERVER_H
#define SY_FRONT_HTTP_SERVER_H

#include <stdint.h>

#include "runtime/front/http/http_route.h"
#include "runtime/front/request/front.h"

struct sy_http_limits {
    uint64_t header_bytes; /* request line and header lines; 0: 32 KiB; more is 431 */
    uint64_t body_bytes;   /* of one request, inflated; 0: 1 GiB; more is 413 */
    /* limit of a body other than an inference request's; 0: 64 MiB; more is 413 */
    uint64_t small_bytes;
    uint64_t buffered_bytes; /* of unfinished requests of all connections; 0: 2 GiB; more is 503 */
    int json_depth;          /* nesting; 0: 64; more is 400 */
    int max_connections;     /* 0: 4096; more are answered 503 and closed */
    sy_ns idle_ns;           /* a connection without a request; 0: 75 s */
    sy_ns header_ns; /* from a request's first byte to its last header; 0: 10 s; more is 408 */
    sy_ns stall_ns;  /* a body, or an answer, without progress; 0: 30 s; 408, or closed */
};

struct sy_http_config {
    const char *address; /* "host:port"; port 0: any */
    struct sy_http_limits limits;
};

/* Listens. EARG: bad address; EBUSY: the port is taken; EIO. `front` outlives the server. */
int sy_http_server_create(const struct sy_http_config *config, struct sy_front *front,
                          struct sy_http_server **out);
/* Other limits from now on, 0 as above; requests that are being read keep what they were let in with. */
void sy_http_server_set_limits(struct sy_http_server *server, const struct sy_http_limits *limits);
/* Closes listeners and connections. Requests at the core are canceled; the server's memory goes when the core has called back for the last of
 * them, so destroy the server before the core, and the slab last. */
void sy_http_server_destroy(struct sy_http_server *server); /* NULL is fine */
int sy_http_server_port(const struct sy_http_server *server);
int sy_http_server_connections(const struct sy_http_server *server);
/* Bytes of answers that clients have not taken yet. NULL: 0. */
uint64_t sy_http_server_unsent(const struct sy_http_server *server);

#endif

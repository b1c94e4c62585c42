/* The gRPC server: connections, limits. Which calls there are is in README.md.
 *
 *   socket -> HTTP/2 (libnghttp2) -> message -> front_infer.h, or JSON of a small call -> the same way back, tensors from the slab
 *
 * One thread, the event loop's. */
#ifndef SY_FRONT_GRPC_SERVER_H
#define SY_FRONT_GRPC_SERVER_H

#include <stdint.h>

#include "runtime/front/request/front.h"

struct sy_grpc_limits {
    uint64_t
        message_bytes; /* of one inference request, inflated; 0: 1 GiB; more is RESOURCE_EXHAUSTED */
    uint64_t small_bytes; /* of any other message; 0: 4 MiB; likewise */
    uint64_t
        buffered_bytes; /* of unfinished messages of all connections; 0: 2 GiB; more is UNAVAILABLE */
    uint64_t
        unsent_bytes; /* answers of one connection that its client does not read; 0: 512 MiB; more closes it */
    uint64_t header_bytes; /* of one request, decompressed; 0: 16 KiB; more is RESOURCE_EXHAUSTED */
    int max_connections;   /* 0: 4096; more are closed at once */
    int max_streams; /* calls of one connection at a time; 0: 256; more are refused by HTTP/2's REFUSED_STREAM */
    int max_outstanding; /* requests of one ModelStreamInfer at a time; 0: 64; more are not read until one is answered */
    int pings_per_s; /* PING and SETTINGS of one connection, also calls that it resets; 0: 1000; more ends it with ENHANCE_YOUR_CALM */
    sy_ns idle_ns;   /* a connection without a call; 0: 30 min; then GOAWAY */
    sy_ns
        header_ns; /* from connecting to HTTP/2's preface, and for a call's headers and each frame but data; 0: 10 s */
    sy_ns stall_ns; /* half a message, or an answer, without progress; 0: 30 s; the call is reset */
};

struct sy_grpc_config {
    const char *address; /* "host:port"; port 0: any */
    struct sy_grpc_limits limits;
};

struct sy_grpc_server;

/* Listens. EARG: bad address; EBUSY: the port is taken; EIO, ENOMEM_HOST. `front` outlives the server. */
int sy_grpc_server_create(const struct sy_grpc_config *config, struct sy_front *front,
                          struct sy_grpc_server **out);
/* Other limits from now on, 0 as above; what HTTP/2 told a connection at its start (streams, headers) stays for that connection. */
void sy_grpc_server_set_limits(struct sy_grpc_server *server, const struct sy_grpc_limits *limits);
/* Accepts no more, tells clients by GOAWAY to call elsewhere, and health says NOT_SERVING; calls that are there end as they would. */
void sy_grpc_server_drain(struct sy_grpc_server *server); /* NULL is fine */
/* Closes listener and connections. Requests at the core are canceled; the server's memory goes when the core has called back for the last of
 * them, so destroy the server before the core, and the slab last. Threads beside the loop (front->offload) must have ended before, or end after. */
void sy_grpc_server_destroy(struct sy_grpc_server *server); /* NULL is fine */
int sy_grpc_server_port(const struct sy_grpc_server *server);
int sy_grpc_server_connections(const struct sy_grpc_server *server);
/* Bytes of answers that clients have not taken yet. NULL: 0. */
uint64_t sy_grpc_server_unsent(const struct sy_grpc_server *server);

#endif

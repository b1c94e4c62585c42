/* The msgpack-RPC front end: requests from sockets to the core, tensors straight between socket and slab.
 *
 *   socket -> buffer -> scan (bounded) -> request -> checks against the package -> slab, or region -> core
 *   socket <- sendmsg <------------------ head + tensors lying in the slab <------------------------ done
 *
 * The public specification: request [0, id, method, params], response [1, id, error, result], notification
 * [2, method, params]. An error is {"status": "EARG", "message": "..."}. The methods are listed in README.md.
 *
 * F1: nothing is allocated for a message by what it claims, only by what has arrived; but for long tensors, within bounds (L1, rpc_long.h).
 * F2: an ill-formed message ends its connection, after an error response; an ill-formed request gets an error only.
 * F3: a connection with max_outstanding requests is not read until one of them is answered. Where its client closes it before, they are canceled, and
 *     what was not read is lost.
 * F4: slab tensors belong to the request until its outputs are sent, also when its client is gone: workers may still write.
 * F5: a local client may share memory, and then its tensors stay there (rpc_region.h). A client that never asks for it needs to know nothing of it.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_RPC_SERVER_H
#define SY_RUNTIME_RPC_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/front/request/front.h"

#define SY_RPC_MESSAGE_BYTES    (256ull << 20)
#define SY_RPC_REGION_BYTES     (1ull << 30)
#define SY_RPC_ALL_REGION_BYTES (4ull << 30)

struct sy_rpc_limits {
    uint64_t message_bytes;  /* 0: SY_RPC_MESSAGE_BYTES */
    uint64_t buffered_bytes; /* of all connections together; 0: 1 GiB */
    int max_connections;     /* 0: 256; more are told EBUSY and closed at once */
    int max_outstanding;     /* requests of one connection; 0: 64 */
    sy_ns stall_ns;          /* half a message, or an unread answer, without progress; 0: 30 s */
    sy_ns receive_ns;        /* a job that comes from another server, likewise; 0: 60 s */
    uint64_t
        unsent_bytes; /* answers of one connection waiting to be read; 0: 512 MiB; more closes it */
    uint64_t region_bytes; /* of shared memory, of one connection; 0: SY_RPC_REGION_BYTES */
    uint64_t
        all_region_bytes; /* of all connections together; 0: SY_RPC_ALL_REGION_BYTES, at least region_bytes */
    int max_regions; /* of one connection; 0: 64 */
};

struct sy_rpc_config {
    const char *socket_path;  /* Unix socket; NULL: none */
    unsigned socket_mode;     /* 0: 0600, or 0660 with a group */
    const char *socket_group; /* name or number; NULL: this process's */
    const char *tcp_address;  /* "host:port", or ":port" for 127.0.0.1; NULL: none */
    struct sy_rpc_limits limits;
};

struct sy_rpc_server;

/* Listens. EBUSY: somebody answers on the socket already; EARG: bad address; EIO. `front` outlives the server. */
int sy_rpc_server_create(const struct sy_rpc_config *config, struct sy_front *front,
                         struct sy_rpc_server **out);
/* Closes listeners and connections and removes the socket file. Requests at the core are cancelled; the server's memory goes when the
 * core has called back for the last of them, so destroy the server before the core, and the slab last. */
void sy_rpc_server_destroy(struct sy_rpc_server *server);
int sy_rpc_server_port(const struct sy_rpc_server *server); /* TCP port in use, 0: none */
int sy_rpc_server_connections(const struct sy_rpc_server *server);
/* Bytes of answers that clients have not taken yet. NULL: 0. */
uint64_t sy_rpc_server_unsent(const struct sy_rpc_server *server);

#endif

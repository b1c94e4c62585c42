/* Memory that a local client shares with the server: it writes inputs and reads outputs there, and no tensor goes through the socket.
 *
 *   region_create ─> memfd, all its seals set ─> core (region_add) ─> the answer's first byte carries the descriptor
 *   region_drop, or the connection closes ─> core (region_drop), once no request uses the region
 *
 * G1: a request names regions of its own connection only.
 * G2: a region stays at the core until its client has dropped it and the last request that uses it is freed.
 * G3: bytes count against the limits until then.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_RPC_REGION_H
#define SY_RUNTIME_RPC_REGION_H

#include <stdint.h>

#define SY_RPC_REGION_ALIGN 64 /* bytes; offsets of tensors are multiples of it */

struct sy_rpc_connection;

struct sy_rpc_region {
    struct sy_rpc_region *next; /* next of its connection */
    struct sy_rpc_connection *connection;
    uint64_t id, bytes; /* id: the core's */
    int refs;           /* its connection's, each request's that uses it */
};

/* *out_fd: the memory, the caller's. EARG, EUNSUPPORTED (not over TCP), EBUSY (the limits), ENOMEM_HOST. The region is the connection's. */
int sy_rpc_region_create(struct sy_rpc_connection *connection, uint64_t bytes,
                         struct sy_rpc_region **out, int *out_fd);
/* The connection's region of this id (borrowed), or NULL (G1). */
struct sy_rpc_region *sy_rpc_region_find(const struct sy_rpc_connection *connection, uint64_t id);
struct sy_rpc_region *sy_rpc_region_hold(struct sy_rpc_region *region);
void sy_rpc_region_release(struct sy_rpc_region *region);
/* The client has no more use for it: no later request finds it. */
void sy_rpc_region_drop(struct sy_rpc_region *region);
void sy_rpc_region_drop_all(struct sy_rpc_connection *connection);

#endif

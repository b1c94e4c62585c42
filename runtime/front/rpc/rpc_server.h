/* The msgpack-RPC front end: requests from sockets to the core, tensors straight between socket and slab.
 *
 *   socket -> buffer -> scan (bounded) -> request -> checks against the package -> slab -> core
 *   socket <- writev  <------------------ head + tensors lying in the slab <-------------- done
 *
 * The public specification: request [0, id, method, params], response [1, id, error, result], notification
 * [2, method, params]. An error is {"status": "EARG", "message": "..."}. The methods are listed in runtime/README.md.
 *
 * F1: nothing is allocated for a message by what it claims, only by what has arrived.
 * F2: an ill-formed message ends its connection, after an error response; an ill-formed request gets an error only.
 * F3: a connection with max_outstanding requests is not read until one of them is answered. Where its client closes it before, they are canceled, and
 *     what was not read is lost.
 * F4: slab tensors belong to the request until its outputs are sent, also when its client is gone: workers may still write.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_RPC_SERVER_H
#define SY_RUNTIME_RPC_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/core.h"

/* What the server needs of the core, as in runtime/core.h; runtime/front/rpc/rpc_core.c binds it, tests bind fakes. */
struct sy_rpc_handlers {
    struct sy_slab *(*slab)(void *core);
    int (*model_find)(void *core, const char *name, const struct sy_package **out);
    int (*infer)(void *core, const char *model, int64_t batch, const uint64_t *inputs,
                 const uint64_t *outputs, const struct sy_core_infer_options *options,
                 sy_core_infer_done done, void *ctx, uint64_t *out_id);
    void (*infer_cancel)(void *core, uint64_t id);
    int (*model_add)(void *core, const char *path, const char *name, const char *tenant,
                     sy_core_done done, void *ctx);
    int (*model_remove)(void *core, const char *name);
    int (*model_evict)(void *core, const char *name, bool image_too);
    int (*job_submit)(void *core, const char *text, sy_core_done done, void *ctx,
                      uint64_t *out_job);
    int (*job_stop)(void *core, uint64_t job, bool evaluate, sy_core_done done, void *ctx);
    int (*job_suspend)(void *core, uint64_t job, bool suspended);
    int (*job_set_priority)(void *core, uint64_t job, int priority);
    int (*policy_set)(void *core, json_t *params);
    int (*tenant_set)(void *core, json_t *params);
    int (*status)(void *core, json_t **out);
    void (*trace_enable)(void *core, bool enable);
    int (*trace_dump)(void *core, json_t **out);
    void (*drain)(void *core, sy_ns grace_ns, void (*done)(void *ctx), void *ctx);
};

#define SY_RPC_MESSAGE_BYTES (256ull << 20)

struct sy_rpc_limits {
    uint64_t message_bytes;  /* 0: SY_RPC_MESSAGE_BYTES */
    uint64_t buffered_bytes; /* of all connections together; 0: 1 GiB */
    int max_connections;     /* 0: 256; more are told EBUSY and closed at once */
    int max_outstanding;     /* requests of one connection; 0: 64 */
    sy_ns stall_ns;          /* half a message, or an unread answer, without progress; 0: 30 s */
    uint64_t
        unsent_bytes; /* answers of one connection waiting to be read; 0: 512 MiB; more closes it */
};

struct sy_rpc_config {
    const char *socket_path; /* Unix socket, mode 0600; NULL: none */
    const char *tcp_address; /* "host:port", or ":port" for 127.0.0.1; NULL: none */
    struct sy_rpc_limits limits;
};

struct sy_rpc_server;

/* Listens. EBUSY: somebody answers on the socket already; EARG: bad address; EIO. `handlers` and `core` outlive the server. */
int sy_rpc_server_create(struct event_base *base, const struct sy_rpc_config *config,
                         const struct sy_rpc_handlers *handlers, void *core,
                         struct sy_rpc_server **out);
/* Closes listeners and connections and removes the socket file. Requests at the core are cancelled; the server's memory goes when the
 * core has called back for the last of them, so destroy the server before the core, and the slab last. */
void sy_rpc_server_destroy(struct sy_rpc_server *server);
int sy_rpc_server_port(const struct sy_rpc_server *server); /* TCP port in use, 0: none */
int sy_rpc_server_connections(const struct sy_rpc_server *server);

/* The handlers that call sy_core_*; pass the struct sy_core as `core`. */
extern const struct sy_rpc_handlers sy_rpc_core_handlers;

#endif

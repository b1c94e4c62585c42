/* The method infer: what its parts share. */
#ifndef SY_RPC_INFER_INTERNAL_H
#define SY_RPC_INFER_INTERNAL_H

#include "runtime/front/front_infer.h"
#include "runtime/front/rpc/rpc_internal.h"

/* A request, from its call until its answer is sent. */
struct sy_rpc_infer {
    struct sy_rpc_infer *next, *previous; /* of its connection while it is at the core */
    struct sy_rpc_connection *connection;
    struct sy_front_infer *request;
    uint64_t message_id;
    bool answers;
};

/* ---- rpc_infer_check.c: all EARG, with what is wrong ---- */
/* A misspelt deadline must not be no deadline. */
int sy_rpc_infer_check_keys(const msgpack_object *params);
/* A string of the map that fits into `to`, zero-terminated. */
int sy_rpc_infer_read_text(const msgpack_object *map, const char *key, char *to, size_t bytes);
/* All that "inputs" says, added to the request, prepared and written. */
int sy_rpc_infer_read_inputs(struct sy_front_infer *request, const msgpack_object *params);
/* Class, deadline, tenant. */
int sy_rpc_infer_read_options(struct sy_front_infer *request, const msgpack_object *params);
/* 0: none is named. */
int sy_rpc_infer_read_version(const msgpack_object *params, int64_t *out);

#endif

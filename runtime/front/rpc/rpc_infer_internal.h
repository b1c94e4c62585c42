/* The method infer: what its parts share. */
#ifndef SY_RPC_INFER_INTERNAL_H
#define SY_RPC_INFER_INTERNAL_H

#include <sys/queue.h>

#include "runtime/front/front_acquire.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/front/rpc/rpc_region.h"

/* A tensor's place in its client's shared memory. */
struct sy_rpc_place {
    struct sy_rpc_region *region; /* held; NULL: not there, but in the message */
    uint64_t offset, bytes;
};

/* A request, from its call until its answer is sent. */
struct sy_rpc_infer {
    LIST_ENTRY(sy_rpc_infer) link; /* in the list of its connection while the core has it */
    struct sy_rpc_connection *connection;
    struct sy_front_infer *request;
    uint64_t message_id;
    bool answers;
    struct sy_rpc_place *places; /* places of the inputs, then of the outputs; NULL: none is used */
    int n_places;
};

/* ---- rpc_infer_request.c (and rpc_internal.h) ---- */
/* It is at the core, and holds its connection: in the connection's list. Unlinked, it holds it still. */
void sy_rpc_infer_link(struct sy_rpc_infer *infer);
void sy_rpc_infer_unlink(struct sy_rpc_infer *infer);

/* ---- rpc_infer_check.c: all EARG, with what is wrong ---- */
/* A misspelt deadline must not be no deadline. */
int sy_rpc_infer_check_keys(const msgpack_object *params);
/* Reads "inputs" and "outputs": prepares the request, and writes the inputs that came in the message. */
int sy_rpc_infer_read_tensors(struct sy_rpc_infer *infer, const msgpack_object *params);
/* Class, deadline, tenant. */
int sy_rpc_infer_read_options(struct sy_front_infer *request, const struct sy_grant *grant,
                              const msgpack_object *params);
/* 0: none is named. */
int sy_rpc_infer_read_version(const msgpack_object *params, int64_t *out);

/* ---- rpc_infer_place.c ---- */
/* The input lies where `map` says: {region, offset, bytes}. */
int sy_rpc_infer_place_input(struct sy_rpc_infer *infer, int input, const msgpack_object *map);
/* Reads the optional "outputs": [{name, region, offset, bytes}]. After the inputs. */
int sy_rpc_infer_place_outputs(struct sy_rpc_infer *infer, const msgpack_object *params);
/* NULL: the output goes into the answer. */
const struct sy_rpc_place *sy_rpc_infer_output_place(const struct sy_rpc_infer *infer, int output);
void sy_rpc_infer_free_places(struct sy_rpc_infer *infer);

#endif

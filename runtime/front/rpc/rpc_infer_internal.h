/* The method infer: what its parts share. */
#ifndef SY_RPC_INFER_INTERNAL_H
#define SY_RPC_INFER_INTERNAL_H

#include "loader/graph_bind.h"
#include "runtime/front/rpc/rpc_internal.h"

/* A request, from its call until its answer is sent. */
struct sy_rpc_infer {
    struct sy_rpc_infer *next, *previous; /* of its connection while it is at the core */
    struct sy_rpc_connection *connection;
    const struct sy_graph *graph; /* the core keeps a model that has requests */
    uint64_t content;             /* its package's content_hash */
    char model[SY_CORE_MODEL_NAME];
    uint64_t id, message_id;
    bool answers;
    int64_t batch;
    struct sy_sizes sizes;   /* of the model's open dimensions */
    int n_inputs, n_outputs; /* slab pieces that are held */
    uint64_t inputs[SY_RPC_MAX_TENSORS], outputs[SY_RPC_MAX_TENSORS];
    struct sy_core_infer_options options;
    char tenant[64];
};

/* What a request says of its inputs. */
struct sy_rpc_infer_inputs {
    const msgpack_object *data[SY_RPC_MAX_TENSORS]; /* by the graph's order */
    struct sy_given_input given[SY_RPC_MAX_TENSORS];
    int64_t dims[SY_RPC_MAX_TENSORS][SY_MAX_RANK];
    int n;
};

/* ---- rpc_infer_check.c: all EARG, with what is wrong ---- */
/* A misspelt deadline must not be no deadline. */
int sy_rpc_infer_check_keys(const msgpack_object *params);
/* A string of the map that fits into `to`, zero-terminated. */
int sy_rpc_infer_read_text(const msgpack_object *map, const char *key, char *to, size_t bytes);
/* All inputs of infer->graph, each once; batch and sizes are set from their shapes. `inputs` begins zeroed, and points into `params`. */
int sy_rpc_infer_check_inputs(struct sy_rpc_infer *infer, const msgpack_object *params,
                              struct sy_rpc_infer_inputs *inputs);
/* Class, deadline, tenant; they point into `infer`. */
int sy_rpc_infer_read_options(struct sy_rpc_infer *infer, const msgpack_object *params);

#endif

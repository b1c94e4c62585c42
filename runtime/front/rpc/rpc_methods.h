/* The methods. Each one replies, or returns a negative status with its error text, which the caller replies with. */
#ifndef SY_RPC_METHODS_H
#define SY_RPC_METHODS_H

#include <jansson.h>

#include "runtime/front/rpc/rpc_internal.h"

/* ---- rpc_call.c ---- */
void *sy_rpc_core(const struct sy_rpc_request *request);
const struct sy_core_handlers *sy_rpc_handlers(const struct sy_rpc_request *request);
/* Steals. ENOMEM_HOST: result is NULL. */
int sy_rpc_answer(const struct sy_rpc_request *request, json_t *result);
/* *out lives as long as params. EARG: it is missing, or not a string. */
int sy_rpc_need_text(json_t *params, const char *key, const char **out);

/* A reply that is deferred until the core calls back. Holds its connection meanwhile. */
struct sy_rpc_deferred {
    struct sy_rpc_connection *connection;
    bool answers;
    uint64_t id, job;
    bool with_job; /* the answer says its number */
};

/* For a request that is answered later. ENOMEM_HOST. Freed by done, or by the caller if the call is refused at once. */
int sy_rpc_deferred_create(const struct sy_rpc_request *request, struct sy_rpc_deferred **out);
void sy_rpc_deferred_free(struct sy_rpc_deferred *deferred);
/* Answers, and frees it: a sy_core_done. */
void sy_rpc_deferred_done(void *deferred, int status, const char *error);

/* ---- rpc_methods_model.c ---- */
int sy_rpc_models(const struct sy_rpc_request *request, json_t *params);
int sy_rpc_model_load(const struct sy_rpc_request *request, json_t *params);
int sy_rpc_model_unload(const struct sy_rpc_request *request, json_t *params);
int sy_rpc_evict(const struct sy_rpc_request *request, json_t *params);

#endif

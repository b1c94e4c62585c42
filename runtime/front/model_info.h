/* Answers about models and the server, as JSON in the shapes of the Open Inference Protocol and Triton's extensions. HTTP sends it as it is, gRPC turns it
 * into messages.
 *
 * Each *out is the caller's. One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_MODEL_INFO_H
#define SY_RUNTIME_FRONT_MODEL_INFO_H

#include <jansson.h>

#include "runtime/front/request/front.h"

/* {"name", "version", "extensions"} */
int sy_model_info_server(struct sy_front *front, json_t **out);
/* {"name", "versions", "platform", "inputs": [{"name", "datatype", "shape"}], "outputs"}. ENOTFOUND; why it is not available. */
int sy_model_info_metadata(struct sy_front *front, const char *name, int64_t version, json_t **out);
/* Triton's model configuration. */
int sy_model_info_config(struct sy_front *front, const char *name, int64_t version, json_t **out);
/* {"model_stats": [...]}; name NULL: of all models. ENOTFOUND. */
int sy_model_info_stats(struct sy_front *front, const char *name, int64_t version, json_t **out);
/* [{"name", "version", "state", "reason"}] */
int sy_model_info_index(struct sy_front *front, bool only_ready, json_t **out);
/* SY_OK: requests for it are answered now. */
int sy_model_info_ready(struct sy_front *front, const char *name, int64_t version);
/* EUNSUPPORTED: there is no repository; config: model configuration as JSON, or NULL. */
int sy_model_info_load(struct sy_front *front, const char *name, const char *config,
                       sy_core_done done, void *ctx);
int sy_model_info_unload(struct sy_front *front, const char *name);

#endif

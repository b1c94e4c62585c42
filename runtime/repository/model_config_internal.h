/* Shared by the parts of a model's configuration. */
#ifndef SY_REPOSITORY_MODEL_CONFIG_INTERNAL_H
#define SY_REPOSITORY_MODEL_CONFIG_INTERNAL_H

#include "runtime/repository/model_config.h"

/* ---- config_tensors.c ---- */
/* A field's text, the configuration's; NULL: it is missing or empty. */
const char *sy_config_text(const json_t *object, const char *key);
/* Dims of a list of numbers, -1 for open ones. EARG names `what`. */
int sy_config_read_dims(const json_t *list, const char *what, int64_t dims[SY_MAX_RANK], int *rank);
/* Tensors of a list; *out is malloc'd, also where one of them fails. kind: "input", "output". EARG, EUNSUPPORTED. */
int sy_config_read_tensors(const json_t *list, const char *kind, struct sy_config_tensor **out,
                           int *n);

/* ---- config_batching.c ---- */
/* dynamic_batching and parameters: defaults of requests, how they are gathered. EARG. */
int sy_config_read_batching(struct sy_model_config *config);
int sy_config_read_parameters(struct sy_model_config *config);

/* ---- config_states.c ---- */
int sy_config_read_sequences(struct sy_model_config *config);

/* ---- config_warmup.c ---- */
int sy_config_read_warmups(struct sy_model_config *config);
void sy_config_free_warmups(struct sy_model_config *config);

#endif

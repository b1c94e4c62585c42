/* A model's configuration: Triton's inference.ModelConfig, read by field name from config.pbtxt or JSON, held against the model, and completed from it.
 *
 *   text ─ pbtxt.h ─> tree ─ config_schema.h ─> JSON, typed and named as the message ─> struct sy_model_config ─ check against the graph
 *                                                  └ completed from the graph ─> what Triton's clients ask for
 *
 * C1: a field that Triton does not know is refused, with its name and place.
 * C2: a field that would have no effect here is named in one warning per model; one whose neglect would change results is refused, with the reason.
 * C3: what no configuration says follows from the model: max_batch_size is SY_CONFIG_OPEN_BATCH where the first dimension of all inputs and outputs is the
 *     batch, else 0. That number is told, not enforced: a limit is one that a configuration sets. */
#ifndef SY_REPOSITORY_MODEL_CONFIG_H
#define SY_REPOSITORY_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "runtime/core/core.h"
#include "runtime/repository/version_policy.h"

#define SY_CONFIG_OPEN_BATCH   1024
#define SY_CONFIG_MOST_WARMUPS 64
#define SY_CONFIG_MOST_BYTES   (4u << 20) /* limit of a file */

/* One input or output as the configuration says it is. Strings belong to the configuration. */
struct sy_config_tensor {
    const char *name;
    enum sy_dtype dtype;
    int rank; /* without the batch, if max_batch_size > 0 */
    int64_t dims[SY_MAX_RANK];
    bool has_reshape; /* the model's own dims, in the place of `dims` */
    int reshape_rank;
    int64_t reshape[SY_MAX_RANK];
    const char *labels; /* file of an output's class names; NULL: none */
};

struct sy_config_warmup_input {
    const char *name;
    enum sy_dtype dtype;
    int rank;
    int64_t dims[SY_MAX_RANK];
    bool is_random;   /* else zeros, or: */
    const char *file; /* warmup_files.h; NULL: none */
};

struct sy_config_warmup {
    const char *name;
    int64_t batch; /* 0: the dims hold all */
    int count;
    int n_inputs;
    struct sy_config_warmup_input *inputs;
};

struct sy_model_config {
    int n_held;             /* besides its first owner */
    json_t *json;           /* the fields that have an effect, as the configuration says them */
    bool is_given;          /* by a file or a client; else all follows from the model */
    const char *origin;     /* in front of what is wrong with it: "config.pbtxt", "config" */
    char *warning;          /* fields without effect, "a, b"; NULL: none */
    const char *model_file; /* "model.onnx" */
    bool has_max_batch;
    int64_t max_batch_size;
    int n_inputs, n_outputs;
    struct sy_config_tensor *inputs, *outputs;
    struct sy_version_policy versions;
    int n_warmups;
    struct sy_config_warmup *warmups;
    bool has_precision;
    enum sy_precision precision;
    struct sy_core_model_defaults defaults;
    sy_ns max_delay_ns;    /* of gathering; 0: as the server does */
    int64_t max_gathered;  /* rows; 0: likewise */
    sy_ns session_idle_ns; /* idle time after which a session ends; 0: the server's default */
};

/* EARG, EUNSUPPORTED: with the field's name and place. `text` may be NULL: nothing is said. name: the model's folder. */
int sy_model_config_parse(const char *text, size_t bytes, const char *name,
                          struct sy_model_config **out);
/* As sy_model_config_parse, from Triton's JSON form, which a client sent. */
int sy_model_config_parse_json(const char *json, const char *name, struct sy_model_config **out);
/* Adds an owner, who calls sy_model_config_free too. One thread: the count is not atomic. */
struct sy_model_config *sy_model_config_hold(struct sy_model_config *config);
void sy_model_config_free(struct sy_model_config *config); /* NULL is fine */

/* Whether the model is what the configuration says: EARG names the tensor and both. */
int sy_model_config_check(const struct sy_model_config *config, const struct sy_graph *graph);
/* The reshapes of a model whose configuration this is: malloc'd, *n of them. ENOMEM_HOST. */
int sy_model_config_reshapes(const struct sy_model_config *config, const struct sy_graph *graph,
                             struct sy_core_reshape **out, int *n);
/* The states that sessions of a model keep, whose configuration this is: malloc'd, *n of them; 0: as the names of the model's tensors say. EARG: a state that
 * the model cannot have. ENOMEM_HOST. */
int sy_model_config_states(const struct sy_model_config *config, const struct sy_graph *graph,
                           struct sy_state_pair **out, int *n);
/* Triton's ModelConfig in JSON, completed from the model. ENOMEM_HOST. */
int sy_model_config_complete(const struct sy_model_config *config, const char *name,
                             const struct sy_graph *graph, json_t **out);
/* "TYPE_FP32" <-> dtype; NONE: not one that we have. */
enum sy_dtype sy_config_dtype(const char *name);
const char *sy_config_dtype_name(enum sy_dtype dtype, char buffer[24]);

#endif

#include "runtime/repository/model_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/repository/config_schema.h"
#include "runtime/repository/model_config_internal.h"

#define MOST_BATCH (INT32_MAX)

/* ---- which model ---------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static int check_backend(const json_t *json)
{
    static const char *const backends[] = {"onnxruntime", "onnx", "switchyard", NULL};
    static const char *const platforms[] = {"onnxruntime_onnx", "onnx", "switchyard", NULL};
    const char *backend = sy_config_text(json, "backend"),
               *platform = sy_config_text(json, "platform");

    if (backend && !is_one_of(backend, backends))
        return sy_error_set(SY_EUNSUPPORTED,
                            "field backend: '%.60s' is not served; only ONNX models are "
                            "(backend \"onnxruntime\")",
                            backend);
    if (platform && strcmp(platform, "ensemble") == 0)
        return sy_error_set(SY_EUNSUPPORTED, "field platform: ensembles are not supported");
    if (platform && !is_one_of(platform, platforms))
        return sy_error_set(SY_EUNSUPPORTED,
                            "field platform: '%.60s' is not served; only ONNX models are "
                            "(\"onnxruntime_onnx\")",
                            platform);
    return SY_OK;
}

static int check_identity(const json_t *json, const char *name)
{
    const char *said = sy_config_text(json, "name");

    if (said && strcmp(said, name) != 0)
        return sy_error_set(SY_EARG, "field name: '%.100s'; the model's folder is '%.100s'", said,
                            name);
    SY_TRY(check_backend(json));
    if (json_is_true(
            json_object_get(json_object_get(json, "model_transaction_policy"), "decoupled")))
        return sy_error_set(SY_EUNSUPPORTED, "field model_transaction_policy: decoupled models, "
                                             "with any number of answers, are not supported");
    return SY_OK;
}

static int read_model_file(struct sy_model_config *config)
{
    const char *file = sy_config_text(config->json, "default_model_filename");

    config->model_file = file ? file : "model.onnx";
    if (strchr(config->model_file, '/') || config->model_file[0] == '.')
        return sy_error_set(SY_EARG,
                            "field default_model_filename: '%.60s' is not the name of a file "
                            "in the version's folder",
                            config->model_file);
    return SY_OK;
}

static int read_max_batch(struct sy_model_config *config)
{
    const json_t *most = json_object_get(config->json, "max_batch_size");

    config->has_max_batch = most != NULL;
    config->max_batch_size = json_integer_value(most);
    if (config->max_batch_size < 0 || config->max_batch_size > MOST_BATCH)
        return sy_error_set(SY_EARG, "field max_batch_size: %lld is not from 0 to %d",
                            (long long)config->max_batch_size, MOST_BATCH);
    config->defaults.most_rows = config->max_batch_size;
    return SY_OK;
}

/* ---- versions ---------------------------------------------------------------------------------------------------- */

static int read_latest(const json_t *latest, struct sy_version_policy *policy)
{
    json_int_t n = json_integer_value(json_object_get(latest, "num_versions"));

    policy->kind = SY_VERSIONS_LATEST;
    policy->n = (int)SY_MIN(SY_MAX(n, 1), SY_MOST_VERSIONS);
    return SY_OK;
}

static int read_specific(const json_t *specific, struct sy_version_policy *policy)
{
    const json_t *list = json_object_get(specific, "versions"), *version;
    size_t i;

    policy->kind = SY_VERSIONS_SPECIFIC;
    if (json_array_size(list) == 0 || json_array_size(list) > SY_MOST_VERSIONS)
        return sy_error_set(SY_EARG, "field version_policy: %zu specific versions; from 1 to %d",
                            json_array_size(list), SY_MOST_VERSIONS);
    json_array_foreach(list, i, version)
    {
        if (json_integer_value(version) < 1)
            return sy_error_set(SY_EARG, "field version_policy: version %lld; 1 or above",
                                (long long)json_integer_value(version));
        policy->versions[policy->n++] = json_integer_value(version);
    }
    return SY_OK;
}

static int read_versions(struct sy_model_config *config)
{
    const json_t *json = json_object_get(config->json, "version_policy");

    if (json_object_size(json) > 1)
        return sy_error_set(SY_EARG, "field version_policy: one of latest, all and specific");
    if (json_object_get(json, "all"))
        config->versions.kind = SY_VERSIONS_ALL;
    if (json_object_get(json, "specific"))
        return read_specific(json_object_get(json, "specific"), &config->versions);
    return json_object_get(json, "latest")
               ? read_latest(json_object_get(json, "latest"), &config->versions)
               : SY_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static int read_config(struct sy_model_config *config, const char *name)
{
    SY_TRY(check_identity(config->json, name));
    SY_TRY(read_model_file(config));
    SY_TRY(read_max_batch(config));
    SY_TRY(sy_config_read_tensors(json_object_get(config->json, "input"), "input", &config->inputs,
                                  &config->n_inputs));
    SY_TRY(sy_config_read_tensors(json_object_get(config->json, "output"), "output",
                                  &config->outputs, &config->n_outputs));
    SY_TRY(read_versions(config));
    SY_TRY(sy_config_read_batching(config));
    SY_TRY(sy_config_read_sequences(config));
    SY_TRY(sy_config_read_parameters(config));
    return sy_config_read_warmups(config);
}

/* Takes the tree. */
static int from_tree(struct sy_pbtxt *tree, const char *name, struct sy_model_config **out)
{
    char warning[SY_CONFIG_WARNING_BYTES];
    struct sy_model_config *config = calloc(1, sizeof *config);
    int status = config ? sy_config_to_json(tree, warning, &config->json)
                        : sy_error_set(SY_ENOMEM_HOST, "no memory for a configuration");

    sy_pbtxt_free(tree);
    if (status == SY_OK && *warning && !(config->warning = strdup(warning)))
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for a configuration");
    if (status == SY_OK)
        status = read_config(config, name);
    if (status < 0) {
        sy_model_config_free(config);
        return status;
    }
    *out = config;
    return SY_OK;
}

int sy_model_config_parse(const char *text, size_t bytes, const char *name,
                          struct sy_model_config **out)
{
    struct sy_pbtxt *tree;

    SY_TRY(sy_pbtxt_parse(text ? text : "", text ? bytes : 0, &tree));
    SY_TRY(from_tree(tree, name, out));
    (*out)->is_given = text != NULL;
    (*out)->origin = "config.pbtxt";
    return SY_OK;
}

int sy_model_config_parse_json(const char *json, const char *name, struct sy_model_config **out)
{
    json_error_t error;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    struct sy_pbtxt *tree = NULL;
    int status;

    if (!root)
        return sy_error_set(SY_EARG, "not JSON: line %d, column %d: %s", error.line, error.column,
                            error.text);
    status = sy_pbtxt_from_json(root, &tree);
    json_decref(root);
    SY_TRY(status);
    SY_TRY(from_tree(tree, name, out));
    (*out)->is_given = true;
    (*out)->origin = "config";
    return SY_OK;
}

struct sy_model_config *sy_model_config_hold(struct sy_model_config *config)
{
    config->n_held++;
    return config;
}

void sy_model_config_free(struct sy_model_config *config)
{
    if (!config || config->n_held-- > 0)
        return;
    sy_config_free_warmups(config);
    free(config->inputs);
    free(config->outputs);
    free(config->warning);
    json_decref(config->json);
    free(config);
}

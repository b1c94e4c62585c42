#include "runtime/front/model_info.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "runtime/front/request/front_reshape.h"
#include "runtime/front/request/front_stats.h"
#include "runtime/repository/model_config.h"
#include "runtime/repository/repository.h"

#define MOST_VERSIONS 256

int sy_model_info_server(struct sy_front *front, json_t **out)
{
    (void)front;
    *out = json_pack(
        "{s:s, s:s, s:[s, s, s, s, s, s, s, s, s, s]}", "name", "switchyard", "version",
        SWITCHYARD_VERSION, "extensions", "classification", "model_configuration",
        "model_repository", "model_repository(unload_dependents)", "schedule_policy",
        "system_shared_memory", "binary_tensor_data", "parameters", "statistics", "logging");
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
}

/* ---- the core's models ------------------------------------------------------------------------------------- */

/* Names and versions that the core has: [{"name", "version", "state", "error", ...}] */
static int core_models(struct sy_front *front, json_t **out)
{
    json_t *status;

    SY_TRY(front->handlers->status(front->core, &status));
    *out = json_incref(json_object_get(status, "models"));
    json_decref(status);
    return *out ? SY_OK : sy_error_set(SY_EBUG, "the status lists no models");
}

static int core_versions(struct sy_front *front, const char *name, int64_t *versions)
{
    json_t *models, *model;
    int n = 0;
    size_t i;

    SY_TRY(core_models(front, &models));
    json_array_foreach(models, i, model)
    {
        int64_t version = json_integer_value(json_object_get(model, "version"));
        const char *state = json_string_value(json_object_get(model, "state"));
        int at = n;

        if (strcmp(json_string_value(json_object_get(model, "name")), name) != 0 ||
            (state && strcmp(state, "ready") != 0) || n == MOST_VERSIONS)
            continue;
        for (; at > 0 && versions[at - 1] > version; at--)
            versions[at] = versions[at - 1];
        versions[at] = version;
        n++;
    }
    json_decref(models);
    return n;
}

static json_t *index_entry(const json_t *model, bool only_ready)
{
    const char *state = json_string_value(json_object_get(model, "state")),
               *error = json_string_value(json_object_get(model, "error"));
    bool ready = !state || strcmp(state, "ready") == 0,
         loading = state && strcmp(state, "loading") == 0;

    if (only_ready && !ready)
        return NULL;
    return json_pack(
        "{s:O, s:o, s:s, s:s}", "name", json_object_get(model, "name"), "version",
        json_sprintf("%lld", (long long)json_integer_value(json_object_get(model, "version"))),
        "state",
        ready     ? "READY"
        : loading ? "LOADING"
                  : "UNAVAILABLE",
        "reason", error ? error : "");
}

static int core_index(struct sy_front *front, bool only_ready, json_t **out)
{
    json_t *models, *model;
    size_t i;

    SY_TRY(core_models(front, &models));
    *out = json_array();
    json_array_foreach(models, i, model)
    {
        json_t *entry = index_entry(model, only_ready);

        if (entry)
            json_array_append_new(*out, entry);
    }
    json_decref(models);
    return SY_OK;
}

/* ---- with and without a repository ---------------------------------------------------------------------------- */

static int acquire(struct sy_front *front, const char *name, int64_t version,
                   struct sy_core_model_ref **out)
{
    if (front->repository)
        SY_TRY(sy_repository_is_ready(front->repository, name, version));
    return front->handlers->model_acquire(front->core, name, version, out);
}

static int versions_of(struct sy_front *front, const char *name, int64_t *versions)
{
    int n = front->repository
                ? sy_repository_versions(front->repository, name, versions, MOST_VERSIONS)
                : 0;

    return n > 0 ? n : core_versions(front, name, versions);
}

int sy_model_info_index(struct sy_front *front, bool only_ready, json_t **out)
{
    return front->repository ? sy_repository_index(front->repository, only_ready, out)
                             : core_index(front, only_ready, out);
}

int sy_model_info_ready(struct sy_front *front, const char *name, int64_t version)
{
    struct sy_core_model_ref *ref;

    SY_TRY(acquire(front, name, version, &ref));
    front->handlers->model_release(front->core, ref);
    return SY_OK;
}

static int no_repository(void)
{
    return sy_error_set(
        SY_EUNSUPPORTED,
        "this server has no model repository (serve --models): models come and go by "
        "'switchyard models load'");
}

int sy_model_info_load(struct sy_front *front, const char *name, const char *config,
                       sy_core_done done, void *ctx)
{
    return front->repository ? sy_repository_load(front->repository, name, config, done, ctx)
                             : no_repository();
}

int sy_model_info_unload(struct sy_front *front, const char *name)
{
    return front->repository ? sy_repository_unload(front->repository, name)
                             : front->handlers->model_remove(front->core, name, 0);
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

static json_t *describe_shape(const struct sy_graph *graph, int index)
{
    const struct sy_shape *shape = &graph->tensors[index].shape;
    bool is_dynamic = sy_graph_is_dynamic(graph, index);
    json_t *list = json_array();

    for (int d = 0; d < shape->rank; d++)
        json_array_append_new(list, json_integer(!is_dynamic && sy_dim_is_number(shape->dims[d])
                                                     ? shape->dims[d].fixed
                                                     : -1));
    return list;
}

/* As requests see it. */
static json_t *describe_reshape(const struct sy_core_reshape *reshape)
{
    json_t *list = reshape->has_batch ? json_pack("[i]", -1) : json_array();

    for (int d = 0; d < reshape->rank; d++)
        json_array_append_new(list, json_integer(reshape->dims[d]));
    return list;
}

static json_t *describe_tensors(const struct sy_core_model_ref *ref, bool outputs)
{
    const struct sy_graph *graph = ref->package->graph;
    const int *indices = outputs ? graph->outputs : graph->inputs;
    int n = outputs ? graph->n_outputs : graph->n_inputs;
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        const struct sy_core_reshape *reshape = sy_front_reshape_of(ref, outputs, i);

        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o}", "name", graph->tensors[indices[i]].name, "datatype",
                      sy_dtype_wire_name(graph->tensors[indices[i]].dtype), "shape",
                      reshape ? describe_reshape(reshape) : describe_shape(graph, indices[i])));
    }
    return list;
}

int sy_model_info_metadata(struct sy_front *front, const char *name, int64_t version, json_t **out)
{
    struct sy_core_model_ref *ref;
    int64_t versions[MOST_VERSIONS];
    json_t *list;
    int n;

    SY_TRY(acquire(front, name, version, &ref));
    n = versions_of(front, name, versions);
    list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_sprintf("%lld", (long long)versions[i]));
    *out = json_pack("{s:s, s:o, s:s, s:o, s:o}", "name", ref->name, "versions", list, "platform",
                     "onnxruntime_onnx", "inputs", describe_tensors(ref, false), "outputs",
                     describe_tensors(ref, true));
    front->handlers->model_release(front->core, ref);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
}

int sy_model_info_config(struct sy_front *front, const char *name, int64_t version, json_t **out)
{
    struct sy_core_model_ref *ref;
    struct sy_model_config *config;
    int status;

    if (front->repository)
        return sy_repository_config(front->repository, name, version, out);
    SY_TRY(acquire(front, name, version, &ref));
    status = sy_model_config_parse(NULL, 0, name, &config); /* all follows from the model */
    if (status == SY_OK) {
        status = sy_model_config_complete(config, name, ref->package->graph, out);
        sy_model_config_free(config);
    }
    front->handlers->model_release(front->core, ref);
    return status;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static json_t *duration_json(const struct sy_front_duration *duration)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)duration->count, "ns",
                     (json_int_t)duration->ns);
}

static json_t *batches_json(const struct sy_front_model_stats *of)
{
    json_t *list = json_array();

    for (int i = 0; i < of->n_batches; i++)
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:o, s:o}", "batch_size", (json_int_t)of->batches[i].rows,
                            "compute_input", duration_json(&of->batches[i].compute_input),
                            "compute_infer", duration_json(&of->batches[i].compute_infer),
                            "compute_output", duration_json(&of->batches[i].compute_output)));
    return list;
}

static json_t *stats_json(const struct sy_front_model_stats *of)
{
    json_t *parts = json_object();

#define X(part) json_object_set_new(parts, #part, duration_json(&of->part));
    SY_FRONT_DURATIONS(X)
#undef X
    /* Triton's caches: there is none here. */
    json_object_set_new(parts, "cache_hit", json_pack("{s:i, s:i}", "count", 0, "ns", 0));
    json_object_set_new(parts, "cache_miss", json_pack("{s:i, s:i}", "count", 0, "ns", 0));
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:o, s:o, s:[], s:{}}", "name", of->name, "version",
                     json_sprintf("%lld", (long long)of->version), "last_inference",
                     (json_int_t)of->last_inference_ms, "inference_count",
                     (json_int_t)of->n_inferences, "execution_count", (json_int_t)of->n_executions,
                     "inference_stats", parts, "batch_stats", batches_json(of), "memory_usage",
                     "response_stats");
}

/* Adds the statistics of each matching version that is ready. */
static void add_stats(struct sy_front *front, json_t *list, const json_t *entry, int64_t version)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    int64_t own = strtoll(json_string_value(json_object_get(entry, "version")), NULL, 10);
    struct sy_front_model_stats stats = {.name = name, .version = own};

    if (version != 0 && own != version)
        return;
    if (front->stats)
        sy_front_stats_of(front->stats, name, own, &stats);
    json_array_append_new(list, stats_json(&stats));
}

int sy_model_info_stats(struct sy_front *front, const char *name, int64_t version, json_t **out)
{
    json_t *index, *list = json_array(), *entry;
    size_t i;

    SY_TRY(sy_model_info_index(front, true, &index));
    json_array_foreach(index, i, entry)
    {
        if (!name || strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
            add_stats(front, list, entry, version);
    }
    json_decref(index);
    if (name && json_array_size(list) == 0) {
        json_decref(list);
        return sy_error_set(SY_ENOTFOUND,
                            "requested model name '%.200s' and version are not found, or not ready",
                            name);
    }
    *out = json_pack("{s:o}", "model_stats", list);
    return SY_OK;
}

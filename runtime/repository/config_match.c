/* A configuration beside its model: whether they agree, and what the model says where the configuration does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/repository/model_config_internal.h"

static bool is_batch(struct sy_dim dim)
{
    return dim.fixed == 0 && dim.per_batch == 1;
}

static bool all_begin_with_batch(const struct sy_graph *graph, const int *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        const struct sy_shape *shape = &graph->tensors[tensors[i]].shape;

        if (sy_graph_is_dynamic(graph, tensors[i]) || shape->rank == 0 || !is_batch(shape->dims[0]))
            return false;
    }
    return true;
}

/* The first dimension of every input and output is the batch, and nothing else is in it. */
static bool has_batch(const struct sy_graph *graph)
{
    return graph->n_inputs > 0 && all_begin_with_batch(graph, graph->inputs, graph->n_inputs) &&
           all_begin_with_batch(graph, graph->outputs, graph->n_outputs);
}

/* ---- check ---------------------------------------------------------------------------------------------------------- */

static const char *dims_text(const int64_t *dims, int rank, char *buffer, size_t bytes)
{
    size_t used = (size_t)snprintf(buffer, bytes, "[");

    for (int i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%lld", i ? ", " : "",
                                 (long long)dims[i]);
    if (used < bytes)
        snprintf(buffer + used, bytes - used, "]");
    return buffer;
}

/* A dimension that the model leaves open may be narrowed; one that it fixes must be that number. */
static bool dims_fit(const struct sy_shape *shape, int from, const int64_t *dims, int rank)
{
    if (shape->rank - from != rank)
        return false;
    for (int i = 0; i < rank; i++) {
        struct sy_dim dim = shape->dims[from + i];

        if (sy_dim_is_number(dim) && dim.fixed != dims[i])
            return false;
    }
    return true;
}

static int check_shape(const struct sy_model_config *config, const struct sy_config_tensor *said,
                       const struct sy_tensor *tensor, const char *what)
{
    char text[160], model[160];
    const int64_t *dims = said->has_reshape ? said->reshape : said->dims;
    int rank = said->has_reshape ? said->reshape_rank : said->rank,
        from = config->max_batch_size > 0;

    sy_shape_text(&tensor->shape, model, sizeof model);
    if (from && (tensor->shape.rank == 0 || sy_dim_is_number(tensor->shape.dims[0])))
        return sy_error_set(SY_EARG,
                            "%s: max_batch_size is %lld, but the first dimension of the model's "
                            "%s is no batch; use max_batch_size: 0",
                            what, (long long)config->max_batch_size, model);
    if (!dims_fit(&tensor->shape, from, dims, rank))
        return sy_error_set(SY_EARG, "%s: %s %s%s does not fit the model's %s", what,
                            said->has_reshape ? "reshape" : "dims",
                            dims_text(dims, rank, text, sizeof text),
                            from ? " behind the batch" : "", model);
    return SY_OK;
}

static const struct sy_tensor *find(const struct sy_graph *graph, const int *tensors, int n,
                                    const char *name, int *index)
{
    for (int i = 0; i < n; i++)
        if (strcmp(graph->tensors[tensors[i]].name, name) == 0) {
            *index = tensors[i];
            return &graph->tensors[tensors[i]];
        }
    return NULL;
}

static int unknown(const struct sy_graph *graph, const int *tensors, int n, const char *what)
{
    char list[256] = "";
    size_t used = 0;

    for (int i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 graph->tensors[tensors[i]].name);
    return sy_error_set(SY_EARG, "%s: the model has none of this name; it has: %s", what, list);
}

static int check_tensor(const struct sy_model_config *config, const struct sy_graph *graph,
                        const int *tensors, int n, const struct sy_config_tensor *said,
                        const char *kind)
{
    char what[200], is[24], wanted[24];
    int index;
    const struct sy_tensor *tensor = find(graph, tensors, n, said->name, &index);

    snprintf(what, sizeof what, "%s '%.100s'", kind, said->name);
    if (!tensor)
        return unknown(graph, tensors, n, what);
    if (tensor->dtype != said->dtype)
        return sy_error_set(SY_EARG, "%s: data_type %s; the model's is %s", what,
                            sy_config_dtype_name(said->dtype, wanted),
                            sy_config_dtype_name(tensor->dtype, is));
    return sy_graph_is_dynamic(graph, index) ? SY_OK : check_shape(config, said, tensor, what);
}

static int check_named(const struct sy_model_config *config, const struct sy_graph *graph)
{
    for (int i = 0; i < config->n_inputs; i++)
        SY_TRY(check_tensor(config, graph, graph->inputs, graph->n_inputs, &config->inputs[i],
                            "input"));
    for (int i = 0; i < config->n_outputs; i++)
        SY_TRY(check_tensor(config, graph, graph->outputs, graph->n_outputs, &config->outputs[i],
                            "output"));
    return SY_OK;
}

int sy_model_config_check(const struct sy_model_config *config, const struct sy_graph *graph)
{
    if (config->n_inputs > 0 && config->n_inputs != graph->n_inputs)
        return sy_error_set(SY_EARG, "the configuration names %d inputs, the model has %d",
                            config->n_inputs, graph->n_inputs);
    SY_TRY(check_named(config, graph));
    if (config->max_batch_size > 0 && !has_batch(graph) && config->n_inputs == 0)
        return sy_error_set(SY_EARG,
                            "max_batch_size is %lld, but the first dimension of the model's inputs "
                            "and outputs is no batch; use max_batch_size: 0",
                            (long long)config->max_batch_size);
    return SY_OK;
}

/* ---- reshapes ----------------------------------------------------------------------------------------------- */

static void add_reshapes(const struct sy_model_config *config, const struct sy_graph *graph,
                         bool is_output, struct sy_core_reshape *out, int *n)
{
    const struct sy_config_tensor *tensors = is_output ? config->outputs : config->inputs;
    const int *indices = is_output ? graph->outputs : graph->inputs;
    int n_tensors = is_output ? config->n_outputs : config->n_inputs,
        n_indices = is_output ? graph->n_outputs : graph->n_inputs;

    for (int i = 0; i < n_tensors; i++)
        for (int k = 0; k < n_indices; k++) {
            const struct sy_config_tensor *said = &tensors[i];
            struct sy_core_reshape *to = &out[*n];

            if (!said->has_reshape || strcmp(graph->tensors[indices[k]].name, said->name) != 0)
                continue;
            *to = (struct sy_core_reshape){.is_output = is_output,
                                           .index = k,
                                           .has_batch = config->max_batch_size > 0,
                                           .rank = said->rank,
                                           .model_rank = said->reshape_rank};
            memcpy(to->dims, said->dims, sizeof to->dims);
            memcpy(to->model_dims, said->reshape, sizeof to->model_dims);
            ++*n;
        }
}

int sy_model_config_reshapes(const struct sy_model_config *config, const struct sy_graph *graph,
                             struct sy_core_reshape **out, int *n)
{
    *n = 0;
    *out = calloc((size_t)(config->n_inputs + config->n_outputs) + 1, sizeof **out);
    SY_TRY_ALLOC(*out, "no memory for a model's reshapes");
    add_reshapes(config, graph, false, *out, n);
    add_reshapes(config, graph, true, *out, n);
    return SY_OK;
}

/* ---- complete ---------------------------------------------------------------------------------------------------------- */

/* A model's shape as a list of numbers, -1 for what is open, from dimension `from` on. */
static json_t *dims_json(const struct sy_shape *shape, int from, bool all_open)
{
    json_t *list = json_array();

    for (int i = from; i < shape->rank; i++)
        json_array_append_new(list, json_integer(all_open || !sy_dim_is_number(shape->dims[i])
                                                     ? -1
                                                     : shape->dims[i].fixed));
    return list;
}

/* The configuration's entry of the tensor, or an empty object. */
static json_t *said_of(const json_t *list, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        const char *said = json_string_value(json_object_get(item, "name"));

        if (said && strcmp(said, name) == 0)
            return json_deep_copy(item);
    }
    return json_object();
}

static void set_missing(json_t *object, const char *key, json_t *value)
{
    if (json_object_get(object, key))
        json_decref(value);
    else
        json_object_set_new(object, key, value);
}

static json_t *complete_tensors(const json_t *said, const struct sy_graph *graph,
                                const int *tensors, int n, int from, bool is_input)
{
    json_t *list = json_array();
    char type[24];

    for (int i = 0; i < n; i++) {
        const struct sy_tensor *tensor = &graph->tensors[tensors[i]];
        json_t *item = said_of(said, tensor->name);

        set_missing(item, "name", json_string(tensor->name));
        set_missing(item, "data_type", json_string(sy_config_dtype_name(tensor->dtype, type)));
        set_missing(item, "dims",
                    dims_json(&tensor->shape, from, sy_graph_is_dynamic(graph, tensors[i])));
        if (is_input) {
            set_missing(item, "format", json_string("FORMAT_NONE"));
            set_missing(item, "allow_ragged_batch", json_false());
            set_missing(item, "optional", json_false());
        } else {
            set_missing(item, "label_filename", json_string(""));
        }
        set_missing(item, "is_shape_tensor", json_false());
        json_array_append_new(list, item);
    }
    return list;
}

/* Empty, as Triton writes what was not set. */
static void set_empty(json_t *json)
{
    static const char *const lists[] = {"batch_input", "batch_output", "instance_group",
                                        "model_warmup"};
    static const char *const maps[] = {"cc_model_filenames", "metric_tags", "parameters"};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        set_missing(json, lists[i], json_array());
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        set_missing(json, maps[i], json_object());
}

int sy_model_config_complete(const struct sy_model_config *config, const char *name,
                             const struct sy_graph *graph, json_t **out)
{
    json_t *json = json_deep_copy(config->json);
    int64_t most = config->has_max_batch  ? config->max_batch_size
                   : config->n_inputs > 0 ? 0
                   : has_batch(graph)     ? SY_CONFIG_OPEN_BATCH
                                          : 0;

    SY_TRY_ALLOC(json, "no memory for a configuration");
    json_object_set_new(json, "name", json_string(name));
    json_object_set_new(json, "platform", json_string("onnxruntime_onnx"));
    json_object_set_new(json, "backend", json_string("onnxruntime"));
    json_object_set_new(json, "max_batch_size", json_integer(most));
    set_missing(json, "version_policy", json_pack("{s:{s:i}}", "latest", "num_versions", 1));
    json_object_set_new(json, "input",
                        complete_tensors(json_object_get(config->json, "input"), graph,
                                         graph->inputs, graph->n_inputs, most > 0, true));
    json_object_set_new(json, "output",
                        complete_tensors(json_object_get(config->json, "output"), graph,
                                         graph->outputs, graph->n_outputs, most > 0, false));
    set_missing(json, "default_model_filename", json_string(config->model_file));
    set_empty(json);
    *out = json;
    return SY_OK;
}

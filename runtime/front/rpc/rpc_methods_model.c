/* Methods of models: which there are and what they take, loading, unloading, evicting. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/string_tensor.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_methods.h"
#include "runtime/front/rpc/rpc_session.h"
#include "runtime/repository/package_arrivals.h"

/* 0: none is named. */
static int read_version(json_t *params, int64_t *out)
{
    json_t *version = json_object_get(params, "version");

    *out = json_integer_value(version);
    if (version && (!json_is_integer(version) || *out < 1))
        return sy_error_set(SY_EARG, "the parameter \"version\": a whole number above 0");
    return SY_OK;
}

/* "N", "seq", "2*seq+1"; a number as one. */
static json_t *describe_dim(struct sy_dim dim)
{
    struct sy_shape alone = {.rank = 1, .dims = {dim}};
    char text[160];

    if (sy_dim_is_number(dim))
        return json_integer(dim.fixed);
    sy_shape_text(&alone, text, sizeof(text));
    text[strcspn(text, "]")] = '\0';
    return json_string(text + 1); /* without the brackets */
}

/* Names, dtypes and shapes of a model's inputs or outputs. shape: -1 for the batch, an open size, or what is known after a run only; dims:
 * what each follows from; usual_shape: for one row of the usual sizes. */
static json_t *describe_tensors(const struct sy_package *package, const int *indices, int n)
{
    const struct sy_graph *graph = package->graph;
    json_t *list = json_array();

    for (int i = 0; list && i < n; i++) {
        const struct sy_tensor *tensor = &graph->tensors[indices[i]];
        const struct sy_shape *usual = &package->usual->tensors[indices[i]].shape;
        json_t *shape = json_array(), *dims = json_array(), *usual_shape = json_array();
        bool open = sy_graph_is_dynamic(graph, indices[i]);

        for (int d = 0; d < tensor->shape.rank; d++) {
            struct sy_dim dim = tensor->shape.dims[d];

            json_array_append_new(shape,
                                  json_integer(open || !sy_dim_is_number(dim) ? -1 : dim.fixed));
            json_array_append_new(dims, open ? json_string("?") : describe_dim(dim));
            json_array_append_new(usual_shape,
                                  json_integer(open ? -1 : sy_dim_at(usual->dims[d], 1)));
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", tensor->name,
                                              "dtype", sy_dtype_wire_name(tensor->dtype), "shape",
                                              shape, "dims", dims, "usual_shape", usual_shape));
    }
    return list;
}

static json_t *describe_sizes(const struct sy_graph *graph)
{
    json_t *list = json_array();

    for (int i = 0; list && i < graph->n_symbols; i++)
        if (!sy_graph_is_own_size(graph, i)) /* no input has it */
            json_array_append_new(list, json_pack("{s:s, s:I}", "name", graph->symbols[i].name,
                                                  "usual", (json_int_t)graph->symbols[i].usual));
    return list;
}

static void describe_ref(const struct sy_core_model_ref *ref, json_t *model)
{
    const struct sy_graph *graph = ref->package->graph;

    json_object_set_new(model, "inputs",
                        describe_tensors(ref->package, graph->inputs, graph->n_inputs));
    json_object_set_new(model, "outputs",
                        describe_tensors(ref->package, graph->outputs, graph->n_outputs));
    json_object_set_new(model, "sizes", describe_sizes(graph));
    json_object_set_new(model, "state_tensors", sy_rpc_session_state(ref));
}

static void describe_model(const struct sy_rpc_request *request, json_t *model)
{
    const char *name = json_string_value(json_object_get(model, "name"));
    int64_t version = json_integer_value(json_object_get(model, "version"));
    struct sy_core_model_ref *ref;

    if (!name ||
        sy_rpc_handlers(request)->model_acquire(sy_rpc_core(request), name, version, &ref) < 0)
        return; /* still loading, or unavailable */
    describe_ref(ref, model);
    sy_rpc_handlers(request)->model_release(sy_rpc_core(request), ref);
}

static bool is_listed(json_t *models, const char *name, json_int_t version)
{
    json_t *model;
    size_t i;

    json_array_foreach(models, i, model)
    {
        const char *listed = json_string_value(json_object_get(model, "name"));

        if (listed && strcmp(listed, name) == 0 &&
            (version == 0 || json_integer_value(json_object_get(model, "version")) == version))
            return true;
    }
    return false;
}

/* "READY" -> "ready" */
static json_t *small_letters(const char *state)
{
    char text[32];
    size_t n = 0;

    for (; state[n] && n + 1 < sizeof text; n++)
        text[n] = (char)(state[n] | 32);
    text[n] = '\0';
    return json_string(text);
}

/* Models of the repository that the core does not have: their states and reasons. */
static int add_repository_models(const struct sy_rpc_request *request, json_t *models)
{
    struct sy_repository *repository = request->connection->server->front->repository;
    json_t *index, *entry;
    size_t i;

    if (!repository)
        return SY_OK;
    SY_TRY(sy_repository_index(repository, false, &index));
    json_array_foreach(index, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        json_int_t version =
            strtoll(json_string_value(json_object_get(entry, "version")), NULL, 10);

        if (!is_listed(models, name, version))
            json_array_append_new(
                models, json_pack("{s:s, s:I, s:o, s:O}", "name", name, "version", version, "state",
                                  small_letters(json_string_value(json_object_get(entry, "state"))),
                                  "error", json_object_get(entry, "reason")));
    }
    json_decref(index);
    return SY_OK;
}

/* {"model": NAME, "version": N}: one that a request would run on; loaded for that, if it is not. */
static int answer_one_model(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_rpc_connection *connection = request->connection;
    struct sy_front *front = connection->server->front;
    struct sy_core_model_ref *ref;
    const char *name;
    int64_t version;

    SY_TRY(sy_rpc_need_text(params, "model", &name));
    SY_TRY(read_version(params, &version));
    int found =
        front->repository
            ? sy_repository_acquire(front->repository, name, version, &connection->wait, &ref)
            : front->handlers->model_acquire(front->core, name, version, &ref);
    if (found != SY_OK)
        return found;
    json_t *model = json_pack("{s:s, s:I, s:s}", "name", ref->name, "version",
                              (json_int_t)ref->version, "state", "ready");
    describe_ref(ref, model);
    front->handlers->model_release(front->core, ref);
    return sy_rpc_answer(request, json_pack("[o]", model));
}

int sy_rpc_models(const struct sy_rpc_request *request, json_t *params)
{
    json_t *status, *models, *model;
    size_t i;
    int added;

    if (json_object_get(params, "model"))
        return answer_one_model(request, params);
    SY_TRY(sy_rpc_handlers(request)->status(sy_rpc_core(request), &status));
    models = json_object_get(status, "models");
    models = models ? json_incref(models) : json_array();
    json_decref(status);
    json_array_foreach(models, i, model) describe_model(request, model);
    added = add_repository_models(request, models);
    if (added < 0) {
        json_decref(models);
        return added;
    }
    return sy_rpc_answer(request, models);
}

/* {"model": NAME}: of the repository. */
static int load_from_repository(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_repository *repository = request->connection->server->front->repository;
    const char *name;
    struct sy_rpc_deferred *deferred = NULL;
    int status;

    SY_TRY(sy_rpc_need_text(params, "model", &name));
    if (!repository)
        return sy_error_set(SY_ENOTFOUND,
                            "the server has no model repository (serve --models) to load '%.100s' "
                            "from; give the path of a package",
                            name);
    SY_TRY(sy_rpc_deferred_create(request, &deferred));
    status =
        sy_repository_load(repository, name, json_string_value(json_object_get(params, "config")),
                           sy_rpc_deferred_done, deferred);
    if (status < 0)
        sy_rpc_deferred_free(deferred);
    return status;
}

/* "urls": [URL, ...], sources of one package. A client that may not name any file of this machine may not make it fetch from others either. */
static int load_from_urls(const struct sy_rpc_request *request, json_t *params,
                          const struct sy_core_model_options *options)
{
    struct sy_arrivals *arrivals = request->connection->server->front->arrivals;
    const json_t *list = json_object_get(params, "urls");
    const char *urls[SY_ARRIVALS_SOURCES + 1];
    struct sy_rpc_deferred *deferred = NULL;
    size_t n = json_array_size(list);
    int status;

    if (!(request->connection->grant.rights & SY_RIGHT_PATHS))
        return sy_error_set(SY_EDENIED,
                            "only a client that may name any file of the server may name URLs");
    if (!arrivals)
        return sy_error_set(SY_EUNSUPPORTED,
                            "this server fetches no packages: start it with --fetch-to DIR");
    for (size_t i = 0; i < n && i < SY_ARRIVALS_SOURCES + 1; i++) {
        urls[i] = json_string_value(json_array_get(list, i));
        if (!urls[i])
            return sy_error_set(SY_EARG, "'urls' is a list of texts");
    }
    SY_TRY(sy_rpc_deferred_create(request, &deferred));
    status = sy_arrivals_add(arrivals, urls, n > INT_MAX ? INT_MAX : (int)n, options,
                             sy_rpc_deferred_done, deferred);
    if (status < 0)
        sy_rpc_deferred_free(deferred);
    return status;
}

int sy_rpc_model_load(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_core_model_options options = {0};
    const char *path = NULL;
    struct sy_rpc_deferred *deferred = NULL;
    char *allowed = NULL;
    int status;

    if (json_object_get(params, "model"))
        return load_from_repository(request, params);
    if (!json_object_get(params, "urls"))
        SY_TRY(sy_rpc_need_text(params, "path", &path));
    if (json_object_get(params, "tenant"))
        SY_TRY(sy_rpc_need_text(params, "tenant", &options.tenant));
    SY_TRY(read_version(params, &options.version));
    if (options.tenant && !*options.tenant)
        options.tenant = NULL;
    options.name = json_string_value(json_object_get(params, "name"));
    options.replaces = json_is_true(json_object_get(params, "replace"));
    if (json_object_get(params, "urls"))
        return load_from_urls(request, params, &options);
    SY_TRY(sy_rpc_allow_path(request->connection, path, &allowed));
    status = sy_rpc_deferred_create(request, &deferred);
    if (status == SY_OK)
        status = sy_rpc_handlers(request)->model_add(sy_rpc_core(request), allowed, &options,
                                                     sy_rpc_deferred_done, deferred);
    if (status < 0 && deferred)
        sy_rpc_deferred_free(deferred);
    free(allowed);
    return status;
}

int sy_rpc_model_unload(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_repository *repository = request->connection->server->front->repository;
    const char *name;
    int64_t version;

    SY_TRY(sy_rpc_need_text(params, "model", &name));
    SY_TRY(read_version(params, &version));
    SY_TRY(repository
               ? sy_repository_unload_version(repository, name, version)
               : sy_rpc_handlers(request)->model_remove(sy_rpc_core(request), name, version));
    return sy_rpc_answer(request, json_object());
}

int sy_rpc_evict(const struct sy_rpc_request *request, json_t *params)
{
    const char *name;

    SY_TRY(sy_rpc_need_text(params, "model", &name));
    SY_TRY(sy_rpc_handlers(request)->model_evict(sy_rpc_core(request), name,
                                                 json_is_true(json_object_get(params, "image"))));
    return sy_rpc_answer(request, json_object());
}

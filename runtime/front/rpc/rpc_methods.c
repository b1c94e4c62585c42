/* The methods of the RPC but infer: small JSON values in and out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/front/rpc/rpc_job.h"
#include "runtime/front/rpc/rpc_region.h"
#include "runtime/front/rpc/rpc_session.h"

#define DRAIN_GRACE_NS (30 * SY_NS_PER_S)
#define MOST_PRIORITY  1000

/* A call at the core that answers later. */
struct later {
    struct sy_rpc_connection *connection;
    bool answers;
    uint64_t id, job;
    bool with_job;
};

typedef int (*method)(const struct sy_rpc_request *request, json_t *params);

const msgpack_object *sy_rpc_get(const msgpack_object *map, const char *key)
{
    size_t n = strlen(key);

    for (uint32_t i = 0; map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
        const msgpack_object_kv *pair = &map->via.map.ptr[i];

        if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size == n &&
            memcmp(pair->key.via.str.ptr, key, n) == 0)
            return &pair->val;
    }
    return NULL;
}

static void *core_of(const struct sy_rpc_request *request)
{
    return request->connection->server->front->core;
}

static const struct sy_core_handlers *handlers_of(const struct sy_rpc_request *request)
{
    return request->connection->server->front->handlers;
}

static int answer(const struct sy_rpc_request *request, json_t *result)
{
    if (!result)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    sy_rpc_answer_json(request->connection, request->answers, request->id, result);
    return SY_OK;
}

static int need_text(json_t *params, const char *key, const char **out)
{
    *out = json_string_value(json_object_get(params, key));
    return *out ? SY_OK
                : sy_error_set(SY_EARG, "the parameter \"%s\" is missing or no string", key);
}

/* 0: none is named. */
static int read_version(json_t *params, int64_t *out)
{
    json_t *version = json_object_get(params, "version");

    *out = json_integer_value(version);
    if (version && (!json_is_integer(version) || *out < 1))
        return sy_error_set(SY_EARG, "the parameter \"version\": a whole number above 0");
    return SY_OK;
}

/* ---- answers that come later -------------------------------------------------------------------------- */

static int later_create(const struct sy_rpc_request *request, struct later **out)
{
    struct later *later = calloc(1, sizeof(*later));

    if (!later)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request");
    *later = (struct later){
        .connection = request->connection, .answers = request->answers, .id = request->id};
    request->connection->refs++;
    *out = later;
    return SY_OK;
}

static void later_free(struct later *later)
{
    sy_rpc_connection_release(later->connection);
    free(later);
}

static void later_done(void *ctx, int status, const char *error)
{
    struct later *later = ctx;
    struct sy_rpc_connection *connection = later->connection;

    if (status < 0)
        sy_rpc_answer_error(connection, later->answers, later->id, status, error);
    else
        sy_rpc_answer_json(connection, later->answers, later->id,
                           later->with_job ? json_pack("{s:I}", "job", (json_int_t)later->job)
                                           : json_object());
    sy_rpc_connection_resume(connection);
    later_free(later);
}

static void drain_done(void *ctx)
{
    later_done(ctx, SY_OK, NULL);
}

/* ---- the methods ----------------------------------------------------------------------------------------- */

static int do_ping(const struct sy_rpc_request *request, json_t *params)
{
    (void)params;
    return answer(request, json_string("pong"));
}

static int do_status(const struct sy_rpc_request *request, json_t *params)
{
    json_t *status;

    (void)params;
    SY_TRY(handlers_of(request)->status(core_of(request), &status));
    return answer(request, status);
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
        bool open = sy_graph_is_sized_at_run(graph, indices[i]);

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

    if (!name || handlers_of(request)->model_acquire(core_of(request), name, version, &ref) < 0)
        return; /* still loading, or unavailable */
    describe_ref(ref, model);
    handlers_of(request)->model_release(core_of(request), ref);
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

    SY_TRY(need_text(params, "model", &name));
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
    return answer(request, json_pack("[o]", model));
}

static int do_models(const struct sy_rpc_request *request, json_t *params)
{
    json_t *status, *models, *model;
    size_t i;
    int added;

    if (json_object_get(params, "model"))
        return answer_one_model(request, params);
    SY_TRY(handlers_of(request)->status(core_of(request), &status));
    models = json_object_get(status, "models");
    models = models ? json_incref(models) : json_array();
    json_decref(status);
    json_array_foreach(models, i, model) describe_model(request, model);
    added = add_repository_models(request, models);
    if (added < 0) {
        json_decref(models);
        return added;
    }
    return answer(request, models);
}

/* {"model": NAME}: of the repository. */
static int load_from_repository(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_repository *repository = request->connection->server->front->repository;
    const char *name;
    struct later *later = NULL;
    int status;

    SY_TRY(need_text(params, "model", &name));
    if (!repository)
        return sy_error_set(SY_ENOTFOUND,
                            "the server has no model repository (serve --models) to load '%.100s' "
                            "from; give the path of a package",
                            name);
    SY_TRY(later_create(request, &later));
    status = sy_repository_load(
        repository, name, json_string_value(json_object_get(params, "config")), later_done, later);
    if (status < 0)
        later_free(later);
    return status;
}

static int do_model_load(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_core_model_options options = {0};
    const char *path;
    struct later *later = NULL;
    char *allowed = NULL;
    int status;

    if (json_object_get(params, "model"))
        return load_from_repository(request, params);
    SY_TRY(need_text(params, "path", &path));
    if (json_object_get(params, "tenant"))
        SY_TRY(need_text(params, "tenant", &options.tenant));
    SY_TRY(read_version(params, &options.version));
    if (options.tenant && !*options.tenant)
        options.tenant = NULL;
    options.name = json_string_value(json_object_get(params, "name"));
    options.replaces = json_is_true(json_object_get(params, "replace"));
    SY_TRY(sy_rpc_allow_path(request->connection, path, &allowed));
    status = later_create(request, &later);
    if (status == SY_OK)
        status =
            handlers_of(request)->model_add(core_of(request), allowed, &options, later_done, later);
    if (status < 0 && later)
        later_free(later);
    free(allowed);
    return status;
}

static int do_model_unload(const struct sy_rpc_request *request, json_t *params)
{
    struct sy_repository *repository = request->connection->server->front->repository;
    const char *name;
    int64_t version;

    SY_TRY(need_text(params, "model", &name));
    SY_TRY(read_version(params, &version));
    SY_TRY(repository ? sy_repository_unload_version(repository, name, version)
                      : handlers_of(request)->model_remove(core_of(request), name, version));
    return answer(request, json_object());
}

static int do_evict(const struct sy_rpc_request *request, json_t *params)
{
    const char *name;

    SY_TRY(need_text(params, "model", &name));
    SY_TRY(handlers_of(request)->model_evict(core_of(request), name,
                                             json_is_true(json_object_get(params, "image"))));
    return answer(request, json_object());
}

/* The answer carries the descriptor: without an answer there is nothing to make. */
static int do_region_create(const struct sy_rpc_request *request, json_t *params)
{
    json_t *bytes = json_object_get(params, "bytes"), *result;
    struct sy_rpc_region *region = NULL;
    int fd = -1;

    if (!request->answers)
        return sy_error_set(SY_EARG, "region_create needs an answer: call it, do not notify");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return sy_error_set(SY_EARG, "the parameter \"bytes\" is missing or no number of bytes");
    SY_TRY(sy_rpc_region_create(request->connection, (uint64_t)json_integer_value(bytes), &region,
                                &fd));
    result = json_pack("{s:I, s:I}", "region", (json_int_t)region->id, "bytes",
                       (json_int_t)region->bytes);
    if (!result) {
        close(fd);
        sy_rpc_region_drop(region);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    }
    sy_rpc_answer_json_with_fd(request->connection, request->answers, request->id, result, fd);
    return SY_OK;
}

static int do_region_drop(const struct sy_rpc_request *request, json_t *params)
{
    json_t *id = json_object_get(params, "region");
    struct sy_rpc_region *region;

    if (!json_is_integer(id) || json_integer_value(id) < 0)
        return sy_error_set(SY_EARG, "the parameter \"region\" is missing or no region's number");
    region = sy_rpc_region_find(request->connection, (uint64_t)json_integer_value(id));
    if (!region)
        return sy_error_set(SY_ENOTFOUND, "this connection has no region %" JSON_INTEGER_FORMAT,
                            json_integer_value(id));
    sy_rpc_region_drop(region);
    return answer(request, json_object());
}

static int do_train(const struct sy_rpc_request *request, json_t *params)
{
    const char *text;
    struct later *later = NULL;
    char *allowed = NULL;
    int status;

    SY_TRY(need_text(params, "text", &text));
    SY_TRY(sy_rpc_allow_job(request->connection, text, &allowed));
    status = later_create(request, &later);
    if (status == SY_OK) {
        later->with_job = true;
        status = handlers_of(request)->job_submit(core_of(request), allowed, later_done, later,
                                                  &later->job);
    }
    if (status < 0 && later)
        later_free(later);
    free(allowed);
    return status;
}

/* The job that is asked for, which this client may act on. */
static int need_job(const struct sy_rpc_request *request, json_t *params, uint64_t *out)
{
    json_t *job = json_object_get(params, "job");

    if (!json_is_integer(job) || json_integer_value(job) < 0)
        return sy_error_set(SY_EARG, "the parameter \"job\" is missing or no job's number");
    *out = (uint64_t)json_integer_value(job);
    return sy_access_job(&request->connection->grant, handlers_of(request), core_of(request), *out);
}

static int do_job_pause(const struct sy_rpc_request *request, json_t *params)
{
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(handlers_of(request)->job_suspend(core_of(request), job, true));
    return answer(request, json_object());
}

static int do_job_resume(const struct sy_rpc_request *request, json_t *params)
{
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(handlers_of(request)->job_suspend(core_of(request), job, false));
    return answer(request, json_object());
}

static int do_job_priority(const struct sy_rpc_request *request, json_t *params)
{
    json_t *priority = json_object_get(params, "priority");
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    if (!json_is_integer(priority) || json_integer_value(priority) < -MOST_PRIORITY ||
        json_integer_value(priority) > MOST_PRIORITY)
        return sy_error_set(SY_EARG, "the parameter \"priority\": a number from %d to %d",
                            -MOST_PRIORITY, MOST_PRIORITY);
    SY_TRY(handlers_of(request)->job_set_priority(core_of(request), job,
                                                  (int)json_integer_value(priority)));
    return answer(request, json_object());
}

static int do_policy(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(handlers_of(request)->policy_set(core_of(request), params));
    return answer(request, json_object());
}

static int do_tenant(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(handlers_of(request)->tenant_set(core_of(request), params));
    return answer(request, json_object());
}

static int do_slices(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(handlers_of(request)->slices_set(core_of(request), params));
    return answer(request, json_object());
}

static int do_train_stop(const struct sy_rpc_request *request, json_t *params)
{
    struct later *later = NULL;
    uint64_t job;
    int status;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(later_create(request, &later));
    later->with_job = true;
    later->job = job;
    status = handlers_of(request)->job_stop(core_of(request), later->job,
                                            json_is_true(json_object_get(params, "evaluate")),
                                            later_done, later);
    if (status < 0)
        later_free(later);
    return status;
}

static int do_job_suspend(const struct sy_rpc_request *request, json_t *params)
{
    struct later *later = NULL;
    uint64_t job;

    SY_TRY(need_job(request, params, &job));
    SY_TRY(later_create(request, &later));
    later->with_job = true;
    later->job = job;
    int status = handlers_of(request)->job_park(core_of(request), job, later_done, later);
    if (status < 0)
        later_free(later);
    return status;
}

static int do_trace(const struct sy_rpc_request *request, json_t *params)
{
    json_t *enable = json_object_get(params, "enable"), *trace;

    if (enable) {
        handlers_of(request)->trace_enable(core_of(request), json_is_true(enable));
        return answer(request, json_object());
    }
    SY_TRY(handlers_of(request)->trace_dump(core_of(request), &trace));
    return answer(request, trace);
}

static int do_sessions(const struct sy_rpc_request *request, json_t *params)
{
    json_t *list;

    (void)params;
    SY_TRY(sy_rpc_session_list(request->connection->server->front, &request->connection->grant,
                               &list));
    return answer(request, list);
}

static int do_session_end(const struct sy_rpc_request *request, json_t *params)
{
    SY_TRY(sy_rpc_session_end(request->connection->server->front, &request->connection->grant,
                              params));
    return answer(request, json_object());
}

static int do_drain(const struct sy_rpc_request *request, json_t *params)
{
    struct later *later = NULL;

    (void)params;
    SY_TRY(later_create(request, &later));
    handlers_of(request)->drain(core_of(request), DRAIN_GRACE_NS, drain_done, later);
    return SY_OK;
}

static const struct {
    const char *name;
    method call;
    unsigned right; /* 0: anybody */
} methods[] = {
    {"ping", do_ping, 0},
    {"auth", sy_rpc_auth, 0},
    {"status", do_status, SY_RIGHT_READ},
    {"models", do_models, SY_RIGHT_READ},
    {"model_load", do_model_load, SY_RIGHT_MODELS},
    {"model_unload", do_model_unload, SY_RIGHT_MODELS},
    {"evict", do_evict, SY_RIGHT_MODELS},
    {"region_create", do_region_create, SY_RIGHT_INFER},
    {"region_drop", do_region_drop, SY_RIGHT_INFER},
    {"sessions", do_sessions, SY_RIGHT_INFER},
    {"session_end", do_session_end, SY_RIGHT_INFER},
    {"train", do_train, SY_RIGHT_JOBS},
    {"train_stop", do_train_stop, SY_RIGHT_JOBS},
    {"job_pause", do_job_pause, SY_RIGHT_JOBS},
    {"job_resume", do_job_resume, SY_RIGHT_JOBS},
    {"job_priority", do_job_priority, SY_RIGHT_JOBS},
    {"job_suspend", do_job_suspend, SY_RIGHT_JOBS},
    {"job_state", sy_rpc_job_state, SY_RIGHT_JOBS},
    {"job_state_read", sy_rpc_job_state_read, SY_RIGHT_JOBS},
    {"job_receive", sy_rpc_job_receive, SY_RIGHT_JOBS},
    {"job_receive_piece", sy_rpc_job_receive_piece, SY_RIGHT_JOBS},
    {"job_receive_end", sy_rpc_job_receive_end, SY_RIGHT_JOBS},
    {"policy", do_policy, SY_RIGHT_SETTINGS},
    {"slices", do_slices, SY_RIGHT_SETTINGS},
    {"tenant", do_tenant, SY_RIGHT_SETTINGS},
    {"trace", do_trace, SY_RIGHT_SETTINGS},
    {"drain", do_drain, SY_RIGHT_SETTINGS},
};

static bool is_named(const msgpack_object *name, const char *text)
{
    return name->via.str.size == strlen(text) &&
           memcmp(name->via.str.ptr, text, name->via.str.size) == 0;
}

/* Parameters are an array with at most one map. */
static int params_json(const struct sy_rpc_request *request, json_t **out)
{
    const msgpack_object *params = request->params;

    if (params->via.array.size == 0) {
        *out = json_object();
        return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for parameters");
    }
    if (params->via.array.size > 1 || params->via.array.ptr[0].type != MSGPACK_OBJECT_MAP)
        return sy_error_set(SY_EARG, "parameters are an array that holds one map, or nothing");
    return sy_json_from_msgpack(&params->via.array.ptr[0], out);
}

static int call_method(const struct sy_rpc_request *request, const msgpack_object *name)
{
    json_t *params;
    int status;

    struct sy_grant *grant = &request->connection->grant;

    sy_access_refresh(request->connection->server->front->access, grant);
    if (is_named(name, "infer")) {
        SY_TRY(sy_access_need(grant, SY_RIGHT_INFER));
        return sy_rpc_infer(request);
    }
    for (size_t i = 0; i < SY_ARRAY_LEN(methods); i++) {
        if (!is_named(name, methods[i].name))
            continue;
        SY_TRY(sy_access_need(grant, methods[i].right));
        SY_TRY(params_json(request, &params));
        status = methods[i].call(request, params);
        json_decref(params);
        return status;
    }
    return sy_error_set(
        SY_ENOTFOUND,
        "unknown method \"%.*s\"; there are infer, ping, auth, status, models, model_load, "
        "model_unload, "
        "evict, region_create, region_drop, train, train_stop, job_pause, job_resume, "
        "job_priority, job_suspend, job_state, job_state_read, job_receive, job_receive_piece, "
        "job_receive_end, policy, tenant, trace, drain",
        (int)SY_MIN(name->via.str.size, 64u), name->via.str.ptr ? name->via.str.ptr : "");
}

static int bad_message(void)
{
    return sy_error_set(SY_EPROTO,
                        "a message is [0, id, method, [params]] or [2, method, [params]]");
}

int sy_rpc_dispatch(struct sy_rpc_connection *connection, const msgpack_object *message)
{
    const msgpack_object *item = message->via.array.ptr;
    struct sy_rpc_request request = {.connection = connection};
    uint32_t n = message->type == MSGPACK_OBJECT_ARRAY ? message->via.array.size : 0;
    int status;

    if (n < 3 || item[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return bad_message();
    request.answers = item[0].via.u64 == 0;
    if (request.answers ? n != 4 || item[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER
                        : n != 3 || item[0].via.u64 != 2)
        return bad_message();
    request.id = request.answers ? item[1].via.u64 : 0;
    if (item[n - 2].type != MSGPACK_OBJECT_STR || item[n - 1].type != MSGPACK_OBJECT_ARRAY)
        return bad_message();
    request.params = &item[n - 1];
    connection->n_outstanding++;
    status = call_method(&request, &item[n - 2]);
    if (status == SY_REPOSITORY_LOADS) {
        connection->n_outstanding--;
        return status;
    }
    if (status < 0)
        sy_rpc_answer_error(connection, request.answers, request.id, status, sy_error_text());
    return SY_OK;
}

/* Queries on the repository's models: their list, readiness, configurations. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/package.h"
#include "runtime/base/status.h"
#include "runtime/repository/repository_internal.h"

/* ---- the index ------------------------------------------------------------------------------------------------------ */

static const char *state_of(const struct sy_repository_version *v)
{
    if (v->serves)
        return "READY";
    if (sy_repository_version_is_busy(v))
        return "LOADING";
    return v->state == SY_VERSION_UNAVAILABLE || v->off ? "UNAVAILABLE" : "UNLOADED";
}

static void reason_of(const struct sy_repository_version *v, char reason[600])
{
    const char *text = "";

    if (v->serves && v->state == SY_VERSION_UNAVAILABLE) {
        snprintf(reason, 600, "an older content is served; the new one: %s", v->reason);
        return;
    }
    if (v->state == SY_VERSION_UNAVAILABLE)
        text = v->reason;
    else if (v->state == SY_VERSION_UNLOADED && !v->chosen)
        text = "its model's version policy does not choose it";
    else if (v->state == SY_VERSION_UNLOADED && v->off)
        text = "unloaded";
    else if (v->state == SY_VERSION_UNLOADED &&
             (v->evicted || v->model->repository->control != SY_REPOSITORY_EXPLICIT))
        text = "the first request for it loads it";
    else if (v->state == SY_VERSION_UNLOADED)
        text = "not loaded yet";
    snprintf(reason, 600, "%s", text);
}

static int add_entry(json_t *list, const char *name, int64_t version, const char *state,
                     const char *reason)
{
    char number[24] = "";
    json_t *entry;

    if (version > 0)
        snprintf(number, sizeof number, "%" PRId64, version);
    entry = json_pack("{s:s, s:s, s:s, s:s}", "name", name, "version", number, "state", state,
                      "reason", reason);
    return json_array_append_new(list, entry) == 0
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "no memory for the index");
}

static int add_model(json_t *list, const struct sy_repository_model *model, bool only_ready)
{
    char reason[600];

    if (!model->versions && !only_ready && model->status < 0)
        return add_entry(list, model->name, 0, "UNAVAILABLE", model->reason);
    for (const struct sy_repository_version *v = model->versions; v; v = v->next) {
        bool refused = model->status < 0 && v->chosen && v->state == SY_VERSION_UNLOADED;

        if (only_ready && !v->serves)
            continue;
        reason_of(v, reason);
        SY_TRY(add_entry(list, model->name, v->version, refused ? "UNAVAILABLE" : state_of(v),
                         refused ? model->reason : reason));
    }
    return SY_OK;
}

/* Adds the core's models that are not in the folder. */
static int add_others(struct sy_repository *r, json_t *list, bool only_ready)
{
    json_t *status, *model;
    size_t i;
    int result = SY_OK;

    SY_TRY(r->handlers->status(r->core, &status));
    json_array_foreach(json_object_get(status, "models"), i, model)
    {
        const char *name = json_string_value(json_object_get(model, "name")),
                   *state = json_string_value(json_object_get(model, "state")),
                   *error = json_string_value(json_object_get(model, "error"));
        int64_t version = json_integer_value(json_object_get(model, "version"));
        bool ready = state && strcmp(state, "ready") == 0;

        if (!name || (only_ready && !ready) || sy_repository_find(r, name))
            continue;
        result = add_entry(list, name, version ? version : 1,
                           ready                                    ? "READY"
                           : state && strcmp(state, "loading") == 0 ? "LOADING"
                                                                    : "UNAVAILABLE",
                           error ? error : "");
        if (result < 0)
            break;
    }
    json_decref(status);
    return result;
}

int sy_repository_index(struct sy_repository *r, bool only_ready, json_t **out)
{
    struct sy_repository_model **models = sy_repository_models_sorted(r);
    json_t *list = json_array();
    int status = models && list ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the index");

    for (int i = 0; status == SY_OK && models[i]; i++)
        status = add_model(list, models[i], only_ready);
    free(models);
    if (status == SY_OK)
        status = add_others(r, list, only_ready);
    if (status < 0) {
        json_decref(list);
        return status;
    }
    *out = list;
    return SY_OK;
}

/* ---- one model ------------------------------------------------------------------------------------------------------ */

int sy_repository_is_ready(struct sy_repository *r, const char *name, int64_t version)
{
    struct sy_core_model_ref *ref;

    SY_TRY(sy_repository_acquire(r, name, version, NULL, &ref));
    r->handlers->model_release(r->core, ref);
    return SY_OK;
}

/* With the configuration that the version was loaded with. */
static const struct sy_model_config *config_of(const struct sy_repository *r, const char *name,
                                               int64_t version)
{
    const struct sy_repository_model *model = sy_repository_find(r, name);
    const struct sy_repository_version *v =
        model ? sy_repository_version_find(model, version) : NULL;

    return v && v->serves ? v->config : NULL;
}

int sy_repository_config(struct sy_repository *r, const char *name, int64_t version, json_t **out)
{
    struct sy_model_config *none = NULL;
    const struct sy_model_config *config;
    struct sy_core_model_ref *ref;
    int status = SY_OK;

    SY_TRY(sy_repository_acquire(r, name, version, NULL, &ref));
    config = config_of(r, name, ref->version);
    if (!config) {
        status = sy_model_config_parse(NULL, 0, name, &none);
        config = none;
    }
    if (status == SY_OK)
        status = sy_model_config_complete(config, name, ref->package->graph, out);
    sy_model_config_free(none);
    r->handlers->model_release(r->core, ref);
    return status;
}

int sy_repository_versions(struct sy_repository *r, const char *name, int64_t *out, int n)
{
    const struct sy_repository_model *model = sy_repository_find(r, name);
    struct sy_core_model_ref *ref;
    int found = 0;

    for (const struct sy_repository_version *v = model ? model->versions : NULL; v; v = v->next)
        if (v->serves && found < n)
            out[found++] = v->version;
    if (found == 0 && n > 0 && r->handlers->model_acquire(r->core, name, 0, &ref) == SY_OK) {
        out[found++] = ref->version;
        r->handlers->model_release(r->core, ref);
    }
    return found;
}

#include "runtime/front/rpc/rpc_session.h"

#include <string.h>

#include "runtime/base/status.h"
#include "runtime/front/request/session_table.h"

json_t *sy_rpc_session_state(const struct sy_core_model_ref *model)
{
    const struct sy_graph *graph = model->package->graph;
    struct sy_state_pair pairs[SY_MAX_ENDS];
    int n = sy_session_pairs(model, pairs, SY_MAX_ENDS);
    json_t *list = json_array();

    for (int i = 0; list && i < n; i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:s}", "input", graph->tensors[graph->inputs[pairs[i].input]].name,
                      "output", graph->tensors[graph->outputs[pairs[i].output]].name));
    return list;
}

static int check_sessions(const struct sy_front *front)
{
    return front->sessions
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED,
                              "this server keeps nothing between the requests of a sequence");
}

/* A4: sessions of other tenants go out of the list. */
static void keep_own(json_t *list, const struct sy_grant *grant)
{
    for (size_t i = json_array_size(list); *grant->tenant && i-- > 0;) {
        const char *tenant = json_string_value(json_object_get(json_array_get(list, i), "tenant"));

        if (!tenant || strcmp(tenant, grant->tenant) != 0)
            json_array_remove(list, i);
    }
}

int sy_rpc_session_list(const struct sy_front *front, const struct sy_grant *grant, json_t **out)
{
    json_t *list;

    SY_TRY(check_sessions(front));
    SY_TRY(sy_sessions_list(front->sessions, &list));
    keep_own(list, grant);
    *out = json_pack("{s:o}", "sessions", list);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
}

/* The tenant that requests without one get: the model's. */
static void usual_tenant(const struct sy_front *front, const char *model,
                         char tenant[SY_CORE_TENANT_NAME])
{
    struct sy_core_model_ref *ref;

    *tenant = '\0';
    if (front->handlers->model_acquire(front->core, model, 0, &ref) < 0)
        return;
    memcpy(tenant, ref->defaults.tenant, SY_CORE_TENANT_NAME);
    front->handlers->model_release(front->core, ref);
}

int sy_rpc_session_end(const struct sy_front *front, const struct sy_grant *grant,
                       const json_t *params)
{
    const char *model = json_string_value(json_object_get(params, "model")),
               *id = json_string_value(json_object_get(params, "session")),
               *tenant = json_string_value(json_object_get(params, "tenant"));

    SY_TRY(check_sessions(front));
    if (!model || !id)
        return sy_error_set(SY_EARG, "the parameter \"%s\" is missing or not a string",
                            model ? "session" : "model");
    char usual[SY_CORE_TENANT_NAME];
    usual_tenant(front, model, usual);
    bool is_asked = tenant != NULL;
    SY_TRY(sy_access_tenant(grant, tenant, &tenant));
    if (!is_asked && !*tenant)
        tenant = usual;
    return sy_sessions_end(front->sessions, model, tenant, id);
}

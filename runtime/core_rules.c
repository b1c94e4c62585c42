/* What an operator sets while the runtime runs: the policy among jobs, training's share, tenants. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/core_internal.h"

int sy_core_tenant_find(struct sy_core *core, const char *name, int *out)
{
    for (int i = 0; i < core->n_tenants; i++) {
        if (strcmp(core->tenants[i].name, name) == 0) {
            *out = i;
            return SY_OK;
        }
    }
    if (!*name || strlen(name) >= SY_CORE_TENANT_NAME)
        return sy_error_set(SY_EARG, "tenant '%.80s': a name of 1 to %d bytes", name,
                            SY_CORE_TENANT_NAME - 1);
    if (core->n_tenants == SY_POLICY_MAX_TENANTS)
        return sy_error_set(SY_EBUSY, "tenant '%s': there are %d already", name, core->n_tenants);
    struct sy_core_tenant *t = &core->tenants[core->n_tenants];
    *t = (struct sy_core_tenant){.weight = 1};
    snprintf(t->name, sizeof t->name, "%s", name);
    *out = core->n_tenants++;
    return SY_OK;
}

/* The value of `key`, or `otherwise` when it is not there; EARG when it is no number from `least` to `most`. */
static int number(json_t *params, const char *key, double least, double most, double otherwise,
                  double *out)
{
    json_t *value = json_object_get(params, key);
    *out = value ? json_number_value(value) : otherwise;
    if (value && (!json_is_number(value) || !(*out >= least && *out <= most)))
        return sy_error_set(SY_EARG, "%s: a number from %g to %g", key, least, most);
    return SY_OK;
}

static int check_keys(json_t *params, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach(params, key, value)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return sy_error_set(SY_EARG, "there is no rule '%.60s'", key);
    }
    return SY_OK;
}

int sy_core_policy_set(struct sy_core *core, json_t *params)
{
    static const char *const known[] = {"policy", "at_once", "max_wait_s", "train_share", NULL};
    const char *name = json_string_value(json_object_get(params, "policy"));
    enum sy_policy_kind kind = sy_policy_kind(sy_sched_policy(core->sched));
    double at_once, max_wait_s, train_share;
    SY_TRY(check_keys(params, known));
    if (name)
        SY_TRY(sy_policy_parse(name, &kind));
    SY_TRY(number(params, "at_once", 0, SY_CORE_MAX_WORKERS, core->at_once, &at_once));
    SY_TRY(number(params, "max_wait_s", 0, 1e6, core->max_wait_s, &max_wait_s));
    SY_TRY(number(params, "train_share", 0, 1, core->train_share, &train_share));
    sy_core_tick(core);
    SY_TRY(sy_sched_set_policy(core->sched, kind, (int)at_once, (sy_ns)(max_wait_s * 1e9)));
    SY_TRY(sy_sched_set_train_share(core->sched, (unsigned)(train_share * 1000)));
    core->at_once = at_once;
    core->max_wait_s = max_wait_s;
    core->train_share = train_share;
    sy_log_info("rules", "event=policy policy=%s at_once=%g max_wait_s=%g train_share=%g",
                sy_policy_name(kind), at_once, max_wait_s, train_share);
    sy_core_pump_soon(core);
    return SY_OK;
}

int sy_core_tenant_set(struct sy_core *core, json_t *params)
{
    static const char *const known[] = {"tenant", "weight", "hard_share", "memory_bytes", NULL};
    const char *name = json_string_value(json_object_get(params, "tenant"));
    int tenant;
    double weight, hard, memory;
    SY_TRY(check_keys(params, known));
    if (!name)
        return sy_error_set(SY_EARG, "the parameter \"tenant\" is missing or no string");
    SY_TRY(sy_core_tenant_find(core, name, &tenant));
    struct sy_core_tenant *t = &core->tenants[tenant];
    SY_TRY(number(params, "weight", 1, 1e6, t->weight, &weight));
    SY_TRY(number(params, "hard_share", 0, 1, t->hard_permille / 1e3, &hard));
    SY_TRY(number(params, "memory_bytes", 0, 1e18, (double)t->memory_bytes, &memory));
    sy_core_tick(core);
    SY_TRY(sy_sched_set_tenant(core->sched, tenant, (unsigned)weight, (unsigned)(hard * 1000),
                               (uint64_t)memory));
    t->weight = (unsigned)weight;
    t->hard_permille = (unsigned)(hard * 1000);
    t->memory_bytes = (uint64_t)memory;
    sy_core_pump_soon(core);
    return SY_OK;
}

json_t *sy_core_rules_json(struct sy_core *core)
{
    const struct sy_quotas *quotas = sy_sched_quotas(core->sched);
    json_t *tenants = json_array();
    for (int i = 0; i < core->n_tenants; i++) {
        const struct sy_core_tenant *t = &core->tenants[i];
        json_array_append_new(tenants, json_pack("{s:s, s:i, s:f, s:I, s:I, s:I}", "tenant",
                                                 t->name, "weight", (int)t->weight, "hard_share",
                                                 t->hard_permille / 1e3, "memory_bytes",
                                                 (json_int_t)t->memory_bytes, "memory_used_bytes",
                                                 (json_int_t)quotas->used_bytes[i], "used_ns",
                                                 (json_int_t)t->used_ns));
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:o}", "policy",
                     sy_policy_name(sy_policy_kind(sy_sched_policy(core->sched))), "at_once",
                     core->at_once, "max_wait_s", core->max_wait_s, "train_share",
                     core->train_share, "tenants", tenants);
}

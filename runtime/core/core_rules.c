/* Administration while the runtime runs: the policy of jobs, training's share, tenants. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

/* Reads the number `key`, or `otherwise` if it is missing; EARG unless it is from `least` to `most`. */
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

/* Reads a whole number; otherwise as number(). */
static int whole(json_t *params, const char *key, double least, double most, double otherwise,
                 double *out)
{
    SY_TRY(number(params, key, least, most, otherwise, out));
    if (*out != floor(*out))
        return sy_error_set(SY_EARG, "%s is %g: a whole number from %g to %g", key, *out, least,
                            most);
    return SY_OK;
}

/* Reads a fraction as per mille; a value above 0 must not be rounded to 0. */
static int share(json_t *params, const char *key, double otherwise, unsigned *permille)
{
    double part;
    SY_TRY(number(params, key, 0, 1, otherwise, &part));
    *permille = (unsigned)lround(part * 1000);
    if (part > 0 && *permille == 0)
        return sy_error_set(SY_EARG, "%s is %g: 0, or from 0.001 to 1", key, part);
    return SY_OK;
}

static int text(json_t *params, const char *key, const char *otherwise, const char **out)
{
    json_t *value = json_object_get(params, key);
    *out = value ? json_string_value(value) : otherwise;
    return *out ? SY_OK
                : sy_error_set(SY_EARG, "the parameter \"%s\" is missing or not a string", key);
}

/* Stores the rules so that they survive a restart (C6). */
static int keep_rules(struct sy_core *core)
{
    json_t *rules = sy_core_rules_json(core);
    int status = sy_job_store_put_rules(core->store, rules);
    json_decref(rules);
    return status < 0 ? sy_error_prefix(status, "it is set, but will not be after a restart")
                      : SY_OK;
}

static int set_policy(struct sy_core *core, json_t *params)
{
    static const char *const known[] = {"policy", "at_once", "max_wait_s", "train_share", NULL};
    enum sy_policy_kind kind = sy_policy_kind(sy_sched_policy(core->sched));
    const char *name;
    double at_once, max_wait_s;
    unsigned train_permille;
    SY_TRY(check_keys(params, known));
    SY_TRY(text(params, "policy", sy_policy_name(kind), &name));
    SY_TRY(sy_policy_parse(name, &kind));
    SY_TRY(whole(params, "at_once", 0, SY_CORE_MAX_WORKERS, core->at_once, &at_once));
    SY_TRY(number(params, "max_wait_s", 0, 1e6, core->max_wait_s, &max_wait_s));
    SY_TRY(share(params, "train_share", core->train_share, &train_permille));
    sy_core_tick(core);
    SY_TRY(sy_sched_set_policy(core->sched, kind, (int)at_once, (sy_ns)(max_wait_s * 1e9)));
    SY_TRY(sy_sched_set_train_share(core->sched, train_permille));
    core->at_once = at_once;
    core->max_wait_s = max_wait_s;
    core->train_share = train_permille / 1e3;
    sy_log_info("rules", "event=policy policy=%s at_once=%g max_wait_s=%g train_share=%g",
                sy_policy_name(kind), at_once, max_wait_s, core->train_share);
    sy_core_pump_soon(core);
    return SY_OK;
}

static int set_tenant(struct sy_core *core, json_t *params)
{
    static const char *const known[] = {"tenant", "weight", "hard_share", "memory_bytes", NULL};
    static const struct sy_core_tenant fresh = {.weight = 1};
    const struct sy_core_tenant *now = &fresh;
    const char *name;
    int tenant;
    double weight, memory;
    unsigned hard_permille;
    SY_TRY(check_keys(params, known));
    SY_TRY(text(params, "tenant", NULL, &name));
    for (int i = 0; i < core->n_tenants; i++)
        if (strcmp(core->tenants[i].name, name) == 0)
            now = &core->tenants[i];
    SY_TRY(whole(params, "weight", 1, 1e6, now->weight, &weight));
    SY_TRY(share(params, "hard_share", now->hard_permille / 1e3, &hard_permille));
    SY_TRY(number(params, "memory_bytes", 0, 1e18, (double)now->memory_bytes, &memory));
    SY_TRY(sy_core_tenant_find(core, name, &tenant)); /* last: a rejected call adds no tenant */
    struct sy_core_tenant *t = &core->tenants[tenant];
    sy_core_tick(core);
    SY_TRY(sy_sched_set_tenant(core->sched, tenant, (unsigned)weight, hard_permille,
                               (uint64_t)memory));
    t->weight = (unsigned)weight;
    t->hard_permille = hard_permille;
    t->memory_bytes = (uint64_t)memory;
    sy_core_pump_soon(core);
    return SY_OK;
}

static int set_slices(struct sy_core *core, json_t *params)
{
    static const char *const known[] = {"slices", "for_jobs", "for_models", "for_runtime", "model",
                                        "job",    "slice",    "bound",      "keep",        NULL};
    SY_TRY(check_keys(params, known));
    return sy_core_slices_apply(core, params);
}

int sy_core_policy_set(struct sy_core *core, json_t *params)
{
    SY_TRY(set_policy(core, params));
    return keep_rules(core);
}

int sy_core_tenant_set(struct sy_core *core, json_t *params)
{
    SY_TRY(set_tenant(core, params));
    return keep_rules(core);
}

int sy_core_slices_set(struct sy_core *core, json_t *params)
{
    SY_TRY(set_slices(core, params));
    return keep_rules(core);
}

/* A tenant without settings, only named by requests, is not restored. */
static bool is_plain(const json_t *tenant)
{
    return json_number_value(json_object_get(tenant, "weight")) == 1 &&
           json_number_value(json_object_get(tenant, "hard_share")) == 0 &&
           json_number_value(json_object_get(tenant, "memory_bytes")) == 0;
}

/* The entries of `from` that can be set; the others are for display only. */
static json_t *pick(const json_t *from, const char *const *keys)
{
    json_t *params = json_object();
    for (; *keys; keys++)
        if (json_object_get(from, *keys))
            json_object_set(params, *keys, json_object_get(from, *keys));
    return params;
}

static void resume_slices(struct sy_core *core, const json_t *rules)
{
    json_t *was = json_deep_copy(json_object_get(rules, "compute"));
    if (was && set_slices(core, was) < 0)
        sy_log_error("slices", "event=not_resumed why=\"%s\"", sy_error_text());
    json_decref(was);
}

void sy_core_resume_rules(struct sy_core *core)
{
    static const char *const policy[] = {"policy", "at_once", "max_wait_s", "train_share", NULL};
    static const char *const tenant[] = {"tenant", "weight", "hard_share", "memory_bytes", NULL};
    json_t *rules = sy_job_store_rules(core->store), *params, *entry;
    size_t i;
    if (!rules)
        return;
    resume_slices(core, rules);
    params = pick(rules, policy);
    if (set_policy(core, params) < 0)
        sy_log_error("rules", "event=not_resumed why=\"%s\"", sy_error_text());
    json_decref(params);
    json_array_foreach(json_object_get(rules, "tenants"), i, entry)
    {
        params = pick(entry, tenant);
        if (!is_plain(entry) && set_tenant(core, params) < 0)
            sy_log_error("rules", "event=not_resumed why=\"%s\"", sy_error_text());
        json_decref(params);
    }
    json_decref(rules);
}

json_t *sy_core_rules_json(struct sy_core *core)
{
    const struct sy_quotas *quotas = sy_sched_quotas(core->sched);
    json_t *tenants = json_array(), *policies = json_array();
    for (int i = 0; i < core->n_tenants; i++) {
        const struct sy_core_tenant *t = &core->tenants[i];
        json_array_append_new(tenants, json_pack("{s:s, s:i, s:f, s:I, s:I, s:I}", "tenant",
                                                 t->name, "weight", (int)t->weight, "hard_share",
                                                 t->hard_permille / 1e3, "memory_bytes",
                                                 (json_int_t)t->memory_bytes, "memory_used_bytes",
                                                 (json_int_t)quotas->used_bytes[i], "used_ns",
                                                 (json_int_t)t->used_ns));
    }
    for (int kind = 0; kind < SY_POLICY_N_KINDS; kind++)
        json_array_append_new(policies, json_string(sy_policy_name((enum sy_policy_kind)kind)));
    return json_pack("{s:s, s:o, s:f, s:f, s:f, s:o, s:o}", "policy",
                     sy_policy_name(sy_policy_kind(sy_sched_policy(core->sched))), "policies",
                     policies, "at_once", core->at_once, "max_wait_s", core->max_wait_s,
                     "train_share", core->train_share, "tenants", tenants, "compute",
                     sy_core_slices_rules(core));
}

/* Tenants by name, added when first named. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"

static int check_name(const char *name)
{
    size_t shown = sy_printable_length(name);
    if (name[shown]) /* names are shown on terminals and in JSON */
        return sy_error_set(SY_EARG,
                            "tenant: a name is UTF-8 without control characters, not 0x%02x",
                            (unsigned char)name[shown]);
    if (!*name || strlen(name) >= SY_CORE_TENANT_NAME)
        return sy_error_set(SY_EARG, "tenant '%.80s': a name of 1 to %d bytes", name,
                            SY_CORE_TENANT_NAME - 1);
    return SY_OK;
}

/* Whether the tenant has settings, jobs or requests. */
static bool is_needed(const struct sy_core *core, int tenant)
{
    const struct sy_core_tenant *t = &core->tenants[tenant];
    if (t->weight != 1 || t->hard_permille || t->memory_bytes ||
        sy_sched_quotas(core->sched)->used_bytes[tenant])
        return true;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (j->tenant == tenant)
            return true;
    for (const struct sy_core_request *r = core->requests; r; r = r->next)
        if (r->tenant == tenant)
            return true;
    return false;
}

/* Reuses the entry of the unused tenant that was named longest ago, and adds its device time to that of requests without a tenant; EBUSY. */
static int take_place(struct sy_core *core, int *out)
{
    int oldest = 0;
    for (int i = 1; i < core->n_tenants; i++)
        if ((!oldest || core->tenants[i].named < core->tenants[oldest].named) &&
            !is_needed(core, i))
            oldest = i;
    if (!oldest)
        return sy_error_set(SY_EBUSY,
                            "there are %d tenants already, each with rules, jobs or requests",
                            core->n_tenants);
    core->tenants[0].used_ns += core->tenants[oldest].used_ns;
    *out = oldest;
    return SY_OK;
}

int sy_core_tenant_find(struct sy_core *core, const char *name, int *out)
{
    int place = core->n_tenants;
    for (int i = 0; i < core->n_tenants; i++) {
        if (strcmp(core->tenants[i].name, name) == 0) {
            core->tenants[i].named = ++core->n_named;
            *out = i;
            return SY_OK;
        }
    }
    SY_TRY(check_name(name));
    if (place == SY_POLICY_MAX_TENANTS)
        SY_TRY(take_place(core, &place));
    else
        core->n_tenants++;
    core->tenants[place] = (struct sy_core_tenant){.weight = 1, .named = ++core->n_named};
    snprintf(core->tenants[place].name, SY_CORE_TENANT_NAME, "%s", name);
    *out = place;
    return SY_OK;
}

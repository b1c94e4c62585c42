#include "allocator/quota.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int check_tenant(int tenant)
{
    if (tenant >= 0 && tenant < SY_QUOTA_MAX_TENANTS)
        return SY_OK;
    return sy_error_set(SY_EARG, "no tenant %d: tenants are 0 to %d", tenant,
                        SY_QUOTA_MAX_TENANTS - 1);
}

int sy_quota_set(struct sy_quotas *q, int tenant, uint64_t limit_bytes)
{
    SY_TRY(check_tenant(tenant));
    q->limit_bytes[tenant] = limit_bytes;
    return SY_OK;
}

int sy_quota_charge(struct sy_quotas *q, int tenant, uint64_t bytes, const char *what)
{
    SY_TRY(check_tenant(tenant));
    uint64_t limit = q->limit_bytes[tenant], used = q->used_bytes[tenant];
    if (limit > 0 && (bytes > limit || used > limit - bytes))
        return sy_error_set(bytes > limit ? SY_ENOMEM_DEVICE : SY_EBUSY,
                            "%s needs %llu bytes, but %llu of the tenant's quota of %llu are in "
                            "use; %s",
                            what, (unsigned long long)bytes, (unsigned long long)used,
                            (unsigned long long)limit,
                            bytes > limit ? "raise the quota or make it smaller"
                                          : "end some of the tenant's work or raise the quota");
    q->used_bytes[tenant] += bytes;
    return SY_OK;
}

void sy_quota_charge_again(struct sy_quotas *q, int tenant, uint64_t bytes)
{
    assert(tenant >= 0 && tenant < SY_QUOTA_MAX_TENANTS);
    q->used_bytes[tenant] += bytes;
}

void sy_quota_release(struct sy_quotas *q, int tenant, uint64_t bytes)
{
    assert(tenant >= 0 && tenant < SY_QUOTA_MAX_TENANTS && q->used_bytes[tenant] >= bytes);
    q->used_bytes[tenant] -= bytes;
}

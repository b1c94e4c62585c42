/* Memory quotas of tenants: how much of the pool each may be promised. Pure books.
 *
 * A tenant is charged for all that it alone could need (a job: persistent and ephemeral bytes; a model: its weights),
 * whichever jobs share lanes with it, so that no tenant's charge depends on others. */
#ifndef SY_ALLOCATOR_QUOTA_H
#define SY_ALLOCATOR_QUOTA_H

#include <stdint.h>

#define SY_QUOTA_MAX_TENANTS 256

struct sy_quotas {
    uint64_t limit_bytes[SY_QUOTA_MAX_TENANTS]; /* 0: none */
    uint64_t used_bytes[SY_QUOTA_MAX_TENANTS];
};

/* EARG: no such tenant. A limit below what is in use takes nothing away; it refuses what comes. */
int sy_quota_set(struct sy_quotas *q, int tenant, uint64_t limit_bytes);
/* Charges, or refuses with the numbers and changes nothing. EBUSY: it would fit if the tenant had less; ENOMEM_DEVICE: never
 * under this limit; EARG. `what` names the thing, and whose it is, in the error text. */
int sy_quota_charge(struct sy_quotas *q, int tenant, uint64_t bytes, const char *what);
/* For memory that was charged before and spilled meanwhile: whatever the limit is now. */
void sy_quota_charge_again(struct sy_quotas *q, int tenant, uint64_t bytes);
/* Gives back what was charged; more than that is a bug (assert). */
void sy_quota_release(struct sy_quotas *q, int tenant, uint64_t bytes);

#endif

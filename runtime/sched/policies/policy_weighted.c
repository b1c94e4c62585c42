/* The tenant with the least time for its weight; of its jobs the one with the least. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->tenant_virtual_ns, job->virtual_ns};
}

const struct sy_policy_rule sy_policy_weighted = {
    .name = "weighted", .text = "by the tenants' weights", .key = key};

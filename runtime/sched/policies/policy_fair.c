/* Least device time since it joined. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->virtual_ns, 0};
}

const struct sy_policy_rule sy_policy_fair = {
    .name = "fair", .text = "equal device time since they joined", .key = key};

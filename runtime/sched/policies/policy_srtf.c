/* Least remaining time: iterations left x measured iteration time. A job that was not measured runs once, to be measured. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->left_ns, 0};
}

const struct sy_policy_rule sy_policy_srtf = {
    .name = "srtf", .text = "least time remaining", .key = key};

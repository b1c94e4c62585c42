/* Most urgent first; among equals the least recently run. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->priority, job->turn};
}

const struct sy_policy_rule sy_policy_priority = {
    .name = "priority", .text = "by the jobs' priorities", .key = key};

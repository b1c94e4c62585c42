/* First come, first served. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    (void)job;
    return (struct sy_policy_key){0, 0};
}

const struct sy_policy_rule sy_policy_fifo = {
    .name = "fifo", .text = "first come, first served", .key = key};

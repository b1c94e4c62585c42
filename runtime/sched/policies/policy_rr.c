/* Round robin: the least recently run. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->turn, 0};
}

const struct sy_policy_rule sy_policy_rr = {.name = "rr", .text = "in turn", .key = key};

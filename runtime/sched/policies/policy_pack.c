/* Every lane at once; of each lane, iterations in the order in which they became ready (Salus, MLSys '20). */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->turn, 0};
}

const struct sy_policy_rule sy_policy_pack = {
    .name = "pack", .text = "as many at once as lanes allow", .all_lanes = true, .key = key};

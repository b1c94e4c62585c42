/* Least attained service: least device time so far, so that short jobs end early although lengths are unknown (Tiresias, NSDI '19,
 * section 3.2, here without queues). Unlike under fair, a job that comes later catches up first. */
#include "runtime/sched/policies/policy_table.h"

static struct sy_policy_key key(const struct sy_policy_facts *job)
{
    return (struct sy_policy_key){job->used_ns, 0};
}

const struct sy_policy_rule sy_policy_las = {
    .name = "las", .text = "least device time so far", .key = key};

/* A job policy is an order: of the jobs that may start, the one with the least key runs the next iteration. Pure; one file a policy, and its row in
 * SY_POLICY_TABLE (policy_table.h). */
#ifndef SY_RUNTIME_SCHED_POLICIES_POLICY_RULE_H
#define SY_RUNTIME_SCHED_POLICIES_POLICY_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* The facts that a policy may use. Times are nanoseconds of device time. */
struct sy_policy_facts {
    uint64_t turn; /* sequence number of the job's last start among all starts; 0: it has not run */
    /* remaining iterations x measured iteration time; 0: not measured yet; UINT64_MAX: not known */
    uint64_t left_ns;
    uint64_t used_ns; /* since it joined */
    /* used_ns, plus the virtual time that the running job had when this one joined, came back or the policy was set (P4) */
    uint64_t virtual_ns;
    uint64_t tenant_virtual_ns; /* virtual time of its tenant */
    uint64_t priority;          /* smaller is more urgent */
};

/* The smaller key goes first: by `first`, then `second`, then order of arrival. */
struct sy_policy_key {
    uint64_t first, second;
};

struct sy_policy_rule {
    const char *name;
    const char *text; /* the order in words, up to 40 characters */
    bool all_lanes;   /* each lane may run a job at once; else one job in total */
    struct sy_policy_key (*key)(const struct sy_policy_facts *job);
};

#endif

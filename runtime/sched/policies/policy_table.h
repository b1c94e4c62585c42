/* The table of job policies (runtime/sched/policy.h says what each promises). */
#ifndef SY_RUNTIME_SCHED_POLICIES_POLICY_TABLE_H
#define SY_RUNTIME_SCHED_POLICIES_POLICY_TABLE_H

#include "runtime/sched/policies/policy_rule.h"

/* X(NAME, name): sy_policy_name is in policy_name.c. */
#define SY_POLICY_TABLE(X) \
    X(FIFO, fifo)          \
    X(SRTF, srtf)          \
    X(PACK, pack)          \
    X(FAIR, fair)          \
    X(RR, rr)              \
    X(WEIGHTED, weighted)  \
    X(PRIORITY, priority)  \
    X(LAS, las)

enum sy_policy_kind {
#define X(NAME, name) SY_POLICY_##NAME,
    SY_POLICY_TABLE(X)
#undef X
        SY_POLICY_N_KINDS
};
#define X(NAME, name) extern const struct sy_policy_rule sy_policy_##name;
SY_POLICY_TABLE(X)
#undef X

/* All names as one literal, each preceded by a space. */
#define SY_POLICY_WORD(NAME, name) " " #name
#define SY_POLICY_WORDS            SY_POLICY_TABLE(SY_POLICY_WORD)

#endif

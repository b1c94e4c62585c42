#include "runtime/repository/version_policy.h"

static bool is_among(const int64_t *versions, int n, int64_t version)
{
    for (int i = 0; i < n; i++)
        if (versions[i] == version)
            return true;
    return false;
}

void sy_version_policy_choose(const struct sy_version_policy *policy, const int64_t *versions,
                              int n, bool *served)
{
    int latest = policy->n > 0 ? policy->n : 1;

    for (int i = 0; i < n; i++)
        served[i] = policy->kind == SY_VERSIONS_ALL ||
                    (policy->kind == SY_VERSIONS_LATEST && i >= n - latest) ||
                    (policy->kind == SY_VERSIONS_SPECIFIC &&
                     is_among(policy->versions, policy->n, versions[i]));
}

int64_t sy_version_policy_missing(const struct sy_version_policy *policy, const int64_t *versions,
                                  int n)
{
    for (int i = 0; policy->kind == SY_VERSIONS_SPECIFIC && i < policy->n; i++)
        if (!is_among(versions, n, policy->versions[i]))
            return policy->versions[i];
    return 0;
}

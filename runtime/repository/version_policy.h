/* Which of a model's versions are served. Pure. */
#ifndef SY_REPOSITORY_VERSION_POLICY_H
#define SY_REPOSITORY_VERSION_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define SY_MOST_VERSIONS 64 /* of one model that are looked at; the highest count */

enum sy_version_policy_kind { SY_VERSIONS_LATEST, SY_VERSIONS_ALL, SY_VERSIONS_SPECIFIC };

/* Zeroed: the latest one, Triton's default. */
struct sy_version_policy {
    enum sy_version_policy_kind kind;
    int n; /* LATEST: how many, 0 is 1. SPECIFIC: of `versions` */
    int64_t versions[SY_MOST_VERSIONS];
};

/* served[i]: whether versions[i] is served. versions: of the folder, ascending, each once. */
void sy_version_policy_choose(const struct sy_version_policy *policy, const int64_t *versions,
                              int n, bool *served);
/* The first that the policy asks for by number and the folder lacks; 0: none. */
int64_t sy_version_policy_missing(const struct sy_version_policy *policy, const int64_t *versions,
                                  int n);

#endif

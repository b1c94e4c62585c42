/* Whose the device's time was. Pure: time comes in as a number.
 *
 * Owners (a model, a job) begin and end to use the device; time in which several do is theirs in equal parts, time in which nobody does is
 * idle. A1: what all owners were charged, and idle time, are together what has passed, to the nanosecond. */
#ifndef SY_SCHED_ACCOUNT_H
#define SY_SCHED_ACCOUNT_H

#include <stdbool.h>

#include "runtime/base/clock.h"

/* The caller's, zeroed; may not go away while it uses the device. */
struct sy_account_owner {
    sy_ns used_ns;
    bool uses;
    sy_ns *tenant_ns;              /* charged too; NULL: nobody's */
    struct sy_account_owner *next; /* the account's */
};

struct sy_account {
    sy_ns begun_ns, now_ns, idle_ns, charged_ns;
    struct sy_account_owner *users;
    int n_users;
};

void sy_account_start(struct sy_account *a, sy_ns now);
/* Beginning twice, or ending what did not begin, changes nothing. */
void sy_account_begin(struct sy_account *a, struct sy_account_owner *owner, sy_ns now);
void sy_account_end(struct sy_account *a, struct sy_account_owner *owner, sy_ns now);
/* Charges what has passed up to `now`, so that the sums can be read. */
void sy_account_pass(struct sy_account *a, sy_ns now);
/* A1. */
bool sy_account_is_valid(const struct sy_account *a);

#endif

/* How much device time each owner (a model, a job) used. Pure: time is an argument.
 *
 * Owners begin and end their use of the device. Time in which several use it is divided equally among them; time in which none does is idle.
 * A1: the owners' time and idle time add up to the time that has passed, to the nanosecond. */
#ifndef SY_SCHED_ACCOUNT_H
#define SY_SCHED_ACCOUNT_H

#include <stdbool.h>

#include "runtime/base/clock.h"

/* Allocated and zeroed by the caller; must stay valid while the owner uses the device. */
struct sy_account_owner {
    sy_ns used_ns;
    bool uses;
    sy_ns *tenant_ns;              /* this tenant is charged too; NULL: none */
    struct sy_account_owner *next; /* private to the account */
};

struct sy_account {
    sy_ns begun_ns, now_ns, idle_ns, charged_ns;
    struct sy_account_owner *users;
    int n_users;
};

void sy_account_start(struct sy_account *a, sy_ns now);
/* Both are idempotent: a second begin, or an end without a begin, changes nothing. */
void sy_account_begin(struct sy_account *a, struct sy_account_owner *owner, sy_ns now);
void sy_account_end(struct sy_account *a, struct sy_account_owner *owner, sy_ns now);
/* Charges the time up to `now`, so that the sums are current. */
void sy_account_pass(struct sy_account *a, sy_ns now);
/* Invariant A1. */
bool sy_account_is_valid(const struct sy_account *a);

#endif

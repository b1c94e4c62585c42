/* How much device time each owner (a model, a job) used. Pure: time is an argument.
 *
 * Owners begin and end their use of the device. Time in which several use it is divided equally among them; time in which none does is idle.
 * A1: the owners' time and idle time add up to the time that has passed, to the nanosecond. */
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

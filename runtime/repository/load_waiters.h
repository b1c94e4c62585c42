/* All that wait for one load, and its result. Reference counted; one thread. */
#ifndef SY_REPOSITORY_LOAD_WAITERS_H
#define SY_REPOSITORY_LOAD_WAITERS_H

#include <stdbool.h>

#include "runtime/core/core_handlers.h"

struct sy_load_waiter;

struct sy_load_waiters {
    int n_holders;
    struct sy_load_waiter *first; /* in the order in which they came; NULL: nobody waits */
    bool is_over;
    int status; /* once it is over */
};

/* Held once. ENOMEM_HOST. */
int sy_load_waiters_create(struct sy_load_waiters **out);
struct sy_load_waiters *sy_load_waiters_hold(struct sy_load_waiters *load);
/* The last holder frees it; those that were not told are not called. NULL is fine. */
void sy_load_waiters_release(struct sy_load_waiters *load);
/* ENOMEM_HOST: then done is not called. */
int sy_load_waiters_add(struct sy_load_waiters *load, sy_core_done done, void *ctx);
/* The load is over; calls the done of all that wait. `why` is copied by those that keep it. The caller holds `load`. */
void sy_load_waiters_end(struct sy_load_waiters *load, int status, const char *why);

#endif

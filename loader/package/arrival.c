#include "loader/package/arrival.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/status.h"

int sy_arrival_create(struct sy_package_arrival **out)
{
    struct sy_package_arrival *arrival = calloc(1, sizeof *arrival);
    SY_TRY_ALLOC(arrival, "no memory for a package's arrival");
    atomic_init(&arrival->n_holders, 1);
    *out = arrival;
    return SY_OK;
}

struct sy_package_arrival *sy_arrival_hold(struct sy_package_arrival *arrival)
{
    atomic_fetch_add_explicit(&arrival->n_holders, 1, memory_order_relaxed);
    return arrival;
}

void sy_arrival_release(struct sy_package_arrival *arrival)
{
    if (arrival && atomic_fetch_sub_explicit(&arrival->n_holders, 1, memory_order_acq_rel) == 1)
        free(arrival);
}

bool sy_arrival_is_abandoned(const struct sy_package_arrival *arrival)
{
    return atomic_load_explicit(&arrival->n_holders, memory_order_acquire) == 1;
}

void sy_arrival_moved(struct sy_package_arrival *arrival, uint64_t bytes)
{
    atomic_store_explicit(&arrival->bytes, bytes, memory_order_release);
}

void sy_arrival_whole(struct sy_package_arrival *arrival)
{
    atomic_store_explicit(&arrival->state, SY_ARRIVAL_IS_WHOLE, memory_order_release);
}

void sy_arrival_failed(struct sy_package_arrival *arrival, const char *why)
{
    snprintf(arrival->why, sizeof arrival->why, "%s", why);
    atomic_store_explicit(&arrival->state, SY_ARRIVAL_IS_FAILED, memory_order_release);
}

enum sy_arrival_state sy_arrival_state(const struct sy_package_arrival *arrival)
{
    return (enum sy_arrival_state)atomic_load_explicit(&arrival->state, memory_order_acquire);
}

uint64_t sy_arrival_bytes(const struct sy_package_arrival *arrival)
{
    if (!arrival || sy_arrival_state(arrival) == SY_ARRIVAL_IS_WHOLE)
        return UINT64_MAX;
    return atomic_load_explicit(&arrival->bytes, memory_order_acquire);
}

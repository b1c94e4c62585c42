/* The clock of an emulated link, shared by all processes that map the pool.
 *
 * Each direction is a queue in time: a chunk reserves [free, free + bytes / rate) by compare-and-swap on `free_ns`, and its copy is
 * finished no earlier than its slot ends. So the rate of the link is right however many workers copy at once. */
#ifndef SY_DEVICE_LINK_CLOCK_H
#define SY_DEVICE_LINK_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/base/clock.h"

enum sy_link_direction { SY_LINK_H2D, SY_LINK_D2H };

struct sy_link_clock {
    _Atomic uint64_t free_ns[2]; /* per direction: when the link is free again */
};

/* Reserves a slot of `duration_ns`, not before `now`; returns when it ends. */
sy_ns sy_link_clock_reserve(struct sy_link_clock *clock, enum sy_link_direction direction,
                            sy_ns now, sy_ns duration_ns);

#endif

#include "runtime/device/link_clock.h"

sy_ns sy_link_clock_reserve(struct sy_link_clock *clock, enum sy_link_direction direction,
                            sy_ns now, sy_ns duration_ns)
{
    uint64_t free_ns = atomic_load_explicit(&clock->free_ns[direction], memory_order_relaxed);
    uint64_t end;
    do {
        end = (free_ns > now ? free_ns : now) + duration_ns;
    } while (!atomic_compare_exchange_weak_explicit(&clock->free_ns[direction], &free_ns, end,
                                                    memory_order_relaxed, memory_order_relaxed));
    return end;
}

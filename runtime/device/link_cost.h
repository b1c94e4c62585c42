/* Measures a device's link through its public functions: what a copy and a synchronisation cost. */
#ifndef SY_DEVICE_LINK_COST_H
#define SY_DEVICE_LINK_COST_H

#include <stdint.h>

#include "runtime/device/device.h"

#define SY_LINK_BUDGET_NS (360 * SY_NS_PER_MS) /* enough for 1 % on an idle machine */

struct sy_link_measurement {
    /* fixed cost of one copy to the device; 0 on a unified device, which needs no copies */
    double alpha_ns;
    double h2d_gbps, d2h_gbps; /* 10^9 bytes a second; on a unified device what memcpy reaches */
    /* one group's synchronisation: event record, stream wait, and where the host computes, its wait */
    double sigma_ns;
    double lost_ns_per_byte; /* delay of computing per byte copied meanwhile: copy_slowdown.h */
    int n_samples;           /* timed batches, all together */
};

/* Measures for about `budget_ns` (0: SY_LINK_BUDGET_NS), where runs differ much up to two and a half times that (copy_slowdown.h); three samples of
 * each kind are taken at least, however long they take.
 * Scribbles on [offset, offset+bytes) of the pool and on the `bytes` at `host`, both the caller's, who registers `host` if what is pinned is
 * to be measured; `bytes` is at least
 * 1 MiB (EARG), 16 MiB and more are better. Nothing else should use the link. Blocks. Medians throughout. Creates
 * its own streams, so sy_device_set_link_core comes before. */
int sy_link_measure(struct sy_device *device, struct sy_pool_memory *pool, uint64_t offset,
                    uint64_t bytes, void *host, sy_ns budget_ns, struct sy_link_measurement *out);

/* The line through (small, small_ns) and (large, large_ns): pure. Where noise makes large_ns the smaller of the two, the rate is
 * that of the large copy alone. alpha is never below 0. small < large. */
void sy_link_fit(uint64_t small, double small_ns, uint64_t large, double large_ns, double *alpha_ns,
                 double *gbps);

#endif

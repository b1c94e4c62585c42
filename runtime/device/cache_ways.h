/* Parts of the last-level cache for sets of cores, through the kernel's resctrl file system (Intel CAT, AMD QoS).
 *
 *   ROOT/info/L3/cbm_mask          the cache's ways, a bit each
 *   ROOT/info/L3/min_cbm_bits      the fewest that a group may have
 *   ROOT/info/L3/num_closids       groups at once, the root's own among them
 *   ROOT/schemata                  "L3:0=fffff;1=fffff": the caches that there are
 *   ROOT/switchyard-PID-N/         a group of ours: `schemata` says which ways, `cpus_list` on which cores
 *
 * A group of cores confines all tasks that compute there and belong to no group themselves: slices are sets of cores. Ways of a group are
 * adjacent, as the hardware wants it, and no two groups of ours share one. Cores without a group use all ways, so what computes there can still evict. */
#ifndef SY_DEVICE_CACHE_WAYS_H
#define SY_DEVICE_CACHE_WAYS_H

#include <stddef.h>
#include <stdint.h>

#define SY_CACHE_WAYS_ROOT    "/sys/fs/resctrl"
#define SY_CACHE_WAYS_DOMAINS 64 /* last-level caches of a machine */
#define SY_CACHE_WAYS_PATH    256

struct sy_cache_ways {
    char root[SY_CACHE_WAYS_PATH];
    unsigned n_ways, min_ways, most_groups; /* most_groups: without the root's */
    unsigned domains[SY_CACHE_WAYS_DOMAINS], n_domains;
};

struct sy_cache_group {
    const char *cores; /* "0-3,6" */
    uint64_t mask;
};

/* Pure: masks[i] of a cache of n_ways for n sets of n_cores[i] cores. Each has min_ways, the others go by cores, to the largest remainder.
 * EBUSY: too few ways; EARG: no set of cores, or one of none. */
int sy_cache_ways_plan(unsigned n_ways, unsigned min_ways, const size_t *n_cores, int n,
                       uint64_t *masks);
/* Reads which cache partitioning the kernel offers. ENOTFOUND: it is not mounted there; EUNSUPPORTED: this CPU's cache cannot be
 * divided; EPROTO: a file has another form than the kernel documents. */
int sy_cache_ways_read(const char *root, struct sy_cache_ways *out);
/* As sy_cache_ways_read; also removes groups of processes that have ended. */
int sy_cache_ways_open(const char *root, struct sy_cache_ways *out);
/* Groups 0 to n - 1 of this process are so, further ones are removed. EBUSY: more than there may be; EIO: the kernel refuses, and says why; then there are
 * none. */
int sy_cache_ways_set(const struct sy_cache_ways *ways, const struct sy_cache_group *groups, int n);
/* Takes all groups of this process back. */
void sy_cache_ways_clear(const struct sy_cache_ways *ways);

#endif

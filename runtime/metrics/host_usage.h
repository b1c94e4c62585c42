/* How busy this machine and this process are, from /proc. One thread at a time. */
#ifndef SY_METRICS_HOST_USAGE_H
#define SY_METRICS_HOST_USAGE_H

#include <stdint.h>

#include "runtime/base/clock.h"

/* The caller's, zeroed: what was read last. */
struct sy_host_sampler {
    uint64_t busy_ticks, all_ticks;
};

struct sy_host_usage {
    /* 0 to 1, of all CPUs, since the sampler's last reading; at first since boot */
    double cpu_utilization;
    uint64_t memory_bytes,
        memory_used_bytes; /* of the machine; used: memory not available to programs */
    uint64_t process_resident_bytes;
    sy_ns process_cpu_ns;
};

/* Some 100 us: two files that the kernel writes when they are read. What cannot be read is 0. */
void sy_host_usage_read(struct sy_host_sampler *sampler, struct sy_host_usage *out);

/* The text of /proc/stat and of /proc/meminfo; pure, for tests. */
double sy_host_usage_cpu(struct sy_host_sampler *sampler, const char *stat);
void sy_host_usage_memory(const char *meminfo, uint64_t *out_bytes, uint64_t *out_used_bytes);

#endif

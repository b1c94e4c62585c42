/* Durations counted in fixed buckets, as Prometheus takes them. Pure.
 *
 * Bucket i counts durations above bound i-1, up to and including bound i; the last has no upper bound. The bounds are those of all histograms, so
 * that they can be added up: 1, 2.5 and 5 of each decade from 100 us to 50 s, then 60 s. Quantiles are therefore known to a factor of 2.5. */
#ifndef SY_METRICS_HISTOGRAM_H
#define SY_METRICS_HISTOGRAM_H

#include "runtime/base/clock.h"

#define SY_HISTOGRAM_BOUNDS 19

/* The caller's, zeroed. */
struct sy_histogram {
    uint64_t counts[SY_HISTOGRAM_BOUNDS + 1]; /* of each bucket alone */
    sy_ns sum_ns;
};

/* Ascending; bucket in 0 .. SY_HISTOGRAM_BOUNDS - 1. */
sy_ns sy_histogram_bound_ns(int bucket);
/* Where a duration counts; 0 .. SY_HISTOGRAM_BOUNDS. */
int sy_histogram_bucket(sy_ns duration);
void sy_histogram_add(struct sy_histogram *h, sy_ns duration);
/* As sy_histogram_add, where the bucket is already known. */
static inline void sy_histogram_add_to(struct sy_histogram *h, int bucket, sy_ns duration)
{
    h->counts[bucket]++;
    h->sum_ns += duration;
}
uint64_t sy_histogram_count(const struct sy_histogram *h);

#endif

#include "runtime/metrics/histogram.h"

#include "runtime/base/assert.h"

#define US SY_NS_PER_US
#define MS SY_NS_PER_MS
#define S  SY_NS_PER_S

static const sy_ns bounds[SY_HISTOGRAM_BOUNDS] = {
    100 * US, 250 * US, 500 * US, 1 * MS,    2500 * US, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS,
    250 * MS, 500 * MS, 1 * S,    2500 * MS, 5 * S,     10 * S, 25 * S,  50 * S,  60 * S,
};

sy_ns sy_histogram_bound_ns(int bucket)
{
    sy_assert_internal(bucket >= 0 && bucket < SY_HISTOGRAM_BOUNDS);
    return bounds[bucket];
}

/* From below: most durations that are counted often are short. */
int sy_histogram_bucket(sy_ns duration)
{
    int bucket = 0;

    while (bucket < SY_HISTOGRAM_BOUNDS && duration > bounds[bucket])
        bucket++;
    return bucket;
}

void sy_histogram_add(struct sy_histogram *h, sy_ns duration)
{
    sy_histogram_add_to(h, sy_histogram_bucket(duration), duration);
}

uint64_t sy_histogram_count(const struct sy_histogram *h)
{
    uint64_t n = 0;

    for (int i = 0; i <= SY_HISTOGRAM_BOUNDS; i++)
        n += h->counts[i];
    return n;
}

#include "runtime/device/link_cost.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/device/copy_slowdown.h"

#define MIN_BYTES   (1u << 20)
#define SMALL_BYTES 4096u
#define SMALL_BATCH 16 /* small copies in a row: what a thread's waking costs is spread over them */
#define HOPS        8  /* there and back between two streams, for sigma */
#define MIN_SAMPLES 3
#define MAX_SAMPLES 201
/* parts of the time budget: two sizes in two directions, sigma, and computing beside copies */
#define N_PARTS 6

struct bench {
    struct sy_device *device;
    sy_device_address address;
    char *host;
    sy_ns part_ns;
    struct sy_stream *h2d, *d2h, *compute;
    struct sy_event *before, *after, *there, *back;
    int n_samples;
};

/* ---- samples ------------------------------------------------------------------------------------------ */

/* One timed batch; negative: failed. */
typedef int (*sample_fn)(struct bench *b, struct sy_stream *stream, uint64_t bytes, sy_ns *out_ns);

static int compare_ns(const void *a, const void *b)
{
    sy_ns x = *(const sy_ns *)a, y = *(const sy_ns *)b;
    return (x > y) - (x < y);
}

/* Samples until this part's time is used up. */
static int median(struct bench *b, sample_fn sample, struct sy_stream *stream, uint64_t bytes,
                  double *out_ns)
{
    sy_ns times[MAX_SAMPLES], end = sy_clock_now() + b->part_ns, unused;
    int n = 0;
    SY_TRY(sample(b, stream, bytes, &unused)); /* warms caches and pages */
    while (n < MIN_SAMPLES || (n < MAX_SAMPLES && sy_clock_now() < end)) {
        SY_TRY(sample(b, stream, bytes, &times[n]));
        n++;
    }
    qsort(times, (size_t)n, sizeof times[0], compare_ns);
    int middle = n / 2;
    *out_ns = (double)times[middle];
    b->n_samples += n;
    return SY_OK;
}

static int queue_copy(struct bench *b, struct sy_stream *stream, uint64_t bytes)
{
    return stream == b->h2d ? sy_copy_h2d(stream, b->address, b->host, bytes)
                            : sy_copy_d2h(stream, b->host, b->address, bytes);
}

/* Timed by the device's own events, so that the waking of this thread is not in it. */
static int sample_copies(struct bench *b, struct sy_stream *stream, uint64_t bytes, sy_ns *out_ns)
{
    int n = bytes == SMALL_BYTES ? SMALL_BATCH : 1;
    SY_TRY(sy_event_record(b->before, stream));
    for (int i = 0; i < n; i++)
        SY_TRY(queue_copy(b, stream, bytes));
    SY_TRY(sy_event_record(b->after, stream));
    SY_TRY(sy_stream_synchronize(stream));
    *out_ns = (sy_event_time(b->after) - sy_event_time(b->before)) / (sy_ns)n;
    return SY_OK;
}

static int order_after(struct sy_stream *from, struct sy_event *event, struct sy_stream *to)
{
    SY_TRY(sy_event_record(event, from));
    return sy_stream_wait_event(to, event);
}

/* On a device that computes, its streams wait for each other, and the host for nothing. */
static int sample_hops(struct bench *b, struct sy_stream *stream, uint64_t bytes, sy_ns *out_ns)
{
    (void)bytes;
    SY_TRY(sy_event_record(b->before, b->compute));
    for (int i = 0; i < HOPS; i++) {
        SY_TRY(order_after(b->compute, b->there, stream));
        SY_TRY(order_after(stream, b->back, b->compute));
    }
    SY_TRY(sy_event_record(b->after, b->compute));
    SY_TRY(sy_stream_synchronize(b->compute));
    *out_ns = (sy_event_time(b->after) - sy_event_time(b->before)) / (2 * HOPS);
    return SY_OK;
}

static int sample_sync(struct bench *b, struct sy_stream *stream, uint64_t bytes, sy_ns *out_ns)
{
    (void)bytes;
    sy_ns start = sy_clock_now();
    SY_TRY(sy_event_record(b->after, stream));
    SY_TRY(sy_stream_wait_event(b->compute, b->after));
    SY_TRY(sy_event_synchronize(b->after, UINT64_MAX));
    *out_ns = sy_clock_now() - start;
    return SY_OK;
}

void sy_link_fit(uint64_t small, double small_ns, uint64_t large, double large_ns, double *alpha_ns,
                 double *gbps)
{
    double rise_ns = large_ns - small_ns;
    if (rise_ns > 0)
        *gbps = (double)(large - small) / rise_ns;
    else
        *gbps = (double)large / SY_MAX(large_ns, 1.0);
    *alpha_ns = SY_MAX(small_ns - (double)small / *gbps, 0.0);
}

static int measure_direction(struct bench *b, struct sy_stream *stream, uint64_t bytes,
                             double *alpha_ns, double *gbps)
{
    double small_ns, large_ns;
    SY_TRY(median(b, sample_copies, stream, SMALL_BYTES, &small_ns));
    SY_TRY(median(b, sample_copies, stream, bytes, &large_ns));
    sy_link_fit(SMALL_BYTES, small_ns, bytes, large_ns, alpha_ns, gbps);
    return SY_OK;
}

static int measure_all(struct bench *b, uint64_t bytes, struct sy_link_measurement *out)
{
    double back_alpha_ns;
    const struct sy_device_properties *device = sy_device_get_properties(b->device);
    bool host_computes = device->unified || device->emulated;
    SY_TRY(sy_event_create(b->device, &b->before));
    SY_TRY(sy_event_create(b->device, &b->after));
    SY_TRY(sy_event_create(b->device, &b->there));
    SY_TRY(sy_event_create(b->device, &b->back));
    SY_TRY(sy_stream_create(b->device, SY_STREAM_COPY_H2D, &b->h2d));
    SY_TRY(sy_stream_create(b->device, SY_STREAM_COPY_D2H, &b->d2h));
    SY_TRY(sy_stream_create(b->device, SY_STREAM_COMPUTE, &b->compute));
    SY_TRY(measure_direction(b, b->h2d, bytes, &out->alpha_ns, &out->h2d_gbps));
    SY_TRY(measure_direction(b, b->d2h, bytes, &back_alpha_ns, &out->d2h_gbps));
    SY_TRY(median(b, host_computes ? sample_sync : sample_hops, b->h2d, 0, &out->sigma_ns));
    if (device->unified)
        out->alpha_ns = 0;
    out->n_samples = b->n_samples;
    if (sy_link_measure_slowdown(b->device, b->part_ns, &out->lost_ns_per_byte) < 0) {
        out->lost_ns_per_byte = 0;
        sy_log_warn("device", "event=link_beside_not_measured why=\"%s\"", sy_error_text());
    }
    return SY_OK;
}

int sy_link_measure(struct sy_device *device, struct sy_pool_memory *pool, uint64_t offset,
                    uint64_t bytes, void *host, sy_ns budget_ns, struct sy_link_measurement *out)
{
    if (bytes < MIN_BYTES || offset > sy_pool_size(pool) || bytes > sy_pool_size(pool) - offset)
        return sy_error_set(
            SY_EARG, "cannot measure the link on %llu bytes at %llu of a pool of %llu; %u at least",
            (unsigned long long)bytes, (unsigned long long)offset,
            (unsigned long long)sy_pool_size(pool), MIN_BYTES);
    struct bench b = {.device = device,
                      .address = sy_pool_address(pool, offset),
                      .host = host,
                      .part_ns = (budget_ns ? budget_ns : SY_LINK_BUDGET_NS) / N_PARTS};
    *out = (struct sy_link_measurement){0};
    int status = measure_all(&b, bytes, out);
    sy_stream_destroy(b.h2d);
    sy_stream_destroy(b.d2h);
    sy_stream_destroy(b.compute);
    sy_event_destroy(b.before);
    sy_event_destroy(b.after);
    sy_event_destroy(b.there);
    sy_event_destroy(b.back);
    return status < 0 ? sy_error_prefix(status, "measuring the link: ") : SY_OK;
}

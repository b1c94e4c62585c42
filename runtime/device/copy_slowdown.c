#include "runtime/device/copy_slowdown.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/device/device_ops.h"
#include "runtime/device/host_stream.h"
#include "runtime/device/link_memory.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define N_CHUNKS    16
#define ALL_BYTES   (N_CHUNKS * CHUNK_BYTES)
#define FULL_SPEED  1e6 /* GB/s: the link is never waited for */
/* over each chunk: from memory, and from the caches, as inference reads weights */
#define N_PASSES  2
#define MIN_PAIRS 5
#define MAX_PAIRS 401
#define LONGEST   10    /* budgets: until the median is sure */
#define SURE      0.004 /* ns a byte: 0.4 % of a run that takes 1 ns for each byte of its weights */

typedef float vec __attribute__((vector_size(16)));

struct beside {
    struct sy_device *device; /* this one, at full speed */
    struct sy_pool_memory *pool;
    struct sy_stream *stream;
    void *host;
};

static volatile float sink; /* keeps the computation from being optimised away */

static void compute(const vec *from, size_t n)
{
    vec sums[8] = {{0}}, factor = {1.25F, 0.5F, 0.25F, 2};
    for (int pass = 0; pass < N_PASSES; pass++)
        for (size_t i = 0; i < n; i += 8)
#pragma GCC unroll 8 /* the sums stay in registers */
            for (int j = 0; j < 8; j++) {
                vec x = from[i + (size_t)j];
                sums[j] += x * factor;
                sums[(j + 1) % 8] += x * sums[(j + 4) % 8];
            }
    for (int j = 0; j < 8; j++)
        sink = sink + sums[j][0];
}

static int queue_chunk(struct beside *b, size_t chunk)
{
    return sy_copy_h2d(b->stream, sy_pool_address(b->pool, chunk * CHUNK_BYTES),
                       (char *)b->host + chunk * CHUNK_BYTES, CHUNK_BYTES);
}

/* Computes on chunk after chunk, the next one being copied meanwhile or not. */
static int slice(struct beside *b, bool copies, sy_ns *out_ns)
{
    const char *base = sy_device_host_pointer(b->device, sy_pool_address(b->pool, 0));
    *out_ns = 0;
    for (size_t i = 0; i < N_CHUNKS; i++) {
        if (copies && i + 1 < N_CHUNKS)
            SY_TRY(queue_chunk(b, i + 1));
        sy_ns start = sy_clock_now();
        compute((const vec *)(const void *)(base + i * CHUNK_BYTES), CHUNK_BYTES / sizeof(vec));
        *out_ns += sy_clock_now() - start;
        SY_TRY(sy_stream_synchronize(b->stream));
    }
    return SY_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The approximate error of the median of n (its standard error for a normal distribution), from the width of the middle half. */
static double off_by(const double *sorted, int n)
{
    return 0.93 * (sorted[3 * n / 4] - sorted[n / 4]) / sqrt(n);
}

static int measure_pair(struct beside *b, bool copies_first, double *out)
{
    sy_ns ns[2];
    SY_TRY(slice(b, copies_first, &ns[copies_first]));
    SY_TRY(slice(b, !copies_first, &ns[!copies_first]));
    *out = ((double)ns[1] - (double)ns[0]) / (double)(ALL_BYTES - CHUNK_BYTES);
    return SY_OK;
}

static int measure(struct beside *b, sy_ns budget_ns, double *out)
{
    double lost[MAX_PAIRS];
    sy_ns warm;
    int n = 0;
    SY_TRY(queue_chunk(b, 0)); /* the only one that none is computed beside */
    SY_TRY(sy_stream_synchronize(b->stream));
    SY_TRY(slice(b, true, &warm)); /* caches and pages */
    sy_ns begin = sy_clock_now(), end = begin + budget_ns, last = begin + LONGEST * budget_ns;
    bool sure = false;
    while (n < MAX_PAIRS && sy_clock_now() < (sure ? end : last)) {
        SY_TRY(measure_pair(b, n % 2 == 1, &lost[n]));
        qsort(lost, (size_t)++n, sizeof *lost, compare);
        sure = n >= MIN_PAIRS && off_by(lost, n) <= SURE;
    }
    if (n == 0)
        return sy_error_set(SY_EDEADLINE, "no pair of runs beside copies in %.0f ms",
                            LONGEST * (double)budget_ns / 1e6);
    *out = SY_MAX(lost[n / 2], 0.0);
    return SY_OK;
}

static int open_beside(struct beside *b, struct sy_device *device, int link_core)
{
    struct sy_device_spec spec = device->spec;
    spec.link_gbps = FULL_SPEED;
    spec.link_alpha_ns = 0;
    SY_TRY(sy_device_open(&spec, &b->device));
    SY_TRY(sy_device_set_link_core(b->device, link_core));
    SY_TRY(sy_pool_create(b->device, ALL_BYTES, &b->pool));
    SY_TRY(sy_link_host_take(b->device, ALL_BYTES, &b->host));
    for (size_t i = 0; i < ALL_BYTES / sizeof(float); i++)
        ((float *)b->host)[i] = ((float)(i % 7) - 3) * 0.01F;
    sy_pool_touch(b->pool, 0, ALL_BYTES);
    return sy_stream_create(b->device, SY_STREAM_COPY_H2D, &b->stream);
}

static void close_beside(struct beside *b)
{
    sy_stream_destroy(b->stream);
    if (b->device)
        sy_link_host_drop(b->device, b->host);
    sy_pool_destroy(b->pool);
    sy_device_close(b->device);
}

/* The link's core computes nothing. */
static void leave_core(int core, cpu_set_t *before)
{
    CPU_ZERO(before);
    if (core < 0 || sched_getaffinity(0, sizeof *before, before) != 0 || CPU_COUNT(before) < 2)
        return;
    cpu_set_t others = *before;
    CPU_CLR(core, &others);
    (void)sched_setaffinity(0, sizeof others, &others); /* where it may not be, it is measured so */
}

int sy_link_measure_slowdown(struct sy_device *device, sy_ns budget_ns,
                             double *out_lost_ns_per_byte)
{
    const struct sy_device_properties *p = sy_device_get_properties(device);
    struct beside b = {0};
    cpu_set_t before;
    *out_lost_ns_per_byte = 0;
    if (!p->unified && !p->emulated)
        return SY_OK;
    int link_core = ((const struct sy_host_device *)device)->link_core;
    leave_core(link_core, &before);
    int status = open_beside(&b, device, link_core);
    if (status == SY_OK)
        status = measure(&b, budget_ns, out_lost_ns_per_byte);
    close_beside(&b);
    if (CPU_COUNT(&before) > 0)
        (void)sched_setaffinity(0, sizeof before, &before);
    return status;
}

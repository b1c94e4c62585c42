/* bench-link: what copies between host and device cost, and the line that the planner works with. */
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/device/device.h"
#include "runtime/device/link_cost.h"
#include "runtime/device/link_memory.h"

#define LARGEST_BYTES (64u << 20)
#define N_COPIES      9

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int time_copy(struct sy_stream *stream, struct sy_pool_memory *pool, const void *from,
                     uint64_t bytes, uint64_t *out_ns)
{
    uint64_t times[N_COPIES];

    for (int i = 0; i < N_COPIES; i++) {
        sy_ns start = sy_clock_now();

        SY_TRY(sy_copy_h2d(stream, sy_pool_address(pool, 0), from, bytes));
        SY_TRY(sy_stream_synchronize(stream));
        times[i] = sy_clock_now() - start;
    }
    qsort(times, N_COPIES, sizeof(times[0]), compare_ns);
    *out_ns = times[N_COPIES / 2];
    return SY_OK;
}

/* One copy at a time, from queueing it to knowing that it is done: what a lone copy takes. */
static int print_sizes(struct sy_device *device, struct sy_pool_memory *pool, const void *from)
{
    struct sy_stream *stream = NULL;
    uint64_t took_ns;
    int status = sy_stream_create(device, SY_STREAM_COPY_H2D, &stream);

    if (status == SY_OK)
        printf("%12s %12s %10s\n", "bytes", "us", "GB/s");
    for (uint64_t bytes = 4096; status == SY_OK && bytes <= LARGEST_BYTES; bytes *= 8) {
        status = time_copy(stream, pool, from, bytes, &took_ns);
        if (status == SY_OK)
            printf("%12llu %12.1f %10.2f\n", (unsigned long long)bytes, (double)took_ns / 1e3,
                   (double)bytes / (double)took_ns);
    }
    sy_stream_destroy(stream);
    return status;
}

static void print_cost(const struct sy_link_measurement *cost)
{
    printf("\ncopies queued back to back:\n"
           "  to the device      %.2f GB/s, and %.2f us a copy (alpha)\n"
           "  to the host        %.2f GB/s\n"
           "  a group's signal   %.2f us (sigma)\n"
           "  computing beside   held up %.4f ns for each byte that moves\n"
           "  from               %d timed batches\n",
           cost->h2d_gbps, cost->alpha_ns / 1e3, cost->d2h_gbps, cost->sigma_ns / 1e3,
           cost->lost_ns_per_byte, cost->n_samples);
}

static int print_json(const struct sy_device *device, const struct sy_link_measurement *cost)
{
    json_t *answer = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:i}", "device",
                               sy_device_get_properties(device)->name, "alpha_us",
                               cost->alpha_ns / 1e3, "h2d_gbps", cost->h2d_gbps, "d2h_gbps",
                               cost->d2h_gbps, "sigma_us", cost->sigma_ns / 1e3, "lost_ns_per_byte",
                               cost->lost_ns_per_byte, "samples", cost->n_samples);

    if (!answer || json_dumpf(answer, stdout, JSON_INDENT(2)) < 0)
        return sy_error_set(SY_EIO, "cannot write the answer");
    putchar('\n');
    json_decref(answer);
    return SY_OK;
}

static int measure(struct sy_device *device, bool json)
{
    struct sy_link_measurement cost;
    struct sy_pool_memory *pool = NULL;
    void *from = NULL;
    int status;

    SY_TRY_GOTO(sy_link_host_take(device, LARGEST_BYTES, &from), done);
    SY_TRY_GOTO(sy_pool_create(device, LARGEST_BYTES, &pool), done);
    if (!json) {
        printf("%s\n", sy_device_get_properties(device)->name);
        SY_TRY_GOTO(print_sizes(device, pool, from), done);
    }
    SY_TRY_GOTO(sy_link_measure(device, pool, 0, LARGEST_BYTES, from, 0, &cost), done);
    if (json)
        status = print_json(device, &cost);
    else
        print_cost(&cost);
done:
    sy_link_host_drop(device, from);
    sy_pool_destroy(pool);
    return status;
}

/* As the server does: the link has the last core that may be used. */
static int set_link_core(struct sy_device *device)
{
    cpu_set_t set;
    int last = -1, n = 0;

    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set)) {
            last = core;
            n++;
        }
    if (sy_device_get_properties(device)->reserved_cores == 0 || n < 2)
        return SY_OK;
    return sy_device_set_link_core(device, last);
}

struct bench_link {
    const char *device;
    bool json;
};

static int run(const struct bench_link *b)
{
    struct sy_device_spec spec;
    struct sy_device *device;
    int status;

    if (sy_device_spec_parse(b->device, &spec) < 0)
        return sy_cli_usage("--device: %s", sy_error_text());
    if (sy_device_open(&spec, &device) < 0)
        return sy_cli_fail_status();
    status = set_link_core(device);
    if (status == SY_OK)
        status = measure(device, b->json);
    sy_device_close(device);
    return status < 0 ? sy_cli_fail_status() : 0;
}

static const struct sy_cli_field fields[] = {
    {{"device", "SPEC",
      "host, emulated[,link-gbps=12.3], cuda:N, or cuda:UUID of a GPU or MIG instance; default "
      "host"},
     SY_CLI_TEXT(struct bench_link, device)},
    {{"json", NULL, "the fitted costs only, as JSON"}, SY_CLI_SWITCH(struct bench_link, json)}};
static const struct sy_cli_fields options = {
    "bench-link [options]\n\nTimes copies between host and device: medians.", fields,
    SY_ARRAY_LEN(fields), NULL};

int sy_cmd_bench_link(int argc, char **argv)
{
    struct bench_link b = {.device = "host"};
    int status = sy_cli_read(&options, argc, argv, &b);

    return status == SY_CLI_END ? run(&b) : status;
}

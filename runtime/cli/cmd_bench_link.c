#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/device/device.h"

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

static int measure(struct sy_device *device)
{
    struct sy_pool_memory *pool = NULL;
    struct sy_stream *stream = NULL;
    void *from = malloc(LARGEST_BYTES);
    uint64_t took_ns;
    int status = from ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory");

    if (from)
        memset(from, 1, LARGEST_BYTES);
    if (status == SY_OK)
        status = sy_pool_create(device, LARGEST_BYTES, &pool);
    if (status == SY_OK)
        status = sy_stream_create(device, SY_STREAM_COPY_H2D, &stream);
    for (uint64_t bytes = 4096; status == SY_OK && bytes <= LARGEST_BYTES; bytes *= 8) {
        status = time_copy(stream, pool, from, bytes, &took_ns);
        if (status == SY_OK)
            printf("%12llu %12.1f %10.2f\n", (unsigned long long)bytes, (double)took_ns / 1e3,
                   (double)bytes / (double)took_ns);
    }
    sy_stream_destroy(stream);
    sy_pool_destroy(pool);
    free(from);
    return status;
}

int sy_cmd_bench_link(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"device", "SPEC", "host or emulated[,link-gbps=12.3]; default host"}, {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {
        "bench-link [options]\n\nTimes copies from host to device: median of 9.", options, argc,
        argv, 0};
    const char *value, *text = "host";
    struct sy_device_spec spec;
    struct sy_device *device;
    int got, status;

    while ((got = sy_cli_next(&parser, &value)) >= 0)
        text = value;
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP  ? 0
               : got == SY_CLI_BAD ? 2
                                   : sy_cli_usage("bench-link takes no words: %s", value);
    if (sy_device_spec_parse(text, &spec) < 0)
        return sy_cli_usage("--device: %s", sy_error_text());
    if (sy_device_open(&spec, &device) < 0)
        return sy_cli_fail_status();
    printf("%s\n%12s %12s %10s\n", sy_device_get_properties(device)->name, "bytes", "us", "GB/s");
    status = measure(device);
    sy_device_close(device);
    return status < 0 ? sy_cli_fail_status() : 0;
}

#include "examples/demo/demo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *ms(double value)
{
    return isnan(value) ? json_null() : json_real(round(value * 1000) / 1000);
}

static json_t *latencies(const struct demo_model *m)
{
    json_t *out = json_object();
    json_object_set_new(out, "ready_p50", ms(demo_samples_quantile(&m->ready, 0.5)));
    json_object_set_new(out, "swap_p50", ms(demo_samples_quantile(&m->swap, 0.5)));
    json_object_set_new(out, "swap_p99", ms(demo_samples_quantile(&m->swap, 0.99)));
    json_object_set_new(out, "restart_p50", ms(demo_samples_quantile(&m->restart, 0.5)));
    json_object_set_new(out, "end_to_end_p50", ms(demo_samples_quantile(&m->end_to_end, 0.5)));
    json_object_set_new(out, "end_to_end_p99", ms(demo_samples_quantile(&m->end_to_end, 0.99)));
    return out;
}

static json_int_t counter(const struct demo *demo, const char *name)
{
    json_t *before = json_object_get(json_object_get(demo->status_before, "counters"), name);
    json_t *after = json_object_get(json_object_get(demo->status_after, "counters"), name);
    return json_integer_value(after) - json_integer_value(before);
}

static json_t *training(const struct demo *demo)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "steps", (json_int_t)demo->steps,
                     "loss_first", ms(demo->loss_first), "loss_last", ms(demo->loss_last),
                     "accuracy", json_real(demo->accuracy), "steps_per_s_alone",
                     ms(demo->steps_per_s_alone), "steps_per_s_beside",
                     ms(demo->steps_per_s_beside), "idle_share", ms(demo->idle_share), "bits_equal",
                     demo->bits_equal);
}

int demo_write_report(const struct demo *demo, const char *path)
{
    uint64_t models_bytes = 0;
    json_t *latency = json_object();
    for (int m = 0; m < DEMO_MODELS; m++) {
        models_bytes += demo->models[m].weights_bytes;
        json_object_set_new(latency, demo->models[m].name, latencies(&demo->models[m]));
    }
    json_t *report =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:{s:o, s:o}, s:o, s:o}",
                  "device", demo->device_name, "pool_bytes", (json_int_t)demo->pool_bytes,
                  "models_bytes", (json_int_t)models_bytes, "requests", (json_int_t)demo->requests,
                  "failed", (json_int_t)demo->failed, "wrong", (json_int_t)demo->wrong, "swaps",
                  (json_int_t)demo->swaps, "evictions", counter(demo, "evictions"), "preemptions",
                  counter(demo, "preemptions"), "latency_ms", latency, "preempt_wait_ms", "p50",
                  ms(demo_samples_quantile(&demo->preempt_wait, 0.5)), "p99",
                  ms(demo_samples_quantile(&demo->preempt_wait, 0.99)), "longest_layer_ms",
                  ms(demo->longest_layer_ms), "training", training(demo));
    int status = report ? json_dump_file(report, path, JSON_INDENT(2)) : -1;
    json_decref(report);
    return status;
}

static void print_row(const struct demo_model *m)
{
    printf("  %-13s %9.1f %9.1f %9.1f %10.0f %12.1f %9.1f   %d\n", m->name,
           demo_samples_quantile(&m->ready, 0.5), demo_samples_quantile(&m->swap, 0.5),
           demo_samples_quantile(&m->swap, 0.99), demo_samples_quantile(&m->restart, 0.5),
           demo_samples_quantile(&m->end_to_end, 0.5), demo_samples_quantile(&m->end_to_end, 0.99),
           m->swap.n);
}

void demo_print_table(const struct demo *demo)
{
    printf("\n%s, pool of %.0f MB, milliseconds:\n", demo->device_name,
           (double)demo->pool_bytes / 1e6);
    printf("  %-13s %9s %9s %9s %10s %12s %9s   %s\n", "model", "ready", "swap p50", "swap p99",
           "restart", "client p50", "p99", "swaps");
    for (int m = 0; m < DEMO_MODELS; m++)
        print_row(&demo->models[m]);
    printf(
        "\n  ready: all resident, nothing else runs. swap: from taken off the queue to answered. "
        "restart: a\n"
        "  fresh process. client: as clients saw it, queue included.\n");
    printf("\n  %ld requests, %ld failed, %ld with wrong bits, %lld groups evicted\n",
           demo->requests, demo->failed, demo->wrong, (long long)counter(demo, "evictions"));
    printf("  training was preempted %lld times; it stood still after %.2f ms (p50), %.2f ms "
           "(p99); its longest\n"
           "  stretch between two looks was %.2f ms (%s)\n",
           (long long)counter(demo, "preemptions"), demo_samples_quantile(&demo->preempt_wait, 0.5),
           demo_samples_quantile(&demo->preempt_wait, 0.99), demo->longest_layer_ms,
           demo->longest_layer);
    printf("  training: %llu steps, loss %.3f -> %.3f, test accuracy %.1f %%\n",
           (unsigned long long)demo->steps, demo->loss_first, demo->loss_last,
           100 * demo->accuracy);
    printf("  steps per second: %.1f alone, %.1f beside requests; the device was idle %.0f %% of "
           "the time,\n"
           "  so beside / (alone x idle) = %.2f\n",
           demo->steps_per_s_alone, demo->steps_per_s_beside, 100 * demo->idle_share,
           demo->steps_per_s_beside / (demo->steps_per_s_alone * demo->idle_share));
    printf("  weights after %llu steps, preempted and not: %s\n", (unsigned long long)demo->steps,
           demo->bits_equal ? "the same bits" : "DIFFERENT");
}

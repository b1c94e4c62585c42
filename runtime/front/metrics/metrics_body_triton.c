/* Triton's names. They keep neither of Prometheus' naming rules (counters end in _total, units are seconds), and stay as dashboards know them. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/front/metrics/metrics_body.h"
#include "runtime/wire/control_page.h"

/* The rows of all families: models that have statistics, then those that are loaded and have none yet. */
struct rows {
    const struct sy_metrics_input *in;
    int unused[SY_MAX_MODELS]; /* indices of in->core->models */
    int n_unused;
};

static bool has_stats(const struct sy_metrics_input *in, const struct sy_core_model_metrics *model)
{
    for (int i = 0; i < in->n_stats; i++)
        if (in->stats[i].version == model->version && strcmp(in->stats[i].name, model->name) == 0)
            return true;
    return false;
}

static void find_unused(struct rows *rows, const struct sy_metrics_input *in)
{
    rows->in = in;
    rows->n_unused = 0;
    for (int i = 0; in->core && i < in->core->n_models; i++)
        if (!has_stats(in, &in->core->models[i]))
            rows->unused[rows->n_unused++] = i;
}

static int n_rows(const struct rows *rows)
{
    return rows->in->n_stats + rows->n_unused;
}

static struct sy_front_model_stats row(const struct rows *rows, int i)
{
    if (i < rows->in->n_stats)
        return rows->in->stats[i];
    const struct sy_core_model_metrics *model =
        &rows->in->core->models[rows->unused[i - rows->in->n_stats]];
    return (struct sy_front_model_stats){.name = model->name, .version = model->version};
}

static void label_model(struct sy_exposition *e, const char *name, int64_t version,
                        const char *reason)
{
    char number[24];

    snprintf(number, sizeof number, "%lld", (long long)version);
    sy_exposition_labels(
        e, (struct sy_label[]){{"model", name}, {"version", number}, {"reason", reason}},
        reason ? 3 : 2);
}

struct counter {
    const char *name, *help;
    size_t at;    /* offset of a uint64_t in struct sy_front_model_stats */
    uint64_t per; /* of what is there, one is so many */
};

#define AT(field) offsetof(struct sy_front_model_stats, field)

static const struct counter counters[] = {
    {"nv_inference_request_success", "Number of successful inference requests, all batch sizes",
     AT(n_successes), 1},
    {"nv_inference_count", "Number of inferences performed: rows of batches", AT(n_inferences), 1},
    {"nv_inference_exec_count", "Number of model executions: a gathered batch is one",
     AT(n_executions), 1},
    {"nv_inference_request_duration_us", "Cumulative inference request duration in microseconds",
     AT(success.ns), SY_NS_PER_US},
    {"nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds",
     AT(queue.ns), SY_NS_PER_US},
    {"nv_inference_compute_input_duration_us",
     "Cumulative duration in microseconds until the first layer computed: weights on their way",
     AT(compute_input.ns), SY_NS_PER_US},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds", AT(compute_infer.ns), SY_NS_PER_US},
    {"nv_inference_compute_output_duration_us",
     "Cumulative compute output duration in microseconds", AT(compute_output.ns), SY_NS_PER_US},
};

static void write_counter(struct sy_exposition *e, const struct rows *rows,
                          const struct counter *counter)
{
    sy_exposition_family(e, SY_METRIC_PLAIN_COUNTER, counter->name, counter->help);
    for (int i = 0; i < n_rows(rows); i++) {
        struct sy_front_model_stats m = row(rows, i);
        uint64_t value;

        memcpy(&value, (const char *)&m + counter->at, sizeof value);
        label_model(e, m.name, m.version, NULL);
        sy_exposition_count(e, value / counter->per);
    }
}

static void write_failures(struct sy_exposition *e, const struct sy_front_model_stats *m)
{
    uint64_t known = m->n_rejected + m->n_canceled + m->n_backend_failures;
    const struct {
        const char *reason;
        uint64_t n;
    } reasons[] = {{"REJECTED", m->n_rejected},
                   {"CANCELED", m->n_canceled},
                   {"BACKEND", m->n_backend_failures},
                   {"OTHER", m->n_failures - SY_MIN(known, m->n_failures)}};

    for (size_t i = 0; i < SY_ARRAY_LEN(reasons); i++) {
        label_model(e, m->name, m->version, reasons[i].reason);
        sy_exposition_count(e, reasons[i].n);
    }
}

static void write_models(struct sy_exposition *e, const struct sy_metrics_input *in)
{
    struct rows rows;

    find_unused(&rows, in);
    for (size_t i = 0; i < SY_ARRAY_LEN(counters); i++)
        write_counter(e, &rows, &counters[i]);
    sy_exposition_family(e, SY_METRIC_PLAIN_COUNTER, "nv_inference_request_failure",
                         "Number of failed inference requests, all batch sizes");
    for (int i = 0; i < n_rows(&rows); i++) {
        struct sy_front_model_stats m = row(&rows, i);

        write_failures(e, &m);
    }
    sy_exposition_family(e, SY_METRIC_GAUGE, "nv_inference_pending_request_count",
                         "Instantaneous number of pending requests awaiting execution per-model");
    for (int i = 0; in->core && i < in->core->n_models; i++) {
        const struct sy_core_model_metrics *m = &in->core->models[i];

        label_model(e, m->name, m->version, NULL);
        sy_exposition_count(e, (uint64_t)m->n_pending);
    }
}

/* GPU memory in use is the pool, which is allocated once. */
static void write_gpu(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    struct sy_label label = {"gpu_uuid", core->device_uuid};

    sy_exposition_family(e, SY_METRIC_GAUGE, "nv_gpu_memory_total_bytes",
                         "GPU total memory, in bytes: the pool");
    sy_exposition_labels(e, &label, 1);
    sy_exposition_count(e, core->pool.bytes);
    sy_exposition_family(e, SY_METRIC_GAUGE, "nv_gpu_memory_used_bytes",
                         "GPU used memory, in bytes: of the pool");
    sy_exposition_labels(e, &label, 1);
    sy_exposition_count(e, core->pool.bytes - core->pool.free_bytes);
}

static void write_cpu(struct sy_exposition *e, const struct sy_host_usage *host)
{
    sy_exposition_family(e, SY_METRIC_GAUGE, "nv_cpu_utilization",
                         "CPU utilization rate [0.0 - 1.0]");
    sy_exposition_real(e, host->cpu_utilization);
    sy_exposition_family(e, SY_METRIC_GAUGE, "nv_cpu_memory_total_bytes",
                         "CPU total memory (RAM), in bytes");
    sy_exposition_count(e, host->memory_bytes);
    sy_exposition_family(e, SY_METRIC_GAUGE, "nv_cpu_memory_used_bytes",
                         "CPU used memory (RAM), in bytes");
    sy_exposition_count(e, host->memory_used_bytes);
}

void sy_metrics_body_triton(struct sy_exposition *e, const struct sy_metrics_input *in)
{
    write_models(e, in);
    if (in->core && strcmp(in->core->device_kind, "cuda") == 0)
        write_gpu(e, in->core);
    write_cpu(e, &in->host);
}

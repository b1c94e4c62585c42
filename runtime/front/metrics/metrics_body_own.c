/* switchyard_*: what Triton has no names for. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/metrics/metrics_body.h"

static void label(struct sy_exposition *e, const char *name, const char *value)
{
    sy_exposition_labels(e, &(struct sy_label){name, value}, 1);
}

static void gauge(struct sy_exposition *e, const char *name, const char *help, uint64_t value)
{
    sy_exposition_family(e, SY_METRIC_GAUGE, name, help);
    sy_exposition_count(e, value);
}

/* ---- the server and its device --------------------------------------------------------------------------------- */

static void write_server(struct sy_exposition *e, const struct sy_metrics_input *in)
{
    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_build_info",
                         "1, labelled with the program's version and the device that it serves.");
    sy_exposition_labels(e,
                         (struct sy_label[]){{"version", in->version},
                                             {"device", in->core ? in->core->device_name : ""}},
                         2);
    sy_exposition_count(e, 1);
    gauge(e, "process_resident_memory_bytes", "Resident memory of the server's own process.",
          in->host.process_resident_bytes);
    sy_exposition_family(e, SY_METRIC_COUNTER, "process_cpu_seconds",
                         "CPU time of the server's own process.");
    sy_exposition_seconds(e, in->host.process_cpu_ns);
}

static void write_device_time(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_device_seconds",
                         "Whose the device's time was; together, the time that has passed.");
    label(e, "used_by", "inference");
    sy_exposition_seconds(e, core->inference_ns);
    label(e, "used_by", "training");
    sy_exposition_seconds(e, core->training_ns);
    label(e, "used_by", "nobody");
    sy_exposition_seconds(e, core->idle_ns);
}

static void write_slices(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_slice_cores",
                         "Cores of each slice of the device's compute.");
    for (int i = 0; i < core->n_slices; i++) {
        label(e, "slice", core->slices[i].name);
        sy_exposition_count(e, (uint64_t)core->slices[i].n_cores);
    }
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_slice_busy_seconds",
                         "Time that something computed in the slice.");
    for (int i = 0; i < core->n_slices; i++) {
        label(e, "slice", core->slices[i].name);
        sy_exposition_seconds(e, core->slices[i].used_ns);
    }
}

static void write_rooms(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    const struct {
        const char *name;
        const struct sy_core_room *room;
    } rooms[] = {{"pool", &core->pool}, {"image", &core->image}, {"slab", &core->slab}};
    const size_t n = SY_ARRAY_LEN(rooms);

    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_memory_bytes",
                         "Size of the device's pool, of the host image, of the tensor slab.");
    for (size_t i = 0; i < n; i++) {
        label(e, "memory", rooms[i].name);
        sy_exposition_count(e, rooms[i].room->bytes);
    }
    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_memory_used_bytes",
                         "What of it is in use.");
    for (size_t i = 0; i < n; i++) {
        label(e, "memory", rooms[i].name);
        sy_exposition_count(e, rooms[i].room->bytes - rooms[i].room->free_bytes);
    }
    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_memory_largest_free_bytes",
                         "The largest free piece of the pool and of the image.");
    for (size_t i = 0; i + 1 < n; i++) {
        label(e, "memory", rooms[i].name);
        sy_exposition_count(e, rooms[i].room->largest_free_bytes);
    }
}

/* "loading_models", as the status says it. */
static const char *in_small_letters(const char *name, char *to, size_t bytes)
{
    size_t n = 0;

    for (; name[n] && n < bytes - 1; n++)
        to[n] = (char)tolower((unsigned char)name[n]);
    to[n] = '\0';
    return to;
}

static void write_workers(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    static const char *const states[] = {
#define X(name, timeout_ms, waits) #name,
        SY_WORKER_STATE_TABLE(X)
#undef X
    };
    char text[32];

    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_workers", "Worker processes by state.");
    for (int s = 0; s < SY_WORKER_N_STATES; s++) {
        uint64_t n = 0;

        for (int w = 0; w < core->n_workers; w++)
            n += (int)core->workers[w].state == s;
        label(e, "state", in_small_letters(states[s], text, sizeof text));
        sy_exposition_count(e, n);
    }
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_worker_deaths",
                         "Times that a worker process ended without being told to.");
    for (int w = 0; w < core->n_workers; w++) {
        snprintf(text, sizeof text, "%d", w);
        label(e, "worker", text);
        sy_exposition_count(e, (uint64_t)core->workers[w].n_deaths);
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void write_refusals(struct sy_exposition *e, const struct sy_metrics_input *in)
{
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_requests_refused",
                         "Requests, and models to load, that were not taken, by the rule.");
    for (int i = 0; i < SY_N_REFUSALS; i++) {
        label(e, "reason", sy_refusal_label((enum sy_refusal)i));
        sy_exposition_count(e, in->front_refused.n[i] + (in->core ? in->core->refused.n[i] : 0));
    }
}

static void write_failures(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_requests_failed",
                         "Requests that were taken and ended without a result, by status.");
    for (int i = 1; i < SY_CORE_N_STATUS; i++) {
        label(e, "status", sy_status_name(-i));
        sy_exposition_count(e, core->failed[i]);
    }
}

static void write_counters(struct sy_exposition *e, const struct sy_core_metrics *core)
{
#define X(field, name, help)                                \
    sy_exposition_family(e, SY_METRIC_COUNTER, name, help); \
    sy_exposition_count(e, core->field);
    SY_CORE_COUNTER_TABLE(X)
#undef X
}

static void write_requests(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_requests",
                         "Requests that wait for their turn, or have it.");
    label(e, "state", "waiting");
    sy_exposition_count(e, (uint64_t)core->n_waiting);
    label(e, "state", "started");
    sy_exposition_count(e, (uint64_t)core->n_started);
    sy_exposition_family(e, SY_METRIC_HISTOGRAM, "switchyard_request_seconds",
                         "From a request's arrival to its end, of those that had a result.");
    sy_exposition_histogram(e, &core->phases.total);
    sy_exposition_family(e, SY_METRIC_HISTOGRAM, "switchyard_request_phase_seconds",
                         "Where requests' time went: phases of a swap.");
    for (int p = 0; p < SY_N_PHASES; p++) {
        label(e, "phase", sy_phase_label((enum sy_phase)p));
        sy_exposition_histogram(e, &core->phases.of[p]);
    }
    sy_exposition_family(e, SY_METRIC_HISTOGRAM, "switchyard_preempt_wait_seconds",
                         "From a preemption until training had paused.");
    sy_exposition_histogram(e, &core->preempt_wait);
}

/* ---- models ------------------------------------------------------------------------------------------------------- */

static void label_model(struct sy_exposition *e, const struct sy_core_model_metrics *m,
                        const char *phase)
{
    char version[24];

    snprintf(version, sizeof version, "%lld", (long long)m->version);
    sy_exposition_labels(
        e, (struct sy_label[]){{"model", m->name}, {"version", version}, {"phase", phase}},
        phase ? 3 : 2);
}

/* X(kind, name, help, how it is written, value) of a model `m` */
#define MODEL_TABLE(X)                                                                             \
    X(GAUGE, "switchyard_model_ready", "1: it answers requests.", count, m->is_ready)              \
    X(GAUGE, "switchyard_model_weights_bytes", "Its weights.", count, m->weights_bytes)            \
    X(GAUGE, "switchyard_model_resident_bytes", "What of its weights is in the pool.", count,      \
      m->resident_bytes)                                                                           \
    X(GAUGE, "switchyard_model_pending_requests", "Its requests that wait for their turn.", count, \
      (uint64_t)m->n_pending)                                                                      \
    X(COUNTER, "switchyard_model_link_bytes", "Its weights that were given to the link.", count,   \
      m->link_bytes)                                                                               \
    X(COUNTER, "switchyard_model_swaps", "Its runs for which weights had to move.", count,         \
      m->n_swaps)                                                                                  \
    X(COUNTER, "switchyard_model_device_seconds", "Time that its requests had the device.",        \
      seconds, m->device_ns)                                                                       \
    X(HISTOGRAM, "switchyard_model_request_seconds",                                               \
      "From arrival to end, of its requests that had a result.", histogram, &m->phases.total)

static void write_models(struct sy_exposition *e, const struct sy_core_metrics *core)
{
#define X(kind, name, help, how, value)                           \
    sy_exposition_family(e, SY_METRIC_##kind, name, help);        \
    for (int i = 0; i < core->n_models; i++) {                    \
        const struct sy_core_model_metrics *m = &core->models[i]; \
        label_model(e, m, NULL);                                  \
        sy_exposition_##how(e, value);                            \
    }
    MODEL_TABLE(X)
#undef X
    sy_exposition_family(e, SY_METRIC_HISTOGRAM, "switchyard_model_phase_seconds",
                         "Where the time of a model's requests went: phases of a swap.");
    for (int i = 0; i < core->n_models; i++)
        for (int p = 0; p < SY_N_PHASES; p++) {
            label_model(e, &core->models[i], sy_phase_label((enum sy_phase)p));
            sy_exposition_histogram(e, &core->models[i].phases.of[p]);
        }
}

/* ---- training ------------------------------------------------------------------------------------------------------ */

static void label_job(struct sy_exposition *e, const struct sy_core_job_metrics *j)
{
    char id[24];

    snprintf(id, sizeof id, "%llu", (unsigned long long)j->id);
    sy_exposition_labels(
        e, (struct sy_label[]){{"job_id", id}, {"job_name", j->name}, {"tenant", j->tenant}}, 3);
}

/* As MODEL_TABLE, of a job `j`. */
#define JOB_TABLE(X)                                                                              \
    X(COUNTER, "switchyard_job_steps", "Training steps that it has done.", count, j->step)        \
    X(GAUGE, "switchyard_job_steps_planned", "Steps that it has in all.", count, j->total_steps)  \
    X(GAUGE, "switchyard_job_step_rate", "Steps a second since it started in this server.", real, \
      j->steps_per_s)                                                                             \
    X(GAUGE, "switchyard_job_loss", "Loss of the last step that was reported.", real, j->loss)    \
    X(GAUGE, "switchyard_job_accuracy", "Accuracy of the last evaluation, 0 to 1.", real,         \
      j->accuracy)                                                                                \
    X(GAUGE, "switchyard_job_memory_bytes", "Memory that it keeps between its turns.", count,     \
      j->bytes)                                                                                   \
    X(COUNTER, "switchyard_job_device_seconds", "Time that it had the device.", seconds,          \
      j->device_ns)

static const char *const job_states[] = {"queued",  "preparing", "starting", "training", "paused",
                                         "waiting", "suspended", "spilled",  "ended",    "failed"};

static void write_jobs(struct sy_exposition *e, const struct sy_core_metrics *core)
{
    sy_exposition_family(e, SY_METRIC_GAUGE, "switchyard_jobs", "Training jobs by state.");
    for (size_t s = 0; s < SY_ARRAY_LEN(job_states); s++) {
        uint64_t n = 0;

        for (int i = 0; i < core->n_jobs; i++)
            n += strcmp(core->jobs[i].state, job_states[s]) == 0;
        label(e, "state", job_states[s]);
        sy_exposition_count(e, n);
    }
#define X(kind, name, help, how, value)                       \
    sy_exposition_family(e, SY_METRIC_##kind, name, help);    \
    for (int i = 0; i < core->n_jobs; i++) {                  \
        const struct sy_core_job_metrics *j = &core->jobs[i]; \
        label_job(e, j);                                      \
        sy_exposition_##how(e, value);                        \
    }
    JOB_TABLE(X)
#undef X
}

/* ---- traces ------------------------------------------------------------------------------------------------------- */

static void write_otlp(struct sy_exposition *e, const struct sy_otlp_counts *otlp)
{
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_traces_exported",
                         "Requests whose spans the collector took.");
    sy_exposition_count(e, otlp->n_exported);
    sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_traces_dropped",
                         "Requests whose spans were dropped: no room to wait, or not taken.");
    label(e, "reason", "queue_full");
    sy_exposition_count(e, otlp->n_dropped_full);
    label(e, "reason", "not_taken");
    sy_exposition_count(e, otlp->n_dropped_refused);
    gauge(e, "switchyard_traces_waiting", "Requests whose spans wait to be sent.", otlp->n_waiting);
}

void sy_metrics_body_own(struct sy_exposition *e, const struct sy_metrics_input *in)
{
    write_server(e, in);
    write_refusals(e, in);
    if (in->core) {
        gauge(e, "switchyard_draining", "1: the server stops and takes no new requests.",
              in->core->is_draining);
        write_device_time(e, in->core);
        write_slices(e, in->core);
        write_rooms(e, in->core);
        write_workers(e, in->core);
        write_requests(e, in->core);
        write_failures(e, in->core);
        write_counters(e, in->core);
        write_models(e, in->core);
        write_jobs(e, in->core);
    }
    if (in->has_otlp)
        write_otlp(e, &in->otlp);
}

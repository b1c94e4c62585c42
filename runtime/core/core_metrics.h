/* The core's counters as one value that can be read later and on another thread.
 *
 * Requests only increment integers in place (core_internal.h, struct sy_core_counts). */
#ifndef SY_RUNTIME_CORE_CORE_METRICS_H
#define SY_RUNTIME_CORE_CORE_METRICS_H

#include "runtime/core/core.h"
#include "runtime/core/phases.h"
#include "runtime/metrics/refusal.h"
#include "runtime/sched/sched.h"
#include "runtime/sched/slice_plan.h"
#include "runtime/supervisor/worker_state.h"

/* X(field, name of the counter without _total, help) */
#define SY_CORE_COUNTER_TABLE(X)                                                                  \
    X(n_swaps, "switchyard_swaps", "Runs whose model's weights had to move.")                     \
    X(n_late, "switchyard_requests_late", "Requests that ended after their deadline.")            \
    X(n_gathered, "switchyard_gathered_runs", "Runs that computed the rows of several requests.") \
    X(n_interrupts, "switchyard_interrupts",                                                      \
      "Runs that were stopped between layers for a more urgent request.")                         \
    X(n_continued, "switchyard_continued_runs",                                                   \
      "Runs that went on with the layer where they had stopped.")                                 \
    X(n_evicted, "switchyard_evicted_groups", "Groups of weights that left the pool for others.") \
    X(n_preemptions, "switchyard_preemptions", "Times that training was paused for requests.")    \
    X(n_spills, "switchyard_spills",                                                              \
      "Times that a job's memory went to host memory, or came back.")                             \
    X(spilled_bytes, "switchyard_spilled_bytes", "Bytes of jobs that were moved so, both ways.")  \
    X(link_bytes, "switchyard_link_bytes", "Bytes of weights given to the link to the device.")   \
    X(storage_bytes, "switchyard_storage_bytes", "Bytes of weights read from packages.")

struct sy_core_room {
    uint64_t bytes, free_bytes,
        largest_free_bytes; /* largest contiguous free range; 0 where it is not known */
};

struct sy_core_model_metrics {
    char name[SY_CORE_MODEL_NAME];
    int64_t version;
    bool is_ready;
    uint64_t weights_bytes, resident_bytes, link_bytes;
    uint64_t n_swaps;
    int n_pending;   /* requests waiting */
    sy_ns device_ns; /* device time of its requests */
    struct sy_phase_histograms phases;
};

struct sy_core_job_metrics {
    uint64_t id;
    char name[SY_CORE_MODEL_NAME], tenant[SY_CORE_TENANT_NAME];
    const char *state; /* as in the status: "training", "paused", ... */
    uint64_t step, total_steps,
        bytes;             /* bytes: of the memory that it holds in the pool, or spilled */
    double loss, accuracy; /* NaN: not known */
    double steps_per_s;    /* measured since it started in this process */
    sy_ns device_ns;
};

struct sy_core_slice_metrics {
    char name[SY_SLICE_NAME];
    int n_cores;
    sy_ns used_ns; /* time in which something computed there */
};

struct sy_core_worker_metrics {
    enum sy_worker_state state;
    int n_deaths;
};

#define SY_CORE_N_STATUS 17 /* status codes, by their negated value */

struct sy_core_metrics {
    char device_kind[16], device_name[64], device_uuid[48];
    bool is_draining;
    struct sy_core_room pool, image, slab; /* image.bytes 0: the pool is the image */
    int n_waiting, n_started;
#define X(field, name, help) uint64_t field;
    SY_CORE_COUNTER_TABLE(X)
#undef X
    int n_slices;
    struct sy_core_slice_metrics slices[SY_SCHED_MAX_SLICES];
    sy_ns idle_ns, inference_ns, training_ns; /* together: the time since the start */
    struct sy_phase_histograms phases;        /* over all models, including removed ones */
    struct sy_histogram preempt_wait;
    struct sy_refusals refused;
    uint64_t failed[SY_CORE_N_STATUS]; /* admitted requests that ended with this status */
    int n_workers, n_models, n_jobs;
    struct sy_core_worker_metrics *workers;
    struct sy_core_model_metrics *models;
    struct sy_core_job_metrics *jobs;
};

/* A snapshot of all counters in one allocation; the caller frees it with free(). ENOMEM_HOST. Takes some microseconds per model. */
int sy_core_metrics(struct sy_core *core, struct sy_core_metrics **out);

#endif

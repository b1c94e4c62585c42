/* Triton's statistics of a model's version: counts of requests, times of each phase. Kept by name and version, also after
 * the model was unloaded and loaded again.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_STATS_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_STATS_H

#include "runtime/core/core.h"

struct sy_front_stats;

/* X(name): of each, count and nanoseconds, cumulative */
#define SY_FRONT_DURATIONS(X) \
    X(success)                \
    X(fail)                   \
    X(queue)                  \
    X(compute_input)          \
    X(compute_infer)          \
    X(compute_output)

struct sy_front_duration {
    uint64_t count, ns;
};

/* Runs of one number of rows. */
struct sy_front_batch_stats {
    int64_t rows;
    struct sy_front_duration compute_input, compute_infer, compute_output;
};
/* Batch sizes per model; runs of further sizes count in the sums only. */
#define SY_FRONT_BATCH_SIZES 64

struct sy_front_model_stats {
    const char *name;
    int64_t version;
    uint64_t n_inferences; /* rows */
    uint64_t n_executions; /* runs: of what was gathered, one */
    uint64_t n_successes, n_failures;
    /* Failures by reason: refused for a full queue or a deadline; canceled; not the request's fault. */
    uint64_t n_rejected, n_canceled, n_backend_failures;
    uint64_t last_inference_ms; /* wall clock since 1970; 0: none */
#define X(part) struct sy_front_duration part;
    SY_FRONT_DURATIONS(X)
#undef X
    int n_batches;                              /* ascending by rows */
    const struct sy_front_batch_stats *batches; /* until the next note */
};

int sy_front_stats_create(struct sy_front_stats **out);
void sy_front_stats_destroy(struct sy_front_stats *stats); /* NULL is fine */
/* One request has ended. report: NULL for one that never ran. */
void sy_front_stats_note(struct sy_front_stats *stats, const struct sy_core_model_ref *model,
                         int64_t rows, int status, const struct sy_request_report *report);
/* Zeros if nothing was noted. */
void sy_front_stats_of(const struct sy_front_stats *stats, const char *name, int64_t version,
                       struct sy_front_model_stats *out);
/* All, in no order; each is valid during the call. */
void sy_front_stats_walk(const struct sy_front_stats *stats,
                         void (*each)(void *ctx, const struct sy_front_model_stats *of), void *ctx);

#endif

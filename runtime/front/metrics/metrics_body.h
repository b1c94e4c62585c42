/* The text of /metrics, from values that were taken before: it may be made on any thread.
 *
 *   metrics_body.c         what there is            metrics_body_own.c     switchyard_*
 *   metrics_body_triton.c  nv_*, by the names and labels that dashboards made for Triton ask for */
#ifndef SY_FRONT_METRICS_BODY_H
#define SY_FRONT_METRICS_BODY_H

#include "runtime/core/core_metrics.h"
#include "runtime/front/request/front_stats.h"
#include "runtime/metrics/exposition.h"
#include "runtime/metrics/host_usage.h"
#include "runtime/telemetry/otlp.h"

#define SY_METRICS_MOST_BYTES (64u << 20) /* 4096 models' statistics are 6 MB */

struct sy_metrics_input {
    enum sy_exposition_format format;
    bool own, triton;             /* which names */
    const char *version;          /* of the program */
    struct sy_core_metrics *core; /* NULL: none */
    struct sy_front_model_stats *stats;
    int n_stats;
    struct sy_refusals front_refused;
    struct sy_host_usage host;
    bool has_otlp;
    struct sy_otlp_counts otlp;
};

/* *out_text is the caller's to free. ENOMEM_HOST, ETOOBIG. */
int sy_metrics_body(const struct sy_metrics_input *in, char **out_text, size_t *out_bytes);

void sy_metrics_body_own(struct sy_exposition *e, const struct sy_metrics_input *in);
void sy_metrics_body_triton(struct sy_exposition *e, const struct sy_metrics_input *in);

#endif
